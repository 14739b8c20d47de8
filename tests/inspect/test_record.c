/* A record's file: what is saved comes back, and what lies is named. */
#include "file/file.h"
#include "file/safetensors.h"
#include "hand.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/attn-record-XXXXXX");
    const int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static attn_record *example(void)
{
    attn_record *record = hand_record("A \"b\" , b \x1b[0m 日本", "c é \\ c", 2, 3);
    hand_look_along(record, ATTN_PART_ENCODER, 1, 2, -1, 0.8f);
    hand_look_along(record, ATTN_PART_CROSS, 0, 1, 0, 0.7f);
    record->source_words.list[0].tokens = 3;
    record->forced = true;
    record->finished = true;
    record->beams = 0;
    attn_summary_destroy(hand_summary(record)); /* measures the entropies */
    return record;
}

static void assert_words_equal(const attn_record_words *a, const attn_record_words *b)
{
    assert_int_equal(a->length, b->length);
    for (int64_t i = 0; i < a->length; i++) {
        assert_string_equal(a->list[i].text, b->list[i].text);
        assert_int_equal(a->list[i].special, b->list[i].special);
        assert_int_equal(a->list[i].occurrence, b->list[i].occurrence);
        assert_int_equal(a->list[i].tokens, b->list[i].tokens);
    }
}

static void what_is_saved_comes_back_to_the_bit(void **state)
{
    (void)state;
    attn_record *saved = example(), *loaded = NULL;
    attn_error error;
    assert_int_equal(attn_record_save(saved, path, &error), ATTN_OK);
    if (attn_record_load(&loaded, path, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_string_equal(loaded->model, saved->model);
    assert_string_equal(loaded->source, saved->source);
    assert_string_equal(loaded->translation, saved->translation);
    assert_string_equal(loaded->source_language, "en");
    assert_string_equal(loaded->target_language, "fr");
    assert_true(loaded->forced && loaded->finished);
    assert_int_equal(loaded->beams, 0);
    assert_words_equal(&loaded->source_words, &saved->source_words);
    assert_words_equal(&loaded->written_words, &saved->written_words);
    assert_words_equal(&loaded->read_words, &saved->read_words);
    assert_int_equal(loaded->part_count, 3);
    for (int64_t p = 0; p < 3; p++) {
        const attn_record_part *a = &loaded->parts[p], *b = &saved->parts[p];
        const size_t heads = (size_t)(a->layers * a->heads);
        const size_t rows = heads * (size_t)a->rows->length;
        assert_int_equal(a->part, b->part);
        assert_int_equal(a->layers, b->layers);
        assert_int_equal(a->heads, b->heads);
        assert_int_equal(a->causal, b->causal);
        assert_memory_equal(a->weights, b->weights,
                            rows * (size_t)a->keys->length * sizeof(float));
        assert_memory_equal(a->row_entropy, b->row_entropy, rows * sizeof(float));
        assert_memory_equal(a->entropy, b->entropy, heads * sizeof(float));
    }
    attn_record_destroy(loaded);
    attn_record_destroy(saved);
}

static void a_picture_and_a_label_come_back(void **state)
{
    (void)state;
    attn_record *picture = hand_picture("one two"), *loaded = NULL;
    attn_error error;
    attn_summary_destroy(hand_summary(picture));
    assert_int_equal(attn_record_save(picture, path, &error), ATTN_OK);
    if (attn_record_load(&loaded, path, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(loaded->picture.grid_rows, 2);
    assert_int_equal(loaded->picture.grid_columns, 3);
    assert_memory_equal(loaded->picture.grey, picture->picture.grey, 4 * 6);
    assert_words_equal(&loaded->source_words, &picture->source_words);
    assert_string_equal(loaded->source_words.list[5].text, "2,3");
    attn_record_destroy(loaded);
    attn_record_destroy(picture);

    attn_record *label = hand_label("a good film", "positive");
    attn_summary_destroy(hand_summary(label));
    assert_int_equal(attn_record_save(label, path, &error), ATTN_OK);
    if (attn_record_load(&loaded, path, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(loaded->parts[0].part, ATTN_PART_POOL);
    assert_int_equal(loaded->parts[0].rows->length, 1);
    assert_int_equal(loaded->parts[0].keys->length, 3);
    attn_record_destroy(loaded);
    attn_record_destroy(label);
}

static void a_picture_whose_grid_is_not_the_words_is_refused(void **state)
{
    (void)state;
    static const int64_t grids[][2] = {{3, 2}, {2, 2}, {0, 3}, {6, 1}, {-2, -3}, {1, 6}};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        attn_record *picture = hand_picture("one"), *loaded = NULL;
        attn_error error;
        attn_summary_destroy(hand_summary(picture));
        picture->picture.grid_rows = grids[i][0];
        picture->picture.grid_columns = grids[i][1];
        assert_int_equal(attn_record_save(picture, path, &error), ATTN_OK);
        const attn_status status = attn_record_load(&loaded, path, &error);
        if (i == 0 || i == 5) { /* other grids of six places over these points */
            assert_int_equal(status, ATTN_OK);
            attn_record_destroy(loaded);
        } else {
            assert_int_equal(status, ATTN_EFORMAT);
            assert_non_null(strstr(error.message, i == 3 ? "6 × 1 places" : "\"grid\""));
        }
        attn_record_destroy(picture);
    }
}

static void the_same_record_has_the_same_bytes(void **state)
{
    (void)state;
    attn_record *record = example();
    attn_error error;
    char *first, *second;
    size_t first_length, second_length;
    assert_int_equal(attn_record_save(record, path, &error), ATTN_OK);
    assert_int_equal(attn_file_read(path, 1 << 20, &first, &first_length, &error),
                     ATTN_OK);
    assert_int_equal(attn_record_save(record, path, &error), ATTN_OK);
    assert_int_equal(attn_file_read(path, 1 << 20, &second, &second_length, &error),
                     ATTN_OK);
    assert_int_equal(first_length, second_length);
    assert_memory_equal(first, second, first_length);
    free(first);
    free(second);
    attn_record_destroy(record);
}

static void a_file_cut_anywhere_is_an_error(void **state)
{
    (void)state;
    attn_record *record = example(), *loaded = NULL;
    attn_error error;
    char *data;
    size_t length;
    assert_int_equal(attn_record_save(record, path, &error), ATTN_OK);
    assert_int_equal(attn_file_read(path, 1 << 20, &data, &length, &error), ATTN_OK);
    for (size_t cut = 0; cut < length; cut += cut < 64 ? 1 : 61) {
        char *part = malloc(cut > 0 ? cut : 1); /* its own block: reads beyond are seen */
        memcpy(part, data, cut);
        assert_int_not_equal(attn_record_parse(&loaded, part, cut, "cut", &error),
                             ATTN_OK);
        free(part);
    }
    free(data);
    attn_record_destroy(record);
}

/* Any byte of the header changed: an error or a record, never a crash. */
static void no_change_of_a_byte_harms(void **state)
{
    (void)state;
    attn_record *record = example();
    attn_error error;
    char *data;
    size_t length;
    assert_int_equal(attn_record_save(record, path, &error), ATTN_OK);
    assert_int_equal(attn_file_read(path, 1 << 20, &data, &length, &error), ATTN_OK);
    static const unsigned char changes[] = {0x01, 0x10, 0x80, 0xff};
    for (size_t i = 0; i < length && i < 3000; i++) {
        attn_record *loaded = NULL;
        data[i] = (char)(data[i] ^ changes[i % 4]);
        if (attn_record_parse(&loaded, data, length, "changed", &error) == ATTN_OK) {
            attn_summary *summary;
            assert_int_equal(attn_summary_create(&summary, loaded, NULL, &error),
                             ATTN_OK);
            attn_summary_destroy(summary);
        }
        attn_record_destroy(loaded);
        data[i] = (char)(data[i] ^ changes[i % 4]);
    }
    free(data);
    attn_record_destroy(record);
}

/* Files of one encoder head over two words, with what is wrong put in. */
struct lie {
    const char *json; /* with the true one's parts replaced */
    float weights[4], row_entropy[2], entropy;
    int64_t layers, keys;
    const char *message;
};

#define WORDS                                                                            \
    "\"source_words\":[{\"text\":\"a\",\"special\":false,\"tokens\":1},"                 \
    "{\"text\":\"</s>\",\"special\":true,\"tokens\":1}],"                                \
    "\"written_words\":[],\"read_words\":[],\"parts\":[\"encoder\"]}"
#define HEAD                                                                             \
    "{\"version\":1,\"model\":\"m\",\"source\":\"a\",\"translation\":\"\","              \
    "\"source_language\":\"en\",\"target_language\":\"\",\"forced\":false,\"finished\":" \
    "true,\"beams\":4,"

static attn_status write_and_load(const struct lie *lie, attn_error *error)
{
    const attn_safetensors_entry entries[] = {
        {"encoder.weights",
         ATTN_DTYPE_F32,
         4,
         {lie->layers, 1, 2, lie->keys},
         lie->weights},
        {"encoder.row_entropy", ATTN_DTYPE_F32, 3, {lie->layers, 1, 2}, lie->row_entropy},
        {"encoder.entropy", ATTN_DTYPE_F32, 2, {lie->layers, 1}, &lie->entropy}};
    const attn_safetensors_note note = {"attn.record", lie->json};
    attn_record *record = NULL;
    assert_int_equal(
        attn_safetensors_write(path, entries, lie->layers > 0 ? 3 : 0, &note, 1, error),
        ATTN_OK);
    const attn_status status = attn_record_load(&record, path, error);
    attn_record_destroy(record);
    return status;
}

#define TRUE_NUMBERS {.5f, .5f, 0, 1}, {1, 0}, .5f

static void each_lie_has_a_name(void **state)
{
    (void)state;
    const float nan_value = nanf("");
    const struct lie lies[] = {
        {"[1]", TRUE_NUMBERS, 1, 2, "\"attn.record\""},
        {"{\"version\":1", TRUE_NUMBERS, 1, 2, "\"attn.record\""},
        {"{\"version\":2}", TRUE_NUMBERS, 1, 2, "another version"},
        {"{\"version\":1,\"beams\":-1,\"forced\":false}", TRUE_NUMBERS, 1, 2, "beams"},
        {"{\"version\":1,\"beams\":1,\"forced\":false,\"finished\":true,\"model\":7}",
         TRUE_NUMBERS, 1, 2, "\"model\" is no text"},
        {HEAD "\"source_words\":7}", TRUE_NUMBERS, 1, 2, "\"source_words\" is no list"},
        {HEAD "\"source_words\":[{\"text\":\"\",\"special\":false,\"tokens\":1}]}",
         TRUE_NUMBERS, 1, 2, "word 1 of \"source_words\" is malformed"},
        {HEAD "\"source_words\":[{\"text\":\"a\",\"special\":false,\"tokens\":0}]}",
         TRUE_NUMBERS, 1, 2, "word 1 of \"source_words\" is malformed"},
        {HEAD "\"source_words\":[],\"written_words\":[],\"read_words\":[],"
              "\"parts\":[\"encoder\"]}",
         TRUE_NUMBERS, 1, 2, "the encoder has no words"},
        {HEAD "\"source_words\":[],\"written_words\":[],\"read_words\":[],"
              "\"parts\":[\"elsewhere\"]}",
         TRUE_NUMBERS, 1, 2, "unknown part"},
        {HEAD "\"source_words\":[],\"written_words\":[],\"read_words\":[]}", TRUE_NUMBERS,
         1, 2, "\"parts\" are malformed"},
        {HEAD WORDS, TRUE_NUMBERS, 1, 1, "\"encoder.weights\" has extent 1 on axis 3"},
        {HEAD WORDS, TRUE_NUMBERS, 0, 2, "\"encoder.weights\" is missing"},
        {HEAD WORDS, {.5f, .4f, 0, 1}, {1, 0}, .5f, 1, 2, "row 1 sum to 0.9"},
        {HEAD WORDS, {1.5f, -.5f, 0, 1}, {1, 0}, .5f, 1, 2, "key 1 is 1.5"},
        {HEAD WORDS, {.5f, .5f, nan_value, 1}, {1, 0}, .5f, 1, 2, "row 2, key 1 is nan"},
        {HEAD WORDS, {.5f, .5f, 0, 1}, {1.5f, 0}, .5f, 1, 2, "entropy of a row"},
        {HEAD WORDS, {.5f, .5f, 0, 1}, {1, 0}, -.5f, 1, 2, "entropy of a head"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        attn_error error = {0};
        assert_int_equal(write_and_load(&lies[i], &error), ATTN_EFORMAT);
        if (strstr(error.message, lies[i].message) == NULL)
            fail_msg("\"%s\" without \"%s\"", error.message, lies[i].message);
    }
    const struct lie truth = {HEAD WORDS, TRUE_NUMBERS, 1, 2, ""};
    attn_error error = {0};
    assert_int_equal(write_and_load(&truth, &error), ATTN_OK);
}

static void a_model_file_is_no_record(void **state)
{
    (void)state;
    attn_error error;
    attn_record *record;
    const float one = 1;
    const attn_safetensors_entry entry = {"weight", ATTN_DTYPE_F32, 1, {1}, &one};
    assert_int_equal(attn_safetensors_write(path, &entry, 1, NULL, 0, &error), ATTN_OK);
    assert_int_equal(attn_record_load(&record, path, &error), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "a record of attn look"));
}

static void a_part_is_added_once(void **state)
{
    (void)state;
    attn_record *record = hand_record("a", "b", 1, 1);
    attn_record_part *part;
    attn_error error;
    assert_int_equal(attn_record_add_part(record, ATTN_PART_CROSS, 1, 1, &part, &error),
                     ATTN_EINVAL);
    assert_non_null(strstr(error.message, "cross"));
    attn_record_destroy(record);
}

static void a_size_beyond_memory_is_refused(void **state)
{
    (void)state;
    attn_record *record;
    attn_record_part *part;
    attn_error error;
    assert_int_equal(attn_record_create(&record, &error), ATTN_OK);
    assert_int_equal(attn_record_words_create(&record->source_words, 3, &error), ATTN_OK);
    assert_int_equal(attn_record_add_part(record, ATTN_PART_ENCODER, INT64_MAX / 2,
                                          INT64_MAX / 2, &part, &error),
                     ATTN_ENOMEM);
    attn_record_destroy(record);
    attn_record_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_comes_back_to_the_bit),
        cmocka_unit_test(a_picture_and_a_label_come_back),
        cmocka_unit_test(a_picture_whose_grid_is_not_the_words_is_refused),
        cmocka_unit_test(the_same_record_has_the_same_bytes),
        cmocka_unit_test(a_file_cut_anywhere_is_an_error),
        cmocka_unit_test(no_change_of_a_byte_harms),
        cmocka_unit_test(each_lie_has_a_name),
        cmocka_unit_test(a_model_file_is_no_record),
        cmocka_unit_test(a_part_is_added_once),
        cmocka_unit_test(a_size_beyond_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}

/* A record from a small translator of random weights: what holds for any, what is
 * refused, and, where Python has `transformers`, the same weights as its eager attention
 * gives. Argument: test_attentions.py. */
#include "hand.h"
#include "inspect/build.h"
#include "model/recurrent_translator.h"
#include "tests/python.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { VOCABULARY = 300, POSITIONS = 48 };

static const char *script;

static struct {
    attn_translator *translator;
    attn_tokenizer *tokenizer;
    attn_context *context;
} model;

static int make_model(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "the cat was sitting on the mat", "the mat was hungry", "le chat était assis",
        "le chat avait faim", "the cat was hungry, the mat was not"};
    attn_error error;
    if (attn_tokenizer_train(&model.tokenizer, texts, 5, VOCABULARY, &error) != ATTN_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    const attn_translator_config config = {.vocabulary =
                                               attn_tokenizer_size(model.tokenizer),
                                           .width = 32,
                                           .heads = 4,
                                           .encoder_layers = 2,
                                           .decoder_layers = 3,
                                           .inner = 64,
                                           .max_positions = POSITIONS,
                                           .activation = ATTN_RELU,
                                           .normalise_first = true,
                                           .languages = {"en", "fr"}};
    if (attn_translator_create(&model.translator, &config, 5, &error) != ATTN_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    return attn_context_create(&model.context, NULL) == ATTN_OK ? 0 : -1;
}

static int remove_model(void **state)
{
    (void)state;
    attn_context_destroy(model.context);
    attn_translator_destroy(model.translator);
    attn_tokenizer_destroy(model.tokenizer);
    return 0;
}

static attn_record_request request(const char *translation)
{
    static attn_seq2seq seen;
    seen = attn_translator_seq2seq(model.translator);
    attn_record_request wanted = {.translator = &seen,
                                  .tokenizer = model.tokenizer,
                                  .context = model.context,
                                  .model = "small-en-fr",
                                  .translation = translation};
    attn_search_options_init(&wanted.search);
    wanted.search.max_length = 12;
    return wanted;
}

static attn_record *build(const char *text, const char *translation)
{
    const attn_record_request wanted = request(translation);
    attn_record *record = NULL;
    attn_error error;
    if (attn_record_build(&record, &wanted, text, strlen(text), &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return record;
}

static void assert_sound(const attn_record *record)
{
    for (int64_t p = 0; p < record->part_count; p++) {
        const attn_record_part *part = &record->parts[p];
        const int64_t rows = part->rows->length, keys = part->keys->length;
        for (int64_t i = 0; i < part->layers * part->heads * rows; i++) {
            const int64_t visible = attn_record_visible(part, i % rows);
            double sum = 0;
            for (int64_t j = 0; j < keys; j++) {
                const float weight = part->weights[i * keys + j];
                assert_true(weight >= 0 && (j < visible || weight == 0));
                sum += (double)weight;
            }
            assert_true(fabs(sum - 1) < 1e-5);
            const float entropy = part->row_entropy[i];
            assert_true((entropy >= 0 && entropy <= 1) || (entropy == -1 && visible < 2));
        }
    }
}

static void weights_of_every_row_sum_to_one(void **state)
{
    (void)state;
    attn_record *record = build("the cat was hungry, the mat was not", NULL);
    assert_int_equal(record->part_count, 3);
    assert_int_equal(record->parts[0].layers, 2);
    assert_int_equal(record->parts[1].layers, 3);
    assert_int_equal(record->parts[2].heads, 4);
    assert_int_equal(record->beams, 4);
    assert_false(record->forced);
    assert_sound(record);
    attn_record_destroy(record);
}

static void words_are_joined_and_marks_stand_by_themselves(void **state)
{
    (void)state;
    attn_record *record = build("the cat was hungry, was it?", "le chat était là");
    static const char *const source[] = {"the", "cat", "was", "hungry", ",",
                                         "was", "it",  "?",   "</s>"};
    static const char *const written[] = {"le", "chat", "était", "là", "</s>"};
    static const char *const read[] = {"<s>", "le", "chat", "était", "là"};
    assert_int_equal(record->source_words.length, 9);
    for (int i = 0; i < 9; i++)
        assert_string_equal(record->source_words.list[i].text, source[i]);
    assert_int_equal(record->source_words.list[5].occurrence, 2);
    assert_true(record->source_words.list[8].special);
    assert_int_equal(record->written_words.length, 5);
    assert_int_equal(record->read_words.length, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(record->written_words.list[i].text, written[i]);
        assert_string_equal(record->read_words.list[i].text, read[i]);
    }
    assert_true(record->read_words.list[0].special);
    assert_true(record->written_words.list[3].tokens > 1); /* "là" was never learned */
    assert_true(record->forced);
    assert_string_equal(record->translation, "le chat était là");
    assert_sound(record);
    attn_record_destroy(record);
}

static void the_same_request_gives_the_same_record(void **state)
{
    (void)state;
    attn_record *a = build("the cat sat", NULL), *b = build("the cat sat", NULL);
    assert_string_equal(a->translation, b->translation);
    for (int p = 0; p < 3; p++)
        assert_memory_equal(
            a->parts[p].weights, b->parts[p].weights,
            (size_t)(a->parts[p].layers * a->parts[p].heads * a->parts[p].rows->length *
                     a->parts[p].keys->length) *
                sizeof(float));
    attn_record_destroy(a);
    attn_record_destroy(b);
}

static void one_letter_is_a_text(void **state)
{
    (void)state;
    attn_record *record = build("a", "b");
    assert_int_equal(record->source_words.length, 2);
    assert_true(record->parts[1].row_entropy[0] == -1); /* <s> sees itself alone */
    assert_sound(record);
    attn_record_destroy(record);
}

static void a_users_mark_is_text(void **state)
{
    (void)state;
    attn_record *record = build("the </s> cat", "le <s> chat");
    int marks = 0;
    for (int64_t i = 0; i < record->source_words.length; i++)
        marks += record->source_words.list[i].special;
    assert_int_equal(marks, 1);
    assert_sound(record);
    attn_record_destroy(record);
}

static void what_cannot_be_looked_at_is_refused_by_name(void **state)
{
    (void)state;
    char longest[400];
    memset(longest, 'z', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    const struct {
        const char *text;
        size_t length;
        const char *translation;
        attn_status status;
        const char *message;
    } cases[] = {
        {"", 0, NULL, ATTN_EINVAL, "the text is empty"},
        {" \n\t ", 4, NULL, ATTN_EINVAL, "the text is empty"},
        {"a", 1, "", ATTN_EINVAL, "the translation is empty"},
        {"ab\xff", 3, NULL, ATTN_EFORMAT,
         "the text is not UTF-8: byte 0xff at byte 3 of 3"},
        {"a", 1, "\xe4\xbd", ATTN_EFORMAT, "the translation is not UTF-8"},
        {"a\0b", 3, NULL, ATTN_EFORMAT, "NUL"},
        {longest, 399, NULL, ATTN_EFORMAT,
         "the text has 399 tokens, expected at most 47: the model has no more positions"},
        {"a", 1, longest, ATTN_EFORMAT,
         "the translation has 399 tokens, expected at most 47"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_record_request wanted = request(cases[i].translation);
        attn_record *record = NULL;
        attn_error error = {0};
        assert_int_equal(
            attn_record_build(&record, &wanted, cases[i].text, cases[i].length, &error),
            cases[i].status);
        assert_null(record);
        if (strstr(error.message, cases[i].message) == NULL)
            fail_msg("\"%s\" without \"%s\"", error.message, cases[i].message);
    }
}

static void weights_are_those_of_transformers(void **state)
{
    (void)state;
    if (script == NULL || !python_has("torch, transformers, tokenizers, safetensors"))
        skip();
    char folder[] = "/tmp/attn-build-XXXXXX", path[128];
    attn_error error;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(attn_translator_save(model.translator, folder, 0 /* fp32 */, &error),
                     ATTN_OK);
    assert_int_equal(attn_tokenizer_save(model.tokenizer, path, &error), ATTN_OK);
    attn_record *record = build("the cat, which sat on the mat, was hungry.",
                                "le chat était très assis, ça alors");
    snprintf(path, sizeof path, "%s/record.attn", folder);
    assert_int_equal(attn_record_save(record, path, &error), ATTN_OK);
    attn_record_destroy(record);
    const char *const chosen = getenv("ATTN_PYTHON");
    char command[1024];
    snprintf(command, sizeof command, "'%s' '%s' '%s'", chosen ? chosen : "python3",
             script, folder);
    const int status = system(command);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static attn_seq2seq recurrent(attn_cross_score attention, bool context_enters)
{
    const attn_recurrent_translator_config config = {
        .vocabulary = attn_tokenizer_size(model.tokenizer),
        .embedding = 8,
        .cell = ATTN_CELL_GRU,
        .encoder_width = 6,
        .encoder_layers = 1,
        .decoder_layers = 1,
        .both_ways = true,
        .width = 9,
        .attention = attention,
        .attention_width = attention == ATTN_CROSS_ADDITIVE ? 5 : 0,
        .context_enters = context_enters,
        .max_positions = POSITIONS};
    attn_recurrent_translator *translator;
    attn_error error;
    if (attn_recurrent_translator_create(&translator, &config, 5, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return attn_recurrent_translator_seq2seq(translator);
}

static void a_recurrent_translator_has_one_head_that_reads_the_source(void **state)
{
    (void)state;
    for (int context_enters = 0; context_enters < 2; context_enters++) {
        const attn_seq2seq seen = recurrent(ATTN_CROSS_ADDITIVE, context_enters);
        attn_record_request wanted = request(NULL);
        attn_record *record = NULL;
        attn_error error;
        wanted.translator = &seen;
        if (attn_record_build(&record, &wanted, "the cat sat", 11, &error) != ATTN_OK)
            fail_msg("%s", error.message);
        assert_int_equal(record->part_count, 1);
        assert_int_equal(record->parts[0].part, ATTN_PART_CROSS);
        assert_int_equal(record->parts[0].layers, 1);
        assert_int_equal(record->parts[0].heads, 1);
        assert_sound(record);
        attn_record_destroy(record);
        seen.kind->destroy(seen.model);
    }
}

static void a_model_without_attention_has_nothing_to_look_at(void **state)
{
    (void)state;
    const attn_seq2seq seen = recurrent(ATTN_CROSS_NONE, true);
    attn_record_request wanted = request(NULL);
    attn_record *record = NULL;
    attn_error error;
    wanted.translator = &seen;
    assert_int_equal(attn_record_build(&record, &wanted, "the cat sat", 11, &error),
                     ATTN_EUNSUPPORTED);
    assert_null(record);
    assert_non_null(strstr(error.message, "small-en-fr has no attention"));
    seen.kind->destroy(seen.model);
}

int main(int argc, char **argv)
{
    script = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recurrent_translator_has_one_head_that_reads_the_source),
        cmocka_unit_test(a_model_without_attention_has_nothing_to_look_at),
        cmocka_unit_test(weights_of_every_row_sum_to_one),
        cmocka_unit_test(words_are_joined_and_marks_stand_by_themselves),
        cmocka_unit_test(the_same_request_gives_the_same_record),
        cmocka_unit_test(one_letter_is_a_text),
        cmocka_unit_test(a_users_mark_is_text),
        cmocka_unit_test(what_cannot_be_looked_at_is_refused_by_name),
        cmocka_unit_test(weights_are_those_of_transformers),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}

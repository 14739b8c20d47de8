/* A reader's folder: what is saved loads with the same bits, what does not fit is named,
 * and PyTorch's layers compute the same from the file (test_reader_file.py, the only
 * argument). */
#include "../python.h"
#include "file/file.h"
#include "file/safetensors.h"
#include "small_reader.h"
#include "text/tokenizer.h"
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *script;

static const char *const NAMES[READER_LABELS] = {"good", "bad", "né\"ither"};

static void save(const attn_reader_config *config, const char *folder)
{
    attn_error error;
    attn_reader *const reader = small_reader_create(config);
    if (attn_reader_name_labels(reader, NAMES, &error) != ATTN_OK ||
        attn_reader_save(reader, folder, ATTN_DTYPE_F32, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_reader_destroy(reader);
}

static attn_reader *load(const char *folder)
{
    attn_reader *reader;
    attn_error error;
    if (attn_reader_load(&reader, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return reader;
}

static void load_fails(const char *folder, attn_status expected, const char *fragment)
{
    attn_reader *reader = (attn_reader *)&expected;
    attn_error error = {0};
    const attn_status status = attn_reader_load(&reader, folder, &error);
    assert_fails(status, &error, expected, fragment);
    assert_null(reader);
}

static void what_is_saved_loads_with_the_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < READER_KINDS; kind++) {
        char folder[512];
        attn_reader_config config = small_reader_config(kind);
        config.dropout = 0.3f;
        config.attention_dropout = 0.1f;
        config.token_dropout = config.body == ATTN_BODY_TRANSFORMER ? 0.0f : 0.2f;
        folder_make(folder, sizeof folder);
        save(&config, folder);
        attn_reader *const saved = small_reader_create(&config);
        attn_reader *const loaded = load(folder);
        if (memcmp(attn_reader_config_of(loaded), attn_reader_config_of(saved),
                   sizeof config) != 0)
            fail_msg("%s: the configuration differs", small_reader_name(kind));
        for (int i = 0; i < READER_LABELS; i++)
            assert_string_equal(attn_reader_label(loaded, i), NAMES[i]);
        attn_tape *const tape = small_tape(), *const other = small_tape();
        const attn_reader_text *const texts = small_reader_texts(config.tags);
        assert_memory_equal(small_reader_logits(loaded, tape, texts, READER_TEXTS),
                            small_reader_logits(saved, other, texts, READER_TEXTS),
                            (size_t)small_reader_all_rows(config.tags) * READER_LABELS *
                                sizeof(float));
        small_tape_destroy(tape), small_tape_destroy(other);
        attn_reader_destroy(saved), attn_reader_destroy(loaded);
        folder_remove(folder);
    }
}

static void a_configuration_that_does_not_fit_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        attn_status status;
        const char *fragment;
    } cases[] = {
        {"model_type", "\"gpt2\"", ATTN_EUNSUPPORTED, "model_type is \"gpt2\", expected"},
        {"model_type", NULL, ATTN_EFORMAT, "model_type is missing, expected"},
        {"model_type", "3", ATTN_EFORMAT, "model_type is a whole number"},
        {"architectures", "[\"AttnTextRegressor\"]", ATTN_EUNSUPPORTED,
         "architectures is \"AttnTextRegressor\", expected AttnTextClassifier"},
        {"architectures", "[]", ATTN_EFORMAT, "architectures is missing"},
        {"body", "\"forest\"", ATTN_EUNSUPPORTED,
         "body is \"forest\", expected bag, convolution, rnn, gru or lstm"},
        {"pooling", "7", ATTN_EFORMAT, "pooling is a whole number, expected a text"},
        {"pooling", "\"max\"", ATTN_EFORMAT, "attention_width is 6, expected 0 to 0"},
        {"filters", "3", ATTN_EFORMAT, "filters is a whole number, expected a list"},
        {"filters", "[1, 2, 3, 4, 5]", ATTN_EFORMAT, "filters has 5 lengths"},
        {"filters", "[\"a\"]", ATTN_EFORMAT, "filters is a text"},
        {"hidden_size", "-1", ATTN_EFORMAT, "width is -1, expected 1 to"},
        {"hidden_size", "9223372036854775807", ATTN_EFORMAT, "width is 92233720368547"},
        {"hidden_size", "8", ATTN_EFORMAT, "encoder.weight_ih_l0\" has shape [28, 10]"},
        {"vocab_size", "30", ATTN_EFORMAT, "word_embeddings.weight\" has shape [29, 10]"},
        {"vocab_size", "16777216", ATTN_EFORMAT, "expected [16777216, 10]"},
        {"num_hidden_layers", "1", ATTN_EFORMAT, "belongs to no part of the model"},
        {"num_hidden_layers", "3", ATTN_EFORMAT, "no tensor \"encoder.weight_ih_l2\""},
        {"dropout", "1.0", ATTN_EFORMAT, "dropout is 1, expected 0 to below 1"},
        {"bidirectional", "1", ATTN_EFORMAT, "bidirectional is a whole number"},
        {"id2label", "{\"0\": \"a\", \"1\": \"b\"}", ATTN_EFORMAT,
         "classifier.weight\" has shape [3, 14]"},
        {"id2label", "{\"0\": \"a\", \"1\": \"b\", \"2\": \"a\"}", ATTN_EFORMAT,
         "labels 0 and 2 are both \"a\""},
        {"id2label", "{\"0\": \"a\", \"1\": \"b\", \"3\": \"c\"}", ATTN_EFORMAT,
         "id2label.2 is missing"},
        {"id2label", "[1]", ATTN_EFORMAT, "id2label is a list, expected an object"},
    };
    const attn_reader_config config = small_reader_config(5);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char folder[512];
        folder_make(folder, sizeof folder);
        save(&config, folder);
        small_config_change(folder, cases[i].key, cases[i].value);
        load_fails(folder, cases[i].status, cases[i].fragment);
        folder_remove(folder);
    }
}

static void tensors_that_are_missing_or_not_numbers_are_named(void **state)
{
    (void)state;
    char folder[512], path[1024];
    attn_error error;
    const attn_reader_config config = small_reader_config(0);
    folder_make(folder, sizeof folder);
    load_fails(folder, ATTN_EIO, "config.json");
    save(&config, folder);
    path_join(path, sizeof path, folder, "model.safetensors");
    const float values[290] = {0.0f};
    const attn_safetensors_entry one = {.name = "embeddings.word_embeddings.weight",
                                        .dtype = ATTN_DTYPE_F32,
                                        .rank = 2,
                                        .extent = {READER_VOCABULARY, 10},
                                        .data = values};
    assert_int_equal(attn_safetensors_write(path, &one, 1, NULL, 0, &error), ATTN_OK);
    load_fails(folder, ATTN_EFORMAT, "no tensor \"classifier.weight\"");
    assert_int_equal(attn_file_write(path, "garbage", 7, &error), ATTN_OK);
    load_fails(folder, ATTN_EFORMAT, "model.safetensors");
    assert_int_equal(remove(path), 0);
    load_fails(folder, ATTN_EIO, "model.safetensors");
    folder_remove(folder);
}

static void a_type_that_no_model_is_stored_in_is_refused(void **state)
{
    (void)state;
    char folder[512];
    attn_error error;
    const attn_reader_config config = small_reader_config(0);
    attn_reader *const reader = small_reader_create(&config);
    folder_make(folder, sizeof folder);
    assert_int_equal(attn_reader_save(reader, folder, ATTN_DTYPE_I32, &error),
                     ATTN_EINVAL);
    folder_remove(folder);
    attn_reader_destroy(reader);
}

/* ---- PyTorch --------------------------------------------------------------------- */

/* "case.safetensors" beside the model: the texts and their logits. */
static void write_case(attn_reader *reader, const char *folder)
{
    const bool tags = attn_reader_config_of(reader)->tags;
    const attn_reader_text *const texts = small_reader_texts(tags);
    attn_tape *const tape = small_tape();
    attn_error error;
    char path[1024];
    int32_t ids[64], lengths[READER_TEXTS], words[64];
    int64_t tokens = 0, word_count = 0;
    for (int n = 0; n < READER_TEXTS; n++) {
        lengths[n] = (int32_t)texts[n].count;
        memcpy(ids + tokens, texts[n].ids, (size_t)texts[n].count * sizeof *ids);
        tokens += texts[n].count;
        for (int64_t w = 0; tags && w < texts[n].words; w++)
            words[word_count++] = (int32_t)(texts[n].starts[w + 1] - texts[n].starts[w]);
    }
    const attn_safetensors_entry entries[] = {
        {"ids", ATTN_DTYPE_I32, 1, {tokens}, ids},
        {"lengths", ATTN_DTYPE_I32, 1, {READER_TEXTS}, lengths},
        {"logits",
         ATTN_DTYPE_F32,
         2,
         {small_reader_all_rows(tags), READER_LABELS},
         small_reader_logits(reader, tape, texts, READER_TEXTS)},
        {"words", ATTN_DTYPE_I32, 1, {word_count}, words},
    };
    path_join(path, sizeof path, folder, "case.safetensors");
    if (attn_safetensors_write(path, entries, tags ? 4 : 3, NULL, 0, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    small_tape_destroy(tape);
}

/* All kinds in one folder each below one, for an interpreter takes seconds to start. */
static void pytorch_computes_the_same_from_the_file(void **state)
{
    (void)state;
    if (!python_has("torch, safetensors"))
        skip();
    char folders[READER_KINDS][512], list[READER_KINDS * 513] = "";
    for (int kind = 0; kind < READER_KINDS; kind++) {
        const attn_reader_config config = small_reader_config(kind);
        folder_make(folders[kind], sizeof folders[kind]);
        save(&config, folders[kind]);
        attn_reader *const reader = load(folders[kind]);
        write_case(reader, folders[kind]);
        attn_reader_destroy(reader);
        if (config.body == ATTN_BODY_TRANSFORMER)
            continue; /* `transformers` compares BERT, in test_bert_file.py */
        strcat(list, *list ? "," : "");
        strcat(list, folders[kind]);
    }
    const int code = python_run_file(script, list);
    for (int kind = 0; kind < READER_KINDS; kind++)
        folder_remove(folders[kind]);
    assert_int_equal(code, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_loads_with_the_same_bits),
        cmocka_unit_test(a_configuration_that_does_not_fit_is_named),
        cmocka_unit_test(tensors_that_are_missing_or_not_numbers_are_named),
        cmocka_unit_test(a_type_that_no_model_is_stored_in_is_refused),
        cmocka_unit_test(pytorch_computes_the_same_from_the_file),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_reader_file SCRIPT\n");
        return 2;
    }
    script = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

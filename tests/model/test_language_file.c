/* A language model's folder: what is saved is what is loaded, here and in `transformers`
 * (test_language_file.py, the only argument), and what does not fit is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../python.h"
#include "file/file.h"
#include "file/safetensors.h"
#include "small_language.h"

enum { PATH_BYTES = 512, TOKENS = 12, VOCABULARY = 23 };

static const char *script;

static attn_language *load(const char *folder)
{
    attn_language *language;
    attn_error error;
    if (attn_language_load(&language, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return language;
}

static void save(const attn_language *language, const char *folder, int dtype)
{
    attn_error error;
    if (attn_language_save(language, folder, dtype, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static void check_round_trip(const attn_language_config *config)
{
    char folder[PATH_BYTES];
    folder_make(folder, sizeof folder);
    attn_language *const saved = small_language(config);
    save(saved, folder, ATTN_DTYPE_F32);
    attn_language *const loaded = load(folder);
    const attn_parameters *const before = attn_language_parameters(saved);
    const attn_parameters *const after = attn_language_parameters(loaded);
    const attn_language_config *const read = attn_language_config_of(loaded);
    assert_int_equal(after->floats, before->floats);
    assert_memory_equal(after->values, before->values, before->floats * sizeof(float));
    assert_int_equal(read->body, config->body);
    assert_int_equal(read->layers, config->layers);
    assert_int_equal(read->heads, config->heads);
    assert_int_equal(read->key_heads, config->key_heads);
    assert_int_equal(read->max_positions, config->max_positions);
    assert_true(read->rotary_base == config->rotary_base);
    assert_true(read->epsilon == config->epsilon && read->dropout == config->dropout);
    assert_int_equal(read->no_positions, config->no_positions);
    assert_int_equal(read->alibi, config->alibi);
    assert_int_equal(read->sink_logits, config->sink_logits);
    assert_int_equal(read->forgets, config->forgets);
    assert_int_equal(read->linear_attention, config->linear_attention);
    assert_int_equal(read->untied, config->untied);
    assert_int_equal(read->bos, config->bos);
    assert_int_equal(read->eos, config->eos);
    assert_string_equal(attn_language_note(loaded), "");
    attn_language_destroy(saved), attn_language_destroy(loaded);
    folder_remove(folder);
}

static void what_is_saved_is_loaded_to_the_bit(void **state)
{
    (void)state;
    attn_language_config llama = small_language_config(), lstm = small_lstm_config();
    llama.dropout = 0.1f;
    check_round_trip(&llama);
    check_round_trip(&lstm);
    llama.no_positions = true;
    check_round_trip(&llama);
    llama.forgets = true;
    llama.no_positions = false;
    check_round_trip(&llama);
    llama.forgets = false;
    llama.alibi = true;
    check_round_trip(&llama);
    llama.sink_logits = true;
    llama.alibi = false;
    check_round_trip(&llama);
    llama.sink_logits = false;
    llama.linear_attention = true;
    check_round_trip(&llama);
    llama.linear_attention = false;
    llama.untied = lstm.untied = true;
    llama.bos = lstm.eos = -1;
    check_round_trip(&llama);
    check_round_trip(&lstm);
}

static void bf16_is_rounded_and_half_the_size(void **state)
{
    (void)state;
    char folder[PATH_BYTES];
    const attn_language_config config = small_language_config();
    folder_make(folder, sizeof folder);
    attn_language *const saved = small_language(&config);
    save(saved, folder, ATTN_DTYPE_BF16);
    attn_language *const loaded = load(folder);
    const attn_parameters *const before = attn_language_parameters(saved);
    const attn_parameters *const after = attn_language_parameters(loaded);
    for (size_t i = 0; i < before->floats; i++) {
        const float value = before->values[i];
        assert_true(fabsf(after->values[i] - value) <= 0x1p-8f * fabsf(value));
    }
    attn_language_destroy(saved), attn_language_destroy(loaded);
    folder_remove(folder);
}

/* ---- What does not fit ----------------------------------------------------------- */

/* A saved model whose config.json has `from` replaced by `to`. */
static void refuses(const char *from, const char *to, attn_status expected,
                    const char *fragment)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 32], changed[4096];
    const attn_language_config config = small_language_config();
    attn_language *const saved = small_language(&config);
    attn_language *loaded;
    attn_error error;
    char *text;
    size_t length;
    folder_make(folder, sizeof folder);
    save(saved, folder, ATTN_DTYPE_F32);
    path_join(path, sizeof path, folder, "config.json");
    assert_int_equal(attn_file_read(path, sizeof changed, &text, &length, &error),
                     ATTN_OK);
    const char *const at = strstr(text, from);
    if (!at)
        fail_msg("no %s in %s", from, text);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to,
             at + strlen(from));
    assert_int_equal(attn_file_write(path, changed, strlen(changed), &error), ATTN_OK);
    assert_int_equal(attn_language_load(&loaded, folder, &error), expected);
    assert_null(loaded);
    if (!strstr(error.message, fragment))
        fail_msg("\"%s\" without \"%s\"", error.message, fragment);
    free(text);
    attn_language_destroy(saved);
    folder_remove(folder);
}

static void a_configuration_that_is_not_computed_is_named(void **state)
{
    (void)state;
    refuses("\"llama\"", "\"mistral\"", ATTN_EUNSUPPORTED,
            "model_type is \"mistral\", expected \"llama\", \"llama-variant\" or "
            "\"lstm-language\"");
    refuses("\"silu\"", "\"gelu\"", ATTN_EUNSUPPORTED, "hidden_act");
    refuses("\"attention_bias\": false", "\"attention_bias\": true", ATTN_EUNSUPPORTED,
            "attention_bias is true, expected false");
    refuses("\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", ATTN_EUNSUPPORTED,
            "rope_type is \"llama3\"");
    refuses("\"head_dim\": 6", "\"head_dim\": 8", ATTN_EUNSUPPORTED,
            "head_dim is 8, expected 6");
    refuses("\"use_cache\": true", "\"rope_scaling\": {}", ATTN_EUNSUPPORTED,
            "rope_scaling");
}

static void a_configuration_that_does_not_fit_the_tensors_is_named(void **state)
{
    (void)state;
    refuses("\"hidden_size\": 24", "\"hidden_size\": \"24\"", ATTN_EFORMAT,
            "hidden_size is a text, expected a whole number");
    refuses("\"vocab_size\": 23", "\"vocab_size\": 24", ATTN_EFORMAT,
            "shape [23, 24], expected [24, 24]");
    refuses("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", ATTN_EFORMAT,
            "belongs to no part");
    refuses("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", ATTN_EFORMAT,
            "layers is 0, expected 1 to 256");
    refuses("\"eos_token_id\": 2", "\"eos_token_id\": 23", ATTN_EFORMAT, "eos is 23");
    refuses("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false",
            ATTN_EFORMAT, "no tensor \"lm_head.weight\"");
}

/* ---- transformers ---------------------------------------------------------------- */

/* The model's folder with case.safetensors: ids and their logits. */
static void write_case(const attn_language *language, const char *folder)
{
    char path[PATH_BYTES + 32];
    int32_t ids[TOKENS];
    attn_error error;
    attn_tape *const tape = small_tape();
    small_language_ids(ids, TOKENS, VOCABULARY);
    const attn_safetensors_entry entries[] = {
        {.name = "ids",
         .dtype = ATTN_DTYPE_I32,
         .rank = 1,
         .extent = {TOKENS},
         .data = ids},
        {.name = "logits",
         .dtype = ATTN_DTYPE_F32,
         .rank = 2,
         .extent = {TOKENS, VOCABULARY},
         .data = small_language_logits(language, tape, ids, TOKENS)},
    };
    path_join(path, sizeof path, folder, "case.safetensors");
    if (attn_safetensors_write(path, entries, 2, NULL, 0, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    small_tape_destroy(tape);
}

/* The script opens the folder there, compares logits, and saves it again as
 * FOLDER/again, which is loaded here. */
static void transformers_opens_what_is_saved_and_saves_what_is_loaded(void **state)
{
    (void)state;
    if (!python_has("torch, transformers, safetensors"))
        skip();
    attn_language_config config = small_language_config();
    for (int i = 0; i < 2; i++) {
        char folder[PATH_BYTES], again[PATH_BYTES + 32];
        config.untied = i == 1;
        folder_make(folder, sizeof folder);
        path_join(again, sizeof again, folder, "again");
        attn_language *const saved = small_language(&config);
        save(saved, folder, i == 0 ? ATTN_DTYPE_F32 : ATTN_DTYPE_BF16);
        attn_language *const kept = load(folder);
        write_case(kept, folder);
        assert_int_equal(python_run_file(script, folder), 0);
        attn_language *const loaded = load(again);
        const attn_parameters *const before = attn_language_parameters(kept);
        assert_memory_equal(attn_language_parameters(loaded)->values, before->values,
                            before->floats * sizeof(float));
        assert_true(attn_language_config_of(loaded)->rotary_base == config.rotary_base);
        assert_true(attn_language_config_of(loaded)->epsilon == config.epsilon);
        attn_language_destroy(saved);
        attn_language_destroy(kept);
        attn_language_destroy(loaded);
        char command[2 * PATH_BYTES];
        snprintf(command, sizeof command, "rm -r '%s'", again);
        assert_int_equal(system(command), 0);
        folder_remove(folder);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_is_loaded_to_the_bit),
        cmocka_unit_test(bf16_is_rounded_and_half_the_size),
        cmocka_unit_test(a_configuration_that_is_not_computed_is_named),
        cmocka_unit_test(a_configuration_that_does_not_fit_the_tensors_is_named),
        cmocka_unit_test(transformers_opens_what_is_saved_and_saves_what_is_loaded),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_language_file SCRIPT\n");
        return 2;
    }
    script = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is saved here opens in the `transformers` package, without a missing key and
 * without a warning, and gives the same logits and the same translations.  This program
 * saves models, what they compute and what they translate; test_transformers.py, the only
 * argument, compares.  The interpreter is ATTN_PYTHON's, else python3; where it cannot
 * import the packages the tests are skipped. */
#include "../python.h"
#include "file/safetensors.h"
#include "model/translate.h"
#include "small.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SENTENCES = 6, WRITTEN = SMALL_POSITIONS, MOST_FOLDERS = 4 };

static const int64_t SOURCE_LENGTHS[SENTENCES] = {5, 0, 9, 1, 14, 22};
static const int64_t TARGET_LENGTHS[SENTENCES] = {7, 3, 0, 11, 6, 22};

static const char *script;

static void compare(const char *task, const char *const *folders)
{
    char arguments[512];
    int end = snprintf(arguments, sizeof arguments, "%s", task);
    for (; *folders; folders++)
        end +=
            snprintf(arguments + end, sizeof arguments - (size_t)end, "' '%s", *folders);
    if (python_run_file(script, arguments) != 0)
        fail_msg("%s %s: not as expected", script, task);
}

/* ids of the translations with their </s>, −1 beyond. */
static void translate(const attn_translator *translator, attn_context *context,
                      const struct small_batch *batch, int64_t beams, int32_t *out)
{
    attn_search_options options;
    attn_translation translations[SENTENCES];
    attn_error error;
    const attn_packing packing = {SENTENCES, batch->source_starts};
    attn_search_options_init(&options);
    options.beams = beams;
    options.max_length = WRITTEN - 1;
    if (attn_translate(translator, context, batch->source, packing, &options,
                       translations, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    small_translations_take(translations, SENTENCES, WRITTEN, out);
}

static attn_safetensors_entry whole_numbers(const char *name, const void *data,
                                            attn_dtype dtype, int64_t rows,
                                            int64_t columns)
{
    return (attn_safetensors_entry){.name = name,
                                    .dtype = dtype,
                                    .rank = columns > 0 ? 2 : 1,
                                    .extent = {rows, columns},
                                    .data = data};
}

/* "expected.safetensors" beside the model: a batch, its logits, its translations. */
static void write_expected(const attn_translator *translator, const char *folder)
{
    attn_context *const context = small_context();
    attn_tape *tape;
    attn_error error;
    struct small_batch batch;
    int32_t greedy[SENTENCES * WRITTEN], beam[SENTENCES * WRITTEN];
    char path[1024];
    small_batch_fill(&batch, SENTENCES, SOURCE_LENGTHS, TARGET_LENGTHS, 21);
    translate(translator, context, &batch, 1, greedy);
    translate(translator, context, &batch, 4, beam);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {
        .tape = tape,
        .parameters = attn_translator_parameters((attn_translator *)translator)};
    const attn_tensor *const logits =
        attn_translator_logits(translator, &pass, &batch.pairs);
    if (!logits)
        fail_msg("%s", attn_context_message(context));
    const int64_t sources = batch.source_starts[SENTENCES];
    const int64_t targets = batch.target_starts[SENTENCES];
    const attn_safetensors_entry entries[] = {
        whole_numbers("source", batch.source, ATTN_DTYPE_I32, sources, 0),
        whole_numbers("source_starts", batch.source_starts, ATTN_DTYPE_I64, SENTENCES + 1,
                      0),
        whole_numbers("target_in", batch.target_in, ATTN_DTYPE_I32, targets, 0),
        whole_numbers("target_starts", batch.target_starts, ATTN_DTYPE_I64, SENTENCES + 1,
                      0),
        whole_numbers("greedy", greedy, ATTN_DTYPE_I32, SENTENCES, WRITTEN),
        whole_numbers("beam", beam, ATTN_DTYPE_I32, SENTENCES, WRITTEN),
        {.name = "logits",
         .dtype = ATTN_DTYPE_F32,
         .rank = 2,
         .extent = {targets, logits->extent[1]},
         .data = logits->data},
    };
    path_join(path, sizeof path, folder, "expected.safetensors");
    if (attn_safetensors_write(path, entries, sizeof entries / sizeof entries[0], NULL, 0,
                               &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* Saves it, and loads it again as any user would. */
static void prepare(const attn_translator_config *config, attn_dtype dtype, char *folder,
                    size_t folder_bytes)
{
    attn_error error;
    attn_translator *loaded = NULL;
    folder_make(folder, folder_bytes);
    attn_translator *const saved = small_translator_like(config, 7);
    /* Small weights make every next token alike, and no search shows anything; large ones
     * that are normalised last make much of fp32's rounding, in `transformers` too. */
    attn_parameters *const parameters = attn_translator_parameters(saved);
    for (size_t i = 0; i < parameters->floats; i++)
        parameters->values[i] *= config->normalise_first ? 1.5f : 1.25f;
    if (attn_translator_save(saved, folder, (int)dtype, &error) != ATTN_OK ||
        attn_translator_load(&loaded, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    write_expected(loaded, folder);
    attn_translator_destroy(loaded);
    attn_translator_destroy(saved);
}

/* Interpreters take seconds to start, so that one compares several models. */
static void check(const attn_translator_config *configs, const attn_dtype *dtypes,
                  size_t count)
{
    char folders[MOST_FOLDERS][512];
    const char *arguments[MOST_FOLDERS + 1] = {NULL};
    for (size_t i = 0; i < count; i++) {
        prepare(&configs[i], dtypes[i], folders[i], sizeof folders[i]);
        arguments[i] = folders[i];
    }
    compare("model", arguments);
    for (size_t i = 0; i < count; i++)
        folder_remove(folders[i]);
}

static void models_give_the_same_logits_and_translations(void **state)
{
    (void)state;
    attn_translator_config configs[3];
    for (size_t i = 0; i < 3; i++)
        configs[i] = small_config();
    configs[2].untied = true;
    check(configs, (const attn_dtype[]){ATTN_DTYPE_F32, ATTN_DTYPE_BF16, ATTN_DTYPE_F32},
          3);
}

static void odd_widths_and_other_activations_agree(void **state)
{
    (void)state;
    const attn_activation activations[] = {ATTN_GELU, ATTN_SILU, ATTN_TANH};
    attn_translator_config configs[3];
    for (size_t i = 0; i < 3; i++) {
        configs[i] = small_config();
        configs[i].width = 27;
        configs[i].heads = 3;
        configs[i].encoder_layers = 1;
        configs[i].decoder_layers = 3;
        configs[i].activation = activations[i];
    }
    check(configs, (const attn_dtype[]){ATTN_DTYPE_F32, ATTN_DTYPE_BF16, ATTN_DTYPE_F32},
          3);
}

/* The layout of Marian: both kinds of positions, an odd width, an output of its own. */
static void models_that_normalise_last_agree(void **state)
{
    (void)state;
    attn_translator_config configs[4];
    for (size_t i = 0; i < 4; i++)
        configs[i] = small_config_last(i == 3);
    configs[1].width = 27;
    configs[1].heads = 3;
    configs[1].decoder_layers = 3;
    configs[1].activation = ATTN_SILU;
    configs[2].untied = true;
    check(configs,
          (const attn_dtype[]){ATTN_DTYPE_F32, ATTN_DTYPE_BF16, ATTN_DTYPE_F32,
                               ATTN_DTYPE_F32},
          4);
}

static void the_tokenizer_opens_with_the_same_ids(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "The cat, which was sitting on the mat, was hungry.",
        "Le chat, qui était assis sur le tapis, avait faim.",
        "don't stop  me   now 1234567",
        "naïve café 猫 🙂",
    };
    char folder[512], path[1024];
    attn_error error;
    attn_tokenizer *tokenizer;
    attn_translator_config config = small_config();
    config.max_positions = 200;
    folder_make(folder, sizeof folder);
    attn_translator *const translator = small_translator_like(&config, 7);
    if (attn_tokenizer_train(&tokenizer, texts, 4, 300, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    path_join(path, sizeof path, folder, "tokenizer.json");
    if (attn_tokenizer_save(tokenizer, path, &error) != ATTN_OK ||
        attn_translator_save(translator, folder, ATTN_DTYPE_BF16, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    path_join(path, sizeof path, folder, "expected.txt");
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    for (size_t i = 0; i < 4; i++) {
        attn_token *tokens;
        size_t count;
        if (attn_tokenizer_encode(tokenizer, texts[i], strlen(texts[i]), &tokens, &count,
                                  &error) != ATTN_OK)
            fail_msg("%s", error.message);
        fprintf(file, "%s\t", texts[i]);
        for (size_t j = 0; j < count; j++)
            fprintf(file, "%ld ", (long)tokens[j].id);
        fprintf(file, "\n");
        free(tokens);
    }
    assert_int_equal(fclose(file), 0);
    compare("tokenizer", (const char *const[]){folder, NULL});
    attn_tokenizer_destroy(tokenizer);
    attn_translator_destroy(translator);
    folder_remove(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_give_the_same_logits_and_translations),
        cmocka_unit_test(odd_widths_and_other_activations_agree),
        cmocka_unit_test(models_that_normalise_last_agree),
        cmocka_unit_test(the_tokenizer_opens_with_the_same_ids),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_transformers SCRIPT\n");
        return 2;
    }
    script = argv[1];
    if (!python_has_for("torch, transformers, safetensors", "test_transformers"))
        return 77; /* which Meson counts as skipped */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

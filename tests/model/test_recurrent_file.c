/* A recurrent translator's folder: what is saved is what is loaded, PyTorch computes the
 * same from it, and every defect is named.  The interpreter is ATTN_PYTHON's, else
 * python3; the comparison, by the script that is the only argument, is skipped where it
 * cannot import the packages. */
#include "../python.h"
#include "file/safetensors.h"
#include "model/translate.h"
#include "small_recurrent.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SENTENCES = 6, WRITTEN = SMALL_POSITIONS, ADDITIVE = 2, MOST_TENSORS = 32 };

static const char *script;

static void save(const attn_recurrent_translator *translator, const char *folder,
                 int dtype)
{
    attn_error error;
    if (attn_recurrent_translator_save(translator, folder, dtype, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

/* As any verb loads it. */
static attn_seq2seq load(const char *folder)
{
    attn_seq2seq model;
    attn_error error;
    if (attn_seq2seq_load(&model, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return model;
}

static void fails(const char *folder, attn_status expected, const char *fragment)
{
    attn_seq2seq model;
    attn_error error = {0};
    const attn_status status = attn_seq2seq_load(&model, folder, &error);
    assert_fails(status, &error, expected, fragment);
}

/* ---- Round trips ----------------------------------------------------------------- */

static void fp32_comes_back_to_the_bit(void **state)
{
    (void)state;
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        char folder[512];
        attn_recurrent_translator_config config = small_recurrent_config(number);
        config.untied = number % 3 == 0;
        config.languages = (attn_languages){.source = "en"};
        if (number > 0)
            strcpy(config.languages.target, "fr");
        folder_make(folder, sizeof folder);
        attn_recurrent_translator *const saved = small_recurrent_like(&config, 7);
        save(saved, folder, ATTN_DTYPE_F32);
        const attn_seq2seq loaded = load(folder);
        const attn_parameters *const parameters =
            attn_recurrent_translator_parameters(saved);
        assert_int_equal(loaded.parameters->floats, parameters->floats);
        assert_memory_equal(loaded.parameters->values, parameters->values,
                            parameters->floats * sizeof(float));
        const attn_recurrent_translator_config *const read =
            attn_recurrent_translator_config_of(loaded.model);
        assert_int_equal(read->vocabulary, config.vocabulary);
        assert_int_equal(read->embedding, config.embedding);
        assert_int_equal(read->cell, config.cell);
        assert_int_equal(read->encoder_width, config.encoder_width);
        assert_int_equal(read->encoder_layers, config.encoder_layers);
        assert_int_equal(read->decoder_layers, config.decoder_layers);
        assert_int_equal(read->both_ways, config.both_ways);
        assert_int_equal(read->width, config.width);
        assert_int_equal(read->attention, config.attention);
        assert_int_equal(read->attention_width, config.attention_width);
        assert_int_equal(read->context_enters, config.context_enters);
        assert_int_equal(read->max_positions, config.max_positions);
        assert_true(read->dropout == config.dropout);
        assert_int_equal(read->untied, config.untied);
        assert_string_equal(read->languages.source, "en");
        assert_string_equal(read->languages.target, config.languages.target);
        assert_int_equal(loaded.attention[ATTN_PART_CROSS].layers,
                         config.attention != ATTN_CROSS_NONE);
        loaded.kind->destroy(loaded.model);
        attn_recurrent_translator_destroy(saved);
        folder_remove(folder);
    }
}

/* ---- PyTorch --------------------------------------------------------------------- */

/* ids of the translations with their </s>, −1 beyond. */
static void translate(const attn_seq2seq *model, attn_context *context,
                      const struct small_batch *batch, int32_t *out)
{
    attn_search_options options;
    attn_translation translations[SENTENCES];
    attn_error error;
    attn_search_options_init(&options);
    options.beams = 1;
    if (attn_seq2seq_translate(model, context, batch->source,
                               (attn_packing){SENTENCES, batch->source_starts}, &options,
                               translations, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    small_translations_take(translations, SENTENCES, WRITTEN, out);
}

/* "expected.safetensors" beside the model: a batch, its logits, its translations. */
static void write_expected(const attn_seq2seq *model, const char *folder)
{
    static const int64_t sources[SENTENCES] = {5, 0, 9, 1, 14, 22};
    static const int64_t targets[SENTENCES] = {7, 3, 0, 11, 6, 22};
    attn_context *const context = small_context();
    attn_tape *tape;
    attn_error error;
    struct small_batch batch;
    int32_t greedy[SENTENCES * WRITTEN];
    char path[1024];
    small_batch_fill(&batch, SENTENCES, sources, targets, 21);
    translate(model, context, &batch, greedy);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {.tape = tape, .parameters = model->parameters};
    const attn_tensor *const logits =
        attn_recurrent_translator_logits(model->model, &pass, &batch.pairs);
    if (!logits)
        fail_msg("%s", attn_context_message(context));
    const int64_t from = batch.source_starts[SENTENCES];
    const int64_t to = batch.target_starts[SENTENCES];
    const attn_safetensors_entry entries[] = {
        {"source", ATTN_DTYPE_I32, 1, {from}, batch.source},
        {"source_starts", ATTN_DTYPE_I64, 1, {SENTENCES + 1}, batch.source_starts},
        {"target_in", ATTN_DTYPE_I32, 1, {to}, batch.target_in},
        {"target_starts", ATTN_DTYPE_I64, 1, {SENTENCES + 1}, batch.target_starts},
        {"greedy", ATTN_DTYPE_I32, 2, {SENTENCES, WRITTEN}, greedy},
        {"logits", ATTN_DTYPE_F32, 2, {to, SMALL_VOCABULARY}, logits->data},
    };
    path_join(path, sizeof path, folder, "expected.safetensors");
    if (attn_safetensors_write(path, entries, sizeof entries / sizeof entries[0], NULL, 0,
                               &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* One interpreter, which takes seconds to start, for a parent of all folders. */
static void pytorch_computes_the_same_logits_and_translations(void **state)
{
    (void)state;
    char parent[512], folders[SMALL_RECURRENTS][600];
    if (!python_has("torch, safetensors"))
        skip();
    folder_make(parent, sizeof parent);
    for (int number = 0; number < SMALL_RECURRENTS; number++) {
        attn_recurrent_translator_config config = small_recurrent_config(number);
        char name[16];
        config.untied = number % 3 == 0;
        snprintf(name, sizeof name, "%d", number);
        path_join(folders[number], sizeof folders[number], parent, name);
        attn_recurrent_translator *const saved = small_recurrent_like(&config, 7);
        save(saved, folders[number], number % 2 ? ATTN_DTYPE_BF16 : ATTN_DTYPE_F32);
        const attn_seq2seq loaded = load(folders[number]);
        write_expected(&loaded, folders[number]);
        loaded.kind->destroy(loaded.model);
        attn_recurrent_translator_destroy(saved);
    }
    const int code = python_run_file(script, parent);
    for (int number = 0; number < SMALL_RECURRENTS; number++)
        folder_remove(folders[number]);
    folder_remove(parent);
    assert_int_equal(code, 0);
}

/* ---- Defects --------------------------------------------------------------------- */

struct fixture {
    char folder[512];
    attn_recurrent_translator *translator;
};

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    const attn_recurrent_translator_config config = small_recurrent_config(ADDITIVE);
    folder_make(fixture->folder, sizeof fixture->folder);
    fixture->translator = small_recurrent_like(&config, 7);
    save(fixture->translator, fixture->folder, ATTN_DTYPE_F32);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const fixture = *state;
    attn_recurrent_translator_destroy(fixture->translator);
    folder_remove(fixture->folder);
    free(fixture);
    return 0;
}

static void a_wrong_configuration_is_named(void **state)
{
    const struct fixture *const fixture = *state;
    static const struct {
        const char *key, *value; /* NULL: taken away */
        attn_status status;
        const char *fragment;
    } cases[] = {
        {"model_type", NULL, ATTN_EFORMAT, "model_type is missing"},
        {"model_type", "\"bart\"", ATTN_EUNSUPPORTED, "model_type is \"bart\""},
        {"model_type", "\"m2m_100\"", ATTN_EFORMAT, "config.json: "},
        {"cell", "\"rnn\"", ATTN_EUNSUPPORTED,
         "cell is \"rnn\", expected \"gru\" or \"lstm\""},
        {"cell", "3", ATTN_EFORMAT, "cell is a whole number"},
        {"cell", "\"lstm\"", ATTN_EFORMAT,
         "tensor \"encoder.weight_ih_l0\" has shape [18, 10], expected [24, 10]"},
        {"attention", "\"concat\"", ATTN_EUNSUPPORTED, "attention is \"concat\""},
        {"attention", "\"dot\"", ATTN_EFORMAT, "attention_width is 7"},
        {"context", "\"both\"", ATTN_EUNSUPPORTED, "context is \"both\""},
        {"context", "\"input\"", ATTN_EFORMAT,
         "tensor \"decoder.weight_ih_l0\" has shape [27, 10], expected [27, 22]"},
        {"vocab_size", NULL, ATTN_EFORMAT, "vocab_size is missing"},
        {"vocab_size", "4000000000", ATTN_EFORMAT, "vocabulary is 4000000000"},
        {"vocab_size", "16777216", ATTN_EFORMAT,
         "\"embedding.weight\" has shape [40, 10], expected [16777216, 10]"},
        {"encoder_hidden_size", "-6", ATTN_EFORMAT, "encoder_width is -6"},
        {"encoder_hidden_size", "65537", ATTN_EFORMAT, "65537"},
        {"encoder_layers", "2", ATTN_EFORMAT, "no tensor \"encoder.weight_ih_l1\""},
        {"decoder_layers", "1000000000000", ATTN_EFORMAT, "1000000000000"},
        {"bidirectional", "false", ATTN_EFORMAT, "has shape"},
        {"bidirectional", "1", ATTN_EFORMAT, "bidirectional is a whole number"},
        {"max_position_embeddings", "0", ATTN_EFORMAT, "max_positions is 0"},
        {"dropout", "1.5", ATTN_EFORMAT, "dropout is 1.5"},
        {"tie_word_embeddings", "false", ATTN_EFORMAT, "no tensor \"output.weight\""},
        {"pad_token_id", "7", ATTN_EUNSUPPORTED, "pad_token_id is 7, expected 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save(fixture->translator, fixture->folder, ATTN_DTYPE_F32);
        small_config_change(fixture->folder, cases[i].key, cases[i].value);
        fails(fixture->folder, cases[i].status, cases[i].fragment);
    }
}

/* The file of the fixture, to be changed: its tensors. */
static size_t collect(const struct fixture *fixture, attn_safetensors_entry *entries)
{
    const attn_parameters *const parameters =
        attn_recurrent_translator_parameters(fixture->translator);
    assert_true(parameters->length < MOST_TENSORS);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        entries[i] = (attn_safetensors_entry){.name = p->name,
                                              .dtype = ATTN_DTYPE_F32,
                                              .rank = p->rank,
                                              .data = parameters->values + p->offset};
        memcpy(entries[i].extent, p->extent, (size_t)p->rank * sizeof p->extent[0]);
    }
    return parameters->length;
}

static void write_and_fail(const struct fixture *fixture,
                           const attn_safetensors_entry *entries, size_t count,
                           const char *fragment)
{
    char path[1024];
    attn_error error;
    path_join(path, sizeof path, fixture->folder, "model.safetensors");
    assert_int_equal(attn_safetensors_write(path, entries, count, NULL, 0, &error),
                     ATTN_OK);
    fails(fixture->folder, ATTN_EFORMAT, fragment);
}

static void a_tensor_missing_unknown_or_of_another_shape_is_named(void **state)
{
    const struct fixture *const fixture = *state;
    attn_safetensors_entry entries[MOST_TENSORS], kept;
    const int64_t zeros[512] = {0};
    const size_t count = collect(fixture, entries);
    write_and_fail(fixture, entries, count - 1, "no tensor \"output.bias\"");
    for (size_t i = 0; i < count; i++) {
        kept = entries[i];
        entries[i].extent[0] += entries[i].rank == 1 ? -1 : 0;
        if (entries[i].rank == 2) {
            entries[i].rank = 1;
            entries[i].extent[0] *= entries[i].extent[1];
        }
        write_and_fail(fixture, entries, count, kept.name);
        entries[i] = kept;
    }
    entries[count] = entries[0];
    entries[count].name = "attention.value.weight";
    write_and_fail(fixture, entries, count + 1,
                   "tensor \"attention.value.weight\" belongs to no part");
    entries[count - 1].dtype = ATTN_DTYPE_I64;
    entries[count - 1].data = zeros;
    write_and_fail(fixture, entries, count, "\"output.bias\" is not floating point");
}

static void an_output_that_differs_is_used_and_noted(void **state)
{
    const struct fixture *const fixture = *state;
    attn_safetensors_entry entries[MOST_TENSORS];
    const size_t count = collect(fixture, entries);
    float other[SMALL_VOCABULARY * 10] = {0};
    char path[1024];
    attn_error error;
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i].name, "embedding.weight") == 0)
            entries[count] = entries[i];
    entries[count].name = "output.weight";
    entries[count].data = other;
    path_join(path, sizeof path, fixture->folder, "model.safetensors");
    assert_int_equal(attn_safetensors_write(path, entries, count + 1, NULL, 0, &error),
                     ATTN_OK);
    const attn_seq2seq model = load(fixture->folder);
    assert_true(attn_recurrent_translator_config_of(model.model)->untied);
    assert_non_null(strstr(model.note, "output.weight is there and differs"));
    model.kind->destroy(model.model);
}

static void another_type_to_save_is_refused(void **state)
{
    const struct fixture *const fixture = *state;
    attn_error error;
    assert_int_equal(attn_recurrent_translator_save(fixture->translator, fixture->folder,
                                                    ATTN_DTYPE_I64, &error),
                     ATTN_EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_comes_back_to_the_bit),
        cmocka_unit_test(pytorch_computes_the_same_logits_and_translations),
        TEST(a_wrong_configuration_is_named),
        TEST(a_tensor_missing_unknown_or_of_another_shape_is_named),
        TEST(an_output_that_differs_is_used_and_noted),
        TEST(another_type_to_save_is_refused),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_recurrent_file SCRIPT\n");
        return 2;
    }
    script = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

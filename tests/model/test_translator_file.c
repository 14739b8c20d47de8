/* A translator's folder: what is saved is what is loaded, outputs are tied as
 * configuration and file say, and every defect of the tensors is named. */
#include "file/file.h"
#include "file/safetensors.h"
#include "small.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_BYTES = 512, MOST_TENSORS = 128, LIMIT = 1 << 24 };

struct fixture {
    char folder[PATH_BYTES - 64], config[PATH_BYTES], model[PATH_BYTES];
    attn_translator *translator;
    /* The tensors of the file, to be changed and written again. */
    attn_safetensors_entry entries[MOST_TENSORS];
    size_t count;
    float *floats[MOST_TENSORS];
};

static void collect_entries(struct fixture *fixture)
{
    const attn_parameters *const parameters =
        attn_translator_parameters(fixture->translator);
    fixture->count = 0;
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        attn_safetensors_entry *const entry = &fixture->entries[fixture->count++];
        *entry = (attn_safetensors_entry){.name = parameter->name,
                                          .dtype = ATTN_DTYPE_F32,
                                          .rank = parameter->rank,
                                          .data = parameters->values + parameter->offset};
        memcpy(entry->extent, parameter->extent,
               (size_t)parameter->rank * sizeof(int64_t));
    }
}

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    attn_error error;
    folder_make(fixture->folder, sizeof fixture->folder);
    path_join(fixture->config, sizeof fixture->config, fixture->folder, "config.json");
    path_join(fixture->model, sizeof fixture->model, fixture->folder,
              "model.safetensors");
    fixture->translator = small_translator(7);
    if (attn_translator_save(fixture->translator, fixture->folder, ATTN_DTYPE_F32,
                             &error) != ATTN_OK)
        fail_msg("%s", error.message);
    collect_entries(fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const fixture = *state;
    for (size_t i = 0; i < MOST_TENSORS; i++)
        free(fixture->floats[i]);
    attn_translator_destroy(fixture->translator);
    folder_remove(fixture->folder);
    free(fixture);
    return 0;
}

static void write_entries(const struct fixture *fixture)
{
    attn_error error;
    if (attn_safetensors_write(fixture->model, fixture->entries, fixture->count, NULL, 0,
                               &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static attn_safetensors_entry *entry_named(struct fixture *fixture, const char *name)
{
    for (size_t i = 0; i < fixture->count; i++)
        if (strcmp(fixture->entries[i].name, name) == 0)
            return &fixture->entries[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* One more tensor of the embedding's shape; its values are the embedding's, the first one
 * with `difference` added. */
static void add_like_embedding(struct fixture *fixture, const char *name,
                               float difference)
{
    const attn_safetensors_entry *const embedding =
        entry_named(fixture, "model.shared.weight");
    attn_safetensors_entry *const added = &fixture->entries[fixture->count];
    const size_t count = (size_t)(embedding->extent[0] * embedding->extent[1]);
    float *const values = malloc(count * sizeof *values);
    memcpy(values, embedding->data, count * sizeof *values);
    values[0] += difference;
    *added = *embedding;
    added->name = name;
    added->data = fixture->floats[fixture->count++] = values;
}

/* ---- Round trips ----------------------------------------------------------------- */

static void fp32_comes_back_to_the_bit(void **state)
{
    const struct fixture *const fixture = *state;
    attn_translator *const loaded = small_load(fixture->folder);
    const attn_parameters *const saved = attn_translator_parameters(fixture->translator);
    const attn_parameters *const parameters = attn_translator_parameters(loaded);
    assert_int_equal(parameters->floats, saved->floats);
    assert_memory_equal(parameters->values, saved->values, saved->floats * sizeof(float));
    assert_memory_equal(attn_translator_config_of(loaded),
                        attn_translator_config_of(fixture->translator),
                        offsetof(attn_translator_config, untied));
    assert_false(attn_translator_config_of(loaded)->untied);
    assert_string_equal(attn_translator_note(loaded), "");
    attn_translator_destroy(loaded);
}

static float rounded_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static void bf16_comes_back_rounded_to_nearest_even(void **state)
{
    const struct fixture *const fixture = *state;
    attn_error error;
    assert_int_equal(attn_translator_save(fixture->translator, fixture->folder,
                                          ATTN_DTYPE_BF16, &error),
                     ATTN_OK);
    attn_translator *const loaded = small_load(fixture->folder);
    const attn_parameters *const saved = attn_translator_parameters(fixture->translator);
    const attn_parameters *const parameters = attn_translator_parameters(loaded);
    for (size_t i = 0; i < saved->floats; i++)
        assert_true(parameters->values[i] == rounded_to_bf16(saved->values[i]));
    attn_translator_destroy(loaded);
}

static void saving_twice_gives_the_same_bytes(void **state)
{
    const struct fixture *const fixture = *state;
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json", "model.safetensors"};
    attn_translator *const loaded = small_load(fixture->folder);
    char other[PATH_BYTES - 64];
    attn_error error;
    snprintf(other, sizeof other, "%.300s/made", fixture->folder);
    assert_int_equal(attn_translator_save(loaded, other, ATTN_DTYPE_F32, &error),
                     ATTN_OK);
    for (size_t i = 0; i < 4; i++) {
        char a[PATH_BYTES], b[PATH_BYTES], *first, *second;
        size_t first_length, second_length;
        path_join(a, sizeof a, fixture->folder, names[i]);
        path_join(b, sizeof b, other, names[i]);
        assert_int_equal(attn_file_read(a, LIMIT, &first, &first_length, &error),
                         ATTN_OK);
        assert_int_equal(attn_file_read(b, LIMIT, &second, &second_length, &error),
                         ATTN_OK);
        assert_int_equal(first_length, second_length);
        assert_memory_equal(first, second, first_length);
        free(first);
        free(second);
    }
    folder_remove(other);
    attn_translator_destroy(loaded);
}

static void other_sizes_dropouts_and_languages_come_back(void **state)
{
    const struct fixture *const fixture = *state;
    const attn_translator_config config = {
        .vocabulary = 30,
        .width = 24,
        .heads = 3,
        .encoder_layers = 3,
        .decoder_layers = 1,
        .inner = 7,
        .max_positions = 100,
        .activation = ATTN_SILU,
        .dropout = 0.3f,
        .attention_dropout = 0.123456789f,
        .activation_dropout = 1e-7f,
        .normalise_first = true,
        .languages = {"en", "fr"},
    };
    attn_error error;
    attn_translator *const saved = small_translator_like(&config, 3);
    assert_int_equal(attn_translator_save(saved, fixture->folder, ATTN_DTYPE_F32, &error),
                     ATTN_OK);
    attn_translator *const loaded = small_load(fixture->folder);
    const attn_translator_config *const got = attn_translator_config_of(loaded);
    assert_int_equal(got->vocabulary, 30);
    assert_int_equal(got->heads, 3);
    assert_int_equal(got->encoder_layers, 3);
    assert_int_equal(got->decoder_layers, 1);
    assert_int_equal(got->inner, 7);
    assert_int_equal(got->activation, ATTN_SILU);
    assert_true(got->dropout == config.dropout);
    assert_true(got->attention_dropout == config.attention_dropout);
    assert_true(got->activation_dropout == config.activation_dropout);
    assert_string_equal(got->languages.source, "en");
    assert_string_equal(got->languages.target, "fr");
    attn_translator_destroy(loaded);
    attn_translator_destroy(saved);
}

static bool has(const attn_translator *translator, const char *name)
{
    return attn_parameters_find(attn_translator_parameters((attn_translator *)translator),
                                name);
}

static void what_normalises_last_comes_back_to_the_bit(void **state)
{
    const struct fixture *const fixture = *state;
    for (int learned = 0; learned < 2; learned++) {
        const attn_translator_config config = small_config_last(learned);
        attn_translator *const saved = small_translator_like(&config, 3);
        attn_error error;
        assert_int_equal(
            attn_translator_save(saved, fixture->folder, ATTN_DTYPE_F32, &error),
            ATTN_OK);
        attn_translator *const loaded = small_load(fixture->folder);
        const attn_parameters *const parameters = attn_translator_parameters(saved);
        assert_memory_equal(parameters->values,
                            attn_translator_parameters(loaded)->values,
                            parameters->floats * sizeof(float));
        assert_false(attn_translator_config_of(loaded)->normalise_first);
        assert_int_equal(attn_translator_config_of(loaded)->learned_positions, learned);
        assert_int_equal(has(loaded, "model.decoder.embed_positions.weight"), learned);
        assert_true(has(loaded, "final_logits_bias"));
        assert_false(has(loaded, "model.encoder.layer_norm.weight"));
        attn_translator_destroy(loaded);
        attn_translator_destroy(saved);
    }
}

static void learned_positions_of_one_side_alone_are_named(void **state)
{
    struct fixture *const fixture = *state;
    const attn_translator_config config = small_config_last(false);
    attn_translator_destroy(fixture->translator);
    fixture->translator = small_translator_like(&config, 7);
    attn_error error;
    assert_int_equal(attn_translator_save(fixture->translator, fixture->folder,
                                          ATTN_DTYPE_F32, &error),
                     ATTN_OK);
    collect_entries(fixture);
    add_like_embedding(fixture, "model.decoder.embed_positions.weight", 0.0f);
    fixture->entries[fixture->count - 1].extent[0] = config.max_positions;
    write_entries(fixture);
    small_load_fails(fixture->folder, ATTN_EFORMAT,
                     "no tensor \"model.encoder.embed_positions.weight\"");
}

/* ---- Tied and untied outputs (case 59) ------------------------------------------- */

static void tied_without_a_head_uses_the_embedding(void **state)
{
    struct fixture *const fixture = *state;
    attn_translator *loaded = small_load(fixture->folder);
    assert_null(
        attn_parameters_find(attn_translator_parameters(loaded), "lm_head.weight"));
    attn_translator_destroy(loaded);
    /* A head that is the embedding again changes nothing. */
    add_like_embedding(fixture, "lm_head.weight", 0.0f);
    write_entries(fixture);
    loaded = small_load(fixture->folder);
    assert_false(attn_translator_config_of(loaded)->untied);
    assert_string_equal(attn_translator_note(loaded), "");
    attn_translator_destroy(loaded);
}

static void untied_without_a_head_is_an_error(void **state)
{
    const struct fixture *const fixture = *state;
    small_config_change(fixture->folder, "tie_word_embeddings", "false");
    small_load_fails(fixture->folder, ATTN_EFORMAT, "no tensor \"lm_head.weight\"");
}

static void tied_with_another_head_uses_both_and_says_so(void **state)
{
    struct fixture *const fixture = *state;
    add_like_embedding(fixture, "lm_head.weight", 0.5f);
    write_entries(fixture);
    attn_translator *const loaded = small_load(fixture->folder);
    const attn_parameters *const parameters = attn_translator_parameters(loaded);
    const attn_parameter *const head = attn_parameters_find(parameters, "lm_head.weight");
    assert_non_null(strstr(attn_translator_note(loaded), "lm_head.weight"));
    assert_true(attn_translator_config_of(loaded)->untied);
    assert_true(parameters->values[head->offset] == parameters->values[0] + 0.5f);
    attn_translator_destroy(loaded);
}

static void an_untied_model_is_saved_whole(void **state)
{
    struct fixture *const fixture = *state;
    attn_error error;
    small_config_change(fixture->folder, "tie_word_embeddings", "false");
    add_like_embedding(fixture, "lm_head.weight", 0.5f);
    write_entries(fixture);
    attn_translator *const first = small_load(fixture->folder);
    assert_string_equal(attn_translator_note(first), "");
    assert_int_equal(attn_translator_save(first, fixture->folder, ATTN_DTYPE_F32, &error),
                     ATTN_OK);
    attn_translator *const second = small_load(fixture->folder);
    const attn_parameters *const parameters = attn_translator_parameters(first);
    assert_memory_equal(parameters->values, attn_translator_parameters(second)->values,
                        parameters->floats * sizeof(float));
    attn_translator_destroy(first);
    attn_translator_destroy(second);
}

static void two_embeddings_that_differ_are_not_supported(void **state)
{
    struct fixture *const fixture = *state;
    add_like_embedding(fixture, "model.encoder.embed_tokens.weight", 0.0f);
    add_like_embedding(fixture, "model.decoder.embed_tokens.weight", 0.5f);
    write_entries(fixture);
    small_load_fails(fixture->folder, ATTN_EUNSUPPORTED,
                     "\"model.decoder.embed_tokens.weight\"");
}

/* ---- Defects --------------------------------------------------------------------- */

static void a_missing_tensor_is_named(void **state)
{
    struct fixture *const fixture = *state;
    *entry_named(fixture, "model.decoder.layers.1.encoder_attn.v_proj.bias") =
        fixture->entries[--fixture->count];
    write_entries(fixture);
    small_load_fails(
        fixture->folder, ATTN_EFORMAT,
        "no tensor \"model.decoder.layers.1.encoder_attn.v_proj.bias\", expected "
        "one of shape [32]");
}

static void an_unknown_tensor_is_named(void **state)
{
    struct fixture *const fixture = *state;
    add_like_embedding(fixture, "model.encoder.layers.7.fc1.weight", 0.0f);
    write_entries(fixture);
    small_load_fails(fixture->folder, ATTN_EFORMAT,
                     "\"model.encoder.layers.7.fc1.weight\" belongs");
}

static void a_tensor_of_another_shape_is_named(void **state)
{
    struct fixture *const fixture = *state;
    attn_safetensors_entry *const entry =
        entry_named(fixture, "model.encoder.layers.1.fc2.weight");
    entry->extent[0] = 48;
    entry->extent[1] = 32;
    write_entries(fixture);
    small_load_fails(fixture->folder, ATTN_EFORMAT,
                     "\"model.encoder.layers.1.fc2.weight\" has shape [48, 32], expected "
                     "[32, 48]");
    entry->rank = 1;
    entry->extent[0] = 48 * 32;
    write_entries(fixture);
    small_load_fails(fixture->folder, ATTN_EFORMAT,
                     "has shape [1536], expected [32, 48]");
}

static void a_tensor_of_whole_numbers_is_named(void **state)
{
    struct fixture *const fixture = *state;
    entry_named(fixture, "model.encoder.layer_norm.bias")->dtype = ATTN_DTYPE_I32;
    write_entries(fixture);
    small_load_fails(fixture->folder, ATTN_EFORMAT,
                     "\"model.encoder.layer_norm.bias\" is not floating point");
}

static void half_precision_is_read(void **state)
{
    struct fixture *const fixture = *state;
    for (size_t i = 0; i < fixture->count; i++)
        fixture->entries[i].dtype = i % 2 ? ATTN_DTYPE_F16 : ATTN_DTYPE_BF16;
    write_entries(fixture);
    attn_translator *const loaded = small_load(fixture->folder);
    const attn_parameters *const saved = attn_translator_parameters(fixture->translator);
    const float *const values = attn_translator_parameters(loaded)->values;
    for (size_t i = 0; i < saved->floats; i++)
        assert_float_equal(values[i], saved->values[i], 0.01f);
    attn_translator_destroy(loaded);
}

static void a_truncated_or_missing_file_is_named(void **state)
{
    const struct fixture *const fixture = *state;
    const off_t lengths[] = {0, 7, 100, 20000};
    for (size_t i = 0; i < 4; i++) {
        write_entries(fixture);
        assert_int_equal(truncate(fixture->model, lengths[i]), 0);
        small_load_fails(fixture->folder, ATTN_EFORMAT, "model.safetensors");
    }
    unlink(fixture->model);
    small_load_fails(fixture->folder, ATTN_EIO, "model.safetensors");
    unlink(fixture->config);
    small_load_fails(fixture->folder, ATTN_EIO, "config.json");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fp32_comes_back_to_the_bit),
        TEST(bf16_comes_back_rounded_to_nearest_even),
        TEST(saving_twice_gives_the_same_bytes),
        TEST(other_sizes_dropouts_and_languages_come_back),
        TEST(what_normalises_last_comes_back_to_the_bit),
        TEST(learned_positions_of_one_side_alone_are_named),
        TEST(tied_without_a_head_uses_the_embedding),
        TEST(untied_without_a_head_is_an_error),
        TEST(tied_with_another_head_uses_both_and_says_so),
        TEST(an_untied_model_is_saved_whole),
        TEST(two_embeddings_that_differ_are_not_supported),
        TEST(a_missing_tensor_is_named),
        TEST(an_unknown_tensor_is_named),
        TEST(a_tensor_of_another_shape_is_named),
        TEST(a_tensor_of_whole_numbers_is_named),
        TEST(half_precision_is_read),
        TEST(a_truncated_or_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

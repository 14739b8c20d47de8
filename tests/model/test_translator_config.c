/* What a config.json may say: every defect is named, nothing that is claimed is believed,
 * and what Hugging Face leaves out has its defaults. */
#include "file/safetensors.h"
#include "small.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct defect {
    const char *key, *value;
    attn_status status;
    const char *fragment;
};

static void check_defects(const struct small_saved *fixture, const struct defect *cases,
                          size_t count)
{
    attn_error error;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(attn_translator_save(fixture->translator, fixture->folder,
                                              ATTN_DTYPE_F32, &error),
                         ATTN_OK);
        small_config_change(fixture->folder, cases[i].key, cases[i].value);
        small_load_fails(fixture->folder, cases[i].status, cases[i].fragment);
    }
}

static void every_defect_of_the_configuration_is_named(void **state)
{
    static const struct defect cases[] = {
        {"model_type", "\"bart\"", ATTN_EUNSUPPORTED, "model_type is \"bart\""},
        {"model_type", NULL, ATTN_EFORMAT, "model_type is missing"},
        {"model_type", "7", ATTN_EFORMAT, "model_type is a whole number"},
        {"vocab_size", NULL, ATTN_EFORMAT, "vocab_size is missing"},
        {"vocab_size", "\"40\"", ATTN_EFORMAT, "vocab_size is a text"},
        {"vocab_size", "40.5", ATTN_EFORMAT, "vocab_size is a decimal"},
        {"vocab_size", "4e1", ATTN_EFORMAT, "vocab_size is a decimal"},
        {"vocab_size", "-1", ATTN_EFORMAT, "[40, 32], expected [-1, 32]"},
        {"vocab_size", "0", ATTN_EFORMAT, "[40, 32], expected [0, 32]"},
        {"vocab_size", "41", ATTN_EFORMAT, "has shape [40, 32], expected [41, 32]"},
        {"vocab_size", "9223372036854775807", ATTN_EFORMAT, "[9223372036854775807, 32]"},
        {"d_model", "4611686018427387904", ATTN_EFORMAT, "[40, 4611686018427387904]"},
        {"d_model", "null", ATTN_EFORMAT, "d_model is null"},
        {"d_model", "[32]", ATTN_EFORMAT, "d_model is a list"},
        {"encoder_layers", "3", ATTN_EFORMAT, "no tensor \"model.encoder.layers.2."},
        {"encoder_layers", "1", ATTN_EFORMAT, "\"model.encoder.layers.1."},
        {"decoder_layers", "1000000000", ATTN_EFORMAT, "decoder_layers is 1000000000"},
        {"decoder_layers", "0", ATTN_EFORMAT, "decoder_layers is 0, expected 1 to"},
        {"encoder_attention_heads", "8", ATTN_EUNSUPPORTED,
         "encoder_attention_heads is 8 and decoder_attention_heads is 4"},
        {"encoder_ffn_dim", "64", ATTN_EUNSUPPORTED, "encoder_ffn_dim is 64"},
        {"decoder_ffn_dim", NULL, ATTN_EFORMAT, "decoder_ffn_dim is missing"},
        {"max_position_embeddings", "0", ATTN_EFORMAT, "max_positions is 0"},
        {"max_position_embeddings", "1000000", ATTN_EFORMAT, "1000000 positions"},
        {"activation_function", "\"swiglu\"", ATTN_EUNSUPPORTED, "is \"swiglu\""},
        {"activation_function", "1", ATTN_EFORMAT, "activation_function is a whole"},
        {"scale_embedding", "false", ATTN_EUNSUPPORTED, "scale_embedding is false"},
        {"scale_embedding", "1", ATTN_EFORMAT, "scale_embedding is a whole number"},
        {"pad_token_id", "0", ATTN_EUNSUPPORTED, "pad_token_id is 0, expected 1"},
        {"eos_token_id", "[2, 3]", ATTN_EFORMAT, "eos_token_id is a list"},
        {"decoder_start_token_id", "5", ATTN_EUNSUPPORTED,
         "decoder_start_token_id is 5, expected 2"},
        {"dropout", "1.5", ATTN_EFORMAT, "dropout is 1.5"},
        {"dropout", "-0.1", ATTN_EFORMAT, "dropout is -0.1"},
        {"attention_dropout", "\"x\"", ATTN_EFORMAT, "attention_dropout is a text"},
        {"tie_word_embeddings", "\"no\"", ATTN_EFORMAT, "tie_word_embeddings is a text"},
    };
    check_defects(*state, cases, sizeof cases / sizeof cases[0]);
}

/* Normalising last, from now on. */
static void save_marian(struct small_saved *fixture)
{
    const attn_translator_config config = small_config_last(false);
    attn_error error;
    attn_translator_destroy(fixture->translator);
    fixture->translator = small_translator_like(&config, 7);
    assert_int_equal(attn_translator_save(fixture->translator, fixture->folder,
                                          ATTN_DTYPE_F32, &error),
                     ATTN_OK);
}

static void every_defect_of_a_marian_configuration_is_named(void **state)
{
    static const struct defect cases[] = {
        {"model_type", "\"m2m_100\"", ATTN_EFORMAT,
         "no tensor \"model.encoder.layer_norm.weight\""},
        {"pad_token_id", NULL, ATTN_EFORMAT, "pad_token_id is missing"},
        {"eos_token_id", "0", ATTN_EUNSUPPORTED, "eos_token_id is 0, expected 2"},
        {"decoder_start_token_id", "1", ATTN_EUNSUPPORTED,
         "decoder_start_token_id is 1, expected 2"},
        {"scale_embedding", NULL, ATTN_EUNSUPPORTED, "scale_embedding is false"},
        {"share_encoder_decoder_embeddings", "false", ATTN_EUNSUPPORTED,
         "share_encoder_decoder_embeddings is false"},
        {"decoder_vocab_size", "41", ATTN_EUNSUPPORTED,
         "decoder_vocab_size is 41 and vocab_size is 40"},
        {"decoder_vocab_size", "\"41\"", ATTN_EFORMAT, "decoder_vocab_size is a text"},
    };
    save_marian(*state);
    check_defects(*state, cases, sizeof cases / sizeof cases[0]);
}

static void what_marian_leaves_out_has_its_own_defaults(void **state)
{
    struct small_saved *const fixture = *state;
    const char *const optional[] = {"bos_token_id", "activation_function",
                                    "attention_dropout", "decoder_vocab_size",
                                    "share_encoder_decoder_embeddings"};
    save_marian(fixture);
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        small_config_change(fixture->folder, optional[i], NULL);
    attn_translator *const loaded = small_load(fixture->folder);
    assert_int_equal(attn_translator_config_of(loaded)->activation, ATTN_GELU);
    assert_true(attn_translator_config_of(loaded)->attention_dropout == 0.0f);
    attn_translator_destroy(loaded);
}

static void heads_that_do_not_divide_the_width_are_named(void **state)
{
    const struct small_saved *const fixture = *state;
    small_config_change(fixture->folder, "encoder_attention_heads", "5");
    small_config_change(fixture->folder, "decoder_attention_heads", "5");
    small_load_fails(fixture->folder, ATTN_EFORMAT,
                     "width 32 is not a multiple of 5 heads");
}

static void what_hugging_face_leaves_out_has_its_defaults(void **state)
{
    const struct small_saved *const fixture = *state;
    const char *const optional[] = {
        "bos_token_id",
        "pad_token_id",
        "eos_token_id",
        "scale_embedding",
        "decoder_start_token_id",
        "activation_function",
        "attention_dropout",
        "tie_word_embeddings",
        "architectures",
        "dtype",
        "use_cache",
        "init_std",
    };
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        small_config_change(fixture->folder, optional[i], NULL);
    attn_translator_destroy(small_load(fixture->folder));
}

static void a_configuration_that_is_no_object_is_named(void **state)
{
    const struct small_saved *const fixture = *state;
    char path[1024];
    path_join(path, sizeof path, fixture->folder, "config.json");
    const struct {
        const char *text, *fragment;
    } cases[] = {
        {"", "config.json: line"},
        {"{", "config.json: line"},
        {"[]", "the whole is a list, expected an object"},
        {"{\"a\": 1, \"a\": 2}", "duplicate"},
        {"{\"vocab_size\": 99999999999999999999}", "config.json: line"},
        {"{} trailing", "config.json: line"},
        {"{\"a\": \"\xff\"}", "config.json: line"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        FILE *const file = fopen(path, "w");
        fputs(cases[i].text, file);
        fclose(file);
        small_load_fails(fixture->folder, ATTN_EFORMAT, cases[i].fragment);
    }
    char *const nested = malloc(100001);
    memset(nested, '[', 100000);
    nested[100000] = 0;
    FILE *const file = fopen(path, "w");
    fputs(nested, file);
    fclose(file);
    free(nested);
    small_load_fails(fixture->folder, ATTN_EFORMAT, "config.json: line");
}

#define TEST(name)                                                                       \
    cmocka_unit_test_setup_teardown(name, small_saved_set_up, small_saved_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_defect_of_the_configuration_is_named),
        TEST(heads_that_do_not_divide_the_width_are_named),
        TEST(what_hugging_face_leaves_out_has_its_defaults),
        TEST(every_defect_of_a_marian_configuration_is_named),
        TEST(what_marian_leaves_out_has_its_own_defaults),
        TEST(a_configuration_that_is_no_object_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

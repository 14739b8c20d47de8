/* Keys of a recurrent decoder. */
#include "model/recurrent_config.h"
#include "base/context.h"
#include "text/tokenizer.h"

static const char *const CELLS[] = {"gru", "lstm", NULL};
static const char *const CONTEXTS[] = {"output", "input", NULL};

static attn_status read_sizes(const attn_config_file *file,
                              attn_recurrent_decoder_config *config)
{
    const struct {
        const char *key;
        int64_t fallback, *out;
    } sizes[] = {
        {"vocab_size", -1, &config->vocabulary},
        {"embedding_size", -1, &config->embedding},
        {"decoder_hidden_size", -1, &config->width},
        {"decoder_layers", 1, &config->layers},
        {"attention_size", 0, &config->attention_width},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        ATTN_TRY(attn_config_file_integer(file, sizes[i].key, sizes[i].fallback,
                                          sizes[i].out));
    return ATTN_OK;
}

attn_status attn_recurrent_config_read(const attn_config_file *file,
                                       attn_recurrent_decoder_config *config)
{
    static const struct {
        const char *key;
        int64_t expected;
    } specials[] = {{"bos_token_id", ATTN_TOKEN_BOS},
                    {"pad_token_id", ATTN_TOKEN_PAD},
                    {"eos_token_id", ATTN_TOKEN_EOS},
                    {"decoder_start_token_id", ATTN_TOKEN_EOS}};
    size_t cell = 0, attention = 0, context = 0;
    bool tied = true;
    ATTN_TRY(attn_config_file_choice(file, "cell", CELLS, &cell));
    ATTN_TRY(attn_config_file_choice(file, "attention", attn_cross_names, &attention));
    ATTN_TRY(attn_config_file_choice(file, "context", CONTEXTS, &context));
    for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++)
        ATTN_TRY(attn_config_file_expect(file, specials[i].key, specials[i].expected));
    ATTN_TRY(attn_config_file_flag(file, "tie_word_embeddings", true, &tied));
    ATTN_TRY(attn_config_file_probability(file, "dropout", 0.0, &config->dropout));
    config->cell = cell == 0 ? ATTN_CELL_GRU : ATTN_CELL_LSTM;
    config->attention = (attn_cross_score)attention;
    config->context_enters = context == 1;
    config->untied = !tied;
    return read_sizes(file, config);
}

void attn_recurrent_config_write(const attn_recurrent_decoder_config *config,
                                 json_t *document)
{
    json_t *const keys = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:i, s:i, s:i, s:i}", "cell",
        CELLS[config->cell == ATTN_CELL_LSTM], "attention",
        attn_cross_names[config->attention], "context", CONTEXTS[config->context_enters],
        "vocab_size", (json_int_t)config->vocabulary, "embedding_size",
        (json_int_t)config->embedding, "decoder_hidden_size", (json_int_t)config->width,
        "decoder_layers", (json_int_t)config->layers, "attention_size",
        (json_int_t)config->attention_width, "tie_word_embeddings", !config->untied,
        "dropout", attn_json_decimal(config->dropout), "bos_token_id", ATTN_TOKEN_BOS,
        "pad_token_id", ATTN_TOKEN_PAD, "eos_token_id", ATTN_TOKEN_EOS,
        "decoder_start_token_id", ATTN_TOKEN_EOS);
    json_object_update(document, keys);
    json_decref(keys);
}

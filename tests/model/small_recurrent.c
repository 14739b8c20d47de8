/* Small recurrent translators. */
#include "small_recurrent.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

attn_recurrent_translator_config small_recurrent_config(int number)
{
    const attn_cross_score score = (attn_cross_score)(number / 2 % ATTN_CROSS_SCORES);
    const bool is_lstm = number >= SMALL_RECURRENTS / 2;
    attn_recurrent_translator_config config = {
        .vocabulary = SMALL_VOCABULARY,
        .embedding = 10,
        .cell = is_lstm ? ATTN_CELL_LSTM : ATTN_CELL_GRU,
        .encoder_width = 6,
        .encoder_layers = is_lstm ? 2 : 1,
        .decoder_layers = is_lstm ? 2 : 1,
        .both_ways = score != ATTN_CROSS_NONE,
        .width = 12,
        .attention = score,
        .attention_width = score == ATTN_CROSS_ADDITIVE ? 7 : 0,
        .context_enters = number % 2 == 1,
        .max_positions = SMALL_POSITIONS,
        .dropout = 0.1f,
    };
    if (score == ATTN_CROSS_GENERAL || score == ATTN_CROSS_ADDITIVE)
        config.width = 9; /* states of two widths */
    return config;
}

const char *small_recurrent_name(int number)
{
    static char name[64];
    const attn_recurrent_translator_config config = small_recurrent_config(number);
    snprintf(
        name, sizeof name, "%s, %s, %s", config.cell == ATTN_CELL_LSTM ? "lstm" : "gru",
        attn_cross_names[config.attention], config.context_enters ? "input" : "output");
    return name;
}

attn_recurrent_translator *
small_recurrent_like(const attn_recurrent_translator_config *config, uint64_t seed)
{
    attn_recurrent_translator *translator;
    attn_error error;
    if (attn_recurrent_translator_create(&translator, config, seed, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_parameters *const parameters = attn_recurrent_translator_parameters(translator);
    uint64_t state = seed + 1;
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        for (size_t j = 0; parameter->decays && j < parameter->count; j++)
            parameters->values[parameter->offset + j] *= 2.0f;
        for (size_t j = 0; !parameter->decays && j < parameter->count; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            parameters->values[parameter->offset + j] +=
                (float)(state >> 40) * 0x1p-25f - 0.25f;
        }
    }
    return translator;
}

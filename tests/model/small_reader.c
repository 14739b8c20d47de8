/* Small readers. */
#include "small_reader.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const struct kind {
    const char *name;
    attn_reader_body body;
    attn_reader_pooling pooling;
    attn_reader_attention attention;
    bool tags, other; /* other: the other choice of what is left */
} KINDS[READER_KINDS] = {
    {"a bag", ATTN_BODY_BAG, ATTN_READER_MEAN, 0, false, false},
    {"a bag with pairs", ATTN_BODY_BAG, ATTN_READER_MEAN, 0, false, true},
    {"a bag under attention", ATTN_BODY_BAG, ATTN_READER_ATTENTION, 0, false, false},
    {"a convolution", ATTN_BODY_CONVOLUTION, ATTN_READER_MAX, 0, false, false},
    {"an LSTM's last state", ATTN_BODY_LSTM, ATTN_READER_LAST, 0, false, true},
    {"an LSTM under attention", ATTN_BODY_LSTM, ATTN_READER_ATTENTION, 0, false, true},
    {"a GRU's mean", ATTN_BODY_GRU, ATTN_READER_MEAN, 0, false, false},
    {"an RNN's last state", ATTN_BODY_RNN, ATTN_READER_LAST, 0, false, false},
    {"a Transformer", ATTN_BODY_TRANSFORMER, ATTN_READER_FIRST, 0, false, false},
    {"a tagging bag", ATTN_BODY_BAG, ATTN_READER_MEAN, 0, true, false},
    {"a tagging convolution", ATTN_BODY_CONVOLUTION, ATTN_READER_MEAN, 0, true, true},
    {"a tagging LSTM", ATTN_BODY_LSTM, ATTN_READER_MEAN, 0, true, true},
    {"a tagging LSTM with additive attention", ATTN_BODY_LSTM, ATTN_READER_MEAN,
     ATTN_READER_ADDITIVE, true, true},
    {"a tagging LSTM with products", ATTN_BODY_LSTM, ATTN_READER_MEAN,
     ATTN_READER_PRODUCT, true, false},
    {"a tagging Transformer", ATTN_BODY_TRANSFORMER, ATTN_READER_MEAN, 0, true, false},
    {"a Transformer's mean", ATTN_BODY_TRANSFORMER, ATTN_READER_MEAN, 0, false, false},
};

const char *small_reader_name(int kind)
{
    return KINDS[kind].name;
}

attn_reader_config small_reader_config(int kind)
{
    const struct kind *const k = &KINDS[kind];
    const bool is_bag = k->body == ATTN_BODY_BAG;
    const bool is_transformer = k->body == ATTN_BODY_TRANSFORMER;
    const bool is_convolution = k->body == ATTN_BODY_CONVOLUTION;
    attn_reader_config config = {
        .tags = k->tags,
        .labels = READER_LABELS,
        .vocabulary = READER_VOCABULARY,
        .max_positions = 15,
        .body = k->body,
        .embedding = is_transformer ? 0 : 10,
        .buckets = is_bag && k->other ? 17 : 0,
        .width = is_bag           ? 0
                 : is_transformer ? 12
                                  : 7,
        .layers = is_bag || is_convolution ? 0
                  : k->other               ? 2
                                           : 1,
        .both_ways = !is_bag && !is_convolution && !is_transformer && k->other,
        .pooling = k->pooling,
        .attention = k->attention,
        .mean_pieces = k->tags && k->other,
    };
    if (is_convolution) {
        config.filter_count = 3;
        config.filters[0] = 1, config.filters[1] = 3, config.filters[2] = 4;
    }
    if (k->pooling == ATTN_READER_ATTENTION || k->attention != ATTN_READER_ALONE)
        config.attention_width = 6;
    if (is_transformer)
        config.heads = 3, config.inner = 20;
    return config;
}

attn_reader *small_reader_create(const attn_reader_config *config)
{
    attn_reader *reader;
    attn_error error;
    if (attn_reader_create(&reader, config, 3, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    /* Gains and biases that are not 1 and 0, so that their places matter. */
    attn_parameters *const parameters = attn_reader_parameters(reader);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        for (size_t j = 0; !p->decays && j < p->count; j++)
            parameters->values[p->offset + j] += 0.3f * sinf((float)(i + 3 * j));
    }
    return reader;
}

const attn_reader_text *small_reader_texts(bool tags)
{
    static const int32_t ids[] = {5,  9,  28, 4,  4,  17, 12, 7,  8,  20, 21, 22,
                                  23, 24, 25, 26, 27, 6,  11, 13, 14, 15, 16, 18};
    static const int64_t starts[] = {0, 1, 3, 6, 7, 0, 1, 0, 2, 3, 6, 9, 10, 12, 0, 1, 4};
    static const attn_reader_text of_words[] = {
        {ids, 7, starts, 4},
        {ids + 7, 1, starts + 5, 1},
        {ids + 8, 12, starts + 7, 6},
        {ids + 20, 4, starts + 14, 2},
    };
    static const attn_reader_text of_texts[] = {
        {ids, 7, NULL, 0},
        {ids + 7, 0, NULL, 0},
        {ids + 8, 12, NULL, 0},
        {ids + 20, 4, NULL, 0},
    };
    return tags ? of_words : of_texts;
}

int64_t small_reader_rows(bool tags, int64_t n)
{
    return tags ? small_reader_texts(true)[n].words : 1;
}

int64_t small_reader_all_rows(bool tags)
{
    int64_t rows = 0;
    for (int64_t n = 0; n < READER_TEXTS; n++)
        rows += small_reader_rows(tags, n);
    return rows;
}

const float *small_reader_logits(attn_reader *reader, attn_tape *tape,
                                 const attn_reader_text *texts, int64_t count)
{
    const attn_pass pass = {.tape = tape, .parameters = attn_reader_parameters(reader)};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_reader_logits(reader, &pass, texts, count);
    if (!logits)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    return logits->data;
}

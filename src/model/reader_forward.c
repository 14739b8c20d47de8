/* What a reader computes. */
#include "base/context.h"
#include "base/mix.h"
#include "model/reader_parts.h"
#include "nn/convolution.h"
#include <string.h>

/* ---- Body ------------------------------------------------------------------------ */

static attn_tensor *embed(const attn_reader *reader, const attn_pass *pass,
                          const int32_t *ids, int64_t count)
{
    return attn_embedding(pass->tape, attn_pass_parameter(pass, reader->embedding), ids,
                          count, 1.0f);
}

/* The bucket of a pair of tokens, by FNV-1a of its two ids. */
static int32_t pair_row(const attn_reader_config *config, int32_t left, int32_t right)
{
    uint64_t hash = attn_mix_hash(ATTN_MIX_HASH, (uint32_t)left);
    hash = attn_mix_hash(hash, (uint32_t)right);
    hash ^= hash >> 32;
    return (int32_t)(config->vocabulary + (int64_t)(hash % (uint64_t)config->buckets));
}

/* A bag's chunk is its tokens and then its pairs; *packing becomes the bag's. */
static attn_tensor *bag(const attn_reader *reader, const attn_pass *pass,
                        const int32_t *ids, attn_packing *packing)
{
    const int64_t tokens = packing->starts[packing->sequences];
    if (reader->config.buckets == 0)
        return embed(reader, pass, ids, tokens);
    const size_t sequences = (size_t)packing->sequences;
    int64_t *const starts =
        attn_tape_allocate(pass->tape, (sequences + 1) * sizeof *starts);
    int32_t *const rows =
        attn_tape_allocate(pass->tape, (2 * (size_t)tokens + 1) * sizeof *rows);
    if (!starts || !rows)
        return NULL;
    int64_t at = 0;
    for (int64_t s = 0; s < packing->sequences; s++) {
        const int64_t first = packing->starts[s], end = packing->starts[s + 1];
        starts[s] = at;
        for (int64_t i = first; i < end; i++)
            rows[at++] = ids[i];
        for (int64_t i = first + 1; i < end; i++)
            rows[at++] = pair_row(&reader->config, ids[i - 1], ids[i]);
    }
    starts[sequences] = at;
    packing->starts = starts;
    return embed(reader, pass, rows, at);
}

/* Filters of each length side by side, [tokens][filter_count·width]. */
static attn_tensor *convolve(const attn_reader *reader, const attn_pass *pass,
                             attn_tensor *x, attn_packing packing)
{
    attn_tensor *y = NULL;
    for (int64_t i = 0; i < reader->config.filter_count; i++) {
        attn_tensor *const filtered = attn_convolve(&reader->convolutions[i], pass, x,
                                                    packing, reader->config.filters[i]);
        y = i == 0 ? filtered : attn_join(pass->tape, y, filtered);
    }
    return attn_activate(pass->tape, y, ATTN_RELU);
}

/* States of the tokens; where last is not NULL it gets the last states of a recurrent
 * body, [chunks][width], forwards first. */
static attn_tensor *run_body(const attn_reader *reader, const attn_pass *pass,
                             const int32_t *ids, attn_packing *packing,
                             attn_tensor **last)
{
    const attn_reader_config *const config = &reader->config;
    attn_tensor *x = config->body == ATTN_BODY_BAG
                         ? bag(reader, pass, ids, packing)
                         : embed(reader, pass, ids, packing->starts[packing->sequences]);
    x = attn_dropout(pass->tape, x, config->dropout);
    if (config->body == ATTN_BODY_BAG)
        return x;
    if (config->body == ATTN_BODY_CONVOLUTION)
        return convolve(reader, pass, x, *packing);
    attn_recurrent_states after = {{NULL}, {NULL}};
    x = attn_recurrent_layer_forward(&reader->recurrent, pass, x, *packing, NULL,
                                     last ? &after : NULL, config->dropout);
    if (last) {
        const int64_t ways = config->both_ways ? 2 : 1;
        const int64_t run = (config->layers - 1) * ways;
        *last = config->both_ways
                    ? attn_join(pass->tape, after.state[run], after.state[run + 1])
                    : after.state[run];
    }
    return x;
}

/* ---- Texts ----------------------------------------------------------------------- */

/* One row for each chunk, by additive attention whose query is the same for all: a vector
 * that the key projection's bias already holds, so that here it is 0. */
static attn_tensor *pool_by_attention(const attn_reader *reader, const attn_pass *pass,
                                      attn_tensor *x, attn_packing packing)
{
    attn_tape *const tape = pass->tape;
    const int64_t sequences = packing.sequences, width = reader->config.attention_width;
    const int64_t extent[] = {sequences, width};
    const size_t floats = (size_t)(sequences * width);
    float *const zeros = attn_tape_allocate(tape, (floats + 1) * sizeof *zeros);
    int64_t *const starts =
        attn_tape_allocate(tape, ((size_t)sequences + 1) * sizeof *starts);
    if (!zeros || !starts)
        return NULL;
    memset(zeros, 0, floats * sizeof *zeros);
    for (int64_t s = 0; s <= sequences; s++)
        starts[s] = s;
    const attn_heads heads = {
        .heads = 1,
        .key_heads = 1,
        .part = ATTN_PART_POOL,
        .dropout = reader->config.attention_dropout,
        .additive = attn_pass_parameter(pass, reader->vector),
    };
    const attn_memory memory = {.key = attn_linear_layer_forward(&reader->key, pass, x),
                                .value = x,
                                .packing = packing};
    return attn_heads_forward(&heads, pass, attn_tape_leaf(tape, zeros, NULL, 2, extent),
                              (attn_packing){sequences, starts}, &memory);
}

static attn_tensor *pool(const attn_reader *reader, const attn_pass *pass,
                         const attn_reader_packed *packed)
{
    const attn_reader_pooling pooling = reader->config.pooling;
    attn_packing packing = packed->chunks;
    attn_tensor *last = NULL;
    attn_tensor *const x = run_body(reader, pass, packed->ids, &packing,
                                    pooling == ATTN_READER_LAST ? &last : NULL);
    if (pooling == ATTN_READER_LAST)
        return last;
    if (pooling == ATTN_READER_ATTENTION)
        return x ? pool_by_attention(reader, pass, x, packing) : NULL;
    return attn_pool(pass->tape, x,
                     pooling == ATTN_READER_MAX ? ATTN_POOL_MAX : ATTN_POOL_MEAN,
                     packing.sequences, packing.starts);
}

static attn_tensor *label_texts(const attn_reader *reader, const attn_pass *pass,
                                const attn_reader_packed *packed)
{
    attn_tensor *x;
    if (reader->bert) {
        x = attn_bert_logits(
            reader->bert, pass,
            &(attn_bert_input){.ids = packed->ids, .packing = packed->chunks});
    } else {
        x = attn_dropout(pass->tape, pool(reader, pass, packed), reader->config.dropout);
        x = attn_linear_layer_forward(&reader->classifier, pass, x);
    }
    if (packed->texts.sequences == packed->chunks.sequences)
        return x;
    return attn_pool(pass->tape, x, ATTN_POOL_MEAN, packed->texts.sequences,
                     packed->texts.starts);
}

/* ---- Words ----------------------------------------------------------------------- */

/* A row for each word from those of its tokens. */
static attn_tensor *words_of(const attn_reader *reader, const attn_pass *pass,
                             attn_tensor *x, const attn_reader_packed *packed)
{
    attn_tape *const tape = pass->tape;
    const attn_packing words = packed->words;
    if (reader->config.mean_pieces) {
        attn_tensor *const pieces =
            attn_embedding(tape, x, packed->pieces, words.starts[words.sequences], 1.0f);
        return attn_pool(tape, pieces, ATTN_POOL_MEAN, words.sequences, words.starts);
    }
    int32_t *const first =
        attn_tape_allocate(tape, ((size_t)words.sequences + 1) * sizeof *first);
    if (!first)
        return NULL;
    for (int64_t w = 0; w < words.sequences; w++)
        first[w] = packed->pieces[words.starts[w]];
    return attn_embedding(tape, x, first, words.sequences, 1.0f);
}

/* What a word sees of the words of its sentence, itself too. */
static attn_tensor *attend(const attn_reader *reader, const attn_pass *pass,
                           attn_tensor *x, attn_packing sentences)
{
    const bool is_additive = reader->config.attention == ATTN_READER_ADDITIVE;
    const attn_heads heads = {
        .heads = 1,
        .key_heads = 1,
        .part = ATTN_PART_ENCODER,
        .dropout = reader->config.attention_dropout,
        .additive = is_additive ? attn_pass_parameter(pass, reader->vector) : NULL,
    };
    const attn_memory memory = {.key = attn_linear_layer_forward(&reader->key, pass, x),
                                .value = x,
                                .packing = sentences};
    attn_tensor *const query = attn_linear_layer_forward(&reader->query, pass, x);
    return attn_heads_forward(&heads, pass, query, sentences, &memory);
}

static attn_tensor *label_words(const attn_reader *reader, const attn_pass *pass,
                                const attn_reader_packed *packed)
{
    attn_packing packing = packed->chunks;
    if (reader->bert) {
        attn_tensor *const logits =
            attn_bert_logits(reader->bert, pass,
                             &(attn_bert_input){.ids = packed->ids, .packing = packing});
        return words_of(reader, pass, logits, packed);
    }
    attn_tensor *x = run_body(reader, pass, packed->ids, &packing, NULL);
    x = words_of(reader, pass, x, packed);
    x = attn_dropout(pass->tape, x, reader->config.dropout);
    if (reader->config.attention != ATTN_READER_ALONE)
        x = attn_join(pass->tape, x, attend(reader, pass, x, packed->groups));
    return attn_linear_layer_forward(&reader->classifier, pass, x);
}

attn_tensor *attn_reader_logits(const attn_reader *reader, const attn_pass *pass,
                                const attn_reader_text *texts, int64_t count)
{
    attn_reader_packed packed;
    if (!attn_reader_pack(reader, pass->tape, texts, count, &packed))
        return NULL;
    if (!reader->config.tags)
        return label_texts(reader, pass, &packed);
    return label_words(reader, pass, &packed);
}

/* ---- Loss ------------------------------------------------------------------------ */

attn_tensor *attn_reader_loss(const attn_reader *reader, const attn_pass *pass,
                              attn_tensor *logits, const int32_t *targets,
                              float smoothing, double divisor, double *plain,
                              int64_t *correct)
{
    const int64_t labels = reader->config.labels;
    const int64_t square[] = {labels, labels};
    if (!logits)
        return NULL;
    /* The loss is fused with a projection, which here changes nothing. */
    float *const unit =
        attn_tape_allocate(pass->tape, (size_t)(labels * labels) * sizeof *unit);
    if (!unit)
        return NULL;
    for (int64_t i = 0; i < labels * labels; i++)
        unit[i] = i % (labels + 1) == 0 ? 1.0f : 0.0f;
    for (int64_t n = 0; correct && n < logits->extent[0]; n++) {
        *correct = n == 0 ? 0 : *correct;
        *correct += attn_reader_choose(logits->data + n * labels, labels) == targets[n];
    }
    return attn_linear_cross_entropy(pass->tape, logits,
                                     attn_tape_leaf(pass->tape, unit, NULL, 2, square),
                                     NULL, false, targets, smoothing, divisor, plain);
}

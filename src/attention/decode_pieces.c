/* Decoding: which keys a group of heads reads next, and where they lie. */
#include "attention/decode_pieces.h"

/* Where the group's keys and values lie from one key on, and for how many keys. */
static struct attn_cached_rows find_rows(const struct attn_decoder *decoder,
                                         int64_t first)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const struct attn_head *const head = &decoder->heads[0];
    const attn_input *const key = &problem->tensors->key;
    const attn_input *const value = &problem->tensors->value;
    if (problem->cached) {
        const struct attn_cached *const cached = problem->cached;
        const int64_t name = cached->batch->sequences[decoder->sequence.index];
        return attn_cache_rows(cached->cache, attn_cache_find(cached->cache, name),
                               head->hk, first);
    }
    return (struct attn_cached_rows){
        .key = attn_element(head->key, key->type, first * key->stride[2]),
        .value = attn_element(head->value, value->type, first * value->stride[2]),
        .keys = decoder->seen.end - first,
    };
}

/* Up to where each head sees all keys from piece->first on, or none. */
static int64_t cut_at_runs(const struct attn_decoder *decoder,
                           struct attn_decode_piece *piece, int64_t end)
{
    const struct attn_problem *const problem = decoder->forward->problem;
    const attn_keep *const blocks = &problem->options->blocks;
    /* Only layouts tell heads apart. */
    const int64_t heads = blocks->data && blocks->stride[1] != 0 ? decoder->count : 1;
    struct attn_key_range runs[ATTN_DECODE_HEADS];
    const int64_t from = piece->first;
    piece->first = end;
    for (int64_t n = 0; n < heads; n++) {
        runs[n] = (struct attn_key_range){from, from};
        if (!attn_next_seen(problem, &decoder->sequence, &decoder->heads[n], 0, end,
                            &runs[n]))
            runs[n] = (struct attn_key_range){end, end};
        piece->first = attn_least(piece->first, runs[n].first);
    }
    int64_t stop = end;
    for (int64_t n = 0; n < heads; n++) {
        piece->hidden[n] = runs[n].first > piece->first;
        piece->hides = piece->hides || piece->hidden[n];
        stop = attn_least(stop, piece->hidden[n] ? runs[n].first : runs[n].end);
    }
    return stop;
}

void attn_decode_find_piece(struct attn_decode_piece *piece,
                            const struct attn_decoder *decoder, int64_t from, int64_t end)
{
    piece->first = from;
    piece->end = end;
    piece->hides = false;
    if (from < end && attn_has_runs(decoder->forward->problem))
        piece->end = cut_at_runs(decoder, piece, end);
    if (piece->first >= piece->end) {
        piece->first = piece->end = end;
        return;
    }
    const int64_t most = attn_decode_keys(decoder->forward);
    const int64_t next = piece->first - piece->first % most + most;
    piece->rows = find_rows(decoder, piece->first);
    piece->end =
        attn_least(piece->end, attn_least(piece->first + piece->rows.keys, next));
}

/* How the rows follow each other. */
static void describe_rows(struct attn_decode_block *block,
                          const struct attn_problem *problem)
{
    const attn_input *const key = &problem->tensors->key;
    const attn_input *const value = &problem->tensors->value;
    if (problem->cached) {
        const attn_cache *const cache = problem->cached->cache;
        const size_t bytes = attn_cache_element_bytes(cache);
        block->key_type = block->value_type = (enum attn_stored)cache->options.type;
        block->key_stride = (ptrdiff_t)((size_t)cache->options.D * bytes);
        block->value_stride = (ptrdiff_t)((size_t)cache->options.Dv * bytes);
        return;
    }
    block->key_type = (enum attn_stored)key->type;
    block->value_type = (enum attn_stored)value->type;
    block->key_stride = (ptrdiff_t)((size_t)key->stride[2] * attn_type_bytes(key->type));
    block->value_stride =
        (ptrdiff_t)((size_t)value->stride[2] * attn_type_bytes(value->type));
}

void attn_decode_point(struct attn_decode_block *block,
                       const struct attn_decoder *decoder,
                       const struct attn_decode_piece *piece,
                       const struct attn_decode_piece *next)
{
    block->first_key = piece->first;
    block->keys = (size_t)(piece->end - piece->first);
    block->key = piece->rows.key;
    block->value = piece->rows.value;
    block->row = piece->rows.row;
    block->key_scales = piece->rows.key_scale;
    block->value_scales = piece->rows.value_scale;
    describe_rows(block, decoder->forward->problem);
    if (next->first == next->end)
        return;
    const bool bytes = block->key_type == ATTN_STORED_I8;
    block->next_key = (const char *)next->rows.key +
                      (bytes ? attn_byte_of_key(decoder->panel.D, next->rows.row, 0) : 0);
    block->next_value =
        (const char *)next->rows.value +
        (bytes ? attn_byte_of_value(decoder->panel.Dv, next->rows.row, 0) : 0);
    block->next_key_scales = next->rows.key_scale;
    block->next_value_scales = next->rows.value_scale;
    block->next_keys = (size_t)(next->end - next->first);
}

void attn_decode_call_lines(const void *from, size_t bytes)
{
    for (size_t n = 0; n < bytes; n += 64)
        __builtin_prefetch((const char *)from + n, 0, 2);
}

static void call_bytes(const struct attn_decoder *decoder,
                       const struct attn_decode_piece *piece)
{
    const size_t keys = (size_t)(piece->end - piece->first), row = piece->rows.row;
    const size_t D = decoder->panel.D, Dv = decoder->panel.Dv;
    attn_decode_call_lines((const char *)piece->rows.key + attn_byte_of_key(D, row, 0),
                           keys * D);
    attn_decode_call_lines(piece->rows.key_scale, keys * sizeof *piece->rows.key_scale);
    attn_decode_call_lines(piece->rows.value_scale,
                           keys * sizeof *piece->rows.value_scale);
    attn_decode_call_lines(
        (const char *)piece->rows.value + attn_byte_of_value(Dv, row, 0), keys * Dv);
}

static void call_stored_rows(const struct attn_decoder *decoder,
                             const struct attn_decode_piece *piece)
{
    struct attn_decode_block block;
    describe_rows(&block, decoder->forward->problem);
    const size_t bytes = block.key_type == ATTN_STORED_F32 ? 4 : 2;
    for (int64_t n = 0; n < piece->end - piece->first; n++) {
        attn_decode_call_lines((const char *)piece->rows.key + n * block.key_stride,
                               bytes * decoder->panel.D);
        attn_decode_call_lines((const char *)piece->rows.value + n * block.value_stride,
                               bytes * decoder->panel.Dv);
    }
}

void attn_decode_call_first(const struct attn_decoder *decoder,
                            const struct attn_decode_piece *piece)
{
    if (piece->first == piece->end)
        return;
    if (attn_decode_stores_bytes(decoder->forward))
        call_bytes(decoder, piece);
    else if (decoder->forward->kernels->decode->long_blocks)
        call_stored_rows(decoder, piece);
}

/* Arranges an epoch. */
#include "train/batches.h"
#include "train/mix.h"
#include <stdlib.h>
#include <string.h>

struct attn_batch_key {
    double length;
    uint64_t tie; /* random, so that pairs of one length meet others each epoch */
    size_t pair;
};

static int by_length(const void *a, const void *b)
{
    const struct attn_batch_key *const left = a, *const right = b;
    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    if (left->tie != right->tie)
        return left->tie < right->tie ? -1 : 1;
    return left->pair < right->pair ? -1 : left->pair > right->pair;
}

attn_status attn_batches_create(attn_batches *batches, const attn_pairs *pairs,
                                int64_t tokens_per_batch, attn_error *error)
{
    const int64_t half = tokens_per_batch / 2;
    int64_t count = (pairs->target_tokens + half) / tokens_per_batch;
    if (count < 1)
        count = 1;
    if ((size_t)count > pairs->count)
        count = (int64_t)pairs->count;
    *batches = (attn_batches){
        .count = (size_t)count,
        .pairs = malloc(pairs->count * sizeof *batches->pairs),
        .first = malloc(((size_t)count + 1) * sizeof *batches->first),
        .keys = malloc(pairs->count * sizeof *batches->keys),
        .cuts = malloc(((size_t)count + 1) * sizeof *batches->cuts),
        .turn = malloc((size_t)count * sizeof *batches->turn),
    };
    if (batches->pairs && batches->first && batches->keys && batches->cuts &&
        batches->turn)
        return ATTN_OK;
    attn_batches_free(batches);
    return attn_error_set(error, ATTN_ENOMEM, "out of memory for batches of %zu pairs",
                          pairs->count);
}

/* Batch b of the sorted list is keys[cuts[b]] to keys[cuts[b + 1] − 1]; none is empty. */
static void cut(attn_batches *batches, const attn_pairs *pairs)
{
    const double share = (double)pairs->target_tokens / (double)batches->count;
    int64_t tokens = 0;
    size_t at = 0;
    for (size_t b = 0; b < batches->count; b++) {
        const size_t batches_left = batches->count - b - 1;
        const double bound = share * (double)(b + 1);
        batches->cuts[b] = at;
        do {
            const size_t pair = batches->keys[at++].pair;
            tokens += attn_pairs_target_length(pairs, pair);
        } while (pairs->count - at > batches_left &&
                 ((double)tokens < bound || batches_left == 0));
    }
    batches->cuts[batches->count] = at;
}

void attn_batches_arrange(attn_batches *batches, const attn_pairs *pairs, uint64_t seed,
                          int64_t epoch, double noise)
{
    const uint64_t lengths = attn_mix(attn_mix(seed, 1), (uint64_t)epoch);
    const uint64_t ties = attn_mix(attn_mix(seed, 2), (uint64_t)epoch);
    const uint64_t turns = attn_mix(attn_mix(seed, 3), (uint64_t)epoch);
    for (size_t n = 0; n < pairs->count; n++)
        batches->keys[n] = (struct attn_batch_key){
            .length = (double)attn_pairs_target_length(pairs, n) +
                      noise * (2.0 * attn_mix_unit(lengths, n) - 1.0),
            .tie = attn_mix(ties, n),
            .pair = n,
        };
    qsort(batches->keys, pairs->count, sizeof *batches->keys, by_length);
    cut(batches, pairs);

    for (size_t b = 0; b < batches->count; b++) {
        const size_t other = (size_t)(attn_mix(turns, b) % (b + 1));
        batches->turn[b] = b;
        batches->turn[b] = batches->turn[other];
        batches->turn[other] = b;
    }
    size_t at = 0;
    for (size_t b = 0; b < batches->count; b++) {
        const size_t cut_batch = batches->turn[b];
        batches->first[b] = at;
        for (size_t n = batches->cuts[cut_batch]; n < batches->cuts[cut_batch + 1]; n++)
            batches->pairs[at++] = batches->keys[n].pair;
    }
    batches->first[batches->count] = at;
}

void attn_batches_free(attn_batches *batches)
{
    free(batches->pairs);
    free(batches->first);
    free(batches->keys);
    free(batches->cuts);
    free(batches->turn);
    *batches = (attn_batches){0};
}

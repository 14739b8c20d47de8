/* Arranges an epoch. */
#include "train/batches.h"
#include "base/mix.h"
#include <stdlib.h>
#include <string.h>

struct attn_batch_key {
    double size;
    uint64_t tie; /* random, so that examples of one length meet others each epoch */
    size_t example;
};

static int by_size(const void *a, const void *b)
{
    const struct attn_batch_key *const left = a, *const right = b;
    if (left->size != right->size)
        return left->size < right->size ? -1 : 1;
    if (left->tie != right->tie)
        return left->tie < right->tie ? -1 : 1;
    return left->example < right->example ? -1 : left->example > right->example;
}

attn_status attn_batches_create(attn_batches *batches, const attn_examples *examples,
                                int64_t tokens_per_batch, attn_error *error)
{
    const int64_t half = tokens_per_batch / 2;
    int64_t tokens = 0;
    for (size_t n = 0; n < examples->count; n++)
        tokens += examples->sizes[n].size;
    int64_t count = (tokens + half) / tokens_per_batch;
    if (count < 1)
        count = 1;
    if ((size_t)count > examples->count)
        count = (int64_t)examples->count;
    *batches = (attn_batches){
        .count = (size_t)count,
        .list = malloc(examples->count * sizeof *batches->list),
        .first = malloc(((size_t)count + 1) * sizeof *batches->first),
        .keys = malloc(examples->count * sizeof *batches->keys),
        .cuts = malloc(((size_t)count + 1) * sizeof *batches->cuts),
        .turn = malloc((size_t)count * sizeof *batches->turn),
        .tokens = tokens,
    };
    if (batches->list && batches->first && batches->keys && batches->cuts &&
        batches->turn)
        return ATTN_OK;
    attn_batches_free(batches);
    return attn_error_set(error, ATTN_ENOMEM, "out of memory for batches of %zu examples",
                          examples->count);
}

/* Batch b of the sorted list is keys[cuts[b]] to keys[cuts[b + 1] − 1]; none is empty. */
static void cut(attn_batches *batches, const attn_examples *examples)
{
    const double share = (double)batches->tokens / (double)batches->count;
    int64_t tokens = 0;
    size_t at = 0;
    for (size_t b = 0; b < batches->count; b++) {
        const size_t batches_left = batches->count - b - 1;
        const double bound = share * (double)(b + 1);
        batches->cuts[b] = at;
        do {
            tokens += examples->sizes[batches->keys[at++].example].size;
        } while (examples->count - at > batches_left &&
                 ((double)tokens < bound || batches_left == 0));
    }
    batches->cuts[batches->count] = at;
}

void attn_batches_arrange(attn_batches *batches, const attn_examples *examples,
                          uint64_t seed, int64_t epoch, double noise)
{
    const uint64_t lengths = attn_mix(attn_mix(seed, 1), (uint64_t)epoch);
    const uint64_t ties = attn_mix(attn_mix(seed, 2), (uint64_t)epoch);
    const uint64_t turns = attn_mix(attn_mix(seed, 3), (uint64_t)epoch);
    for (size_t n = 0; n < examples->count; n++)
        batches->keys[n] = (struct attn_batch_key){
            .size = (double)examples->sizes[n].size +
                    noise * (2.0 * attn_mix_unit(lengths, n) - 1.0),
            .tie = attn_mix(ties, n),
            .example = n,
        };
    qsort(batches->keys, examples->count, sizeof *batches->keys, by_size);
    cut(batches, examples);

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
            batches->list[at++] = batches->keys[n].example;
    }
    batches->first[batches->count] = at;
}

void attn_batches_free(attn_batches *batches)
{
    free(batches->list);
    free(batches->first);
    free(batches->keys);
    free(batches->cuts);
    free(batches->turn);
    *batches = (attn_batches){0};
}

/* Decoding: one query for each of 32 heads over the cached keys of 8, as a language model
 * does for every token.  It is bound by reading keys and values, so its rate is held
 * against that of reading memory.  Sets of keys and values take turns, so that no cache
 * holds what the next call needs. */
#include "cli/bench.h"
#include <string.h>

enum { HEADS = 32, KEY_HEADS = 8, LARGEST_RING = 64 };

/* 256 MiB. */
static const size_t RING_BYTES = (size_t)1 << 28;

struct ring {
    size_t count, next, set_bytes;
    const char *keys, *values;
};

static attn_status run_next(struct bench_case *c, attn_context *context)
{
    struct ring *const ring = c->more;
    c->tensors.key.data = ring->keys + ring->next * ring->set_bytes;
    c->tensors.value.data = ring->values + ring->next * ring->set_bytes;
    ring->next = (ring->next + 1) % ring->count;
    return attn_forward(context, &c->shape, &c->tensors, &c->options);
}

/* As many copies of a set as the ring has. */
static const char *copies(struct bench_group *group, const struct ring *ring,
                          const void *set)
{
    char *const memory = bench_memory(group, ring->count * ring->set_bytes);
    for (size_t i = 0; memory && set && i < ring->count; i++)
        memcpy(memory + i * ring->set_bytes, set, ring->set_bytes);
    return memory;
}

static struct bench_case *add(struct bench_group *group, const attn_shape *shape,
                              attn_type type, struct ring *ring)
{
    struct bench_case *const c = bench_add(group, "decode", "one query", shape);
    bench_store(group, c, type);
    const size_t elements = (size_t)(shape->B * shape->Hk * shape->Lk * shape->D);
    ring->set_bytes = elements * attn_type_bytes(type);
    ring->count = RING_BYTES / (2 * ring->set_bytes) + 1;
    if (ring->count > LARGEST_RING)
        ring->count = LARGEST_RING;
    ring->keys = copies(group, ring, c->tensors.key.data);
    ring->values = copies(group, ring, c->tensors.value.data);
    c->more = ring;
    c->run = run_next;
    c->work = 2.0 * (double)ring->set_bytes;
    c->measure = BENCH_OF_READ;
    return c;
}

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    static const attn_type types[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    const int64_t H = bench->H ? bench->H : HEADS;
    const int64_t Hk = H % 4 == 0 ? H / 4 : H, B = bench->B ? bench->B : 1;
    struct ring rings[3] = {{0}};
    struct bench_group group;
    bench_group_init(&group, bench);
    for (size_t t = 0; t < 3; t++) {
        struct bench_case *const c =
            add(&group, &(attn_shape){B, H, Hk, 1, L, D, D}, types[t], &rings[t]);
        if (L == 8192 && D == 128) {
            c->must = 0.75;
            c->goal = 0.90;
        }
    }
    return bench_group_run(&group, error);
}

attn_status bench_decode(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {8192}, own_sizes[] = {128};
    int64_t lengths[BENCH_SIZES], sizes[BENCH_SIZES];
    const size_t length_count = bench_lengths(bench, own_lengths, 1, lengths);
    const size_t size_count = bench_head_sizes(bench, own_sizes, 1, sizes);
    for (size_t l = 0; l < length_count; l++)
        for (size_t d = 0; d < size_count; d++)
            ATTN_TRY(measure_length(bench, lengths[l], sizes[d], error));
    return ATTN_OK;
}

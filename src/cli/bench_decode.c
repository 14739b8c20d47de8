/* Decoding: one query for each of 32 heads over the cached keys of 8, as a language model
 * does for every token.  It is bound by reading keys and values, so its rate is held
 * against that of nothing but reading them.  Sets of keys and values take turns, so that
 * no cache of the processor holds what the next call needs.
 *
 * One core may also need as long to compute as to read: "in cache" is the same work on
 * keys and values that the processor's second cache holds, over the rate from memory.
 *
 * Forget gates are held against the same without them, in time; a layout for the same
 * number of visible keys, so that 1 means that work goes with these. */
#include "attention/cache.h"
#include "cli/bench.h"
#include <stdio.h>
#include <string.h>

enum { HEADS = 32, LARGEST_RING = 64, CONTIGUOUS = 3, PAGED = 4 };

/* 256 MiB, or 64 sets. */
static size_t sets_of(size_t set_bytes)
{
    const size_t sets = ((size_t)1 << 28) / set_bytes + 1;
    return sets < LARGEST_RING ? sets : LARGEST_RING;
}

/* ---- Keys and values without gaps ---- */

struct ring {
    size_t count, next, bytes; /* bytes of a set's keys, and of its values */
    const char *keys, *values;
};

static attn_status run_contiguous(struct bench_case *c, attn_context *context)
{
    struct ring *const ring = c->more;
    c->tensors.key.data = ring->keys + ring->next * ring->bytes;
    c->tensors.value.data = ring->values + ring->next * ring->bytes;
    ring->next = (ring->next + 1) % ring->count;
    return attn_forward(context, &c->shape, &c->tensors, &c->options);
}

/* Half of the ring away from what the next run reads. */
static void reads_contiguous(const struct bench_case *c,
                             struct bench_stretch reads[BENCH_STRETCHES])
{
    const struct ring *const ring = c->more;
    const size_t set = (ring->next + ring->count / 2) % ring->count;
    reads[0] = (struct bench_stretch){ring->keys + set * ring->bytes, ring->bytes};
    reads[1] = (struct bench_stretch){ring->values + set * ring->bytes, ring->bytes};
}

static const char *copies(struct bench_group *group, const struct ring *ring,
                          const void *set)
{
    char *const memory = bench_memory(group, ring->count * ring->bytes);
    for (size_t i = 0; memory && set && i < ring->count; i++)
        memcpy(memory + i * ring->bytes, set, ring->bytes);
    return memory;
}

static struct bench_case *add_contiguous(struct bench_group *group,
                                         const attn_shape *shape, attn_type type,
                                         struct ring *ring)
{
    struct bench_case *const c = bench_add(group, "decode", "contiguous", shape);
    bench_store(group, c, type);
    ring->bytes =
        (size_t)(shape->B * shape->Hk * shape->Lk * shape->D) * attn_type_bytes(type);
    ring->count = sets_of(2 * ring->bytes);
    ring->keys = copies(group, ring, c->tensors.key.data);
    ring->values = copies(group, ring, c->tensors.value.data);
    c->more = ring;
    c->run = run_contiguous;
    c->reads = reads_contiguous;
    c->work = 2.0 * (double)ring->bytes;
    c->measure = c->unit = BENCH_OF_READ;
    return c;
}

/* All heads of all sequences read the same few keys and values. */
static void add_in_cache(struct bench_group *group, const struct bench_case *contiguous,
                         attn_type type)
{
    enum { SEQUENCES = 8, MOST_KEYS = 512 };
    const attn_shape *const shape = &contiguous->shape;
    const int64_t keys = shape->Lk < MOST_KEYS ? shape->Lk : MOST_KEYS;
    const attn_shape small = {SEQUENCES, shape->H, shape->Hk, 1,
                              keys,      shape->D, shape->Dv};
    struct bench_case *const c = bench_add(group, "decode", "in cache", &small);
    bench_store(group, c, type);
    for (size_t n = 0; n < 2; n++)
        c->tensors.key.stride[n] = c->tensors.value.stride[n] = 0;
    c->work = (double)(SEQUENCES * keys * shape->Hk * (shape->D + shape->Dv)) *
              (double)attn_type_bytes(type);
    c->unit = BENCH_OF_READ;
    bench_compare(c, contiguous, BENCH_OF_RATE, 0.0, 0.0);
}

static void add_gates(struct bench_group *group, const struct bench_case *plain)
{
    struct bench_case *const c = bench_add_like(group, plain, "forget gates");
    const size_t gates = (size_t)(c->shape.H * c->shape.Lk);
    float *const log_forget = bench_numbers(group, gates);
    for (size_t n = 0; log_forget && n < gates; n++)
        log_forget[n] *= log_forget[n] * -0.05f;
    c->options.log_forget = attn_input_dense(log_forget, c->shape.H, c->shape.Lk, 1);
    c->options.causal = true;
    bench_compare(c, plain, BENCH_TIME, 0.0, 0.0);
}

/* The last row of a layout of blocks of 64. */
static void add_layout(struct bench_group *group, const struct bench_case *plain)
{
    enum { BLOCK = 64 };
    static const attn_layout layout = {.local = 2, .global = 1, .stride = 8};
    struct bench_case *const c = bench_add_like(group, plain, "local 2, stride 8");
    attn_context *const context = group->bench->team->context.attention;
    const int64_t blocks = (c->shape.Lk + BLOCK - 1) / BLOCK;
    uint8_t *const bytes = bench_memory(group, (size_t)(blocks * blocks));
    attn_plan plan;
    c->options.block_size = BLOCK;
    if (bytes && attn_layout_fill(bytes, blocks, blocks, &layout) == ATTN_OK)
        c->options.blocks = (attn_keep){bytes + (blocks - 1) * blocks, {0, 0, blocks, 1}};
    if (attn_plan_forward(context, &c->shape, &c->tensors, &c->options, &plan) == ATTN_OK)
        c->work *= plan.visible_pairs / (double)(c->shape.H * c->shape.Lk);
    bench_compare(c, plain, BENCH_TIME_OF_WORK, 0.0, 0.0);
}

/* ---- Keys and values in pages ---- */

struct paged {
    attn_cache *cache;
    attn_cache_type type;
    size_t count, next;
    int64_t sequences[LARGEST_RING];
};

static const char *cache_type_name(attn_cache_type type)
{
    return type == ATTN_CACHE_I8 ? "int8" : bench_type_name((attn_type)type);
}

/* Fills a cache with sequences that all hold the same. */
static attn_status fill(struct bench_case *c, attn_context *context)
{
    struct paged *const paged = c->more;
    const attn_shape *const s = &c->shape;
    enum { PAGE_KEYS = 128 };
    const attn_cache_options options = {
        .Hk = s->Hk,
        .D = s->D,
        .Dv = s->Dv,
        .pages = (int64_t)paged->count * ((s->Lk + PAGE_KEYS - 1) / PAGE_KEYS),
        .page_keys = PAGE_KEYS,
        .type = paged->type,
    };
    ATTN_TRY(attn_cache_create(&paged->cache, context, &options));
    for (size_t i = 0; i < paged->count; i++) {
        ATTN_TRY(attn_cache_open(context, paged->cache, &paged->sequences[i]));
        ATTN_TRY(attn_cache_append(context, paged->cache, paged->sequences[i], s->Lk,
                                   &c->tensors.key, &c->tensors.value));
    }
    c->tensors.key.data = c->tensors.value.data = NULL;
    c->work = (double)attn_cache_token_bytes(paged->cache) * (double)s->Lk;
    return ATTN_OK;
}

static attn_status run_paged(struct bench_case *c, attn_context *context)
{
    struct paged *const paged = c->more;
    const attn_batch batch = {1, &paged->sequences[paged->next], c->shape.H};
    paged->next = (paged->next + 1) % paged->count;
    return attn_decode(context, paged->cache, &batch, &c->tensors, &c->options);
}

/* A sequence's pages, which follow each other. */
static void reads_paged(const struct bench_case *c,
                        struct bench_stretch reads[BENCH_STRETCHES])
{
    const struct paged *const paged = c->more;
    const size_t set = (paged->next + paged->count / 2) % paged->count;
    const size_t pages = (size_t)attn_cache_pages_of(paged->cache, c->shape.Lk);
    const size_t bytes = pages * paged->cache->layout.page;
    reads[0] = (struct bench_stretch){paged->cache->memory + set * bytes, bytes};
}

static struct bench_case *add_paged(struct bench_group *group, const attn_shape *shape,
                                    struct paged *paged)
{
    struct bench_case *const c = bench_add(group, "decode", "paged", shape);
    const size_t element = paged->type == ATTN_CACHE_F32  ? 4
                           : paged->type == ATTN_CACHE_I8 ? 1
                                                          : 2;
    paged->count = sets_of(2 * element * (size_t)(shape->Hk * shape->Lk * shape->D));
    c->dtype = cache_type_name(paged->type);
    c->more = paged;
    c->prepare = fill;
    c->run = run_paged;
    c->reads = reads_paged;
    c->measure = c->unit = BENCH_OF_READ;
    return c;
}

static void ask_fraction(struct bench_case *c)
{
    if (c->shape.Lk == 8192 && c->shape.D == 128) {
        c->must = 0.75;
        c->goal = 0.90;
    }
}

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    static const attn_type types[CONTIGUOUS] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    const int64_t H = bench->H ? bench->H : HEADS, Hk = H % 4 == 0 ? H / 4 : H;
    const attn_shape shape = {1, H, Hk, 1, L, D, D};
    struct ring rings[CONTIGUOUS] = {{0}};
    struct paged paged[PAGED] = {{.type = ATTN_CACHE_F32},
                                 {.type = ATTN_CACHE_BF16},
                                 {.type = ATTN_CACHE_F16},
                                 {.type = ATTN_CACHE_I8}};
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *contiguous[CONTIGUOUS];
    for (size_t t = 0; t < CONTIGUOUS; t++) {
        contiguous[t] = add_contiguous(&group, &shape, types[t], &rings[t]);
        ask_fraction(contiguous[t]);
    }
    struct bench_case *of_type[PAGED];
    for (size_t t = 0; t < PAGED; t++) {
        of_type[t] = add_paged(&group, &shape, &paged[t]);
        ask_fraction(of_type[t]);
    }
    snprintf(of_type[2]->name, sizeof of_type[2]->name, "paged, fp16");
    bench_compare(of_type[3], of_type[2], BENCH_TIME, 0.5, 0.0);
    for (size_t t = 0; t < CONTIGUOUS; t++)
        add_in_cache(&group, contiguous[t], types[t]);
    add_gates(&group, contiguous[2]);
    add_layout(&group, contiguous[2]);
    const attn_status status = bench_group_run(&group, error);
    for (size_t t = 0; t < PAGED; t++)
        attn_cache_destroy(paged[t].cache);
    return status;
}

attn_status bench_decode(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {8192}, own_sizes[] = {128};
    return bench_each_size(bench, own_lengths, 1, own_sizes, 1, measure_length, error);
}

/* What is not plain: other head sizes, odd lengths, masks, biases, windows, packed
 * sequences, strides.  Each is held against the plain case nearest to it, for the same
 * number of visible pairs. */
#include "cli/bench.h"

enum { HEADS = 4, LENGTH = 1024 };

static const double must = 1.12, goal = 1.05;

static struct bench_case *add(struct bench_group *group, const char *name, int64_t B,
                              int64_t H, int64_t L, int64_t D)
{
    return bench_add(group, "shapes", name, &(attn_shape){B, H, H, L, L, D, D});
}

static void hold(struct bench_case *c, const struct bench_case *plain)
{
    bench_compare(c, plain, BENCH_TIME_OF_WORK, must, goal);
}

/* One pair in 64 at random, so that no block is all visible or all hidden. */
static uint8_t *sparse_holes(struct bench_group *group, size_t count)
{
    uint8_t *const keep = bench_memory(group, count);
    uint64_t state = 1;
    for (size_t i = 0; keep && i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        keep[i] = state >> 58 != 0;
    }
    return keep;
}

/* [B][L][H][D], as a projection leaves it. */
static void interleave_heads(struct bench_case *c)
{
    attn_input *const inputs[] = {&c->tensors.query, &c->tensors.key, &c->tensors.value};
    for (size_t i = 0; i < 3; i++) {
        inputs[i]->stride[1] = c->shape.D;
        inputs[i]->stride[2] = c->shape.H * c->shape.D;
    }
    c->tensors.output.stride[1] = c->shape.D;
    c->tensors.output.stride[2] = c->shape.H * c->shape.D;
}

static attn_status measure_head_sizes(struct bench *bench, attn_error *error)
{
    static const struct {
        const char *name;
        int64_t D;
    } sizes[] = {{"D 32", 32}, {"D 40", 40}, {"D 80", 80}, {"D 96", 96}, {"D 256", 256}};
    const int64_t L = bench->length_count ? bench->lengths[0] : LENGTH;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const small = add(&group, "plain, D 64", 1, HEADS, L, 64);
    struct bench_case *const large = add(&group, "plain, D 128", 1, HEADS, L, 128);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        hold(add(&group, sizes[i].name, 1, HEADS, L, sizes[i].D),
             sizes[i].D <= 96 ? small : large);
    return bench_group_run(&group, error);
}

static attn_status measure_masks(struct bench *bench, attn_error *error)
{
    const int64_t L = bench->length_count ? bench->lengths[0] : LENGTH, D = 64;
    const size_t pairs = (size_t)(HEADS * L * L);
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const plain = add(&group, "plain", 1, HEADS, L, D);
    struct bench_case *const causal = bench_add_like(&group, plain, "plain, causal");
    causal->options.causal = true;

    struct bench_case *c = bench_add_like(&group, plain, "keep");
    const int64_t strides[4] = {HEADS * L * L, L * L, L, 1};
    c->options.keep = (attn_keep){sparse_holes(&group, pairs),
                                  {strides[0], strides[1], strides[2], strides[3]}};
    hold(c, plain);
    c = bench_add_like(&group, plain, "bias");
    c->options.bias = attn_input_dense(bench_numbers(&group, pairs), HEADS, L, L);
    hold(c, plain);
    c = bench_add_like(&group, causal, "bias, causal");
    c->options.bias = attn_input_dense(bench_numbers(&group, pairs), HEADS, L, L);
    hold(c, causal);
    c = bench_add_like(&group, plain, "heads interleaved");
    interleave_heads(c);
    hold(c, plain);
    hold(add(&group, "odd length", 1, HEADS, L - 3, D), plain);
    c = add(&group, "odd length, causal", 1, HEADS, L - 3, D);
    c->options.causal = true;
    hold(c, causal);
    c = add(&group, "window", 1, 1, 4 * L, D);
    c->options.causal = true;
    c->options.window_left = L / 2 - 1;
    hold(c, causal);
    return bench_group_run(&group, error);
}

/* Eight sequences in one pack, of lengths from 3/4 to 5/4 of the mean. */
static attn_status measure_packed(struct bench *bench, attn_error *error)
{
    enum { SEQUENCES = 8 };
    const int64_t mean = (bench->length_count ? bench->lengths[0] : LENGTH) / 2;
    int64_t starts[SEQUENCES + 1] = {0};
    for (int i = 0; i < SEQUENCES; i++)
        starts[i + 1] = starts[i] + mean + (2 * i - SEQUENCES + 1) * mean / 28;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const plain =
        add(&group, "plain, B 8", SEQUENCES, HEADS, mean, 64);
    struct bench_case *const causal = bench_add_like(&group, plain, "plain, B 8, causal");
    causal->options.causal = true;
    struct bench_case *const packed =
        add(&group, "packed", 1, HEADS, starts[SEQUENCES], 64);
    packed->options.sequences = SEQUENCES;
    packed->options.query_starts = packed->options.key_starts = starts;
    struct bench_case *const packed_causal =
        bench_add_like(&group, packed, "packed, causal");
    packed_causal->options.causal = true;
    hold(packed, plain);
    hold(packed_causal, causal);
    return bench_group_run(&group, error);
}

attn_status bench_shapes(struct bench *bench, attn_error *error)
{
    ATTN_TRY(measure_head_sizes(bench, error));
    ATTN_TRY(measure_masks(bench, error));
    return measure_packed(bench, error);
}

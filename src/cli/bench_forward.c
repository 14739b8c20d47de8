/* Forward: full and causal at a few lengths and head sizes, and a window in a long
 * sequence, whose time should be that of its keys and not of all. */
#include "cli/bench.h"

/* What is asked of a length and head size; 0 where nothing is. */
static void set_targets(struct bench_case *c, const struct bench *bench)
{
    static const struct {
        int64_t least_length, most_length, D;
        bool causal, one_thread;
        double must, goal;
    } targets[] = {
        {2048, INT64_MAX, 64, false, true, 0.82, 0.90},
        {2048, INT64_MAX, 128, false, true, 0.84, 0.92},
        {2048, INT64_MAX, 64, false, false, 0.78, 0.88},
        {2048, INT64_MAX, 128, false, false, 0.80, 0.90},
        {2048, INT64_MAX, 64, true, true, 0.80, 0.87},
        {2048, INT64_MAX, 128, true, true, 0.82, 0.89},
        {512, 512, 64, false, true, 0.80, 0.86},
        {512, 512, 128, false, true, 0.80, 0.86},
        {512, 512, 64, true, true, 0.76, 0.83},
        {512, 512, 128, true, true, 0.76, 0.83},
    };
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (c->shape.Lk >= targets[i].least_length &&
            c->shape.Lk <= targets[i].most_length && c->shape.D == targets[i].D &&
            c->options.causal == targets[i].causal &&
            (bench->team->threads == 1) == targets[i].one_thread) {
            c->must = targets[i].must;
            c->goal = targets[i].goal;
        }
}

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    const int64_t H = bench->H ? bench->H : L > 4096 ? 2 : 8;
    const int64_t B = bench->B ? bench->B : 1;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const full =
        bench_add(&group, "forward", "full", &(attn_shape){B, H, H, L, L, D, D});
    struct bench_case *const causal = bench_add_like(&group, full, "causal");
    causal->options.causal = true;
    set_targets(full, bench);
    set_targets(causal, bench);
    return bench_group_run(&group, error);
}

/* 512 keys of 16,384. */
static attn_status measure_window(struct bench *bench, attn_error *error)
{
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const full = bench_add(
        &group, "forward", "full, L 16384", &(attn_shape){1, 1, 1, 16384, 16384, 64, 64});
    struct bench_case *const window = bench_add_like(&group, full, "window of 512");
    full->quiet = true;
    window->options.window_left = 511;
    window->options.causal = true;
    bench_compare(window, full, BENCH_TIME, 0.10, 0.05);
    return bench_group_run(&group, error);
}

attn_status bench_forward(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {512, 2048, 8192}, own_sizes[] = {64, 128};
    ATTN_TRY(bench_each_size(bench, own_lengths, bench->full ? 3 : 2, own_sizes, 2,
                             measure_length, error));
    return bench->full ? measure_window(bench, error) : ATTN_OK;
}

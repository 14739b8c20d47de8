/* What looking costs: forward with statistics, over forward without. */
#include "cli/bench.h"

enum { TOP = 4 };

/* The five that every picture is drawn from. */
static void ask_rows(struct bench_group *group, attn_statistics *statistics, size_t rows)
{
    statistics->entropy = bench_memory(group, rows * sizeof(float));
    statistics->largest_weight = bench_memory(group, rows * sizeof(float));
    statistics->largest_key = bench_memory(group, rows * sizeof(int64_t));
    statistics->distance = bench_memory(group, rows * sizeof(float));
    statistics->first_key_mass = bench_memory(group, rows * sizeof(float));
}

static void ask_received(struct bench_group *group, attn_statistics *statistics,
                         size_t rows)
{
    statistics->received = bench_memory(group, rows * sizeof(float));
}

static void ask_top(struct bench_group *group, attn_statistics *statistics, size_t rows)
{
    statistics->top = TOP;
    statistics->top_weight = bench_memory(group, rows * TOP * sizeof(float));
    statistics->top_key = bench_memory(group, rows * TOP * sizeof(int64_t));
}

static void ask_all(struct bench_group *group, attn_statistics *statistics, size_t rows)
{
    ask_rows(group, statistics, rows);
    ask_received(group, statistics, rows);
    ask_top(group, statistics, rows);
}

static const struct statistic {
    const char *name, *causal_name;
    void (*ask)(struct bench_group *group, attn_statistics *statistics, size_t rows);
    double must, goal;
} asked[] = {
    {"of rows", "of rows, causal", ask_rows, 1.05, 1.03},
    {"received", "received, causal", ask_received, 1.06, 1.03},
    {"top 4", "top 4, causal", ask_top, 1.08, 1.05},
    {"all", "all, causal", ask_all, 1.15, 1.10},
};

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    const int64_t H = bench->H ? bench->H : 8, B = bench->B ? bench->B : 1;
    struct bench_group group;
    bench_group_init(&group, bench);
    for (int causal = 0; causal < 2; causal++) {
        const attn_shape shape = {B, H, H, L, L, D, D};
        struct bench_case *const none =
            bench_add(&group, "statistics", causal ? "none, causal" : "none", &shape);
        none->options.causal = causal;
        for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
            struct bench_case *const c = bench_add_like(
                &group, none, causal ? asked[i].causal_name : asked[i].name);
            asked[i].ask(&group, &c->tensors.statistics, (size_t)(B * H * L));
            bench_compare(c, none, BENCH_TIME, asked[i].must, asked[i].goal);
        }
    }
    return bench_group_run(&group, error);
}

attn_status bench_statistics(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {2048}, own_sizes[] = {64, 128};
    return bench_each_size(bench, own_lengths, 1, own_sizes, bench->full ? 2 : 1,
                           measure_length, error);
}

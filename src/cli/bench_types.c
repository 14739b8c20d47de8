/* Forward over 16-bit tensors, against the same in fp32. */
#include "cli/bench.h"

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    static const attn_type types[] = {ATTN_BF16, ATTN_F16};
    static const char *const names[] = {"full", "causal"};
    static const char *const plain_names[] = {"full, fp32", "causal, fp32"};
    const int64_t H = bench->H ? bench->H : 8, B = bench->B ? bench->B : 1;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *plain[2];
    for (int causal = 0; causal < 2; causal++) {
        const attn_shape shape = {B, H, H, L, L, D, D};
        plain[causal] = bench_add(&group, "types", plain_names[causal], &shape);
        plain[causal]->options.causal = causal;
    }
    for (size_t t = 0; t < 2; t++)
        for (int causal = 0; causal < 2; causal++) {
            struct bench_case *const c =
                bench_add_like(&group, plain[causal], names[causal]);
            bench_store(&group, c, types[t]);
            /* no slower; 2 % is what two runs of one thing differ by.  More is asked
             * where products of bfloat16 are instructions. */
            bench_compare(c, plain[causal], BENCH_SPEED, 0.98,
                          types[t] == ATTN_BF16 && bench->kernels->pairs ? 1.6 : 0.0);
        }
    return bench_group_run(&group, error);
}

attn_status bench_types(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {2048}, own_sizes[] = {64, 128};
    return bench_each_size(bench, own_lengths, 1, own_sizes, bench->full ? 2 : 1,
                           measure_length, error);
}

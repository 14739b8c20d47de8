/* Backward: 10·D operations for each visible pair, from what a forward pass of the same
 * visibility left. */
#include "cli/bench.h"

static attn_status forward_once(struct bench_case *c, attn_context *context)
{
    return attn_forward(context, &c->shape, &c->tensors, &c->options);
}

static attn_status run_backward(struct bench_case *c, attn_context *context)
{
    return attn_backward(context, &c->shape, &c->tensors, &c->options, &c->gradients);
}

void bench_make_backward(struct bench_group *group, struct bench_case *c)
{
    const attn_shape *const s = &c->shape;
    const size_t query_rows = (size_t)(s->B * s->H * s->Lq);
    const size_t floats = query_rows * (size_t)s->D;
    c->prepare = forward_once;
    c->run = run_backward;
    /* its own, since the cases of a group take turns */
    c->tensors.output.data = bench_memory(group, floats * sizeof(float));
    c->tensors.lse = bench_memory(group, query_rows * sizeof(float));
    c->gradients.output =
        attn_input_dense(bench_numbers(group, floats), s->H, s->Lq, s->D);
    c->gradients.query =
        attn_output_dense(bench_memory(group, floats * sizeof(float)), s->H, s->Lq, s->D);
    c->gradients.key =
        attn_output_dense(bench_memory(group, floats * sizeof(float)), s->H, s->Lk, s->D);
    c->gradients.value =
        attn_output_dense(bench_memory(group, floats * sizeof(float)), s->H, s->Lk, s->D);
    const double L = (double)s->Lk, pairs = c->options.causal ? L * (L + 1) / 2 : L * L;
    c->work = 10.0 * (double)(s->B * s->H * s->D) * pairs;
    c->must = 0.75;
    c->goal = 0.85;
}

static attn_status measure_length(struct bench *bench, int64_t H, int64_t L, int64_t D,
                                  attn_error *error)
{
    const int64_t B = bench->B ? bench->B : 1;
    const bool alone = B * H == 1;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const full =
        bench_add(&group, "backward", alone ? "full, one head" : "full",
                  &(attn_shape){B, H, H, L, L, D, D});
    struct bench_case *const causal =
        bench_add_like(&group, full, alone ? "causal, one head" : "causal");
    causal->options.causal = true;
    bench_make_backward(&group, full);
    bench_make_backward(&group, causal);
    return bench_group_run(&group, error);
}

static attn_status measure_heads(struct bench *bench, int64_t L, int64_t D,
                                 attn_error *error)
{
    ATTN_TRY(measure_length(bench, bench->H ? bench->H : 8, L, D, error));
    return bench->full && !bench->H && L >= 2048 ? measure_length(bench, 1, L, D, error)
                                                 : ATTN_OK;
}

attn_status bench_backward(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {512, 2048}, own_sizes[] = {64, 128};
    return bench_each_size(bench, own_lengths, 2, own_sizes, 2, measure_heads, error);
}

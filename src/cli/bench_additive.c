/* Additive attention (Bahdanau et al. 2014): a score is v·tanh(query + key), so as it is
 * written a pair takes D hyperbolic tangents.  The rate of these, forward and backward,
 * is held against tanh computed by itself. */
#include "cli/bench.h"

static attn_status forward_once(struct bench_case *c, attn_context *context)
{
    return attn_forward(context, &c->shape, &c->tensors, &c->options);
}

static attn_status run_backward(struct bench_case *c, attn_context *context)
{
    return attn_backward(context, &c->shape, &c->tensors, &c->options, &c->gradients);
}

static struct bench_case *add(struct bench_group *group, const char *name,
                              const attn_shape *shape, bool causal)
{
    struct bench_case *const c = bench_add(group, "additive", name, shape);
    const float *const additive = bench_numbers(group, (size_t)(shape->H * shape->D));
    attn_options_init_additive(&c->options, shape, additive);
    c->options.causal = causal;
    const double L = (double)shape->Lk, pairs = causal ? L * (L + 1) / 2 : L * L;
    c->work = (double)(shape->B * shape->H * shape->D) * pairs;
    c->measure = c->unit = BENCH_OF_TANH;
    c->goal = 1.0;
    return c;
}

static void make_backward(struct bench_group *group, struct bench_case *c)
{
    const attn_shape *const s = &c->shape;
    const size_t floats = (size_t)(s->B * s->H * s->Lq * s->D), bytes = 4 * floats;
    c->prepare = forward_once;
    c->run = run_backward;
    c->gradients.output =
        attn_input_dense(bench_numbers(group, floats), s->H, s->Lq, s->D);
    c->gradients.query = attn_output_dense(bench_memory(group, bytes), s->H, s->Lq, s->D);
    c->gradients.key = attn_output_dense(bench_memory(group, bytes), s->H, s->Lk, s->D);
    c->gradients.value = attn_output_dense(bench_memory(group, bytes), s->H, s->Lk, s->D);
    c->gradients.additive = bench_memory(group, (size_t)(s->H * s->D) * sizeof(float));
}

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    const int64_t H = bench->H ? bench->H : 4, B = bench->B ? bench->B : 1;
    const attn_shape shape = {B, H, H, L, L, D, D};
    struct bench_group group;
    bench_group_init(&group, bench);
    add(&group, "forward, full", &shape, false);
    add(&group, "forward, causal", &shape, true);
    make_backward(&group, add(&group, "backward, full", &shape, false));
    make_backward(&group, add(&group, "backward, causal", &shape, true));
    return bench_group_run(&group, error);
}

attn_status bench_additive(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {512, 2048}, own_sizes[] = {64};
    return bench_each_size(bench, own_lengths, bench->full ? 2 : 1, own_sizes, 1,
                           measure_length, error);
}

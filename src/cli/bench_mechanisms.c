/* Forget gates, block-sparse layouts, sink keys and linear attention.  Gates are held
 * against the causal pass without them, in time; layouts and sink keys for the same
 * number of visible pairs, so that 1 means that work goes with what is visible.  Linear
 * attention is held against softmax's, in time: without a look, and with one, where it
 * walks over all pairs too. */
#include "attn/linear.h"
#include "cli/bench.h"

enum { HEADS = 4, BLOCK = 64 };

static void use_gates(struct bench_group *group, struct bench_case *c)
{
    const size_t gates = (size_t)(c->shape.B * c->shape.H * c->shape.Lk);
    float *const log_forget = bench_numbers(group, gates);
    for (size_t n = 0; log_forget && n < gates; n++)
        log_forget[n] *= log_forget[n] * -0.05f;
    c->options.log_forget = attn_input_dense(log_forget, c->shape.H, c->shape.Lk, 1);
}

static void use_layout(struct bench_group *group, struct bench_case *c,
                       attn_layout layout)
{
    const int64_t blocks = (c->shape.Lk + BLOCK - 1) / BLOCK;
    uint8_t *const bytes = bench_memory(group, (size_t)(blocks * blocks));
    if (bytes && attn_layout_fill(bytes, blocks, blocks, &layout) == ATTN_OK)
        c->options.blocks = (attn_keep){bytes, {0, 0, blocks, 1}};
    c->options.block_size = BLOCK;
}

/* 10·D a visible pair, as the plan of the forward pass counts them. */
static void count_work(struct bench_group *group, struct bench_case *c)
{
    attn_context *const context = group->bench->team->context.attention;
    attn_plan plan;
    if (attn_plan_forward(context, &c->shape, &c->tensors, &c->options, &plan) == ATTN_OK)
        c->work = 10.0 * (double)c->shape.D * plan.visible_pairs;
}

static struct bench_case *add(struct bench_group *group, const struct bench_case *like,
                              const char *name, bool backward)
{
    struct bench_case *const c = bench_add_like(group, like, name);
    if (backward)
        bench_make_backward(group, c);
    return c;
}

static void add_layouts(struct bench_group *group, const struct bench_case *full,
                        bool backward)
{
    static const struct {
        const char *name, *backward_name;
        attn_layout layout;
    } layouts[] = {
        {"local 2, global 1", "backward, local 2, global 1", {2, 1, 0}},
        {"local 1, stride 8", "backward, local 1, stride 8", {1, 0, 8}},
        {"local 0, stride 2", "backward, local 0, stride 2", {0, 0, 2}},
    };
    for (size_t n = 0; n < sizeof layouts / sizeof *layouts; n++) {
        struct bench_case *const c = add(
            group, full, backward ? layouts[n].backward_name : layouts[n].name, backward);
        use_layout(group, c, layouts[n].layout);
        if (backward)
            count_work(group, c);
        bench_compare(c, full, BENCH_TIME_OF_WORK, 1.3, 1.15);
    }
}

static attn_status run_linear(struct bench_case *c, attn_context *context)
{
    return attn_linear_forward(context, &c->shape, &c->tensors, &c->options, NULL);
}

static attn_status run_linear_backward(struct bench_case *c, attn_context *context)
{
    return attn_linear_backward(context, &c->shape, &c->tensors, &c->options, NULL,
                                &c->gradients);
}

/* Work goes with the queries: keys into the sums and queries out of them, 4·D² each, and
 * 10·D² backward; the look multiplies all pairs besides. */
static void add_linear(struct bench_group *group, const struct bench_case *causal,
                       bool backward)
{
    struct bench_case *c =
        add(group, causal, backward ? "backward, linear" : "linear", backward);
    c->tensors.lse = NULL;
    c->run = backward ? run_linear_backward : run_linear;
    if (backward)
        c->prepare = run_linear;
    const double L = (double)c->shape.Lq, D = (double)c->shape.D;
    const double rows = (double)(c->shape.B * c->shape.H) * L;
    c->work = (backward ? 10.0 : 4.0) * rows * D * D;
    bench_compare(c, causal, BENCH_TIME, 0.0, 0.0);
    if (backward)
        return;
    struct bench_case *const look = bench_add_like(group, causal, "entropy");
    look->tensors.statistics.entropy =
        bench_memory(group, (size_t)(c->shape.H * c->shape.Lq) * sizeof(float));
    look->quiet = true;
    c = bench_add_like(group, look, "linear, entropy");
    c->quiet = false;
    c->run = run_linear;
    c->work = 4.0 * rows * D * D + rows * D * (L + 1.0);
    bench_compare(c, look, BENCH_TIME, 0.0, 0.0);
}

static attn_status measure(struct bench *bench, bool backward, attn_error *error)
{
    const int64_t L = bench->length_count ? bench->lengths[0] : 2048, D = 64;
    const int64_t H = bench->H ? bench->H : HEADS;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const full =
        bench_add(&group, "mechanisms", "full", &(attn_shape){1, H, H, L, L, D, D});
    struct bench_case *const causal = bench_add_like(&group, full, "causal");
    causal->options.causal = true;
    struct bench_case *const window = bench_add_like(&group, causal, "window of 256");
    window->options.window_left = 255;
    if (backward) {
        bench_make_backward(&group, full);
        bench_make_backward(&group, causal);
        bench_make_backward(&group, window);
        count_work(&group, window);
    }

    struct bench_case *c = add(
        &group, causal, backward ? "backward, forget gates" : "forget gates", backward);
    use_gates(&group, c);
    if (backward)
        c->gradients.log_forget = attn_output_dense(
            bench_memory(&group, (size_t)(H * L) * sizeof(float)), H, L, 1);
    bench_compare(c, causal, BENCH_TIME, 1.08, 1.05);
    add_layouts(&group, full, backward);
    c = add(&group, window, backward ? "backward, 4 sink keys" : "4 sink keys", backward);
    c->options.sink_keys = 4;
    if (backward)
        count_work(&group, c);
    bench_compare(c, window, BENCH_TIME_OF_WORK, 1.15, 1.08);
    add_linear(&group, causal, backward);
    full->quiet = causal->quiet = window->quiet = true;
    return bench_group_run(&group, error);
}

attn_status bench_mechanisms(struct bench *bench, attn_error *error)
{
    ATTN_TRY(measure(bench, false, error));
    return measure(bench, true, error);
}

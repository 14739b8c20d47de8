/* The linear layer, alone and with the activation and dropout that follow it in a
 * feed-forward layer:
 *
 *     y = x·Wᵀ + b        dx = dy·W        dW += dyᵀ·x        db += Σ rows of dy
 *
 * In training the products are those of panels.h, an activation's over runs of rows that
 * are still in the cache when it comes; in inference they are attn_rows.dot, which packs
 * nothing and so suits few rows. */
#include "tensor/checks.h"
#include "tensor/panels.h"
#include <string.h>

/* Of 1024 floats: three quarters of a megabyte, the second-level cache. */
enum { RUN_ROWS = 192 };

struct linear {
    attn_tensor *x, *weight, *bias; /* bias may be NULL */
    attn_tensor *y;
    float *before; /* what the activation was given; NULL when there is none */
    attn_activation activation;
    struct attn_drop drop;
};

static bool linear_shapes_fit(attn_tape *tape, const char *operation,
                              const struct linear *l)
{
    const attn_named_tensor given[] = {
        {"x", l->x}, {"weight", l->weight}, {"bias", l->bias}};
    if (!attn_tensors_given(tape, operation, given, l->bias ? 3 : 2))
        return false;
    const int64_t any[] = {-1, -1};
    if (!attn_tensor_has_shape(tape, operation, given[0], 2, any))
        return false;
    const int64_t weight_shape[] = {-1, l->x->extent[1]};
    if (!attn_tensor_has_shape(tape, operation, given[1], 2, weight_shape))
        return false;
    if (l->bias &&
        !attn_tensor_has_shape(tape, operation, given[2], 1, l->weight->extent))
        return false;
    return true;
}

/* y[rows] of run `first`, without what follows; weight is packed in training. */
static void product_run(attn_tape *tape, const struct linear *l,
                        const struct attn_packed *weight, float *y, size_t first,
                        size_t rows)
{
    const struct attn_rows *const loops = attn_tape_rows(tape);
    const size_t in = (size_t)l->x->extent[1], out = (size_t)l->weight->extent[0];
    const float *const x = l->x->data + first * in;
    const float *const bias = l->bias ? l->bias->data : NULL;
    if (attn_tape_training(tape))
        loops->multiply(&(struct attn_panel_product){
            .y = y, .x = x, .matrix = weight, .bias = bias, .rows = rows});
    else
        loops->dot(y, x, l->weight->data, bias, rows, in, out);
}

static void linear_forward(attn_tape *tape, const struct linear *l)
{
    const size_t n = (size_t)l->x->extent[0], in = (size_t)l->x->extent[1];
    const size_t out = (size_t)l->weight->extent[0];
    const size_t run = l->before ? RUN_ROWS : n;
    struct attn_packed weight = {
        .matrix = l->weight->data, .inner = in, .columns = out, .turned = true};
    if (attn_tape_training(tape))
        weight = attn_panels_pack(tape, weight);
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    for (size_t first = 0; first < n; first += run) {
        const size_t rows = n - first < run ? n - first : run;
        float *const y = l->y->data + first * out;
        float *const before = l->before ? l->before + first * out : y;
        product_run(tape, l, &weight, before, first, rows);
        if (l->before)
            attn_tape_rows(tape)->activate(y, before, rows * out, l->activation, &l->drop,
                                           first * out);
    }
    attn_panels_return(tape, &weight);
}

static void input_back(attn_tape *tape, const struct linear *l, float *dx, bool add)
{
    const struct attn_packed weight =
        attn_panels_pack(tape, (struct attn_packed){.matrix = l->weight->data,
                                                    .inner = (size_t)l->weight->extent[0],
                                                    .columns = (size_t)l->x->extent[1]});
    if (weight.memory)
        attn_tape_rows(tape)->multiply(
            &(struct attn_panel_product){.y = dx,
                                         .x = l->y->gradient,
                                         .matrix = &weight,
                                         .rows = (size_t)l->x->extent[0],
                                         .add = add});
    attn_panels_return(tape, &weight);
}

static void linear_backward(attn_tape *tape, void *arguments)
{
    const struct linear *const l = arguments;
    const struct attn_rows *const loops = attn_tape_rows(tape);
    const size_t n = (size_t)l->x->extent[0];
    const size_t in = (size_t)l->x->extent[1], out = (size_t)l->weight->extent[0];
    float *const dy = l->y->gradient;
    if (l->before)
        loops->activate_backward(dy, dy, l->before, n * out, l->activation, &l->drop,
                                 false);
    bool add;
    float *const db = l->bias ? attn_tape_gradient(tape, l->bias, &add) : NULL;
    if (db) {
        if (!add)
            memset(db, 0, out * sizeof(float));
        loops->sum(db, dy, n, out);
    }
    float *const dx = attn_tape_gradient(tape, l->x, &add);
    if (dx)
        input_back(tape, l, dx, add);
    float *const dw = attn_tape_gradient(tape, l->weight, &add);
    if (dw)
        attn_weight_gradient_take(tape, &(struct attn_weight_gradient){.to = dw,
                                                                       .dy = dy,
                                                                       .x = l->x->data,
                                                                       .rows = n,
                                                                       .out = out,
                                                                       .in = in,
                                                                       .add = add});
}

/* Takes l without y and before. */
static attn_tensor *linear(attn_tape *tape, const char *operation,
                           const struct linear *given, bool activates)
{
    if (!linear_shapes_fit(tape, operation, given))
        return NULL;
    const int64_t extent[] = {given->x->extent[0], given->weight->extent[0]};
    attn_tensor *const y = attn_tape_tensor(tape, 2, extent);
    struct linear *const l = attn_tape_allocate(tape, sizeof *l);
    if (!y || !l)
        return NULL;
    *l = *given;
    l->y = y;
    if (activates) {
        /* Where relu's result is positive, so was what it was given. */
        l->before = l->activation == ATTN_RELU
                        ? y->data
                        : attn_tape_allocate(tape, attn_tensor_count(y) * sizeof(float));
        if (!l->before)
            return NULL;
    }
    linear_forward(tape, l);
    attn_tape_record(tape, y, linear_backward, l);
    return y;
}

attn_tensor *attn_linear(attn_tape *tape, attn_tensor *x, attn_tensor *weight,
                         attn_tensor *bias, bool has_bias)
{
    if (has_bias && !bias)
        return attn_tape_fail(tape, ATTN_EINVAL,
                              "attn_linear: bias is NULL, expected a tensor");
    const struct linear given = {
        .x = x, .weight = weight, .bias = has_bias ? bias : NULL};
    return linear(tape, "attn_linear", &given, false);
}

attn_tensor *attn_linear_activate(attn_tape *tape, attn_tensor *x, attn_tensor *weight,
                                  attn_tensor *bias, attn_activation activation,
                                  float dropout)
{
    if (!attn_probability_fits(tape, "attn_linear_activate", dropout))
        return NULL;
    if (!bias)
        return attn_tape_fail(tape, ATTN_EINVAL,
                              "attn_linear_activate: bias is NULL, expected a tensor");
    if (!attn_tape_training(tape))
        dropout = 0.0f;
    const uint64_t seed = dropout > 0.0f ? attn_tape_next_seed(tape) : 0;
    const struct linear given = {.x = x,
                                 .weight = weight,
                                 .bias = bias,
                                 .activation = activation,
                                 .drop = attn_drop_make(dropout, seed)};
    return linear(tape, "attn_linear_activate", &given, true);
}

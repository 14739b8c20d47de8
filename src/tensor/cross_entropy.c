/* Projection to the vocabulary and cross-entropy, as one operation: a few hundred rows of
 * logits exist at a time.  In training their gradient is taken while they do, so logits
 * are computed once: forward leaves the gradients of x, weight and bias for a loss
 * gradient of 1, and backward only adds them up. */
#include "tensor/checks.h"
#include "tensor/panels.h"
#include <string.h>

/* 288 rows of 6,000 classes are 7 MB; the weight is read and its gradient read and
 * written once a run. */
enum { RUN_ROWS = 288 };

struct entropy {
    attn_tensor *x, *weight, *bias; /* bias may be NULL */
    attn_tensor *loss;
    const int32_t *targets;
    float smoothing;
    double divisor;
    float *dx, *dweight, *dbias;      /* NULL where not wanted */
    struct attn_packed forward, back; /* the weight, in training */
    double smoothed, plain;           /* sums so far */
};

static void add_scaled(attn_tape *tape, attn_tensor *input, const float *gradient,
                       float factor)
{
    bool add;
    float *const to = gradient ? attn_tape_gradient(tape, input, &add) : NULL;
    if (to)
        attn_tape_rows(tape)->scale(to, gradient, factor, attn_tensor_count(input), add);
}

static void entropy_backward(attn_tape *tape, void *arguments)
{
    const struct entropy *const e = arguments;
    const float factor = e->loss->gradient[0];
    add_scaled(tape, e->x, e->dx, factor);
    add_scaled(tape, e->weight, e->dweight, factor);
    if (e->bias)
        add_scaled(tape, e->bias, e->dbias, factor);
}

static bool targets_fit(attn_tape *tape, const int32_t *targets, int64_t count,
                        int64_t classes)
{
    for (int64_t n = 0; n < count; n++) {
        if (targets[n] >= classes) {
            attn_tape_fail(
                tape, ATTN_EINVAL,
                "attn_linear_cross_entropy: target %ld at place %lld, expected "
                "less than %lld, the number of classes",
                (long)targets[n], (long long)n, (long long)classes);
            return false;
        }
    }
    return true;
}

static bool entropy_fits(attn_tape *tape, const struct entropy *e)
{
    static const char operation[] = "attn_linear_cross_entropy";
    const attn_named_tensor given[] = {
        {"x", e->x}, {"weight", e->weight}, {"bias", e->bias}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, given, e->bias ? 3 : 2) ||
        !attn_tensor_has_shape(tape, operation, given[0], 2, any))
        return false;
    const int64_t weight_shape[] = {-1, e->x->extent[1]};
    if (!attn_tensor_has_shape(tape, operation, given[1], 2, weight_shape) ||
        (e->bias &&
         !attn_tensor_has_shape(tape, operation, given[2], 1, e->weight->extent)))
        return false;
    if (!(e->smoothing >= 0.0f && e->smoothing <= 1.0f)) {
        attn_tape_fail(tape, ATTN_EINVAL, "%s: smoothing is %g, expected 0 to 1",
                       operation, (double)e->smoothing);
        return false;
    }
    return targets_fit(tape, e->targets, e->x->extent[0], e->weight->extent[0]);
}

/* Losses of the rows, their logits turned into gradients. */
static void run_losses(attn_tape *tape, struct entropy *e, float *logits,
                       const int32_t *targets, size_t rows)
{
    struct attn_cross_entropy loss = {
        .classes = (size_t)e->weight->extent[0],
        .smoothing = e->smoothing,
        .scale = (float)(1.0 / e->divisor),
        .gradient = attn_tape_training(tape),
    };
    for (size_t row = 0; row < rows; row++) {
        float *const row_logits = logits + row * loss.classes;
        if (targets[row] < 0) {
            memset(row_logits, 0, loss.classes * sizeof(float));
            continue;
        }
        attn_tape_rows(tape)->cross_entropy(row_logits, (size_t)targets[row], &loss);
        e->smoothed += loss.smoothed;
        e->plain += loss.plain;
    }
}

static void run_gradients(attn_tape *tape, const struct entropy *e, const float *dlogits,
                          size_t first, size_t rows)
{
    const size_t in = (size_t)e->x->extent[1], classes = (size_t)e->weight->extent[0];
    if (e->dx)
        attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
            .y = e->dx + first * in, .x = dlogits, .matrix = &e->back, .rows = rows});
    if (e->dweight)
        attn_weight_gradient_take(
            tape, &(struct attn_weight_gradient){.to = e->dweight,
                                                 .dy = dlogits,
                                                 .x = e->x->data + first * in,
                                                 .rows = rows,
                                                 .out = classes,
                                                 .in = in,
                                                 .add = first > 0});
    if (e->dbias)
        attn_tape_rows(tape)->sum(e->dbias, dlogits, rows, classes);
}

static void entropy_run(attn_tape *tape, struct entropy *e, float *logits, size_t first,
                        size_t rows)
{
    const struct attn_rows *const loops = attn_tape_rows(tape);
    const size_t in = (size_t)e->x->extent[1], classes = (size_t)e->weight->extent[0];
    const float *const x = e->x->data + first * in;
    const float *const bias = e->bias ? e->bias->data : NULL;
    if (attn_tape_training(tape))
        loops->multiply(&(struct attn_panel_product){
            .y = logits, .x = x, .matrix = &e->forward, .bias = bias, .rows = rows});
    else
        loops->dot(logits, x, e->weight->data, bias, rows, in, classes);
    run_losses(tape, e, logits, e->targets + first, rows);
    if (attn_tape_training(tape))
        run_gradients(tape, e, logits, first, rows);
}

static void pack_weight(attn_tape *tape, struct entropy *e)
{
    const size_t in = (size_t)e->x->extent[1], classes = (size_t)e->weight->extent[0];
    if (attn_tape_training(tape))
        e->forward =
            attn_panels_pack(tape, (struct attn_packed){.matrix = e->weight->data,
                                                        .inner = in,
                                                        .columns = classes,
                                                        .turned = true});
    if (e->dx)
        e->back = attn_panels_pack(tape, (struct attn_packed){.matrix = e->weight->data,
                                                              .inner = classes,
                                                              .columns = in});
}

static float *wanted(attn_tape *tape, const attn_tensor *tensor)
{
    if (!tensor || !tensor->wants_gradient)
        return NULL;
    return attn_tape_allocate(tape, attn_tensor_count(tensor) * sizeof(float));
}

attn_tensor *attn_linear_cross_entropy(attn_tape *tape, attn_tensor *x,
                                       attn_tensor *weight, attn_tensor *bias,
                                       bool has_bias, const int32_t *targets,
                                       float smoothing, double divisor, double *plain)
{
    if (has_bias && !bias)
        return attn_tape_fail(
            tape, ATTN_EINVAL,
            "attn_linear_cross_entropy: bias is NULL, expected a tensor");
    struct entropy *const e = attn_tape_allocate(tape, sizeof *e);
    if (!e)
        return NULL;
    *e = (struct entropy){.x = x,
                          .weight = weight,
                          .bias = has_bias ? bias : NULL,
                          .targets = targets,
                          .smoothing = smoothing,
                          .divisor = divisor};
    if (!entropy_fits(tape, e))
        return NULL;
    const size_t n = (size_t)x->extent[0], classes = (size_t)weight->extent[0];
    const size_t run = n < RUN_ROWS ? n : RUN_ROWS;
    e->loss = attn_tape_tensor(tape, 1, (const int64_t[]){1});
    e->dx = wanted(tape, x);
    e->dweight = wanted(tape, weight);
    e->dbias = wanted(tape, e->bias);
    pack_weight(tape, e);
    float *const logits = attn_tape_borrow(tape, run * classes);
    if (attn_tape_status(tape) != ATTN_OK)
        return NULL;
    if (e->dbias)
        memset(e->dbias, 0, classes * sizeof(float));
    if (e->dweight && n == 0)
        memset(e->dweight, 0, attn_tensor_count(weight) * sizeof(float));
    for (size_t first = 0; first < n; first += run)
        entropy_run(tape, e, logits, first, n - first < run ? n - first : run);
    attn_tape_return(tape, logits);
    attn_panels_return(tape, &e->forward);
    attn_panels_return(tape, &e->back);
    e->loss->data[0] = (float)(e->smoothed / divisor);
    if (plain)
        *plain = e->plain;
    attn_tape_record(tape, e->loss, entropy_backward, e);
    return e->loss;
}

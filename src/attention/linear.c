/* Checks, loading and products of linear attention. */
#include "attention/linear.h"
#include "attention/rows.h"
#include "attention/visibility.h"
#include <math.h>
#include <string.h>

/* ---- Checks ---------------------------------------------------------------------------
 */

static attn_status refuse(attn_context *context, const char *function, const char *option)
{
    return attn_context_fail(context, ATTN_EUNSUPPORTED,
                             "%s: options.%s is given, expected none: linear attention "
                             "has no scores that it could change",
                             function, option);
}

static attn_status check_options(attn_context *context, const char *function,
                                 const attn_options *options)
{
    const struct {
        const char *name;
        bool is_given;
    } refused[] = {
        {"softcap", options->softcap != 0.0f},
        {"window_left", options->window_left >= 0},
        {"window_right", options->window_right >= 0},
        {"additive", options->additive},
        {"keep", options->keep.data},
        {"bias", options->bias.data},
        {"alibi_slopes", options->alibi_slopes},
        {"sink_keys", options->sink_keys > 0},
        {"blocks", options->blocks.data},
        {"log_forget", options->log_forget.data},
        {"sinks", options->sinks},
        {"dropout", options->dropout != 0.0},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].is_given)
            return refuse(context, function, refused[i].name);
    return ATTN_OK;
}

attn_status attn_linear_init(struct attn_linear *linear, attn_context *context,
                             const char *function, const attn_shape *shape,
                             const attn_tensors *tensors, const attn_options *options,
                             const attn_linear_options *given)
{
    *linear = (struct attn_linear){.kernels = context->kernels};
    ATTN_TRY(attn_problem_init(&linear->problem, context, function, shape, tensors,
                               options, ATTN_NEEDS_VALUE | ATTN_NEEDS_OUTPUT));
    ATTN_TRY(check_options(context, function, options));
    const bool is_linear = attn_problem_is_linear(&linear->problem);
    if (given)
        linear->options = *given;
    else if (is_linear)
        linear->options.feature = options->feature;
    if (is_linear && linear->options.feature != options->feature)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: linear.feature is %d and options.feature %d, "
                                 "expected the same with ATTN_SCORE_LINEAR",
                                 function, (int)linear->options.feature,
                                 (int)options->feature);
    if (linear->options.feature > ATTN_FEATURE_IDENTITY)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: linear.feature is %d, expected 0 to %d", function,
                                 (int)linear->options.feature, ATTN_FEATURE_IDENTITY);
    if (linear->options.form > ATTN_LINEAR_QUADRATIC)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: linear.form is %d, expected 0 to %d", function,
                                 (int)linear->options.form, ATTN_LINEAR_QUADRATIC);
    linear->D_whole = attn_whole((size_t)shape->D, context->kernels->lanes);
    linear->E = (size_t)shape->Dv + 1;
    linear->E_whole = attn_whole(linear->E, context->kernels->lanes);
    return ATTN_OK;
}

int64_t attn_linear_visible_end(const struct attn_linear_head *head, int64_t query)
{
    return attn_visible_keys(&head->linear->problem, &head->sequence, query).end;
}

/* ---- Loading --------------------------------------------------------------------------
 */

void attn_linear_load(const struct attn_linear *linear, float *to, const attn_input *x,
                      const void *origin, int64_t size, int64_t first, int64_t rows)
{
    const struct attn_matrix from = attn_rows_of(x, origin, first, rows, size);
    linear->kernels->widen(to, &from);
}

static void load_features(const struct attn_linear *linear, float *to,
                          const attn_input *x, const void *origin, int64_t first,
                          int64_t rows)
{
    const int64_t D = linear->problem.shape->D;
    attn_linear_load(linear, to, x, origin, D, first, rows);
    linear->kernels->linear->features(to, (size_t)rows, (size_t)D, linear->D_whole,
                                      linear->options.feature);
}

void attn_linear_load_queries(const struct attn_linear_head *head, float *to,
                              int64_t first, int64_t rows)
{
    load_features(head->linear, to, &head->linear->problem.tensors->query,
                  head->head.query, first, rows);
}

void attn_linear_load_keys(const struct attn_linear_head *head, float *to, int64_t first,
                           int64_t rows)
{
    load_features(head->linear, to, &head->linear->problem.tensors->key, head->head.key,
                  first, rows);
}

void attn_linear_load_values(const struct attn_linear_head *head, float *to,
                             int64_t first, int64_t rows)
{
    const struct attn_linear *const linear = head->linear;
    const attn_input *const value = &linear->problem.tensors->value;
    const int64_t Dv = linear->problem.shape->Dv;
    for (int64_t row = 0; row < rows; row++, to += linear->E_whole) {
        attn_linear_load(linear, to, value, head->head.value, Dv, first + row, 1);
        for (size_t e = linear->E; e < linear->E_whole; e++)
            to[e] = 0.0f;
        to[Dv] = 1.0f;
    }
}

/* ---- Products -------------------------------------------------------------------------
 */

static bool is_finite(const struct attn_linear *linear, const float *x, size_t rows,
                      size_t columns)
{
    const struct attn_matrix matrix = {x, (ptrdiff_t)columns, 1, rows, columns, ATTN_F32};
    return linear->kernels->backward->is_finite(&matrix);
}

void attn_linear_multiply(const struct attn_linear *linear,
                          const struct attn_linear_product *p)
{
    const struct attn_multiply product = {
        .out = p->out,
        .left = p->left,
        .right = p->right,
        .out_stride = (ptrdiff_t)p->columns,
        .left_stride = p->transposed ? 1 : (ptrdiff_t)p->left_stride,
        .step_stride = p->transposed ? (ptrdiff_t)p->left_stride : 1,
        .right_stride = (ptrdiff_t)p->columns,
        .rows = p->rows,
        .steps = p->steps,
        .columns = p->columns,
        .add = p->add,
        .careful = p->left_hides && !is_finite(linear, p->right, p->steps, p->columns),
    };
    if (p->steps > 0)
        linear->kernels->linear->multiply(&product);
}

void attn_linear_pair(const struct attn_linear_head *head,
                      const struct attn_linear_pairs *p)
{
    const struct attn_linear *const linear = head->linear;
    const struct attn_matrix right = {
        p->right, (ptrdiff_t)p->whole_size, 1, (size_t)p->keys, p->size, ATTN_F32};
    linear->kernels->load(p->transposed, ATTN_LINEAR_CHUNK, &right, 1.0f);
    const struct attn_linear_product product = {
        .out = p->pairs,
        .left = p->left,
        .left_stride = p->whole_size,
        .right = p->transposed,
        .rows = (size_t)p->queries,
        .steps = p->size,
        .columns = ATTN_LINEAR_CHUNK,
    };
    attn_linear_multiply(linear, &product);
    for (int64_t i = 0; i < p->queries; i++) {
        const int64_t end = attn_linear_visible_end(head, p->first_query + i);
        float *const row = p->pairs + i * ATTN_LINEAR_CHUNK;
        for (int64_t j = attn_clamp(end - p->first_key, 0, p->keys); j < p->keys; j++)
            row[j] = 0.0f;
    }
}

/* ---- Threads --------------------------------------------------------------------------
 */

attn_status attn_linear_reserve(struct attn_linear *linear, attn_context *context,
                                int64_t units)
{
    size_t bytes = 0;
    linear->workers = context->threads;
    if ((int64_t)linear->workers > units)
        linear->workers = (size_t)units;
    void *scratch = NULL;
    if (__builtin_mul_overflow(linear->workers, linear->worker_bytes, &bytes))
        return attn_context_fail(
            context, ATTN_ENOMEM,
            "linear attention: scratch of %zu workers exceeds memory", linear->workers);
    ATTN_TRY(attn_context_reserve(context, bytes, &scratch));
    linear->scratch = scratch;
    return ATTN_OK;
}

attn_status attn_linear_run(struct attn_linear *linear, attn_context *context,
                            int64_t units, void (*task)(void *linear, size_t worker))
{
    ATTN_TRY(attn_linear_reserve(linear, context, units));
    attn_context_run(context, linear->workers, task, linear);
    return ATTN_OK;
}

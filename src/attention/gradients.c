/* Checks of the gradients asked for, and gradients of nothing. */
#include "attention/gradients.h"
#include "attention/problem.h"

/* No two elements may share an address, which a stride of 0 is the usual way to break.
 * Those of `like`, where it is given, decide instead. */
static attn_status check_gradient(attn_context *context, const char *function,
                                  const char *name, const attn_output *gradient,
                                  const int64_t extent[4], const attn_input *like)
{
    if (!gradient->data)
        return ATTN_OK;
    ATTN_TRY(attn_check_type(context, function, name, gradient->type));
    ATTN_TRY(attn_check_strides(context, function, name, gradient->stride, extent));
    const bool has_elements =
        extent[0] > 0 && extent[1] > 0 && extent[2] > 0 && extent[3] > 0;
    for (int axis = 0; axis < 4 && has_elements; axis++) {
        const bool is_shared = gradient->stride[axis] == 0;
        const bool may_be_shared = like && like->stride[axis] == 0;
        if (extent[axis] > 1 && is_shared != may_be_shared)
            return attn_context_fail(context, ATTN_EINVAL,
                                     "%s: %s.stride[%d] is %lld, expected %s", function,
                                     name, axis, (long long)gradient->stride[axis],
                                     may_be_shared ? "0, as in options.bias" : "not 0");
    }
    return ATTN_OK;
}

attn_status attn_check_gradients(attn_context *context, const char *function,
                                 const attn_shape *s, const attn_options *options,
                                 const attn_gradients *g)
{
    const int64_t query[] = {s->B, s->H, s->Lq, s->D};
    const int64_t key[] = {s->B, s->Hk, s->Lk, s->D};
    const int64_t value[] = {s->B, s->Hk, s->Lk, s->Dv};
    const int64_t output[] = {s->B, s->H, s->Lq, s->Dv};
    const int64_t pairs[] = {s->B, s->H, s->Lq, s->Lk};
    if (!g->output.data && s->B > 0 && s->H > 0 && s->Lq > 0)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.output is NULL, expected data", function);
    if (g->output.data) {
        ATTN_TRY(attn_check_type(context, function, "gradients.output", g->output.type));
        ATTN_TRY(attn_check_strides(context, function, "gradients.output",
                                    g->output.stride, output));
    }
    ATTN_TRY(
        check_gradient(context, function, "gradients.query", &g->query, query, NULL));
    ATTN_TRY(check_gradient(context, function, "gradients.key", &g->key, key, NULL));
    ATTN_TRY(
        check_gradient(context, function, "gradients.value", &g->value, value, NULL));
    ATTN_TRY(check_gradient(context, function, "gradients.bias", &g->bias, pairs,
                            &options->bias));
    const int64_t keys[] = {s->B, s->H, s->Lk, 1};
    ATTN_TRY(check_gradient(context, function, "gradients.log_forget", &g->log_forget,
                            keys, NULL));
    if (g->log_forget.data &&
        (!options->log_forget.data || g->log_forget.type != ATTN_F32))
        return attn_context_fail(
            context, ATTN_EINVAL,
            "%s: gradients.log_forget is given %s, expected "
            "options.log_forget and type ATTN_F32",
            function, options->log_forget.data ? "in 16 bits" : "without the option");
    if (g->bias.data && !options->bias.data)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.bias is given without options.bias, "
                                 "expected both or gradients.bias NULL",
                                 function);
    if (g->sinks && !options->sinks)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.sinks is given without options.sinks, "
                                 "expected both or gradients.sinks NULL",
                                 function);
    if (g->additive && !options->additive)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "%s: gradients.additive is given without "
                                 "options.additive, expected both or "
                                 "gradients.additive NULL",
                                 function);
    return ATTN_OK;
}

void attn_clear_tensor(const attn_output *x, int64_t B, int64_t heads, int64_t rows,
                       int64_t size)
{
    int64_t extent[4] = {B, heads, rows, size};
    for (int axis = 0; axis < 4; axis++)
        extent[axis] = x->stride[axis] == 0 ? 1 : extent[axis];
    for (int64_t b = 0; b < extent[0] && x->data; b++)
        for (int64_t h = 0; h < extent[1]; h++)
            attn_clear_rows(x, b, h, 0, extent[2], extent[3]);
}

void attn_clear_gradients(const attn_shape *shape, const attn_gradients *gradients)
{
    attn_clear_tensor(&gradients->query, shape->B, shape->H, shape->Lq, shape->D);
    attn_clear_tensor(&gradients->key, shape->B, shape->Hk, shape->Lk, shape->D);
    attn_clear_tensor(&gradients->value, shape->B, shape->Hk, shape->Lk, shape->Dv);
    attn_clear_tensor(&gradients->bias, shape->B, shape->H, shape->Lq, shape->Lk);
    attn_clear_tensor(&gradients->log_forget, shape->B, shape->H, shape->Lk, 1);
    for (int64_t h = 0; h < shape->H && gradients->sinks; h++)
        gradients->sinks[h] = 0.0f;
    for (int64_t n = 0; n < shape->H * shape->D && gradients->additive; n++)
        gradients->additive[n] = 0.0f;
}

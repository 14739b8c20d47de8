/* Attention of packed sequences, by the library: forward keeps output and log-sum-exp,
 * and backward computes the weights again from them. */
#include "attn/linear.h"
#include "base/context.h"
#include "tensor/checks.h"
#include <string.h>

struct attend {
    attn_tensor *query, *key, *value, *additive, *log_forget, *sinks, *y;
    attn_shape shape;
    attn_tensors tensors;
    attn_options options;
};

/* [tokens][heads·size] as [1][heads][tokens][size]. */
static attn_input packed_input(const float *data, int64_t heads, int64_t size)
{
    return (attn_input){.data = data, .stride = {0, size, heads * size, 1}};
}

static attn_output packed_output(float *data, int64_t heads, int64_t size)
{
    return (attn_output){.data = data, .stride = {0, size, heads * size, 1}};
}

/* [tokens][heads] as [1][heads][tokens][1]. */
static attn_input packed_gates(const float *data, int64_t heads)
{
    return (attn_input){.data = data, .stride = {0, 1, heads, 1}};
}

static bool attend_fits(attn_tape *tape, const struct attend *a,
                        const attn_packed_attention *attention)
{
    static const char operation[] = "attn_attend";
    const attn_named_tensor given[] = {
        {"query", a->query}, {"key", a->key}, {"value", a->value}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, given, 3) ||
        !attn_tensor_has_shape(tape, operation, given[0], 2, any) ||
        !attn_tensor_has_shape(tape, operation, given[1], 2, any))
        return false;
    const int64_t value_shape[] = {a->key->extent[0], -1};
    if (!attn_tensor_has_shape(tape, operation, given[2], 2, value_shape))
        return false;
    const int64_t H = attention->H, Hk = attention->Hk;
    const int64_t width = a->query->extent[1];
    const int64_t key_width = a->key->extent[1], value_width = a->value->extent[1];
    if (H >= 1 && Hk >= 1 && width % H == 0 && key_width % Hk == 0 &&
        value_width % Hk == 0 && width / H == key_width / Hk) {
        const attn_named_tensor additive = {"additive", a->additive};
        const attn_named_tensor log_forget = {"log_forget", a->log_forget};
        const attn_named_tensor sinks = {"sinks", a->sinks};
        const int64_t vectors[] = {H, width / H}, gates[] = {a->key->extent[0], H};
        return (!a->additive ||
                attn_tensor_has_shape(tape, operation, additive, 2, vectors)) &&
               (!a->log_forget ||
                attn_tensor_has_shape(tape, operation, log_forget, 2, gates)) &&
               (!a->sinks || attn_tensor_has_shape(tape, operation, sinks, 1, &H));
    }
    attn_tape_fail(
        tape, ATTN_EINVAL,
        "attn_attend: %lld query heads of width %lld and %lld key heads of width "
        "%lld and %lld (values), expected widths divisible by their heads and "
        "heads of one size",
        (long long)H, (long long)width, (long long)Hk, (long long)key_width,
        (long long)value_width);
    return false;
}

static bool is_linear(const struct attend *a)
{
    return a->options.score == ATTN_SCORE_LINEAR;
}

/* A gradient that attn_backward overwrites: its own place where nothing has arrived yet,
 * else memory that is added to it afterwards. */
struct overwritten {
    float *to, *memory;
    size_t count;
    bool add;
};

static struct overwritten overwritten_begin(attn_tape *tape, attn_tensor *input)
{
    struct overwritten o = {.count = attn_tensor_count(input)};
    o.to = attn_tape_gradient(tape, input, &o.add);
    o.memory = o.to && o.add ? attn_tape_borrow(tape, o.count) : o.to;
    return o;
}

static void overwritten_end(attn_tape *tape, const struct overwritten *o)
{
    if (!o->memory || o->memory == o->to)
        return;
    attn_tape_rows(tape)->scale(o->to, o->memory, 1.0f, o->count, true);
    attn_tape_return(tape, o->memory);
}

static void attend_backward(attn_tape *tape, void *arguments)
{
    const struct attend *const a = arguments;
    const attn_shape *const shape = &a->shape;
    const struct overwritten dquery = overwritten_begin(tape, a->query);
    const struct overwritten dkey = overwritten_begin(tape, a->key);
    const struct overwritten dvalue = overwritten_begin(tape, a->value);
    struct overwritten dadditive = {.to = NULL}, dgates = {.to = NULL};
    struct overwritten dsinks = {.to = NULL};
    if (a->additive)
        dadditive = overwritten_begin(tape, a->additive);
    if (a->log_forget)
        dgates = overwritten_begin(tape, a->log_forget);
    if (a->sinks)
        dsinks = overwritten_begin(tape, a->sinks);
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    const attn_gradients gradients = {
        .output = packed_input(a->y->gradient, shape->H, shape->Dv),
        .query = packed_output(dquery.memory, shape->H, shape->D),
        .key = packed_output(dkey.memory, shape->Hk, shape->D),
        .value = packed_output(dvalue.memory, shape->Hk, shape->Dv),
        .additive = dadditive.memory,
        .sinks = dsinks.memory,
        .log_forget = {.data = dgates.memory, .stride = {0, 1, shape->H, 1}},
    };
    attn_context *const context = attn_tape_context(tape);
    const attn_status status =
        is_linear(a)
            ? attn_linear_backward(context, shape, &a->tensors, &a->options, NULL,
                                   &gradients)
            : attn_backward(context, shape, &a->tensors, &a->options, &gradients);
    if (status != ATTN_OK) {
        attn_tape_fail_as_context(tape, status);
        return;
    }
    overwritten_end(tape, &dquery);
    overwritten_end(tape, &dkey);
    overwritten_end(tape, &dvalue);
    overwritten_end(tape, &dadditive);
    overwritten_end(tape, &dgates);
    overwritten_end(tape, &dsinks);
}

/* The operation's copies of what the caller may change before backward. */
static bool copy_starts(attn_tape *tape, attn_options *options)
{
    if (!options->query_starts || !options->key_starts)
        return true;
    const size_t bytes = ((size_t)options->sequences + 1) * sizeof(int64_t);
    int64_t *const starts = attn_tape_allocate(tape, 2 * bytes);
    if (!starts)
        return false;
    int64_t *const key_starts = starts + options->sequences + 1;
    memcpy(starts, options->query_starts, bytes);
    memcpy(key_starts, options->key_starts, bytes);
    options->query_starts = starts;
    options->key_starts = key_starts;
    return true;
}

static bool attend_forward(attn_tape *tape, struct attend *a,
                           const attn_packed_attention *attention)
{
    const int64_t H = attention->H, Hk = attention->Hk;
    a->shape = (attn_shape){.B = 1,
                            .H = H,
                            .Hk = Hk,
                            .Lq = a->query->extent[0],
                            .Lk = a->key->extent[0],
                            .D = a->query->extent[1] / H,
                            .Dv = a->value->extent[1] / Hk};
    a->options = attention->options;
    if (a->additive) {
        a->options.score = ATTN_SCORE_ADDITIVE;
        a->options.additive = a->additive->data;
    }
    if (a->log_forget)
        a->options.log_forget = packed_gates(a->log_forget->data, H);
    if (a->sinks)
        a->options.sinks = a->sinks->data;
    if (!attn_tape_training(tape))
        a->options.dropout = 0.0;
    else if (a->options.dropout > 0.0)
        a->options.dropout_seed = attn_tape_next_seed(tape);
    const int64_t extent[] = {a->shape.Lq, H * a->shape.Dv};
    a->y = attn_tape_tensor(tape, 2, extent);
    float *const lse =
        attn_tape_allocate(tape, (size_t)(H * a->shape.Lq) * sizeof(float));
    if (!a->y || !lse || !copy_starts(tape, &a->options))
        return false;
    a->tensors = (attn_tensors){
        .query = packed_input(a->query->data, H, a->shape.D),
        .key = packed_input(a->key->data, Hk, a->shape.D),
        .value = packed_input(a->value->data, Hk, a->shape.Dv),
        .output = packed_output(a->y->data, H, a->shape.Dv),
        .lse = is_linear(a) ? NULL : lse, /* it would walk over all pairs for it */
        .statistics = attention->statistics,
    };
    attn_context *const context = attn_tape_context(tape);
    const attn_status status =
        is_linear(a)
            ? attn_linear_forward(context, &a->shape, &a->tensors, &a->options, NULL)
            : attn_forward(context, &a->shape, &a->tensors, &a->options);
    if (status != ATTN_OK)
        attn_tape_fail_as_context(tape, status);
    return status == ATTN_OK;
}

attn_tensor *attn_attend(attn_tape *tape, attn_tensor *query, attn_tensor *key,
                         attn_tensor *value, const attn_packed_attention *attention,
                         attn_shape *shape, attn_tensors *tensors)
{
    struct attend *const a = attn_tape_allocate(tape, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct attend){.query = query,
                         .key = key,
                         .value = value,
                         .additive = attention->additive,
                         .log_forget = attention->log_forget,
                         .sinks = attention->sinks};
    if (!attend_fits(tape, a, attention) || !attend_forward(tape, a, attention))
        return NULL;
    if (shape)
        *shape = a->shape;
    if (tensors)
        *tensors = a->tensors;
    attn_tape_record(tape, a->y, attend_backward, a);
    return a->y;
}

/* Cases that other projects made: ONNX's operator Attention, and
 * scaled_dot_product_attention of PyTorch with its gradients.  Every case that is left
 * out is printed with its reason.
 *
 * ONNX's mapping onto attn_forward: a cache is concatenated here; three axes are four
 * with other strides; a mask of booleans is keep, one of floats is bias, and one that is
 * shorter than the keys hides those beyond it; causal is at the bottom right only where a
 * cache gives the offset; qk_matmul_output is made of attn_weights: a score is
 * ln weight + lse, of a call without what comes after it. */
#include "arrays.h"
#include "attention/reference.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int passed, left_out;
static const char *first_level; /* says what is left out, once for all levels */

static void leave_out(const attn_context *context, const char *name, const char *reason)
{
    if (!first_level)
        first_level = attn_context_isa(context);
    if (strcmp(first_level, attn_context_isa(context)) != 0)
        return;
    say_skipped(name, reason);
    left_out++;
}

static void run_forward(attn_context *context, const attn_shape *shape,
                        const attn_tensors *tensors, const attn_options *options,
                        const char *name)
{
    if (attn_forward(context, shape, tensors, options) != ATTN_OK)
        fail_msg("%s: %s", name, attn_context_message(context));
}

/* ---- ONNX -----------------------------------------------------------------------------
 */

enum { INPUTS = 7, OUTPUTS = 4 };
enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, LENGTHS };
enum { Y, PRESENT_KEY, PRESENT_VALUE, SCORES };

struct onnx_case {
    const char *name;
    struct array in[INPUTS], out[OUTPUTS];
    bool mask_is_bool, is_half;
    int64_t query_heads, key_heads; /* of three axes */
    double scale, softcap, relative, absolute;
    bool causal;
    int64_t scores_mode;
};

static double attribute(const json_t *attributes, const char *name, double otherwise)
{
    const json_t *const value = json_object_get(attributes, name);
    return value ? json_number_value(value) : otherwise;
}

static void load_arrays(struct array *arrays, size_t most, const json_t *list,
                        const char *folder)
{
    size_t n;
    json_t *entry;
    json_array_foreach(list, n, entry)
    {
        if (json_is_null(entry))
            continue;
        assert_true(n < most);
        arrays[n] = array_load(folder, json_string_value(json_object_get(entry, "file")));
    }
}

static struct onnx_case onnx_load(const json_t *entry, const char *folder)
{
    const json_t *const attributes = json_object_get(entry, "attributes");
    const json_t *const inputs = json_object_get(entry, "inputs");
    struct onnx_case c = {
        .name = json_string_value(json_object_get(entry, "case")),
        .query_heads = (int64_t)attribute(attributes, "q_num_heads", 0.0),
        .key_heads = (int64_t)attribute(attributes, "kv_num_heads", 0.0),
        .scale = attribute(attributes, "scale", (double)NAN),
        .softcap = attribute(attributes, "softcap", 0.0),
        .causal = attribute(attributes, "is_causal", 0.0) != 0.0,
        .scores_mode = (int64_t)attribute(attributes, "qk_matmul_output_mode", 0.0),
        .relative = json_number_value(json_object_get(entry, "rtol")),
        .absolute = json_number_value(json_object_get(entry, "atol")),
    };
    char *const of_case = text_of("%s/%s", folder, c.name);
    load_arrays(c.in, INPUTS, inputs, of_case);
    load_arrays(c.out, OUTPUTS, json_object_get(entry, "outputs"), of_case);
    const json_t *const mask = json_array_get(inputs, MASK);
    const char *const type = json_string_value(json_object_get(mask, "dtype"));
    const char *const of_query =
        json_string_value(json_object_get(json_array_get(inputs, Q), "dtype"));
    c.is_half = strcmp(of_query, "float16") == 0;
    c.mask_is_bool = type && strcmp(type, "bool") == 0;
    free(of_case);
    return c;
}

static void onnx_free(struct onnx_case *c)
{
    for (size_t n = 0; n < INPUTS; n++)
        array_free(&c->in[n]);
    for (size_t n = 0; n < OUTPUTS; n++)
        array_free(&c->out[n]);
}

/* [B][heads][length][size] out of [B][length][heads·size], if it has three axes. */
struct view {
    int64_t heads, length, size, stride[4];
};

static struct view view_of(const struct array *a, int64_t heads)
{
    if (a->rank == 4) {
        const int64_t length = a->extent[2], size = a->extent[3];
        return (struct view){
            a->extent[1],
            length,
            size,
            {a->extent[1] * length * size, length * size, size, 1},
        };
    }
    assert_int_equal(a->rank, 3);
    const int64_t length = a->extent[1], width = a->extent[2], size = width / heads;
    return (struct view){heads, length, size, {length * width, size, width, 1}};
}

/* The cache, if there is one, and what follows it: [B][heads][past + length][size] */
static float *concatenate(const struct array *past, const struct array *array,
                          int64_t heads, struct view *result)
{
    const struct view next = view_of(array, heads);
    const int64_t before = past->x ? past->extent[2] : 0;
    const int64_t length = before + next.length, size = next.size;
    *result = (struct view){
        next.heads, length, size, {next.heads * length * size, length * size, size, 1}};
    float *const x = allocate((size_t)(array->extent[0] * result->stride[0]), sizeof *x);
    for (int64_t b = 0; b < array->extent[0]; b++)
        for (int64_t h = 0; h < next.heads; h++)
            for (int64_t l = 0; l < length; l++)
                for (int64_t d = 0; d < size; d++) {
                    const int64_t in_past =
                        ((b * next.heads + h) * before + l) * size + d;
                    const int64_t in_next = b * next.stride[0] + h * next.stride[1] +
                                            (l - before) * next.stride[2] + d;
                    x[b * result->stride[0] + (h * length + l) * size + d] =
                        (float)(l < before ? past->x[in_past] : array->x[in_next]);
                }
    return x;
}

/* keep or bias, whichever it is, as [.][.][Lq][Lk] floats: 0 or −∞ for booleans.  Axes
 * that the mask lacks or has once are broadcast. */
static float *expand_mask(const struct onnx_case *c, const attn_shape *shape,
                          attn_options *options)
{
    const struct array *const mask = &c->in[MASK];
    if (!mask->x)
        return NULL;
    int64_t extent[4] = {1, 1, 1, 1}, rows = 1;
    for (int axis = 0; axis < mask->rank; axis++)
        extent[4 - mask->rank + axis] = mask->extent[axis];
    for (int axis = 0; axis < 3; axis++)
        rows *= extent[axis];
    float *const x = allocate((size_t)(rows * shape->Lk), sizeof *x);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t key = 0; key < shape->Lk; key++) {
            float *const to = &x[row * shape->Lk + key];
            const double from =
                key < extent[3] ? mask->x[row * extent[3] + key] : -HUGE_VAL;
            *to = (float)from;
            if (c->mask_is_bool)
                *to = key < extent[3] && from != 0.0 ? 0.0f : -INFINITY;
        }
    int64_t stride = shape->Lk;
    options->bias = (attn_input){.data = x, .stride = {0, 0, 0, 1}};
    for (int axis = 2; axis >= 0; axis--) {
        options->bias.stride[axis] = extent[axis] == 1 ? 0 : stride;
        stride *= extent[axis];
    }
    return x;
}

/* A mask of booleans goes by keep, so that both ways are taken. */
static uint8_t *keep_of_bias(attn_options *options, size_t count)
{
    uint8_t *const keep = allocate(count, 1);
    const float *const bias = options->bias.data;
    for (size_t n = 0; n < count; n++)
        keep[n] = bias[n] == 0.0f;
    options->keep.data = keep;
    memcpy(options->keep.stride, options->bias.stride, sizeof options->keep.stride);
    options->bias.data = NULL;
    return keep;
}

/* qk_matmul_output: mode 3 is weights, 2 scores as they go into the softmax, 1 those
 * before bias and visibility, 0 those before the softcap too. */
static void check_scores(attn_context *context, const struct onnx_case *c,
                         const attn_shape *s, const attn_tensors *tensors,
                         const attn_options *given)
{
    const size_t rows = (size_t)(s->B * s->H * s->Lq);
    float *const scores = allocate(rows * (size_t)s->Lk, sizeof *scores);
    float *const lse = allocate(rows, sizeof *lse);
    attn_options options = *given;
    if (c->scores_mode < 2) {
        options.keep.data = NULL, options.bias.data = NULL, options.key_lengths = NULL;
        options.causal = false;
    }
    if (c->scores_mode == 0)
        options.softcap = 0.0f;
    attn_tensors with_lse = *tensors;
    with_lse.lse = lse;
    run_forward(context, s, &with_lse, &options, c->name);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++) {
            const attn_rectangle all = {.b = b, .h = h, .queries = s->Lq, .keys = s->Lk};
            if (attn_weights(context, s, tensors, &options, &all,
                             scores + (b * s->H + h) * s->Lq * s->Lk, s->Lk) != ATTN_OK)
                fail_msg("%s: %s", c->name, attn_context_message(context));
        }
    for (size_t n = 0; n < rows * (size_t)s->Lk && c->scores_mode != 3; n++)
        scores[n] = logf(scores[n]) + lse[n / (size_t)s->Lk];
    assert_floats_near(scores, &c->out[SCORES], c->relative, c->absolute, c->name,
                       "qk_matmul_output");
    free(scores), free(lse);
}

/* Makes binary16 of the floats, in place; the array holds no other numbers. */
static void halve(attn_input *input, size_t count)
{
    float *const x = (float *)input->data;
    for (size_t n = 0; n < count; n++)
        attn_reference_store(x, ATTN_F16, (int64_t)n, (double)x[n]);
    input->type = ATTN_F16;
}

/* And floats of binary16. */
static void double_up(float *x, size_t count)
{
    for (size_t n = count; n-- > 0;)
        x[n] = (float)attn_reference_load(x, ATTN_F16, (int64_t)n);
}

/* The tensors and the bias as the case stores them. */
static void halve_all(attn_tensors *tensors, attn_options *options, const attn_shape *s,
                      size_t bias)
{
    halve(&tensors->query, (size_t)(s->B * s->H * s->Lq * s->D));
    halve(&tensors->key, (size_t)(s->B * s->Hk * s->Lk * s->D));
    halve(&tensors->value, (size_t)(s->B * s->Hk * s->Lk * s->Dv));
    tensors->output.type = ATTN_F16;
    if (options->bias.data)
        halve(&options->bias, bias);
}

/* All but masks and lengths. */
static attn_options onnx_options(const struct onnx_case *c, const attn_shape *shape)
{
    attn_options options;
    attn_options_init(&options, shape);
    if (!isnan(c->scale))
        options.scale = (float)c->scale;
    options.softcap = (float)c->softcap;
    options.causal = c->causal;
    /* A cache that was concatenated gives its length, one that came whole the sequence's.
     */
    options.alignment = c->in[LENGTHS].x ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_OFFSET;
    options.query_offset = c->in[PAST_KEY].x ? c->in[PAST_KEY].extent[2] : 0;
    return options;
}

static void run_onnx(attn_context *context, const struct onnx_case *c)
{
    struct view key_view, value_view;
    const struct view query_view = view_of(&c->in[Q], c->query_heads);
    float *const query = array_floats(&c->in[Q]);
    float *const key = concatenate(&c->in[PAST_KEY], &c->in[K], c->key_heads, &key_view);
    float *const value =
        concatenate(&c->in[PAST_VALUE], &c->in[V], c->key_heads, &value_view);
    const attn_shape shape = {
        .B = c->in[Q].extent[0],
        .H = query_view.heads,
        .Hk = key_view.heads,
        .Lq = query_view.length,
        .Lk = key_view.length,
        .D = query_view.size,
        .Dv = value_view.size,
    };
    attn_options options = onnx_options(c, &shape);
    int64_t *const lengths = allocate((size_t)shape.B, sizeof *lengths);
    for (int64_t b = 0; b < shape.B && c->in[LENGTHS].x; b++)
        lengths[b] = (int64_t)c->in[LENGTHS].x[b];
    options.key_lengths = c->in[LENGTHS].x ? lengths : NULL;
    float *const mask = expand_mask(c, &shape, &options);
    const size_t mask_rows =
        mask ? c->in[MASK].count / (size_t)c->in[MASK].extent[c->in[MASK].rank - 1] : 0;
    const size_t mask_count = mask_rows * (size_t)shape.Lk;
    uint8_t *keep = NULL;
    if (mask && c->mask_is_bool)
        keep = keep_of_bias(&options, mask_count);

    /* The output lies as the queries do. */
    struct view to = {
        .stride = {shape.H * shape.Lq * shape.Dv, shape.Lq * shape.Dv, shape.Dv, 1}};
    if (c->in[Q].rank == 3)
        to = (struct view){
            .stride = {shape.H * shape.Lq * shape.Dv, shape.Dv, shape.H * shape.Dv, 1}};
    float *const output = allocate(c->out[Y].count, sizeof *output);
    attn_tensors tensors = {
        .query = {.data = query},
        .key = {.data = key},
        .value = {.data = value},
        .output = {.data = output},
    };
    memcpy(tensors.query.stride, query_view.stride, sizeof to.stride);
    memcpy(tensors.key.stride, key_view.stride, sizeof to.stride);
    memcpy(tensors.value.stride, value_view.stride, sizeof to.stride);
    memcpy(tensors.output.stride, to.stride, sizeof to.stride);
    if (c->is_half)
        halve_all(&tensors, &options, &shape, mask_count);
    run_forward(context, &shape, &tensors, &options, c->name);
    if (c->is_half) {
        double_up(output, c->out[Y].count);
        double_up(key, (size_t)(shape.B * shape.Hk * shape.Lk * shape.D));
        double_up(value, (size_t)(shape.B * shape.Hk * shape.Lk * shape.Dv));
    }
    assert_floats_near(output, &c->out[Y], c->relative, c->absolute, c->name, "output");
    if (c->out[PRESENT_KEY].x)
        assert_floats_near(key, &c->out[PRESENT_KEY], 0.0, 0.0, c->name, "key");
    if (c->out[PRESENT_VALUE].x)
        assert_floats_near(value, &c->out[PRESENT_VALUE], 0.0, 0.0, c->name, "value");
    if (c->out[SCORES].x && !c->is_half)
        check_scores(context, c, &shape, &tensors, &options);
    free(query), free(key), free(value), free(mask), free(keep), free(output);
    free(lengths);
}

static const char *type_of(const json_t *entry)
{
    return json_string_value(json_object_get(entry, "op_type"));
}

/* Why it is left out, or NULL. */
static const char *onnx_reason(const json_t *entry)
{
    if (strcmp(type_of(entry), "Attention") != 0)
        return "no operator that is here";
    size_t n;
    json_t *input;
    json_array_foreach(json_object_get(entry, "inputs"), n, input)
    {
        const char *const of = json_string_value(json_object_get(input, "dtype"));
        if (of && strcmp(of, "float") != 0 && strcmp(of, "float16") != 0 &&
            strcmp(of, "bool") != 0 && strcmp(of, "int64") != 0)
            return "not a type of attention";
    }
    return NULL;
}

static json_t *onnx_index;
static const char *onnx_folder;

static void check_onnx(attn_context *context)
{
    size_t n;
    json_t *entry;
    passed = 0;
    json_array_foreach(onnx_index, n, entry)
    {
        if (strcmp(type_of(entry), "RotaryEmbedding") == 0)
            continue; /* in tests/tensor, with the operations of Llama */
        const char *const reason = onnx_reason(entry);
        if (reason) {
            leave_out(context, json_string_value(json_object_get(entry, "case")), reason);
            continue;
        }
        struct onnx_case c = onnx_load(entry, onnx_folder);
        run_onnx(context, &c);
        if (c.out[SCORES].x && c.is_half)
            leave_out(context, c.name,
                      "only its qk_matmul_output: weights and lse are fp32, not fp16");
        passed++;
        onnx_free(&c);
    }
}

static void onnx_attention_cases_pass(void **state)
{
    (void)state;
    char *const folder =
        shared_folder("conformance/onnx-attention", "onnx_attention_cases_pass");
    onnx_folder = folder;
    onnx_index = json_load_or_fail(folder, "index.json");
    left_out = 0;
    on_every_level(check_onnx);
    assert_true(passed > 0);
    print_message("ONNX: %d passed on each instruction set, %d skipped\n", passed,
                  left_out);
    json_decref(onnx_index);
    free(folder);
}

/* ---- PyTorch --------------------------------------------------------------------------
 */

enum { TORCH_QUERY, TORCH_KEY, TORCH_VALUE, TORCH_MASK, TORCH_ARGUMENTS };
static const char *const torch_names[] = {"arg.0", "arg.1", "arg.2", "kw.attn_mask"};

struct torch_case {
    const char *name;
    struct array in[TORCH_ARGUMENTS], gradient[TORCH_ARGUMENTS], out, cotangent;
    bool mask_is_bool;
    double scale;
    bool causal;
};

static const char *torch_type(const json_t *arguments, const char *name)
{
    const json_t *const argument = json_object_get(arguments, name);
    return json_string_value(json_object_get(argument, "dtype"));
}

static struct torch_case torch_load(const json_t *meta, const char *folder)
{
    const json_t *const arguments = json_object_get(meta, "args");
    struct torch_case c = {
        .name = folder,
        .scale = attribute(arguments, "kw.scale", (double)NAN),
        .causal = json_is_true(json_object_get(arguments, "kw.is_causal")),
        .out = array_load(folder, "out.npy"),
        .cotangent = array_load(folder, "cot.npy"),
    };
    for (size_t n = 0; n < TORCH_ARGUMENTS; n++) {
        if (!torch_type(arguments, torch_names[n]))
            continue;
        char *const name = text_of("%s.npy", torch_names[n]);
        c.in[n] = array_load(folder, name);
        free(name);
        size_t g;
        json_t *with_gradient;
        json_array_foreach(json_object_get(meta, "grads"), g, with_gradient)
        {
            if (strcmp(json_string_value(with_gradient), torch_names[n]) != 0)
                continue;
            char *const gradient = text_of("grad_%s.npy", torch_names[n]);
            c.gradient[n] = array_load(folder, gradient);
            free(gradient);
        }
    }
    const char *const mask = torch_type(arguments, "kw.attn_mask");
    c.mask_is_bool = mask && strcmp(mask, "bool") == 0;
    return c;
}

static void torch_free(struct torch_case *c)
{
    for (size_t n = 0; n < TORCH_ARGUMENTS; n++) {
        array_free(&c->in[n]);
        array_free(&c->gradient[n]);
    }
    array_free(&c->out);
    array_free(&c->cotangent);
}

/* Four axes with the last ones the array's, and stride 0 where it has one or none. */
static void broadcast(const struct array *a, int64_t extent[4], int64_t stride[4])
{
    int64_t step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const int from = axis - 4 + a->rank;
        extent[axis] = from >= 0 ? a->extent[from] : 1;
        stride[axis] = extent[axis] == 1 ? 0 : step;
        step *= extent[axis];
    }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Scores go up to 50 there, and 6e-8 of that is the error of a weight. */
static double torch_bound(const struct array *expected)
{
    return 1e-5 + 1e-5 * largest_magnitude(expected);
}

/* Sums a dense [B][H][L][size] over the axes that the array broadcasts, and compares. */
static void check_gradient(const float *dense, const int64_t full[4],
                           const struct array *expected, const char *name,
                           const char *what)
{
    int64_t extent[4], stride[4];
    broadcast(expected, extent, stride);
    float *const sum = allocate(expected->count, sizeof *sum);
    size_t n = 0;
    for (int64_t b = 0; b < full[0]; b++)
        for (int64_t h = 0; h < full[1]; h++)
            for (int64_t l = 0; l < full[2]; l++)
                for (int64_t d = 0; d < full[3]; d++)
                    sum[b * stride[0] + h * stride[1] + l * stride[2] + d * stride[3]] +=
                        dense[n++];
    assert_floats_near(sum, expected, 0.0, torch_bound(expected), name, what);
    free(sum);
}

static attn_options torch_options(const struct torch_case *c, const attn_shape *shape)
{
    attn_options options;
    attn_options_init(&options, shape);
    options.alignment = ATTN_ALIGN_TOP_LEFT;
    options.causal = c->causal;
    if (!isnan(c->scale))
        options.scale = (float)c->scale;
    return options;
}

/* Returns what keep points to, the caller's. */
static uint8_t *add_mask(attn_options *options, const struct torch_case *c,
                         const float *x, const int64_t stride[4])
{
    uint8_t *const keep = allocate(c->in[TORCH_MASK].count, 1);
    for (size_t n = 0; n < c->in[TORCH_MASK].count; n++)
        keep[n] = c->in[TORCH_MASK].x[n] != 0.0;
    if (c->in[TORCH_MASK].x && c->mask_is_bool) {
        options->keep.data = keep;
        memcpy(options->keep.stride, stride, sizeof options->keep.stride);
    } else if (c->in[TORCH_MASK].x) {
        options->bias.data = x;
        memcpy(options->bias.stride, stride, sizeof options->bias.stride);
    }
    return keep;
}

static void check_gradients(const struct torch_case *c,
                            float *const slope[TORCH_ARGUMENTS],
                            const int64_t full[TORCH_ARGUMENTS][4])
{
    for (size_t n = 0; n < TORCH_MASK; n++)
        if (c->gradient[n].x)
            check_gradient(slope[n], full[n], &c->gradient[n], c->name, torch_names[n]);
    if (c->gradient[TORCH_MASK].x)
        assert_floats_near(slope[TORCH_MASK], &c->gradient[TORCH_MASK], 0.0,
                           torch_bound(&c->gradient[TORCH_MASK]), c->name, "mask");
}

static void run_torch(attn_context *context, const struct torch_case *c)
{
    int64_t extent[TORCH_ARGUMENTS][4], stride[TORCH_ARGUMENTS][4];
    float *x[TORCH_ARGUMENTS], *slope[TORCH_ARGUMENTS];
    for (size_t n = 0; n < TORCH_ARGUMENTS; n++) {
        broadcast(&c->in[n], extent[n], stride[n]);
        x[n] = c->in[n].x ? array_floats(&c->in[n]) : NULL;
    }
    const attn_shape s = {
        .B = larger(extent[TORCH_QUERY][0], extent[TORCH_KEY][0]),
        .H = larger(extent[TORCH_QUERY][1], extent[TORCH_KEY][1]),
        .Hk = extent[TORCH_KEY][1],
        .Lq = extent[TORCH_QUERY][2],
        .Lk = extent[TORCH_KEY][2],
        .D = extent[TORCH_QUERY][3],
        .Dv = extent[TORCH_VALUE][3],
    };
    attn_options options = torch_options(c, &s);
    uint8_t *const keep = add_mask(&options, c, x[TORCH_MASK], stride[TORCH_MASK]);

    const int64_t full[TORCH_ARGUMENTS][4] = {
        {s.B, s.H, s.Lq, s.D},
        {s.B, s.Hk, s.Lk, s.D},
        {s.B, s.Hk, s.Lk, s.Dv},
        {s.B, s.H, s.Lq, s.Lk},
    };
    for (size_t n = 0; n < TORCH_ARGUMENTS; n++)
        slope[n] = allocate((size_t)(full[n][0] * full[n][1] * full[n][2] * full[n][3]),
                            sizeof *slope[n]);
    float *const output = allocate(c->out.count, sizeof *output);
    float *const lse = allocate((size_t)(s.B * s.H * s.Lq), sizeof *lse);
    float *const cotangent = array_floats(&c->cotangent);
    attn_tensors tensors = {
        .query.data = x[TORCH_QUERY],
        .key.data = x[TORCH_KEY],
        .value.data = x[TORCH_VALUE],
        .output = attn_output_dense(output, s.H, s.Lq, s.Dv),
        .lse = lse,
    };
    memcpy(tensors.query.stride, stride[TORCH_QUERY], sizeof tensors.query.stride);
    memcpy(tensors.key.stride, stride[TORCH_KEY], sizeof tensors.key.stride);
    memcpy(tensors.value.stride, stride[TORCH_VALUE], sizeof tensors.value.stride);
    attn_gradients gradients = {
        .output = attn_input_dense(cotangent, s.H, s.Lq, s.Dv),
        .query = attn_output_dense(slope[TORCH_QUERY], s.H, s.Lq, s.D),
        .key = attn_output_dense(slope[TORCH_KEY], s.Hk, s.Lk, s.D),
        .value = attn_output_dense(slope[TORCH_VALUE], s.Hk, s.Lk, s.Dv),
    };
    /* The bias gradient sums by itself where the mask is broadcast. */
    if (c->gradient[TORCH_MASK].x) {
        gradients.bias.data = slope[TORCH_MASK];
        memcpy(gradients.bias.stride, stride[TORCH_MASK], sizeof gradients.bias.stride);
    }
    run_forward(context, &s, &tensors, &options, c->name);
    assert_floats_near(output, &c->out, 0.0, torch_bound(&c->out), c->name, "output");
    if (attn_backward(context, &s, &tensors, &options, &gradients) != ATTN_OK)
        fail_msg("%s: %s", c->name, attn_context_message(context));
    check_gradients(c, slope, full);
    for (size_t n = 0; n < TORCH_ARGUMENTS; n++)
        free(x[n]), free(slope[n]);
    free(keep), free(output), free(lse), free(cotangent);
}

static const char *torch_reason(const json_t *meta)
{
    const json_t *const arguments = json_object_get(meta, "args");
    if (attribute(arguments, "kw.dropout_p", 0.0) > 0.0)
        return "draws of dropout are PyTorch's own";
    for (size_t n = 0; n < TORCH_MASK; n++) {
        const char *const type = torch_type(arguments, torch_names[n]);
        if (!type || strcmp(type, "float32") != 0)
            return "storage is not fp32";
    }
    return NULL;
}

static const char *torch_folder;

static void check_torch(attn_context *context)
{
    passed = 0;
    for (int n = 0; n < 1000; n++) {
        char *const folder = text_of("%s/%03d", torch_folder, n);
        char *const meta_path = text_of("%s/meta.json", folder);
        json_t *const meta = json_load_file(meta_path, 0, NULL);
        if (meta) {
            const char *const reason = torch_reason(meta);
            struct torch_case c = {0};
            if (reason) {
                leave_out(context, folder, reason);
            } else {
                c = torch_load(meta, folder);
                run_torch(context, &c);
                passed++;
            }
            torch_free(&c);
        }
        json_decref(meta);
        free(meta_path), free(folder);
    }
}

static void torch_attention_cases_pass_with_gradients(void **state)
{
    (void)state;
    char *const folder = shared_folder("conformance/torch/scaled_dot_product_attention",
                                       "torch_attention_cases_pass_with_gradients");
    torch_folder = folder;
    left_out = 0;
    on_every_level(check_torch);
    assert_true(passed > 0);
    print_message("PyTorch: %d passed on each instruction set, %d skipped\n", passed,
                  left_out);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onnx_attention_cases_pass),
        cmocka_unit_test(torch_attention_cases_pass_with_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

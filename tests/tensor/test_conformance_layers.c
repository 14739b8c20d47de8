/* PyTorch's MultiheadAttention and TransformerEncoderLayer, rebuilt from the operations
 * of the tape, with the gradients of inputs and parameters.  Every case that is left out
 * is printed with its reason.
 *
 * Two things that a packed attention does not have are put into the rows that it reads. A
 * bias key and a zero key are rows of the input like any other, told apart by columns of
 * their own, whose weights are the projection's bias and the bias key.  And the weights
 * of attention, which MultiheadAttention gives out and which here have a gradient, are
 * outputs for values that say which key they are: weight · identity. */
#include "arrays.h"
#include "tensor_test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, left_out;
static bool says_what_is_left_out;

static void leave_out(const char *name, const char *reason)
{
    left_out++;
    if (says_what_is_left_out)
        say_skipped(name, reason);
}

static void *zeros(size_t count, size_t size)
{
    void *const memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

static void backward_from(attn_tape *tape, attn_tensor *y, const float *cotangent)
{
    attn_tensor *const loss = test_weigh_by(tape, y, cotangent);
    assert_int_equal(attn_tape_backward(tape, loss, 1.0f), ATTN_OK);
}

/* ---- Cases ----------------------------------------------------------------------------
 */

/* A matrix of the caller's with its gradient, as a leaf. */
struct matrix {
    int64_t rows, columns;
    float *data, *gradient;
};

static struct matrix matrix_create(int64_t rows, int64_t columns)
{
    const size_t count = (size_t)(rows * columns);
    return (struct matrix){rows, columns, zeros(count, sizeof(float)),
                           zeros(count, sizeof(float))};
}

static void matrix_destroy(struct matrix *m)
{
    free(m->data);
    free(m->gradient);
    *m = (struct matrix){0};
}

static attn_tensor *leaf(attn_tape *tape, const struct matrix *m)
{
    return attn_tape_leaf(tape, m->data, m->gradient, 2,
                          (const int64_t[]){m->rows, m->columns});
}

/* Rows of a matrix, as a leaf of its own. */
static attn_tensor *leaf_of_rows(attn_tape *tape, const struct matrix *m, int64_t first,
                                 int64_t rows)
{
    return attn_tape_leaf(tape, m->data + first * m->columns,
                          m->gradient + first * m->columns, 2,
                          (const int64_t[]){rows, m->columns});
}

static attn_tensor *leaf_of_vector(attn_tape *tape, const struct matrix *m, int64_t first,
                                   int64_t count)
{
    return attn_tape_leaf(tape, m->data + first, m->gradient + first, 1,
                          (const int64_t[]){count});
}

struct layer_case {
    const char *folder;
    json_t *meta;
};

static json_t *constructor(const struct layer_case *c, const char *name)
{
    return json_object_get(json_object_get(c->meta, "ctor"), name);
}

static int64_t constructor_number(const struct layer_case *c, const char *name)
{
    return json_integer_value(constructor(c, name));
}

static bool is_given(const struct layer_case *c, const char *argument)
{
    return json_is_object(json_object_get(json_object_get(c->meta, "forward"), argument));
}

static struct array load(const struct layer_case *c, const char *prefix, const char *name)
{
    char *const file = text_of("%s%s.npy", prefix, name);
    const struct array array = array_load(c->folder, file);
    free(file);
    return array;
}

/* No array where the case has none. */
static struct array load_argument(const struct layer_case *c, const char *name)
{
    return is_given(c, name) ? load(c, "", name) : (struct array){0};
}

/* Rows are the first axis; a case without it gives an empty matrix. */
static struct matrix load_parameter(const struct layer_case *c, const char *name)
{
    if (!json_object_get(json_object_get(c->meta, "params"), name))
        return (struct matrix){0};
    struct array array = load(c, "param.", name);
    const int64_t rows = array.rank > 1 ? array.extent[0] : 1;
    struct matrix m = matrix_create(rows, (int64_t)array.count / rows);
    for (size_t n = 0; n < array.count; n++)
        m.data[n] = (float)array.x[n];
    array_free(&array);
    return m;
}

static void check(const struct layer_case *c, const float *got, const char *prefix,
                  const char *name)
{
    struct array expected = load(c, prefix, name);
    assert_floats_near(got, &expected, 0.0, 1e-5 + 1e-5 * largest_magnitude(&expected),
                       c->folder, name);
    array_free(&expected);
}

static void check_parameter(const struct layer_case *c, const struct matrix *m,
                            const char *name)
{
    char *const full = text_of("param.%s", name);
    size_t n;
    json_t *with_gradient;
    json_array_foreach(json_object_get(c->meta, "grads"), n, with_gradient)
    {
        if (strcmp(json_string_value(with_gradient), full) == 0)
            check(c, m->gradient, "grad_", full);
    }
    free(full);
}

static bool has_nan(const struct layer_case *c, const char *name)
{
    struct array array = load(c, "", name);
    bool found = false;
    for (size_t n = 0; n < array.count; n++)
        found = found || isnan(array.x[n]);
    array_free(&array);
    return found;
}

/* ---- Batches as packed sequences ------------------------------------------------------
 */

/* [length][width], [batch][length][width] or [length][batch][width] */
struct layout {
    int64_t batch, length, width;
    bool batch_first;
};

static struct layout layout_of(const struct array *array, bool batch_first)
{
    if (array->rank == 2)
        return (struct layout){1, array->extent[0], array->extent[1], true};
    assert_int_equal(array->rank, 3);
    return (struct layout){
        .batch = array->extent[batch_first ? 0 : 1],
        .length = array->extent[batch_first ? 1 : 0],
        .width = array->extent[2],
        .batch_first = batch_first,
    };
}

static int64_t element_of(const struct layout *l, int64_t n, int64_t i, int64_t d)
{
    return ((l->batch_first ? n * l->length + i : i * l->batch + n)) * l->width + d;
}

static int64_t *starts_of(int64_t batch, int64_t length)
{
    int64_t *const starts = zeros((size_t)batch + 1, sizeof *starts);
    for (int64_t n = 0; n <= batch; n++)
        starts[n] = n * length;
    return starts;
}

/* What a mask adds: floats as they are, and true hides. */
static float addend(const struct array *mask, bool is_bool, size_t at)
{
    const double x = mask->x[at];
    if (is_bool)
        return x != 0.0 ? -INFINITY : 0.0f;
    return (float)x;
}

struct masks {
    struct array pairs;   /* [L][S] or [batch · heads][L][S] */
    struct array padding; /* [S] or [batch][S] */
    bool pairs_are_bool, padding_is_bool;
};

static bool is_bool(const struct layer_case *c, const char *name)
{
    const json_t *const argument =
        json_object_get(json_object_get(c->meta, "forward"), name);
    const char *const type = json_string_value(json_object_get(argument, "dtype"));
    return type && strcmp(type, "bool") == 0;
}

/* [heads][queries of all][keys of all]; keys beyond `keys` of a sequence are seen by all.
 */
static float *bias_of(const struct masks *m, int64_t batch, int64_t heads,
                      int64_t queries, int64_t keys, int64_t all_keys)
{
    const int64_t columns = batch * all_keys;
    float *const bias = zeros((size_t)(heads * batch * queries * columns), sizeof *bias);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < queries; i++)
                for (int64_t j = 0; j < keys; j++) {
                    float x = 0.0f;
                    const int64_t head = m->pairs.rank == 3 ? n * heads + h : 0;
                    const int64_t row = m->padding.rank == 2 ? n : 0;
                    if (m->pairs.x)
                        x += addend(&m->pairs, m->pairs_are_bool,
                                    (size_t)((head * queries + i) * keys + j));
                    if (m->padding.x)
                        x += addend(&m->padding, m->padding_is_bool,
                                    (size_t)(row * keys + j));
                    bias[((h * batch + n) * queries + i) * columns + n * all_keys + j] =
                        x;
                }
    return bias;
}

static attn_tensor *attend(attn_tape *tape, attn_tensor *query, attn_tensor *key,
                           attn_tensor *value, int64_t heads, const int64_t *query_starts,
                           const int64_t *key_starts, int64_t batch, const float *bias)
{
    const attn_shape shape = {.D = query->extent[1] / heads};
    attn_packed_attention attention = {.H = heads, .Hk = heads};
    attn_options_init(&attention.options, &shape);
    attention.options.sequences = batch;
    attention.options.query_starts = query_starts;
    attention.options.key_starts = key_starts;
    const int64_t columns = key->extent[0], rows = query->extent[0];
    attention.options.bias =
        (attn_input){.data = bias, .stride = {0, rows * columns, columns, 1}};
    return attn_attend(tape, query, key, value, &attention, NULL, NULL);
}

/* ---- MultiheadAttention ---------------------------------------------------------------
 */

struct multihead {
    const struct layer_case *c;
    int64_t E, H, batch, Lq, Lk, keys; /* keys: with the bias key and the zero key */
    struct layout query_layout, key_layout, value_layout;
    struct matrix in_weight, in_bias, bias_key, bias_value, out_weight, out_bias;
    struct matrix query, key_rows, value_rows; /* inputs; keys and values widened */
    struct matrix key_weight, value_weight;    /* widened */
    struct matrix last_weight, last_bias;      /* output and mean weights */
};

static struct matrix rows_of(const struct array *a, const struct layout *l)
{
    struct matrix m = matrix_create(l->batch * l->length, l->width);
    for (int64_t n = 0; n < l->batch; n++)
        for (int64_t i = 0; i < l->length; i++)
            for (int64_t d = 0; d < l->width; d++)
                m.data[(n * l->length + i) * l->width + d] =
                    (float)a->x[element_of(l, n, i, d)];
    return m;
}

/* Rows of the input, then the bias key and the zero key; columns of the input, then 1 for
 * an input, 1 for the bias key, and with `tells_key` which key it is. */
static struct matrix widened_rows(const struct multihead *m, const struct array *a,
                                  const struct layout *l, bool tells_key)
{
    const int64_t columns = m->E + 2 + (tells_key ? m->keys : 0);
    struct matrix rows = matrix_create(m->batch * m->keys, columns);
    for (int64_t n = 0; n < m->batch; n++)
        for (int64_t j = 0; j < m->keys; j++) {
            float *const to = rows.data + (n * m->keys + j) * columns;
            for (int64_t d = 0; d < m->E && j < m->Lk; d++)
                to[d] = (float)a->x[element_of(l, n, j, d)];
            if (j < m->Lk)
                to[m->E] = 1.0f;
            else if (j == m->Lk && m->bias_key.data)
                to[m->E + 1] = 1.0f;
            if (tells_key)
                to[m->E + 2 + j] = 1.0f;
        }
    return rows;
}

/* Row `row` of a projection beside its bias and the bias key's or value's element. */
static void widen_row(const struct multihead *m, float *to, int64_t row, int64_t element,
                      const struct matrix *added)
{
    memcpy(to, m->in_weight.data + row * m->E, (size_t)m->E * sizeof *to);
    if (m->in_bias.data)
        to[m->E] = m->in_bias.data[row];
    if (added->data)
        to[m->E + 1] = added->data[element];
}

static void widen_weights(struct multihead *m)
{
    const int64_t D = m->E / m->H, wide = D + m->keys;
    m->key_weight = matrix_create(m->E, m->E + 2);
    m->value_weight = matrix_create(m->H * wide, m->E + 2 + m->keys);
    m->last_weight = matrix_create(m->E + m->keys, m->H * wide);
    m->last_bias = matrix_create(1, m->E + m->keys);
    for (int64_t e = 0; e < m->E; e++) {
        widen_row(m, m->key_weight.data + e * (m->E + 2), m->E + e, e, &m->bias_key);
        const int64_t row = e / D * wide + e % D;
        widen_row(m, m->value_weight.data + row * m->value_weight.columns, 2 * m->E + e,
                  e, &m->bias_value);
        for (int64_t from = 0; from < m->E; from++)
            m->last_weight.data[e * m->H * wide + from / D * wide + from % D] =
                m->out_weight.data[e * m->E + from];
        if (m->out_bias.data)
            m->last_bias.data[e] = m->out_bias.data[e];
    }
    for (int64_t h = 0; h < m->H; h++)
        for (int64_t j = 0; j < m->keys; j++) {
            m->value_weight
                .data[(h * wide + D + j) * m->value_weight.columns + m->E + 2 + j] = 1.0f;
            m->last_weight.data[(m->E + j) * m->H * wide + h * wide + D + j] =
                1.0f / (float)m->H;
        }
}

/* The gradients of what was widened, back in the shapes of the parameters. */
static void narrow_gradients(struct multihead *m)
{
    const int64_t D = m->E / m->H, wide = D + m->keys;
    for (int64_t e = 0; e < m->E; e++) {
        const float *const key = m->key_weight.gradient + e * (m->E + 2);
        const float *const value =
            m->value_weight.gradient + (e / D * wide + e % D) * m->value_weight.columns;
        memcpy(m->in_weight.gradient + (m->E + e) * m->E, key,
               (size_t)m->E * sizeof *key);
        memcpy(m->in_weight.gradient + (2 * m->E + e) * m->E, value,
               (size_t)m->E * sizeof *value);
        if (m->in_bias.data) {
            m->in_bias.gradient[m->E + e] = key[m->E];
            m->in_bias.gradient[2 * m->E + e] = value[m->E];
        }
        if (m->bias_key.data) {
            m->bias_key.gradient[e] = key[m->E + 1];
            m->bias_value.gradient[e] = value[m->E + 1];
        }
        for (int64_t from = 0; from < m->E; from++)
            m->out_weight.gradient[e * m->E + from] =
                m->last_weight.gradient[e * m->H * wide + from / D * wide + from % D];
        if (m->out_bias.data)
            m->out_bias.gradient[e] = m->last_bias.gradient[e];
    }
}

static void check_input(const struct multihead *m, const struct matrix *rows,
                        const struct layout *l, int64_t rows_each, const char *name)
{
    float *const gradient =
        zeros((size_t)(l->batch * l->length * l->width), sizeof *gradient);
    for (int64_t n = 0; n < l->batch; n++)
        for (int64_t i = 0; i < l->length; i++)
            for (int64_t d = 0; d < l->width; d++)
                gradient[element_of(l, n, i, d)] =
                    rows->gradient[(n * rows_each + i) * rows->columns + d];
    check(m->c, gradient, "grad_", name);
    free(gradient);
}

/* y is [queries][E output, then the mean weights]; both ways, to and from PyTorch's two.
 */
static void check_outputs(const struct multihead *m, const attn_tensor *y)
{
    const int64_t columns = m->E + m->keys, rows = m->batch * m->Lq;
    float *const output = zeros((size_t)(rows * m->E), sizeof *output);
    float *const weights = zeros((size_t)(rows * m->keys), sizeof *weights);
    for (int64_t n = 0; n < m->batch; n++)
        for (int64_t i = 0; i < m->Lq; i++) {
            const float *const from = y->data + (n * m->Lq + i) * columns;
            for (int64_t e = 0; e < m->E; e++)
                output[element_of(&m->query_layout, n, i, e)] = from[e];
            memcpy(weights + (n * m->Lq + i) * m->keys, from + m->E,
                   (size_t)m->keys * sizeof *weights);
        }
    check(m->c, output, "", "out.0");
    if (json_object_get(json_object_get(m->c->meta, "outputs"), "out.1"))
        check(m->c, weights, "", "out.1");
    free(output), free(weights);
}

static float *cotangent_of(const struct multihead *m)
{
    const int64_t columns = m->E + m->keys;
    float *const cotangent =
        zeros((size_t)(m->batch * m->Lq * columns), sizeof *cotangent);
    const bool weights = json_object_get(json_object_get(m->c->meta, "outputs"), "out.1");
    struct array of_output = load(m->c, "", "cot.0");
    struct array of_weights = weights ? load(m->c, "", "cot.1") : (struct array){0};
    for (int64_t n = 0; n < m->batch; n++)
        for (int64_t i = 0; i < m->Lq; i++) {
            float *const to = cotangent + (n * m->Lq + i) * columns;
            for (int64_t e = 0; e < m->E; e++)
                to[e] = (float)of_output.x[element_of(&m->query_layout, n, i, e)];
            for (int64_t j = 0; j < m->keys && weights; j++)
                to[m->E + j] = (float)of_weights.x[(n * m->Lq + i) * m->keys + j];
        }
    array_free(&of_output), array_free(&of_weights);
    return cotangent;
}

static struct multihead multihead_load(const struct layer_case *c)
{
    struct multihead m = {
        .c = c,
        .E = constructor_number(c, "embed_dim"),
        .H = constructor_number(c, "num_heads"),
        .in_weight = load_parameter(c, "in_proj_weight"),
        .in_bias = load_parameter(c, "in_proj_bias"),
        .bias_key = load_parameter(c, "bias_k"),
        .bias_value = load_parameter(c, "bias_v"),
        .out_weight = load_parameter(c, "out_proj.weight"),
        .out_bias = load_parameter(c, "out_proj.bias"),
    };
    const bool batch_first = json_is_true(constructor(c, "batch_first"));
    struct array query = load(c, "", "in.0"), key = load(c, "", "in.1");
    struct array value = load(c, "", "in.2");
    m.query_layout = layout_of(&query, batch_first);
    m.key_layout = layout_of(&key, batch_first);
    m.value_layout = layout_of(&value, batch_first);
    m.batch = m.query_layout.batch;
    m.Lq = m.query_layout.length;
    m.Lk = m.key_layout.length;
    m.keys = m.Lk + json_is_true(constructor(c, "add_bias_kv")) +
             json_is_true(constructor(c, "add_zero_attn"));
    m.query = rows_of(&query, &m.query_layout);
    m.key_rows = widened_rows(&m, &key, &m.key_layout, false);
    m.value_rows = widened_rows(&m, &value, &m.value_layout, true);
    widen_weights(&m);
    array_free(&query), array_free(&key), array_free(&value);
    return m;
}

static void multihead_destroy(struct multihead *m)
{
    struct matrix *const all[] = {
        &m->in_weight,    &m->in_bias,     &m->bias_key,  &m->bias_value, &m->out_weight,
        &m->out_bias,     &m->query,       &m->key_rows,  &m->value_rows, &m->key_weight,
        &m->value_weight, &m->last_weight, &m->last_bias,
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        matrix_destroy(all[n]);
}

static void run_multihead(attn_tape *tape, const struct layer_case *c)
{
    struct multihead m = multihead_load(c);
    struct masks masks = {
        .pairs = load_argument(c, "in.attn_mask"),
        .padding = load_argument(c, "in.key_padding_mask"),
        .pairs_are_bool = is_bool(c, "in.attn_mask"),
        .padding_is_bool = is_bool(c, "in.key_padding_mask"),
    };
    float *const bias = bias_of(&masks, m.batch, m.H, m.Lq, m.Lk, m.keys);
    int64_t *const query_starts = starts_of(m.batch, m.Lq);
    int64_t *const key_starts = starts_of(m.batch, m.keys);
    float *const cotangent = cotangent_of(&m);

    attn_tape_begin(tape, true, 0);
    const bool biased = m.in_bias.data;
    attn_tensor *const query =
        attn_linear(tape, leaf(tape, &m.query), leaf_of_rows(tape, &m.in_weight, 0, m.E),
                    biased ? leaf_of_vector(tape, &m.in_bias, 0, m.E) : NULL, biased);
    attn_tensor *const key = attn_linear(tape, leaf(tape, &m.key_rows),
                                         leaf(tape, &m.key_weight), NULL, false);
    attn_tensor *const value = attn_linear(tape, leaf(tape, &m.value_rows),
                                           leaf(tape, &m.value_weight), NULL, false);
    attn_tensor *const attended =
        attend(tape, query, key, value, m.H, query_starts, key_starts, m.batch, bias);
    attn_tensor *const y =
        attn_linear(tape, attended, leaf(tape, &m.last_weight),
                    leaf_of_vector(tape, &m.last_bias, 0, m.E + m.keys), true);
    if (!y)
        fail_msg("%s: %s", c->folder, attn_context_message(attn_tape_context(tape)));
    check_outputs(&m, y);
    backward_from(tape, y, cotangent);

    narrow_gradients(&m);
    check_input(&m, &m.query, &m.query_layout, m.Lq, "in.0");
    check_input(&m, &m.key_rows, &m.key_layout, m.keys, "in.1");
    check_input(&m, &m.value_rows, &m.value_layout, m.keys, "in.2");
    check_parameter(c, &m.in_weight, "in_proj_weight");
    check_parameter(c, &m.in_bias, "in_proj_bias");
    check_parameter(c, &m.bias_key, "bias_k");
    check_parameter(c, &m.bias_value, "bias_v");
    check_parameter(c, &m.out_weight, "out_proj.weight");
    check_parameter(c, &m.out_bias, "out_proj.bias");
    array_free(&masks.pairs), array_free(&masks.padding);
    free(bias), free(query_starts), free(key_starts), free(cotangent);
    multihead_destroy(&m);
}

static const char *multihead_reason(const struct layer_case *c)
{
    if (json_number_value(constructor(c, "dropout")) > 0.0)
        return "draws of dropout are PyTorch's own";
    if (json_is_integer(constructor(c, "kdim")) ||
        json_is_integer(constructor(c, "vdim")))
        return "keys and values of other widths are not rebuilt here";
    if (has_nan(c, "out.0"))
        return "a query that sees no key is NaN there, and 0 here";
    return NULL;
}

/* ---- TransformerEncoderLayer ----------------------------------------------------------
 */

enum { ENCODER_PARAMETERS = 12 };
static const char *const encoder_names[ENCODER_PARAMETERS] = {
    "self_attn.in_proj_weight",
    "self_attn.in_proj_bias",
    "self_attn.out_proj.weight",
    "self_attn.out_proj.bias",
    "linear1.weight",
    "linear1.bias",
    "linear2.weight",
    "linear2.bias",
    "norm1.weight",
    "norm1.bias",
    "norm2.weight",
    "norm2.bias",
};
enum {
    IN_PROJECTION = 0,
    OUT_PROJECTION = 2,
    FIRST = 4,
    SECOND = 6,
    NORM_1 = 8,
    NORM_2 = 10
};

struct encoder {
    const struct layer_case *c;
    struct matrix parameter[ENCODER_PARAMETERS];
    struct matrix no_bias; /* zeros, for norms without one */
    int64_t E, H, batch, length;
    const int64_t *starts;
    const float *bias;
};

static attn_tensor *linear(attn_tape *tape, const struct encoder *e, attn_tensor *x,
                           int which, int64_t first_row, int64_t rows)
{
    const struct matrix *const weight = &e->parameter[which];
    const struct matrix *const bias = &e->parameter[which + 1];
    return attn_linear(tape, x, leaf_of_rows(tape, weight, first_row, rows),
                       bias->data ? leaf_of_vector(tape, bias, first_row, rows) : NULL,
                       bias->data != NULL);
}

static attn_tensor *norm(attn_tape *tape, const struct encoder *e, attn_tensor *x,
                         int which)
{
    const struct matrix *const bias =
        e->parameter[which + 1].data ? &e->parameter[which + 1] : &e->no_bias;
    return attn_layer_norm(tape, x, leaf_of_vector(tape, &e->parameter[which], 0, e->E),
                           leaf_of_vector(tape, bias, 0, e->E), 1e-5f);
}

static attn_tensor *self_attention(attn_tape *tape, const struct encoder *e,
                                   attn_tensor *x)
{
    attn_tensor *const query = linear(tape, e, x, IN_PROJECTION, 0, e->E);
    attn_tensor *const key = linear(tape, e, x, IN_PROJECTION, e->E, e->E);
    attn_tensor *const value = linear(tape, e, x, IN_PROJECTION, 2 * e->E, e->E);
    attn_tensor *const attended =
        attend(tape, query, key, value, e->H, e->starts, e->starts, e->batch, e->bias);
    return linear(tape, e, attended, OUT_PROJECTION, 0, e->E);
}

static attn_tensor *feed_forward(attn_tape *tape, const struct encoder *e, attn_tensor *x)
{
    const json_t *activation = constructor(e->c, "activation");
    if (json_is_object(activation))
        activation = json_object_get(activation, "callable");
    const bool gelu = activation && strcmp(json_string_value(activation), "gelu") == 0;
    attn_tensor *const inner = linear(tape, e, x, FIRST, 0, e->parameter[FIRST].rows);
    return linear(tape, e, attn_activate(tape, inner, gelu ? ATTN_GELU : ATTN_RELU),
                  SECOND, 0, e->E);
}

static attn_tensor *encode(attn_tape *tape, const struct encoder *e, attn_tensor *x)
{
    if (json_is_true(constructor(e->c, "norm_first"))) {
        x = attn_add(tape, x, self_attention(tape, e, norm(tape, e, x, NORM_1)));
        return attn_add(tape, x, feed_forward(tape, e, norm(tape, e, x, NORM_2)));
    }
    x = norm(tape, e, attn_add(tape, x, self_attention(tape, e, x)), NORM_1);
    return norm(tape, e, attn_add(tape, x, feed_forward(tape, e, x)), NORM_2);
}

static void run_encoder(attn_tape *tape, const struct layer_case *c)
{
    struct array input = load(c, "", "in.0"), cotangent = load(c, "", "cot");
    const struct layout layout =
        layout_of(&input, json_is_true(constructor(c, "batch_first")));
    struct masks masks = {
        .pairs = load_argument(c, "in.src_mask"),
        .padding = load_argument(c, "in.src_key_padding_mask"),
        .pairs_are_bool = is_bool(c, "in.src_mask"),
        .padding_is_bool = is_bool(c, "in.src_key_padding_mask"),
    };
    struct encoder e = {
        .c = c,
        .E = constructor_number(c, "d_model"),
        .H = constructor_number(c, "nhead"),
        .batch = layout.batch,
        .length = layout.length,
        .no_bias = matrix_create(1, layout.width),
    };
    for (int n = 0; n < ENCODER_PARAMETERS; n++)
        e.parameter[n] = load_parameter(c, encoder_names[n]);
    float *const bias = bias_of(&masks, e.batch, e.H, e.length, e.length, e.length);
    int64_t *const starts = starts_of(e.batch, e.length);
    e.bias = bias;
    e.starts = starts;
    struct matrix x = rows_of(&input, &layout), slope = rows_of(&cotangent, &layout);

    attn_tape_begin(tape, true, 0);
    attn_tensor *const y = encode(tape, &e, leaf(tape, &x));
    if (!y)
        fail_msg("%s: %s", c->folder, attn_context_message(attn_tape_context(tape)));
    backward_from(tape, y, slope.data);
    float *const output = zeros(input.count, sizeof *output);
    float *const gradient = zeros(input.count, sizeof *gradient);
    for (int64_t n = 0; n < layout.batch; n++)
        for (int64_t i = 0; i < layout.length; i++)
            for (int64_t d = 0; d < layout.width; d++) {
                const int64_t at = (n * layout.length + i) * layout.width + d;
                output[element_of(&layout, n, i, d)] = y->data[at];
                gradient[element_of(&layout, n, i, d)] = x.gradient[at];
            }
    check(c, output, "", "out");
    check(c, gradient, "grad_", "in.0");
    for (int n = 0; n < ENCODER_PARAMETERS; n++) {
        check_parameter(c, &e.parameter[n], encoder_names[n]);
        matrix_destroy(&e.parameter[n]);
    }
    matrix_destroy(&x), matrix_destroy(&slope), matrix_destroy(&e.no_bias);
    array_free(&input), array_free(&cotangent);
    array_free(&masks.pairs), array_free(&masks.padding);
    free(bias), free(starts), free(output), free(gradient);
}

static const char *encoder_reason(const struct layer_case *c)
{
    if (json_number_value(constructor(c, "dropout")) > 0.0)
        return "draws of dropout are PyTorch's own";
    if (has_nan(c, "out"))
        return "a query that sees no key is NaN there, and 0 here";
    return NULL;
}

/* ---- All of them ----------------------------------------------------------------------
 */

static void run_cases(attn_tape *tape, const char *folder,
                      const char *(*reason_of)(const struct layer_case *),
                      void (*run)(attn_tape *, const struct layer_case *))
{
    for (int n = 0; n < 1000; n++) {
        char *const of_case = text_of("%s/%03d", folder, n);
        char *const meta = text_of("%s/meta.json", of_case);
        struct layer_case c = {of_case, json_load_file(meta, 0, NULL)};
        const char *const reason = c.meta ? reason_of(&c) : NULL;
        if (reason) {
            leave_out(of_case, reason);
        } else if (c.meta) {
            run(tape, &c);
            passed++;
        }
        json_decref(c.meta);
        free(of_case), free(meta);
    }
}

static void run_on_every_level(const char *below, const char *test,
                               const char *(*reason_of)(const struct layer_case *),
                               void (*run)(attn_tape *, const struct layer_case *))
{
    char *const folder = shared_folder(below, test);
    says_what_is_left_out = true;
    for (size_t i = 0; i < test_isa_count; i++) {
        attn_tape *const tape = test_tape_create(test_isas[i]);
        if (!tape)
            continue;
        passed = left_out = 0;
        run_cases(tape, folder, reason_of, run);
        says_what_is_left_out = false;
        test_tape_destroy(tape);
    }
    assert_true(passed > 0);
    print_message("%s: %d passed on each instruction set, %d skipped\n", below, passed,
                  left_out);
    free(folder);
}

static void multihead_attention_cases_pass_with_gradients(void **state)
{
    (void)state;
    run_on_every_level("conformance/torch/nn.MultiheadAttention",
                       "multihead_attention_cases_pass_with_gradients", multihead_reason,
                       run_multihead);
}

static void encoder_layer_cases_pass_with_gradients(void **state)
{
    (void)state;
    run_on_every_level("conformance/torch/nn.TransformerEncoderLayer",
                       "encoder_layer_cases_pass_with_gradients", encoder_reason,
                       run_encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multihead_attention_cases_pass_with_gradients),
        cmocka_unit_test(encoder_layer_cases_pass_with_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

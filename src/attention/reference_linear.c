/* The meaning of linear attention: a_ij = φ(q_i)·φ(k_j) over the visible keys, and
 *
 *     O_i = Σ_j a_ij v_j / Σ_j a_ij
 *
 * with gradients by the quotient rule.  Who sees whom is asked of the reference of
 * softmax attention. */
#include "attention/reference_linear.h"
#include "attention/reference.h"
#include <math.h>
#include <stdlib.h>

static double slope_of(double x, attn_feature feature)
{
    if (feature == ATTN_FEATURE_RELU)
        return x > 0.0 ? 1.0 : 0.0;
    if (feature == ATTN_FEATURE_ELU)
        return x > 0.0 ? 1.0 : exp(x);
    return 1.0;
}

/* One query with all that it sees. */
struct row {
    const attn_shape *shape;
    const attn_tensors *tensors;
    attn_feature feature;
    int64_t b, h, hk, i;
    struct attn_reference_row *keys; /* visible, first_key */
    double *pair;                    /* [keys]: a_ij, 0 where hidden */
    double sum, *output;             /* [Dv] */
};

static double element(const attn_input *x, int64_t b, int64_t h, int64_t row, int64_t d)
{
    return attn_reference_load(x->data, x->type,
                               b * x->stride[0] + h * x->stride[1] + row * x->stride[2] +
                                   d * x->stride[3]);
}

static double query_of(const struct row *r, int64_t d)
{
    return element(&r->tensors->query, r->b, r->h, r->i, d);
}

static double key_of(const struct row *r, int64_t j, int64_t d)
{
    return element(&r->tensors->key, r->b, r->hk, r->keys->first_key + j, d);
}

static double value_of(const struct row *r, int64_t j, int64_t d)
{
    return element(&r->tensors->value, r->b, r->hk, r->keys->first_key + j, d);
}

static void pair_with_keys(struct row *r)
{
    r->sum = 0.0;
    for (int64_t j = 0; j < r->keys->keys; j++) {
        r->pair[j] = 0.0;
        for (int64_t d = 0; d < r->shape->D && r->keys->visible[j]; d++)
            r->pair[j] += attn_reference_feature(query_of(r, d), r->feature) *
                          attn_reference_feature(key_of(r, j, d), r->feature);
        r->sum += r->pair[j];
    }
}

static void weigh_values(const struct row *r)
{
    for (int64_t e = 0; e < r->shape->Dv; e++) {
        double sum = 0.0;
        for (int64_t j = 0; j < r->keys->keys; j++)
            if (r->keys->visible[j])
                sum += r->pair[j] * value_of(r, j, e);
        r->output[e] = r->keys->visible_keys == 0 || r->sum == 0.0 ? 0.0 : sum / r->sum;
    }
}

static void store_output(const struct row *r)
{
    const attn_output *const o = &r->tensors->output;
    for (int64_t e = 0; e < r->shape->Dv; e++)
        attn_reference_store(o->data, o->type,
                             r->b * o->stride[0] + r->h * o->stride[1] +
                                 r->i * o->stride[2] + e * o->stride[3],
                             r->output[e]);
}

/* Calls visit(row, argument) for every query. */
static attn_status each_row(const attn_shape *shape, const attn_tensors *tensors,
                            const attn_options *options, attn_feature feature,
                            void (*visit)(const struct row *row, void *argument),
                            void *argument)
{
    struct attn_reference_row keys;
    if (!attn_reference_row_create(&keys, shape))
        return ATTN_ENOMEM;
    struct row row = {.shape = shape, .tensors = tensors, .feature = feature};
    row.keys = &keys;
    row.pair = malloc(((size_t)shape->Lk + (size_t)shape->Dv + 1) * sizeof *row.pair);
    row.output = row.pair ? row.pair + shape->Lk : NULL;
    for (row.b = 0; row.pair && row.b < shape->B; row.b++)
        for (row.h = 0; row.h < shape->H; row.h++)
            for (row.i = 0; row.i < shape->Lq; row.i++) {
                row.hk = row.h / (shape->H / shape->Hk);
                attn_reference_attend(&keys, shape, tensors, options, row.b, row.h,
                                      row.i);
                if (keys.padding)
                    keys.keys = keys.visible_keys = 0;
                pair_with_keys(&row);
                weigh_values(&row);
                visit(&row, argument);
            }
    const attn_status status = row.pair ? ATTN_OK : ATTN_ENOMEM;
    free(row.pair);
    attn_reference_row_destroy(&keys);
    return status;
}

static void visit_output(const struct row *row, void *argument)
{
    (void)argument;
    store_output(row);
}

attn_status attn_linear_forward_reference(const attn_shape *shape,
                                          const attn_tensors *tensors,
                                          const attn_options *options,
                                          attn_feature feature)
{
    return each_row(shape, tensors, options, feature, visit_output, NULL);
}

/* ---- Backward -------------------------------------------------------------------------
 */

/* Sums in double of everything that rows add to. */
struct sums {
    const attn_gradients *gradients;
    double *query, *key, *value; /* as dense tensors */
};

static size_t place(int64_t b, int64_t heads, int64_t h, int64_t length, int64_t row,
                    int64_t size)
{
    return (size_t)(((b * heads + h) * length + row) * size);
}

static void visit_gradients(const struct row *r, void *argument)
{
    const struct sums *const s = argument;
    const attn_shape *const shape = r->shape;
    if (r->keys->visible_keys == 0 || r->sum == 0.0)
        return;
    double *const query =
        s->query + place(r->b, shape->H, r->h, shape->Lq, r->i, shape->D);
    for (int64_t j = 0; j < r->keys->keys; j++) {
        if (!r->keys->visible[j])
            continue;
        const int64_t at = r->keys->first_key + j;
        double *const key =
            s->key + place(r->b, shape->Hk, r->hk, shape->Lk, at, shape->D);
        double *const value =
            s->value + place(r->b, shape->Hk, r->hk, shape->Lk, at, shape->Dv);
        double pair = 0.0;
        for (int64_t e = 0; e < shape->Dv; e++) {
            const double g = element(&s->gradients->output, r->b, r->h, r->i, e) / r->sum;
            pair += g * (value_of(r, j, e) - r->output[e]);
            value[e] += r->pair[j] * g;
        }
        for (int64_t d = 0; d < shape->D; d++) {
            const double q = query_of(r, d), k = key_of(r, j, d);
            query[d] +=
                pair * attn_reference_feature(k, r->feature) * slope_of(q, r->feature);
            key[d] +=
                pair * attn_reference_feature(q, r->feature) * slope_of(k, r->feature);
        }
    }
}

static void store_gradient(const attn_output *to, const double *from, int64_t B,
                           int64_t heads, int64_t length, int64_t size)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t row = 0; row < length; row++)
                for (int64_t n = 0; n < size; n++)
                    attn_reference_store(
                        to->data, to->type,
                        b * to->stride[0] + h * to->stride[1] + row * to->stride[2] +
                            n * to->stride[3],
                        from[place(b, heads, h, length, row, size) + (size_t)n]);
}

attn_status attn_linear_backward_reference(const attn_shape *shape,
                                           const attn_tensors *tensors,
                                           const attn_options *options,
                                           attn_feature feature,
                                           const attn_gradients *gradients)
{
    const size_t queries = place(shape->B, shape->H, 0, shape->Lq, 0, shape->D);
    const size_t keys = place(shape->B, shape->Hk, 0, shape->Lk, 0, shape->D);
    const size_t values = place(shape->B, shape->Hk, 0, shape->Lk, 0, shape->Dv);
    struct sums sums = {gradients, calloc(queries + 1, sizeof(double)),
                        calloc(keys + 1, sizeof(double)),
                        calloc(values + 1, sizeof(double))};
    attn_status status = ATTN_ENOMEM;
    if (sums.query && sums.key && sums.value)
        status = each_row(shape, tensors, options, feature, visit_gradients, &sums);
    if (status == ATTN_OK) {
        store_gradient(&gradients->query, sums.query, shape->B, shape->H, shape->Lq,
                       shape->D);
        store_gradient(&gradients->key, sums.key, shape->B, shape->Hk, shape->Lk,
                       shape->D);
        store_gradient(&gradients->value, sums.value, shape->B, shape->Hk, shape->Lk,
                       shape->Dv);
    }
    free(sums.query), free(sums.key), free(sums.value);
    return status;
}

/* The gradients of attention, in double precision, one query at a time.  With weights w,
 * dropout factors f, and the output o = Σ w f v, a loss whose gradient by o is g has
 *
 *     by the value         dv_j = w_j f_j g
 *     by the final score   ds_j = w_j (f_j g·v_j − g·o)
 *     by the bias          ds_j
 *     by each gate's ln f  Σ ds_j over the keys before it, for queries from it on
 *     by the query         dq   = scale · Σ ds_j slope_j k_j
 *     by the key           dk_j = scale · ds_j slope_j q
 *     by the sink          −w_sink g·o
 *
 * or, with additive scores,
 *
 *     by the query         dq   = scale · Σ_j ds_j slope_j v ∘ (1 − tanh²(q + k_j))
 *     by the key           dk_j = scale · ds_j slope_j v ∘ (1 − tanh²(q + k_j))
 *     by the vector        dv   = scale · Σ_j ds_j slope_j tanh(q + k_j)
 *
 * where slope_j is the softcap's derivative, 1 without it.  A key of weight 0, hidden or
 * with a score of −∞, takes no part: nothing of it is read, and nothing added. */
#include "attention/reference.h"
#include <math.h>
#include <stdlib.h>

/* A gradient on its way: [B][heads][length][size] doubles, but 1 for an axis along which
 * the caller's stride of 0 asks for the sum. */
struct sum {
    const attn_output *to;
    int64_t extent[4], stride[4];
    double *data;
};

/* A gradient that nobody wants keeps data NULL. */
static bool sum_create(struct sum *sum, const attn_output *to, const int64_t extent[4])
{
    *sum = (struct sum){.to = to};
    if (!to->data)
        return true;
    int64_t count = 1;
    for (int axis = 3; axis >= 0; axis--) {
        sum->extent[axis] = to->stride[axis] == 0 ? 1 : extent[axis];
        sum->stride[axis] = to->stride[axis] == 0 ? 0 : count;
        count *= sum->extent[axis];
    }
    sum->data = calloc((size_t)count + 1, sizeof *sum->data);
    return sum->data != NULL;
}

static void add(struct sum *sum, int64_t b, int64_t h, int64_t l, int64_t d, double x)
{
    const int64_t *const stride = sum->stride;
    if (sum->data)
        sum->data[b * stride[0] + h * stride[1] + l * stride[2] + d * stride[3]] += x;
}

static void sum_store(const struct sum *sum)
{
    const int64_t *const from = sum->stride, *const to = sum->to->stride;
    for (int64_t b = 0; b < sum->extent[0] && sum->data; b++)
        for (int64_t h = 0; h < sum->extent[1]; h++)
            for (int64_t l = 0; l < sum->extent[2]; l++)
                for (int64_t d = 0; d < sum->extent[3]; d++)
                    attn_reference_store(
                        sum->to->data, sum->to->type,
                        b * to[0] + h * to[1] + l * to[2] + d * to[3],
                        sum->data[b * from[0] + h * from[1] + l * from[2] + d * from[3]]);
}

struct sums {
    struct sum query, key, value, bias, forget;
    double *sinks;    /* [H] */
    double *additive; /* [H][D] */
};

static double element(const attn_input *x, int64_t b, int64_t h, int64_t l, int64_t d)
{
    const int64_t *const stride = x->stride;
    return attn_reference_load(
        x->data, x->type, b * stride[0] + h * stride[1] + l * stride[2] + d * stride[3]);
}

/* by_product is the gradient of the score before the scale, times the scale. */
static void backward_of_score(struct sums *sums, const attn_shape *shape,
                              const attn_tensors *t, const attn_options *options,
                              int64_t b, int64_t h, int64_t i, int64_t key,
                              double by_product)
{
    const int64_t hk = h / (shape->H / shape->Hk);
    for (int64_t d = 0; d < shape->D; d++) {
        const double q = element(&t->query, b, h, i, d);
        const double k = element(&t->key, b, hk, key, d);
        double by_query = by_product * k, by_key = by_product * q;
        if (options->score == ATTN_SCORE_ADDITIVE) {
            const double tangent = tanh(q + k);
            const double v = (double)options->additive[h * shape->D + d];
            by_query = by_key = by_product * v * (1.0 - tangent * tangent);
            sums->additive[h * shape->D + d] += by_product * tangent;
        }
        add(&sums->query, b, h, i, d, by_query);
        add(&sums->key, b, hk, key, d, by_key);
    }
}

static void backward_of_query(struct sums *sums, const struct attn_reference_row *row,
                              const attn_shape *shape, const attn_tensors *t,
                              const attn_options *options, const attn_input *g, int64_t b,
                              int64_t h, int64_t i)
{
    const int64_t hk = h / (shape->H / shape->Hk);
    if (row->padding || (row->visible_keys == 0 && row->sink_weight == 0.0))
        return;

    double g_dot_o = 0.0;
    if (row->visible_keys > 0)
        for (int64_t d = 0; d < shape->Dv; d++)
            g_dot_o += element(g, b, h, i, d) * row->output[d];
    if (row->sink_weight != 0.0)
        sums->sinks[h] -= row->sink_weight * g_dot_o;

    double of_keys_before = 0.0;
    for (int64_t j = 0; j < row->keys; j++) {
        if (j <= row->position)
            add(&sums->forget, b, h, row->first_key + j, 0, of_keys_before);
        if (row->weight[j] == 0.0)
            continue;
        const int64_t key = row->first_key + j;
        double g_dot_v = 0.0;
        for (int64_t d = 0; d < shape->Dv; d++) {
            g_dot_v += element(g, b, h, i, d) * element(&t->value, b, hk, key, d);
            add(&sums->value, b, hk, key, d,
                row->weight[j] * row->kept[j] * element(g, b, h, i, d));
        }
        const double by_score = row->weight[j] * (row->kept[j] * g_dot_v - g_dot_o);
        const double by_product = (double)options->scale * row->slope[j] * by_score;
        add(&sums->bias, b, h, i, key, by_score);
        of_keys_before += by_score;
        backward_of_score(sums, shape, t, options, b, h, i, key, by_product);
    }
}

static bool sums_create(struct sums *sums, const attn_shape *shape,
                        const attn_gradients *gradients)
{
    const int64_t B = shape->B, H = shape->H, Hk = shape->Hk;
    const int64_t Lq = shape->Lq, Lk = shape->Lk;
    *sums = (struct sums){
        .sinks = calloc((size_t)H + 1, sizeof *sums->sinks),
        .additive = calloc((size_t)(H * shape->D) + 1, sizeof *sums->additive),
    };
    return sums->sinks && sums->additive &&
           sum_create(&sums->query, &gradients->query, (int64_t[]){B, H, Lq, shape->D}) &&
           sum_create(&sums->key, &gradients->key, (int64_t[]){B, Hk, Lk, shape->D}) &&
           sum_create(&sums->value, &gradients->value,
                      (int64_t[]){B, Hk, Lk, shape->Dv}) &&
           sum_create(&sums->bias, &gradients->bias, (int64_t[]){B, H, Lq, Lk}) &&
           sum_create(&sums->forget, &gradients->log_forget, (int64_t[]){B, H, Lk, 1});
}

static void sums_store(const struct sums *sums, const attn_shape *shape,
                       const attn_gradients *gradients)
{
    sum_store(&sums->query);
    sum_store(&sums->key);
    sum_store(&sums->value);
    sum_store(&sums->bias);
    sum_store(&sums->forget);
    for (int64_t h = 0; h < shape->H && gradients->sinks; h++)
        gradients->sinks[h] = (float)sums->sinks[h];
    for (int64_t n = 0; n < shape->H * shape->D && gradients->additive; n++)
        gradients->additive[n] = (float)sums->additive[n];
}

attn_status attn_backward_reference(const attn_shape *shape, const attn_tensors *tensors,
                                    const attn_options *options,
                                    const attn_gradients *gradients)
{
    struct attn_reference_row row = {0};
    struct sums sums;
    const bool ready =
        sums_create(&sums, shape, gradients) && attn_reference_row_create(&row, shape);
    for (int64_t b = 0; b < shape->B && ready; b++)
        for (int64_t h = 0; h < shape->H; h++)
            for (int64_t i = 0; i < shape->Lq; i++) {
                attn_reference_attend(&row, shape, tensors, options, b, h, i);
                backward_of_query(&sums, &row, shape, tensors, options,
                                  &gradients->output, b, h, i);
            }
    if (ready)
        sums_store(&sums, shape, gradients);
    attn_reference_row_destroy(&row);
    free(sums.query.data);
    free(sums.key.data);
    free(sums.value.data);
    free(sums.bias.data);
    free(sums.forget.data);
    free(sums.sinks);
    free(sums.additive);
    return ready ? ATTN_OK : ATTN_ENOMEM;
}

/* Linear attention, backward.  With the sums N_i = Σ_j a_ij (v_j, 1) of a_ij =
 * φ(q_i)·φ(k_j), whose first Dv elements over the last, z_i, are the output,
 *
 *     dN_i  = (dO_i, −dO_i·O_i) / z_i          da_ij = dN_i·(v_j, 1)
 *     dφ(q_i) = Σ_j da_ij φ(k_j)    dφ(k_j) = Σ_i da_ij φ(q_i)    dv_j = Σ_i a_ij dN_i
 *
 * each again a state and the pairs of a chunk: queries' gradients walking forward with
 * Σ (v_j, 1) φ(k_j)ᵀ, keys' and values' walking backward with Σ φ(q_i) dN_iᵀ. */
#include "attention/gradients.h"
#include "attention/linear.h"
#include "attention/rows.h"
#include <string.h>

struct worker {
    struct attn_linear_head head;
    const attn_gradients *gradients;
    float *query, *key, *value, *slope; /* [chunk][D_whole or E_whole] */
    float *output, *gradient;           /* [chunk][E_whole]: O and dO */
    float *of_feature, *of_value;       /* [chunk][D_whole], [chunk][E_whole] */
    float *pairs, *pair_gradients;      /* [chunk][chunk] */
    float *transposed;                  /* [D or E][chunk] */
    float *state;                       /* [D][E_whole] */
    float *turned;                      /* [E][D_whole]: the state's other product */
    float *sums;                        /* [longest Lq][E_whole]: dN */
    float *keys, *values;               /* [longest Lk]: sums of the heads' gradients */
};

/* Lays the worker out over memory, or only counts floats where that is NULL. */
static size_t lay_out(struct worker *w, const struct attn_linear *l, float *memory)
{
    const size_t chunk = ATTN_LINEAR_CHUNK, D = (size_t)l->problem.shape->D;
    const size_t larger = D > l->E ? D : l->E;
    size_t Lq = 0, Lk = 0;
    for (int64_t s = 0; s < l->problem.sequences; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(&l->problem, s);
        Lq = (size_t)sequence.Lq > Lq ? (size_t)sequence.Lq : Lq;
        Lk = (size_t)sequence.Lk > Lk ? (size_t)sequence.Lk : Lk;
    }
    const struct {
        float **place;
        size_t floats;
    } parts[] = {
        {&w->query, chunk * l->D_whole},    {&w->key, chunk * l->D_whole},
        {&w->slope, chunk * l->D_whole},    {&w->of_feature, chunk * l->D_whole},
        {&w->value, chunk * l->E_whole},    {&w->output, chunk * l->E_whole},
        {&w->gradient, chunk * l->E_whole}, {&w->of_value, chunk * l->E_whole},
        {&w->pairs, chunk * chunk},         {&w->pair_gradients, chunk * chunk},
        {&w->transposed, larger * chunk},   {&w->state, D * l->E_whole},
        {&w->turned, l->E * l->D_whole},    {&w->sums, Lq * l->E_whole},
        {&w->keys, Lk * l->D_whole},        {&w->values, Lk * l->E_whole},
    };
    const size_t longest = Lq > Lk ? Lq : Lk;
    if (longest > (SIZE_MAX >> 8) / (l->D_whole + 2 * l->E_whole))
        return SIZE_MAX >> 4; /* more than any memory has */
    size_t floats = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i].place = memory ? memory + floats : NULL;
        floats += (parts[i].floats + 15) / 16 * 16;
    }
    return floats;
}

/* ---- Pieces ---------------------------------------------------------------------------
 */

/* out (+)= left · right, or leftᵀ · right, without anything hidden. */
static void multiply(const struct worker *w, float *out, size_t columns,
                     const float *left, size_t left_stride, const float *right,
                     size_t rows, size_t steps, bool transposed)
{
    const struct attn_linear_product product = {
        .out = out,
        .left = left,
        .left_stride = left_stride,
        .right = right,
        .rows = rows,
        .steps = steps,
        .columns = columns,
        .transposed = transposed,
        .add = transposed,
    };
    attn_linear_multiply(w->head.linear, &product);
}

/* out += pairs · right, or pairsᵀ · right. */
static void add_pairs(const struct worker *w, float *out, size_t columns,
                      const float *pairs, const float *right, int64_t rows, int64_t steps,
                      bool transposed)
{
    const struct attn_linear_product product = {
        .out = out,
        .left = pairs,
        .left_stride = ATTN_LINEAR_CHUNK,
        .right = right,
        .rows = (size_t)rows,
        .steps = (size_t)steps,
        .columns = columns,
        .transposed = transposed,
        .add = true,
        .left_hides = true,
    };
    attn_linear_multiply(w->head.linear, &product);
}

static struct attn_linear_pairs pairs_of(const struct worker *w, int64_t first_query,
                                         int64_t queries, int64_t first_key, int64_t keys)
{
    return (struct attn_linear_pairs){
        .pairs = w->pairs,
        .transposed = w->transposed,
        .left = w->query,
        .right = w->key,
        .size = (size_t)w->head.linear->problem.shape->D,
        .whole_size = w->head.linear->D_whole,
        .first_query = first_query,
        .queries = queries,
        .first_key = first_key,
        .keys = keys,
    };
}

/* a_ij of the loaded queries and keys, and da_ij from dN and the loaded values. */
static void find_pairs(const struct worker *w, const struct attn_linear_pairs *pairs)
{
    const struct attn_linear *const l = w->head.linear;
    struct attn_linear_pairs of_gradients = *pairs;
    of_gradients.pairs = w->pair_gradients;
    of_gradients.left = w->sums + (size_t)pairs->first_query * l->E_whole;
    of_gradients.right = w->value;
    of_gradients.size = l->E;
    of_gradients.whole_size = l->E_whole;
    attn_linear_pair(&w->head, pairs);
    attn_linear_pair(&w->head, &of_gradients);
}

static void store_rows(const struct worker *w, const attn_output *x, int64_t h,
                       int64_t first_row, int64_t first, int64_t rows, int64_t size,
                       const float *from, size_t stride)
{
    if (!x->data)
        return;
    const struct attn_target to = attn_rows_to(
        x, attn_output_row(x, w->head.sequence.b, h, 0), first_row + first, rows, size);
    w->head.linear->kernels->backward->put(&to, from, stride, 1.0f);
}

/* ---- Queries, walking forward ---------------------------------------------------------
 */

/* turned += Σ (v_j, 1) φ(k_j)ᵀ */
static void absorb_keys(const struct worker *w, int64_t first, int64_t end)
{
    const struct attn_linear *const l = w->head.linear;
    for (; first < end; first += ATTN_LINEAR_CHUNK) {
        const int64_t keys = attn_least(ATTN_LINEAR_CHUNK, end - first);
        attn_linear_load_keys(&w->head, w->key, first, keys);
        attn_linear_load_values(&w->head, w->value, first, keys);
        multiply(w, w->turned, l->D_whole, w->value, l->E_whole, w->key, l->E,
                 (size_t)keys, true);
    }
}

/* z of one query of the chunk: of the state, and of the pairs that came to `sum`. */
static float denominator(const struct worker *w, int64_t i, float sum)
{
    const struct attn_linear *const l = w->head.linear;
    const float *const query = w->query + (size_t)i * l->D_whole;
    const float *const keys = w->turned + (l->E - 1) * l->D_whole;
    for (size_t d = 0; d < l->D_whole; d++)
        sum += query[d] * keys[d];
    return sum;
}

/* dN of a chunk; `sum` has what pairs give to each denominator. */
static void differentiate_sums(const struct worker *w, int64_t first, int64_t queries,
                               const float *sum)
{
    const struct attn_linear *const l = w->head.linear;
    const struct attn_problem *const problem = &l->problem;
    const int64_t Dv = problem->shape->Dv;
    const attn_input *const dO = &w->gradients->output;
    const attn_input O = attn_read_output(&problem->tensors->output);
    const void *const origin = attn_input_row(dO, w->head.sequence.b, w->head.head.h,
                                              w->head.sequence.first_query);
    for (int64_t i = 0; i < queries; i++) {
        float *const to = w->sums + (size_t)(first + i) * l->E_whole;
        const float z = denominator(w, i, sum[i]);
        memset(to, 0, l->E_whole * sizeof *to);
        if (z == 0.0f || attn_linear_visible_end(&w->head, first + i) == 0)
            continue;
        attn_linear_load(l, w->gradient, dO, origin, Dv, first + i, 1);
        attn_linear_load(l, w->output, &O, w->head.head.output, Dv, first + i, 1);
        float product = 0.0f;
        for (int64_t e = 0; e < Dv; e++) {
            product += w->gradient[e] * w->output[e];
            to[e] = w->gradient[e] / z;
        }
        to[Dv] = -product / z;
    }
}

/* Σ_j a_ij of the pairs that the state has not. */
static void sum_pairs(const struct worker *w, int64_t first, int64_t queries, int64_t key,
                      int64_t end, float *sum)
{
    memset(sum, 0, ATTN_LINEAR_CHUNK * sizeof *sum);
    for (; key < end; key += ATTN_LINEAR_CHUNK) {
        const int64_t keys = attn_least(ATTN_LINEAR_CHUNK, end - key);
        const struct attn_linear_pairs pairs = pairs_of(w, first, queries, key, keys);
        attn_linear_load_keys(&w->head, w->key, key, keys);
        attn_linear_pair(&w->head, &pairs);
        for (int64_t i = 0; i < queries; i++)
            for (int64_t j = 0; j < keys; j++)
                sum[i] += w->pairs[i * ATTN_LINEAR_CHUNK + j];
    }
}

static void take_queries(const struct worker *w, int64_t first, int64_t queries,
                         int64_t absorbed)
{
    const struct attn_linear *const l = w->head.linear;
    const struct attn_problem *const problem = &l->problem;
    const int64_t end = attn_linear_visible_end(&w->head, first + queries - 1);
    float sum[ATTN_LINEAR_CHUNK];
    attn_linear_load_queries(&w->head, w->query, first, queries);
    sum_pairs(w, first, queries, absorbed, end, sum);
    differentiate_sums(w, first, queries, sum);
    multiply(w, w->of_feature, l->D_whole, w->sums + (size_t)first * l->E_whole,
             l->E_whole, w->turned, (size_t)queries, l->E, false);
    for (int64_t key = absorbed; key < end; key += ATTN_LINEAR_CHUNK) {
        const int64_t keys = attn_least(ATTN_LINEAR_CHUNK, end - key);
        const struct attn_linear_pairs pairs = pairs_of(w, first, queries, key, keys);
        attn_linear_load_keys(&w->head, w->key, key, keys);
        attn_linear_load_values(&w->head, w->value, key, keys);
        find_pairs(w, &pairs);
        add_pairs(w, w->of_feature, l->D_whole, w->pair_gradients, w->key, queries, keys,
                  false);
    }
    attn_linear_load(l, w->slope, &problem->tensors->query, w->head.head.query,
                     problem->shape->D, first, queries);
    l->kernels->linear->slopes(w->of_feature, w->slope, (size_t)queries * l->D_whole,
                               l->options.feature);
    store_rows(w, &w->gradients->query, w->head.head.h, w->head.sequence.first_query,
               first, queries, problem->shape->D, w->of_feature, l->D_whole);
}

static void walk_forward(const struct worker *w)
{
    const struct attn_linear *const l = w->head.linear;
    const int64_t Lq = w->head.sequence.Lq;
    int64_t absorbed = 0;
    memset(w->turned, 0, l->E * l->D_whole * sizeof *w->turned);
    for (int64_t query = 0; query < Lq; query += ATTN_LINEAR_CHUNK) {
        const int64_t seen_by_all = attn_linear_visible_end(&w->head, query);
        absorb_keys(w, absorbed, seen_by_all);
        absorbed = seen_by_all;
        take_queries(w, query, attn_least(ATTN_LINEAR_CHUNK, Lq - query), absorbed);
    }
}

/* ---- Keys and values, walking backward ------------------------------------------------
 */

/* state += Σ φ(q_i) dN_iᵀ, and turned its transpose */
static void absorb_queries(const struct worker *w, int64_t first, int64_t end)
{
    const struct attn_linear *const l = w->head.linear;
    const size_t D = (size_t)l->problem.shape->D;
    for (; first < end; first += ATTN_LINEAR_CHUNK) {
        const int64_t queries = attn_least(ATTN_LINEAR_CHUNK, end - first);
        const float *const sums = w->sums + (size_t)first * l->E_whole;
        attn_linear_load_queries(&w->head, w->query, first, queries);
        multiply(w, w->state, l->E_whole, w->query, l->D_whole, sums, D, (size_t)queries,
                 true);
        multiply(w, w->turned, l->D_whole, sums, l->E_whole, w->query, l->E,
                 (size_t)queries, true);
    }
}

static void add_to(float *to, const float *from, size_t floats)
{
    for (size_t n = 0; n < floats; n++)
        to[n] += from[n];
}

/* Queries from seen_by_all on are in the state, those from `any` on see some of the keys.
 */
static void take_keys(const struct worker *w, int64_t first, int64_t keys, int64_t any,
                      int64_t seen_by_all)
{
    const struct attn_linear *const l = w->head.linear;
    const size_t rows = (size_t)keys, D = (size_t)l->problem.shape->D;
    attn_linear_load_keys(&w->head, w->key, first, keys);
    attn_linear_load_values(&w->head, w->value, first, keys);
    multiply(w, w->of_value, l->E_whole, w->key, l->D_whole, w->state, rows, D, false);
    multiply(w, w->of_feature, l->D_whole, w->value, l->E_whole, w->turned, rows, l->E,
             false);
    for (int64_t query = any; query < seen_by_all; query += ATTN_LINEAR_CHUNK) {
        const int64_t queries = attn_least(ATTN_LINEAR_CHUNK, seen_by_all - query);
        const struct attn_linear_pairs pairs = pairs_of(w, query, queries, first, keys);
        attn_linear_load_queries(&w->head, w->query, query, queries);
        find_pairs(w, &pairs);
        add_pairs(w, w->of_value, l->E_whole, w->pairs,
                  w->sums + (size_t)query * l->E_whole, keys, queries, true);
        add_pairs(w, w->of_feature, l->D_whole, w->pair_gradients, w->query, keys,
                  queries, true);
    }
    add_to(w->values + (size_t)first * l->E_whole, w->of_value, rows * l->E_whole);
    add_to(w->keys + (size_t)first * l->D_whole, w->of_feature, rows * l->D_whole);
}

/* Which query is the first to see the key. */
static int64_t first_query_of(const struct worker *w, int64_t key)
{
    const struct attn_sequence *const s = &w->head.sequence;
    if (!w->head.linear->problem.options->causal)
        return 0;
    return attn_clamp(key - s->offset, 0, s->Lq);
}

static void walk_backward(const struct worker *w)
{
    const struct attn_linear *const l = w->head.linear;
    const size_t D = (size_t)l->problem.shape->D;
    int64_t absorbed = w->head.sequence.Lq;
    memset(w->state, 0, D * l->E_whole * sizeof *w->state);
    memset(w->turned, 0, l->E * l->D_whole * sizeof *w->turned);
    for (int64_t end = w->head.sequence.Lk; end > 0;) {
        const int64_t first = (end - 1) / ATTN_LINEAR_CHUNK * ATTN_LINEAR_CHUNK;
        const int64_t seen_by_all = first_query_of(w, end - 1);
        absorb_queries(w, seen_by_all, absorbed);
        absorbed = seen_by_all;
        take_keys(w, first, end - first, first_query_of(w, first), seen_by_all);
        end = first;
    }
}

/* ---- All of it ------------------------------------------------------------------------
 */

static void store_keys(const struct worker *w, int64_t hk)
{
    const struct attn_linear *const l = w->head.linear;
    const struct attn_problem *const problem = &l->problem;
    const attn_shape *const shape = problem->shape;
    const struct attn_sequence *const s = &w->head.sequence;
    for (int64_t first = 0; first < s->Lk; first += ATTN_LINEAR_CHUNK) {
        const int64_t rows = attn_least(ATTN_LINEAR_CHUNK, s->Lk - first);
        float *const keys = w->keys + (size_t)first * l->D_whole;
        attn_linear_load(l, w->slope, &problem->tensors->key, w->head.head.key, shape->D,
                         first, rows);
        l->kernels->linear->slopes(keys, w->slope, (size_t)rows * l->D_whole,
                                   l->options.feature);
        store_rows(w, &w->gradients->key, hk, s->first_key, first, rows, shape->D, keys,
                   l->D_whole);
        store_rows(w, &w->gradients->value, hk, s->first_key, first, rows, shape->Dv,
                   w->values + (size_t)first * l->E_whole, l->E_whole);
    }
    if (problem->packed)
        return;
    attn_clear_rows(&w->gradients->key, s->b, hk, s->Lk, shape->Lk, shape->D);
    attn_clear_rows(&w->gradients->value, s->b, hk, s->Lk, shape->Lk, shape->Dv);
}

/* A key head with all query heads that read it. */
static void take_unit(struct worker *w, int64_t unit)
{
    const struct attn_linear *const l = w->head.linear;
    const struct attn_problem *const problem = &l->problem;
    const attn_shape *const shape = problem->shape;
    const int64_t hk = unit % shape->Hk, heads = shape->H / shape->Hk;
    w->head.sequence = attn_problem_sequence(problem, unit / shape->Hk);
    const size_t Lk = (size_t)w->head.sequence.Lk;
    memset(w->keys, 0, Lk * l->D_whole * sizeof *w->keys);
    memset(w->values, 0, Lk * l->E_whole * sizeof *w->values);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++) {
        w->head.head = attn_problem_head(problem, &w->head.sequence, h);
        walk_forward(w);
        walk_backward(w);
        if (!problem->packed)
            attn_clear_rows(&w->gradients->query, w->head.sequence.b, h,
                            w->head.sequence.Lq, shape->Lq, shape->D);
    }
    store_keys(w, hk);
}

struct work {
    struct attn_linear linear; /* first: what attn_linear_run hands to a task */
    const attn_gradients *gradients;
};

static void work(void *argument, size_t worker)
{
    struct work *const all = argument;
    struct attn_linear *const l = &all->linear;
    struct worker w = {.head.linear = l, .gradients = all->gradients};
    lay_out(&w, l, (float *)(l->scratch + worker * l->worker_bytes));
    for (;;) {
        const int64_t unit = atomic_fetch_add(&l->next, 1);
        if (unit >= l->problem.sequences * l->problem.shape->Hk)
            return;
        take_unit(&w, unit);
    }
}

attn_status attn_linear_backward(attn_context *context, const attn_shape *shape,
                                 const attn_tensors *tensors, const attn_options *options,
                                 const attn_linear_options *linear,
                                 const attn_gradients *gradients)
{
    static const char function[] = "attn_linear_backward";
    struct work all = {.gradients = gradients};
    ATTN_TRY(attn_linear_init(&all.linear, context, function, shape, tensors, options,
                              linear));
    ATTN_TRY(attn_check_given(context, function, "gradients", gradients));
    ATTN_TRY(attn_check_gradients(context, function, shape, options, gradients));
    if (all.linear.options.state)
        return attn_context_fail(context, ATTN_EUNSUPPORTED,
                                 "%s: linear.state is given, expected NULL", function);
    if (all.linear.problem.empty) {
        attn_clear_gradients(shape, gradients);
        return ATTN_OK;
    }
    struct worker w;
    all.linear.worker_bytes =
        attn_round_up(lay_out(&w, &all.linear, NULL) * sizeof(float));
    return attn_linear_run(&all.linear, context, all.linear.problem.sequences * shape->Hk,
                           work);
}

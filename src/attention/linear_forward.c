/* Linear attention, forward.  Keys that all queries to come will see are absorbed into
 * the state; what only some queries of a chunk see is multiplied pair by pair.  The three
 * forms differ in where that line is drawn: after each key, at the chunk's first query,
 * or never. */
#include "attention/forward.h"
#include "attention/linear.h"
#include "attention/rows.h"
#include <string.h>

/* Scratch of one worker. */
struct worker {
    struct attn_linear_head head;
    float *query, *key, *value; /* [chunk][D_whole or E_whole] */
    float *sum;                 /* [chunk][E_whole]: numerators, denominators */
    float *pairs;               /* [chunk][chunk] */
    float *transposed;          /* [D][chunk] */
    float *state;               /* [D][E_whole] */
    int64_t absorbed;           /* keys */
};

static size_t worker_floats(const struct attn_linear *l)
{
    const size_t chunk = ATTN_LINEAR_CHUNK, D = (size_t)l->problem.shape->D;
    return chunk * (2 * l->D_whole + 2 * l->E_whole + chunk + D) + D * l->E_whole;
}

static struct worker begin(const struct attn_linear *l, size_t worker)
{
    const size_t chunk = ATTN_LINEAR_CHUNK;
    struct worker w = {.head.linear = l};
    w.query = (float *)(l->scratch + worker * l->worker_bytes);
    w.key = w.query + chunk * l->D_whole;
    w.value = w.key + chunk * l->D_whole;
    w.sum = w.value + chunk * l->E_whole;
    w.pairs = w.sum + chunk * l->E_whole;
    w.transposed = w.pairs + chunk * chunk;
    w.state = w.transposed + chunk * (size_t)l->problem.shape->D;
    return w;
}

static void absorb(struct worker *w, int64_t end)
{
    const struct attn_linear *const l = w->head.linear;
    const bool by_key = l->options.form == ATTN_LINEAR_RECURRENT;
    while (w->absorbed < end) {
        const int64_t keys =
            attn_least(by_key ? 1 : ATTN_LINEAR_CHUNK, end - w->absorbed);
        attn_linear_load_keys(&w->head, w->key, w->absorbed, keys);
        attn_linear_load_values(&w->head, w->value, w->absorbed, keys);
        const struct attn_linear_product outer = {
            .out = w->state,
            .left = w->key,
            .left_stride = l->D_whole,
            .right = w->value,
            .rows = (size_t)l->problem.shape->D,
            .steps = (size_t)keys,
            .columns = l->E_whole,
            .transposed = true,
            .add = true,
        };
        attn_linear_multiply(l, &outer);
        w->absorbed += keys;
    }
}

static void add_pairs(struct worker *w, int64_t first, int64_t queries, int64_t key,
                      int64_t keys)
{
    const struct attn_linear *const l = w->head.linear;
    attn_linear_load_keys(&w->head, w->key, key, keys);
    attn_linear_load_values(&w->head, w->value, key, keys);
    const struct attn_linear_pairs pairs = {
        .pairs = w->pairs,
        .transposed = w->transposed,
        .left = w->query,
        .right = w->key,
        .size = (size_t)l->problem.shape->D,
        .whole_size = l->D_whole,
        .first_query = first,
        .queries = queries,
        .first_key = key,
        .keys = keys,
    };
    attn_linear_pair(&w->head, &pairs);
    const struct attn_linear_product weighted = {
        .out = w->sum,
        .left = w->pairs,
        .left_stride = ATTN_LINEAR_CHUNK,
        .right = w->value,
        .rows = (size_t)queries,
        .steps = (size_t)keys,
        .columns = l->E_whole,
        .add = true,
        .left_hides = true,
    };
    attn_linear_multiply(l, &weighted);
}

/* Numerators over denominators, 0 where the denominator is. */
static void store(const struct worker *w, int64_t first, int64_t queries)
{
    const struct attn_linear *const l = w->head.linear;
    const attn_output *const output = &l->problem.tensors->output;
    const size_t Dv = l->E - 1;
    for (int64_t i = 0; i < queries; i++) {
        float *const sum = w->sum + (size_t)i * l->E_whole;
        const bool sees =
            l->options.state || attn_linear_visible_end(&w->head, first + i);
        if (!sees || sum[Dv] == 0.0f)
            memset(sum, 0, Dv * sizeof *sum);
        else
            for (size_t e = 0; e < Dv; e++)
                sum[e] /= sum[Dv];
    }
    const struct attn_target to =
        attn_rows_to(output, w->head.head.output, first, queries, (int64_t)Dv);
    l->kernels->backward->put(&to, w->sum, l->E_whole, 1.0f);
}

static void attend(struct worker *w, int64_t first, int64_t queries)
{
    const struct attn_linear *const l = w->head.linear;
    const int64_t end = attn_linear_visible_end(&w->head, first + queries - 1);
    const bool is_quadratic = l->options.form == ATTN_LINEAR_QUADRATIC;
    absorb(w, is_quadratic ? 0 : attn_linear_visible_end(&w->head, first));
    attn_linear_load_queries(&w->head, w->query, first, queries);
    const struct attn_linear_product of_state = {
        .out = w->sum,
        .left = w->query,
        .left_stride = l->D_whole,
        .right = w->state,
        .rows = (size_t)queries,
        .steps = (size_t)l->problem.shape->D,
        .columns = l->E_whole,
    };
    attn_linear_multiply(l, &of_state);
    for (int64_t key = w->absorbed; key < end; key += ATTN_LINEAR_CHUNK)
        add_pairs(w, first, queries, key, attn_least(ATTN_LINEAR_CHUNK, end - key));
    store(w, first, queries);
}

/* The caller's state has no gaps. */
static float *callers_state(const struct worker *w)
{
    const struct attn_linear *const l = w->head.linear;
    const attn_shape *const shape = l->problem.shape;
    const int64_t unit = w->head.sequence.index * shape->H + w->head.head.h;
    return l->options.state + (size_t)(unit * shape->D) * l->E;
}

static void attend_head(struct worker *w)
{
    const struct attn_linear *const l = w->head.linear;
    const struct attn_sequence *const sequence = &w->head.sequence;
    const size_t D = (size_t)l->problem.shape->D;
    const int64_t chunk =
        l->options.form == ATTN_LINEAR_RECURRENT ? 1 : ATTN_LINEAR_CHUNK;
    w->absorbed = 0;
    memset(w->state, 0, D * l->E_whole * sizeof *w->state);
    for (size_t d = 0; d < D && l->options.state; d++)
        memcpy(w->state + d * l->E_whole, callers_state(w) + d * l->E,
               l->E * sizeof *w->state);
    for (int64_t query = 0; query < sequence->Lq; query += chunk)
        attend(w, query, attn_least(chunk, sequence->Lq - query));
    if (!l->options.state)
        return;
    absorb(w, sequence->Lk);
    for (size_t d = 0; d < D; d++)
        memcpy(callers_state(w) + d * l->E, w->state + d * l->E_whole,
               l->E * sizeof *w->state);
}

static void work(void *argument, size_t worker)
{
    struct attn_linear *const l = argument;
    const struct attn_problem *const problem = &l->problem;
    const attn_shape *const shape = problem->shape;
    struct worker w = begin(l, worker);
    for (;;) {
        const int64_t unit = atomic_fetch_add(&l->next, 1);
        if (unit >= problem->sequences * shape->H)
            return;
        w.head.sequence = attn_problem_sequence(problem, unit / shape->H);
        w.head.head = attn_problem_head(problem, &w.head.sequence, unit % shape->H);
        attend_head(&w);
        if (!problem->packed)
            attn_clear_rows(&problem->tensors->output, w.head.sequence.b, w.head.head.h,
                            w.head.sequence.Lq, shape->Lq, shape->Dv);
    }
}

/* The walk over all pairs that finds lse and statistics: softmax attention of the
 * logarithms of products, without values. */
struct look {
    struct attn_problem problem;
    attn_shape shape;
    attn_options options;
    struct attn_forward forward;
};

static bool is_looked_at(const attn_tensors *tensors)
{
    const attn_statistics *const wanted = &tensors->statistics;
    return tensors->lse || wanted->visible_keys || wanted->received ||
           attn_statistics_any(wanted);
}

static attn_status look_prepare(struct look *look, attn_context *context,
                                const struct attn_linear *l, const char *function)
{
    if (l->options.state)
        return attn_context_fail(context, ATTN_EUNSUPPORTED,
                                 "%s: linear.state is given with lse or statistics, "
                                 "expected one or the other: of keys that came before "
                                 "only sums are left",
                                 function);
    look->problem = l->problem;
    look->shape = *l->problem.shape;
    look->options = *l->problem.options;
    ATTN_TRY(attn_check_statistics(context, function, &look->problem));
    look->shape.Dv = 0;
    look->options.score = ATTN_SCORE_LINEAR;
    look->options.feature = l->options.feature;
    look->problem.shape = &look->shape;
    look->problem.options = &look->options;
    return attn_forward_layout(&look->forward, context, &look->problem);
}

attn_status attn_linear_forward(attn_context *context, const attn_shape *shape,
                                const attn_tensors *tensors, const attn_options *options,
                                const attn_linear_options *linear)
{
    static const char function[] = "attn_linear_forward";
    struct attn_linear l;
    ATTN_TRY(attn_linear_init(&l, context, function, shape, tensors, options, linear));
    l.worker_bytes = attn_round_up(worker_floats(&l) * sizeof(float));
    const int64_t units = l.problem.empty ? 0 : l.problem.sequences * shape->H;
    if (is_looked_at(tensors)) {
        struct look look;
        void *memory = NULL;
        ATTN_TRY(look_prepare(&look, context, &l, function));
        /* Both or neither: what the second of them takes is there before the first. */
        ATTN_TRY(attn_linear_reserve(&l, context, units));
        ATTN_TRY(attn_context_reserve(context, look.forward.scratch_bytes, &memory));
        ATTN_TRY(attn_forward_run(&look.forward, context));
    }
    return attn_linear_run(&l, context, units, work);
}

/* Hands out the units and the turns of the backward pass; see backward_units.h. */
#include "attention/backward_units.h"
#include "attention/backward_bias.h"
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* ---- Layout ---------------------------------------------------------------------------
 */

/* Turns that a head of the sequence takes: one even if it has no queries, so that its
 * unit is not forgotten. */
static int64_t turns_of_head(const struct attn_backward *backward, int64_t Lq)
{
    int64_t turns = 0, query = 0;
    do {
        query += attn_backward_group_queries(backward, Lq - query);
        turns++;
    } while (query < Lq);
    return turns;
}

static int64_t turns_of_all(const struct attn_backward *backward)
{
    int64_t turns = 0;
    for (int64_t s = 0; s < backward->problem.sequences; s++)
        turns += backward->problem.shape->H *
                 turns_of_head(backward, attn_problem_sequence(&backward->problem, s).Lq);
    return turns;
}

/* Turns pay when whole chains would leave threads idle, and when a unit has blocks of
 * keys enough to keep the workers apart. */
static void choose_workers(struct attn_backward_layout *layout, int64_t threads,
                           const struct attn_backward *backward)
{
    const int64_t chains = attn_chain_count(backward);
    const bool uneven = chains < 4 * threads && chains % threads != 0;
    const bool long_enough = backward->longest_keys > threads * ATTN_BLOCK_KEYS;
    layout->in_turns = threads > 1 && uneven && long_enough;
    layout->turns = layout->in_turns ? turns_of_all(backward) : 0;
    layout->workers = (size_t)threads;
    const int64_t most = layout->in_turns ? layout->turns : chains;
    if ((int64_t)layout->workers > most)
        layout->workers = most > 0 ? (size_t)most : 1;
}

/* a · b rounded up to whole cache lines; false on overflow. */
static bool multiply(size_t *result, size_t a, size_t b)
{
    if (__builtin_mul_overflow(a, b, result) || *result > SIZE_MAX / 2)
        return false;
    *result = attn_round_up(*result);
    return true;
}

attn_status attn_backward_lay_out(struct attn_backward_layout *layout,
                                  attn_context *context, const char *function,
                                  const struct attn_backward *backward)
{
    const attn_shape *const shape = backward->problem.shape;
    const size_t sequences = (size_t)backward->problem.sequences;
    const size_t row_bytes = (backward->D_whole + backward->Dv_whole) * sizeof(float);
    size_t group_bytes = 0, all_workers = 0, all_sums = 0;
    choose_workers(layout, (int64_t)context->threads, backward);
    const size_t sums = layout->in_turns ? 1 : layout->workers;
    const size_t heads = backward->gradients->sinks ? (size_t)shape->H : 0;
    const size_t biases = attn_bias_is_of_head(&backward->bias) ? (size_t)shape->H : 0;
    const size_t vectors =
        backward->gradients->additive ? (size_t)(shape->H * shape->D) : 0;
    layout->group_bytes = attn_round_up(sizeof(struct attn_backward_group));
    const bool fits =
        multiply(&layout->sink_bytes, sequences * sizeof(double), heads) &&
        multiply(&layout->bias_sum_bytes, sequences * sizeof(double), biases) &&
        multiply(&layout->vector_bytes, sequences * sizeof(double), vectors) &&
        multiply(&layout->progress_bytes, (size_t)layout->turns, sizeof(int64_t)) &&
        multiply(&layout->sums_bytes, (size_t)backward->longest_keys, row_bytes) &&
        multiply(&group_bytes, attn_backward_group_floats(backward), sizeof(float)) &&
        multiply(&layout->worker_bytes, layout->group_bytes + group_bytes, 1) &&
        multiply(&all_workers, layout->worker_bytes, layout->workers) &&
        multiply(&all_sums, layout->sums_bytes, sums) &&
        multiply(&layout->bias_bytes, backward->bias_floats, sizeof(float)) &&
        !__builtin_add_overflow(layout->sink_bytes + layout->progress_bytes, all_workers,
                                &layout->bytes) &&
        !__builtin_add_overflow(layout->bytes, layout->vector_bytes, &layout->bytes) &&
        !__builtin_add_overflow(layout->bytes, layout->bias_sum_bytes, &layout->bytes) &&
        !__builtin_add_overflow(layout->bytes, all_sums, &layout->bytes) &&
        !__builtin_add_overflow(layout->bytes, layout->bias_bytes, &layout->bytes);
    if (!fits)
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "%s: sums for %lld keys of size %lld do not fit any "
                                 "memory",
                                 function, (long long)backward->longest_keys,
                                 (long long)shape->D);
    return ATTN_OK;
}

/* ---- Units ----------------------------------------------------------------------------
 */

struct work {
    const struct attn_backward *backward;
    const struct attn_backward_layout *layout;
    double *sink_sums;         /* [sequences][H]; NULL if not wanted */
    double *bias_sums;         /* [sequences][H]; NULL unless the bias is of heads */
    double *vector_sums;       /* [sequences][H][D]; NULL if not wanted */
    _Atomic int64_t *progress; /* of each turn: keys of its unit below are done with */
    char *sums, *workers;
    _Atomic int64_t next; /* chain or turn */
};

static struct attn_backward_group *begin_worker(const struct work *work, size_t worker)
{
    const struct attn_backward *const backward = work->backward;
    const struct attn_backward_layout *const layout = work->layout;
    char *const memory = work->workers + worker * layout->worker_bytes;
    char *const sums = work->sums + (layout->in_turns ? 0 : worker * layout->sums_bytes);
    struct attn_backward_group *const group = (void *)memory;
    attn_backward_group_init(group, backward, (void *)(memory + layout->group_bytes));
    group->sums.key = (void *)sums;
    group->sums.value =
        group->sums.key + (size_t)backward->longest_keys * backward->D_whole;
    return group;
}

static bool keys_are_finite(const struct attn_backward *backward,
                            const struct attn_sequence *sequence, int64_t hk)
{
    const attn_input *const key = &backward->problem.tensors->key;
    if (sequence->Lk == 0)
        return true;
    const struct attn_matrix matrix = {
        .x = attn_element(key->data, key->type,
                          sequence->b * key->stride[0] + hk * key->stride[1] +
                              sequence->first_key * key->stride[2]),
        .row_stride = key->stride[2],
        .element_stride = key->stride[3],
        .rows = (size_t)sequence->Lk,
        .size = (size_t)backward->problem.shape->D,
        .type = key->type,
    };
    return backward->kernels->backward->is_finite(&matrix);
}

static void look_at_unit(struct attn_backward_group *group, int64_t unit)
{
    const struct attn_problem *const problem = &group->backward->problem;
    const int64_t Hk = problem->shape->Hk;
    group->walk.sequence = attn_problem_sequence(problem, unit / Hk);
    group->keys_finite =
        keys_are_finite(group->backward, &group->walk.sequence, unit % Hk);
}

static void begin_sums(const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    const size_t Lk = (size_t)group->walk.sequence.Lk;
    memset(group->sums.key, 0, Lk * backward->D_whole * sizeof(float));
    memset(group->sums.value, 0, Lk * backward->Dv_whole * sizeof(float));
}

static void store_rows(const struct attn_backward_group *group, const attn_output *x,
                       int64_t hk, const float *from, size_t whole_size, int64_t size,
                       float scale)
{
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const int64_t *const stride = x->stride;
    if (!x->data)
        return;
    const struct attn_target to = {
        .x = attn_place(x->data, x->type,
                        sequence->b * stride[0] + hk * stride[1] +
                            sequence->first_key * stride[2]),
        .row_stride = stride[2],
        .element_stride = stride[3],
        .rows = (size_t)sequence->Lk,
        .size = (size_t)size,
        .type = x->type,
    };
    group->backward->kernels->backward->put(&to, from, whole_size, scale);
}

/* The sums, and 0 for what is padding. */
static void store_sums(const struct attn_backward_group *group, int64_t hk)
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_problem *const problem = &backward->problem;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const attn_gradients *const gradients = backward->gradients;
    const attn_shape *const shape = problem->shape;
    const int64_t heads = shape->H / shape->Hk, b = sequence->b;
    store_rows(group, &gradients->key, hk, group->sums.key, backward->D_whole, shape->D,
               problem->options->scale);
    store_rows(group, &gradients->value, hk, group->sums.value, backward->Dv_whole,
               shape->Dv, 1.0f);
    if (problem->packed)
        return;
    attn_clear_rows(&gradients->key, b, hk, sequence->Lk, shape->Lk, shape->D);
    attn_clear_rows(&gradients->value, b, hk, sequence->Lk, shape->Lk, shape->Dv);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++)
        attn_clear_rows(&gradients->query, b, h, sequence->Lq, shape->Lq, shape->D);
}

/* What the group has of the gradients that belong to a head, not to a row. */
static void add_of_head(const struct work *work, const struct attn_backward_group *group)
{
    const attn_shape *const shape = work->backward->problem.shape;
    const size_t lanes = work->backward->kernels->lanes;
    const int64_t head = group->walk.sequence.index * shape->H + group->walk.head.h;
    if (work->sink_sums)
        work->sink_sums[head] += group->sink_sum;
    if (work->bias_sums)
        work->bias_sums[head] += group->bias_sum;
    for (int64_t d = 0; d < shape->D && work->vector_sums; d++) {
        const float *const from = group->vector_sums + (size_t)d * lanes;
        double sum = 0.0;
        for (size_t lane = 0; lane < lanes; lane++)
            sum += (double)from[lane];
        work->vector_sums[head * shape->D + d] += sum;
    }
}

static void take_unit(const struct work *work, struct attn_backward_group *group,
                      int64_t unit)
{
    const struct attn_problem *const problem = &work->backward->problem;
    const int64_t Hk = problem->shape->Hk, heads = problem->shape->H / Hk;
    const int64_t hk = unit % Hk;
    look_at_unit(group, unit);
    begin_sums(group);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++) {
        group->walk.head = attn_problem_head(problem, &group->walk.sequence, h);
        for (int64_t query = 0; query < group->walk.sequence.Lq;) {
            query = attn_backward_group_load(group, query);
            const struct attn_key_range keys = attn_backward_group_keys(group);
            const int64_t first = keys.first - keys.first % ATTN_BLOCK_KEYS;
            for (int64_t key = first; key < keys.end; key += ATTN_BLOCK_KEYS)
                attn_backward_group_show(group, key);
            attn_backward_group_store(group);
            add_of_head(work, group);
        }
    }
    store_sums(group, hk);
}

static void take_units(void *argument, size_t worker)
{
    struct work *const work = argument;
    struct attn_backward_group *const group = begin_worker(work, worker);
    const int64_t chains = attn_chain_count(work->backward);
    for (;;) {
        const int64_t index = atomic_fetch_add(&work->next, 1);
        if (index >= chains)
            return;
        const struct attn_chain chain = attn_chain_of(work->backward, index);
        for (int64_t n = 0; n < chain.count; n++)
            take_unit(work, group, chain.first + n * chain.step);
    }
}

/* ---- Turns ----------------------------------------------------------------------------
 */

/* Which turn a worker looks at.  Turns are counted over all units and heads, in the order
 * in which one worker alone would take them. */
struct cursor {
    int64_t turn, unit, h;
    int64_t first_query;
    bool first_of_unit, last_of_unit;
};

static void mark_ends(struct cursor *cursor, const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    const attn_shape *const shape = backward->problem.shape;
    const int64_t Lq = group->walk.sequence.Lq, heads = shape->H / shape->Hk;
    const int64_t hk = cursor->unit % shape->Hk;
    const int64_t queries =
        attn_backward_group_queries(backward, Lq - cursor->first_query);
    cursor->first_of_unit = cursor->h == hk * heads && cursor->first_query == 0;
    cursor->last_of_unit =
        cursor->h == (hk + 1) * heads - 1 && cursor->first_query + queries >= Lq;
}

static void begin_unit(struct cursor *cursor, struct attn_backward_group *group,
                       int64_t unit)
{
    const attn_shape *const shape = group->backward->problem.shape;
    cursor->unit = unit;
    cursor->h = unit % shape->Hk * (shape->H / shape->Hk);
    cursor->first_query = 0;
    look_at_unit(group, unit);
    mark_ends(cursor, group);
}

static void advance(struct cursor *cursor, struct attn_backward_group *group)
{
    const int64_t Lq = group->walk.sequence.Lq;
    cursor->turn++;
    if (cursor->last_of_unit) {
        begin_unit(cursor, group, cursor->unit + 1);
        return;
    }
    cursor->first_query +=
        attn_backward_group_queries(group->backward, Lq - cursor->first_query);
    if (cursor->first_query >= Lq) {
        cursor->first_query = 0;
        cursor->h++;
    }
    mark_ends(cursor, group);
}

enum { SPINS = 2000 }; /* some microseconds, then others may run */

/* Until the turn before this one is done with the keys below.  It is under way: turns are
 * handed out in order, and a worker that has one waits for nothing but the one before. */
static void await(const struct work *work, int64_t turn, int64_t keys)
{
    if (turn == 0)
        return;
    for (int64_t spin = 0;
         atomic_load_explicit(&work->progress[turn - 1], memory_order_acquire) < keys;)
        if (++spin % SPINS == 0)
            sched_yield();
}

static void report(const struct work *work, int64_t turn, int64_t keys)
{
    atomic_store_explicit(&work->progress[turn], keys, memory_order_release);
}

/* What is reported was awaited before, so that a turn done with some keys means that all
 * turns before it are. */
static void take_turn(const struct work *work, struct attn_backward_group *group,
                      const struct cursor *cursor)
{
    const struct attn_problem *const problem = &group->backward->problem;
    const int64_t turn = cursor->turn;
    const bool has_queries = group->walk.sequence.Lq > 0;
    group->walk.head = attn_problem_head(problem, &group->walk.sequence, cursor->h);
    if (cursor->first_of_unit) {
        await(work, turn, INT64_MAX);
        begin_sums(group);
    }
    if (has_queries) {
        attn_backward_group_load(group, cursor->first_query);
        const struct attn_key_range keys = attn_backward_group_keys(group);
        int64_t key = keys.first - keys.first % ATTN_BLOCK_KEYS;
        for (; key < keys.end; key += ATTN_BLOCK_KEYS) {
            await(work, turn, cursor->first_of_unit ? 0 : key + ATTN_BLOCK_KEYS);
            attn_backward_group_show(group, key);
            report(work, turn, key + ATTN_BLOCK_KEYS);
        }
        attn_backward_group_store(group);
    }
    await(work, turn, INT64_MAX);
    if (has_queries)
        add_of_head(work, group);
    if (cursor->last_of_unit)
        store_sums(group, cursor->unit % problem->shape->Hk);
    report(work, turn, INT64_MAX);
}

static void take_turns(void *argument, size_t worker)
{
    struct work *const work = argument;
    struct attn_backward_group *const group = begin_worker(work, worker);
    struct cursor cursor = {0};
    begin_unit(&cursor, group, 0);
    for (;;) {
        const int64_t turn = atomic_fetch_add(&work->next, 1);
        if (turn >= work->layout->turns)
            return;
        while (cursor.turn < turn)
            advance(&cursor, group);
        take_turn(work, group, &cursor);
    }
}

/* ---- All of it ------------------------------------------------------------------------
 */

/* to[n] = scale · Σ over sequences of sums[sequence][n] */
static void store_of_heads(float *to, const double *sums, int64_t sequences,
                           int64_t count, double scale)
{
    for (int64_t n = 0; n < count; n++) {
        double sum = 0.0;
        for (int64_t s = 0; s < sequences; s++)
            sum += sums[s * count + n];
        to[n] = (float)(sum * scale);
    }
}

void attn_backward_run(const attn_context *context, const struct attn_backward *backward,
                       const struct attn_backward_layout *layout, void *memory)
{
    char *const biases = (char *)memory + layout->sink_bytes;
    char *const vectors = biases + layout->bias_sum_bytes;
    char *const progress = vectors + layout->vector_bytes;
    char *const workers = progress + layout->progress_bytes;
    memset(memory, 0, (size_t)(progress - (char *)memory));
    struct work work = {
        .backward = backward,
        .layout = layout,
        .sink_sums = backward->gradients->sinks ? memory : NULL,
        .bias_sums = layout->bias_sum_bytes > 0 ? (void *)biases : NULL,
        .vector_sums = backward->gradients->additive ? (void *)vectors : NULL,
        .progress = (void *)progress,
        .workers = workers,
        .sums = workers + layout->workers * layout->worker_bytes,
    };
    for (int64_t turn = 0; turn < layout->turns; turn++)
        atomic_init(&work.progress[turn], 0);
    attn_context_run(context, layout->workers, layout->in_turns ? take_turns : take_units,
                     &work);
    const attn_shape *const shape = backward->problem.shape;
    const int64_t sequences = backward->problem.sequences;
    if (work.sink_sums)
        store_of_heads(backward->gradients->sinks, work.sink_sums, sequences, shape->H,
                       1.0);
    if (work.bias_sums)
        attn_backward_store_bias(backward, work.bias_sums);
    if (work.vector_sums)
        store_of_heads(backward->gradients->additive, work.vector_sums, sequences,
                       shape->H * shape->D, (double)backward->problem.options->scale);
}

/* Hands out the units and the turns of the backward pass; see backward_units.h. */
#include "attention/backward_units.h"
#include "attention/ahead.h"
#include "attention/backward_at_once.h"
#include "attention/backward_bias.h"
#include "attention/backward_forget.h"
#include "attention/backward_parts.h"
#include "attention/backward_sums.h"
#include "attention/rows.h"
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* ---- Layout ------------------------------------------------------------------------ */

/* Turns of queries that no row of a layout parts.  All but the last ones are of one size.
 */
static int64_t turns_of_queries(const struct attn_backward *backward,
                                const struct attn_sequence *sequence, int64_t first,
                                int64_t queries)
{
    const int64_t size = (int64_t)attn_backward_group_size(backward, sequence).lanes;
    int64_t turns = queries > 2 * size ? queries / size - 1 : 0;
    for (int64_t query = turns * size; query < queries; turns++)
        query += attn_backward_group_queries(backward, sequence, first + query,
                                             queries - query);
    return turns;
}

/* Turns that a head of the sequence takes: one even if it has no queries, so that its
 * unit is not forgotten. */
static int64_t turns_of_head(const struct attn_backward *backward,
                             const struct attn_sequence *sequence)
{
    const int64_t Lq = sequence->Lq;
    if (Lq == 0)
        return 1;
    const int64_t row = attn_queries_alike(&backward->problem, 0, Lq);
    const int64_t rows = Lq / row;
    return rows * turns_of_queries(backward, sequence, 0, row) +
           turns_of_queries(backward, sequence, rows * row, Lq % row);
}

static int64_t turns_of_all(const struct attn_backward *backward)
{
    const attn_shape *const shape = backward->problem.shape;
    int64_t turns = backward->problem.sequences * shape->Hk; /* to store the sums */
    for (int64_t s = 0, alike; s < backward->problem.sequences; s += alike) {
        const struct attn_sequence sequence =
            attn_problem_sequence(&backward->problem, s);
        alike = attn_sequences_alike(&backward->problem, s);
        turns += alike * shape->H * turns_of_head(backward, &sequence);
    }
    return turns;
}

/* Sums of gradients that workers may have for themselves, together. */
#define OWN_SUMS_BYTES ((int64_t)32 << 20)

/* Turns pay when whole chains would leave threads idle, or sums of each worker take too
 * much memory, and when a unit has blocks of keys enough to keep the workers apart. */
static void choose_workers(struct attn_backward_layout *layout, int64_t threads,
                           const struct attn_backward *backward)
{
    const int64_t chains = attn_chain_count(backward);
    const bool uneven = chains < 4 * threads && chains % threads != 0;
    const bool long_enough = backward->longest_keys > threads * ATTN_BLOCK_KEYS;
    const int64_t key_bytes =
        (int64_t)((backward->D_whole + backward->Dv_whole) * sizeof(float));
    const bool large = backward->longest_keys > OWN_SUMS_BYTES / threads / key_bytes;
    layout->in_turns = threads > 1 && (uneven || large) && long_enough;
    layout->turns = layout->in_turns ? turns_of_all(backward) : 0;
    layout->workers = (size_t)threads;
    const int64_t most = layout->in_turns ? layout->turns : chains;
    if ((int64_t)layout->workers > most)
        layout->workers = most > 0 ? (size_t)most : 1;
}

/* Of a turn: keys of its unit below are done with.  A cache line each, since one worker
 * writes while another one watches. */
struct attn_progress {
    _Alignas(64) _Atomic int64_t keys;
};

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
    const bool forgets = backward->gradients->log_forget.data;
    const size_t forget = forgets ? (size_t)(shape->Lk + shape->Lq) : 0;
    layout->group_bytes = attn_round_up(sizeof(struct attn_backward_group));
    const bool fits =
        multiply(&layout->sink_bytes, sequences * sizeof(double), heads) &&
        multiply(&layout->bias_sum_bytes, sequences * sizeof(double), biases) &&
        multiply(&layout->vector_bytes, sequences * sizeof(double), vectors) &&
        multiply(&layout->forget_bytes, (size_t)(shape->B * shape->H) * sizeof(double),
                 forget) &&
        multiply(&layout->progress_bytes, (size_t)layout->turns,
                 sizeof(struct attn_progress)) &&
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
        !__builtin_add_overflow(layout->bytes, layout->forget_bytes, &layout->bytes) &&
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

/* ---- Units ------------------------------------------------------------------------- */

struct work {
    const struct attn_backward *backward;
    const struct attn_backward_layout *layout;
    double *sink_sums;              /* [sequences][H]; NULL if not wanted */
    double *bias_sums;              /* [sequences][H]; NULL unless the bias is of heads */
    double *vector_sums;            /* [sequences][H][D]; NULL if not wanted */
    double *forget_sums;            /* [B][H][Lk]; NULL if not wanted */
    double *forget_rows;            /* [B][H][Lq]; likewise */
    struct attn_progress *progress; /* of each turn */
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
    if (backward->parts)
        backward->parts->open();
    return group;
}

static void end_worker(const struct work *work)
{
    if (work->backward->parts)
        work->backward->parts->close();
}

static void look_at_unit(struct attn_backward_group *group, int64_t unit)
{
    const struct attn_problem *const problem = &group->backward->problem;
    const int64_t Hk = problem->shape->Hk;
    group->walk.sequence = attn_problem_sequence(problem, unit / Hk);
    attn_backward_look_at_keys(group, unit % Hk);
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

static void take_head(const struct work *work, struct attn_backward_group *group,
                      int64_t h)
{
    const attn_shape *const shape = work->backward->problem.shape;
    const struct attn_sequence *const sequence = &group->walk.sequence;
    const int64_t head = sequence->b * shape->H + h;
    attn_walk_take_head(&group->walk, h);
    if (work->forget_sums)
        group->forget_sums = work->forget_sums + head * shape->Lk + sequence->first_key;
    if (work->forget_rows)
        group->forget_rows = work->forget_rows + head * shape->Lq + sequence->first_query;
}

/* Calls next ahead, the unit that this worker takes then; −1: none. */
static void take_unit(const struct work *work, struct attn_backward_group *group,
                      int64_t unit, int64_t next)
{
    const struct attn_problem *const problem = &work->backward->problem;
    const int64_t Hk = problem->shape->Hk, heads = problem->shape->H / Hk;
    const int64_t hk = unit % Hk;
    look_at_unit(group, unit);
    const struct attn_key_range all = {0, group->walk.sequence.Lk};
    group->at_once = attn_backward_goes_at_once(group);
    group->gathered = (struct attn_key_range){0, 0};
    if (!group->at_once)
        attn_backward_clear_sums(group, all.first, all.end);
    group->walk.calls = next >= 0 ? &group->calls : NULL;
    if (next >= 0)
        attn_backward_list_ahead(&group->calls, work->backward, next);
    for (int64_t h = hk * heads; h < (hk + 1) * heads; h++) {
        take_head(work, group, h);
        for (int64_t query = 0; query < group->walk.sequence.Lq;) {
            query = attn_backward_group_load(group, query);
            const struct attn_key_range keys = attn_backward_group_keys(group);
            const int64_t first = keys.first - keys.first % ATTN_BLOCK_KEYS;
            for (int64_t key = first; key < keys.end;
                 key = attn_next_block(&group->walk, group->first_query, key))
                attn_backward_group_show(group, key);
            attn_backward_group_store(group);
            add_of_head(work, group);
        }
    }
    if (group->at_once)
        attn_backward_clear_unseen(group);
    else
        attn_backward_store_sums(group, hk, all);
    attn_backward_clear_padding(group, hk);
}

/* Short sequences are taken by runs, so that a worker reads memory along. */
static int64_t chains_of_run(const struct work *work, int64_t chains)
{
    const int64_t share = chains / (8 * (int64_t)work->layout->workers);
    return work->backward->longest_keys > ATTN_BLOCK_KEYS ? 1 : attn_clamp(share, 1, 16);
}

static void take_units(void *argument, size_t worker)
{
    struct work *const work = argument;
    struct attn_backward_group *const group = begin_worker(work, worker);
    const int64_t chains = attn_chain_count(work->backward);
    const int64_t run = chains_of_run(work, chains);
    const bool calls = attn_backward_calls_ahead(work->backward);
    for (int64_t index = 0, end = 0;; index++) {
        if (index == end) {
            index = atomic_fetch_add(&work->next, run);
            end = attn_least(index + run, chains);
        }
        if (index >= chains)
            break;
        const struct attn_chain chain = attn_chain_of(work->backward, index);
        const int64_t next =
            calls && chain.count == 1 && index + 1 < end ? chain.first + 1 : -1;
        for (int64_t n = 0; n < chain.count; n++)
            take_unit(work, group, chain.first + n * chain.step, next);
    }
    end_worker(work);
}

/* ---- Turns ------------------------------------------------------------------------- */

/* Which turn a worker looks at.  Turns are counted over all units and heads, in the order
 * in which one worker alone would take them; a last one for each unit stores its sums. */
struct cursor {
    int64_t turn, unit, h;
    int64_t first_query;
    bool first_of_unit, last_of_unit, stores;
};

static void mark_ends(struct cursor *cursor, const struct attn_backward_group *group)
{
    const struct attn_backward *const backward = group->backward;
    const attn_shape *const shape = backward->problem.shape;
    const int64_t Lq = group->walk.sequence.Lq, heads = shape->H / shape->Hk;
    const int64_t hk = cursor->unit % shape->Hk;
    const int64_t queries = attn_backward_group_queries(
        backward, &group->walk.sequence, cursor->first_query, Lq - cursor->first_query);
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
    cursor->stores = false;
    look_at_unit(group, unit);
    mark_ends(cursor, group);
}

static void advance(struct cursor *cursor, struct attn_backward_group *group)
{
    const int64_t Lq = group->walk.sequence.Lq;
    cursor->turn++;
    if (cursor->stores) {
        begin_unit(cursor, group, cursor->unit + 1);
        return;
    }
    if (cursor->last_of_unit) {
        cursor->stores = true;
        return;
    }
    cursor->first_query +=
        attn_backward_group_queries(group->backward, &group->walk.sequence,
                                    cursor->first_query, Lq - cursor->first_query);
    if (cursor->first_query >= Lq) {
        cursor->first_query = 0;
        cursor->h++;
    }
    mark_ends(cursor, group);
}

enum { SPINS = 2000 }; /* some microseconds, then others may run */

/* Until the turn before this one is done with the keys below.  It is under way: turns are
 * handed out in order, and a worker that has one waits for nothing but the one before.
 * What a turn reports it awaited before, so its being done means that all are. */
static void await(const struct work *work, int64_t turn, int64_t keys)
{
    if (turn == 0)
        return;
    _Atomic int64_t *const done = &work->progress[turn - 1].keys;
    for (int64_t spin = 0; atomic_load_explicit(done, memory_order_acquire) < keys;)
        if (++spin % SPINS == 0)
            sched_yield();
}

static void report(const struct work *work, int64_t turn, int64_t keys)
{
    atomic_store_explicit(&work->progress[turn].keys, keys, memory_order_release);
}

/* Shows the group its keys, block by block.  The first turn of a unit clears each block
 * of the sums before, and in the end those it did not come to. */
static void show_blocks(const struct work *work, struct attn_backward_group *group,
                        const struct cursor *cursor, struct attn_key_range keys)
{
    const int64_t Lk = group->walk.sequence.Lk;
    const int64_t end = cursor->first_of_unit ? Lk : keys.end;
    int64_t key = keys.first - keys.first % ATTN_BLOCK_KEYS, cleared = 0;
    for (; key < end; key += ATTN_BLOCK_KEYS) {
        await(work, cursor->turn, key + ATTN_BLOCK_KEYS);
        if (cursor->first_of_unit) {
            const int64_t next = attn_least(key + ATTN_BLOCK_KEYS, Lk);
            attn_backward_clear_sums(group, cleared, next);
            cleared = next;
        }
        if (key < keys.end)
            attn_backward_group_show(group, key);
        report(work, cursor->turn, key + ATTN_BLOCK_KEYS);
    }
    if (cursor->first_of_unit && cleared < Lk) {
        await(work, cursor->turn, INT64_MAX);
        attn_backward_clear_sums(group, cleared, Lk);
    }
}

static void take_turn(const struct work *work, struct attn_backward_group *group,
                      const struct cursor *cursor)
{
    const bool has_queries = group->walk.sequence.Lq > 0;
    struct attn_key_range keys = {0, 0};
    take_head(work, group, cursor->h);
    if (has_queries) {
        attn_backward_group_load(group, cursor->first_query);
        keys = attn_backward_group_keys(group);
    }
    show_blocks(work, group, cursor, keys);
    if (has_queries)
        attn_backward_group_store(group);
    await(work, cursor->turn, INT64_MAX);
    if (has_queries)
        add_of_head(work, group);
    report(work, cursor->turn, INT64_MAX);
}

/* Follows the last turn of the unit over its keys. */
static void take_storing_turn(const struct work *work,
                              const struct attn_backward_group *group,
                              const struct cursor *cursor)
{
    const int64_t hk = cursor->unit % group->backward->problem.shape->Hk;
    const int64_t Lk = group->walk.sequence.Lk;
    attn_backward_clear_padding(group, hk);
    for (int64_t key = 0; key < Lk; key += ATTN_BLOCK_KEYS) {
        const int64_t next = key + ATTN_BLOCK_KEYS;
        await(work, cursor->turn, next);
        attn_backward_store_sums(group, hk,
                                 (struct attn_key_range){key, attn_least(next, Lk)});
        report(work, cursor->turn, next);
    }
    await(work, cursor->turn, INT64_MAX);
    report(work, cursor->turn, INT64_MAX);
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
            break;
        while (cursor.turn < turn)
            advance(&cursor, group);
        if (cursor.stores)
            take_storing_turn(work, group, &cursor);
        else
            take_turn(work, group, &cursor);
    }
    end_worker(work);
}

/* ---- All of it --------------------------------------------------------------------- */

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
    char *const forget = vectors + layout->vector_bytes;
    char *const progress = forget + layout->forget_bytes;
    char *const workers = progress + layout->progress_bytes;
    memset(memory, 0, (size_t)(progress - (char *)memory));
    struct work work = {
        .backward = backward,
        .layout = layout,
        .sink_sums = backward->gradients->sinks ? memory : NULL,
        .bias_sums = layout->bias_sum_bytes > 0 ? (void *)biases : NULL,
        .vector_sums = backward->gradients->additive ? (void *)vectors : NULL,
        .forget_sums = layout->forget_bytes > 0 ? (void *)forget : NULL,
        .progress = (void *)progress,
        .workers = workers,
        .sums = workers + layout->workers * layout->worker_bytes,
    };
    const attn_shape *const shape = backward->problem.shape;
    if (work.forget_sums)
        work.forget_rows = work.forget_sums + shape->B * shape->H * shape->Lk;
    for (int64_t turn = 0; turn < layout->turns; turn++)
        atomic_init(&work.progress[turn].keys, 0);
    attn_context_run(context, layout->workers, layout->in_turns ? take_turns : take_units,
                     &work);
    const int64_t sequences = backward->problem.sequences;
    if (work.sink_sums)
        store_of_heads(backward->gradients->sinks, work.sink_sums, sequences, shape->H,
                       1.0);
    if (work.bias_sums)
        attn_backward_store_bias(backward, work.bias_sums);
    if (work.forget_sums)
        attn_backward_store_forget(backward, work.forget_sums, work.forget_rows);
    if (work.vector_sums)
        store_of_heads(backward->gradients->additive, work.vector_sums, sequences,
                       shape->H * shape->D, (double)backward->problem.options->scale);
}

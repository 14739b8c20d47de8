/* The mass that each key received: Σ over queries of weight[query][key].
 *
 * A unit is a run of keys of one head; all queries that see it pass over it in order,
 * their weights computed again from the scores, so each sum is taken in one order
 * whatever the threads, and memory stays linear. */
#include "attention/forward.h"
#include "attention/widen.h"
#include <string.h>

/* Loading the queries costs one unit in CHUNK_KEYS of the work. */
enum { CHUNK_BLOCKS = 4, CHUNK_KEYS = CHUNK_BLOCKS * ATTN_BLOCK_KEYS };

/* Laid out in the worker's part of the scratch, which is larger: see attn_forward. */
struct receiver {
    struct attn_panel panel;
    struct attn_block block;
    struct attn_walk walk;
    float received[CHUNK_KEYS * 16]; /* [key][lane of a vector] */
    float *scores;
};

static void receive_panel(struct receiver *receiver, const struct attn_forward *forward,
                          int64_t first, int64_t end)
{
    struct attn_panel *const panel = &receiver->panel;
    const size_t width = panel->vectors * forward->kernels->lanes;
    const int64_t row = receiver->walk.head.row + panel->first_query;
    float inverse[ATTN_PANEL_LANES] = {0.0f};
    memset(panel->reference, 0, width * sizeof *panel->reference);
    for (int64_t i = 0; i < panel->queries; i++) {
        panel->reference[i] = forward->references[row + i];
        inverse[i] = forward->inverses[row + i];
    }
    for (int64_t key = first; key < end; key += ATTN_BLOCK_KEYS) {
        const int64_t stop = attn_least(key + ATTN_BLOCK_KEYS, end);
        attn_widen(&receiver->walk, key, stop);
        if (!attn_block_show(&receiver->block, panel, &receiver->walk, key, stop))
            continue;
        forward->kernels->score(receiver->scores, panel, &receiver->block);
        float *const received =
            receiver->received +
            (size_t)(receiver->block.first_key - first) * forward->kernels->lanes;
        forward->kernels->receive(received, panel, receiver->scores, inverse,
                                  receiver->block.keys);
    }
}

static void receive_chunk(struct receiver *receiver, const struct attn_forward *forward,
                          int64_t first, int64_t end)
{
    const struct attn_walk *const walk = &receiver->walk;
    const size_t lanes = forward->kernels->lanes;
    memset(receiver->received, 0, (size_t)(end - first) * lanes * sizeof(float));
    for (int64_t next = 0; next < walk->sequence.Lq;) {
        const int64_t queries =
            attn_next_panel(forward->kernels, walk->sequence.Lq - next);
        receiver->panel.first_query = next;
        receiver->panel.queries = queries;
        const struct attn_key_range seen = attn_panel_keys(&receiver->panel, walk);
        if (seen.first < end && seen.end > first) {
            attn_panel_load(&receiver->panel, walk, next, queries);
            receive_panel(receiver, forward, first, end);
        }
        next += queries;
    }

    const attn_shape *const shape = forward->problem->shape;
    float *const to = forward->problem->tensors->statistics.received +
                      (walk->sequence.b * shape->H + walk->head.h) * shape->Lk +
                      walk->sequence.first_key;
    for (int64_t key = first; key < end; key++) {
        const float *const from = receiver->received + (size_t)(key - first) * lanes;
        float sum = 0.0f;
        for (size_t lane = 0; lane < lanes; lane++)
            sum += from[lane];
        to[key] = sum;
    }
}

static int64_t chunks_of(int64_t Lk)
{
    return (Lk + CHUNK_KEYS - 1) / CHUNK_KEYS;
}

static void work(void *argument, size_t worker)
{
    struct attn_forward *const forward = argument;
    const struct attn_problem *const problem = forward->problem;
    const int64_t H = problem->shape->H;
    struct receiver *const receiver =
        (struct receiver *)((char *)forward->scratch + worker * forward->worker_bytes);
    receiver->panel.D = (size_t)problem->shape->D;
    receiver->panel.query = (float *)((char *)receiver + attn_round_up(sizeof *receiver));
    const size_t width = (size_t)attn_panel_queries(forward->kernels);
    receiver->scores =
        receiver->panel.query + attn_query_floats(problem, forward->kernels);
    receiver->walk = (struct attn_walk){
        .problem = problem,
        .kernels = forward->kernels,
        .added = attn_added_floats(problem, forward->kernels) > 0
                     ? receiver->scores + ATTN_BLOCK_KEYS * width
                     : NULL,
    };
    attn_wide_init(&receiver->walk,
                   receiver->scores + ATTN_BLOCK_KEYS * width +
                       attn_added_floats(problem, forward->kernels),
                   false);

    int64_t sequence = -1, first_unit = 0, end_unit = 0, chunks = 0;
    for (;;) {
        const int64_t unit = atomic_fetch_add(&forward->next, 1);
        if (unit >= forward->receive_units)
            return;
        while (unit >= end_unit) {
            receiver->walk.sequence = attn_problem_sequence(problem, ++sequence);
            chunks = chunks_of(receiver->walk.sequence.Lk);
            first_unit = end_unit;
            end_unit = first_unit + chunks * H;
        }
        const int64_t nth = unit - first_unit, first = nth % chunks * CHUNK_KEYS;
        receiver->walk.head =
            attn_problem_head(problem, &receiver->walk.sequence, nth / chunks);
        receive_chunk(receiver, forward, first,
                      attn_least(first + CHUNK_KEYS, receiver->walk.sequence.Lk));
    }
}

size_t attn_receiver_bytes(const struct attn_problem *problem,
                           const struct attn_kernels *kernels)
{
    const size_t width = (size_t)attn_panel_queries(kernels);
    const size_t floats = attn_query_floats(problem, kernels) + ATTN_BLOCK_KEYS * width +
                          attn_added_floats(problem, kernels) +
                          attn_wide_floats(problem, kernels, false);
    return attn_round_up(sizeof(struct receiver)) + attn_round_up(floats * sizeof(float));
}

void attn_receive(struct attn_forward *forward, const attn_context *context)
{
    const struct attn_problem *const problem = forward->problem;
    const attn_shape *const shape = problem->shape;
    /* Padding keys received nothing. */
    memset(problem->tensors->statistics.received, 0,
           (size_t)(shape->B * shape->H * shape->Lk) * sizeof(float));
    forward->receive_units = 0;
    for (int64_t s = 0; s < problem->sequences && !problem->empty; s++)
        forward->receive_units +=
            shape->H * chunks_of(attn_problem_sequence(problem, s).Lk);
    forward->next = 0;
    attn_context_run(context, forward->workers, work, forward);
}

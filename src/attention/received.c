/* Keeps weights, and adds them up. */
#include "attention/received.h"
#include "attention/forward.h"
#include "attention/widen.h"
#include "kernel/pair_table.h"
#include <math.h>
#include <string.h>

/* More would balance more threads at the price of a row each. */
enum { MOST_UNITS = 8 };

/* What a group keeps should lie in the second cache, if more than one panel is to share
 * keys and values for it.  Where these are split for products they do not lie there
 * either, and four panels gain more by sharing them: .8 to .9 of the time, but 1.03 with
 * causal, 2,048 keys and D = 64. */
#define GROUP_BYTES ((size_t)512 << 10)
#define GROUP_BYTES_OF_PARTS ((size_t)8 << 20)

/* ---- Layout
 * -----------------------------------------------------------------------------
 */

/* Blocks that the keys of a panel may touch. */
static size_t room_of(const struct attn_problem *problem,
                      const struct attn_kernels *kernels, int64_t Lk)
{
    return attn_blocks_near(problem, Lk, attn_panel_queries(kernels));
}

/* Runs of a block that a panel may see: of a layout's blocks, and one more where the sink
 * keys end. */
static size_t runs_of(const struct attn_problem *problem)
{
    return attn_has_runs(problem) ? ATTN_BLOCK_KEYS / 16 + 1 : 1;
}

static size_t block_floats(const struct attn_kernels *kernels)
{
    return ATTN_BLOCK_KEYS * (size_t)attn_panel_queries(kernels);
}

static size_t bytes_of_panel(const struct attn_problem *problem,
                             const struct attn_kernels *kernels, int64_t Lk)
{
    return room_of(problem, kernels, Lk) *
           (block_floats(kernels) * sizeof(float) +
            runs_of(problem) * sizeof(struct attn_kept_block));
}

struct attn_share attn_received_share(const struct attn_problem *problem,
                                      const struct attn_kernels *kernels,
                                      const struct attn_sequence *sequence)
{
    const size_t bytes = bytes_of_panel(problem, kernels, sequence->Lk) + 1;
    const int64_t least = problem->options->blocks.data ? 2 : 1;
    const struct attn_pair_kernels *const pairs = attn_pairs_for(problem, kernels);
    const size_t most =
        attn_pairs_pay(pairs, problem->shape, sequence) && pairs->parts > 1
            ? GROUP_BYTES_OF_PARTS
            : GROUP_BYTES;
    const int64_t panels = attn_clamp((int64_t)(most / bytes), least, ATTN_USUAL_PANELS);
    const int64_t size = attn_group_queries(problem, kernels, panels);
    const int64_t all = sequence->Lq > 0 ? (sequence->Lq + size - 1) / size : 1;
    const int64_t groups = (all + MOST_UNITS - 1) / MOST_UNITS;
    return (struct attn_share){panels, size, groups, (all + groups - 1) / groups};
}

size_t attn_kept_bytes(const struct attn_problem *problem,
                       const struct attn_kernels *kernels)
{
    size_t most = 0;
    for (int64_t s = 0; s < problem->sequences; s += attn_sequences_alike(problem, s)) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        if (attn_decode_takes(problem, &sequence))
            continue;
        const struct attn_share share = attn_received_share(problem, kernels, &sequence);
        const size_t bytes =
            (size_t)share.panels * bytes_of_panel(problem, kernels, sequence.Lk);
        most = bytes > most ? bytes : most;
    }
    return attn_round_up(most);
}

size_t attn_received_rows(const struct attn_problem *problem,
                          const struct attn_kernels *kernels)
{
    int64_t most = 1;
    for (int64_t s = 0; s < problem->sequences; s += attn_sequences_alike(problem, s)) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        const struct attn_share share = attn_received_share(problem, kernels, &sequence);
        most = share.units > most ? share.units : most;
    }
    return (size_t)most - 1;
}

void attn_kept_init(struct attn_kept *kept, const struct attn_share *share,
                    const struct attn_walk *walk, void *memory, float *received)
{
    const size_t room = room_of(walk->problem, walk->kernels, walk->sequence.Lk);
    const size_t runs = runs_of(walk->problem);
    const size_t floats = block_floats(walk->kernels), panels = (size_t)share->panels;
    float *const weights = memory;
    struct attn_kept_block *const blocks = (void *)(weights + panels * room * floats);
    for (size_t p = 0; p < panels; p++) {
        kept[p].room = room;
        kept[p].runs = runs;
        kept[p].stride = floats;
        kept[p].received = received;
        kept[p].weights = weights + p * room * floats;
        kept[p].blocks = blocks + p * room * runs;
        for (size_t n = 0; n < room * runs; n++) {
            kept[p].blocks[n].keys = 0;
            kept[p].blocks[n].current = false;
        }
    }
}

/* ---- One panel's weights
 * ----------------------------------------------------------------
 */

/* Where the weights of key lie, and the runs of its block. */
static float *weights_of(const struct attn_kept *kept, int64_t key, size_t width)
{
    const size_t n = (size_t)(key / ATTN_BLOCK_KEYS) % kept->room;
    return kept->weights + n * kept->stride + (size_t)(key % ATTN_BLOCK_KEYS) * width;
}

static struct attn_kept_block *runs_at(const struct attn_kept *kept, int64_t key)
{
    const size_t n = (size_t)(key / ATTN_BLOCK_KEYS) % kept->room;
    return kept->blocks + n * kept->runs;
}

static void add_block(const struct attn_kept *kept, struct attn_kept_block *block,
                      const struct attn_kernels *kernels)
{
    if (block->keys == 0)
        return;
    const struct attn_received from = {
        .weights = weights_of(kept, block->first_key, kept->vectors * kernels->lanes),
        .reference = block->reference,
        .last_reference = kept->reference,
        .inverse = kept->inverse,
        .vectors = kept->vectors,
        .keys = block->keys,
    };
    kernels->receive(kept->received + block->first_key, &from);
    block->keys = 0;
}

float *attn_kept_open(struct attn_kept *kept, const struct attn_kernels *kernels,
                      const struct attn_panel *panel, const struct attn_block *block)
{
    struct attn_kept_block *const runs = runs_at(kept, block->first_key);
    for (size_t n = 0; n < kept->runs; n++)
        if (!runs[n].current)
            add_block(kept, &runs[n], kernels);
    return weights_of(kept, block->first_key, panel->vectors * kernels->lanes);
}

void attn_kept_note(struct attn_kept *kept, const struct attn_panel *panel,
                    const struct attn_block *block)
{
    struct attn_kept_block *to = runs_at(kept, block->first_key);
    while (to->keys > 0) /* an earlier run of the block */
        to++;
    to->keys = block->keys;
    to->first_key = block->first_key;
    to->current = true;
    memcpy(to->reference, panel->reference, sizeof to->reference);
}

/* A row with a NaN gives NaN to every key that it sees, and nothing to the others, nor
 * for a score of −∞: weights alone cannot tell these from those too small for fp32. */
static void spread_nan(struct attn_kept *kept, struct attn_panel *panel,
                       const struct attn_walk *walk, struct attn_block *block,
                       float *scores)
{
    const size_t width = panel->vectors * walk->kernels->lanes;
    struct attn_walk again = *walk;
    again.visible_keys = NULL; /* counted already */
    for (size_t n = 0; n < kept->room * kept->runs; n++) {
        const struct attn_kept_block *const from = &kept->blocks[n];
        if (from->keys == 0)
            continue;
        const int64_t first = from->first_key, end = first + (int64_t)from->keys;
        attn_widen(&again, first, end);
        attn_block_show(block, panel, &again, first, end);
        attn_score_block(walk, scores, panel, block);
        for (size_t lane = 0; lane < width; lane++)
            for (size_t i = 0; isnan(kept->inverse[lane]) && i < from->keys; i++)
                if (scores[i * width + lane] != -INFINITY)
                    kept->received[first + (int64_t)i] = NAN;
    }
    for (size_t lane = 0; lane < width; lane++)
        if (isnan(kept->inverse[lane]))
            kept->inverse[lane] = 0.0f; /* its weights are nothing to others */
}

void attn_kept_finish(struct attn_kept *kept, struct attn_panel *panel,
                      const float *inverse, const struct attn_walk *walk,
                      struct attn_block *block, float *scores)
{
    for (size_t n = 0; n < kept->room * kept->runs; n++) {
        if (!kept->blocks[n].current)
            add_block(kept, &kept->blocks[n], walk->kernels);
        kept->blocks[n].current = false;
    }
    kept->vectors = panel->vectors;
    memcpy(kept->reference, panel->reference, sizeof kept->reference);
    memcpy(kept->inverse, inverse, sizeof kept->inverse);
    bool any_nan = false;
    for (int64_t i = 0; i < panel->queries; i++)
        any_nan = any_nan || isnan(inverse[i]);
    if (any_nan)
        spread_nan(kept, panel, walk, block, scores);
}

void attn_kept_flush(struct attn_kept *kept, const struct attn_kernels *kernels)
{
    for (size_t n = 0; n < kept->room * kept->runs; n++)
        add_block(kept, &kept->blocks[n], kernels);
}

/* ---- Rows of units
 * ----------------------------------------------------------------------
 */

float *attn_received_row(const struct attn_forward *forward,
                         const struct attn_sequence *sequence, int64_t h, int64_t n)
{
    const attn_shape *const shape = forward->problem->shape;
    const int64_t at = (sequence->b * shape->H + h) * shape->Lk + sequence->first_key;
    if (n == 0)
        return forward->problem->tensors->statistics.received + at;
    return forward->received + (n - 1) * shape->B * shape->H * shape->Lk + at;
}

void attn_received_weigh(float *scores, int64_t keys, const struct attn_kernels *kernels,
                         float reference, float inverse)
{
    struct attn_panel row = {.vectors = 1};
    const size_t lanes = kernels->lanes, count = (size_t)keys, left = count % lanes;
    float inverses[ATTN_PANEL_LANES], last[ATTN_PANEL_LANES] = {0.0f};
    for (size_t lane = 0; lane < lanes; lane++)
        row.reference[lane] = reference, inverses[lane] = inverse;
    kernels->weigh(scores, &row, inverses, count / lanes);
    memcpy(last, scores + count - left, left * sizeof *last);
    kernels->weigh(last, &row, inverses, 1);
    memcpy(scores + count - left, last, left * sizeof *last);
}

static void merge_head(const struct attn_forward *forward,
                       const struct attn_sequence *sequence, int64_t h)
{
    const int64_t units =
        attn_received_share(forward->problem, forward->kernels, sequence).units;
    float *const to = attn_received_row(forward, sequence, h, 0);
    for (int64_t n = 1; n < units; n++) {
        const float *const from = attn_received_row(forward, sequence, h, n);
        for (int64_t key = 0; key < sequence->Lk; key++)
            to[key] += from[key];
    }
}

static void merge(void *argument, size_t worker)
{
    struct attn_forward *const forward = argument;
    const int64_t H = forward->problem->shape->H;
    (void)worker;
    for (;;) {
        const int64_t unit = atomic_fetch_add(&forward->next, 1);
        if (unit >= forward->problem->sequences * H)
            return;
        const struct attn_sequence sequence =
            attn_problem_sequence(forward->problem, unit / H);
        merge_head(forward, &sequence, unit % H);
    }
}

void attn_received_merge(struct attn_forward *forward, const attn_context *context)
{
    if (!forward->received)
        return;
    forward->next = 0;
    attn_context_run(context, forward->workers, merge, forward);
}

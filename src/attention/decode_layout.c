/* Decoding: the groups of heads and the splits of keys that a sequence falls into, the
 * units of work that they make, and the memory that these take: a decoder for each
 * worker, and the partial results of all splits. */
#include "attention/decode_layout.h"
#include "attention/decode_additive.h"
#include "attention/decode_gates.h"
#include "attention/decode_merge.h"

bool attn_decode_takes(const struct attn_problem *problem,
                       const struct attn_sequence *sequence)
{
    const attn_shape *const shape = problem->shape;
    if (problem->cached)
        return true;
    return sequence->Lq == 1 && problem->options->dropout == 0.0 &&
           !attn_problem_is_linear(problem) &&
           (shape->D == 1 || problem->tensors->key.stride[3] == 1) &&
           (shape->Dv == 1 || problem->tensors->value.stride[3] == 1);
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t attn_decode_groups(const struct attn_forward *forward)
{
    const attn_shape *const shape = forward->problem->shape;
    return ceil_div(shape->H / shape->Hk, (int64_t)forward->kernels->lanes);
}

int64_t attn_decode_heads(const struct attn_forward *forward)
{
    const attn_shape *const shape = forward->problem->shape;
    return ceil_div(shape->H / shape->Hk, attn_decode_groups(forward));
}

static size_t power_of_two(int64_t least)
{
    size_t power = 1;
    while ((int64_t)power < least)
        power *= 2;
    return power;
}

/* Whether splits are counted in keys that are seen.  With gates that would be no use: all
 * of them are read; in a layout of each head, looking would take longer than it saves. */
static bool counts_seen_keys(const struct attn_problem *problem)
{
    const attn_keep *const blocks = &problem->options->blocks;
    return attn_has_runs(problem) && !problem->options->log_forget.data &&
           (!blocks->data || blocks->stride[1] == 0 || problem->shape->H == 1);
}

static bool is_of_bytes(const struct attn_problem *problem)
{
    return problem->cached && problem->cached->cache->options.type == ATTN_CACHE_I8;
}

/* The split begins with a key that is seen, and ends where a block of the kernels does:
 * no block belongs to two. */
static int64_t end_of_split(const struct attn_problem *problem,
                            const struct attn_sequence *sequence,
                            const struct attn_head *head, int64_t first, int64_t seen_end)
{
    struct attn_key_range run = {first, first};
    int64_t left = ATTN_SPLIT_KEYS, end = first;
    while (left > 0 && attn_next_seen(problem, sequence, head, 0, seen_end, &run)) {
        const int64_t stop = run.first + left;
        const int64_t cut = stop - stop % ATTN_DECODE_BYTE_KEYS;
        if (stop < run.end)
            return cut > run.first ? cut : end;
        left -= run.end - run.first;
        end = run.end;
    }
    return end;
}

/* To begin a split, to store and to merge it takes about as long as 30 keys, of 8 bits
 * 60.  Where keys are enough for four splits a group all the same, these are longer. */
enum { MANY_KEYS = 8192 };

static int64_t split_keys(const struct attn_problem *problem, struct attn_key_range seen)
{
    const bool many = seen.end - seen.first >= MANY_KEYS;
    if (!many || problem->options->log_forget.data)
        return ATTN_SPLIT_KEYS;
    return is_of_bytes(problem) ? MANY_KEYS / 4 : MANY_KEYS / 8;
}

void attn_decode_next_split(const struct attn_problem *problem,
                            const struct attn_sequence *sequence,
                            struct attn_key_range *split)
{
    const struct attn_key_range seen = attn_visible_keys(problem, sequence, 0);
    const int64_t from = attn_clamp(split->end, seen.first, seen.end);
    if (!counts_seen_keys(problem)) {
        const int64_t keys = split_keys(problem, seen);
        const int64_t next = from - from % keys + keys;
        *split = (struct attn_key_range){from, attn_least(next, seen.end)};
        return;
    }
    const struct attn_head head = attn_problem_head(problem, sequence, 0);
    struct attn_key_range run = {from, from};
    *split = (struct attn_key_range){seen.end, seen.end};
    if (attn_next_seen(problem, sequence, &head, 0, seen.end, &run))
        *split = (struct attn_key_range){
            run.first, end_of_split(problem, sequence, &head, run.first, seen.end)};
}

int64_t attn_decode_splits(const struct attn_forward *forward,
                           const struct attn_sequence *sequence)
{
    const struct attn_problem *const problem = forward->problem;
    const struct attn_key_range seen = attn_visible_keys(problem, sequence, 0);
    struct attn_key_range split = {0, 0};
    int64_t splits = 0;
    if (seen.first == seen.end)
        return 1;
    if (!counts_seen_keys(problem)) {
        const int64_t keys = split_keys(problem, seen);
        return ceil_div(seen.end, keys) - seen.first / keys;
    }
    for (attn_decode_next_split(problem, sequence, &split); split.first < split.end;
         attn_decode_next_split(problem, sequence, &split))
        splits++;
    return splits > 0 ? splits : 1;
}

/* Of one group. */
static int64_t count_units(const struct attn_forward *forward,
                           const struct attn_sequence *sequence)
{
    return ceil_div(attn_decode_splits(forward, sequence), forward->splits.run);
}

struct attn_decode_counts attn_decode_count(const struct attn_forward *forward,
                                            const struct attn_sequence *sequence)
{
    if (!attn_decode_takes(forward->problem, sequence))
        return (struct attn_decode_counts){0};
    const int64_t groups = forward->problem->shape->Hk * attn_decode_groups(forward);
    return (struct attn_decode_counts){
        .groups = groups,
        .slots = groups * attn_decode_splits(forward, sequence),
        .units = groups * count_units(forward, sequence),
    };
}

bool attn_decode_stores_bytes(const struct attn_forward *forward)
{
    return is_of_bytes(forward->problem);
}

static bool stores_bf16(const struct attn_problem *problem)
{
    const attn_tensors *const tensors = problem->tensors;
    const struct attn_cached *const cached = problem->cached;
    return cached ? cached->cache->options.type == ATTN_CACHE_BF16
                  : tensors->key.type == ATTN_BF16 && tensors->value.type == ATTN_BF16;
}

bool attn_decode_parts(const struct attn_forward *forward)
{
    const attn_shape *const shape = forward->problem->shape;
    return forward->kernels->decode->takes_parts && stores_bf16(forward->problem) &&
           !forward->problem->options->additive && shape->D % ATTN_PART_ELEMENTS == 0 &&
           shape->D <= ATTN_PARTED_SIZE && shape->Dv % ATTN_PART_ELEMENTS == 0;
}

int64_t attn_decode_keys(const struct attn_forward *forward)
{
    const struct attn_problem *const problem = forward->problem;
    if (is_of_bytes(problem) || attn_decode_parts(forward) ||
        forward->kernels->decode->long_blocks)
        return ATTN_DECODE_BYTE_KEYS;
    return problem->shape->D > 64 ? ATTN_DECODE_KEYS / 2 : ATTN_DECODE_KEYS;
}

/* Of scores, and of what is added to them, of one block. */
static size_t block_floats(const struct attn_forward *forward, size_t heads)
{
    return attn_decode_row(forward, attn_decode_keys(forward) * (int64_t)heads);
}

bool attn_decode_pairs(const struct attn_forward *forward)
{
    const struct attn_problem *const problem = forward->problem;
    const attn_tensors *const tensors = problem->tensors;
    const int64_t pairs = 2 * (int64_t)forward->kernels->lanes;
    return stores_bf16(problem) && forward->kernels->decode->pairs_path &&
           !problem->options->additive && tensors->query.type == ATTN_BF16 &&
           tensors->output.type == ATTN_BF16 && problem->shape->D % pairs == 0 &&
           problem->shape->Dv % pairs == 0;
}

size_t attn_decode_row(const struct attn_forward *forward, int64_t floats)
{
    const size_t pair = 2 * forward->kernels->lanes;
    return ((size_t)floats + pair - 1) / pair * pair;
}

/* A run's first block is not fetched ahead, so runs are long; and yet there should be
 * enough of them to go round. */
enum { RUNS_OF_A_WORKER = 4 };

void attn_decode_layout(struct attn_forward *forward, size_t threads)
{
    const struct attn_problem *const problem = forward->problem;
    struct attn_splits *const splits = &forward->splits;
    const attn_shape *const shape = problem->shape;
    const size_t lanes = forward->kernels->lanes;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    splits->run = 1;
    for (int64_t s = 0, alike; s < problem->sequences && !problem->empty; s += alike) {
        const struct attn_sequence sequence = attn_problem_sequence(problem, s);
        const struct attn_decode_counts counts = attn_decode_count(forward, &sequence);
        alike = attn_sequences_alike(problem, s);
        splits->groups += alike * counts.groups;
        splits->slots += alike * counts.slots;
    }
    if (splits->slots == 0)
        return;
    const int64_t run = splits->slots / (int64_t)(threads * RUNS_OF_A_WORKER);
    splits->run = run > 1 ? run : 1;

    const size_t D = attn_decode_row(forward, shape->D);
    const size_t Dv = attn_decode_row(forward, shape->Dv);
    const size_t heads = power_of_two(attn_decode_heads(forward));
    const size_t block = block_floats(forward, heads);
    const size_t whole = attn_decode_stores_bytes(forward) ? D
                         : attn_decode_pairs(forward)      ? D / 2
                                                           : 0;
    const size_t parts = attn_decode_parts(forward) ? attn_part_floats(heads, D) : 0;
    const size_t per_top = sizeof(float) + sizeof(int32_t);
    splits->head_bytes = attn_partial_bytes(forward, Dv);
    splits->worker_bytes =
        attn_round_up(sizeof(struct attn_decoder)) +
        attn_decode_additive_bytes(problem, heads) +
        attn_round_up((heads * (D + whole + Dv) + parts + lanes * classes + 2 * block +
                       attn_decode_gate_floats(problem, heads)) *
                          sizeof(float) +
                      lanes * top * per_top);
    const size_t left = attn_round_up((size_t)splits->groups * sizeof *splits->left);
    if (__builtin_mul_overflow((size_t)(splits->slots * attn_decode_heads(forward)),
                               splits->head_bytes, &splits->left_offset) ||
        __builtin_add_overflow(splits->left_offset, left, &splits->bytes))
        splits->bytes = SIZE_MAX; /* refused with the sum of all */
}

void attn_decode_begin(struct attn_forward *forward, void *memory)
{
    struct attn_splits *const splits = &forward->splits;
    int64_t group = 0;
    splits->partials = memory;
    splits->left = (_Atomic int64_t *)(splits->partials + splits->left_offset);
    for (int64_t s = 0; group < splits->groups; s++) {
        const struct attn_sequence sequence = attn_problem_sequence(forward->problem, s);
        const int64_t end = group + attn_decode_count(forward, &sequence).groups;
        for (; group < end; group++)
            atomic_init(&splits->left[group], count_units(forward, &sequence));
    }
}

struct attn_decoder *attn_decode_place(const struct attn_forward *forward, void *memory)
{
    const attn_shape *const shape = forward->problem->shape;
    const size_t lanes = forward->kernels->lanes;
    const size_t classes = forward->sweep.classes, top = forward->sweep.top;
    struct attn_decoder *const decoder = memory;
    struct attn_decode_panel *const panel = &decoder->panel;
    decoder->forward = forward;
    decoder->sweep = forward->sweep;
    panel->heads = power_of_two(attn_decode_heads(forward));
    panel->D = (size_t)shape->D;
    panel->Dv = (size_t)shape->Dv;
    const size_t row = attn_decode_row(forward, shape->D);
    const bool bytes = attn_decode_stores_bytes(forward);
    panel->query_stride = bytes ? row : lanes;
    panel->query_step = bytes ? lanes : lanes * panel->heads;
    panel->output_stride = attn_decode_row(forward, shape->Dv);
    panel->lanes.vectors = 1;
    panel->lanes.Dv = 0;
    char *const additive = (char *)memory + attn_round_up(sizeof *decoder);
    attn_decode_additive_place(panel, forward->problem, additive);
    panel->query =
        (float *)(additive + attn_decode_additive_bytes(forward->problem, panel->heads));
    float *next = panel->query + panel->heads * row;
    panel->whole = NULL;
    if (bytes) {
        /* D / 2 of a head, and less than as much again for the beginnings. */
        panel->whole = (int32_t *)next;
        panel->whole_begin = panel->whole + panel->heads * row / 2;
        next += panel->heads * row;
    }
    panel->query_parts = NULL;
    if (attn_decode_parts(forward)) {
        panel->query_parts = (uint16_t *)next;
        next += attn_part_floats(panel->heads, row);
    }
    panel->query_pairs = NULL;
    if (attn_decode_pairs(forward)) {
        panel->query_pairs = (uint16_t *)next;
        panel->scale = forward->problem->options->scale;
        next += panel->heads * row / 2;
    }
    panel->output = next;
    panel->lanes.class_sum = panel->output + panel->heads * panel->output_stride;
    panel->lanes.top_score = panel->lanes.class_sum + classes * lanes;
    panel->lanes.top_key = (int32_t *)(panel->lanes.top_score + lanes * top);
    decoder->scores = (float *)(panel->lanes.top_key + lanes * top);
    decoder->added = decoder->scores + block_floats(forward, panel->heads);
    decoder->behind = forward->problem->options->log_forget.data
                          ? decoder->added + block_floats(forward, panel->heads)
                          : NULL;
    return decoder;
}

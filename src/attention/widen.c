/* Widens blocks of keys and values. */
#include "attention/widen.h"
#include "attention/forward.h"
#include "attention/rows.h"
#include "kernel/linear_table.h"
#include "kernel/pair_table.h"
#include <assert.h>

static size_t row_floats(int64_t size, const struct attn_kernels *kernels)
{
    return ((size_t)size + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
}

const struct attn_pair_kernels *attn_pairs_for(const struct attn_problem *problem,
                                               const struct attn_kernels *kernels)
{
    const attn_tensors *const t = problem->tensors;
    const bool all_bf16 = t->query.type == ATTN_BF16 && t->key.type == ATTN_BF16 &&
                          t->value.type == ATTN_BF16 && t->output.type == ATTN_BF16;
    if (problem->options->score != ATTN_SCORE_DOT)
        return NULL;
    return all_bf16 ? kernels->pairs : kernels->parts;
}

/* Fewer queries gain less than splitting keys and values takes; and where a step of 32
 * elements is filled up with zeros, none gain. */
static int64_t least_queries_of_parts(int64_t D)
{
    return D >= 48 ? 256 : D >= 32 ? 512 : INT64_MAX;
}

bool attn_pairs_pay(const struct attn_pair_kernels *pairs, const attn_shape *shape,
                    const struct attn_sequence *sequence)
{
    return pairs &&
           (pairs->parts == 1 || sequence->Lq >= least_queries_of_parts(shape->D));
}

/* What is split stays for the other queries of a head, and for heads that share its keys,
 * as long as it is no more than the third cache has for a core; one part costs less than
 * a tenth to make again. */
#define MOST_BYTES_KEPT ((size_t)16 << 20)

static size_t blocks_kept(const struct attn_problem *problem,
                          const struct attn_kernels *kernels,
                          const struct attn_pair_kernels *pairs, size_t floats)
{
    if (!pairs || pairs->parts == 1 || problem->shape->Lk == 0)
        return 1;
    const size_t room = MOST_BYTES_KEPT / sizeof(float) / floats;
    const size_t most = room < ATTN_PLACES_OF_BLOCKS ? room : ATTN_PLACES_OF_BLOCKS;
    const int64_t Lk = problem->shape->Lk;
    const size_t all = (size_t)((Lk + ATTN_BLOCK_KEYS - 1) / ATTN_BLOCK_KEYS);
    const size_t of_group =
        attn_blocks_near(problem, Lk, ATTN_GROUP_PANELS * attn_panel_queries(kernels));
    if (problem->shape->H > problem->shape->Hk && all <= most)
        return all;
    return of_group <= most ? of_group : 1;
}

/* Lays the buffers out over scratch, which may be NULL; returns the floats they take. */
static size_t lay_out(struct attn_wide *wide, const struct attn_problem *problem,
                      const struct attn_kernels *kernels,
                      const struct attn_pair_kernels *pairs, bool values, float *scratch)
{
    const attn_shape *const shape = problem->shape;
    const attn_tensors *const tensors = problem->tensors;
    const size_t parts = pairs ? pairs->parts : 1;
    const size_t blocks = pairs ? (ATTN_BLOCK_KEYS / 2 + 1) * parts : ATTN_BLOCK_KEYS;
    const size_t keys = pairs ? ATTN_BLOCK_KEYS + 15 : ATTN_BLOCK_KEYS;
    const bool of_values =
        values && shape->Dv > 0 && (pairs || tensors->value.type != ATTN_F32);
    size_t floats = 0;
    *wide = (struct attn_wide){
        .key_stride = pairs ? parts * row_floats((shape->D + 1) / 2, kernels)
                            : row_floats(shape->D, kernels),
        .value_stride = row_floats(shape->Dv, kernels),
    };
    wide->key_block = keys * wide->key_stride;
    wide->value_block = of_values ? blocks * wide->value_stride : 0;
    wide->blocks =
        blocks_kept(problem, kernels, pairs, wide->key_block + wide->value_block);
    if (pairs || tensors->key.type != ATTN_F32 || attn_problem_is_linear(problem)) {
        wide->key = wide->keys = scratch;
        floats += wide->blocks * wide->key_block;
    }
    if (of_values) {
        wide->value = wide->values = scratch ? scratch + floats : NULL;
        floats += wide->blocks * wide->value_block;
    }
    if (of_values && pairs) {
        wide->special = scratch ? scratch + floats : NULL;
        floats += (ATTN_BLOCK_KEYS + 1) * wide->value_stride;
        wide->weight_pairs = scratch ? scratch + floats : NULL;
        floats += pairs->scratch;
    }
    return floats;
}

size_t attn_wide_floats(const struct attn_problem *problem,
                        const struct attn_kernels *kernels,
                        const struct attn_pair_kernels *pairs, bool values)
{
    struct attn_wide wide;
    return lay_out(&wide, problem, kernels, pairs, values, NULL);
}

void attn_wide_init(struct attn_walk *walk, float *scratch, bool values)
{
    lay_out(&walk->wide, walk->problem, walk->kernels, walk->pairs, values, scratch);
}

static void take_keys(struct attn_walk *walk, int64_t first, int64_t end)
{
    const struct attn_matrix rows =
        attn_rows_of(&walk->problem->tensors->key, walk->head.key, first, end - first,
                     walk->problem->shape->D);
    if (walk->pairs)
        walk->pairs->copy_keys(walk->wide.key, &rows);
    else
        walk->kernels->widen(walk->wide.key, &rows);
    if (attn_problem_is_linear(walk->problem))
        walk->kernels->linear->features(walk->wide.key, rows.rows, rows.size,
                                        walk->wide.key_stride,
                                        walk->problem->options->feature);
}

static void take_values(struct attn_walk *walk, int64_t first, int64_t end)
{
    struct attn_wide *const wide = &walk->wide;
    const struct attn_matrix rows =
        attn_rows_of(&walk->problem->tensors->value, walk->head.value, first, end - first,
                     walk->problem->shape->Dv);
    if (walk->pairs)
        wide->any_special = walk->pairs->pair_values(wide->value, wide->special, &rows);
    else
        walk->kernels->widen(wide->value, &rows);
}

static void take_head(struct attn_wide *wide, const struct attn_head *head)
{
    wide->of_key = head->key;
    wide->of_value = head->value;
    for (size_t n = 0; n < wide->blocks; n++)
        wide->block_at[n] = -1;
}

/* All of block n, unless it is there. */
static void take_block(struct attn_walk *walk, int64_t n)
{
    struct attn_wide *const wide = &walk->wide;
    const struct attn_head *const head = &walk->head;
    const int64_t first = n * ATTN_BLOCK_KEYS;
    const int64_t end = attn_least(first + ATTN_BLOCK_KEYS, walk->sequence.Lk);
    const size_t place = (size_t)n % wide->blocks;
    if (wide->of_key != head->key || wide->of_value != head->value)
        take_head(wide, head);
    wide->first = first;
    wide->key = wide->keys + place * wide->key_block;
    wide->any_special = false;
    if (wide->values)
        wide->value = wide->values + place * wide->value_block;
    if (wide->block_at[place] == n)
        return;
    take_keys(walk, first, end);
    if (wide->values)
        take_values(walk, first, end);
    /* Of what is special there is one block's room. */
    wide->block_at[place] = wide->any_special ? -1 : n;
}

void attn_widen(struct attn_walk *walk, int64_t first, int64_t end)
{
    assert(end - first <= ATTN_BLOCK_KEYS);
    if (first >= end)
        return;
    if (walk->wide.blocks > 1) {
        take_block(walk, first / ATTN_BLOCK_KEYS);
        return;
    }
    if (walk->pairs) /* whole groups of values, and the same keys */
        first -= first % walk->pairs->keys_together;
    walk->wide.first = first;
    if (walk->wide.key)
        take_keys(walk, first, end);
    if (walk->wide.value)
        take_values(walk, first, end);
}

void attn_wide_list(struct attn_calls *calls, const struct attn_walk *walk, int64_t first)
{
    const struct attn_wide *const wide = &walk->wide;
    const int64_t n = first / ATTN_BLOCK_KEYS;
    const size_t place = (size_t)n % wide->blocks, of_line = ATTN_LINE_BYTES / 4;
    calls->first = calls->end = 0;
    if (wide->block_at[place] != n)
        return;
    calls->runs[calls->end++] = (struct attn_lines){
        .first = (uintptr_t)(wide->keys + place * wide->key_block),
        .stride = ATTN_LINE_BYTES,
        .count = ATTN_BLOCK_KEYS * wide->key_stride / of_line,
    };
    calls->runs[calls->end++] = (struct attn_lines){
        .first = (uintptr_t)(wide->values + place * wide->value_block),
        .stride = ATTN_LINE_BYTES,
        .count = wide->value_block / of_line,
    };
}

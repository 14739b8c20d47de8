/* Splits keys and values, all at once or run by run. */
#include "attention/backward_part_keys.h"
#include "attention/backward_parts.h"
#include "attention/rows.h"

/* Reading more from the third cache takes about as long as splitting it again; but where
 * each row of a layout is a group, splitting again takes longer than all else. */
#define MOST_BYTES_KEPT ((size_t)1536 << 10)
#define MOST_BYTES_OF_LAYOUT ((size_t)16 << 20)

/* Floats of a block of them. */
static struct attn_kept_keys floats_of_block(const struct attn_backward *backward)
{
    return (struct attn_kept_keys){
        .key_floats = attn_floats_in_parts(ATTN_BLOCK_KEYS, backward->D_whole),
        .value_floats = attn_floats_in_parts(ATTN_BLOCK_KEYS, backward->Dv_whole),
        .turned_floats = attn_floats_in_parts(backward->D_whole, ATTN_BLOCK_KEYS),
    };
}

static size_t most_blocks(const struct attn_backward *backward)
{
    const struct attn_kept_keys of = floats_of_block(backward);
    const size_t block = of.key_floats + of.value_floats + of.turned_floats;
    const bool has_layout = backward->problem.options->blocks.data;
    return (has_layout ? MOST_BYTES_OF_LAYOUT : MOST_BYTES_KEPT) / sizeof(float) / block;
}

static size_t blocks_of(int64_t keys)
{
    return ((size_t)keys + ATTN_BLOCK_KEYS - 1) / ATTN_BLOCK_KEYS;
}

bool attn_part_keys_stay(const struct attn_backward *backward,
                         const struct attn_sequence *sequence)
{
    return blocks_of(sequence->Lk) <= most_blocks(backward);
}

size_t attn_part_keys_lay_out(struct attn_kept_keys *kept,
                              const struct attn_backward *backward, float *scratch)
{
    const size_t kept_blocks = blocks_of(backward->longest_kept_keys);
    const size_t blocks = kept_blocks > 0 ? kept_blocks : 1;
    size_t floats = 0;
    *kept = floats_of_block(backward);
    kept->key = attn_take_floats(&scratch, &floats, blocks * kept->key_floats);
    kept->value = attn_take_floats(&scratch, &floats, blocks * kept->value_floats);
    kept->turned_key = attn_take_floats(&scratch, &floats, blocks * kept->turned_floats);
    return floats;
}

/* Splits keys as the n-th block; returns whose size is the largest, keys' and values'. */
static void split(const struct attn_backward_group *group, size_t n,
                  struct attn_key_range keys, int32_t largest[2])
{
    const struct attn_backward *const backward = group->backward;
    const struct attn_part_kernels *const kernels = backward->parts;
    const struct attn_kept_keys *const kept = &group->parts.keys;
    const int64_t count = keys.end - keys.first;
    struct attn_matrix key = attn_rows_among(&kept->key_rows, keys.first, count);
    struct attn_matrix value = attn_rows_among(&kept->value_rows, keys.first, count);
    key = attn_rows_of_floats(backward, &key, group->walk.wide.key);
    value = attn_rows_of_floats(backward, &value, group->walk.wide.value);
    largest[0] = kernels->split_left(kept->key + n * kept->key_floats, &key);
    largest[1] = kernels->split_left(kept->value + n * kept->value_floats, &value);
    if (backward->gradients->query.data)
        kernels->split_turned(kept->turned_key + n * kept->turned_floats, &key);
}

bool attn_part_keys_begin(struct attn_backward_group *group,
                          const struct attn_matrix *key, const struct attn_matrix *value)
{
    const struct attn_part_kernels *const kernels = group->backward->parts;
    struct attn_kept_keys *const kept = &group->parts.keys;
    const int64_t Lk = (int64_t)key->rows;
    int32_t of_keys = 0, of_values = 0;
    kept->key_rows = *key;
    kept->value_rows = *value;
    kept->stay = attn_part_keys_stay(group->backward, &group->walk.sequence);
    if (!kept->stay)
        return attn_fits_parts(kernels->largest(key)) &&
               attn_fits_parts(kernels->largest(value));
    for (int64_t first = 0; first < Lk; first += ATTN_BLOCK_KEYS) {
        const int64_t end = attn_least(first + ATTN_BLOCK_KEYS, Lk);
        int32_t largest[2];
        split(group, (size_t)(first / ATTN_BLOCK_KEYS),
              (struct attn_key_range){first, end}, largest);
        of_keys = largest[0] > of_keys ? largest[0] : of_keys;
        of_values = largest[1] > of_values ? largest[1] : of_values;
    }
    return attn_fits_parts(of_keys) && attn_fits_parts(of_values);
}

struct attn_part_keys attn_part_keys_take(const struct attn_backward_group *group,
                                          struct attn_key_range run)
{
    const struct attn_kept_keys *const kept = &group->parts.keys;
    const int64_t unit = kept->stay ? ATTN_BLOCK_KEYS : ATTN_TILE_STEP;
    const int64_t first = run.first - run.first % unit;
    const int64_t end = kept->stay
                            ? attn_least(first + ATTN_BLOCK_KEYS, group->walk.sequence.Lk)
                            : run.end;
    const size_t n = kept->stay ? (size_t)(first / ATTN_BLOCK_KEYS) : 0;
    int32_t largest[2];
    if (!kept->stay)
        split(group, n, (struct attn_key_range){first, end}, largest);
    return (struct attn_part_keys){
        .first = first,
        .key = kept->key + n * kept->key_floats,
        .value = kept->value + n * kept->value_floats,
        .turned_key = kept->turned_key + n * kept->turned_floats,
        .key_tile = attn_tile_steps(kept->key_rows.size) * ATTN_PART_FLOATS,
        .value_tile = attn_tile_steps(kept->value_rows.size) * ATTN_PART_FLOATS,
        .turned_tile = attn_tile_steps((size_t)(end - first)) * ATTN_PART_FLOATS,
    };
}

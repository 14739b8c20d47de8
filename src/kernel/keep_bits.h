/* keep as the pipeline wants it: which of a vector's queries keep a key, a bit to each,
 * so that a score is hidden by one step while it is looked at anyway. */
#ifndef ATTN_KERNEL_KEEP_BITS_H
#define ATTN_KERNEL_KEEP_BITS_H

#include "kernel/element.h"

/* Bit n of a byte is whether byte n of eight rows, at most `keys` bytes long, is not 0.
 */
INLINE vb bits_of_rows(const uint8_t *const rows[8], size_t key, const size_t keys)
{
    vb bits = {0};
#pragma GCC unroll 8
    for (size_t i = 8; i-- > 0;) {
        const vb x = load_bytes(rows[i] + key, keys);
        bits = (vb)(bits + bits) | vb_min(x, (vb){0} + 1);
    }
    return bits;
}

/* Of KEEP_KEYS keys. */
INLINE void store_keep_bits(uint16_t *to, const uint8_t *const rows[], size_t key,
                            const size_t keys)
{
    const vb low = bits_of_rows(rows, key, keys);
    const vb high = bits_of_rows(rows + 8, key, keys);
    vi first, second;
    vb_interleave(low, high, &first, &second);
    vi_store((int32_t *)(void *)to, first);
    vi_store((int32_t *)(void *)(to + KEEP_KEYS / 2), second);
}

/* Rows with their keys side by side; lanes beyond the queries look where the last one
 * looks. */
static void read_keep_rows(uint16_t *to, const struct attn_block *block, size_t lane,
                           size_t queries)
{
    const uint8_t *rows[VF_BYTES / 4];
    for (size_t i = 0; i < VF_LANES; i++) {
        const size_t row = lane + i < queries ? lane + i : queries - 1;
        rows[i] = block->keep + (ptrdiff_t)row * block->keep_row_stride;
    }
    size_t key = 0;
    for (; key + KEEP_KEYS <= block->keys; key += KEEP_KEYS)
        store_keep_bits(to + key, rows, key, KEEP_KEYS);
    if (key == block->keys)
        return;
    uint16_t last[KEEP_KEYS];
    store_keep_bits(last, rows, key, block->keys - key);
    memcpy(to + key, last, (block->keys - key) * sizeof *to);
}

/* Lanes side by side, or far apart. */
static void read_keep_columns(uint16_t *to, const struct attn_block *block, size_t lane,
                              size_t queries)
{
    const size_t left = queries - lane, lanes = left < VF_LANES ? left : VF_LANES;
    const ptrdiff_t row = block->keep_row_stride;
    for (size_t key = 0; key < block->keys; key++) {
        const uint8_t *const from =
            block->keep + (ptrdiff_t)key * block->keep_key_stride + (ptrdiff_t)lane * row;
        uint8_t bytes[VF_BYTES / 4] = {0};
        if (row == 1 && lanes == VF_LANES)
            memcpy(bytes, from, sizeof bytes);
        else
            for (size_t i = 0; i < lanes; i++)
                bytes[i] = from[(ptrdiff_t)i * row];
        to[key] = (uint16_t)vi_lanes(vi_widen(bytes) != 0);
    }
}

/* Of the block's keys for lanes from `lane` on. */
static void read_keep(uint16_t *to, const struct attn_panel *panel,
                      const struct attn_block *block, size_t lane)
{
    if (block->keep_key_stride == 1)
        read_keep_rows(to, block, lane, (size_t)panel->queries);
    else
        read_keep_columns(to, block, lane, (size_t)panel->queries);
}

#endif

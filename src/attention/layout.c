/* Block-sparse layouts: local, global and strided blocks. */
#include "attn/attention.h"

static bool sees(const attn_layout *layout, int64_t query, int64_t key)
{
    const int64_t distance = query < key ? key - query : query - key;
    return query < layout->global || key < layout->global || distance <= layout->local ||
           (layout->stride > 0 && distance % layout->stride == 0);
}

attn_status attn_layout_fill(uint8_t *blocks, int64_t query_blocks, int64_t key_blocks,
                             const attn_layout *layout)
{
    if (!layout || query_blocks < 0 || key_blocks < 0 || layout->local < -1 ||
        layout->global < 0 || layout->stride < 0 ||
        (!blocks && query_blocks > 0 && key_blocks > 0))
        return ATTN_EINVAL;
    for (int64_t i = 0; i < query_blocks; i++)
        for (int64_t j = 0; j < key_blocks; j++)
            blocks[i * key_blocks + j] = sees(layout, i, j);
    return ATTN_OK;
}

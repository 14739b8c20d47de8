/* Arrays of bytes in the idx format of the MNIST files: two zeros, the type 8 (unsigned
 * byte), the rank, the extents as big-endian 32-bit numbers, the bytes in C order.  A .gz
 * file is unpacked. */
#ifndef ATTN_FILE_IDX_H
#define ATTN_FILE_IDX_H

#include "base/error.h"

enum { ATTN_IDX_RANK = 4 };

typedef struct attn_idx {
    int rank;
    int64_t extent[ATTN_IDX_RANK];
    uint8_t *bytes; /* the product of the extents */
} attn_idx;

/** @param rank  that is expected, 1 to ATTN_IDX_RANK.
 * @return ATTN_OK, ATTN_EIO, ATTN_ENOMEM, or ATTN_EFORMAT: another type or rank, more or
 *         fewer bytes than the extents say (the message has both). */
ATTN_CHECKED attn_status attn_idx_load(attn_idx *idx, const char *path, int rank,
                                       attn_error *error);
void attn_idx_free(attn_idx *idx);

#endif

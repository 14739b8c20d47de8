/* Grey pictures, from and to PNG. */
#ifndef ATTN_FILE_PICTURE_H
#define ATTN_FILE_PICTURE_H

#include "base/error.h"

typedef struct attn_picture {
    int64_t rows, columns;
    uint8_t *grey; /* [rows][columns], 0 black to 255 white */
} attn_picture;

/** Colours become grey, what is transparent becomes black.
 * @return ATTN_OK, ATTN_EIO, ATTN_ENOMEM, or ATTN_EFORMAT: no PNG, or one of more than
 *         2²⁴ points. */
ATTN_CHECKED attn_status attn_picture_load(attn_picture *picture, const char *path,
                                           attn_error *error);
/** As PNG, in memory the caller frees. */
ATTN_CHECKED attn_status attn_picture_encode(const attn_picture *picture, char **png,
                                             size_t *length_bytes, attn_error *error);
/** "-" is standard output. */
ATTN_CHECKED attn_status attn_picture_save(const attn_picture *picture, const char *path,
                                           attn_error *error);
void attn_picture_free(attn_picture *picture);

#endif

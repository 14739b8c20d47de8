/* Pictures to be described, composed of handwritten digits: a grid of cells, each empty
 * or with one digit of random size, place and slant, and what is in the cells in words,
 * row by row:
 *
 *     three nothing one over seven seven two
 *
 * A picture is a function of a number, so that any count of them needs no memory, and two
 * processes see the same. */
#ifndef ATTN_TRAIN_PICTURES_H
#define ATTN_TRAIN_PICTURES_H

#include "base/error.h"
#include "file/idx.h"

enum { ATTN_CELL_SIDE = 32, ATTN_CELL_LIMIT = 64, ATTN_CAPTION_BYTES = 1024 };

/** Pictures of single digits, and which they are. */
typedef struct attn_digits {
    attn_idx images; /* [count][side][side], 255 ink */
    attn_idx labels; /* [count], 0 to 9 */
} attn_digits;

/** labels lie beside images: where its name says "images", theirs says "labels" (and
 * "idx1" for "idx3", as MNIST's files are called).
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EIO, or ATTN_EFORMAT: no idx file, as many labels as
 *         images, square images of at most ATTN_CELL_SIDE points, labels to 9. */
ATTN_CHECKED attn_status attn_digits_load(attn_digits *digits, const char *images,
                                          attn_error *error);
void attn_digits_free(attn_digits *digits);

typedef struct attn_composition {
    int64_t rows, columns; /* of cells; their product is at most ATTN_CELL_LIMIT */
    size_t first, count;   /* which digits may be used */
    double empty;          /* probability of a cell without one */
} attn_composition;

/** Draws picture `number`.
 * @param grey   [rows·ATTN_CELL_SIDE][columns·ATTN_CELL_SIDE], 255 ink.
 * @param cells  [rows·columns]: the digit, or −1. */
void attn_compose(const attn_digits *digits, const attn_composition *composition,
                  uint64_t number, uint8_t *grey, int8_t *cells);

/** What is in the cells, in words. */
void attn_caption(const attn_composition *composition, const int8_t *cells,
                  char caption[ATTN_CAPTION_BYTES]);

#endif

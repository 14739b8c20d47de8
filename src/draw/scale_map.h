/* One map as it is drawn: the weights of a head, or the mean of a layer's heads, between
 * words; of long texts the largest weight of each tile, so that a picture does not grow
 * with the square of the text and a needle still shows. */
#ifndef ATTN_DRAW_SCALE_MAP_H
#define ATTN_DRAW_SCALE_MAP_H

#include "inspect/summary.h"

enum {
    ATTN_MAP_EXACT = 256, /* most words that are drawn one by one */
    ATTN_MAP_TILES = 128  /* most tiles on a side beyond that */
};

/** The words of one side, or the positions of its tiles ("1–4"). */
typedef struct attn_map_side {
    int64_t length; /* as drawn */
    int64_t words, tile;
    char **labels; /* valid UTF-8, as it stands in the text */
    bool *special; /* all words of it are */
} attn_map_side;

ATTN_CHECKED attn_status attn_map_side_create(attn_map_side *side,
                                              const attn_record_words *words,
                                              attn_error *error);
void attn_map_side_destroy(attn_map_side *side); /* all zero is fine */

/** Between words, of a head or (head −1) the mean of the layer's. */
double attn_map_weight(const attn_record_part *part, int64_t layer, int64_t head,
                       int64_t row, int64_t key);
/** The part's map of a head into out, [rows->length][keys->length]; head −1 is the mean
 * of the layer's heads.  0 where nothing can be seen. */
void attn_map_weights(float *out, const attn_record_part *part, int64_t layer,
                      int64_t head, const attn_map_side *rows, const attn_map_side *keys);

/** No word of the row's tile sees a word of the key's. */
bool attn_map_unseen(const attn_record_part *part, const attn_map_side *rows, int64_t row,
                     const attn_map_side *keys, int64_t key);

#endif

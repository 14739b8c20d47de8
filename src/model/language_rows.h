/* Rows of keys and values of one layer that a language model keeps in plain arrays, of
 * any type that a cache has, and which of them goes when there is no more room.  A file
 * of this room only. */
#ifndef ATTN_MODEL_LANGUAGE_ROWS_H
#define ATTN_MODEL_LANGUAGE_ROWS_H

#include "attn/cache.h"
#include "model/language.h"

/* Keys, not yet turned, or values. */
typedef struct attn_language_kept {
    void *x;       /* [capacity][key heads·width] */
    float *scales; /* of 8 bits, [capacity][key heads]; else NULL */
} attn_language_kept;

typedef struct attn_language_rows {
    attn_cache_type type;
    int64_t heads, key_heads, width; /* width: of a head */
    attn_language_kept key, value;
    float *log_forget; /* [capacity][heads], of a model that forgets; else NULL */
    float *received;   /* [capacity][key heads]: the weight that all queries so far gave,
                        * where the least of it goes first; else NULL */
} attn_language_rows;

/** On failure what there is stays to be freed. */
ATTN_CHECKED attn_status attn_language_rows_create(attn_language_rows *rows,
                                                   const attn_language_config *config,
                                                   attn_cache_type type, int64_t capacity,
                                                   bool wants_received);
void attn_language_rows_free(attn_language_rows *rows);

/** Bytes of one row. */
size_t attn_language_rows_bytes(const attn_language_rows *rows);

/** Rounds `added`, [count][key heads·width], to what is kept, after `before` rows. */
void attn_language_rows_keep(const attn_language_rows *rows,
                             const attn_language_kept *kept, int64_t before,
                             const attn_tensor *added);
/** The first `count` rows as a tensor of the tape: what is kept, or widened from it. */
attn_tensor *attn_language_rows_read(const attn_language_rows *rows,
                                     const attn_language_kept *kept, attn_tape *tape,
                                     int64_t count);

/** Adds what `added` new rows and those before received in one pass, [heads][before +
 * added]. */
void attn_language_rows_receive(attn_language_rows *rows, const float *received,
                                int64_t before, int64_t added);

/** Of `count` rows one goes, of each key head its own: among first to first + candidates
 * − 1 that which received least, the oldest on a tie or where nothing is known.  Those
 * after it move up. */
void attn_language_rows_drop(attn_language_rows *rows, int64_t count, int64_t first,
                             int64_t candidates);

#endif

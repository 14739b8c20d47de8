/* A paged cache of keys and values, for decoding: what every token of a sequence left
 * behind in one layer, so that the next token attends to it without computing it again.
 *
 *     attn_cache_create → attn_cache_open → attn_cache_append, attn_decode, append, …
 *
 * Read attention.h first.  A cache holds any number of sequences, which share one stock
 * of pages: a sequence takes a page when it needs one and gives it back when it is closed
 * or cut.  A fork shares the pages of its parent, as the beams of a search do, and copies
 * one only when it writes into it.  All memory is taken when the cache is created, but
 * for 8 bytes a page in the tables of the sequences.
 *
 * One thread at a time may use a cache. */
#ifndef ATTN_CACHE_H
#define ATTN_CACHE_H

#include "attn/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1. A cache ---------------------------------------------------------------------
 */

/** How keys and values are kept.  The first three are attn_type's, rounded to nearest
 * even where they are appended from a wider type. */
typedef enum attn_cache_type {
    ATTN_CACHE_F32 = ATTN_F32,
    ATTN_CACHE_F16 = ATTN_F16,
    ATTN_CACHE_BF16 = ATTN_BF16,
    /** 8 bits: each key, and each value, of each head is whole numbers from −127 to 127
     * times a scale of its own, its largest magnitude over 127, rounded up to 9 bits; so
     * an element is off by at most half of that and rounding, 1/252.9 of the largest.  A
     * row takes two bytes more for its scale.  A row that holds NaN or ∞ is all NaN.
     */
    ATTN_CACHE_I8 = 16
} attn_cache_type;

typedef struct attn_cache_options {
    int64_t Hk;        /* key heads */
    int64_t D, Dv;     /* sizes of a key and of a value */
    int64_t pages;     /* how many there are, for all sequences together */
    int64_t page_keys; /* keys in a page; 0 for 128.  A multiple of 128 gives attn_decode
                        * the bits of attn_forward; small ones waste less of the last page
                        * of a sequence, and are slower below 128 */
    attn_cache_type type;
} attn_cache_options;

typedef struct attn_cache attn_cache;

/**
 * @param context  keeps the message; the cache does not hold on to it.
 * @return ATTN_OK, ATTN_EINVAL or ATTN_ENOMEM; *cache is NULL on failure.
 */
ATTN_API ATTN_CHECKED attn_status attn_cache_create(attn_cache **cache,
                                                    attn_context *context,
                                                    const attn_cache_options *options);

/** With all its sequences.  NULL is fine. */
ATTN_API void attn_cache_destroy(attn_cache *cache);

/** Bytes of all pages and of what administers them. */
ATTN_API size_t attn_cache_bytes(const attn_cache *cache);

/** Bytes that one key and its value take, of all heads, in a full page. */
ATTN_API size_t attn_cache_token_bytes(const attn_cache *cache);

/** Pages that no sequence holds. */
ATTN_API int64_t attn_cache_free_pages(const attn_cache *cache);

/* ---- 2. Sequences -------------------------------------------------------------------
 * A sequence is a number that attn_cache_open or attn_cache_fork gave; once closed it is
 * refused, even when its place has been given to another. */

/** An empty sequence.  It takes no page yet.
 * @return ATTN_OK or ATTN_ENOMEM. */
ATTN_API ATTN_CHECKED attn_status attn_cache_open(attn_context *context,
                                                  attn_cache *cache, int64_t *sequence);

/**
 * Appends keys and their values, of any type and strides: key has elements [·][Hk][count]
 * [D] and value [·][Hk][count][Dv], with stride[1], [2] and [3] used.
 *
 * All or nothing: when the pages do not suffice, ATTN_ENOMEM and a message with the
 * numbers, and neither the length nor any byte of the cache has changed.
 *
 * @return ATTN_OK, ATTN_EINVAL or ATTN_ENOMEM.
 */
ATTN_API ATTN_CHECKED attn_status attn_cache_append(attn_context *context,
                                                    attn_cache *cache, int64_t sequence,
                                                    int64_t count, const attn_input *key,
                                                    const attn_input *value);

/** Keys in the sequence; −1 if it is not open. */
ATTN_API int64_t attn_cache_length(const attn_cache *cache, int64_t sequence);

/** Forgets all keys from `length` on, which is 0 to the sequence's length.  What is
 * appended next has the bits that it would have in a fresh sequence.
 * @return ATTN_OK or ATTN_EINVAL. */
ATTN_API ATTN_CHECKED attn_status attn_cache_truncate(attn_context *context,
                                                      attn_cache *cache, int64_t sequence,
                                                      int64_t length);

/** A second sequence with the same keys, in the same pages: it takes a page of its own
 * only where one of the two appends into a page that both hold.
 * @return ATTN_OK, ATTN_EINVAL or ATTN_ENOMEM. */
ATTN_API ATTN_CHECKED attn_status attn_cache_fork(attn_context *context,
                                                  attn_cache *cache, int64_t parent,
                                                  int64_t *child);

/** @return ATTN_OK, or ATTN_EINVAL where it is not open. */
ATTN_API ATTN_CHECKED attn_status attn_cache_close(attn_context *context,
                                                   attn_cache *cache, int64_t sequence);

/* ---- 3. Decoding --------------------------------------------------------------------
 */

/** One query each for some sequences; one may be named twice. */
typedef struct attn_batch {
    int64_t count;
    const int64_t *sequences; /* [count] */
    int64_t H;                /* query heads: a multiple of Hk */
} attn_batch;

/**
 * Attention of one query a sequence to all keys that the sequence holds: append a token's
 * key and value first, then let it attend.  What attn_forward computes with B = count,
 * Lq = 1 and the keys of each sequence, and with the same bits where the cache keeps
 * fp32, or the type that key and value have, and these have their elements side by side.
 *
 * @param tensors  query [count][H][1][D], output [count][H][1][Dv], lse and statistics as
 *                 in attn_forward; key and value have data NULL: the cache stands in.
 * @param options  as in attn_forward, positions counting within the sequence.  With L
 * keys in the longest sequence of the batch, keep and bias are [count][H][1][L],
 * log_forget is [count][H][L][1], the gates of all keys in the cache, and blocks
 * [count][H][1][L in blocks]: of a layout, the row that the query's own position is in.
 * So is received [count][H][L].  Not supported, and refused by name: dropout, additive
 * scores, and lengths and starts, which the cache knows.
 *
 * Only keys and values that a head of their key head's group sees by window, sink keys
 * and blocks are read (of 8 bits, with the others of their tile of 16), and work goes
 * with these.
 *
 * Error: that of attn_forward.  With ATTN_CACHE_I8, against what the scaled whole numbers
 * mean, for |scores| ≤ 30: the query is rounded to 1/65278 of its largest magnitude q, so
 * a score is off by e = |scale| · D · q · the largest |key| / 65278 at most; weights are
 * rounded to 1/65278 of the largest of 128 keys; the output is off by at most 2·e + 2e-3
 * of the largest |value|.  That holds for every instruction set: avx512bf16 multiplies
 * bytes with dot products (AVX-512 VNNI), the others 16 bits, and sums are exact either
 * way; attn_plan_decode says which.
 *
 * @return ATTN_OK, ATTN_EINVAL, ATTN_ENOMEM or ATTN_EUNSUPPORTED; outputs are untouched
 * unless ATTN_OK.
 */
ATTN_API ATTN_CHECKED attn_status attn_decode(attn_context *context,
                                              const attn_cache *cache,
                                              const attn_batch *batch,
                                              const attn_tensors *tensors,
                                              const attn_options *options);

/** What attn_decode would do, and take of the context's memory.  Same errors. */
ATTN_API ATTN_CHECKED attn_status attn_plan_decode(
    attn_context *context, const attn_cache *cache, const attn_batch *batch,
    const attn_tensors *tensors, const attn_options *options, attn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

/* What decoding asks of the kernels: one query of a few heads that read the same keys.
 * A lane is a head and a phase: with h heads to a key and n lanes, the vector of scores
 * number r holds keys r·n/h, r·n/h + 1, … one after the other, each with its h heads.  A
 * key or a value is a row without gaps, read in place along its elements. */
#ifndef ATTN_KERNEL_DECODE_TABLE_H
#define ATTN_KERNEL_DECODE_TABLE_H

#include "kernel/table.h"

/* Keys in a block: with 128 a block of fp32 values leaves the first cache before it is
 * used, which costs a sixth of the time. */
enum { ATTN_DECODE_KEYS = 64 };

/* How keys and values are stored: a type of the header, or 8 bits with a scale a row. */
enum attn_stored {
    ATTN_STORED_F32 = ATTN_F32,
    ATTN_STORED_F16 = ATTN_F16,
    ATTN_STORED_BF16 = ATTN_BF16,
    ATTN_STORED_I8 = 16
};

/* The query's side.  Rows of query and output are padded to pairs of vectors, query with
 * 0. */
struct attn_decode_panel {
    size_t heads; /* to a key: a power of two, at most the lanes.  Those beyond the
                   * problem's have queries of 0 */
    size_t D, Dv;
    size_t query_stride, output_stride; /* floats from one head to the next */
    float *query;                       /* [heads][D], multiplied by scale */
    struct attn_additive *additive; /* [heads], for additive scores, which `query` then is
                                     * not consulted for; NULL: scores are products */
    float *output;                  /* [heads][Dv]: Σ e^(score − reference) · value */

    /* For 8 bits: query = whole · query_scale, as near as 16 bits come. */
    int16_t *whole;                      /* [heads][D], of query's stride */
    float query_scale[ATTN_PANEL_LANES]; /* of each lane */

    /* The running state of each lane; vectors is 1, and D, Dv, query and output are not
     * used.  The lanes of one head share their reference. */
    struct attn_panel lanes;

    /* What softmax multiplied the sums by, and value has to multiply the output by. */
    bool grew;
    float growth[ATTN_PANEL_LANES];
};

/* A run of keys that the query sees all of, but for what `added` hides. */
struct attn_decode_block {
    int64_t first_key; /* its index in the sequence */
    size_t keys;       /* 1 to ATTN_DECODE_KEYS */
    const char *key, *value;
    ptrdiff_t key_stride, value_stride; /* bytes from one row to the next */
    enum attn_stored key_type, value_type;
    const float *key_scales, *value_scales; /* [keys], for 8 bits */
    const char *next_key,
        *next_value;  /* those of the block after it, which are fetched */
    size_t next_keys; /* 0: none */

    /* How scores are bent. */
    float softcap;       /* 0: not */
    float distance;      /* of the query's position from the first key */
    const float *slopes; /* NULL: no ALiBi; that of each lane */
    const float *added;  /* NULL: nothing; [key][heads] to the end of the last vector:
                          * bias, −∞ where keep or bias hides */
};

struct attn_decode_kernels {
    /* A query of additive scores, whose vector, scale and plain stand already. */
    void (*load_additive)(struct attn_additive *additive, size_t D);

    /* scores[key][heads] = bent key · query, −∞ where hidden, and for keys beyond the
     * block's in the last vector. */
    void (*score)(float *scores, const struct attn_decode_panel *panel,
                  const struct attn_decode_block *block);

    /* As attn_kernels.softmax, without dropout. */
    void (*softmax)(struct attn_decode_panel *panel, float *scores,
                    const struct attn_decode_block *block,
                    const struct attn_sweep *sweep);

    /* output[head][d] = growth · output + Σ weights[key][head] · value[key][d] over the
     * keys the head sees: a value it does not see may be NaN.  Overwrites weights. */
    void (*value)(struct attn_decode_panel *panel, float *weights,
                  const struct attn_decode_block *block);

    /* Fills whole and query_scale. */
    void (*round_query)(struct attn_decode_panel *panel);

    /* Rows without gaps of 8 bits: to · scale is the row, to half of the scale, which is
     * its largest magnitude over 127; NaN for a row that holds NaN or ∞. */
    void (*quantise)(int8_t *to, float *scales, const float *from, size_t row_stride,
                     size_t rows, size_t size);

    /* to[n] = to[n] · to_factor + from[n] · from_factor; size is in whole vectors. */
    void (*merge)(float *to, float to_factor, const float *from, float from_factor,
                  size_t size);
};

#endif

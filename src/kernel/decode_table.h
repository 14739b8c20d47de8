/* What decoding asks of the kernels: one query of a few heads that read the same keys.
 * A lane is a head and a phase: with h heads to a key and n lanes, the vector of scores
 * number r holds keys r·n/h, r·n/h + 1, … one after the other, each with its h heads.  A
 * key or a value is a row without gaps, read in place along its elements. */
#ifndef ATTN_KERNEL_DECODE_TABLE_H
#define ATTN_KERNEL_DECODE_TABLE_H

#include "kernel/table.h"
#include <string.h>

/* The most keys in a block; half as many where they have more than 64 elements: with 64
 * of 128, fp32 takes a tenth longer, fp16 a twentieth less, and all types have the same,
 * since what is widened gives the same bits.  Of 8 bits, 64 take longer. */
enum { ATTN_DECODE_KEYS = 64, ATTN_DECODE_BYTE_KEYS = 128 };

/* Queries in parts have a multiple of so many elements, values too, and no more. */
enum { ATTN_PART_ELEMENTS = 32, ATTN_PARTED_SIZE = 512 };

/* Floats that they take. */
static inline size_t attn_part_floats(size_t heads, size_t D)
{
    return (heads + 3) / 4 * 8 * D;
}

/* How keys and values are stored: a type of the header, or 8 bits with a scale a row. */
enum attn_stored {
    ATTN_STORED_F32 = ATTN_F32,
    ATTN_STORED_F16 = ATTN_F16,
    ATTN_STORED_BF16 = ATTN_BF16,
    ATTN_STORED_I8 = 16
};

/* Rows of 8 bits, as a cache keeps them: whole numbers, and 128 to each, so that none is
 * negative.  Keys lie in tiles of 16, of which every four elements lie together,
 * [key / 16][D / 4][key % 16][4], D filled up to fours; values lie in fours,
 * [key / 4][Dv][key % 4].  So one instruction takes four products to a lane, and lanes
 * are keys in one case, elements in the other. */
enum { ATTN_BYTES_TILE = 16, ATTN_BYTES_LANE = 4, ATTN_BYTES_ZERO = 128 };

static inline size_t attn_bytes_of_key(size_t D)
{
    return (D + ATTN_BYTES_LANE - 1) / ATTN_BYTES_LANE * ATTN_BYTES_LANE;
}

static inline size_t attn_byte_of_key(size_t D, size_t row, size_t d)
{
    return row / ATTN_BYTES_TILE * ATTN_BYTES_TILE * attn_bytes_of_key(D) +
           d / ATTN_BYTES_LANE * ATTN_BYTES_TILE * ATTN_BYTES_LANE +
           row % ATTN_BYTES_TILE * ATTN_BYTES_LANE + d % ATTN_BYTES_LANE;
}

static inline size_t attn_byte_of_value(size_t Dv, size_t row, size_t d)
{
    return row / ATTN_BYTES_LANE * ATTN_BYTES_LANE * Dv + d * ATTN_BYTES_LANE +
           row % ATTN_BYTES_LANE;
}

/* The scale of a row of 8 bits is a float of 16 bits: never negative, so that it has no
 * sign but one more bit, the upper 17 of an fp32 without the first. */
static inline float attn_byte_scale(uint16_t stored)
{
    const uint32_t bits = (uint32_t)stored << 15;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Sums of products of bytes and 16 bits stay below 2³¹ for so many. */
enum { ATTN_BYTES_CHUNK = 256 };

static inline size_t attn_bytes_chunks(size_t D)
{
    return (D + ATTN_BYTES_CHUNK - 1) / ATTN_BYTES_CHUNK;
}

/* The query's side.  Rows of query and output are padded to pairs of vectors, query with
 * 0.  Queries lie as [D / lanes][heads][lanes], the same vector of all heads side by
 * side; for keys of 8 bits as [heads][D]. */
struct attn_decode_panel {
    size_t heads; /* to a key: a power of two, at most the lanes.  Those beyond the
                   * problem's have queries of 0 */
    size_t D, Dv;
    size_t query_stride, output_stride; /* floats from one head to the next */
    size_t query_step;                  /* floats from one vector to the next */
    float *query;                       /* multiplied by scale */
    struct attn_additive *additive; /* [heads], for additive scores, which `query` then is
                                     * not consulted for; NULL: scores are products */
    float *output; /* [heads][Dv]: Σ e^(score − reference) · value; of pairs not in the
                    * order of elements until order_output has been called */

    /* Pairs of bfloat16: keys and values are multiplied as they are, with queries as they
     * are, and weights that are rounded; D and Dv are multiples of two vectors. */
    uint16_t *query_pairs; /* [D / pair][heads][pair]; NULL: not so */
    float scale;           /* of scores, then */

    /* Beside keys and values of bfloat16, queries in three parts, where products of tiles
     * take them; NULL: not so. */
    uint16_t *query_parts; /* [heads / 4][D / 32][16 pairs][16 columns][2] */

    /* For 8 bits: query = whole number · query_scale, as near as 16 bits come.  Two
     * int32_t hold four whole numbers, as vi_dot_bytes wants them. */
    int32_t *whole;       /* [D / 4][heads][2]; NULL: other types */
    int32_t *whole_begin; /* [chunks of D][heads]: −128 · the sum of the chunk */
    float query_scale[ATTN_PANEL_LANES]; /* [heads] */

    /* Products of tiles of a key: how many, and the rows of their right operand; 0: they
     * are not used.  Set by open. */
    size_t tile_steps, tile_rows;

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
    size_t keys;       /* 1 to ATTN_DECODE_KEYS; of 8 bits, with queries in parts, and
                        * where blocks are long, to ATTN_DECODE_BYTE_KEYS */
    const char *key, *value;
    ptrdiff_t key_stride, value_stride; /* bytes from one row to the next */
    enum attn_stored key_type, value_type;

    /* For 8 bits: key and value are where a page has its first row, and row the first
     * key's place in it; scales are those of the first key. */
    size_t row;
    const uint16_t *key_scales, *value_scales; /* [keys] */

    /* The block after it, to be fetched. */
    const char *next_key, *next_value;
    const uint16_t *next_key_scales, *next_value_scales;
    size_t next_keys; /* 0: none */

    /* How scores are bent. */
    float softcap;       /* 0: not */
    float distance;      /* of the query's position from the first key */
    const float *slopes; /* NULL: no ALiBi; that of each lane */
    const float *added;  /* NULL: nothing; [key][heads] to the end of the last vector:
                          * bias and gates, −∞ where a key is hidden from a head */
    bool hides;          /* some of it is −∞ */
};

/* Where rows of 8 bits are written: from the row on, to the end of the page. */
struct attn_byte_rows {
    uint8_t *page;    /* its first row */
    uint16_t *scales; /* [rows] */
    size_t row, size;
    bool keys; /* the order of keys; else that of values */
};

struct attn_decode_kernels {
    /* Around all that is done with a panel, whose sizes stand already; NULL: nothing. */
    void (*open)(struct attn_decode_panel *panel);
    void (*close)(void);

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
     * keys the head sees: a value it does not see may be NaN.  Overwrites weights.  Of
     * pairs, adds the rounded weights to the lanes' rounded_sum. */
    void (*value)(struct attn_decode_panel *panel, float *weights,
                  const struct attn_decode_block *block);

    /* Brings the output of pairs in order, at the end of a split; NULL where there are
     * none. */
    void (*order_output)(struct attn_decode_panel *panel);

    /* For attn_plan: how 8 bits are multiplied; pairs of bfloat16, NULL where there are
     * none. */
    const char *bytes_path, *pairs_path;

    /* Whether query_parts are wanted, and blocks of ATTN_DECODE_BYTE_KEYS of all types.
     */
    bool takes_parts, long_blocks;

    /* Fills whole, whole_begin and query_scale, or query_parts, where there are any. */
    void (*ready_query)(struct attn_decode_panel *panel);

    /* Rows of 8 bits: their numbers · scale are the row, to half of the scale, which is
     * its largest magnitude over 127, rounded up; NaN for a row that holds NaN or ∞. */
    void (*quantise)(const struct attn_byte_rows *to, const float *from,
                     size_t row_stride, size_t rows);

    /* to[n] = to[n] · to_factor + from[n] · from_factor; size is in whole vectors. */
    void (*merge)(float *to, float to_factor, const float *from, float from_factor,
                  size_t size);
};

#endif

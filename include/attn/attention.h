/* Attention on a processor, exactly, in fp32 arithmetic:
 *
 *     O = softmax(softcap(Q Kᵀ·scale) + bias, over the visible keys) V
 *
 * or with additive scores instead of products: forward, backward, and a look inside:
 * where every query looked, in the same pass.  Memory grows with the sequence and never
 * with its square.
 *
 * Read in this order: status, context, shapes and tensors, options (what is visible and
 * how scores are bent), forward, statistics, backward, weights, plan.
 *
 * Shape letters, everywhere: B batch, H query heads, Hk key heads, Lq queries, Lk keys,
 * D head size, Dv value head size. */
#ifndef ATTN_ATTENTION_H
#define ATTN_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define ATTN_API __attribute__((visibility("default")))
#    define ATTN_CHECKED __attribute__((warn_unused_result))
#else
#    define ATTN_API
#    define ATTN_CHECKED
#endif

/* ---- 1. Status ----------------------------------------------------------------------
 */

/** The values are pinned: they may be stored and passed between versions. */
typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_EINVAL = -1,       /* an argument breaks its contract; see the message */
    ATTN_ENOMEM = -2,       /* memory was refused; nothing was written */
    ATTN_EUNSUPPORTED = -3, /* this build or this processor lacks what was asked for */
    ATTN_EIO = -4,          /* a file could not be read or written */
    ATTN_EFORMAT = -5,      /* a file's content is not what it should be */
    ATTN_ENOTFINITE = -6    /* numbers grew without bound, as in a training gone wrong */
} attn_status;

/** "ATTN_OK", "ATTN_EINVAL", …; never NULL. */
ATTN_API const char *attn_status_name(attn_status status);

/* ---- 2. Context ---------------------------------------------------------------------
 */

/** What calls share: the chosen kernels, threads, scratch memory, the last message.  One
 * thread at a time may use a context; different contexts are independent. */
typedef struct attn_context attn_context;

/** Calls task(argument, index) once for each index from 0 to count − 1, in any order and
 * on any threads, and returns when all have returned.  pool is passed through. */
typedef void attn_parallel_for(void *pool, size_t count,
                               void (*task)(void *argument, size_t index),
                               void *argument);

typedef struct attn_context_options {
    /** "generic", "avx2", "avx512", "avx512bf16", "amx" or "neon".  NULL takes the
     * environment's ATTN_ISA, and where that is unset or empty the best this processor
     * has.  For "amx" Linux is asked once to keep tiles for all threads of the process,
     * whose signal stacks then need some 11 KB; where it refuses, "amx" is not here. */
    const char *isa;
    /** How many tasks parallel_for can usefully run at once, at least 1.  No result
     * depends on it by a bit. */
    size_t threads;
    /** NULL runs everything on the caller's thread. */
    attn_parallel_for *parallel_for;
    void *pool;
} attn_context_options;

/**
 * @param options  NULL for the best instruction set and the caller's thread alone.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EINVAL (threads of 0), or ATTN_EUNSUPPORTED (an
 * unknown instruction set, or one this processor cannot run: never a silent fallback).
 *         *context is NULL on failure.
 */
ATTN_API ATTN_CHECKED attn_status
attn_context_create(attn_context **context, const attn_context_options *options);

/** NULL is fine. */
ATTN_API void attn_context_destroy(attn_context *context);

/** The instruction set in use, as attn_context_options spells it. */
ATTN_API const char *attn_context_isa(const attn_context *context);

/** Why the last failed call failed: the argument, what was got, what was expected. */
ATTN_API const char *attn_context_message(const attn_context *context);

/**
 * Lends the context memory to work in, so that it allocates none: until bytes = 0 takes
 * it back, a call that needs more than bytes fails with ATTN_ENOMEM and names the number.
 * attn_plan tells that number.  memory is aligned to 64 bytes, and stays the caller's.
 */
ATTN_API ATTN_CHECKED attn_status attn_context_lend_scratch(attn_context *context,
                                                            void *memory, size_t bytes);

/* ---- 3. Shapes and tensors ----------------------------------------------------------
 */

/** B, H or Lq of 0 is no work; Lk of 0 gives every query an empty row. */
typedef struct attn_shape {
    int64_t B;  /* batch */
    int64_t H;  /* query heads: a multiple of Hk */
    int64_t Hk; /* key heads: query head h reads key head h / (H/Hk) */
    int64_t Lq; /* queries */
    int64_t Lk; /* keys */
    int64_t D;  /* size of a query and of a key, at least 1 */
    int64_t Dv; /* size of a value and of an output, at least 1 */
} attn_shape;

/** How the elements of a tensor are stored.  Whatever the storage, all arithmetic is
 * fp32: elements are widened, exactly, as they are read, and rounded to nearest even as
 * they are written (NaN stays NaN; what is too large for binary16 becomes ∞).  A number
 * below 2⁻¹²⁶, given or found on the way, may count as 0: so may a weight, and then an ∞
 * that it meets makes NaN. */
typedef enum attn_type {
    ATTN_F32,
    ATTN_F16, /* IEEE 754 binary16 */
    ATTN_BF16 /* the upper half of an fp32 */
} attn_type;

/** Bytes of one element: 4 or 2; 0 for what is not a type. */
ATTN_API size_t attn_type_bytes(attn_type type);

/**
 * Element [b][h][l][d] is data[b·stride[0] + h·stride[1] + l·stride[2] + d·stride[3]],
 * data being an array of that type.  Strides count elements; 0 and negative ones are
 * honoured, the innermost need not be 1.
 */
typedef struct attn_input {
    const void *data;
    int64_t stride[4];
    attn_type type;
} attn_input;

/** As attn_input; no two elements may share an address. */
typedef struct attn_output {
    void *data;
    int64_t stride[4];
    attn_type type;
} attn_output;

/** Row-major without gaps: [B][heads][length][size], of type ATTN_F32 until the caller
 * sets another one. */
ATTN_API attn_input attn_input_dense(const void *data, int64_t heads, int64_t length,
                                     int64_t size);
ATTN_API attn_output attn_output_dense(void *data, int64_t heads, int64_t length,
                                       int64_t size);

/** Which keys may be attended to, [B][H][Lq][Lk]: not 0 is visible.  Strides count bytes;
 * 0 broadcasts. */
typedef struct attn_keep {
    const uint8_t *data; /* NULL: every key */
    int64_t stride[4];
} attn_keep;

/* ---- 4. Options ---------------------------------------------------------------------
 */

/** Where a query stands among the keys: query i has position i + offset. */
typedef enum attn_alignment {
    ATTN_ALIGN_BOTTOM_RIGHT, /* offset Lk − Lq, of each sequence by itself: the default */
    ATTN_ALIGN_TOP_LEFT,     /* offset 0 */
    ATTN_ALIGN_OFFSET        /* query_offset: the number of cached keys, say */
} attn_alignment;

/** What a score is, before all that options do to it. */
typedef enum attn_score {
    ATTN_SCORE_DOT,      /* scale · query·key: Vaswani et al. 2017, section 3.2.1 */
    ATTN_SCORE_ADDITIVE, /* scale · Σ_d v[d]·tanh(query[d] + key[d]): Bahdanau et al.
                          * 2014, appendix A.1.2.  query is their W s and key their U h,
                          * already projected; a bias belongs to either projection */
    ATTN_SCORE_LINEAR /* ln φ(query)·φ(key): weights are then products of features over
                       * their sum, which is linear attention.  linear.h has its output
                       * without a walk over all pairs; this is to look into it */
} attn_score;

/** φ: what linear attention makes of each element of queries and keys. */
typedef enum attn_feature {
    ATTN_FEATURE_ELU,     /* φ(x) = elu(x) + 1, positive: Katharopoulos et al. 2020 */
    ATTN_FEATURE_RELU,    /* φ(x) = max(x, 0); a row of features may then be 0 */
    ATTN_FEATURE_IDENTITY /* φ(x) = x, for features made before */
} attn_feature;

/**
 * Scores go, in this order, through: scale → softcap → bias, ALiBi and forget gates →
 * visibility → softmax over the visible keys and the sink → dropout.  A key is visible
 * when every rule given says so.
 */
typedef struct attn_options {
    attn_score score;
    const float *additive; /* v of each head, [H][D] and contiguous, with
                            * ATTN_SCORE_ADDITIVE; else NULL */
    attn_feature feature;  /* with ATTN_SCORE_LINEAR */
    float scale;   /* finite; 0 and negative mean what they say.  Not consulted with
                    * ATTN_SCORE_LINEAR: a factor of all products is none */
    float softcap; /* c > 0 turns a score s into c·tanh(s/c); 0 leaves it */

    attn_alignment alignment;
    int64_t query_offset; /* with ATTN_ALIGN_OFFSET */
    bool causal;          /* hide keys after the query's own position */
    int64_t window_left;  /* keys seen before the own position, −1 for all */
    int64_t window_right; /* keys seen after the own position, −1 for all */
    int64_t sink_keys;    /* the first so many keys of a sequence are seen whatever the
                           * window says, as long as all other rules say so too; 0: none */

    /** Padded batches: sequence b has the first query_lengths[b] queries and
     * key_lengths[b] keys.  Queries beyond are padding: output 0, lse −∞.  NULL: all of
     * them.  [B] */
    const int64_t *query_lengths, *key_lengths;

    /** Packed batches (B = 1): sequence s has queries query_starts[s] to
     * query_starts[s+1] − 1 and the same of key_starts, and sees nothing else.  Both
     * begin with 0 and never fall; the last ones are Lq and Lk.  [sequences + 1], or both
     * NULL. */
    int64_t sequences;
    const int64_t *query_starts, *key_starts;

    attn_keep keep; /* indices are those of the tensors, packed or not */

    /** A block-sparse layout, [B][H][query blocks][key blocks]: query i of a sequence may
     * see its key j where element [i / block_size][j / block_size] is not 0.  Work goes
     * with the blocks that are visible.  attn_layout_fill makes the usual ones. */
    attn_keep blocks;
    int64_t block_size; /* with blocks: a multiple of 16; 64 and 128 are fast */

    attn_input bias; /* added to the score, [B][H][Lq][Lk]; data NULL for none.  −∞ hides;
                      * a finite bias, however negative, does not */
    const float *alibi_slopes; /* [H]: adds −slope·|position − key|.  NULL for none;
                                * attn_alibi_slopes_fill makes the usual ones */
    /** ln of each position's forget gate, at most 0, [B][H][Lk][1]; data NULL for none.
     * A query adds to the score of key j those of all positions after j up to its own
     * (Lin et al. 2025, "Forgetting Transformer"), so causal is a must.  Below −10000
     * counts as that, −∞ too: nothing is left either way.  Positions without a key forget
     * nothing.  A NaN reaches the rows at and after its position; of a sequence with one
     * query, only if that sees a key before it. */
    attn_input log_forget;
    const float *sinks; /* [H]: a logit that joins the sum of each row and has no
                         * value.  NULL for none; −∞ is none for that head */

    double dropout; /* probability that a weight is dropped, 0 to 1; those that stay
                     * are divided by 1 − dropout */
    uint64_t
        dropout_seed; /* the draw for (seed, b, h, query, key) is always the same.  In
                       * packed batches b is the sequence, query and key count in it */
} attn_options;

/** scale 1/√D, every key visible, nothing added.  Plain dot-product attention is scale 1.
 */
ATTN_API void attn_options_init(attn_options *options, const attn_shape *shape);

/** The same for additive attention: scale 1, and v of each head, which stays the
 * caller's. */
ATTN_API void attn_options_init_additive(attn_options *options, const attn_shape *shape,
                                         const float *additive);

/** The same for linear attention. */
ATTN_API void attn_options_init_linear(attn_options *options, const attn_shape *shape,
                                       attn_feature feature);

/** Which blocks of keys a block of queries sees, both counted by their place: its own and
 * its neighbours' (`local` on either side, −1 for none), the first `global` ones, which
 * also see all, and every `stride`-th before or after it (0 for none): Child et al. 2019,
 * Zaheer et al. 2020. */
typedef struct attn_layout {
    int64_t local, global, stride;
} attn_layout;

/**
 * Writes 1 where the layout says so and 0 elsewhere, [query_blocks][key_blocks], for
 * attn_options.blocks.
 * @return ATTN_OK, or ATTN_EINVAL (blocks is NULL, or a number is negative but local −1).
 */
ATTN_API ATTN_CHECKED attn_status attn_layout_fill(uint8_t *blocks, int64_t query_blocks,
                                                   int64_t key_blocks,
                                                   const attn_layout *layout);

/**
 * Writes a slope for each of H heads, for attn_options.alibi_slopes: 2^(−8/H) to 2^−8
 * where H is a power of two, and else as the code of Press et al. 2022 (ALiBi) and the
 * models that came of it have them, which is not the paper's formula: those of the power
 * of two below, then every other one of twice as many, from the first.
 * @return ATTN_OK, or ATTN_EINVAL (slopes is NULL, or H is negative).
 */
ATTN_API ATTN_CHECKED attn_status attn_alibi_slopes_fill(float *slopes, int64_t heads);

/* ---- 5. Forward and statistics ------------------------------------------------------
 */

/**
 * How each query spread its weights w over its visible keys; [B][H][Lq] and contiguous
 * unless said.  A NULL member is not wanted.  Weights are those before dropout, and with
 * a sink sum to less than 1.  An empty row, and a padding query, has 0 everywhere and −1
 * for a key.  A row with a NaN has NaN everywhere, and its keys are unspecified.  Keys
 * count in the tensors, but in packed batches within their sequence.
 */
typedef struct attn_statistics {
    float *entropy;         /* −Σ w ln w, in nats; exactly 0 for one visible key */
    float *largest_weight;  /* max w */
    int64_t *largest_key;   /* the key that holds it, the lowest on a tie */
    float *distance;        /* Σ w |position − key| */
    float *signed_distance; /* Σ w (position − key): positive looks back */
    float *first_key_mass;  /* w of key 0, where heads at rest look; 0 if hidden */
    float *own_mass;        /* w of the key at the query's own position */
    float *previous_mass;   /* w of the key before it */
    float *next_mass;       /* w of the key after it */
    int64_t *visible_keys;  /* how many keys the query sees: entropy / ln(this) is the
                             * normalised entropy */

    /** Mass on classes of keys: key j of sequence b is of class
     * key_class[b·key_class_stride
     * + j] (in packed batches the index in the pack), less than classes ≤ 64. */
    const uint8_t *key_class;
    int64_t key_class_stride, classes;
    float *class_mass; /* [B][H][Lq][classes] */

    /** [B][H][Lk]: Σ over queries of the weight that key j received.  Takes memory for
     * the weights of at least one panel of queries a worker, as many floats as it has
     * lanes (48 with AVX-512) for each key that it sees, and up to seven times that of
     * received itself. */
    float *received;

    int64_t top;       /* how many of the largest weights, 1 to 64; Lk ≤ 2^32 */
    float *top_weight; /* [B][H][Lq][top], falling; 0 where there are fewer keys */
    int64_t *top_key;  /* [B][H][Lq][top], the lowest first on a tie; −1 likewise */
} attn_statistics;

/** Outputs may not overlap inputs or each other. */
typedef struct attn_tensors {
    attn_input query;   /* [B][H][Lq][D] */
    attn_input key;     /* [B][Hk][Lk][D] */
    attn_input value;   /* [B][Hk][Lk][Dv] */
    attn_output output; /* [B][H][Lq][Dv] */
    float *lse; /* [B][H][Lq], contiguous, or NULL: ln Σ exp(score), with the sink */
    attn_statistics statistics;
} attn_tensors;

/**
 * Writes output, and lse and statistics where asked for (which changes no bit of the
 * output).
 *
 * A query without a visible key gets output 0 and lse −∞ (with a sink: the sink).  What a
 * query cannot see is never read into its row: NaN or ∞ there changes nothing.  A NaN it
 * can see makes its row NaN, and no other.  A sequence has the same bits whatever else is
 * in the batch, padded or packed, and for any number of threads.
 *
 * Error against double precision, for |scores| ≤ 30: output 4e-6 of the largest |value|,
 * and with dropout that over 1 − dropout; lse 4e-6, entropy 2e-5, other statistics 8e-6
 * (absolute up to 1, relative beyond).  That is of the numbers that 16-bit inputs hold;
 * an output of 16 bits is then rounded, and has the bits of the fp32 one rounded.
 * avx512bf16 and amx multiply pairs of bfloat16 where query, key, value and output all
 * are ATTN_BF16, though amx seldom those of one query: there weights are rounded, still
 * to sum to 1, and before its own rounding the output errs by 2⁻⁸ of the largest |value|
 * at most; lse and statistics as above.  In other sequences of 256 queries or more, 512
 * where D is below 48, and not where it is below 32, with ATTN_SCORE_DOT, amx takes
 * products in three parts of bfloat16 for each number, which hold its 24 bits: a score
 * may err by D·2⁻⁶⁴ more than that of multiply-adds, where elements are tiny.
 *
 * Additive scores take no tanh for a pair of query and key, but each term v[d]·tanh is
 * within 3e-7·|v[d]|.  Those above are bounds for |scale|·Σ|v[d]| ≤ 30 then.
 *
 * With ATTN_SCORE_LINEAR the bounds are those for features that are not negative.  A pair
 * whose product is 0 weighs nothing, like one whose score is −∞; one that is negative,
 * which identity features may give, has no logarithm and makes its row NaN.
 *
 * Formula: Vaswani et al. 2017, section 3.2.1, and see attn_score; one pass over the keys
 * with a running maximum: Milakov and Gimelshein 2018, algorithm 3.
 *
 * @return ATTN_OK, ATTN_EINVAL or ATTN_ENOMEM; outputs are untouched unless ATTN_OK.
 */
ATTN_API ATTN_CHECKED attn_status attn_forward(attn_context *context,
                                               const attn_shape *shape,
                                               const attn_tensors *tensors,
                                               const attn_options *options);

/* ---- 6. Backward --------------------------------------------------------------------
 */

/** Gradients of a loss.  Those with data NULL (or NULL) are not wanted; the others are
 * overwritten, and have the strides given. */
typedef struct attn_gradients {
    attn_input output; /* in: of the output, [B][H][Lq][Dv] */
    attn_output query; /* [B][H][Lq][D] */
    attn_output key;   /* [B][Hk][Lk][D]: summed over the heads that share it */
    attn_output value; /* [B][Hk][Lk][Dv] */
    attn_output bias;  /* [B][H][Lq][Lk]; a stride of 0 sums over that axis, in a fixed
                        * order, and must be 0 exactly where options->bias has it.  In 16
                        * bits it takes fp32 scratch of its own size, for the sums */
    attn_output log_forget; /* [B][H][Lk][1], fp32.  A row with a NaN makes those of all
                             * positions up to its own NaN */
    float *sinks;           /* [H] */
    float *additive; /* [H][D], of options->additive: summed over all pairs of the head,
                      * in a fixed order */
} attn_gradients;

/**
 * Gradients of softmax attention (of linear attention: attn_linear_backward;
 * ATTN_SCORE_LINEAR is refused), from what attn_forward was given and wrote: tensors as
 * in that call, with output and lse as it left them (statistics are not consulted), and
 * the same options, dropout seed included.  Weights are computed again from the scores
 * and lse; where that is more than 64 in size and its rounding would show, from the
 * scores alone.
 *
 * An empty row and whatever is hidden has gradient 0, and is not read; with one visible
 * key, no sink and no dropout, query and key have gradient 0 exactly.  A sequence has the
 * same bits whatever else is in the batch, and for any number of threads.
 *
 * Error against double precision, for |scores| ≤ 30 and N = Lq·H/Hk queries to a key:
 * with g the largest |gradient of the output| over 1 − dropout, and G = g·√Dv times the
 * largest |value|, that of value 4e-6·g·√N; query 4e-6·|scale|·G times the largest |key|;
 * key 4e-6·|scale|·G·√N times the largest |query|; bias, log_forget and sinks
 * 4e-6·G·√(pairs summed).
 * amx multiplies in three parts of bfloat16 here too, where attn_forward did, a group of
 * up to 192 queries of a head at a time; but with multiply-adds where a number of the
 * group, or of the head's keys and values, is not finite or above 2³⁰, where the largest
 * of a tensor's is below 2⁻³⁰ there, or an lse is not within ±64.  Such a number may so
 * change the last bits of other rows of its head.
 * With additive scores, of |v| at most V: query 4e-6·|scale|·G·V, key √N of that, and
 * additive 4e-6·|scale|·G·√(queries of the head).
 * Gradients of 16 bits are then rounded.  An output of 16 bits was rounded before: what
 * that took from g·o, at most 2⁻⁹ (binary16: 2⁻¹²) of Σ|g·o|, goes into the gradients of
 * all but value, times |scale| and the mean key that the query saw, or the weighted sum
 * of queries that saw the key.
 *
 * Formula: Dao et al. 2022, appendix B.4; dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O)).
 *
 * @return ATTN_OK, ATTN_EINVAL, ATTN_EUNSUPPORTED or ATTN_ENOMEM; gradients are untouched
 *         unless ATTN_OK.
 */
ATTN_API ATTN_CHECKED attn_status attn_backward(attn_context *context,
                                                const attn_shape *shape,
                                                const attn_tensors *tensors,
                                                const attn_options *options,
                                                const attn_gradients *gradients);

/* ---- 7. Weights ---------------------------------------------------------------------
 */

/** Rows are queries, columns are keys, of one head. */
typedef struct attn_rectangle {
    int64_t b, h;
    int64_t first_query, queries;
    int64_t first_key, keys;
} attn_rectangle;

/**
 * The exact weights of any rectangle: weights[i·row_stride + j] is the weight that query
 * first_query + i gives to key first_key + j, before dropout, 0 where hidden.  Work and
 * memory grow with the rectangle; tensors->lse, as attn_forward wrote it, spares a pass
 * over the rows' other keys where it is given and at most 64 in size: beyond, its
 * rounding would show.  value and output are not consulted.
 *
 * @param row_stride  floats from one row to the next; at least rectangle->keys.
 * @return ATTN_OK, ATTN_EINVAL or ATTN_ENOMEM.
 */
ATTN_API ATTN_CHECKED attn_status attn_weights(attn_context *context,
                                               const attn_shape *shape,
                                               const attn_tensors *tensors,
                                               const attn_options *options,
                                               const attn_rectangle *rectangle,
                                               float *weights, int64_t row_stride);

/* ---- 8. Plan ------------------------------------------------------------------------
 */

typedef struct attn_plan {
    const char *path;     /* what would run, in words that tests compare; static.  Ends in
                           * the instruction set; "nothing" when there are no queries */
    size_t scratch_bytes; /* what the call takes of the context's memory */
    double visible_pairs; /* query-key pairs, over all heads and sequences, that the rules
                           * of position leave visible: forward is 4·D operations a pair
                           * when D = Dv */
} attn_plan;

/**
 * What attn_forward would do, without doing it.  Same errors.  Takes no time that grows
 * with sizes, but for that of looking at lengths or starts, and at the rows of
 * options.blocks with all they show, where these are given.
 */
ATTN_API ATTN_CHECKED attn_status attn_plan_forward(attn_context *context,
                                                    const attn_shape *shape,
                                                    const attn_tensors *tensors,
                                                    const attn_options *options,
                                                    attn_plan *plan);

/** What attn_backward would do, likewise. */
ATTN_API ATTN_CHECKED attn_status attn_plan_backward(
    attn_context *context, const attn_shape *shape, const attn_tensors *tensors,
    const attn_options *options, const attn_gradients *gradients, attn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif

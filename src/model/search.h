/* Greedy and beam search over a decoder, whatever model is inside it: all beams of all
 * sequences that are under way are fed in one step. */
#ifndef ATTN_MODEL_SEARCH_H
#define ATTN_MODEL_SEARCH_H

#include "base/error.h"

enum { ATTN_MOST_BEAMS = 256 };

/** A decoder that has been started on a number of sequences, one token at a time, for
 * many beams of each. */
typedef struct attn_decoder {
    void *state;
    int64_t vocabulary;
    /**
     * Feeds every live beam one token.
     * @param row_starts  [sequences + 1]: sequence s has rows row_starts[s] to
     *                    row_starts[s + 1] − 1, none when it is done.
     * @param parents     [rows]: the row of the last step that this row continues; not
     *                    consulted in the first.
     * @param ids         [rows]: the token it wrote, or the start.
     * @param logits      out: [rows][vocabulary], valid until the next step.
     */
    attn_status (*step)(void *state, const int64_t *row_starts, const int64_t *parents,
                        const int32_t *ids, const float **logits, attn_error *error);
    void (*destroy)(void *state);
} attn_decoder;

typedef struct attn_search_options {
    int64_t beams;       /* 1 is greedy; at most ATTN_MOST_BEAMS */
    double length_power; /* a hypothesis's log-probability is divided by length^power */
    int64_t max_length;  /* tokens that are written, </s> included.  0: 2 × the source's
                          * tokens + 10, as far as the positions reach */
} attn_search_options;

void attn_search_options_init(attn_search_options *options); /* 4 beams, power 1 */

typedef struct attn_translation {
    int32_t *ids; /* without start and </s> */
    size_t count;
    bool finished; /* </s> was written, and not only the length reached */
    double score;  /* log-probability of what was written with its </s>, divided as the
                    * options say */
} attn_translation;

/**
 * The best hypothesis of each sequence; each starts with </s>, and <s>, <pad> and <unk>
 * are never written.  The search is that of Hugging Face's `generate` with early_stopping
 * false, see beam.c.
 * @param limits        [sequences]: tokens that are written at most, </s> included.
 * @param first         the number of the first sequence in messages.
 * @param translations  [sequences], zeros before; free each one's ids, also on failure.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_ENOTFINITE (logits of a broken model), or what step
 *         returned.
 */
ATTN_CHECKED attn_status attn_search(const attn_decoder *decoder, int64_t sequences,
                                     const int64_t *limits,
                                     const attn_search_options *options, int64_t first,
                                     attn_translation *translations, attn_error *error);

#endif

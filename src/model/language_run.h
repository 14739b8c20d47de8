/* A language model token by token: what was read is kept (keys and values of each layer
 * in the pages of attn/cache.h, forget gates beside them; of linear attention the sums;
 * the state of an LSTM), so that the next token costs one row and not the whole text. */
#ifndef ATTN_MODEL_LANGUAGE_RUN_H
#define ATTN_MODEL_LANGUAGE_RUN_H

#include "attn/cache.h"
#include "model/language.h"

typedef struct attn_language_run attn_language_run;

typedef struct attn_language_run_options {
    attn_cache_type cache; /* how keys and values are kept; sums and states are fp32 */
    int64_t capacity;      /* most tokens of the text; 0: the model's positions */

    /* A text without end (Xiao et al. 2023, section 3.2): of the tokens read, the first
     * `sinks` and the last `window`, the one that reads included, are seen, and no other.
     * Positions are those in the cache: keys are kept as they were before they were
     * turned, and turned anew at each step.  window 0: all are seen.
     *
     * `heavy` more tokens are seen beside those, the heavy hitters: whenever one has to
     * go, it is that which received least weight from all queries so far, the oldest on a
     * tie (Zhang et al. 2023, section 4).  Each layer and key head keeps its own. */
    int64_t window, sinks, heavy;
} attn_language_run_options;

/** language and tape outlive it; between its calls the tape is free for other uses.
 * @param options  NULL: all {0}, which is fp32, all positions.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: a capacity above the positions; a window,
 *         sinks and heavy that together are; a window of an LSTM or of linear attention;
 *         no type of a cache, or of linear attention another than fp32. */
ATTN_CHECKED attn_status attn_language_run_create(
    attn_language_run **run, const attn_language *language, attn_tape *tape,
    const attn_language_run_options *options, attn_error *error);
void attn_language_run_destroy(attn_language_run *run);

/** Reads the next tokens.  The first of a run are read together, later ones each as they
 * come; the logits are those of a pass over the whole text, up to the order of sums and
 * to what the cache rounds.
 * @param count   at least 1.
 * @param logits  out: of what follows the last of them, [vocabulary], until the tape's
 *                next use.
 * @return ATTN_OK; ATTN_EINVAL, with nothing read, where the text would be longer than
 *         the capacity or an id is outside the vocabulary; after another failure the run
 *         is only to be destroyed. */
ATTN_CHECKED attn_status attn_language_run_read(attn_language_run *run,
                                                const int32_t *ids, int64_t count,
                                                const float **logits, attn_error *error);

/** Tokens that it has read. */
int64_t attn_language_run_length(const attn_language_run *run);
/** Bytes that what was read takes at capacity. */
size_t attn_language_run_bytes(const attn_language_run *run);

#endif

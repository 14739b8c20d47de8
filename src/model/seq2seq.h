/* A model that reads one sequence of tokens and writes another, whatever is inside: what
 * the search, the scores, a training and the look inside ask of it.
 *
 * Sequences are packed (see nn/layers.h).  A source is its tokens and </s>; a target that
 * is fed starts with </s> (the decoder's start), the one that is predicted ends with it.
 */
#ifndef ATTN_MODEL_SEQ2SEQ_H
#define ATTN_MODEL_SEQ2SEQ_H

#include "model/languages.h"
#include "model/search.h"
#include "nn/layers.h"

/** A packed batch of sentence pairs. */
typedef struct attn_pair_batch {
    int64_t sentences;
    const int32_t *source;        /* [source_starts[sentences]] */
    const int64_t *source_starts; /* [sentences + 1] */
    const int32_t *target_in;     /* </s> first */
    const int32_t *target_out;    /* </s> last; same starts */
    const int64_t *target_starts;
} attn_pair_batch;

typedef struct attn_seq2seq_kind {
    /** Reads the sources, once each, whatever the number of their beams.  model, tape and
     * packing outlive the decoder.
     * @param max_rows  beams of all sequences together, at most. */
    attn_status (*start)(attn_decoder *decoder, const void *model, attn_tape *tape,
                         const int32_t *source, attn_packing packing, int64_t max_rows,
                         attn_error *error);
    /** What the vocabulary projection reads, [target tokens][…]; the pass's observer
     * hears of every attention, all rows of a part and layer at once. */
    attn_tensor *(*hidden)(const void *model, const attn_pass *pass,
                           const attn_pair_batch *batch);
    /** Sum over target tokens of the smoothed loss, divided by divisor; see
     * attn_linear_cross_entropy. */
    attn_tensor *(*loss)(const void *model, const attn_pass *pass,
                         const attn_pair_batch *batch, float smoothing, double divisor,
                         double *plain);
    attn_status (*save)(const void *model, const char *folder, int dtype,
                        attn_error *error);
    void (*destroy)(void *model);
} attn_seq2seq_kind;

/** A view of a model, which it does not own. */
typedef struct attn_seq2seq {
    const attn_seq2seq_kind *kind;
    void *model;
    attn_parameters *parameters;
    int64_t vocabulary;
    int64_t max_positions; /* longest source or target in tokens, </s> included */
    struct {
        int64_t layers, heads; /* 0 where the model has no such attention */
    } attention[ATTN_PART_CROSS + 1];
    const attn_languages *languages;
    const char *note; /* what loading found worth saying, or "" */
} attn_seq2seq;

/** From a folder, by the model_type of its config.json;
 * model->kind->destroy(model->model) in the end.
 * @return as the model's own function, and ATTN_EUNSUPPORTED for a model that does not
 *         read and write. */
ATTN_CHECKED attn_status attn_seq2seq_load(attn_seq2seq *model, const char *folder,
                                           attn_error *error);

#endif

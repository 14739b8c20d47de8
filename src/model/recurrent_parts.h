/* What the files of the recurrent translator share: it from inside, and the parts of its
 * computation that a whole pass and a step have in common. */
#ifndef ATTN_MODEL_RECURRENT_PARTS_H
#define ATTN_MODEL_RECURRENT_PARTS_H

#include "model/recurrent_translator.h"
#include "nn/recurrent.h"

struct attn_recurrent_translator {
    attn_recurrent_translator_config config;
    attn_parameters parameters;
    size_t embedding, output, output_bias; /* output is embedding where they are tied */
    attn_recurrent_layer encoder, decoder;
    attn_linear_layer
        bridge; /* last states → [states, or states and memories, of layers] */
    size_t query_weight, query_bias; /* additive (with its bias) and general */
    size_t key_weight, score_weight; /* additive */
    attn_linear_layer merge;
    char note[160];
};

/* Of the encoder's states, both directions together. */
int64_t attn_recurrent_source_width(const attn_recurrent_translator_config *config);

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_recurrent_translator_outline(
    attn_recurrent_translator **translator,
    const attn_recurrent_translator_config *config, attn_error *error);

/* What the decoder reads of the sources. */
typedef struct attn_recurrent_source {
    attn_memory memory;           /* keys and values of attention; NULL without it */
    attn_tensor *summary;         /* [sentences][source width]: the last states */
    attn_recurrent_states states; /* that the decoder starts from, [sentences][width] */
} attn_recurrent_source;

void attn_recurrent_read(const attn_recurrent_translator *translator,
                         const attn_pass *pass, const int32_t *source,
                         attn_packing packing, attn_recurrent_source *out);

/* One token more for each of some rows.
 * @param rows      a sequence of one token each.
 * @param beams     the same rows, those of each sentence of the source together.
 * @param query     NULL, or out: what attention was asked with.
 * @return [rows][width + source width]: state and context. */
attn_tensor *attn_recurrent_step(const attn_recurrent_translator *translator,
                                 const attn_pass *pass, const int32_t *ids,
                                 attn_packing rows, attn_packing beams,
                                 const attn_recurrent_source *source,
                                 const attn_recurrent_states *before,
                                 attn_recurrent_states *after, attn_tensor **query);

/* tanh(merge(state and context)), then the projection. */
attn_tensor *attn_recurrent_merge(const attn_recurrent_translator *translator,
                                  const attn_pass *pass, attn_tensor *joined);
attn_tensor *attn_recurrent_project(const attn_recurrent_translator *translator,
                                    const attn_pass *pass, attn_tensor *hidden);

/* One token at a time, states kept; see attn_seq2seq_kind. */
ATTN_CHECKED attn_status attn_recurrent_decoder_start(
    attn_decoder *decoder, const void *model, attn_tape *tape, const int32_t *source,
    attn_packing packing, int64_t max_rows, attn_error *error);

#endif

/* What the files of reader.h share: a reader from inside. */
#ifndef ATTN_MODEL_READER_PARTS_H
#define ATTN_MODEL_READER_PARTS_H

#include "model/bert.h"
#include "model/labels.h"
#include "model/reader.h"
#include "nn/recurrent.h"

struct attn_reader {
    attn_reader_config config;
    attn_bert *bert; /* a Transformer's everything; else NULL, and what follows */
    attn_parameters parameters;
    size_t embedding; /* [vocabulary + buckets][embedding] */
    attn_recurrent_layer recurrent;
    attn_linear_layer convolutions[ATTN_READER_FILTERS];
    attn_linear_layer query, key; /* of attention; pooling has no query */
    size_t vector;                /* of additive scores, [1][attention_width] */
    attn_linear_layer classifier;
    attn_labels labels;
};

/* The layers and the names and shapes of the parameters, whose memory is not yet there.
 */
ATTN_CHECKED attn_status attn_reader_outline(attn_reader **reader,
                                             const attn_reader_config *config,
                                             attn_error *error);

/* A packed batch: chunks of tokens, and what is labelled. */
typedef struct attn_reader_packed {
    int32_t *ids;        /* [chunks.starts[chunks.sequences]], specials included */
    attn_packing chunks; /* of tokens */
    attn_packing texts;  /* of chunks; where texts are labelled */
    attn_packing words;  /* of pieces: tokens without the specials */
    attn_packing groups; /* of words: those of a chunk */
    int32_t *pieces;     /* [words.starts[words.sequences]]: the row of each piece */
} attn_reader_packed;

/* In memory of the tape; false after failing it. */
bool attn_reader_pack(const attn_reader *reader, attn_tape *tape,
                      const attn_reader_text *texts, int64_t count,
                      attn_reader_packed *packed);

#endif

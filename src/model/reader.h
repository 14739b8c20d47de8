/* Models that read a text and label it, or each of its words: a classifier, a tagger.
 *
 *     embedding → body → pooling → linear                       labels of a text
 *     embedding → body → words, self-attention → linear         labels of its words
 *
 * The body is a bag of words (a control: no order but that of pairs), a convolution (Kim
 * 2014), a recurrent layer (the tagger of Huang et al. 2015 without its CRF), or the
 * Transformer encoder of model/bert.h, which brings its own embedding and pooling.
 *
 * A text longer than the model's positions is cut into chunks of about equal length, none
 * of which sees another; its logits are the mean of theirs.  Sequences are packed (see
 * nn/layers.h).
 *
 * Parameters: embeddings.word_embeddings.weight; encoder.… with the names of PyTorch's
 * RNN, GRU and LSTM, or encoder.convolutions.N.… with weights [out][taps·in];
 * attention.query_proj, .key_proj, .vector; classifier.…  A Transformer's are BERT's. */
#ifndef ATTN_MODEL_READER_H
#define ATTN_MODEL_READER_H

#include "base/error.h"
#include "nn/layers.h"

typedef enum attn_reader_body {
    ATTN_BODY_BAG, /* the tokens' vectors themselves, and those of hashed pairs */
    ATTN_BODY_CONVOLUTION,
    ATTN_BODY_RNN,
    ATTN_BODY_GRU,
    ATTN_BODY_LSTM,
    ATTN_BODY_TRANSFORMER
} attn_reader_body;

/** How the states of a text become one. */
typedef enum attn_reader_pooling {
    ATTN_READER_MEAN,
    ATTN_READER_MAX,
    ATTN_READER_LAST,      /* of a recurrent body: the last state of each direction */
    ATTN_READER_ATTENTION, /* Σ softmax(v·tanh(W h + b)) h, additive attention with one
                            * query (Yang et al. 2016, section 2.2); no Transformer */
    ATTN_READER_FIRST      /* of a Transformer: BERT's pooler on the first token */
} attn_reader_pooling;

/** What a word's state may see of the others', beside it in what the labels are read
 * from. */
typedef enum attn_reader_attention {
    ATTN_READER_ALONE,
    ATTN_READER_ADDITIVE, /* v·tanh(Q h + K h') */
    ATTN_READER_PRODUCT   /* Q h · K h' / √D */
} attn_reader_attention;

enum { ATTN_READER_FILTERS = 4 };

typedef struct attn_reader_config {
    bool tags; /* labels of words, and not of texts */
    int64_t labels;
    int64_t vocabulary, max_positions;
    attn_reader_body body;
    int64_t embedding; /* width of a token's vector; 0 with a Transformer */
    int64_t buckets;   /* of pairs of neighbouring tokens (Joulin et al. 2017); a bag's */
    int64_t width;     /* of the states; of a recurrent body's in each direction; filters
                        * of each length; 0 with a bag */
    int64_t layers;    /* of a recurrent body or a Transformer, else 0 */
    bool both_ways;    /* of a recurrent body */
    int64_t filter_count, filters[ATTN_READER_FILTERS]; /* their lengths in tokens */
    attn_reader_pooling pooling;                        /* of texts */
    attn_reader_attention attention;                    /* of words; no Transformer */
    int64_t attention_width;                            /* D, of both; else 0 */
    bool mean_pieces; /* a word's state is the mean of its tokens', and not the first */
    int64_t heads, inner; /* of a Transformer, else 0 */
    float dropout;        /* of embeddings, states, and what labels are read from; of a
                           * Transformer's residual stream */
    float token_dropout;  /* tokens that become <unk> in training */
    float attention_dropout;
    bool linear_attention; /* of a Transformer: in place of softmax's, without
                            * attention_dropout */
} attn_reader_config;

/** ATTN_EINVAL names what is out of range or does not go together; a Transformer's heads
 * are left to its creation. */
ATTN_CHECKED attn_status attn_reader_check(const attn_reader_config *config,
                                           attn_error *error);

typedef struct attn_reader attn_reader;

/** New, with initialised parameters and labels "LABEL_0", "LABEL_1", …
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL as attn_reader_check. */
ATTN_CHECKED attn_status attn_reader_create(attn_reader **reader,
                                            const attn_reader_config *config,
                                            uint64_t seed, attn_error *error);
/** From a folder: config.json (of model_type "attn-reader", or of BERT's classes) and
 * model.safetensors, held against each other before memory is taken; each tensor missing,
 * unknown, of another shape or of a type that is not floating point is an error that
 * names it.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EIO (not there, not readable), ATTN_EFORMAT (not
 *         what it should be), or ATTN_EUNSUPPORTED (a model of another class). */
ATTN_CHECKED attn_status attn_reader_load(attn_reader **reader, const char *folder,
                                          attn_error *error);
/** config.json, tokenizer_config.json and model.safetensors (attn_dtype ATTN_DTYPE_F32 or
 * ATTN_DTYPE_BF16), each whole or not at all; the folder is made where it is missing. */
ATTN_CHECKED attn_status attn_reader_save(const attn_reader *reader, const char *folder,
                                          int dtype, attn_error *error);
void attn_reader_destroy(attn_reader *reader);

/** Takes over the encoder of a BERT in a folder, see attn_bert_start; ATTN_EINVAL where
 * the body is no Transformer. */
ATTN_CHECKED attn_status attn_reader_start(attn_reader *reader, const char *folder,
                                           attn_error *error);

const attn_reader_config *attn_reader_config_of(const attn_reader *reader);
/** Its parameters: training changes their values. */
attn_parameters *attn_reader_parameters(attn_reader *reader);
/** The name of a label, which config.json keeps in id2label; NULL outside [0, labels). */
const char *attn_reader_label(const attn_reader *reader, int64_t index);
/** Names all labels, names[labels]; they are copied.  ATTN_EINVAL where two are equal,
 * ATTN_ENOMEM; on failure the old names stay. */
ATTN_CHECKED attn_status attn_reader_name_labels(attn_reader *reader,
                                                 const char *const *names,
                                                 attn_error *error);

/** A text as tokens, without <s> and </s>.  Words, where they are labelled, are the
 * tokens starts[w] to starts[w + 1] − 1, the first from 0, the last to count; none is
 * empty. */
typedef struct attn_reader_text {
    const int32_t *ids;
    int64_t count;
    const int64_t *starts; /* [words + 1]; NULL where texts are labelled */
    int64_t words;
} attn_reader_text;

/** How many chunks a text is cut into: 1 where it fits in the positions, 0 where a word
 * alone is longer than they are. */
int64_t attn_reader_chunks(const attn_reader *reader, const attn_reader_text *text);

/** Logits of texts, [texts][labels], or of all their words, [words][labels].  A text of
 * no tokens has logits, one of no words has none.  Everything is kept on the tape: texts
 * may go. */
attn_tensor *attn_reader_logits(const attn_reader *reader, const attn_pass *pass,
                                const attn_reader_text *texts, int64_t count);

/** Sum of the cross-entropies of targets, one for each row of logits, divided by divisor;
 * *plain and smoothing as in attn_linear_cross_entropy.  *correct, where not NULL, gets
 * the number of rows whose largest logit is the target's (the first of equals). */
attn_tensor *attn_reader_loss(const attn_reader *reader, const attn_pass *pass,
                              attn_tensor *logits, const int32_t *targets,
                              float smoothing, double divisor, double *plain,
                              int64_t *correct);

/** Probabilities of the labels of every row that attn_reader_logits gives,
 * [rows][labels], a few thousand tokens at a time.  A text's do not depend on the others'
 * by a bit.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EINVAL (a word that does not fit in the positions,
 *         an id outside the vocabulary), or ATTN_ENOTFINITE (a broken model). */
ATTN_CHECKED attn_status attn_reader_predict(const attn_reader *reader,
                                             attn_context *context,
                                             const attn_reader_text *texts, int64_t count,
                                             float *probabilities, attn_error *error);

/** The most probable label of a row, the first of equals. */
int64_t attn_reader_choose(const float *probabilities, int64_t labels);

#endif

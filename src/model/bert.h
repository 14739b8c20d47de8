/* BERT (Devlin et al. 2019): a Transformer encoder with learned positions, normalising
 * last, in the layout of Hugging Face's BertForMaskedLM, BertForSequenceClassification
 * and BertForTokenClassification.  config.json and model.safetensors of a folder open
 * there and give the same logits, and what is saved there opens here.  Where labels of a
 * text are read from the mean of its tokens, it opens there as a
 * BertForTokenClassification, the mean of whose logits are the text's.  With linear
 * attention (Katharopoulos et al. 2020) its model_type is one of ours, "bert-variant",
 * which does not open there.
 *
 * Texts are packed (see nn/layers.h): there is no padding, and a token's position is
 * counted within its own text.  A text starts with <s> in the place of [CLS] and ends
 * with </s> in that of [SEP]; attn_tokenizer_mask tells the token in that of [MASK]. */
#ifndef ATTN_MODEL_BERT_H
#define ATTN_MODEL_BERT_H

#include "base/error.h"
#include "nn/layers.h"

/** "model_type" of config.json. */
#define ATTN_BERT_TYPE "bert"
#define ATTN_BERT_VARIANT "bert-variant"

/** What stands on the encoder. */
typedef enum attn_bert_head {
    ATTN_BERT_MASKED,   /* the vocabulary at each token */
    ATTN_BERT_SEQUENCE, /* labels of a text, read from its first token by a pooler */
    ATTN_BERT_TOKENS,   /* labels of each token */
    ATTN_BERT_MEAN      /* labels of a text, read from the mean of its tokens' states */
} attn_bert_head;

typedef struct attn_bert_config {
    attn_bert_head head;
    int64_t labels; /* 2 or more; 0 for ATTN_BERT_MASKED */
    int64_t vocabulary, width, layers, heads;
    int64_t inner;         /* of the feed-forward layers */
    int64_t max_positions; /* longest text in tokens, <s> and </s> included */
    int64_t types;         /* of tokens: 2 tell the first of a pair of texts from the
                            * second; 1 or more */
    attn_activation activation;
    float epsilon;            /* of the norms, added to the variance: 1e-12 in BERT */
    float dropout;            /* of embeddings, and of what joins the residual stream */
    float attention_dropout;  /* of attention weights */
    float classifier_dropout; /* of what the labels are read from */
    bool linear_attention;    /* of elu + 1, in place of softmax's; attention_dropout is 0
                               * then */
    bool untied; /* the vocabulary projection is cls.predictions.decoder.weight and not
                  * the embedding; ATTN_BERT_MASKED only */
} attn_bert_config;

typedef struct attn_bert attn_bert;

/** BERT's own: GELU, epsilon 1e-12, dropouts 0.1, 2 types; the sizes are left 0. */
void attn_bert_config_init(attn_bert_config *config);

/** New, with initialised parameters and labels "LABEL_0", "LABEL_1", …
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: a size out of range (heads divide width),
 *         a dropout outside [0, 1), labels of a masked language model, linear attention
 *         with attention_dropout. */
ATTN_CHECKED attn_status attn_bert_create(attn_bert **bert,
                                          const attn_bert_config *config, uint64_t seed,
                                          attn_error *error);
/** From a folder: config.json and model.safetensors, held against each other before
 * memory is taken; each tensor missing, unknown, of another shape or of a type that is
 * not floating point is an error that names it.  Untied outputs as in
 * attn_translator_load.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EIO (not there, not readable), ATTN_EFORMAT (not
 *         what it should be), or ATTN_EUNSUPPORTED (a model of another class or variant).
 */
ATTN_CHECKED attn_status attn_bert_load(attn_bert **bert, const char *folder,
                                        attn_error *error);
/** config.json, tokenizer_config.json (which makes `transformers` open the tokenizer.json
 * beside it) and model.safetensors (ATTN_DTYPE_F32 or ATTN_DTYPE_BF16), each whole or not
 * at all; the folder is made where it is missing. */
ATTN_CHECKED attn_status attn_bert_save(const attn_bert *bert, const char *folder,
                                        int dtype, attn_error *error);
void attn_bert_destroy(attn_bert *bert);

/** The configuration in a folder's config.json. */
ATTN_CHECKED attn_status attn_bert_config_load(attn_bert_config *config,
                                               const char *folder, attn_error *error);
/** Takes over the values of the encoder (all that stands below the head; the pooler where
 * the folder has one) from a model whose encoder has the same sizes, whatever its head:
 * how fine-tuning starts.  On failure nothing has changed.
 * @return as attn_bert_load; ATTN_EINVAL where a size differs, which is named. */
ATTN_CHECKED attn_status attn_bert_start(attn_bert *bert, const char *folder,
                                         attn_error *error);

const attn_bert_config *attn_bert_config_of(const attn_bert *bert);
/** What loading found worth saying, or "". */
const char *attn_bert_note(const attn_bert *bert);
/** Its parameters: training changes their values. */
attn_parameters *attn_bert_parameters(attn_bert *bert);

/** The name of a label, which config.json keeps in id2label; NULL outside [0, labels). */
const char *attn_bert_label(const attn_bert *bert, int64_t index);
/** Names all labels, names[config.labels]; they are copied.  ATTN_EINVAL where two are
 * equal, ATTN_ENOMEM; on failure the old names stay. */
ATTN_CHECKED attn_status attn_bert_name_labels(attn_bert *bert, const char *const *names,
                                               attn_error *error);

typedef struct attn_bert_input {
    const int32_t *ids;   /* [tokens] */
    const int32_t *types; /* [tokens], or NULL: all 0; read again by backward */
    attn_packing packing;
} attn_bert_input;

/** [tokens][vocabulary], [texts][labels] or [tokens][labels], as the head is; without a
 * token, a text has no label, and fails the tape.  So does an id, type or position
 * outside its table.  Each attention is told to the pass's observer. */
attn_tensor *attn_bert_logits(const attn_bert *bert, const attn_pass *pass,
                              const attn_bert_input *input);
/** The masked language model's logits at chosen tokens, at[count] → [count][vocabulary].
 */
attn_tensor *attn_bert_logits_at(const attn_bert *bert, const attn_pass *pass,
                                 const attn_bert_input *input, const int32_t *at,
                                 int64_t count);
/** Sum of the cross-entropies of targets, one for each row of the logits (below 0: not
 * counted, and not computed either where the head is the vocabulary), divided by divisor;
 * see attn_linear_cross_entropy. */
attn_tensor *attn_bert_loss(const attn_bert *bert, const attn_pass *pass,
                            const attn_bert_input *input, const int32_t *targets,
                            float smoothing, double divisor, double *plain);

/** The same outside training, unsmoothed and undivided, for those who want to know more:
 * fails the tape in training.  logits has a row for each target that counts, in order. */
typedef struct attn_bert_measures {
    const float *logits; /* of the tape */
    double plain;        /* sum of the cross-entropies, in nats */
    int64_t count;       /* targets that count */
    int64_t correct;     /* of them, those with the largest logit, the first of equals */
} attn_bert_measures;
bool attn_bert_measure(const attn_bert *bert, const attn_pass *pass,
                       const attn_bert_input *input, const int32_t *targets,
                       attn_bert_measures *measures);

#endif

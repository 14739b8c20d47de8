/* A causal language model in the layout of Hugging Face's LlamaForCausalLM (Touvron et
 * al. 2023): RMSNorm before each sub-layer, rotary positions in halves, grouped key
 * heads, SwiGLU, no biases.  Parameters have the names and shapes of its files, and the
 * logits are those of `transformers`.
 *
 * Variants of it, in a layout of ours: no positions (what is causal can count by itself),
 * forget gates (Lin et al. 2025), by which each head's scores of what lies back sink as
 * the text goes on, and linear attention (Katharopoulos et al. 2020), which reads all
 * that lies back from sums of one size.
 *
 * Its control is the same without attention: the embedding, layers of LSTM, the output
 * (Zaremba et al. 2014), in a layout of ours with PyTorch's names.
 *
 * Texts are packed (see nn/layers.h).  Token by token: language_run.h. */
#ifndef ATTN_MODEL_LANGUAGE_H
#define ATTN_MODEL_LANGUAGE_H

#include "base/error.h"
#include "nn/layers.h"

typedef enum attn_language_body {
    ATTN_LANGUAGE_LLAMA,
    ATTN_LANGUAGE_LSTM /* of what follows it has vocabulary, width, layers (8 at most),
                        * max_positions (which nothing in it needs: those of the texts it
                        * is for), dropout, untied, bos and eos */
} attn_language_body;

typedef struct attn_language_config {
    attn_language_body body;
    int64_t vocabulary, width, layers;
    int64_t heads, key_heads; /* heads divides width and is a multiple of key_heads */
    int64_t inner;            /* of the feed-forward layers */
    int64_t max_positions;    /* longest text in tokens */
    double rotary_base;       /* "rope_theta", 10000 in Llama 2 */
    bool no_positions;        /* queries and keys are not turned */
    bool alibi;               /* scores fall with the distance, by each head's slope */
    bool sink_logits;         /* each head has a learned sink, self_attn.sinks */
    bool forgets;             /* each head has a forget gate, σ(self_attn.forget_proj) */
    bool linear_attention;    /* of elu + 1 of what is turned, in place of softmax's; with
                               * none of alibi, sink_logits, forgets, attention_dropout */
    float epsilon;            /* of the norms */
    float dropout; /* of embeddings, and of what joins the residual stream; not Llama's.
                    * LSTM: of what enters each layer and the output */
    float attention_dropout;
    bool untied;      /* the projection is a table of its own and not the embedding */
    int64_t bos, eos; /* ids of what begins and ends a text; −1 where there is none */
    int64_t text_window; /* how it was trained: on windows of so many tokens of a long
                          * text, each after bos; 0: a line is a text */
} attn_language_config;

typedef struct attn_language attn_language;

/** New, with initialised parameters.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: a size out of range, a head of an odd
 *         width, max_positions × a head's width above 2^24, a dropout outside [0, 1), bos
 *         or eos not in the vocabulary, linear attention with what it has none of. */
ATTN_CHECKED attn_status attn_language_create(attn_language **language,
                                              const attn_language_config *config,
                                              uint64_t seed, attn_error *error);
/** From a folder: config.json, of LlamaForCausalLM or ours of the LSTM, and
 * model.safetensors, held against each other as attn_translator_load does.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EIO (not there, not readable), ATTN_EFORMAT (not
 * what it should be), or ATTN_EUNSUPPORTED (a model of another class or variant). */
ATTN_CHECKED attn_status attn_language_load(attn_language **language, const char *folder,
                                            attn_error *error);
/** config.json, generation_config.json, tokenizer_config.json and model.safetensors
 * (attn_dtype ATTN_DTYPE_F32 or ATTN_DTYPE_BF16), each whole or not at all; the folder is
 * made where it is missing.  With the Llama body `transformers` opens it. */
ATTN_CHECKED attn_status attn_language_save(const attn_language *language,
                                            const char *folder, int dtype,
                                            attn_error *error);
/** What loading found worth saying, or "". */
const char *attn_language_note(const attn_language *language);
void attn_language_destroy(attn_language *language);
const attn_language_config *attn_language_config_of(const attn_language *language);
/** Its parameters: training changes their values. */
attn_parameters *attn_language_parameters(attn_language *language);

/** Hidden states after the last norm, [tokens][width]. */
attn_tensor *attn_language_hidden(const attn_language *language, const attn_pass *pass,
                                  const int32_t *ids, attn_packing packing);
/** [tokens][vocabulary] */
attn_tensor *attn_language_logits(const attn_language *language, const attn_pass *pass,
                                  const int32_t *ids, attn_packing packing);
/** Sum over the tokens of the smoothed cross-entropy of what follows each, targets[n]
 * (below 0: not counted), divided by divisor; see attn_linear_cross_entropy. */
attn_tensor *attn_language_loss(const attn_language *language, const attn_pass *pass,
                                const int32_t *ids, const int32_t *targets,
                                attn_packing packing, float smoothing, double divisor,
                                double *plain);
/** The same, unsmoothed, of rows of hidden states. */
attn_tensor *attn_language_loss_of_hidden(const attn_language *language,
                                          const attn_pass *pass, attn_tensor *hidden,
                                          const int32_t *targets, double divisor,
                                          double *plain);

#endif

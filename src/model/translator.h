/* The Transformer translator (Vaswani et al. 2017) in a layout of Hugging Face's:
 * normalising first M2M100ForConditionalGeneration's, normalising last (the paper's own)
 * MarianMTModel's.  config.json, model.safetensors and tokenizer.json of a folder open
 * there and give the same logits.
 */
#ifndef ATTN_MODEL_TRANSLATOR_H
#define ATTN_MODEL_TRANSLATOR_H

#include "model/seq2seq.h"
#include "text/tokenizer.h"

typedef struct attn_translator_config {
    int64_t vocabulary, width, heads, encoder_layers, decoder_layers;
    int64_t inner;         /* of the feed-forward layers */
    int64_t max_positions; /* longest source or target in tokens, </s> included */
    attn_activation activation;
    float dropout;            /* of embeddings, and of what joins the residual stream */
    float attention_dropout;  /* of attention weights */
    float activation_dropout; /* within the feed-forward layers */
    bool untied; /* the vocabulary projection is lm_head.weight and not the embedding */
    bool normalise_first;   /* sub-layers are x + f(norm(x)), and not norm(x + f(x)) */
    bool learned_positions; /* and not sinusoids; normalising last only, as the other
                             * layout has no place for them in the file */
    attn_languages languages;
} attn_translator_config;

typedef struct attn_translator attn_translator;

/** New, with initialised parameters.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: a size out of range (heads divide width,
 * width ≥ 4, vocabulary holds the special tokens, max_positions × width ≤ 2^24), a
 *         dropout outside [0, 1), learned positions where normalising comes first. */
ATTN_CHECKED attn_status attn_translator_create(attn_translator **translator,
                                                const attn_translator_config *config,
                                                uint64_t seed, attn_error *error);
/** From a folder in the Hugging Face layout: config.json and model.safetensors.
 * Everything the configuration claims is held against the file before memory is taken for
 * it; each tensor missing, unknown, of another shape or of a type that is not floating
 * point is an error that names it. Where the configuration ties the output to the
 * embedding and the file has an lm_head of its own that differs, both are used and
 * attn_translator_note says so; where it does not tie them, lm_head.weight must be there.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EIO (not there, not readable), ATTN_EFORMAT (not
 * what it should be), or ATTN_EUNSUPPORTED (a model of another class or variant). */
ATTN_CHECKED attn_status attn_translator_load(attn_translator **translator,
                                              const char *folder, attn_error *error);
/** config.json, generation_config.json, tokenizer_config.json (which makes `transformers`
 * open the tokenizer.json beside it) and model.safetensors (attn_dtype ATTN_DTYPE_F32 or
 * ATTN_DTYPE_BF16), each whole or not at all; the folder is made where it is missing. */
ATTN_CHECKED attn_status attn_translator_save(const attn_translator *translator,
                                              const char *folder, int dtype,
                                              attn_error *error);
void attn_translator_destroy(attn_translator *translator);
const attn_translator_config *
attn_translator_config_of(const attn_translator *translator);
/** What loading found worth saying, or "". */
const char *attn_translator_note(const attn_translator *translator);
/** Its parameters: training changes their values. */
attn_parameters *attn_translator_parameters(attn_translator *translator);

/** Seen as what search, scores and the look inside ask for. */
attn_seq2seq attn_translator_seq2seq(attn_translator *translator);

/** Hidden states of the sources after the encoder's last norm, [source tokens][width]. */
attn_tensor *attn_translator_encode(const attn_translator *translator,
                                    const attn_pass *pass, const int32_t *source,
                                    attn_packing packing);
/** Hidden states that the vocabulary projection reads, [target tokens][width]. */
attn_tensor *attn_translator_hidden(const attn_translator *translator,
                                    const attn_pass *pass, const attn_pair_batch *batch);
/** Sum over target tokens of the smoothed loss, divided by divisor; see
 * attn_linear_cross_entropy. */
attn_tensor *attn_translator_loss(const attn_translator *translator,
                                  const attn_pass *pass, const attn_pair_batch *batch,
                                  float smoothing, double divisor, double *plain);
/** [target tokens][vocabulary], for tests against other implementations. */
attn_tensor *attn_translator_logits(const attn_translator *translator,
                                    const attn_pass *pass, const attn_pair_batch *batch);

#endif

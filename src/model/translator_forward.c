/* What a translator computes: the Transformer of Vaswani et al. 2017 over packed
 * sequences.  Normalising last, as there, each sub-layer is norm(x + dropout(f(x)));
 * normalising first, x + dropout(f(norm(x))), and both stacks end in a norm: the two
 * differ in attn_translator_enter and leave alone.  Step-by-step decoding with cached
 * keys and values lives in decoding.c. */
#include "model/translator_parts.h"
#include <math.h>

static attn_tensor *positions_of(const attn_translator *translator, const attn_pass *pass,
                                 attn_part part)
{
    if (translator->config.learned_positions)
        return attn_pass_parameter(pass, part == ATTN_PART_ENCODER
                                             ? translator->encoder_positions
                                             : translator->decoder_positions);
    const int64_t extent[] = {translator->first_position +
                                  translator->config.max_positions,
                              translator->config.width};
    return attn_tape_leaf(pass->tape, translator->positions, NULL, 2, extent);
}

attn_tensor *attn_translator_embed(const attn_translator *translator,
                                   const attn_pass *pass, attn_part part,
                                   const int32_t *ids, attn_packing packing,
                                   int64_t first)
{
    const float scale = sqrtf((float)translator->config.width);
    attn_tensor *x =
        attn_embedding(pass->tape, attn_pass_parameter(pass, translator->embedding), ids,
                       packing.starts[packing.sequences], scale);
    x = attn_add_positions(pass, x, packing, positions_of(translator, pass, part),
                           translator->first_position + first);
    return attn_dropout(pass->tape, x, translator->config.dropout);
}

attn_tensor *attn_translator_enter(const attn_translator *translator,
                                   const attn_norm_layer *norm, const attn_pass *pass,
                                   attn_tensor *x)
{
    return translator->config.normalise_first ? attn_norm_layer_forward(norm, pass, x)
                                              : x;
}

/* The sub-layer's branch joins x, which is normalised now if it was not before. */
static attn_tensor *leave(const attn_translator *translator, const attn_norm_layer *norm,
                          const attn_pass *pass, attn_tensor *x, attn_tensor *branch)
{
    x = attn_add_dropout(pass->tape, x, branch, translator->config.dropout);
    return translator->config.normalise_first ? x
                                              : attn_norm_layer_forward(norm, pass, x);
}

static attn_tensor *feed_forward(const attn_translator *translator, const attn_pass *pass,
                                 const attn_norm_layer *norm,
                                 const attn_feed_forward_layer *layer, attn_tensor *x)
{
    attn_tensor *const branch = attn_feed_forward_layer_forward(
        layer, pass, attn_translator_enter(translator, norm, pass, x),
        translator->config.activation_dropout);
    return leave(translator, norm, pass, x, branch);
}

static attn_tensor *encoder_layer_forward(const attn_translator *translator,
                                          const attn_encoder_layer *layer,
                                          const attn_pass *pass, attn_tensor *x,
                                          attn_packing packing)
{
    attn_tensor *const entered =
        attn_translator_enter(translator, &layer->self_norm, pass, x);
    const attn_memory memory =
        attn_multihead_layer_memory(&layer->self, pass, entered, packing);
    attn_tensor *const attended =
        attn_multihead_layer_forward(&layer->self, pass, entered, packing, &memory, false,
                                     translator->config.attention_dropout);
    x = leave(translator, &layer->self_norm, pass, x, attended);
    return feed_forward(translator, pass, &layer->final_norm, &layer->feed_forward, x);
}

attn_tensor *attn_decoder_layer_forward(
    const attn_translator *translator, const attn_decoder_layer *layer,
    const attn_pass *pass, attn_tensor *x, attn_tensor *entered, attn_packing packing,
    const attn_memory *self, attn_packing cross_packing, const attn_memory *cross)
{
    const float dropout = translator->config.attention_dropout;
    attn_tensor *attended = attn_multihead_layer_forward(&layer->self, pass, entered,
                                                         packing, self, true, dropout);
    x = leave(translator, &layer->self_norm, pass, x, attended);
    entered = attn_translator_enter(translator, &layer->cross_norm, pass, x);
    attended = attn_multihead_layer_forward(&layer->cross, pass, entered, cross_packing,
                                            cross, false, dropout);
    x = leave(translator, &layer->cross_norm, pass, x, attended);
    return feed_forward(translator, pass, &layer->final_norm, &layer->feed_forward, x);
}

attn_tensor *attn_translator_encode(const attn_translator *translator,
                                    const attn_pass *pass, const int32_t *source,
                                    attn_packing packing)
{
    attn_tensor *x =
        attn_translator_embed(translator, pass, ATTN_PART_ENCODER, source, packing, 0);
    for (int64_t i = 0; i < translator->config.encoder_layers; i++)
        x = encoder_layer_forward(translator, &translator->encoder[i], pass, x, packing);
    return attn_translator_enter(translator, &translator->encoder_norm, pass, x);
}

static attn_tensor *decode(const attn_translator *translator, const attn_pass *pass,
                           attn_tensor *encoded, attn_packing source_packing,
                           const int32_t *target_in, attn_packing target_packing)
{
    attn_tensor *x = attn_translator_embed(translator, pass, ATTN_PART_DECODER, target_in,
                                           target_packing, 0);
    for (int64_t i = 0; i < translator->config.decoder_layers; i++) {
        const attn_decoder_layer *const layer = &translator->decoder[i];
        attn_tensor *const entered =
            attn_translator_enter(translator, &layer->self_norm, pass, x);
        const attn_memory self =
            attn_multihead_layer_memory(&layer->self, pass, entered, target_packing);
        const attn_memory cross =
            attn_multihead_layer_memory(&layer->cross, pass, encoded, source_packing);
        x = attn_decoder_layer_forward(translator, layer, pass, x, entered,
                                       target_packing, &self, target_packing, &cross);
    }
    return attn_translator_enter(translator, &translator->decoder_norm, pass, x);
}

/* In the file it is [1][vocabulary]; NULL where normalising comes first. */
static attn_tensor *output_bias_of(const attn_translator *translator,
                                   const attn_pass *pass)
{
    if (translator->config.normalise_first)
        return NULL;
    const attn_parameter *const bias =
        &translator->parameters.list[translator->output_bias];
    return attn_tape_leaf(pass->tape, translator->parameters.values + bias->offset,
                          pass->gradients ? pass->gradients + bias->offset : NULL, 1,
                          &translator->config.vocabulary);
}

attn_tensor *attn_translator_project(const attn_translator *translator,
                                     const attn_pass *pass, attn_tensor *hidden)
{
    return attn_linear(pass->tape, hidden, attn_pass_parameter(pass, translator->output),
                       output_bias_of(translator, pass),
                       !translator->config.normalise_first);
}

attn_tensor *attn_translator_hidden(const attn_translator *translator,
                                    const attn_pass *pass, const attn_pair_batch *batch)
{
    const attn_packing source = {batch->sentences, batch->source_starts};
    const attn_packing target = {batch->sentences, batch->target_starts};
    attn_tensor *const encoded =
        attn_translator_encode(translator, pass, batch->source, source);
    return decode(translator, pass, encoded, source, batch->target_in, target);
}

attn_tensor *attn_translator_loss(const attn_translator *translator,
                                  const attn_pass *pass, const attn_pair_batch *batch,
                                  float smoothing, double divisor, double *plain)
{
    attn_tensor *const hidden = attn_translator_hidden(translator, pass, batch);
    return attn_linear_cross_entropy(
        pass->tape, hidden, attn_pass_parameter(pass, translator->output),
        output_bias_of(translator, pass), !translator->config.normalise_first,
        batch->target_out, smoothing, divisor, plain);
}

attn_tensor *attn_translator_logits(const attn_translator *translator,
                                    const attn_pass *pass, const attn_pair_batch *batch)
{
    attn_tensor *const hidden = attn_translator_hidden(translator, pass, batch);
    return attn_translator_project(translator, pass, hidden);
}

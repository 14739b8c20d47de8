/* What a language model computes.  Each layer of the Llama body is
 *
 *     x ← x + out(attend(turn(query(n)), turn(key(n)), value(n)))      n = norm(x)
 *     x ← x + down(silu(gate(n)) · up(n))                              n = norm(x) */
#include "model/language_parts.h"
#include <math.h>

static attn_tensor *project(const attn_pass *pass, attn_tensor *x, size_t weight)
{
    return attn_linear(pass->tape, x, attn_pass_parameter(pass, weight), NULL, false);
}

static attn_tensor *norm(const attn_language_reading *r, attn_tensor *x, size_t gain)
{
    return attn_rms_norm(r->pass->tape, x, attn_pass_parameter(r->pass, gain),
                         r->language->config.epsilon);
}

attn_tensor *attn_language_turn(const attn_language_reading *reading, attn_tensor *x,
                                const int32_t *positions, int64_t heads)
{
    const attn_language *const language = reading->language;
    const attn_language_config *const config = &language->config;
    if (config->no_positions)
        return x;
    const attn_rotation rotation = {.heads = heads,
                                    .turned = config->width / config->heads,
                                    .cosine = language->cosine,
                                    .sine = language->sine,
                                    .positions = config->max_positions};
    return attn_rotary(reading->pass->tape, x, positions, &rotation);
}

attn_heads attn_language_heads(const attn_language *language, const attn_pass *pass,
                               int64_t layer)
{
    attn_tensor *const sinks =
        language->config.sink_logits
            ? attn_pass_parameter(pass, language->layers[layer].sinks)
            : NULL;
    return (attn_heads){.heads = language->config.heads,
                        .key_heads = language->config.key_heads,
                        .part = ATTN_PART_DECODER,
                        .index = layer,
                        .causal = true,
                        .sinks = sinks,
                        .alibi_slopes = language->slopes,
                        .linear = language->config.linear_attention,
                        .dropout = language->config.attention_dropout};
}

static attn_tensor *attend_to_itself(const attn_language_reading *r, int64_t layer,
                                     attn_tensor *query, const attn_memory *memory)
{
    const attn_heads heads = attn_language_heads(r->language, r->pass, layer);
    attn_memory turned = *memory;
    turned.key = attn_language_turn(r, memory->key, r->positions, heads.key_heads);
    query = attn_language_turn(r, query, r->positions, heads.heads);
    return attn_heads_forward(&heads, r->pass, query, r->packing, &turned);
}

static attn_tensor *attend(const attn_language_reading *r, int64_t index, attn_tensor *x)
{
    const attn_language_layer *const layer = &r->language->layers[index];
    attn_tensor *const n = norm(r, x, layer->attention_norm);
    attn_tensor *const query = project(r->pass, n, layer->query);
    attn_memory memory = {.key = project(r->pass, n, layer->key),
                          .value = project(r->pass, n, layer->value),
                          .packing = r->packing};
    if (r->language->config.forgets)
        memory.log_forget = attn_log_sigmoid(
            r->pass->tape, attn_linear_layer_forward(&layer->forget, r->pass, n));
    if (attn_tape_status(r->pass->tape) != ATTN_OK)
        return NULL;
    attn_tensor *const attended =
        (r->attend ? r->attend : attend_to_itself)(r, index, query, &memory);
    return attn_add_dropout(r->pass->tape, x, project(r->pass, attended, layer->out),
                            r->language->config.dropout);
}

static attn_tensor *feed_forward(const attn_language_reading *r, int64_t index,
                                 attn_tensor *x)
{
    const attn_language_layer *const layer = &r->language->layers[index];
    attn_tensor *const n = norm(r, x, layer->feed_norm);
    attn_tensor *const inner = attn_gate(r->pass->tape, project(r->pass, n, layer->gate),
                                         project(r->pass, n, layer->up), ATTN_SILU);
    return attn_add_dropout(r->pass->tape, x, project(r->pass, inner, layer->down),
                            r->language->config.dropout);
}

/* The embedding's rows are of length 1 at first, which the norms of the Llama body undo
 * and an LSTM does not. */
static float embedding_scale(const attn_language_config *config)
{
    return config->body == ATTN_LANGUAGE_LSTM ? sqrtf((float)config->width) : 1.0f;
}

attn_tensor *attn_language_read(const attn_language_reading *reading, const int32_t *ids)
{
    const attn_language *const language = reading->language;
    const attn_language_config *const config = &language->config;
    const attn_pass *const pass = reading->pass;
    const attn_packing packing = reading->packing;
    attn_tensor *x =
        attn_embedding(pass->tape, attn_pass_parameter(pass, language->embedding), ids,
                       packing.starts[packing.sequences], embedding_scale(config));
    x = attn_dropout(pass->tape, x, config->dropout);
    if (config->body == ATTN_LANGUAGE_LSTM) {
        x = attn_recurrent_layer_forward(&language->recurrent, pass, x, packing,
                                         reading->before, reading->after,
                                         config->dropout);
        return attn_dropout(pass->tape, x, config->dropout);
    }
    for (int64_t i = 0; i < config->layers; i++)
        x = feed_forward(reading, i, attend(reading, i, x));
    return norm(reading, x, language->norm);
}

attn_tensor *attn_language_project(const attn_language *language, const attn_pass *pass,
                                   attn_tensor *hidden)
{
    return project(pass, hidden, language->output);
}

/* ---- Whole texts ----------------------------------------------------------------- */

attn_tensor *attn_language_hidden(const attn_language *language, const attn_pass *pass,
                                  const int32_t *ids, attn_packing packing)
{
    attn_language_reading reading = {
        .language = language, .pass = pass, .packing = packing};
    if (language->config.body == ATTN_LANGUAGE_LLAMA) {
        reading.positions =
            attn_positions(pass->tape, packing, packing.starts[packing.sequences],
                           language->config.max_positions, 0);
        if (!reading.positions)
            return NULL;
    }
    return attn_language_read(&reading, ids);
}

attn_tensor *attn_language_logits(const attn_language *language, const attn_pass *pass,
                                  const int32_t *ids, attn_packing packing)
{
    return attn_language_project(language, pass,
                                 attn_language_hidden(language, pass, ids, packing));
}

static attn_tensor *loss_of(const attn_language *language, const attn_pass *pass,
                            attn_tensor *hidden, const int32_t *targets, float smoothing,
                            double divisor, double *plain)
{
    return attn_linear_cross_entropy(pass->tape, hidden,
                                     attn_pass_parameter(pass, language->output), NULL,
                                     false, targets, smoothing, divisor, plain);
}

attn_tensor *attn_language_loss(const attn_language *language, const attn_pass *pass,
                                const int32_t *ids, const int32_t *targets,
                                attn_packing packing, float smoothing, double divisor,
                                double *plain)
{
    return loss_of(language, pass, attn_language_hidden(language, pass, ids, packing),
                   targets, smoothing, divisor, plain);
}

attn_tensor *attn_language_loss_of_hidden(const attn_language *language,
                                          const attn_pass *pass, attn_tensor *hidden,
                                          const int32_t *targets, double divisor,
                                          double *plain)
{
    return loss_of(language, pass, hidden, targets, 0.0f, divisor, plain);
}

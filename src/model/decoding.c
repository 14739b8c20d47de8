/* Incremental decoding.
 *
 * Cross-attention: the beams of a sentence are the queries of one packed sequence whose
 * keys are the sentence's, so that these are never copied.  Self-attention: each row is a
 * sequence of one query whose keys are copied from its parent's, in the same pass that
 * appends the new one; two buffers take turns.  A row's bits do not depend on the other
 * rows: outside training every operation of the tape computes a row, or a packed
 * sequence, as if it were alone. */
#include "model/decoding.h"
#include "base/context.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Keys and values of one layer. */
struct cross_cache {
    float *key, *value; /* [source tokens][width] */
};

struct self_cache {
    float *key, *value;           /* [rows][steps][width] */
    float *next_key, *next_value; /* of the step under way */
};

struct decoding {
    const attn_translator *translator;
    attn_tape *tape;
    attn_packing source;
    struct cross_cache *cross; /* [decoder layers] */
    struct self_cache *self;   /* [decoder layers] */
    int64_t step;              /* tokens that each row has been fed */
    size_t cache_floats;       /* of each buffer of self */
    int64_t rows;              /* of the step under way, at most max_rows */
    int64_t max_rows;
    int64_t *row_starts; /* 0, 1, 2, … [max_rows + 1] */
    int64_t *key_starts; /* of each row's keys [max_rows + 1] */
};

static attn_pass inference_pass(const struct decoding *decoding)
{
    attn_tape_begin(decoding->tape, false, 0);
    return (attn_pass){.tape = decoding->tape,
                       .parameters = &decoding->translator->parameters};
}

static attn_status encode(struct decoding *decoding, const int32_t *source,
                          attn_error *error)
{
    const attn_translator *const translator = decoding->translator;
    const attn_packing packing = decoding->source;
    const size_t bytes =
        (size_t)(packing.starts[packing.sequences] * translator->config.width) *
        sizeof(float);
    const attn_pass pass = inference_pass(decoding);
    attn_tensor *const encoded =
        attn_translator_encode(translator, &pass, source, packing);
    for (int64_t i = 0; i < translator->config.decoder_layers; i++) {
        const attn_memory memory = attn_multihead_layer_memory(
            &translator->decoder[i].cross, &pass, encoded, packing);
        ATTN_TRY(attn_tape_report(decoding->tape, error));
        memcpy(decoding->cross[i].key, memory.key->data, bytes);
        memcpy(decoding->cross[i].value, memory.value->data, bytes);
    }
    return ATTN_OK;
}

static bool allocate(struct decoding *decoding)
{
    const attn_translator_config *const config = &decoding->translator->config;
    const int64_t sentences = decoding->source.sequences;
    const size_t layers = (size_t)config->decoder_layers;
    const size_t rows = (size_t)decoding->max_rows;
    const size_t bytes =
        (size_t)(decoding->source.starts[sentences] * config->width) * sizeof(float);
    decoding->cross = calloc(layers, sizeof *decoding->cross);
    decoding->self = calloc(layers, sizeof *decoding->self);
    decoding->row_starts = calloc(rows + 1, sizeof *decoding->row_starts);
    decoding->key_starts = calloc(rows + 1, sizeof *decoding->key_starts);
    if (!decoding->cross || !decoding->self || !decoding->row_starts ||
        !decoding->key_starts)
        return false;
    for (size_t i = 0; i < layers; i++) {
        decoding->cross[i].key = malloc(bytes);
        decoding->cross[i].value = malloc(bytes);
        if (!decoding->cross[i].key || !decoding->cross[i].value)
            return false;
    }
    return true;
}

static void destroy(void *state)
{
    struct decoding *const decoding = state;
    for (int64_t i = 0; i < decoding->translator->config.decoder_layers; i++) {
        if (decoding->cross) {
            free(decoding->cross[i].key);
            free(decoding->cross[i].value);
        }
        if (decoding->self) {
            free(decoding->self[i].key);
            free(decoding->self[i].value);
            free(decoding->self[i].next_key);
            free(decoding->self[i].next_value);
        }
    }
    free(decoding->cross);
    free(decoding->self);
    free(decoding->row_starts);
    free(decoding->key_starts);
    free(decoding);
}

static bool grow(float **buffer, size_t floats)
{
    float *const larger = realloc(*buffer, floats * sizeof **buffer);
    if (larger)
        *buffer = larger;
    return larger;
}

/* Room in every buffer for the live rows' keys after this step. */
static attn_status reserve_cache(struct decoding *decoding, attn_error *error)
{
    const int64_t width = decoding->translator->config.width;
    const size_t needed = (size_t)(decoding->rows * (decoding->step + 1) * width);
    if (needed <= decoding->cache_floats)
        return ATTN_OK;
    const size_t floats = 2 * needed;
    for (int64_t i = 0; i < decoding->translator->config.decoder_layers; i++) {
        struct self_cache *const self = &decoding->self[i];
        if (!grow(&self->key, floats) || !grow(&self->value, floats) ||
            !grow(&self->next_key, floats) || !grow(&self->next_value, floats))
            return attn_error_set(error, ATTN_ENOMEM,
                                  "decoding: no memory for %zu numbers a layer", floats);
    }
    decoding->cache_floats = floats;
    return ATTN_OK;
}

/* Each row's past from its parent's, and its new line after it. */
static void append(const struct decoding *decoding, const int64_t *parents,
                   const float *past, const float *line, float *out)
{
    const size_t width = (size_t)decoding->translator->config.width;
    const size_t step = (size_t)decoding->step;
    for (size_t row = 0; row < (size_t)decoding->rows; row++) {
        float *const own = out + row * (step + 1) * width;
        if (step > 0)
            memcpy(own, past + (size_t)parents[row] * step * width,
                   step * width * sizeof *own);
        memcpy(own + step * width, line + row * width, width * sizeof *own);
    }
}

static void swap(float **a, float **b)
{
    float *const spare = *a;
    *a = *b;
    *b = spare;
}

static attn_memory memory_over(const attn_pass *pass, float *key, float *value,
                               int64_t width, attn_packing packing)
{
    const int64_t extent[] = {packing.starts[packing.sequences], width};
    return (attn_memory){.key = attn_tape_leaf(pass->tape, key, NULL, 2, extent),
                         .value = attn_tape_leaf(pass->tape, value, NULL, 2, extent),
                         .packing = packing};
}

static attn_tensor *step_layer(struct decoding *decoding, int64_t index,
                               const attn_pass *pass, attn_tensor *x, attn_packing beams,
                               const int64_t *parents)
{
    const attn_translator *const translator = decoding->translator;
    const attn_decoder_layer *const layer = &translator->decoder[index];
    const int64_t width = translator->config.width;
    const attn_packing rows = {decoding->rows, decoding->row_starts};
    const attn_packing keys = {decoding->rows, decoding->key_starts};
    struct self_cache *const self = &decoding->self[index];
    struct cross_cache *const cross = &decoding->cross[index];

    attn_tensor *const entered =
        attn_translator_enter(translator, &layer->self_norm, pass, x);
    const attn_memory line =
        attn_multihead_layer_memory(&layer->self, pass, entered, rows);
    if (!line.key || !line.value)
        return NULL;
    append(decoding, parents, self->key, line.key->data, self->next_key);
    append(decoding, parents, self->value, line.value->data, self->next_value);
    swap(&self->key, &self->next_key);
    swap(&self->value, &self->next_value);
    const attn_memory own = memory_over(pass, self->key, self->value, width, keys);
    const attn_memory other =
        memory_over(pass, cross->key, cross->value, width, decoding->source);
    return attn_decoder_layer_forward(translator, layer, pass, x, entered, rows, &own,
                                      beams, &other);
}

static attn_status step(void *state, const int64_t *row_starts, const int64_t *parents,
                        const int32_t *ids, const float **logits, attn_error *error)
{
    struct decoding *const decoding = state;
    const attn_translator *const translator = decoding->translator;
    const attn_packing beams = {decoding->source.sequences, row_starts};
    decoding->rows = row_starts[beams.sequences];
    assert(decoding->rows <= decoding->max_rows);
    for (int64_t row = 0; row <= decoding->rows; row++)
        decoding->key_starts[row] = row * (decoding->step + 1);
    ATTN_TRY(reserve_cache(decoding, error));
    const attn_pass pass = inference_pass(decoding);
    const attn_packing rows = {decoding->rows, decoding->row_starts};
    attn_tensor *x = attn_translator_embed(translator, &pass, ATTN_PART_DECODER, ids,
                                           rows, decoding->step);
    for (int64_t i = 0; x && i < translator->config.decoder_layers; i++)
        x = step_layer(decoding, i, &pass, x, beams, parents);
    x = attn_translator_enter(translator, &translator->decoder_norm, &pass, x);
    const attn_tensor *const projected = attn_translator_project(translator, &pass, x);
    ATTN_TRY(attn_tape_report(pass.tape, error));
    *logits = projected->data;
    decoding->step++;
    return ATTN_OK;
}

attn_status attn_decoding_start(attn_decoder *decoder, const attn_translator *translator,
                                attn_tape *tape, const int32_t *source,
                                attn_packing packing, int64_t max_rows, attn_error *error)
{
    struct decoding *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_error_set(error, ATTN_ENOMEM, "decoding: no memory");
    created->translator = translator;
    created->tape = tape;
    created->source = packing;
    created->max_rows = max_rows;
    attn_status status = ATTN_OK;
    if (!allocate(created))
        status = attn_error_set(
            error, ATTN_ENOMEM, "decoding: no memory for %lld sentences of %lld tokens",
            (long long)packing.sequences, (long long)packing.starts[packing.sequences]);
    if (status == ATTN_OK)
        status = encode(created, source, error);
    if (status != ATTN_OK) {
        destroy(created);
        return status;
    }
    for (int64_t row = 0; row <= max_rows; row++)
        created->row_starts[row] = row;
    *decoder = (attn_decoder){.state = created,
                              .vocabulary = translator->config.vocabulary,
                              .step = step,
                              .destroy = destroy};
    return ATTN_OK;
}

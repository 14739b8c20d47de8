/* Incremental decoding.
 *
 * Cross-attention: the beams of a sentence are the queries of one packed sequence whose
 * keys are the sentence's, so that these are never copied.  Self-attention: each row is a
 * sequence of one query whose keys are copied from its parent's, in the same pass that
 * appends the new one; two buffers take turns.
 *
 * A step has never less rows than keep the matrix product on one path (see least_rows),
 * so that a sentence's bits do not depend on how many others are under way; the rows that
 * fill up have no keys. */
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

struct attn_decoding {
    const attn_translator *translator;
    attn_tape *tape;
    attn_packing source;
    struct cross_cache *cross; /* [decoder layers] */
    struct self_cache *self;   /* [decoder layers] */
    int64_t step;              /* tokens that each row has been fed */
    int64_t max_rows;          /* with those that fill up */
    size_t cache_floats;       /* of each buffer of self */
    /* Of the step under way: */
    int64_t rows;           /* live ones */
    int64_t all_rows;       /* and those that fill up */
    int32_t *ids;           /* [max_rows] */
    int64_t *single_starts; /* 0, 1, 2, … [max_rows + 1] */
    int64_t *self_starts;   /* of each row's keys [max_rows + 1] */
    int64_t *query_starts;  /* rows of each sentence, and of none [sentences + 2] */
    int64_t *memory_starts; /* tokens of each source, and of none [sentences + 2] */
};

/* OpenBLAS takes other paths for small products, whose sums differ in the last bit.
 * Measured with 0.3.21 on Cooperlake: rows × in × out below 2^19 at most; from there on a
 * row's bits depend neither on its place nor on the number of rows. */
static int64_t least_rows(int64_t width)
{
    const int64_t rows = ((int64_t)1 << 19) / (width * width);
    return rows < 8 ? 8 : rows > 64 ? 64 : rows;
}

static attn_status tape_error(const attn_tape *tape, attn_error *error)
{
    return attn_error_from_context(error, attn_tape_status(tape),
                                   attn_tape_context(tape));
}

static attn_pass inference_pass(const attn_decoding *decoding)
{
    attn_tape_begin(decoding->tape, false, 0);
    return (attn_pass){.tape = decoding->tape,
                       .parameters = &decoding->translator->parameters};
}

/* Alone, so that its bits are its own. */
static attn_status encode_sentence(attn_decoding *decoding, const int32_t *source,
                                   int64_t sentence, attn_error *error)
{
    const attn_translator *const translator = decoding->translator;
    const int64_t first = decoding->source.starts[sentence];
    const int64_t starts[] = {0, decoding->source.starts[sentence + 1] - first};
    const attn_packing packing = {1, starts};
    const int64_t width = translator->config.width;
    const size_t bytes = (size_t)(starts[1] * width) * sizeof(float);
    const attn_pass pass = inference_pass(decoding);
    attn_tensor *const encoded =
        attn_translator_encode(translator, &pass, source + first, packing);
    for (int64_t i = 0; i < translator->config.decoder_layers; i++) {
        const attn_memory memory = attn_multihead_layer_memory(
            &translator->decoder[i].cross, &pass, encoded, packing);
        if (attn_tape_status(decoding->tape) != ATTN_OK)
            return tape_error(decoding->tape, error);
        memcpy(decoding->cross[i].key + first * width, memory.key->data, bytes);
        memcpy(decoding->cross[i].value + first * width, memory.value->data, bytes);
    }
    return ATTN_OK;
}

static bool allocate(attn_decoding *decoding)
{
    const attn_translator_config *const config = &decoding->translator->config;
    const int64_t sentences = decoding->source.sequences;
    const size_t layers = (size_t)config->decoder_layers;
    const size_t rows = (size_t)decoding->max_rows;
    const size_t bytes =
        (size_t)(decoding->source.starts[sentences] * config->width) * sizeof(float);
    decoding->cross = calloc(layers, sizeof *decoding->cross);
    decoding->self = calloc(layers, sizeof *decoding->self);
    decoding->ids = calloc(rows, sizeof *decoding->ids);
    decoding->single_starts = calloc(rows + 1, sizeof *decoding->single_starts);
    decoding->self_starts = calloc(rows + 1, sizeof *decoding->self_starts);
    decoding->query_starts = calloc((size_t)sentences + 2, sizeof(int64_t));
    decoding->memory_starts = calloc((size_t)sentences + 2, sizeof(int64_t));
    if (!decoding->cross || !decoding->self || !decoding->ids ||
        !decoding->single_starts || !decoding->self_starts || !decoding->query_starts ||
        !decoding->memory_starts)
        return false;
    for (size_t i = 0; i < layers; i++) {
        decoding->cross[i].key = malloc(bytes);
        decoding->cross[i].value = malloc(bytes);
        if (!decoding->cross[i].key || !decoding->cross[i].value)
            return false;
    }
    return true;
}

attn_status attn_decoding_create(attn_decoding **decoding,
                                 const attn_translator *translator, attn_tape *tape,
                                 const int32_t *source, attn_packing packing,
                                 int64_t max_rows, attn_error *error)
{
    const int64_t least = least_rows(translator->config.width);
    *decoding = NULL;
    attn_decoding *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_error_set(error, ATTN_ENOMEM, "decoding: no memory");
    created->translator = translator;
    created->tape = tape;
    created->source = packing;
    created->max_rows = max_rows < least ? least : max_rows;
    attn_status status = ATTN_OK;
    if (!allocate(created))
        status = attn_error_set(
            error, ATTN_ENOMEM, "decoding: no memory for %lld sentences of %lld tokens",
            (long long)packing.sequences, (long long)packing.starts[packing.sequences]);
    for (int64_t s = 0; status == ATTN_OK && s < packing.sequences; s++)
        status = encode_sentence(created, source, s, error);
    if (status != ATTN_OK) {
        attn_decoding_destroy(created);
        return status;
    }
    for (int64_t row = 0; row <= created->max_rows; row++)
        created->single_starts[row] = row;
    memcpy(created->memory_starts, packing.starts,
           (size_t)(packing.sequences + 1) * sizeof(int64_t));
    created->memory_starts[packing.sequences + 1] = packing.starts[packing.sequences];
    *decoding = created;
    return ATTN_OK;
}

void attn_decoding_destroy(attn_decoding *decoding)
{
    if (!decoding)
        return;
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
    free(decoding->ids);
    free(decoding->single_starts);
    free(decoding->self_starts);
    free(decoding->query_starts);
    free(decoding->memory_starts);
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
static attn_status reserve_cache(attn_decoding *decoding, attn_error *error)
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
static void append(const attn_decoding *decoding, const int64_t *parents,
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

static attn_tensor *step_layer(attn_decoding *decoding, int64_t index,
                               const attn_pass *pass, attn_tensor *x,
                               const int64_t *parents)
{
    const attn_translator *const translator = decoding->translator;
    const attn_decoder_layer *const layer = &translator->decoder[index];
    const int64_t width = translator->config.width;
    const attn_packing rows = {decoding->all_rows, decoding->single_starts};
    const attn_packing past = {decoding->all_rows, decoding->self_starts};
    const attn_packing beams = {decoding->source.sequences + 1, decoding->query_starts};
    const attn_packing sources = {decoding->source.sequences + 1,
                                  decoding->memory_starts};
    struct self_cache *const self = &decoding->self[index];
    struct cross_cache *const cross = &decoding->cross[index];

    attn_tensor *const normed = attn_norm_layer_forward(&layer->self_norm, pass, x);
    const attn_memory line =
        attn_multihead_layer_memory(&layer->self, pass, normed, rows);
    if (!line.key || !line.value)
        return NULL;
    append(decoding, parents, self->key, line.key->data, self->next_key);
    append(decoding, parents, self->value, line.value->data, self->next_value);
    swap(&self->key, &self->next_key);
    swap(&self->value, &self->next_value);
    const attn_memory own = memory_over(pass, self->key, self->value, width, past);
    const attn_memory other = memory_over(pass, cross->key, cross->value, width, sources);
    return attn_decoder_layer_forward(translator, layer, pass, x, normed, rows, &own,
                                      beams, &other);
}

/* Where everything starts in this step. */
static void lay_out(attn_decoding *decoding, const int64_t *row_starts,
                    const int32_t *ids)
{
    const int64_t sentences = decoding->source.sequences;
    const int64_t least = least_rows(decoding->translator->config.width);
    const int64_t rows = row_starts[sentences];
    decoding->rows = rows;
    decoding->all_rows = rows < least ? least : rows;
    memcpy(decoding->query_starts, row_starts, (size_t)(sentences + 1) * sizeof(int64_t));
    decoding->query_starts[sentences + 1] = decoding->all_rows;
    for (int64_t row = 0; row < decoding->all_rows; row++) {
        const bool is_live = row < rows;
        decoding->ids[row] = is_live ? ids[row] : ATTN_TOKEN_EOS;
        decoding->self_starts[row + 1] =
            decoding->self_starts[row] + (is_live ? decoding->step + 1 : 0);
    }
}

attn_status attn_decoding_step(attn_decoding *decoding, const int64_t *row_starts,
                               const int64_t *parents, const int32_t *ids,
                               const float **logits, attn_error *error)
{
    const attn_translator *const translator = decoding->translator;
    assert(row_starts[decoding->source.sequences] <= decoding->max_rows);
    lay_out(decoding, row_starts, ids);
    ATTN_TRY(reserve_cache(decoding, error));
    const attn_pass pass = inference_pass(decoding);
    const attn_packing rows = {decoding->all_rows, decoding->single_starts};
    attn_tensor *x =
        attn_translator_embed(translator, &pass, decoding->ids, rows, decoding->step);
    for (int64_t i = 0; x && i < translator->config.decoder_layers; i++)
        x = step_layer(decoding, i, &pass, x, parents);
    x = attn_norm_layer_forward(&translator->decoder_norm, &pass, x);
    const attn_tensor *const projected = attn_linear(
        pass.tape, x, attn_pass_parameter(&pass, translator->output), NULL, false);
    if (attn_tape_status(pass.tape) != ATTN_OK)
        return tape_error(pass.tape, error);
    *logits = projected->data;
    decoding->step++;
    return ATTN_OK;
}

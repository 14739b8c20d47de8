/* A recurrent decoder one token at a time: of the sources it keeps what attention
 * reads, once a sentence, and of each row the states after its last token.  A row's bits
 * do not depend on the other rows. */
#include "base/context.h"
#include "model/recurrent_step.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that outlives the tape's next begin. */
struct kept {
    float *data; /* NULL: there is none */
    int64_t rows, columns;
};

struct decoding {
    const attn_recurrent_decoder *decoder;
    const attn_parameters *parameters;
    attn_tape *tape;
    attn_packing packing; /* of the sources */
    int64_t *starts;      /* its own */
    bool values_are_keys;
    struct kept key, value, summary;
    struct kept state[ATTN_RECURRENT_RUNS], memory[ATTN_RECURRENT_RUNS];
    bool is_started; /* the rows of the states are those of a step, not the sentences */
    int64_t max_rows;
    int64_t *rows; /* 0, 1, 2, … [max_rows + 1] */
};

static attn_pass inference_pass(const struct decoding *decoding)
{
    attn_tape_begin(decoding->tape, false, 0);
    return (attn_pass){.tape = decoding->tape, .parameters = decoding->parameters};
}

/* ---- Keeping ---------------------------------------------------------------------- */

/* most_rows: as many as there may be in a later step. */
static bool keep(struct kept *kept, const attn_tensor *tensor, int64_t most_rows)
{
    if (!tensor)
        return true;
    const size_t columns = (size_t)tensor->extent[1];
    if (!kept->data)
        kept->data = malloc((size_t)most_rows * columns * sizeof *kept->data);
    if (!kept->data)
        return false;
    assert(tensor->extent[0] <= most_rows);
    kept->rows = tensor->extent[0];
    kept->columns = tensor->extent[1];
    memcpy(kept->data, tensor->data, (size_t)kept->rows * columns * sizeof *kept->data);
    return true;
}

static bool keep_states(struct decoding *decoding, const attn_recurrent_states *states)
{
    for (int64_t i = 0; i < decoding->decoder->config.layers; i++)
        if (!keep(&decoding->state[i], states->state[i], decoding->max_rows) ||
            !keep(&decoding->memory[i], states->memory[i], decoding->max_rows))
            return false;
    return true;
}

static attn_tensor *leaf(const attn_pass *pass, const struct kept *kept)
{
    const int64_t extent[] = {kept->rows, kept->columns};
    return kept->data ? attn_tape_leaf(pass->tape, kept->data, NULL, 2, extent) : NULL;
}

static void destroy(void *state)
{
    struct decoding *const decoding = state;
    free(decoding->key.data);
    free(decoding->value.data);
    free(decoding->summary.data);
    for (int64_t i = 0; i < ATTN_RECURRENT_RUNS; i++) {
        free(decoding->state[i].data);
        free(decoding->memory[i].data);
    }
    free(decoding->rows);
    free(decoding->starts);
    free(decoding);
}

/* ---- A step ----------------------------------------------------------------------- */

/* Each row's states are its parent's; at the start its sentence's. */
static attn_recurrent_states states_before(const struct decoding *decoding,
                                           const attn_pass *pass, attn_packing beams,
                                           const int64_t *parents)
{
    attn_recurrent_states states;
    memset(&states, 0, sizeof states);
    const int64_t count = beams.starts[beams.sequences];
    int32_t *const from =
        attn_tape_allocate(pass->tape, (size_t)(count + 1) * sizeof *from);
    if (!from)
        return states;
    for (int64_t s = 0; s < beams.sequences; s++)
        for (int64_t row = beams.starts[s]; row < beams.starts[s + 1]; row++)
            from[row] = (int32_t)(decoding->is_started ? parents[row] : s);
    for (int64_t i = 0; i < decoding->decoder->config.layers; i++) {
        states.state[i] = attn_embedding(pass->tape, leaf(pass, &decoding->state[i]),
                                         from, count, 1.0f);
        if (decoding->memory[i].data)
            states.memory[i] = attn_embedding(
                pass->tape, leaf(pass, &decoding->memory[i]), from, count, 1.0f);
    }
    return states;
}

static attn_status step(void *state, const int64_t *row_starts, const int64_t *parents,
                        const int32_t *ids, const float **logits, attn_error *error)
{
    struct decoding *const decoding = state;
    const attn_recurrent_decoder *const decoder = decoding->decoder;
    const attn_packing beams = {decoding->packing.sequences, row_starts};
    const attn_packing rows = {row_starts[beams.sequences], decoding->rows};
    assert(rows.sequences <= decoding->max_rows);
    const attn_pass pass = inference_pass(decoding);
    const attn_recurrent_states before = states_before(decoding, &pass, beams, parents);
    attn_recurrent_source source = {.summary = leaf(&pass, &decoding->summary)};
    source.memory.packing = decoding->packing;
    source.memory.key = leaf(&pass, &decoding->key);
    source.memory.value =
        decoding->values_are_keys ? source.memory.key : leaf(&pass, &decoding->value);
    attn_recurrent_states after;
    memset(&after, 0, sizeof after);
    attn_tensor *const joined = attn_recurrent_step(decoder, &pass, ids, rows, beams,
                                                    &source, &before, &after, NULL);
    const attn_tensor *const projected = attn_recurrent_decoder_project(
        decoder, &pass, attn_recurrent_merge(decoder, &pass, joined));
    ATTN_TRY(attn_tape_report(pass.tape, error));
    if (!keep_states(decoding, &after))
        return attn_error_set(error, ATTN_ENOMEM, "decoding: no memory for states");
    decoding->is_started = true;
    *logits = projected->data;
    return ATTN_OK;
}

/* ---- Starting --------------------------------------------------------------------- */

static bool keep_source(struct decoding *decoding, const attn_recurrent_source *source)
{
    const attn_packing packing = source->memory.packing;
    const int64_t tokens = packing.starts[packing.sequences];
    decoding->values_are_keys = source->memory.key == source->memory.value;
    for (int64_t s = 0; s <= packing.sequences; s++)
        decoding->starts[s] = packing.starts[s];
    return keep(&decoding->key, source->memory.key, tokens) &&
           (decoding->values_are_keys ||
            keep(&decoding->value, source->memory.value, tokens)) &&
           keep(&decoding->summary, source->summary, packing.sequences) &&
           keep_states(decoding, &source->states);
}

attn_status attn_recurrent_decoder_start(attn_decoder *search,
                                         const attn_recurrent_decoder *decoder,
                                         const attn_pass *pass,
                                         const attn_recurrent_source *source,
                                         int64_t max_rows, attn_error *error)
{
    const int64_t sequences = source->memory.packing.sequences;
    struct decoding *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_error_set(error, ATTN_ENOMEM, "decoding: no memory");
    created->decoder = decoder;
    created->parameters = pass->parameters;
    created->tape = pass->tape;
    created->max_rows = max_rows;
    created->rows = malloc(((size_t)max_rows + 1) * sizeof *created->rows);
    created->starts = malloc(((size_t)sequences + 1) * sizeof *created->starts);
    created->packing = (attn_packing){sequences, created->starts};
    for (int64_t row = 0; created->rows && row <= max_rows; row++)
        created->rows[row] = row;
    if (!created->rows || !created->starts || !keep_source(created, source)) {
        destroy(created);
        return attn_error_set(error, ATTN_ENOMEM,
                              "decoding: no memory for %lld rows of %lld sequences",
                              (long long)max_rows, (long long)sequences);
    }
    *search = (attn_decoder){.state = created,
                             .vocabulary = decoder->config.vocabulary,
                             .step = step,
                             .destroy = destroy};
    return ATTN_OK;
}

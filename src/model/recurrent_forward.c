/* What a recurrent decoder computes; the formulas stand in recurrent_decoder.h. */
#include "model/recurrent_step.h"
#include <math.h>
#include <string.h>

static bool has_attention(const attn_recurrent_decoder *decoder)
{
    return decoder->config.attention != ATTN_CROSS_NONE;
}

attn_tensor *attn_recurrent_decoder_embed(const attn_recurrent_decoder *decoder,
                                          const attn_pass *pass, const int32_t *ids,
                                          int64_t count)
{
    const float scale = sqrtf((float)decoder->config.embedding);
    attn_tensor *const x = attn_embedding(
        pass->tape, attn_pass_parameter(pass, decoder->embedding), ids, count, scale);
    return attn_dropout(pass->tape, x, decoder->config.dropout);
}

static attn_tensor *multiply(const attn_pass *pass, attn_tensor *x, size_t weight)
{
    return attn_linear(pass->tape, x, attn_pass_parameter(pass, weight), NULL, false);
}

/* ---- The source ------------------------------------------------------------------- */

static attn_memory memory_of(const attn_recurrent_decoder *decoder, const attn_pass *pass,
                             attn_tensor *encoded, attn_packing packing)
{
    attn_memory memory = {.key = encoded, .value = encoded, .packing = packing};
    if (decoder->config.attention == ATTN_CROSS_ADDITIVE)
        memory.key = multiply(pass, encoded, decoder->key_weight);
    if (!has_attention(decoder))
        memory.key = memory.value = NULL;
    return memory;
}

/* Where the decoder starts from: its part of what the bridge makes, layer by layer. */
static attn_recurrent_states first_states(const attn_recurrent_decoder *decoder,
                                          const attn_pass *pass, attn_tensor *summary)
{
    const attn_recurrent_decoder_config *const config = &decoder->config;
    const int64_t layers = config->layers, width = config->width;
    attn_recurrent_states states;
    memset(&states, 0, sizeof states);
    attn_tensor *const all = attn_activate(
        pass->tape, attn_linear_layer_forward(&decoder->bridge, pass, summary),
        ATTN_TANH);
    for (int64_t i = 0; i < layers; i++) {
        states.state[i] = attn_columns(pass->tape, all, i * width, width);
        if (config->cell == ATTN_CELL_LSTM)
            states.memory[i] = attn_columns(pass->tape, all, (layers + i) * width, width);
    }
    return states;
}

void attn_recurrent_decoder_read(const attn_recurrent_decoder *decoder,
                                 const attn_pass *pass, attn_tensor *encoded,
                                 attn_tensor *summary, attn_packing packing,
                                 attn_recurrent_source *source)
{
    *source = (attn_recurrent_source){
        .memory = memory_of(decoder, pass, encoded, packing),
        .summary = summary,
        .states = first_states(decoder, pass, summary),
    };
}

/* ---- The context ------------------------------------------------------------------ */

static attn_tensor *query_of(const attn_recurrent_decoder *decoder, const attn_pass *pass,
                             attn_tensor *state)
{
    switch (decoder->config.attention) {
    case ATTN_CROSS_ADDITIVE:
        return attn_linear(pass->tape, state,
                           attn_pass_parameter(pass, decoder->query_weight),
                           attn_pass_parameter(pass, decoder->query_bias), true);
    case ATTN_CROSS_GENERAL:
        return multiply(pass, state, decoder->query_weight);
    default:
        return state;
    }
}

static attn_tensor *attend(const attn_recurrent_decoder *decoder, const attn_pass *pass,
                           attn_tensor *query, attn_packing packing,
                           const attn_memory *memory)
{
    const attn_cross_score score = decoder->config.attention;
    attn_heads heads = {.heads = 1,
                        .key_heads = 1,
                        .part = ATTN_PART_CROSS,
                        .unscaled = score != ATTN_CROSS_SCALED_DOT};
    if (score == ATTN_CROSS_ADDITIVE)
        heads.additive = attn_pass_parameter(pass, decoder->score_weight);
    return attn_heads_forward(&heads, pass, query, packing, memory);
}

/* The summary of each sentence for all its rows. */
static attn_tensor *spread(const attn_pass *pass, attn_tensor *summary,
                           attn_packing packing)
{
    const int64_t count = packing.starts[packing.sequences];
    int32_t *const sentence =
        attn_tape_allocate(pass->tape, (size_t)(count + 1) * sizeof *sentence);
    if (!sentence)
        return NULL;
    for (int64_t s = 0; s < packing.sequences; s++)
        for (int64_t row = packing.starts[s]; row < packing.starts[s + 1]; row++)
            sentence[row] = (int32_t)s;
    return attn_embedding(pass->tape, summary, sentence, count, 1.0f);
}

static attn_tensor *context_of(const attn_recurrent_decoder *decoder,
                               const attn_pass *pass, attn_tensor *state,
                               attn_packing packing, const attn_recurrent_source *source,
                               attn_tensor **query)
{
    if (!has_attention(decoder))
        return spread(pass, source->summary, packing);
    attn_tensor *const asked = query_of(decoder, pass, state);
    if (query)
        *query = asked;
    return attend(decoder, pass, asked, packing, &source->memory);
}

/* ---- The decoder ------------------------------------------------------------------ */

attn_tensor *attn_recurrent_step(const attn_recurrent_decoder *decoder,
                                 const attn_pass *pass, const int32_t *ids,
                                 attn_packing rows, attn_packing beams,
                                 const attn_recurrent_source *source,
                                 const attn_recurrent_states *before,
                                 attn_recurrent_states *after, attn_tensor **query)
{
    const attn_recurrent_decoder_config *const config = &decoder->config;
    attn_tensor *x = attn_recurrent_decoder_embed(decoder, pass, ids, rows.sequences),
                *context = NULL;
    if (config->context_enters) {
        context = context_of(decoder, pass, before->state[config->layers - 1], beams,
                             source, query);
        x = attn_join(pass->tape, x, context);
    }
    attn_tensor *const state = attn_recurrent_layer_forward(
        &decoder->recurrence, pass, x, rows, before, after, config->dropout);
    if (!config->context_enters)
        context = context_of(decoder, pass, state, beams, source, query);
    return attn_join(pass->tape, state, context);
}

/* Nothing that enters the recurrence depends on its states: all steps at once. */
static attn_tensor *decode_at_once(const attn_recurrent_decoder *decoder,
                                   const attn_pass *pass, const int32_t *target,
                                   attn_packing packing,
                                   const attn_recurrent_source *source)
{
    const attn_recurrent_decoder_config *const config = &decoder->config;
    attn_tensor *x = attn_recurrent_decoder_embed(decoder, pass, target,
                                                  packing.starts[packing.sequences]),
                *context = NULL;
    if (!has_attention(decoder)) {
        context = context_of(decoder, pass, NULL, packing, source, NULL);
        if (config->context_enters)
            x = attn_join(pass->tape, x, context);
    }
    attn_tensor *const state = attn_recurrent_layer_forward(
        &decoder->recurrence, pass, x, packing, &source->states, NULL, config->dropout);
    if (has_attention(decoder))
        context = context_of(decoder, pass, state, packing, source, NULL);
    return attn_join(pass->tape, state, context);
}

attn_tensor *attn_recurrent_merge(const attn_recurrent_decoder *decoder,
                                  const attn_pass *pass, attn_tensor *joined)
{
    attn_tensor *const hidden = attn_activate(
        pass->tape, attn_linear_layer_forward(&decoder->merge, pass, joined), ATTN_TANH);
    return attn_dropout(pass->tape, hidden, decoder->config.dropout);
}

attn_tensor *attn_recurrent_decoder_project(const attn_recurrent_decoder *decoder,
                                            const attn_pass *pass, attn_tensor *hidden)
{
    return attn_linear(pass->tape, hidden, attn_pass_parameter(pass, decoder->output),
                       attn_pass_parameter(pass, decoder->output_bias), true);
}

/* ---- Step by step ------------------------------------------------------------------
 */

/* All sequences of a batch, one token of each at a time; a sequence that has ended has no
 * row any more. */
struct walk {
    const attn_recurrent_decoder *decoder;
    const attn_pass *pass;
    const int32_t *target;
    attn_packing packing; /* of the target */
    const attn_recurrent_source *source;
    int64_t steps;
    int64_t *row;         /* [sequences]: each one's in the step before */
    int32_t *place;       /* [tokens]: where each target token stands in the stack */
    attn_tensor **joined; /* [steps] */
    attn_tensor **query;  /* [steps] */
};

static bool walk_init(struct walk *walk)
{
    attn_tape *const tape = walk->pass->tape;
    const attn_packing packing = walk->packing;
    for (int64_t s = 0; s < packing.sequences; s++) {
        const int64_t length = packing.starts[s + 1] - packing.starts[s];
        walk->steps = length > walk->steps ? length : walk->steps;
    }
    const size_t steps = (size_t)walk->steps + 1;
    const size_t tokens = (size_t)packing.starts[packing.sequences] + 1;
    walk->row =
        attn_tape_allocate(tape, ((size_t)packing.sequences + 1) * sizeof *walk->row);
    walk->place = attn_tape_allocate(tape, tokens * sizeof *walk->place);
    walk->joined = attn_tape_allocate(tape, steps * sizeof(attn_tensor *));
    walk->query = attn_tape_allocate(tape, steps * sizeof(attn_tensor *));
    for (int64_t s = 0; walk->row && s < packing.sequences; s++)
        walk->row[s] = s;
    return walk->row && walk->place && walk->joined && walk->query;
}

/* The states of those that go on. */
static void keep_rows(const struct walk *walk, attn_recurrent_states *states,
                      const int32_t *rows, int64_t count)
{
    attn_tape *const tape = walk->pass->tape;
    for (int64_t i = 0; i < walk->decoder->config.layers; i++) {
        states->state[i] = attn_embedding(tape, states->state[i], rows, count, 1.0f);
        if (states->memory[i])
            states->memory[i] =
                attn_embedding(tape, states->memory[i], rows, count, 1.0f);
    }
}

/* Takes step t of every sequence that has it; *total are the rows of all steps so far. */
static bool take_step(struct walk *walk, int64_t t, attn_recurrent_states *states,
                      int64_t *total)
{
    attn_tape *const tape = walk->pass->tape;
    const int64_t sequences = walk->packing.sequences;
    const size_t room = (size_t)sequences + 1;
    int32_t *const ids = attn_tape_allocate(tape, room * sizeof *ids);
    int32_t *const kept = attn_tape_allocate(tape, room * sizeof *kept);
    int64_t *const rows = attn_tape_allocate(tape, room * sizeof *rows);
    int64_t *const beams = attn_tape_allocate(tape, room * sizeof *beams);
    if (!ids || !kept || !rows || !beams)
        return false;
    int64_t count = 0, before = 0;
    for (int64_t s = 0; s < sequences; s++) {
        const int64_t first = walk->packing.starts[s];
        const int64_t length = walk->packing.starts[s + 1] - first;
        beams[s] = rows[count] = count;
        before += t == 0 || length >= t;
        if (length <= t)
            continue;
        ids[count] = walk->target[first + t];
        kept[count] = (int32_t)walk->row[s];
        walk->row[s] = count;
        walk->place[first + t] = (int32_t)(*total + count);
        count++;
    }
    beams[sequences] = rows[count] = count;
    *total += count;
    if (count < before)
        keep_rows(walk, states, kept, count);
    attn_recurrent_states after;
    memset(&after, 0, sizeof after);
    walk->joined[t] = attn_recurrent_step(
        walk->decoder, walk->pass, ids, (attn_packing){count, rows},
        (attn_packing){sequences, beams}, walk->source, states, &after, &walk->query[t]);
    *states = after;
    return walk->joined[t] != NULL;
}

/* Steps in the order of the packed targets. */
static attn_tensor *in_order(const struct walk *walk, attn_tensor *const *steps)
{
    attn_tape *const tape = walk->pass->tape;
    return attn_embedding(tape, attn_stack(tape, steps, (size_t)walk->steps), walk->place,
                          walk->packing.starts[walk->packing.sequences], 1.0f);
}

static attn_tensor *decode_by_steps(const attn_recurrent_decoder *decoder,
                                    const attn_pass *pass, const int32_t *target,
                                    attn_packing packing,
                                    const attn_recurrent_source *source)
{
    /* The observer hears of all steps at once, below. */
    attn_pass unseen = *pass;
    unseen.observer = NULL;
    struct walk walk = {.decoder = decoder,
                        .pass = &unseen,
                        .target = target,
                        .packing = packing,
                        .source = source};
    if (!walk_init(&walk))
        return NULL;
    attn_recurrent_states states = source->states;
    int64_t total = 0;
    for (int64_t t = 0; t < walk.steps; t++)
        if (!take_step(&walk, t, &states, &total))
            return NULL;
    if (pass->observer)
        attend(decoder, pass, in_order(&walk, walk.query), packing, &source->memory);
    return in_order(&walk, walk.joined);
}

/* ---- All of it -------------------------------------------------------------------- */

attn_tensor *attn_recurrent_decoder_hidden(const attn_recurrent_decoder *decoder,
                                           const attn_pass *pass, const int32_t *target,
                                           attn_packing packing,
                                           const attn_recurrent_source *source)
{
    if (attn_tape_status(pass->tape) != ATTN_OK)
        return NULL;
    const bool by_steps = decoder->config.context_enters && has_attention(decoder);
    attn_tensor *const joined =
        by_steps ? decode_by_steps(decoder, pass, target, packing, source)
                 : decode_at_once(decoder, pass, target, packing, source);
    return attn_recurrent_merge(decoder, pass, joined);
}

attn_tensor *attn_recurrent_decoder_loss(const attn_recurrent_decoder *decoder,
                                         const attn_pass *pass, attn_tensor *hidden,
                                         const int32_t *target_out, float smoothing,
                                         double divisor, double *plain)
{
    return attn_linear_cross_entropy(pass->tape, hidden,
                                     attn_pass_parameter(pass, decoder->output),
                                     attn_pass_parameter(pass, decoder->output_bias),
                                     true, target_out, smoothing, divisor, plain);
}

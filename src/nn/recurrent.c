/* Stacked recurrent layers: each run is one attn_recur. */
#include "nn/recurrent.h"
#include "base/context.h"
#include <stdio.h>

static int64_t directions(const attn_recurrent_layer *layer)
{
    return layer->options.both_ways ? 2 : 1;
}

/* "encoder.weight_ih_l0_reverse" */
static attn_status add_one(attn_parameters *parameters, const char *prefix,
                           const char *part, int64_t run, int64_t ways, int rank,
                           const int64_t *extent, size_t *index)
{
    char name[sizeof((attn_parameter *)NULL)->name];
    const int length =
        snprintf(name, sizeof name, "%s%s%s_l%lld%s", prefix, *prefix ? "." : "", part,
                 (long long)(run / ways), run % ways ? "_reverse" : "");
    if (length < 0 || (size_t)length >= sizeof name)
        return ATTN_EINVAL;
    return attn_parameters_add(parameters, name, rank, extent,
                               rank == 2 ? ATTN_INITIAL_XAVIER : ATTN_INITIAL_ZEROS,
                               index);
}

attn_status attn_recurrent_layer_add(attn_recurrent_layer *layer,
                                     attn_parameters *parameters, const char *prefix,
                                     const attn_recurrent_options *options)
{
    if (options->layers < 1 || options->layers > ATTN_RECURRENT_LAYERS)
        return ATTN_EINVAL;
    layer->options = *options;
    const int64_t ways = directions(layer), width = options->width;
    const int64_t out = attn_cell_gates(options->cell) * width;
    for (int64_t run = 0; run < options->layers * ways; run++) {
        const int64_t in = run < ways ? options->in : ways * width;
        const int64_t in_extent[] = {out, in}, state_extent[] = {out, width};
        ATTN_TRY(add_one(parameters, prefix, "weight_ih", run, ways, 2, in_extent,
                         &layer->runs[run].in_weight));
        ATTN_TRY(add_one(parameters, prefix, "weight_hh", run, ways, 2, state_extent,
                         &layer->runs[run].state_weight));
        if (!options->has_bias)
            continue;
        ATTN_TRY(add_one(parameters, prefix, "bias_ih", run, ways, 1, &out,
                         &layer->runs[run].in_bias));
        ATTN_TRY(add_one(parameters, prefix, "bias_hh", run, ways, 1, &out,
                         &layer->runs[run].state_bias));
    }
    return ATTN_OK;
}

/* [tokens][width], or with memory [tokens][2·width]: states beside memories. */
static attn_tensor *run_forward(const attn_recurrent_layer *layer, const attn_pass *pass,
                                int64_t run, attn_tensor *x, attn_packing packing,
                                const attn_recurrent_states *before, bool gives_memory)
{
    const attn_recurrence recurrence = {
        .cell = layer->options.cell,
        .backwards = run % directions(layer) == 1,
        .sequences = packing.sequences,
        .starts = packing.starts,
        .state = before ? before->state[run] : NULL,
        .memory = before ? before->memory[run] : NULL,
        .gives_memory = gives_memory,
    };
    attn_cell_weights weights = {
        .in = attn_pass_parameter(pass, layer->runs[run].in_weight),
        .state = attn_pass_parameter(pass, layer->runs[run].state_weight),
        .has_bias = layer->options.has_bias,
    };
    if (weights.has_bias) {
        weights.in_bias = attn_pass_parameter(pass, layer->runs[run].in_bias);
        weights.state_bias = attn_pass_parameter(pass, layer->runs[run].state_bias);
    }
    return attn_recur(pass->tape, x, &weights, &recurrence);
}

/* The rows that a run wrote last. */
static attn_tensor *last_rows(const attn_pass *pass, attn_tensor *y, attn_packing packing,
                              bool backwards)
{
    int32_t *const row =
        attn_tape_allocate(pass->tape, (size_t)packing.sequences * sizeof *row);
    if (!row || !y)
        return NULL;
    for (int64_t s = 0; s < packing.sequences; s++) {
        if (packing.starts[s] == packing.starts[s + 1])
            return attn_tape_fail(pass->tape, ATTN_EINVAL,
                                  "recurrent layer: sequence %lld is empty, expected a "
                                  "token to have a state after",
                                  (long long)s);
        row[s] = (int32_t)(backwards ? packing.starts[s] : packing.starts[s + 1] - 1);
    }
    return attn_embedding(pass->tape, y, row, packing.sequences, 1.0f);
}

attn_tensor *attn_recurrent_layer_forward(const attn_recurrent_layer *layer,
                                          const attn_pass *pass, attn_tensor *x,
                                          attn_packing packing,
                                          const attn_recurrent_states *before,
                                          attn_recurrent_states *after, float dropout)
{
    const int64_t ways = directions(layer), width = layer->options.width;
    const bool has_memory = after && layer->options.cell == ATTN_CELL_LSTM;
    for (int64_t depth = 0; depth < layer->options.layers; depth++) {
        attn_tensor *states[2] = {NULL, NULL};
        if (depth > 0)
            x = attn_dropout(pass->tape, x, dropout);
        for (int64_t way = 0; way < ways; way++) {
            const int64_t run = depth * ways + way;
            attn_tensor *const y =
                run_forward(layer, pass, run, x, packing, before, has_memory);
            states[way] = has_memory ? attn_columns(pass->tape, y, 0, width) : y;
            if (!after)
                continue;
            attn_tensor *const last = last_rows(pass, y, packing, way == 1);
            after->state[run] =
                has_memory ? attn_columns(pass->tape, last, 0, width) : last;
            after->memory[run] =
                has_memory ? attn_columns(pass->tape, last, width, width) : NULL;
        }
        x = ways == 2 ? attn_join(pass->tape, states[0], states[1]) : states[0];
    }
    return x;
}

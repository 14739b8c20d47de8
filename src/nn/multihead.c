/* Multi-head attention: Vaswani et al. 2017, section 3.2.2. */
#include "base/context.h"
#include "nn/layers.h"
#include "nn/name.h"

attn_status attn_multihead_layer_add(attn_multihead_layer *layer,
                                     attn_parameters *parameters, const char *prefix,
                                     int64_t width, int64_t heads, attn_part part,
                                     int64_t index)
{
    layer->heads = heads;
    layer->width = width;
    layer->part = part;
    layer->index = index;
    if (heads < 1 || width % heads != 0)
        return ATTN_EINVAL;
    const struct {
        const char *suffix;
        attn_linear_layer *linear;
    } parts[] = {{".q_proj", &layer->query},
                 {".k_proj", &layer->key},
                 {".v_proj", &layer->value},
                 {".out_proj", &layer->out}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        attn_layer_name name;
        ATTN_TRY(attn_layer_name_join(&name, prefix, parts[i].suffix));
        ATTN_TRY(
            attn_linear_layer_add(parts[i].linear, parameters, name.text, width, width));
    }
    return ATTN_OK;
}

attn_status attn_multihead_layer_add_scoring(attn_multihead_layer *layer,
                                             attn_parameters *parameters,
                                             const char *prefix, attn_scoring scoring)
{
    return attn_scoring_layer_add(&layer->scoring, parameters, prefix, scoring,
                                  layer->heads, layer->width, layer->width);
}

attn_status attn_multihead_layer_add_forget(attn_multihead_layer *layer,
                                            attn_parameters *parameters,
                                            const char *prefix)
{
    attn_layer_name name;
    layer->forgets = true;
    ATTN_TRY(attn_layer_name_join(&name, prefix, ".forget_proj"));
    return attn_linear_layer_add(&layer->forget, parameters, name.text, layer->width,
                                 layer->heads);
}

attn_memory attn_multihead_layer_memory(const attn_multihead_layer *layer,
                                        const attn_pass *pass, attn_tensor *x,
                                        attn_packing packing)
{
    attn_memory memory = {.key = attn_linear_layer_forward(&layer->key, pass, x),
                          .value = attn_linear_layer_forward(&layer->value, pass, x),
                          .packing = packing};
    if (layer->forgets)
        memory.log_forget = attn_log_sigmoid(
            pass->tape, attn_linear_layer_forward(&layer->forget, pass, x));
    return memory;
}

/* Memory for the statistics that an observation has; false when there is none. */
static bool statistics_allocate(attn_statistics *statistics, attn_tape *tape, size_t rows)
{
    statistics->entropy = attn_tape_allocate(tape, rows * sizeof(float));
    statistics->largest_weight = attn_tape_allocate(tape, rows * sizeof(float));
    statistics->largest_key = attn_tape_allocate(tape, rows * sizeof(int64_t));
    statistics->visible_keys = attn_tape_allocate(tape, rows * sizeof(int64_t));
    return attn_tape_status(tape) == ATTN_OK;
}

static void observe(const attn_heads *heads, const attn_pass *pass,
                    const attn_shape *shape, const attn_tensors *tensors,
                    const attn_packed_attention *attention)
{
    attn_options options = attention->options;
    if (!attn_tape_training(pass->tape))
        options.dropout = 0.0;
    if (heads->additive) {
        options.score = ATTN_SCORE_ADDITIVE;
        options.additive = heads->additive->data;
    }
    if (attention->log_forget)
        options.log_forget = (attn_input){.data = attention->log_forget->data,
                                          .stride = {0, 1, shape->H, 1}};
    if (heads->sinks)
        options.sinks = heads->sinks->data;
    const attn_observation observation = {.part = heads->part,
                                          .layer = heads->index,
                                          .context = attn_tape_context(pass->tape),
                                          .shape = shape,
                                          .tensors = tensors,
                                          .options = &options};
    const attn_status status =
        pass->observer->attention(pass->observer->user, &observation);
    if (status == ATTN_ENOTFINITE)
        attn_tape_fail(pass->tape, status,
                       "attention of layer %lld: its weights are not finite: the model "
                       "is broken",
                       (long long)heads->index + 1);
    else if (status != ATTN_OK)
        attn_tape_fail(pass->tape, status,
                       "attention of layer %lld: the observer "
                       "returned %s",
                       (long long)heads->index, attn_status_name(status));
}

attn_tensor *attn_heads_forward(const attn_heads *heads, const attn_pass *pass,
                                attn_tensor *query, attn_packing packing,
                                const attn_memory *memory)
{
    attn_tape *const tape = pass->tape;
    if (!query || !memory->key || !memory->value)
        return attn_tape_fail(tape, ATTN_EINVAL,
                              "attn_heads_forward: no queries, or memory without keys or "
                              "values, expected all three");
    if (packing.sequences != memory->packing.sequences)
        return attn_tape_fail(tape, ATTN_EINVAL,
                              "attn_heads_forward: memory has %lld sequences, expected "
                              "%lld, as many as there are of queries",
                              (long long)memory->packing.sequences,
                              (long long)packing.sequences);

    const attn_shape head = {.D = query->extent[1] / heads->heads};
    attn_packed_attention attention = {
        .H = heads->heads,
        .Hk = heads->key_heads,
        .additive = heads->additive,
        .log_forget = memory->log_forget,
        .sinks = heads->sinks,
        .statistics.received = heads->received,
    };
    attn_options_init(&attention.options, &head);
    if (heads->additive || heads->unscaled)
        attention.options.scale = 1.0f;
    if (heads->linear)
        attn_options_init_linear(&attention.options, &head, ATTN_FEATURE_ELU);
    attention.options.causal = heads->causal;
    attention.options.window_left = heads->window - 1;
    attention.options.sink_keys = heads->sink_keys;
    attention.options.alibi_slopes = heads->alibi_slopes;
    attention.options.blocks = heads->blocks;
    attention.options.block_size = heads->block_size;
    attention.options.dropout = (double)heads->dropout;
    attention.options.sequences = packing.sequences;
    attention.options.query_starts = packing.starts;
    attention.options.key_starts = memory->packing.starts;
    const size_t rows = (size_t)(heads->heads * query->extent[0]);
    if (pass->observer && !statistics_allocate(&attention.statistics, tape, rows))
        return NULL;

    attn_shape shape;
    attn_tensors tensors;
    attn_tensor *const y = attn_attend(tape, query, memory->key, memory->value,
                                       &attention, &shape, &tensors);
    if (y && pass->observer)
        observe(heads, pass, &shape, &tensors, &attention);
    return y;
}

attn_tensor *attn_multihead_layer_forward(const attn_multihead_layer *layer,
                                          const attn_pass *pass, attn_tensor *x,
                                          attn_packing packing, const attn_memory *memory,
                                          bool causal, float dropout)
{
    attn_heads heads = {.heads = layer->heads,
                        .key_heads = layer->heads,
                        .part = layer->part,
                        .index = layer->index,
                        .causal = causal,
                        .linear = layer->linear,
                        .dropout = dropout};
    attn_tensor *const projected = attn_linear_layer_forward(&layer->query, pass, x);
    attn_tensor *const query =
        attn_scoring_layer_forward(&layer->scoring, pass, projected, &heads);
    attn_tensor *const attended =
        attn_heads_forward(&heads, pass, query, packing, memory);
    return attn_linear_layer_forward(&layer->out, pass, attended);
}

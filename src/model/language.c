/* The language model: its parameters by name, made and freed.  What it computes lives in
 * language_forward.c, its folder in language_file.c. */
#include "base/context.h"
#include "model/checks.h"
#include "model/language_parts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t MOST_ANGLES = (int64_t)1 << 24;

static attn_status check_sizes(const attn_language_config *config, attn_error *error)
{
    const bool recurrent = config->body == ATTN_LANGUAGE_LSTM;
    const attn_bound bounds[] = {
        {"body", config->body, ATTN_LANGUAGE_LLAMA, ATTN_LANGUAGE_LSTM},
        {"vocabulary", config->vocabulary, 1, 1 << 24},
        {"width", config->width, 1, 1 << 16},
        {"layers", config->layers, 1, recurrent ? ATTN_RECURRENT_LAYERS : 256},
        {"max_positions", config->max_positions, 1, 1 << 22},
        {"bos", config->bos, -1, config->vocabulary - 1},
        {"eos", config->eos, -1, config->vocabulary - 1},
        {"text_window", config->text_window, 0, config->max_positions},
    };
    return attn_check_bounds("language model", bounds, sizeof bounds / sizeof bounds[0],
                             error);
}

static attn_status check_heads(const attn_language_config *config, attn_error *error)
{
    const attn_bound bounds[] = {
        {"heads", config->heads, 1, config->width},
        {"key_heads", config->key_heads, 1, config->heads},
        {"inner", config->inner, 1, 1 << 18},
    };
    ATTN_TRY(attn_check_bounds("language model", bounds, sizeof bounds / sizeof bounds[0],
                               error));
    if (config->width % (2 * config->heads) != 0 ||
        config->heads % config->key_heads != 0)
        return attn_error_set(
            error, ATTN_EINVAL,
            "language model: width %lld, %lld heads and %lld key heads, "
            "expected heads of an even width, as many or a multiple of "
            "the key heads",
            (long long)config->width, (long long)config->heads,
            (long long)config->key_heads);
    if (config->max_positions * (config->width / config->heads) > MOST_ANGLES)
        return attn_error_set(error, ATTN_EINVAL,
                              "language model: %lld positions and heads of width %lld, "
                              "expected a product of at most %lld",
                              (long long)config->max_positions,
                              (long long)(config->width / config->heads),
                              (long long)MOST_ANGLES);
    if (!(config->rotary_base > 0.0) || !(config->epsilon >= 0.0f))
        return attn_error_set(
            error, ATTN_EINVAL,
            "language model: rotary_base is %g and epsilon %g, expected "
            "more than 0, and 0 or more",
            config->rotary_base, (double)config->epsilon);
    if (config->linear_attention &&
        (config->alibi || config->sink_logits || config->forgets ||
         config->attention_dropout != 0.0f))
        return attn_error_set(
            error, ATTN_EINVAL,
            "language model: alibi %d, sink_logits %d, forgets %d, attention_dropout %g "
            "and linear attention, expected none of them: it has no scores that they "
            "could change",
            config->alibi, config->sink_logits, config->forgets,
            (double)config->attention_dropout);
    return ATTN_OK;
}

static attn_status check_config(const attn_language_config *config, attn_error *error)
{
    const float dropouts[] = {config->dropout, config->attention_dropout};
    ATTN_TRY(check_sizes(config, error));
    ATTN_TRY(attn_check_dropouts("language model", dropouts, 2, error));
    return config->body == ATTN_LANGUAGE_LLAMA ? check_heads(config, error) : ATTN_OK;
}

static attn_status add_layer(attn_language *language, int64_t index)
{
    const attn_language_config *const config = &language->config;
    attn_language_layer *const layer = &language->layers[index];
    const int64_t width = config->width, inner = config->inner;
    const int64_t key_width = width / config->heads * config->key_heads;
    const struct {
        const char *name;
        size_t *index;
        int64_t rows, columns; /* columns 0: a gain */
    } parts[] = {
        {"input_layernorm", &layer->attention_norm, width, 0},
        {"self_attn.q_proj", &layer->query, width, width},
        {"self_attn.k_proj", &layer->key, key_width, width},
        {"self_attn.v_proj", &layer->value, key_width, width},
        {"self_attn.o_proj", &layer->out, width, width},
        {"post_attention_layernorm", &layer->feed_norm, width, 0},
        {"mlp.gate_proj", &layer->gate, inner, width},
        {"mlp.up_proj", &layer->up, inner, width},
        {"mlp.down_proj", &layer->down, width, inner},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[80];
        const bool is_gain = parts[i].columns == 0;
        snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)index,
                 parts[i].name);
        ATTN_TRY(attn_parameters_add(&language->parameters, name, is_gain ? 1 : 2,
                                     (const int64_t[]){parts[i].rows, parts[i].columns},
                                     is_gain ? ATTN_INITIAL_ONES : ATTN_INITIAL_XAVIER,
                                     parts[i].index));
    }
    char name[80];
    snprintf(name, sizeof name, "model.layers.%lld.self_attn.sinks", (long long)index);
    if (config->sink_logits)
        ATTN_TRY(attn_parameters_add(&language->parameters, name, 1, &config->heads,
                                     ATTN_INITIAL_ZEROS, &layer->sinks));
    if (!config->forgets)
        return ATTN_OK;
    snprintf(name, sizeof name, "model.layers.%lld.self_attn.forget_proj",
             (long long)index);
    return attn_linear_layer_add(&layer->forget, &language->parameters, name, width,
                                 config->heads);
}

static attn_status add_llama(attn_language *language)
{
    const attn_language_config *const config = &language->config;
    language->layers = calloc((size_t)config->layers, sizeof *language->layers);
    if (!language->layers)
        return ATTN_ENOMEM;
    for (int64_t i = 0; i < config->layers; i++)
        ATTN_TRY(add_layer(language, i));
    return attn_parameters_add(&language->parameters, "model.norm.weight", 1,
                               &config->width, ATTN_INITIAL_ONES, &language->norm);
}

static attn_status add_lstm(attn_language *language)
{
    const attn_language_config *const config = &language->config;
    const attn_recurrent_options options = {.cell = ATTN_CELL_LSTM,
                                            .in = config->width,
                                            .width = config->width,
                                            .layers = config->layers,
                                            .has_bias = true};
    return attn_recurrent_layer_add(&language->recurrent, &language->parameters, "lstm",
                                    &options);
}

static attn_status add_parameters(attn_language *language)
{
    const attn_language_config *const config = &language->config;
    attn_parameters *const parameters = &language->parameters;
    const bool is_llama = config->body == ATTN_LANGUAGE_LLAMA;
    const int64_t table[] = {config->vocabulary, config->width};
    ATTN_TRY(attn_parameters_add(
        parameters, is_llama ? "model.embed_tokens.weight" : "embedding.weight", 2, table,
        ATTN_INITIAL_NORMAL, &language->embedding));
    ATTN_TRY(is_llama ? add_llama(language) : add_lstm(language));
    language->output = language->embedding;
    if (!config->untied)
        return ATTN_OK;
    return attn_parameters_add(parameters, "lm_head.weight", 2, table,
                               ATTN_INITIAL_NORMAL, &language->output);
}

static attn_status no_memory(const attn_language_config *config, attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM,
                          "language model: no memory for %lld layers of width %lld",
                          (long long)config->layers, (long long)config->width);
}

static attn_status add_angles(attn_language *language, attn_error *error)
{
    const attn_language_config *const config = &language->config;
    const size_t half = (size_t)(config->width / config->heads / 2);
    const size_t count = (size_t)config->max_positions * half;
    language->cosine = malloc(count * sizeof *language->cosine);
    language->sine = malloc(count * sizeof *language->sine);
    if (!language->cosine || !language->sine)
        return no_memory(config, error);
    for (size_t i = 0; i < half; i++) {
        const double step = pow(config->rotary_base, -(double)i / (double)half);
        for (size_t position = 0; position < (size_t)config->max_positions; position++) {
            const double angle = (double)position * step;
            language->cosine[position * half + i] = (float)cos(angle);
            language->sine[position * half + i] = (float)sin(angle);
        }
    }
    return ATTN_OK;
}

attn_status attn_language_add_positions(attn_language *language, attn_error *error)
{
    const attn_language_config *const config = &language->config;
    if (config->body != ATTN_LANGUAGE_LLAMA)
        return ATTN_OK;
    ATTN_TRY(add_angles(language, error));
    if (!config->alibi)
        return ATTN_OK;
    language->slopes = malloc((size_t)config->heads * sizeof *language->slopes);
    if (!language->slopes)
        return no_memory(config, error);
    return attn_alibi_slopes_fill(language->slopes, config->heads);
}

attn_status attn_language_outline(attn_language **language,
                                  const attn_language_config *config, attn_error *error)
{
    *language = NULL;
    ATTN_TRY(check_config(config, error));
    attn_language *const created = calloc(1, sizeof *created);
    if (!created)
        return no_memory(config, error);
    created->config = *config;
    if (add_parameters(created) != ATTN_OK) {
        attn_language_destroy(created);
        return no_memory(config, error);
    }
    *language = created;
    return ATTN_OK;
}

attn_status attn_language_create(attn_language **language,
                                 const attn_language_config *config, uint64_t seed,
                                 attn_error *error)
{
    ATTN_TRY(attn_language_outline(language, config, error));
    attn_status status =
        attn_allocate_parameters("language model", &(*language)->parameters, error);
    if (status == ATTN_OK)
        status = attn_language_add_positions(*language, error);
    if (status != ATTN_OK) {
        attn_language_destroy(*language);
        *language = NULL;
        return status;
    }
    attn_parameters_initialise(&(*language)->parameters, seed);
    return ATTN_OK;
}

void attn_language_destroy(attn_language *language)
{
    if (!language)
        return;
    attn_parameters_free(&language->parameters);
    free(language->layers);
    free(language->cosine);
    free(language->sine);
    free(language->slopes);
    free(language);
}

const attn_language_config *attn_language_config_of(const attn_language *language)
{
    return &language->config;
}

attn_parameters *attn_language_parameters(attn_language *language)
{
    return &language->parameters;
}

const char *attn_language_note(const attn_language *language)
{
    return language->note;
}

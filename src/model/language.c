/* The language model: its parameters by name, and what it computes.  Each layer is
 *
 *     x ← x + out(attend(turn(query(n)), turn(key(n)), value(n)))      n = norm(x)
 *     x ← x + down(silu(gate(n)) · up(n))                              n = norm(x) */
#include "model/language.h"
#include "base/context.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Indices of parameters. */
struct layer {
    size_t attention_norm, query, key, value, out;
    size_t feed_norm, gate, up, down;
};

struct attn_language {
    attn_language_config config;
    attn_parameters parameters;
    size_t embedding, norm, output; /* output is the embedding where they are tied */
    struct layer *layers;
    float *cosine, *sine; /* [max_positions][head width/2] */
};

/* ---- Life ------------------------------------------------------------------------ */

static const int64_t MOST_ANGLES = (int64_t)1 << 24;

static attn_status check_sizes(const attn_language_config *config, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value, low, high;
    } bounds[] = {
        {"vocabulary", config->vocabulary, 1, 1 << 24},
        {"width", config->width, 2, 1 << 16},
        {"layers", config->layers, 1, 256},
        {"heads", config->heads, 1, config->width},
        {"key_heads", config->key_heads, 1, config->heads},
        {"inner", config->inner, 1, 1 << 18},
        {"max_positions", config->max_positions, 1, 1 << 22},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return attn_error_set(error, ATTN_EINVAL,
                                  "language model: %s is %lld, expected %lld to %lld",
                                  bounds[i].name, (long long)bounds[i].value,
                                  (long long)bounds[i].low, (long long)bounds[i].high);
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
    return ATTN_OK;
}

static attn_status check_config(const attn_language_config *config, attn_error *error)
{
    ATTN_TRY(check_sizes(config, error));
    const float dropouts[] = {config->dropout, config->attention_dropout};
    for (size_t i = 0; i < 2; i++)
        if (!(dropouts[i] >= 0.0f && dropouts[i] < 1.0f))
            return attn_error_set(
                error, ATTN_EINVAL,
                "language model: a dropout is %g, expected 0 to below 1",
                (double)dropouts[i]);
    if (!(config->rotary_base > 0.0) || !(config->epsilon >= 0.0f))
        return attn_error_set(
            error, ATTN_EINVAL,
            "language model: rotary_base is %g and epsilon %g, expected "
            "more than 0, and 0 or more",
            config->rotary_base, (double)config->epsilon);
    return ATTN_OK;
}

static attn_status add_layer(attn_language *language, int64_t index)
{
    const attn_language_config *const config = &language->config;
    struct layer *const layer = &language->layers[index];
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
    return ATTN_OK;
}

static attn_status add_parameters(attn_language *language)
{
    const attn_language_config *const config = &language->config;
    attn_parameters *const parameters = &language->parameters;
    const int64_t table[] = {config->vocabulary, config->width};
    ATTN_TRY(attn_parameters_add(parameters, "model.embed_tokens.weight", 2, table,
                                 ATTN_INITIAL_NORMAL, &language->embedding));
    for (int64_t i = 0; i < config->layers; i++)
        ATTN_TRY(add_layer(language, i));
    ATTN_TRY(attn_parameters_add(parameters, "model.norm.weight", 1, &config->width,
                                 ATTN_INITIAL_ONES, &language->norm));
    language->output = language->embedding;
    if (!config->untied)
        return ATTN_OK;
    return attn_parameters_add(parameters, "lm_head.weight", 2, table,
                               ATTN_INITIAL_NORMAL, &language->output);
}

static attn_status fill_angles(attn_language *language)
{
    const attn_language_config *const config = &language->config;
    const size_t half = (size_t)(config->width / config->heads / 2);
    const size_t count = (size_t)config->max_positions * half;
    language->cosine = malloc(count * sizeof *language->cosine);
    language->sine = malloc(count * sizeof *language->sine);
    if (!language->cosine || !language->sine)
        return ATTN_ENOMEM;
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

attn_status attn_language_create(attn_language **language,
                                 const attn_language_config *config, uint64_t seed,
                                 attn_error *error)
{
    *language = NULL;
    ATTN_TRY(check_config(config, error));
    attn_language *const created = calloc(1, sizeof *created);
    attn_status status = ATTN_ENOMEM;
    if (created) {
        created->config = *config;
        created->layers = calloc((size_t)config->layers, sizeof *created->layers);
        if (created->layers)
            status = add_parameters(created);
        if (status == ATTN_OK)
            status = attn_parameters_allocate(&created->parameters);
        if (status == ATTN_OK)
            status = fill_angles(created);
    }
    if (status != ATTN_OK) {
        attn_language_destroy(created);
        return attn_error_set(error, status,
                              "language model: no memory for %lld layers of width %lld",
                              (long long)config->layers, (long long)config->width);
    }
    attn_parameters_initialise(&created->parameters, seed);
    *language = created;
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

/* ---- What it computes ------------------------------------------------------------ */

/* A pass over packed texts, and where each token stands in its own. */
struct reading {
    const attn_language *language;
    const attn_pass *pass;
    attn_packing packing;
    const int32_t *positions;
    attn_rotation rotation; /* without its heads */
};

static attn_tensor *project(const attn_pass *pass, attn_tensor *x, size_t weight)
{
    return attn_linear(pass->tape, x, attn_pass_parameter(pass, weight), NULL, false);
}

static attn_tensor *norm(const struct reading *r, attn_tensor *x, size_t gain)
{
    return attn_rms_norm(r->pass->tape, x, attn_pass_parameter(r->pass, gain),
                         r->language->config.epsilon);
}

static attn_tensor *turned(const struct reading *r, attn_tensor *x, int64_t heads)
{
    attn_rotation rotation = r->rotation;
    rotation.heads = heads;
    return attn_rotary(r->pass->tape, x, r->positions, &rotation);
}

static attn_tensor *attend(const struct reading *r, int64_t index, attn_tensor *x)
{
    const attn_language_config *const config = &r->language->config;
    const struct layer *const layer = &r->language->layers[index];
    attn_tensor *const n = norm(r, x, layer->attention_norm);
    attn_tensor *const query = project(r->pass, n, layer->query);
    const attn_memory memory = {
        .key = turned(r, project(r->pass, n, layer->key), config->key_heads),
        .value = project(r->pass, n, layer->value),
        .packing = r->packing,
    };
    const attn_heads heads = {.heads = config->heads,
                              .key_heads = config->key_heads,
                              .part = ATTN_PART_DECODER,
                              .index = index,
                              .causal = true,
                              .dropout = config->attention_dropout};
    attn_tensor *const attended = attn_heads_forward(
        &heads, r->pass, turned(r, query, config->heads), r->packing, &memory);
    return attn_add_dropout(r->pass->tape, x, project(r->pass, attended, layer->out),
                            config->dropout);
}

static attn_tensor *feed_forward(const struct reading *r, int64_t index, attn_tensor *x)
{
    const struct layer *const layer = &r->language->layers[index];
    attn_tensor *const n = norm(r, x, layer->feed_norm);
    attn_tensor *const inner = attn_gate(r->pass->tape, project(r->pass, n, layer->gate),
                                         project(r->pass, n, layer->up), ATTN_SILU);
    return attn_add_dropout(r->pass->tape, x, project(r->pass, inner, layer->down),
                            r->language->config.dropout);
}

attn_tensor *attn_language_hidden(const attn_language *language, const attn_pass *pass,
                                  const int32_t *ids, attn_packing packing)
{
    const attn_language_config *const config = &language->config;
    const int64_t tokens = packing.starts[packing.sequences];
    attn_tensor *x = attn_embedding(
        pass->tape, attn_pass_parameter(pass, language->embedding), ids, tokens, 1.0f);
    x = attn_dropout(pass->tape, x, config->dropout);
    const int32_t *const positions =
        attn_positions(pass->tape, packing, tokens, config->max_positions, 0);
    if (!positions)
        return NULL;
    const struct reading reading = {
        .language = language,
        .pass = pass,
        .packing = packing,
        .positions = positions,
        .rotation = {.turned = config->width / config->heads,
                     .cosine = language->cosine,
                     .sine = language->sine,
                     .positions = config->max_positions},
    };
    for (int64_t i = 0; i < config->layers; i++)
        x = feed_forward(&reading, i, attend(&reading, i, x));
    return norm(&reading, x, language->norm);
}

attn_tensor *attn_language_logits(const attn_language *language, const attn_pass *pass,
                                  const int32_t *ids, attn_packing packing)
{
    attn_tensor *const hidden = attn_language_hidden(language, pass, ids, packing);
    return project(pass, hidden, language->output);
}

attn_tensor *attn_language_loss(const attn_language *language, const attn_pass *pass,
                                const int32_t *ids, const int32_t *targets,
                                attn_packing packing, double divisor, double *plain)
{
    attn_tensor *const hidden = attn_language_hidden(language, pass, ids, packing);
    return attn_linear_cross_entropy(pass->tape, hidden,
                                     attn_pass_parameter(pass, language->output), NULL,
                                     false, targets, 0.0f, divisor, plain);
}

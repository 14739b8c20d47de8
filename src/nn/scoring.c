/* Scores: scaled dot, dot, general, additive. */
#include "nn/scoring.h"
#include "base/context.h"
#include "nn/layers.h"
#include "nn/name.h"

const char *attn_scoring_name(attn_scoring scoring)
{
    static const char *const names[] = {
        [ATTN_SCORING_SCALED] = "scaled",
        [ATTN_SCORING_DOT] = "dot",
        [ATTN_SCORING_GENERAL] = "general",
        [ATTN_SCORING_ADDITIVE] = "additive",
    };
    return (size_t)scoring < sizeof names / sizeof *names ? names[scoring] : NULL;
}

attn_status attn_scoring_layer_add(attn_scoring_layer *layer, attn_parameters *parameters,
                                   const char *prefix, attn_scoring scoring,
                                   int64_t heads, int64_t query_width, int64_t key_width)
{
    *layer = (attn_scoring_layer){.scoring = scoring};
    const bool general = scoring == ATTN_SCORING_GENERAL;
    if (!attn_scoring_name(scoring) || heads < 1 || key_width % heads != 0 ||
        (!general && query_width != key_width))
        return ATTN_EINVAL;
    if (!general && scoring != ATTN_SCORING_ADDITIVE)
        return ATTN_OK;
    const int64_t weight[] = {key_width, query_width};
    const int64_t vectors[] = {heads, key_width / heads};
    attn_layer_name name;
    ATTN_TRY(
        attn_layer_name_join(&name, prefix, general ? ".general.weight" : ".additive"));
    return attn_parameters_add(parameters, name.text, 2, general ? weight : vectors,
                               ATTN_INITIAL_XAVIER, &layer->parameter);
}

attn_tensor *attn_scoring_layer_forward(const attn_scoring_layer *layer,
                                        const attn_pass *pass, attn_tensor *query,
                                        attn_heads *heads)
{
    heads->unscaled = layer->scoring != ATTN_SCORING_SCALED;
    if (layer->scoring == ATTN_SCORING_ADDITIVE)
        heads->additive = attn_pass_parameter(pass, layer->parameter);
    if (layer->scoring != ATTN_SCORING_GENERAL)
        return query;
    return attn_linear(pass->tape, query, attn_pass_parameter(pass, layer->parameter),
                       NULL, false);
}

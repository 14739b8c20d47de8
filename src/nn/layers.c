/* Linear, norm and feed-forward layers. */
#include "nn/layers.h"
#include "base/context.h"
#include "nn/name.h"
#include <stdio.h>

attn_status attn_layer_name_join(attn_layer_name *name, const char *prefix,
                                 const char *suffix)
{
    const int length = snprintf(name->text, sizeof name->text, "%s%s", prefix, suffix);
    return length < 0 || (size_t)length >= sizeof name->text ? ATTN_EINVAL : ATTN_OK;
}

/* prefix.weight and prefix.bias */
static attn_status weight_and_bias_add(attn_parameters *parameters, const char *prefix,
                                       int rank, const int64_t *extent,
                                       attn_initial initial, size_t *weight, size_t *bias)
{
    attn_layer_name name;
    ATTN_TRY(attn_layer_name_join(&name, prefix, ".weight"));
    ATTN_TRY(attn_parameters_add(parameters, name.text, rank, extent, initial, weight));
    ATTN_TRY(attn_layer_name_join(&name, prefix, ".bias"));
    return attn_parameters_add(parameters, name.text, 1, extent, ATTN_INITIAL_ZEROS,
                               bias);
}

attn_status attn_linear_layer_add(attn_linear_layer *layer, attn_parameters *parameters,
                                  const char *prefix, int64_t in, int64_t out)
{
    const int64_t extent[] = {out, in};
    return weight_and_bias_add(parameters, prefix, 2, extent, ATTN_INITIAL_XAVIER,
                               &layer->weight, &layer->bias);
}

attn_tensor *attn_linear_layer_forward(const attn_linear_layer *layer,
                                       const attn_pass *pass, attn_tensor *x)
{
    return attn_linear(pass->tape, x, attn_pass_parameter(pass, layer->weight),
                       attn_pass_parameter(pass, layer->bias), true);
}

attn_status attn_norm_layer_add(attn_norm_layer *layer, attn_parameters *parameters,
                                const char *prefix, int64_t width, float epsilon)
{
    layer->epsilon = epsilon;
    return weight_and_bias_add(parameters, prefix, 1, &width, ATTN_INITIAL_ONES,
                               &layer->weight, &layer->bias);
}

attn_tensor *attn_norm_layer_forward(const attn_norm_layer *layer, const attn_pass *pass,
                                     attn_tensor *x)
{
    return attn_layer_norm(pass->tape, x, attn_pass_parameter(pass, layer->weight),
                           attn_pass_parameter(pass, layer->bias), layer->epsilon);
}

attn_status attn_feed_forward_layer_add(attn_feed_forward_layer *layer,
                                        attn_parameters *parameters, const char *prefix,
                                        int64_t width, int64_t inner,
                                        attn_activation activation)
{
    attn_layer_name name;
    layer->activation = activation;
    ATTN_TRY(attn_layer_name_join(&name, prefix, ".fc1"));
    ATTN_TRY(attn_linear_layer_add(&layer->in, parameters, name.text, width, inner));
    ATTN_TRY(attn_layer_name_join(&name, prefix, ".fc2"));
    return attn_linear_layer_add(&layer->out, parameters, name.text, inner, width);
}

attn_tensor *attn_feed_forward_layer_forward(const attn_feed_forward_layer *layer,
                                             const attn_pass *pass, attn_tensor *x,
                                             float dropout)
{
    attn_tensor *const inner = attn_linear_activate(
        pass->tape, x, attn_pass_parameter(pass, layer->in.weight),
        attn_pass_parameter(pass, layer->in.bias), layer->activation, dropout);
    return attn_linear_layer_forward(&layer->out, pass, inner);
}

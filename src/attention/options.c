/* Options as they are unless somebody says otherwise. */
#include "attn/attention.h"
#include <math.h>

void attn_options_init(attn_options *options, const attn_shape *shape)
{
    *options = (attn_options){
        .scale = (float)(1.0 / sqrt((double)shape->D)),
        .window_left = -1,
        .window_right = -1,
    };
}

void attn_options_init_additive(attn_options *options, const attn_shape *shape,
                                const float *additive)
{
    attn_options_init(options, shape);
    options->scale = 1.0f;
    options->score = ATTN_SCORE_ADDITIVE;
    options->additive = additive;
}

void attn_options_init_linear(attn_options *options, const attn_shape *shape,
                              attn_feature feature)
{
    attn_options_init(options, shape);
    options->scale = 1.0f;
    options->score = ATTN_SCORE_LINEAR;
    options->feature = feature;
}

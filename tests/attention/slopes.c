#include "slopes.h"
#include <stdlib.h>

struct slopes slopes_create(const struct problem *p)
{
    const attn_shape *const s = &p->shape;
    struct slopes g = {
        .output = tensor_create(s->B, s->H, s->Lq, s->Dv),
        .query = tensor_create(s->B, s->H, s->Lq, s->D),
        .key = tensor_create(s->B, s->Hk, s->Lk, s->D),
        .value = tensor_create(s->B, s->Hk, s->Lk, s->Dv),
    };
    tensor_randomise(&g.output, 1.0f);
    if (p->options.bias.data) {
        const int64_t *const e = p->bias.extent;
        g.bias = tensor_create(e[0], e[1], e[2], e[3]);
        for (int axis = 0; axis < 4; axis++)
            if (p->options.bias.stride[axis] == 0)
                g.bias.stride[axis] = 0;
    }
    if (p->options.log_forget.data)
        g.log_forget = tensor_create(s->B, s->H, s->Lk, 1);
    if (p->options.sinks)
        g.sinks = allocate((size_t)s->H, sizeof *g.sinks);
    if (p->additive)
        g.additive = allocate((size_t)(s->H * s->D), sizeof *g.additive);
    return g;
}

void slopes_destroy(struct slopes *g)
{
    free(g->output.memory), free(g->query.memory), free(g->key.memory);
    free(g->value.memory), free(g->bias.memory), free(g->sinks), free(g->additive);
    free(g->log_forget.memory);
}

attn_gradients slopes_gradients(const struct slopes *g)
{
    return (attn_gradients){
        .output = tensor_input(&g->output),
        .query = tensor_output(&g->query),
        .key = tensor_output(&g->key),
        .value = tensor_output(&g->value),
        .bias = tensor_output(&g->bias),
        .log_forget = tensor_output(&g->log_forget),
        .sinks = g->sinks,
        .additive = g->additive,
    };
}

/* Tensors of the benches in 16 bits. */
#include "cli/bench.h"
#include "file/half.h"
#include <string.h>

const char *bench_type_name(attn_type type)
{
    return type == ATTN_F32 ? "fp32" : type == ATTN_F16 ? "fp16" : "bf16";
}

/* count numbers stored in that type, from as many in fp32. */
static void *stored(struct bench_group *group, attn_type type, const float *numbers,
                    size_t count)
{
    void *const memory = bench_memory(group, count * attn_type_bytes(type));
    if (!memory || !numbers)
        return NULL;
    uint16_t *const halves = memory;
    if (type == ATTN_F32)
        memcpy(memory, numbers, count * sizeof *numbers);
    else
        for (size_t i = 0; i < count; i++)
            halves[i] = type == ATTN_F16 ? attn_f16_from_float(numbers[i])
                                         : attn_bf16_from_float(numbers[i]);
    return memory;
}

void bench_store(struct bench_group *group, struct bench_case *c, attn_type type)
{
    const attn_shape *const s = &c->shape;
    const size_t query_rows = (size_t)(s->B * s->H * s->Lq);
    const size_t key_rows = (size_t)(s->B * s->Hk * s->Lk);
    const struct {
        attn_input *input;
        size_t count;
    } inputs[] = {{&c->tensors.query, query_rows * (size_t)s->D},
                  {&c->tensors.key, key_rows * (size_t)s->D},
                  {&c->tensors.value, key_rows * (size_t)s->Dv}};
    for (size_t i = 0; i < 3; i++) {
        inputs[i].input->data =
            stored(group, type, inputs[i].input->data, inputs[i].count);
        inputs[i].input->type = type;
    }
    c->tensors.output.data =
        bench_memory(group, query_rows * (size_t)s->Dv * attn_type_bytes(type));
    c->tensors.output.type = type;
    c->dtype = bench_type_name(type);
}

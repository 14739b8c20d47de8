/* Which loops run here, and how a probability becomes a threshold. */
#include "tensor/rows.h"
#include <string.h>

#if defined(__x86_64__)
extern const struct attn_rows attn_rows_generic, attn_rows_avx2, attn_rows_avx512,
    attn_rows_avx512bf16, attn_rows_amx;
static const struct attn_rows *const levels[] = {&attn_rows_amx, &attn_rows_avx512bf16,
                                                 &attn_rows_avx512, &attn_rows_avx2,
                                                 &attn_rows_generic};
#elif defined(__aarch64__)
extern const struct attn_rows attn_rows_neon;
static const struct attn_rows *const levels[] = {&attn_rows_neon};
#else
extern const struct attn_rows attn_rows_generic;
static const struct attn_rows *const levels[] = {&attn_rows_generic};
#endif

const struct attn_rows *attn_rows_find(const char *isa)
{
    const size_t count = sizeof levels / sizeof *levels;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(isa, levels[i]->isa) == 0)
            return levels[i];
    }
    return levels[count - 1];
}

struct attn_drop attn_drop_make(float probability, uint64_t seed)
{
    const double threshold = (double)probability * 0x1p32 - 0x1p31;
    return (struct attn_drop){
        .seed = seed,
        .threshold = threshold >= INT32_MAX ? INT32_MAX : (int32_t)threshold,
        .scale = probability < 1.0f ? 1.0f / (1.0f - probability) : 0.0f,
    };
}

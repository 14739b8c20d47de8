/* The slopes of ALiBi (Press et al. 2022).  The paper's sentence, ratios of 2^(−8/H), and
 * the authors' code agree where H is a power of two; where it is not, the code, and so
 * every released model, takes the heads of the power of two below, and then every other
 * one of twice as many. */
#include "attn/attention.h"
#include <math.h>

attn_status attn_alibi_slopes_fill(float *slopes, int64_t heads)
{
    if (heads < 0 || (!slopes && heads > 0))
        return ATTN_EINVAL;
    int64_t power = 1;
    while (power <= heads / 2)
        power *= 2;
    for (int64_t h = 0; h < heads; h++) {
        const double step = h < power ? (double)(h + 1) : (double)(h - power) + 0.5;
        slopes[h] = (float)exp2(-8.0 * step / (double)power);
    }
    return ATTN_OK;
}

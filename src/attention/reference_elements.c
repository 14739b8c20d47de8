/* Elements of tensors as doubles and back, by what their bits mean: a sign, an exponent
 * and a fraction, and the rounding to nearest even that IEEE 754 describes; and features
 * of them. */
#include "attention/reference.h"
#include <math.h>
#include <string.h>

static double f16_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = ldexp((double)fraction, -24);
    if (exponent == 31)
        x = fraction == 0 ? HUGE_VAL : (double)NAN;
    else if (exponent > 0)
        x = ldexp((double)(1024 + fraction), exponent - 25);
    return bits >> 15 ? -x : x;
}

static double bf16_value(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return (double)x;
}

double attn_reference_feature(double x, attn_feature feature)
{
    if (feature == ATTN_FEATURE_RELU)
        return x < 0.0 ? 0.0 : x; /* NaN stays NaN */
    if (feature == ATTN_FEATURE_ELU)
        return x > 0.0 ? x + 1.0 : exp(x);
    return x;
}

double attn_reference_load(const void *data, attn_type type, int64_t n)
{
    if (type == ATTN_F16)
        return f16_value(((const uint16_t *)data)[n]);
    if (type == ATTN_BF16)
        return bf16_value(((const uint16_t *)data)[n]);
    return (double)((const float *)data)[n];
}

/* To so many binary digits, or to fewer where the last of them would count less than
 * 2^least. */
static double round_to(double x, int digits, int least)
{
    int exponent = 0;
    frexp(x, &exponent);
    const int last = exponent - digits > least ? exponent - digits : least;
    return ldexp(nearbyint(ldexp(x, -last)), last);
}

static uint16_t f16_bits(double x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return sign | 0x7e00;
    const double size = isinf(x) ? x : round_to(fabs(x), 11, -24);
    if (fabs(size) > 65504.0)
        return sign | 0x7c00;
    if (size < ldexp(1.0, -14))
        return sign | (uint16_t)ldexp(size, 24);
    int exponent = 0;
    const double fraction = frexp(size, &exponent);
    return (uint16_t)(sign | (exponent + 14) << 10 | ((int)ldexp(fraction, 11) - 1024));
}

static uint16_t bf16_bits(double x)
{
    const float rounded = (float)(isfinite(x) ? round_to(x, 8, -133) : x);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return (uint16_t)(bits >> 16 | (isnan(x) ? 0x40 : 0));
}

void attn_reference_store(void *data, attn_type type, int64_t n, double x)
{
    if (type == ATTN_F16)
        ((uint16_t *)data)[n] = f16_bits(x);
    else if (type == ATTN_BF16)
        ((uint16_t *)data)[n] = bf16_bits(x);
    else
        ((float *)data)[n] = (float)x;
}

/* Bounds, and memory. */
#include "model/checks.h"

attn_status attn_check_bounds(const char *model, const attn_bound *bounds, size_t count,
                              attn_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high)
            return attn_error_set(error, ATTN_EINVAL,
                                  "%s: %s is %lld, expected %lld to %lld", model,
                                  bounds[i].name, (long long)bounds[i].value,
                                  (long long)bounds[i].low, (long long)bounds[i].high);
    return ATTN_OK;
}

attn_status attn_check_dropouts(const char *model, const float *dropouts, size_t count,
                                attn_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (!(dropouts[i] >= 0.0f && dropouts[i] < 1.0f))
            return attn_error_set(error, ATTN_EINVAL,
                                  "%s: a dropout is %g, expected 0 to below 1", model,
                                  (double)dropouts[i]);
    return ATTN_OK;
}

attn_status attn_allocate_parameters(const char *model, attn_parameters *parameters,
                                     attn_error *error)
{
    if (attn_parameters_allocate(parameters) == ATTN_OK)
        return ATTN_OK;
    return attn_error_set(error, ATTN_ENOMEM, "%s: no memory for %zu parameters", model,
                          parameters->floats);
}

/* What every model asks of its configuration, and says where it has no memory. */
#ifndef ATTN_MODEL_CHECKS_H
#define ATTN_MODEL_CHECKS_H

#include "base/error.h"
#include "nn/parameters.h"

typedef struct attn_bound {
    const char *name;
    int64_t value, low, high;
} attn_bound;

/* ATTN_EINVAL: "MODEL: NAME is VALUE, expected LOW to HIGH", of the first that is not. */
ATTN_CHECKED attn_status attn_check_bounds(const char *model, const attn_bound *bounds,
                                           size_t count, attn_error *error);
/* The same of probabilities: 0 to below 1. */
ATTN_CHECKED attn_status attn_check_dropouts(const char *model, const float *dropouts,
                                             size_t count, attn_error *error);
/* Memory for the parameters, not initialised; ATTN_ENOMEM says how many of what. */
ATTN_CHECKED attn_status attn_allocate_parameters(const char *model,
                                                  attn_parameters *parameters,
                                                  attn_error *error);

#endif

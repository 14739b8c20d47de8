/* The list of parameters, and their first values. */
#include "nn/parameters.h"
#include "base/context.h"
#include "base/mix.h"
#include "base/pages.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT_FLOATS = 16 };

static attn_status grow(attn_parameters *parameters)
{
    const size_t capacity = parameters->capacity ? 2 * parameters->capacity : 64;
    attn_parameter *const list =
        realloc(parameters->list, capacity * sizeof *parameters->list);
    if (!list)
        return ATTN_ENOMEM;
    parameters->list = list;
    parameters->capacity = capacity;
    return ATTN_OK;
}

attn_status attn_parameters_add(attn_parameters *parameters, const char *name, int rank,
                                const int64_t *extent, attn_initial initial,
                                size_t *index)
{
    attn_parameter added = {
        .rank = rank, .offset = parameters->floats, .count = 1, .initial = initial};
    if (rank < 1 || rank > ATTN_TENSOR_RANK || parameters->values)
        return ATTN_EINVAL;
    const int length = snprintf(added.name, sizeof added.name, "%s", name);
    if (length < 0 || (size_t)length >= sizeof added.name ||
        attn_parameters_find(parameters, name))
        return ATTN_EINVAL;
    for (int axis = 0; axis < rank; axis++) {
        if (extent[axis] < 1 ||
            added.count > SIZE_MAX / 16 / sizeof(float) / (uint64_t)extent[axis])
            return ATTN_EINVAL;
        added.extent[axis] = extent[axis];
        added.count *= (size_t)extent[axis];
    }
    added.decays = rank > 1;
    const size_t end = added.offset + added.count;
    if (end < added.count || end > SIZE_MAX / 16 / sizeof(float))
        return ATTN_EINVAL;
    if (parameters->length == parameters->capacity)
        ATTN_TRY(grow(parameters));
    parameters->floats =
        (end + ALIGNMENT_FLOATS - 1) / ALIGNMENT_FLOATS * ALIGNMENT_FLOATS;
    *index = parameters->length;
    parameters->list[parameters->length++] = added;
    return ATTN_OK;
}

attn_status attn_parameters_allocate(attn_parameters *parameters)
{
    const size_t bytes = parameters->floats * sizeof(float);
    float *const values = attn_pages_allocate(bytes);
    if (!values)
        return ATTN_ENOMEM;
    memset(values, 0, bytes);
    free(parameters->values);
    parameters->values = values;
    return ATTN_OK;
}

size_t attn_parameters_count(const attn_parameters *parameters)
{
    size_t count = 0;
    for (size_t i = 0; i < parameters->length; i++)
        count += parameters->list[i].count;
    return count;
}

/* Uniform in (0, 1). */
static double uniform(uint64_t seed, uint64_t counter)
{
    return ((double)(attn_mix(seed, counter) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller 1958. */
static double normal(uint64_t seed, uint64_t counter)
{
    static const double two_pi = 6.283185307179586;
    const double radius = sqrt(-2.0 * log(uniform(seed, 2 * counter)));
    return radius * cos(two_pi * uniform(seed, 2 * counter + 1));
}

static void initialise(float *values, const attn_parameter *p, uint64_t seed)
{
    const double columns = (double)p->extent[p->rank - 1];
    const double rows = (double)p->count / columns;
    const double bound = sqrt(6.0 / (rows + columns)), deviation = 1.0 / sqrt(columns);
    for (size_t i = 0; i < p->count; i++) {
        switch (p->initial) {
        case ATTN_INITIAL_ZEROS:
            values[i] = 0.0f;
            break;
        case ATTN_INITIAL_ONES:
            values[i] = 1.0f;
            break;
        case ATTN_INITIAL_XAVIER:
            values[i] = (float)(bound * (2.0 * uniform(seed, i) - 1.0));
            break;
        case ATTN_INITIAL_NORMAL:
            values[i] = (float)(deviation * normal(seed, i));
            break;
        }
    }
}

void attn_parameters_initialise(attn_parameters *parameters, uint64_t seed)
{
    for (size_t i = 0; i < parameters->length; i++) {
        /* Each parameter has a stream of its own, so that none of its values depends on
         * how many came before it. */
        const uint64_t stream = (seed + 1) * UINT64_C(0xd1342543de82ef95) +
                                (i + 1) * UINT64_C(0x2545f4914f6cdd1d);
        const attn_parameter *const p = parameters->list + i;
        initialise(parameters->values + p->offset, p, stream);
    }
}

const attn_parameter *attn_parameters_find(const attn_parameters *parameters,
                                           const char *name)
{
    for (size_t i = 0; i < parameters->length; i++) {
        if (strcmp(parameters->list[i].name, name) == 0)
            return parameters->list + i;
    }
    return NULL;
}

void attn_parameters_free(attn_parameters *parameters)
{
    free(parameters->list);
    free(parameters->values);
    *parameters = (attn_parameters){0};
}

attn_tensor *attn_pass_parameter(const attn_pass *pass, size_t index)
{
    const attn_parameter *const p = pass->parameters->list + index;
    float *const gradient = pass->gradients ? pass->gradients + p->offset : NULL;
    return attn_tape_leaf(pass->tape, pass->parameters->values + p->offset, gradient,
                          p->rank, p->extent);
}

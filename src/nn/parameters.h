/* The parameters of a model: each has the name and shape it has in the file, and all lie
 * one after another in one array of floats, so that an optimiser, a checkpoint and a sum
 * of gradients are loops over one array. */
#ifndef ATTN_NN_PARAMETERS_H
#define ATTN_NN_PARAMETERS_H

#include "tensor/tape.h"

typedef enum attn_initial {
    ATTN_INITIAL_ZEROS,
    ATTN_INITIAL_ONES,
    ATTN_INITIAL_XAVIER, /* uniform ±√(6/(rows + columns)) */
    ATTN_INITIAL_NORMAL  /* normal, standard deviation 1/√columns */
} attn_initial;

typedef struct attn_parameter {
    char name[96];
    int rank;
    int64_t extent[ATTN_TENSOR_RANK];
    size_t offset, count; /* floats from the start of the array, and how many */
    attn_initial initial;
    bool decays; /* weight decay applies: matrices, not gains and biases */
} attn_parameter;

typedef struct attn_parameters {
    attn_parameter *list;
    size_t length, capacity, floats; /* floats with the gaps */
    float *values;                   /* [floats]; NULL until allocated */
} attn_parameters;

/** Parameters are added first (the index comes back through *index), then allocated, then
 * used.  offsets are multiples of 16 floats; the gaps are zero. */
ATTN_CHECKED attn_status attn_parameters_add(attn_parameters *parameters,
                                             const char *name, int rank,
                                             const int64_t *extent, attn_initial initial,
                                             size_t *index);
ATTN_CHECKED attn_status attn_parameters_allocate(attn_parameters *parameters);
/** How many numbers the model has to learn: floats without the gaps. */
size_t attn_parameters_count(const attn_parameters *parameters);
void attn_parameters_initialise(attn_parameters *parameters, uint64_t seed);
const attn_parameter *attn_parameters_find(const attn_parameters *parameters,
                                           const char *name);
void attn_parameters_free(attn_parameters *parameters);

/** What a forward pass works with: the tape, the parameters, where their gradients go
 * ([floats], or NULL outside training), and who wants to see the heads. */
typedef struct attn_pass {
    attn_tape *tape;
    const attn_parameters *parameters;
    float *gradients;
    const struct attn_observer *observer; /* or NULL; see nn/observer.h */
} attn_pass;

/** The parameter as a tensor of the pass's tape. */
attn_tensor *attn_pass_parameter(const attn_pass *pass, size_t index);

#endif

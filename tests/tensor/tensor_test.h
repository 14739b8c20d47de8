/* What the tests of tensor and nn share: a tape for each instruction set, numbers from a
 * seed, and the check of an operation's gradients against central differences. */
#ifndef TENSOR_TEST_H
#define TENSOR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/operations.h"

/* A tape that works with the instruction set, or NULL when this processor has it not. */
attn_tape *test_tape_create(const char *isa);
void test_tape_destroy(attn_tape *tape);

/* All that this library may have; some are not on this processor. */
extern const char *const test_isas[];
extern const size_t test_isa_count;

/* The body that follows runs with a tape for each instruction set of this processor. */
#define EACH_TAPE(tape)                                                                  \
    for (size_t isa_ = 0; isa_ < test_isa_count; isa_++)                                 \
        for (attn_tape *tape = test_tape_create(test_isas[isa_]); tape;                  \
             test_tape_destroy(tape), tape = NULL)

/* Fails, naming both, unless got is expected within the tolerance (absolute up to 1,
 * relative beyond). */
void test_close(double got, double expected, double tolerance, const char *what,
                size_t i);

/* Uniform in [−1, 1], the same for the same seed. */
void test_fill(float *values, size_t count, uint64_t seed);

/* An operation under test: a tensor from leaves, always the same. */
typedef attn_tensor *test_build(attn_tape *tape, attn_tensor *const *leaves, void *user);

typedef struct test_leaf {
    float *data;
    int rank;
    int64_t extent[ATTN_TENSOR_RANK];
    bool no_gradient;
} test_leaf;

enum { TEST_LEAVES = 8 };

/* The weight of element i in test_weigh. */
double test_weight(size_t i);

/* Σ weight·y over all elements of y, recorded on the tape: a loss of one element whose
 * gradient tells all elements of y apart. */
attn_tensor *test_weigh(attn_tape *tape, attn_tensor *y);

/* The same with these weights. */
attn_tensor *test_weigh_by(attn_tape *tape, attn_tensor *y, const float *weights);

/* Every gradient of test_weigh(build(leaves)) against central differences with that step,
 * to that tolerance (absolute up to 1, relative beyond). */
void test_gradients(attn_tape *tape, test_build *build, void *user,
                    const test_leaf *leaves, size_t count, float step, double tolerance);

#endif

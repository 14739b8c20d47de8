/* The gradients of random problems. */
#ifndef ATTN_TESTS_SLOPES_H
#define ATTN_TESTS_SLOPES_H

#include "problems.h"

/* Every gradient that a problem has, in memory with gaps of NaN. */
struct slopes {
    struct tensor output, query, key, value, bias, log_forget;
    float *sinks, *additive;
};

/* That of the output is random. */
struct slopes slopes_create(const struct problem *problem);
void slopes_destroy(struct slopes *slopes);
attn_gradients slopes_gradients(const struct slopes *slopes);

#endif

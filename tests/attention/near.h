/* How near a forward pass is to the reference: the bounds of attention.h. */
#ifndef ATTN_TESTS_NEAR_H
#define ATTN_TESTS_NEAR_H

#include "problems.h"

/* Within bound of the magnitude or of 1, whichever is more; NaN where NaN is expected.
 * what and i name it. */
void assert_near(float got, float expected, double bound, const char *what, size_t i);
void assert_all_near(const float *got, const float *expected, size_t count, double bound,
                     const char *what);

/* Log-sum-exp and all statistics but the keys. */
void assert_statistics_near(const struct problem *problem, const struct results *got,
                            const struct results *expected);

#endif

/* Arrays of conformance cases, read from .npy files, and the folders they lie in. */
#ifndef ATTN_TESTS_ARRAYS_H
#define ATTN_TESTS_ARRAYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARRAY_RANK = 6 };

/* Row-major; bool, integers and floats of any size become double. */
struct array {
    int rank;
    int64_t extent[ARRAY_RANK];
    size_t count;
    double *x; /* NULL: no array */
};

/* Fails the test where the file is not there or is not what this reader knows. */
struct array array_load(const char *folder, const char *name);
void array_free(struct array *array);

float *array_floats(const struct array *array); /* a copy, the caller's */

/* Folder below the one that ATTN_SHARED names; the caller frees it.  Without ATTN_SHARED
 * says what is skipped, and skips the test. */
char *shared_folder(const char *below, const char *skipped);

/* Says which case, or which part of one, is not tried, and why.  Every test of
 * conformance says it here and nowhere else, once for all instruction sets;
 * docs/conformance.md lists what is left out. */
void say_skipped(const char *folder, const char *reason);

json_t *json_load_or_fail(const char *folder, const char *name);
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* |got − expected| ≤ absolute + relative·|expected|, element by element; NaN and ∞ only
 * where they are expected. */
void assert_floats_near(const float *got, const struct array *expected, double relative,
                        double absolute, const char *where, const char *what);

double largest_magnitude(const struct array *array);

#endif

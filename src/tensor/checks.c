/* Checks of arguments, and the words for what is wrong. */
#include "tensor/checks.h"
#include <stdio.h>

bool attn_tensors_given(attn_tape *tape, const char *operation,
                        const attn_named_tensor *list, size_t length)
{
    if (attn_tape_status(tape) != ATTN_OK)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!list[i].tensor) {
            attn_tape_fail(tape, ATTN_EINVAL, "%s: %s is NULL, expected a tensor",
                           operation, list[i].name);
            return false;
        }
    }
    return true;
}

/* "[3][any]" */
static void print_shape(char *text, size_t size, int rank, const int64_t *extent)
{
    size_t at = 0;
    text[0] = '\0';
    for (int axis = 0; axis < rank && at < size; axis++) {
        const int n = extent[axis] < 0 ? snprintf(text + at, size - at, "[any]")
                                       : snprintf(text + at, size - at, "[%lld]",
                                                  (long long)extent[axis]);
        at += n > 0 ? (size_t)n : 0;
    }
}

bool attn_tensor_has_shape(attn_tape *tape, const char *operation,
                           attn_named_tensor named, int rank, const int64_t *extent)
{
    bool same = named.tensor->rank == rank;
    for (int axis = 0; same && axis < rank; axis++)
        same = extent[axis] < 0 || extent[axis] == named.tensor->extent[axis];
    if (same)
        return true;
    char got[ATTN_TENSOR_RANK * 24], expected[ATTN_TENSOR_RANK * 24];
    print_shape(got, sizeof got, named.tensor->rank, named.tensor->extent);
    print_shape(expected, sizeof expected, rank, extent);
    attn_tape_fail(tape, ATTN_EINVAL, "%s: %s is %s, expected %s", operation, named.name,
                   got, expected);
    return false;
}

bool attn_starts_fit(attn_tape *tape, const char *operation, const int64_t *starts,
                     int64_t sequences, int64_t rows)
{
    bool rise = starts[0] == 0 && starts[sequences] == rows;
    for (int64_t s = 0; s < sequences; s++)
        rise = rise && starts[s] <= starts[s + 1];
    if (!rise)
        attn_tape_fail(tape, ATTN_EINVAL,
                       "%s: starts of %lld sequences do not rise from 0 to the %lld rows",
                       operation, (long long)sequences, (long long)rows);
    return rise;
}

bool attn_probability_fits(attn_tape *tape, const char *operation, float probability)
{
    if (probability >= 0.0f && probability <= 1.0f)
        return true;
    attn_tape_fail(tape, ATTN_EINVAL, "%s: probability is %g, expected 0 to 1", operation,
                   (double)probability);
    return false;
}

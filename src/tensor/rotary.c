/* Rotary positions: Su et al. 2021, section 3.4.2.  The gradient of a turn is the turn
 * back. */
#include "tensor/checks.h"

struct rotary {
    attn_tensor *x, *y;
    const int32_t *positions;
    attn_rotation rotation;
};

static void turn_rows(attn_tape *tape, float *to, const float *from,
                      const struct rotary *r, bool back)
{
    const size_t columns = (size_t)r->x->extent[1];
    const size_t half = (size_t)r->rotation.turned / 2;
    const struct attn_turn turn = {
        .heads = (size_t)r->rotation.heads,
        .width = columns / (size_t)r->rotation.heads,
        .turned = (size_t)r->rotation.turned,
        .interleaved = r->rotation.interleaved,
        .back = back,
    };
    for (size_t n = 0; n < (size_t)r->x->extent[0]; n++) {
        const size_t at = (size_t)r->positions[n] * half;
        attn_tape_rows(tape)->turn(to + n * columns, from + n * columns,
                                   r->rotation.cosine + at, r->rotation.sine + at, &turn);
    }
}

static void rotary_backward(attn_tape *tape, void *arguments)
{
    const struct rotary *const r = arguments;
    turn_rows(tape, r->y->gradient, r->y->gradient, r, true);
    attn_tape_pass_gradient(tape, r->y, r->x);
}

static bool rotation_fits(attn_tape *tape, const attn_tensor *x, const int32_t *positions,
                          const attn_rotation *rotation)
{
    const int64_t heads = rotation->heads, turned = rotation->turned;
    const int64_t columns = x->extent[1];
    if (heads < 1 || columns % heads != 0 || turned < 0 || turned % 2 != 0 ||
        turned > columns / heads) {
        attn_tape_fail(tape, ATTN_EINVAL,
                       "attn_rotary: %lld heads of which %lld elements are turned, in "
                       "rows of %lld, expected heads of one width and an even number of "
                       "their elements",
                       (long long)heads, (long long)turned, (long long)columns);
        return false;
    }
    for (int64_t n = 0; n < x->extent[0]; n++) {
        if (positions[n] < 0 || positions[n] >= rotation->positions) {
            attn_tape_fail(tape, ATTN_EINVAL,
                           "attn_rotary: position %ld at place %lld, expected 0 to %lld: "
                           "the table has %lld rows",
                           (long)positions[n], (long long)n,
                           (long long)rotation->positions - 1,
                           (long long)rotation->positions);
            return false;
        }
    }
    return true;
}

attn_tensor *attn_rotary(attn_tape *tape, attn_tensor *x, const int32_t *positions,
                         const attn_rotation *rotation)
{
    const attn_named_tensor given[] = {{"x", x}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, "attn_rotary", given, 1) ||
        !attn_tensor_has_shape(tape, "attn_rotary", given[0], 2, any) ||
        !rotation_fits(tape, x, positions, rotation))
        return NULL;
    attn_tensor *const y = attn_tape_tensor(tape, 2, x->extent);
    struct rotary *const r = attn_tape_allocate(tape, sizeof *r);
    if (!y || !r)
        return NULL;
    *r = (struct rotary){x, y, positions, *rotation};
    turn_rows(tape, y->data, x->data, r, false);
    attn_tape_record(tape, y, rotary_backward, r);
    return y;
}

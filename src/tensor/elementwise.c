/* Operations element by element: sums, dropout, activations. */
#include "tensor/checks.h"

struct pair {
    attn_tensor *a, *b, *y;
};

static void add_backward(attn_tape *tape, void *arguments)
{
    const struct pair *const p = arguments;
    bool add;
    float *const db = attn_tape_gradient(tape, p->b, &add);
    if (db)
        attn_tape_rows(tape)->scale(db, p->y->gradient, 1.0f, attn_tensor_count(p->y),
                                    add);
    attn_tape_pass_gradient(tape, p->y, p->a);
}

attn_tensor *attn_add(attn_tape *tape, attn_tensor *a, attn_tensor *b)
{
    const attn_named_tensor given[] = {{"a", a}, {"b", b}};
    if (!attn_tensors_given(tape, "attn_add", given, 2) ||
        !attn_tensor_has_shape(tape, "attn_add", given[1], a->rank, a->extent))
        return NULL;
    attn_tensor *const y = attn_tape_tensor(tape, a->rank, a->extent);
    struct pair *const p = attn_tape_allocate(tape, sizeof *p);
    if (!y || !p)
        return NULL;
    attn_tape_rows(tape)->add(y->data, a->data, b->data, attn_tensor_count(y));
    *p = (struct pair){a, b, y};
    attn_tape_record(tape, y, add_backward, p);
    return y;
}

struct dropped {
    attn_tensor *x;     /* what is dropped */
    attn_tensor *other; /* what it is added to, or NULL */
    attn_tensor *y;
    struct attn_drop drop;
};

static void dropped_backward(attn_tape *tape, void *arguments)
{
    const struct dropped *const d = arguments;
    bool add;
    float *const dx = attn_tape_gradient(tape, d->x, &add);
    if (dx)
        attn_tape_rows(tape)->drop_backward(dx, d->y->gradient, attn_tensor_count(d->y),
                                            &d->drop, add);
    if (d->other)
        attn_tape_pass_gradient(tape, d->y, d->other);
}

static attn_tensor *drop_and_add(attn_tape *tape, attn_tensor *x, attn_tensor *other,
                                 float probability)
{
    attn_tensor *const y = attn_tape_tensor(tape, x->rank, x->extent);
    struct dropped *const d = attn_tape_allocate(tape, sizeof *d);
    if (!y || !d)
        return NULL;
    *d = (struct dropped){x, other, y,
                          attn_drop_make(probability, attn_tape_next_seed(tape))};
    attn_tape_rows(tape)->drop(y->data, x->data, other ? other->data : NULL,
                               attn_tensor_count(y), &d->drop);
    attn_tape_record(tape, y, dropped_backward, d);
    return y;
}

attn_tensor *attn_dropout(attn_tape *tape, attn_tensor *x, float probability)
{
    const attn_named_tensor given[] = {{"x", x}};
    if (!attn_tensors_given(tape, "attn_dropout", given, 1) ||
        !attn_probability_fits(tape, "attn_dropout", probability))
        return NULL;
    if (!attn_tape_training(tape) || probability == 0.0f)
        return x;
    return drop_and_add(tape, x, NULL, probability);
}

attn_tensor *attn_add_dropout(attn_tape *tape, attn_tensor *x, attn_tensor *branch,
                              float probability)
{
    const attn_named_tensor given[] = {{"x", x}, {"branch", branch}};
    if (!attn_tensors_given(tape, "attn_add_dropout", given, 2) ||
        !attn_tensor_has_shape(tape, "attn_add_dropout", given[1], x->rank, x->extent) ||
        !attn_probability_fits(tape, "attn_add_dropout", probability))
        return NULL;
    if (!attn_tape_training(tape) || probability == 0.0f)
        return attn_add(tape, x, branch);
    return drop_and_add(tape, branch, x, probability);
}

struct activated {
    attn_tensor *x, *y;
    attn_activation activation;
    struct attn_drop drop; /* of nothing */
};

static void activate_backward(attn_tape *tape, void *arguments)
{
    const struct activated *const a = arguments;
    bool add;
    float *const dx = attn_tape_gradient(tape, a->x, &add);
    if (dx)
        attn_tape_rows(tape)->activate_backward(dx, a->y->gradient, a->x->data,
                                                attn_tensor_count(a->y), a->activation,
                                                &a->drop, add);
}

attn_tensor *attn_activate(attn_tape *tape, attn_tensor *x, attn_activation activation)
{
    const attn_named_tensor given[] = {{"x", x}};
    if (!attn_tensors_given(tape, "attn_activate", given, 1))
        return NULL;
    attn_tensor *const y = attn_tape_tensor(tape, x->rank, x->extent);
    struct activated *const a = attn_tape_allocate(tape, sizeof *a);
    if (!y || !a)
        return NULL;
    *a = (struct activated){x, y, activation, attn_drop_make(0.0f, 0)};
    attn_tape_rows(tape)->activate(y->data, x->data, attn_tensor_count(y), activation,
                                   &a->drop, 0);
    attn_tape_record(tape, y, activate_backward, a);
    return y;
}

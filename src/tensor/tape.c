/* The tape: memory, records and failure.  What the operations compute is in their own
 * files.
 *
 * Gradients of tensors are borrowed from a pool of the tape: they come with their first
 * reader's backward and go back after their writer's, so that a whole backward walks a
 * few buffers that stay in the caches, and none needs clearing. */
#include "tensor/tape.h"
#include "base/context.h"
#include "base/mix.h"
#include "tensor/arena.h"
#include "tensor/rows.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct record {
    struct record *previous;
    attn_tensor *output;
    void (*backward)(attn_tape *tape, void *arguments);
    void *arguments;
};

/* Lies before what is borrowed.  Memory goes back with the size it came with, or each use
 * by something smaller would leave less of it, and what is larger take fresh memory,
 * which is in no cache. */
struct lent_memory {
    struct lent_memory *next; /* of the pool, while nobody borrows it */
    size_t floats;
};

enum { LENT_HEADER_BYTES = 64 }; /* what follows is aligned as all memory of a tape */

struct attn_tape {
    attn_context *context;
    const struct attn_rows *rows;
    attn_arena arena;
    attn_status status;
    bool training;
    uint64_t seed, streams;
    struct record *last;
    struct lent_memory *pool;
};

attn_status attn_tape_create(attn_tape **tape, attn_context *context)
{
    *tape = NULL;
    attn_tape *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_context_fail(context, ATTN_ENOMEM, "no memory for a tape");
    created->context = context;
    created->rows = attn_rows_find(attn_context_isa(context));
    *tape = created;
    return ATTN_OK;
}

void attn_tape_destroy(attn_tape *tape)
{
    if (tape)
        attn_arena_free(&tape->arena);
    free(tape);
}

void attn_tape_begin(attn_tape *tape, bool training, uint64_t seed)
{
    attn_arena_rewind(&tape->arena);
    tape->status = ATTN_OK;
    tape->training = training;
    tape->seed = seed;
    tape->streams = 0;
    tape->last = NULL;
    tape->pool = NULL;
}

attn_context *attn_tape_context(const attn_tape *tape)
{
    return tape->context;
}

const struct attn_rows *attn_tape_rows(const attn_tape *tape)
{
    return tape->rows;
}

bool attn_tape_training(const attn_tape *tape)
{
    return tape->training;
}

attn_status attn_tape_status(const attn_tape *tape)
{
    return tape->status;
}

attn_status attn_tape_report(const attn_tape *tape, attn_error *error)
{
    return tape->status == ATTN_OK
               ? ATTN_OK
               : attn_error_from_context(error, tape->status, tape->context);
}

attn_tensor *attn_tape_fail(attn_tape *tape, attn_status status, const char *format, ...)
{
    if (tape->status != ATTN_OK)
        return NULL; /* the first failure is the one that explains the others */
    tape->status = status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(tape->context->message, sizeof tape->context->message, format, arguments);
    va_end(arguments);
    return NULL;
}

void attn_tape_fail_as_context(attn_tape *tape, attn_status status)
{
    if (tape->status == ATTN_OK)
        tape->status = status;
}

void *attn_tape_allocate(attn_tape *tape, size_t bytes)
{
    if (tape->status != ATTN_OK)
        return NULL;
    void *const memory = attn_arena_allocate(&tape->arena, bytes);
    if (!memory)
        attn_tape_fail(tape, ATTN_ENOMEM, "tape: no memory for %zu bytes", bytes);
    return memory;
}

float *attn_tape_borrow(attn_tape *tape, size_t floats)
{
    if (tape->status != ATTN_OK)
        return NULL;
    for (struct lent_memory **place = &tape->pool; *place; place = &(*place)->next) {
        struct lent_memory *const found = *place;
        if (found->floats >= floats && found->floats / 2 <= floats) {
            *place = found->next;
            return (float *)(void *)((char *)found + LENT_HEADER_BYTES);
        }
    }
    if (floats > SIZE_MAX / sizeof(float) - LENT_HEADER_BYTES)
        attn_tape_fail(tape, ATTN_ENOMEM, "tape: no memory for %zu floats", floats);
    struct lent_memory *const lent =
        attn_tape_allocate(tape, LENT_HEADER_BYTES + floats * sizeof(float));
    if (!lent)
        return NULL;
    lent->floats = floats;
    return (float *)(void *)((char *)lent + LENT_HEADER_BYTES);
}

void attn_tape_return(attn_tape *tape, float *memory)
{
    if (!memory)
        return;
    struct lent_memory *const lent =
        (struct lent_memory *)(void *)((char *)memory - LENT_HEADER_BYTES);
    lent->next = tape->pool;
    tape->pool = lent;
}

/* The tensor without its data; NULL after naming what is wrong with the extents. */
static attn_tensor *tensor_header(attn_tape *tape, int rank, const int64_t *extent)
{
    if (rank < 1 || rank > ATTN_TENSOR_RANK)
        return attn_tape_fail(tape, ATTN_EINVAL, "tensor: rank is %d, expected 1 to %d",
                              rank, (int)ATTN_TENSOR_RANK);
    attn_tensor *const tensor = attn_tape_allocate(tape, sizeof *tensor);
    if (!tensor)
        return NULL;
    *tensor = (attn_tensor){.rank = rank};
    size_t count = 1;
    for (int axis = 0; axis < rank; axis++) {
        const int64_t n = extent[axis];
        if (n < 0)
            return attn_tape_fail(tape, ATTN_EINVAL,
                                  "tensor: extent %d is %lld, expected 0 or more", axis,
                                  (long long)n);
        if (n > 0 && count > SIZE_MAX / 4 / sizeof(float) / (uint64_t)n)
            return attn_tape_fail(tape, ATTN_ENOMEM,
                                  "tensor: no memory for a tensor with an extent of %lld",
                                  (long long)n);
        count *= (size_t)n;
        tensor->extent[axis] = n;
    }
    return tensor;
}

size_t attn_tensor_count(const attn_tensor *tensor)
{
    size_t count = 1;
    for (int axis = 0; axis < tensor->rank; axis++)
        count *= (size_t)tensor->extent[axis];
    return count;
}

attn_tensor *attn_tape_tensor(attn_tape *tape, int rank, const int64_t *extent)
{
    attn_tensor *const tensor = tensor_header(tape, rank, extent);
    if (!tensor)
        return NULL;
    tensor->wants_gradient = tape->training;
    tensor->data = attn_tape_allocate(tape, attn_tensor_count(tensor) * sizeof(float));
    return tensor->data ? tensor : NULL;
}

attn_tensor *attn_tape_leaf(attn_tape *tape, float *data, float *gradient, int rank,
                            const int64_t *extent)
{
    attn_tensor *const tensor = tensor_header(tape, rank, extent);
    if (!tensor)
        return NULL;
    tensor->data = data;
    tensor->is_leaf = true;
    tensor->wants_gradient = tape->training && gradient;
    tensor->gradient = tensor->wants_gradient ? gradient : NULL;
    return tensor;
}

void attn_tape_record(attn_tape *tape, attn_tensor *output,
                      void (*backward)(attn_tape *tape, void *arguments), void *arguments)
{
    if (!tape->training)
        return;
    struct record *const record = attn_tape_allocate(tape, sizeof *record);
    if (!record)
        return;
    *record = (struct record){tape->last, output, backward, arguments};
    tape->last = record;
}

float *attn_tape_gradient(attn_tape *tape, attn_tensor *input, bool *add)
{
    *add = true;
    if (!input->wants_gradient || tape->status != ATTN_OK)
        return NULL;
    if (!input->gradient) {
        *add = false;
        input->gradient = attn_tape_borrow(tape, attn_tensor_count(input));
    }
    return input->gradient;
}

void attn_tape_pass_gradient(attn_tape *tape, attn_tensor *output, attn_tensor *input)
{
    if (!input->wants_gradient)
        return;
    if (input->gradient) {
        tape->rows->scale(input->gradient, output->gradient, 1.0f,
                          attn_tensor_count(input), true);
    } else {
        input->gradient = output->gradient;
        output->gradient = NULL;
    }
}

uint64_t attn_tape_next_seed(attn_tape *tape)
{
    return attn_mix(tape->seed, tape->streams++);
}

attn_status attn_tape_backward(attn_tape *tape, attn_tensor *loss, float seed_gradient)
{
    if (tape->status != ATTN_OK)
        return tape->status;
    if (!loss || attn_tensor_count(loss) != 1)
        attn_tape_fail(tape, ATTN_EINVAL,
                       "attn_tape_backward: loss has %zu elements, expected 1",
                       loss ? attn_tensor_count(loss) : 0);
    if (!tape->training)
        attn_tape_fail(tape, ATTN_EINVAL,
                       "attn_tape_backward: the tape was begun without training");
    bool add;
    float *const gradient = loss ? attn_tape_gradient(tape, loss, &add) : NULL;
    if (gradient)
        *gradient = add ? *gradient + seed_gradient : seed_gradient;
    for (struct record *record = tape->last; record && tape->status == ATTN_OK;
         record = record->previous) {
        attn_tensor *const output = record->output;
        if (!output->gradient)
            continue;
        record->backward(tape, record->arguments);
        attn_tape_return(tape, output->gradient);
        output->gradient = NULL;
    }
    tape->last = NULL;
    return tape->status;
}

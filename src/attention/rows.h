/* Rows of one head of a tensor, as kernels take them. */
#ifndef ATTN_ATTENTION_ROWS_H
#define ATTN_ATTENTION_ROWS_H

#include "attention/problem.h"
#include "kernel/table.h"
#include <string.h>

/* Rows first and on of those whose row 0 lies at head. */
static inline struct attn_matrix attn_rows_of(const attn_input *x, const void *head,
                                              int64_t first, int64_t rows, int64_t size)
{
    return (struct attn_matrix){
        .x = attn_element(head, x->type, first * x->stride[2]),
        .row_stride = x->stride[2],
        .element_stride = x->stride[3],
        .rows = (size_t)rows,
        .size = (size_t)size,
        .type = x->type,
    };
}

/* Rows first and on of a matrix. */
static inline struct attn_matrix attn_rows_among(const struct attn_matrix *of,
                                                 int64_t first, int64_t rows)
{
    struct attn_matrix some = *of;
    some.x = attn_element(of->x, of->type, first * of->row_stride);
    some.rows = (size_t)rows;
    return some;
}

/* Rows first and on, to be written. */
static inline struct attn_target attn_rows_to(const attn_output *x, void *head,
                                              int64_t first, int64_t rows, int64_t size)
{
    return (struct attn_target){
        .x = attn_place(head, x->type, first * x->stride[2]),
        .row_stride = x->stride[2],
        .element_stride = x->stride[3],
        .rows = (size_t)rows,
        .size = (size_t)size,
        .type = x->type,
    };
}

/* What was written, to be read. */
static inline attn_input attn_read_output(const attn_output *x)
{
    attn_input input = {.data = x->data, .type = x->type};
    memcpy(input.stride, x->stride, sizeof input.stride);
    return input;
}

#endif

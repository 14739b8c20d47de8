/* Rows of one head of a tensor, as kernels take them. */
#ifndef ATTN_ATTENTION_ROWS_H
#define ATTN_ATTENTION_ROWS_H

#include "attention/problem.h"
#include "kernel/table.h"

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

/* The same, to be written. */
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

/* Where x[b][h] lies. */
static inline void *attn_head_place(const attn_output *x, int64_t b, int64_t h)
{
    return attn_place(x->data, x->type, b * x->stride[0] + h * x->stride[1]);
}

#endif

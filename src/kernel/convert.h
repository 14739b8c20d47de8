/* Elements of any type and any stride, as vectors of fp32 and back.  The type is a
 * constant at every call, so each type has loops of its own. */
#ifndef ATTN_KERNEL_CONVERT_H
#define ATTN_KERNEL_CONVERT_H

#include "kernel/simd_types.h"
#include "kernel/table.h"

INLINE vf vf_load_as(const void *p, const attn_type type)
{
    if (type == ATTN_F16)
        return vf_load_f16(p);
    if (type == ATTN_BF16)
        return vf_load_bf16(p);
    return vf_load(p);
}

INLINE void vf_store_as(void *p, vf x, const attn_type type)
{
    if (type == ATTN_F16)
        vf_store_f16(p, x);
    else if (type == ATTN_BF16)
        vf_store_bf16(p, x);
    else
        vf_store(p, x);
}

/* Rows that lie side by side are better read as columns. */
INLINE bool is_turned(ptrdiff_t row_stride, ptrdiff_t element_stride)
{
    return row_stride == 1 && element_stride != 1;
}

INLINE struct attn_matrix turned_matrix(const struct attn_matrix *m)
{
    return (struct attn_matrix){m->x,    m->element_stride, m->row_stride,
                                m->size, m->rows,           m->type};
}

INLINE struct attn_target turned_target(const struct attn_target *t)
{
    return (struct attn_target){t->x,    t->element_stride, t->row_stride,
                                t->size, t->rows,           t->type};
}

/* Elements n to n + VF_LANES − 1 of a row, 0 beyond its last. */
INLINE vf load_elements(const struct attn_matrix *from, size_t row, size_t n,
                        const attn_type type)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const ptrdiff_t stride = from->element_stride;
    const char *const x =
        (const char *)from->x +
        ((ptrdiff_t)row * from->row_stride + (ptrdiff_t)n * stride) * bytes;
    const size_t left = from->size - n;
    if (stride == 1 && left >= VF_LANES)
        return vf_load_as(x, type);
    float lanes[VF_BYTES / 4] = {0.0f};
    for (ptrdiff_t i = 0; i < (ptrdiff_t)VF_LANES && i < (ptrdiff_t)left; i++)
        memcpy((char *)lanes + i * bytes, x + i * stride * bytes, (size_t)bytes);
    return vf_load_as(lanes, type);
}

/* Writes those of x that the row has. */
INLINE void store_elements(const struct attn_target *to, size_t row, size_t n, vf x,
                           const attn_type type)
{
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    const ptrdiff_t stride = to->element_stride;
    char *const at =
        (char *)to->x + ((ptrdiff_t)row * to->row_stride + (ptrdiff_t)n * stride) * bytes;
    const size_t left = to->size - n;
    if (stride == 1 && left >= VF_LANES) {
        vf_store_as(at, x, type);
        return;
    }
    float lanes[VF_BYTES / 4];
    vf_store_as(lanes, x, type);
    for (ptrdiff_t i = 0; i < (ptrdiff_t)VF_LANES && i < (ptrdiff_t)left; i++)
        memcpy(at + i * stride * bytes, (char *)lanes + i * bytes, (size_t)bytes);
}

INLINE size_t whole_vectors(size_t size)
{
    return (size + VF_LANES - 1) / VF_LANES * VF_LANES;
}

INLINE void widen_rows(float *to, const struct attn_matrix *rows, const attn_type type)
{
    /* A copy, which no store can change: its members stay in registers. */
    const struct attn_matrix from = *rows;
    const ptrdiff_t bytes = type == ATTN_F32 ? 4 : 2;
    for (size_t row = 0; row < from.rows; row++) {
        const char *x = (const char *)from.x + (ptrdiff_t)row * from.row_stride * bytes;
        size_t n = 0;
        if (from.element_stride == 1) {
#pragma GCC unroll 4
            for (; n + VF_LANES <= from.size; n += VF_LANES) {
                vf_store(to, vf_load_as(x, type));
                x += (ptrdiff_t)VF_LANES * bytes;
                to += VF_LANES;
            }
        }
        for (; n < from.size; n += VF_LANES) {
            vf_store(to, load_elements(&from, row, n, type));
            to += VF_LANES;
        }
    }
}

static void widen(float *to, const struct attn_matrix *from)
{
    if (from->type == ATTN_F16)
        widen_rows(to, from, ATTN_F16);
    else if (from->type == ATTN_BF16)
        widen_rows(to, from, ATTN_BF16);
    else
        widen_rows(to, from, ATTN_F32);
}

#endif

/* Types of elements, and descriptions of tensors without gaps. */
#include "attn/attention.h"

size_t attn_type_bytes(attn_type type)
{
    switch (type) {
    case ATTN_F32:
        return 4;
    case ATTN_F16:
    case ATTN_BF16:
        return 2;
    }
    return 0;
}

/* What no int64_t can hold becomes a stride that every call refuses. */
static int64_t product(int64_t a, int64_t b)
{
    int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MIN : result;
}

attn_input attn_input_dense(const void *data, int64_t heads, int64_t length, int64_t size)
{
    return (attn_input){
        .data = data,
        .stride = {product(heads, product(length, size)), product(length, size), size, 1},
    };
}

attn_output attn_output_dense(void *data, int64_t heads, int64_t length, int64_t size)
{
    return (attn_output){
        .data = data,
        .stride = {product(heads, product(length, size)), product(length, size), size, 1},
    };
}

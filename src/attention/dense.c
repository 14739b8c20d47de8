/* Descriptions of tensors without gaps. */
#include "attn/attention.h"

/* What no int64_t can hold becomes a stride that every call refuses. */
static int64_t product(int64_t a, int64_t b)
{
    int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MIN : result;
}

attn_input attn_input_dense(const float *data, int64_t heads, int64_t length,
                            int64_t size)
{
    return (attn_input){
        data, {product(heads, product(length, size)), product(length, size), size, 1}};
}

attn_output attn_output_dense(float *data, int64_t heads, int64_t length, int64_t size)
{
    return (attn_output){
        data, {product(heads, product(length, size)), product(length, size), size, 1}};
}

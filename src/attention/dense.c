/* Descriptions of tensors without gaps. */
#include "attn/attention.h"

attn_input attn_input_dense(const float *data, int64_t heads, int64_t length,
                            int64_t size)
{
    return (attn_input){data, {heads * length * size, length * size, size, 1}};
}

attn_output attn_output_dense(float *data, int64_t heads, int64_t length, int64_t size)
{
    return (attn_output){data, {heads * length * size, length * size, size, 1}};
}

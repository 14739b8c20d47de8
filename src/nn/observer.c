/* Names of the parts. */
#include "nn/observer.h"

const char *attn_part_name(attn_part part)
{
    static const char *const names[] = {
        [ATTN_PART_ENCODER] = "encoder",
        [ATTN_PART_DECODER] = "decoder",
        [ATTN_PART_CROSS] = "cross",
        [ATTN_PART_POOL] = "pooling",
    };
    return names[part];
}

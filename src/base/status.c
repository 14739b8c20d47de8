/* Names of the statuses. */
#include "attn/attention.h"

const char *attn_status_name(attn_status status)
{
    switch (status) {
    case ATTN_OK:
        return "ATTN_OK";
    case ATTN_EINVAL:
        return "ATTN_EINVAL";
    case ATTN_ENOMEM:
        return "ATTN_ENOMEM";
    case ATTN_EUNSUPPORTED:
        return "ATTN_EUNSUPPORTED";
    case ATTN_EIO:
        return "ATTN_EIO";
    case ATTN_EFORMAT:
        return "ATTN_EFORMAT";
    case ATTN_ENOTFINITE:
        return "ATTN_ENOTFINITE";
    }
    return "unknown status";
}

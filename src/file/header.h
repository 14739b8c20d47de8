/* The JSON header of a safetensors file, read strictly: what the format allows and no
 * more (docs of the format: header of `huggingface/safetensors`). */
#ifndef ATTN_FILE_HEADER_H
#define ATTN_FILE_HEADER_H

#include "file/safetensors.h"

/* A tensor as the header tells it: data_offsets are not compared with anything yet. */
struct attn_header_tensor {
    attn_safetensor tensor; /* without data */
    uint64_t begin, end;
};

struct attn_header {
    char *strings; /* names, keys and values, each NUL-ended */
    struct attn_header_tensor *tensors;
    size_t count, capacity;
    attn_safetensors_note *notes;
    size_t note_count, note_capacity;
};

/* Memory grows with what is in the text, never with what it claims.  `name` is the
 * file's, for messages.  attn_header_free also after a failure. */
ATTN_CHECKED attn_status attn_header_read(struct attn_header *header, const char *text,
                                          size_t length, const char *name,
                                          attn_error *error);
void attn_header_free(struct attn_header *header);

/* Bytes of an element, and the name the format gives the type. */
size_t attn_dtype_bytes(attn_dtype dtype);
const char *attn_dtype_name(attn_dtype dtype);

#endif

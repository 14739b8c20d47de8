/* safetensors: a JSON header that names tensors, then their bytes.  Opening checks
 * everything that the header claims against the file before it allocates. */
#ifndef ATTN_FILE_SAFETENSORS_H
#define ATTN_FILE_SAFETENSORS_H

#include "base/error.h"

typedef enum attn_dtype {
    ATTN_DTYPE_F32,
    ATTN_DTYPE_F16,
    ATTN_DTYPE_BF16,
    ATTN_DTYPE_F64,
    ATTN_DTYPE_I64,
    ATTN_DTYPE_I32,
    ATTN_DTYPE_I16,
    ATTN_DTYPE_I8,
    ATTN_DTYPE_U8,
    ATTN_DTYPE_U16,
    ATTN_DTYPE_U32,
    ATTN_DTYPE_U64,
    ATTN_DTYPE_BOOL
} attn_dtype;

enum { ATTN_SAFETENSORS_RANK = 8 };

typedef struct attn_safetensor {
    const char *name;
    attn_dtype dtype;
    int rank;
    int64_t extent[ATTN_SAFETENSORS_RANK];
    size_t count;     /* elements */
    const void *data; /* little-endian, alignment of a byte only */
    size_t bytes;
} attn_safetensor;

typedef struct attn_safetensors attn_safetensors;

ATTN_CHECKED attn_status attn_safetensors_open(attn_safetensors **file, const char *path,
                                               attn_error *error);
/** From memory, which must outlive the file; for tests and records. */
ATTN_CHECKED attn_status attn_safetensors_parse(attn_safetensors **file, const void *data,
                                                size_t bytes, const char *name,
                                                attn_error *error);
void attn_safetensors_close(attn_safetensors *file);
size_t attn_safetensors_count(const attn_safetensors *file);
const attn_safetensor *attn_safetensors_at(const attn_safetensors *file, size_t index);
const attn_safetensor *attn_safetensors_find(const attn_safetensors *file,
                                             const char *name);
/** The text kept under key in __metadata__, or NULL. */
const char *attn_safetensors_metadata(const attn_safetensors *file, const char *key);
/** As fp32, whatever the storage (F32, F16, BF16, F64); ATTN_EFORMAT for other types. */
ATTN_CHECKED attn_status attn_safetensor_to_float(const attn_safetensor *tensor,
                                                  float *out, attn_error *error);

/** Tensors to write; floats given as ATTN_DTYPE_F32 data are stored as `dtype`s say. */
typedef struct attn_safetensors_entry {
    const char *name;
    attn_dtype
        dtype; /* as stored: BF16 and F16 are rounded to nearest even from floats */
    int rank;
    int64_t extent[ATTN_SAFETENSORS_RANK];
    const void *data; /* floats for F32, F16 and BF16; else elements of dtype */
} attn_safetensors_entry;

typedef struct attn_safetensors_note {
    const char *key, *value;
} attn_safetensors_note;

/** Whole or not at all (see file.h).  Same input, same bytes. */
ATTN_CHECKED attn_status attn_safetensors_write(const char *path,
                                                const attn_safetensors_entry *entries,
                                                size_t count,
                                                const attn_safetensors_note *notes,
                                                size_t note_count, attn_error *error);

#endif

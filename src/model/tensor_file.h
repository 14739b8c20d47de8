/* A model's parameters in model.safetensors, for every model: held against the file,
 * tensor by tensor, before memory is taken for them; read; and written. */
#ifndef ATTN_MODEL_TENSOR_FILE_H
#define ATTN_MODEL_TENSOR_FILE_H

#include "file/safetensors.h"
#include "nn/parameters.h"

typedef struct attn_tensor_file {
    attn_safetensors *tensors;
    const char *path; /* for messages */
    attn_error *error;
} attn_tensor_file;

/* The tensor of that name, if its shape is like's and it is floating point; ATTN_EFORMAT
 * names what is missing or differs. */
ATTN_CHECKED attn_status attn_tensor_file_check(const attn_tensor_file *file,
                                                const char *name,
                                                const attn_parameter *like,
                                                const attn_safetensor **tensor);
/* Whether two tensors of one shape hold the same numbers. */
ATTN_CHECKED attn_status attn_tensor_file_same(const attn_tensor_file *file,
                                               const attn_safetensor *a,
                                               const attn_safetensor *b, bool *same);
/* Every parameter is there, and nothing else but `others`, ended by NULL: then memory for
 * them, and their values. */
ATTN_CHECKED attn_status attn_tensor_file_load(const attn_tensor_file *file,
                                               attn_parameters *parameters,
                                               const char *const *others);

/* Whether an output of the embedding's shape is tied is the file's to say, as far as it
 * has one: where the configuration says tied (*untied false) but the file has an output
 * that differs, *untied becomes true and note [note_bytes] says so; where it says untied,
 * the output must be there. */
ATTN_CHECKED attn_status attn_tensor_file_tie(const attn_tensor_file *file,
                                              const attn_parameter *embedding,
                                              const char *output, bool *untied,
                                              char *note, size_t note_bytes);

/* A parameter under a second name. */
typedef struct attn_tensor_alias {
    const char *name;
    size_t parameter;
} attn_tensor_alias;

/* FOLDER/model.safetensors, whole or not at all.
 * @param dtype  ATTN_DTYPE_F32 or ATTN_DTYPE_BF16. */
ATTN_CHECKED attn_status attn_tensor_file_write(const attn_parameters *parameters,
                                                const attn_tensor_alias *aliases,
                                                size_t alias_count, const char *folder,
                                                int dtype, attn_error *error);

#endif

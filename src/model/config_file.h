/* config.json and the small files beside it, for every model: values are read by key,
 * and one that is missing or of another type is named. */
#ifndef ATTN_MODEL_CONFIG_FILE_H
#define ATTN_MODEL_CONFIG_FILE_H

#include "base/error.h"
#include "tensor/operations.h"
#include <jansson.h>

typedef struct attn_config_file {
    json_t *root;     /* an object */
    const char *path; /* for messages; the caller's */
    attn_error *error;
} attn_config_file;

/* ATTN_EIO, ATTN_EFORMAT (no JSON, a key twice, no object) or ATTN_ENOMEM. */
ATTN_CHECKED attn_status attn_config_file_open(attn_config_file *file, const char *path,
                                               attn_error *error);
void attn_config_file_close(attn_config_file *file);

/* ATTN_EFORMAT: "PATH: KEY is a list, expected a text"; value NULL is "missing". */
attn_status attn_config_file_refuse(const attn_config_file *file, const char *key,
                                    const json_t *value, const char *expected);
/* fallback below 0: the key must be there. */
ATTN_CHECKED attn_status attn_config_file_integer(const attn_config_file *file,
                                                  const char *key, int64_t fallback,
                                                  int64_t *out);
/* fallback NaN: the key must be there. */
ATTN_CHECKED attn_status attn_config_file_number(const attn_config_file *file,
                                                 const char *key, double fallback,
                                                 double *out);
/* 0 to below 1 */
ATTN_CHECKED attn_status attn_config_file_probability(const attn_config_file *file,
                                                      const char *key, double fallback,
                                                      float *out);
ATTN_CHECKED attn_status attn_config_file_flag(const attn_config_file *file,
                                               const char *key, bool fallback, bool *out);
/* The place of a text that must be there among names, ended by NULL; ATTN_EUNSUPPORTED
 * where it is none of them. */
ATTN_CHECKED attn_status attn_config_file_choice(const attn_config_file *file,
                                                 const char *key,
                                                 const char *const *names, size_t *out);
/* ATTN_EUNSUPPORTED where a whole number, if it is there, is not the one expected. */
ATTN_CHECKED attn_status attn_config_file_expect(const attn_config_file *file,
                                                 const char *key, int64_t expected);
/* The same of a flag, which is the fallback where it is missing. */
ATTN_CHECKED attn_status attn_config_file_expect_flag(const attn_config_file *file,
                                                      const char *key, bool fallback,
                                                      bool expected);

/* relu, gelu, gelu_new, gelu_pytorch_tanh, silu, swish or tanh; another is
 * ATTN_EUNSUPPORTED. */
ATTN_CHECKED attn_status attn_config_file_activation(const attn_config_file *file,
                                                     const char *key,
                                                     const char *fallback,
                                                     attn_activation *out);
const char *attn_activation_name(attn_activation activation);

/* A model that refuses what config.json says (ATTN_EINVAL) refuses the file: the message
 * gets the path, and ATTN_EFORMAT.  Any other status comes back as it is. */
ATTN_CHECKED attn_status attn_config_file_blame(const attn_config_file *file,
                                                attn_status status);

/* "float32" or "bfloat16". */
const char *attn_json_dtype(int dtype);
/* The shortest decimal that reads back as the same float: 0.1, not 0.10000000149. */
json_t *attn_json_decimal(float value);

/* FOLDER/name, whole or not at all; takes over the document, NULL for no memory. */
ATTN_CHECKED attn_status attn_config_file_write(json_t *document, const char *folder,
                                                const char *name, attn_error *error);

#endif

/* A model's folder: config.json, model.safetensors, tokenizer.json and what stands beside
 * them, in one way for every model. */
#ifndef ATTN_MODEL_FOLDER_H
#define ATTN_MODEL_FOLDER_H

#include "file/path.h"
#include "model/config_file.h"
#include "model/languages.h"
#include "model/tensor_file.h"
#include "text/tokenizer.h"

/* Points into itself: not to be copied. */
typedef struct attn_folder {
    char config_path[ATTN_PATH_BYTES], tensors_path[ATTN_PATH_BYTES];
    const char *path; /* the caller's */
    attn_config_file config;
    attn_tensor_file tensors; /* once attn_folder_open_tensors was called */
} attn_folder;

/* Opens config.json; on failure nothing is open.  As attn_path_join and
 * attn_config_file_open. */
ATTN_CHECKED attn_status attn_folder_open(attn_folder *folder, const char *path,
                                          attn_error *error);
/* Opens model.safetensors of a folder that is open. */
ATTN_CHECKED attn_status attn_folder_open_tensors(attn_folder *folder);
void attn_folder_close(attn_folder *folder);

/* Before a model is saved: dtype is ATTN_DTYPE_F32 or ATTN_DTYPE_BF16 (another is
 * ATTN_EINVAL, in the name of the function that saves), and the folder is there. */
ATTN_CHECKED attn_status attn_folder_make(const char *folder, const char *saver,
                                          int dtype, attn_error *error);
/* tokenizer_config.json, with which `transformers` opens the tokenizer.json beside it; of
 * languages ("source_lang" and "target_lang", as it names them) those that are not "". */
ATTN_CHECKED attn_status attn_tokenizer_config_write(const char *folder,
                                                     int64_t max_positions,
                                                     const attn_languages *languages,
                                                     attn_error *error);
/* "" where there is no tokenizer_config.json, or it does not say. */
ATTN_CHECKED attn_status attn_folder_languages_load(attn_languages *languages,
                                                    const char *folder,
                                                    attn_error *error);
/* FOLDER/tokenizer.json; ATTN_EFORMAT where it has not as many tokens as the model
 * (vocabulary below 0: however many). */
ATTN_CHECKED attn_status attn_folder_tokenizer_load(attn_tokenizer **tokenizer,
                                                    const char *folder,
                                                    int64_t vocabulary,
                                                    attn_error *error);
ATTN_CHECKED attn_status attn_folder_tokenizer_save(const attn_tokenizer *tokenizer,
                                                    const char *folder,
                                                    attn_error *error);

#endif

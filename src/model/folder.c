/* A model's folder. */
#include "model/folder.h"
#include "base/context.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char TOKENIZER_CONFIG[] = "tokenizer_config.json", SOURCE[] = "source_lang",
                  TARGET[] = "target_lang";

/* ---- Reading --------------------------------------------------------------------- */

attn_status attn_folder_open(attn_folder *folder, const char *path, attn_error *error)
{
    folder->path = path;
    folder->tensors = (attn_tensor_file){.path = folder->tensors_path, .error = error};
    ATTN_TRY(attn_path_join(folder->config_path, path, "config.json", error));
    ATTN_TRY(attn_path_join(folder->tensors_path, path, "model.safetensors", error));
    return attn_config_file_open(&folder->config, folder->config_path, error);
}

attn_status attn_folder_open_tensors(attn_folder *folder)
{
    return attn_safetensors_open(&folder->tensors.tensors, folder->tensors_path,
                                 folder->tensors.error);
}

void attn_folder_close(attn_folder *folder)
{
    attn_safetensors_close(folder->tensors.tensors);
    attn_config_file_close(&folder->config);
}

attn_status attn_folder_tokenizer_load(attn_tokenizer **tokenizer, const char *folder,
                                       int64_t vocabulary, attn_error *error)
{
    char path[ATTN_PATH_BYTES];
    *tokenizer = NULL;
    ATTN_TRY(attn_path_join(path, folder, "tokenizer.json", error));
    ATTN_TRY(attn_tokenizer_load(tokenizer, path, error));
    const int64_t tokens = attn_tokenizer_size(*tokenizer);
    if (tokens == vocabulary || vocabulary < 0)
        return ATTN_OK;
    attn_tokenizer_destroy(*tokenizer);
    *tokenizer = NULL;
    return attn_error_set(
        error, ATTN_EFORMAT,
        "%s: tokenizer.json has %lld tokens, expected %lld, as the model has", folder,
        (long long)tokens, (long long)vocabulary);
}

/* ---- Writing --------------------------------------------------------------------- */

attn_status attn_folder_make(const char *folder, const char *saver, int dtype,
                             attn_error *error)
{
    if (dtype != ATTN_DTYPE_F32 && dtype != ATTN_DTYPE_BF16)
        return attn_error_set(
            error, ATTN_EINVAL,
            "%s: dtype is %d, expected ATTN_DTYPE_F32 or ATTN_DTYPE_BF16", saver, dtype);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return attn_error_set(error, ATTN_EIO, "%s: cannot make the folder: %s", folder,
                              strerror(errno));
    return ATTN_OK;
}

attn_status attn_folder_tokenizer_save(const attn_tokenizer *tokenizer,
                                       const char *folder, attn_error *error)
{
    char path[ATTN_PATH_BYTES];
    ATTN_TRY(attn_path_join(path, folder, "tokenizer.json", error));
    return attn_tokenizer_save(tokenizer, path, error);
}

static bool put_language(json_t *document, const char *key, const char *language)
{
    return !*language || json_object_set_new(document, key, json_string(language)) == 0;
}

attn_status attn_tokenizer_config_write(const char *folder, int64_t max_positions,
                                        const attn_languages *languages,
                                        attn_error *error)
{
    json_t *document =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:b}", "tokenizer_class",
                  "PreTrainedTokenizerFast", "bos_token", "<s>", "eos_token", "</s>",
                  "pad_token", "<pad>", "unk_token", "<unk>", "model_max_length",
                  (json_int_t)max_positions, "clean_up_tokenization_spaces", 0);
    if (!put_language(document, SOURCE, languages->source) ||
        !put_language(document, TARGET, languages->target)) {
        json_decref(document);
        document = NULL;
    }
    return attn_config_file_write(document, folder, TOKENIZER_CONFIG, error);
}

/* ---- Languages ------------------------------------------------------------------- */

/* Longer names are none that could be shown. */
static void read_language(const json_t *root, const char *key, char *language)
{
    const char *const name = json_string_value(json_object_get(root, key));
    if (name && strlen(name) < ATTN_LANGUAGE_BYTES)
        strcpy(language, name);
}

attn_status attn_folder_languages_load(attn_languages *languages, const char *folder,
                                       attn_error *error)
{
    char path[ATTN_PATH_BYTES];
    attn_config_file file;
    *languages = (attn_languages){0};
    ATTN_TRY(attn_path_join(path, folder, TOKENIZER_CONFIG, error));
    if (access(path, F_OK) != 0)
        return ATTN_OK;
    ATTN_TRY(attn_config_file_open(&file, path, error));
    read_language(file.root, SOURCE, languages->source);
    read_language(file.root, TARGET, languages->target);
    attn_config_file_close(&file);
    return ATTN_OK;
}

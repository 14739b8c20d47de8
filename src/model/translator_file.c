/* A translator's folder: model.safetensors held against the configuration before memory
 * is taken, and what tells its variants apart; and written. */
#include "base/context.h"
#include "model/config_file.h"
#include "model/tensor_file.h"
#include "model/transformer.h"
#include <stdio.h>
#include <string.h>

enum { MOST_PATH_BYTES = 4096 };

static const char OUTPUT_NAME[] = "lm_head.weight";

/* Where the output is not tied, `transformers` does not tie these either. */
static const char *const COPIES_OF_EMBEDDING[] = {"model.encoder.embed_tokens.weight",
                                                  "model.decoder.embed_tokens.weight"};
enum { COPIES = 2 };

/* Tensors beside the parameters: copies, and of older files of M2M100 what is computed,
 * as the table of positions is, and not read. */
static const char *const OTHERS[] = {"lm_head.weight",
                                     "model.encoder.embed_tokens.weight",
                                     "model.decoder.embed_tokens.weight",
                                     "model.encoder.embed_positions.weights",
                                     "model.decoder.embed_positions.weights",
                                     "final_logits_bias",
                                     NULL};

/* ---- Loading --------------------------------------------------------------------- */

static attn_status settle_output(const attn_tensor_file *file,
                                 attn_translator_config *config, char *note,
                                 size_t note_bytes)
{
    const attn_parameter like = {.name = "model.shared.weight",
                                 .rank = 2,
                                 .extent = {config->vocabulary, config->width}};
    const attn_safetensor *embedding, *copy;
    bool same;
    ATTN_TRY(attn_tensor_file_check(file, like.name, &like, &embedding));
    for (size_t i = 0; i < COPIES; i++) {
        if (!attn_safetensors_find(file->tensors, COPIES_OF_EMBEDDING[i]))
            continue;
        ATTN_TRY(attn_tensor_file_check(file, COPIES_OF_EMBEDDING[i], &like, &copy));
        ATTN_TRY(attn_tensor_file_same(file, embedding, copy, &same));
        if (!same)
            return attn_error_set(
                file->error, ATTN_EUNSUPPORTED,
                "%s: tensor \"%s\" differs from \"model.shared.weight\", "
                "expected one embedding for both sides",
                file->path, COPIES_OF_EMBEDDING[i]);
    }
    return attn_tensor_file_tie(file, &like, OUTPUT_NAME, &config->untied, note,
                                note_bytes);
}

/* Nor does config.json say whether positions are learned: their tables are in the file or
 * not. */
static bool has_positions(const attn_safetensors *tensors)
{
    return attn_safetensors_find(tensors, "model.encoder.embed_positions.weight") ||
           attn_safetensors_find(tensors, "model.decoder.embed_positions.weight");
}

static attn_status load_tensors(attn_translator **translator,
                                attn_translator_config *config, const char *config_path,
                                const attn_tensor_file *file)
{
    char note[sizeof(*translator)->note] = "";
    attn_translator *loaded;
    attn_status status = settle_output(file, config, note, sizeof note);
    if (status != ATTN_OK)
        return status;
    config->learned_positions = !config->normalise_first && has_positions(file->tensors);
    status = attn_config_file_blame(
        config_path, attn_translator_outline(&loaded, config, file->error), file->error);
    if (status != ATTN_OK)
        return status;
    memcpy(loaded->note, note, sizeof note);
    status = attn_tensor_file_check_all(file, &loaded->parameters, OTHERS);
    if (status == ATTN_OK)
        status = attn_translator_allocate(loaded, file->error);
    if (status == ATTN_OK)
        status = attn_tensor_file_read(file, &loaded->parameters);
    if (status == ATTN_OK)
        *translator = loaded;
    else
        attn_translator_destroy(loaded);
    return status;
}

attn_status attn_translator_load(attn_translator **translator, const char *folder,
                                 attn_error *error)
{
    char config_path[MOST_PATH_BYTES], path[MOST_PATH_BYTES];
    attn_translator_config config;
    attn_tensor_file file = {.path = path, .error = error};
    *translator = NULL;
    ATTN_TRY(
        attn_folder_path(config_path, sizeof config_path, folder, "config.json", error));
    ATTN_TRY(attn_folder_path(path, sizeof path, folder, "model.safetensors", error));
    ATTN_TRY(attn_translator_config_read(&config, config_path, error));
    ATTN_TRY(attn_safetensors_open(&file.tensors, path, error));
    const attn_status status = load_tensors(translator, &config, config_path, &file);
    attn_safetensors_close(file.tensors);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

attn_status attn_translator_save(const attn_translator *translator, const char *folder,
                                 int dtype, attn_error *error)
{
    const attn_tensor_alias copies[] = {{COPIES_OF_EMBEDDING[0], translator->embedding},
                                        {COPIES_OF_EMBEDDING[1], translator->embedding}};
    if (dtype != ATTN_DTYPE_F32 && dtype != ATTN_DTYPE_BF16)
        return attn_error_set(
            error, ATTN_EINVAL,
            "attn_translator_save: dtype is %d, expected ATTN_DTYPE_F32 or "
            "ATTN_DTYPE_BF16",
            dtype);
    ATTN_TRY(attn_translator_config_write(&translator->config, folder, dtype, error));
    return attn_tensor_file_write(&translator->parameters, copies,
                                  translator->config.untied ? COPIES : 0, folder, dtype,
                                  error);
}

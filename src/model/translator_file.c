/* A translator's folder: model.safetensors held against the configuration before memory
 * is taken, and what tells its variants apart; and written. */
#include "base/context.h"
#include "model/folder.h"
#include "model/translator_parts.h"
#include <string.h>

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

static attn_status load(attn_translator **translator, attn_folder *folder)
{
    const attn_tensor_file *const file = &folder->tensors;
    attn_translator_config config;
    attn_translator *loaded;
    char note[sizeof(*translator)->note] = "";
    ATTN_TRY(attn_translator_config_read(&config, &folder->config));
    ATTN_TRY(attn_folder_languages_load(&config.languages, folder->path, file->error));
    ATTN_TRY(attn_folder_open_tensors(folder));
    ATTN_TRY(settle_output(file, &config, note, sizeof note));
    config.learned_positions = !config.normalise_first && has_positions(file->tensors);
    ATTN_TRY(attn_config_file_blame(
        &folder->config, attn_translator_outline(&loaded, &config, file->error)));
    memcpy(loaded->note, note, sizeof note);
    attn_status status = attn_tensor_file_load(file, &loaded->parameters, OTHERS);
    if (status == ATTN_OK)
        status = attn_translator_add_positions(loaded, file->error);
    if (status == ATTN_OK)
        *translator = loaded;
    else
        attn_translator_destroy(loaded);
    return status;
}

attn_status attn_translator_load(attn_translator **translator, const char *path,
                                 attn_error *error)
{
    attn_folder folder;
    *translator = NULL;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = load(translator, &folder);
    attn_folder_close(&folder);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

attn_status attn_translator_save(const attn_translator *translator, const char *folder,
                                 int dtype, attn_error *error)
{
    const attn_tensor_alias copies[] = {{COPIES_OF_EMBEDDING[0], translator->embedding},
                                        {COPIES_OF_EMBEDDING[1], translator->embedding}};
    ATTN_TRY(attn_translator_config_write(&translator->config, folder, dtype, error));
    return attn_tensor_file_write(&translator->parameters, copies,
                                  translator->config.untied ? COPIES : 0, folder, dtype,
                                  error);
}

/* A translator's folder: model.safetensors held against the configuration, tensor by
 * tensor, before anything is allocated; and written. */
#include "base/context.h"
#include "file/safetensors.h"
#include "model/transformer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PATH_BYTES = 4096 };

static const char OUTPUT_NAME[] = "lm_head.weight";

/* Where the output is not tied, `transformers` does not tie these either. */
static const char *const COPIES_OF_EMBEDDING[] = {"model.encoder.embed_tokens.weight",
                                                  "model.decoder.embed_tokens.weight"};
enum { COPIES = 2 };

/* Of older files of M2M100; computed, as the table of positions is, and not read. */
static const char *const IGNORED[] = {"model.encoder.embed_positions.weights",
                                      "model.decoder.embed_positions.weights",
                                      "final_logits_bias"};

/* ---- Loading --------------------------------------------------------------------- */

struct loading {
    const attn_safetensors *file;
    const char *path;
    attn_error *error;
};

/* "[6000, 256]" */
struct shape_text {
    char text[160];
};

static struct shape_text describe(int rank, const int64_t *extent)
{
    struct shape_text shape = {"["};
    size_t end = 1;
    for (int i = 0; i < rank; i++)
        end += (size_t)snprintf(shape.text + end, sizeof shape.text - end, "%s%lld",
                                i > 0 ? ", " : "", (long long)extent[i]);
    snprintf(shape.text + end, sizeof shape.text - end, "]");
    return shape;
}

static bool is_floating(attn_dtype dtype)
{
    return dtype == ATTN_DTYPE_F32 || dtype == ATTN_DTYPE_F16 ||
           dtype == ATTN_DTYPE_BF16 || dtype == ATTN_DTYPE_F64;
}

/* The tensor of that name, if it is what the parameter needs. */
static attn_status check_tensor(const struct loading *loading, const char *name,
                                const attn_parameter *like, const attn_safetensor **out)
{
    const attn_safetensor *const tensor = attn_safetensors_find(loading->file, name);
    if (!tensor)
        return attn_error_set(loading->error, ATTN_EFORMAT,
                              "%s: no tensor \"%s\", expected one of shape %s",
                              loading->path, name,
                              describe(like->rank, like->extent).text);
    if (!is_floating(tensor->dtype))
        return attn_error_set(
            loading->error, ATTN_EFORMAT,
            "%s: tensor \"%s\" is not floating point, expected F32, BF16, "
            "F16 or F64",
            loading->path, name);
    if (tensor->rank != like->rank ||
        memcmp(tensor->extent, like->extent, (size_t)like->rank * sizeof(int64_t)) != 0)
        return attn_error_set(
            loading->error, ATTN_EFORMAT, "%s: tensor \"%s\" has shape %s, expected %s",
            loading->path, name, describe(tensor->rank, tensor->extent).text,
            describe(like->rank, like->extent).text);
    *out = tensor;
    return ATTN_OK;
}

static bool is_one_of(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

static bool is_known(const attn_translator *translator, const char *name)
{
    return attn_parameters_find(&translator->parameters, name) ||
           strcmp(name, OUTPUT_NAME) == 0 ||
           is_one_of(name, COPIES_OF_EMBEDDING, COPIES) ||
           is_one_of(name, IGNORED, sizeof IGNORED / sizeof IGNORED[0]);
}

static attn_status check_tensors(const struct loading *loading,
                                 const attn_translator *translator)
{
    const attn_safetensor *tensor;
    const attn_parameters *const parameters = &translator->parameters;
    for (size_t i = 0; i < parameters->length; i++)
        ATTN_TRY(check_tensor(loading, parameters->list[i].name, &parameters->list[i],
                              &tensor));
    for (size_t i = 0; i < attn_safetensors_count(loading->file); i++) {
        const char *const name = attn_safetensors_at(loading->file, i)->name;
        if (!is_known(translator, name))
            return attn_error_set(loading->error, ATTN_EFORMAT,
                                  "%s: tensor \"%.200s\" belongs to no part of the model "
                                  "that config.json describes",
                                  loading->path, name);
    }
    return ATTN_OK;
}

static attn_status same_values(const struct loading *loading, const attn_safetensor *a,
                               const attn_safetensor *b, bool *same)
{
    if (a->dtype == b->dtype) {
        *same = memcmp(a->data, b->data, a->bytes) == 0;
        return ATTN_OK;
    }
    float *const values = malloc(2 * a->count * sizeof *values);
    if (!values)
        return attn_error_set(loading->error, ATTN_ENOMEM, "%s: no memory",
                              loading->path);
    attn_status status = attn_safetensor_to_float(a, values, loading->error);
    if (status == ATTN_OK)
        status = attn_safetensor_to_float(b, values + a->count, loading->error);
    *same = status == ATTN_OK &&
            memcmp(values, values + a->count, a->count * sizeof *values) == 0;
    free(values);
    return status;
}

/* Whether the output is tied is the file's to say, as far as it has an lm_head. */
static attn_status settle_output(const struct loading *loading,
                                 attn_translator_config *config, char *note,
                                 size_t note_bytes)
{
    const attn_parameter like = {.rank = 2,
                                 .extent = {config->vocabulary, config->width}};
    const attn_safetensor *embedding, *output, *copy;
    bool same;
    ATTN_TRY(check_tensor(loading, "model.shared.weight", &like, &embedding));
    for (size_t i = 0; i < COPIES; i++) {
        if (!attn_safetensors_find(loading->file, COPIES_OF_EMBEDDING[i]))
            continue;
        ATTN_TRY(check_tensor(loading, COPIES_OF_EMBEDDING[i], &like, &copy));
        ATTN_TRY(same_values(loading, embedding, copy, &same));
        if (!same)
            return attn_error_set(
                loading->error, ATTN_EUNSUPPORTED,
                "%s: tensor \"%s\" differs from \"model.shared.weight\", "
                "expected one embedding for both sides",
                loading->path, COPIES_OF_EMBEDDING[i]);
    }
    const bool is_there = attn_safetensors_find(loading->file, OUTPUT_NAME);
    if (config->untied && !is_there)
        return attn_error_set(
            loading->error, ATTN_EFORMAT,
            "%s: no tensor \"%s\", expected one because config.json has "
            "tie_word_embeddings false",
            loading->path, OUTPUT_NAME);
    if (config->untied || !is_there)
        return ATTN_OK;
    ATTN_TRY(check_tensor(loading, OUTPUT_NAME, &like, &output));
    ATTN_TRY(same_values(loading, embedding, output, &same));
    if (!same) {
        config->untied = true;
        snprintf(
            note, note_bytes,
            "config.json ties the output to the embedding, but lm_head.weight is there "
            "and differs: both are used");
    }
    return ATTN_OK;
}

/* Nor does config.json say whether positions are learned: their tables are in the file or
 * not. */
static bool has_positions(const struct loading *loading)
{
    return attn_safetensors_find(loading->file, "model.encoder.embed_positions.weight") ||
           attn_safetensors_find(loading->file, "model.decoder.embed_positions.weight");
}

static attn_status read_values(const struct loading *loading, attn_translator *translator)
{
    attn_parameters *const parameters = &translator->parameters;
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        ATTN_TRY(attn_safetensor_to_float(
            attn_safetensors_find(loading->file, parameter->name),
            parameters->values + parameter->offset, loading->error));
    }
    return ATTN_OK;
}

static attn_status load_tensors(attn_translator **translator,
                                attn_translator_config *config, const char *config_path,
                                const struct loading *loading)
{
    char note[sizeof(*translator)->note] = "";
    attn_translator *loaded;
    attn_status status = settle_output(loading, config, note, sizeof note);
    if (status != ATTN_OK)
        return status;
    config->learned_positions = !config->normalise_first && has_positions(loading);
    status = attn_translator_outline(&loaded, config, loading->error);
    if (status == ATTN_EINVAL) {
        char message[sizeof loading->error->message];
        memcpy(message, loading->error->message, sizeof message);
        return attn_error_set(loading->error, ATTN_EFORMAT, "%.200s: %.300s", config_path,
                              message);
    }
    if (status != ATTN_OK)
        return status;
    memcpy(loaded->note, note, sizeof note);
    status = check_tensors(loading, loaded);
    if (status == ATTN_OK)
        status = attn_translator_allocate(loaded, loading->error);
    if (status == ATTN_OK)
        status = read_values(loading, loaded);
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
    attn_safetensors *file;
    *translator = NULL;
    if (strlen(folder) > MOST_PATH_BYTES - 32)
        return attn_error_set(error, ATTN_EINVAL, "%.200s…: the path is too long",
                              folder);
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    ATTN_TRY(attn_translator_config_read(&config, config_path, error));
    ATTN_TRY(attn_safetensors_open(&file, path, error));
    const struct loading loading = {file, path, error};
    const attn_status status = load_tensors(translator, &config, config_path, &loading);
    attn_safetensors_close(file);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

static attn_safetensors_entry entry_of(const attn_translator *translator,
                                       const attn_parameter *parameter, const char *name,
                                       int dtype)
{
    attn_safetensors_entry entry = {
        .name = name,
        .dtype = (attn_dtype)dtype,
        .rank = parameter->rank,
        .data = translator->parameters.values + parameter->offset,
    };
    memcpy(entry.extent, parameter->extent, (size_t)parameter->rank * sizeof(int64_t));
    return entry;
}

attn_status attn_translator_save(const attn_translator *translator, const char *folder,
                                 int dtype, attn_error *error)
{
    static const attn_safetensors_note notes[] = {{"format", "pt"}};
    const attn_parameters *const parameters = &translator->parameters;
    char path[MOST_PATH_BYTES];
    if (dtype != ATTN_DTYPE_F32 && dtype != ATTN_DTYPE_BF16)
        return attn_error_set(
            error, ATTN_EINVAL,
            "attn_translator_save: dtype is %d, expected ATTN_DTYPE_F32 or "
            "ATTN_DTYPE_BF16",
            dtype);
    if (strlen(folder) > MOST_PATH_BYTES - 32)
        return attn_error_set(error, ATTN_EINVAL, "%.200s…: the path is too long",
                              folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    attn_safetensors_entry *const entries =
        calloc(parameters->length + COPIES, sizeof *entries);
    if (!entries)
        return attn_error_set(error, ATTN_ENOMEM, "%s: no memory", path);
    size_t count = 0;
    for (size_t i = 0; i < parameters->length; i++)
        entries[count++] =
            entry_of(translator, &parameters->list[i], parameters->list[i].name, dtype);
    for (size_t i = 0; translator->config.untied && i < COPIES; i++)
        entries[count++] = entry_of(translator, &parameters->list[translator->embedding],
                                    COPIES_OF_EMBEDDING[i], dtype);
    attn_status status =
        attn_translator_config_write(&translator->config, folder, dtype, error);
    if (status == ATTN_OK)
        status = attn_safetensors_write(path, entries, count, notes, 1, error);
    free(entries);
    return status;
}

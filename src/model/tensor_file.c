/* Parameters and the tensors of a file. */
#include "model/tensor_file.h"
#include "base/context.h"
#include "file/path.h"
#include "model/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Checking and reading -------------------------------------------------------- */

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

attn_status attn_tensor_file_check(const attn_tensor_file *file, const char *name,
                                   const attn_parameter *like,
                                   const attn_safetensor **tensor)
{
    const attn_safetensor *const found = attn_safetensors_find(file->tensors, name);
    if (!found)
        return attn_error_set(file->error, ATTN_EFORMAT,
                              "%s: no tensor \"%s\", expected one of shape %s",
                              file->path, name, describe(like->rank, like->extent).text);
    if (!is_floating(found->dtype))
        return attn_error_set(
            file->error, ATTN_EFORMAT,
            "%s: tensor \"%s\" is not floating point, expected F32, BF16, "
            "F16 or F64",
            file->path, name);
    if (found->rank != like->rank ||
        memcmp(found->extent, like->extent, (size_t)like->rank * sizeof(int64_t)) != 0)
        return attn_error_set(file->error, ATTN_EFORMAT,
                              "%s: tensor \"%s\" has shape %s, expected %s", file->path,
                              name, describe(found->rank, found->extent).text,
                              describe(like->rank, like->extent).text);
    *tensor = found;
    return ATTN_OK;
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* Every parameter is there, and nothing else but `others`. */
static attn_status check_all(const attn_tensor_file *file,
                             const attn_parameters *parameters, const char *const *others)
{
    const attn_safetensor *tensor;
    for (size_t i = 0; i < parameters->length; i++)
        ATTN_TRY(attn_tensor_file_check(file, parameters->list[i].name,
                                        &parameters->list[i], &tensor));
    for (size_t i = 0; i < attn_safetensors_count(file->tensors); i++) {
        const char *const name = attn_safetensors_at(file->tensors, i)->name;
        if (!attn_parameters_find(parameters, name) && !is_one_of(name, others))
            return attn_error_set(file->error, ATTN_EFORMAT,
                                  "%s: tensor \"%.200s\" belongs to no part of the model "
                                  "that config.json describes",
                                  file->path, name);
    }
    return ATTN_OK;
}

attn_status attn_tensor_file_same(const attn_tensor_file *file, const attn_safetensor *a,
                                  const attn_safetensor *b, bool *same)
{
    if (a->dtype == b->dtype) {
        *same = memcmp(a->data, b->data, a->bytes) == 0;
        return ATTN_OK;
    }
    float *const values = malloc(2 * a->count * sizeof *values);
    if (!values)
        return attn_error_set(file->error, ATTN_ENOMEM, "%s: no memory", file->path);
    attn_status status = attn_safetensor_to_float(a, values, file->error);
    if (status == ATTN_OK)
        status = attn_safetensor_to_float(b, values + a->count, file->error);
    *same = status == ATTN_OK &&
            memcmp(values, values + a->count, a->count * sizeof *values) == 0;
    free(values);
    return status;
}

attn_status attn_tensor_file_tie(const attn_tensor_file *file,
                                 const attn_parameter *embedding, const char *output,
                                 bool *untied, char *note, size_t note_bytes)
{
    const attn_safetensor *table, *projection;
    bool same;
    const bool is_there = attn_safetensors_find(file->tensors, output);
    if (*untied && !is_there)
        return attn_error_set(
            file->error, ATTN_EFORMAT,
            "%s: no tensor \"%s\", expected one because config.json has "
            "tie_word_embeddings false",
            file->path, output);
    if (*untied || !is_there)
        return ATTN_OK;
    ATTN_TRY(attn_tensor_file_check(file, embedding->name, embedding, &table));
    ATTN_TRY(attn_tensor_file_check(file, output, embedding, &projection));
    ATTN_TRY(attn_tensor_file_same(file, table, projection, &same));
    if (!same) {
        *untied = true;
        snprintf(note, note_bytes,
                 "config.json ties the output to the embedding, but %s is there "
                 "and differs: both are used",
                 output);
    }
    return ATTN_OK;
}

attn_status attn_tensor_file_load(const attn_tensor_file *file,
                                  attn_parameters *parameters, const char *const *others)
{
    ATTN_TRY(check_all(file, parameters, others));
    ATTN_TRY(attn_allocate_parameters(file->path, parameters, file->error));
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        ATTN_TRY(attn_safetensor_to_float(
            attn_safetensors_find(file->tensors, parameter->name),
            parameters->values + parameter->offset, file->error));
    }
    return ATTN_OK;
}

/* ---- Writing --------------------------------------------------------------------- */

static attn_safetensors_entry entry_of(const attn_parameters *parameters, size_t index,
                                       const char *name, int dtype)
{
    const attn_parameter *const parameter = &parameters->list[index];
    attn_safetensors_entry entry = {
        .name = name,
        .dtype = (attn_dtype)dtype,
        .rank = parameter->rank,
        .data = parameters->values + parameter->offset,
    };
    memcpy(entry.extent, parameter->extent, (size_t)parameter->rank * sizeof(int64_t));
    return entry;
}

attn_status attn_tensor_file_write(const attn_parameters *parameters,
                                   const attn_tensor_alias *aliases, size_t alias_count,
                                   const char *folder, int dtype, attn_error *error)
{
    static const attn_safetensors_note notes[] = {{"format", "pt"}};
    char path[ATTN_PATH_BYTES];
    ATTN_TRY(attn_path_join(path, folder, "model.safetensors", error));
    attn_safetensors_entry *const entries =
        calloc(parameters->length + alias_count, sizeof *entries);
    if (!entries)
        return attn_error_set(error, ATTN_ENOMEM, "%s: no memory", path);
    size_t count = 0;
    for (size_t i = 0; i < parameters->length; i++)
        entries[count++] = entry_of(parameters, i, parameters->list[i].name, dtype);
    for (size_t i = 0; i < alias_count; i++)
        entries[count++] =
            entry_of(parameters, aliases[i].parameter, aliases[i].name, dtype);
    const attn_status status =
        attn_safetensors_write(path, entries, count, notes, 1, error);
    free(entries);
    return status;
}

/* A BERT's folder: model.safetensors held against config.json before memory is taken, and
 * read; written; and the encoder of one model taken over by another. */
#include "base/context.h"
#include "model/bert_parts.h"
#include "model/tensor_file.h"
#include <stdio.h>
#include <string.h>

enum { MOST_PATH_BYTES = 4096 };

/* Of older files; counted, and not read. */
#define POSITION_NUMBERS "bert.embeddings.position_ids"

static const char *const OTHERS[] = {POSITION_NUMBERS, NULL};
/* Copies where the output is tied; where it is not, one bias is used and one is not. */
static const char *const OTHERS_OF_MASKED[] = {
    POSITION_NUMBERS, ATTN_BERT_OUTPUT, ATTN_BERT_UNTIED_BIAS, ATTN_BERT_BIAS, NULL};

struct paths {
    char config[MOST_PATH_BYTES], tensors[MOST_PATH_BYTES];
};

static attn_status find_paths(struct paths *paths, const char *folder, attn_error *error)
{
    ATTN_TRY(attn_folder_path(paths->config, sizeof paths->config, folder, "config.json",
                              error));
    return attn_folder_path(paths->tensors, sizeof paths->tensors, folder,
                            "model.safetensors", error);
}

/* ---- Loading --------------------------------------------------------------------- */

/* Two biases may be in the file where one is meant. */
static attn_status check_biases(const attn_tensor_file *file,
                                const attn_bert_config *config)
{
    const attn_parameter like = {.rank = 1, .extent = {config->vocabulary}};
    const attn_safetensor *bias, *copy;
    bool same;
    if (config->untied || !attn_safetensors_find(file->tensors, ATTN_BERT_UNTIED_BIAS))
        return ATTN_OK;
    ATTN_TRY(attn_tensor_file_check(file, ATTN_BERT_BIAS, &like, &bias));
    ATTN_TRY(attn_tensor_file_check(file, ATTN_BERT_UNTIED_BIAS, &like, &copy));
    ATTN_TRY(attn_tensor_file_same(file, bias, copy, &same));
    if (same)
        return ATTN_OK;
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: tensor \"%s\" differs from \"%s\", expected one bias of a "
                          "tied output",
                          file->path, ATTN_BERT_UNTIED_BIAS, ATTN_BERT_BIAS);
}

static attn_status settle_output(const attn_tensor_file *file, attn_bert_config *config,
                                 char *note, size_t note_bytes)
{
    const attn_parameter embedding = {.name = ATTN_BERT_EMBEDDING,
                                      .rank = 2,
                                      .extent = {config->vocabulary, config->width}};
    if (config->head != ATTN_BERT_MASKED)
        return ATTN_OK;
    ATTN_TRY(attn_tensor_file_tie(file, &embedding, ATTN_BERT_OUTPUT, &config->untied,
                                  note, note_bytes));
    return check_biases(file, config);
}

static attn_status fill(attn_bert *bert, const attn_config_file *config_file,
                        const attn_tensor_file *file)
{
    ATTN_TRY(attn_tensor_file_check_all(
        file, &bert->parameters,
        bert->config.head == ATTN_BERT_MASKED ? OTHERS_OF_MASKED : OTHERS));
    if (bert->config.labels > 0)
        ATTN_TRY(attn_labels_read(&bert->labels, config_file));
    ATTN_TRY(attn_bert_allocate(bert, file->error));
    return attn_tensor_file_read(file, &bert->parameters);
}

static attn_status load(attn_bert **bert, const attn_config_file *config_file,
                        const attn_tensor_file *file)
{
    attn_bert_config config;
    attn_bert *loaded;
    char note[sizeof(*bert)->note] = "";
    ATTN_TRY(attn_bert_config_read(config_file, &config));
    ATTN_TRY(settle_output(file, &config, note, sizeof note));
    ATTN_TRY(attn_config_file_blame(config_file->path,
                                    attn_bert_outline(&loaded, &config, file->error),
                                    file->error));
    memcpy(loaded->note, note, sizeof note);
    const attn_status status = fill(loaded, config_file, file);
    if (status == ATTN_OK)
        *bert = loaded;
    else
        attn_bert_destroy(loaded);
    return status;
}

attn_status attn_bert_load(attn_bert **bert, const char *folder, attn_error *error)
{
    struct paths paths;
    attn_config_file config_file;
    attn_tensor_file file = {.path = paths.tensors, .error = error};
    *bert = NULL;
    ATTN_TRY(find_paths(&paths, folder, error));
    ATTN_TRY(attn_config_file_open(&config_file, paths.config, error));
    attn_status status = attn_safetensors_open(&file.tensors, paths.tensors, error);
    if (status == ATTN_OK) {
        status = load(bert, &config_file, &file);
        attn_safetensors_close(file.tensors);
    }
    attn_config_file_close(&config_file);
    return status;
}

attn_status attn_bert_config_load(attn_bert_config *config, const char *folder,
                                  attn_error *error)
{
    struct paths paths;
    attn_config_file file;
    ATTN_TRY(find_paths(&paths, folder, error));
    ATTN_TRY(attn_config_file_open(&file, paths.config, error));
    const attn_status status = attn_bert_config_read(&file, config);
    attn_config_file_close(&file);
    return status;
}

/* ---- Starting from another ------------------------------------------------------- */

static attn_status check_sizes(const attn_bert_config *mine,
                               const attn_bert_config *theirs, const char *path,
                               attn_error *error)
{
    const struct {
        const char *key;
        int64_t mine, theirs;
    } sizes[] = {
        {"vocab_size", mine->vocabulary, theirs->vocabulary},
        {"hidden_size", mine->width, theirs->width},
        {"num_hidden_layers", mine->layers, theirs->layers},
        {"num_attention_heads", mine->heads, theirs->heads},
        {"intermediate_size", mine->inner, theirs->inner},
        {"max_position_embeddings", mine->max_positions, theirs->max_positions},
        {"type_vocab_size", mine->types, theirs->types},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].mine != sizes[i].theirs)
            return attn_error_set(error, ATTN_EINVAL,
                                  "%s: %s is %lld, expected %lld, as in the model that "
                                  "starts from it",
                                  path, sizes[i].key, (long long)sizes[i].theirs,
                                  (long long)sizes[i].mine);
    if (mine->activation != theirs->activation || mine->epsilon != theirs->epsilon)
        return attn_error_set(
            error, ATTN_EINVAL,
            "%s: hidden_act is %s and layer_norm_eps %g, expected %s and "
            "%g, as in the model that starts from it",
            path, attn_activation_name(theirs->activation), (double)theirs->epsilon,
            attn_activation_name(mine->activation), (double)mine->epsilon);
    return ATTN_OK;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool is_taken(const attn_tensor_file *file, const attn_parameter *parameter)
{
    return starts_with(parameter->name, ATTN_BERT_ENCODER) &&
           (!starts_with(parameter->name, ATTN_BERT_POOLER) ||
            attn_safetensors_find(file->tensors, parameter->name));
}

static attn_status take_encoder(const attn_tensor_file *file,
                                const attn_parameters *parameters)
{
    const attn_safetensor *tensor;
    for (size_t i = 0; i < parameters->length; i++)
        if (is_taken(file, &parameters->list[i]))
            ATTN_TRY(attn_tensor_file_check(file, parameters->list[i].name,
                                            &parameters->list[i], &tensor));
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        if (is_taken(file, parameter))
            ATTN_TRY(attn_safetensor_to_float(
                attn_safetensors_find(file->tensors, parameter->name),
                parameters->values + parameter->offset, file->error));
    }
    return ATTN_OK;
}

attn_status attn_bert_start(attn_bert *bert, const char *folder, attn_error *error)
{
    struct paths paths;
    attn_bert_config config;
    attn_tensor_file file = {.path = paths.tensors, .error = error};
    ATTN_TRY(find_paths(&paths, folder, error));
    ATTN_TRY(attn_bert_config_load(&config, folder, error));
    ATTN_TRY(check_sizes(&bert->config, &config, paths.config, error));
    ATTN_TRY(attn_safetensors_open(&file.tensors, paths.tensors, error));
    const attn_status status = take_encoder(&file, &bert->parameters);
    attn_safetensors_close(file.tensors);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

attn_status attn_bert_save(const attn_bert *bert, const char *folder, int dtype,
                           attn_error *error)
{
    /* `transformers` expects both biases where nothing is tied. */
    const attn_tensor_alias bias = {ATTN_BERT_BIAS, bert->output_bias};
    if (dtype != ATTN_DTYPE_F32 && dtype != ATTN_DTYPE_BF16)
        return attn_error_set(error, ATTN_EINVAL,
                              "attn_bert_save: dtype is %d, expected ATTN_DTYPE_F32 or "
                              "ATTN_DTYPE_BF16",
                              dtype);
    ATTN_TRY(attn_bert_config_write(bert, folder, dtype, error));
    return attn_tensor_file_write(&bert->parameters, &bias, bert->config.untied ? 1 : 0,
                                  folder, dtype, error);
}

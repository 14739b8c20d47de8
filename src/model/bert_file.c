/* A BERT's folder: model.safetensors held against config.json before memory is taken, and
 * read; written; and the encoder of one model taken over by another. */
#include "base/context.h"
#include "model/bert_parts.h"
#include "model/folder.h"
#include <string.h>

/* Of older files; counted, and not read. */
#define POSITION_NUMBERS "bert.embeddings.position_ids"

static const char *const OTHERS[] = {POSITION_NUMBERS, NULL};
/* Copies where the output is tied; where it is not, one bias is used and one is not. */
static const char *const OTHERS_OF_MASKED[] = {
    POSITION_NUMBERS, ATTN_BERT_OUTPUT, ATTN_BERT_UNTIED_BIAS, ATTN_BERT_BIAS, NULL};

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

static attn_status fill(attn_bert *bert, const attn_folder *folder)
{
    ATTN_TRY(attn_tensor_file_load(
        &folder->tensors, &bert->parameters,
        bert->config.head == ATTN_BERT_MASKED ? OTHERS_OF_MASKED : OTHERS));
    return bert->config.labels > 0 ? attn_labels_read(&bert->labels, &folder->config)
                                   : ATTN_OK;
}

static attn_status load(attn_bert **bert, attn_folder *folder)
{
    attn_bert_config config;
    attn_bert *loaded;
    char note[sizeof(*bert)->note] = "";
    ATTN_TRY(attn_bert_config_read(&folder->config, &config));
    ATTN_TRY(attn_folder_open_tensors(folder));
    ATTN_TRY(settle_output(&folder->tensors, &config, note, sizeof note));
    ATTN_TRY(attn_config_file_blame(
        &folder->config, attn_bert_outline(&loaded, &config, folder->config.error)));
    memcpy(loaded->note, note, sizeof note);
    const attn_status status = fill(loaded, folder);
    if (status == ATTN_OK)
        *bert = loaded;
    else
        attn_bert_destroy(loaded);
    return status;
}

attn_status attn_bert_load(attn_bert **bert, const char *path, attn_error *error)
{
    attn_folder folder;
    *bert = NULL;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = load(bert, &folder);
    attn_folder_close(&folder);
    return status;
}

attn_status attn_bert_config_load(attn_bert_config *config, const char *path,
                                  attn_error *error)
{
    attn_folder folder;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = attn_bert_config_read(&folder.config, config);
    attn_folder_close(&folder);
    return status;
}

/* ---- Starting from another ------------------------------------------------------- */

static attn_status check_sizes(const attn_bert_config *mine,
                               const attn_bert_config *theirs,
                               const attn_config_file *file)
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
        {"linear_attention", mine->linear_attention, theirs->linear_attention},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].mine != sizes[i].theirs)
            return attn_error_set(file->error, ATTN_EINVAL,
                                  "%s: %s is %lld, expected %lld, as in the model that "
                                  "starts from it",
                                  file->path, sizes[i].key, (long long)sizes[i].theirs,
                                  (long long)sizes[i].mine);
    if (mine->activation != theirs->activation || mine->epsilon != theirs->epsilon)
        return attn_error_set(
            file->error, ATTN_EINVAL,
            "%s: hidden_act is %s and layer_norm_eps %g, expected %s and "
            "%g, as in the model that starts from it",
            file->path, attn_activation_name(theirs->activation), (double)theirs->epsilon,
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

static attn_status start(attn_bert *bert, attn_folder *folder)
{
    attn_bert_config config;
    ATTN_TRY(attn_bert_config_read(&folder->config, &config));
    ATTN_TRY(check_sizes(&bert->config, &config, &folder->config));
    ATTN_TRY(attn_folder_open_tensors(folder));
    return take_encoder(&folder->tensors, &bert->parameters);
}

attn_status attn_bert_start(attn_bert *bert, const char *path, attn_error *error)
{
    attn_folder folder;
    ATTN_TRY(attn_folder_open(&folder, path, error));
    const attn_status status = start(bert, &folder);
    attn_folder_close(&folder);
    return status;
}

/* ---- Saving ---------------------------------------------------------------------- */

attn_status attn_bert_save(const attn_bert *bert, const char *folder, int dtype,
                           attn_error *error)
{
    /* `transformers` expects both biases where nothing is tied. */
    const attn_tensor_alias bias = {ATTN_BERT_BIAS, bert->output_bias};
    ATTN_TRY(attn_bert_config_write(bert, folder, dtype, error));
    return attn_tensor_file_write(&bert->parameters, &bias, bert->config.untied ? 1 : 0,
                                  folder, dtype, error);
}

/* Looking at models that read one text: classifiers, taggers, and language models, masked
 * or causal.  What each says about the text is put in a line. */
#include "cli/cli.h"
#include "cli/look_record.h"
#include "inspect/buffer.h"
#include "inspect/build_text.h"
#include "inspect/sentence.h"
#include "model/bert.h"
#include "model/folder.h"
#include "model/language.h"
#include "model/reader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 3 };

typedef struct text_model {
    attn_reader *reader; /* one of these three */
    attn_bert *bert;
    attn_language *language;
    attn_tokenizer *tokenizer;
    int64_t vocabulary;
} text_model;

static void model_free(text_model *model)
{
    attn_reader_destroy(model->reader);
    attn_bert_destroy(model->bert);
    attn_language_destroy(model->language);
    attn_tokenizer_destroy(model->tokenizer);
}

/* ---- What is said ---------------------------------------------------------------- */

static int64_t largest(const float *row, int64_t count, double below, int64_t last)
{
    int64_t best = -1;
    for (int64_t i = 0; i < count; i++) {
        const double value = (double)row[i];
        const bool is_next = value < below || (value <= below && i > last);
        if (is_next && (best < 0 || value > (double)row[best]))
            best = i;
    }
    return best;
}

static double probability(const float *row, int64_t count, int64_t at)
{
    const double top = (double)row[largest(row, count, (double)INFINITY, -1)];
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)row[i] - top);
    return exp((double)row[at] - top) / sum;
}

/* "sat .41, lay .22, was .08" */
static attn_status put_tokens(attn_buffer *out, const attn_tokenizer *tokenizer,
                              const float *row, int64_t vocabulary, attn_error *error)
{
    double below = (double)INFINITY;
    int64_t last = -1;
    for (int shown = 0; shown < SHOWN && shown < vocabulary; shown++) {
        char *text = NULL;
        last = largest(row, vocabulary, below, last);
        below = (double)row[last];
        const int32_t id = (int32_t)last;
        const attn_status status =
            id == ATTN_TOKEN_EOS ? ATTN_OK
                                 : attn_tokenizer_decode(tokenizer, &id, 1, &text, error);
        if (status != ATTN_OK)
            return status;
        const char *const word = text ? text + strspn(text, " ") : "</s>";
        attn_buffer_put(out, shown > 0 ? ", " : "");
        attn_put_text(out, *word ? word : "?", ATTN_SPELL_TERMINAL);
        attn_buffer_put(out, " ");
        const double share = probability(row, vocabulary, last);
        if (attn_hundredths(share) == 0)
            attn_buffer_put(out, "<.01");
        else
            attn_put_weight(out, share);
        free(text);
    }
    return ATTN_OK;
}

/* Of numbers that are none, no one is the largest.
 * @param logits  NULL where the tape says why. */
static attn_status check_logits(const attn_tensor *logits, attn_error *error)
{
    if (!logits)
        return ATTN_EINVAL;
    for (int64_t n = 0; n < logits->extent[0] * logits->extent[1]; n++)
        if (!isfinite(logits->data[n]))
            return attn_error_set(
                error, ATTN_ENOTFINITE,
                "the model gives logits that are not finite: the model is broken");
    return ATTN_OK;
}

static attn_status take(attn_buffer *out, char **text, attn_status status,
                        attn_error *error)
{
    size_t length;
    if (status == ATTN_OK)
        return attn_buffer_take(out, text, &length, error);
    attn_buffer_free(out);
    return status;
}

/* ---- Classifiers and taggers ------------------------------------------------------ */

static attn_status read_labels(void *user, const attn_pass *pass, const int32_t *ids,
                               size_t count, const int64_t *starts, size_t words,
                               const char *const *texts, attn_text_answer *answer,
                               attn_error *error)
{
    const text_model *const model = user;
    const attn_reader_config *const config = attn_reader_config_of(model->reader);
    const attn_reader_text text = {ids, (int64_t)count, config->tags ? starts : NULL,
                                   config->tags ? (int64_t)words : 0};
    const attn_tensor *const logits = attn_reader_logits(model->reader, pass, &text, 1);
    const attn_status status = check_logits(logits, error);
    attn_buffer says = {0};
    if (status != ATTN_OK)
        return status;
    for (int64_t row = 0; row < logits->extent[0]; row++) {
        const float *const scores = logits->data + row * config->labels;
        const int64_t best = largest(scores, config->labels, (double)INFINITY, -1);
        const char *const label = attn_reader_label(model->reader, best);
        attn_buffer_put(&says, row > 0 ? " " : "");
        if (config->tags) {
            attn_buffer_put(&says, texts[row]);
            attn_buffer_put(&says, "/");
        }
        attn_buffer_put(&says, label);
        if (config->tags)
            continue;
        attn_buffer_put(&says, " ");
        attn_put_weight(&says, probability(scores, config->labels, best));
        answer->label = strdup(label);
    }
    return take(&says, &answer->says, ATTN_OK, error);
}

static attn_status load_reader(text_model *model, const char *folder,
                               attn_text_request *request, attn_error *error)
{
    const attn_status status = attn_reader_load(&model->reader, folder, error);
    if (status != ATTN_OK)
        return status;
    const attn_reader_config *const config = attn_reader_config_of(model->reader);
    const bool is_transformer = config->body == ATTN_BODY_TRANSFORMER;
    model->vocabulary = config->vocabulary;
    request->says = config->tags ? "tags" : "label";
    request->labels_words = config->tags;
    request->parameters = attn_reader_parameters(model->reader);
    request->most_tokens = config->max_positions - (is_transformer ? 2 : 1);
    request->read = read_labels;
    if (is_transformer) {
        request->before = "<s>";
        request->after = "</s>";
        request->attention[ATTN_PART_ENCODER].layers = config->layers;
        request->attention[ATTN_PART_ENCODER].heads = config->heads;
    } else if (config->tags && config->attention != ATTN_READER_ALONE) {
        request->attends_words = true;
        request->attention[ATTN_PART_ENCODER].layers = 1;
        request->attention[ATTN_PART_ENCODER].heads = 1;
    } else if (!config->tags && config->pooling == ATTN_READER_ATTENTION &&
               config->buckets == 0) { /* with pairs there are keys that are no token */
        request->after = "</s>";
        request->attention[ATTN_PART_POOL].layers = 1;
        request->attention[ATTN_PART_POOL].heads = 1;
    }
    return ATTN_OK;
}

/* ---- Masked language models ------------------------------------------------------- */

/* What stands at each mask; without one, nothing. */
static attn_status read_masked(void *user, const attn_pass *pass, const int32_t *ids,
                               size_t count, const int64_t *starts, size_t words,
                               const char *const *texts, attn_text_answer *answer,
                               attn_error *error)
{
    const text_model *const model = user;
    const int32_t mask = attn_tokenizer_mask(model->tokenizer);
    int32_t *const marked = attn_tape_allocate(pass->tape, (count + 2) * sizeof *marked);
    (void)starts, (void)words, (void)texts;
    if (!marked)
        return ATTN_ENOMEM;
    marked[0] = ATTN_TOKEN_BOS;
    memcpy(marked + 1, ids, count * sizeof *ids);
    marked[count + 1] = ATTN_TOKEN_EOS;
    const int64_t packing[] = {0, (int64_t)count + 2};
    const attn_bert_input input = {.ids = marked, .packing = {1, packing}};
    const attn_tensor *const logits = attn_bert_logits(model->bert, pass, &input);
    attn_buffer says = {0};
    attn_status status = check_logits(logits, error);
    for (size_t i = 0; status == ATTN_OK && i < count; i++) {
        if (ids[i] != mask)
            continue;
        attn_buffer_put(&says, says.length > 0 ? "; " : "");
        status = put_tokens(&says, model->tokenizer,
                            logits->data + (int64_t)(i + 1) * model->vocabulary,
                            model->vocabulary, error);
    }
    return take(&says, &answer->says, status, error);
}

static attn_status load_masked(text_model *model, const char *folder,
                               attn_text_request *request, attn_error *error)
{
    const attn_status status = attn_bert_load(&model->bert, folder, error);
    if (status != ATTN_OK)
        return status;
    cli_note("look", attn_bert_note(model->bert));
    const attn_bert_config *const config = attn_bert_config_of(model->bert);
    model->vocabulary = config->vocabulary;
    request->says = "mask";
    request->parameters = attn_bert_parameters(model->bert);
    request->most_tokens = config->max_positions - 2;
    request->before = "<s>";
    request->after = "</s>";
    request->attention[ATTN_PART_ENCODER].layers = config->layers;
    request->attention[ATTN_PART_ENCODER].heads = config->heads;
    request->read = read_masked;
    return ATTN_OK;
}

/* ---- Language models -------------------------------------------------------------- */

/* What comes next. */
static attn_status read_next(void *user, const attn_pass *pass, const int32_t *ids,
                             size_t count, const int64_t *starts, size_t words,
                             const char *const *texts, attn_text_answer *answer,
                             attn_error *error)
{
    const text_model *const model = user;
    const attn_language_config *const config = attn_language_config_of(model->language);
    const size_t marks = config->bos >= 0;
    int32_t *const marked =
        attn_tape_allocate(pass->tape, (count + marks + 1) * sizeof *marked);
    (void)starts, (void)words, (void)texts;
    if (!marked)
        return ATTN_ENOMEM;
    marked[0] = (int32_t)config->bos;
    memcpy(marked + marks, ids, count * sizeof *ids);
    const int64_t packing[] = {0, (int64_t)(count + marks)};
    const attn_tensor *const logits =
        attn_language_logits(model->language, pass, marked, (attn_packing){1, packing});
    attn_buffer says = {0};
    attn_status status = check_logits(logits, error);
    if (status == ATTN_OK)
        status = put_tokens(&says, model->tokenizer,
                            logits->data + (packing[1] - 1) * model->vocabulary,
                            model->vocabulary, error);
    return take(&says, &answer->says, status, error);
}

static attn_status load_language(text_model *model, const char *folder,
                                 attn_text_request *request, attn_error *error)
{
    const attn_status status = attn_language_load(&model->language, folder, error);
    if (status != ATTN_OK)
        return status;
    const attn_language_config *const config = attn_language_config_of(model->language);
    model->vocabulary = config->vocabulary;
    request->says = "next";
    request->parameters = attn_language_parameters(model->language);
    cli_note("look", attn_language_note(model->language));
    request->most_tokens = config->max_positions - (config->bos >= 0);
    request->before = config->bos >= 0 ? "<s>" : NULL;
    request->read = read_next;
    if (config->body == ATTN_LANGUAGE_LLAMA) {
        request->attention[ATTN_PART_DECODER].layers = config->layers;
        request->attention[ATTN_PART_DECODER].heads = config->heads;
    }
    return ATTN_OK;
}

/* ---- All of them ------------------------------------------------------------------ */

/* BERT's classes are of one type; what a head of labels reads, a reader does. */
static attn_status load(text_model *model, const char *folder, const char *type,
                        attn_text_request *request, attn_error *error)
{
    attn_bert_config bert;
    const bool is_bert =
        strcmp(type, ATTN_BERT_TYPE) == 0 || strcmp(type, ATTN_BERT_VARIANT) == 0;
    if (is_bert) {
        const attn_status status = attn_bert_config_load(&bert, folder, error);
        if (status != ATTN_OK)
            return status;
        if (bert.head == ATTN_BERT_MASKED)
            return load_masked(model, folder, request, error);
    }
    return is_bert || strcmp(type, "attn-reader") == 0
               ? load_reader(model, folder, request, error)
               : load_language(model, folder, request, error);
}

static bool has_attention(const attn_text_request *request)
{
    for (int kind = 0; kind < ATTN_RECORD_PARTS; kind++)
        if (request->attention[kind].layers > 0)
            return true;
    return false;
}

attn_status look_read_text_model(const look_request *request, const char *folder,
                                 const char *name, const char *type,
                                 attn_context *context, attn_record **record,
                                 attn_error *error)
{
    text_model model = {0};
    attn_text_request asked = {.model = name, .context = context, .user = &model};
    attn_status status = load(&model, folder, type, &asked, error);
    if (status == ATTN_OK && !has_attention(&asked))
        status =
            attn_error_set(error, ATTN_EUNSUPPORTED,
                           "%.60s has no attention: there is nothing to look at", name);
    if (status == ATTN_OK)
        status =
            attn_folder_tokenizer_load(&model.tokenizer, folder, model.vocabulary, error);
    asked.tokenizer = model.tokenizer;
    asked.mask =
        model.bert && status == ATTN_OK ? attn_tokenizer_mask(model.tokenizer) : -1;
    if (status == ATTN_OK)
        status =
            attn_record_build_text(record, &asked, request->text, request->length, error);
    model_free(&model);
    return status;
}

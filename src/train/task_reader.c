/* Classifier and tagger as kinds of the training room: labelled texts, sorted by their
 * tokens, and the loss of their labels, or of their words'. */
#include "train/task_reader.h"
#include "base/context.h"
#include "file/file.h"
#include "file/path.h"
#include "file/safetensors.h"
#include "model/folder.h"
#include "train/learn.h"
#include "train/progress.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Recipes --------------------------------------------------------------------- */

static const char *const BODIES[] = {"bag",  "convolution", "rnn", "gru",
                                     "lstm", "transformer", NULL};
static const char *const POOLINGS[] = {"mean", "max", "last", "attention", "first", NULL};
static const char *const ATTENTIONS[] = {"none", "additive", "dot", NULL};
static const char *const WORD_STATES[] = {"first", "mean", NULL};
static const char *const TOO_LONG[] = {"split", "refuse", NULL};

enum { LEAST_VOCABULARY = 260 }; /* the bytes and four specials */

#define AT(member) offsetof(attn_reader_settings, member)

static const attn_recipe_field FIELDS[] = {
    {"data", "labels", ATTN_FIELD_TEXT, AT(labels), 1, ATTN_LABELS_BYTES, NULL, 0},
    {"data", "start", ATTN_FIELD_TEXT, AT(start), 1, ATTN_PATH_BYTES, NULL, 0},
    {"tokenizer", "vocabulary", ATTN_FIELD_INTEGER, AT(model.vocabulary),
     LEAST_VOCABULARY, 1e6, NULL, 0},
    {"tokenizer", "from", ATTN_FIELD_TEXT, AT(tokenizer), 1, ATTN_PATH_BYTES, NULL, 0},
    {"model", "body", ATTN_FIELD_CHOICE, AT(model.body), 0, 0, BODIES, ATTN_REQUIRED},
    {"model", "max_positions", ATTN_FIELD_INTEGER, AT(model.max_positions), 3, 1 << 24,
     NULL, ATTN_REQUIRED},
    {"model", "too_long", ATTN_FIELD_CHOICE, AT(too_long), 0, 0, TOO_LONG, ATTN_REQUIRED},
    {"model", "embedding", ATTN_FIELD_INTEGER, AT(model.embedding), 0, 65536, NULL, 0},
    {"model", "buckets", ATTN_FIELD_INTEGER, AT(model.buckets), 0, 1 << 24, NULL, 0},
    {"model", "width", ATTN_FIELD_INTEGER, AT(model.width), 0, 65536, NULL, 0},
    {"model", "layers", ATTN_FIELD_INTEGER, AT(model.layers), 0, 256, NULL, 0},
    {"model", "both_ways", ATTN_FIELD_FLAG, AT(model.both_ways), 0, 0, NULL, 0},
    {"model", "filters", ATTN_FIELD_TEXT, AT(filters), 1, ATTN_FILTERS_BYTES, NULL, 0},
    {"model", "pooling", ATTN_FIELD_CHOICE, AT(model.pooling), 0, 0, POOLINGS, 0},
    {"model", "attention", ATTN_FIELD_CHOICE, AT(model.attention), 0, 0, ATTENTIONS, 0},
    {"model", "attention_width", ATTN_FIELD_INTEGER, AT(model.attention_width), 0, 65536,
     NULL, 0},
    {"model", "word_state", ATTN_FIELD_CHOICE, AT(mean_pieces), 0, 0, WORD_STATES, 0},
    {"model", "heads", ATTN_FIELD_INTEGER, AT(model.heads), 0, 1024, NULL, 0},
    {"model", "inner", ATTN_FIELD_INTEGER, AT(model.inner), 0, 1 << 18, NULL, 0},
    {"model", "dropout", ATTN_FIELD_SINGLE, AT(model.dropout), 0, 0.99, NULL,
     ATTN_REQUIRED},
    {"model", "token_dropout", ATTN_FIELD_SINGLE, AT(model.token_dropout), 0, 0.99, NULL,
     0},
    {"model", "attention_dropout", ATTN_FIELD_SINGLE, AT(model.attention_dropout), 0,
     0.99, NULL, 0},
    {"model", "linear_attention", ATTN_FIELD_FLAG, AT(model.linear_attention), 0, 0, NULL,
     0},
};

/* "3 4 5"; a length that is no number becomes 0, which no model has. */
static void read_filters(attn_reader_config *config, const char *text)
{
    config->filter_count = 0;
    for (const char *at = text; *at;) {
        char *end;
        const long length = strtol(at, &end, 10);
        const bool is_number = end > at && (*end == ' ' || !*end);
        if (config->filter_count < ATTN_READER_FILTERS)
            config->filters[config->filter_count] = is_number ? length : 0;
        config->filter_count++;
        at = end > at ? end : at + strlen(at);
        at += strspn(at, " ");
    }
}

static attn_reader_config model_of(const attn_reader_settings *settings,
                                   int64_t vocabulary, bool tags, int64_t labels)
{
    attn_reader_config config = settings->model;
    config.vocabulary = vocabulary;
    config.tags = tags;
    config.labels = labels;
    config.mean_pieces = settings->mean_pieces == 1;
    read_filters(&config, settings->filters);
    return config;
}

/* Its tokens are those of the data, of the model it starts from, or of a third. */
static attn_status check_tokenizer(const attn_reader_settings *settings, const char *name,
                                   attn_error *error)
{
    const bool has_size = settings->model.vocabulary > 0, is_taken = *settings->tokenizer;
    if (has_size == is_taken)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: %s of tokenizer.vocabulary and tokenizer.from is "
                              "there, expected one",
                              name, has_size ? "each" : "neither");
    if (is_taken && *settings->start)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: tokenizer.from with data.start, which brings a "
                              "tokenizer of its own: expected one of them",
                              name);
    return ATTN_OK;
}

static attn_status check(const void *of, bool tags, const char *name, attn_error *error)
{
    const attn_reader_settings *const settings = of;
    const int64_t vocabulary = settings->model.vocabulary;
    /* That of another's tokenizer is known when it is loaded. */
    const attn_reader_config config =
        model_of(settings, vocabulary ? vocabulary : LEAST_VOCABULARY, tags, 2);
    attn_error inner;
    ATTN_TRY(check_tokenizer(settings, name, error));
    if (*settings->start && config.body != ATTN_BODY_TRANSFORMER)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: data.start with model.body \"%s\", expected "
                              "\"transformer\"",
                              name, BODIES[config.body]);
    if (attn_reader_check(&config, &inner) == ATTN_OK)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT, "%s: model: %s", name, inner.message);
}

static attn_status check_classifier(const void *settings, const char *name,
                                    attn_error *error)
{
    return check(settings, false, name, error);
}

static attn_status check_tagger(const void *settings, const char *name, attn_error *error)
{
    return check(settings, true, name, error);
}

/* ---- Labels ---------------------------------------------------------------------- */

/* What the recipe lists against what the data has. */
static attn_status check_listed(const attn_label_set *set,
                                const attn_reader_settings *settings, const char *path,
                                attn_error *error)
{
    int64_t listed = 0;
    char list[ATTN_LABELS_BYTES], *rest = list;
    snprintf(list, sizeof list, "%s", settings->labels);
    for (char *name; (name = strtok_r(rest, " ", &rest)); listed++)
        if (attn_label_set_find(set, name) < 0)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: no text has the label \"%s\", which the recipe's "
                                  "data.labels lists",
                                  path, name);
    if (listed == set->count)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT,
                          "%s has %lld labels, expected the %lld of the recipe's "
                          "data.labels",
                          path, (long long)set->count, (long long)listed);
}

/* Names twice in config.json, which is read back up to 1 MiB, each byte six at most. */
enum { LABEL_SET_BYTES = 1 << 16, LABEL_BYTES = 16 };

static attn_status check_labels(const attn_label_set *set,
                                const attn_reader_settings *settings, const char *path,
                                attn_error *error)
{
    size_t bytes = 0;
    for (int64_t n = 0; n < set->count; n++)
        bytes += strlen(set->names[n]) + LABEL_BYTES;
    if (bytes > LABEL_SET_BYTES)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: %lld labels take %zu bytes with %d for each, expected "
                              "at most %d",
                              path, (long long)set->count, bytes, LABEL_BYTES,
                              LABEL_SET_BYTES);
    if (set->count < 2)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: \"%.60s\" is its only label, expected at least two",
                              path, set->names[0]);
    return *settings->labels ? check_listed(set, settings, path, error) : ATTN_OK;
}

/* ---- Data ------------------------------------------------------------------------ */

static attn_status size_up(attn_examples *examples, attn_texts *texts, attn_error *error)
{
    *examples = (attn_examples){
        .count = texts->count,
        .sizes = calloc(texts->count, sizeof *examples->sizes),
        .hash = attn_texts_hash(texts),
        .data = texts,
    };
    if (!examples->sizes)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for %zu texts",
                              texts->count);
    for (size_t n = 0; n < texts->count; n++) {
        const int64_t tokens = texts->texts[n].count;
        const int32_t size = tokens < INT32_MAX ? (int32_t)tokens + 1 : INT32_MAX;
        const size_t targets = texts->first_target[n + 1] - texts->first_target[n];
        examples->sizes[n] = (attn_example_size){size, size, (int32_t)targets};
    }
    return ATTN_OK;
}

static attn_status encode(const attn_task *task, attn_examples *examples,
                          attn_texts *texts, const attn_labelled *labelled,
                          const attn_label_set *labels, const char *path,
                          attn_error *error)
{
    const attn_reader_state *const state = task->state;
    const attn_reader_settings *const settings = task->recipe->settings;
    const attn_texts_rules rules = {
        .tokenizer = state->tokenizer,
        .labels = labels,
        .reader = state->reader,
        .refuses_long = settings->too_long == ATTN_LONG_REFUSE,
        .name = path,
    };
    ATTN_TRY(attn_texts_encode(texts, labelled, &rules, error));
    attn_progress_say(task->progress, "%s: %zu text%s, %lld token%s, %zu label%s", path,
                      texts->count, attn_s((int64_t)texts->count),
                      (long long)texts->tokens, attn_s(texts->tokens),
                      texts->first_target[texts->count],
                      attn_s((int64_t)texts->first_target[texts->count]));
    if (texts->cut > 0)
        attn_progress_say(task->progress,
                          "%s: %zu text%s longer than %lld positions; the logits of "
                          "the parts of each are averaged",
                          path, texts->cut, attn_s((int64_t)texts->cut),
                          (long long)settings->model.max_positions);
    return size_up(examples, texts, error);
}

/* Sorted, each once, a line each. */
static attn_status save_words(const attn_task *task, const attn_labelled *labelled,
                              attn_error *error)
{
    attn_label_set words;
    attn_labelled as_labels = *labelled;
    attn_file_writer *writer;
    char path[ATTN_PATH_BYTES];
    ATTN_TRY(attn_path_join(path, task->options->out, ATTN_SEEN_WORDS, error));
    as_labels.labels = labelled->texts;
    ATTN_TRY(attn_label_set_collect(&words, &as_labels, error));
    attn_status status = attn_file_writer_open(&writer, path, error);
    if (status != ATTN_OK) {
        attn_label_set_free(&words);
        return status;
    }
    for (int64_t n = 0; n < words.count && status == ATTN_OK; n++) {
        status =
            attn_file_writer_put(writer, words.names[n], strlen(words.names[n]), error);
        if (status == ATTN_OK)
            status = attn_file_writer_put(writer, "\n", 1, error);
    }
    attn_label_set_free(&words);
    if (status == ATTN_OK)
        return attn_file_writer_close(writer, error);
    attn_file_writer_abandon(writer);
    return status;
}

/* What BERT reads starts with <s>. */
static attn_status start_texts(const attn_task *task, attn_error *error)
{
    const attn_reader_state *const state = task->state;
    const attn_reader_settings *const settings = task->recipe->settings;
    if (settings->model.body != ATTN_BODY_TRANSFORMER)
        return ATTN_OK;
    attn_tokenizer_frame(state->tokenizer, ATTN_FRAME_BOTH);
    return attn_folder_tokenizer_save(state->tokenizer, task->options->out, error);
}

/* Of a tokenizer that is not learnt from the data; the folder is "" where it is, and
 * where a training goes on: its checkpoint has gone beyond it. */
struct origin {
    char folder[ATTN_PATH_BYTES];
    bool gives_weights; /* of an encoder, too */
    int64_t vocabulary; /* that the tokenizer must have; −1: any */
};

static attn_status find_origin(struct origin *origin, const attn_task *task,
                               attn_error *error)
{
    const attn_reader_settings *const settings = task->recipe->settings;
    const bool starts = origin->gives_weights = *settings->start;
    const char *const from = starts ? settings->start : settings->tokenizer;
    origin->vocabulary = starts ? settings->model.vocabulary : -1;
    return *from ? attn_recipe_find(task->recipe->path, from, origin->folder, error)
                 : ATTN_OK;
}

/* A tagger's tokenizer learns from words as attn_word_encode gives them: after a space.
 */
static attn_status learn_pieces(const attn_task *task, const attn_labelled *labelled,
                                bool goes_on, attn_error *error)
{
    attn_reader_state *const state = task->state;
    const attn_reader_settings *const settings = task->recipe->settings;
    const int64_t vocabulary = settings->model.vocabulary;
    const size_t items = labelled->first[labelled->count];
    if (!labelled->tags)
        return attn_learn_tokenizer(&state->tokenizer, task, labelled->texts, items,
                                    vocabulary, goes_on, error);
    size_t bytes = 0;
    for (size_t n = 0; n < items; n++)
        bytes += strlen(labelled->texts[n]) + 2;
    char *const spaced = malloc(bytes), *at = spaced;
    const char **const texts = malloc(items * sizeof *texts);
    attn_status status = ATTN_OK;
    if (!spaced || !texts)
        status = attn_error_set(error, ATTN_ENOMEM, "out of memory for %zu words", items);
    for (size_t n = 0; n < items && status == ATTN_OK; n++) {
        texts[n] = at;
        at += sprintf(at, " %s", labelled->texts[n]) + 1;
    }
    if (status == ATTN_OK)
        status = attn_learn_tokenizer(&state->tokenizer, task, texts, items, vocabulary,
                                      goes_on, error);
    free(spaced);
    free(texts);
    return status;
}

/* The tokenizer, and the words that a tagger has seen. */
static attn_status learn(const attn_task *task, const attn_labelled *labelled,
                         const struct origin *origin, bool goes_on, attn_error *error)
{
    attn_reader_state *const state = task->state;
    if (*origin->folder)
        ATTN_TRY(attn_take_tokenizer(&state->tokenizer, task, origin->folder,
                                     origin->vocabulary, error));
    else
        ATTN_TRY(learn_pieces(task, labelled, goes_on, error));
    if (goes_on)
        return ATTN_OK;
    ATTN_TRY(start_texts(task, error));
    return labelled->tags ? save_words(task, labelled, error) : ATTN_OK;
}

static attn_status make_model(attn_task *task, const attn_label_set *labels, bool tags,
                              const struct origin *origin, attn_error *error)
{
    attn_reader_state *const state = task->state;
    const attn_reader_config config =
        model_of(task->recipe->settings, attn_tokenizer_size(state->tokenizer), tags,
                 labels->count);
    ATTN_TRY(
        attn_reader_create(&state->reader, &config, (uint64_t)task->recipe->seed, error));
    task->parameters = attn_reader_parameters(state->reader);
    if (origin->gives_weights) {
        ATTN_TRY(attn_reader_start(state->reader, origin->folder, error));
        attn_progress_say(task->progress, "starts from the encoder of %s",
                          origin->folder);
    }
    return attn_reader_name_labels(state->reader, labels->names, error);
}

static attn_status prepare_valid(attn_task *task, const attn_label_set *labels, bool tags,
                                 attn_error *error)
{
    attn_reader_state *const state = task->state;
    attn_labelled labelled;
    ATTN_TRY(attn_labelled_load(&labelled, task->options->valid, tags, error));
    const attn_status status = encode(task, &task->valid, &state->valid, &labelled,
                                      labels, task->options->valid, error);
    attn_labelled_free(&labelled);
    return status;
}

static attn_status prepare(attn_task *task, bool tags, bool goes_on, attn_error *error)
{
    attn_reader_state *const state = calloc(1, sizeof *state);
    const char *const path = task->options->train;
    struct origin origin = {0};
    attn_labelled labelled;
    attn_label_set labels = {0};
    task->state = state;
    if (!state)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for a model");
    if (!goes_on)
        ATTN_TRY(find_origin(&origin, task, error));
    ATTN_TRY(attn_labelled_load(&labelled, path, tags, error));
    attn_status status = attn_label_set_collect(&labels, &labelled, error);
    if (status == ATTN_OK)
        status = check_labels(&labels, task->recipe->settings, path, error);
    if (status == ATTN_OK)
        status = learn(task, &labelled, &origin, goes_on, error);
    if (status == ATTN_OK)
        status = make_model(task, &labels, tags, &origin, error);
    if (status == ATTN_OK)
        status =
            encode(task, &task->train, &state->train, &labelled, &labels, path, error);
    if (status == ATTN_OK)
        status = prepare_valid(task, &labels, tags, error);
    attn_label_set_free(&labels);
    attn_labelled_free(&labelled);
    return status;
}

static attn_status prepare_classifier(attn_task *task, bool goes_on, attn_error *error)
{
    return prepare(task, false, goes_on, error);
}

static attn_status prepare_tagger(attn_task *task, bool goes_on, attn_error *error)
{
    return prepare(task, true, goes_on, error);
}

static void free_task(attn_task *task)
{
    attn_reader_state *const state = task->state;
    if (!state)
        return;
    attn_texts_free(&state->train);
    attn_texts_free(&state->valid);
    attn_reader_destroy(state->reader);
    attn_tokenizer_destroy(state->tokenizer);
    free(state);
}

/* ---- Loss ------------------------------------------------------------------------ */

static attn_tensor *loss(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const attn_reader_state *const state = task->state;
    const attn_texts *const texts = batch->examples->data;
    attn_reader_text *const list =
        attn_tape_allocate(pass->tape, batch->count * sizeof *list);
    size_t count = 0;
    for (size_t n = 0; n < batch->count; n++)
        count += (size_t)batch->examples->sizes[batch->list[n]].targets;
    int32_t *const targets =
        attn_tape_allocate(pass->tape, (count + 1) * sizeof *targets);
    if (!list || !targets)
        return NULL;
    size_t at = 0;
    for (size_t n = 0; n < batch->count; n++) {
        const size_t text = batch->list[n], first = texts->first_target[text];
        const size_t length = texts->first_target[text + 1] - first;
        list[n] = texts->texts[text];
        memcpy(targets + at, texts->targets + first, length * sizeof *targets);
        at += length;
    }
    attn_tensor *const logits =
        attn_reader_logits(state->reader, pass, list, (int64_t)batch->count);
    return attn_reader_loss(state->reader, pass, logits, targets, batch->smoothing,
                            batch->divisor, &sums->plain, &sums->correct);
}

static attn_status save(const attn_task *task, const char *folder, attn_error *error)
{
    const attn_reader_state *const state = task->state;
    return attn_reader_save(state->reader, folder, ATTN_DTYPE_BF16, error);
}

/* ---- Kinds ----------------------------------------------------------------------- */

static const char *const CLASSIFIERS[] = {"AttnTextClassifier",
                                          "BertForSequenceClassification",
                                          "AttnBertMeanClassifier", NULL};
static const char *const TAGGERS[] = {"AttnWordTagger", "BertForTokenClassification",
                                      NULL};

const attn_task_kind attn_task_classifier = {
    .name = "classifier",
    .targets = "texts",
    .model_types = CLASSIFIERS,
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .settings_bytes = sizeof(attn_reader_settings),
    .check = check_classifier,
    .prepare = prepare_classifier,
    .loss = loss,
    .save = save,
    .score = attn_reader_score,
    .check_file = attn_reader_check_file,
    .free = free_task,
};

const attn_task_kind attn_task_tagger = {
    .name = "tagger",
    .targets = "words",
    .model_types = TAGGERS,
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .settings_bytes = sizeof(attn_reader_settings),
    .check = check_tagger,
    .prepare = prepare_tagger,
    .loss = loss,
    .save = save,
    .score = attn_reader_score,
    .check_file = attn_reader_check_file,
    .free = free_task,
};

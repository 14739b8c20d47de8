/* The captioner as a kind of the training room: pictures composed of digits, new ones in
 * every step, and the loss of their captions. */
#include "train/task_captioner.h"
#include "base/context.h"
#include "base/mix.h"
#include "file/safetensors.h"
#include "model/folder.h"
#include "train/progress.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Captions that the tokenizer is learnt from: every word comes hundreds of times, so that
 * each becomes one token long before the bound of the vocabulary. */
enum { TOKENIZER_CAPTIONS = 2000, MOST_TOKENS = 1000 };

typedef struct captioner_settings {
    int64_t pictures, valid_pictures; /* in an epoch; to validate */
    double empty;
    int64_t cell_rows, cell_columns;
    int64_t layers, halvings;
    int64_t channels; /* of the last layers; each halving before the last has half */
    int64_t embedding, width, attention_width;
    attn_cross_score attention;
    int cell, context;
    float dropout;
} captioner_settings;

typedef struct captioner_state {
    attn_tokenizer *tokenizer;
    attn_captioner *captioner;
    attn_digits digits;
    attn_composition train, valid;
    int64_t tokens; /* of every caption, with </s> */
} captioner_state;

static const char *const CELLS[] = {"gru", "lstm", NULL};
static const char *const CONTEXTS[] = {"output", "input", NULL};
static const char *const SCORES[] = {"none",    "additive",   "dot",
                                     "general", "scaled_dot", NULL};

#define AT(member) offsetof(captioner_settings, member)

static const attn_recipe_field FIELDS[] = {
    {"data", "pictures", ATTN_FIELD_INTEGER, AT(pictures), 1, 1e7, NULL, ATTN_REQUIRED},
    {"data", "valid_pictures", ATTN_FIELD_INTEGER, AT(valid_pictures), 1, 1e7, NULL,
     ATTN_REQUIRED},
    {"data", "empty", ATTN_FIELD_DECIMAL, AT(empty), 0, 0.99, NULL, ATTN_REQUIRED},
    {"data", "rows", ATTN_FIELD_INTEGER, AT(cell_rows), 1, 16, NULL, ATTN_REQUIRED},
    {"data", "columns", ATTN_FIELD_INTEGER, AT(cell_columns), 1, 16, NULL, ATTN_REQUIRED},
    {"model", "convolutions", ATTN_FIELD_INTEGER, AT(layers), 1, 5, NULL, ATTN_REQUIRED},
    {"model", "halvings", ATTN_FIELD_INTEGER, AT(halvings), 0, 5, NULL, ATTN_REQUIRED},
    {"model", "channels", ATTN_FIELD_INTEGER, AT(channels), 32, 4096, NULL,
     ATTN_REQUIRED},
    {"model", "cell", ATTN_FIELD_CHOICE, AT(cell), 0, 0, CELLS, ATTN_REQUIRED},
    {"model", "embedding", ATTN_FIELD_INTEGER, AT(embedding), 1, 65536, NULL,
     ATTN_REQUIRED},
    {"model", "width", ATTN_FIELD_INTEGER, AT(width), 1, 65536, NULL, ATTN_REQUIRED},
    {"model", "attention", ATTN_FIELD_CHOICE, AT(attention), 0, 0, SCORES, ATTN_REQUIRED},
    {"model", "attention_width", ATTN_FIELD_INTEGER, AT(attention_width), 0, 65536, NULL,
     0},
    {"model", "context", ATTN_FIELD_CHOICE, AT(context), 0, 0, CONTEXTS, 0},
    {"model", "dropout", ATTN_FIELD_SINGLE, AT(dropout), 0, 0.99, NULL, ATTN_REQUIRED},
};

static attn_status check(const void *settings, const char *name, attn_error *error)
{
    const captioner_settings *const s = settings;
    if (s->cell_rows * s->cell_columns > ATTN_CELL_LIMIT)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: data.rows × data.columns is %lld, expected at most %d",
                              name, (long long)(s->cell_rows * s->cell_columns),
                              ATTN_CELL_LIMIT);
    if (s->halvings > s->layers)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: model.halvings is %lld, expected at most "
                              "model.convolutions, which is %lld",
                              name, (long long)s->halvings, (long long)s->layers);
    return ATTN_OK;
}

/* ---- Data ------------------------------------------------------------------------ */

attn_composition attn_captioner_composition(const attn_captioner_config *config,
                                            const attn_digits *digits,
                                            attn_digit_split split, double empty)
{
    const size_t count = (size_t)digits->images.extent[0];
    const size_t ends[] = {count * 6 / 8, count * 7 / 8, count};
    const size_t first = split == ATTN_DIGITS_TRAIN ? 0 : ends[split - 1];
    return (attn_composition){.rows = config->cell_rows,
                              .columns = config->cell_columns,
                              .first = first,
                              .count = ends[split] - first,
                              .empty = empty};
}

static attn_captioner_config model_config(const captioner_settings *s, int64_t vocabulary)
{
    attn_captioner_config config = {
        .rows = s->cell_rows * ATTN_CELL_SIDE,
        .columns = s->cell_columns * ATTN_CELL_SIDE,
        .cell_rows = s->cell_rows,
        .cell_columns = s->cell_columns,
        .layers = s->layers,
        .halvings = s->halvings,
        .max_positions = s->cell_rows * s->cell_columns + s->cell_rows,
        .decoder = {.vocabulary = vocabulary,
                    .embedding = s->embedding,
                    .cell = s->cell == 0 ? ATTN_CELL_GRU : ATTN_CELL_LSTM,
                    .width = s->width,
                    .layers = 1,
                    .source_width = s->channels,
                    .attention = s->attention,
                    .attention_width = s->attention_width,
                    .context_enters = s->context == 1,
                    .dropout = s->dropout}};
    for (int64_t i = 0; i < s->layers; i++)
        config.channels[i] =
            i < s->halvings ? s->channels >> (s->halvings - 1 - i) : s->channels;
    return config;
}

static attn_status learn_tokenizer(const attn_task *task, captioner_state *state,
                                   attn_error *error)
{
    const size_t cells = (size_t)(state->train.rows * state->train.columns);
    char(*const captions)[ATTN_CAPTION_BYTES] =
        calloc(TOKENIZER_CAPTIONS, sizeof *captions);
    const char **const texts = calloc(TOKENIZER_CAPTIONS, sizeof *texts);
    uint8_t *const grey = malloc(cells * ATTN_CELL_SIDE * ATTN_CELL_SIDE);
    attn_status status = ATTN_ENOMEM;
    for (size_t n = 0; captions && texts && grey && n < TOKENIZER_CAPTIONS; n++) {
        int8_t content[ATTN_CELL_LIMIT];
        attn_compose(&state->digits, &state->train, attn_mix(0, n), grey, content);
        attn_caption(&state->train, content, captions[n]);
        texts[n] = captions[n];
    }
    if (captions && texts && grey)
        status = attn_tokenizer_train(&state->tokenizer, texts, TOKENIZER_CAPTIONS,
                                      MOST_TOKENS, error);
    else
        attn_error_set(error, status, "out of memory for captions");
    free(captions);
    free(texts);
    free(grey);
    if (status != ATTN_OK)
        return status;
    attn_progress_say(task->progress, "tokenizer: %lld tokens",
                      (long long)attn_tokenizer_size(state->tokenizer));
    return attn_folder_tokenizer_save(state->tokenizer, task->options->out, error);
}

static uint64_t hash_of(const attn_digits *digits)
{
    uint64_t hash = ATTN_MIX_HASH;
    const int64_t side = digits->images.extent[1], images = digits->images.extent[0];
    for (int64_t n = 0; n < images * side * side; n++)
        hash = attn_mix_hash(hash, digits->images.bytes[n]);
    for (int64_t n = 0; n < images; n++)
        hash = attn_mix_hash(hash, digits->labels.bytes[n]);
    return hash;
}

/* Examples are numbers of pictures: all of one size. */
static attn_status number_pictures(const attn_task *task, attn_examples *examples,
                                   int64_t count, uint64_t digits_hash, attn_error *error)
{
    const captioner_state *const state = task->state;
    const captioner_settings *const settings = task->recipe->settings;
    *examples = (attn_examples){.count = (size_t)count};
    examples->sizes = malloc((size_t)count * sizeof *examples->sizes);
    if (!examples->sizes)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for %lld pictures",
                              (long long)count);
    const int32_t tokens = (int32_t)state->tokens;
    for (int64_t n = 0; n < count; n++)
        examples->sizes[n] = (attn_example_size){tokens, tokens, tokens};
    examples->hash = attn_mix_hash(attn_mix_hash(digits_hash, (uint64_t)count),
                                   (uint64_t)(settings->empty * 1e9));
    return ATTN_OK;
}

/* A digit that occurs, but in no picture that is trained on, has no word. */
static attn_status check_digits(const captioner_state *state, const char *path,
                                attn_error *error)
{
    const size_t first = state->train.first, count = state->train.count;
    const uint8_t *const labels = state->digits.labels.bytes;
    bool is_trained[256] = {false};
    for (size_t n = first; n < first + count; n++)
        is_trained[labels[n]] = true;
    for (int64_t n = 0; n < state->digits.labels.extent[0]; n++)
        if (!is_trained[labels[n]])
            return attn_error_set(
                error, ATTN_EFORMAT,
                "%s: label %lld is %d, which none of the first %zu has; "
                "expected every digit among these, which are trained on",
                path, (long long)n + 1, labels[n], count);
    return ATTN_OK;
}

static attn_status prepare_data(attn_task *task, bool goes_on, attn_error *error)
{
    const captioner_settings *const settings = task->recipe->settings;
    captioner_state *const state = task->state;
    const attn_captioner_config config = model_config(settings, 0);
    ATTN_TRY(attn_digits_load(&state->digits, task->options->train, error));
    if (strcmp(task->options->train, task->options->valid) != 0)
        return attn_error_set(error, ATTN_EFORMAT,
                              "train is %s and valid %s: expected one file of "
                              "digits, whose parts are told apart by their place",
                              task->options->train, task->options->valid);
    if (state->digits.images.extent[0] < 8)
        return attn_error_set(error, ATTN_EFORMAT, "%s: %lld digits, expected at least 8",
                              task->options->train,
                              (long long)state->digits.images.extent[0]);
    state->train = attn_captioner_composition(&config, &state->digits, ATTN_DIGITS_TRAIN,
                                              settings->empty);
    state->valid = attn_captioner_composition(&config, &state->digits, ATTN_DIGITS_VALID,
                                              settings->empty);
    ATTN_TRY(check_digits(state, task->options->train, error));
    state->tokens = config.max_positions;
    const uint64_t hash = hash_of(&state->digits);
    ATTN_TRY(number_pictures(task, &task->train, settings->pictures, hash, error));
    ATTN_TRY(number_pictures(task, &task->valid, settings->valid_pictures, hash, error));
    attn_progress_say(task->progress,
                      "%s: %lld digits; %lld picture%s of %lld × %lld "
                      "cells an epoch, each new",
                      task->options->train, (long long)state->digits.images.extent[0],
                      (long long)settings->pictures, attn_s(settings->pictures),
                      (long long)settings->cell_rows, (long long)settings->cell_columns);
    return goes_on ? attn_folder_tokenizer_load(&state->tokenizer, task->options->out, -1,
                                                error)
                   : learn_tokenizer(task, state, error);
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    captioner_state *const state = calloc(1, sizeof *state);
    task->state = state;
    if (!state)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for a captioner");
    ATTN_TRY(prepare_data(task, goes_on, error));
    const attn_captioner_config config =
        model_config(task->recipe->settings, attn_tokenizer_size(state->tokenizer));
    ATTN_TRY(attn_captioner_create(&state->captioner, &config,
                                   (uint64_t)task->recipe->seed, error));
    task->parameters = attn_captioner_parameters(state->captioner);
    return ATTN_OK;
}

static void free_task(attn_task *task)
{
    captioner_state *const state = task->state;
    if (!state)
        return;
    attn_captioner_destroy(state->captioner);
    attn_tokenizer_destroy(state->tokenizer);
    attn_digits_free(&state->digits);
    free(state);
}

/* ---- Loss ------------------------------------------------------------------------ */

/* The caption's tokens after </s> in, and before it out. */
static bool put_caption(const captioner_state *state, attn_tape *tape,
                        const char *caption, int32_t *in, int32_t *out)
{
    attn_token *tokens;
    size_t count;
    attn_error error;
    const attn_status status = attn_tokenizer_encode(
        state->tokenizer, caption, strlen(caption), &tokens, &count, &error);
    if (status != ATTN_OK) {
        attn_tape_fail(tape, status, "%s", error.message);
        return false;
    }
    const bool fits = (int64_t)count + 1 == state->tokens;
    if (!fits)
        attn_tape_fail(tape, ATTN_EFORMAT,
                       "\"%s\" has %zu tokens, expected %lld, one for each word", caption,
                       count, (long long)state->tokens - 1);
    in[0] = ATTN_TOKEN_EOS;
    for (size_t i = 0; fits && i < count; i++)
        in[i + 1] = out[i] = tokens[i].id;
    out[state->tokens - 1] = ATTN_TOKEN_EOS;
    free(tokens);
    return fits;
}

static attn_tensor *loss(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const captioner_state *const state = task->state;
    const attn_composition *const composition =
        batch->examples == &task->valid ? &state->valid : &state->train;
    const size_t points = (size_t)(composition->rows * composition->columns) *
                          ATTN_CELL_SIDE * ATTN_CELL_SIDE;
    const size_t tokens = (size_t)state->tokens;
    uint8_t *const grey = attn_tape_allocate(pass->tape, batch->count * points);
    int32_t *const in =
        attn_tape_allocate(pass->tape, batch->count * tokens * sizeof *in);
    int32_t *const out =
        attn_tape_allocate(pass->tape, batch->count * tokens * sizeof *out);
    int64_t *const starts =
        attn_tape_allocate(pass->tape, (batch->count + 1) * sizeof *starts);
    if (!grey || !in || !out || !starts)
        return NULL;
    starts[0] = 0;
    for (size_t n = 0; n < batch->count; n++) {
        int8_t cells[ATTN_CELL_LIMIT];
        char caption[ATTN_CAPTION_BYTES];
        attn_compose(&state->digits, composition, attn_mix(batch->seed, batch->list[n]),
                     grey + n * points, cells);
        attn_caption(composition, cells, caption);
        if (!put_caption(state, pass->tape, caption, in + n * tokens, out + n * tokens))
            return NULL;
        starts[n + 1] = (int64_t)((n + 1) * tokens);
    }
    const attn_caption_batch captions = {(int64_t)batch->count, grey, in, out, starts};
    return attn_captioner_loss(state->captioner, pass, &captions, batch->smoothing,
                               batch->divisor, &sums->plain);
}

static attn_status save(const attn_task *task, const char *folder, attn_error *error)
{
    const captioner_state *const state = task->state;
    return attn_captioner_save(state->captioner, folder, ATTN_DTYPE_BF16, error);
}

static attn_status check_file(const attn_task *task, const char *file, attn_error *error)
{
    const captioner_state *const state = task->state;
    attn_digits digits;
    attn_composition composition;
    ATTN_TRY(attn_captioner_test_pictures(state->captioner, file, &digits, &composition,
                                          error));
    attn_digits_free(&digits);
    return ATTN_OK;
}

static const char *const MODEL_TYPES[] = {"attn-captioner", NULL};

const attn_task_kind attn_task_captioner = {
    .name = "captioner",
    .targets = "caption tokens",
    .model_types = MODEL_TYPES,
    .fields = FIELDS,
    .field_count = sizeof FIELDS / sizeof FIELDS[0],
    .settings_bytes = sizeof(captioner_settings),
    .check = check,
    .prepare = prepare,
    .loss = loss,
    .save = save,
    .score = attn_captioner_score,
    .check_file = check_file,
    .free = free_task,
};

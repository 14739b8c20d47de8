/* How good a captioner is on pictures composed of digits it has not seen: captions that
 * are right word for word, cells that are, and how much of the attention of a digit's
 * word lies inside its cell. */
#include "base/context.h"
#include "base/mix.h"
#include "model/folder.h"
#include "train/progress.h"
#include "train/task_captioner.h"
#include <stdlib.h>
#include <string.h>

/* Scores of another count or density are other scores: they are fixed, and printed. */
enum { PICTURES = 1000, BATCH = 50, WATCHED = 200 };
static const double EMPTY = 0.25;
static const uint64_t SEED = 0x7069637475726573; /* "pictures" */

struct scoring {
    const attn_score_job *job;
    attn_captioner *captioner;
    attn_tokenizer *tokenizer;
    attn_context *context;
    attn_digits digits;
    attn_composition composition;
    int64_t points;                   /* of a picture */
    uint8_t *grey;                    /* [BATCH][points] */
    int8_t (*cells)[ATTN_CELL_LIMIT]; /* [BATCH] */
    int64_t exact, right_cells, unfinished;
    /* of the tokens of digits, in the pictures that were watched */
    double inside;
    int64_t watched;
    /* of the picture that is being watched */
    const int64_t *cell_of; /* [tokens] */
    float *weights;         /* [tokens][places] */
};

/* Which cell each token of a caption with its </s> is about, −1 for none ("over", </s>):
 * cells [count + 1]. */
static void find_cells(const char *caption, const attn_token *tokens, size_t count,
                       int64_t *cells)
{
    static const char JOINT[] = "over";
    for (size_t i = 0; i < count; i++) {
        int64_t cell = 0;
        const char *at = caption + tokens[i].begin;
        at += strspn(at, " ");
        const bool is_joint =
            strncmp(at, JOINT, sizeof JOINT - 1) == 0; /* no digit's word begins so */
        for (const char *word = caption; word < at;) {
            const size_t length = strcspn(word, " ");
            if (word + length >= at)
                break;
            cell += !(length == sizeof JOINT - 1 && strncmp(word, JOINT, length) == 0);
            word += length + 1;
        }
        cells[i] = is_joint ? -1 : cell;
    }
    cells[count] = -1;
}

/* ---- Attention inside the cell ---------------------------------------------------- */

static attn_status watch(void *user, const attn_observation *seen)
{
    struct scoring *const scoring = user;
    const attn_captioner_config *const config =
        attn_captioner_config_of(scoring->captioner);
    int64_t rows, columns;
    attn_captioner_grid(scoring->captioner, &rows, &columns);
    const attn_rectangle all = {.queries = seen->shape->Lq, .keys = rows * columns};
    ATTN_TRY(attn_weights(seen->context, seen->shape, seen->tensors, seen->options, &all,
                          scoring->weights, rows * columns));
    for (int64_t i = 0; i < seen->shape->Lq; i++) {
        const int64_t cell = scoring->cell_of[i];
        if (cell < 0)
            continue;
        for (int64_t place = 0; place < rows * columns; place++) {
            const int64_t row = place / columns * config->cell_rows / rows;
            const int64_t column = place % columns * config->cell_columns / columns;
            if (row * config->cell_columns + column == cell)
                scoring->inside += (double)scoring->weights[i * rows * columns + place];
        }
        scoring->watched++;
    }
    return ATTN_OK;
}

/* Picture n of the batch and its true caption once more, with an observer. */
static attn_status watch_picture(struct scoring *scoring, int64_t n, attn_error *error)
{
    enum { MOST_CAPTION_TOKENS = 4 * ATTN_CELL_LIMIT };
    char caption[ATTN_CAPTION_BYTES];
    attn_token *tokens;
    size_t count;
    attn_caption(&scoring->composition, scoring->cells[n], caption);
    ATTN_TRY(attn_tokenizer_encode(scoring->tokenizer, caption, strlen(caption), &tokens,
                                   &count, error));
    int32_t in[MOST_CAPTION_TOKENS + 1] = {ATTN_TOKEN_EOS};
    int64_t cells[MOST_CAPTION_TOKENS + 1];
    const bool fits = count <= MOST_CAPTION_TOKENS;
    if (fits)
        find_cells(caption, tokens, count, cells);
    for (size_t i = 0; fits && i < count; i++) {
        in[i + 1] = tokens[i].id;
        if (cells[i] >= 0 && scoring->cells[n][cells[i]] < 0)
            cells[i] = -1; /* nothing: where to look is free */
    }
    free(tokens);
    if (!fits)
        return attn_error_set(error, ATTN_EFORMAT,
                              "\"%s\" has %zu tokens, expected at most %d", caption,
                              count, MOST_CAPTION_TOKENS);
    scoring->cell_of = cells;
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, scoring->context);
    if (status != ATTN_OK)
        return attn_error_from_context(error, status, scoring->context);
    attn_tape_begin(tape, false, 0);
    const attn_observer observer = {scoring, watch};
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_captioner_parameters(scoring->captioner),
                            .observer = &observer};
    const int64_t starts[] = {0, (int64_t)count + 1};
    const attn_caption_batch batch = {.pictures = 1,
                                      .grey = scoring->grey + n * scoring->points,
                                      .target_in = in,
                                      .target_starts = starts};
    attn_captioner_hidden(scoring->captioner, &pass, &batch);
    status = attn_tape_report(tape, error);
    attn_tape_destroy(tape);
    return status;
}

/* ---- Captions --------------------------------------------------------------------- */

/* Cells whose word is the right one, as far as the caption has words. */
static int64_t count_right(const char *written, const char *caption)
{
    int64_t right = 0;
    while (*written && *caption) {
        const size_t one = strcspn(written, " "), other = strcspn(caption, " ");
        const bool is_joint = other == 4 && strncmp(caption, "over", 4) == 0;
        right += !is_joint && one == other && strncmp(written, caption, one) == 0;
        written += one + (written[one] == ' ');
        caption += other + (caption[other] == ' ');
    }
    return right;
}

static attn_status judge(struct scoring *scoring, int64_t n,
                         const attn_translation *written, attn_error *error)
{
    char caption[ATTN_CAPTION_BYTES], *text;
    attn_caption(&scoring->composition, scoring->cells[n], caption);
    ATTN_TRY(attn_tokenizer_decode(scoring->tokenizer, written->ids, written->count,
                                   &text, error));
    scoring->exact += strcmp(text, caption) == 0;
    scoring->right_cells += count_right(text, caption);
    scoring->unfinished += !written->finished;
    free(text);
    return ATTN_OK;
}

static attn_status score_batch(struct scoring *scoring, int64_t first, attn_error *error)
{
    attn_search_options search;
    attn_translation written[BATCH] = {{0}};
    attn_search_options_init(&search);
    search.beams = 1;
    for (int64_t n = 0; n < BATCH; n++)
        attn_compose(&scoring->digits, &scoring->composition,
                     attn_mix(SEED, (uint64_t)(first + n)),
                     scoring->grey + n * scoring->points, scoring->cells[n]);
    attn_status status =
        attn_captioner_write(scoring->captioner, scoring->context, scoring->grey, BATCH,
                             &search, written, error);
    for (int64_t n = 0; n < BATCH; n++) {
        if (status == ATTN_OK)
            status = judge(scoring, n, &written[n], error);
        if (status == ATTN_OK && first + n < WATCHED)
            status = watch_picture(scoring, n, error);
        free(written[n].ids);
    }
    return status;
}

/* ---- A file ----------------------------------------------------------------------- */

static attn_status check(const attn_captioner_config *config, const attn_digits *digits,
                         const char *file, attn_error *error)
{
    if (config->rows == config->cell_rows * ATTN_CELL_SIDE &&
        config->columns == config->cell_columns * ATTN_CELL_SIDE &&
        config->cell_rows * config->cell_columns <= ATTN_CELL_LIMIT &&
        digits->images.extent[0] >= 8)
        return ATTN_OK;
    return attn_error_set(
        error, ATTN_EFORMAT,
        "%s: %lld digits for pictures of %lld × %lld points in %lld × %lld cells, "
        "expected at least 8, and at most %d cells of %d × %d points",
        file, (long long)digits->images.extent[0], (long long)config->rows,
        (long long)config->columns, (long long)config->cell_rows,
        (long long)config->cell_columns, ATTN_CELL_LIMIT, ATTN_CELL_SIDE, ATTN_CELL_SIDE);
}

attn_status attn_captioner_test_pictures(const attn_captioner *captioner,
                                         const char *file, attn_digits *digits,
                                         attn_composition *composition, attn_error *error)
{
    const attn_captioner_config *const config = attn_captioner_config_of(captioner);
    ATTN_TRY(attn_digits_load(digits, file, error));
    const attn_status status = check(config, digits, file, error);
    if (status == ATTN_OK)
        *composition =
            attn_captioner_composition(config, digits, ATTN_DIGITS_TEST, EMPTY);
    else
        attn_digits_free(digits);
    return status;
}

static attn_status prepare(struct scoring *scoring, attn_error *error)
{
    const attn_score_job *const job = scoring->job;
    ATTN_TRY(attn_captioner_load(&scoring->captioner, job->folder, error));
    const attn_captioner_config *const config =
        attn_captioner_config_of(scoring->captioner);
    ATTN_TRY(attn_folder_tokenizer_load(&scoring->tokenizer, job->folder,
                                        config->decoder.vocabulary, error));
    ATTN_TRY(attn_captioner_test_pictures(scoring->captioner, job->file, &scoring->digits,
                                          &scoring->composition, error));
    if (strcmp(job->name, "valid") == 0)
        scoring->composition = attn_captioner_composition(config, &scoring->digits,
                                                          ATTN_DIGITS_VALID, EMPTY);
    ATTN_TRY(attn_context_open(&scoring->context, NULL, error));
    int64_t rows, columns;
    attn_captioner_grid(scoring->captioner, &rows, &columns);
    scoring->points = config->rows * config->columns;
    scoring->grey = malloc((size_t)(BATCH * scoring->points));
    scoring->cells = malloc(BATCH * sizeof *scoring->cells);
    scoring->weights = malloc((size_t)(4 * ATTN_CELL_LIMIT + 1) *
                              (size_t)(rows * columns) * sizeof *scoring->weights);
    return scoring->grey && scoring->cells && scoring->weights
               ? ATTN_OK
               : attn_error_set(error, ATTN_ENOMEM, "out of memory for pictures");
}

static void report(const struct scoring *scoring, json_t *scores)
{
    const attn_score_job *const job = scoring->job;
    const int64_t cells = scoring->composition.rows * scoring->composition.columns;
    const double exact = (double)scoring->exact / PICTURES;
    const double right = (double)scoring->right_cells / (double)(PICTURES * cells);
    const double inside =
        scoring->watched > 0 ? scoring->inside / (double)scoring->watched : 0.0;
    attn_progress_say(job->progress,
                      "%s: %.1f %% of %d captions right word for word, %.2f %% of cells; "
                      "%.2f of the attention inside the cell (%s)",
                      job->name, 100.0 * exact, PICTURES, 100.0 * right, inside,
                      job->file);
    json_object_set_new(scores, "exact", json_real(exact));
    json_object_set_new(scores, "cells_right", json_real(right));
    json_object_set_new(scores, "attention_in_cell", json_real(inside));
    json_object_set_new(scores, "attention_in_cell_if_even",
                        json_real(1.0 / (double)cells));
    json_object_set_new(scores, "pictures", json_integer(PICTURES));
    json_object_set_new(scores, "pictures_watched", json_integer(WATCHED));
    json_object_set_new(scores, "unfinished",
                        json_integer((json_int_t)scoring->unfinished));
}

attn_status attn_captioner_score(const attn_score_job *job, json_t *scores,
                                 attn_error *error)
{
    struct scoring scoring = {.job = job};
    attn_status status = prepare(&scoring, error);
    for (int64_t first = 0; status == ATTN_OK && first < PICTURES; first += BATCH)
        status = score_batch(&scoring, first, error);
    if (status == ATTN_OK)
        report(&scoring, scores);
    if (status == ATTN_OK)
        attn_score_note(scores, attn_captioner_note(scoring.captioner));
    attn_captioner_destroy(scoring.captioner);
    attn_tokenizer_destroy(scoring.tokenizer);
    attn_context_destroy(scoring.context);
    attn_digits_free(&scoring.digits);
    free(scoring.grey);
    free(scoring.cells);
    free(scoring.weights);
    return status;
}

/* Scores of a classifier or tagger on a file: each thread labels its share of the texts,
 * and what is found is counted in their order. */
#include "base/context.h"
#include "file/file.h"
#include "file/path.h"
#include "model/folder.h"
#include "train/label_scores.h"
#include "train/progress.h"
#include "train/task_reader.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_BYTES = 1 << 28 };

/* ---- Labelling ------------------------------------------------------------------- */

struct labelling {
    const attn_reader *reader;
    const attn_texts *texts;
    size_t threads;
    float *probabilities; /* [targets][labels] */
    attn_error *errors;   /* [threads] */
};

static void label_share(void *argument, size_t thread)
{
    const struct labelling *const work = argument;
    const size_t first = work->texts->count * thread / work->threads;
    const size_t end = work->texts->count * (thread + 1) / work->threads;
    attn_error *const error = &work->errors[thread];
    attn_context *context;
    error->status = attn_context_open(&context, NULL, error);
    if (error->status != ATTN_OK)
        return;
    const size_t labels = (size_t)attn_reader_config_of(work->reader)->labels;
    error->status = attn_reader_predict(
        work->reader, context, work->texts->texts + first, (int64_t)(end - first),
        work->probabilities + work->texts->first_target[first] * labels, error);
    attn_context_destroy(context);
}

static attn_status label_all(struct labelling *work, pthreadpool_t pool,
                             attn_error *error)
{
    const size_t labels = (size_t)attn_reader_config_of(work->reader)->labels;
    const size_t targets = work->texts->first_target[work->texts->count];
    work->probabilities = malloc((targets * labels + 1) * sizeof(float));
    work->errors = calloc(work->threads, sizeof *work->errors);
    if (!work->probabilities || !work->errors)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu labels", targets);
    pthreadpool_parallelize_1d(pool, label_share, work, work->threads, 0);
    for (size_t t = 0; t < work->threads; t++)
        if (work->errors[t].status != ATTN_OK) {
            *error = work->errors[t];
            return error->status;
        }
    return ATTN_OK;
}

/* ---- Words that were seen -------------------------------------------------------- */

/* The words of training; none where the folder has no such file. */
struct seen {
    char *text;
    attn_label_set words;
};

static attn_status load_seen(struct seen *seen, const char *folder, attn_error *error)
{
    char path[ATTN_PATH_BYTES];
    size_t length, capacity = 1;
    *seen = (struct seen){0};
    ATTN_TRY(attn_path_join(path, folder, ATTN_SEEN_WORDS, error));
    FILE *const file = fopen(path, "r");
    if (!file)
        return ATTN_OK;
    fclose(file);
    ATTN_TRY(attn_file_read_text(path, WORDS_BYTES, &seen->text, &length, error));
    for (size_t i = 0; i < length; i++)
        capacity += seen->text[i] == '\n';
    seen->words.is_sorted = true;
    seen->words.names = calloc(capacity, sizeof *seen->words.names);
    if (!seen->words.names)
        return attn_error_set(error, ATTN_ENOMEM, "%s: no memory", path);
    for (char *word = seen->text, *end; (end = strchr(word, '\n')); word = end + 1) {
        *end = '\0';
        seen->words.names[seen->words.count++] = word;
    }
    return ATTN_OK;
}

static void free_seen(struct seen *seen)
{
    attn_label_set_free(&seen->words);
    free(seen->text);
}

/* ---- Scores ---------------------------------------------------------------------- */

struct job {
    const attn_score_job *given;
    attn_reader *reader;
    attn_tokenizer *tokenizer;
    attn_label_set labels;
    attn_labelled labelled;
    attn_texts texts;
    struct seen seen;
};

/* The reader's own labels, in whatever order it has them. */
static attn_status list_labels(attn_label_set *labels, const attn_reader *reader,
                               attn_error *error)
{
    const int64_t count = attn_reader_config_of(reader)->labels;
    *labels = (attn_label_set){.names = calloc((size_t)count, sizeof *labels->names),
                               .count = count};
    if (!labels->names)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for labels");
    for (int64_t i = 0; i < count; i++)
        labels->names[i] = attn_reader_label(reader, i);
    return ATTN_OK;
}

/* The texts of a file with their labels' numbers. */
static attn_status encode_file(attn_texts *texts, attn_labelled *labelled,
                               const attn_texts_rules *rules, attn_error *error)
{
    const bool tags = attn_reader_config_of(rules->reader)->tags;
    ATTN_TRY(attn_labelled_load(labelled, rules->name, tags, error));
    return attn_texts_encode(texts, labelled, rules, error);
}

attn_status attn_reader_check_file(const attn_task *task, const char *file,
                                   attn_error *error)
{
    const attn_reader_state *const state = task->state;
    const attn_reader_settings *const settings = task->recipe->settings;
    attn_label_set labels = {0};
    attn_labelled labelled = {0};
    attn_texts texts = {0};
    const attn_texts_rules rules = {
        .tokenizer = state->tokenizer,
        .labels = &labels,
        .reader = state->reader,
        .refuses_long = settings->too_long == ATTN_LONG_REFUSE,
        .name = file,
    };
    attn_status status = list_labels(&labels, state->reader, error);
    if (status == ATTN_OK)
        status = encode_file(&texts, &labelled, &rules, error);
    attn_texts_free(&texts);
    attn_labelled_free(&labelled);
    attn_label_set_free(&labels);
    return status;
}

static attn_status open_all(struct job *job, attn_error *error)
{
    const attn_reader_settings *const settings = job->given->settings;
    ATTN_TRY(attn_folder_tokenizer_load(&job->tokenizer, job->given->folder, -1, error));
    ATTN_TRY(list_labels(&job->labels, job->reader, error));
    ATTN_TRY(load_seen(&job->seen, job->given->folder, error));
    const attn_texts_rules rules = {
        .tokenizer = job->tokenizer,
        .labels = &job->labels,
        .reader = job->reader,
        .refuses_long = settings && settings->too_long == ATTN_LONG_REFUSE,
        .name = job->given->file,
    };
    return encode_file(&job->texts, &job->labelled, &rules, error);
}

static json_t *describe_labels(const struct job *job, const attn_label_scores *counts)
{
    json_t *const list = json_object();
    for (int64_t i = 0; i < counts->labels; i++) {
        const attn_label_score score = attn_label_scores_of(counts, i);
        json_object_set_new(list, job->labels.names[i],
                            json_pack("{s:I, s:f, s:f, s:f}", "count",
                                      (json_int_t)score.count, "precision",
                                      score.precision, "recall", score.recall, "f1",
                                      score.f1));
    }
    return list;
}

/* Counts what was found, and of a tagger's words those that training had not. */
static attn_status count_found(const struct job *job, const float *probabilities,
                               attn_label_scores *counts, attn_label_scores *unseen,
                               double *loss, attn_error *error)
{
    const int64_t labels = job->labels.count;
    const size_t items = job->texts.first_target[job->texts.count];
    ATTN_TRY(attn_label_scores_create(counts, labels, error));
    ATTN_TRY(attn_label_scores_create(unseen, labels, error));
    *loss = 0.0;
    for (size_t n = 0; n < items; n++) {
        const float *const row = probabilities + n * (size_t)labels;
        const int64_t target = job->texts.targets[n];
        const int64_t found = attn_reader_choose(row, labels);
        attn_label_scores_add(counts, target, found);
        *loss -= log(fmax((double)row[target], 1e-45)) / (double)items;
        if (job->seen.words.count > 0 &&
            attn_label_set_find(&job->seen.words, job->labelled.texts[n]) < 0)
            attn_label_scores_add(unseen, target, found);
    }
    return ATTN_OK;
}

static void tell(const struct job *job, const attn_label_scores *counts,
                 const attn_label_scores *unseen, double loss, double seconds,
                 json_t *scores)
{
    const bool tags = attn_reader_config_of(job->reader)->tags;
    const int64_t total = attn_label_scores_total(counts);
    const double accuracy = attn_label_scores_accuracy(counts);
    const double macro = attn_label_scores_macro_f1(counts);
    const int64_t unseen_total = attn_label_scores_total(unseen);
    char of_unseen[80] = "";
    if (unseen_total > 0)
        snprintf(of_unseen, sizeof of_unseen, "; of %lld unseen words %.2f %%",
                 (long long)unseen_total, 100.0 * attn_label_scores_accuracy(unseen));
    attn_progress_say(job->given->progress,
                      "%s: accuracy %.2f %% of %lld %s, macro F1 %.4f%s (%s)",
                      job->given->name, 100.0 * accuracy, (long long)total,
                      tags ? "words" : "texts", macro, of_unseen, job->given->file);
    json_object_set_new(scores, "accuracy", json_real(accuracy));
    json_object_set_new(scores, "macro_f1", json_real(macro));
    json_object_set_new(scores, "loss", attn_json_number(loss));
    json_object_set_new(scores, tags ? "words" : "texts",
                        json_integer((json_int_t)total));
    if (unseen_total > 0) {
        json_object_set_new(scores, "unseen_words",
                            json_integer((json_int_t)unseen_total));
        json_object_set_new(scores, "unseen_accuracy",
                            json_real(attn_label_scores_accuracy(unseen)));
    }
    json_object_set_new(scores, "cut_texts", json_integer((json_int_t)job->texts.cut));
    json_object_set_new(scores, "tokens_per_second",
                        json_real((double)job->texts.tokens / fmax(seconds, 1e-9)));
    json_object_set_new(scores, "labels", describe_labels(job, counts));
}

static attn_status score(struct job *job, json_t *scores, attn_error *error)
{
    struct labelling work = {.texts = &job->texts, .threads = job->given->threads};
    attn_label_scores counts = {0}, unseen = {0};
    double loss = 0.0;
    ATTN_TRY(attn_reader_load(&job->reader, job->given->folder, error));
    work.reader = job->reader;
    ATTN_TRY(open_all(job, error));
    const double start = attn_seconds();
    attn_status status = label_all(&work, job->given->pool, error);
    const double seconds = attn_seconds() - start;
    if (status == ATTN_OK)
        status = count_found(job, work.probabilities, &counts, &unseen, &loss, error);
    if (status == ATTN_OK)
        tell(job, &counts, &unseen, loss, seconds, scores);
    attn_label_scores_free(&counts);
    attn_label_scores_free(&unseen);
    free(work.probabilities);
    free(work.errors);
    return status;
}

attn_status attn_reader_score(const attn_score_job *given, json_t *scores,
                              attn_error *error)
{
    struct job job = {.given = given};
    const attn_status status = score(&job, scores, error);
    attn_texts_free(&job.texts);
    attn_labelled_free(&job.labelled);
    attn_label_set_free(&job.labels);
    free_seen(&job.seen);
    attn_tokenizer_destroy(job.tokenizer);
    attn_reader_destroy(job.reader);
    return status;
}

/* Scores of a language model.  Texts are dealt in runs of about the same number of
 * tokens; each thread reads one run after another on a tape of its own. */
#include "train/language_score.h"
#include "base/context.h"
#include "file/file.h"
#include "file/path.h"
#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RUN_TOKENS = 2000 };

struct work {
    const attn_language_scorer *scorer;
    const attn_passages *texts;
    size_t *runs; /* run r is texts runs[r] to runs[r + 1] − 1 */
    size_t run_count;
    atomic_size_t next;
    double *nats;
    attn_error *errors; /* [threads] */
};

/* ---- Nats ------------------------------------------------------------------------ */

/* Of each text of a run: its rows of the hidden states against its own targets. */
static void read_run(const struct work *work, attn_tape *tape, size_t run)
{
    const attn_language *const language = work->scorer->language;
    const size_t first = work->runs[run], count = work->runs[run + 1] - first;
    attn_tape_begin(tape, false, 0);
    const attn_pass pass = {
        .tape = tape, .parameters = attn_language_parameters(work->scorer->language)};
    size_t *const list = attn_tape_allocate(tape, count * sizeof *list);
    for (size_t n = 0; list && n < count; n++)
        list[n] = first + n;
    attn_passage_batch batch;
    if (!list || !attn_passages_pack(&batch, work->texts, list, count, tape))
        return;
    const attn_packing packing = {(int64_t)count, batch.starts};
    attn_tensor *const hidden = attn_language_hidden(language, &pass, batch.ids, packing);
    for (size_t n = 0; hidden && n < count; n++) {
        const int64_t extent[] = {batch.starts[n + 1] - batch.starts[n],
                                  hidden->extent[1]};
        attn_tensor *const rows = attn_tape_leaf(
            tape, hidden->data + batch.starts[n] * extent[1], NULL, 2, extent);
        attn_language_loss_of_hidden(language, &pass, rows,
                                     batch.targets + batch.starts[n], 1.0,
                                     &work->nats[first + n]);
    }
}

static void read_runs(void *argument, size_t worker)
{
    struct work *const work = argument;
    attn_error *const error = &work->errors[worker];
    attn_context *context = NULL;
    attn_tape *tape = NULL;
    error->status = attn_context_open(&context, NULL, error);
    if (error->status == ATTN_OK && attn_tape_create(&tape, context) != ATTN_OK)
        attn_error_set(error, ATTN_ENOMEM, "no memory for a tape");
    while (error->status == ATTN_OK) {
        const size_t run = atomic_fetch_add(&work->next, 1);
        if (run >= work->run_count)
            break;
        read_run(work, tape, run);
        attn_tape_report(tape, error);
    }
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

static void cut_runs(struct work *work)
{
    const attn_passages *const texts = work->texts;
    size_t tokens = 0;
    for (size_t n = 0; n < texts->count; n++) {
        if (tokens == 0)
            work->runs[work->run_count++] = n;
        tokens += (size_t)attn_passages_length(texts, n);
        if (tokens >= RUN_TOKENS)
            tokens = 0;
    }
    work->runs[work->run_count] = texts->count;
}

/* nats[n] = −ln of the probability of text n, all its tokens, each after those before it
 * and <s>: the same bits for any number of threads. */
static attn_status find_nats(const attn_language_scorer *scorer,
                             const attn_passages *texts, double *nats, attn_error *error)
{
    struct work work = {
        .scorer = scorer,
        .texts = texts,
        .runs = malloc((texts->count + 1) * sizeof *work.runs),
        .nats = nats,
        .errors = calloc(scorer->threads, sizeof *work.errors),
    };
    attn_status status = ATTN_OK;
    if (!work.runs || !work.errors)
        status = attn_error_set(error, ATTN_ENOMEM, "out of memory while scoring");
    if (status == ATTN_OK) {
        cut_runs(&work);
        pthreadpool_parallelize_1d(scorer->pool, read_runs, &work, scorer->threads, 0);
    }
    for (size_t t = 0; t < scorer->threads && status == ATTN_OK; t++)
        if ((status = work.errors[t].status) != ATTN_OK)
            *error = work.errors[t];
    free(work.runs);
    free(work.errors);
    return status;
}

/* ---- Texts ----------------------------------------------------------------------- */

static double *nats_of(const attn_language_scorer *scorer, const attn_passages *texts,
                       attn_status *status, attn_error *error)
{
    double *const nats = malloc((texts->count + 1) * sizeof *nats);
    *status = nats ? find_nats(scorer, texts, nats, error)
                   : attn_error_set(error, ATTN_ENOMEM, "out of memory while scoring");
    return nats;
}

attn_status attn_language_score_texts(const attn_language_scorer *scorer,
                                      const char *path, json_t *scores, attn_error *error)
{
    const attn_language_config *const config = attn_language_config_of(scorer->language);
    attn_passages texts;
    attn_status status =
        attn_passages_load(&texts, path, scorer->tokenizer, config->text_window,
                           config->max_positions, ATTN_TOO_LONG_SPLIT, error);
    if (status != ATTN_OK)
        return status;
    double *const nats = nats_of(scorer, &texts, &status, error);
    double sum = 0.0;
    for (size_t n = 0; status == ATTN_OK && n < texts.count; n++)
        sum += nats[n];
    if (status == ATTN_OK) {
        const int64_t tokens = (int64_t)texts.begin[texts.count];
        const double loss = sum / (double)tokens;
        json_object_set_new(scores, "loss", attn_json_number(loss));
        json_object_set_new(scores, "perplexity", attn_json_number(exp(loss)));
        json_object_set_new(scores, "perplexity_word",
                            attn_json_number(exp(sum / (double)texts.words)));
        json_object_set_new(scores, "bits_byte",
                            attn_json_number(sum / log(2.0) / (double)texts.bytes));
        json_object_set_new(scores, "texts", json_integer((json_int_t)texts.count));
        json_object_set_new(scores, "tokens", json_integer((json_int_t)tokens));
        json_object_set_new(scores, "words", json_integer((json_int_t)texts.words));
        json_object_set_new(scores, "bytes", json_integer((json_int_t)texts.bytes));
        if (config->text_window == 0)
            json_object_set_new(scores, "lines_split",
                                json_integer((json_int_t)texts.split));
    }
    free(nats);
    attn_passages_free(&texts);
    return status;
}

/* ---- Minimal pairs --------------------------------------------------------------- */

/* Wins and pairs of each paradigm, in the order in which they come. */
struct tally {
    bool is_check; /* the files are read, and nothing is scored */
    json_t *wins, *pairs;
    json_int_t all_wins, all_pairs;
};

static void add_one(json_t *counts, const char *paradigm, int by)
{
    const json_int_t before = json_integer_value(json_object_get(counts, paradigm));
    json_object_set_new(counts, paradigm, json_integer(before + by));
}

/* The good and the bad sentence of each line, one after another. */
static attn_status append_pairs(attn_passages *texts, const attn_corpus *corpus,
                                const char *path, const attn_language_scorer *scorer,
                                attn_error *error)
{
    const int64_t positions = attn_language_config_of(scorer->language)->max_positions;
    for (size_t line = 0; line < corpus->lines; line++)
        for (size_t n = 1; n <= 2; n++) {
            const char *const text = corpus->fields[corpus->first_field[line] + n];
            const size_t before = texts->count;
            ATTN_TRY(attn_passages_append(texts, text, strlen(text), scorer->tokenizer,
                                          positions, error));
            if (texts->count > before + 1) {
                char place[ATTN_PATH_BYTES + 32];
                snprintf(place, sizeof place, "%s, line %zu", path, line + 1);
                return attn_tokens_fit(
                    place, texts->begin[texts->count] - texts->begin[before] - 1,
                    positions - 1, error);
            }
        }
    if (texts->count > 0)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT, "%s: no pairs in it, expected some", path);
}

static attn_status score_file(const attn_language_scorer *scorer, const char *path,
                              struct tally *tally, attn_error *error)
{
    attn_corpus corpus;
    attn_passages texts = {0};
    ATTN_TRY(attn_corpus_load(&corpus, path, 3, error));
    double *nats = NULL;
    attn_status status = append_pairs(&texts, &corpus, path, scorer, error);
    if (status == ATTN_OK && !tally->is_check)
        nats = nats_of(scorer, &texts, &status, error);
    for (size_t line = 0; nats && status == ATTN_OK && line < corpus.lines; line++) {
        const char *const paradigm = corpus.fields[corpus.first_field[line]];
        const int won = nats[2 * line] < nats[2 * line + 1];
        add_one(tally->wins, paradigm, won);
        add_one(tally->pairs, paradigm, 1);
        tally->all_wins += won;
        tally->all_pairs++;
    }
    free(nats);
    attn_passages_free(&texts);
    attn_corpus_free(&corpus);
    return status;
}

static bool is_table(const char *name)
{
    return attn_file_named(name, ".tsv") || attn_file_named(name, ".tsv.xz");
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

bool attn_language_is_pairs(const char *path)
{
    return is_table(path) || is_folder(path);
}

static int is_table_entry(const struct dirent *entry)
{
    return is_table(entry->d_name);
}

static attn_status score_folder(const attn_language_scorer *scorer, const char *folder,
                                struct tally *tally, attn_error *error)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, is_table_entry, alphasort);
    if (count <= 0)
        return attn_error_set(error, ATTN_EIO,
                              "%s: no minimal pairs there, expected *.tsv or *.tsv.xz",
                              folder);
    attn_status status = ATTN_OK;
    for (int i = 0; i < count; i++) {
        char path[ATTN_PATH_BYTES];
        if (status == ATTN_OK)
            status = attn_path_join(path, folder, entries[i]->d_name, error);
        if (status == ATTN_OK)
            status = score_file(scorer, path, tally, error);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static attn_status score_path(const attn_language_scorer *scorer, const char *path,
                              struct tally *tally, attn_error *error)
{
    return is_folder(path) ? score_folder(scorer, path, tally, error)
                           : score_file(scorer, path, tally, error);
}

attn_status attn_language_check_file(const attn_language_scorer *scorer, const char *path,
                                     attn_too_long too_long, attn_error *error)
{
    const attn_language_config *const config = attn_language_config_of(scorer->language);
    struct tally tally = {.is_check = true};
    attn_passages texts;
    if (attn_language_is_pairs(path))
        return score_path(scorer, path, &tally, error);
    ATTN_TRY(attn_passages_load(&texts, path, scorer->tokenizer, config->text_window,
                                config->max_positions, too_long, error));
    attn_passages_free(&texts);
    return ATTN_OK;
}

attn_status attn_language_score_pairs(const attn_language_scorer *scorer,
                                      const char *path, json_t *scores, attn_error *error)
{
    struct tally tally = {.wins = json_object(), .pairs = json_object()};
    const attn_status status = score_path(scorer, path, &tally, error);
    if (status == ATTN_OK) {
        const char *paradigm;
        json_t *wins, *const paradigms = json_object();
        json_object_foreach(tally.wins, paradigm, wins)
        {
            const json_t *const pairs = json_object_get(tally.pairs, paradigm);
            json_object_set_new(paradigms, paradigm,
                                json_real((double)json_integer_value(wins) /
                                          (double)json_integer_value(pairs)));
        }
        json_object_set_new(scores, "accuracy",
                            json_real((double)tally.all_wins / (double)tally.all_pairs));
        json_object_set_new(scores, "pairs", json_integer(tally.all_pairs));
        json_object_set_new(scores, "paradigms", paradigms);
    }
    json_decref(tally.wins);
    json_decref(tally.pairs);
    return status;
}

/* attn translate: lines in, translated lines out, in order.
 *
 * Lines are read in batches; each thread translates its share of a batch, and a line's
 * translation does not depend on the lines around it.  A line that cannot be translated
 * ends the run, after the lines before it are out. */
#include "base/context.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "cli/translate_json.h"
#include "train/pool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: attn translate [TEXT | FILE]... [options]\n"
    "\n"
    "Translates texts, the lines of files, or those of standard input (-, as without\n"
    "any): a line in, a line out, an empty one for an empty one.  A line with more\n"
    "tokens than the model has positions is an error that names it; none is ever cut.\n"
    "\n"
    "  --model NAME        a folder, or one in trained/ or models/\n"
    "                      (default translate-en-fr)\n"
    "  --beam N            beams of the search (default 4; 1 is greedy)\n"
    "  --length-power P    scores are divided by length^P (default 1)\n"
    "  --threads N         default: all processors; changes no result\n"
    "  --json              one object a line: source, translation, score, finished,\n"
    "                      tokens, and the alignment between words\n"
    "\n"
    "example: attn translate 'The cat was hungry.'\n";

/* Lines of a batch, for each thread. */
enum { THREAD_LINES = 16 };

struct job {
    cli_model model;
    attn_search_options search;
    int64_t threads;
    bool json;
    pthreadpool_t pool;
    attn_context **contexts; /* [threads] */
    translate_line *lines;   /* [threads × THREAD_LINES] */
    size_t count, capacity;
    attn_error *errors; /* [threads] */
};

/* ---- A batch --------------------------------------------------------------------- */

static void empty_batch(struct job *job)
{
    for (size_t i = 0; i < job->count; i++) {
        free(job->lines[i].text);
        free(job->lines[i].ids);
        free(job->lines[i].translation.ids);
    }
    job->count = 0;
}

/* Adds the line read last: its text, and its ids with </s>; an empty one has none. */
static attn_status add_line(struct job *job, cli_lines *lines, attn_error *error)
{
    translate_line *const line = &job->lines[job->count];
    *line = (translate_line){.number = lines->number};
    line->length = lines->length;
    attn_token *tokens;
    size_t count;
    ATTN_TRY(attn_tokenizer_encode(job->model.tokenizer, lines->line, line->length,
                                   &tokens, &count, error));
    attn_status status =
        attn_tokens_fit(lines->place, count, job->model.seq2seq.max_positions - 1, error);
    if (status == ATTN_OK) {
        line->text = strdup(lines->line);
        line->ids = malloc((count + 1) * sizeof *line->ids);
        if (!line->text || !line->ids)
            status = attn_error_set(error, ATTN_ENOMEM, "no memory for a line");
        job->count++; /* what was allocated goes with the batch */
    }
    if (status == ATTN_OK && count > 0) {
        for (size_t i = 0; i < count; i++)
            line->ids[i] = tokens[i].id;
        line->ids[count] = ATTN_TOKEN_EOS;
        line->count = count + 1;
    }
    free(tokens);
    return status;
}

/* ---- Translating ----------------------------------------------------------------- */

static attn_status translate_share(struct job *job, attn_context *context,
                                   translate_line *const *lines, size_t count,
                                   attn_error *error)
{
    int64_t starts[THREAD_LINES + 1] = {0};
    attn_translation written[THREAD_LINES] = {{0}};
    for (size_t i = 0; i < count; i++)
        starts[i + 1] = starts[i] + (int64_t)lines[i]->count;
    int32_t *const source = malloc((size_t)starts[count] * sizeof *source);
    if (!source)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to translate %zu lines",
                              count);
    for (size_t i = 0; i < count; i++)
        memcpy(source + starts[i], lines[i]->ids, lines[i]->count * sizeof *source);
    const attn_status status = attn_seq2seq_translate(
        &job->model.seq2seq, context, source, (attn_packing){(int64_t)count, starts},
        &job->search, written, error);
    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        lines[i]->translation = written[i];
    free(source);
    return status;
}

/* Thread t takes lines t, t + threads, …: long lines are likely to stand together. */
static void translate_worker(void *argument, size_t worker)
{
    struct job *const job = argument;
    translate_line *share[THREAD_LINES];
    size_t count = 0;
    for (size_t i = worker; i < job->count; i += (size_t)job->threads)
        if (job->lines[i].count > 0)
            share[count++] = &job->lines[i];
    job->errors[worker].status = ATTN_OK;
    if (count > 0)
        (void)!translate_share(job, job->contexts[worker], share, count,
                               &job->errors[worker]);
}

static attn_status print_line(struct job *job, const translate_line *line,
                              attn_error *error)
{
    char *text = NULL;
    if (job->json)
        ATTN_TRY(translate_line_json(&job->model, job->contexts[0], line, &text, error));
    else
        ATTN_TRY(attn_tokenizer_decode(job->model.tokenizer, line->translation.ids,
                                       line->translation.count, &text, error));
    const bool written = job->json
                             ? cli_print_json(text)
                             : cli_print(text, strlen(text)) && putchar('\n') != EOF;
    free(text);
    return written ? ATTN_OK
                   : attn_error_set(error, ATTN_EIO, "cannot write standard output: %s",
                                    strerror(errno));
}

static attn_status finish_batch(struct job *job, attn_error *error)
{
    pthreadpool_parallelize_1d(job->pool, translate_worker, job, (size_t)job->threads, 0);
    attn_status status = ATTN_OK;
    for (int64_t t = 0; t < job->threads && status == ATTN_OK; t++)
        if ((status = job->errors[t].status) != ATTN_OK)
            *error = job->errors[t];
    for (size_t i = 0; i < job->count && status == ATTN_OK; i++)
        status = print_line(job, &job->lines[i], error);
    empty_batch(job);
    if (status == ATTN_OK && fflush(stdout) != 0)
        status = attn_error_set(error, ATTN_EIO, "cannot write standard output: %s",
                                strerror(errno));
    return status;
}

/* A person who types wants each line at once. */
static bool is_typed(const cli_lines *lines)
{
    return lines->stream == stdin && isatty(STDIN_FILENO);
}

static attn_status translate_lines(struct job *job, cli_lines *lines, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (bool more = true; more && status == ATTN_OK;) {
        attn_error later;
        status = cli_lines_next(lines, &more, &later);
        if (status == ATTN_OK && more)
            status = add_line(job, lines, &later);
        const bool full = job->count == job->capacity || is_typed(lines);
        if (status == ATTN_OK && more && !full)
            continue;
        ATTN_TRY(finish_batch(job, error)); /* also before a line that failed */
        if (status != ATTN_OK)
            *error = later;
    }
    return status;
}

/* ---- Setting up ------------------------------------------------------------------ */

static attn_status start(struct job *job, const char *name, attn_error *error)
{
    char folder[ATTN_PATH_BYTES];
    ATTN_TRY(cli_find_model(name, folder, error));
    ATTN_TRY(cli_model_load(&job->model, "translate", folder, error));
    job->capacity = (size_t)job->threads * THREAD_LINES;
    ATTN_TRY(attn_pool_create(&job->pool, (size_t)job->threads, error));
    job->contexts = calloc((size_t)job->threads, sizeof *job->contexts);
    job->errors = calloc((size_t)job->threads, sizeof *job->errors);
    job->lines = calloc(job->capacity, sizeof *job->lines);
    if (!job->contexts || !job->errors || !job->lines)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %lld threads",
                              (long long)job->threads);
    for (int64_t t = 0; t < job->threads; t++)
        ATTN_TRY(attn_context_open(&job->contexts[t], NULL, error));
    return ATTN_OK;
}

static void stop(struct job *job)
{
    empty_batch(job);
    for (int64_t t = 0; job->contexts && t < job->threads; t++)
        attn_context_destroy(job->contexts[t]);
    free(job->contexts);
    free(job->errors);
    free(job->lines);
    pthreadpool_destroy(job->pool);
    cli_model_free(&job->model);
}

int cli_translate(int argc, char **argv)
{
    struct job job = {0};
    const char *model = "translate-en-fr";
    const cli_option options[] = {
        {"model", .value = &model},
        {"beam", .integer = &job.search.beams, .low = 1, .high = ATTN_MOST_BEAMS},
        {"length-power", .decimal = &job.search.length_power, .least = 0.0, .most = 10.0},
        {"threads", .threads = &job.threads},
        {"json", .flag = &job.json},
        {0},
    };
    attn_error error;
    int count, code;
    attn_search_options_init(&job.search);
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    attn_status status = start(&job, model, &error);
    if (status == ATTN_OK) {
        cli_lines lines;
        cli_lines_open(&lines, "translate", argv + 1, count);
        status = translate_lines(&job, &lines, &error);
        cli_lines_close(&lines);
    }
    stop(&job);
    return status == ATTN_OK ? CLI_DONE : cli_fail("translate", &error);
}

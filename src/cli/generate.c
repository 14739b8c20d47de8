/* attn generate: a prompt in, and the text that a language model goes on with, as it is
 * written. */
#include "base/context.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "model/folder.h"
#include "model/language_run.h"
#include "model/sampling.h"
#include "text/stream.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: attn generate MODEL [PROMPT | FILE] [options]\n"
    "\n"
    "Writes a prompt (- is standard input; none: from the beginning) and goes on with\n"
    "it, until the model ends the text.  A text longer than the model's positions is\n"
    "refused, but with --window.\n"
    "\n"
    "  --tokens N          most tokens to write (default 100, if positions allow)\n"
    "  --temperature T     default 0: always the most likely token\n"
    "  --top-k K           draw from the K most likely only\n"
    "  --top-p P           from the fewest that have probability P together\n"
    "  --min-p P           from those with P times the largest's, or more\n"
    "  --repetition-penalty R   above 1: what was there is less likely\n"
    "  --seed N            of the draws (default 1)\n"
    "  --cache TYPE        keys and values kept as fp32 (default), bf16, fp16 or int8\n"
    "  --window N          a text without end: the last N tokens are seen,\n"
    "  --sinks N           and the first N (default 4)\n"
    "  --heavy N           and the N others that were looked at most (default 0)\n"
    "  --threads N         default: all processors; changes no result\n"
    "  --json              one object: text, ids, finished, log_probability, seconds\n"
    "\n"
    "example: attn generate language-en 'Tom said' --temperature 0.8 --seed 3\n";

enum { USUAL_TOKENS = 100, USUAL_SINKS = 4, MOST_TOKENS = 1 << 30 };

struct job {
    char folder[ATTN_PATH_BYTES];
    attn_language *language;
    attn_tokenizer *tokenizer;
    cli_context context;
    attn_tape *tape;
    attn_language_run *run;
    attn_language_run_options run_options;
    attn_sampling_options sampling;
    int32_t never[3];
    int64_t tokens; /* to write, at most; 0: as usual */
    int64_t threads;
    bool json;

    char *prompt; /* NUL-ended */
    size_t prompt_length;
    int32_t *ids; /* read, then written */
    size_t read, count;
    attn_candidate *candidates; /* [vocabulary] */

    attn_text_stream stream;
    char *text; /* that was written */
    size_t text_length;
    double log_probability, read_seconds, write_seconds;
    bool finished; /* </s> was written */
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- The prompt ------------------------------------------------------------------ */

/* How many tokens may be written: what follows the last position needs none itself. */
static attn_status settle_tokens(struct job *job, attn_error *error)
{
    const attn_language_config *const config = attn_language_config_of(job->language);
    const bool endless =
        config->body == ATTN_LANGUAGE_LSTM || job->run_options.window > 0;
    const int64_t room = config->max_positions - (int64_t)job->read + 1;
    const int64_t wanted = job->tokens > 0 ? job->tokens : 1;
    if (!endless && wanted > room)
        return attn_error_set(
            error, ATTN_EFORMAT,
            "a prompt of %zu token%s and %" PRId64 " to write, the model has positions "
            "for %" PRId64 "%s",
            job->read, attn_s((int64_t)job->read), wanted, config->max_positions,
            config->linear_attention ? "" : "; --window N goes on without end");
    if (job->tokens == 0)
        job->tokens = endless || room > USUAL_TOKENS ? USUAL_TOKENS : room;
    return ATTN_OK;
}

static attn_status encode_prompt(struct job *job, attn_error *error)
{
    const int64_t bos = attn_language_config_of(job->language)->bos;
    attn_token *tokens;
    size_t count;
    ATTN_TRY(attn_tokenizer_encode(job->tokenizer, job->prompt, job->prompt_length,
                                   &tokens, &count, error));
    job->ids = malloc((count + 1) * sizeof *job->ids);
    if (job->ids) {
        if (bos >= 0)
            job->ids[job->read++] = (int32_t)bos;
        for (size_t i = 0; i < count; i++)
            job->ids[job->read++] = tokens[i].id;
    }
    free(tokens);
    if (!job->ids)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the prompt");
    if (job->read == 0)
        return attn_error_set(error, ATTN_EFORMAT,
                              "an empty prompt, and the model has no <s> to begin with; "
                              "expected a prompt");
    ATTN_TRY(settle_tokens(job, error));
    job->count = job->read;
    int32_t *const longer =
        realloc(job->ids, (job->read + (size_t)job->tokens) * sizeof *job->ids);
    if (!longer)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %" PRId64 " tokens",
                              job->tokens);
    job->ids = longer;
    return ATTN_OK;
}

/* ---- Writing --------------------------------------------------------------------- */

static attn_status print(const struct job *job, const char *text, size_t length,
                         attn_error *error)
{
    if (job->json || (cli_print(text, length) && fflush(stdout) == 0))
        return ATTN_OK;
    return attn_error_set(error, ATTN_EIO, "cannot write standard output: %s",
                          strerror(errno));
}

/* Prints what has become whole. */
static attn_status write_token(struct job *job, int32_t id, attn_error *error)
{
    const char *bytes;
    size_t length;
    bool special;
    const size_t before = job->text_length;
    ATTN_TRY(attn_tokenizer_bytes(job->tokenizer, id, &bytes, &length, &special, error));
    if (special)
        return ATTN_OK;
    ATTN_TRY(attn_text_stream_put(&job->stream, bytes, length, &job->text,
                                  &job->text_length, error));
    return print(job, job->text + before, job->text_length - before, error);
}

static attn_status finish_text(struct job *job, attn_error *error)
{
    const size_t before = job->text_length;
    ATTN_TRY(attn_text_stream_end(&job->stream, &job->text, &job->text_length, error));
    ATTN_TRY(print(job, job->text + before, job->text_length - before, error));
    return print(job, "\n", 1, error);
}

/* ln of the probability that the model itself gives the token. */
static double log_probability(const float *logits, int64_t vocabulary, int32_t id)
{
    double largest = -(double)INFINITY, sum = 0.0;
    for (int64_t i = 0; i < vocabulary; i++)
        largest = fmax(largest, (double)logits[i]);
    for (int64_t i = 0; i < vocabulary; i++)
        sum += exp((double)logits[i] - largest);
    return (double)logits[id] - largest - log(sum);
}

static attn_status choose(struct job *job, const float *logits, uint64_t draw,
                          int32_t *id, attn_error *error)
{
    const int64_t vocabulary = attn_language_config_of(job->language)->vocabulary;
    size_t left;
    ATTN_TRY(attn_sampling_candidates(
        &job->sampling, logits, vocabulary, job->ids, job->count,
        attn_sampling_point(job->sampling.seed, draw), job->candidates, &left, error));
    *id = job->candidates[left - 1].id;
    job->log_probability += log_probability(logits, vocabulary, *id);
    return ATTN_OK;
}

static attn_status write_text(struct job *job, attn_error *error)
{
    const int64_t eos = attn_language_config_of(job->language)->eos;
    const float *logits;
    double start = seconds();
    ATTN_TRY(print(job, job->prompt, job->prompt_length, error));
    ATTN_TRY(
        attn_language_run_read(job->run, job->ids, (int64_t)job->read, &logits, error));
    job->read_seconds = seconds() - start;
    start = seconds();
    for (int64_t n = 0; n < job->tokens; n++) {
        int32_t id;
        if (n > 0)
            ATTN_TRY(attn_language_run_read(job->run, &job->ids[job->count - 1], 1,
                                            &logits, error));
        ATTN_TRY(choose(job, logits, (uint64_t)n, &id, error));
        job->finished = id == eos;
        if (job->finished)
            break;
        job->ids[job->count++] = id;
        ATTN_TRY(write_token(job, id, error));
    }
    job->write_seconds = seconds() - start;
    return finish_text(job, error);
}

static attn_status print_json(const struct job *job, attn_error *error)
{
    json_t *const ids = json_array();
    for (size_t i = job->read; ids && i < job->count; i++)
        json_array_append_new(ids, json_integer(job->ids[i]));
    json_t *const document = json_pack(
        "{s:s, s:s, s:o, s:b, s:I, s:f, s:f, s:f}", "prompt", job->prompt, "text",
        job->text ? job->text : "", "ids", ids, "finished", job->finished,
        "prompt_tokens", (json_int_t)job->read, "log_probability", job->log_probability,
        "prompt_seconds", job->read_seconds, "seconds", job->write_seconds);
    char *const text = document ? json_dumps(document, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(document);
    if (!text)
        return attn_error_set(error, ATTN_EFORMAT,
                              "the text has no JSON: a byte 0 in it, or no memory");
    cli_print_json(text);
    free(text);
    return ATTN_OK;
}

/* ---- Setting up ------------------------------------------------------------------ */

static attn_status start(struct job *job, const char *model, const char *prompt,
                         attn_error *error)
{
    ATTN_TRY(cli_find_model(model, job->folder, error));
    ATTN_TRY(attn_language_load(&job->language, job->folder, error));
    cli_note("generate", attn_language_note(job->language));
    const attn_language_config *const config = attn_language_config_of(job->language);
    ATTN_TRY(attn_folder_tokenizer_load(&job->tokenizer, job->folder, config->vocabulary,
                                        error));
    ATTN_TRY(cli_context_create(&job->context, (size_t)job->threads, error));
    job->candidates = malloc((size_t)config->vocabulary * sizeof *job->candidates);
    if (!job->candidates ||
        attn_tape_create(&job->tape, job->context.attention) != ATTN_OK)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to generate");
    static const int32_t specials[] = {ATTN_TOKEN_BOS, ATTN_TOKEN_PAD, ATTN_TOKEN_UNK};
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++)
        if (specials[i] != config->eos)
            job->never[job->sampling.never_count++] = specials[i];
    job->sampling.never = job->never;
    ATTN_TRY(attn_language_run_create(&job->run, job->language, job->tape,
                                      &job->run_options, error));
    ATTN_TRY(cli_read_text(prompt, "generate MODEL", &job->prompt, &job->prompt_length,
                           error));
    return encode_prompt(job, error);
}

static void stop(struct job *job)
{
    attn_language_run_destroy(job->run);
    attn_tape_destroy(job->tape);
    cli_context_destroy(&job->context);
    attn_tokenizer_destroy(job->tokenizer);
    attn_language_destroy(job->language);
    free(job->candidates);
    free(job->prompt);
    free(job->ids);
    free(job->text);
}

static int read_cache(const char *name, attn_cache_type *type)
{
    static const struct {
        const char *name;
        attn_cache_type type;
    } types[] = {{"fp32", ATTN_CACHE_F32},
                 {"bf16", ATTN_CACHE_BF16},
                 {"fp16", ATTN_CACHE_F16},
                 {"int8", ATTN_CACHE_I8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(name, types[i].name) == 0) {
            *type = types[i].type;
            return CLI_DONE;
        }
    return cli_misused("generate", "--cache is '%s', expected fp32, bf16, fp16 or int8",
                       name);
}

/* What goes with a window; below 0: not given. */
static int read_window(attn_language_run_options *options, int64_t sinks, int64_t heavy)
{
    if ((sinks >= 0 || heavy >= 0) && options->window == 0)
        return cli_misused("generate", "--%s goes with --window",
                           sinks >= 0 ? "sinks" : "heavy");
    options->sinks = sinks >= 0 ? sinks : options->window > 0 ? USUAL_SINKS : 0;
    options->heavy = heavy >= 0 ? heavy : 0;
    return CLI_DONE;
}

int cli_generate(int argc, char **argv)
{
    struct job job = {0};
    attn_sampling_options *const sampling = &job.sampling;
    int64_t seed = 1, sinks = -1, heavy = -1;
    const char *cache = "fp32";
    const cli_option options[] = {
        {"tokens", .integer = &job.tokens, .low = 1, .high = MOST_TOKENS},
        {"temperature", .decimal = &sampling->temperature, .least = 0.0, .most = 1e6},
        {"top-k", .integer = &sampling->top_k, .low = 1, .high = INT64_C(1) << 53},
        {"top-p", .decimal = &sampling->top_p, .least = 1e-9, .most = 1.0},
        {"min-p", .decimal = &sampling->min_p, .least = 0.0, .most = 1.0},
        {"repetition-penalty", .decimal = &sampling->repetition_penalty, .least = 1e-6,
         .most = 1e6},
        {"seed", .integer = &seed, .low = 0, .high = INT64_MAX},
        {"cache", .value = &cache},
        {"window", .integer = &job.run_options.window, .low = 1, .high = MOST_TOKENS},
        {"sinks", .integer = &sinks, .low = 0, .high = MOST_TOKENS},
        {"heavy", .integer = &heavy, .low = 0, .high = MOST_TOKENS},
        {"threads", .threads = &job.threads},
        {"json", .flag = &job.json},
        {0},
    };
    attn_error error;
    int count, code;
    attn_sampling_options_init(sampling);
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count < 1 || count > 2)
        return cli_misused("generate", "expected a model and a prompt, got %d arguments",
                           count);
    sampling->seed = (uint64_t)seed;
    code = read_cache(cache, &job.run_options.cache);
    if (code == CLI_DONE)
        code = read_window(&job.run_options, sinks, heavy);
    if (code != CLI_DONE)
        return code;
    attn_status status = start(&job, argv[1], count > 1 ? argv[2] : "", &error);
    if (status == ATTN_OK)
        status = write_text(&job, &error);
    if (status == ATTN_OK && job.json)
        status = print_json(&job, &error);
    stop(&job);
    return status == ATTN_OK ? CLI_DONE : cli_fail("generate", &error);
}

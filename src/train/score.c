/* Scores a translator. */
#include "train/score.h"
#include "base/context.h"
#include "train/pairs.h"
#include "train/pairs_task.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Source tokens translated together: enough for whole matrix products, and little enough
 * that the threads end at about the same time. */
enum { CHUNK_TOKENS = 512 };

/* Target tokens whose loss is computed together. */
enum { LOSS_TOKENS = 4000, LOSS_SHARDS = 2 };

struct line {
    size_t number;
    int32_t *ids; /* with </s> */
    size_t length;
};

struct chunk {
    size_t first, end; /* of the sorted lines */
};

struct work {
    attn_translations *translations;
    const attn_seq2seq *model;
    const attn_tokenizer *tokenizer;
    const attn_search_options *search;
    struct line *lines;
    struct chunk *chunks;
    size_t line_count, chunk_count;
    atomic_size_t next;
    atomic_bool failed;
    struct result *results; /* [threads] */
};

struct result {
    attn_error error;
    int64_t tokens, unfinished;
};

attn_status attn_score_loss(const attn_seq2seq *model, const attn_tokenizer *tokenizer,
                            const attn_corpus *corpus, size_t lines, pthreadpool_t pool,
                            attn_batch_loss *loss, size_t *left_out, attn_error *error)
{
    static const attn_task_kind kind = {.loss = attn_pairs_task_loss};
    attn_pairs_state state = {.model = *model};
    attn_task task = {.kind = &kind, .parameters = model->parameters, .state = &state};
    attn_shards shards = {0};
    attn_corpus part = *corpus;
    part.lines = lines;
    attn_status status =
        attn_pairs_examples(&task.valid, &part, tokenizer, model->max_positions, error);
    if (status == ATTN_OK)
        status = attn_shards_create(&shards, LOSS_SHARDS, 0, pool, error);
    if (status == ATTN_OK) {
        *left_out = ((const attn_pairs *)task.valid.data)->left_out;
        status = attn_shards_measure_all(&shards, &task, LOSS_TOKENS, loss, error);
    }
    attn_shards_free(&shards);
    attn_pairs_examples_free(&task.valid);
    free(task.valid.sizes);
    return status;
}

static int by_length(const void *a, const void *b)
{
    const struct line *const left = a, *const right = b;
    if (left->length != right->length)
        return left->length < right->length ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

static attn_status encode_line(struct line *line, size_t number, const char *text,
                               const struct work *work, attn_error *error)
{
    attn_token *tokens;
    size_t count;
    ATTN_TRY(attn_tokenizer_encode(work->tokenizer, text, strlen(text), &tokens, &count,
                                   error));
    char place[32];
    snprintf(place, sizeof place, "line %zu", number + 1);
    const attn_status status =
        attn_tokens_fit(place, count, work->model->max_positions - 1, error);
    if (status != ATTN_OK) {
        free(tokens);
        return status;
    }
    *line = (struct line){number, malloc((count + 1) * sizeof *line->ids), count + 1};
    for (size_t n = 0; line->ids && n < count; n++)
        line->ids[n] = tokens[n].id;
    if (line->ids)
        line->ids[count] = ATTN_TOKEN_EOS;
    free(tokens);
    return line->ids ? ATTN_OK : attn_error_set(error, ATTN_ENOMEM, "out of memory");
}

attn_status attn_score_check(const attn_seq2seq *model, const attn_tokenizer *tokenizer,
                             const attn_corpus *corpus, attn_error *error)
{
    const struct work work = {.model = model, .tokenizer = tokenizer};
    for (size_t n = 0; n < corpus->lines; n++) {
        struct line line;
        ATTN_TRY(
            encode_line(&line, n, corpus->fields[corpus->first_field[n]], &work, error));
        free(line.ids);
    }
    return ATTN_OK;
}

static void cut_chunks(struct work *work)
{
    for (size_t first = 0; first < work->line_count;) {
        size_t end = first, tokens = 0;
        do
            tokens += work->lines[end++].length;
        while (end < work->line_count && tokens < CHUNK_TOKENS);
        work->chunks[work->chunk_count++] = (struct chunk){first, end};
        first = end;
    }
}

/* Turns what was written into text, line by line. */
static attn_status keep_texts(const struct work *work, const struct chunk *chunk,
                              attn_translation *written, struct result *result)
{
    attn_status status = ATTN_OK;
    for (size_t n = chunk->first; n < chunk->end; n++) {
        const attn_translation *const translation = &written[n - chunk->first];
        if (status == ATTN_OK)
            status = attn_tokenizer_decode(
                work->tokenizer, translation->ids, translation->count,
                &work->translations->texts[work->lines[n].number], &result->error);
        result->tokens += (int64_t)translation->count + translation->finished;
        result->unfinished += !translation->finished;
        free(translation->ids);
    }
    return status;
}

static attn_status translate_chunk(const struct work *work, const struct chunk *chunk,
                                   attn_context *context, struct result *result)
{
    const size_t count = chunk->end - chunk->first;
    size_t tokens = 0;
    for (size_t n = chunk->first; n < chunk->end; n++)
        tokens += work->lines[n].length;
    int32_t *const source = malloc(tokens * sizeof *source);
    int64_t *const starts = calloc(count + 1, sizeof *starts);
    attn_translation *const written = calloc(count, sizeof *written);
    attn_status status = ATTN_OK;
    if (!source || !starts || !written)
        status = attn_error_set(&result->error, ATTN_ENOMEM, "out of memory");
    for (size_t n = 0; n < count && status == ATTN_OK; n++) {
        const struct line *const line = &work->lines[chunk->first + n];
        memcpy(source + starts[n], line->ids, line->length * sizeof *source);
        starts[n + 1] = starts[n] + (int64_t)line->length;
    }
    if (status == ATTN_OK)
        status = attn_seq2seq_translate(work->model, context, source,
                                        (attn_packing){(int64_t)count, starts},
                                        work->search, written, &result->error);
    if (status == ATTN_OK)
        status = keep_texts(work, chunk, written, result);
    free(source);
    free(starts);
    free(written);
    return status;
}

/* Each thread takes the next chunk, the longest first. */
static void translate_chunks(void *argument, size_t worker)
{
    struct work *const work = argument;
    struct result *const result = &work->results[worker];
    attn_context *context;
    attn_status status = attn_context_open(&context, NULL, &result->error);
    while (status == ATTN_OK && !atomic_load(&work->failed)) {
        const size_t turn = atomic_fetch_add(&work->next, 1);
        if (turn >= work->chunk_count)
            break;
        const struct chunk *const chunk = &work->chunks[work->chunk_count - 1 - turn];
        status = translate_chunk(work, chunk, context, result);
    }
    result->error.status = status;
    if (status != ATTN_OK)
        atomic_store(&work->failed, true);
    attn_context_destroy(context);
}

static attn_status translate(struct work *work, pthreadpool_t pool, size_t threads,
                             attn_error *error)
{
    qsort(work->lines, work->line_count, sizeof *work->lines, by_length);
    cut_chunks(work);
    atomic_init(&work->next, 0);
    atomic_init(&work->failed, false);
    pthreadpool_parallelize_1d(pool, translate_chunks, work, threads, 0);
    for (size_t t = 0; t < threads; t++) {
        work->translations->tokens += work->results[t].tokens;
        work->translations->unfinished += work->results[t].unfinished;
        if (work->results[t].error.status != ATTN_OK) {
            *error = work->results[t].error;
            return error->status;
        }
    }
    return ATTN_OK;
}

attn_status attn_score_translate(attn_translations *translations,
                                 const attn_seq2seq *model,
                                 const attn_tokenizer *tokenizer,
                                 const attn_corpus *corpus, size_t lines,
                                 const attn_search_options *search, pthreadpool_t pool,
                                 size_t threads, attn_error *error)
{
    *translations =
        (attn_translations){.texts = calloc(lines + 1, sizeof(char *)), .lines = lines};
    struct work work = {
        .translations = translations,
        .model = model,
        .tokenizer = tokenizer,
        .search = search,
        .lines = calloc(lines + 1, sizeof *work.lines),
        .chunks = calloc(lines + 1, sizeof *work.chunks),
        .results = calloc(threads, sizeof *work.results),
    };
    attn_status status = ATTN_OK;
    if (!translations->texts || !work.lines || !work.chunks || !work.results)
        status = attn_error_set(error, ATTN_ENOMEM, "out of memory for %zu lines", lines);
    for (size_t n = 0; n < lines && status == ATTN_OK; n++) {
        status = encode_line(&work.lines[n], n, corpus->fields[corpus->first_field[n]],
                             &work, error);
        work.line_count += status == ATTN_OK;
    }
    if (status == ATTN_OK)
        status = translate(&work, pool, threads, error);
    for (size_t n = 0; n < work.line_count; n++)
        free(work.lines[n].ids);
    free(work.lines);
    free(work.chunks);
    free(work.results);
    if (status != ATTN_OK)
        attn_translations_free(translations);
    return status;
}

void attn_translations_free(attn_translations *translations)
{
    for (size_t n = 0; translations->texts && n < translations->lines; n++)
        free(translations->texts[n]);
    free(translations->texts);
    *translations = (attn_translations){0};
}

attn_status attn_score_bleu(const attn_translations *translations,
                            const attn_corpus *corpus, attn_bleu_words words,
                            attn_bleu *bleu, attn_error *error)
{
    *bleu = (attn_bleu){.words = words};
    for (size_t n = 0; n < translations->lines; n++) {
        const size_t first = corpus->first_field[n] + 1;
        ATTN_TRY(attn_bleu_add(bleu, translations->texts[n], corpus->fields + first,
                               corpus->first_field[n + 1] - first, error));
    }
    return ATTN_OK;
}

/* The longest sentence of each, in words. */
static const struct {
    const char *name;
    size_t most;
} LENGTHS[ATTN_LENGTH_SCORES] = {
    {"1-5", 5},    {"6-10", 10},  {"11-15", 15}, {"16-20", 20},      {"21-25", 25},
    {"26-30", 30}, {"31-40", 40}, {"41-50", 50}, {"more", SIZE_MAX},
};

static size_t count_words(const char *text)
{
    size_t words = 0;
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        words++;
        text += strcspn(text, " ");
    }
    return words;
}

attn_status attn_score_by_length(const attn_translations *translations,
                                 const attn_corpus *corpus, attn_bleu_words words,
                                 attn_length_score scores[ATTN_LENGTH_SCORES],
                                 attn_error *error)
{
    for (size_t n = 0; n < ATTN_LENGTH_SCORES; n++)
        scores[n] = (attn_length_score){.name = LENGTHS[n].name, .bleu.words = words};
    for (size_t n = 0; n < translations->lines; n++) {
        const size_t first = corpus->first_field[n];
        const size_t length = count_words(corpus->fields[first]);
        attn_length_score *score = scores;
        while (length > LENGTHS[score - scores].most)
            score++;
        ATTN_TRY(attn_bleu_add(&score->bleu, translations->texts[n],
                               corpus->fields + first + 1,
                               corpus->first_field[n + 1] - first - 1, error));
        score->sentences++;
    }
    return ATTN_OK;
}

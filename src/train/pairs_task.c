/* Kinds of translators: what they have in common. */
#include "train/pairs_task.h"
#include "base/context.h"
#include "file/safetensors.h"
#include "model/folder.h"
#include "train/learn.h"
#include "train/pairs.h"
#include "train/progress.h"
#include "train/score.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Data ------------------------------------------------------------------------ */

attn_status attn_pairs_corpus_load(attn_corpus *corpus, const char *path,
                                   const attn_pairs_settings *settings, attn_error *error)
{
    ATTN_TRY(attn_corpus_load(corpus, path, 2, error));
    attn_status status = ATTN_OK;
    if (corpus->lines == 0)
        status = attn_error_set(error, ATTN_EFORMAT,
                                "%s: no lines, expected a sentence pair at least", path);
    if (settings && settings->swap)
        attn_corpus_swap(corpus);
    if (status == ATTN_OK && settings && settings->lower_case)
        status = attn_corpus_lower_case(corpus, error);
    if (status != ATTN_OK)
        attn_corpus_free(corpus);
    return status;
}

attn_bleu_words attn_pairs_words(const attn_corpus *corpus, size_t lines,
                                 const attn_pairs_settings *settings)
{
    size_t chinese = 0;
    if (settings && settings->bleu >= 0)
        return (attn_bleu_words)settings->bleu;
    for (size_t n = 0; n < lines; n++) {
        const size_t first = corpus->first_field[n] + 1;
        chinese += attn_bleu_words_of(corpus->fields + first,
                                      corpus->first_field[n + 1] - first) == ATTN_BLEU_ZH;
    }
    return 2 * chinese > lines ? ATTN_BLEU_ZH : ATTN_BLEU_13A;
}

static attn_status encode(const attn_task *task, attn_examples *examples,
                          const attn_corpus *corpus, const char *path, int64_t positions,
                          attn_error *error)
{
    const attn_pairs_state *const state = task->state;
    attn_error inner;
    attn_status status =
        attn_pairs_examples(examples, corpus, state->tokenizer, positions, &inner);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "%s: %s", path, inner.message);
    const attn_pairs *const pairs = examples->data;
    attn_progress_say(task->progress,
                      "%s: %zu pair%s, %lld source and %lld target tokens", path,
                      pairs->count, attn_s((int64_t)pairs->count),
                      (long long)pairs->source_tokens, (long long)pairs->target_tokens);
    if (pairs->left_out > 0)
        attn_progress_say(task->progress,
                          "%s: %zu pair%s with a side of more than %lld tokens, left "
                          "out; the first is in "
                          "line %zu",
                          path, pairs->left_out, attn_s((int64_t)pairs->left_out),
                          (long long)positions, pairs->first_left_out + 1);
    return ATTN_OK;
}

/* A model of small letters makes them of what it is given, wherever it is used. */
static attn_status keep_case(const attn_task *task, attn_error *error)
{
    attn_pairs_state *const state = task->state;
    const attn_pairs_settings *const settings = task->recipe->settings;
    if (!settings->lower_case || attn_tokenizer_lowers(state->tokenizer))
        return ATTN_OK;
    attn_tokenizer_lower_case(state->tokenizer);
    return attn_folder_tokenizer_save(state->tokenizer, task->options->out, error);
}

attn_status attn_pairs_task_prepare(attn_task *task, int64_t vocabulary,
                                    int64_t max_positions, bool goes_on,
                                    attn_error *error)
{
    const attn_train_options *const options = task->options;
    attn_corpus corpus;
    task->state = calloc(1, sizeof(attn_pairs_state));
    if (!task->state)
        return attn_error_set(error, ATTN_ENOMEM, "out of memory for a translator");
    ATTN_TRY(
        attn_pairs_corpus_load(&corpus, options->train, task->recipe->settings, error));
    attn_pairs_state *const state = task->state;
    attn_status status = attn_learn_tokenizer(&state->tokenizer, task, corpus.fields,
                                              corpus.first_field[corpus.lines],
                                              vocabulary, goes_on, error);
    if (status == ATTN_OK)
        status = keep_case(task, error);
    if (status == ATTN_OK)
        status =
            encode(task, &task->train, &corpus, options->train, max_positions, error);
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return status;
    ATTN_TRY(
        attn_pairs_corpus_load(&corpus, options->valid, task->recipe->settings, error));
    status = encode(task, &task->valid, &corpus, options->valid, max_positions, error);
    attn_corpus_free(&corpus);
    return status;
}

static void free_state(attn_pairs_state *state)
{
    if (state->model.kind)
        state->model.kind->destroy(state->model.model);
    attn_tokenizer_destroy(state->tokenizer);
}

void attn_pairs_task_free(attn_task *task)
{
    attn_pairs_examples_free(&task->train);
    attn_pairs_examples_free(&task->valid);
    if (task->state)
        free_state(task->state);
    free(task->state);
}

/* ---- Loss ------------------------------------------------------------------------ */

attn_tensor *attn_pairs_task_loss(const attn_task *task, const attn_pass *pass,
                                  const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const attn_seq2seq *const model = &((const attn_pairs_state *)task->state)->model;
    attn_pair_batch pairs;
    if (!attn_pairs_pack(&pairs, pass->tape, batch))
        return NULL;
    return model->kind->loss(model->model, pass, &pairs, batch->smoothing, batch->divisor,
                             &sums->plain);
}

attn_status attn_pairs_task_save(const attn_task *task, const char *folder,
                                 attn_error *error)
{
    const attn_seq2seq *const model = &((const attn_pairs_state *)task->state)->model;
    return model->kind->save(model->model, folder, ATTN_DTYPE_BF16, error);
}

/* ---- Scores ---------------------------------------------------------------------- */

struct scores {
    attn_bleu bleu;
    attn_length_score lengths[ATTN_LENGTH_SCORES];
    size_t sentences;
};

static attn_status put_scores(const struct scores *result,
                              const attn_search_options *search, json_t *scores,
                              attn_error *error)
{
    json_t *const lengths = json_array();
    bool put = lengths != NULL;
    for (size_t n = 0; n < ATTN_LENGTH_SCORES; n++) {
        const attn_length_score *const length = &result->lengths[n];
        if (length->sentences == 0)
            continue;
        put =
            put && json_array_append_new(
                       lengths, json_pack("{s:s, s:I, s:f}", "source_words", length->name,
                                          "sentences", (json_int_t)length->sentences,
                                          "bleu", attn_bleu_score(&length->bleu))) == 0;
    }
    put = put &&
          json_object_set_new(scores, "bleu",
                              json_real(attn_bleu_score(&result->bleu))) == 0 &&
          json_object_set_new(scores, "sentences",
                              json_integer((json_int_t)result->sentences)) == 0 &&
          json_object_set_new(scores, "brevity",
                              json_real(attn_bleu_brevity(&result->bleu))) == 0 &&
          json_object_set_new(scores, "beams", json_integer((json_int_t)search->beams)) ==
              0 &&
          json_object_set_new(scores, "length_power", json_real(search->length_power)) ==
              0 &&
          json_object_set(scores, "by_length", lengths) == 0;
    if (result->bleu.words != ATTN_BLEU_13A)
        put = put && json_object_set_new(
                         scores, "bleu_words",
                         json_string(attn_bleu_words_names[result->bleu.words])) == 0;
    json_decref(lengths);
    return put ? ATTN_OK : attn_error_set(error, ATTN_ENOMEM, "out of memory");
}

static void say_scores(const struct scores *result, const attn_score_job *job,
                       const attn_search_options *search)
{
    char text[320];
    size_t end = 0;
    text[0] = '\0';
    const attn_bleu_words words = result->bleu.words;
    attn_progress_say(job->progress,
                      "%s: BLEU%s%s %.2f of %zu sentence%s, %lld beam%s (%s)", job->name,
                      words == ATTN_BLEU_13A ? "" : " by words of ",
                      words == ATTN_BLEU_13A ? "" : attn_bleu_words_names[words],
                      attn_bleu_score(&result->bleu), result->sentences,
                      attn_s((int64_t)result->sentences), (long long)search->beams,
                      attn_s(search->beams), job->file);
    for (size_t n = 0; n < ATTN_LENGTH_SCORES && end < sizeof text; n++) {
        const attn_length_score *const length = &result->lengths[n];
        if (length->sentences > 0)
            end += (size_t)snprintf(text + end, sizeof text - end, "%s%s: %.1f (%lld)",
                                    end > 0 ? ", " : "", length->name,
                                    attn_bleu_score(&length->bleu),
                                    (long long)length->sentences);
    }
    attn_progress_say(job->progress, "%s: BLEU by words of the source (sentences): %s",
                      job->name, text);
}

/* Beam search over a file, as it is shipped: weights rounded to bf16. */
static attn_status score_corpus(const attn_pairs_state *shipped,
                                const attn_score_job *job, const attn_corpus *corpus,
                                const attn_search_options *search, struct scores *result,
                                attn_error *error)
{
    attn_translations translations;
    ATTN_TRY(attn_score_translate(&translations, &shipped->model, shipped->tokenizer,
                                  corpus, corpus->lines, search, job->pool, job->threads,
                                  error));
    const attn_bleu_words words = attn_pairs_words(corpus, corpus->lines, job->settings);
    attn_status status =
        attn_score_bleu(&translations, corpus, words, &result->bleu, error);
    if (status == ATTN_OK)
        status =
            attn_score_by_length(&translations, corpus, words, result->lengths, error);
    attn_translations_free(&translations);
    result->sentences = corpus->lines;
    return status;
}

static attn_status score_file(const attn_pairs_state *shipped, const attn_score_job *job,
                              json_t *scores, attn_error *error)
{
    attn_corpus corpus;
    attn_search_options search;
    struct scores result;
    attn_error inner;
    attn_search_options_init(&search);
    ATTN_TRY(attn_pairs_corpus_load(&corpus, job->file, job->settings, error));
    const attn_status status =
        score_corpus(shipped, job, &corpus, &search, &result, &inner);
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "%s: %s", job->file, inner.message);
    say_scores(&result, job, &search);
    return put_scores(&result, &search, scores, error);
}

attn_status attn_pairs_task_check(const attn_task *task, const char *file,
                                  attn_error *error)
{
    const attn_pairs_state *const state = task->state;
    attn_corpus corpus;
    attn_error inner;
    ATTN_TRY(attn_pairs_corpus_load(&corpus, file, task->recipe->settings, error));
    const attn_status status =
        attn_score_check(&state->model, state->tokenizer, &corpus, &inner);
    attn_corpus_free(&corpus);
    return status == ATTN_OK
               ? ATTN_OK
               : attn_error_set(error, status, "%s: %s", file, inner.message);
}

attn_status attn_pairs_task_score(const attn_score_job *job, json_t *scores,
                                  attn_error *error)
{
    attn_pairs_state shipped = {0};
    attn_status status = attn_seq2seq_load(&shipped.model, job->folder, error);
    if (status == ATTN_OK)
        status = attn_folder_tokenizer_load(&shipped.tokenizer, job->folder,
                                            shipped.model.vocabulary, error);
    if (status == ATTN_OK)
        status = score_file(&shipped, job, scores, error);
    free_state(&shipped);
    return status;
}

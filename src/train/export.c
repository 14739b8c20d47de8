/* What a training leaves for use: the model's files and its scores. */
#include "base/context.h"
#include "file/file.h"
#include "file/safetensors.h"
#include "train/score.h"
#include "train/training.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void attn_training_exchange_average(struct attn_training *training)
{
    if (!training->optimiser.average)
        return;
    float *const values = training->parameters->values;
    training->parameters->values = training->optimiser.average;
    training->optimiser.average = values;
}

attn_status attn_training_export(struct attn_training *training, attn_error *error)
{
    attn_training_exchange_average(training);
    const attn_status status = attn_translator_save(
        training->translator, training->options->out, ATTN_DTYPE_BF16, error);
    attn_training_exchange_average(training);
    return status;
}

/* Beam search over a file, as it is shipped: weights rounded to bf16. */
static attn_status score_file(struct attn_training *training,
                              const attn_translator *shipped, const char *path,
                              const char *name, json_t *scores, attn_error *error)
{
    attn_corpus corpus;
    attn_translations translations;
    attn_search_options search;
    attn_bleu bleu;
    attn_search_options_init(&search);
    ATTN_TRY(attn_corpus_load(&corpus, path, 2, error));
    attn_error inner;
    attn_status status = attn_score_translate(
        &translations, shipped, training->tokenizer, &corpus, corpus.lines, &search,
        training->pool, training->options->threads, &inner);
    if (status == ATTN_OK) {
        status = attn_score_bleu(&translations, &corpus, &bleu, &inner);
        attn_translations_free(&translations);
    }
    const size_t lines = corpus.lines;
    attn_corpus_free(&corpus);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "%s: %s", path, inner.message);
    const double score = attn_bleu_score(&bleu);
    attn_progress_say(&training->progress,
                      "%s: BLEU %.2f of %zu sentences, %lld beams (%s)", name, score,
                      lines, (long long)search.beams, path);
    json_object_set_new(scores, name,
                        json_pack("{s:f, s:I, s:f, s:I, s:f}", "bleu", score, "sentences",
                                  (json_int_t)lines, "brevity", attn_bleu_brevity(&bleu),
                                  "beams", (json_int_t)search.beams, "length_power",
                                  search.length_power));
    return ATTN_OK;
}

static json_t *describe(const struct attn_training *training)
{
    const attn_position *const position = &training->position;
    const attn_valid_scores *const valid = &training->valid_scores;
    const double loss = isnan(valid->average_loss) ? valid->loss : valid->average_loss;
    return json_pack(
        "{s:I, s:f, s:I, s:f, s:f, s:f}", "steps", (json_int_t)position->step, "epochs",
        (double)position->epoch +
            (double)position->batch / (double)training->batches.count,
        "target_tokens", (json_int_t)position->target_tokens, "minutes",
        position->seconds / 60.0, "valid_loss", loss, "valid_perplexity", exp(loss));
}

attn_status attn_training_score(struct attn_training *training, attn_error *error)
{
    const attn_train_options *const options = training->options;
    attn_translator *shipped;
    ATTN_TRY(attn_translator_load(&shipped, options->out, error));
    json_t *const scores = describe(training);
    attn_status status =
        score_file(training, shipped, options->valid, "valid", scores, error);
    if (status == ATTN_OK && options->test)
        status = score_file(training, shipped, options->test, "test", scores, error);
    attn_translator_destroy(shipped);
    char *const text =
        json_dumps(scores, JSON_INDENT(2) | JSON_REAL_PRECISION(6) | JSON_PRESERVE_ORDER);
    json_decref(scores);
    if (status == ATTN_OK && !text)
        status = attn_error_set(error, ATTN_ENOMEM, "out of memory for scores.json");
    if (status == ATTN_OK) {
        char path[ATTN_FILE_BYTES];
        snprintf(path, sizeof path, "%s/scores.json", options->out);
        status = attn_file_write(path, text, strlen(text), error);
    }
    free(text);
    return status;
}

/* What a reader makes of texts, as probabilities. */
#include "base/context.h"
#include "model/reader.h"
#include <math.h>

/* Enough for whole matrix products. */
enum { RUN_TOKENS = 4096 };

int64_t attn_reader_choose(const float *probabilities, int64_t labels)
{
    int64_t at = 0;
    for (int64_t i = 1; i < labels; i++)
        if (probabilities[i] > probabilities[at])
            at = i;
    return at;
}

/* false where a logit is not finite. */
static bool softmax(const float *logits, int64_t count, float *probabilities)
{
    const double largest = (double)logits[attn_reader_choose(logits, count)];
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(logits[i]))
            return false;
        sum += exp((double)logits[i] - largest);
    }
    for (int64_t i = 0; i < count; i++)
        probabilities[i] = (float)(exp((double)logits[i] - largest) / sum);
    return true;
}

/* *rows gets how many were written. */
static attn_status predict_run(const attn_reader *reader, attn_tape *tape,
                               const attn_reader_text *texts, int64_t count,
                               float *probabilities, int64_t *rows, attn_error *error)
{
    const int64_t labels = attn_reader_config_of(reader)->labels;
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_reader_parameters((attn_reader *)reader)};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_reader_logits(reader, &pass, texts, count);
    if (!logits)
        return attn_tape_report(tape, error);
    *rows = logits->extent[0];
    for (int64_t n = 0; n < *rows; n++)
        if (!softmax(logits->data + n * labels, labels, probabilities + n * labels))
            return attn_error_set(error, ATTN_ENOTFINITE,
                                  "the model gives logits that are not finite");
    return ATTN_OK;
}

/* What is labelled in a text. */
static int64_t rows_of(const attn_reader *reader, const attn_reader_text *text)
{
    return attn_reader_config_of(reader)->tags ? text->words : 1;
}

attn_status attn_reader_predict(const attn_reader *reader, attn_context *context,
                                const attn_reader_text *texts, int64_t count,
                                float *probabilities, attn_error *error)
{
    const int64_t labels = attn_reader_config_of(reader)->labels;
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, context);
    if (status != ATTN_OK)
        return attn_error_set(error, status, "no memory for a tape");
    for (int64_t first = 0, end; first < count && status == ATTN_OK; first = end) {
        int64_t tokens = 0, expected = 0, rows = 0;
        for (end = first; end < count && (end == first || tokens < RUN_TOKENS); end++) {
            tokens += texts[end].count;
            expected += rows_of(reader, &texts[end]);
        }
        if (expected == 0)
            continue;
        status = predict_run(reader, tape, texts + first, end - first, probabilities,
                             &rows, error);
        probabilities += rows * labels;
    }
    attn_tape_destroy(tape);
    return status;
}

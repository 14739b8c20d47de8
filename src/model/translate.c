/* Sentences in, translations out: what is asked for is checked, and sentences go in
 * groups, so that memory is bounded; a step's product is at full speed well below the
 * group's rows.  The search itself lives in search.c. */
#include "model/translate.h"
#include "base/context.h"
#include "model/translator.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_ROWS = 256, TOKENS_MORE_THAN_TWICE = 10 };

/* ---- Checks ---------------------------------------------------------------------- */

static attn_status check_options(const attn_seq2seq *model,
                                 const attn_search_options *options, attn_error *error)
{
    if (options->beams < 1 || options->beams > ATTN_MOST_BEAMS)
        return attn_error_set(error, ATTN_EINVAL,
                              "attn_translate: %lld beams, expected 1 to %d",
                              (long long)options->beams, ATTN_MOST_BEAMS);
    if (!isfinite(options->length_power))
        return attn_error_set(
            error, ATTN_EINVAL,
            "attn_translate: length_power is %g, expected a finite number",
            options->length_power);
    if (options->max_length < 0 || options->max_length > model->max_positions)
        return attn_error_set(error, ATTN_EINVAL,
                              "attn_translate: max_length is %lld, expected at most the "
                              "model's %lld positions",
                              (long long)options->max_length,
                              (long long)model->max_positions);
    return ATTN_OK;
}

static attn_status check_source(const attn_seq2seq *model, const int32_t *source,
                                attn_packing packing, attn_error *error)
{
    for (int64_t s = 0; s < packing.sequences; s++) {
        const int64_t first = packing.starts[s], end = packing.starts[s + 1];
        if (end <= first)
            return attn_error_set(
                error, ATTN_EINVAL,
                "attn_translate: sentence %lld has %lld tokens, expected at "
                "least its </s>",
                (long long)s, (long long)(end - first));
        if (end - first > model->max_positions)
            return attn_error_set(
                error, ATTN_EINVAL,
                "attn_translate: sentence %lld has %lld tokens with </s>, "
                "expected at most the model's %lld positions",
                (long long)s, (long long)(end - first), (long long)model->max_positions);
        for (int64_t i = first; i < end; i++)
            if (source[i] < 0 || source[i] >= model->vocabulary)
                return attn_error_set(
                    error, ATTN_EINVAL,
                    "attn_translate: token %lld of sentence %lld is %ld, "
                    "expected 0 to %lld",
                    (long long)(i - first), (long long)s, (long)source[i],
                    (long long)model->vocabulary - 1);
    }
    return ATTN_OK;
}

/* ---- All of them ----------------------------------------------------------------- */

static int64_t length_limit(const attn_seq2seq *model, int64_t source_tokens,
                            const attn_search_options *options)
{
    const int64_t usual = 2 * source_tokens + TOKENS_MORE_THAN_TWICE;
    if (options->max_length > 0)
        return options->max_length;
    return usual < model->max_positions ? usual : model->max_positions;
}

static attn_status search_some(const attn_seq2seq *model, attn_tape *tape,
                               const int32_t *source, attn_packing packing,
                               const int64_t *limits, int64_t first,
                               const attn_search_options *options,
                               attn_translation *translations, attn_error *error)
{
    attn_decoder decoder;
    ATTN_TRY(model->kind->start(&decoder, model->model, tape, source, packing,
                                packing.sequences * options->beams, error));
    const attn_status status = attn_search(&decoder, packing.sequences, limits, options,
                                           first, translations, error);
    decoder.destroy(decoder.state);
    return status;
}

/* Sentences [first, first + count), in translations, which are all empty before. */
static attn_status translate_some(const attn_seq2seq *model, attn_tape *tape,
                                  const int32_t *source, attn_packing packing,
                                  int64_t first, int64_t count,
                                  const attn_search_options *options,
                                  attn_translation *translations, attn_error *error)
{
    const int64_t origin = packing.starts[first];
    int64_t *const starts = malloc((size_t)(2 * count + 1) * sizeof *starts);
    if (!starts)
        return attn_error_set(error, ATTN_ENOMEM, "attn_translate: no memory");
    int64_t *const limits = starts + count + 1;
    for (int64_t s = 0; s <= count; s++)
        starts[s] = packing.starts[first + s] - origin;
    for (int64_t s = 0; s < count; s++)
        limits[s] = length_limit(model, starts[s + 1] - starts[s], options);
    const attn_packing part = {count, starts};
    const attn_status status = search_some(model, tape, source + origin, part, limits,
                                           first, options, translations + first, error);
    free(starts);
    return status;
}

attn_status attn_seq2seq_translate(const attn_seq2seq *model, attn_context *context,
                                   const int32_t *source, attn_packing packing,
                                   const attn_search_options *options,
                                   attn_translation *translations, attn_error *error)
{
    const int64_t sentences = packing.sequences;
    ATTN_TRY(check_options(model, options, error));
    ATTN_TRY(check_source(model, source, packing, error));
    const int64_t at_once = options->beams > GROUP_ROWS ? 1 : GROUP_ROWS / options->beams;
    attn_tape *tape;
    if (attn_tape_create(&tape, context) != ATTN_OK)
        return attn_error_set(error, ATTN_ENOMEM, "attn_translate: no memory");
    attn_translation *const written =
        calloc(sentences > 0 ? (size_t)sentences : 1, sizeof *written);
    attn_status status = ATTN_OK;
    if (!written)
        status = attn_error_set(error, ATTN_ENOMEM, "attn_translate: no memory");
    for (int64_t first = 0; status == ATTN_OK && first < sentences; first += at_once) {
        const int64_t left = sentences - first;
        status = translate_some(model, tape, source, packing, first,
                                left < at_once ? left : at_once, options, written, error);
    }
    for (int64_t s = 0; written && s < sentences; s++) {
        if (status == ATTN_OK)
            translations[s] = written[s];
        else
            free(written[s].ids);
    }
    free(written);
    attn_tape_destroy(tape);
    return status;
}

attn_status attn_translate(const attn_translator *translator, attn_context *context,
                           const int32_t *source, attn_packing packing,
                           const attn_search_options *options,
                           attn_translation *translations, attn_error *error)
{
    const attn_seq2seq model = attn_translator_seq2seq((attn_translator *)translator);
    return attn_seq2seq_translate(&model, context, source, packing, options, translations,
                                  error);
}

/* Greedy and beam search over the translator: the decoder is fed all live beams of all
 * sentences that are under way in one step, each sentence's search says how its beams go
 * on, and one that is done takes no more part.  Sentences go in groups, so that memory is
 * bounded; a step's product is at full speed well below the group's rows. */
#include "model/translate.h"
#include "base/context.h"
#include "model/beam.h"
#include "model/decoding.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_ROWS = 256, TOKENS_MORE_THAN_TWICE = 10 };

void attn_search_options_init(attn_search_options *options)
{
    *options = (attn_search_options){.beams = 4, .length_power = 1.0};
}

/* ---- Checks ---------------------------------------------------------------------- */

static attn_status check_options(const attn_translator_config *config,
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
    if (options->max_length < 0 || options->max_length > config->max_positions)
        return attn_error_set(error, ATTN_EINVAL,
                              "attn_translate: max_length is %lld, expected at most the "
                              "model's %lld positions",
                              (long long)options->max_length,
                              (long long)config->max_positions);
    return ATTN_OK;
}

static attn_status check_source(const attn_translator_config *config,
                                const int32_t *source, attn_packing packing,
                                attn_error *error)
{
    for (int64_t s = 0; s < packing.sequences; s++) {
        const int64_t first = packing.starts[s], end = packing.starts[s + 1];
        if (end <= first)
            return attn_error_set(
                error, ATTN_EINVAL,
                "attn_translate: sentence %lld has %lld tokens, expected at "
                "least its </s>",
                (long long)s, (long long)(end - first));
        if (end - first > config->max_positions)
            return attn_error_set(
                error, ATTN_EINVAL,
                "attn_translate: sentence %lld has %lld tokens with </s>, "
                "expected at most the model's %lld positions",
                (long long)s, (long long)(end - first), (long long)config->max_positions);
        for (int64_t i = first; i < end; i++)
            if (source[i] < 0 || source[i] >= config->vocabulary)
                return attn_error_set(
                    error, ATTN_EINVAL,
                    "attn_translate: token %lld of sentence %lld is %ld, "
                    "expected 0 to %lld",
                    (long long)(i - first), (long long)s, (long)source[i],
                    (long long)config->vocabulary - 1);
    }
    return ATTN_OK;
}

/* ---- A group of sentences -------------------------------------------------------- */

struct group {
    const attn_translator *translator;
    attn_decoding *decoding;
    int64_t sentences;
    attn_beam_search *searches; /* [sentences] */
    int64_t *row_starts;        /* of the step under way [sentences + 1] */
    int64_t *next_starts;       /* of the one after it [sentences + 1] */
    int64_t *parents;           /* [rows] */
    int32_t *ids;               /* [rows] */
};

static void group_free(struct group *group)
{
    attn_decoding_destroy(group->decoding);
    for (int64_t s = 0; group->searches && s < group->sentences; s++)
        attn_beam_search_free(&group->searches[s]);
    free(group->searches);
    free(group->row_starts);
    free(group->next_starts);
    free(group->parents);
    free(group->ids);
}

static int64_t length_limit(const attn_translator *translator, int64_t source_tokens,
                            const attn_search_options *options)
{
    const int64_t most = translator->config.max_positions;
    const int64_t usual = 2 * source_tokens + TOKENS_MORE_THAN_TWICE;
    if (options->max_length > 0)
        return options->max_length;
    return usual < most ? usual : most;
}

static attn_status group_init(struct group *group, const attn_translator *translator,
                              attn_tape *tape, const int32_t *source,
                              attn_packing packing, const attn_search_options *options,
                              attn_error *error)
{
    const size_t sentences = (size_t)packing.sequences;
    const size_t rows = sentences * (size_t)options->beams;
    *group = (struct group){.translator = translator, .sentences = packing.sequences};
    group->searches = calloc(sentences, sizeof *group->searches);
    group->row_starts = calloc(sentences + 1, sizeof *group->row_starts);
    group->next_starts = calloc(sentences + 1, sizeof *group->next_starts);
    group->parents = calloc(rows, sizeof *group->parents);
    group->ids = calloc(rows, sizeof *group->ids);
    bool enough = group->searches && group->row_starts && group->next_starts &&
                  group->parents && group->ids;
    for (size_t s = 0; enough && s < sentences; s++) {
        const int64_t tokens = packing.starts[s + 1] - packing.starts[s];
        enough = attn_beam_search_init(&group->searches[s], options->beams,
                                       length_limit(translator, tokens, options),
                                       options->length_power) == ATTN_OK;
        group->row_starts[s + 1] = (int64_t)s + 1;
        group->ids[s] = ATTN_TOKEN_EOS; /* the decoder's start */
    }
    if (!enough)
        return attn_error_set(error, ATTN_ENOMEM,
                              "attn_translate: no memory for %zu beams", rows);
    return attn_decoding_create(&group->decoding, translator, tape, source, packing,
                                (int64_t)rows, error);
}

/* Shows each search that is under way its rows, and lines up the rows of the next step.
 */
static attn_status advance(struct group *group, const float *logits,
                           int64_t first_sentence, attn_error *error)
{
    const int64_t vocabulary = group->translator->config.vocabulary;
    int64_t rows = 0;
    for (int64_t s = 0; s < group->sentences; s++) {
        attn_beam_search *const search = &group->searches[s];
        const int64_t first = group->row_starts[s];
        int64_t *const parents = group->parents + rows;
        group->next_starts[s] = rows;
        if (search->done)
            continue;
        if (!attn_beam_search_advance(search, logits + first * vocabulary, vocabulary,
                                      vocabulary, parents))
            return attn_error_set(
                error, ATTN_ENOTFINITE,
                "attn_translate: logits of sentence %lld after %lld tokens "
                "are not finite: the model is broken",
                (long long)(first_sentence + s), (long long)search->length);
        if (search->done)
            continue;
        for (int64_t i = 0; i < search->live_count; i++) {
            parents[i] += first;
            group->ids[rows + i] = search->live[i].ids[search->length - 1];
        }
        rows += search->live_count;
    }
    group->next_starts[group->sentences] = rows;
    int64_t *const spare = group->row_starts;
    group->row_starts = group->next_starts;
    group->next_starts = spare;
    return ATTN_OK;
}

/* The best finished hypothesis: there always is one when a search is done. */
static bool take_best(const attn_beam_search *search, attn_translation *translation)
{
    const attn_hypothesis *const best = &search->finished[0];
    const size_t count = (size_t)(best->length - (best->ended ? 1 : 0));
    translation->ids = malloc((count > 0 ? count : 1) * sizeof *translation->ids);
    if (!translation->ids)
        return false;
    memcpy(translation->ids, best->ids, count * sizeof *translation->ids);
    translation->count = count;
    translation->finished = best->ended;
    translation->score = best->score;
    return true;
}

static attn_status translate_group(struct group *group, int64_t first_sentence,
                                   attn_translation *translations, attn_error *error)
{
    while (group->row_starts[group->sentences] > 0) {
        const float *logits;
        ATTN_TRY(attn_decoding_step(group->decoding, group->row_starts, group->parents,
                                    group->ids, &logits, error));
        ATTN_TRY(advance(group, logits, first_sentence, error));
    }
    for (int64_t s = 0; s < group->sentences; s++)
        if (!take_best(&group->searches[s], &translations[first_sentence + s]))
            return attn_error_set(error, ATTN_ENOMEM, "attn_translate: no memory");
    return ATTN_OK;
}

/* ---- All of them ----------------------------------------------------------------- */

/* Sentences [first, first + count), in translations, which are all empty before. */
static attn_status translate_some(const attn_translator *translator, attn_tape *tape,
                                  const int32_t *source, attn_packing packing,
                                  int64_t first, int64_t count,
                                  const attn_search_options *options,
                                  attn_translation *translations, attn_error *error)
{
    const int64_t origin = packing.starts[first];
    int64_t *const starts = malloc((size_t)(count + 1) * sizeof *starts);
    if (!starts)
        return attn_error_set(error, ATTN_ENOMEM, "attn_translate: no memory");
    for (int64_t s = 0; s <= count; s++)
        starts[s] = packing.starts[first + s] - origin;
    const attn_packing part = {count, starts};
    struct group group;
    attn_status status =
        group_init(&group, translator, tape, source + origin, part, options, error);
    if (status == ATTN_OK)
        status = translate_group(&group, first, translations, error);
    group_free(&group);
    free(starts);
    return status;
}

attn_status attn_translate(const attn_translator *translator, attn_context *context,
                           const int32_t *source, attn_packing packing,
                           const attn_search_options *options,
                           attn_translation *translations, attn_error *error)
{
    const int64_t sentences = packing.sequences;
    ATTN_TRY(check_options(&translator->config, options, error));
    ATTN_TRY(check_source(&translator->config, source, packing, error));
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
        status = translate_some(translator, tape, source, packing, first,
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

/* Greedy and beam search: the decoder is fed all live beams of all sequences that are
 * under way in one step, each sequence's search says how its beams go on, and one that is
 * done takes no more part. */
#include "model/search.h"
#include "base/context.h"
#include "model/beam.h"
#include "text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

void attn_search_options_init(attn_search_options *options)
{
    *options = (attn_search_options){.beams = 4, .length_power = 1.0};
}

struct group {
    const attn_decoder *decoder;
    int64_t sequences;
    attn_beam_search *searches; /* [sequences] */
    int64_t *row_starts;        /* of the step under way [sequences + 1] */
    int64_t *next_starts;       /* of the one after it [sequences + 1] */
    int64_t *parents;           /* [rows] */
    int32_t *ids;               /* [rows] */
};

static void group_free(struct group *group)
{
    for (int64_t s = 0; group->searches && s < group->sequences; s++)
        attn_beam_search_free(&group->searches[s]);
    free(group->searches);
    free(group->row_starts);
    free(group->next_starts);
    free(group->parents);
    free(group->ids);
}

static attn_status group_init(struct group *group, const attn_decoder *decoder,
                              int64_t sequences, const int64_t *limits,
                              const attn_search_options *options, attn_error *error)
{
    const size_t count = (size_t)sequences;
    const size_t rows = count * (size_t)options->beams;
    *group = (struct group){.decoder = decoder, .sequences = sequences};
    group->searches = calloc(count, sizeof *group->searches);
    group->row_starts = calloc(count + 1, sizeof *group->row_starts);
    group->next_starts = calloc(count + 1, sizeof *group->next_starts);
    group->parents = calloc(rows, sizeof *group->parents);
    group->ids = calloc(rows, sizeof *group->ids);
    bool enough = group->searches && group->row_starts && group->next_starts &&
                  group->parents && group->ids;
    for (size_t s = 0; enough && s < count; s++) {
        enough = attn_beam_search_init(&group->searches[s], options->beams, limits[s],
                                       options->length_power) == ATTN_OK;
        group->row_starts[s + 1] = (int64_t)s + 1;
        group->ids[s] = ATTN_TOKEN_EOS; /* the decoder's start */
    }
    return enough ? ATTN_OK
                  : attn_error_set(error, ATTN_ENOMEM, "search: no memory for %zu beams",
                                   rows);
}

/* Shows each search that is under way its rows, and lines up the rows of the next step.
 */
static attn_status advance(struct group *group, const float *logits, int64_t first,
                           attn_error *error)
{
    const int64_t vocabulary = group->decoder->vocabulary;
    int64_t rows = 0;
    for (int64_t s = 0; s < group->sequences; s++) {
        attn_beam_search *const search = &group->searches[s];
        const int64_t row = group->row_starts[s];
        int64_t *const parents = group->parents + rows;
        group->next_starts[s] = rows;
        if (search->done)
            continue;
        if (!attn_beam_search_advance(search, logits + row * vocabulary, vocabulary,
                                      vocabulary, parents))
            return attn_error_set(error, ATTN_ENOTFINITE,
                                  "search: logits of sentence %lld after %lld tokens "
                                  "are not finite: the model is broken",
                                  (long long)(first + s), (long long)search->length);
        if (search->done)
            continue;
        for (int64_t i = 0; i < search->live_count; i++) {
            parents[i] += row;
            group->ids[rows + i] = search->live[i].ids[search->length - 1];
        }
        rows += search->live_count;
    }
    group->next_starts[group->sequences] = rows;
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

static attn_status search_group(struct group *group, int64_t first,
                                attn_translation *translations, attn_error *error)
{
    const attn_decoder *const decoder = group->decoder;
    while (group->row_starts[group->sequences] > 0) {
        const float *logits;
        ATTN_TRY(decoder->step(decoder->state, group->row_starts, group->parents,
                               group->ids, &logits, error));
        ATTN_TRY(advance(group, logits, first, error));
    }
    for (int64_t s = 0; s < group->sequences; s++)
        if (!take_best(&group->searches[s], &translations[s]))
            return attn_error_set(error, ATTN_ENOMEM, "search: no memory");
    return ATTN_OK;
}

attn_status attn_search(const attn_decoder *decoder, int64_t sequences,
                        const int64_t *limits, const attn_search_options *options,
                        int64_t first, attn_translation *translations, attn_error *error)
{
    struct group group;
    attn_status status = group_init(&group, decoder, sequences, limits, options, error);
    if (status == ATTN_OK)
        status = search_group(&group, first, translations, error);
    group_free(&group);
    return status;
}

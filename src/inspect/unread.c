/* Runs of source words that no word written read much: what a translation may have
 * dropped. */
#include "inspect/findings.h"
#include <stdlib.h>

/* What the words written gave to each key. */
typedef struct reading {
    double *most; /* [keys]: the largest weight from one of them */
    double *mean; /* [keys]: of all of them */
} reading;

static void read_rows(const reading *r, const attn_summary *summary,
                      const attn_record_part *part)
{
    const int64_t keys = part->keys->length;
    for (int64_t i = 0; i < part->rows->length; i++)
        for (int64_t j = 0; j < keys && !part->rows->list[i].special; j++) {
            const double weight = (double)summary->alignment[i * keys + j];
            r->most[j] = weight > r->most[j] ? weight : r->most[j];
            r->mean[j] += weight / (double)summary->judged_count;
        }
}

/* Words and punctuation of a run, without the punctuation at its ends. */
static void keep_run(attn_summary *summary, const attn_record_part *part,
                     const reading *r, int64_t first, int64_t end)
{
    const attn_conventions *limits = &summary->conventions;
    const attn_record_word *keys = part->keys->list;
    while (first < end && attn_record_word_delimits(&keys[first]))
        first++;
    while (end > first && attn_record_word_delimits(&keys[end - 1]))
        end--;
    int64_t words = 0;
    double mean = 0;
    for (int64_t j = first; j < end; j++) {
        words += !attn_record_word_delimits(&keys[j]);
        mean += r->mean[j] / (double)(end - first);
    }
    if (words < limits->unread_words ||
        mean * (double)part->keys->length >= limits->unread_share)
        return;
    summary->unread[summary->unread_count++] = (attn_run){first, end};
}

attn_status attn_find_unread(attn_summary *summary, const attn_record *record)
{
    if (summary->alignment_part < 0 || summary->judged_count == 0 ||
        record->picture.grey != NULL)
        return ATTN_OK;
    const attn_record_part *part = &record->parts[summary->alignment_part];
    const size_t keys = (size_t)part->keys->length;
    reading r = {calloc(keys + 1, sizeof *r.most), calloc(keys + 1, sizeof *r.mean)};
    summary->unread = calloc(keys + 1, sizeof *summary->unread);
    const bool fits = r.most != NULL && r.mean != NULL && summary->unread != NULL;
    if (fits)
        read_rows(&r, summary, part);
    for (int64_t first = 0, end = 0; fits && first < part->keys->length;
         first = end + 1) {
        end = first;
        while (end < part->keys->length && !part->keys->list[end].special &&
               !attn_prints_as(r.most[end], summary->conventions.unread))
            end++;
        keep_run(summary, part, &r, first, end);
    }
    free(r.most);
    free(r.mean);
    return fits ? ATTN_OK : ATTN_ENOMEM;
}

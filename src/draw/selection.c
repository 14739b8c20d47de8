/* What a selection points to, and what is said where the record has no such thing. */
#include "draw/draw.h"
#include "inspect/sentence.h"
#include <stdio.h>

static attn_status no_part(const attn_record *record, int kind, attn_error *error)
{
    char there[64] = "none";
    for (int64_t i = 0, used = 0; i < record->part_count; i++)
        used += snprintf(there + used, sizeof there - (size_t)used, "%s%s",
                         i == 0                        ? ""
                         : i + 1 == record->part_count ? " and "
                                                       : ", ",
                         attn_part_name(record->parts[i].part));
    return attn_error_set(
        error, ATTN_EINVAL, "the record has no %s part; it has %s",
        kind >= 0 && kind <= ATTN_PART_POOL ? attn_part_name((attn_part)kind) : "such",
        there);
}

attn_status attn_draw_select(const attn_record *record, const attn_draw_options *options,
                             int64_t *part, attn_error *error)
{
    int64_t chosen = options->part < 0 ? *part : -1;
    for (int64_t i = 0; i < record->part_count; i++)
        if ((int)record->parts[i].part == options->part)
            chosen = i;
    const bool whole = options->row < 0 && options->layer < 0 && options->head < 0;
    if (chosen < 0 && (!whole || options->part >= 0))
        return no_part(record, options->part, error);
    *part = chosen;
    if (whole)
        return ATTN_OK;
    const attn_record_part *const p = &record->parts[chosen];
    const char *const name = attn_part_name(p->part);
    char wanted[64];
    if (options->row >= p->rows->length)
        return attn_error_set(error, ATTN_EINVAL, "no word %lld: the %s has %lld",
                              (long long)options->row + 1, name,
                              (long long)p->rows->length);
    if (options->layer < 0)
        snprintf(wanted, sizeof wanted, "head %lld", (long long)options->head + 1);
    else if (options->head < 0)
        snprintf(wanted, sizeof wanted, "layer %lld", (long long)options->layer + 1);
    else
        snprintf(wanted, sizeof wanted, "head %lld.%lld", (long long)options->layer + 1,
                 (long long)options->head + 1);
    if (options->layer >= p->layers || options->head >= p->heads)
        return attn_error_set(error, ATTN_EINVAL,
                              "no %s: the %s has %lld layer%s of %lld head%s", wanted,
                              name, (long long)p->layers, attn_s(p->layers),
                              (long long)p->heads, attn_s(p->heads));
    return ATTN_OK;
}

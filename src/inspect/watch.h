/* An observer that fills a record's parts; private to inspect. */
#ifndef ATTN_INSPECT_WATCH_H
#define ATTN_INSPECT_WATCH_H

#include "inspect/join.h"

typedef struct attn_watch {
    /* By kind; NULL where the record has no such part, or the words are the tokens. */
    attn_record_part *parts[ATTN_RECORD_PARTS];
    const attn_joining *rows[ATTN_RECORD_PARTS], *keys[ATTN_RECORD_PARTS];
    float *weights; /* of one head, between tokens */
    size_t capacity;
} attn_watch;

/* Adds a part to the record, whose words it has, and watches it. */
attn_status attn_watch_add(attn_watch *watch, attn_record *record, attn_part kind,
                           int64_t layers, int64_t heads, const attn_joining *rows,
                           const attn_joining *keys, attn_error *error);

/* To be called in the pass for each attention; user is an attn_watch.  ATTN_EINVAL where
 * the sizes are not those of the part, ATTN_ENOTFINITE where a weight is NaN: nothing
 * can be said of where such a head looked. */
attn_status attn_watch_keep(void *user, const attn_observation *seen);

/* After the pass: means over rows. */
void attn_watch_end(attn_watch *watch);
void attn_watch_free(attn_watch *watch);

#endif

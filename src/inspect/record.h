/* The record: where the heads of a model looked while it read (and wrote) one text.  It is
 * all that draw knows, it is a file (safetensors; see attn_record_save), and so every
 * picture can be drawn again without the model. */
#ifndef ATTN_INSPECT_RECORD_H
#define ATTN_INSPECT_RECORD_H

#include "base/error.h"
#include "nn/observer.h"

/** Words, or tokens where they were not joined; specials have special set. */
typedef struct attn_record_word {
    char *text;
    bool special;
    int64_t occurrence;  /* 1, 2, … for a text that occurs more than once, else 0 */
    int64_t tokens;      /* pieces that were joined */
} attn_record_word;

typedef struct attn_record_words {
    attn_record_word *list;
    int64_t length;
} attn_record_words;

/** All heads of one part: weights[layer][head][row][key] between words (piece weights are
 * summed over keys and averaged over queries), and of each head the mean over its word rows of
 * the normalised entropy of its piece rows, from the pass's own statistics. */
typedef struct attn_record_part {
    attn_part part;
    int64_t layers, heads;
    const attn_record_words *rows, *keys;
    bool causal;
    float *weights;
    float *entropy; /* [layers][heads], normalised: 0 one word, 1 all */
} attn_record_part;

typedef struct attn_record {
    char *model;       /* a name to show */
    char *source, *translation;
    char source_language[16], target_language[16]; /* "en", "fr" */
    attn_record_words source_words;  /* with </s> at the end: encoder rows, all its keys */
    attn_record_words written_words; /* with </s> at the end: cross rows are the word being
                                      * written */
    attn_record_words read_words;    /* what the decoder had just written: decoder rows and
                                      * keys; starts with the start symbol */
    attn_record_part parts[3];
    int64_t part_count;
} attn_record;

void attn_record_destroy(attn_record *record);
ATTN_CHECKED attn_status attn_record_save(const attn_record *record, const char *path,
                                          attn_error *error);
ATTN_CHECKED attn_status attn_record_load(attn_record **record, const char *path,
                                          attn_error *error);

#endif

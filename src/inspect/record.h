/* The record: where the heads of a model looked while it read (and wrote) one text.  It
 * is all that draw knows, it is a file (safetensors; see attn_record_save), and so every
 * picture can be drawn again without the model. */
#ifndef ATTN_INSPECT_RECORD_H
#define ATTN_INSPECT_RECORD_H

#include "base/error.h"
#include "nn/observer.h"

/** A word, or a token where tokens were not joined. */
typedef struct attn_record_word {
    char *text;   /* valid UTF-8, as it stands in the text: escape before printing */
    bool special; /* a mark of the model's own ("</s>"), not of the text */
    int64_t occurrence; /* 1, 2, … for a text that occurs more than once, else 0 */
    int64_t tokens;     /* pieces that were joined, at least 1 */
} attn_record_word;

typedef struct attn_record_words {
    attn_record_word *list;
    int64_t length;
} attn_record_words;

/** All heads of one part.  Weights are between words: piece weights are summed over keys
 * and averaged over queries; a row sums to 1.  Entropies are normalised (0 one key, 1 all
 * keys alike), are those of the pieces from the pass's own statistics, averaged over the
 * pieces of a word that see two keys or more, and −1 where no piece does. */
typedef struct attn_record_part {
    attn_part part;
    int64_t layers, heads;
    const attn_record_words *rows, *keys; /* members of the record */
    bool causal;                          /* row i sees keys 0 … i only */
    float *weights;                       /* [layers][heads][rows][keys] */
    float *row_entropy;                   /* [layers][heads][rows] */
    float *entropy; /* [layers][heads]: mean of the rows that have one */
} attn_record_part;

enum { ATTN_RECORD_PARTS = ATTN_PART_POOL + 1 };

/** The source where it is a picture.  Its words are then the places of a grid over it,
 * row by row: "1,1", "1,2", … */
typedef struct attn_record_picture {
    int64_t rows, columns; /* points; 0 where the source is a text */
    uint8_t *grey;         /* [rows][columns], 0 black to 255 white */
    int64_t grid_rows, grid_columns;
} attn_record_picture;

typedef struct attn_record {
    char *model;                /* a name to show */
    char *source, *translation; /* the texts */
    char source_language[16];   /* "en" */
    char target_language[16];   /* "fr"; "" where nothing is translated */
    bool forced;                /* the translation was given, not found by search */
    int64_t beams;              /* of the search; 0 when forced */
    bool finished; /* the model wrote </s>; else the search was stopped, and the row of
                    * </s> tells where it would have looked */
    attn_record_words
        source_words; /* ends with </s>; encoder rows, encoder and cross keys */
    attn_record_words
        written_words;            /* ends with </s>: cross rows, the word being written;
                                   * or the one label of a text, which is pooling's row */
    attn_record_words read_words; /* begins with the start mark: decoder rows and keys,
                                   * the word just written */
    attn_record_picture picture;
    attn_record_part parts[ATTN_RECORD_PARTS]; /* no kind twice */
    int64_t part_count;
} attn_record;

/** Empty, all zero. */
ATTN_CHECKED attn_status attn_record_create(attn_record **record, attn_error *error);
/** NULL is fine. */
void attn_record_destroy(attn_record *record);

/** Makes room for length words (text NULL, tokens 1). */
ATTN_CHECKED attn_status attn_record_words_create(attn_record_words *words,
                                                  int64_t length, attn_error *error);
/** A copy of length_bytes of text as word `index`; what is not UTF-8 becomes U+FFFD. */
ATTN_CHECKED attn_status attn_record_word_set(attn_record_words *words, int64_t index,
                                              const char *text, size_t length_bytes,
                                              bool special, attn_error *error);
/** Fills occurrence from the texts (specials are not counted with words). */
void attn_record_words_count(attn_record_words *words);

/** Copies the picture and makes the source's words of its grid: before its parts.
 * @return ATTN_OK, ATTN_ENOMEM, or ATTN_EINVAL: no points, or no grid of at most as many
 *         places as points either way (the message has all four numbers). */
ATTN_CHECKED attn_status attn_record_set_picture(attn_record *record,
                                                 const attn_record_picture *picture,
                                                 attn_error *error);

/** The words that a part of the kind has for rows and keys. */
void attn_record_part_words(const attn_record *record, attn_part kind,
                            const attn_record_words **rows,
                            const attn_record_words **keys);
/** Adds a part with weights and entropies of 0; rows and keys are members of the record,
 * which already have their length.  *part is valid until the record is destroyed. */
ATTN_CHECKED attn_status attn_record_add_part(attn_record *record, attn_part kind,
                                              int64_t layers, int64_t heads,
                                              attn_record_part **part, attn_error *error);
/** entropy from row_entropy. */
void attn_record_part_average(attn_record_part *part);
/** The part of the kind, or NULL. */
const attn_record_part *attn_record_find_part(const attn_record *record, attn_part kind);

/** [rows][keys] of one head, layer and head from 0. */
const float *attn_record_weights(const attn_record_part *part, int64_t layer,
                                 int64_t head);
/** Rows and keys are the same words. */
bool attn_record_is_self(const attn_record_part *part);
/** How many keys the row sees. */
int64_t attn_record_visible(const attn_record_part *part, int64_t row);

/** A safetensors file: fp32 tensors "encoder.weights" and so on; texts, words and what
 * was asked for in __metadata__ under "attn.record" (JSON).  Whole or not at all. */
ATTN_CHECKED attn_status attn_record_save(const attn_record *record, const char *path,
                                          attn_error *error);
/** Checks everything a file could lie about: sizes against the file before anything is
 * allocated, UTF-8, weights within [0, 1] and rows that sum to 1. */
ATTN_CHECKED attn_status attn_record_load(attn_record **record, const char *path,
                                          attn_error *error);
/** The same from memory; name is for messages. */
ATTN_CHECKED attn_status attn_record_parse(attn_record **record, const void *data,
                                           size_t bytes, const char *name,
                                           attn_error *error);

#endif

/* Labelled texts: of a classifier, a line each, label TAB text; of a tagger, a word a
 * line with its label after a tab (what follows further tabs is not read), and an empty
 * line after each sentence. */
#ifndef ATTN_TRAIN_TEXTS_H
#define ATTN_TRAIN_TEXTS_H

#include "model/reader.h"
#include "text/corpus.h"
#include "text/tokenizer.h"

/** A file of them, as text. */
typedef struct attn_labelled {
    attn_corpus corpus;
    bool tags;
    size_t count;       /* of texts */
    size_t *first;      /* [count + 1]: text n is items first[n] to first[n + 1] − 1; of
                         * a classifier, an item is a text */
    const char **texts; /* [items]: texts, or words */
    const char **labels; /* [items] */
    size_t *lines;       /* [items], from 1 */
} attn_labelled;

/** ATTN_EFORMAT names the line that has no label or no tab, and a file without a text. */
ATTN_CHECKED attn_status attn_labelled_load(attn_labelled *labelled, const char *path,
                                            bool tags, attn_error *error);
void attn_labelled_free(attn_labelled *labelled);

/** The labels of texts, each once. */
typedef struct attn_label_set {
    const char **names; /* they point into what they were collected from */
    int64_t count;
    bool is_sorted; /* by their bytes, as attn_label_set_collect leaves them */
} attn_label_set;

ATTN_CHECKED attn_status attn_label_set_collect(attn_label_set *set,
                                                const attn_labelled *labelled,
                                                attn_error *error);
/** −1 where it is not there. */
int64_t attn_label_set_find(const attn_label_set *set, const char *name);
void attn_label_set_free(attn_label_set *set);

/** Texts as tokens. */
typedef struct attn_texts {
    size_t count;
    attn_reader_text *texts; /* [count], pointing into what follows */
    int32_t *ids;
    int64_t *starts;      /* of words in their texts */
    int32_t *targets;     /* [items]: the index of the label */
    size_t *first_target; /* [count + 1] */
    int64_t tokens;
    size_t cut; /* texts that are longer than the positions */
} attn_texts;

/** What an encoding needs of a model: the reader,. */
typedef struct attn_texts_rules {
    const attn_tokenizer *tokenizer;
    const attn_label_set *labels;
    const attn_reader *reader; /* tells what fits */
    bool refuses_long;         /* a text that does not fit is an error and not cut */
    const char *name;          /* of the file, for messages */
} attn_texts_rules;

/** ATTN_EFORMAT names the line of a label that the set has not, of a text that is longer
 * than it may be, or of a word that alone does not fit in the positions. */
ATTN_CHECKED attn_status attn_texts_encode(attn_texts *texts,
                                           const attn_labelled *labelled,
                                           const attn_texts_rules *rules,
                                           attn_error *error);
/** Of all that is trained on: ids, words and labels. */
uint64_t attn_texts_hash(const attn_texts *texts);
void attn_texts_free(attn_texts *texts);

#endif

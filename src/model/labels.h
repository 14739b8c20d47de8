/* The names of what a model tells apart, as config.json keeps them: id2label, label2id.
 */
#ifndef ATTN_MODEL_LABELS_H
#define ATTN_MODEL_LABELS_H

#include "model/config_file.h"

typedef struct attn_labels {
    char **names; /* [count] */
    int64_t count;
} attn_labels;

/* "LABEL_0", "LABEL_1", … as `transformers` has them; ATTN_ENOMEM leaves none. */
ATTN_CHECKED attn_status attn_labels_number(attn_labels *labels, int64_t count,
                                            attn_error *error);
/* Copies names[count].  ATTN_EINVAL where two are equal; on failure the
 * old names stay. */
ATTN_CHECKED attn_status attn_labels_set(attn_labels *labels, const char *const *names,
                                         attn_error *error);
void attn_labels_free(attn_labels *labels);

/* How many config.json names in id2label, or num_labels, 2 where neither is there. */
ATTN_CHECKED attn_status attn_labels_count(const attn_config_file *file, int64_t *count);
/* The names of labels that are numbered already, as many as attn_labels_count has. */
ATTN_CHECKED attn_status attn_labels_read(attn_labels *labels,
                                          const attn_config_file *file);
/* Adds id2label and label2id; false for no memory. */
bool attn_labels_write(const attn_labels *labels, json_t *document);

#endif

/* What attn translate knows of a line, and the line as JSON. */
#ifndef ATTN_CLI_TRANSLATE_JSON_H
#define ATTN_CLI_TRANSLATE_JSON_H

#include "cli/model.h"

typedef struct translate_line {
    int64_t number; /* in its file, from 1 */
    char *text;
    size_t length;
    int32_t *ids; /* with </s>; */
    size_t count; /* 0 for an empty line */
    attn_translation translation;
} translate_line;

/**
 * One object on one line: line, source, translation, score, finished, tokens (the pieces
 * that were written), and alignment: source_words and words (each with </s> at its end),
 * layer (from 1) and weights[word][source word], which are those of the cross-attention
 * layer with the lowest mean entropy, averaged over its heads.  An empty line has score
 * and alignment null.  *text is the caller's to free.
 */
ATTN_CHECKED attn_status translate_line_json(const cli_model *model,
                                             attn_context *context,
                                             const translate_line *line, char **text,
                                             attn_error *error);

#endif

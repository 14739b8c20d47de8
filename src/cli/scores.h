/* Scores of a model that is no translator, as lines for people. */
#ifndef ATTN_CLI_SCORES_H
#define ATTN_CLI_SCORES_H

#include <jansson.h>

/* A figure a line, with what it is; then what was scored of each label or kind, as a
 * table.  A key that has no words here is printed with spaces for its underscores. */
void cli_print_scores(const json_t *scores);

#endif

/* Counts of labels against labels. */
#include "train/label_scores.h"
#include <stdlib.h>

attn_status attn_label_scores_create(attn_label_scores *scores, int64_t labels,
                                     attn_error *error)
{
    *scores = (attn_label_scores){
        labels, calloc((size_t)(labels * labels) + 1, sizeof *scores->counts)};
    return scores->counts ? ATTN_OK
                          : attn_error_set(error, ATTN_ENOMEM,
                                           "no memory for the scores of %lld labels",
                                           (long long)labels);
}

void attn_label_scores_free(attn_label_scores *scores)
{
    free(scores->counts);
    *scores = (attn_label_scores){0};
}

void attn_label_scores_add(attn_label_scores *scores, int64_t label, int64_t found)
{
    scores->counts[label * scores->labels + found]++;
}

static double share(int64_t part, int64_t whole)
{
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

int64_t attn_label_scores_total(const attn_label_scores *scores)
{
    int64_t total = 0;
    for (int64_t i = 0; i < scores->labels * scores->labels; i++)
        total += scores->counts[i];
    return total;
}

double attn_label_scores_accuracy(const attn_label_scores *scores)
{
    int64_t right = 0;
    for (int64_t i = 0; i < scores->labels; i++)
        right += scores->counts[i * scores->labels + i];
    return share(right, attn_label_scores_total(scores));
}

attn_label_score attn_label_scores_of(const attn_label_scores *scores, int64_t label)
{
    int64_t is = 0, found = 0;
    for (int64_t i = 0; i < scores->labels; i++) {
        is += scores->counts[label * scores->labels + i];
        found += scores->counts[i * scores->labels + label];
    }
    const int64_t both = scores->counts[label * scores->labels + label];
    return (attn_label_score){is, share(both, found), share(both, is),
                              share(2 * both, is + found)};
}

double attn_label_scores_macro_f1(const attn_label_scores *scores)
{
    double sum = 0.0;
    int64_t known = 0;
    for (int64_t i = 0; i < scores->labels; i++) {
        int64_t seen = 0;
        for (int64_t j = 0; j < scores->labels; j++)
            seen += scores->counts[i * scores->labels + j] +
                    scores->counts[j * scores->labels + i];
        known += seen > 0;
        sum += attn_label_scores_of(scores, i).f1;
    }
    return known > 0 ? sum / (double)known : 0.0;
}

/* The captioner as a kind: what its two files share. */
#ifndef ATTN_TRAIN_TASK_CAPTIONER_H
#define ATTN_TRAIN_TASK_CAPTIONER_H

#include "model/captioner.h"
#include "text/tokenizer.h"
#include "train/pictures.h"
#include "train/task.h"

/** Which digits of a file pictures are composed of: the first six eighths to train, the
 * seventh to validate, the last to test, so that no digit is in two of them. */
typedef enum attn_digit_split {
    ATTN_DIGITS_TRAIN,
    ATTN_DIGITS_VALID,
    ATTN_DIGITS_TEST
} attn_digit_split;

attn_composition attn_captioner_composition(const attn_captioner_config *config,
                                            const attn_digits *digits,
                                            attn_digit_split split, double empty);

/** The digits of a file of which pictures to test are composed, and how.
 * @return as attn_digits_load; ATTN_EFORMAT also where the captioner's pictures are not
 *         made of cells of digits.  digits is the caller's to free. */
ATTN_CHECKED attn_status attn_captioner_test_pictures(const attn_captioner *captioner,
                                                      const char *file,
                                                      attn_digits *digits,
                                                      attn_composition *composition,
                                                      attn_error *error);

/** See attn_task_kind. */
ATTN_CHECKED attn_status attn_captioner_score(const attn_score_job *job, json_t *scores,
                                              attn_error *error);

#endif

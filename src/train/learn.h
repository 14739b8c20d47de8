/* The tokenizer of a training: learnt from its texts, or the one it began with. */
#ifndef ATTN_TRAIN_LEARN_H
#define ATTN_TRAIN_LEARN_H

#include "text/tokenizer.h"
#include "train/task.h"

/** The tokenizer.json of the output folder where a training goes on; else a new one of
 * texts[count], saved there.
 * @return ATTN_EFORMAT where the texts give fewer tokens than the vocabulary is to have.
 */
ATTN_CHECKED attn_status attn_learn_tokenizer(attn_tokenizer **tokenizer,
                                              const attn_task *task,
                                              const char *const *texts, size_t count,
                                              int64_t vocabulary, bool goes_on,
                                              attn_error *error);

/** The tokenizer of a trained model, with which a training starts; saved in the output
 * folder.  ATTN_EFORMAT where it has not as many tokens as the vocabulary. */
ATTN_CHECKED attn_status attn_take_tokenizer(attn_tokenizer **tokenizer,
                                             const attn_task *task, const char *folder,
                                             int64_t vocabulary, attn_error *error);

#endif

/* Learning a tokenizer. */
#include "train/learn.h"
#include "base/context.h"
#include "model/folder.h"
#include "train/progress.h"
#include <stdio.h>
#include <string.h>

attn_status attn_learn_tokenizer(attn_tokenizer **tokenizer, const attn_task *task,
                                 const char *const *texts, size_t count,
                                 int64_t vocabulary, bool goes_on, attn_error *error)
{
    if (goes_on)
        return attn_folder_tokenizer_load(tokenizer, task->options->out, -1, error);
    bool is_blank = true;
    for (size_t n = 0; n < count && is_blank; n++)
        is_blank = texts[n][strspn(texts[n], " \t\r\n\v\f")] == '\0';
    if (is_blank)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: no text in it, expected at least a word",
                              task->options->train);
    const double start = attn_seconds();
    ATTN_TRY(attn_tokenizer_train(tokenizer, texts, count, vocabulary, error));
    const int64_t size = attn_tokenizer_size(*tokenizer);
    if (size != vocabulary)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: tokenizer.vocabulary is %lld, but the text gives only "
                              "%lld tokens: set it "
                              "to %lld or less",
                              task->options->train, (long long)vocabulary,
                              (long long)size, (long long)size);
    attn_progress_say(task->progress, "tokenizer: %lld tokens, learnt in %.1f s",
                      (long long)size, attn_seconds() - start);
    return attn_folder_tokenizer_save(*tokenizer, task->options->out, error);
}

attn_status attn_take_tokenizer(attn_tokenizer **tokenizer, const attn_task *task,
                                const char *folder, int64_t vocabulary, attn_error *error)
{
    ATTN_TRY(attn_folder_tokenizer_load(tokenizer, folder, vocabulary, error));
    attn_progress_say(task->progress, "tokenizer: %lld tokens, of %s",
                      (long long)attn_tokenizer_size(*tokenizer), folder);
    return attn_folder_tokenizer_save(*tokenizer, task->options->out, error);
}

/* A record from a model that reads one text: what it says about it, and where its heads
 * looked. */
#ifndef ATTN_INSPECT_BUILD_TEXT_H
#define ATTN_INSPECT_BUILD_TEXT_H

#include "inspect/record.h"
#include "nn/parameters.h"
#include "text/tokenizer.h"

/** What the model says of a text; both are malloc'ed. */
typedef struct attn_text_answer {
    char *says;  /* in a line: "positive .93", "The/DET cat/NOUN" */
    char *label; /* the row of pooling, where there is one */
} attn_text_answer;

typedef struct attn_text_request {
    const char *model; /* a name to show */
    const char *says;  /* what an answer is called, as a language code: "label", "tags" */
    const attn_tokenizer *tokenizer;
    attn_context *context;
    const attn_parameters *parameters;
    int64_t most_tokens;        /* of a text, without marks */
    int32_t mask;               /* the token that "<mask>" in a text becomes, or −1 */
    const char *before, *after; /* marks the model puts around a text, or NULL */
    bool labels_words;  /* words are split as treebanks do, each with tokens of its own */
    bool attends_words; /* self-attention is between words and not their tokens */
    struct {
        int64_t layers, heads; /* 0 where the model has no such attention */
    } attention[ATTN_RECORD_PARTS];

    /** Runs the model on the tokens of the text, without its marks, and answers.
     * @param starts  [words + 1]: word w is tokens starts[w] to starts[w + 1] − 1. */
    attn_status (*read)(void *user, const attn_pass *pass, const int32_t *ids,
                        size_t count, const int64_t *starts, size_t words,
                        const char *const *texts, attn_text_answer *answer,
                        attn_error *error);
    void *user;
} attn_text_request;

/**
 * Words are joined as in attn_record_build.
 * @return ATTN_OK, ATTN_ENOMEM, ATTN_EINVAL (the text is empty), or ATTN_EFORMAT: it is
 *         not UTF-8 (with the place), or has more tokens than the model reads at once
 * (the message has both numbers; nothing is ever cut).
 */
ATTN_CHECKED attn_status attn_record_build_text(attn_record **record,
                                                const attn_text_request *request,
                                                const char *text, size_t length_bytes,
                                                attn_error *error);

#endif

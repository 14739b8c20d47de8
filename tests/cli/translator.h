/* A small translator that was never trained: what it writes is babble. */
#ifndef TESTS_CLI_TRANSLATOR_H
#define TESTS_CLI_TRANSLATOR_H

#include "base/context.h"
#include "file/safetensors.h"
#include "model/folder.h"
#include "model/translator.h"
#include "tests/cli/command.h"
#include "text/tokenizer.h"
#include <sys/stat.h>

enum { POSITIONS = 32 };

/* Into the folder of that name; its tokenizer is learnt from texts. */
static inline attn_status make_translator(const char *name, const char *const *texts,
                                          size_t count, attn_error *error)
{
    char path[128];
    attn_tokenizer *tokenizer;
    attn_translator *translator;
    if (mkdir(in_folder(name), 0700) != 0)
        return attn_error_set(error, ATTN_EIO, "no folder %s", name);
    ATTN_TRY(attn_tokenizer_train(&tokenizer, texts, count, 280, error));
    const attn_translator_config config = {
        .vocabulary = attn_tokenizer_size(tokenizer),
        .width = 16,
        .heads = 2,
        .encoder_layers = 2,
        .decoder_layers = 2,
        .inner = 32,
        .max_positions = POSITIONS,
        .normalise_first = true,
        .languages = {"en", "fr"},
    };
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    attn_status status = attn_tokenizer_save(tokenizer, in_folder(path), error);
    attn_tokenizer_destroy(tokenizer);
    ATTN_TRY(status);
    ATTN_TRY(attn_translator_create(&translator, &config, 7, error));
    status = attn_translator_save(translator, in_folder(name), ATTN_DTYPE_F32, error);
    attn_translator_destroy(translator);
    return status;
}

/* For cmocka_run_group_tests: the folder, with a "model" in it. */
static inline int start_with_translator(void **state)
{
    static const char *const texts[] = {
        "The cat was hungry. The cat was on the mat.",
        "Le chat avait faim.",
        "It's c'est don't",
        "猫猫",
    };
    attn_error error;
    if (folder_make(state) != 0)
        return -1;
    if (make_translator("model", texts, 4, &error) == ATTN_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

#endif

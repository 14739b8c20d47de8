/* A training small enough for a test. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "small_training.h"
#include "base/mix.h"
#include "file/file.h"
#include "tests/folder.h"
#include "train/task.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TRAIN_LINES = 90, VALID_LINES = 12 };

static const char RECIPE[] =
    "{\"kind\": \"translator\","
    "\"data\": {\"train\": \"-\", \"valid\": \"-\", \"source_language\": \"en\","
    " \"target_language\": \"fr\"},"
    "\"tokenizer\": {\"vocabulary\": 280},"
    "\"model\": {\"width\": 16, \"heads\": 2, \"encoder_layers\": 1, \"decoder_layers\": "
    "1,"
    " \"inner\": 24, \"max_positions\": 48, \"activation\": \"relu\", \"dropout\": 0.1,"
    " \"attention_dropout\": 0.1},"
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 160, \"length_noise\": 2,"
    " \"shards\": 2, \"epochs\": 3, \"schedule\": \"cosine\","
    " \"peak_learning_rate\": 5e-3, \"warmup_steps\": 4, \"beta1\": 0.9, \"beta2\": 0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0.01, \"clip\": 1, \"label_smoothing\": 0.1,"
    " \"average\": 0.9, \"checkpoint_every\": 2, \"valid_every\": 5}}";

static void write_pairs(const char *path, size_t lines, uint64_t seed)
{
    static const char *const ENGLISH[] = {"cat", "dog", "sees", "eats", "big", "one"};
    static const char *const FRENCH[] = {"chat", "chien", "voit", "mange", "grand", "un"};
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    for (size_t n = 0; n < lines; n++) {
        const uint64_t line = attn_mix(seed, n);
        const size_t words = 1 + line % 5;
        for (size_t w = 0; w < words; w++)
            fprintf(file, "%s%s", w ? " " : "", ENGLISH[attn_mix(line, w) % 6]);
        fputc('\t', file);
        for (size_t w = 0; w < words; w++)
            fprintf(file, "%s%s", w ? " " : "", FRENCH[attn_mix(line, w) % 6]);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

void small_training_set_up(small_training *small)
{
    attn_error error = {ATTN_OK, ""};
    assert_int_equal(folder_make(NULL), 0);
    small->folder = folder;
    snprintf(small->train, sizeof small->train, "%s", in_folder("train.tsv"));
    snprintf(small->valid, sizeof small->valid, "%s", in_folder("valid.tsv"));
    write_pairs(small->train, TRAIN_LINES, 1);
    write_pairs(small->valid, VALID_LINES, 2);
    if (attn_recipe_parse(&small->recipe, attn_task_kinds(), RECIPE, "small", &error) !=
        ATTN_OK)
        fail_msg("%s", error.message);
}

void small_training_tear_down(small_training *small)
{
    folder_remove(NULL);
    attn_recipe_free(&small->recipe);
}

attn_train_options small_training_options(const small_training *small, const char *name,
                                          size_t threads, char out[600])
{
    snprintf(out, 600, "%s", in_folder(name));
    return (attn_train_options){
        .out = out,
        .train = small->train,
        .valid = small->valid,
        .threads = threads,
    };
}

void assert_same_file(const char *one, const char *two, const char *name)
{
    char path[640], *data[2];
    size_t length[2];
    attn_error error;
    const char *const folders[] = {one, two};
    for (size_t n = 0; n < 2; n++) {
        snprintf(path, sizeof path, "%s/%s", folders[n], name);
        assert_int_equal(attn_file_read(path, 1 << 24, &data[n], &length[n], &error),
                         ATTN_OK);
    }
    assert_int_equal(length[0], length[1]);
    assert_memory_equal(data[0], data[1], length[0]);
    free(data[0]);
    free(data[1]);
}

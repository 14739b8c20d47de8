/* attn caption: a picture in, a line about it out. */
#include "base/mix.h"
#include "cli/cli.h"
#include "inspect/build_picture.h"
#include "model/folder.h"
#include "train/pictures.h"
#include "train/task_captioner.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: attn caption MODEL PICTURE.png…  [options]\n"
    "       attn caption MODEL DIGITS.images.idx.gz --picture N [-o PICTURE.png]\n"
    "\n"
    "Writes what is in each picture, a line each.  A picture has the size that the\n"
    "model was trained on, light on dark.  From a file of digits, picture N is made\n"
    "of digits that were not trained on, and kept where -o says.  A file that is not\n"
    "here is looked for in the folder ATTN_DATA names.\n"
    "\n"
    "  --beam N       beams of the search (default 4; 1 is greedy)\n"
    "  --picture N    which composition, from 1\n"
    "  -o FILE        where to keep it\n"
    "  --json         one object a line: file, caption, finished, score; and, of a\n"
    "                 composition, what is really there\n"
    "\n"
    "example: attn caption captioner docs/pictures/digits.png\n"
    "         attn look docs/pictures/digits.png -o where.svg\n";

struct job {
    char folder[ATTN_PATH_BYTES];
    attn_captioner *captioner;
    attn_tokenizer *tokenizer;
    attn_context *context;
    attn_search_options search;
    int64_t number;     /* of the composition; 0: files are pictures */
    const char *output; /* where to keep it, or NULL */
    bool json;
};

static attn_status load(struct job *job, const char *name, attn_error *error)
{
    attn_status status = cli_find_model(name, job->folder, error);
    if (status == ATTN_OK)
        status = attn_captioner_load(&job->captioner, job->folder, error);
    if (status == ATTN_OK)
        cli_note("caption", attn_captioner_note(job->captioner));
    if (status == ATTN_OK)
        status = attn_folder_tokenizer_load(
            &job->tokenizer, job->folder,
            attn_captioner_config_of(job->captioner)->decoder.vocabulary, error);
    return status == ATTN_OK ? attn_context_open(&job->context, NULL, error) : status;
}

static attn_status print(const struct job *job, const char *file, const char *truth,
                         const attn_translation *caption, attn_error *error)
{
    char *text;
    const attn_status status =
        attn_tokenizer_decode(job->tokenizer, caption->ids, caption->count, &text, error);
    if (status != ATTN_OK)
        return status;
    if (job->json) {
        json_t *const object =
            json_pack("{s:s, s:s, s:b, s:f}", "file", file, "caption", text, "finished",
                      (int)caption->finished, "score", caption->score);
        if (truth)
            json_object_set_new(object, "truth", json_string(truth));
        char *const line = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER |
                                                  JSON_REAL_PRECISION(6));
        json_decref(object);
        cli_print_json(line);
        free(line);
    } else {
        cli_print(text, strlen(text));
        putchar('\n');
    }
    free(text);
    return ATTN_OK;
}

static attn_status describe(const struct job *job, const attn_picture *picture,
                            const char *file, const char *truth, attn_error *error)
{
    attn_translation caption = {0};
    attn_status status = attn_check_picture(job->captioner, picture, file, error);
    if (status == ATTN_OK)
        status = attn_captioner_write(job->captioner, job->context, picture->grey, 1,
                                      &job->search, &caption, error);
    if (status == ATTN_OK)
        status = print(job, file, truth, &caption, error);
    free(caption.ids);
    return status;
}

static attn_status describe_file(const struct job *job, const char *file,
                                 attn_error *error)
{
    attn_picture picture;
    attn_status status = attn_picture_load(&picture, file, error);
    if (status == ATTN_OK)
        status = describe(job, &picture, file, NULL, error);
    attn_picture_free(&picture);
    return status;
}

/* Picture `number` of the digits that tests are composed of. */
static attn_status describe_composition(const struct job *job, const char *file,
                                        attn_error *error)
{
    attn_digits digits;
    attn_composition composition;
    char truth[ATTN_CAPTION_BYTES];
    attn_status status =
        attn_captioner_test_pictures(job->captioner, file, &digits, &composition, error);
    if (status != ATTN_OK)
        return status;
    const attn_captioner_config *const config = attn_captioner_config_of(job->captioner);
    attn_picture picture = {config->rows, config->columns,
                            malloc((size_t)(config->rows * config->columns))};
    int8_t cells[ATTN_CELL_LIMIT];
    if (picture.grey) {
        attn_compose(&digits, &composition, attn_mix(0, (uint64_t)job->number),
                     picture.grey, cells);
        attn_caption(&composition, cells, truth);
        if (job->output)
            status = attn_picture_save(&picture, job->output, error);
        if (status == ATTN_OK)
            status =
                describe(job, &picture, job->output ? job->output : file, truth, error);
    } else {
        status = attn_error_set(error, ATTN_ENOMEM, "memory was refused for a picture");
    }
    attn_picture_free(&picture);
    attn_digits_free(&digits);
    return status;
}

int cli_caption(int argc, char **argv)
{
    struct job job = {0};
    attn_error error;
    const cli_option options[] = {
        {"beam", .integer = &job.search.beams, .low = 1, .high = ATTN_MOST_BEAMS},
        {"picture", .integer = &job.number, .low = 1, .high = INT64_C(1) << 53},
        {"output", 'o', .value = &job.output},
        {"json", .flag = &job.json},
        {0},
    };
    char file[ATTN_PATH_BYTES];
    int count, code;
    attn_search_options_init(&job.search);
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count < 2)
        return cli_misused("caption", "expected a model and a picture, got %d argument%s",
                           count, attn_s(count));
    if (job.output && job.number == 0)
        return cli_misused("caption", "-o keeps a composed picture: expected --picture "
                                      "with it");
    if (job.number > 0 && count != 2)
        return cli_misused("caption", "--picture composes of one file of digits, got %d",
                           count - 1);
    attn_status status = load(&job, argv[1], &error);
    for (int n = 2; status == ATTN_OK && n <= count; n++) {
        status = cli_find_data(argv[n], file, &error);
        if (status == ATTN_OK)
            status = job.number > 0 ? describe_composition(&job, file, &error)
                                    : describe_file(&job, file, &error);
    }
    attn_captioner_destroy(job.captioner);
    attn_tokenizer_destroy(job.tokenizer);
    attn_context_destroy(job.context);
    return status == ATTN_OK ? CLI_DONE : cli_fail("caption", &error);
}

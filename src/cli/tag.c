/* attn tag: the words of texts with what a tagger calls them. */
#include "base/context.h"
#include "cli/cli.h"
#include "cli/reader.h"
#include "text/words.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: attn tag MODEL [TEXT | FILE]... [options]\n"
    "\n"
    "For each text its words, each with its label: word/LABEL.  A FILE (- is standard\n"
    "input, as without any) has a text a line.  Punctuation is a word of its own, and\n"
    "so are the endings that English writes with an apostrophe: do n't, it 's.\n"
    "\n"
    "  --words             words are what stands between spaces, and nothing else\n"
    "  --json              one object a text: text, and words: word, label,\n"
    "                      probability, and the bytes of the text from begin to end\n"
    "\n"
    "example: attn tag tagger-en \"It's a book I can't put down.\"\n";

struct job {
    cli_reader model;
    bool words, json;
};

/* A text on its way. */
struct tagged {
    const char *text;
    attn_word *words;
    attn_reader_text read;
    int32_t *ids;
    int64_t *starts;
    float *probabilities;
};

/* What stands between single spaces. */
static attn_status split_at_spaces(const char *text, size_t length, attn_word **words,
                                   size_t *count, attn_error *error)
{
    *count = 0;
    *words = malloc((length + 1) * sizeof **words);
    if (!*words)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for words");
    for (size_t begin = 0, end; begin < length; begin = end + 1) {
        const char *const space = memchr(text + begin, ' ', length - begin);
        end = space ? (size_t)(space - text) : length;
        (*words)[(*count)++] =
            (attn_word){(int64_t)begin, (int64_t)end, (int64_t)begin, (int64_t)end};
    }
    return ATTN_OK;
}

static attn_status no_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory for a text");
}

/* A token covers a byte or more, but for the space before a word. */
static attn_status encode(const struct job *job, struct tagged *tagged, size_t length,
                          attn_error *error)
{
    const int64_t count = tagged->read.words;
    tagged->ids = malloc((length + (size_t)count + 1) * sizeof *tagged->ids);
    tagged->starts = calloc((size_t)count + 1, sizeof *tagged->starts);
    if (!tagged->ids || !tagged->starts)
        return no_memory(error);
    for (int64_t w = 0; w < count; w++) {
        const attn_word *const word = &tagged->words[w];
        attn_token *tokens;
        size_t pieces;
        ATTN_TRY(attn_word_encode(job->model.tokenizer, tagged->text + word->begin,
                                  (size_t)(word->end - word->begin), &tokens, &pieces,
                                  error));
        for (size_t n = 0; n < pieces; n++)
            tagged->ids[tagged->read.count++] = tokens[n].id;
        tagged->starts[w + 1] = tagged->read.count;
        free(tokens);
        const attn_reader_text alone = {tagged->ids + tagged->starts[w], (int64_t)pieces,
                                        (const int64_t[]){0, (int64_t)pieces}, 1};
        if (attn_reader_chunks(job->model.reader, &alone) == 0)
            return attn_error_set(
                error, ATTN_EFORMAT,
                "\"%.*s\" is a word of %zu tokens, the model has positions for %lld",
                (int)(word->end - word->begin < 60 ? word->end - word->begin : 60),
                tagged->text + word->begin, pieces,
                (long long)attn_reader_config_of(job->model.reader)->max_positions);
    }
    tagged->read.ids = tagged->ids;
    tagged->read.starts = tagged->starts;
    return ATTN_OK;
}

static attn_status print_json(const struct job *job, const struct tagged *tagged,
                              attn_error *error)
{
    const attn_reader *const reader = job->model.reader;
    const int64_t labels = attn_reader_config_of(reader)->labels;
    json_t *const list = json_array();
    for (int64_t w = 0; w < tagged->read.words; w++) {
        const attn_word *const word = &tagged->words[w];
        const float *const row = tagged->probabilities + w * labels;
        const int64_t label = attn_reader_choose(row, labels);
        json_array_append_new(
            list, json_pack("{s:o, s:s, s:o, s:I, s:I}", "word",
                            json_stringn(tagged->text + word->begin,
                                         (size_t)(word->end - word->begin)),
                            "label", attn_reader_label(reader, label), "probability",
                            cli_reader_probability(row[label]), "begin",
                            (json_int_t)word->begin, "end", (json_int_t)word->end));
    }
    return cli_reader_print(json_pack("{s:s, s:o}", "text", tagged->text, "words", list),
                            error);
}

static void print_line(const struct job *job, const struct tagged *tagged)
{
    const attn_reader *const reader = job->model.reader;
    const int64_t labels = attn_reader_config_of(reader)->labels;
    for (int64_t w = 0; w < tagged->read.words; w++) {
        const attn_word *const word = &tagged->words[w];
        const int64_t label =
            attn_reader_choose(tagged->probabilities + w * labels, labels);
        const char *const name = attn_reader_label(reader, label);
        fputs(w > 0 ? " " : "", stdout);
        cli_print(tagged->text + word->begin, (size_t)(word->end - word->begin));
        putchar('/');
        cli_print(name, strlen(name));
    }
    putchar('\n');
}

static attn_status read_text(const struct job *job, struct tagged *tagged, size_t length,
                             attn_error *error)
{
    const int64_t labels = attn_reader_config_of(job->model.reader)->labels;
    size_t count = 0;
    ATTN_TRY((job->words ? split_at_spaces : attn_words_of_text)(
        tagged->text, length, &tagged->words, &count, error));
    tagged->read.words = (int64_t)count;
    ATTN_TRY(encode(job, tagged, length, error));
    tagged->probabilities =
        malloc((count * (size_t)labels + 1) * sizeof *tagged->probabilities);
    if (!tagged->probabilities)
        return no_memory(error);
    ATTN_TRY(attn_reader_predict(job->model.reader, job->model.context, &tagged->read, 1,
                                 tagged->probabilities, error));
    if (job->json)
        return print_json(job, tagged, error);
    print_line(job, tagged);
    return ATTN_OK;
}

static attn_status tag(void *user, const char *text, size_t length_bytes,
                       attn_error *error)
{
    struct tagged tagged = {.text = text};
    const attn_status status = read_text(user, &tagged, length_bytes, error);
    free(tagged.words);
    free(tagged.ids);
    free(tagged.starts);
    free(tagged.probabilities);
    return status;
}

int cli_tag(int argc, char **argv)
{
    struct job job = {0};
    const cli_option options[] = {
        {"words", .flag = &job.words},
        {"json", .flag = &job.json},
        {0},
    };
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count < 1)
        return cli_misused("tag", "expected a model");
    attn_error error;
    attn_status status = cli_reader_load(&job.model, argv[1], true, &error);
    if (status == ATTN_OK)
        status = cli_reader_each("tag MODEL", argv + 2, count - 1, tag, &job, &error);
    cli_reader_free(&job.model);
    return status == ATTN_OK ? CLI_DONE : cli_fail("tag", &error);
}

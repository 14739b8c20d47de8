/* attn classify: what a classifier makes of texts. */
#include "base/context.h"
#include "cli/cli.h"
#include "cli/reader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: attn classify MODEL [TEXT | FILE]... [options]\n"
    "\n"
    "For each text the most probable label and, after a tab, the probabilities, the\n"
    "largest first.  A FILE (- is standard input, as without any) has a text a line;\n"
    "an empty one has no label, and an empty line comes out.\n"
    "A text longer than the model's positions is read in parts of about equal length,\n"
    "whose logits are averaged; --json says in how many.\n"
    "\n"
    "  --top K             at most K probabilities (default 5)\n"
    "  --json              one object a text: text, label, probabilities, tokens and\n"
    "                      parts\n"
    "\n"
    "example: attn classify reviews 'A fine film, well played.'\n";

struct job {
    cli_reader model;
    int64_t top;
    bool json;
};

/* The labels from the most probable on; of equals, the first first. */
static void sort_labels(const float *probabilities, int64_t count, int64_t *order)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t place = i;
        for (; place > 0 && probabilities[order[place - 1]] < probabilities[i]; place--)
            order[place] = order[place - 1];
        order[place] = i;
    }
}

static attn_status print_json(const struct job *job, const char *text,
                              const attn_reader_text *read, const float *probabilities,
                              const int64_t *order, attn_error *error)
{
    const attn_reader *const reader = job->model.reader;
    json_t *const list = json_object();
    for (int64_t i = 0; i < job->top; i++)
        json_object_set_new(list, attn_reader_label(reader, order[i]),
                            cli_reader_probability(probabilities[order[i]]));
    return cli_reader_print(json_pack("{s:s, s:s, s:o, s:I, s:I}", "text", text, "label",
                                      attn_reader_label(reader, order[0]),
                                      "probabilities", list, "tokens",
                                      (json_int_t)read->count, "parts",
                                      (json_int_t)attn_reader_chunks(reader, read)),
                            error);
}

static void print_line(const struct job *job, const float *probabilities,
                       const int64_t *order)
{
    const char *const best = attn_reader_label(job->model.reader, order[0]);
    cli_print(best, strlen(best));
    for (int64_t i = 0; i < job->top; i++) {
        const char *const name = attn_reader_label(job->model.reader, order[i]);
        fputs(i == 0 ? "\t" : ", ", stdout);
        cli_print(name, strlen(name));
        printf(" %.4f", (double)probabilities[order[i]]);
    }
    putchar('\n');
}

static attn_status predict(const struct job *job, const char *text,
                           const attn_reader_text *read, attn_error *error)
{
    const int64_t labels = attn_reader_config_of(job->model.reader)->labels;
    float *const probabilities = malloc((size_t)labels * sizeof *probabilities);
    int64_t *const order = malloc((size_t)labels * sizeof *order);
    attn_status status = ATTN_OK;
    if (!probabilities || !order)
        status = attn_error_set(error, ATTN_ENOMEM, "no memory for labels");
    if (status == ATTN_OK)
        status = attn_reader_predict(job->model.reader, job->model.context, read, 1,
                                     probabilities, error);
    if (status == ATTN_OK) {
        sort_labels(probabilities, labels, order);
        if (job->json)
            status = print_json(job, text, read, probabilities, order, error);
        else
            print_line(job, probabilities, order);
    }
    free(probabilities);
    free(order);
    return status;
}

/* An empty line of a file keeps its place. */
static attn_status print_nothing(const struct job *job, attn_error *error)
{
    if (job->json)
        return cli_reader_print(json_pack("{s:s, s:n, s:{}, s:i, s:i}", "text", "",
                                          "label", "probabilities", "tokens", 0, "parts",
                                          0),
                                error);
    putchar('\n');
    return ATTN_OK;
}

static attn_status classify(void *user, const char *text, size_t length_bytes,
                            attn_error *error)
{
    const struct job *const job = user;
    attn_token *tokens;
    size_t count;
    if (length_bytes == 0)
        return print_nothing(job, error);
    ATTN_TRY(attn_tokenizer_encode(job->model.tokenizer, text, length_bytes, &tokens,
                                   &count, error));
    int32_t *const ids = malloc((count + 1) * sizeof *ids);
    for (size_t n = 0; ids && n < count; n++)
        ids[n] = tokens[n].id;
    free(tokens);
    if (!ids)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for a text");
    const attn_reader_text read = {.ids = ids, .count = (int64_t)count};
    const attn_status status = predict(job, text, &read, error);
    free(ids);
    return status;
}

int cli_classify(int argc, char **argv)
{
    struct job job = {.top = 5};
    const cli_option options[] = {
        {"top", .integer = &job.top, .low = 1, .high = 1 << 20},
        {"json", .flag = &job.json},
        {0},
    };
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count < 1)
        return cli_misused("classify", "expected a model");
    attn_error error;
    attn_status status = cli_reader_load(&job.model, argv[1], false, &error);
    if (status == ATTN_OK) {
        const int64_t labels = attn_reader_config_of(job.model.reader)->labels;
        job.top = job.top < labels ? job.top : labels;
        status = cli_reader_each("classify MODEL", argv + 2, count - 1, classify, &job,
                                 &error);
    }
    cli_reader_free(&job.model);
    return status == ATTN_OK ? CLI_DONE : cli_fail("classify", &error);
}

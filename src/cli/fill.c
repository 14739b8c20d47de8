/* attn fill: what a masked language model expects in the place of each <mask> of a text.
 */
#include "base/context.h"
#include "cli/cli.h"
#include "cli/lines.h"
#include "inspect/buffer.h"
#include "inspect/sentence.h"
#include "model/bert.h"
#include "model/folder.h"
#include "text/tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: attn fill TEXT | FILE [options]\n"
    "\n"
    "Guesses the token in the place of each <mask> of a text (- is standard input)\n"
    "from all the others, with its probability.\n"
    "\n"
    "  --model NAME        a folder, or one in trained/ or models/; the default,\n"
    "                      trained/masked-sentences, is not shipped but made by\n"
    "                      attn train recipes/masked-sentences.json\n"
    "  --top-k K           guesses for each (default 5)\n"
    "  --threads N         default: all processors; changes no result\n"
    "  --json              one object: text, filled, masks with their candidates\n"
    "\n"
    "example: attn fill 'The cat <mask> on the mat'\n";

static const char MASK[] = "<mask>", USUAL_MODEL[] = "masked-sentences";

enum { USUAL_CANDIDATES = 5 };

struct candidate {
    int32_t id;
    float probability;
};

struct job {
    char folder[ATTN_PATH_BYTES];
    attn_bert *bert;
    attn_tokenizer *tokenizer;
    cli_context context;
    attn_tape *tape;
    int64_t threads, wanted;

    char *text;
    int32_t *ids; /* with <s> and </s> */
    int64_t count;
    int32_t *places; /* of the masks in ids */
    int64_t masks;
    struct candidate *candidates; /* [masks][wanted] */
    int64_t kept;                 /* of them, for each */
};

static attn_status out_of_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory to fill a text");
}

/* ---- The text -------------------------------------------------------------------- */

static attn_status read_text(struct job *job, const char *text, attn_error *error)
{
    size_t length;
    ATTN_TRY(cli_read_text(text, "fill", &job->text, &length, error));
    return job->text[strspn(job->text, " \t\r\n\v\f")] ? ATTN_OK : cli_empty_text(error);
}

static attn_status add_piece(struct job *job, const char *piece, size_t length,
                             attn_error *error)
{
    attn_token *tokens;
    size_t count;
    ATTN_TRY(
        attn_tokenizer_encode(job->tokenizer, piece, length, &tokens, &count, error));
    for (size_t i = 0; i < count; i++)
        job->ids[job->count++] = tokens[i].id;
    free(tokens);
    return ATTN_OK;
}

/* A mask takes the space before it, as a word does: what `tokenizers` makes of it. */
static size_t without_space(const char *piece, size_t length)
{
    while (length > 0 && strchr(" \t\r\n", piece[length - 1]))
        length--;
    return length;
}

static attn_status encode_text(struct job *job, attn_error *error)
{
    const size_t mask_length = strlen(MASK);
    const char *piece = job->text;
    job->ids[job->count++] = ATTN_TOKEN_BOS;
    for (const char *mask; (mask = strstr(piece, MASK)); piece = mask + mask_length) {
        ATTN_TRY(
            add_piece(job, piece, without_space(piece, (size_t)(mask - piece)), error));
        job->places[job->masks++] = (int32_t)job->count;
        job->ids[job->count++] = attn_tokenizer_mask(job->tokenizer);
    }
    ATTN_TRY(add_piece(job, piece, strlen(piece), error));
    job->ids[job->count++] = ATTN_TOKEN_EOS;
    const int64_t positions = attn_bert_config_of(job->bert)->max_positions;
    if (job->masks == 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "no %s in the text, expected one at least", MASK);
    return attn_tokens_fit("the text", (size_t)job->count - 2, positions - 2, error);
}

/* ---- Guessing -------------------------------------------------------------------- */

/* By probability, then by id. */
static int by_probability(const void *a, const void *b)
{
    const struct candidate *const x = a, *const y = b;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static attn_status is_special(const struct job *job, int32_t id, bool *special,
                              attn_error *error)
{
    const char *bytes;
    size_t length;
    return attn_tokenizer_bytes(job->tokenizer, id, &bytes, &length, special, error);
}

/* The best of one row, of probabilities among all tokens; a special is no guess. */
static attn_status keep_best(struct job *job, const float *logits, struct candidate *all,
                             struct candidate *best, attn_error *error)
{
    const int64_t vocabulary = attn_bert_config_of(job->bert)->vocabulary;
    double largest = -(double)INFINITY, sum = 0.0;
    int64_t count = 0;
    for (int64_t i = 0; i < vocabulary; i++)
        largest = fmax(largest, (double)logits[i]);
    for (int64_t i = 0; i < vocabulary; i++)
        sum += exp((double)logits[i] - largest);
    if (!isfinite(sum))
        return attn_error_set(error, ATTN_ENOTFINITE,
                              "the model's logits are not finite");
    for (int32_t i = 0; i < vocabulary; i++) {
        bool special;
        ATTN_TRY(is_special(job, i, &special, error));
        if (!special)
            all[count++] =
                (struct candidate){i, (float)(exp((double)logits[i] - largest) / sum)};
    }
    qsort(all, (size_t)count, sizeof *all, by_probability);
    job->kept = job->wanted < count ? job->wanted : count;
    memcpy(best, all, (size_t)job->kept * sizeof *best);
    return ATTN_OK;
}

static attn_status guess(struct job *job, attn_error *error)
{
    const int64_t vocabulary = attn_bert_config_of(job->bert)->vocabulary;
    const int64_t starts[] = {0, job->count};
    const attn_bert_input input = {.ids = job->ids, .packing = {1, starts}};
    const attn_pass pass = {.tape = job->tape,
                            .parameters = attn_bert_parameters(job->bert)};
    if (job->wanted > vocabulary)
        job->wanted = vocabulary;
    attn_tape_begin(job->tape, false, 0);
    const attn_tensor *const logits =
        attn_bert_logits_at(job->bert, &pass, &input, job->places, job->masks);
    if (!logits)
        return attn_tape_report(job->tape, error);
    struct candidate *const all = malloc((size_t)vocabulary * sizeof *all);
    job->candidates = calloc((size_t)(job->masks * job->wanted), sizeof *job->candidates);
    attn_status status = all && job->candidates ? ATTN_OK : out_of_memory(error);
    for (int64_t m = 0; m < job->masks && status == ATTN_OK; m++)
        status = keep_best(job, logits->data + m * vocabulary, all,
                           job->candidates + m * job->wanted, error);
    free(all);
    return status;
}

/* ---- Printing -------------------------------------------------------------------- */

/* The text with the best guess in each place; the caller's to free. */
static attn_status fill_text(const struct job *job, char **filled, attn_error *error)
{
    int32_t *const ids = malloc((size_t)job->count * sizeof *ids);
    if (!ids)
        return out_of_memory(error);
    memcpy(ids, job->ids, (size_t)job->count * sizeof *ids);
    for (int64_t m = 0; m < job->masks; m++)
        ids[job->places[m]] = job->candidates[m * job->wanted].id;
    const attn_status status =
        attn_tokenizer_decode(job->tokenizer, ids, (size_t)job->count, filled, error);
    free(ids);
    return status;
}

static attn_status print_text(const struct job *job, attn_error *error)
{
    char *filled;
    attn_buffer line = {0};
    ATTN_TRY(fill_text(job, &filled, error));
    attn_put_text(&line, filled, ATTN_SPELL_TERMINAL);
    attn_buffer_put(&line, "\n");
    free(filled);
    for (int64_t m = 0; m < job->masks; m++) {
        attn_buffer_put(&line, "\n");
        for (int64_t k = 0; k < job->kept; k++) {
            const struct candidate *const c = &job->candidates[m * job->wanted + k];
            char *token;
            const attn_status status =
                attn_tokenizer_decode(job->tokenizer, &c->id, 1, &token, error);
            if (status != ATTN_OK) {
                attn_buffer_free(&line);
                return status;
            }
            attn_buffer_print(&line, "%7.4f  ", (double)c->probability);
            attn_put_text(&line, token + (token[0] == ' ' && token[1] != '\0'),
                          ATTN_SPELL_TERMINAL);
            attn_buffer_put(&line, "\n");
            free(token);
        }
    }
    fputs(attn_buffer_text(&line), stdout);
    attn_buffer_free(&line);
    return ATTN_OK;
}

/* NULL without memory, or with a token that has no JSON. */
static json_t *candidate_json(const struct job *job, const struct candidate *candidate)
{
    attn_error error;
    char *token;
    if (attn_tokenizer_decode(job->tokenizer, &candidate->id, 1, &token, &error) !=
        ATTN_OK)
        return NULL;
    json_t *const object =
        json_pack("{s:i, s:s, s:f}", "id", (int)candidate->id, "token", token,
                  "probability", (double)candidate->probability);
    free(token);
    return object;
}

static json_t *masks_json(const struct job *job)
{
    json_t *const masks = json_array();
    for (int64_t m = 0; m < job->masks; m++) {
        json_t *const list = json_array();
        for (int64_t k = 0; k < job->kept; k++)
            json_array_append_new(
                list, candidate_json(job, &job->candidates[m * job->wanted + k]));
        json_array_append_new(masks, json_pack("{s:i, s:o}", "place", (int)job->places[m],
                                               "candidates", list));
    }
    return masks;
}

static attn_status print_json(const struct job *job, attn_error *error)
{
    char *filled;
    ATTN_TRY(fill_text(job, &filled, error));
    json_t *const document =
        json_pack("{s:s, s:s, s:I, s:o}", "text", job->text, "filled", filled, "tokens",
                  (json_int_t)job->count, "masks", masks_json(job));
    char *const text = document ? json_dumps(document, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(document);
    free(filled);
    if (!text)
        return out_of_memory(error);
    cli_print_json(text);
    free(text);
    return ATTN_OK;
}

/* ---- The verb -------------------------------------------------------------------- */

static attn_status start(struct job *job, const char *model, const char *text,
                         attn_error *error)
{
    attn_status status = cli_find_model(model, job->folder, error);
    if (status != ATTN_OK && strcmp(model, USUAL_MODEL) == 0)
        return attn_error_set(error, status,
                              "no model yet, as none is shipped: attn train "
                              "recipes/masked-sentences.json makes trained/%s, or give "
                              "--model FOLDER",
                              USUAL_MODEL);
    ATTN_TRY(status);
    ATTN_TRY(attn_bert_load(&job->bert, job->folder, error));
    cli_note("fill", attn_bert_note(job->bert));
    const attn_bert_config *const config = attn_bert_config_of(job->bert);
    if (config->head != ATTN_BERT_MASKED)
        return attn_error_set(error, ATTN_EUNSUPPORTED,
                              "%s: the model gives labels, expected a masked language "
                              "model",
                              job->folder);
    ATTN_TRY(attn_folder_tokenizer_load(&job->tokenizer, job->folder, config->vocabulary,
                                        error));
    if (attn_tokenizer_mask(job->tokenizer) < 0)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s/tokenizer.json: no %s, expected one", job->folder,
                              MASK);
    ATTN_TRY(cli_context_create(&job->context, (size_t)job->threads, error));
    if (attn_tape_create(&job->tape, job->context.attention) != ATTN_OK)
        return out_of_memory(error);
    ATTN_TRY(read_text(job, text, error));
    /* A token has one byte at least. */
    const size_t most = strlen(job->text) + 3;
    job->ids = malloc(most * sizeof *job->ids);
    job->places = malloc(most * sizeof *job->places);
    if (!job->ids || !job->places)
        return out_of_memory(error);
    return encode_text(job, error);
}

static void stop(struct job *job)
{
    attn_tape_destroy(job->tape);
    cli_context_destroy(&job->context);
    attn_tokenizer_destroy(job->tokenizer);
    attn_bert_destroy(job->bert);
    free(job->text);
    free(job->ids);
    free(job->places);
    free(job->candidates);
}

int cli_fill(int argc, char **argv)
{
    struct job job = {.wanted = USUAL_CANDIDATES};
    const char *model = USUAL_MODEL;
    bool as_json = false;
    const cli_option options[] = {
        {"model", .value = &model},
        {"top-k", .integer = &job.wanted, .low = 1, .high = 1 << 20},
        {"threads", .threads = &job.threads},
        {"json", .flag = &as_json},
        {0},
    };
    attn_error error;
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count != 1)
        return cli_misused("fill", "expected one text, got %d argument%s", count,
                           attn_s(count));
    attn_status status = start(&job, model, argv[1], &error);
    if (status == ATTN_OK)
        status = guess(&job, &error);
    if (status == ATTN_OK)
        status = as_json ? print_json(&job, &error) : print_text(&job, &error);
    stop(&job);
    return status == ATTN_OK ? CLI_DONE : cli_fail("fill", &error);
}

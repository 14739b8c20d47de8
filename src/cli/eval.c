/* attn eval: how good a model is on a file.  Translators have options and a table of
 * their own; what others score is printed by scores.c. */
#include "cli/cli.h"
#include "cli/model.h"
#include "cli/scores.h"
#include "file/file.h"
#include "train/pairs_task.h"
#include "train/pool.h"
#include "train/progress.h"
#include "train/score.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: attn eval MODEL FILE [options]\n"
    "\n"
    "Scores a model on FILE, which is as its training's; .xz is unpacked.  If it is\n"
    "not here, it is looked for in the folder ATTN_DATA names.  What is scored\n"
    "depends on the kind of the model.  A language model's FILE in .tsv, or a folder\n"
    "of such, has pairs; the good text is to be the likelier: kind, good, bad.\n"
    "\n"
    "  --threads N         default: all processors; changes no result\n"
    "  --json              the result as JSON\n"
    "\n"
    "A translator's FILE has in each line a sentence and, after tabs, one or more\n"
    "references.  BLEU is sacrebleu's, with all references; loss and perplexity are\n"
    "of the first reference, a token.\n"
    "\n"
    "  --beam N            beams of the search (default 4; 1 is greedy)\n"
    "  --length-power P    scores are divided by length^P (default 1)\n"
    "  --limit N           the first N lines only\n"
    "  --bleu WORDS        13a, zh or moses (default: zh for Chinese, else 13a)\n"
    "  --swap              the sentence and its first reference change places\n"
    "  --lower-case        small letters on both sides, for a model of small ones\n"
    "  --write FILE        the translations, a line each\n"
    "\n"
    "example: attn eval translate-en-fr translate/tatoeba-en-fr.test.tsv.xz\n";

struct arguments {
    const char *model, *bleu;
    bool json, swap, lower_case;
};

struct scores {
    attn_batch_loss loss;
    size_t left_out; /* pairs too long for a loss */
    attn_bleu bleu;
    attn_length_score lengths[ATTN_LENGTH_SCORES];
    size_t sentences, references;
    int64_t written, unfinished; /* tokens, sentences */
    double seconds;              /* of translation */
};

struct job {
    cli_model model;
    const char *file, *write;
    attn_search_options search;
    attn_pairs_settings pairs; /* how the file is read and scored */
    int64_t limit, threads;
    pthreadpool_t pool;
    attn_corpus corpus;
};

static attn_status write_lines(const attn_translations *translations, const char *path,
                               attn_error *error)
{
    attn_file_writer *writer;
    attn_status status = attn_file_writer_open(&writer, path, error);
    if (status != ATTN_OK)
        return status;
    for (size_t n = 0; n < translations->lines && status == ATTN_OK; n++) {
        const char *const text = translations->texts[n];
        status = attn_file_writer_put(writer, text, strlen(text), error);
        if (status == ATTN_OK)
            status = attn_file_writer_put(writer, "\n", 1, error);
    }
    if (status == ATTN_OK)
        return attn_file_writer_close(writer, error);
    attn_file_writer_abandon(writer);
    return status;
}

static attn_status measure_bleu(const struct job *job, struct scores *scores,
                                attn_error *error)
{
    attn_translations translations;
    const double start = attn_seconds();
    attn_status status = attn_score_translate(
        &translations, &job->model.seq2seq, job->model.tokenizer, &job->corpus,
        scores->sentences, &job->search, job->pool, (size_t)job->threads, error);
    if (status != ATTN_OK)
        return status;
    scores->seconds = attn_seconds() - start;
    scores->written = translations.tokens;
    scores->unfinished = translations.unfinished;
    const attn_bleu_words words =
        attn_pairs_words(&job->corpus, scores->sentences, &job->pairs);
    status = attn_score_bleu(&translations, &job->corpus, words, &scores->bleu, error);
    if (status == ATTN_OK)
        status = attn_score_by_length(&translations, &job->corpus, words, scores->lengths,
                                      error);
    if (status == ATTN_OK && job->write)
        status = write_lines(&translations, job->write, error);
    attn_translations_free(&translations);
    return status;
}

static attn_status score(struct job *job, struct scores *scores, attn_error *error)
{
    attn_status status =
        attn_pairs_corpus_load(&job->corpus, job->file, &job->pairs, error);
    if (status != ATTN_OK)
        return status;
    const size_t lines = job->corpus.lines;
    const bool limited = job->limit > 0 && (size_t)job->limit < lines;
    scores->sentences = limited ? (size_t)job->limit : lines;
    scores->references = job->corpus.first_field[scores->sentences] - scores->sentences;
    status = attn_score_loss(&job->model.seq2seq, job->model.tokenizer, &job->corpus,
                             scores->sentences, job->pool, &scores->loss,
                             &scores->left_out, error);
    return status == ATTN_OK ? measure_bleu(job, scores, error) : status;
}

static void print_json(const struct job *job, const struct scores *scores)
{
    const double loss = scores->loss.plain / (double)scores->loss.targets;
    printf("{\"bleu\": %.2f, \"brevity\": %.4f, \"loss\": %.4f, \"perplexity\": %.3f, "
           "\"target_tokens\": %" PRId64 ", \"sentences\": %zu, \"references\": %zu, "
           "\"beams\": %" PRId64 ", \"length_power\": %g, \"unfinished\": %" PRId64
           ", \"left_out_of_loss\": %zu, \"written_tokens\": %" PRId64
           ", \"seconds\": %.2f, \"tokens_per_second\": %.1f, \"by_length\": [",
           attn_bleu_score(&scores->bleu), attn_bleu_brevity(&scores->bleu), loss,
           exp(loss), scores->loss.targets, scores->sentences, scores->references,
           job->search.beams, job->search.length_power, scores->unfinished,
           scores->left_out, scores->written, scores->seconds,
           (double)scores->written / scores->seconds);
    const char *comma = "";
    for (size_t n = 0; n < ATTN_LENGTH_SCORES; n++) {
        const attn_length_score *const length = &scores->lengths[n];
        if (length->sentences == 0)
            continue;
        printf("%s{\"source_words\": \"%s\", \"sentences\": %" PRId64 ", \"bleu\": %.2f}",
               comma, length->name, length->sentences, attn_bleu_score(&length->bleu));
        comma = ", ";
    }
    printf("]");
    if (scores->bleu.words != ATTN_BLEU_13A)
        printf(", \"bleu_words\": \"%s\"", attn_bleu_words_names[scores->bleu.words]);
    printf("}\n");
}

/* How to have it again, but for the options. */
static void print_again(const char *folder, const char *file)
{
    printf("\nagain: attn eval ");
    cli_print(folder, strlen(folder));
    printf(" ");
    cli_print(file, strlen(file));
}

static void print_table(const struct job *job, const char *folder,
                        const struct scores *scores)
{
    const double loss = scores->loss.plain / (double)scores->loss.targets;
    const attn_bleu *const bleu = &scores->bleu;
    printf("BLEU         %7.2f   %zu sentence%s, %zu reference%s; brevity %.3f (%" PRId64
           " words for %" PRId64 ")\n",
           attn_bleu_score(bleu), scores->sentences, attn_s((int64_t)scores->sentences),
           scores->references, attn_s((int64_t)scores->references),
           attn_bleu_brevity(bleu), bleu->hypothesis_length, bleu->reference_length);
    for (size_t n = 0; n < ATTN_LENGTH_SCORES; n++)
        if (scores->lengths[n].sentences > 0)
            printf("  %-10s %7.2f   %" PRId64 " sentence%s of so many words\n",
                   scores->lengths[n].name, attn_bleu_score(&scores->lengths[n].bleu),
                   scores->lengths[n].sentences, attn_s(scores->lengths[n].sentences));
    printf("loss         %7.4f   nats a token, of %" PRId64
           " tokens of first references\n",
           loss, scores->loss.targets);
    printf("perplexity   %7.2f\n", exp(loss));
    printf("speed        %7.0f   tokens a second written, %.1f s, %" PRId64
           " thread%s, %" PRId64 " beam%s\n",
           (double)scores->written / scores->seconds, scores->seconds, job->threads,
           attn_s(job->threads), job->search.beams, attn_s(job->search.beams));
    if (scores->unfinished > 0)
        printf("unfinished   %7" PRId64 "   sentence%s ended at the length limit\n",
               scores->unfinished, attn_s(scores->unfinished));
    if (scores->left_out > 0)
        printf("left out     %7zu   pair%s longer than the positions, of the loss\n",
               scores->left_out, attn_s((int64_t)scores->left_out));
    print_again(folder, job->file);
    printf(" --beam %" PRId64, job->search.beams);
    if (job->search.length_power != 1.0)
        printf(" --length-power %g", job->search.length_power);
    if (job->limit > 0)
        printf(" --limit %" PRId64, job->limit);
    if (bleu->words != ATTN_BLEU_13A)
        printf(" --bleu %s", attn_bleu_words_names[bleu->words]);
    printf("%s%s\n", job->pairs.swap ? " --swap" : "",
           job->pairs.lower_case ? " --lower-case" : "");
}

static int read_words(const struct arguments *arguments, struct job *job)
{
    job->pairs = (attn_pairs_settings){
        .swap = arguments->swap, .lower_case = arguments->lower_case, .bleu = -1};
    for (int n = 0; arguments->bleu && attn_bleu_words_names[n]; n++)
        if (strcmp(arguments->bleu, attn_bleu_words_names[n]) == 0)
            job->pairs.bleu = n;
    return !arguments->bleu || job->pairs.bleu >= 0
               ? CLI_DONE
               : cli_misused("eval", "--bleu is %s, expected 13a, zh or moses",
                             arguments->bleu);
}

static attn_status eval_translator(const struct arguments *arguments, const char *folder,
                                   struct job *job, attn_error *error)
{
    struct scores scores = {0};
    attn_status status = cli_model_load(&job->model, "eval", folder, error);
    if (status == ATTN_OK && attn_tokenizer_lowers(job->model.tokenizer))
        job->pairs.lower_case = true;
    if (status == ATTN_OK)
        status = score(job, &scores, error);
    if (status == ATTN_OK && arguments->json)
        print_json(job, &scores);
    else if (status == ATTN_OK)
        print_table(job, folder, &scores);
    attn_corpus_free(&job->corpus);
    cli_model_free(&job->model);
    return status;
}

/* ---- Other kinds ----------------------------------------------------------------- */

static attn_status eval_kind(const struct arguments *arguments,
                             const attn_task_kind *kind, const char *folder,
                             const struct job *job, attn_error *error)
{
    attn_progress progress = {0}; /* says nothing */
    const attn_score_job of_kind = {
        .folder = folder,
        .file = job->file,
        .name = job->file,
        .pool = job->pool,
        .threads = (size_t)job->threads,
        .progress = &progress,
    };
    json_t *const scores = json_object();
    const attn_status status = kind->score(&of_kind, scores, error);
    if (status == ATTN_OK && arguments->json) {
        char *const text =
            json_dumps(scores, JSON_REAL_PRECISION(6) | JSON_PRESERVE_ORDER);
        cli_print_json(text);
        free(text);
    } else if (status == ATTN_OK) {
        cli_print_scores(scores);
        print_again(folder, job->file);
        printf("\n");
    }
    json_decref(scores);
    return status;
}

static int eval(const struct arguments *arguments, struct job *job)
{
    char folder[ATTN_PATH_BYTES], file[ATTN_PATH_BYTES];
    attn_search_options usual;
    attn_search_options_init(&usual);
    attn_error error;
    attn_status status = cli_find_model(arguments->model, folder, &error);
    if (status != ATTN_OK)
        return cli_fail("eval", &error);
    const attn_task_kind *const kind = attn_task_kind_of_model(folder);
    /* What is of no kind is refused with a translator's reasons. */
    const bool translates = !kind || kind->score == attn_pairs_task_score;
    if (!translates &&
        (job->search.beams > 0 || job->search.length_power >= 0.0 || job->limit > 0 ||
         job->write || arguments->bleu || arguments->swap || arguments->lower_case))
        return cli_misused("eval",
                           "only --threads and --json are for models that are no "
                           "translators, and %s is of the kind \"%s\"",
                           arguments->model, kind->name);
    status = cli_find_data(job->file, file, &error);
    if (status != ATTN_OK)
        return cli_fail("eval", &error);
    job->file = file;
    if (job->search.beams == 0)
        job->search.beams = usual.beams;
    if (job->search.length_power < 0.0)
        job->search.length_power = usual.length_power;
    status = attn_pool_create(&job->pool, (size_t)job->threads, &error);
    if (status == ATTN_OK)
        status = translates ? eval_translator(arguments, folder, job, &error)
                            : eval_kind(arguments, kind, folder, job, &error);
    pthreadpool_destroy(job->pool);
    return status == ATTN_OK ? CLI_DONE : cli_fail("eval", &error);
}

int cli_eval(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct job job = {.search = {.length_power = -1.0}}; /* nothing given */
    const cli_option options[] = {
        {"beam", .integer = &job.search.beams, .low = 1, .high = ATTN_MOST_BEAMS},
        {"length-power", .decimal = &job.search.length_power, .least = 0.0, .most = 10.0},
        {"limit", .integer = &job.limit, .low = 1, .high = INT64_C(1) << 53},
        {"threads", .threads = &job.threads},
        {"write", .value = &job.write},
        {"bleu", .value = &arguments.bleu},
        {"swap", .flag = &arguments.swap},
        {"lower-case", .flag = &arguments.lower_case},
        {"json", .flag = &arguments.json},
        {0},
    };
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count != 2)
        return cli_misused("eval", "expected a model and a file, got %d argument%s",
                           count, attn_s(count));
    arguments.model = argv[1];
    job.file = argv[2];
    code = read_words(&arguments, &job);
    return code == CLI_DONE ? eval(&arguments, &job) : code;
}

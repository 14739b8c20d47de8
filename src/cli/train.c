/* attn train: a recipe becomes a model. */
#include "train/train.h"
#include "base/context.h"
#include "cli/cli.h"
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: attn train RECIPE [options]\n"
    "\n"
    "Trains the model of a recipe (JSON) and writes it to a folder: config.json,\n"
    "model.safetensors, tokenizer.json and scores.json.  Killed and started again, it\n"
    "goes on where it was, and ends with the same bits.  Ctrl-C stops after the step.\n"
    "\n"
    "  --out FOLDER     where to (default: trained/NAME, by the recipe's name)\n"
    "  --threads N      default: all processors; changes no bit of the result\n"
    "  --minutes M      stop with a checkpoint after M minutes\n"
    "  --max-steps N    stop with a checkpoint after step N\n"
    "  --resume         fail unless there is a checkpoint to go on from\n"
    "  --changed        go on although keys of the recipe's \"training\" changed\n"
    "  --train FILE     data of your own instead of the recipe's, of the same form\n"
    "                   (a translator's: a line is a sentence, a tab and its\n"
    "                   translation); .xz is unpacked.  The recipe's test is left out\n"
    "  --valid FILE     likewise\n"
    "  --test FILE      likewise, scored once at the end\n"
    "  --quiet          no progress\n"
    "\n"
    "A recipe's files are looked for beside it, then in the folder ATTN_DATA names.\n"
    "\n"
    "example: attn train recipes/tiny-en-fr.json\n"
    "         ATTN_DATA=data attn train recipes/translate-en-fr.json --minutes 100\n";

enum { TEST = 2 };

struct arguments {
    const char *recipe, *train, *valid, *test;
};

static volatile sig_atomic_t stop;

/* A second signal ends the program at once. */
static void ask_to_stop(int signal_number)
{
    (void)signal_number;
    stop = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = ask_to_stop};
    action.sa_flags = (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* trained/translate-en-fr of recipes/translate-en-fr.json; trained/.json of .json */
static attn_status name_folder(char *folder, const char *recipe, attn_error *error)
{
    const char *const slash = strrchr(recipe, '/');
    ATTN_TRY(attn_path_join(folder, "trained", slash ? slash + 1 : recipe, error));
    char *const dot = strrchr(folder, '.');
    if (dot && dot[-1] != '/')
        *dot = '\0';
    return ATTN_OK;
}

/* The recipe's test belongs to the recipe's data: beside --train it is left out. */
static attn_status find_files(const attn_recipe *recipe,
                              const struct arguments *arguments,
                              char files[3][ATTN_PATH_BYTES], attn_train_options *options,
                              attn_error *error)
{
    const char *const given[] = {arguments->train, arguments->valid, arguments->test};
    const char *const listed[] = {recipe->train, recipe->valid, recipe->test};
    const char **const to[] = {&options->train, &options->valid, &options->test};
    for (size_t n = 0; n < 3; n++) {
        *to[n] = given[n];
        if (given[n] || !*listed[n])
            continue;
        if (n == TEST && arguments->train) {
            cli_say("attn train: %s is not of the data of --train: no test is scored "
                    "(--test FILE)\n",
                    listed[n]);
            continue;
        }
        const attn_status status =
            attn_recipe_find(arguments->recipe, listed[n], files[n], error);
        if (status != ATTN_OK)
            return status;
        *to[n] = files[n];
    }
    return ATTN_OK;
}

static int train(const struct arguments *arguments, attn_train_options *options)
{
    attn_error error;
    attn_recipe recipe;
    char files[3][ATTN_PATH_BYTES];
    attn_train_end end = ATTN_TRAIN_FINISHED;
    attn_status status = attn_recipe_load(&recipe, arguments->recipe, &error);
    if (status == ATTN_OK)
        status = find_files(&recipe, arguments, files, options, &error);
    if (status == ATTN_OK) {
        catch_signals();
        status = attn_train(&recipe, options, &end, &error);
    }
    attn_recipe_free(&recipe);
    if (status != ATTN_OK)
        return cli_fail("train", &error);
    const char *const ends[] = {
        "done: %s\n",
        options->max_steps > 0
            ? "stopped at the limit; a later one, or none, goes on (%s)\n"
            : "stopped at the limit; the same command goes on (%s)\n",
        "stopped by a signal; the same command goes on (%s)\n",
    };
    cli_say(ends[end], options->out);
    return end == ATTN_TRAIN_STOPPED ? CLI_FAILED : CLI_DONE;
}

int cli_train(int argc, char **argv)
{
    struct arguments arguments = {0};
    attn_train_options training = {.stop = &stop};
    int64_t threads;
    bool quiet = false;
    const cli_option options[] = {
        {"out", 'o', .value = &training.out},
        {"threads", .threads = &threads},
        {"minutes", .decimal = &training.minutes, .least = 0.001, .most = 1e6},
        {"max-steps", .integer = &training.max_steps, .low = 1, .high = INT64_C(1) << 53},
        {"resume", .flag = &training.resume},
        {"changed", .flag = &training.changed},
        {"train", .value = &arguments.train},
        {"valid", .value = &arguments.valid},
        {"test", .value = &arguments.test},
        {"quiet", 'q', .flag = &quiet},
        {0},
    };
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count != 1)
        return cli_misused("train", "expected one recipe, got %d argument%s", count,
                           attn_s(count));
    arguments.recipe = argv[1];
    char folder[ATTN_PATH_BYTES];
    attn_error error;
    if (!training.out && name_folder(folder, arguments.recipe, &error) != ATTN_OK)
        return cli_fail("train", &error);
    if (!training.out)
        training.out = folder;
    training.threads = (size_t)threads;
    training.talk = quiet ? NULL : stderr;
    return train(&arguments, &training);
}

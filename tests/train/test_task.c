/* The training room knows no kind of model: one that is made up here, points of a plane
 * in three classes, is trained, checked, gone on with, shipped and scored as any other.
 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/context.h"
#include "base/mix.h"
#include "file/file.h"
#include "file/safetensors.h"
#include "tensor/operations.h"
#include "tests/folder.h"
#include "train/task.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- The kind -------------------------------------------------------------------- */

enum { CLASSES = 3, WIDTH = 4, WEIGHTS = CLASSES * WIDTH };

struct settings {
    int64_t points;
    double blur;
    bool upside_down;
};

struct points {
    float (*at)[WIDTH]; /* two coordinates, 1 and 0 */
    int32_t *labels;
};

static const attn_recipe_field fields[] = {
    {"data", "points", ATTN_FIELD_INTEGER, offsetof(struct settings, points), 1, 1e6,
     NULL, ATTN_REQUIRED},
    {"data", "blur", ATTN_FIELD_DECIMAL, offsetof(struct settings, blur), 0, 1, NULL,
     0.25},
    {"model", "upside_down", ATTN_FIELD_FLAG, offsetof(struct settings, upside_down), 0,
     0, NULL, 1},
};

static attn_status check(const void *settings, const char *name, attn_error *error)
{
    if (((const struct settings *)settings)->points != 13)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT, "%s: data.points is 13, unlucky", name);
}

static void make_points(attn_examples *examples, size_t count, double blur, uint64_t seed)
{
    struct points *const points = malloc(sizeof *points);
    assert_non_null(points);
    *points = (struct points){malloc(count * sizeof *points->at),
                              malloc(count * sizeof *points->labels)};
    *examples = (attn_examples){
        .count = count,
        .sizes = malloc(count * sizeof *examples->sizes),
        .hash = attn_mix_hash(ATTN_MIX_HASH, seed ^ count),
        .data = points,
    };
    for (size_t n = 0; n < count; n++) {
        const double x = attn_mix_unit(seed, 3 * n) - 0.5;
        const double y = attn_mix_unit(seed, 3 * n + 1) - 0.5;
        const bool is_blurred = attn_mix_unit(seed, 3 * n + 2) < blur;
        const int32_t label = y > 0.2 ? 2 : x > 0.0;
        const float at[WIDTH] = {(float)x, (float)y, 1.0f, 0.0f};
        memcpy(points->at[n], at, sizeof at);
        points->labels[n] = is_blurred ? (int32_t)(n % CLASSES) : label;
        examples->sizes[n] = (attn_example_size){2, 5, 1};
    }
}

static void free_points(attn_examples *examples)
{
    struct points *const points = examples->data;
    if (!points)
        return;
    free(points->at);
    free(points->labels);
    free(points);
}

static attn_status prepare(attn_task *task, bool goes_on, attn_error *error)
{
    (void)goes_on;
    (void)error;
    const struct settings *const settings = task->recipe->settings;
    attn_parameters *const weights = calloc(1, sizeof *weights);
    size_t index;
    assert_non_null(weights);
    make_points(&task->train, (size_t)settings->points, settings->blur, 1);
    make_points(&task->valid, 50, settings->blur, 2);
    task->state = task->parameters = weights;
    ATTN_TRY(attn_parameters_add(weights, "weights", 2, (int64_t[]){CLASSES, WIDTH},
                                 ATTN_INITIAL_ZEROS, &index));
    ATTN_TRY(attn_parameters_allocate(weights));
    attn_parameters_initialise(weights, 1);
    return ATTN_OK;
}

static int32_t most_probable(const float *weights, const float *point)
{
    double best = -1e30;
    int32_t class = 0;
    for (int32_t c = 0; c < CLASSES; c++) {
        double sum = 0.0;
        for (int32_t i = 0; i < WIDTH; i++)
            sum += (double)weights[c * WIDTH + i] * (double)point[i];
        if (sum > best)
            class = c;
        best = sum > best ? sum : best;
    }
    return class;
}

static attn_tensor *loss(const attn_task *task, const attn_pass *pass,
                         const attn_shard_batch *batch, attn_shard_sums *sums)
{
    const struct points *const points = batch->examples->data;
    float *const x = attn_tape_allocate(pass->tape, batch->count * sizeof(float[WIDTH]));
    int32_t *const labels = attn_tape_allocate(pass->tape, batch->count * sizeof *labels);
    assert_true(batch->count > 0);
    sums->correct = 0;
    for (size_t n = 0; n < batch->count; n++) {
        const size_t point = batch->list[n];
        memcpy(x + n * WIDTH, points->at[point], sizeof points->at[point]);
        labels[n] = points->labels[point];
        sums->correct +=
            labels[n] == most_probable(task->parameters->values, points->at[point]);
    }
    attn_tensor *const rows =
        attn_tape_leaf(pass->tape, x, NULL, 2, (int64_t[]){(int64_t)batch->count, WIDTH});
    return attn_linear_cross_entropy(pass->tape, rows, attn_pass_parameter(pass, 0), NULL,
                                     false, labels, batch->smoothing, batch->divisor,
                                     &sums->plain);
}

static attn_status save(const attn_task *task, const char *to, attn_error *error)
{
    char path[300];
    snprintf(path, sizeof path, "%s/weights", to);
    return attn_file_write(path, task->parameters->values, WEIGHTS * sizeof(float),
                           error);
}

static attn_status score(const attn_score_job *job, json_t *scores, attn_error *error)
{
    char path[300], *data;
    size_t length;
    attn_examples points;
    snprintf(path, sizeof path, "%s/weights", job->folder);
    ATTN_TRY(attn_file_read(path, 1 << 20, &data, &length, error));
    float weights[WEIGHTS];
    memcpy(weights, data, sizeof weights);
    free(data);
    make_points(&points, 50, ((const struct settings *)job->settings)->blur, 2);
    const struct points *const all = points.data;
    int right = 0;
    for (size_t n = 0; n < points.count; n++)
        right += most_probable(weights, all->at[n]) == all->labels[n];
    free_points(&points);
    free(points.sizes);
    json_object_set_new(scores, "right", json_integer(right));
    json_object_set_new(scores, "file", json_string(job->file));
    return ATTN_OK;
}

static void free_task(attn_task *task)
{
    free_points(&task->train);
    free_points(&task->valid);
    if (task->state)
        attn_parameters_free(task->state);
    free(task->state);
}

static const char *const no_types[] = {NULL};

static const attn_task_kind points_kind = {
    .name = "points",
    .targets = "points",
    .model_types = no_types,
    .fields = fields,
    .field_count = sizeof fields / sizeof fields[0],
    .settings_bytes = sizeof(struct settings),
    .check = check,
    .prepare = prepare,
    .loss = loss,
    .save = save,
    .score = score,
    .free = free_task,
};

static const attn_task_kind *const kinds[] = {&points_kind, NULL};

/* ---- Trainings ------------------------------------------------------------------- */

/* The rate rises all the time, and far too high. */
static const char recipe_text[] =
    "{\"kind\": \"points\","
    "\"data\": {\"train\": \"-\", \"valid\": \"-\", \"points\": %d},"
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 40, \"length_noise\": 0,"
    " \"shards\": 3, \"epochs\": 10, \"schedule\": \"linear\","
    " \"peak_learning_rate\": 10, \"warmup_steps\": 60, \"beta1\": 0.9, \"beta2\": 0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0, \"clip\": 0, \"label_smoothing\": 0,"
    " \"average\": 0, \"checkpoint_every\": 4, \"valid_every\": 5%s}}";

static void parse(attn_recipe *recipe, int points, const char *more)
{
    char text[1000];
    attn_error error;
    snprintf(text, sizeof text, recipe_text, points, more);
    if (attn_recipe_parse(recipe, kinds, text, "points.json", &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static attn_train_end train(const attn_recipe *recipe, const char *name, size_t threads,
                            int64_t max_steps)
{
    attn_error error;
    attn_train_end end;
    const attn_train_options options = {.out = in_folder(name),
                                        .train = "-",
                                        .valid = "v",
                                        .threads = threads,
                                        .max_steps = max_steps};
    if (attn_train(recipe, &options, &end, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return end;
}

static json_t *read_json(const char *path)
{
    json_t *const json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static double number_of(const char *name, const char *key)
{
    char path[300];
    snprintf(path, sizeof path, "%s/scores.json", in_folder(name));
    json_t *const scores = read_json(path);
    assert_true(json_is_number(json_object_get(scores, key)));
    const double number = json_number_value(json_object_get(scores, key));
    json_decref(scores);
    return number;
}

static void assert_same_files(const char *one, const char *two)
{
    static const char *const tensors[] = {"values", "first_moment", "best"};
    static const char *const notes[] = {"step", "waited", "best_loss"};
    attn_safetensors *file[2];
    float weights[2][WEIGHTS];
    const char *const names[] = {one, two};
    attn_error error;
    for (size_t n = 0; n < 2; n++) {
        char path[300], *data;
        size_t length;
        snprintf(path, sizeof path, "%s/weights", in_folder(names[n]));
        assert_int_equal(attn_file_read(path, 4096, &data, &length, &error), ATTN_OK);
        assert_int_equal(length, sizeof weights[n]);
        memcpy(weights[n], data, length);
        free(data);
        snprintf(path, sizeof path, "%s/checkpoint.safetensors", in_folder(names[n]));
        assert_int_equal(attn_safetensors_open(&file[n], path, &error), ATTN_OK);
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    for (size_t n = 0; n < 3; n++) {
        const attn_safetensor *const a = attn_safetensors_find(file[0], tensors[n]);
        const attn_safetensor *const b = attn_safetensors_find(file[1], tensors[n]);
        assert_non_null(a);
        assert_non_null(b);
        assert_memory_equal(a->data, b->data, a->bytes);
        assert_string_equal(attn_safetensors_metadata(file[0], notes[n]),
                            attn_safetensors_metadata(file[1], notes[n]));
    }
    attn_safetensors_close(file[0]);
    attn_safetensors_close(file[1]);
}

/* ---- Tests ----------------------------------------------------------------------- */

static void a_kind_reads_its_own_keys_and_those_of_all(void **state)
{
    (void)state;
    attn_recipe recipe;
    attn_error error;
    char text[1000];
    parse(&recipe, 60, "");
    const struct settings *const settings = recipe.settings;
    assert_int_equal(settings->points, 60);
    assert_true(settings->blur == 0.25);
    assert_true(settings->upside_down);
    assert_int_equal(recipe.shards, 3);
    assert_int_equal(recipe.keep, ATTN_KEEP_LAST);
    attn_recipe_free(&recipe);
    snprintf(text, sizeof text, recipe_text, 13, "");
    assert_int_equal(attn_recipe_parse(&recipe, kinds, text, "p.json", &error),
                     ATTN_EFORMAT);
    assert_string_equal(error.message, "p.json: data.points is 13, unlucky");
    attn_recipe_free(&recipe);
    snprintf(text, sizeof text, recipe_text, 60, ", \"keep\": \"all\"");
    assert_int_equal(attn_recipe_parse(&recipe, kinds, text, "p.json", &error),
                     ATTN_EFORMAT);
    assert_string_equal(
        error.message, "p.json: training.keep is \"all\", expected \"last\" or \"best\"");
    attn_recipe_free(&recipe);
}

static void a_training_of_another_kind_ends_with_its_scores(void **state)
{
    (void)state;
    attn_recipe recipe;
    parse(&recipe, 60, "");
    assert_int_equal(train(&recipe, "ends", 2, 0), ATTN_TRAIN_FINISHED);
    assert_true(number_of("ends", "steps") == 30.0);
    json_t *const scores = read_json(in_folder("ends/scores.json"));
    const json_t *const valid = json_object_get(scores, "valid");
    assert_string_equal(json_string_value(json_object_get(valid, "file")), "v");
    /* What the loop counted of the last weights is what the files score. */
    assert_true(fabs(number_of("ends", "valid_accuracy") * 50.0 -
                     (double)json_integer_value(json_object_get(valid, "right"))) < 1e-3);
    json_decref(scores);
    attn_recipe_free(&recipe);
}

static void the_log_has_accuracy_and_no_head_where_there_is_none(void **state)
{
    (void)state;
    attn_recipe recipe;
    attn_error error;
    char *text;
    size_t length;
    parse(&recipe, 60, "");
    train(&recipe, "log", 1, 0);
    assert_int_equal(
        attn_file_read(in_folder("log/log.jsonl"), 1 << 20, &text, &length, &error),
        ATTN_OK);
    assert_non_null(strstr(text, ", \"accuracy\": 0."));
    assert_non_null(strstr(text, ", \"valid_accuracy\": 0."));
    assert_null(strstr(text, "lowest_head"));
    free(text);
    attn_recipe_free(&recipe);
}

/* The lowest loss of the validations in a log. */
static double lowest_loss(const char *path)
{
    char line[1000];
    double lowest = 1e30;
    FILE *const log = fopen(path, "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        json_t *const entry = json_loads(line, 0, NULL);
        const json_t *const loss_of = json_object_get(entry, "valid_loss");
        if (loss_of && json_number_value(loss_of) < lowest)
            lowest = json_number_value(loss_of);
        json_decref(entry);
    }
    fclose(log);
    return lowest;
}

static void keep_best_ships_the_weights_of_the_lowest_loss(void **state)
{
    (void)state;
    attn_recipe best, last;
    parse(&best, 60, ", \"keep\": \"best\"");
    parse(&last, 60, "");
    train(&best, "best", 1, 0);
    train(&last, "last", 1, 0);
    const double lowest = lowest_loss(in_folder("last/log.jsonl"));
    assert_true(fabs(number_of("best", "valid_loss") - lowest) < 1e-4);
    assert_true(number_of("last", "valid_loss") > lowest + 0.005);
    attn_recipe_free(&best);
    attn_recipe_free(&last);
}

static void a_training_in_parts_keeps_the_same_best(void **state)
{
    (void)state;
    attn_recipe recipe;
    parse(&recipe, 60, ", \"keep\": \"best\", \"patience\": 4");
    assert_int_equal(train(&recipe, "whole", 2, 0), ATTN_TRAIN_FINISHED);
    for (int64_t steps = 3; steps < 40; steps += 4)
        train(&recipe, "parts", 1 + (size_t)steps % 3, steps);
    assert_same_files("whole", "parts");
    assert_true(number_of("whole", "valid_loss") == number_of("parts", "valid_loss"));
    attn_recipe_free(&recipe);
}

static void patience_ends_a_training_that_gets_no_better(void **state)
{
    (void)state;
    attn_recipe recipe;
    parse(&recipe, 60, ", \"keep\": \"best\", \"patience\": 2");
    assert_int_equal(train(&recipe, "patient", 1, 0), ATTN_TRAIN_FINISHED);
    assert_true(number_of("patient", "steps") < 30.0);
    const double loss_then = number_of("patient", "valid_loss");
    assert_int_equal(train(&recipe, "patient", 1, 0), ATTN_TRAIN_FINISHED);
    assert_true(number_of("patient", "steps") < 30.0);
    assert_true(number_of("patient", "valid_loss") == loss_then);
    attn_recipe_free(&recipe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kind_reads_its_own_keys_and_those_of_all),
        cmocka_unit_test(a_training_of_another_kind_ends_with_its_scores),
        cmocka_unit_test(the_log_has_accuracy_and_no_head_where_there_is_none),
        cmocka_unit_test(keep_best_ships_the_weights_of_the_lowest_loss),
        cmocka_unit_test(a_training_in_parts_keeps_the_same_best),
        cmocka_unit_test(patience_ends_a_training_that_gets_no_better),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* A small translator, and random batches for it. */
#include "small.h"
#include "file/safetensors.h"
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

attn_translator_config small_config(void)
{
    return (attn_translator_config){
        .vocabulary = SMALL_VOCABULARY,
        .width = 32,
        .heads = 4,
        .encoder_layers = 2,
        .decoder_layers = 2,
        .inner = 48,
        .max_positions = SMALL_POSITIONS,
        .activation = ATTN_RELU,
        .dropout = 0.1f,
        .attention_dropout = 0.1f,
        .normalise_first = true,
    };
}

attn_translator_config small_config_last(bool learned_positions)
{
    attn_translator_config config = small_config();
    config.normalise_first = false;
    config.learned_positions = learned_positions;
    return config;
}

attn_translator *small_translator_like(const attn_translator_config *config,
                                       uint64_t seed)
{
    attn_translator *translator;
    attn_error error;
    if (attn_translator_create(&translator, config, seed, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    /* Gains and biases that are not 1 and 0, so that their places matter. */
    attn_parameters *const parameters = attn_translator_parameters(translator);
    uint64_t state = seed + 1;
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const parameter = &parameters->list[i];
        for (size_t j = 0; !parameter->decays && j < parameter->count; j++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            parameters->values[parameter->offset + j] +=
                (float)(state >> 40) * 0x1p-25f - 0.25f;
        }
    }
    return translator;
}

attn_translator *small_translator(uint64_t seed)
{
    const attn_translator_config config = small_config();
    return small_translator_like(&config, seed);
}

attn_context *small_context(void)
{
    attn_context *context;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    return context;
}

attn_tape *small_tape(void)
{
    attn_tape *tape;
    assert_int_equal(attn_tape_create(&tape, small_context()), ATTN_OK);
    return tape;
}

void small_tape_destroy(attn_tape *tape)
{
    attn_context *const context = attn_tape_context(tape);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

/* ---- Learning -------------------------------------------------------------------- */

static double difference(const struct small_learner *learner, float *value, float step)
{
    const float kept = *value;
    *value = kept + step;
    const double above = learner->loss(learner->user, NULL);
    *value = kept - step;
    const double below = learner->loss(learner->user, NULL);
    *value = kept;
    return (above - below) / (2.0 * (double)step);
}

void assert_gradients(const struct small_learner *learner, const char *name, float step,
                      size_t elements, double near)
{
    attn_parameters *const parameters = learner->parameters;
    float *const gradients = calloc(parameters->floats, sizeof *gradients);
    learner->loss(learner->user, gradients);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        for (size_t j = i % 3; j < p->count; j += p->count / elements + 1) {
            const double expected =
                difference(learner, parameters->values + p->offset + j, step);
            const double got = (double)gradients[p->offset + j];
            if (!(fabs(got - expected) <= near + 1e-2 * fabs(expected)))
                fail_msg("%s: gradient %zu of %s is %g, expected %g", name, j, p->name,
                         got, expected);
        }
    }
    free(gradients);
}

double small_learn(const struct small_learner *learner, int steps, float rate)
{
    attn_parameters *const parameters = learner->parameters;
    const size_t bytes = parameters->floats * sizeof(float);
    float *const gradients = malloc(bytes);
    double loss = 0.0;
    for (int step = 0; step < steps; step++) {
        memset(gradients, 0, bytes);
        loss = learner->loss(learner->user, gradients);
        for (size_t i = 0; i < parameters->floats; i++)
            parameters->values[i] -= rate * gradients[i];
    }
    free(gradients);
    return loss;
}

/* ---- Batches --------------------------------------------------------------------- */

static int64_t fill_sentence(int32_t *ids, int64_t length, uint64_t *state)
{
    for (int64_t i = 0; i < length; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = ATTN_TOKEN_UNK + 1 +
                 (int32_t)((*state >> 33) % (SMALL_VOCABULARY - ATTN_TOKEN_UNK - 1));
    }
    ids[length] = ATTN_TOKEN_EOS;
    return length + 1;
}

static void link_pairs(struct small_batch *batch, int64_t sentences)
{
    batch->pairs = (attn_pair_batch){
        .sentences = sentences,
        .source = batch->source,
        .source_starts = batch->source_starts,
        .target_in = batch->target_in,
        .target_out = batch->target_out,
        .target_starts = batch->target_starts,
    };
}

void small_batch_fill(struct small_batch *batch, int64_t sentences,
                      const int64_t *source_lengths, const int64_t *target_lengths,
                      uint64_t seed)
{
    uint64_t state = seed;
    memset(batch, 0, sizeof *batch);
    for (int64_t s = 0; s < sentences; s++) {
        const int64_t source = batch->source_starts[s], target = batch->target_starts[s];
        assert_true(source + source_lengths[s] < SMALL_MOST_TOKENS);
        assert_true(target + target_lengths[s] < SMALL_MOST_TOKENS);
        batch->source_starts[s + 1] =
            source + fill_sentence(batch->source + source, source_lengths[s], &state);
        batch->target_starts[s + 1] =
            target + fill_sentence(batch->target_out + target, target_lengths[s], &state);
        batch->target_in[target] = ATTN_TOKEN_EOS;
        memcpy(batch->target_in + target + 1, batch->target_out + target,
               (size_t)target_lengths[s] * sizeof(int32_t));
    }
    link_pairs(batch, sentences);
}

void small_batch_alone(struct small_batch *alone, const struct small_batch *batch,
                       int64_t sentence)
{
    const int64_t source = batch->source_starts[sentence];
    const int64_t target = batch->target_starts[sentence];
    memset(alone, 0, sizeof *alone);
    alone->source_starts[1] = batch->source_starts[sentence + 1] - source;
    alone->target_starts[1] = batch->target_starts[sentence + 1] - target;
    memcpy(alone->source, batch->source + source,
           (size_t)alone->source_starts[1] * sizeof(int32_t));
    memcpy(alone->target_in, batch->target_in + target,
           (size_t)alone->target_starts[1] * sizeof(int32_t));
    memcpy(alone->target_out, batch->target_out + target,
           (size_t)alone->target_starts[1] * sizeof(int32_t));
    link_pairs(alone, 1);
}

void path_join(char *path, size_t size, const char *folder, const char *name)
{
    const int length = snprintf(path, size, "%s/%s", folder, name);
    assert_true(length > 0 && (size_t)length < size);
}

void folder_make(char *folder, size_t size)
{
    const char *const temporary = getenv("TMPDIR");
    path_join(folder, size, temporary ? temporary : "/tmp", "attn-model-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

void folder_remove(const char *folder)
{
    DIR *const directory = opendir(folder);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[1024];
        path_join(path, sizeof path, folder, entry->d_name);
        if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
            assert_int_equal(unlink(path), 0);
    }
    closedir(directory);
    assert_int_equal(rmdir(folder), 0);
}

void assert_fails(attn_status status, const attn_error *error, attn_status expected,
                  const char *fragment)
{
    if (status != expected || !strstr(error->message, fragment))
        fail_msg("got %s, \"%s\", expected %s with \"%s\" in it",
                 attn_status_name(status), error->message, attn_status_name(expected),
                 fragment);
}

int small_saved_set_up(void **state)
{
    struct small_saved *const saved = calloc(1, sizeof *saved);
    attn_error error;
    folder_make(saved->folder, sizeof saved->folder);
    saved->translator = small_translator(7);
    if (attn_translator_save(saved->translator, saved->folder, ATTN_DTYPE_F32, &error) !=
        ATTN_OK)
        fail_msg("%s", error.message);
    *state = saved;
    return 0;
}

int small_saved_tear_down(void **state)
{
    struct small_saved *const saved = *state;
    attn_translator_destroy(saved->translator);
    folder_remove(saved->folder);
    free(saved);
    return 0;
}

void small_translations_take(attn_translation *translations, int64_t count,
                             int64_t columns, int32_t *out)
{
    memset(out, -1, (size_t)(count * columns) * sizeof *out);
    for (int64_t s = 0; s < count; s++) {
        int32_t *const row = out + s * columns;
        memcpy(row, translations[s].ids, translations[s].count * sizeof *row);
        if (translations[s].finished)
            row[translations[s].count] = ATTN_TOKEN_EOS;
        free(translations[s].ids);
    }
}

attn_translator *small_load(const char *folder)
{
    attn_translator *translator;
    attn_error error;
    if (attn_translator_load(&translator, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return translator;
}

void small_load_fails(const char *folder, attn_status expected, const char *fragment)
{
    attn_translator *translator = (attn_translator *)&expected;
    attn_error error = {0};
    const attn_status status = attn_translator_load(&translator, folder, &error);
    assert_fails(status, &error, expected, fragment);
    assert_int_equal(error.status, expected);
    assert_null(translator);
}

void small_config_change(const char *folder, const char *key, const char *value)
{
    char path[1024];
    path_join(path, sizeof path, folder, "config.json");
    json_t *const root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    if (value)
        assert_int_equal(
            json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
    else
        assert_int_equal(json_object_del(root, key), 0);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
}

/* BERT's folders: what is saved comes back, defects are named, an encoder is taken over
 * by another model, and `transformers` computes the same from the same files, whoever
 * wrote them (test_bert.py, the only argument). */
#include "../python.h"
#include "file/safetensors.h"
#include "small_bert.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 4, MOST_TENSORS = 64, PATH_BYTES = 1024 };

static const char *const LABELS[BERT_LABELS] = {"a \"b\"", "noun", "", "verb", "übrig"};
static const char *script;

struct fixture {
    char folder[512];
    attn_bert *berts[HEADS];
    attn_safetensors_entry entries[MOST_TENSORS];
    size_t count;
};

static void save(const attn_bert *bert, const char *folder, int dtype)
{
    attn_error error;
    if (attn_bert_save(bert, folder, dtype, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static int set_up(void **state)
{
    struct fixture *const fixture = calloc(1, sizeof *fixture);
    attn_error error;
    folder_make(fixture->folder, sizeof fixture->folder);
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = bert_config((attn_bert_head)head);
        fixture->berts[head] = bert_create(&config, (uint64_t)(7 + head));
        if (head != ATTN_BERT_MASKED)
            assert_int_equal(attn_bert_name_labels(fixture->berts[head], LABELS, &error),
                             ATTN_OK);
    }
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const fixture = *state;
    for (int head = 0; head < HEADS; head++)
        attn_bert_destroy(fixture->berts[head]);
    folder_remove(fixture->folder);
    free(fixture);
    return 0;
}

static attn_bert *load(const char *folder)
{
    attn_bert *bert;
    attn_error error;
    if (attn_bert_load(&bert, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return bert;
}

static void load_fails(const char *folder, attn_status expected, const char *fragment)
{
    attn_bert *bert = (attn_bert *)&expected;
    attn_error error = {0};
    const attn_status status = attn_bert_load(&bert, folder, &error);
    assert_fails(status, &error, expected, fragment);
    assert_null(bert);
}

static void assert_same_values(attn_bert *a, attn_bert *b)
{
    const attn_parameters *const p = attn_bert_parameters(a);
    const attn_parameters *const q = attn_bert_parameters(b);
    assert_int_equal(p->floats, q->floats);
    assert_memory_equal(p->values, q->values, p->floats * sizeof(float));
}

/* The parameters as entries, to be changed and written. */
static void collect(struct fixture *fixture, attn_bert *bert)
{
    const attn_parameters *const parameters = attn_bert_parameters(bert);
    fixture->count = parameters->length;
    assert_true(fixture->count + 2 <= MOST_TENSORS);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        fixture->entries[i] =
            (attn_safetensors_entry){.name = p->name,
                                     .dtype = ATTN_DTYPE_F32,
                                     .rank = p->rank,
                                     .data = parameters->values + p->offset};
        memcpy(fixture->entries[i].extent, p->extent,
               (size_t)p->rank * sizeof p->extent[0]);
    }
}

static attn_safetensors_entry *entry_named(struct fixture *fixture, const char *name)
{
    for (size_t i = 0; i < fixture->count; i++)
        if (strcmp(fixture->entries[i].name, name) == 0)
            return &fixture->entries[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void write_entries(const struct fixture *fixture)
{
    attn_error error;
    char path[PATH_BYTES];
    path_join(path, sizeof path, fixture->folder, "model.safetensors");
    if (attn_safetensors_write(path, fixture->entries, fixture->count, NULL, 0, &error) !=
        ATTN_OK)
        fail_msg("%s", error.message);
}

/* ---- Round trips ----------------------------------------------------------------- */

static void fp32_comes_back_to_the_bit(void **state)
{
    struct fixture *const fixture = *state;
    for (int head = 0; head < HEADS; head++) {
        save(fixture->berts[head], fixture->folder, ATTN_DTYPE_F32);
        attn_bert *const loaded = load(fixture->folder);
        assert_same_values(loaded, fixture->berts[head]);
        assert_memory_equal(attn_bert_config_of(loaded),
                            attn_bert_config_of(fixture->berts[head]),
                            offsetof(attn_bert_config, untied));
        for (int64_t i = 0; i < attn_bert_config_of(loaded)->labels; i++)
            assert_string_equal(attn_bert_label(loaded, i), LABELS[i]);
        assert_string_equal(attn_bert_note(loaded), "");
        attn_bert_destroy(loaded);
    }
}

static void bf16_comes_back_rounded(void **state)
{
    struct fixture *const fixture = *state;
    save(fixture->berts[0], fixture->folder, ATTN_DTYPE_BF16);
    attn_bert *const loaded = load(fixture->folder);
    const attn_parameters *const saved = attn_bert_parameters(fixture->berts[0]);
    const float *const values = attn_bert_parameters(loaded)->values;
    for (size_t i = 0; i < saved->floats; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        assert_int_equal(bits & 0xffff, 0);
        assert_true(fabsf(values[i] - saved->values[i]) <=
                    fabsf(saved->values[i]) / 256.0f);
    }
    attn_error error;
    assert_int_equal(attn_bert_save(loaded, fixture->folder, ATTN_DTYPE_F16, &error),
                     ATTN_EINVAL);
    attn_bert_destroy(loaded);
}

static void other_settings_come_back(void **state)
{
    struct fixture *const fixture = *state;
    const attn_bert_config config = {
        .head = ATTN_BERT_TOKENS,
        .labels = 2,
        .vocabulary = 30,
        .width = 12,
        .layers = 3,
        .heads = 2,
        .inner = 7,
        .max_positions = 100,
        .types = 1,
        .activation = ATTN_RELU,
        .epsilon = 1e-6f,
        .dropout = 0.3f,
        .attention_dropout = 0.123456789f,
        .classifier_dropout = 0.0f,
    };
    attn_bert *const saved = bert_create(&config, 3);
    save(saved, fixture->folder, ATTN_DTYPE_F32);
    attn_bert *const loaded = load(fixture->folder);
    assert_memory_equal(attn_bert_config_of(loaded), &config,
                        offsetof(attn_bert_config, untied));
    assert_string_equal(attn_bert_label(loaded, 1), "LABEL_1");
    attn_bert_config alone;
    attn_error error;
    assert_int_equal(attn_bert_config_load(&alone, fixture->folder, &error), ATTN_OK);
    assert_memory_equal(&alone, &config, offsetof(attn_bert_config, untied));
    attn_bert_destroy(loaded);
    attn_bert_destroy(saved);
}

/* ---- Tied and untied outputs (case 59) ------------------------------------------- */

static void an_untied_output_comes_back(void **state)
{
    struct fixture *const fixture = *state;
    attn_bert_config config = bert_config(ATTN_BERT_MASKED);
    config.untied = true;
    attn_bert *const saved = bert_create(&config, 3);
    save(saved, fixture->folder, ATTN_DTYPE_F32);
    attn_bert *const loaded = load(fixture->folder);
    assert_true(attn_bert_config_of(loaded)->untied);
    assert_same_values(loaded, saved);
    attn_bert_destroy(loaded);
    attn_bert_destroy(saved);
}

static void linear_attention_comes_back_as_a_type_of_ours(void **state)
{
    struct fixture *const fixture = *state;
    attn_bert_config config = bert_config(ATTN_BERT_TOKENS);
    config.linear_attention = true;
    config.attention_dropout = 0.0f;
    attn_bert *const saved = bert_create(&config, 3);
    save(saved, fixture->folder, ATTN_DTYPE_F32);
    attn_bert *const loaded = load(fixture->folder);
    assert_true(attn_bert_config_of(loaded)->linear_attention);
    assert_same_values(loaded, saved);
    attn_bert_destroy(loaded);

    attn_error error;
    config.linear_attention = false;
    attn_bert *const softmax = bert_create(&config, 3);
    assert_int_equal(attn_bert_start(softmax, fixture->folder, &error), ATTN_EINVAL);
    assert_non_null(strstr(error.message, "linear_attention is 1, expected 0"));
    attn_bert_destroy(softmax);
    small_config_change(fixture->folder, "attention_probs_dropout_prob", "0.5");
    load_fails(fixture->folder, ATTN_EFORMAT, "attention_dropout is 0.5 with linear");
    small_config_change(fixture->folder, "model_type", "\"bert-other\"");
    load_fails(fixture->folder, ATTN_EUNSUPPORTED, "bert-variant");
    attn_bert_destroy(saved);
}

static void untied_without_an_output_is_an_error(void **state)
{
    struct fixture *const fixture = *state;
    save(fixture->berts[0], fixture->folder, ATTN_DTYPE_F32);
    small_config_change(fixture->folder, "tie_word_embeddings", "false");
    load_fails(fixture->folder, ATTN_EFORMAT,
               "no tensor \"cls.predictions.decoder.weight\"");
}

static void tied_with_another_output_uses_both_and_says_so(void **state)
{
    struct fixture *const fixture = *state;
    float other[BERT_VOCABULARY * 24];
    save(fixture->berts[0], fixture->folder, ATTN_DTYPE_F32);
    collect(fixture, fixture->berts[0]);
    attn_safetensors_entry copy =
        *entry_named(fixture, "bert.embeddings.word_embeddings.weight");
    attn_safetensors_entry bias = *entry_named(fixture, "cls.predictions.bias");
    memcpy(other, copy.data, sizeof other);
    copy.name = "cls.predictions.decoder.weight";
    copy.data = other;
    bias.name = "cls.predictions.decoder.bias";
    fixture->entries[fixture->count++] = copy;
    fixture->entries[fixture->count++] = bias;
    write_entries(fixture);
    attn_bert *loaded = load(fixture->folder);
    assert_false(attn_bert_config_of(loaded)->untied);
    assert_string_equal(attn_bert_note(loaded), "");
    attn_bert_destroy(loaded);

    other[0] += 1.0f;
    write_entries(fixture);
    loaded = load(fixture->folder);
    assert_true(attn_bert_config_of(loaded)->untied);
    assert_non_null(strstr(attn_bert_note(loaded), "cls.predictions.decoder.weight"));
    attn_bert_destroy(loaded);
}

static void a_second_bias_that_differs_is_not_supported(void **state)
{
    struct fixture *const fixture = *state;
    float other[BERT_VOCABULARY] = {0};
    save(fixture->berts[0], fixture->folder, ATTN_DTYPE_F32);
    collect(fixture, fixture->berts[0]);
    attn_safetensors_entry bias = *entry_named(fixture, "cls.predictions.bias");
    bias.name = "cls.predictions.decoder.bias";
    bias.data = other;
    fixture->entries[fixture->count++] = bias;
    write_entries(fixture);
    load_fails(fixture->folder, ATTN_EUNSUPPORTED,
               "\"cls.predictions.decoder.bias\" differs");
}

/* ---- Defects --------------------------------------------------------------------- */

static void tensors_that_do_not_fit_are_named(void **state)
{
    struct fixture *const fixture = *state;
    save(fixture->berts[1], fixture->folder, ATTN_DTYPE_F32);
    collect(fixture, fixture->berts[1]);
    attn_safetensors_entry *const query =
        entry_named(fixture, "bert.encoder.layer.1.attention.self.query.weight");
    query->name = "bert.encoder.layer.2.attention.self.query.weight";
    write_entries(fixture);
    load_fails(fixture->folder, ATTN_EFORMAT,
               "no tensor \"bert.encoder.layer.1.attention.self.query.weight\", expected "
               "one of shape [24, 24]");
    collect(fixture, fixture->berts[1]);
    query->extent[0] = 12;
    query->extent[1] = 48;
    write_entries(fixture);
    load_fails(fixture->folder, ATTN_EFORMAT,
               "query.weight\" has shape [12, 48], expected [24, 24]");
    collect(fixture, fixture->berts[1]);
    fixture->entries[fixture->count] = *query;
    fixture->entries[fixture->count++].name = "cls.predictions.bias";
    write_entries(fixture);
    load_fails(fixture->folder, ATTN_EFORMAT, "\"cls.predictions.bias\" belongs to no");
}

static void position_numbers_of_older_files_are_passed_over(void **state)
{
    struct fixture *const fixture = *state;
    static const int64_t numbers[16];
    save(fixture->berts[0], fixture->folder, ATTN_DTYPE_F32);
    collect(fixture, fixture->berts[0]);
    fixture->entries[fixture->count++] =
        (attn_safetensors_entry){.name = "bert.embeddings.position_ids",
                                 .dtype = ATTN_DTYPE_I64,
                                 .rank = 2,
                                 .extent = {1, 16},
                                 .data = numbers};
    write_entries(fixture);
    attn_bert_destroy(load(fixture->folder));
}

static void configurations_of_other_models_are_refused_by_name(void **state)
{
    struct fixture *const fixture = *state;
    static const struct {
        const char *key, *value;
        attn_status status;
        const char *fragment;
    } changes[] = {
        {"model_type", "\"roberta\"", ATTN_EUNSUPPORTED, "model_type is \"roberta\""},
        {"architectures", "[\"BertModel\"]", ATTN_EUNSUPPORTED,
         "architectures[0] is \"BertModel\", expected BertForMaskedLM"},
        {"architectures", "[]", ATTN_EFORMAT, "architectures[0] is missing"},
        {"position_embedding_type", "\"relative_key\"", ATTN_EUNSUPPORTED,
         "position_embedding_type is \"relative_key\", expected \"absolute\""},
        {"is_decoder", "true", ATTN_EUNSUPPORTED, "is_decoder is true"},
        {"hidden_act", "\"mish\"", ATTN_EUNSUPPORTED, "hidden_act is \"mish\""},
        {"hidden_size", "25", ATTN_EFORMAT,
         "config.json: bert: width 25 is not a multiple of 4 heads"},
        {"hidden_size", "\"24\"", ATTN_EFORMAT, "hidden_size is a text"},
        {"vocab_size", "4611686018427387904", ATTN_EFORMAT, "vocabulary is 46116860184"},
        {"num_hidden_layers", "3", ATTN_EFORMAT, "no tensor \"bert.encoder.layer.2."},
        {"layer_norm_eps", "-1", ATTN_EFORMAT, "epsilon is -1"},
        {"id2label", "{\"0\": \"a\", \"2\": \"b\"}", ATTN_EFORMAT,
         "\"classifier.weight\" has shape"},
        {"id2label",
         "{\"0\": \"a\", \"1\": \"b\", \"2\": \"c\", \"3\": \"d\", \"5\": \"e\"}",
         ATTN_EFORMAT, "id2label.4 is missing, expected a text"},
        {"id2label",
         "{\"0\": \"a\", \"1\": \"b\", \"2\": \"a\", \"3\": \"d\", \"4\": \"e\"}",
         ATTN_EFORMAT, "labels 0 and 2 are both \"a\""},
        {"id2label", "[]", ATTN_EFORMAT, "id2label is a list"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        save(fixture->berts[1], fixture->folder, ATTN_DTYPE_F32);
        small_config_change(fixture->folder, changes[i].key, changes[i].value);
        load_fails(fixture->folder, changes[i].status, changes[i].fragment);
    }
    folder_remove(fixture->folder);
    folder_make(fixture->folder, sizeof fixture->folder);
    load_fails(fixture->folder, ATTN_EIO, "config.json");
}

static void both_kinds_of_gelu_are_read(void **state)
{
    struct fixture *const fixture = *state;
    static const struct {
        const char *name;
        attn_activation activation;
    } kinds[] = {{"\"gelu\"", ATTN_GELU},
                 {"\"gelu_new\"", ATTN_GELU_TANH},
                 {"\"gelu_pytorch_tanh\"", ATTN_GELU_TANH}};
    for (size_t i = 0; i < 3; i++) {
        save(fixture->berts[1], fixture->folder, ATTN_DTYPE_F32);
        small_config_change(fixture->folder, "hidden_act", kinds[i].name);
        attn_bert *const bert = load(fixture->folder);
        assert_int_equal(attn_bert_config_of(bert)->activation, kinds[i].activation);
        attn_bert_destroy(bert);
    }
}

/* ---- Starting from another ------------------------------------------------------- */

static bool is_in_encoder(const char *name)
{
    return strncmp(name, "bert.", 5) == 0 && strncmp(name, "bert.pooler.", 12) != 0;
}

static void an_encoder_is_taken_over_and_the_head_is_not(void **state)
{
    struct fixture *const fixture = *state;
    attn_error error;
    save(fixture->berts[ATTN_BERT_MASKED], fixture->folder, ATTN_DTYPE_F32);
    for (int head = 0; head < HEADS; head++) {
        const attn_bert_config config = bert_config((attn_bert_head)head);
        attn_bert *const fresh = bert_create(&config, 99);
        attn_bert *const started = bert_create(&config, 99);
        if (attn_bert_start(started, fixture->folder, &error) != ATTN_OK)
            fail_msg("%s", error.message);
        const attn_parameters *const parameters = attn_bert_parameters(started);
        for (size_t i = 0; i < parameters->length; i++) {
            const attn_parameter *const p = &parameters->list[i];
            const attn_parameters *const from = attn_bert_parameters(
                is_in_encoder(p->name) ? fixture->berts[ATTN_BERT_MASKED] : fresh);
            const attn_parameter *const like = attn_parameters_find(from, p->name);
            assert_memory_equal(parameters->values + p->offset,
                                from->values + like->offset, p->count * sizeof(float));
        }
        attn_bert_destroy(fresh);
        attn_bert_destroy(started);
    }
}

static void a_pooler_is_taken_over_where_there_is_one(void **state)
{
    struct fixture *const fixture = *state;
    attn_error error;
    const attn_bert_config config = bert_config(ATTN_BERT_SEQUENCE);
    attn_bert *const started = bert_create(&config, 99);
    save(fixture->berts[ATTN_BERT_SEQUENCE], fixture->folder, ATTN_DTYPE_F32);
    assert_int_equal(attn_bert_start(started, fixture->folder, &error), ATTN_OK);
    const attn_parameters *const p = attn_bert_parameters(started);
    const attn_parameters *const q =
        attn_bert_parameters(fixture->berts[ATTN_BERT_SEQUENCE]);
    const attn_parameter *const pooler =
        attn_parameters_find(p, "bert.pooler.dense.weight");
    const attn_parameter *const head = attn_parameters_find(p, "classifier.weight");
    assert_memory_equal(p->values + pooler->offset, q->values + pooler->offset,
                        pooler->count * sizeof(float));
    assert_memory_not_equal(p->values + head->offset, q->values + head->offset,
                            head->count * sizeof(float));
    attn_bert_destroy(started);
}

static void an_encoder_of_another_size_is_named_and_changes_nothing(void **state)
{
    struct fixture *const fixture = *state;
    attn_error error;
    attn_bert_config config = bert_config(ATTN_BERT_SEQUENCE);
    save(fixture->berts[ATTN_BERT_MASKED], fixture->folder, ATTN_DTYPE_F32);
    config.layers = 3;
    attn_bert *const fresh = bert_create(&config, 99), *const started =
                                                           bert_create(&config, 99);
    assert_int_equal(attn_bert_start(started, fixture->folder, &error), ATTN_EINVAL);
    assert_non_null(
        strstr(error.message, "config.json: num_hidden_layers is 2, expected 3"));
    small_config_change(fixture->folder, "num_hidden_layers", "3");
    assert_int_equal(attn_bert_start(started, fixture->folder, &error), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "no tensor \"bert.encoder.layer.2."));
    assert_same_values(fresh, started);
    attn_bert_destroy(fresh);
    attn_bert_destroy(started);
}

/* ---- transformers ---------------------------------------------------------------- */

/* ids, types and starts, and the logits where there are some. */
static void write_case(const char *folder, const char *name,
                       const attn_bert_config *config, const float *logits)
{
    const attn_safetensors_entry entries[] = {
        {.name = "ids",
         .dtype = ATTN_DTYPE_I32,
         .rank = 1,
         .extent = {BERT_TOKENS},
         .data = BERT_IDS},
        {.name = "types",
         .dtype = ATTN_DTYPE_I32,
         .rank = 1,
         .extent = {BERT_TOKENS},
         .data = BERT_TYPES},
        {.name = "starts",
         .dtype = ATTN_DTYPE_I64,
         .rank = 1,
         .extent = {BERT_TEXTS + 1},
         .data = BERT_STARTS},
        {.name = "logits",
         .dtype = ATTN_DTYPE_F32,
         .rank = 2,
         .extent = {bert_rows(config), bert_columns(config)},
         .data = logits},
    };
    char path[PATH_BYTES];
    attn_error error;
    path_join(path, sizeof path, folder, name);
    if (attn_safetensors_write(path, entries, logits ? 4 : 3, NULL, 0, &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

/* A folder for each head, and one for an untied output. */
enum { CASES = HEADS + 1, FOLDER_BYTES = 96 };
static const char *const CASE_NAMES[CASES] = {"masked", "sequence", "tokens", "mean",
                                              "untied"};

static attn_bert_config case_config(int i)
{
    attn_bert_config config = bert_config(i < HEADS ? (attn_bert_head)i : 0);
    config.untied = i == HEADS;
    return config;
}

/* Starting the interpreter takes seconds: one call for all cases. */
static void run_python(const char *task, char folders[][FOLDER_BYTES])
{
    char arguments[CASES * (FOLDER_BYTES + 16) + 16];
    int end = snprintf(arguments, sizeof arguments, "%s", task);
    for (int i = 0; i < CASES; i++)
        end += snprintf(arguments + end, sizeof arguments - (size_t)end, "' '%s' '%s",
                        CASE_NAMES[i], folders[i]);
    if (python_run_file(script, arguments) != 0)
        fail_msg("%s %s: not as expected", script, task);
}

static void transformers_computes_the_same_logits(void **state)
{
    struct fixture *const fixture = *state;
    char folders[CASES][FOLDER_BYTES];
    if (!python_has("torch, transformers, safetensors"))
        skip();
    attn_tape *const tape = small_tape();
    const attn_bert_input input = bert_input();
    for (int i = 0; i < CASES; i++) {
        const attn_bert_config config = case_config(i);
        attn_bert *const untied = i < HEADS ? NULL : bert_create(&config, 3);
        attn_bert *const bert = untied ? untied : fixture->berts[i];
        folder_make(folders[i], sizeof folders[i]);
        save(bert, folders[i], ATTN_DTYPE_F32);
        write_case(folders[i], "expected.safetensors", &config,
                   bert_logits(bert, tape, &input));
        attn_bert_destroy(untied);
    }
    run_python("check", folders);
    for (int i = 0; i < CASES; i++)
        folder_remove(folders[i]);
    small_tape_destroy(tape);
}

static void compare_with_theirs(const char *folder, const attn_bert_config *config)
{
    attn_bert *const bert = load(folder);
    attn_tape *const tape = small_tape();
    attn_safetensors *file;
    attn_error error;
    char path[PATH_BYTES];
    const attn_bert_input input = bert_input();
    const float *const logits = bert_logits(bert, tape, &input);
    path_join(path, sizeof path, folder, "theirs.safetensors");
    assert_int_equal(attn_safetensors_open(&file, path, &error), ATTN_OK);
    const attn_safetensor *const theirs = attn_safetensors_find(file, "logits");
    assert_int_equal(theirs->extent[0], bert_rows(config));
    assert_int_equal(theirs->extent[1], bert_columns(config));
    float *const values = malloc(theirs->count * sizeof *values);
    assert_int_equal(attn_safetensor_to_float(theirs, values, &error), ATTN_OK);
    float largest = 0.0f;
    for (size_t i = 0; i < theirs->count; i++)
        largest = fmaxf(largest, fabsf(values[i] - logits[i]));
    if (!(largest < 1e-4f))
        fail_msg("logits differ by %g", (double)largest);
    assert_int_equal(attn_bert_config_of(bert)->untied, config->untied);
    if (config->labels > 0)
        assert_string_equal(attn_bert_label(bert, 3), "d");
    free(values);
    attn_safetensors_close(file);
    small_tape_destroy(tape);
    attn_bert_destroy(bert);
}

static void what_transformers_saves_opens_here(void **state)
{
    (void)state;
    char folders[CASES][FOLDER_BYTES];
    if (!python_has("torch, transformers, safetensors"))
        skip();
    for (int i = 0; i < CASES; i++) {
        const attn_bert_config config = case_config(i);
        folder_make(folders[i], sizeof folders[i]);
        write_case(folders[i], "input.safetensors", &config, NULL);
    }
    run_python("make", folders);
    for (int i = 0; i < CASES; i++) {
        const attn_bert_config config = case_config(i);
        compare_with_theirs(folders[i], &config);
        folder_remove(folders[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(fp32_comes_back_to_the_bit),
        TEST(bf16_comes_back_rounded),
        TEST(other_settings_come_back),
        TEST(an_untied_output_comes_back),
        TEST(linear_attention_comes_back_as_a_type_of_ours),
        TEST(untied_without_an_output_is_an_error),
        TEST(tied_with_another_output_uses_both_and_says_so),
        TEST(a_second_bias_that_differs_is_not_supported),
        TEST(tensors_that_do_not_fit_are_named),
        TEST(position_numbers_of_older_files_are_passed_over),
        TEST(configurations_of_other_models_are_refused_by_name),
        TEST(both_kinds_of_gelu_are_read),
        TEST(an_encoder_is_taken_over_and_the_head_is_not),
        TEST(a_pooler_is_taken_over_where_there_is_one),
        TEST(an_encoder_of_another_size_is_named_and_changes_nothing),
        TEST(transformers_computes_the_same_logits),
        TEST(what_transformers_saves_opens_here),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s test_bert.py\n", argv[0]);
        return 2;
    }
    script = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Language models as a kind of training: no token of the data is lost, scores are what
 * they say, and a training learns. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/context.h"
#include "file/file.h"
#include "model/folder.h"
#include "tests/folder.h"
#include "train/language_score.h"
#include "train/train.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { BYTES = 260 }; /* tokens of a tokenizer that has merged nothing */

static void write_text(const char *name, const char *text)
{
    attn_error error;
    if (attn_file_write(in_folder(name), text, strlen(text), &error) != ATTN_OK)
        fail_msg("%s", error.message);
}

static attn_tokenizer *byte_tokenizer(void)
{
    static const char *const texts[] = {"a"};
    attn_tokenizer *tokenizer;
    attn_error error;
    assert_int_equal(attn_tokenizer_train(&tokenizer, texts, 1, BYTES, &error), ATTN_OK);
    return tokenizer;
}

/* ---- Texts ----------------------------------------------------------------------- */

/* What is predicted, in order, is the text and </s>; what is fed is <s> and what was
 * predicted before, within each window. */
static void expect_whole(const attn_passages *texts, const char *text)
{
    attn_context *context;
    attn_tape *tape;
    attn_tokenizer *const tokenizer = byte_tokenizer();
    attn_passage_batch batch;
    attn_token *tokens;
    size_t count;
    attn_error error;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    assert_int_equal(
        attn_tokenizer_encode(tokenizer, text, strlen(text), &tokens, &count, &error),
        ATTN_OK);
    size_t *const list = malloc(texts->count * sizeof *list);
    for (size_t n = 0; n < texts->count; n++)
        list[n] = n;
    assert_true(attn_passages_pack(&batch, texts, list, texts->count, tape));
    assert_int_equal(batch.starts[texts->count], count + 1);
    for (size_t i = 0; i <= count; i++)
        assert_int_equal(batch.targets[i], i < count ? tokens[i].id : ATTN_TOKEN_EOS);
    for (size_t n = 0; n < texts->count; n++)
        for (int64_t i = batch.starts[n]; i < batch.starts[n + 1]; i++)
            assert_int_equal(batch.ids[i], i == batch.starts[n] ? ATTN_TOKEN_BOS
                                                                : batch.targets[i - 1]);
    free(list);
    free(tokens);
    attn_tokenizer_destroy(tokenizer);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

static void windows_of_a_long_text_lose_no_token(void **state)
{
    (void)state;
    static const char text[] = "Four score and seven years ago\n\nour fathers brought\n";
    attn_tokenizer *const tokenizer = byte_tokenizer();
    const size_t tokens = sizeof text; /* with </s> in the place of the NUL */
    for (int64_t window = 1; window < 60; window++) {
        attn_passages texts;
        attn_error error;
        write_text("long", text);
        assert_int_equal(attn_passages_load(&texts, in_folder("long"), tokenizer, window,
                                            60, ATTN_TOO_LONG_REFUSE, &error),
                         ATTN_OK);
        assert_int_equal(texts.count, (tokens + (size_t)window - 1) / (size_t)window);
        for (size_t n = 0; n < texts.count; n++)
            assert_in_range(attn_passages_length(&texts, n), 1, window);
        expect_whole(&texts, text);
        assert_int_equal(texts.words, 10);
        assert_int_equal(texts.bytes, tokens);
        attn_passages_free(&texts);
    }
    attn_tokenizer_destroy(tokenizer);
}

static void a_line_is_a_text_and_a_blank_one_none(void **state)
{
    (void)state;
    attn_tokenizer *const tokenizer = byte_tokenizer();
    attn_passages texts;
    attn_error error;
    write_text("lines", "a bc\r\n\n \t\nd\te f\nlast");
    assert_int_equal(attn_passages_load(&texts, in_folder("lines"), tokenizer, 0, 60,
                                        ATTN_TOO_LONG_REFUSE, &error),
                     ATTN_OK);
    assert_int_equal(texts.count, 3);
    assert_int_equal(attn_passages_length(&texts, 0), 5); /* 4 bytes and </s> */
    assert_int_equal(attn_passages_length(&texts, 1), 6);
    assert_int_equal(texts.words, 2 + 1 + 3 + 1 + 1 + 1);
    assert_int_equal(texts.bytes, 5 + 6 + 5);
    attn_passages_free(&texts);
    attn_tokenizer_destroy(tokenizer);
}

static void a_line_that_is_too_long_is_refused_by_number_or_split(void **state)
{
    (void)state;
    attn_tokenizer *const tokenizer = byte_tokenizer();
    attn_passages texts;
    attn_error error;
    write_text("lines", "short\n\nmuch too long\n");
    assert_int_equal(attn_passages_load(&texts, in_folder("lines"), tokenizer, 0, 8,
                                        ATTN_TOO_LONG_REFUSE, &error),
                     ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "line 3: 14 tokens with </s>, expected at most "
                                          "the model's 8 positions"));
    assert_int_equal(attn_passages_load(&texts, in_folder("lines"), tokenizer, 0, 8,
                                        ATTN_TOO_LONG_SPLIT, &error),
                     ATTN_OK);
    assert_int_equal(texts.count, 3);
    assert_int_equal(texts.split, 1);
    assert_int_equal(texts.begin[3], 6 + 14);
    attn_passages_free(&texts);
    attn_tokenizer_destroy(tokenizer);
}

static void a_file_that_is_no_text_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"", "no text in it"},
                                           {"\n \n", "no text in it"},
                                           {"ab\nc\xFF\n", "line 2: not UTF-8 (0xFF)"}};
    attn_tokenizer *const tokenizer = byte_tokenizer();
    for (size_t i = 0; i < 3; i++)
        for (int64_t window = 0; window <= 4; window += 4) {
            attn_passages texts;
            attn_error error;
            write_text("bad", cases[i][0]);
            assert_int_equal(attn_passages_load(&texts, in_folder("bad"), tokenizer,
                                                window, 8, ATTN_TOO_LONG_SPLIT, &error),
                             ATTN_EFORMAT);
            if (!strstr(error.message, cases[i][1]))
                fail_msg("\"%s\" without \"%s\"", error.message, cases[i][1]);
        }
    attn_tokenizer_destroy(tokenizer);
}

/* ---- Scores ---------------------------------------------------------------------- */

/* With an embedding of zeros every token has probability 1/260. */
static attn_language_scorer uniform_scorer(int64_t window, size_t threads)
{
    const attn_language_config config = {.vocabulary = BYTES,
                                         .width = 8,
                                         .layers = 1,
                                         .heads = 2,
                                         .key_heads = 2,
                                         .inner = 8,
                                         .max_positions = 30,
                                         .rotary_base = 1e4,
                                         .epsilon = 1e-5f,
                                         .bos = 0,
                                         .eos = 2,
                                         .text_window = window};
    attn_language_scorer scorer = {.tokenizer = byte_tokenizer(),
                                   .pool = pthreadpool_create(threads),
                                   .threads = threads};
    attn_error error;
    if (attn_language_create(&scorer.language, &config, 1, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_parameters *const parameters = attn_language_parameters(scorer.language);
    memset(parameters->values, 0, (size_t)(BYTES * 8) * sizeof(float));
    return scorer;
}

static void scorer_free(attn_language_scorer *scorer)
{
    attn_language_destroy(scorer->language);
    attn_tokenizer_destroy(scorer->tokenizer);
    pthreadpool_destroy(scorer->pool);
}

static void expect_number(const json_t *scores, const char *key, double expected)
{
    const json_t *const value = json_object_get(scores, key);
    if (!json_is_number(value))
        fail_msg("no %s", key);
    if (!(fabs(json_number_value(value) - expected) <= 1e-5 * fabs(expected)))
        fail_msg("%s is %.8g, expected %.8g", key, json_number_value(value), expected);
}

static void scores_are_what_they_say(void **state)
{
    (void)state;
    const double nats = log(BYTES);
    write_text("lines", "one two\nthree\n");
    for (int64_t window = 0; window <= 10; window += 10) {
        attn_language_scorer scorer = uniform_scorer(window, 2);
        attn_error error;
        json_t *const scores = json_object();
        assert_int_equal(
            attn_language_score_texts(&scorer, in_folder("lines"), scores, &error),
            ATTN_OK);
        /* Lines: 7 + 5 bytes and two ends; the whole: 14 bytes and one. */
        const double tokens = window ? 15 : 14, words = window ? 4 : 5;
        expect_number(scores, "loss", nats);
        expect_number(scores, "perplexity", BYTES);
        expect_number(scores, "perplexity_word", exp(nats * tokens / words));
        expect_number(scores, "bits_byte", log2(BYTES));
        expect_number(scores, "tokens", tokens);
        expect_number(scores, "words", words);
        expect_number(scores, "texts", 2);
        json_decref(scores);
        scorer_free(&scorer);
    }
}

/* Of two sentences the shorter is the more probable; a draw is not won. */
static void minimal_pairs_are_won_by_the_more_probable_sentence(void **state)
{
    (void)state;
    attn_language_scorer scorer = uniform_scorer(0, 2);
    attn_error error;
    json_t *scores = json_object();
    assert_int_equal(mkdir(in_folder("grammar"), 0777), 0);
    write_text("grammar/one.tsv", "agreement\tgood\tbad one\nagreement\tgood\tbad\n");
    write_text("grammar/two.tsv", "island\tab\tba\nisland\ta\tab\n");
    write_text("grammar/readme", "no pairs");
    assert_true(attn_language_is_pairs(in_folder("grammar")));
    assert_true(attn_language_is_pairs("x.tsv.xz"));
    assert_false(attn_language_is_pairs(in_folder("grammar/readme")));
    assert_int_equal(
        attn_language_score_pairs(&scorer, in_folder("grammar"), scores, &error),
        ATTN_OK);
    expect_number(scores, "accuracy", 0.5);
    expect_number(scores, "pairs", 4);
    expect_number(json_object_get(scores, "paradigms"), "agreement", 0.5);
    expect_number(json_object_get(scores, "paradigms"), "island", 0.5);
    json_decref(scores);

    scores = json_object();
    assert_int_equal(
        attn_language_score_pairs(&scorer, in_folder("grammar/one.tsv"), scores, &error),
        ATTN_OK);
    expect_number(scores, "pairs", 2);
    json_decref(scores);
    scorer_free(&scorer);
}

static void pairs_that_are_none_are_named(void **state)
{
    (void)state;
    attn_language_scorer scorer = uniform_scorer(0, 1);
    attn_error error;
    json_t *const scores = json_object();
    write_text("bad.tsv", "p\tgood\tbad\np\tgood\n");
    assert_int_equal(
        attn_language_score_pairs(&scorer, in_folder("bad.tsv"), scores, &error),
        ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "line 2: 2 columns"));
    write_text("bad.tsv", "p\tgood\tmuch longer than thirty positions are\n");
    assert_int_equal(
        attn_language_score_pairs(&scorer, in_folder("bad.tsv"), scores, &error),
        ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "line 1 has 37 tokens, expected at most 29"));
    write_text("bad.tsv", "");
    assert_int_equal(
        attn_language_score_pairs(&scorer, in_folder("bad.tsv"), scores, &error),
        ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "no pairs"));
    assert_int_equal(mkdir(in_folder("none"), 0777), 0);
    assert_int_equal(
        attn_language_score_pairs(&scorer, in_folder("none"), scores, &error), ATTN_EIO);
    json_decref(scores);
    scorer_free(&scorer);
}

/* ---- Training -------------------------------------------------------------------- */

static void fill_lines(const char *name, int lines)
{
    static const char *const who[] = {"the cat", "a dog", "the bird"};
    static const char *const what[] = {"sees", "eats", "hears"};
    char text[8192] = "";
    for (int n = 0; n < lines; n++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s %s.\n",
                 who[n % 3], what[n / 3 % 3], who[n / 9 % 3]);
    write_text(name, text);
}

static const char RECIPE[] =
    "{\"kind\": \"language\", \"data\": {\"train\": \"-\", \"valid\": \"-\", %s},"
    "\"tokenizer\": {\"vocabulary\": 270},"
    "\"model\": {\"width\": 16, \"layers\": 1, %s \"max_positions\": 32, \"dropout\": 0},"
    "\"training\": {\"seed\": 5, \"tokens_per_batch\": 200, \"length_noise\": 2,"
    " \"shards\": 2, \"epochs\": 12, \"schedule\": \"cosine\","
    " \"peak_learning_rate\": 2e-2, \"warmup_steps\": 4, \"beta1\": 0.9, \"beta2\": 0.98,"
    " \"epsilon\": 1e-9, \"weight_decay\": 0, \"clip\": 1, \"label_smoothing\": 0,"
    " \"average\": 0, \"checkpoint_every\": 20, \"valid_every\": 20}}";

static attn_status parse(attn_recipe *recipe, const char *data, const char *model,
                         attn_error *error)
{
    char text[2048];
    snprintf(text, sizeof text, RECIPE, data, model);
    return attn_recipe_parse(recipe, attn_task_kinds(), text, "small", error);
}

static void train(const char *data, const char *model, const char *name)
{
    attn_recipe recipe;
    attn_train_end end;
    attn_error error;
    char out[256], train_file[256], valid_file[256];
    if (parse(&recipe, data, model, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    fill_lines("train", 54);
    fill_lines("valid", 9);
    snprintf(out, sizeof out, "%s", in_folder(name));
    snprintf(train_file, sizeof train_file, "%s", in_folder("train"));
    snprintf(valid_file, sizeof valid_file, "%s", in_folder("valid"));
    const attn_train_options options = {
        .out = out, .train = train_file, .valid = valid_file, .threads = 2};
    if (attn_train(&recipe, &options, &end, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(end, ATTN_TRAIN_FINISHED);
    attn_recipe_free(&recipe);

    char path[300];
    snprintf(path, sizeof path, "%s/scores.json", out);
    json_t *const scores = json_load_file(path, 0, NULL);
    const json_t *const valid = json_object_get(scores, "valid");
    const double loss = json_real_value(json_object_get(valid, "loss"));
    /* ln 270 is 5.6 */
    if (!(loss > 0.0 && loss < 2.0))
        fail_msg("%s: the loss is %g after training", name, loss);
    /* The files are in bf16; training measured in fp32. */
    assert_true(fabs(loss - json_real_value(json_object_get(scores, "valid_loss"))) <
                0.05);
    json_decref(scores);
    assert_ptr_equal(attn_task_kind_of_model(out), &attn_task_language);
}

static const char LLAMA[] = "\"heads\": 2, \"key_heads\": 1, \"inner\": 32,";
static const char LSTM[] = "\"body\": \"lstm\",";

static void a_training_learns_lines_and_windows_with_either_body(void **state)
{
    (void)state;
    train("\"unit\": \"line\"", LLAMA, "llama-lines");
    train("\"unit\": \"file\", \"window\": 20", LLAMA, "llama-windows");
    train("\"unit\": \"line\"",
          "\"heads\": 2, \"inner\": 32, \"no_positions\": true, \"forgets\": true,",
          "variant-lines");
    train("\"unit\": \"line\"",
          "\"heads\": 2, \"inner\": 32, \"no_positions\": true, \"alibi\": true, "
          "\"sink_logits\": true,",
          "alibi-lines");
    train("\"unit\": \"line\"",
          "\"heads\": 2, \"inner\": 32, \"linear_attention\": true,", "linear-lines");
    train("\"unit\": \"line\"", LSTM, "lstm-lines");
    train("\"unit\": \"file\"", LSTM, "lstm-windows");
}

static void recipes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *data, *model, *fragment;
    } cases[] = {
        {"\"unit\": \"page\"", LLAMA, "data.unit"},
        {"\"unit\": \"line\"", LSTM, ""},
        {"\"unit\": \"line\"", "", "model.heads is 0"},
        {"\"unit\": \"line\"", "\"body\": \"lstm\", \"forgets\": true,", "model.forgets"},
        {"\"unit\": \"line\"", "\"body\": \"lstm\", \"alibi\": true,", "model.alibi"},
        {"\"unit\": \"line\"", "\"body\": \"lstm\", \"linear_attention\": true,",
         "model.linear_attention"},
        {"\"unit\": \"line\"",
         "\"heads\": 2, \"inner\": 32, \"linear_attention\": true, \"alibi\": true,",
         "softmax attention"},
        {"\"unit\": \"line\"",
         "\"heads\": 2, \"inner\": 32, \"linear_attention\": \"relu\",",
         "linear_attention"},
        {"\"unit\": \"line\"", "\"body\": \"lstm\", \"heads\": 2,", "neither"},
        {"\"unit\": \"line\", \"window\": 8", LLAMA, "data.window is 8, expected none"},
        {"\"unit\": \"file\", \"window\": 33", LLAMA, "data.window is 33"},
        {"\"unit\": \"line\", \"source\": 1", LLAMA, "source"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_recipe recipe;
        attn_error error;
        const attn_status status = parse(&recipe, cases[i].data, cases[i].model, &error);
        if (*cases[i].fragment == '\0') {
            assert_int_equal(status, ATTN_OK);
            attn_recipe_free(&recipe);
        } else if (status != ATTN_EFORMAT || !strstr(error.message, cases[i].fragment)) {
            fail_msg("\"%s\" without \"%s\"", error.message, cases[i].fragment);
        }
    }
}

static void the_recipes_of_the_house_are_good(void **state)
{
    (void)state;
    static const char *const names[] = {"language-sentences", "language-sentences-lstm",
                                        "language-speeches"};
    const char *const folder_of_recipes = getenv("ATTN_RECIPES");
    if (!folder_of_recipes) {
        print_message(
            "skipped: the_recipes_of_the_house_are_good (ATTN_RECIPES is not set)\n");
        skip();
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        attn_recipe recipe;
        attn_error error;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s.json", folder_of_recipes, names[i]);
        if (attn_recipe_load(&recipe, path, &error) != ATTN_OK)
            fail_msg("%s", error.message);
        assert_ptr_equal(recipe.kind, &attn_task_language);
        attn_recipe_free(&recipe);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_of_a_long_text_lose_no_token),
        cmocka_unit_test(a_line_is_a_text_and_a_blank_one_none),
        cmocka_unit_test(a_line_that_is_too_long_is_refused_by_number_or_split),
        cmocka_unit_test(a_file_that_is_no_text_is_named),
        cmocka_unit_test(scores_are_what_they_say),
        cmocka_unit_test(minimal_pairs_are_won_by_the_more_probable_sentence),
        cmocka_unit_test(pairs_that_are_none_are_named),
        cmocka_unit_test(a_training_learns_lines_and_windows_with_either_body),
        cmocka_unit_test(recipes_that_do_not_fit_are_named),
        cmocka_unit_test(the_recipes_of_the_house_are_good),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* attn look and attn caption on a small model of every kind, never trained: where they
 * look means nothing, but what is shown, and what is refused, is that of any model. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/context.h"
#include "file/picture.h"
#include "file/safetensors.h"
#include "model/bert.h"
#include "model/captioner.h"
#include "model/language.h"
#include "model/reader.h"
#include "tests/cli/command.h"
#include "text/tokenizer.h"
#include <sys/stat.h>

static int64_t vocabulary;

/* A folder with the tokenizer of all of them. */
static attn_status make_folder(const char *name, attn_error *error)
{
    static const char *const texts[] = {"the cat was hungry", "the cat was on the mat"};
    char path[128];
    attn_tokenizer *tokenizer;
    if (mkdir(in_folder(name), 0700) != 0)
        return attn_error_set(error, ATTN_EIO, "no folder %s", name);
    ATTN_TRY(attn_tokenizer_train(&tokenizer, texts, 2, 280, error));
    attn_status status = attn_tokenizer_add_mask(tokenizer, error);
    vocabulary = attn_tokenizer_size(tokenizer);
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    if (status == ATTN_OK)
        status = attn_tokenizer_save(tokenizer, in_folder(path), error);
    attn_tokenizer_destroy(tokenizer);
    return status;
}

static attn_status make_reader(const char *name, const attn_reader_config *like,
                               attn_error *error)
{
    static const char *const labels[] = {"DET", "NOUN", "VERB"};
    attn_reader_config config = *like;
    attn_reader *reader;
    ATTN_TRY(make_folder(name, error));
    config.labels = 3;
    config.vocabulary = vocabulary;
    if (config.max_positions == 0)
        config.max_positions = 32;
    ATTN_TRY(attn_reader_create(&reader, &config, 5, error));
    attn_status status = attn_reader_name_labels(reader, labels, error);
    if (status == ATTN_OK)
        status = attn_reader_save(reader, in_folder(name), ATTN_DTYPE_F32, error);
    attn_reader_destroy(reader);
    return status;
}

static attn_status make_readers(attn_error *error)
{
    const attn_reader_config lstm = {.body = ATTN_BODY_LSTM,
                                     .embedding = 8,
                                     .width = 6,
                                     .layers = 1,
                                     .both_ways = true,
                                     .attention_width = 5};
    attn_reader_config config = lstm;
    config.pooling = ATTN_READER_ATTENTION;
    ATTN_TRY(make_reader("classifier", &config, error));
    config.max_positions = 256;
    ATTN_TRY(make_reader("classifier-of-long-texts", &config, error));
    config = lstm;
    config.tags = true;
    config.attention = ATTN_READER_ADDITIVE;
    ATTN_TRY(make_reader("tagger", &config, error));
    config = (attn_reader_config){
        .body = ATTN_BODY_TRANSFORMER, .width = 8, .layers = 2, .heads = 2, .inner = 16};
    ATTN_TRY(make_reader("transformer", &config, error));
    config = (attn_reader_config){.body = ATTN_BODY_BAG, .embedding = 8};
    return make_reader("bag", &config, error);
}

static attn_status make_masked(attn_error *error)
{
    attn_bert_config config;
    attn_bert *bert;
    ATTN_TRY(make_folder("masked", error));
    attn_bert_config_init(&config);
    config.vocabulary = vocabulary;
    config.width = 8;
    config.layers = 1;
    config.heads = 2;
    config.inner = 16;
    config.max_positions = 32;
    ATTN_TRY(attn_bert_create(&bert, &config, 3, error));
    const attn_status status =
        attn_bert_save(bert, in_folder("masked"), ATTN_DTYPE_F32, error);
    attn_bert_destroy(bert);
    return status;
}

static attn_status make_language(const char *name, attn_language_body body,
                                 attn_error *error)
{
    attn_language *language;
    ATTN_TRY(make_folder(name, error));
    const attn_language_config config = {.body = body,
                                         .vocabulary = vocabulary,
                                         .width = 8,
                                         .layers = 2,
                                         .heads = 2,
                                         .key_heads = 1,
                                         .inner = 16,
                                         .max_positions = 32,
                                         .rotary_base = 10000.0,
                                         .epsilon = 1e-6f,
                                         .untied = strcmp(name, "untied") == 0,
                                         .bos = ATTN_TOKEN_BOS,
                                         .eos = ATTN_TOKEN_EOS};
    ATTN_TRY(attn_language_create(&language, &config, 3, error));
    const attn_status status =
        attn_language_save(language, in_folder(name), ATTN_DTYPE_F32, error);
    attn_language_destroy(language);
    return status;
}

static attn_status make_captioner(attn_error *error)
{
    attn_captioner *captioner;
    uint8_t grey[12 * 16];
    ATTN_TRY(make_folder("captioner", error));
    const attn_captioner_config config = {.rows = 12,
                                          .columns = 16,
                                          .cell_rows = 1,
                                          .cell_columns = 1,
                                          .layers = 2,
                                          .channels = {3, 4},
                                          .halvings = 2,
                                          .max_positions = 9,
                                          .decoder = {.vocabulary = vocabulary,
                                                      .embedding = 6,
                                                      .cell = ATTN_CELL_GRU,
                                                      .width = 5,
                                                      .layers = 1,
                                                      .source_width = 4,
                                                      .attention = ATTN_CROSS_ADDITIVE,
                                                      .attention_width = 4}};
    ATTN_TRY(attn_captioner_create(&captioner, &config, 3, error));
    attn_status status =
        attn_captioner_save(captioner, in_folder("captioner"), ATTN_DTYPE_F32, error);
    attn_captioner_destroy(captioner);
    for (size_t i = 0; i < sizeof grey; i++)
        grey[i] = (uint8_t)(i * 3);
    const attn_picture picture = {12, 16, grey}, other = {16, 12, grey};
    if (status == ATTN_OK)
        status = attn_picture_save(&picture, in_folder("picture.png"), error);
    return status == ATTN_OK ? attn_picture_save(&other, in_folder("other.png"), error)
                             : status;
}

static int start(void **state)
{
    attn_error error = {0};
    setenv("LC_ALL", "C.UTF-8", 1);
    if (folder_make(state) == 0 && make_readers(&error) == ATTN_OK &&
        make_masked(&error) == ATTN_OK &&
        make_language("language", ATTN_LANGUAGE_LLAMA, &error) == ATTN_OK &&
        make_language("lstm", ATTN_LANGUAGE_LSTM, &error) == ATTN_OK &&
        make_language("untied", ATTN_LANGUAGE_LLAMA, &error) == ATTN_OK &&
        make_captioner(&error) == ATTN_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

/* Every part, in this order, in what attn prints. */
static void shows(const char *arguments, const char *const *parts)
{
    run_result result = run(arguments, "");
    if (result.code != 0)
        fail_msg("attn %s gives %d: %s", arguments, result.code, result.err);
    const char *at = result.out;
    for (; *parts; parts++) {
        const char *const found = strstr(at, *parts);
        if (!found)
            fail_msg("attn %s: no \"%s\" in: %s", arguments, *parts, at);
        at = found + strlen(*parts);
    }
    run_free(&result);
}

static void fails(const char *arguments, int code, const char *message)
{
    run_result result = run(arguments, "");
    if (result.code != code || strstr(result.err, message) == NULL)
        fail_msg("attn %s gives %d: %s", arguments, result.code, result.err);
    assert_string_equal(result.out, "");
    run_free(&result);
}

static void a_classifier_shows_the_words_its_label_was_read_from(void **state)
{
    (void)state;
    shows("look 'the cat was hungry' --model classifier",
          (const char *const[]){"text  the cat was hungry\nlabel ", "\" reads \"",
                                "Which words the label was read from  pooling layer 1",
                                "pooling\nlayer 1  ", NULL});
}

/* An even spread over 41 words gives each .02: a linear scale would show nothing. */
static void a_long_text_is_drawn_on_a_scale_that_shows_it(void **state)
{
    (void)state;
    char text[256] = "", line[384];
    for (int i = 0; i < 40; i++)
        strcat(text, i ? " the" : "the");
    snprintf(line, sizeof line, "look '%s' --model classifier-of-long-texts", text);
    run_result terminal = run(line, "");
    assert_non_null(strstr(terminal.out, "\nwords 1 to 41: nothing of .05 or more\n"));
    run_free(&terminal);
    static const char *const scales[][2] = {{"", "log scale"},
                                            {" --scale linear", "linear scale"}};
    for (size_t i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "look '%s' --model classifier-of-long-texts -o look.svg%s", text,
                 scales[i][0]);
        shows(line, (const char *const[]){NULL});
        char *const svg = run_file("look.svg");
        assert_non_null(strstr(svg, scales[i][1]));
        assert_int_equal(strstr(svg, "<text class=\"t5 s13\"") != NULL, i == 0);
        free(svg);
    }
    snprintf(line, sizeof line, "look '%s' --model classifier-of-long-texts -o look.html",
             text);
    shows(line, (const char *const[]){NULL});
    char *const page = run_file("look.html");
    assert_non_null(strstr(page, "\"start\":{\"scale\":1,"));
    free(page);
}

static void a_label_is_a_word_to_look_at(void **state)
{
    (void)state;
    const char *const parts[] = {"pooling", NULL};
    shows("look 'the cat was' --model classifier --at 1", parts);
    shows("look 'the cat was' --model classifier --head 1.1", parts);
    fails("look 'the cat was' --model classifier --at CAT", 2, "only the label looks: ");
    fails("look 'the cat was' --model classifier --at CAT", 2, "gives \"CAT\" .");
    fails("look 'the cat was' --model classifier --at dog", 2,
          "no word \"dog\" in the text");
    fails("look picture.png --model classifier", 2,
          "picture.png is a picture; classifier reads text");
}

static void a_tagger_shows_its_tags_and_which_word_looks_where(void **state)
{
    (void)state;
    shows("look \"it's not, I can't\" --model tagger",
          (const char *const[]){"tags it/", " 's/", " not/", " ,/", " I/", " ca/",
                                " n't/", NULL});
    shows("look 'the cat was hungry' --model tagger",
          (const char *const[]){"text the cat was hungry\ntags the/", " cat/", " was/",
                                " hungry/", "\n\nBetween words, \"", " looks at \"",
                                " most.\n\nWhich word each word looks at  encoder 1.1",
                                NULL});
}

static void a_transformer_shows_its_marks(void **state)
{
    (void)state;
    shows("look 'the cat was hungry' --model transformer",
          (const char *const[]){"label ", "<s>", "</s>", "layer 2", NULL});
}

static void a_mask_is_filled(void **state)
{
    (void)state;
    shows("look 'the <mask> was <mask>' --model masked",
          (const char *const[]){"text the <mask> was <mask>\nmask ", ", ", "; ",
                                "<mask>¹", NULL});
    shows("look 'the cat' --model masked",
          (const char *const[]){"text the cat\n\n", "encoder", NULL});
}

static void a_language_model_says_what_comes_next(void **state)
{
    (void)state;
    shows("look 'the cat was' --model language --at cat",
          (const char *const[]){"cat", NULL});
    shows("look 'the cat was' --model language",
          (const char *const[]){"text the cat was\nnext ", "decoder", "layer 2",
                                "next: attn look TEXT --model language --at was", NULL});
}

/* config.json says tied, and model.safetensors has two tables that differ. */
static void what_loading_noted_is_said_once_by_every_verb(void **state)
{
    (void)state;
    static const char *const verbs[] = {"look 'the cat' --model untied",
                                        "generate untied 'the cat' --tokens 2",
                                        "eval untied lines"};
    static const char note[] = "config.json ties the output to the embedding, but "
                               "lm_head.weight is there and differs: both are used";
    char command[512];
    snprintf(
        command, sizeof command,
        "cd '%s' && sed -i 's/\"tie_word_embeddings\": false/\"tie_word_embeddings\": "
        "true/' untied/config.json && echo the cat > lines",
        folder);
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        run_result result = run(verbs[i], "");
        assert_int_equal(result.code, 0);
        const char *const said = strstr(i < 2 ? result.err : result.out, note);
        if (!said || strstr(said + 1, "config.json ties"))
            fail_msg("%s: %s%s", verbs[i], result.out, result.err);
        run_free(&result);
    }
}

static void a_captioner_shows_a_map_for_each_word(void **state)
{
    (void)state;
    shows("look picture.png --model captioner --translation 'the cat'",
          (const char *const[]){"file picture.png\nsays the cat\n",
                                "Where in the picture each written word looked", NULL});
    shows("look picture.png --model captioner --translation 'the cat' -o look.svg",
          (const char *const[]){NULL});
    char *svg = run_file("look.svg");
    assert_non_null(strstr(svg, "<use href=\"#picture\""));
    free(svg);
}

static void a_record_of_each_kind_draws_the_same_again(void **state)
{
    (void)state;
    static const char *const arguments[] = {
        "'the cat was' --model classifier", "'the cat was' --model tagger",
        "'the cat was' --model masked", "'the cat was' --model language",
        "picture.png --model captioner"};
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        char line[256];
        snprintf(line, sizeof line, "look %s", arguments[i]);
        run_result one = run(line, "");
        assert_int_equal(one.code, 0);
        snprintf(line, sizeof line, "look %s -o kept.attn", arguments[i]);
        run_result kept = run(line, "");
        run_result again = run("look kept.attn", "");
        cut_proposal(&one, i < 4 ? "attn look TEXT --model " : "attn look picture.png ");
        cut_proposal(&again, "attn look kept.attn --at ");
        assert_string_equal(again.out, one.out);
        run_free(&one);
        run_free(&kept);
        run_free(&again);
    }
}

/* Every weight of the model in a folder becomes NaN; returns what was there. */
static char *break_model(const char *name, size_t *length_bytes)
{
    attn_error error;
    char path[128], *whole, *broken;
    size_t length;
    uint64_t header;
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    assert_int_equal(
        attn_file_read(in_folder(path), 1 << 24, &whole, length_bytes, &error), ATTN_OK);
    assert_int_equal(attn_file_read(in_folder(path), 1 << 24, &broken, &length, &error),
                     ATTN_OK);
    memcpy(&header, broken, sizeof header);
    memset(broken + 8 + header, 0xFF, length - 8 - (size_t)header);
    assert_int_equal(attn_file_write(in_folder(path), broken, length, &error), ATTN_OK);
    free(broken);
    return whole;
}

static void a_model_that_is_not_finite_is_not_looked_at(void **state)
{
    (void)state;
    static const char *const models[][2] = {
        {"classifier", "look 'the cat' --model classifier"},
        {"tagger", "look 'the cat' --model tagger"},
        {"transformer", "look 'the cat' --json --model transformer"},
        {"masked", "look 'the <mask>' --model masked"},
        {"masked", "look 'the cat' --model masked"},
        {"language", "look 'the cat' --model language"},
        {"captioner", "look picture.png --model captioner --translation 'the cat'"}};
    for (size_t n = 0; n < sizeof models / sizeof *models; n++) {
        attn_error error;
        char path[128];
        size_t length;
        char *const whole = break_model(models[n][0], &length);
        fails(models[n][1], 1, "not finite: the model is broken");
        snprintf(path, sizeof path, "%s/model.safetensors", models[n][0]);
        assert_int_equal(attn_file_write(in_folder(path), whole, length, &error),
                         ATTN_OK);
        free(whole);
    }
}

static void what_cannot_be_looked_at_is_said(void **state)
{
    (void)state;
    fails("look 'the cat' --model bag", 1, "bag has no attention");
    fails("look 'the cat' --model lstm", 1, "lstm has no attention");
    fails("look '\xC2\xA0' --model tagger", 2, "the text has no word");
    fails("look 'the cat' --model tagger --beam 2", 2, "reads a text and writes none");
    fails("look other.png --model captioner", 1,
          "other.png has 12 × 16 points, expected 16 × 12");
    fails("look none.png --model captioner", 1, "none.png");
    fails("look in.png --model captioner", 1, "in.png");
    fails("look \"$(printf 'the cat %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17)\" "
          "--model tagger",
          1, "expected at most 31: the model has no more positions");
}

static void captions_are_lines_and_objects(void **state)
{
    (void)state;
    run_result lines = run("caption captioner picture.png picture.png", "");
    assert_int_equal(lines.code, 0);
    const size_t half = strlen(lines.out) / 2;
    assert_int_equal(lines.out[half - 1], '\n');
    assert_memory_equal(lines.out, lines.out + half, half);
    run_free(&lines);
    shows("caption captioner picture.png --json --beam 1",
          (const char *const[]){"{\"file\":\"picture.png\",\"caption\":\"",
                                "\",\"finished\":", ",\"score\":", "}\n", NULL});
    fails("caption captioner other.png", 1, "has 12 × 16 points, expected 16 × 12");
    fails("caption captioner", 2, "expected a model and a picture");
    fails("caption captioner picture.png -o x.png", 2, "expected --picture with it");
    fails("caption captioner none.images.idx --picture 1", 1, "none.images.idx");
    fails("caption none picture.png", 1, "no model 'none'");
    fails("caption captioner none.png", 1, "none.png is neither here nor in ATTN_DATA, ");
    assert_int_equal(mkdir(in_folder("shown"), 0700), 0);
    assert_int_equal(rename(in_folder("picture.png"), in_folder("shown/moved.png")), 0);
    setenv("ATTN_DATA", in_folder("shown"), 1);
    shows("caption captioner moved.png", (const char *const[]){"\n", NULL});
    unsetenv("ATTN_DATA");
    assert_int_equal(rename(in_folder("shown/moved.png"), in_folder("picture.png")), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_classifier_shows_the_words_its_label_was_read_from),
        cmocka_unit_test(a_long_text_is_drawn_on_a_scale_that_shows_it),
        cmocka_unit_test(a_label_is_a_word_to_look_at),
        cmocka_unit_test(a_tagger_shows_its_tags_and_which_word_looks_where),
        cmocka_unit_test(a_transformer_shows_its_marks),
        cmocka_unit_test(a_mask_is_filled),
        cmocka_unit_test(a_language_model_says_what_comes_next),
        cmocka_unit_test(what_loading_noted_is_said_once_by_every_verb),
        cmocka_unit_test(a_captioner_shows_a_map_for_each_word),
        cmocka_unit_test(a_record_of_each_kind_draws_the_same_again),
        cmocka_unit_test(a_model_that_is_not_finite_is_not_looked_at),
        cmocka_unit_test(what_cannot_be_looked_at_is_said),
        cmocka_unit_test(captions_are_lines_and_objects),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_look_models ATTN\n");
        return 2;
    }
    attn_command = argv[1];
    return cmocka_run_group_tests(tests, start, folder_remove);
}

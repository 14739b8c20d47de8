/* attn fill, on a model whose guesses are known: all its weights are 0, so that the
 * logits are the bias of its head. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "base/context.h"
#include "file/safetensors.h"
#include "model/bert.h"
#include "tests/cli/command.h"
#include "text/tokenizer.h"
#include <math.h>
#include <sys/stat.h>

enum { POSITIONS = 12 };

static int32_t id_of(const attn_tokenizer *tokenizer, const char *text)
{
    attn_error error;
    attn_token *tokens;
    size_t count;
    if (attn_tokenizer_encode(tokenizer, text, strlen(text), &tokens, &count, &error) !=
            ATTN_OK ||
        count != 1)
        return -1;
    const int32_t id = tokens[0].id;
    free(tokens);
    return id;
}

/* " cat" has probability 1/2, "The" 1/4, "," 1/8, and <pad>, which is no guess, 1/8. */
static attn_status set_values(attn_bert *bert, const attn_tokenizer *tokenizer)
{
    attn_parameters *const parameters = attn_bert_parameters(bert);
    const attn_parameter *const p =
        attn_parameters_find(parameters, "cls.predictions.bias");
    const int32_t ids[] = {id_of(tokenizer, " cat"), id_of(tokenizer, "The"),
                           id_of(tokenizer, ","), ATTN_TOKEN_PAD};
    static const double shares[] = {4.0, 2.0, 1.0, 1.0};
    memset(parameters->values, 0, parameters->floats * sizeof(float));
    float *const bias = parameters->values + p->offset;
    for (size_t i = 0; i < p->count; i++)
        bias[i] = -90.0f;
    for (size_t i = 0; i < 4; i++) {
        if (ids[i] < 0)
            return ATTN_EFORMAT;
        bias[ids[i]] = (float)log(shares[i]);
    }
    return ATTN_OK;
}

static attn_status make_tokenizer(attn_tokenizer **tokenizer, bool with_mask,
                                  const char *name, attn_error *error)
{
    static const char *const texts[] = {"The cat, The cat", "The cat, the mat"};
    char path[64];
    ATTN_TRY(attn_tokenizer_train(tokenizer, texts, 2, 265, error));
    if (with_mask)
        ATTN_TRY(attn_tokenizer_add_mask(*tokenizer, error));
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    return attn_tokenizer_save(*tokenizer, in_folder(path), error);
}

static attn_status make_model(const char *name, attn_bert_head head, bool with_mask,
                              attn_error *error)
{
    attn_tokenizer *tokenizer = NULL;
    attn_bert *bert = NULL;
    attn_bert_config config;
    attn_bert_config_init(&config);
    attn_status status = mkdir(in_folder(name), 0700) == 0
                             ? make_tokenizer(&tokenizer, with_mask, name, error)
                             : ATTN_EIO;
    if (status == ATTN_OK) {
        config.head = head;
        config.labels = head == ATTN_BERT_MASKED ? 0 : 2;
        config.vocabulary = attn_tokenizer_size(tokenizer);
        config.width = 8;
        config.layers = 1;
        config.heads = 2;
        config.inner = 8;
        config.max_positions = POSITIONS;
        status = attn_bert_create(&bert, &config, 1, error);
    }
    if (status == ATTN_OK && head == ATTN_BERT_MASKED)
        status = set_values(bert, tokenizer);
    if (status == ATTN_OK)
        status = attn_bert_save(bert, in_folder(name), ATTN_DTYPE_F32, error);
    attn_bert_destroy(bert);
    attn_tokenizer_destroy(tokenizer);
    return status;
}

static int start(void **state)
{
    attn_error error = {0};
    if (folder_make(state) != 0)
        return -1;
    if (make_model("model", ATTN_BERT_MASKED, true, &error) == ATTN_OK &&
        make_model("plain", ATTN_BERT_MASKED, false, &error) == ATTN_OK &&
        make_model("labels", ATTN_BERT_SEQUENCE, true, &error) == ATTN_OK)
        return 0;
    print_error("%s\n", error.message);
    return -1;
}

static void a_mask_gets_its_guesses_by_probability(void **state)
{
    (void)state;
    expect_run("fill --model model --top-k 3 'The <mask> the'", "", 0,
               "The cat the\n"
               "\n"
               " 0.5000  cat\n"
               " 0.2500  The\n"
               " 0.1250  ,\n",
               "");
}

static void every_mask_has_a_list_of_its_own(void **state)
{
    (void)state;
    expect_run("fill --model model --top-k 1 --threads 2 'The<mask>, <mask>'", "", 0,
               "The cat, cat\n"
               "\n"
               " 0.5000  cat\n"
               "\n"
               " 0.5000  cat\n",
               "");
}

static void standard_input_is_a_text(void **state)
{
    (void)state;
    expect_run("fill --model model --top-k 1 -", "<mask> the\n", 0,
               " cat the\n\n 0.5000  cat\n", "");
}

static void a_file_is_a_text_and_a_misspelt_name_is_none(void **state)
{
    (void)state;
    attn_error error;
    assert_int_equal(
        attn_file_write(in_folder("a.txt"), "\xEF\xBB\xBF<mask> the\n", 14, &error),
        ATTN_OK);
    expect_run("fill --model model --top-k 1 a.txt", "", 0, " cat the\n\n 0.5000  cat\n",
               "");
    expect_run("fill --model model b.txt", "", 1, "",
               "attn fill: no such file: b.txt (to give that text itself: echo TEXT | "
               "attn fill -)\n");
    expect_run("fill --model model ' '", "", 2, "",
               "attn fill: the text is empty; expected a sentence\n");
}

static void json_has_ids_tokens_and_probabilities(void **state)
{
    (void)state;
    attn_error error;
    attn_tokenizer *tokenizer;
    char expected[512];
    assert_int_equal(
        attn_tokenizer_load(&tokenizer, in_folder("model/tokenizer.json"), &error),
        ATTN_OK);
    snprintf(expected, sizeof expected,
             "{\"text\": \"The <mask>\", \"filled\": \"The cat\", \"tokens\": 4, "
             "\"masks\": [{\"place\": 2, \"candidates\": [{\"id\": %d, \"token\": \" "
             "cat\", \"probability\": 0.5}, {\"id\": %d, \"token\": \"The\", "
             "\"probability\": 0.25}]}]}\n",
             (int)id_of(tokenizer, " cat"), (int)id_of(tokenizer, "The"));
    attn_tokenizer_destroy(tokenizer);
    expect_run("fill --model model --top-k 2 --json 'The <mask>'", "", 0, expected, "");
}

static void more_guesses_than_tokens_are_all_of_them(void **state)
{
    (void)state;
    run_result result = run("fill --model model --top-k 100000 '<mask>'", "");
    assert_int_equal(result.code, 0);
    size_t lines = 0;
    for (const char *at = result.out; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, 2 + 265 - 4);
    run_free(&result);
}

static void misuse_is_told_from_failure(void **state)
{
    (void)state;
    expect_run("fill --model model 'The cat'", "", 2, "",
               "attn fill: no <mask> in the text, expected one at least\n");
    expect_run("fill --model model", "", 2, "",
               "attn fill: expected one text, got 0 arguments (attn fill --help)\n");
    expect_run("fill --model model --top-k 0 '<mask>'", "", 2, "", NULL);
    expect_run("fill --model model 'ababababababababab<mask>'", "", 1, "",
               "attn fill: the text has 19 tokens, expected at most 10: the model has no "
               "more positions. Give it one sentence at a time\n");
    expect_run("fill '<mask>'", "", 1, "",
               "attn fill: no model yet, as none is shipped: attn train "
               "recipes/masked-sentences.json makes trained/masked-sentences, or give "
               "--model FOLDER\n");
    expect_run("fill --model plain '<mask>'", "", 1, "",
               "attn fill: plain/tokenizer.json: no <mask>, expected one\n");
    expect_run("fill --model labels '<mask>'", "", 1, "",
               "attn fill: labels: the model gives labels, expected a masked language "
               "model\n");
    expect_run("fill --model nowhere '<mask>'", "", 1, "", NULL);
    expect_run("fill --model model -", "<mask>\xff", 1, "", NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_gets_its_guesses_by_probability),
        cmocka_unit_test(every_mask_has_a_list_of_its_own),
        cmocka_unit_test(standard_input_is_a_text),
        cmocka_unit_test(a_file_is_a_text_and_a_misspelt_name_is_none),
        cmocka_unit_test(json_has_ids_tokens_and_probabilities),
        cmocka_unit_test(more_guesses_than_tokens_are_all_of_them),
        cmocka_unit_test(misuse_is_told_from_failure),
    };
    if (argc != 2)
        return 2;
    attn_command = argv[1];
    return cmocka_run_group_tests(tests, start, folder_remove);
}

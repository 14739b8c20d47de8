/* attn generate, from outside, on a model that has learnt one text by heart, byte by
 * byte. */
#define _XOPEN_SOURCE 700 /* realpath, nftw */
#include "file/safetensors.h"
#include "model/language.h"
#include "tests/cli/command.h"
#include "text/tokenizer.h"
#include <math.h>
#include <signal.h>

/* 18 bytes of 12 characters. */
#define TEXT "D\xC3\xA9j\xC3\xA0 vu: \xE4\xBD\xA0\xE5\xA5\xBD!"
enum { TEXT_BYTES = 18, POSITIONS = 40 };

static void train(attn_language *language, const int32_t *ids, int64_t count, float rate)
{
    attn_context *context;
    attn_tape *tape;
    attn_parameters *const parameters = attn_language_parameters(language);
    float *const gradients = malloc(parameters->floats * sizeof *gradients);
    const int64_t starts[] = {0, count - 1};
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    double loss = 0.0;
    for (int step = 0; step < 400; step++) {
        memset(gradients, 0, parameters->floats * sizeof *gradients);
        attn_tape_begin(tape, true, 0);
        const attn_pass pass = {tape, parameters, gradients, NULL};
        attn_tensor *const sum =
            attn_language_loss(language, &pass, ids, ids + 1, (attn_packing){1, starts},
                               0.0f, (double)(count - 1), &loss);
        assert_int_equal(attn_tape_backward(tape, sum, 1.0f), ATTN_OK);
        for (size_t i = 0; i < parameters->floats; i++)
            parameters->values[i] -= rate * gradients[i];
    }
    if (!(loss / (double)(count - 1) < 0.2))
        fail_msg("the loss is still %g", loss / (double)(count - 1));
    free(gradients);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
}

static void make_model(const char *name, attn_language_body body, float rate)
{
    static const char *const texts[] = {TEXT};
    attn_tokenizer *tokenizer;
    attn_language *language;
    attn_token *tokens;
    size_t count;
    attn_error error;
    char path[512];
    int32_t ids[TEXT_BYTES + 2] = {ATTN_TOKEN_BOS};
    assert_int_equal(attn_tokenizer_train(&tokenizer, texts, 1, 260, &error), ATTN_OK);
    assert_int_equal(
        attn_tokenizer_encode(tokenizer, TEXT, TEXT_BYTES, &tokens, &count, &error),
        ATTN_OK);
    assert_int_equal(count, TEXT_BYTES);
    for (size_t i = 0; i < count; i++)
        ids[i + 1] = tokens[i].id;
    ids[count + 1] = ATTN_TOKEN_EOS;
    free(tokens);
    const attn_language_config config = {.body = body,
                                         .vocabulary = 260,
                                         .width = 32,
                                         .layers = 1,
                                         .heads = 2,
                                         .key_heads = 1,
                                         .inner = 64,
                                         .max_positions = POSITIONS,
                                         .rotary_base = 10000.0,
                                         .epsilon = 1e-5f,
                                         .bos = ATTN_TOKEN_BOS,
                                         .eos = ATTN_TOKEN_EOS};
    assert_int_equal(attn_language_create(&language, &config, 3, &error), ATTN_OK);
    train(language, ids, TEXT_BYTES + 2, rate);
    assert_int_equal(
        attn_language_save(language, in_folder(name), ATTN_DTYPE_F32, &error), ATTN_OK);
    snprintf(path, sizeof path, "%s/tokenizer.json", in_folder(name));
    assert_int_equal(attn_tokenizer_save(tokenizer, path, &error), ATTN_OK);
    attn_language_destroy(language);
    attn_tokenizer_destroy(tokenizer);
}

static int set_up(void **state)
{
    if (folder_make(state) != 0)
        return -1;
    make_model("llama", ATTN_LANGUAGE_LLAMA, 0.1f);
    make_model("lstm", ATTN_LANGUAGE_LSTM, 1.0f);
    return 0;
}

static void a_text_is_written_to_its_end(void **state)
{
    (void)state;
    expect_run("generate llama D", "", 0, TEXT "\n", "");
    expect_run("generate llama 'D\xC3\xA9j'", "", 0, TEXT "\n", "");
    expect_run("generate lstm D", "", 0, TEXT "\n", "");
}

static void an_empty_prompt_begins_a_text(void **state)
{
    (void)state;
    expect_run("generate llama", "", 0, TEXT "\n", "");
    expect_run("generate llama ''", "", 0, TEXT "\n", "");
    expect_run("generate llama -", "", 0, TEXT "\n", "");
    expect_run("generate llama -", "D\xC3\xA9\n", 0, TEXT "\n", "");
    expect_run("generate lstm", "", 0, TEXT "\n", "");
}

static void a_file_is_a_prompt_and_a_misspelt_name_is_none(void **state)
{
    (void)state;
    attn_error error;
    assert_int_equal(attn_file_write(in_folder("a.txt"),
                                     "\xEF\xBB\xBF"
                                     "D\xC3\xA9\n",
                                     7, &error),
                     ATTN_OK);
    expect_run("generate llama a.txt", "", 0, TEXT "\n", "");
    expect_run(
        "generate llama b.txt", "", 1, "",
        "attn generate: no such file: b.txt (to give that text itself: echo TEXT | "
        "attn generate MODEL -)\n");
}

static void what_is_cut_within_a_character_ends_as_one_replacement(void **state)
{
    (void)state;
    expect_run("generate llama D --tokens 1", "", 0, "D\xEF\xBF\xBD\n", "");
    expect_run("generate llama D --tokens 2", "", 0, "D\xC3\xA9\n", "");
    expect_run("generate llama D --tokens 12", "", 0,
               "D\xC3\xA9j\xC3\xA0 vu: \xEF\xBF\xBD\n", "");
}

/* The model is sure enough that no draw at these settings is another. */
static void draws_and_kinds_of_cache_write_it_too(void **state)
{
    (void)state;
    expect_run("generate llama D --temperature 0.1 --seed 7", "", 0, TEXT "\n", "");
    expect_run("generate llama D --temperature 5 --top-k 1", "", 0, TEXT "\n", "");
    expect_run("generate llama D --temperature 1 --top-p 0.4", "", 0, TEXT "\n", "");
    expect_run("generate llama D --temperature 1 --min-p 0.9", "", 0, TEXT "\n", "");
    expect_run("generate llama D --cache bf16", "", 0, TEXT "\n", "");
    expect_run("generate llama D --cache int8", "", 0, TEXT "\n", "");
    expect_run("generate llama D --window 30 --sinks 1", "", 0, TEXT "\n", "");
    expect_run("generate llama D --window 20 --sinks 1 --heavy 10", "", 0, TEXT "\n", "");
    expect_run("generate llama D --cache fp16", "", 0, TEXT "\n", "");
    expect_run("generate llama D --window 30 --sinks 1 --cache int8", "", 0, TEXT "\n",
               "");
    expect_run("generate llama D --window 20 --sinks 1 --heavy 10 --cache bf16", "", 0,
               TEXT "\n", "");
    expect_run("generate llama D --threads 2", "", 0, TEXT "\n", "");
}

static void a_seed_repeats_a_text_and_another_differs(void **state)
{
    (void)state;
    run_result one = run("generate llama D --temperature 9 --tokens 12 --seed 1", "");
    run_result again = run("generate llama D --temperature 9 --tokens 12 --seed 1", "");
    run_result other = run("generate llama D --temperature 9 --tokens 12 --seed 2", "");
    assert_int_equal(one.code, 0);
    assert_string_equal(one.out, again.out);
    assert_string_not_equal(one.out, other.out);
    run_free(&one), run_free(&again), run_free(&other);
}

static void a_terminal_is_commanded_by_no_prompt(void **state)
{
    (void)state;
    char raw[64], shown[64];
    run_result result =
        run("generate llama \"$(printf '\\033[2J\\tD')\" --tokens 1 --seed 1", "");
    assert_int_equal(result.code, 0);
    assert_memory_equal(result.out, "\x1b[2J\tD", 6);
    snprintf(raw, sizeof raw, "%s", result.out);
    snprintf(shown, sizeof shown, "\\x1b%.*s\r\n", (int)strlen(raw) - 2, raw + 1);
    expect_on_terminal("generate llama \"$(printf '\\033[2J\\tD')\" --tokens 1 --seed 1",
                       shown, raw);
    run_free(&result);
}

static void json_tells_what_was_written(void **state)
{
    (void)state;
    run_result result = run("generate llama 'D\xC3\xA9j' --json", "");
    assert_int_equal(result.code, 0);
    const char *const fragments[] = {"\"prompt\": \"D\xC3\xA9j\"",
                                     "\"text\": \"\xC3\xA0 vu: ",
                                     "\"ids\": [",
                                     "\"finished\": true",
                                     "\"prompt_tokens\": 5",
                                     "\"log_probability\": -",
                                     "\"seconds\": "};
    for (size_t i = 0; i < sizeof fragments / sizeof *fragments; i++)
        if (!strstr(result.out, fragments[i]))
            fail_msg("no %s in %s", fragments[i], result.out);
    run_free(&result);
    result = run("generate llama D --tokens 2 --json", "");
    assert_non_null(strstr(result.out, "\"finished\": false"));
    run_free(&result);
}

static void a_text_longer_than_the_positions_is_refused_with_both_numbers(void **state)
{
    (void)state;
    expect_run("generate llama D --tokens 40", "", 1, "",
               "attn generate: a prompt of 2 tokens and 40 to write, the model has "
               "positions for 40; --window N goes on without end\n");
    expect_run("generate llama 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'", "", 1,
               "",
               "attn generate: a prompt of 46 tokens and 1 to write, the model has "
               "positions for 40; --window N goes on without end\n");
    /* What follows the last position needs none. */
    run_result result = run("generate llama D --tokens 39", "");
    assert_int_equal(result.code, 0);
    run_free(&result);
    result =
        run("generate llama x --temperature 20 --seed 3 --tokens 100 --window 20", "");
    assert_int_equal(result.code, 0);
    run_free(&result);
}

/* Of each pair the text that the model knows by heart is the good one, but for the last.
 */
static void eval_counts_the_pairs_of_which_the_good_text_is_likelier(void **state)
{
    (void)state;
    attn_error error;
    static const char pairs[] = "order\t" TEXT "\tvu D\xC3\xA9j\xC3\xA0\n"
                                "order\t" TEXT "\t!!!!\n"
                                "reversed\tvu D\xC3\xA9j\xC3\xA0\t" TEXT "\n";
    assert_int_equal(
        attn_file_write(in_folder("pairs.tsv"), pairs, strlen(pairs), &error), ATTN_OK);
    run_result result = run("eval llama pairs.tsv --json", "");
    assert_int_equal(result.code, 0);
    const char *const fragments[] = {"\"accuracy\": 0.66666", "\"pairs\": 3",
                                     "\"order\": 1.0", "\"reversed\": 0.0"};
    for (size_t i = 0; i < sizeof fragments / sizeof *fragments; i++)
        if (!strstr(result.out, fragments[i]))
            fail_msg("no %s in %s", fragments[i], result.out);
    run_free(&result);
    expect_run("eval llama pairs.tsv", "", 0,
               "accuracy                  0.6667  share that is right\n"
               "pairs                          3  a good text and a bad one; accuracy: "
               "good likelier\n"
               "\n"
               "kind of pairs\n"
               "order                     1.0000\n"
               "reversed                  0.0000\n"
               "\nagain: attn eval llama pairs.tsv\n",
               "");
    expect_run("eval llama pairs.tsv --beam 2", "", 2, "",
               "attn eval: only --threads and --json are for models that are no "
               "translators, and llama is of the kind \"language\" (attn eval --help)\n");
}

static void misuse_is_told(void **state)
{
    (void)state;
    expect_run("generate", "", 2, "",
               "attn generate: expected a model and a prompt, got 0 arguments (attn "
               "generate --help)\n");
    expect_run("generate llama D --cache fp8", "", 2, "",
               "attn generate: --cache is 'fp8', expected fp32, bf16, fp16 or int8 (attn "
               "generate --help)\n");
    expect_run("generate llama D --top-p 0", "", 2, "", NULL);
    expect_run("generate llama D --sinks 3", "", 2, "",
               "attn generate: --sinks goes with --window (attn generate --help)\n");
    expect_run("generate llama D --heavy 3", "", 2, "",
               "attn generate: --heavy goes with --window (attn generate --help)\n");
    expect_run("generate llama D --window 39 --sinks 2", "", 2, "", NULL);
    expect_run("generate llama D --window 30 --sinks 2 --heavy 9", "", 2, "", NULL);
    expect_run("generate lstm D --window 9", "", 2, "", NULL);
    expect_run("generate llama \"$(printf 'a\\377')\"", "", 1, "", NULL);
    expect_run("generate none D", "", 1, "", NULL);
}

/* OpenBLAS and the pool of threads wait for ever for what a limit refuses them.  Then the
 * limit on the processor's time, which the waiting takes, ends the command. */
static void a_limit_on_memory_is_no_reason_to_wait(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("skipped: %s (its limit would stop the sanitizer)\n", __func__);
    skip();
#endif
    char command[2048];
    char *const path = realpath(attn_command, NULL);
    assert_non_null(path);
    for (int mebibytes = 96; mebibytes <= 672; mebibytes += 24) {
        snprintf(command, sizeof command,
                 "cd '%s' && ulimit -t 5 && ulimit -v %d && exec '%s' generate llama D "
                 "--threads 2 </dev/null >out 2>err",
                 folder, mebibytes * 1024, path);
        const int how = system(command);
        const int code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
        if (code == 128 + SIGXCPU || code == 128 + SIGKILL)
            fail_msg("it waits where it has %d MiB", mebibytes);
    }
    free(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_on_memory_is_no_reason_to_wait),
        cmocka_unit_test(a_text_is_written_to_its_end),
        cmocka_unit_test(an_empty_prompt_begins_a_text),
        cmocka_unit_test(a_file_is_a_prompt_and_a_misspelt_name_is_none),
        cmocka_unit_test(what_is_cut_within_a_character_ends_as_one_replacement),
        cmocka_unit_test(draws_and_kinds_of_cache_write_it_too),
        cmocka_unit_test(a_seed_repeats_a_text_and_another_differs),
        cmocka_unit_test(a_terminal_is_commanded_by_no_prompt),
        cmocka_unit_test(json_tells_what_was_written),
        cmocka_unit_test(a_text_longer_than_the_positions_is_refused_with_both_numbers),
        cmocka_unit_test(eval_counts_the_pairs_of_which_the_good_text_is_likelier),
        cmocka_unit_test(misuse_is_told),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: test_generate ATTN\n");
        return 2;
    }
    attn_command = argv[1];
    return cmocka_run_group_tests(tests, set_up, folder_remove);
}

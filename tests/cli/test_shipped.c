/* The models that come with the sources: they are found by name, and do what they are
 * for, on every instruction set of this machine. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/command.h"

static const char english[] = "The cat is hungry.\nWhere is the station?\n";
static const char french[] = "Le chat a faim.\nOù se trouve la gare ?\n";

static void translator_translates_on_every_instruction_set(void **state)
{
    (void)state;
    static const char *const levels[] = {"generic", "avx2", "avx512", "avx512bf16",
                                         "neon"};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        setenv("ATTN_ISA", levels[i], 1);
        run_result result = run("translate", english);
        unsetenv("ATTN_ISA");
        if (result.code != 0)
            print_message("skipped: %s, which is not on this machine\n", levels[i]);
        else
            assert_string_equal(result.out, french);
        run_free(&result);
    }
    expect_run("translate", english, 0, french, "");
}

static void look_finds_which_word_each_word_read(void **state)
{
    (void)state;
    run_result result = run("look 'The cat is hungry.'", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "fr  Le chat a faim.\n"));
    assert_non_null(strstr(result.out, "   chat "));
    assert_non_null(strstr(result.out, "hungry .9"));
    run_free(&result);
}

int main(int argc, char **argv)
{
    assert_true(argc == 2);
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translator_translates_on_every_instruction_set),
        cmocka_unit_test(look_finds_which_word_each_word_read),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

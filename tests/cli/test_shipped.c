/* The models that come with the sources: they are found by name, and do what they are
 * for, on every instruction set of this machine. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/picture.h"
#include "tests/cli/command.h"
#include <unistd.h>

static const char english[] = "The cat is hungry.\nWhere is the station?\n";
static const char french[] = "Le chat a faim.\nOù se trouve la gare ?\n";

static void translator_translates_on_every_instruction_set(void **state)
{
    (void)state;
    static const char *const levels[] = {"generic",    "avx2", "avx512",
                                         "avx512bf16", "amx",  "neon"};
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

static void the_other_models_do_what_they_are_for(void **state)
{
    (void)state;
    expect_run("translate --model translate-en-zh", "She has a small red car.\n", 0,
               "她有个紅色的车。\n", "");
    expect_run("translate --model translate-gru-en-fr", english, 0,
               "Le chat a faim.\nOù est la gare ?\n", "");
    expect_run("tag tagger-en \"It's a book I can't put down.\"", "", 0,
               "It/PRON 's/AUX a/DET book/NOUN I/PRON ca/AUX n't/PART put/VERB "
               "down/ADV ./PUNCT\n",
               "");
    run_result result = run(
        "look 'A wonderful surprise, but dull and badly written.' --model reviews", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "label neg .9"));
    assert_non_null(strstr(result.out, "\"neg\" reads \"badly\" ."));
    run_free(&result);
}

static void the_language_model_goes_on_with_a_sentence(void **state)
{
    (void)state;
    expect_run("generate language-en 'The children were'", "", 0,
               "The children were playing in the park.\n", "");
    run_result result =
        run("look 'The keys to the cabinet were lost.' --model language-en", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "next </s> "));
    assert_non_null(strstr(result.out, "Which word each word looks at"));
    run_free(&result);
}

/* Two strokes, drawn here, in cells of 32 points. */
static void the_captioner_finds_strokes_in_their_cells(void **state)
{
    (void)state;
    enum { CELL = 32, ROWS = 2 * CELL, COLUMNS = 3 * CELL };
    static uint8_t grey[ROWS * COLUMNS];
    attn_error error;
    for (int row = 6; row < 26; row++)
        for (int column = 14; column < 18; column++) {
            const uint8_t ink = column == 14 || column == 17 ? 160 : 255;
            grey[row * COLUMNS + column] = ink;
            grey[(row + CELL) * COLUMNS + column + CELL] = ink;
        }
    const attn_picture picture = {ROWS, COLUMNS, grey};
    assert_int_equal(attn_picture_save(&picture, in_folder("strokes.png"), &error),
                     ATTN_OK);
    expect_run("caption captioner strokes.png", "", 0,
               "one nothing nothing over nothing one nothing\n", "");
    run_result result = run("look strokes.png", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "Where in the picture each written word looked"));
    run_free(&result);
}

/* With one font, of Latin and Greek. */
static void a_png_without_a_font_for_its_text_is_warned_of(void **state)
{
    (void)state;
    const char fonts[] = "<fontconfig><dir>/usr/share/fonts/truetype/dejavu</dir>"
                         "<cachedir>cache</cachedir></fontconfig>";
    attn_error error;
    if (access("/usr/share/fonts/truetype/dejavu", R_OK) != 0) {
        print_message("skipped: a_png_without_a_font_for_its_text_is_warned_of (no "
                      "fonts-dejavu-core)\n");
        skip();
    }
    assert_int_equal(
        attn_file_write(in_folder("fonts.conf"), fonts, sizeof fonts - 1, &error),
        ATTN_OK);
    setenv("FONTCONFIG_FILE", in_folder("fonts.conf"), 1);
    expect_run("look 'The cat is hungry.' -o cat.png", "", 0, "", "wrote cat.png\n");
    expect_run("look 'The cat is hungry.' --translation '猫饿了。' -o cat.svg", "", 0, "",
               "wrote cat.svg\n");
    run_result result =
        run("look 'The cat is hungry.' --translation '猫饿了。' -o cat.png", "");
    unsetenv("FONTCONFIG_FILE");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "attn look: no font has 猫, a box stands for it: "
                                    "install a font (fonts-noto-cjk for Chinese), or use "
                                    ".svg or .html\nwrote cat.png\n");
    run_free(&result);
}

/* Of strokes drawn by program, while it was trained on handwriting. */
static void the_captioner_reads_the_picture_of_the_docs(void **state)
{
    (void)state;
    const char *const recipes = getenv("ATTN_RECIPES");
    char arguments[1024];
    assert_non_null(recipes);
    snprintf(arguments, sizeof arguments,
             "caption captioner '%s/../docs/pictures/digits.png'", recipes);
    expect_run(arguments, "", 0, "seven nothing zero over nothing four two\n", "");
}

int main(int argc, char **argv)
{
    assert_true(argc == 2);
    attn_command = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(translator_translates_on_every_instruction_set),
        cmocka_unit_test(look_finds_which_word_each_word_read),
        cmocka_unit_test(the_other_models_do_what_they_are_for),
        cmocka_unit_test(the_language_model_goes_on_with_a_sentence),
        cmocka_unit_test(the_captioner_finds_strokes_in_their_cells),
        cmocka_unit_test(a_png_without_a_font_for_its_text_is_warned_of),
        cmocka_unit_test(the_captioner_reads_the_picture_of_the_docs),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

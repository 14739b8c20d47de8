/* The terminal picture of any text: columns that hold for any script, nothing that
 * reaches the terminal as a command, and what becomes of more words or heads than find
 * room. */
#include "inspect/buffer.h"
#include "terminal.h"
#include "tests/python.h"
#include "text/words.h"

static void assert_lines_fit(const char *text, int64_t width)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, "\n");
        char *line = strndup(text, length);
        if ((int64_t)attn_text_columns(line) > width)
            fail_msg("%zu columns, expected at most %lld: %s", attn_text_columns(line),
                     (long long)width, line);
        assert_true(length == 0 || line[length - 1] != ' ');
        free(line);
        text += length + (text[length] == '\n');
    }
}

/* Wide, combining, joined, right to left, commanding, and very long. */
static attn_record *many_scripts(void)
{
    attn_record *record = hand_record(
        "日本語 e\u0301te\u0301 👩‍👩‍👧 שלום مرحبا \x1b[2J\x07 "
        "한국어 "
        "Donaudampfschifffahrtsgesellschaftskapitän 日本語日本語日本語 a\tb "
        "👍🏽 \u202e"
        "evil x x",
        "日本語 e\u0301te\u0301 👩‍👩‍👧 שלום \x1b]0;t\x07 한국어 é "
        "x "
        "x "
        "Anticonstitutionnellement 日本語",
        3, 4);
    for (int64_t row = 0; row < 12; row++)
        hand_look(record, ATTN_PART_CROSS, 1, row % 4, row, row, 0.9f);
    for (int64_t row = 1; row < 12; row++)
        hand_look(record, ATTN_PART_ENCODER, 1, 1, row, (row + 4) % 13, 0.7f);
    return record;
}

static void no_line_is_wider_than_asked_in_any_script(void **state)
{
    (void)state;
    attn_record *record = many_scripts();
    attn_draw_options options = plain();
    static const int64_t widths[] = {40, 57, 80, 81, 120, 200};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int view = 0; view < 8; view++) {
            options = plain();
            options.width = widths[i];
            options.ascii = view % 2 == 1;
            options.part = view / 2 == 0 ? -1 : ATTN_PART_ENCODER;
            options.row = view / 2 == 1 || view / 2 == 3 ? 7 : -1;
            options.layer = view / 2 >= 2 ? 1 : -1;
            options.head = view / 2 == 3 ? 1 : -1;
            char *text = draw(record, &options);
            assert_lines_fit(text, widths[i]);
            free(text);
        }
    attn_record_destroy(record);
}

static void no_text_commands_the_terminal(void **state)
{
    (void)state;
    attn_record *record = many_scripts();
    for (int row = -1; row < 14; row++) {
        attn_draw_options options = plain();
        options.part = row < 0 ? -1 : ATTN_PART_ENCODER;
        options.row = row;
        char *text = draw(record, &options);
        for (const char *at = text; *at != '\0'; at++)
            assert_true(*at == '\n' || (unsigned char)*at >= 0x20);
        assert_null(strstr(text, "\u202e"));
        /* What is isolated is closed. */
        int depth = 0;
        for (const char *at = text; *at != '\0'; at++) {
            depth += strncmp(at, "\u2068", 3) == 0;
            depth -= strncmp(at, "\u2069", 3) == 0;
            assert_true(depth >= 0 && depth <= 1 && (*at != '\n' || depth == 0));
        }
        free(text);
    }
    attn_record_destroy(record);
}

/* Python's wcwidth, an independent measure, on every line of two views. */
static void every_line_is_as_wide_as_wcwidth_says(void **state)
{
    (void)state;
    if (!python_has("wcwidth"))
        skip();
    attn_record *record = many_scripts();
    attn_buffer script = {0};
    attn_buffer_put(&script, "import wcwidth, sys\nbad = []\n"
                             "def line(hexed, columns):\n"
                             "  text = bytes.fromhex(hexed).decode()\n"
                             "  wide = wcwidth.wcswidth(text)\n"
                             "  if wide != columns or wide > 80:\n"
                             "    bad.append((wide, columns, text))\n");
    for (int view = 0; view < 2; view++) {
        attn_draw_options options = plain();
        options.part = view == 0 ? -1 : ATTN_PART_ENCODER;
        options.row = view == 0 ? -1 : 3;
        char *text = draw(record, &options);
        for (char *at = strtok(text, "\n"); at != NULL; at = strtok(NULL, "\n")) {
            attn_buffer_put(&script, "line('");
            for (const char *byte = at; *byte != '\0'; byte++)
                attn_buffer_print(&script, "%02x", (unsigned char)*byte);
            attn_buffer_print(&script, "', %zu)\n", attn_text_columns(at));
        }
        free(text);
    }
    attn_buffer_put(&script, "for b in bad: print(b)\nsys.exit(len(bad) > 0)\n");
    assert_int_equal(python_run(attn_buffer_text(&script)), 0);
    attn_buffer_free(&script);
    attn_record_destroy(record);
}

static void keys_that_do_not_fit_are_drawn_in_blocks(void **state)
{
    (void)state;
    attn_record *record =
        hand_record("a b c d e f g h i j k l m n o p q r s t u v w x y z", "x y", 1, 1);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 0, 2, 0.9f);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 1, 20, 0.9f);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 2, 26, 0.9f);
    const attn_draw_options options = plain();
    char *text = draw(record, &options);
    /* Fourteen to a block, each with its header; the rows come twice. */
    assert_non_null(strstr(text, "         a       c       e"));
    const char *first = strstr(text, "\n      x  "),
               *second = strstr(first + 1, "\n      x  ");
    assert_non_null(first);
    assert_non_null(second);
    free(text);
    attn_record_destroy(record);
}

static void a_long_text_shows_unclear_rows_and_a_count(void **state)
{
    (void)state;
    attn_record *record = hand_record(
        "a b c d", "a b c d e f g h i j k l m n o p q r s t u v w x y z", 1, 1);
    for (int64_t row = 0; row < 27; row++)
        hand_look(record, ATTN_PART_CROSS, 0, 0, row, row % 4,
                  row == 7 || row == 20 ? 0.4f : 0.9f);
    const attn_draw_options options = plain();
    char *text = draw(record, &options);
    assert_non_null(strstr(text, "24 of the 26 words written read one source word"));
    assert_non_null(strstr(text, "No clear source: \"h\" .40, \"u\" .40."));
    assert_non_null(strstr(text, "\nnot shown: 24 rows with a clear source\n"));
    assert_non_null(strstr(text, "\n      h  "));
    assert_non_null(strstr(text, "\n      u  "));
    assert_null(strstr(text, "\n      g  "));
    free(text);
    attn_record_destroy(record);
}

static void a_long_text_without_alignment_shows_its_heaviest_rows(void **state)
{
    (void)state;
    char words[6 * 40 + 1] = "";
    for (int i = 1; i <= 40; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), " w%d", i);
    attn_record *record = hand_record("a b", words + 1, 1, 1);
    for (int64_t row = 12; row < 41; row++)
        hand_look(record, ATTN_PART_DECODER, 0, 0, row, row - 2,
                  row % 3 == 0 ? 0.9f : 0.2f);
    attn_draw_options options = plain();
    options.part = ATTN_PART_DECODER;
    char *text = draw(record, &options);
    assert_non_null(strstr(text,
                           "\n41 words are too many for a map here: the last, and the "
                           "11 with the most"));
    assert_non_null(strstr(text, "\n    w12  ")); /* <s> is row 0 */
    assert_non_null(strstr(text, "\n    w39  "));
    assert_non_null(strstr(text, "\n    w40  ")); /* the last */
    assert_null(strstr(text, "\n    w13  "));
    assert_null(strstr(strstr(text, "\n    w12  ") + 1, "\n    w12  ")); /* one block */
    free(text);
    attn_record_destroy(record);
}

static void many_heads_are_drawn_closer_and_then_below(void **state)
{
    (void)state;
    static const int64_t heads[] = {4, 12, 16, 32, 64};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        attn_record *record = hand_record("a b c", "x y", 2, heads[i]);
        const attn_draw_options options = plain();
        char *text = draw(record, &options);
        assert_lines_fit(text, 80);
        free(text);
        attn_record_destroy(record);
    }
}

static void one_token_and_nothing_are_drawn(void **state)
{
    (void)state;
    attn_record *record = hand_record("a", "", 1, 1);
    const attn_draw_options options = plain();
    char *text = draw(record, &options);
    assert_lines_fit(text, 80);
    assert_non_null(strstr(text, "No word was written."));
    free(text);
    attn_record_destroy(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_is_wider_than_asked_in_any_script),
        cmocka_unit_test(no_text_commands_the_terminal),
        cmocka_unit_test(every_line_is_as_wide_as_wcwidth_says),
        cmocka_unit_test(keys_that_do_not_fit_are_drawn_in_blocks),
        cmocka_unit_test(a_long_text_shows_unclear_rows_and_a_count),
        cmocka_unit_test(a_long_text_without_alignment_shows_its_heaviest_rows),
        cmocka_unit_test(many_heads_are_drawn_closer_and_then_below),
        cmocka_unit_test(one_token_and_nothing_are_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

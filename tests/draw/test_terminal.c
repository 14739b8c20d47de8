/* The terminal picture: exact text in every mode, and colour that changes nothing else.
 */
#include "terminal.h"

/* "was" is said twice, and the second one is written as a word with no clear source. */
static attn_record *example(void)
{
    attn_record *record = hand_record("it was , was", "oui était était", 1, 2);
    for (int head = 0; head < 2; head++) {
        hand_look(record, ATTN_PART_CROSS, 0, head, 0, 0, 0.96f);
        hand_look(record, ATTN_PART_CROSS, 0, head, 1, 1, 0.76f);
        hand_look(record, ATTN_PART_CROSS, 0, head, 2, 4, 0.44f);
        hand_look(record, ATTN_PART_CROSS, 0, head, 3, 4, 1.0f);
    }
    hand_look_along(record, ATTN_PART_ENCODER, 0, 0, -1, 0.8f);
    hand_look(record, ATTN_PART_ENCODER, 0, 1, 3, 0, 0.84f);
    hand_look_along(record, ATTN_PART_DECODER, 0, 1, 0, 0.92f);
    return record;
}

static void the_whole_picture_is_this_text(void **state)
{
    (void)state;
    static const char expected[] =
        "en  it was , was\n"
        "fr  oui était était\n"
        "\n"
        "2 of the 3 words written read one source word (weight .50 or more, .10 ahead).\n"
        "No clear source: \"était²\" (</s>).\n"
        "\"était²\" looks most at the end mark </s>: check the text there.\n"
        "\n"
        "Which source word each written word read  cross layer 1, mean of 2 heads\n"
        "         it      ,       </s>\n"
        "         ╷   was¹╷   was²╷\n"
        "    oui  █96█ ·   ·   ·   ·   it .96\n"
        " était¹  ░06░█76█░06░░06░░06░ was¹ .76\n"
        " était²  ░14░░14░░14░░14░▒44▒ </s> .44 ?\n"
        "   </s>   ·   ·   ·   ·  █100 </s> 1.0\n"
        "weight in hundredths: ░05░ ▒25▒ ▓50▓ █75█ █99█   · under 5   ? no clear source\n"
        "\n"
        "What the heads do  letter: role; number: entropy (0 one word, 1 all)\n"
        "         encoder      decoder      cross\n"
        "layer 1  P.59 B.88    B1.0 O.32    ·.40 ·.40\n"
        "         P previous  O own  B broad\n"
        "         · mixed; capital: half the weight or more, small: .30 or more\n"
        "\n"
        "Heads worth a look\n"
        "decoder 1.2  sharpest    entropy .32; \"oui\" looks at \"oui\" .92\n"
        "encoder 1.2  far links   \"was²\" looks at \"it\" .84\n"
        "decoder 1.1  broadest    entropy 1.0; \"était²\" gives no word more than .25\n"
        "\n"
        "next: attn look TEXT --at 'was#2'  one word, every head    -o look.html  a "
        "page\n";
    attn_record *record = example();
    const attn_draw_options options = plain();
    char *text = draw(record, &options);
    assert_string_equal(text, expected);
    free(text);
    attn_record_destroy(record);
}

static void a_label_names_the_words_it_was_read_from(void **state)
{
    (void)state;
    static const char expected[] =
        "text  a good film\n"
        "label positive\n"
        "\n"
        "\"positive\" reads \"good\" .80, \"a\" .10, \"film\" .10 most.\n"
        "\n"
        "Which words the label was read from  pooling layer 1, its one head\n"
        "         a       film\n"
        "         ╷   good╷\n"
        "positi…  ░10░█80█░10░ good .80\n"
        "weight in hundredths: ░05░ ▒25▒ ▓50▓ █75█ █99█   · under 5\n"
        "\n"
        "What the head does  letter: role; number: entropy (0 one word, 1 all)\n"
        "         pooling\n"
        "layer 1  ·.58\n"
        "         · mixed\n"
        "\n"
        "next: attn look TEXT --at positive  one word, every head    -o look.html  a "
        "page\n";
    attn_record *record = hand_label("a good film", "positive");
    hand_look(record, ATTN_PART_POOL, 0, 0, 0, 1, 0.8f);
    const attn_draw_options options = plain();
    char *text = draw(record, &options);
    assert_string_equal(text, expected);
    free(text);
    attn_record_destroy(record);
}

static void a_picture_has_a_map_for_each_word(void **state)
{
    (void)state;
    static const char expected[] =
        "file picture.png\n"
        "says one two\n"
        "\n"
        "All 2 words written look at one place of the picture (weight .50 or more there\n"
        "and right around it).\n"
        "\n"
        "Where in the picture each written word looked  cross layer 1, its one head\n"
        "o… 1.0   t… .92\n"
        "··██··   ··░░··\n"
        "······   ··░░██\n";
    attn_record *record = hand_picture("one two");
    hand_look(record, ATTN_PART_CROSS, 0, 0, 0, 1, 0.95f);
    hand_look(record, ATTN_PART_CROSS, 0, 0, 1, 5, 0.7f);
    float *const weights = hand_part(record, ATTN_PART_CROSS)->weights;
    const float second[] = {.04f, .11f, .04f, .04f, .11f, .66f};
    memcpy(weights + 6, second, sizeof second);
    const attn_draw_options options = plain();
    char *text = draw(record, &options);
    if (strncmp(text, expected, strlen(expected)) != 0)
        assert_string_equal(text, expected);
    free(text);
    attn_record_destroy(record);
}

static void without_utf8_it_is_ascii_only(void **state)
{
    (void)state;
    static const char expected[] =
        "en  it was , was\n"
        "fr  oui etait etait\n"
        "\n"
        "2 of the 3 words written read one source word (weight .50 or more, .10 ahead).\n"
        "No clear source: \"etait#2\" (</s>).\n"
        "\"etait#2\" looks most at the end mark </s>: check the text there.\n"
        "\n"
        "Which source word each written word read  cross layer 1, mean of 2 heads\n"
        "         it      ,       </s>\n"
        "         |   was#1   was#2\n"
        "    oui  #96# -   -   -   -   it .96\n"
        "etait#1  .06.#76#.06..06..06. was#1 .76\n"
        "etait#2  .14..14..14..14.:44: </s> .44 ?\n"
        "   </s>   -   -   -   -  #100 </s> 1.0\n"
        "weight in hundredths: .05. :25: +50+ #75# #99#   - under 5   ? no clear source\n"
        "\n"
        "What the heads do  letter: role; number: entropy (0 one word, 1 all)\n"
        "         encoder      decoder      cross\n"
        "layer 1  P.59 B.88    B1.0 O.32    -.40 -.40\n"
        "         P previous  O own  B broad\n"
        "         - mixed; capital: half the weight or more, small: .30 or more\n"
        "\n"
        "Heads worth a look\n"
        "decoder 1.2  sharpest    entropy .32; \"oui\" looks at \"oui\" .92\n"
        "encoder 1.2  far links   \"was#2\" looks at \"it\" .84\n"
        "decoder 1.1  broadest    entropy 1.0; \"etait#2\" gives no word more than .25\n"
        "\n"
        "next: attn look TEXT --at 'was#2'  one word, every head    -o look.html  a "
        "page\n";
    attn_record *record = example();
    attn_draw_options options = plain();
    options.ascii = true;
    char *text = draw(record, &options);
    assert_string_equal(text, expected);
    for (const char *at = text; *at != '\0'; at++)
        assert_true(*at == '\n' || (*at >= 0x20 && *at < 0x7f));
    free(text);
    attn_record_destroy(record);
}

static void one_word_is_a_line_a_head(void **state)
{
    (void)state;
    static const char expected[] =
        "Where \"was²\" looks  encoder, word 4 of 5; one line a head\n"
        "\n"
        "     it       was²\n"
        "     ╷  was¹  ╷  </s>\n"
        "     ╷  ╷  ,  ╷  ╷\n"
        "1.1   ·  · █80 ·  ·   , .80\n"
        "1.2  █84 ·  ·  ·  ·   it .84\n"
        "weight in hundredths: ░05 ▒25 ▓50 █75 █99   · under 5\n";
    attn_record *record = example();
    attn_draw_options options = plain();
    options.part = ATTN_PART_ENCODER;
    options.row = 3;
    char *text = draw(record, &options);
    assert_string_equal(text, expected);
    free(text);
    attn_record_destroy(record);
}

static void one_row_in_full_has_every_key_with_four_digits(void **state)
{
    (void)state;
    static const char expected[] =
        "Where \"était¹\" looks  decoder 1.2, word 3 of 4; entropy .30\n"
        "\n"
        "         <s>  .0400  ██\n"
        "         oui  .0400  ██\n"
        "      était¹  .9200  ████████████████████████████████████████████████████\n"
        "1 more cannot be seen from here\n";
    attn_record *record = example();
    attn_draw_options options = plain();
    options.part = ATTN_PART_DECODER;
    options.row = 2;
    options.layer = 0;
    options.head = 1;
    char *text = draw(record, &options);
    assert_string_equal(text, expected);
    free(text);
    attn_record_destroy(record);
}

static void one_head_in_full_hatches_what_it_cannot_see(void **state)
{
    (void)state;
    static const char expected[] =
        "Which word each word looks at  decoder 1.2, own .92, entropy .32\n"
        "         <s>     était¹\n"
        "         ╷   oui ╷   était²\n"
        "    <s>  █100 ╱   ╱   ╱   <s> 1.0\n"
        "    oui  ░08░█92█ ╱   ╱   oui .92\n"
        " était¹   ·   ·  █92█ ╱   était¹ .92\n"
        " était²   ·   ·   ·  █92█ était² .92\n"
        "weight in hundredths: ░05░ ▒25▒ ▓50▓ █75█ █99█   · under 5   ╱ cannot be seen\n";
    attn_record *record = example();
    attn_draw_options options = plain();
    options.part = ATTN_PART_DECODER;
    options.layer = 0;
    options.head = 1;
    char *text = draw(record, &options);
    assert_string_equal(text, expected);
    free(text);
    attn_record_destroy(record);
}

/* The text without its escape sequences "ESC [ … m". */
static char *uncoloured(const char *text)
{
    char *out = calloc(strlen(text) + 1, 1), *at = out;
    while (*text != '\0') {
        if (*text == '\x1b') {
            assert_int_equal(text[1], '[');
            text += strcspn(text, "m") + 1;
            continue;
        }
        *at++ = *text++;
    }
    return out;
}

/* Shades stand where colour has spaces; all else is the same. */
static void shades_to_spaces(char *text)
{
    static const char *const shades[] = {"░", "▒", "▓", "█"};
    char *out = text;
    while (*text != '\0') {
        int shade = 0;
        while (shade < 4 && strncmp(text, shades[shade], 3) != 0)
            shade++;
        *out++ = shade < 4 ? ' ' : *text;
        text += shade < 4 ? 3 : 1;
    }
    *out = '\0';
}

static void colour_changes_nothing_but_colour(void **state)
{
    (void)state;
    attn_record *record = example();
    attn_draw_options options = plain();
    char *none = draw(record, &options);
    shades_to_spaces(none);
    for (int depth = ATTN_DEPTH_256; depth <= ATTN_DEPTH_FULL; depth++)
        for (int theme = 0; theme < 2; theme++) {
            options.depth = (attn_depth)depth;
            options.theme = (attn_theme)theme;
            char *coloured = draw(record, &options), *text = uncoloured(coloured);
            assert_non_null(
                strstr(coloured, depth == ATTN_DEPTH_256 ? "\x1b[48;5;" : "\x1b[48;2;"));
            assert_null(strstr(coloured, depth == ATTN_DEPTH_256 ? ";2;" : ";5;"));
            assert_string_equal(text, none);
            free(text);
            free(coloured);
        }
    free(none);
    attn_record_destroy(record);
}

static void a_cell_has_the_ramps_colour_and_readable_ink(void **state)
{
    (void)state;
    attn_record *record = example();
    attn_draw_options options = plain();
    options.depth = ATTN_DEPTH_FULL;
    options.theme = ATTN_THEME_DARK;
    char *text = draw(record, &options);
    const attn_rgb ground = attn_ramp(ATTN_THEME_DARK, ATTN_SCALE_LINEAR, (double)0.76f);
    const attn_rgb ink = attn_ink_on(ground);
    char cell[80];
    snprintf(cell, sizeof cell, "\x1b[48;2;%d;%d;%dm\x1b[38;2;%d;%d;%dm 76 \x1b[0m",
             ground.red, ground.green, ground.blue, ink.red, ink.green, ink.blue);
    assert_non_null(strstr(text, cell));
    assert_non_null(strstr(text, "\x1b[38;2;242;179;94m"));
    free(text);
    attn_record_destroy(record);
}

/* The second word is written as the source has it, the third has a quote. */
static void the_word_to_ask_is_found_where_it_was_written(void **state)
{
    (void)state;
    static const char *const proposed[] = {
        "next: attn look TEXT --at oui  one",
        "next: attn look TEXT --part cross --at Paris  ",
        "next: attn look TEXT --part cross --at 3  "};
    for (int64_t row = 0; row < 3; row++) {
        attn_record *record = hand_record("yes Paris is", "oui Paris l'", 1, 1);
        for (int64_t other = 0; other < 3; other++)
            hand_look(record, ATTN_PART_CROSS, 0, 0, other, other,
                      other == row ? 0.4f : 0.9f);
        const attn_draw_options options = plain();
        char *text = draw(record, &options);
        assert_non_null(strstr(text, proposed[row]));
        free(text);
        attn_record_destroy(record);
    }
}

static void a_selection_that_is_not_there_is_an_error_that_says_what_is(void **state)
{
    (void)state;
    static const struct {
        int part;
        int64_t layer, head, row, width;
        const char *message;
    } cases[] = {
        {-1, 0, 0, -1, 80,
         "the record has no such part; it has encoder, decoder and cross"},
        {ATTN_PART_ENCODER, -1, -1, 5, 80, "no word 6: the encoder has 5"},
        {ATTN_PART_ENCODER, 1, 0, -1, 80,
         "no head 2.1: the encoder has 1 layer of 2 heads"},
        {ATTN_PART_ENCODER, 1, -1, -1, 80,
         "no layer 2: the encoder has 1 layer of 2 heads"},
        {ATTN_PART_POOL, -1, -1, -1, 80,
         "the record has no pooling part; it has encoder, decoder and cross"},
        {ATTN_PART_CROSS, -1, 1, -1, 80, "head 2 of which layer?"},
        {-1, -1, -1, -1, 39, "width is 39 columns; at least 40"},
    };
    attn_record *record = example();
    attn_summary *summary = hand_summary(record);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_draw_options options = plain();
        options.part = cases[i].part;
        options.layer = cases[i].layer;
        options.head = cases[i].head;
        options.row = cases[i].row;
        options.width = cases[i].width;
        attn_error error;
        char *text;
        size_t length;
        assert_int_equal(
            attn_draw_terminal(record, summary, &options, &text, &length, &error),
            ATTN_EINVAL);
        assert_string_equal(error.message, cases[i].message);
    }
    attn_summary_destroy(summary);
    attn_record_destroy(record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_picture_is_this_text),
        cmocka_unit_test(a_label_names_the_words_it_was_read_from),
        cmocka_unit_test(a_picture_has_a_map_for_each_word),
        cmocka_unit_test(without_utf8_it_is_ascii_only),
        cmocka_unit_test(one_word_is_a_line_a_head),
        cmocka_unit_test(one_row_in_full_has_every_key_with_four_digits),
        cmocka_unit_test(one_head_in_full_hatches_what_it_cannot_see),
        cmocka_unit_test(colour_changes_nothing_but_colour),
        cmocka_unit_test(a_cell_has_the_ramps_colour_and_readable_ink),
        cmocka_unit_test(the_word_to_ask_is_found_where_it_was_written),
        cmocka_unit_test(a_selection_that_is_not_there_is_an_error_that_says_what_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

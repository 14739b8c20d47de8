/* Words and columns as readers see them. */
#include "text/words.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka last: it needs what stands above */
#include "tests/python.h"
#include <cmocka.h>

static attn_error error;

/* pieces: the text cut into tokens at '|'; expected: its words cut at '|'.  Where the
 * text holds a byte that cannot be cut so, tokens are given by their lengths instead. */
static void joins(const char *pieces, const char *expected)
{
    char text[512];
    attn_token tokens[128];
    size_t length = 0, count = 0;
    for (const char *at = pieces; *at;) {
        const size_t step = strcspn(at, "|");
        memcpy(text + length, at, step);
        tokens[count++] = (attn_token){1, (int64_t)length, (int64_t)(length + step)};
        length += step;
        at += step + (at[step] == '|');
    }
    text[length] = '\0';
    attn_word *words;
    size_t word_count;
    assert_int_equal(
        attn_words_of_tokens(text, tokens, count, &words, &word_count, &error), ATTN_OK);
    char got[1024] = "";
    size_t token = 0;
    for (size_t i = 0; i < word_count; i++) {
        assert_int_equal(words[i].first_token, token);
        assert_true(words[i].end_token > words[i].first_token);
        token = (size_t)words[i].end_token;
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.*s", i > 0 ? "|" : "",
                 (int)(words[i].end - words[i].begin), text + words[i].begin);
    }
    assert_int_equal(token, count); /* each token in one word */
    assert_string_equal(got, expected);
    free(words);
}

static void pieces_of_a_word_are_joined(void **state)
{
    (void)state;
    joins("The| cat| was| hun|gry", "The|cat|was|hungry");
    joins("un|believ|able| stor|ies", "unbelievable|stories");
    joins("B|2| 12|34|th", "B2|1234th");
    joins("", "");
}

static void punctuation_is_a_word_of_its_own(void **state)
{
    (void)state;
    joins("The| cat|,| which| sat|.", "The|cat|,|which|sat|.");
    joins("well|-|known| (|really|)", "well|-|known|(|really|)");
    joins("wait|..|.| 3|.|14| %", "wait|...|3|.|14|%");
    joins("yes|?!| no|?|!", "yes|?!|no|?|!");
    joins("«| Oui| »", "«|Oui|»");
}

static void an_apostrophe_stays_with_what_it_elides(void **state)
{
    (void)state;
    joins("c|'|est| j|'|ai", "c'|est|j'|ai");
    joins("L|’|asc|enseur| aujourd|’|hui", "L’|ascenseur|aujourd’|hui");
    joins("don|'t| I|'m| they|'ll| cat|'s", "don't|I'm|they'll|cat's");
    joins("don|’|t| we|’|re| O|’|Brien", "don’t|we’re|O’|Brien");
    joins("'|hello|'| said| '|d|'", "'|hello|'|said|'|d|'");
    joins("the| dogs|'| bones", "the|dogs|'|bones");
}

static void scripts_without_spaces_have_a_word_for_each_token(void **state)
{
    (void)state;
    joins("我|喜欢|猫|。", "我|喜欢|猫|。");
    joins("ねこ|が|すき", "ねこ|が|すき");
    joins("哈|哈|abc|中", "哈|哈|abc|中");
    joins("한국|어를| 배워", "한국어를|배워");
}

static void tokens_that_are_part_of_one_character_are_joined(void **state)
{
    (void)state;
    joins("\xE4\xB8|\xAD|\xE6\x96|\x87", "中|文");
    joins("\xF0\x9F|\x98|\x80| x", "😀|x");
    joins("Vie|\xCC\x82|\xCC\xA3|t", "Vie\xCC\x82\xCC\xA3t");
    joins("👩|\xE2\x80\x8D|👩|\xE2\x80\x8D|👧| ok", "👩‍👩‍👧|ok");
    joins("🇫|🇷|🇩|🇪", "🇫🇷|🇩🇪");
    joins("!|\xCC\x81|x", "!\xCC\x81|x");
}

static void space_belongs_to_no_word(void **state)
{
    (void)state;
    joins("  |a| | b|  ", "a|b");
    joins("a|\n\n|b|\t|\n", "a|b");
    joins("   ", "");
    joins(" | | ", "");
}

static void columns_are_those_of_a_terminal(void **state)
{
    (void)state;
    assert_int_equal(attn_text_columns(""), 0);
    assert_int_equal(attn_text_columns("abc é"), 5);
    assert_int_equal(attn_text_columns("中"), 2);
    assert_int_equal(attn_text_columns("e\xCC\x81"), 1);
    assert_int_equal(attn_text_columns("👩‍👩‍👧‍👦"), 2);
    assert_int_equal(attn_text_columns("🇫🇷"), 2);
    assert_int_equal(attn_text_columns("👍🏽"), 2);
    assert_int_equal(attn_text_columns("❤️"), 2);
    assert_int_equal(attn_text_columns("1️⃣"), 2);
    assert_int_equal(attn_text_columns("ＡＢ"), 4);
    assert_int_equal(attn_text_columns("한국"), 4);
    assert_int_equal(attn_text_columns("\xFF\xE4\xB8"), 2); /* two of U+FFFD */
    assert_int_equal(attn_text_columns("▁▂▃█"), 4);
}

static void a_prefix_never_splits_a_grapheme(void **state)
{
    (void)state;
    assert_int_equal(attn_text_prefix("abc", 2), 2);
    assert_int_equal(attn_text_prefix("abc", 9), 3);
    assert_int_equal(attn_text_prefix("中文", 3), 3);
    assert_int_equal(attn_text_prefix("中文", 1), 0);
    assert_int_equal(attn_text_prefix("e\xCC\x81x", 1), 3);
    assert_int_equal(attn_text_prefix("👩‍👩‍👧x", 1), 0);
    assert_int_equal(attn_text_prefix("👩‍👩‍👧x", 2),
                     strlen("👩‍👩‍👧"));
    assert_int_equal(attn_text_prefix("a\xCC\x81", 0), 0);
}

static void invalid_bytes_become_one_replacement_for_each_maximal_subpart(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t replacements, length;
        const char *rest;
    } cases[] = {
        {"\xFF", 1, 1, ""},
        {"\xE4\xBD", 1, 2, ""},
        {"\xC0\x80", 2, 2, ""},
        {"\xED\xA0\x80", 3, 3, ""},
        {"\xF4\x90\x80\x80", 4, 4, ""},
        {"\xF0\x9F\x98\x41", 1, 4, "A"},
        {"\xE0\x80", 2, 2, ""},
        {"", 0, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *out;
        size_t length;
        assert_int_equal(
            attn_utf8_repair(cases[i].bytes, cases[i].length, &out, &length, &error),
            ATTN_OK);
        assert_int_equal(length, 3 * cases[i].replacements + strlen(cases[i].rest));
        for (size_t j = 0; j < cases[i].replacements; j++)
            assert_memory_equal(out + 3 * j, "\xEF\xBF\xBD", 3);
        assert_string_equal(out + 3 * cases[i].replacements, cases[i].rest);
        free(out);
    }
}

/* Every string of three from bytes that matter, against Python's "replace". */
static void replacement_equals_pythons(void **state)
{
    (void)state;
    if (!python_has("sys"))
        skip();
    static const unsigned char bytes[] = {0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0,
                                          0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE4, 0xED,
                                          0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    enum { N = sizeof bytes };
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < (size_t)N * N * N * N; i++) {
        const char text[] = {(char)bytes[i % N], (char)bytes[i / N % N],
                             (char)bytes[i / N / N % N], (char)bytes[i / N / N / N]};
        char *out;
        size_t length;
        assert_int_equal(attn_utf8_repair(text, 4, &out, &length, &error), ATTN_OK);
        for (size_t j = 0; j < length; j++)
            sum = (sum ^ (unsigned char)out[j]) * 1099511628211u;
        free(out);
    }
    char script[1024];
    snprintf(
        script, sizeof script,
        "b = bytes.fromhex('417f808f909fa0bfc1c2dfe0e4edeff0f1f4f5ff')\n"
        "h = 14695981039346656037\n"
        "n = len(b)\n"
        "for i in range(n**4):\n"
        "    t = bytes((b[i %% n], b[i // n %% n], b[i // n // n %% n], b[i // n**3]))\n"
        "    for c in t.decode('utf-8', 'replace').encode():\n"
        "        h = (h ^ c) * 1099511628211 & 0xFFFFFFFFFFFFFFFF\n"
        "import sys\n"
        "sys.exit(0 if h == %llu else 1)\n",
        (unsigned long long)sum);
    assert_int_equal(python_run(script), 0);
}

static void splits(const char *text, const char *expected)
{
    attn_word *words;
    size_t count;
    char joined[256] = "";
    assert_int_equal(attn_words_of_text(text, strlen(text), &words, &count, &error),
                     ATTN_OK);
    for (size_t n = 0; n < count; n++) {
        strcat(joined, n > 0 ? "|" : "");
        strncat(joined, text + words[n].begin, (size_t)(words[n].end - words[n].begin));
    }
    assert_string_equal(joined, expected);
    free(words);
}

static void a_text_splits_as_treebanks_split(void **state)
{
    (void)state;
    splits("", "");
    splits("  ", "");
    splits("The cat, (hungry) sat...", "The|cat|,|(|hungry|)|sat|...");
    splits("don't Can't it's we'll I'd they've",
           "do|n't|Ca|n't|it|'s|we|'ll|I|'d|they|'ve");
    splits("it\xE2\x80\x99s don\xE2\x80\x99t", "it|\xE2\x80\x99s|do|n\xE2\x80\x99t");
    splits("rock 'n' n't 't", "rock|'|n|'|n't|'|t");
    splits("\xE7\x8C\xAB\xE7\x8B\x97", "\xE7\x8C\xAB|\xE7\x8B\x97");
}

/* Bytes are tokens, so that the space is one. */
static void a_word_is_encoded_after_a_space(void **state)
{
    (void)state;
    attn_tokenizer *tokenizer;
    attn_token *tokens, *spaced;
    size_t count, spaced_count;
    assert_int_equal(
        attn_tokenizer_train(&tokenizer, (const char *const[]){"x"}, 1, 260, &error),
        ATTN_OK);
    assert_int_equal(attn_word_encode(tokenizer, "ab", 2, &tokens, &count, &error),
                     ATTN_OK);
    assert_int_equal(
        attn_tokenizer_encode(tokenizer, " ab", 3, &spaced, &spaced_count, &error),
        ATTN_OK);
    assert_int_equal(count, 3);
    assert_int_equal(spaced_count, 3);
    for (size_t n = 0; n < 3; n++) {
        assert_int_equal(tokens[n].id, spaced[n].id);
        assert_int_equal(tokens[n].begin, n > 0 ? n - 1 : 0);
        assert_int_equal(tokens[n].end, n);
    }
    free(tokens), free(spaced);
    attn_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_a_word_are_joined),
        cmocka_unit_test(punctuation_is_a_word_of_its_own),
        cmocka_unit_test(an_apostrophe_stays_with_what_it_elides),
        cmocka_unit_test(scripts_without_spaces_have_a_word_for_each_token),
        cmocka_unit_test(tokens_that_are_part_of_one_character_are_joined),
        cmocka_unit_test(space_belongs_to_no_word),
        cmocka_unit_test(a_text_splits_as_treebanks_split),
        cmocka_unit_test(a_word_is_encoded_after_a_space),
        cmocka_unit_test(columns_are_those_of_a_terminal),
        cmocka_unit_test(a_prefix_never_splits_a_grapheme),
        cmocka_unit_test(invalid_bytes_become_one_replacement_for_each_maximal_subpart),
        cmocka_unit_test(replacement_equals_pythons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

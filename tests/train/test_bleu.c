/* BLEU against sacrebleu 2.6: by fixed values, and live where the package is there. */
#include "train/bleu.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.10g is not within %g of %.10g", value, tolerance, expected);
}

enum { LINE_BYTES = 1 << 16, FIELDS = 16 };

static void assert_words(const char *text, attn_bleu_words words, const char *expected)
{
    char *const tokens = attn_bleu_tokenize(text, words);
    assert_non_null(tokens);
    assert_string_equal(tokens, expected);
    free(tokens);
}

static void assert_tokens(const char *text, const char *expected)
{
    assert_words(text, ATTN_BLEU_13A, expected);
}

static void text_is_cut_as_13a_cuts_it(void **state)
{
    (void)state;
    assert_tokens("", "");
    assert_tokens("   ", "");
    assert_tokens("Hello, world!", "Hello , world !");
    assert_tokens("l'été d'hier", "l'été d'hier");
    assert_tokens("1,000.50 and 3.14.", "1,000.50 and 3.14 .");
    assert_tokens("U.S.A., e.g. .5", "U . S . A . , e . g . . 5");
    assert_tokens("2019-2020 x-y -5 5-", "2019 - 2020 x-y -5 5 -");
    assert_tokens("&quot;a&quot; &amp;lt; &lt;b&gt;", "\" a \" < < b >");
    assert_tokens("<skipped>one-\ntwo\nthree", "onetwo three");
    assert_tokens("one-\n", "one-");
    assert_tokens("«\u00a0oui\u202f» \u3000 日本.", "« oui » 日本 .");
    assert_tokens("...", ". . .");
}

static void chinese_is_cut_into_its_characters(void **state)
{
    (void)state;
    assert_words("", ATTN_BLEU_ZH, "");
    assert_words(" 我愛你。", ATTN_BLEU_ZH, "我 愛 你 。");
    assert_words("他有3.5米，對嗎？", ATTN_BLEU_ZH, "他 有 3.5 米 ， 對 嗎 ？");
    assert_words("Tom去了MIT.", ATTN_BLEU_ZH, "Tom 去 了 MIT .");
    assert_words("&amp;", ATTN_BLEU_ZH, "& amp ;");
    static const char *const chinese[] = {"我愛你。", "Tom去了波士頓。"};
    static const char *const french[] = {"Je t'aime.", "l'été…"};
    assert_int_equal(attn_bleu_words_of(chinese, 2), ATTN_BLEU_ZH);
    assert_int_equal(attn_bleu_words_of(french, 2), ATTN_BLEU_13A);
}

static void text_is_cut_as_moses_cuts_it(void **state)
{
    (void)state;
    assert_words("", ATTN_BLEU_MOSES, "");
    assert_words("Ein Mann mit Hut, der etwas anstarrt.", ATTN_BLEU_MOSES,
                 "Ein Mann mit Hut , der etwas anstarrt .");
    assert_words("saftig-grünes Gras", ATTN_BLEU_MOSES, "saftig-grünes Gras");
    assert_words("1,5 Meter (5,5 m) ...", ATTN_BLEU_MOSES, "1,5 Meter ( 5,5 m ) ...");
    assert_words("Das ist z.B. gut.", ATTN_BLEU_MOSES, "Das ist z.B. gut .");
    assert_words("Er sagt: \"Halt!\" Und geht.", ATTN_BLEU_MOSES,
                 "Er sagt : \" Halt ! \" Und geht .");
    assert_words("Gib's her", ATTN_BLEU_MOSES, "Gib ' s her");
}

static void assert_bleu(const char *hypothesis, const char *reference, double expected)
{
    attn_bleu bleu = {0};
    attn_error error;
    assert_int_equal(attn_bleu_add(&bleu, hypothesis, &reference, 1, &error), ATTN_OK);
    assert_near(attn_bleu_score(&bleu), expected, 1e-6);
}

static void scores_are_those_of_sacrebleu(void **state)
{
    (void)state;
    assert_bleu("a b c d e", "a b c d e", 100.0);
    assert_bleu("a b c d e", "a b x d e", 30.213753973567677);
    assert_bleu("a b", "a b", 0.0);
    assert_bleu("", "a b", 0.0);
    assert_bleu("x y z w", "a b c d", 0.0);
    assert_bleu("the the the the", "the cat", 15.97357760615681);
    assert_bleu("a b c d e f g", "a b c d e f g h i", 75.14772930752862);
}

static void references_differ_in_number(void **state)
{
    (void)state;
    static const char *const HYPOTHESES[] = {
        "Le chat est assis sur le tapis.",
        "Il a payé 1,000.50 $ pour l'été 2019-2020 !",
        "Aujourd'hui, j'ai mangé &quot;trois&quot; pommes.",
        "Oui.",
    };
    static const char *const REFERENCES[4][3] = {
        {"Le chat était assis sur le tapis.", "Un chat est assis sur le tapis .", NULL},
        {"Il paya 1,000.50 $ pour l'été 2019-2020.", NULL, NULL},
        {"J'ai mangé \"trois\" pommes aujourd'hui.",
         "Aujourd'hui, j'ai mangé trois pommes.", "J'ai mangé des pommes."},
        {"Oui !", NULL, NULL},
    };
    static const size_t COUNTS[] = {2, 1, 3, 1};
    attn_bleu bleu = {0};
    attn_error error;
    for (size_t n = 0; n < 4; n++)
        assert_int_equal(
            attn_bleu_add(&bleu, HYPOTHESES[n], REFERENCES[n], COUNTS[n], &error),
            ATTN_OK);
    assert_near(attn_bleu_score(&bleu), 72.50224017489712, 1e-6);
    assert_int_equal(bleu.hypothesis_length, 30);
    assert_int_equal(bleu.reference_length, 28);
}

static void no_reference_is_an_error(void **state)
{
    (void)state;
    attn_bleu bleu = {0};
    attn_error error;
    assert_int_equal(attn_bleu_add(&bleu, "a", NULL, 0, &error), ATTN_EINVAL);
}

static size_t split(char *line, char **fields)
{
    size_t count = 0;
    line[strcspn(line, "\n")] = '\0';
    for (char *at = line; at && count < FIELDS; count++) {
        fields[count] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return count;
}

static void random_texts_agree_with_the_package(void **state)
{
    (void)state;
    const char *const python = getenv("ATTN_PYTHON") ? getenv("ATTN_PYTHON") : "python3";
    const char *const folder = getenv("ATTN_TESTS");
    char command[2048];
    snprintf(command, sizeof command, "%s -c 'import sacrebleu' 2>/dev/null", python);
    if (!folder || system(command) != 0) {
        print_message("skipped: random_texts_agree_with_the_package (%s)\n",
                      folder ? "sacrebleu does not import" : "ATTN_TESTS is not set");
        skip();
    }
    static char line[LINE_BYTES];
    char *fields[FIELDS];
    size_t texts = 0, corpora = 0;
    attn_bleu bleu = {0};
    attn_error error;
    snprintf(command, sizeof command, "%s %s/train/bleu_oracle.py 7", python, folder);
    FILE *const oracle = popen(command, "r");
    assert_non_null(oracle);
    while (fgets(line, sizeof line, oracle)) {
        const size_t count = split(line, fields);
        if (*fields[0] == 'T') {
            assert_int_equal(count, 4);
            assert_tokens(fields[1], fields[2]);
            assert_words(fields[1], ATTN_BLEU_ZH, fields[3]);
            texts++;
        } else if (*fields[0] == 'H') {
            assert_int_equal(attn_bleu_add(&bleu, fields[1],
                                           (const char *const *)&fields[2], count - 2,
                                           &error),
                             ATTN_OK);
        } else {
            assert_near(attn_bleu_score(&bleu), strtod(fields[1], NULL), 1e-6);
            bleu = (attn_bleu){0};
            corpora++;
        }
    }
    assert_int_equal(pclose(oracle), 0);
    assert_int_equal(texts, 1500);
    assert_int_equal(corpora, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_as_13a_cuts_it),
        cmocka_unit_test(chinese_is_cut_into_its_characters),
        cmocka_unit_test(text_is_cut_as_moses_cuts_it),
        cmocka_unit_test(scores_are_those_of_sacrebleu),
        cmocka_unit_test(references_differ_in_number),
        cmocka_unit_test(no_reference_is_an_error),
        cmocka_unit_test(random_texts_agree_with_the_package),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

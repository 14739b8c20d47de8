/* Words as Moses cuts them (tokenizer.perl, neither aggressive nor escaping), on which
 * "tokenised BLEU" is published: regular expressions, one after another, then the full
 * stops at the ends of words.  The apostrophe is that of languages without a rule of
 * their own (German).  Moses's lists of abbreviations are not here: a full stop stays at
 * a word that has another one inside it, and where a small letter follows. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "train/bleu.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *pattern, *by;
} RULES[] = {
    {"[\\x00-\\x1f]", ""},
    {"([^\\p{L}\\p{M}\\p{N}\\s.'`,-])", " $1 "},
    {"(\\.{2,})", " $1 "},
    {"([^\\p{N}]),", "$1 , "},
    {",([^\\p{N}])", " , $1"},
    {"(\\p{N}),$", "$1 , "},
    {"'", " ' "},
    /* A full stop at a word's end, unless a small letter follows … */
    {"(?<=\\s|^)([^\\s.]+)\\.(?=\\s*$|\\s+[^\\s\\p{Ll}])", "$1 ."},
    /* … or the word has another inside it and letters: "z.B." */
    {"(?<=\\s|^)([^\\s\\p{L}]+\\.[^\\s\\p{L}]+)\\.(?=\\s*$|\\s+[^\\s\\p{Ll}])", "$1 ."},
    {"\\s+", " "},
    {"^ | $", ""},
};

/* text is freed; NULL where memory is short. */
static char *substitute(char *text, const char *pattern, const char *by)
{
    int code;
    PCRE2_SIZE at, length = 3 * strlen(text) + 16;
    pcre2_code *const compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                               PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    char *const out = malloc(length);
    int done = -1;
    if (compiled && out)
        done = pcre2_substitute(compiled, (PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, 0,
                                PCRE2_SUBSTITUTE_GLOBAL, NULL, NULL, (PCRE2_SPTR)by,
                                PCRE2_ZERO_TERMINATED, (PCRE2_UCHAR *)out, &length);
    pcre2_code_free(compiled);
    free(text);
    if (done >= 0)
        return out;
    free(out);
    return NULL;
}

char *attn_bleu_tokenize_moses(const char *text)
{
    char *words = malloc(strlen(text) + 1);
    if (words)
        strcpy(words, text);
    for (size_t n = 0; words && n < sizeof RULES / sizeof RULES[0]; n++)
        words = substitute(words, RULES[n].pattern, RULES[n].by);
    return words;
}

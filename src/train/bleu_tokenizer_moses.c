/* The tokenizer of Moses (tokenizer.perl, not aggressive, nothing escaped), on which
 * "tokenised BLEU" is scored: substitutions of regular expressions, one after another,
 * and then full stops at the ends of words.  Without Moses's lists of abbreviations: a
 * full stop stays at its word where the word has another one inside, or where a small
 * letter follows; else it is set apart. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "train/bleu.h"
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct rule {
    const char *pattern, *by;
};

/* An apostrophe is set apart, but in English "dog's" keeps it before the s, in French
 * "l'eau" keeps it after the l. */
static const struct rule BEFORE[] = {
    {"[\\x00-\\x1f]", " "},
    {"\\s+", " "},
    {"([^\\p{Alphabetic}\\p{N}\\s.'`,-])", " $1 "},
    {"([^\\p{N}]),", "$1 , "},
    {",([^\\p{N}])", " , $1"},
    {"([\\p{N}]),$", "$1 , "},
};

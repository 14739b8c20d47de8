/* Splitting by GPT-2's regular expression with PCRE2.
 *
 * White space is written out: PCRE2's \s has U+180E, which Oniguruma, the
 * engine inside `tokenizers`, does not. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pieces.h"
#include "base/context.h"
#include <pcre2.h>
#include <stdlib.h>

struct attn_piece_pattern {
    pcre2_code *code;
};

#define SPACE                                                                            \
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}"                     \
    "\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* Letters and numbers of Unicode 15 and 16, which Oniguruma 6.9.10 knows and PCRE2 10.42
 * (Unicode 14) does not: with them every code point is of the same kind in both. */
#define LATER_LETTERS                                                                    \
    "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}"     \
    "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}"                    \
    "\\x{1123F}-\\x{11240}\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}"                     \
    "\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}\\x{113D3}\\x{11BC0}-\\x{11BE0}"           \
    "\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}\\x{1342F}"                     \
    "\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"                    \
    "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}"           \
    "\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}"          \
    "\\x{2B739}\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define LATER_NUMBERS                                                                    \
    "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}"                    \
    "\\x{11F50}-\\x{11F59}\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}"                    \
    "\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}\\x{1E4F0}-\\x{1E4F9}"                    \
    "\\x{1E5F1}-\\x{1E5FA}"
#define LETTERS "\\p{L}" LATER_LETTERS
#define NUMBERS "\\p{N}" LATER_NUMBERS

static const char EXPRESSION[] = "'s|'t|'re|'ve|'m|'ll|'d"
                                 "| ?[" LETTERS "]+"
                                 "| ?[" NUMBERS "]+"
                                 "| ?[^" SPACE LETTERS NUMBERS "]+"
                                 "|[" SPACE "]+(?![^" SPACE "])"
                                 "|[" SPACE "]+";

attn_status attn_piece_pattern_create(attn_piece_pattern **pattern, attn_error *error)
{
    *pattern = NULL;
    int number;
    size_t place;
    pcre2_code *const code = pcre2_compile((PCRE2_SPTR)EXPRESSION, PCRE2_ZERO_TERMINATED,
                                           PCRE2_UTF | PCRE2_UCP, &number, &place, NULL);
    if (!code) {
        char reason[128] = "";
        pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
        return attn_error_set(error, ATTN_EUNSUPPORTED,
                              "PCRE2 cannot compile the expression for pieces: %s",
                              reason);
    }
    /* Without it matching is slower and gives the same. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    *pattern = malloc(sizeof **pattern);
    if (!*pattern) {
        pcre2_code_free(code);
        return attn_error_set(error, ATTN_ENOMEM, "no memory for the pattern of pieces");
    }
    (*pattern)->code = code;
    return ATTN_OK;
}

void attn_piece_pattern_destroy(attn_piece_pattern *pattern)
{
    if (pattern)
        pcre2_code_free(pattern->code);
    free(pattern);
}

attn_status attn_piece_walk_init(attn_piece_walk *walk, const attn_piece_pattern *pattern,
                                 attn_error *error)
{
    *walk = (attn_piece_walk){.pattern = pattern};
    walk->match = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    if (!walk->match)
        return attn_error_set(error, ATTN_ENOMEM,
                              "no memory to split a text into pieces");
    return ATTN_OK;
}

void attn_piece_walk_reset(attn_piece_walk *walk)
{
    pcre2_match_data_free(walk->match);
    *walk = (attn_piece_walk){0};
}

void attn_piece_walk_start(attn_piece_walk *walk, const char *text, size_t length_bytes)
{
    walk->text = text;
    walk->length_bytes = length_bytes;
    walk->begin = walk->end = 0;
}

attn_status attn_piece_walk_next(attn_piece_walk *walk, bool *more, attn_error *error)
{
    *more = walk->end < walk->length_bytes;
    if (!*more)
        return ATTN_OK;
    walk->begin = walk->end;
    const int found =
        pcre2_match(walk->pattern->code, (PCRE2_SPTR)walk->text, walk->length_bytes,
                    walk->begin, PCRE2_NO_UTF_CHECK, walk->match, NULL);
    const size_t *const place = pcre2_get_ovector_pointer(walk->match);
    /* Every character begins one of the alternatives: only a limit of PCRE2 can fail. */
    if (found < 0 || place[0] != walk->begin || place[1] <= place[0])
        return attn_error_set(error, ATTN_EUNSUPPORTED,
                              "PCRE2 failed with %d at byte %zu of the text", found,
                              walk->begin);
    walk->end = place[1];
    return ATTN_OK;
}

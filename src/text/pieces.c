/* Splitting by GPT-2's regular expression with PCRE2.
 *
 * White space is written out: PCRE2's \s has U+180E, which the expression's other engines
 * (Oniguruma in `tokenizers`) do not.  Letters and numbers are PCRE2's own, by the
 * Unicode version it was built with. */
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

static const char EXPRESSION[] = "'s|'t|'re|'ve|'m|'ll|'d"
                                 "| ?\\p{L}+"
                                 "| ?\\p{N}+"
                                 "| ?[^" SPACE "\\p{L}\\p{N}]+"
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

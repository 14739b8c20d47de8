/* Encoding and decoding by byte pairs.
 *
 * A text is split into pieces (pieces.h); inside a piece, of all adjacent pairs that have
 * a merge, the one of the lowest rank is merged first, the leftmost on a tie, until none
 * is left.  A heap of candidates makes that n log n for a piece of n bytes, so that a
 * megabyte without a space takes no longer than one with. */
#include "base/context.h"
#include "file/utf8.h"
#include "text/lower.h"
#include "text/vocabulary.h"
#include "text/words.h"
#include <stdlib.h>
#include <string.h>

const char *const attn_special_names[ATTN_SPECIALS] = {"<s>", "<pad>", "</s>", "<unk>"};
const char attn_mask_name[] = "<mask>";

/* ---- Making ---------------------------------------------------------------------- */

static attn_status no_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory for the tokenizer");
}

attn_status attn_tokenizer_begin(attn_tokenizer **tokenizer, attn_error *error)
{
    *tokenizer = NULL;
    attn_tokenizer *const begun = calloc(1, sizeof *begun);
    if (!begun)
        return no_memory(error);
    const attn_status status = attn_piece_pattern_create(&begun->pattern, error);
    if (status != ATTN_OK) {
        free(begun);
        return status;
    }
    *tokenizer = begun;
    return ATTN_OK;
}

attn_status attn_tokenizer_add_token(attn_tokenizer *tokenizer, const char *bytes,
                                     size_t length, attn_error *error)
{
    if (!attn_grow(&tokenizer->tokens, &tokenizer->tokens_capacity, tokenizer->size + 1,
                   sizeof *tokenizer->tokens) ||
        !attn_grow(&tokenizer->bytes, &tokenizer->bytes_capacity,
                   tokenizer->bytes_used + length + 1, 1))
        return no_memory(error);
    char *const copy = tokenizer->bytes + tokenizer->bytes_used;
    memmove(copy, bytes, length);
    copy[length] = '\0';
    tokenizer->tokens[tokenizer->size] =
        (struct attn_token_place){tokenizer->bytes_used, length};
    tokenizer->bytes_used += length + 1;
    if (length == 1 && tokenizer->size >= ATTN_SPECIALS)
        tokenizer->byte_token[(unsigned char)copy[0]] = (int32_t)tokenizer->size;
    tokenizer->size++;
    return ATTN_OK;
}

attn_status attn_tokenizer_add_merge(attn_tokenizer *tokenizer, struct attn_merge merge,
                                     attn_error *error)
{
    if (!attn_grow(&tokenizer->merges, &tokenizer->merges_capacity,
                   tokenizer->merge_count + 1, sizeof *tokenizer->merges) ||
        !attn_pair_map_add(&tokenizer->ranks, merge.left, merge.right,
                           (int32_t)tokenizer->merge_count))
        return no_memory(error);
    tokenizer->merges[tokenizer->merge_count++] = merge;
    return ATTN_OK;
}

void attn_tokenizer_destroy(attn_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    attn_piece_pattern_destroy(tokenizer->pattern);
    free(tokenizer->bytes);
    free(tokenizer->tokens);
    free(tokenizer->merges);
    free(tokenizer->ranks.slots);
    free(tokenizer);
}

int64_t attn_tokenizer_size(const attn_tokenizer *tokenizer)
{
    return (int64_t)tokenizer->size;
}

bool attn_tokenizer_is_special(const attn_tokenizer *tokenizer, int32_t id)
{
    return id < ATTN_SPECIALS || id == attn_tokenizer_mask(tokenizer);
}

void attn_tokenizer_frame(attn_tokenizer *tokenizer, attn_text_frame frame)
{
    tokenizer->frame = frame;
}

attn_status attn_tokenizer_add_mask(attn_tokenizer *tokenizer, attn_error *error)
{
    const size_t length = strlen(attn_mask_name);
    if (tokenizer->has_mask)
        return ATTN_OK;
    for (size_t i = 0; i < tokenizer->size; i++)
        if (tokenizer->tokens[i].length == length &&
            memcmp(tokenizer->bytes + tokenizer->tokens[i].begin, attn_mask_name,
                   length) == 0)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "token %zu of text is \"%s\" already, expected no such "
                                  "token before the mask is added",
                                  i, attn_mask_name);
    ATTN_TRY(attn_tokenizer_add_token(tokenizer, attn_mask_name, length, error));
    tokenizer->has_mask = true;
    tokenizer->frame = ATTN_FRAME_BOTH;
    return ATTN_OK;
}

void attn_tokenizer_lower_case(attn_tokenizer *tokenizer)
{
    tokenizer->lowers = true;
}

bool attn_tokenizer_lowers(const attn_tokenizer *tokenizer)
{
    return tokenizer->lowers;
}

int32_t attn_tokenizer_mask(const attn_tokenizer *tokenizer)
{
    return tokenizer->has_mask ? (int32_t)tokenizer->size - 1 : -1;
}

/* ---- Encoding -------------------------------------------------------------------- */

/* A token of the piece so far, in a list by position. */
struct symbol {
    int32_t id; /* −1: merged into the one before it */
    size_t previous, next;
    size_t begin, end; /* bytes of the text */
};

static const size_t NONE = SIZE_MAX;

struct encoder {
    const attn_tokenizer *tokenizer;
    attn_piece_walk walk;
    struct symbol *symbols;
    size_t symbols_capacity;
    attn_heap candidates; /* by rank, then position */
    attn_token *tokens;
    size_t count, tokens_capacity;
};

static bool push_candidate(struct encoder *encoder, size_t left)
{
    const struct symbol *const symbol = &encoder->symbols[left];
    if (symbol->next == NONE)
        return true;
    const int32_t rank = attn_pair_map_find(&encoder->tokenizer->ranks, symbol->id,
                                            encoder->symbols[symbol->next].id);
    if (rank < 0)
        return true;
    return attn_heap_push(&encoder->candidates,
                          (attn_heap_entry){.first = rank, .second = left});
}

/* Merges the candidate unless its symbols have changed since it was pushed. */
static bool merge_candidate(struct encoder *encoder, attn_heap_entry candidate)
{
    const struct attn_merge *const merge = &encoder->tokenizer->merges[candidate.first];
    struct symbol *const left = &encoder->symbols[candidate.second];
    if (left->id != merge->left || left->next == NONE)
        return true;
    struct symbol *const right = &encoder->symbols[left->next];
    if (right->id != merge->right)
        return true;
    left->id = merge->result;
    left->end = right->end;
    left->next = right->next;
    right->id = -1;
    if (left->next != NONE)
        encoder->symbols[left->next].previous = candidate.second;
    if (left->previous != NONE && !push_candidate(encoder, left->previous))
        return false;
    return push_candidate(encoder, candidate.second);
}

static bool encode_piece(struct encoder *encoder, const char *text, size_t begin,
                         size_t end)
{
    const size_t length = end - begin;
    if (!attn_grow(&encoder->symbols, &encoder->symbols_capacity, length,
                   sizeof *encoder->symbols))
        return false;
    for (size_t i = 0; i < length; i++)
        encoder->symbols[i] = (struct symbol){
            .id = encoder->tokenizer->byte_token[(unsigned char)text[begin + i]],
            .previous = i > 0 ? i - 1 : NONE,
            .next = i + 1 < length ? i + 1 : NONE,
            .begin = begin + i,
            .end = begin + i + 1,
        };
    for (size_t i = 0; i < length; i++)
        if (!push_candidate(encoder, i))
            return false;
    while (encoder->candidates.count > 0)
        if (!merge_candidate(encoder, attn_heap_pop(&encoder->candidates)))
            return false;
    for (size_t i = 0; i != NONE; i = encoder->symbols[i].next) {
        if (!attn_grow(&encoder->tokens, &encoder->tokens_capacity, encoder->count + 1,
                       sizeof *encoder->tokens))
            return false;
        encoder->tokens[encoder->count++] = (attn_token){
            .id = encoder->symbols[i].id,
            .begin = (int64_t)encoder->symbols[i].begin,
            .end = (int64_t)encoder->symbols[i].end,
        };
    }
    return true;
}

static attn_status encode_pieces(struct encoder *encoder, const char *text,
                                 size_t length_bytes, attn_error *error)
{
    attn_piece_walk_start(&encoder->walk, text, length_bytes);
    for (;;) {
        bool more;
        ATTN_TRY(attn_piece_walk_next(&encoder->walk, &more, error));
        if (!more)
            return ATTN_OK;
        if (!encode_piece(encoder, text, encoder->walk.begin, encoder->walk.end))
            return attn_error_set(error, ATTN_ENOMEM, "no memory to encode %zu bytes",
                                  length_bytes);
    }
}

static attn_status encode(const attn_tokenizer *tokenizer, const char *text,
                          size_t length_bytes, attn_token **tokens, size_t *count,
                          attn_error *error)
{
    struct encoder encoder = {.tokenizer = tokenizer};
    ATTN_TRY(attn_piece_walk_init(&encoder.walk, tokenizer->pattern, error));
    attn_status status = encode_pieces(&encoder, text, length_bytes, error);
    if (status == ATTN_OK && !attn_grow(&encoder.tokens, &encoder.tokens_capacity, 1,
                                        sizeof *encoder.tokens)) /* never NULL */
        status = no_memory(error);
    attn_piece_walk_reset(&encoder.walk);
    free(encoder.symbols);
    free(encoder.candidates.entries);
    if (status != ATTN_OK) {
        free(encoder.tokens);
        return status;
    }
    *tokens = encoder.tokens;
    *count = encoder.count;
    return ATTN_OK;
}

attn_status attn_tokenizer_encode(const attn_tokenizer *tokenizer, const char *text,
                                  size_t length_bytes, attn_token **tokens, size_t *count,
                                  attn_error *error)
{
    const size_t valid = attn_utf8_valid(text, length_bytes);
    if (valid < length_bytes)
        return attn_error_set(error, ATTN_EFORMAT,
                              "the text is not UTF-8 at byte %zu (0x%02X)", valid + 1,
                              (unsigned char)text[valid]);
    if (!tokenizer->lowers)
        return encode(tokenizer, text, length_bytes, tokens, count, error);
    attn_lower_text lower;
    ATTN_TRY(attn_text_lower(&lower, text, length_bytes, error));
    const attn_status status =
        encode(tokenizer, lower.text, lower.length, tokens, count, error);
    for (size_t i = 0; status == ATTN_OK && i < *count; i++) {
        (*tokens)[i].begin = lower.places[(*tokens)[i].begin];
        (*tokens)[i].end = lower.places[(*tokens)[i].end];
    }
    attn_lower_text_free(&lower);
    return status;
}

attn_status attn_tokens_fit(const char *what, size_t count, int64_t most,
                            attn_error *error)
{
    if ((int64_t)count <= most)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EFORMAT,
                          "%s has %zu tokens, expected at most %lld: the model has no "
                          "more positions. Give it one sentence at a time",
                          what, count, (long long)most);
}

/* ---- Decoding -------------------------------------------------------------------- */

static attn_status check_id(const attn_tokenizer *tokenizer, int32_t id,
                            attn_error *error)
{
    if (id >= 0 && (size_t)id < tokenizer->size)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EINVAL,
                          "token id is %d, expected 0 to %zu: the vocabulary's ids", id,
                          tokenizer->size - 1);
}

attn_status attn_tokenizer_bytes(const attn_tokenizer *tokenizer, int32_t id,
                                 const char **bytes, size_t *length, bool *special,
                                 attn_error *error)
{
    ATTN_TRY(check_id(tokenizer, id, error));
    *bytes = tokenizer->bytes + tokenizer->tokens[id].begin;
    *length = tokenizer->tokens[id].length;
    *special = attn_tokenizer_is_special(tokenizer, id);
    return ATTN_OK;
}

attn_status attn_tokenizer_decode(const attn_tokenizer *tokenizer, const int32_t *ids,
                                  size_t count, char **text, attn_error *error)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        ATTN_TRY(check_id(tokenizer, ids[i], error));
        if (!attn_tokenizer_is_special(tokenizer, ids[i]))
            length += tokenizer->tokens[ids[i]].length;
    }
    char *const raw = malloc(length + 1);
    if (!raw)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to decode %zu tokens",
                              count);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (attn_tokenizer_is_special(tokenizer, ids[i]))
            continue;
        const struct attn_token_place place = tokenizer->tokens[ids[i]];
        memcpy(raw + used, tokenizer->bytes + place.begin, place.length);
        used += place.length;
    }
    size_t repaired;
    const attn_status status = attn_utf8_repair(raw, length, text, &repaired, error);
    free(raw);
    return status;
}

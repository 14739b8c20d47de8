/* Learning byte-pair merges (Sennrich et al. 2016, algorithm 1).
 *
 * Every distinct piece of the texts is a word with a count.  The most frequent pair of
 * adjacent tokens becomes a token, in all words; counts of the pairs beside it change by
 * what the merge took and gave.  A heap finds the next pair: an entry is out of date when
 * the count it carries is no longer the pair's, and goes back with the right one. */
#include "base/context.h"
#include "file/utf8.h"
#include "text/bytes.h"
#include "text/vocabulary.h"
#include <stdlib.h>
#include <string.h>

enum { LEAST_COUNT = 2, SMALLEST_VOCABULARY = ATTN_SPECIALS + 256 };

struct word {
    size_t first; /* of its tokens */
    size_t length;
    int64_t count;
};

struct pair {
    int32_t left, right;
    int64_t count;
    uint32_t *words; /* that hold it, or did */
    size_t word_count, words_capacity;
    bool grew; /* in the merge under way */
};

struct trainer {
    attn_tokenizer *tokenizer;
    attn_string_set texts; /* of the words, later of the tokens */
    struct word *words;
    size_t word_count, words_capacity;
    int32_t *tokens; /* of all words */
    attn_pair_map pair_numbers;
    struct pair *pairs;
    size_t pair_count, pairs_capacity;
    size_t *grown; /* pairs whose counts grew in the merge under way */
    size_t grown_count, grown_capacity;
    attn_heap heap;
};

static attn_status no_memory(attn_error *error)
{
    return attn_error_set(error, ATTN_ENOMEM, "no memory to train the tokenizer");
}

/* ---- Words ----------------------------------------------------------------------- */

static attn_status count_words_of(struct trainer *trainer, attn_piece_walk *walk,
                                  const char *text, size_t number, attn_error *error)
{
    const size_t length = strlen(text);
    const size_t valid = attn_utf8_valid(text, length);
    if (valid < length)
        return attn_error_set(error, ATTN_EFORMAT, "text %zu is not UTF-8 at byte %zu",
                              number, valid + 1);
    attn_piece_walk_start(walk, text, length);
    for (;;) {
        bool more;
        ATTN_TRY(attn_piece_walk_next(walk, &more, error));
        if (!more)
            return ATTN_OK;
        int32_t word;
        if (!attn_string_set_add(&trainer->texts, text + walk->begin,
                                 walk->end - walk->begin, &word) ||
            !attn_grow(&trainer->words, &trainer->words_capacity, (size_t)word + 1,
                       sizeof *trainer->words))
            return no_memory(error);
        if ((size_t)word == trainer->word_count)
            trainer->words[trainer->word_count++] = (struct word){0};
        trainer->words[word].count++;
    }
}

static attn_status count_words(struct trainer *trainer, const char *const *texts,
                               size_t count, attn_error *error)
{
    attn_piece_walk walk;
    ATTN_TRY(attn_piece_walk_init(&walk, trainer->tokenizer->pattern, error));
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        status = count_words_of(trainer, &walk, texts[i], i, error);
    attn_piece_walk_reset(&walk);
    return status;
}

/* Each word as the tokens of its bytes. */
static attn_status spell_words(struct trainer *trainer, attn_error *error)
{
    trainer->tokens = malloc((trainer->texts.bytes_used + 1) * sizeof *trainer->tokens);
    if (!trainer->tokens)
        return no_memory(error);
    for (size_t i = 0; i < trainer->texts.bytes_used; i++)
        trainer->tokens[i] =
            trainer->tokenizer->byte_token[(unsigned char)trainer->texts.bytes[i]];
    for (size_t i = 0; i < trainer->word_count; i++) {
        trainer->words[i].first = trainer->texts.places[i].begin;
        trainer->words[i].length = trainer->texts.places[i].length;
    }
    return ATTN_OK;
}

/* ---- Pairs ----------------------------------------------------------------------- */

/* Changes a pair's count by `change` occurrences in a word. */
static bool change_pair(struct trainer *trainer, int32_t left, int32_t right, size_t word,
                        int change)
{
    int32_t number = attn_pair_map_find(&trainer->pair_numbers, left, right);
    if (number < 0) {
        number = (int32_t)trainer->pair_count;
        if (trainer->pair_count == INT32_MAX ||
            !attn_grow(&trainer->pairs, &trainer->pairs_capacity, trainer->pair_count + 1,
                       sizeof *trainer->pairs) ||
            !attn_pair_map_add(&trainer->pair_numbers, left, right, number))
            return false;
        trainer->pairs[trainer->pair_count++] =
            (struct pair){.left = left, .right = right};
    }
    struct pair *const pair = &trainer->pairs[number];
    pair->count += change * trainer->words[word].count;
    if (change < 0)
        return true;
    if (!pair->grew) {
        if (!attn_grow(&trainer->grown, &trainer->grown_capacity,
                       trainer->grown_count + 1, sizeof *trainer->grown))
            return false;
        trainer->grown[trainer->grown_count++] = (size_t)number;
        pair->grew = true;
    }
    if (pair->word_count > 0 && pair->words[pair->word_count - 1] == (uint32_t)word)
        return true;
    if (!attn_grow(&pair->words, &pair->words_capacity, pair->word_count + 1,
                   sizeof *pair->words))
        return false;
    pair->words[pair->word_count++] = (uint32_t)word;
    return true;
}

static bool push_pair(struct trainer *trainer, size_t number)
{
    const struct pair *const pair = &trainer->pairs[number];
    if (pair->count < LEAST_COUNT)
        return true;
    return attn_heap_push(
        &trainer->heap,
        (attn_heap_entry){
            .first = -pair->count,
            .second = (uint64_t)(uint32_t)pair->left << 32 | (uint32_t)pair->right,
            .value = (int32_t)number,
        });
}

/* Puts the pairs that grew into the heap. */
static bool push_grown(struct trainer *trainer)
{
    for (size_t i = 0; i < trainer->grown_count; i++) {
        trainer->pairs[trainer->grown[i]].grew = false;
        if (!push_pair(trainer, trainer->grown[i]))
            return false;
    }
    trainer->grown_count = 0;
    return true;
}

static attn_status count_pairs(struct trainer *trainer, attn_error *error)
{
    for (size_t i = 0; i < trainer->word_count; i++) {
        const int32_t *const tokens = trainer->tokens + trainer->words[i].first;
        for (size_t j = 0; j + 1 < trainer->words[i].length; j++)
            if (!change_pair(trainer, tokens[j], tokens[j + 1], i, 1))
                return no_memory(error);
    }
    return push_grown(trainer) ? ATTN_OK : no_memory(error);
}

/* ---- Merging --------------------------------------------------------------------- */

/* Merges the pair wherever it stands in the word, from left to right. */
static bool merge_in_word(struct trainer *trainer, size_t number, struct attn_merge merge)
{
    struct word *const word = &trainer->words[number];
    int32_t *const tokens = trainer->tokens + word->first;
    size_t kept = 0;
    for (size_t at = 0; at < word->length; at++) {
        if (tokens[at] != merge.left || at + 1 == word->length ||
            tokens[at + 1] != merge.right) {
            tokens[kept++] = tokens[at];
            continue;
        }
        if (kept > 0 &&
            (!change_pair(trainer, tokens[kept - 1], merge.left, number, -1) ||
             !change_pair(trainer, tokens[kept - 1], merge.result, number, 1)))
            return false;
        at++;
        if (at + 1 < word->length &&
            (!change_pair(trainer, merge.right, tokens[at + 1], number, -1) ||
             !change_pair(trainer, merge.result, tokens[at + 1], number, 1)))
            return false;
        tokens[kept++] = merge.result;
    }
    word->length = kept;
    return true;
}

/* The id of left and right joined: a new one, unless another pair made the same bytes. */
static attn_status joined_token(struct trainer *trainer, int32_t left, int32_t right,
                                int32_t *id, attn_error *error)
{
    const attn_tokenizer *const tokenizer = trainer->tokenizer;
    const struct attn_token_place a = tokenizer->tokens[left],
                                  b = tokenizer->tokens[right];
    char *const bytes = malloc(a.length + b.length);
    if (!bytes)
        return no_memory(error);
    memcpy(bytes, tokenizer->bytes + a.begin, a.length);
    memcpy(bytes + a.length, tokenizer->bytes + b.begin, b.length);
    attn_status status = ATTN_OK;
    if (!attn_string_set_add(&trainer->texts, bytes, a.length + b.length, id))
        status = no_memory(error);
    else if ((size_t)*id == tokenizer->size)
        status = attn_tokenizer_add_token(trainer->tokenizer, bytes, a.length + b.length,
                                          error);
    free(bytes);
    return status;
}

static attn_status merge_pair(struct trainer *trainer, size_t number, attn_error *error)
{
    struct attn_merge merge = {trainer->pairs[number].left, trainer->pairs[number].right,
                               0};
    ATTN_TRY(joined_token(trainer, merge.left, merge.right, &merge.result, error));
    if (attn_pair_map_find(&trainer->tokenizer->ranks, merge.left, merge.right) < 0)
        ATTN_TRY(attn_tokenizer_add_merge(trainer->tokenizer, merge, error));
    uint32_t *const words = trainer->pairs[number].words;
    const size_t word_count = trainer->pairs[number].word_count;
    trainer->pairs[number].words = NULL;
    trainer->pairs[number].word_count = trainer->pairs[number].words_capacity = 0;
    bool enough = true;
    for (size_t i = 0; i < word_count && enough; i++)
        enough = merge_in_word(trainer, words[i], merge);
    free(words);
    trainer->pairs[number].count = 0;
    return enough && push_grown(trainer) ? ATTN_OK : no_memory(error);
}

static attn_status learn_merges(struct trainer *trainer, size_t vocabulary,
                                attn_error *error)
{
    while (trainer->tokenizer->size < vocabulary && trainer->heap.count > 0) {
        const attn_heap_entry best = attn_heap_pop(&trainer->heap);
        const size_t number = (size_t)best.value;
        if (-best.first == trainer->pairs[number].count)
            ATTN_TRY(merge_pair(trainer, number, error));
        else if (!push_pair(trainer, number))
            return no_memory(error);
    }
    return ATTN_OK;
}

/* ---- The whole ------------------------------------------------------------------- */

static attn_status add_first_tokens(attn_tokenizer *tokenizer, attn_error *error)
{
    for (size_t i = 0; i < ATTN_SPECIALS; i++)
        ATTN_TRY(attn_tokenizer_add_token(tokenizer, attn_special_names[i],
                                          strlen(attn_special_names[i]), error));
    for (uint32_t character = 0; tokenizer->size < SMALLEST_VOCABULARY; character++) {
        const int byte = attn_character_to_byte(character);
        if (byte >= 0)
            ATTN_TRY(attn_tokenizer_add_token(tokenizer, &(char){(char)byte}, 1, error));
    }
    return ATTN_OK;
}

/* From here on the strings are those of the tokens, each numbered by its id. */
static attn_status name_tokens(struct trainer *trainer, attn_error *error)
{
    attn_string_set_reset(&trainer->texts);
    const attn_tokenizer *const tokenizer = trainer->tokenizer;
    for (size_t i = 0; i < tokenizer->size; i++) {
        int32_t number;
        if (!attn_string_set_add(&trainer->texts,
                                 tokenizer->bytes + tokenizer->tokens[i].begin,
                                 tokenizer->tokens[i].length, &number))
            return no_memory(error);
    }
    return ATTN_OK;
}

static attn_status train(struct trainer *trainer, const char *const *texts, size_t count,
                         size_t vocabulary, attn_error *error)
{
    ATTN_TRY(attn_tokenizer_begin(&trainer->tokenizer, error));
    ATTN_TRY(add_first_tokens(trainer->tokenizer, error));
    ATTN_TRY(count_words(trainer, texts, count, error));
    ATTN_TRY(spell_words(trainer, error));
    ATTN_TRY(name_tokens(trainer, error));
    ATTN_TRY(count_pairs(trainer, error));
    return learn_merges(trainer, vocabulary, error);
}

attn_status attn_tokenizer_train(attn_tokenizer **tokenizer, const char *const *texts,
                                 size_t count, int64_t vocabulary, attn_error *error)
{
    *tokenizer = NULL;
    if (vocabulary < SMALLEST_VOCABULARY || vocabulary > INT32_MAX)
        return attn_error_set(error, ATTN_EINVAL,
                              "vocabulary is %lld, expected at least %d (%d specials and "
                              "256 bytes)",
                              (long long)vocabulary, SMALLEST_VOCABULARY, ATTN_SPECIALS);
    struct trainer trainer = {0};
    const attn_status status = train(&trainer, texts, count, (size_t)vocabulary, error);
    attn_string_set_reset(&trainer.texts);
    for (size_t i = 0; i < trainer.pair_count; i++)
        free(trainer.pairs[i].words);
    free(trainer.pairs);
    free(trainer.pair_numbers.slots);
    free(trainer.words);
    free(trainer.tokens);
    free(trainer.grown);
    free(trainer.heap.entries);
    if (status != ATTN_OK) {
        attn_tokenizer_destroy(trainer.tokenizer);
        return status;
    }
    *tokenizer = trainer.tokenizer;
    return ATTN_OK;
}

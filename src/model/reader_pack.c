/* Texts as packed chunks.  A text longer than the positions is cut where its tokens
 * divide evenly; one whose words are labelled, between words, each chunk as long as it
 * may be. */
#include "base/mix.h"
#include "model/reader_parts.h"
#include "text/tokenizer.h"

/* BERT's chunks begin with <s> and end with </s>, other texts end with </s>, so that none
 * is without a token; other words stand alone. */
static int64_t specials_of(const attn_reader *reader)
{
    if (reader->bert)
        return 2;
    return reader->config.tags ? 0 : 1;
}

static int64_t room_of(const attn_reader *reader)
{
    return reader->config.max_positions - specials_of(reader);
}

/* Words from `first` on that fit together. */
static int64_t words_end(const attn_reader_text *text, int64_t first, int64_t room)
{
    int64_t end = first;
    while (end < text->words && text->starts[end + 1] - text->starts[first] <= room)
        end++;
    return end;
}

int64_t attn_reader_chunks(const attn_reader *reader, const attn_reader_text *text)
{
    const int64_t room = room_of(reader);
    if (!reader->config.tags)
        return text->count > room ? (text->count + room - 1) / room : 1;
    int64_t chunks = 0;
    for (int64_t word = 0, end; word < text->words; word = end, chunks++)
        if ((end = words_end(text, word, room)) == word)
            return 0;
    return chunks > 0 ? chunks : 1;
}

struct builder {
    const attn_reader *reader;
    attn_reader_packed *packed;
    int64_t *chunk_starts, *text_starts, *word_starts, *group_starts;
    int64_t tokens, chunks, pieces, words;
    uint64_t seed;
    double token_dropout;
};

static void add_chunk(struct builder *b, const attn_reader_text *text, int64_t first,
                      int64_t end)
{
    int32_t *const ids = b->packed->ids;
    if (b->reader->bert)
        ids[b->tokens++] = ATTN_TOKEN_BOS;
    for (int64_t i = first; i < end; i++) {
        const bool drops = b->token_dropout > 0.0 &&
                           attn_mix_unit(b->seed, (uint64_t)b->tokens) < b->token_dropout;
        b->packed->pieces[b->pieces++] = (int32_t)b->tokens;
        ids[b->tokens++] = drops ? ATTN_TOKEN_UNK : text->ids[i];
    }
    if (specials_of(b->reader) > 0)
        ids[b->tokens++] = ATTN_TOKEN_EOS;
    b->chunk_starts[++b->chunks] = b->tokens;
}

static void add_words(struct builder *b, const attn_reader_text *text)
{
    const int64_t room = room_of(b->reader);
    for (int64_t word = 0, end; word < text->words; word = end) {
        const int64_t piece = b->pieces;
        end = words_end(text, word, room);
        for (int64_t w = word; w < end; w++)
            b->word_starts[++b->words] = piece + text->starts[w + 1] - text->starts[word];
        add_chunk(b, text, text->starts[word], text->starts[end]);
        b->group_starts[b->chunks] = b->words;
    }
}

static void add_text(struct builder *b, const attn_reader_text *text, int64_t number)
{
    const int64_t chunks = attn_reader_chunks(b->reader, text);
    for (int64_t c = 0; c < chunks; c++)
        add_chunk(b, text, text->count * c / chunks, text->count * (c + 1) / chunks);
    b->text_starts[number + 1] = b->chunks;
}

/* [count + 1], the first 0; what is asked for twice is not taken twice. */
static int64_t *starts_allocate(attn_tape *tape, int64_t count)
{
    int64_t *const starts =
        attn_tape_allocate(tape, ((size_t)count + 1) * sizeof *starts);
    if (starts)
        starts[0] = 0;
    return starts;
}

/* Memory for that many; false after failing the tape. */
static bool builder_allocate(struct builder *b, attn_tape *tape, int64_t texts,
                             int64_t tokens, int64_t chunks, int64_t words)
{
    if (tokens > INT32_MAX) {
        attn_tape_fail(tape, ATTN_EINVAL,
                       "attn_reader_logits: %lld tokens, expected at most %ld",
                       (long long)tokens, (long)INT32_MAX);
        return false;
    }
    b->packed->ids = attn_tape_allocate(tape, ((size_t)tokens + 1) * sizeof(int32_t));
    b->packed->pieces = attn_tape_allocate(tape, ((size_t)tokens + 1) * sizeof(int32_t));
    b->chunk_starts = starts_allocate(tape, chunks);
    b->text_starts = starts_allocate(tape, texts);
    b->word_starts = starts_allocate(tape, words);
    b->group_starts = starts_allocate(tape, chunks);
    return b->packed->ids && b->packed->pieces && b->chunk_starts && b->text_starts &&
           b->word_starts && b->group_starts;
}

static bool text_fits(const attn_reader *reader, attn_tape *tape,
                      const attn_reader_text *text, int64_t number)
{
    if (attn_reader_chunks(reader, text) > 0)
        return true;
    attn_tape_fail(tape, ATTN_EINVAL,
                   "attn_reader_logits: text %lld has a word of more tokens than the "
                   "model's positions hold, %lld",
                   (long long)number, (long long)room_of(reader));
    return false;
}

bool attn_reader_pack(const attn_reader *reader, attn_tape *tape,
                      const attn_reader_text *texts, int64_t count,
                      attn_reader_packed *packed)
{
    int64_t chunks = 0, tokens = 0, words = 0;
    for (int64_t n = 0; n < count; n++) {
        if (!text_fits(reader, tape, &texts[n], n))
            return false;
        chunks += attn_reader_chunks(reader, &texts[n]);
        tokens += texts[n].count;
        words += reader->config.tags ? texts[n].words : 0;
    }
    *packed = (attn_reader_packed){0};
    struct builder b = {.reader = reader, .packed = packed};
    if (!builder_allocate(&b, tape, count, tokens + chunks * specials_of(reader), chunks,
                          words))
        return false;
    if (attn_tape_training(tape) && reader->config.token_dropout > 0.0f) {
        b.token_dropout = (double)reader->config.token_dropout;
        b.seed = attn_tape_next_seed(tape);
    }
    for (int64_t n = 0; n < count; n++) {
        if (reader->config.tags)
            add_words(&b, &texts[n]);
        else
            add_text(&b, &texts[n], n);
    }
    packed->chunks = (attn_packing){b.chunks, b.chunk_starts};
    packed->texts = (attn_packing){count, b.text_starts};
    packed->words = (attn_packing){b.words, b.word_starts};
    packed->groups = (attn_packing){b.chunks, b.group_starts};
    return true;
}

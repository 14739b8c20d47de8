/* Byte-level BPE: ids, places, decoding, and every way a tokenizer.json can be wrong. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "file/utf8.h"
#include "tests/folder.h"
#include "tests/python.h"
#include "text/bytes.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static attn_error error;
static const char *script; /* what compares with Python */

static const char *const training[] = {
    "The cat was hungry.",
    "The cats, hungry as ever, were sitting on the mat.",
    "Don't you know? I don't; they'll know.",
    "C'est l'histoire d'un chat qui avait faim.",
    "Le chat était assis sur le tapis, et le tapis était à lui.",
    "1234567 12345 1234",
    "Việt Nam, tiếng Việt",
    "猫很饿。猫坐在垫子上。",
    "😀😀 😀",
    "  two  spaces\n\nand lines\n",
    "sitting hitting fitting",
    "the the the then there these",
};
enum { TRAINING = sizeof training / sizeof *training, VOCABULARY = 320 };
static attn_tokenizer *trained;

#define CHECK(expression) check_ok(expression, #expression, __LINE__)

static void check_ok(attn_status status, const char *what, int line)
{
    if (status != ATTN_OK)
        fail_msg("line %d: %s: %s", line, what, error.message);
}

/* Small deterministic numbers. */
static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t end)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % end;
}

/* ---- Encoding -------------------------------------------------------------------- */

/* Encodes, and checks that the places cover the text and hold the tokens' bytes. */
static size_t encode(const char *text, size_t length, int32_t *ids, size_t room)
{
    attn_token *tokens;
    size_t count;
    CHECK(attn_tokenizer_encode(trained, text, length, &tokens, &count, &error));
    int64_t at = 0;
    assert_true(count <= room);
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t token_length;
        bool special;
        CHECK(attn_tokenizer_bytes(trained, tokens[i].id, &bytes, &token_length, &special,
                                   &error));
        assert_false(special);
        assert_int_equal(tokens[i].begin, at);
        at = tokens[i].end;
        assert_int_equal(at - tokens[i].begin, token_length);
        assert_memory_equal(text + tokens[i].begin, bytes, token_length);
        ids[i] = tokens[i].id;
    }
    assert_int_equal(at, length);
    free(tokens);
    return count;
}

static void texts_get_the_ids_that_tokenizers_gives(void **state)
{
    (void)state;
    /* From tokenizers 0.23.3, encode_special_tokens, with this tokenizer's file. */
    static const struct {
        const char *text;
        size_t count;
        int32_t ids[24];
    } cases[] = {
        {"", 0, {0}},
        {" ", 1, {224}},
        {"  a", 3, {224, 224, 68}},
        {"a\012\012b", 4, {68, 202, 202, 69}},
        {"don't", 3, {71, 278, 288}},
        {"DON'T", 5, {39, 50, 49, 10, 55}},
        {"Vi\341\273\207t", 2, {316, 87}},
        {" Vi\341\273\207t", 3, {224, 316, 87}},
        {"Vie\314\202\314\243t", 8, {57, 76, 72, 140, 228, 140, 100, 87}},
        {"\360\237\230\200", 1, {287}},
        {"1234567", 4, {286, 24, 25, 26}},
        {"a</s>b", 6, {68, 31, 18, 86, 33, 69}},
        {"They'll be hungry\011!",
         12,
         {289, 92, 10, 79, 79, 224, 69, 72, 314, 295, 201, 4}},
        {"c'est l\342\200\231histoire",
         14,
         {70, 10, 276, 87, 266, 162, 226, 251, 75, 267, 87, 82, 76, 279}},
        {"\302\240x\341\240\216y\302\205",
         9,
         {130, 258, 91, 161, 258, 240, 92, 130, 231}},
        {"\347\214\253\344\270\255", 5, {302, 108, 164, 120, 259}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t ids[64];
        const size_t count = encode(cases[i].text, strlen(cases[i].text), ids, 64);
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(ids, cases[i].ids, count * sizeof *ids);
    }
}

static void every_byte_and_any_text_comes_back(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[1100];
        size_t length = 0;
        while (length < 1000 && (length == 0 || random_below(40) > 0)) {
            static const uint32_t ends[] = {0x80, 0x250, 0x3100, 0xD800, 0x110000};
            const uint32_t character = random_below(ends[random_below(5)]);
            if (character < 0xD800 || character > 0xDFFF)
                length += attn_utf8_write(character, text + length);
        }
        int32_t ids[1100];
        const size_t count = encode(text, length, ids, 1100);
        char *back;
        CHECK(attn_tokenizer_decode(trained, ids, count, &back, &error));
        assert_memory_equal(back, text, length);
        assert_int_equal(back[length], 0);
        free(back);
    }
}

static void a_special_in_a_text_is_text(void **state)
{
    (void)state;
    static const char *const texts[] = {"</s>", "a</s>b", "<s><pad></s><unk>", " <s> "};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t ids[64];
        const size_t count = encode(texts[i], strlen(texts[i]), ids, 64);
        for (size_t j = 0; j < count; j++)
            assert_true(ids[j] > ATTN_TOKEN_UNK);
    }
}

static void an_empty_text_has_no_tokens_and_memory_to_free(void **state)
{
    (void)state;
    attn_token *tokens;
    size_t count = 9;
    CHECK(attn_tokenizer_encode(trained, "", 0, &tokens, &count, &error));
    assert_int_equal(count, 0);
    assert_non_null(tokens);
    free(tokens);
}

static void text_that_is_not_utf8_is_refused_with_its_place(void **state)
{
    (void)state;
    attn_token *tokens;
    size_t count;
    assert_int_equal(
        attn_tokenizer_encode(trained, "abc\xC0\x80", 5, &tokens, &count, &error),
        ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "byte 4 (0xC0)"));
    assert_int_equal(
        attn_tokenizer_encode(trained, "\xE4\xB8", 2, &tokens, &count, &error),
        ATTN_EFORMAT);
}

/* A heap, not a scan for each merge: a megabyte without a space takes about as long as
 * one with them. */
static void a_megabyte_without_a_space_takes_no_longer_than_one_with(void **state)
{
    (void)state;
    enum { LENGTH = 1 << 20 };
    char *const text = malloc(LENGTH);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < LENGTH; i++)
            text[i] = kind == 0 ? "the "[i % 4] : kind == 1 ? "hit"[i % 3] : ' ';
        const clock_t start = clock();
        attn_token *tokens;
        size_t count;
        CHECK(attn_tokenizer_encode(trained, text, LENGTH, &tokens, &count, &error));
        assert_int_equal(tokens[count - 1].end, LENGTH);
        assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 10.0); /* ASan's, too */
        free(tokens);
    }
    free(text);
}

/* ---- Decoding -------------------------------------------------------------------- */

static int32_t id_of_byte(unsigned char byte)
{
    for (int32_t id = 4; id < 260; id++) {
        const char *bytes;
        size_t length;
        bool special;
        CHECK(attn_tokenizer_bytes(trained, id, &bytes, &length, &special, &error));
        assert_int_equal(length, 1);
        if ((unsigned char)bytes[0] == byte)
            return id;
    }
    fail_msg("no token for byte 0x%02X", byte);
    return -1;
}

static void ids_decode_to_text_with_replacements_and_without_specials(void **state)
{
    (void)state;
    const int32_t broken[] = {
        ATTN_TOKEN_BOS,   id_of_byte(0xF0), id_of_byte(0x9F),
        id_of_byte(0x98), id_of_byte('A'),  ATTN_TOKEN_EOS,
        id_of_byte(0xC0), id_of_byte(0x80), ATTN_TOKEN_PAD,
    };
    char *text;
    CHECK(attn_tokenizer_decode(trained, broken, sizeof broken / sizeof *broken, &text,
                                &error));
    assert_string_equal(text, "\xEF\xBF\xBD"
                              "A\xEF\xBF\xBD\xEF\xBF\xBD");
    free(text);
    CHECK(attn_tokenizer_decode(trained, NULL, 0, &text, &error));
    assert_string_equal(text, "");
    free(text);
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    (void)state;
    const int32_t outside[] = {-1, (int32_t)attn_tokenizer_size(trained), INT32_MAX};
    for (int i = 0; i < 3; i++) {
        char *text;
        const char *bytes;
        size_t length;
        bool special;
        assert_int_equal(attn_tokenizer_decode(trained, &outside[i], 1, &text, &error),
                         ATTN_EINVAL);
        assert_non_null(strstr(error.message, "expected 0 to 319"));
        assert_int_equal(
            attn_tokenizer_bytes(trained, outside[i], &bytes, &length, &special, &error),
            ATTN_EINVAL);
    }
    const char *bytes;
    size_t length;
    bool special;
    CHECK(
        attn_tokenizer_bytes(trained, ATTN_TOKEN_EOS, &bytes, &length, &special, &error));
    assert_true(special && length == 4 && strcmp(bytes, "</s>") == 0);
}

static void the_alphabet_is_a_bijection(void **state)
{
    (void)state;
    int seen = 0;
    for (uint32_t character = 0; character < 0x200; character++) {
        const int byte = attn_character_to_byte(character);
        if (byte >= 0)
            assert_int_equal(attn_byte_to_character((uint8_t)byte), character);
        seen += byte >= 0;
    }
    assert_int_equal(seen, 256);
    assert_int_equal(attn_byte_to_character(' '), 0x120);
    assert_int_equal(attn_byte_to_character(0xAD), 0x143);
}

/* ---- Training -------------------------------------------------------------------- */

static void training_twice_gives_the_same_file(void **state)
{
    (void)state;
    attn_tokenizer *again;
    char *first, *second;
    size_t first_length, second_length;
    CHECK(attn_tokenizer_train(&again, training, TRAINING, VOCABULARY, &error));
    CHECK(attn_tokenizer_save(trained, in_folder("first"), &error));
    CHECK(attn_tokenizer_save(again, in_folder("second"), &error));
    CHECK(attn_file_read(in_folder("first"), 1 << 20, &first, &first_length, &error));
    CHECK(attn_file_read(in_folder("second"), 1 << 20, &second, &second_length, &error));
    assert_string_equal(first, second);
    attn_tokenizer_destroy(again);
    free(first);
    free(second);
}

static void a_vocabulary_ends_where_no_pair_comes_twice(void **state)
{
    (void)state;
    static const char *const texts[] = {"abab", "xy"};
    attn_tokenizer *small;
    CHECK(attn_tokenizer_train(&small, texts, 2, 1000, &error));
    assert_int_equal(attn_tokenizer_size(small), 261); /* "ab" and no more */
    attn_tokenizer_destroy(small);
    CHECK(attn_tokenizer_train(&small, NULL, 0, 260, &error));
    assert_int_equal(attn_tokenizer_size(small), 260);
    attn_tokenizer_destroy(small);
    assert_int_equal(attn_tokenizer_train(&small, texts, 2, 259, &error), ATTN_EINVAL);
    assert_non_null(strstr(error.message, "vocabulary is 259, expected at least 260"));
    static const char *const broken[] = {"ok", "not \xFF ok"};
    assert_int_equal(attn_tokenizer_train(&small, broken, 2, 300, &error), ATTN_EFORMAT);
    assert_string_equal(error.message, "text 1 is not UTF-8 at byte 5");
    assert_null(small);
}

/* ---- Files ----------------------------------------------------------------------- */

static char *saved_text(void)
{
    char *text;
    size_t length;
    CHECK(attn_tokenizer_save(trained, in_folder("tokenizer.json"), &error));
    CHECK(attn_file_read(in_folder("tokenizer.json"), 1 << 20, &text, &length, &error));
    return text;
}

static void a_saved_tokenizer_loads_as_it_was(void **state)
{
    (void)state;
    free(saved_text());
    attn_tokenizer *loaded;
    CHECK(attn_tokenizer_load(&loaded, in_folder("tokenizer.json"), &error));
    assert_int_equal(attn_tokenizer_size(loaded), attn_tokenizer_size(trained));
    attn_tokenizer *const kept = trained;
    for (size_t i = 0; i < TRAINING; i++) {
        int32_t ids[256], again[256];
        const size_t count = encode(training[i], strlen(training[i]), ids, 256);
        trained = loaded;
        assert_int_equal(encode(training[i], strlen(training[i]), again, 256), count);
        trained = kept;
        assert_memory_equal(ids, again, count * sizeof *ids);
    }
    attn_tokenizer_destroy(loaded);
}

/* Loads the saved file with `old` replaced, where it stands first. */
static attn_status load_with(const char *old, const char *new)
{
    char *const text = saved_text();
    char *const at = strstr(text, old);
    if (!at)
        fail_msg("%s is not in the file", old);
    const size_t length = strlen(text) + strlen(new) + 1;
    char *const changed = malloc(length);
    snprintf(changed, length, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    CHECK(attn_file_write(in_folder("changed.json"), changed, strlen(changed), &error));
    free(text);
    free(changed);
    attn_tokenizer *loaded;
    const attn_status status =
        attn_tokenizer_load(&loaded, in_folder("changed.json"), &error);
    attn_tokenizer_destroy(loaded);
    return status;
}

/* Characters whose small letters take more bytes (U+023A), fewer (U+1E9E, U+212A), or are
 * two (U+0130). */
static void a_tokenizer_of_small_letters_keeps_the_places_of_the_text(void **state)
{
    (void)state;
    static const char text[] =
        "THE \xC8\xBA \xE1\xBA\x9E \xE2\x84\xAA \xC4\xB0 \xC3\x89TAIT";
    static const char lower[] = "the \xE2\xB1\xA5 \xC3\x9F k i\xCC\x87 \xC3\xA9tait";
    attn_tokenizer *lowers;
    attn_token *tokens, *expected;
    size_t count, expected_count;
    CHECK(attn_tokenizer_save(trained, in_folder("saved.json"), &error));
    CHECK(attn_tokenizer_load(&lowers, in_folder("saved.json"), &error));
    assert_false(attn_tokenizer_lowers(lowers));
    attn_tokenizer_lower_case(lowers);
    CHECK(attn_tokenizer_save(lowers, in_folder("lowers.json"), &error));
    attn_tokenizer_destroy(lowers);
    CHECK(attn_tokenizer_load(&lowers, in_folder("lowers.json"), &error));
    assert_true(attn_tokenizer_lowers(lowers));
    CHECK(attn_tokenizer_encode(lowers, text, strlen(text), &tokens, &count, &error));
    CHECK(attn_tokenizer_encode(trained, lower, strlen(lower), &expected, &expected_count,
                                &error));
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tokens[i].id, expected[i].id);
        if (expected[i].end <= 3) /* THE */
            assert_int_equal(tokens[i].end, expected[i].end);
        assert_int_equal(tokens[i].begin, i > 0 ? tokens[i - 1].end : 0);
        assert_true(tokens[i].end >= tokens[i].begin);
    }
    assert_int_equal(tokens[count - 1].end, strlen(text));
    free(tokens);
    free(expected);
    attn_tokenizer_destroy(lowers);
}

static void wrong_files_are_named_by_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *reason;
    } cases[] = {
        {"\"type\": \"BPE\"", "\"type\": \"Unigram\"",
         "model.type is Unigram, expected BPE"},
        {"\"model\"", "\"modell\"", "no \"model\" object"},
        {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}",
         "normalizer has type NFC, expected null or Lowercase"},
        {"\"dropout\": null", "\"dropout\": 0.1", "dropout is set"},
        {"\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback is set"},
        {"\"ignore_merges\": false", "\"ignore_merges\": true", "ignore_merges is set"},
        {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"",
         "end_of_word_suffix is set"},
        {"\"truncation\": null", "\"truncation\": {\"max_length\": 4}",
         "truncation is set"},
        {"\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space"},
        {"\"use_regex\": true", "\"use_regex\": false", "use_regex is false"},
        {"\"type\": \"ByteLevel\"", "\"type\": \"Whitespace\"",
         "pre_tokenizer has type Whitespace"},
        {"\"id\": 0", "\"id\": 1", "added_tokens[0]"},
        {"\"special\": true", "\"special\": false", "added_tokens[0].special"},
        {"\"content\": \"<pad>\"", "\"content\": \"<mask>\"",
         "added_tokens[1] is \"<mask>\""},
        {"\"<pad>\": 1", "\"<pad>\": 0", "share id 0"},
        {"\"<pad>\": 1", "\"<pad>\": 320", "expected a whole number from 0 to 319"},
        {"\"<pad>\": 1", "\"<pad>\": -1", "expected a whole number from 0 to 319"},
        {"\"<pad>\": 1", "\"<pad>\": 1.5", "expected a whole number from 0 to 319"},
        {"\"<pad>\": 1", "\"<pad>\": 99999999999999999999", "not JSON"},
        {"\"<pad>\": 1", "\"<pod>\": 1", "id 1 is \"<pod>\", expected \"<pad>\""},
        {"\"<pad>\": 1", "\"<s>\": 1", "not JSON: duplicate object key"},
        {"\"!\": 4", "\"!!\": 4", "no token for byte 0x21"},
        {"\"!\": 4", "\"中\": 4", "has U+4E2D, which stands for no byte"},
        {"\"!\": 4", "\"\": 4", "a token of model.vocab is empty"},
        {"\"merges\": [", "\"merges\": [\"t\",", "model.merges[0] is not two tokens"},
        {"\"merges\": [", "\"merges\": [\"t h e\",", "model.merges[0] is not two tokens"},
        {"\"merges\": [", "\"merges\": [[\"t\"],", "model.merges[0] is not two tokens"},
        {"\"merges\": [", "\"merges\": [7,", "model.merges[0] is not two tokens"},
        {"\"merges\": [", "\"merges\": [\"t qqq\",",
         "names \"qqq\", which is no token of text"},
        {"\"merges\": [", "\"merges\": [\"<s> t\",",
         "names \"<s>\", which is no token of text"},
        {"\"merges\": [", "\"merges\": [\"q q\",",
         "makes \"qq\", which is no token of text"},
        {"\"merges\": [", "\"merges\": [\"h e\",", "repeats an earlier one"},
        {"\"merges\": [", "\"merges\": 3, \"x\": [", "no \"merges\" array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_status status = load_with(cases[i].old, cases[i].new);
        if (status != ATTN_EFORMAT)
            fail_msg("%s gives %s", cases[i].new, attn_status_name(status));
        if (!strstr(error.message, cases[i].reason))
            fail_msg("%s says \"%s\", expected \"%s\"", cases[i].new, error.message,
                     cases[i].reason);
    }
}

static void both_forms_of_merges_are_read(void **state)
{
    (void)state;
    char *text = saved_text();
    char *merge = strchr(strstr(text, "\"merges\": ["), '[') + 1;
    merge += strspn(merge, " \n");
    char line[64], pair[96];
    snprintf(line, sizeof line, "%.*s", (int)(strcspn(merge + 1, "\"") + 2), merge);
    const char *const space = strchr(line, ' ');
    snprintf(pair, sizeof pair, "[%.*s\", \"%s]", (int)(space - line), line, space + 1);
    assert_int_equal(load_with(line, pair), ATTN_OK);
    free(text);
}

static void files_that_are_no_tokenizers_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "7",
                                        "{}",
                                        "\xFF",
                                        "{\"model\": []}",
                                        "{\"model\": {\"type\": \"BPE\"}}"};
    attn_tokenizer *loaded;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK(attn_file_write(in_folder("bad.json"), texts[i], strlen(texts[i]), &error));
        assert_int_equal(attn_tokenizer_load(&loaded, in_folder("bad.json"), &error),
                         ATTN_EFORMAT);
        assert_null(loaded);
    }
    enum { DEEP = 1 << 20 };
    char *const deep = malloc(DEEP);
    memset(deep, '[', DEEP);
    CHECK(attn_file_write(in_folder("bad.json"), deep, DEEP, &error));
    free(deep);
    assert_int_equal(attn_tokenizer_load(&loaded, in_folder("bad.json"), &error),
                     ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "maximum parsing depth"));
    assert_int_equal(attn_tokenizer_load(&loaded, in_folder("absent"), &error), ATTN_EIO);
}

/* A tokenizer that loads can encode, whatever was changed in its file. */
static void random_damage_is_refused_or_harmless(void **state)
{
    (void)state;
    char *const text = saved_text();
    const size_t length = strlen(text);
    static const char bits[] = "{}[]\":, 0123456789-eE.\\utrfalsn\xC4\xFF";
    size_t accepted = 0;
    for (int round = 0; round < 300; round++) {
        char *const damaged = malloc(length + 1);
        memcpy(damaged, text, length + 1);
        for (uint32_t i = random_below(3) + 1; i > 0; i--)
            damaged[random_below((uint32_t)length)] = bits[random_below(sizeof bits - 1)];
        const size_t kept =
            random_below(4) == 0 ? random_below((uint32_t)length) : length;
        CHECK(attn_file_write(in_folder("damaged.json"), damaged, kept, &error));
        free(damaged);
        attn_tokenizer *loaded;
        const attn_status status =
            attn_tokenizer_load(&loaded, in_folder("damaged.json"), &error);
        assert_true(status == ATTN_OK || status == ATTN_EFORMAT);
        if (status != ATTN_OK)
            continue;
        accepted++;
        attn_token *tokens;
        size_t count;
        CHECK(attn_tokenizer_encode(loaded, training[0], strlen(training[0]), &tokens,
                                    &count, &error));
        free(tokens);
        attn_tokenizer_destroy(loaded);
    }
    free(text);
    assert_true(accepted < 300);
}

/* ---- Python ---------------------------------------------------------------------- */

static void put_record(FILE *file, const void *data, size_t bytes)
{
    const int32_t size = (int32_t)bytes;
    fwrite(&size, sizeof size, 1, file);
    fwrite(data, 1, bytes, file);
}

static FILE *create(const char *name)
{
    FILE *const file = fopen(in_folder(name), "wb");
    assert_non_null(file);
    return file;
}

/* Text that splits in every way: contractions, runs of white space, scripts, marks. */
static size_t nasty_text(char *text)
{
    static const char *const pieces[] = {
        "'s",
        "'t",
        "'re",
        "'ve",
        "'m",
        "'ll",
        "'d",
        "'S",
        "'",
        "’",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\x0B",
        "a",
        "e",
        "the",
        "The",
        " cat",
        "hungry",
        "é",
        "è",
        "ç",
        "e\xCC\x81",
        "Vi\xE1\xBB\x87t",
        "1",
        "23",
        "½",
        "٣",
        "Ⅷ",
        "中",
        "猫",
        "ねこ",
        "한",
        "שלום",
        "مرحبا",
        "😀",
        "👩‍👩‍👧",
        "🇫🇷",
        "\xC2\x85",
        "\xC2\xA0",
        "\xE1\xA0\x8E",
        "\xE2\x80\xA8",
        "\xE3\x80\x80",
        "\xE2\x80\x8B",
        "\xEF\xBB\xBF",
        ".",
        ",",
        "...",
        "!?",
        "<",
        "/",
        "s",
        ">",
        "</s>",
        "<pad>",
        "\x01",
        "\x7F",
        "\xF0\xB1\x8D\x90" /* a letter since Unicode 15 */,
        "\xF0\x9E\x93\xB0" /* a digit since Unicode 15 */,
    };
    size_t length = 0;
    for (uint32_t i = random_below(24); i > 0; i--) {
        const char *const piece = pieces[random_below(sizeof pieces / sizeof *pieces)];
        memcpy(text + length, piece, strlen(piece));
        length += strlen(piece);
    }
    return length;
}

static void ids_and_texts_equal_those_of_the_python_package(void **state)
{
    (void)state;
    if (!script) {
        print_message(
            "skipped: ids_and_texts_equal_those_of_the_python_package (no script "
            "given)\n");
        skip();
    }
    if (!python_has("tokenizers"))
        skip();
    CHECK(attn_tokenizer_save(trained, in_folder("tokenizer.json"), &error));
    FILE *const texts = create("texts"), *const ids = create("ids");
    FILE *const some = create("some"), *const decoded = create("decoded");
    FILE *const samples = create("trained");
    for (size_t i = 0; i < TRAINING; i++)
        put_record(samples, training[i], strlen(training[i]));
    const int32_t zero = id_of_byte(0);
    for (int round = 0; round < 8000; round++) {
        char text[1024];
        int32_t list[1024];
        const size_t length = nasty_text(text);
        const size_t count = encode(text, length, list, 1024);
        put_record(texts, text, length);
        put_record(ids, list, count * sizeof *list);
        char *back;
        for (size_t i = 0; i < 12; i++)
            do /* a byte 0 would end the text for strlen */
                list[i] = (int32_t)random_below((uint32_t)attn_tokenizer_size(trained));
            while (list[i] == zero);
        CHECK(attn_tokenizer_decode(trained, list, 12, &back, &error));
        put_record(some, list, 12 * sizeof *list);
        put_record(decoded, back, strlen(back));
        free(back);
    }
    FILE *const files[] = {texts, ids, some, decoded, samples};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(fclose(files[i]), 0);
    assert_int_equal(python_run_file(script, folder), 0);
}

static int start(void **state)
{
    return attn_tokenizer_train(&trained, training, TRAINING, VOCABULARY, &error) ==
                   ATTN_OK
               ? folder_make(state)
               : -1;
}

static int end(void **state)
{
    attn_tokenizer_destroy(trained);
    return folder_remove(state);
}

int main(int argc, char **argv)
{
    script = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_get_the_ids_that_tokenizers_gives),
        cmocka_unit_test(every_byte_and_any_text_comes_back),
        cmocka_unit_test(a_special_in_a_text_is_text),
        cmocka_unit_test(an_empty_text_has_no_tokens_and_memory_to_free),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_with_its_place),
        cmocka_unit_test(a_megabyte_without_a_space_takes_no_longer_than_one_with),
        cmocka_unit_test(ids_decode_to_text_with_replacements_and_without_specials),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(the_alphabet_is_a_bijection),
        cmocka_unit_test(training_twice_gives_the_same_file),
        cmocka_unit_test(a_vocabulary_ends_where_no_pair_comes_twice),
        cmocka_unit_test(a_saved_tokenizer_loads_as_it_was),
        cmocka_unit_test(a_tokenizer_of_small_letters_keeps_the_places_of_the_text),
        cmocka_unit_test(wrong_files_are_named_by_what_is_wrong),
        cmocka_unit_test(both_forms_of_merges_are_read),
        cmocka_unit_test(files_that_are_no_tokenizers_are_refused),
        cmocka_unit_test(random_damage_is_refused_or_harmless),
        cmocka_unit_test(ids_and_texts_equal_those_of_the_python_package),
    };
    return cmocka_run_group_tests(tests, start, end);
}

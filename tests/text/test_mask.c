/* The mask of a tokenizer: what it adds, and that it changes nothing else; with the
 * `tokenizers` package by test_mask.py, the only argument. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "tests/folder.h"
#include "tests/python.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char *script;
static attn_error error;

static const char *const TRAINING[] = {"The cat was hungry.", "The cat sat on the mat.",
                                       "the mask, the mask"};

enum { VOCABULARY = 266 };

static attn_tokenizer *train(void)
{
    attn_tokenizer *tokenizer;
    assert_int_equal(attn_tokenizer_train(&tokenizer, TRAINING, 3, VOCABULARY, &error),
                     ATTN_OK);
    assert_int_equal(attn_tokenizer_size(tokenizer), VOCABULARY);
    return tokenizer;
}

static attn_tokenizer *load(const char *name)
{
    attn_tokenizer *tokenizer;
    if (attn_tokenizer_load(&tokenizer, in_folder(name), &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return tokenizer;
}

static char *saved(const attn_tokenizer *tokenizer, const char *name)
{
    char *text;
    size_t length;
    assert_int_equal(attn_tokenizer_save(tokenizer, in_folder(name), &error), ATTN_OK);
    assert_int_equal(attn_file_read(in_folder(name), 1 << 20, &text, &length, &error),
                     ATTN_OK);
    return text;
}

static size_t encode(const attn_tokenizer *tokenizer, const char *text, int32_t *ids)
{
    attn_token *tokens;
    size_t count;
    assert_int_equal(
        attn_tokenizer_encode(tokenizer, text, strlen(text), &tokens, &count, &error),
        ATTN_OK);
    for (size_t i = 0; i < count; i++)
        ids[i] = tokens[i].id;
    free(tokens);
    return count;
}

static void a_mask_is_the_last_id_and_all_others_stay(void **state)
{
    (void)state;
    attn_tokenizer *const plain = train(), *const masked = train();
    const int64_t size = attn_tokenizer_size(plain);
    assert_int_equal(attn_tokenizer_mask(plain), -1);
    assert_int_equal(attn_tokenizer_add_mask(masked, &error), ATTN_OK);
    assert_int_equal(attn_tokenizer_add_mask(masked, &error), ATTN_OK);
    assert_int_equal(attn_tokenizer_size(masked), size + 1);
    assert_int_equal(attn_tokenizer_mask(masked), size);
    for (int32_t id = 0; id <= size; id++) {
        const char *bytes, *other = "<mask>";
        size_t length, other_length = 6;
        bool special, other_special = true;
        assert_int_equal(
            attn_tokenizer_bytes(masked, id, &bytes, &length, &special, &error), ATTN_OK);
        if (id < size)
            assert_int_equal(attn_tokenizer_bytes(plain, id, &other, &other_length,
                                                  &other_special, &error),
                             ATTN_OK);
        assert_int_equal(length, other_length);
        assert_memory_equal(bytes, other, length);
        assert_int_equal(special, other_special);
    }
    attn_tokenizer_destroy(plain);
    attn_tokenizer_destroy(masked);
}

static void a_mask_is_never_made_from_a_text_nor_decoded_to_one(void **state)
{
    (void)state;
    attn_tokenizer *const tokenizer = train();
    int32_t ids[32];
    char *text;
    assert_int_equal(attn_tokenizer_add_mask(tokenizer, &error), ATTN_OK);
    const size_t count = encode(tokenizer, "the <mask>", ids);
    for (size_t i = 0; i < count; i++)
        assert_int_not_equal(ids[i], attn_tokenizer_mask(tokenizer));
    ids[count] = attn_tokenizer_mask(tokenizer);
    assert_int_equal(attn_tokenizer_decode(tokenizer, ids, count + 1, &text, &error),
                     ATTN_OK);
    assert_string_equal(text, "the <mask>");
    free(text);
    attn_tokenizer_destroy(tokenizer);
}

static void what_is_saved_comes_back(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        attn_tokenizer *const tokenizer = train();
        attn_tokenizer_frame(tokenizer, (attn_text_frame)(kind % 3));
        if (kind == 3)
            assert_int_equal(attn_tokenizer_add_mask(tokenizer, &error), ATTN_OK);
        char *const first = saved(tokenizer, "tokenizer.json");
        attn_tokenizer *const loaded = load("tokenizer.json");
        char *const second = saved(loaded, "again.json");
        assert_int_equal(attn_tokenizer_mask(loaded), attn_tokenizer_mask(tokenizer));
        assert_string_equal(first, second);
        assert_int_equal(strstr(first, "<mask>") != NULL, kind == 3);
        assert_int_equal(strstr(first, "\"id\": \"<s>\"") != NULL, kind > 0);
        assert_int_equal(strstr(first, "\"id\": \"</s>\"") != NULL, kind != 2);
        attn_tokenizer_destroy(tokenizer);
        attn_tokenizer_destroy(loaded);
        free(first);
        free(second);
    }
}

static void refuses_with(const char *old, const char *new, const char *reason)
{
    attn_tokenizer *tokenizer = train();
    assert_int_equal(attn_tokenizer_add_mask(tokenizer, &error), ATTN_OK);
    char *const text = saved(tokenizer, "tokenizer.json"), changed[1 << 16];
    attn_tokenizer_destroy(tokenizer);
    const char *const at = strstr(text, old);
    assert_non_null(at);
    const int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text),
                                text, new, at + strlen(old));
    assert_true(length > 0 && (size_t)length < sizeof changed);
    assert_int_equal(
        attn_file_write(in_folder("wrong.json"), changed, (size_t)length, &error),
        ATTN_OK);
    assert_int_equal(attn_tokenizer_load(&tokenizer, in_folder("wrong.json"), &error),
                     ATTN_EFORMAT);
    assert_null(tokenizer);
    if (!strstr(error.message, reason))
        fail_msg("\"%s\" without \"%s\"", error.message, reason);
    free(text);
}

static void a_mask_elsewhere_is_refused(void **state)
{
    (void)state;
    refuses_with("\"content\": \"<mask>\"", "\"content\": \"<MASK>\"",
                 "added_tokens[4] is \"<MASK>\", expected \"<mask>\"");
    refuses_with("\"id\": 266", "\"id\": 265", "added_tokens[4] is \"<mask>\"");
    refuses_with("\"<mask>\": 266", "\"<mosk>\": 266",
                 "id 266 is \"<mosk>\", expected \"<mask>\"");
    refuses_with("\"merges\": [", "\"merges\": [\"<mask> t\",",
                 "names \"<mask>\", which is no token of text");
}

static void a_token_of_text_of_that_name_is_refused(void **state)
{
    (void)state;
    attn_tokenizer *tokenizer = train();
    assert_int_equal(attn_tokenizer_add_mask(tokenizer, &error), ATTN_OK);
    char *const text = saved(tokenizer, "tokenizer.json");
    attn_tokenizer_destroy(tokenizer);
    /* The entry of added_tokens goes, the name in the vocabulary stays. */
    char *const entry = strstr(text, "\"id\": 266");
    assert_non_null(entry);
    char *begin = entry, *const end = strchr(entry, '}');
    while (*begin != ',')
        begin--;
    memmove(begin, end + 1, strlen(end + 1) + 1);
    assert_int_equal(attn_file_write(in_folder("text.json"), text, strlen(text), &error),
                     ATTN_OK);
    tokenizer = load("text.json");
    assert_int_equal(attn_tokenizer_mask(tokenizer), -1);
    assert_int_equal(attn_tokenizer_add_mask(tokenizer, &error), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "token 266 of text is \"<mask>\" already"));
    attn_tokenizer_destroy(tokenizer);
    free(text);
}

static void put_ids(FILE *file, const attn_tokenizer *tokenizer, const char *text)
{
    int32_t ids[32];
    const size_t count = encode(tokenizer, text, ids);
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%d ", (int)ids[i]);
    fputc('\n', file);
}

static void the_python_package_reads_it_so(void **state)
{
    (void)state;
    if (!python_has("tokenizers"))
        skip();
    attn_tokenizer *const tokenizer = train();
    assert_int_equal(attn_tokenizer_add_mask(tokenizer, &error), ATTN_OK);
    free(saved(tokenizer, "tokenizer.json"));
    FILE *const file = fopen(in_folder("expected.txt"), "w");
    assert_non_null(file);
    put_ids(file, tokenizer, "The cat");
    put_ids(file, tokenizer, " on");
    put_ids(file, tokenizer, "!");
    fprintf(file, "%d\n", (int)attn_tokenizer_mask(tokenizer));
    fclose(file);
    assert_int_equal(python_run_file(script, folder), 0);
    attn_tokenizer_destroy(tokenizer);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_is_the_last_id_and_all_others_stay),
        cmocka_unit_test(a_mask_is_never_made_from_a_text_nor_decoded_to_one),
        cmocka_unit_test(what_is_saved_comes_back),
        cmocka_unit_test(a_mask_elsewhere_is_refused),
        cmocka_unit_test(a_token_of_text_of_that_name_is_refused),
        cmocka_unit_test(the_python_package_reads_it_so),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: %s test_mask.py\n", argv[0]);
        return 2;
    }
    script = argv[1];
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

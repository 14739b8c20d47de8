/* idx files say what they hold, and are held to it. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "file/idx.h"
#include "tests/folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
#include <zlib.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static attn_error error;

static const unsigned char SMALL[] = {0, 0, 8, 2, 0, 0, 0, 2, 0,
                                      0, 0, 3, 1, 2, 3, 4, 5, 255};

static void refuses(const void *data, size_t length, int rank, const char *reason)
{
    attn_idx idx;
    const char *const path = in_folder("bad.idx");
    assert_int_equal(attn_file_write(path, data, length, &error), ATTN_OK);
    assert_int_equal(attn_idx_load(&idx, path, rank, &error), ATTN_EFORMAT);
    if (!strstr(error.message, reason))
        fail_msg("\"%s\" does not say \"%s\"", error.message, reason);
    assert_null(idx.bytes);
}

static void holds_small(const char *path)
{
    attn_idx idx;
    if (attn_idx_load(&idx, path, 2, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(idx.rank, 2);
    assert_int_equal(idx.extent[0], 2);
    assert_int_equal(idx.extent[1], 3);
    assert_memory_equal(idx.bytes, SMALL + 12, 6);
    attn_idx_free(&idx);
}

static void extents_and_bytes_are_read(void **state)
{
    (void)state;
    const char *const path = in_folder("small.idx");
    assert_int_equal(attn_file_write(path, SMALL, sizeof SMALL, &error), ATTN_OK);
    holds_small(path);
}

static void a_gz_file_is_unpacked(void **state)
{
    (void)state;
    const char *const path = in_folder("small.idx.gz");
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, SMALL, sizeof SMALL), sizeof SMALL);
    gzclose(file);
    holds_small(path);
}

static void append_gz(const char *path, const void *data, size_t length)
{
    gzFile file = gzopen(path, "ab");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)length), (int)length);
    gzclose(file);
}

static void a_gz_file_of_several_is_all_of_them_and_nothing_else_may_follow(void **state)
{
    (void)state;
    attn_idx idx;
    char *data;
    size_t length;
    const char *const path = in_folder("several.idx.gz");
    append_gz(path, SMALL, 5);
    append_gz(path, SMALL + 5, sizeof SMALL - 5);
    holds_small(path);
    assert_int_equal(attn_file_read(path, 1 << 20, &data, &length, &error), ATTN_OK);
    data[length] = 'x';
    assert_int_equal(attn_file_write(path, data, length + 1, &error), ATTN_OK);
    assert_int_equal(attn_idx_load(&idx, path, 2, &error), ATTN_EFORMAT);
    free(data);
}

static void a_gz_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    attn_idx idx;
    char *data;
    size_t length;
    const char *const path = in_folder("small.idx.gz"), *const cut = in_folder("c.gz");
    assert_int_equal(attn_file_read(path, 1 << 20, &data, &length, &error), ATTN_OK);
    for (size_t n = 0; n < length; n++) {
        assert_int_equal(attn_file_write(cut, data, n, &error), ATTN_OK);
        assert_int_equal(attn_idx_load(&idx, cut, 2, &error), ATTN_EFORMAT);
    }
    free(data);
}

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof SMALL; n++)
        refuses(SMALL, n, 2, "expected");
}

static void another_rank_type_or_size_is_refused(void **state)
{
    (void)state;
    unsigned char bad[sizeof SMALL + 1];
    refuses(SMALL, sizeof SMALL, 1, "rank 2");
    memcpy(bad, SMALL, sizeof SMALL);
    bad[sizeof SMALL] = 0;
    refuses(bad, sizeof bad, 2, "has 7 bytes of content, expected 6");
    bad[2] = 9;
    refuses(bad, sizeof SMALL, 2, "00 00 08");
}

static void extents_whose_product_wraps_are_refused(void **state)
{
    (void)state;
    static const unsigned char bad[16] = {0,   0,   8,   3,   255, 255, 255, 255,
                                          255, 255, 255, 255, 255, 255, 255, 255};
    refuses(bad, sizeof bad, 3, "expected");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_and_bytes_are_read),
        cmocka_unit_test(a_gz_file_is_unpacked),
        cmocka_unit_test(a_gz_file_of_several_is_all_of_them_and_nothing_else_may_follow),
        cmocka_unit_test(a_gz_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(another_rank_type_or_size_is_refused),
        cmocka_unit_test(extents_whose_product_wraps_are_refused),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

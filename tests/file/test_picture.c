/* Pictures come back from PNG as they went, and what is no picture is refused. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "file/picture.h"
#include "tests/folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static attn_error error;

static void a_picture_comes_back_as_it_was_saved(void **state)
{
    (void)state;
    uint8_t grey[256 * 2];
    for (size_t n = 0; n < sizeof grey; n++)
        grey[n] = (uint8_t)(n * 7);
    const char *const path = in_folder("picture.png");
    const attn_picture saved = {2, 256, grey};
    attn_picture loaded;
    assert_int_equal(attn_picture_save(&saved, path, &error), ATTN_OK);
    if (attn_picture_load(&loaded, path, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(loaded.rows, 2);
    assert_int_equal(loaded.columns, 256);
    assert_memory_equal(loaded.grey, grey, sizeof grey);
    attn_picture_free(&loaded);
}

static void a_png_cut_or_changed_at_any_byte_is_refused_or_read_whole(void **state)
{
    (void)state;
    char *data;
    size_t length;
    attn_picture loaded;
    const char *const path = in_folder("picture.png"), *const bad = in_folder("bad.png");
    assert_int_equal(attn_file_read(path, 1 << 20, &data, &length, &error), ATTN_OK);
    for (size_t n = 0; n < length; n++) {
        assert_int_equal(attn_file_write(bad, data, n, &error), ATTN_OK);
        if (attn_picture_load(&loaded, bad, &error) == ATTN_OK)
            attn_picture_free(&loaded); /* only its last, empty chunk is missing */
        else
            assert_null(loaded.grey);
        data[n] ^= 0x40;
        assert_int_equal(attn_file_write(bad, data, length, &error), ATTN_OK);
        if (attn_picture_load(&loaded, bad, &error) == ATTN_OK)
            attn_picture_free(&loaded);
        data[n] ^= 0x40;
    }
    free(data);
}

static void text_is_no_picture(void **state)
{
    (void)state;
    attn_picture loaded;
    const char *const path = in_folder("text.png");
    assert_int_equal(attn_file_write(path, "a sentence", 10, &error), ATTN_OK);
    assert_int_equal(attn_picture_load(&loaded, path, &error), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "no PNG"));
    assert_int_equal(attn_picture_load(&loaded, in_folder("none.png"), &error), ATTN_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_picture_comes_back_as_it_was_saved),
        cmocka_unit_test(a_png_cut_or_changed_at_any_byte_is_refused_or_read_whole),
        cmocka_unit_test(text_is_no_picture),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* safetensors: what is written comes back, and every way a header can lie has a name. The
 * defects are those of public bug reports (fastllm#713, mlx#3363, LiteRT#9255, …). */
#define _XOPEN_SOURCE 700 /* nftw */
#include "file/file.h"
#include "file/half.h"
#include "file/safetensors.h"
#include "tests/folder.h"
#include "tests/python.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

static attn_error error;

#define CHECK(expression) check_ok(expression, #expression, __LINE__)

static void check_ok(attn_status status, const char *what, int line)
{
    if (status != ATTN_OK)
        fail_msg("line %d: %s: %s", line, what, error.message);
}

/* A file of the header and data_bytes zeros, in memory the caller frees. */
static char *file_of(const char *header, size_t data_bytes, size_t *bytes)
{
    const uint64_t length = strlen(header);
    *bytes = 8 + length + data_bytes;
    char *const file = calloc(1, *bytes + 1);
    assert_non_null(file);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    return file;
}

/* Parses a copy that ends where its allocation ends, so that ASan sees a read beyond. */
static attn_status parse_exactly(const char *data, size_t bytes)
{
    char *const copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    attn_safetensors *file;
    const attn_status status = attn_safetensors_parse(&file, copy, bytes, "test", &error);
    if (status == ATTN_OK)
        attn_safetensors_close(file);
    else
        assert_null(file);
    free(copy);
    return status;
}

static void refuses(const char *header, size_t data_bytes, const char *reason)
{
    size_t bytes;
    char *const file = file_of(header, data_bytes, &bytes);
    const attn_status status = parse_exactly(file, bytes);
    free(file);
    if (status != ATTN_EFORMAT)
        fail_msg("%s gives %s, expected ATTN_EFORMAT", header, attn_status_name(status));
    if (!strstr(error.message, reason))
        fail_msg("%s says \"%s\", expected \"%s\" in it", header, error.message, reason);
}

static void accepts(const char *header, size_t data_bytes)
{
    size_t bytes;
    char *const file = file_of(header, data_bytes, &bytes);
    const attn_status status = parse_exactly(file, bytes);
    free(file);
    if (status != ATTN_OK)
        fail_msg("%s: %s", header, error.message);
}

#define A(dtype, shape, offsets)                                                         \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* ---- Defects --------------------------------------------------------------------- */

static void a_header_longer_than_the_file_costs_no_time_and_no_memory(void **state)
{
    (void)state;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(parse_exactly("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8), ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "18446744073709551615"));
    assert_int_equal(parse_exactly("\x00\x00\x00\x00\x00\x00\x00\x80{}", 10),
                     ATTN_EFORMAT);
    assert_int_equal(parse_exactly("\x03\0\0\0\0\0\0\0{}", 10), ATTN_EFORMAT);
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_SELF, &after);
    const double seconds = (double)(end.tv_sec - start.tv_sec) +
                           1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    assert_true(seconds < 0.01);
    assert_true(after.ru_maxrss - before.ru_maxrss < 1024); /* KiB */
}

static void files_shorter_than_a_header_are_refused(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 8; bytes++) {
        assert_int_equal(parse_exactly("\x02\0\0\0\0\0\0", bytes), ATTN_EFORMAT);
        assert_non_null(strstr(error.message, "expected at least 8"));
    }
    refuses("", 0, "does not begin with '{'");
    refuses("{", 0, "it ends");
    refuses(" {}", 0, "does not begin with '{'");
    refuses("[]", 0, "does not begin with '{'");
    accepts("{}", 0);
    accepts("{}      ", 0);
}

static void shapes_that_do_not_fit_their_bytes_are_refused(void **state)
{
    (void)state;
    accepts(A("F32", "[2,3]", "[0,24]"), 24);
    accepts(A("F32", "[]", "[0,4]"), 4);
    accepts(A("F32", "[0,7]", "[0,0]"), 0);
    refuses(A("F32", "[1000,1000]", "[0,4]"), 4, "expected 4000000");
    refuses(A("F32", "[2]", "[0,12]"), 12, "12 bytes of data, expected 8");
    refuses(A("F32", "[2]", "[8,0]"), 8, "begin at 8 and end before it");
    refuses(A("F32", "[2]", "[0,8]"), 4, "ends at byte 8 of the data, which has 4");
    refuses(A("F32", "[4294967296,4294967296]", "[0,0]"), 0, "more elements");
    refuses(A("F32", "[9223372036854775807]", "[0,0]"), 0, "more bytes");
    refuses(A("F32", "[9223372036854775808]", "[0,0]"), 0, "more elements");
    refuses(A("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8 numbers");
    refuses(A("F9", "[1]", "[0,4]"), 4, "dtype \"F9\"");
    refuses(A("f32", "[1]", "[0,4]"), 4, "dtype \"f32\"");
}

static void numbers_that_are_no_sizes_are_refused(void **state)
{
    (void)state;
    refuses(A("F32", "[-1]", "[0,4]"), 4, "not a whole number");
    refuses(A("F32", "[1e3]", "[0,4000]"), 4000, "not a whole number");
    refuses(A("F32", "[1.0]", "[0,4]"), 4, "not a whole number");
    refuses(A("F32", "[\"4\"]", "[0,16]"), 16, "not a whole number");
    refuses(A("F32", "[01]", "[0,4]"), 4, "not a whole number");
    refuses(A("F32", "[1,]", "[0,4]"), 4, "not a whole number");
    refuses(A("F32", "[null]", "[0,4]"), 4, "not a whole number");
    refuses(A("F32", "[18446744073709551616]", "[0,4]"), 4, "beyond 64 bits");
    refuses(A("F32", "1", "[0,4]"), 4, "expected '['");
    refuses(A("F32", "[1]", "[0]"), 4, "holds 1 numbers, expected 2");
    refuses(A("F32", "[1]", "[]"), 4, "holds 0 numbers, expected 2");
    refuses(A("F32", "[1]", "[0,4,4]"), 4, "more than 2 numbers");
    refuses(A("F32", "[1]", "[0,18446744073709551615]"), 4, "bytes of data, expected 4");
}

#define TWO(begin_a, end_a, begin_b, end_b, bytes_a, bytes_b)                            \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[" #bytes_a "],\"data_offsets\":[" #begin_a      \
    "," #end_a "]},\"b\":{\"dtype\":\"U8\",\"shape\":[" #bytes_b                         \
    "],\"data_offsets\":[" #begin_b "," #end_b "]}}"

static void data_with_overlaps_holes_or_strays_is_refused(void **state)
{
    (void)state;
    accepts(TWO(0, 100, 100, 150, 100, 50), 150);
    accepts(TWO(50, 150, 0, 50, 100, 50), 150); /* any order in the header */
    accepts(TWO(0, 0, 0, 50, 0, 50), 50);       /* nothing overlaps nothing */
    refuses(TWO(0, 100, 50, 150, 100, 100), 150, "\"a\" and \"b\" overlap");
    refuses(TWO(0, 100, 0, 100, 100, 100), 100, "\"a\" and \"b\" overlap");
    refuses(TWO(0, 100, 110, 150, 100, 40), 150,
            "a hole of 10 bytes before tensor \"b\"");
    refuses(TWO(8, 100, 100, 150, 92, 50), 150, "a hole of 8 bytes before tensor \"a\"");
    refuses(TWO(0, 100, 100, 150, 100, 50), 151, "1 bytes after the last tensor");
    refuses("{}", 3, "3 bytes after the last tensor");
}

static void names_and_keys_that_repeat_or_lack_are_refused(void **state)
{
    (void)state;
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
            "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
            2, "two tensors are named \"a\"");
    refuses("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],"
            "\"data_offsets\":[0,1]}}",
            1, "\"dtype\" twice");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "lacks its data_offsets");
    refuses("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "lacks its dtype");
    refuses("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "lacks its shape");
    refuses("{\"a\":{}}", 1, "expected '\"'");
    refuses("{\"a\":{\"color\":1}}", 1, "\"color\"");
    refuses("{\"a\":1}", 1, "expected '{'");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}x", 1,
            "follows the closing");
    refuses("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},}", 1,
            "expected '\"'");
}

static void metadata_is_strings_only(void **state)
{
    (void)state;
    accepts("{\"__metadata__\":{}}", 0);
    accepts("{\"__metadata__\":{\"k\":\"v\",\"l\":\"\"}}", 0);
    refuses("{\"__metadata__\":{\"k\":1}}", 0, "not a string");
    refuses("{\"__metadata__\":{\"k\":{\"x\":\"y\"}}}", 0, "not a string");
    refuses("{\"__metadata__\":{\"k\":null}}", 0, "not a string");
    refuses("{\"__metadata__\":[]}", 0, "expected '{'");
    refuses("{\"__metadata__\":{\"k\":\"v\",\"k\":\"w\"}}", 0, "\"k\" twice");
    refuses("{\"__metadata__\":{\"k\":\"v\"},\"__metadata__\":{\"k\":\"v\"}}", 0,
            "comes twice");
}

static void strings_are_checked(void **state)
{
    (void)state;
    accepts(
        "{\"__metadata__\":{\"\\u00e9\\ud83d\\ude00\\n\":\"\\\"\\\\\\/\\b\\f\\r\\t\"}}",
        0);
    refuses("{\"\xFF\":", 0, "not UTF-8");
    refuses("{\"\\ud800\":", 0, "surrogates");
    refuses("{\"\\ud800\\u0041\":", 0, "surrogates");
    refuses("{\"\\u00g0\":", 0, "hexadecimal");
    refuses("{\"\\u00", 0, "hexadecimal");
    refuses("{\"\\x\":", 0, "escape");
    refuses("{\"\\", 0, "ends inside a string");
    refuses("{\"abc", 0, "ends inside a string");
    refuses("{\"\\u0000\":", 0, "\\u0000");
    refuses("{\"a\nb\":", 0, "control character");
}

/* Mutations of a good file: each is accepted or refused, and none reads beyond its bytes
 * (this runs under ASan too). */
static void random_damage_never_reads_out_of_bounds(void **state)
{
    (void)state;
    size_t bytes;
    char *const good = file_of(
        "{\"__metadata__\":{\"k\":\"v\\u00e9\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2"
        ",3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"BF16\",\"shape\":[4],"
        "\"data_offsets\":[24,32]}}",
        32, &bytes);
    static const char pieces[] = "{}[]\":,\\u0123456789-eE.\0\xFF\xC3 F32";
    uint64_t random = 88172645463325252u;
    size_t accepted = 0;
    for (int i = 0; i < 60000; i++) {
        char damaged[512];
        size_t length = bytes;
        memcpy(damaged, good, bytes);
        for (int j = 0; j <= i % 3; j++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            const size_t at = random % length;
            const char piece = pieces[(random >> 32) % (sizeof pieces - 1)];
            switch (random >> 60 & 3) {
            case 0: /* cut */
                length = at > 0 ? at : 1;
                break;
            case 1: /* doubled byte */
                memmove(damaged + at + 1, damaged + at, length - at);
                length++;
                damaged[0]++;
                break;
            default:
                damaged[at] = piece;
            }
        }
        const attn_status status = parse_exactly(damaged, length);
        assert_true(status == ATTN_OK || status == ATTN_EFORMAT);
        accepted += status == ATTN_OK;
    }
    assert_true(accepted > 0 && accepted < 30000);
    free(good);
}

/* ---- Writing and reading --------------------------------------------------------- */

static const float values[] = {0.0f, -0.0f, 1.0f, 3.14159274f, 65504.0f, 1e-7f};
static const int64_t numbers[] = {INT64_MIN, 7};
static const uint8_t flags[] = {0, 1, 1};
static const attn_safetensors_entry entries[] = {
    {"flags", ATTN_DTYPE_BOOL, 1, {3}, flags},
    {"weight", ATTN_DTYPE_F32, 2, {2, 3}, values},
    {"half", ATTN_DTYPE_F16, 1, {6}, values},
    {"brain", ATTN_DTYPE_BF16, 3, {1, 6, 1}, values},
    {"numbers", ATTN_DTYPE_I64, 1, {2}, numbers},
    {"empty", ATTN_DTYPE_F32, 2, {0, 5}, NULL},
    {"scalar", ATTN_DTYPE_F32, 0, {0}, values + 2},
    {"quote\" \\ \x01 é", ATTN_DTYPE_U8, 1, {3}, flags},
};
enum { ENTRIES = sizeof entries / sizeof *entries };
static const attn_safetensors_note notes[] = {{"format", "pt"}, {"said", "\"ça\"\n"}};

static void what_is_written_comes_back(void **state)
{
    (void)state;
    const char *const path = in_folder("back.safetensors");
    CHECK(attn_safetensors_write(path, entries, ENTRIES, notes, 2, &error));
    attn_safetensors *file;
    CHECK(attn_safetensors_open(&file, path, &error));
    assert_int_equal(attn_safetensors_count(file), ENTRIES);
    assert_string_equal(attn_safetensors_metadata(file, "said"), "\"ça\"\n");
    assert_null(attn_safetensors_metadata(file, "absent"));
    assert_null(attn_safetensors_find(file, "absent"));
    assert_null(attn_safetensors_at(file, ENTRIES));
    for (size_t i = 0; i < ENTRIES; i++) {
        const attn_safetensor *const tensor =
            attn_safetensors_find(file, entries[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, entries[i].dtype);
        assert_int_equal(tensor->rank, entries[i].rank);
        for (int j = 0; j < tensor->rank; j++)
            assert_int_equal(tensor->extent[j], entries[i].extent[j]);
    }
    assert_memory_equal(attn_safetensors_find(file, "numbers")->data, numbers,
                        sizeof numbers);
    float back[6];
    CHECK(attn_safetensor_to_float(attn_safetensors_find(file, "weight"), back, &error));
    assert_memory_equal(back, values, sizeof values);
    CHECK(attn_safetensor_to_float(attn_safetensors_find(file, "brain"), back, &error));
    assert_true(back[3] == 3.140625f && signbit(back[1]));
    CHECK(attn_safetensor_to_float(attn_safetensors_find(file, "half"), back, &error));
    assert_true(back[3] == 3.140625f && back[4] == 65504.0f);
    assert_int_equal(
        attn_safetensor_to_float(attn_safetensors_find(file, "numbers"), back, &error),
        ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "I64, expected F32"));
    attn_safetensors_close(file);
}

static void the_same_tensors_give_the_same_bytes_in_any_order(void **state)
{
    (void)state;
    attn_safetensors_entry turned[ENTRIES];
    for (size_t i = 0; i < ENTRIES; i++)
        turned[i] = entries[ENTRIES - 1 - i];
    char *first, *second;
    size_t first_bytes, second_bytes;
    const char *const path = in_folder("same.safetensors");
    CHECK(attn_safetensors_write(path, entries, ENTRIES, notes, 2, &error));
    CHECK(attn_file_read(path, 1 << 20, &first, &first_bytes, &error));
    CHECK(attn_safetensors_write(path, turned, ENTRIES, notes, 2, &error));
    CHECK(attn_file_read(path, 1 << 20, &second, &second_bytes, &error));
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    free(first);
    free(second);
}

static void entries_that_no_file_can_hold_are_refused(void **state)
{
    (void)state;
    const char *const path = in_folder("never.safetensors");
    const attn_safetensors_entry twice[] = {entries[0], entries[1], entries[0]};
    assert_int_equal(attn_safetensors_write(path, twice, 3, NULL, 0, &error),
                     ATTN_EINVAL);
    assert_non_null(strstr(error.message, "two tensors are named \"flags\""));
    const attn_safetensors_entry bad[] = {
        {"__metadata__", ATTN_DTYPE_U8, 1, {1}, flags},
        {"\xFF", ATTN_DTYPE_U8, 1, {1}, flags},
        {"rank", ATTN_DTYPE_U8, 9, {1}, flags},
        {"minus", ATTN_DTYPE_U8, 1, {-1}, flags},
        {"none", ATTN_DTYPE_U8, 1, {1}, NULL},
        {"wraps", ATTN_DTYPE_F32, 2, {INT64_MAX, 4}, flags},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(attn_safetensors_write(path, &bad[i], 1, NULL, 0, &error),
                         ATTN_EINVAL);
    const attn_safetensors_note same[] = {{"k", "v"}, {"k", "w"}};
    assert_int_equal(attn_safetensors_write(path, NULL, 0, same, 2, &error), ATTN_EINVAL);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_file_that_is_not_there_or_no_file_is_named(void **state)
{
    (void)state;
    attn_safetensors *file;
    assert_int_equal(attn_safetensors_open(&file, in_folder("nowhere"), &error),
                     ATTN_EIO);
    assert_non_null(strstr(error.message, "nowhere: No such file"));
    assert_int_equal(attn_safetensors_open(&file, folder, &error), ATTN_EIO);
    assert_non_null(strstr(error.message, "not a regular file"));
    CHECK(attn_file_write(in_folder("short"), "1234567", 7, &error));
    assert_int_equal(attn_safetensors_open(&file, in_folder("short"), &error),
                     ATTN_EFORMAT);
    assert_non_null(strstr(error.message, "7 bytes, expected at least 8"));
}

/* ---- Halves ---------------------------------------------------------------------- */

static void every_half_survives_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        const uint16_t half = (uint16_t)i;
        const float f16 = attn_float_from_f16(half), bf16 = attn_float_from_bf16(half);
        const bool f16_nan = (half & 0x7FFF) > 0x7C00,
                   bf16_nan = (half & 0x7FFF) > 0x7F80;
        assert_int_equal(isnan(f16) != 0, f16_nan);
        assert_int_equal(isnan(bf16) != 0, bf16_nan);
        if (f16_nan)
            assert_true(isnan(attn_float_from_f16(attn_f16_from_float(f16))));
        else
            assert_int_equal(attn_f16_from_float(f16), half);
        if (bf16_nan)
            assert_true(isnan(attn_float_from_bf16(attn_bf16_from_float(bf16))));
        else
            assert_int_equal(attn_bf16_from_float(bf16), half);
    }
}

/* Between neighbours: the midpoint goes to the even one, anything nearer to its side. */
static void floats_between_two_halves_go_to_the_nearest_and_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7C00; i++) {
        const double low = (double)attn_float_from_f16((uint16_t)i);
        const double high =
            i + 1 == 0x7C00 ? 65536.0 : (double)attn_float_from_f16((uint16_t)(i + 1));
        const float middle = (float)((low + high) / 2);
        assert_int_equal(attn_f16_from_float(middle), i & 1 ? i + 1 : i);
        assert_int_equal(attn_f16_from_float(nextafterf(middle, 0.0f)), i);
        assert_int_equal(attn_f16_from_float(-nextafterf(middle, INFINITY)),
                         0x8000 | (i + 1));
    }
    assert_int_equal(attn_f16_from_float(1e9f), 0x7C00);
    assert_int_equal(attn_bf16_from_float(1.00390625f), 0x3F80); /* tie, to even */
    assert_int_equal(attn_bf16_from_float(1.01171875f), 0x3F82); /* tie, to even */
    assert_int_equal(attn_bf16_from_float(nextafterf(1.00390625f, 2.0f)), 0x3F81);
    assert_int_equal(attn_bf16_from_float(3.4e38f), 0x7F80);
}

static void doubles_are_read_as_the_nearest_float(void **state)
{
    (void)state;
    const double numbers64[] = {0.1, 1e300, -2.5};
    const attn_safetensor tensor = {"d",       ATTN_DTYPE_F64,  1, {3}, 3,
                                    numbers64, sizeof numbers64};
    float out[3];
    CHECK(attn_safetensor_to_float(&tensor, out, &error));
    assert_true(out[0] == 0.1f && isinf(out[1]) && out[2] == -2.5f);
}

/* ---- The Python package ---------------------------------------------------------- */

static void the_python_package_reads_and_writes_the_same(void **state)
{
    (void)state;
    if (!python_has("safetensors, numpy"))
        skip();
    const char *const path = in_folder("ours.safetensors");
    CHECK(attn_safetensors_write(path, entries, ENTRIES, notes, 2, &error));
    char script[2048];
    snprintf(script, sizeof script,
             "from safetensors import safe_open\n"
             "from safetensors.numpy import save_file\n"
             "import numpy as np\n"
             "f = safe_open('%s/ours.safetensors', 'np')\n"
             "assert f.metadata()['said'] == '\"ça\"\\n'\n"
             "assert f.get_tensor('weight').shape == (2, 3)\n"
             "assert f.get_tensor('half')[4] == 65504\n"
             "assert f.get_tensor('scalar') == 1\n"
             "assert list(f.get_tensor('numbers')) == [-2**63, 7]\n"
             "assert list(f.get_tensor('flags')) == [False, True, True]\n"
             "assert f.get_slice('brain').get_dtype() == 'BF16'\n"
             "assert 'quote\" \\\\ \\x01 é' in f.keys()\n"
             "save_file({'x': np.arange(6, dtype=np.float32).reshape(2, 3),\n"
             "           'y': np.array([1.5], dtype=np.float64),\n"
             "           'z': np.array([-1], dtype=np.int8)},\n"
             "          '%s/theirs.safetensors', metadata={'é': 'ü'})\n",
             folder, folder);
    assert_int_equal(python_run(script), 0);
    attn_safetensors *file;
    CHECK(attn_safetensors_open(&file, in_folder("theirs.safetensors"), &error));
    float x[6], y;
    CHECK(attn_safetensor_to_float(attn_safetensors_find(file, "x"), x, &error));
    CHECK(attn_safetensor_to_float(attn_safetensors_find(file, "y"), &y, &error));
    assert_true(x[5] == 5.0f && y == 1.5f);
    assert_string_equal(attn_safetensors_metadata(file, "é"), "ü");
    attn_safetensors_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_longer_than_the_file_costs_no_time_and_no_memory),
        cmocka_unit_test(files_shorter_than_a_header_are_refused),
        cmocka_unit_test(shapes_that_do_not_fit_their_bytes_are_refused),
        cmocka_unit_test(numbers_that_are_no_sizes_are_refused),
        cmocka_unit_test(data_with_overlaps_holes_or_strays_is_refused),
        cmocka_unit_test(names_and_keys_that_repeat_or_lack_are_refused),
        cmocka_unit_test(metadata_is_strings_only),
        cmocka_unit_test(strings_are_checked),
        cmocka_unit_test(random_damage_never_reads_out_of_bounds),
        cmocka_unit_test(what_is_written_comes_back),
        cmocka_unit_test(the_same_tensors_give_the_same_bytes_in_any_order),
        cmocka_unit_test(entries_that_no_file_can_hold_are_refused),
        cmocka_unit_test(a_file_that_is_not_there_or_no_file_is_named),
        cmocka_unit_test(every_half_survives_a_round_trip),
        cmocka_unit_test(floats_between_two_halves_go_to_the_nearest_and_ties_to_even),
        cmocka_unit_test(doubles_are_read_as_the_nearest_float),
        cmocka_unit_test(the_python_package_reads_and_writes_the_same),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

#include "arrays.h"
#include "attention/reference.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *text_of(const char *format, ...)
{
    char *const text = calloc(1, 4096);
    assert_non_null(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, 4096, format, arguments);
    va_end(arguments);
    return text;
}

char *shared_folder(const char *below, const char *skipped)
{
    const char *const shared = getenv("ATTN_SHARED");
    if (!shared || !*shared) {
        print_message("skipped: %s (ATTN_SHARED is not set)\n", skipped);
        skip();
    }
    return text_of("%s/%s", shared, below);
}

void say_skipped(const char *folder, const char *reason)
{
    static const char top[] = "conformance/";
    const char *const below = strstr(folder, top);
    print_message("skipped: %s: %s\n", below ? below + strlen(top) : folder, reason);
}

json_t *json_load_or_fail(const char *folder, const char *name)
{
    char *const path = text_of("%s/%s", folder, name);
    json_error_t error;
    json_t *const json = json_load_file(path, 0, &error);
    if (!json)
        fail_msg("%s: %s", path, error.text);
    free(path);
    return json;
}

/* The value after 'key': in the header. */
static const char *header_value(const char *header, const char *key)
{
    const char *const at = strstr(header, key);
    if (!at)
        fail_msg("npy header without %s: %s", key, header);
    const char *const colon = strchr(at, ':');
    return colon + 1 + strspn(colon + 1, " ");
}

static void read_extents(struct array *array, const char *tuple)
{
    array->count = 1;
    for (const char *at = tuple + 1; *at && *at != ')';) {
        char *end = NULL;
        const long long extent = strtoll(at, &end, 10);
        if (end == at)
            break;
        assert_true(array->rank < ARRAY_RANK);
        array->extent[array->rank++] = extent;
        array->count *= (size_t)extent;
        at = end + strspn(end, ", ");
    }
}

static double element(const unsigned char *at, const char *kind)
{
    float f;
    double d;
    int64_t i;
    switch (kind[1] * 16 + kind[2] - '0') {
    case 'f' * 16 + 2:
        return attn_reference_load(at, ATTN_F16, 0);
    case 'f' * 16 + 4:
        memcpy(&f, at, sizeof f);
        return (double)f;
    case 'f' * 16 + 8:
        memcpy(&d, at, sizeof d);
        return d;
    case 'i' * 16 + 8:
        memcpy(&i, at, sizeof i);
        return (double)i;
    case 'b' * 16 + 1:
        return *at != 0;
    default:
        fail_msg("npy elements of type %.3s, expected f2, f4, f8, i8 or b1", kind);
        return 0.0;
    }
}

struct array array_load(const char *folder, const char *name)
{
    char *const path = text_of("%s/%s", folder, name);
    FILE *const file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: cannot be opened", path);
    unsigned char start[10];
    assert_int_equal(fread(start, 1, sizeof start, file), sizeof start);
    assert_memory_equal(start, "\x93NUMPY\x01", 7);
    char header[65536] = {0};
    const size_t length = start[8] + 256u * start[9];
    assert_int_equal(fread(header, 1, length, file), length);
    assert_memory_equal(header_value(header, "fortran_order"), "False", 5);
    const char *const kind = header_value(header, "descr") + 1;

    struct array array = {0};
    read_extents(&array, header_value(header, "shape"));
    array.x = calloc(array.count + 1, sizeof *array.x);
    assert_non_null(array.x);
    const size_t bytes = (size_t)(kind[2] - '0');
    for (size_t n = 0; n < array.count; n++) {
        unsigned char at[16];
        assert_int_equal(fread(at, 1, bytes, file), bytes);
        array.x[n] = element(at, kind);
    }
    fclose(file);
    free(path);
    return array;
}

void array_free(struct array *array)
{
    free(array->x);
    *array = (struct array){0};
}

float *array_floats(const struct array *array)
{
    float *const floats = calloc(array->count + 1, sizeof *floats);
    assert_non_null(floats);
    for (size_t n = 0; n < array->count; n++)
        floats[n] = (float)array->x[n];
    return floats;
}

double largest_magnitude(const struct array *array)
{
    double largest = 0.0;
    for (size_t n = 0; n < array->count; n++)
        largest = fmax(largest, fabs(array->x[n]));
    return largest;
}

void assert_floats_near(const float *got, const struct array *expected, double relative,
                        double absolute, const char *where, const char *what)
{
    for (size_t n = 0; n < expected->count; n++) {
        const double x = expected->x[n], error = fabs((double)got[n] - x);
        const bool same = (double)got[n] == x || (isnan(got[n]) && isnan(x));
        if (!same && !(error <= absolute + relative * fabs(x)))
            fail_msg("%s: %s %zu is %.9g, expected %.9g", where, what, n, (double)got[n],
                     x);
    }
}

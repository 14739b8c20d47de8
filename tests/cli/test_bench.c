/* attn bench: the shape of what it prints; its numbers are the machine's own. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/cli/command.h"
#include <jansson.h>
#include <math.h>

#define TINY "bench --lengths 64 --head-sizes 16 --seconds 0.05"

static json_t *run_json(const char *arguments)
{
    run_result result = run(arguments, "");
    if (result.code != 0)
        fail_msg("attn %s gives %d: %s", arguments, result.code, result.err);
    assert_string_equal(result.err, "");
    json_error_t reason;
    json_t *const read = json_loads(result.out, 0, &reason);
    if (!read)
        fail_msg("%s: %s", arguments, reason.text);
    run_free(&result);
    return read;
}

static void assert_keys(const json_t *object, const char *const *keys, size_t count)
{
    assert_int_equal(json_object_size(object), count);
    for (size_t i = 0; i < count; i++)
        if (!json_object_get(object, keys[i]))
            fail_msg("the key %s is missing", keys[i]);
}

static int64_t whole(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

static void json_has_a_row_for_each_operation_and_visibility(void **state)
{
    (void)state;
    static const char *const keys[] = {"peak_gflops", "threads", "isa", "rows"};
    static const char *const row_keys[] = {"op",     "dtype",   "B",      "H",
                                           "L",      "D",       "causal", "milliseconds",
                                           "gflops", "fraction"};
    json_t *const result = run_json(TINY " --json");
    assert_keys(result, keys, 4);
    const double peak = json_real_value(json_object_get(result, "peak_gflops"));
    assert_true(peak > 0.0);
    assert_int_equal(whole(result, "threads"), 1);
    assert_true(json_is_string(json_object_get(result, "isa")));
    const json_t *const rows = json_object_get(result, "rows");
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        static const char *const operations[] = {"forward", "statistics", "backward"};
        const json_t *const row = json_array_get(rows, i);
        assert_keys(row, row_keys, 10);
        assert_string_equal(json_string_value(json_object_get(row, "op")),
                            operations[i / 2]);
        assert_string_equal(json_string_value(json_object_get(row, "dtype")), "fp32");
        assert_int_equal(whole(row, "B"), 1);
        assert_int_equal(whole(row, "H"), 8);
        assert_int_equal(whole(row, "L"), 64);
        assert_int_equal(whole(row, "D"), 16);
        const bool causal = json_is_true(json_object_get(row, "causal"));
        assert_int_equal(causal, i % 2);
        /* 4·D operations for each visible pair, 10·D backward */
        const double pairs = causal ? 64.0 * 65.0 / 2.0 : 64.0 * 64.0;
        const double work = (i / 2 == 2 ? 10.0 : 4.0) * 16.0 * 8.0 * pairs;
        const double rate = json_real_value(json_object_get(row, "gflops"));
        const double took = json_real_value(json_object_get(row, "milliseconds"));
        assert_true(fabs(rate * took * 1e6 / work - 1.0) < 1e-3);
        const double fraction = json_real_value(json_object_get(row, "fraction"));
        assert_true(fabs(fraction * peak / rate - 1.0) < 1e-3);
    }
    json_decref(result);
}

static void sizes_and_one_operation_are_chosen(void **state)
{
    (void)state;
    json_t *const result =
        run_json("bench --op backward --lengths 8,16 --head-sizes 4,8 --heads 2 "
                 "--batch 3 --threads 2 --seconds 0 --json");
    const json_t *const rows = json_object_get(result, "rows");
    assert_int_equal(whole(result, "threads"), 2);
    assert_int_equal(json_array_size(rows), 8);
    for (size_t i = 0; i < 8; i++) {
        const json_t *const row = json_array_get(rows, i);
        assert_int_equal(whole(row, "L"), i < 4 ? 8 : 16);
        assert_int_equal(whole(row, "D"), i % 4 < 2 ? 4 : 8);
        assert_int_equal(whole(row, "B"), 3);
        assert_int_equal(whole(row, "H"), 2);
    }
    json_decref(result);
}

static void the_table_has_a_line_for_each_row(void **state)
{
    (void)state;
    run_result result = run(TINY " --op forward", "");
    assert_int_equal(result.code, 0);
    assert_non_null(strstr(result.out, "GFLOP/s on registers\n"));
    assert_non_null(
        strstr(result.out, "operation       L     D  visible          ms  GFLOP/s"));
    assert_non_null(strstr(result.out, "\nforward        64    16  full "));
    assert_non_null(strstr(result.out, "\nforward        64    16  causal "));
    assert_null(strstr(result.out, "backward"));
    run_free(&result);
}

static void misuse_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *message;
    } wrong[] = {
        {"x", "unexpected argument 'x'"},
        {"--op x", "--op is 'x', expected forward, backward, statistics or all"},
        {"--lengths ''", "--lengths is '', expected a whole number from 1 to 1048576"},
        {"--lengths 64,,8", "--lengths is '', expected a whole number from 1 to 1048576"},
        {"--lengths 64,x", "--lengths is 'x', expected a whole number from 1 to 1048576"},
        {"--lengths 0", "--lengths is '0', expected a whole number from 1 to 1048576"},
        {"--lengths 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
         "--lengths has more than 16 sizes"},
        {"--head-sizes 1025",
         "--head-sizes is '1025', expected a whole number from 1 to 1024"},
        {"--heads -1", "--heads is '-1', expected a whole number from 1 to 4096"},
        {"--batch 0", "--batch is '0', expected a whole number from 1 to 4096"},
        {"--threads 1025", "--threads is '1025', expected a whole number from 1 to 1024"},
        {"--seconds -1", "--seconds is '-1', expected a number from 0 to 3600"},
        {"--seconds", "--seconds needs a value"},
        {"--json=x", "--json takes no value, got 'x'"},
        {"--fast", "--fast is not an option"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char arguments[128], expected[256];
        snprintf(arguments, sizeof arguments, "bench %s", wrong[i].arguments);
        snprintf(expected, sizeof expected, "attn bench: %s (attn bench --help)\n",
                 wrong[i].message);
        expect_run(arguments, "", 2, "", expected);
    }
}

static void memory_that_is_refused_is_a_failure(void **state)
{
    (void)state;
    run_result result = run("bench --lengths 1048576 --head-sizes 1024 --heads 4096 "
                            "--batch 4096 --seconds 0",
                            "");
    assert_int_equal(result.code, 1);
    /* AddressSanitizer has its own lines to say first. */
    const char *const said = strstr(result.err, "attn bench: ");
    assert_string_equal(said ? said : result.err,
                        "attn bench: no memory for length 1048576\n");
    run_free(&result);
}

static void an_unknown_instruction_set_is_a_failure(void **state)
{
    (void)state;
    setenv("ATTN_ISA", "x87", 1);
    run_result result = run(TINY, "");
    unsetenv("ATTN_ISA");
    assert_int_equal(result.code, 1);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "ATTN_ISA"));
    run_free(&result);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    attn_command = argv[1];
    /* A sanitizer may not end the program over memory that is refused on purpose. */
    setenv("ASAN_OPTIONS", "allocator_may_return_null=1", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_has_a_row_for_each_operation_and_visibility),
        cmocka_unit_test(sizes_and_one_operation_are_chosen),
        cmocka_unit_test(the_table_has_a_line_for_each_row),
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(memory_that_is_refused_is_a_failure),
        cmocka_unit_test(an_unknown_instruction_set_is_a_failure),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

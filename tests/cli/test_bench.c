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
    assert_int_equal(strncmp(result.err, "measuring ", 10), 0); /* what takes so long */
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

static const char *words(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static double real(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* The keys and the kinds of every row, whatever it measures. */
static void assert_row(const json_t *row)
{
    static const char *const keys[] = {
        "op",      "case",    "dtype", "threads",      "B",    "H",    "Hk",
        "Lq",      "Lk",      "D",     "milliseconds", "rate", "unit", "measure",
        "against", "reached", "must",  "goal"};
    static const char *const measures[] = {"fraction", "time", "time of work", "speed"};
    assert_keys(row, keys, sizeof keys / sizeof *keys);
    assert_true(real(row, "milliseconds") > 0.0);
    assert_true(real(row, "rate") > 0.0);
    assert_true(real(row, "reached") > 0.0);
    size_t known = 0;
    while (known < 4 && strcmp(words(row, "measure"), measures[known]) != 0)
        known++;
    assert_true(known < 4);
    for (size_t i = 16; i < 18; i++) {
        const json_t *const bound = json_object_get(row, keys[i]);
        assert_true(json_is_null(bound) || json_real_value(bound) > 0.0);
    }
}

static void json_has_a_row_for_each_visibility_of_forward_and_backward(void **state)
{
    (void)state;
    static const char *const keys[] = {"version", "isa", "limits", "rows"};
    static const char *const limit_keys[] = {"threads", "peak_gflops", "read_gbytes",
                                             "tanh_giga"};
    static const char *const operations[] = {"forward", "backward"};
    for (size_t o = 0; o < 2; o++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, TINY " --op %s --json", operations[o]);
        json_t *const result = run_json(arguments);
        assert_keys(result, keys, 4);
        assert_true(json_is_string(json_object_get(result, "isa")));
        assert_int_equal(json_array_size(json_object_get(result, "limits")), 1);
        const json_t *const limits = json_array_get(json_object_get(result, "limits"), 0);
        assert_keys(limits, limit_keys, 4);
        assert_int_equal(whole(limits, "threads"), 1);
        assert_true(json_is_null(json_object_get(limits, "read_gbytes")));
        const double peak = real(limits, "peak_gflops");
        assert_true(peak > 0.0);
        const json_t *const rows = json_object_get(result, "rows");
        assert_int_equal(json_array_size(rows), 2);
        for (size_t i = 0; i < 2; i++) {
            const json_t *const row = json_array_get(rows, i);
            assert_row(row);
            assert_string_equal(words(row, "op"), operations[o]);
            assert_string_equal(words(row, "case"), i == 0 ? "full" : "causal");
            assert_string_equal(words(row, "dtype"), "fp32");
            assert_string_equal(words(row, "unit"), "GFLOP/s");
            assert_string_equal(words(row, "measure"), "fraction");
            assert_string_equal(words(row, "against"), "peak");
            assert_int_equal(whole(row, "threads"), 1);
            assert_int_equal(whole(row, "B"), 1);
            assert_int_equal(whole(row, "H"), 8);
            assert_int_equal(whole(row, "Lk"), 64);
            assert_int_equal(whole(row, "D"), 16);
            /* 4·D operations for each visible pair, 10·D backward */
            const double pairs = i == 1 ? 64.0 * 65.0 / 2.0 : 64.0 * 64.0;
            const double work = (o == 1 ? 10.0 : 4.0) * 16.0 * 8.0 * pairs;
            const double rate = real(row, "rate"), took = real(row, "milliseconds");
            assert_true(fabs(rate * took * 1e6 / work - 1.0) < 1e-3);
            assert_true(fabs(real(row, "reached") * peak / rate - 1.0) < 1e-3);
        }
        json_decref(result);
    }
}

static void every_operation_has_rows_of_the_same_form(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t rows;
    } operations[] = {
        {"statistics", 10}, {"shapes", 20},  {"short", 1},     {"types", 6},
        {"decode", 12},     {"additive", 4}, {"recurrent", 6},
    };
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++) {
        char arguments[128];
        snprintf(arguments, sizeof arguments, TINY " --op %s --json", operations[o].name);
        json_t *const result = run_json(arguments);
        const json_t *const rows = json_object_get(result, "rows");
        assert_int_equal(json_array_size(rows), operations[o].rows);
        for (size_t i = 0; i < operations[o].rows; i++) {
            assert_row(json_array_get(rows, i));
            assert_string_equal(words(json_array_get(rows, i), "op"), operations[o].name);
        }
        json_decref(result);
    }
}

static void decoding_is_held_against_reading_memory(void **state)
{
    (void)state;
    json_t *const result = run_json(TINY " --op decode --threads 2 --json");
    const json_t *const limits = json_array_get(json_object_get(result, "limits"), 0);
    const double read = real(limits, "read_gbytes");
    static const char *const types[] = {"fp32", "bf16", "fp16", "fp32",
                                        "bf16", "fp16", "int8"};
    assert_true(read > 0.0);
    for (size_t i = 0; i < 7; i++) {
        const json_t *const row = json_array_get(json_object_get(result, "rows"), i);
        assert_string_equal(words(row, "dtype"), types[i]);
        assert_string_equal(words(row, "unit"), "GB/s");
        if (i == 6) { /* 8 bits are held against 16 */
            assert_string_equal(words(row, "against"), "paged, fp16");
            break;
        }
        assert_string_equal(words(row, "against"), "read");
        assert_int_equal(whole(row, "Lq"), 1);
        assert_int_equal(whole(row, "H"), 4 * whole(row, "Hk"));
        /* keys and values, each once */
        const double bytes = 2.0 * 8.0 * 64.0 * 16.0 * (i % 3 == 0 ? 4.0 : 2.0);
        const double rate = real(row, "rate"), took = real(row, "milliseconds");
        assert_true(fabs(rate * took * 1e6 / bytes - 1.0) < 1e-3);
        /* what its own memory gives, of which the limit stated is the best */
        assert_true(rate / real(row, "reached") < read * (1.0 + 1e-3));
    }
    json_decref(result);
}

static void a_training_step_counts_its_parameters_and_pairs(void **state)
{
    (void)state;
    json_t *const result =
        run_json("bench --op training --lengths 8 --batch 2 --seconds 0 --json");
    const json_t *const row = json_array_get(json_object_get(result, "rows"), 0);
    assert_int_equal(json_array_size(json_object_get(result, "rows")), 1);
    assert_row(row);
    const double work = 16.0 * (6.0 * 6794496.0 + 14.0 * 6.0 * 256.0 * 4.5);
    const double rate = real(row, "rate"), took = real(row, "milliseconds");
    assert_true(fabs(rate * took * 1e6 / work - 1.0) < 1e-3);
    json_decref(result);
}

static void a_recurrent_layer_is_held_against_its_products(void **state)
{
    (void)state;
    json_t *const result = run_json("bench --op recurrent --lengths 3 --head-sizes 8 "
                                    "--batch 2 --threads 2 --seconds 0 --json");
    const json_t *const rows = json_object_get(result, "rows");
    static const double gates[] = {3.0, 4.0, 1.0}; /* of GRU, LSTM, RNN */
    assert_int_equal(json_array_size(rows), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *const row = json_array_get(rows, i);
        assert_row(row);
        assert_string_equal(words(row, "measure"), "time");
        assert_string_equal(words(row, "against"), "its products");
        /* Input and state by the weights of each token; three times with backward. */
        const double work = 2.0 * 2.0 * 3.0 * 16.0 * 8.0 * gates[i / 2] * (i % 2 ? 3 : 1);
        const double rate = real(row, "rate"), took = real(row, "milliseconds");
        assert_true(fabs(rate * took * 1e6 / work - 1.0) < 1e-3);
    }
    json_decref(result);
}

static void each_mechanism_is_held_against_the_plain_case(void **state)
{
    (void)state;
    json_t *const result = run_json(TINY " --op mechanisms --json");
    const json_t *const rows = json_object_get(result, "rows");
    /* Backward has all but the last. */
    static const char *const against[] = {"causal",        "full",   "full",   "full",
                                          "window of 256", "causal", "entropy"};
    assert_int_equal(json_array_size(rows), 13);
    for (size_t i = 0; i < 13; i++) {
        const json_t *const row = json_array_get(rows, i);
        assert_row(row);
        assert_string_equal(words(row, "against"), against[i % 7]);
        assert_true(real(row, "reached") > 0.0);
    }
    json_decref(result);
}

static void a_time_is_held_against_the_case_it_names(void **state)
{
    (void)state;
    json_t *const result = run_json(TINY " --op statistics --json");
    const json_t *const rows = json_object_get(result, "rows");
    const json_t *const none = json_array_get(rows, 0);
    assert_string_equal(words(none, "case"), "none");
    assert_true(json_is_null(json_object_get(none, "must")));
    for (size_t i = 1; i < 5; i++) {
        const json_t *const row = json_array_get(rows, i);
        assert_string_equal(words(row, "against"), "none");
        assert_string_equal(words(row, "measure"), "time");
        const double ratio = real(row, "milliseconds") / real(none, "milliseconds");
        assert_true(fabs(real(row, "reached") / ratio - 1.0) < 1e-3);
        assert_true(real(row, "must") > real(row, "goal"));
    }
    json_decref(result);
}

static void what_is_asked_hangs_on_length_head_size_and_threads(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        double musts[2], goals[2];
    } asked[] = {
        {"--lengths 512 --head-sizes 64", {0.80, 0.76}, {0.86, 0.83}},
        {"--lengths 512 --head-sizes 64 --threads 2", {0, 0}, {0, 0}},
        {"--lengths 2048 --head-sizes 64", {0.82, 0.80}, {0.90, 0.87}},
        {"--lengths 2048 --head-sizes 128", {0.84, 0.82}, {0.92, 0.89}},
        {"--lengths 2048 --head-sizes 64 --threads 2", {0.78, 0}, {0.88, 0}},
        {"--lengths 512 --head-sizes 60", {0, 0}, {0, 0}},
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char arguments[160];
        snprintf(arguments, sizeof arguments,
                 "bench --op forward --heads 1 --seconds 0 --json %s",
                 asked[i].arguments);
        json_t *const result = run_json(arguments);
        for (size_t causal = 0; causal < 2; causal++) {
            const json_t *const row =
                json_array_get(json_object_get(result, "rows"), causal);
            assert_true(real(row, "must") == asked[i].musts[causal]);
            assert_true(real(row, "goal") == asked[i].goals[causal]);
        }
        json_decref(result);
    }
}

static void sizes_and_one_operation_are_chosen(void **state)
{
    (void)state;
    json_t *const result =
        run_json("bench --op backward --lengths 8,16 --head-sizes 4,8 --heads 2 "
                 "--batch 3 --threads 2 --seconds 0 --json");
    const json_t *const rows = json_object_get(result, "rows");
    const json_t *const limits = json_object_get(result, "limits");
    assert_int_equal(whole(json_array_get(limits, 0), "threads"), 2);
    assert_int_equal(json_array_size(rows), 8);
    for (size_t i = 0; i < 8; i++) {
        const json_t *const row = json_array_get(rows, i);
        assert_int_equal(whole(row, "threads"), 2);
        assert_int_equal(whole(row, "Lk"), i < 4 ? 8 : 16);
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
    assert_non_null(strstr(result.out, ", 1 thread: "));
    assert_non_null(strstr(result.out, "GFLOP/s on registers\n"));
    assert_non_null(strstr(
        result.out, "\noperation  case                type  T      L    D         ms"
                    "    rate reached  must  goal  holds  against\n"));
    assert_non_null(
        strstr(result.out, "\nforward    full                fp32  1     64   16 "));
    assert_non_null(
        strstr(result.out, "\nforward    causal              fp32  1     64   16 "));
    assert_non_null(strstr(result.out, "     -     -         of peak\n"));
    assert_non_null(strstr(result.out, "\n0 of 0 musts hold, 0 of 0 goals are reached."));
    assert_null(strstr(result.out, "backward"));
    run_free(&result);
}

static void columns_stand_whatever_the_cases_are_called(void **state)
{
    (void)state;
    run_result result = run(TINY " --op mechanisms --heads 1", "");
    assert_int_equal(result.code, 0);
    assert_string_equal(result.err, "measuring mechanisms on 1 thread (1 of 1)\n");
    const char *const head = strstr(result.out, "\noperation  case ");
    assert_non_null(head);
    const ptrdiff_t column = strstr(head, " type ") - head;
    int rows = 0;
    bool has_long_name = false;
    for (const char *row = strstr(head + 1, "\nmechanisms "); row;
         row = strstr(row + 1, "\nmechanisms "), rows++) {
        assert_memory_equal(row + column, " fp32 ", 6);
        has_long_name |= strncmp(row + 12, "backward, local 2, global 1 ", 28) == 0;
    }
    assert_true(rows > 5 && has_long_name);
    run_free(&result);
}

static void misuse_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *message;
    } wrong[] = {
        {"x", "unexpected argument 'x'"},
        {"--op x", "--op is 'x', expected forward, backward, statistics, shapes, short, "
                   "types, decode, additive, recurrent, training, mechanisms or "
                   "all"},
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
        {"--full=x", "--full takes no value, got 'x'"},
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
                        "attn bench: no memory for 72057594037927936 bytes\n");
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
    assert_non_null(strstr(
        result.err, "attn bench: ATTN_ISA is 'x87', expected an instruction set that "
                    "this processor has: "));
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
        cmocka_unit_test(json_has_a_row_for_each_visibility_of_forward_and_backward),
        cmocka_unit_test(every_operation_has_rows_of_the_same_form),
        cmocka_unit_test(decoding_is_held_against_reading_memory),
        cmocka_unit_test(a_training_step_counts_its_parameters_and_pairs),
        cmocka_unit_test(a_recurrent_layer_is_held_against_its_products),
        cmocka_unit_test(each_mechanism_is_held_against_the_plain_case),
        cmocka_unit_test(a_time_is_held_against_the_case_it_names),
        cmocka_unit_test(what_is_asked_hangs_on_length_head_size_and_threads),
        cmocka_unit_test(sizes_and_one_operation_are_chosen),
        cmocka_unit_test(the_table_has_a_line_for_each_row),
        cmocka_unit_test(columns_stand_whatever_the_cases_are_called),
        cmocka_unit_test(misuse_is_named),
        cmocka_unit_test(memory_that_is_refused_is_a_failure),
        cmocka_unit_test(an_unknown_instruction_set_is_a_failure),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}

/* Memory grows with the sequence and not with its square: forward with statistics, then
 * backward, over 32,768 positions, where one matrix of weights would take 4 GB.  A window
 * keeps it to seconds; memory is planned before anybody knows of it. */
#include "attn/attention.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LENGTH = 32768, SIZE = 32, HEADS = 2, WINDOW = 128 };

/* The most memory this process has had resident, in bytes; 0 where nobody tells. */
static size_t peak_bytes(void)
{
    FILE *const status = fopen("/proc/self/status", "r");
    char line[256];
    size_t kilobytes = 0;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %zu kB", &kilobytes) == 1)
            break;
    if (status)
        fclose(status);
    return kilobytes * 1024;
}

static size_t allocated_bytes;

/* Written to, so that it is resident before anything is measured. */
static void *resident(size_t count, size_t size)
{
    void *const memory = malloc(count * size);
    assert_non_null(memory);
    memset(memory, 0, count * size);
    allocated_bytes += count * size;
    return memory;
}

static float *numbers(size_t count)
{
    float *const x = resident(count, sizeof *x);
    uint64_t state = 7;
    for (size_t n = 0; n < count; n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[n] = (float)(state >> 40) * 0x1p-23f - 1.0f;
    }
    return x;
}

static attn_input input(void)
{
    return attn_input_dense(numbers((size_t)HEADS * LENGTH * SIZE), HEADS, LENGTH, SIZE);
}

static attn_output output(void)
{
    return attn_output_dense(numbers((size_t)HEADS * LENGTH * SIZE), HEADS, LENGTH, SIZE);
}

static void check(attn_context *context, attn_status status)
{
    if (status != ATTN_OK)
        fail_msg("%s", attn_context_message(context));
}

static void memory_is_that_of_the_tensors_and_the_scratch_planned(void **state)
{
    (void)state;
    const size_t before = peak_bytes();
    if (before == 0) {
        print_message("skipped: memory_is_that_of_the_tensors_and_the_scratch_planned "
                      "(no /proc/self/status)\n");
        skip();
    }
    const attn_shape shape = {1, HEADS, HEADS, LENGTH, LENGTH, SIZE, SIZE};
    const size_t rows = (size_t)HEADS * LENGTH;
    attn_options options;
    attn_options_init(&options, &shape);
    options.causal = true;
    options.window_left = WINDOW;
    const attn_tensors tensors = {
        .query = input(),
        .key = input(),
        .value = input(),
        .output = output(),
        .lse = numbers(rows),
        .statistics = {.entropy = numbers(rows),
                       .largest_weight = numbers(rows),
                       .largest_key = resident(rows, sizeof(int64_t)),
                       .distance = numbers(rows),
                       .received = numbers(rows)},
    };
    const attn_gradients gradients = {
        .output = input(), .query = output(), .key = output(), .value = output()};

    attn_context *context = NULL;
    attn_plan forward, backward;
    check(context, attn_context_create(&context, NULL));
    check(context, attn_plan_forward(context, &shape, &tensors, &options, &forward));
    check(context,
          attn_plan_backward(context, &shape, &tensors, &options, &gradients, &backward));
    check(context, attn_forward(context, &shape, &tensors, &options));
    check(context, attn_backward(context, &shape, &tensors, &options, &gradients));

    /* Room for stacks, the allocator and an emulator, and the rest of two large pages. */
    const size_t slack = (size_t)8 << 20;
    const size_t most =
        before + allocated_bytes + forward.scratch_bytes + backward.scratch_bytes + slack;
    const size_t peak = peak_bytes();
    print_message(
        "%d positions: tensors %zu MB, scratch %zu KB and %zu KB, peak %zu MB\n", LENGTH,
        allocated_bytes >> 20, forward.scratch_bytes >> 10, backward.scratch_bytes >> 10,
        peak >> 20);
    if (peak > most)
        fail_msg("peak is %zu bytes, expected at most %zu", peak, most);
    assert_true(forward.scratch_bytes + backward.scratch_bytes < allocated_bytes);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_that_of_the_tensors_and_the_scratch_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

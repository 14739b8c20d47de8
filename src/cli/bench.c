/* attn bench: how near the kernels come to this machine's limit.  Each figure is exact
 * work (4·D operations for each visible pair forward, 10·D backward) a second, over the
 * rate of a multiply-add loop on registers in the same run.  Both are the best of several
 * turns taken in alternation, since the clock moves and neighbours come and go. */
#define _DEFAULT_SOURCE /* strsep */
#include "base/context.h"
#include "cli/cli.h"
#include "kernel/table.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: attn bench [options]\n"
    "\n"
    "Rates of forward, backward and statistics as fractions of this machine's\n"
    "multiply-add peak, best of several turns in one run.\n"
    "\n"
    "  --op NAME          forward, backward, statistics or all (default)\n"
    "  --lengths L,L,…    sequence lengths (default 512,2048)\n"
    "  --head-sizes D,…   head sizes (default 64,128)\n"
    "  --heads H          heads (default 8)\n"
    "  --batch B          batch (default 1)\n"
    "  --threads N        threads (default 1)\n"
    "  --seconds S        time for each length and head size (default 5)\n"
    "  --json             {\"peak_gflops\", \"threads\", \"isa\", \"rows\": […]}\n"
    "\n"
    "ATTN_ISA=generic|avx2|avx512|neon chooses the instruction set.\n"
    "example: attn bench --lengths 4096 --head-sizes 64 --threads 2\n";

enum { SIZES = 16, OPERATIONS = 3, VARIANTS = 2 * OPERATIONS, FEWEST_ROUNDS = 3 };

enum operation { FORWARD, STATISTICS, BACKWARD };

static const char *const operation_names[OPERATIONS] = {"forward", "statistics",
                                                        "backward"};

struct bench {
    const char *operation; /* or NULL for all */
    int64_t lengths[SIZES], head_sizes[SIZES];
    size_t length_count, head_size_count;
    int64_t H, B, threads;
    double seconds;
    cli_context context;
    const struct attn_kernels *kernels;
    double peak; /* operations a second, the best so far */
    json_t *rows;
};

/* One head size and length: tensors, gradients, and the best time of each variant. */
struct problem {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
    attn_gradients gradients;
    attn_statistics statistics;
    float *memory;
    int64_t *largest_key;
    double best[VARIANTS]; /* seconds; 2·operation + causal */
};

static double seconds_now(const struct bench *bench)
{
    /* On one thread processor time, so that turns lost to a neighbour do not count. */
    struct timespec now;
    clock_gettime(bench->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

enum { PEAK_REPEATS = 1000000 };

static void peak_task(void *argument, size_t worker)
{
    const struct bench *const bench = argument;
    (void)worker;
    bench->kernels->peak(PEAK_REPEATS);
}

static void measure_peak(struct bench *bench)
{
    const double operations = bench->kernels->peak(1) * PEAK_REPEATS;
    const double start = seconds_now(bench);
    attn_context_run(bench->context.attention, (size_t)bench->threads, peak_task, bench);
    const double rate =
        operations * (double)bench->threads / (seconds_now(bench) - start);
    bench->peak = fmax(bench->peak, rate);
}

/* Near enough to N(0, 1): the sum of four uniforms. */
static float random_float(uint64_t *state)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.732f;
}

static attn_status problem_create(struct problem *p, const struct bench *bench, int64_t L,
                                  int64_t D, attn_error *error)
{
    memset(p, 0, sizeof *p);
    p->shape = (attn_shape){bench->B, bench->H, bench->H, L, L, D, D};
    attn_options_init(&p->options, &p->shape);
    const size_t rows = (size_t)(bench->B * bench->H * L), floats = rows * (size_t)D;
    p->memory = malloc((8 * floats + 5 * rows) * sizeof *p->memory);
    p->largest_key = malloc(rows * sizeof *p->largest_key);
    if (!p->memory || !p->largest_key)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for length %lld",
                              (long long)L);
    uint64_t state = 1;
    for (size_t i = 0; i < 4 * floats; i++)
        p->memory[i] = random_float(&state);
    float *const query = p->memory, *const row = p->memory + 8 * floats;
    p->tensors.query = attn_input_dense(query, bench->H, L, D);
    p->tensors.key = attn_input_dense(query + floats, bench->H, L, D);
    p->tensors.value = attn_input_dense(query + 2 * floats, bench->H, L, D);
    p->gradients.output = attn_input_dense(query + 3 * floats, bench->H, L, D);
    p->tensors.output = attn_output_dense(query + 4 * floats, bench->H, L, D);
    p->gradients.query = attn_output_dense(query + 5 * floats, bench->H, L, D);
    p->gradients.key = attn_output_dense(query + 6 * floats, bench->H, L, D);
    p->gradients.value = attn_output_dense(query + 7 * floats, bench->H, L, D);
    p->tensors.lse = row;
    p->statistics = (attn_statistics){.entropy = row + rows,
                                      .largest_weight = row + 2 * rows,
                                      .largest_key = p->largest_key,
                                      .distance = row + 3 * rows,
                                      .first_key_mass = row + 4 * rows};
    for (int variant = 0; variant < VARIANTS; variant++)
        p->best[variant] = (double)INFINITY;
    return ATTN_OK;
}

static void problem_free(struct problem *p)
{
    free(p->memory);
    free(p->largest_key);
}

static bool is_wanted(const struct bench *bench, enum operation operation)
{
    return !bench->operation || strcmp(bench->operation, operation_names[operation]) == 0;
}

/* Backward follows a forward of the same visibility, whose lse it needs. */
static attn_status turn(const struct bench *bench, struct problem *p,
                        enum operation operation, bool causal, attn_error *error)
{
    attn_context *const context = bench->context.attention;
    attn_tensors tensors = p->tensors;
    p->options.causal = causal;
    if (operation == STATISTICS)
        tensors.statistics = p->statistics;
    attn_status status = ATTN_OK;
    if (operation == BACKWARD)
        status = attn_forward(context, &p->shape, &tensors, &p->options);
    const double start = seconds_now(bench);
    if (status == ATTN_OK && operation == BACKWARD)
        status = attn_backward(context, &p->shape, &tensors, &p->options, &p->gradients);
    else if (status == ATTN_OK)
        status = attn_forward(context, &p->shape, &tensors, &p->options);
    const double took = seconds_now(bench) - start;
    if (status != ATTN_OK)
        return attn_error_from_context(error, status, context);
    double *const best = &p->best[2 * operation + causal];
    *best = fmin(*best, took);
    return ATTN_OK;
}

static attn_status measure(struct bench *bench, struct problem *p, attn_error *error)
{
    double spent = 0.0;
    for (int round = 0; round < FEWEST_ROUNDS || spent < bench->seconds; round++) {
        const double start = seconds_now(bench);
        measure_peak(bench);
        for (int variant = 0; variant < VARIANTS; variant++) {
            const enum operation operation = (enum operation)(variant / 2);
            if (is_wanted(bench, operation))
                ATTN_TRY(turn(bench, p, operation, variant % 2, error));
        }
        spent += seconds_now(bench) - start;
    }
    return ATTN_OK;
}

static double work_of(const struct problem *p, enum operation operation, bool causal)
{
    const double L = (double)p->shape.Lk;
    const double pairs = causal ? L * (L + 1.0) / 2.0 : L * L;
    const double of_pair = operation == BACKWARD ? 10.0 : 4.0;
    return of_pair * (double)(p->shape.B * p->shape.H * p->shape.D) * pairs;
}

/* Fractions wait for the end, when the peak is known; rows keep the rate. */
static void keep_rows(struct bench *bench, const struct problem *p)
{
    for (int variant = 0; variant < VARIANTS; variant++) {
        const enum operation operation = (enum operation)(variant / 2);
        const bool causal = variant % 2;
        if (!is_wanted(bench, operation))
            continue;
        const double rate = work_of(p, operation, causal) / p->best[variant];
        json_array_append_new(
            bench->rows,
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:f, s:f}", "op",
                      operation_names[operation], "dtype", "fp32", "B",
                      (json_int_t)p->shape.B, "H", (json_int_t)p->shape.H, "L",
                      (json_int_t)p->shape.Lk, "D", (json_int_t)p->shape.D, "causal",
                      causal, "milliseconds", 1e3 * p->best[variant], "gflops",
                      1e-9 * rate));
    }
}

static void print_table(const struct bench *bench)
{
    size_t index;
    json_t *row;
    printf("%s, %lld thread%s: %.1f GFLOP/s on registers\n\n",
           attn_context_isa(bench->context.attention), (long long)bench->threads,
           bench->threads == 1 ? "" : "s", bench->peak * 1e-9);
    printf("operation       L     D  visible          ms  GFLOP/s  of peak\n");
    json_array_foreach(bench->rows, index, row)
        printf("%-10s %6lld %5lld  %-7s %11.2f %8.1f    %.3f\n",
               json_string_value(json_object_get(row, "op")),
               (long long)json_integer_value(json_object_get(row, "L")),
               (long long)json_integer_value(json_object_get(row, "D")),
               json_is_true(json_object_get(row, "causal")) ? "causal" : "full",
               json_real_value(json_object_get(row, "milliseconds")),
               json_real_value(json_object_get(row, "gflops")),
               json_real_value(json_object_get(row, "fraction")));
}

static void print_json(const struct bench *bench)
{
    json_t *const result =
        json_pack("{s:f, s:I, s:s, s:O}", "peak_gflops", 1e-9 * bench->peak, "threads",
                  (json_int_t)bench->threads, "isa",
                  attn_context_isa(bench->context.attention), "rows", bench->rows);
    json_dumpf(result, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(result);
}

static attn_status run(struct bench *bench, bool as_json, attn_error *error)
{
    ATTN_TRY(cli_context_create(&bench->context, (size_t)bench->threads, error));
    bench->kernels = attn_kernels_find(attn_context_isa(bench->context.attention));
    bench->rows = json_array();
    attn_status status = ATTN_OK;
    for (size_t l = 0; l < bench->length_count && status == ATTN_OK; l++) {
        for (size_t d = 0; d < bench->head_size_count && status == ATTN_OK; d++) {
            struct problem p;
            status =
                problem_create(&p, bench, bench->lengths[l], bench->head_sizes[d], error);
            if (status == ATTN_OK)
                status = measure(bench, &p, error);
            if (status == ATTN_OK)
                keep_rows(bench, &p);
            problem_free(&p);
        }
    }
    size_t index;
    json_t *row;
    json_array_foreach(bench->rows, index, row)
    {
        const double rate = json_real_value(json_object_get(row, "gflops"));
        json_object_set_new(row, "fraction", json_real(rate / (1e-9 * bench->peak)));
    }
    if (status == ATTN_OK && as_json)
        print_json(bench);
    else if (status == ATTN_OK)
        print_table(bench);
    json_decref(bench->rows);
    cli_context_destroy(&bench->context);
    return status;
}

/* "512,2048" */
static int parse_sizes(const char *option, const char *text, int64_t high, int64_t *sizes,
                       size_t *count)
{
    *count = 0;
    char copy[256];
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return cli_misused("bench", "--%s is too long", option);
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (*count == SIZES)
            return cli_misused("bench", "--%s has more than %d sizes", option, SIZES);
        const int code = cli_integer("bench", option, item, 1, high, &sizes[(*count)++]);
        if (code != CLI_DONE)
            return code;
    }
    return CLI_DONE;
}

int cli_bench(int argc, char **argv)
{
    bool as_json = false, stop = false;
    const char *lengths = "512,2048", *head_sizes = "64,128", *heads = "8", *batch = "1";
    const char *threads = "1", *duration = "5", *operation = "all";
    const cli_option options[] = {{"op", 0, NULL, &operation},
                                  {"lengths", 0, NULL, &lengths},
                                  {"head-sizes", 0, NULL, &head_sizes},
                                  {"heads", 0, NULL, &heads},
                                  {"batch", 0, NULL, &batch},
                                  {"threads", 0, NULL, &threads},
                                  {"seconds", 0, NULL, &duration},
                                  {"json", 0, &as_json, NULL},
                                  {NULL, 0, NULL, NULL}};
    struct bench bench = {0};
    int count = 0;
    int code = cli_parse(argc, argv, options, help, &count, &stop);
    if (stop)
        return code;
    if (count > 0)
        return cli_misused("bench", "unexpected argument '%s'", argv[1]);
    bench.operation = strcmp(operation, "all") == 0 ? NULL : operation;
    if (!is_wanted(&bench, FORWARD) && !is_wanted(&bench, STATISTICS) &&
        !is_wanted(&bench, BACKWARD))
        return cli_misused("bench",
                           "--op is '%s', expected forward, backward, statistics or all",
                           operation);
    if ((code = parse_sizes("lengths", lengths, 1 << 20, bench.lengths,
                            &bench.length_count)) != CLI_DONE ||
        (code = parse_sizes("head-sizes", head_sizes, 1024, bench.head_sizes,
                            &bench.head_size_count)) != CLI_DONE ||
        (code = cli_integer("bench", "heads", heads, 1, 4096, &bench.H)) != CLI_DONE ||
        (code = cli_integer("bench", "batch", batch, 1, 4096, &bench.B)) != CLI_DONE ||
        (code = cli_integer("bench", "threads", threads, 1, 1024, &bench.threads)) !=
            CLI_DONE ||
        (code = cli_decimal("bench", "seconds", duration, 0.0, 3600.0, &bench.seconds)) !=
            CLI_DONE)
        return code;
    attn_error error;
    return run(&bench, as_json, &error) == ATTN_OK ? CLI_DONE : cli_fail("bench", &error);
}

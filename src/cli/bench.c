/* attn bench: how near the kernels come to this machine's limit.  Each figure is exact
 * work (4·D operations for each visible pair forward, 10·D backward) a second, over the
 * rate of a multiply-add loop on registers in the same run; for decoding bytes a second
 * over the rate of only reading them; or a time over that of a simpler case. */
#define _DEFAULT_SOURCE /* strsep */
#include "cli/bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: attn bench [options]\n"
    "\n"
    "What the operations reach on this machine, beside what is asked of them: rates\n"
    "as fractions of its multiply-add peak or of its read rate, or times over those\n"
    "of a simpler case; best of several turns in one run.\n"
    "\n"
    "  --op NAME          forward, backward, statistics, shapes, short, types,\n"
    "                     decode, additive, recurrent, training, mechanisms or all\n"
    "                     (default)\n"
    "  --full             all that is asked, on 1 thread and on all: several minutes\n"
    "  --lengths L,L,…    sequence lengths, in place of those that suit the operation\n"
    "  --head-sizes D,…   head sizes, likewise\n"
    "  --heads H          heads, likewise\n"
    "  --batch B          batch, likewise\n"
    "  --threads N        threads (default 1; with --full 1 and then all processors)\n"
    "  --seconds S        time for each group of figures (default 1)\n"
    "  --json             {\"version\", \"isa\", \"limits\": […], \"rows\": […]}\n"
    "\n"
    "ATTN_ISA=generic|avx2|avx512|avx512bf16|amx|neon chooses the instruction set.\n"
    "example: attn bench --op forward --lengths 4096 --threads 2\n";

static const struct family {
    const char *name;
    attn_status (*run)(struct bench *bench, attn_error *error);
} families[] = {
    {"forward", bench_forward},       {"backward", bench_backward},
    {"statistics", bench_statistics}, {"shapes", bench_shapes},
    {"short", bench_short},           {"types", bench_types},
    {"decode", bench_decode},         {"additive", bench_additive},
    {"recurrent", bench_recurrent},   {"training", bench_training},
    {"mechanisms", bench_mechanisms},
};
enum { FAMILIES = sizeof families / sizeof *families };

attn_status bench_each_size(struct bench *bench, const int64_t *own_lengths,
                            size_t length_count, const int64_t *own_head_sizes,
                            size_t size_count,
                            attn_status (*measure)(struct bench *bench, int64_t L,
                                                   int64_t D, attn_error *error),
                            attn_error *error)
{
    const bool asks_lengths = bench->length_count > 0;
    const bool asks_sizes = bench->head_size_count > 0;
    const int64_t *const lengths = asks_lengths ? bench->lengths : own_lengths;
    const int64_t *const sizes = asks_sizes ? bench->head_sizes : own_head_sizes;
    for (size_t l = 0; l < (asks_lengths ? bench->length_count : length_count); l++)
        for (size_t d = 0; d < (asks_sizes ? bench->head_size_count : size_count); d++)
            ATTN_TRY(measure(bench, lengths[l], sizes[d], error));
    return ATTN_OK;
}

static attn_status run_family(struct bench *bench, const struct family *family,
                              int *number, int count, attn_error *error)
{
    const int64_t threads = bench->team->threads;
    if (bench->operation && strcmp(bench->operation, family->name) != 0)
        return ATTN_OK;
    cli_say("measuring %s on %lld thread%s (%d of %d)\n", family->name,
            (long long)threads, attn_s(threads), ++*number, count);
    return family->run(bench, error);
}

static attn_status run_families(struct bench *bench, attn_error *error)
{
    const int count = (int)bench->team_count * (bench->operation ? 1 : FAMILIES);
    int number = 0;
    for (size_t t = 0; t < bench->team_count; t++) {
        bench->team = &bench->teams[t];
        ATTN_TRY(cli_context_create(&bench->team->context, (size_t)bench->team->threads,
                                    error));
        bench->kernels =
            attn_kernels_find(attn_context_isa(bench->team->context.attention));
        for (size_t f = 0; f < FAMILIES; f++)
            ATTN_TRY(run_family(bench, &families[f], &number, count, error));
    }
    return ATTN_OK;
}

static attn_status run(struct bench *bench, bool as_json, attn_error *error)
{
    bench->rows = json_array();
    const attn_status status = run_families(bench, error);
    if (status == ATTN_OK) {
        if (as_json)
            bench_print_json(bench);
        else
            bench_print_table(bench);
    }
    json_decref(bench->rows);
    for (size_t t = 0; t < bench->team_count; t++)
        cli_context_destroy(&bench->teams[t].context);
    return status;
}

/* "512,2048" */
static int parse_sizes(const char *option, const char *text, int64_t high, int64_t *sizes,
                       size_t *count)
{
    *count = 0;
    if (!text)
        return CLI_DONE;
    char copy[256];
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return cli_misused("bench", "--%s is too long", option);
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (*count == BENCH_SIZES)
            return cli_misused("bench", "--%s has more than %d sizes", option,
                               BENCH_SIZES);
        const int code = cli_integer("bench", option, item, 1, high, &sizes[(*count)++]);
        if (code != CLI_DONE)
            return code;
    }
    return CLI_DONE;
}

static int parse_operation(struct bench *bench, const char *name)
{
    if (strcmp(name, "all") == 0)
        return CLI_DONE;
    bench->operation = name;
    char expected[256] = "";
    for (size_t f = 0; f < FAMILIES; f++) {
        if (strcmp(name, families[f].name) == 0)
            return CLI_DONE;
        const size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s%s", f > 0 ? ", " : "",
                 families[f].name);
    }
    return cli_misused("bench", "--op is '%s', expected %s or all", name, expected);
}

/* One thread and all of them where everything is asked for, else the number given. */
static int parse_threads(struct bench *bench, const char *text)
{
    bench->team_count = 1;
    bench->teams[0].threads = 1;
    int64_t threads = 1;
    if (!text && !bench->full)
        return CLI_DONE;
    const int code = text ? cli_integer("bench", "threads", text, 1, 1024, &threads)
                          : cli_threads("bench", NULL, &threads);
    if (code != CLI_DONE)
        return code;
    if (!text && threads > 1)
        bench->teams[bench->team_count++].threads = threads;
    if (text)
        bench->teams[0].threads = threads;
    return CLI_DONE;
}

int cli_bench(int argc, char **argv)
{
    bool as_json = false;
    const char *lengths = NULL, *head_sizes = NULL, *threads = NULL, *operation = "all";
    struct bench bench = {.seconds = 1.0};
    const cli_option options[] = {
        {"op", .value = &operation},
        {"full", .flag = &bench.full},
        {"lengths", .value = &lengths},
        {"head-sizes", .value = &head_sizes},
        {"heads", .integer = &bench.H, .low = 1, .high = 4096},
        {"batch", .integer = &bench.B, .low = 1, .high = 4096},
        {"threads", .value = &threads},
        {"seconds", .decimal = &bench.seconds, .least = 0.0, .most = 3600.0},
        {"json", .flag = &as_json},
        {0},
    };
    int count, code;
    if (!cli_parse(argc, argv, options, help, &count, &code))
        return code;
    if (count > 0)
        return cli_misused("bench", "unexpected argument '%s'", argv[1]);
    if ((code = parse_operation(&bench, operation)) != CLI_DONE ||
        (code = parse_sizes("lengths", lengths, 1 << 20, bench.lengths,
                            &bench.length_count)) != CLI_DONE ||
        (code = parse_sizes("head-sizes", head_sizes, 1024, bench.head_sizes,
                            &bench.head_size_count)) != CLI_DONE ||
        (code = parse_threads(&bench, threads)) != CLI_DONE)
        return code;
    attn_error error;
    return run(&bench, as_json, &error) == ATTN_OK ? CLI_DONE : cli_fail("bench", &error);
}

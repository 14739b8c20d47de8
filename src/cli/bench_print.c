/* What a run of `attn bench` found, as a table or as JSON. */
#include "cli/bench.h"
#include <stdio.h>
#include <string.h>

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key)); /* 0 for null */
}

static const char *text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static int whole(const json_t *row, const char *key)
{
    return (int)json_integer_value(json_object_get(row, key));
}

static bool is_less_better(const json_t *row)
{
    return strncmp(text(row, "measure"), "time", 4) == 0;
}

static bool holds(const json_t *row, const char *key)
{
    const double bound = number(row, key), reached = number(row, "reached");
    return is_less_better(row) ? reached <= bound : reached >= bound;
}

static const char *verdict(const json_t *row)
{
    const bool has_goal = number(row, "goal") > 0.0, has_must = number(row, "must") > 0.0;
    if (has_goal && holds(row, "goal"))
        return "goal";
    if (has_must)
        return holds(row, "must") ? "must" : "MISSED";
    return "";
}

static void print_bound(const json_t *row, const char *key)
{
    if (number(row, key) > 0.0)
        printf(" %5.2f", number(row, key));
    else
        printf("     -");
}

/* Of the column of names: what the longest has, 19 at least. */
static int name_columns(const json_t *rows)
{
    size_t index, columns = 19;
    json_t *row;
    json_array_foreach((json_t *)rows, index, row)
    {
        const size_t own = strlen(text(row, "case"));
        columns = own > columns ? own : columns;
    }
    return (int)columns;
}

static void print_row(const json_t *row, int columns)
{
    char against[64];
    snprintf(against, sizeof against, "%s %s",
             strcmp(text(row, "measure"), "fraction") == 0 ? "of" : text(row, "measure"),
             text(row, "against"));
    if (is_less_better(row))
        snprintf(against, sizeof against, "time of %s", text(row, "against"));
    else if (strcmp(text(row, "measure"), "speed") == 0)
        snprintf(against, sizeof against, "speed of %s", text(row, "against"));
    printf("%-10s %-*s %-4s %2d %6d %4d %10.3f %7.1f %7.3f", text(row, "op"), columns,
           text(row, "case"), text(row, "dtype"), whole(row, "threads"), whole(row, "Lk"),
           whole(row, "D"), number(row, "milliseconds"), number(row, "rate"),
           number(row, "reached"));
    print_bound(row, "must");
    print_bound(row, "goal");
    printf("  %-6s %s\n", verdict(row), against);
}

static void print_limits(const struct bench *bench)
{
    for (size_t t = 0; t < bench->team_count; t++) {
        const struct bench_team *const team = &bench->teams[t];
        printf("%s, %lld thread%s: %.1f GFLOP/s on registers",
               attn_context_isa(team->context.attention), (long long)team->threads,
               attn_s(team->threads), team->limits[BENCH_OF_PEAK] * 1e-9);
        if (team->limits[BENCH_OF_READ] > 0.0)
            printf(", %.1f GB/s read from memory", team->limits[BENCH_OF_READ] * 1e-9);
        if (team->limits[BENCH_OF_TANH] > 0.0)
            printf(", %.2f Gtanh/s", team->limits[BENCH_OF_TANH] * 1e-9);
        putchar('\n');
    }
}

void bench_print_table(const struct bench *bench)
{
    size_t index;
    json_t *row;
    int musts = 0, kept = 0, goals = 0, reached = 0;
    const int columns = name_columns(bench->rows);
    print_limits(bench);
    printf("\noperation  %-*s type  T      L    D         ms    rate"
           " reached  must  goal  holds  against\n",
           columns, "case");
    json_array_foreach(bench->rows, index, row)
    {
        print_row(row, columns);
        if (number(row, "must") > 0.0)
            musts++, kept += holds(row, "must");
        if (number(row, "goal") > 0.0)
            goals++, reached += holds(row, "goal");
    }
    printf("\n%d of %d musts hold, %d of %d goals are reached.  "
           "Rate: GFLOP/s; of decode GB/s,\n"
           "of additive elements of pairs, in 1e9 a second.\n",
           kept, musts, reached, goals);
}

void bench_print_json(const struct bench *bench)
{
    json_t *const limits = json_array();
    for (size_t t = 0; t < bench->team_count; t++) {
        const struct bench_team *const team = &bench->teams[t];
        json_t *const limit = json_pack("{s:I}", "threads", (json_int_t)team->threads);
        for (size_t i = 0; i < BENCH_LIMITS; i++)
            json_object_set_new(limit, bench_limit_words[i].key,
                                team->limits[i] > 0.0 ? json_real(1e-9 * team->limits[i])
                                                      : json_null());
        json_array_append_new(limits, limit);
    }
    json_t *const result =
        json_pack("{s:s, s:s, s:o, s:O}", "version", ATTN_VERSION, "isa",
                  bench->kernels->isa, "limits", limits, "rows", bench->rows);
    json_dumpf(result, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(result);
}

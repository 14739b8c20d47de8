/* A group of cases: their memory, their turns, and the rows that come of them.  Every
 * figure is the best of several turns taken in alternation, since the clock moves and
 * neighbours come and go. */
#include "base/pages.h"
#include "cli/bench.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_group_init(struct bench_group *group, struct bench *bench)
{
    memset(group, 0, sizeof *group);
    group->bench = bench;
}

/* On large pages where the system gives them, as the tensors of the models and caches
 * lie. */
void *bench_memory(struct bench_group *group, size_t bytes)
{
    void *const memory =
        group->block_count < BENCH_BLOCKS ? attn_pages_allocate(bytes) : NULL;
    if (!memory) {
        if (group->error.status == ATTN_OK)
            attn_error_set(&group->error, ATTN_ENOMEM, "no memory for %zu bytes", bytes);
        return NULL;
    }
    memset(memory, 0, bytes);
    group->blocks[group->block_count++] = memory;
    return memory;
}

/* The sum of four uniforms. */
static float random_float(uint64_t *state)
{
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) * 0x1p-24f - 0.5f;
    }
    return sum * 1.732f;
}

float *bench_numbers(struct bench_group *group, size_t count)
{
    float *const numbers = bench_memory(group, count * sizeof *numbers);
    uint64_t state = group->block_count;
    for (size_t i = 0; numbers && i < count; i++)
        numbers[i] = random_float(&state);
    return numbers;
}

static attn_status run_forward(struct bench_case *c, attn_context *context)
{
    return attn_forward(context, &c->shape, &c->tensors, &c->options);
}

/* A slot; the last one again when there are no more, which is an error of this file's
 * callers and not of a user. */
static struct bench_case *take_case(struct bench_group *group, const char *name)
{
    if (group->count == BENCH_CASES)
        attn_error_set(&group->error, ATTN_EINVAL, "a group has more than %d cases",
                       BENCH_CASES);
    else
        group->count++;
    struct bench_case *const c = &group->cases[group->count - 1];
    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->run = run_forward;
    c->dtype = "fp32";
    return c;
}

struct bench_case *bench_add_bare(struct bench_group *group, const char *op,
                                  const char *name, const attn_shape *shape)
{
    struct bench_case *const c = take_case(group, name);
    c->op = op;
    c->shape = *shape;
    attn_options_init(&c->options, shape);
    return c;
}

struct bench_case *bench_add(struct bench_group *group, const char *op, const char *name,
                             const attn_shape *shape)
{
    struct bench_case *const c = bench_add_bare(group, op, name, shape);
    const size_t query_rows = (size_t)(shape->B * shape->H * shape->Lq);
    const size_t key_rows = (size_t)(shape->B * shape->Hk * shape->Lk);
    const size_t D = (size_t)shape->D, Dv = (size_t)shape->Dv;
    c->tensors.query = attn_input_dense(bench_numbers(group, query_rows * D), shape->H,
                                        shape->Lq, shape->D);
    c->tensors.key = attn_input_dense(bench_numbers(group, key_rows * D), shape->Hk,
                                      shape->Lk, shape->D);
    c->tensors.value = attn_input_dense(bench_numbers(group, key_rows * Dv), shape->Hk,
                                        shape->Lk, shape->Dv);
    c->tensors.output =
        attn_output_dense(bench_memory(group, query_rows * Dv * sizeof(float)), shape->H,
                          shape->Lq, shape->Dv);
    c->tensors.lse = bench_memory(group, query_rows * sizeof(float));
    return c;
}

struct bench_case *bench_add_like(struct bench_group *group,
                                  const struct bench_case *like, const char *name)
{
    struct bench_case *const c = take_case(group, name);
    if (c != like)
        *c = *like;
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

void bench_compare(struct bench_case *c, const struct bench_case *against,
                   enum bench_measure measure, double must, double goal)
{
    c->against = against;
    c->measure = measure;
    c->must = must;
    c->goal = goal;
}

/* Runs the case for a few milliseconds, once at least, and keeps the best time. */
static attn_status turn(const struct bench *bench, struct bench_case *c,
                        attn_error *error)
{
    attn_context *const context = bench->team->context.attention;
    double spent = 0.0;
    do {
        const double start = bench_now(bench);
        const attn_status status = c->run(c, context);
        const double took = bench_now(bench) - start;
        if (status != ATTN_OK)
            return attn_error_from_context(error, status, context);
        c->best = fmin(c->best, took);
        spent += took;
    } while (spent < fmin(0.003, bench->seconds));
    return ATTN_OK;
}

static attn_status prepare_all(struct bench_group *group, attn_error *error)
{
    attn_context *const context = group->bench->team->context.attention;
    for (size_t i = 0; i < group->count; i++) {
        struct bench_case *const c = &group->cases[i];
        c->best = (double)INFINITY;
        attn_plan plan = {0};
        attn_status status = c->prepare ? c->prepare(c, context) : ATTN_OK;
        if (status == ATTN_OK && c->work == 0.0)
            status =
                attn_plan_forward(context, &c->shape, &c->tensors, &c->options, &plan);
        if (status != ATTN_OK)
            return attn_error_from_context(error, status, context);
        if (c->work == 0.0)
            c->work = 2.0 * (double)(c->shape.D + c->shape.Dv) * plan.visible_pairs;
    }
    return ATTN_OK;
}

/* The longest of the cases that are held against the peak: clocks sink while a processor
 * works hard, so the peak has to last as long. */
static double longest(const struct bench_group *group)
{
    double seconds = 0.0;
    for (size_t i = 0; i < group->count; i++)
        if (group->cases[i].measure == BENCH_OF_PEAK && isfinite(group->cases[i].best))
            seconds = fmax(seconds, group->cases[i].best);
    return seconds;
}

enum { FEWEST_ROUNDS = 3 };

static attn_status take_turns(struct bench_group *group, attn_error *error)
{
    struct bench *const bench = group->bench;
    double spent = 0.0;
    for (int round = 0; round < FEWEST_ROUNDS || spent < bench->seconds; round++) {
        const double start = bench_now(bench);
        bench_measure_limit(group, BENCH_OF_PEAK, longest(group));
        for (size_t i = 0; i < group->count; i++) {
            struct bench_case *const c = &group->cases[i];
            if (c->measure == BENCH_OF_READ)
                bench_measure_read(bench, c);
            if (c->measure == BENCH_OF_TANH)
                bench_measure_limit(group, BENCH_OF_TANH, 0.0);
            ATTN_TRY(turn(bench, c, error));
        }
        spent += bench_now(bench) - start;
    }
    return ATTN_OK;
}

static double reached(const struct bench_group *group, const struct bench_case *c)
{
    switch (c->measure) {
    case BENCH_OF_PEAK:
    case BENCH_OF_TANH:
        return c->work / c->best / group->limits[c->measure];
    case BENCH_OF_READ:
        return c->work / c->best / c->read_rate;
    case BENCH_OF_RATE:
        return c->work / c->best * c->against->best / c->against->work;
    case BENCH_TIME:
        return c->best / c->against->best;
    case BENCH_TIME_OF_WORK:
        return c->best / c->work * c->against->work / c->against->best;
    case BENCH_SPEED:
        return c->against->best / c->best;
    }
    return 0.0;
}

static json_t *real_or_null(double number)
{
    return number > 0.0 ? json_real(number) : json_null();
}

static void keep_row(const struct bench_group *group, const struct bench_case *c)
{
    struct bench *const bench = group->bench;
    static const char *const measures[] = {
        [BENCH_OF_PEAK] = "fraction", [BENCH_OF_READ] = "fraction",
        [BENCH_OF_TANH] = "fraction", [BENCH_OF_RATE] = "fraction",
        [BENCH_TIME] = "time",        [BENCH_TIME_OF_WORK] = "time of work",
        [BENCH_SPEED] = "speed",
    };
    const struct bench_limit_words *const limit = &bench_limit_words[c->unit];
    const char *const against = c->against ? c->against->name : limit->name;
    json_array_append_new(
        bench->rows,
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:s,"
                  " s:s, s:f, s:o, s:o}",
                  "op", c->op, "case", c->name, "dtype", c->dtype, "threads",
                  (json_int_t)bench->team->threads, "B", (json_int_t)c->shape.B, "H",
                  (json_int_t)c->shape.H, "Hk", (json_int_t)c->shape.Hk, "Lq",
                  (json_int_t)c->shape.Lq, "Lk", (json_int_t)c->shape.Lk, "D",
                  (json_int_t)c->shape.D, "milliseconds", 1e3 * c->best, "rate",
                  1e-9 * c->work / c->best, "unit", limit->unit, "measure",
                  measures[c->measure], "against", against, "reached", reached(group, c),
                  "must", real_or_null(c->must), "goal", real_or_null(c->goal)));
}

void bench_group_end(struct bench_group *group)
{
    for (size_t i = 0; i < group->block_count; i++)
        free(group->blocks[i]);
}

attn_status bench_group_run(struct bench_group *group, attn_error *error)
{
    attn_status status = group->error.status;
    if (status != ATTN_OK)
        *error = group->error;
    if (status == ATTN_OK)
        status = prepare_all(group, error);
    if (status == ATTN_OK)
        status = take_turns(group, error);
    for (size_t i = 0; status == ATTN_OK && i < group->count; i++)
        if (!group->cases[i].quiet)
            keep_row(group, &group->cases[i]);
    bench_group_end(group);
    return status;
}

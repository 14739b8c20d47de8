/* What the files of `attn bench` share.  A case is one thing that is timed; a group is a
 * few cases that take turns in one run, together with the machine's limits, so that what
 * they are compared with ran under the same clock and the same neighbours.  Each family
 * of operations is one file that makes groups. */
#ifndef ATTN_CLI_BENCH_H
#define ATTN_CLI_BENCH_H

#include "base/context.h"
#include "cli/cli.h"
#include "kernel/table.h"
#include <jansson.h>

enum { BENCH_SIZES = 16, BENCH_CASES = 24, BENCH_BLOCKS = 160, BENCH_TEAMS = 2 };

/* What a case's time becomes. */
enum bench_measure {
    BENCH_OF_PEAK,      /* operations a second, over multiply-adds on registers */
    BENCH_OF_READ,      /* bytes a second, over reading the same memory */
    BENCH_OF_TANH,      /* elements of pairs a second, over tanh by itself */
    BENCH_OF_RATE,      /* operations a second, over those of another case */
    BENCH_TIME,         /* time, over that of another case: here less is better */
    BENCH_TIME_OF_WORK, /* the same, for the same number of operations */
    BENCH_SPEED         /* time of another case, over time */
};

/* Memory that a case reads. */
struct bench_stretch {
    const void *x; /* aligned to 64 bytes */
    size_t bytes;
};
enum { BENCH_STRETCHES = 2 };

struct bench_case {
    const char *op, *dtype;
    char name[40];
    attn_shape shape;
    attn_tensors tensors;
    attn_options options;
    attn_gradients gradients;
    void *more; /* what run needs besides */

    attn_status (*prepare)(struct bench_case *bench_case, attn_context *context);
    attn_status (*run)(struct bench_case *bench_case, attn_context *context);
    /* For BENCH_OF_READ: what another run reads, which no cache holds. */
    void (*reads)(const struct bench_case *bench_case,
                  struct bench_stretch reads[BENCH_STRETCHES]);
    double work; /* operations or bytes of one run; 0: 4·D for each visible pair */
    enum bench_measure measure;
    enum bench_measure unit;          /* of the limit that its rate counts like */
    const struct bench_case *against; /* the other case */
    bool quiet;                       /* only there to be compared with */
    double must, goal;                /* 0: none is stated */

    double best;      /* seconds */
    double read_rate; /* bytes a second, best */
};

/* The machine's limits, by the measure they belong to. */
enum { BENCH_LIMITS = BENCH_OF_TANH + 1 };

/* A number of threads to measure with. */
struct bench_team {
    int64_t threads;
    cli_context context;
    double limits[BENCH_LIMITS]; /* a second, best of the run; 0: not measured */
};

struct bench {
    const char *operation; /* or NULL for all */
    bool full;
    int64_t lengths[BENCH_SIZES], head_sizes[BENCH_SIZES];
    size_t length_count, head_size_count; /* 0: what the family likes */
    int64_t H, B;                         /* 0: likewise */
    double seconds;                       /* for each group */
    struct bench_team teams[BENCH_TEAMS], *team;
    size_t team_count;
    const struct attn_kernels *kernels;
    json_t *rows;
};

struct bench_group {
    struct bench *bench;
    double limits[BENCH_LIMITS]; /* the best of its own turns: what its rates are held
                                  * against */
    size_t count, block_count;
    struct bench_case cases[BENCH_CASES];
    void *blocks[BENCH_BLOCKS];
    attn_error error; /* the first one: whoever fills the group need not ask */
};

/* ---- bench_limits.c ---- */

/* On one thread its processor time, so that turns lost to a neighbour do not count. */
double bench_now(const struct bench *bench);

/* Works for so many seconds at least, and keeps the best of the group and of the team. */
void bench_measure_limit(struct bench_group *group, enum bench_measure limit,
                         double seconds);

/* Reads what a run of the case reads, and keeps the best rate of it and of the team. */
void bench_measure_read(struct bench *bench, struct bench_case *bench_case);

/* "peak", "GFLOP/s" and "peak_gflops", and so on. */
struct bench_limit_words {
    const char *name, *unit, *key;
};
extern const struct bench_limit_words bench_limit_words[BENCH_LIMITS];

/* ---- bench_group.c ---- */

void bench_group_init(struct bench_group *group, struct bench *bench);

/* Memory until the group ends; NULL where it was refused. */
void *bench_memory(struct bench_group *group, size_t bytes);

/* Numbers near enough to N(0, 1). */
float *bench_numbers(struct bench_group *group, size_t count);

/* A case without tensors. */
struct bench_case *bench_add_bare(struct bench_group *group, const char *op,
                                  const char *name, const attn_shape *shape);

/* A forward pass over dense fp32 tensors of random numbers, against the peak. */
struct bench_case *bench_add(struct bench_group *group, const char *op, const char *name,
                             const attn_shape *shape);

/* The same on the same tensors. */
struct bench_case *bench_add_like(struct bench_group *group,
                                  const struct bench_case *like, const char *name);

/* Holds the case against another one. */
void bench_compare(struct bench_case *bench_case, const struct bench_case *against,
                   enum bench_measure measure, double must, double goal);

/* Makes of a forward pass the backward pass that follows it. */
void bench_make_backward(struct bench_group *group, struct bench_case *c);

/* Frees the group's memory: for who does not come to run it. */
void bench_group_end(struct bench_group *group);

/* Times the cases by turns, keeps their rows, and frees the group's memory. */
ATTN_CHECKED attn_status bench_group_run(struct bench_group *group, attn_error *error);

/* ---- the families ---- */

/* Measures each length with each head size: those that were asked for, else the family's
 * own. */
ATTN_CHECKED attn_status bench_each_size(
    struct bench *bench, const int64_t *own_lengths, size_t length_count,
    const int64_t *own_head_sizes, size_t size_count,
    attn_status (*measure)(struct bench *bench, int64_t L, int64_t D, attn_error *error),
    attn_error *error);

attn_status bench_forward(struct bench *bench, attn_error *error);
attn_status bench_backward(struct bench *bench, attn_error *error);
attn_status bench_statistics(struct bench *bench, attn_error *error);
attn_status bench_shapes(struct bench *bench, attn_error *error);
attn_status bench_mechanisms(struct bench *bench, attn_error *error);
attn_status bench_short(struct bench *bench, attn_error *error);
attn_status bench_types(struct bench *bench, attn_error *error);
attn_status bench_decode(struct bench *bench, attn_error *error);
attn_status bench_additive(struct bench *bench, attn_error *error);
attn_status bench_recurrent(struct bench *bench, attn_error *error);
attn_status bench_training(struct bench *bench, attn_error *error);

/* ---- bench_halves.c ---- */

/* Stores the case's tensors, its output too, in that type. */
void bench_store(struct bench_group *group, struct bench_case *bench_case,
                 attn_type type);

/* "fp32", "fp16", "bf16" */
const char *bench_type_name(attn_type type);

/* ---- bench_print.c ---- */

void bench_print_table(const struct bench *bench);
void bench_print_json(const struct bench *bench);

#endif

/* What the machine can do at most: multiply-adds on registers, which bound every kernel;
 * reading memory that no cache holds, which bounds decoding; tanh by itself.  They run on
 * as many threads as the cases they are compared with.
 *
 * What reading comes to depends on the memory: where its pages lie, and how large they
 * are, makes a factor of ten on some machines.  So each case is held against reading
 * the memory that is its own. */
#include "cli/bench.h"
#include <math.h>
#include <time.h>

double bench_now(const struct bench *bench)
{
    struct timespec now;
    clock_gettime(bench->team->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC,
                  &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

const struct bench_limit_words bench_limit_words[BENCH_LIMITS] = {
    [BENCH_OF_PEAK] = {"peak", "GFLOP/s", "peak_gflops"},
    [BENCH_OF_READ] = {"read", "GB/s", "read_gbytes"},
    [BENCH_OF_TANH] = {"tanh", "Gtanh/s", "tanh_giga"},
};

enum { PEAK_REPEATS = 1000000, TANH_REPEATS = 5000 };

static void peak_task(void *argument, size_t worker)
{
    const struct bench *const bench = argument;
    (void)worker;
    bench->kernels->peak(PEAK_REPEATS);
}

static void tanh_task(void *argument, size_t worker)
{
    const struct bench *const bench = argument;
    (void)worker;
    bench->kernels->tanh(TANH_REPEATS);
}

void bench_measure_limit(struct bench_group *group, enum bench_measure limit,
                         double seconds)
{
    struct bench *const bench = group->bench;
    struct bench_team *const team = bench->team;
    const double threads = (double)team->threads;
    const struct {
        void (*task)(void *argument, size_t worker);
        double work;
    } runs[BENCH_LIMITS] = {
        [BENCH_OF_PEAK] = {peak_task, threads * PEAK_REPEATS * bench->kernels->peak(1)},
        [BENCH_OF_TANH] = {tanh_task, threads * TANH_REPEATS * bench->kernels->tanh(1)},
    };
    const double start = bench_now(bench);
    double work = 0.0, spent = 0.0;
    do {
        attn_context_run(team->context.attention, (size_t)team->threads, runs[limit].task,
                         bench);
        work += runs[limit].work;
        spent = bench_now(bench) - start;
    } while (spent < seconds);
    group->limits[limit] = fmax(group->limits[limit], work / spent);
    team->limits[limit] = fmax(team->limits[limit], work / spent);
}

struct reading {
    const struct bench *bench;
    struct bench_stretch stretches[BENCH_STRETCHES];
};

/* Each thread reads a part of its own of each stretch, all but a few lines. */
static void read_task(void *argument, size_t worker)
{
    enum { MULTIPLE = 512 }; /* of what is read by turns */
    const struct reading *const reading = argument;
    const size_t threads = (size_t)reading->bench->team->threads;
    for (size_t n = 0; n < BENCH_STRETCHES; n++) {
        const size_t floats = reading->stretches[n].bytes / sizeof(float);
        const size_t part = floats / threads / MULTIPLE * MULTIPLE;
        const float *const x = reading->stretches[n].x;
        if (part > 0)
            reading->bench->kernels->read(x + worker * part, part);
    }
}

void bench_measure_read(struct bench *bench, struct bench_case *c)
{
    struct bench_team *const team = bench->team;
    struct reading reading = {.bench = bench};
    c->reads(c, reading.stretches);
    const double start = bench_now(bench);
    attn_context_run(team->context.attention, (size_t)team->threads, read_task, &reading);
    const double spent = bench_now(bench) - start;
    double bytes = 0.0;
    for (size_t n = 0; n < BENCH_STRETCHES; n++)
        bytes += (double)reading.stretches[n].bytes;
    c->read_rate = fmax(c->read_rate, bytes / spent);
    team->limits[BENCH_OF_READ] = fmax(team->limits[BENCH_OF_READ], c->read_rate);
}

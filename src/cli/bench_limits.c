/* What the machine can do at most: multiply-adds on registers, which bound every kernel;
 * reading memory that no cache holds, which bounds decoding; tanh by itself.  They run on
 * as many threads as the cases they are compared with. */
#include "cli/bench.h"
#include <math.h>
#include <stdlib.h>
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

/* 256 MiB, more than any cache here; each thread reads a stretch of its own. */
enum { STREAM_FLOATS = 1 << 26 };

static void read_task(void *argument, size_t worker)
{
    const struct bench *const bench = argument;
    const size_t share = STREAM_FLOATS / (size_t)bench->team->threads / 512 * 512;
    bench->kernels->read(bench->stream + worker * share, share);
}

static attn_status make_stream(struct bench *bench, attn_error *error)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, STREAM_FLOATS * sizeof *bench->stream) != 0)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to read");
    bench->stream = memory;
    for (size_t i = 0; i < STREAM_FLOATS; i++)
        bench->stream[i] = 1.0f; /* pages of zeros could all be the same one */
    return ATTN_OK;
}

attn_status bench_measure_limit(struct bench_group *group, enum bench_measure limit,
                                double seconds, attn_error *error)
{
    struct bench *const bench = group->bench;
    struct bench_team *const team = bench->team;
    const double threads = (double)team->threads;
    const struct {
        void (*task)(void *argument, size_t worker);
        double work;
    } runs[BENCH_LIMITS] = {
        [BENCH_OF_PEAK] = {peak_task, threads * PEAK_REPEATS * bench->kernels->peak(1)},
        [BENCH_OF_READ] = {read_task, STREAM_FLOATS * sizeof(float)},
        [BENCH_OF_TANH] = {tanh_task, threads * TANH_REPEATS * bench->kernels->tanh(1)},
    };
    if (limit == BENCH_OF_READ && !bench->stream)
        ATTN_TRY(make_stream(bench, error));
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
    return ATTN_OK;
}

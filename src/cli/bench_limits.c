/* What the machine can do at most: multiply-adds on registers, which bound every kernel,
 * and reading memory that no cache holds, which bounds decoding.  Both run on as many
 * threads as the cases they are compared with. */
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

enum { PEAK_REPEATS = 1000000 };

static void peak_task(void *argument, size_t worker)
{
    const struct bench *const bench = argument;
    (void)worker;
    bench->kernels->peak(PEAK_REPEATS);
}

void bench_measure_peak(struct bench *bench)
{
    struct bench_team *const team = bench->team;
    const double operations = bench->kernels->peak(1) * PEAK_REPEATS;
    const double start = bench_now(bench);
    attn_context_run(team->context.attention, (size_t)team->threads, peak_task, bench);
    const double rate = operations * (double)team->threads / (bench_now(bench) - start);
    team->limits.peak = fmax(team->limits.peak, rate);
}

/* 256 MiB, more than any cache here; each thread reads a stretch of its own. */
enum { STREAM_FLOATS = 1 << 26 };

static void read_task(void *argument, size_t worker)
{
    const struct bench *const bench = argument;
    const size_t share = STREAM_FLOATS / (size_t)bench->team->threads / 512 * 512;
    bench->kernels->read(bench->stream + worker * share, share);
}

attn_status bench_measure_read(struct bench *bench, attn_error *error)
{
    struct bench_team *const team = bench->team;
    if (!bench->stream) {
        void *memory = NULL;
        if (posix_memalign(&memory, 64, STREAM_FLOATS * sizeof *bench->stream) != 0)
            return attn_error_set(error, ATTN_ENOMEM, "no memory to read");
        bench->stream = memory;
        for (size_t i = 0; i < STREAM_FLOATS; i++)
            bench->stream[i] = 1.0f; /* pages of zeros could all be the same one */
    }
    const double start = bench_now(bench);
    attn_context_run(team->context.attention, (size_t)team->threads, read_task, bench);
    const double bytes = STREAM_FLOATS * sizeof(float);
    const double rate = bytes / (bench_now(bench) - start);
    team->limits.read = fmax(team->limits.read, rate);
    return ATTN_OK;
}

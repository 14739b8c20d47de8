/* Lines about a training. */
#include "train/progress.h"
#include "base/context.h"
#include "file/path.h"
#include "file/shown.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const double LINE_SECONDS = 10.0;

double attn_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

attn_status attn_progress_start(attn_progress *progress, FILE *talk, const char *folder,
                                int64_t total_steps, int64_t batches, attn_error *error)
{
    *progress = (attn_progress){
        .talk = talk,
        .total_steps = total_steps,
        .batches = batches,
        .started = attn_seconds(),
    };
    progress->last = progress->started;
    if (!folder)
        return ATTN_OK;
    ATTN_TRY(attn_path_join(progress->path, folder, "log.jsonl", error));
    progress->log = fopen(progress->path, "a");
    if (!progress->log)
        return attn_error_set(error, ATTN_EIO, "%s: %s", progress->path, strerror(errno));
    setvbuf(progress->log, NULL, _IONBF, 0);
    return ATTN_OK;
}

void attn_progress_end(attn_progress *progress)
{
    if (progress->log)
        fclose(progress->log);
    progress->log = NULL;
}

void attn_progress_say(attn_progress *progress, const char *format, ...)
{
    if (!progress->talk)
        return;
    char line[4 * ATTN_PATH_BYTES]; /* it may name files */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    attn_show(progress->talk, line, strlen(line));
    fputc('\n', progress->talk);
    fflush(progress->talk);
}

/* What was written of a line that failed is taken back: a run that goes on would add its
 * first line to it. */
__attribute__((format(printf, 3, 4))) static attn_status
log_line(attn_progress *progress, attn_error *error, const char *format, ...)
{
    if (!progress->log)
        return ATTN_OK;
    struct stat before = {0};
    const int file = fileno(progress->log);
    const bool is_file = fstat(file, &before) == 0 && S_ISREG(before.st_mode);
    va_list arguments;
    va_start(arguments, format);
    const int written = vfprintf(progress->log, format, arguments);
    const int fault = errno;
    va_end(arguments);
    if (written >= 0)
        return ATTN_OK;
    const bool stays = is_file && ftruncate(file, before.st_size) != 0;
    return attn_error_set(error, ATTN_EIO, "cannot write %s: %s%s", progress->path,
                          strerror(fault), stays ? "; its last line stays cut" : "");
}

/* 1:02:03 */
static void spell_time(char *out, size_t size, double seconds)
{
    const int64_t whole = (int64_t)(seconds + 0.5);
    snprintf(out, size, "%" PRId64 ":%02" PRId64 ":%02" PRId64, whole / 3600,
             whole / 60 % 60, whole % 60);
}

static attn_status say_step(attn_progress *progress, const attn_position *position,
                            double rate, double speed, double left, attn_error *error)
{
    const attn_batch_loss *const since = &progress->since;
    const double smoothed = since->smoothed / (double)since->targets;
    const double plain = since->plain / (double)since->targets;
    const double epoch =
        (double)position->epoch + (double)position->batch / (double)progress->batches;
    char time_left[32], accuracy[32] = "", log_accuracy[40] = "";
    spell_time(time_left, sizeof time_left, left);
    if (since->correct >= 0) {
        const double share = (double)since->correct / (double)since->targets;
        snprintf(accuracy, sizeof accuracy, "  accuracy %.3f", share);
        snprintf(log_accuracy, sizeof log_accuracy, ", \"accuracy\": %.5f", share);
    }
    attn_progress_say(progress,
                      "step %5" PRId64 "/%" PRId64 "  epoch %5.2f  loss %.3f (plain "
                      "%.3f)%s  rate %.2e  norm %.2f  %5.0f tok/s  left %s",
                      position->step, progress->total_steps, epoch, smoothed, plain,
                      accuracy, rate, progress->norm, speed, time_left);
    return log_line(progress, error,
                    "{\"step\": %" PRId64
                    ", \"epoch\": %.4f, \"loss\": %.5f, \"plain_loss\": "
                    "%.5f%s, \"learning_rate\": %.6e, \"norm\": %.4f, "
                    "\"tokens_per_second\": %.1f, \"target_tokens\": %" PRId64
                    ", \"seconds\": %.1f}\n",
                    position->step, epoch, smoothed, plain, log_accuracy, rate,
                    progress->norm, speed, position->target_tokens, position->seconds);
}

attn_status attn_progress_step(attn_progress *progress, const attn_position *position,
                               const attn_batch_loss *loss, double norm, double rate,
                               attn_error *error)
{
    const double now = attn_seconds();
    attn_batch_loss_add(&progress->since, loss);
    progress->run_targets += loss->targets;
    progress->norm = norm;
    const double passed = now - progress->last;
    if (passed < LINE_SECONDS && position->step < progress->total_steps)
        return ATTN_OK;
    const double speed = (double)progress->since.tokens / passed;
    const double steps_left = (double)(progress->total_steps - position->step);
    const double step_targets = (double)position->target_tokens / (double)position->step;
    const double run_speed =
        (double)progress->run_targets / (now - progress->started - progress->idle);
    const attn_status status = say_step(progress, position, rate, speed,
                                        steps_left * step_targets / run_speed, error);
    progress->since = (attn_batch_loss){0};
    progress->last = now;
    return status;
}

/* A perplexity of three hundred digits tells no more than four of them. */
static void spell_perplexity(char *out, size_t size, double loss)
{
    snprintf(out, size, loss < 14.0 ? "%.2f" : "%.3g", exp(loss));
}

attn_status attn_progress_valid(attn_progress *progress, const attn_position *position,
                                const attn_valid_scores *scores, attn_error *error)
{
    const attn_lowest_head *const head = &scores->lowest;
    char perplexity[24], average[80] = "", accuracy[40] = "", lowest[80] = "";
    char log_average[64] = "", log_accuracy[48] = "", log_lowest[112] = "";
    if (!isnan(scores->average_loss)) {
        spell_perplexity(perplexity, sizeof perplexity, scores->average_loss);
        snprintf(average, sizeof average, "; averaged weights %.4f (perplexity %s)",
                 scores->average_loss, perplexity);
        snprintf(log_average, sizeof log_average, ", \"valid_average_loss\": %.5f",
                 scores->average_loss);
    }
    if (!isnan(scores->accuracy)) {
        snprintf(accuracy, sizeof accuracy, "; accuracy %.4f", scores->accuracy);
        snprintf(log_accuracy, sizeof log_accuracy, ", \"valid_accuracy\": %.5f",
                 scores->accuracy);
    }
    if (!isnan(head->entropy)) {
        char name[48];
        snprintf(name, sizeof name, "%s %" PRId64 ".%" PRId64, attn_part_name(head->part),
                 head->layer + 1, head->head + 1);
        snprintf(lowest, sizeof lowest, "; lowest head entropy %.2f: %s", head->entropy,
                 name);
        snprintf(log_lowest, sizeof log_lowest,
                 ", \"lowest_head_entropy\": %.4f, \"lowest_head\": \"%s\"",
                 head->entropy, name);
    }
    spell_perplexity(perplexity, sizeof perplexity, scores->loss);
    attn_progress_say(
        progress, "step %5" PRId64 "  valid loss %.4f (perplexity %s)%s%s%s",
        position->step, scores->loss, perplexity, average, accuracy, lowest);
    return log_line(progress, error,
                    "{\"step\": %" PRId64 ", \"valid_loss\": %.5f%s%s%s}\n",
                    position->step, scores->loss, log_average, log_accuracy, log_lowest);
}

void attn_progress_pause(attn_progress *progress, double seconds)
{
    progress->last += seconds;
    progress->idle += seconds;
}

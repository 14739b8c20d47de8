/* Learning rates; the formulas are in the header. */
#include "train/schedule.h"
#include <math.h>

static const double PI = 3.14159265358979323846;

double attn_schedule_rate(const attn_schedule *schedule, int64_t step)
{
    const double warmup = (double)(schedule->warmup > 0 ? schedule->warmup : 1);
    const double total = (double)schedule->total;
    const double at = step < schedule->total ? (double)step : total;
    if (at < warmup)
        return schedule->peak * at / warmup;
    if (schedule->shape == ATTN_SCHEDULE_INVERSE_SQRT)
        return schedule->peak * sqrt(warmup / at);
    /* + 1: the last step still moves. */
    const double left = (total + 1.0 - at) / (total + 1.0 - warmup);
    if (schedule->shape == ATTN_SCHEDULE_LINEAR)
        return schedule->peak * left;
    return schedule->peak * 0.5 * (1.0 + cos(PI * (1.0 - left)));
}

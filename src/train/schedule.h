/* The learning rate of each step: it rises in a line to its peak, then falls.
 *
 *   inverse_sqrt  peak·√(warmup/step)            (Vaswani et al. 2017, section 5.3)
 *   linear        peak·(total − step)/(total − warmup)
 *   cosine        peak·½(1 + cos(π(step − warmup)/(total − warmup)))   (Loshchilov and
 *                 Hutter 2017, without restarts) */
#ifndef ATTN_TRAIN_SCHEDULE_H
#define ATTN_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum attn_schedule_shape {
    ATTN_SCHEDULE_INVERSE_SQRT,
    ATTN_SCHEDULE_LINEAR,
    ATTN_SCHEDULE_COSINE
} attn_schedule_shape;

typedef struct attn_schedule {
    attn_schedule_shape shape;
    double peak;
    int64_t warmup, total; /* steps */
} attn_schedule;

/** @param step  from 1.  Steps beyond the total have the last step's rate. */
double attn_schedule_rate(const attn_schedule *schedule, int64_t step);

#endif

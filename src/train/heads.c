/* Entropy of heads, by the statistics of attention's own pass. */
#include "train/heads.h"
#include "base/context.h"
#include <math.h>
#include <stdlib.h>

struct meter {
    attn_lowest_head lowest;
    bool any;
};

static void compare_heads(struct meter *meter, const attn_observation *seen,
                          const float *entropy, const int64_t *visible)
{
    const int64_t Lq = seen->shape->Lq;
    for (int64_t h = 0; h < seen->shape->H; h++) {
        double sum = 0.0;
        int64_t rows = 0;
        for (int64_t n = h * Lq; n < (h + 1) * Lq; n++) {
            if (visible[n] < 2)
                continue;
            sum += (double)entropy[n] / log((double)visible[n]);
            rows++;
        }
        if (rows == 0)
            continue;
        const double mean = sum / (double)rows;
        if (meter->any && mean >= meter->lowest.entropy)
            continue;
        meter->any = true;
        meter->lowest = (attn_lowest_head){mean, seen->part, seen->layer, h};
    }
}

/* Attention once more, with the statistics; a few sentences now and then cost nothing. */
static attn_status observe(void *user, const attn_observation *seen)
{
    const attn_shape *const shape = seen->shape;
    const size_t rows = (size_t)(shape->B * shape->H * shape->Lq);
    float *const entropy = malloc((rows + 1) * sizeof *entropy);
    int64_t *const visible = malloc((rows + 1) * sizeof *visible);
    float *const output = malloc((rows * (size_t)shape->Dv + 1) * sizeof *output);
    attn_status status = ATTN_ENOMEM;
    if (entropy && visible && output) {
        attn_tensors tensors = *seen->tensors;
        tensors.output = attn_output_dense(output, shape->H, shape->Lq, shape->Dv);
        tensors.lse = NULL;
        tensors.statistics =
            (attn_statistics){.entropy = entropy, .visible_keys = visible};
        status = attn_forward(seen->context, shape, &tensors, seen->options);
    }
    if (status == ATTN_OK)
        compare_heads(user, seen, entropy, visible);
    free(entropy);
    free(visible);
    free(output);
    return status;
}

attn_status attn_heads_measure(attn_shards *shards, const attn_task *task,
                               const size_t *list, size_t count, attn_lowest_head *lowest,
                               attn_error *error)
{
    struct meter meter = {{.entropy = (double)NAN}, false};
    const attn_observer observer = {&meter, observe};
    attn_batch_loss loss;
    ATTN_TRY(attn_shards_measure(shards, task, list, count, &observer, &loss, error));
    *lowest = meter.lowest;
    return ATTN_OK;
}

/* A training step of a decoder of 6 layers: train/step.h.  Its work is 6 operations for
 * each parameter and token, and attention's 14·D for each visible pair. */
#include "cli/bench.h"
#include "train/step.h"

struct training {
    attn_step *step;
    attn_error error;
};

static attn_status run_step(struct bench_case *c, attn_context *context)
{
    struct training *const training = c->more;
    double loss;
    const attn_status status = attn_step_run(training->step, &loss, &training->error);
    if (status != ATTN_OK)
        return attn_context_fail(context, status, "%s", training->error.message);
    return ATTN_OK;
}

attn_status bench_training(struct bench *bench, attn_error *error)
{
    struct training training = {0};
    attn_step_options options;
    attn_step_options_init(&options);
    options.threads = (size_t)bench->team->threads;
    if (bench->B)
        options.texts = bench->B;
    if (bench->length_count)
        options.length = options.decoder.max_positions = bench->lengths[0];
    ATTN_TRY(attn_step_create(&training.step, &options, error));

    const int64_t L = options.length, H = options.decoder.heads;
    const int64_t D = options.decoder.width / H;
    const double tokens = (double)attn_step_tokens(training.step);
    const double parameters = (double)attn_step_parameters(training.step);
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const c =
        bench_add_bare(&group, "training", "step of a decoder",
                       &(attn_shape){options.texts, H, H, L, L, D, D});
    c->run = run_step;
    c->more = &training;
    c->work =
        tokens * (6.0 * parameters + 14.0 * (double)(options.decoder.layers * H * D) *
                                         (double)(L + 1) / 2.0);
    const attn_status status = bench_group_run(&group, error);
    attn_step_destroy(training.step);
    return status;
}

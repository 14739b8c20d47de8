/* Many short sequences, as in training a translator, against what everybody can write:
 * a product of matrices, a softmax and another product, for each sequence and head. */
#include "cli/bench.h"
#include "tensor/rows.h"
#include "train/blas.h"
#include <cblas.h>

struct plain {
    const struct attn_rows *rows;
    float *scores; /* [L][L] for each head of each sequence: a thread has its own */
};

static void plain_task(void *argument, size_t index)
{
    struct bench_case *const c = argument;
    const struct plain *const plain = c->more;
    const int L = (int)c->shape.Lk, D = (int)c->shape.D;
    const float *const query =
        (const float *)c->tensors.query.data + index * (size_t)(L * D);
    const float *const key = (const float *)c->tensors.key.data + index * (size_t)(L * D);
    const float *const value =
        (const float *)c->tensors.value.data + index * (size_t)(L * D);
    float *const output = (float *)c->tensors.output.data + index * (size_t)(L * D);
    float *const scores = plain->scores + index * (size_t)(L * L);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, L, L, D, c->options.scale, query,
                D, key, D, 0.0f, scores, L);
    for (int row = 0; row < L; row++) {
        /* The gradient of a cross-entropy is the softmax, less one at the target. */
        struct attn_cross_entropy loss = {
            .classes = (size_t)L, .scale = 1.0f, .gradient = true};
        plain->rows->cross_entropy(scores + row * L, 0, &loss);
        scores[row * L] += 1.0f;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, L, D, L, 1.0f, scores, L,
                value, D, 0.0f, output, D);
}

static attn_status run_plain(struct bench_case *c, attn_context *context)
{
    attn_context_run(context, (size_t)(c->shape.B * c->shape.H), plain_task, c);
    return ATTN_OK;
}

static attn_status measure_length(struct bench *bench, int64_t L, int64_t D,
                                  attn_error *error)
{
    const int64_t H = bench->H ? bench->H : 4, B = bench->B ? bench->B : 64;
    struct bench_group group;
    bench_group_init(&group, bench);
    struct bench_case *const ours =
        bench_add(&group, "short", "many sequences", &(attn_shape){B, H, H, L, L, D, D});
    struct bench_case *const plain = bench_add_like(&group, ours, "GEMM, softmax, GEMM");
    struct plain more = {attn_rows_find(bench->kernels->isa),
                         bench_memory(&group, (size_t)(B * H * L * L) * sizeof(float))};
    plain->run = run_plain;
    plain->more = &more;
    plain->quiet = true;
    bench_compare(ours, plain, BENCH_SPEED, L <= 64 ? 1.0 : 0.0, L <= 64 ? 1.5 : 0.0);
    return bench_group_run(&group, error);
}

attn_status bench_short(struct bench *bench, attn_error *error)
{
    static const int64_t own_lengths[] = {8, 16, 32, 64}, own_sizes[] = {64, 32};
    attn_blas_use_one_thread();
    return bench_each_size(bench, own_lengths, 4, own_sizes, bench->full ? 2 : 1,
                           measure_length, error);
}

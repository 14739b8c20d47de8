/* The recurrent layer of cells.h, its shards, and its products alone. */
#include "train/cells.h"
#include "base/context.h"
#include "tensor/rows.h"
#include "train/blas.h"
#include "train/optimiser.h"
#include "train/pool.h"
#include "train/shards.h"
#include <cblas.h>
#include <stdlib.h>
#include <string.h>

struct attn_cells {
    attn_cells_options options;
    attn_parameters parameters;
    attn_recurrent_layer layer;
    pthreadpool_t pool;
    attn_shards shards;
    int64_t *starts; /* [sequences of a shard + 1] */
    size_t tokens;   /* of a shard */
    const float *x, *dy;
    float *dx;
    const attn_tensor *y[ATTN_CELLS_SHARDS];
    bool products_train;
    float *products[ATTN_CELLS_SHARDS]; /* what the products read and write */
};

/* ---- The layer ------------------------------------------------------------------------
 */

static size_t ways_of(const attn_cells *cells)
{
    return cells->options.layer.both_ways ? 2 : 1;
}

struct given_gradient {
    attn_tensor *y;
    const float *dy;
};

static void give_gradient(attn_tape *tape, void *arguments)
{
    const struct given_gradient *const given = arguments;
    bool add;
    float *const to = attn_tape_gradient(tape, given->y, &add);
    if (to)
        attn_tape_rows(tape)->scale(to, given->dy, 1.0f, attn_tensor_count(given->y),
                                    add);
}

/* An element whose gradient is dy at y. */
static attn_tensor *sum_with(attn_tape *tape, attn_tensor *y, const float *dy)
{
    attn_tensor *const loss = attn_tape_tensor(tape, 1, (const int64_t[]){1});
    struct given_gradient *const given = attn_tape_allocate(tape, sizeof *given);
    if (!y || !loss || !given)
        return NULL;
    loss->data[0] = 0.0f; /* nobody reads it */
    *given = (struct given_gradient){y, dy};
    attn_tape_record(tape, loss, give_gradient, given);
    return loss;
}

static attn_tensor *run_shard(void *user, const attn_pass *pass, size_t shard,
                              attn_shard_sums *sums)
{
    (void)sums;
    attn_cells *const cells = user;
    const attn_recurrent_options *const layer = &cells->options.layer;
    const attn_packing packing = {cells->options.sequences / ATTN_CELLS_SHARDS,
                                  cells->starts};
    const size_t first = shard * cells->tokens, in = (size_t)layer->in;
    const int64_t extent[] = {(int64_t)cells->tokens, layer->in};
    const bool trains = attn_tape_training(pass->tape);
    float *const dx = trains ? cells->dx + first * in : NULL;
    if (trains)
        memset(dx, 0, cells->tokens * in * sizeof *dx);
    attn_tensor *const x = attn_tape_leaf(
        pass->tape, (float *)(uintptr_t)(cells->x + first * in), dx, 2, extent);
    attn_tensor *const y =
        attn_recurrent_layer_forward(&cells->layer, pass, x, packing, NULL, NULL, 0.0f);
    cells->y[shard] = y;
    if (!trains)
        return NULL;
    return sum_with(pass->tape, y,
                    cells->dy + first * ways_of(cells) * (size_t)layer->width);
}

static attn_status run_layer(attn_cells *cells, bool trains, attn_error *error)
{
    const attn_shard_work work = {
        .parameters = &cells->parameters, .loss = run_shard, .user = cells};
    attn_batch_loss sum;
    return attn_shards_run(&cells->shards, &work, trains, 0, &sum, error);
}

attn_status attn_cells_forward(attn_cells *cells, const float *x, attn_error *error)
{
    cells->x = x;
    return run_layer(cells, false, error);
}

static void add_gradients(void *argument, size_t first, size_t count)
{
    const attn_cells *const cells = argument;
    attn_gradients_sum(cells->shards.gradients, ATTN_CELLS_SHARDS, first, count);
}

attn_status attn_cells_train(attn_cells *cells, const float *x, const float *dy,
                             float *dx, attn_error *error)
{
    enum { CHUNK = 1 << 14 };
    cells->x = x;
    cells->dy = dy;
    cells->dx = dx;
    ATTN_TRY(run_layer(cells, true, error));
    pthreadpool_parallelize_1d_tile_1d(cells->pool, add_gradients, cells,
                                       cells->parameters.floats, CHUNK, 0);
    return ATTN_OK;
}

static void do_nothing(void *argument, size_t index)
{
    (void)argument;
    (void)index;
}

void attn_cells_rest(attn_cells *cells)
{
    pthreadpool_parallelize_1d(cells->pool, do_nothing, NULL, cells->options.threads,
                               PTHREADPOOL_FLAG_YIELD_WORKERS);
}

float *attn_cells_parameter(attn_cells *cells, const char *name, const float **gradient)
{
    const attn_parameter *const found = attn_parameters_find(&cells->parameters, name);
    if (!found)
        return NULL;
    if (gradient)
        *gradient = cells->shards.gradients[0] + found->offset;
    return cells->parameters.values + found->offset;
}

const int64_t *attn_cells_starts(const attn_cells *cells)
{
    return cells->starts;
}

const float *attn_cells_states(const attn_cells *cells, size_t shard)
{
    return cells->y[shard]->data;
}

/* ---- Products alone -------------------------------------------------------------------
 */

/* Sizes of one run of the layer: a depth in one direction. */
struct sizes {
    size_t in, width, out;
};

static struct sizes sizes_of(const attn_cells *cells, size_t depth)
{
    const attn_recurrent_options *const layer = &cells->options.layer;
    const size_t width = (size_t)layer->width;
    return (struct sizes){depth > 0 ? ways_of(cells) * width : (size_t)layer->in, width,
                          width * (size_t)attn_cell_gates(layer->cell)};
}

/* Sequences of a shard that have a token at that step. */
static size_t rows_at(const attn_cells *cells, int64_t step)
{
    size_t rows = 0;
    for (int64_t i = 0; i < cells->options.sequences / ATTN_CELLS_SHARDS; i++)
        rows += cells->starts[i + 1] - cells->starts[i] > step;
    return rows;
}

/* Floats that are multiplied: x, gates, states, and the two weights. */
static size_t given_floats(const attn_cells *cells, struct sizes s)
{
    return cells->tokens * (s.in + s.out + s.width) + s.out * (s.in + s.width);
}

/* And those that come of it. */
static size_t result_floats(const attn_cells *cells, struct sizes s)
{
    const size_t widest = s.in > s.width ? s.in : s.width;
    return (cells->tokens + widest) * (s.out > widest ? s.out : widest);
}

/* to = a · bᵀ, or a · b, or aᵀ · b */
static void product(CBLAS_TRANSPOSE left, CBLAS_TRANSPOSE right, size_t rows,
                    size_t columns, size_t inner, const float *a, const float *b,
                    float *to)
{
    cblas_sgemm(CblasRowMajor, left, right, (int)rows, (int)columns, (int)inner, 1.0f, a,
                (int)(left == CblasTrans ? rows : inner), b,
                (int)(right == CblasTrans ? inner : columns), 0.0f, to, (int)columns);
}

static void multiply_run(const attn_cells *cells, struct sizes s, float *memory)
{
    const size_t n = cells->tokens;
    const float *const x = memory, *const gates = x + n * s.in;
    const float *const states = gates + n * s.out, *const in_weight =
                                                       states + n * s.width;
    const float *const weight = in_weight + s.out * s.in;
    float *const to = memory + given_floats(cells, s);
    product(CblasNoTrans, CblasTrans, n, s.out, s.in, x, in_weight, to);
    size_t first = 0;
    for (int64_t step = 0; step < cells->options.length; step++) {
        const size_t rows = rows_at(cells, step);
        product(CblasNoTrans, CblasTrans, rows, s.out, s.width, states + first * s.width,
                weight, to + first * s.out);
        first += rows;
    }
    if (!cells->products_train)
        return;
    for (int64_t step = cells->options.length; step-- > 0;) {
        const size_t rows = rows_at(cells, step);
        first -= rows;
        product(CblasNoTrans, CblasNoTrans, rows, s.width, s.out, gates + first * s.out,
                weight, to + first * s.width);
    }
    product(CblasTrans, CblasNoTrans, s.out, s.width, n, gates, states, to);
    product(CblasNoTrans, CblasNoTrans, n, s.in, s.out, gates, in_weight, to);
    product(CblasTrans, CblasNoTrans, s.out, s.in, n, gates, x, to);
}

static void multiply_shard(void *argument, size_t shard)
{
    const attn_cells *const cells = argument;
    for (int64_t depth = 0; depth < cells->options.layer.layers; depth++) {
        const struct sizes s = sizes_of(cells, (size_t)depth);
        for (size_t way = 0; way < ways_of(cells); way++)
            multiply_run(cells, s, cells->products[shard]);
    }
}

void attn_cells_products(attn_cells *cells, bool training)
{
    cells->products_train = training;
    pthreadpool_parallelize_1d(cells->pool, multiply_shard, cells, ATTN_CELLS_SHARDS, 0);
}

double attn_cells_work(const attn_cells *cells, bool training)
{
    double work = 0.0;
    for (int64_t depth = 0; depth < cells->options.layer.layers; depth++) {
        const struct sizes s = sizes_of(cells, (size_t)depth);
        work += 2.0 * (double)(ways_of(cells) * s.out * (s.in + s.width));
    }
    return work * (double)(ATTN_CELLS_SHARDS * cells->tokens) * (training ? 3.0 : 1.0);
}

/* ---- Creation -------------------------------------------------------------------------
 */

static attn_status check_options(const attn_cells_options *o, attn_error *error)
{
    if (o->sequences > 0 && o->sequences % ATTN_CELLS_SHARDS == 0 && o->shortest > 0 &&
        o->shortest <= o->length && o->length <= (INT64_C(1) << 30) / o->sequences &&
        o->threads > 0)
        return ATTN_OK;
    return attn_error_set(error, ATTN_EINVAL,
                          "recurrent layer: %lld sequences of %lld to %lld tokens on %zu "
                          "threads, expected an even number of sequences of a token or "
                          "more, and a thread or more",
                          (long long)o->sequences, (long long)o->shortest,
                          (long long)o->length, o->threads);
}

static attn_status lay_out(attn_cells *cells, attn_error *error)
{
    const attn_cells_options *const o = &cells->options;
    const int64_t count = o->sequences / ATTN_CELLS_SHARDS;
    cells->starts = malloc((size_t)(count + 1) * sizeof *cells->starts);
    if (!cells->starts)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %lld sequences",
                              (long long)count);
    cells->starts[0] = 0;
    for (int64_t i = 0; i < count; i++)
        cells->starts[i + 1] =
            cells->starts[i] + o->length -
            (count > 1 ? (o->length - o->shortest) * i / (count - 1) : 0);
    cells->tokens = (size_t)cells->starts[count];
    return ATTN_OK;
}

static attn_status make_products(attn_cells *cells, attn_error *error)
{
    size_t floats = 0;
    for (int64_t depth = 0; depth < cells->options.layer.layers; depth++) {
        const struct sizes s = sizes_of(cells, (size_t)depth);
        const size_t own = given_floats(cells, s) + result_floats(cells, s);
        floats = own > floats ? own : floats;
    }
    for (size_t shard = 0; shard < ATTN_CELLS_SHARDS; shard++) {
        cells->products[shard] = attn_floats_allocate(floats);
        if (!cells->products[shard])
            return attn_error_set(error, ATTN_ENOMEM, "no memory for %zu floats", floats);
        for (size_t i = 0; i < floats; i++)
            cells->products[shard][i] = 1.0f / (float)(i % 64 + 1);
    }
    return ATTN_OK;
}

static attn_status prepare(attn_cells *cells, attn_error *error)
{
    attn_status status = attn_recurrent_layer_add(&cells->layer, &cells->parameters, "",
                                                  &cells->options.layer);
    if (status == ATTN_OK)
        status = attn_parameters_allocate(&cells->parameters);
    if (status != ATTN_OK)
        return attn_error_set(error, status,
                              "no recurrent layer of %lld layers of width %lld",
                              (long long)cells->options.layer.layers,
                              (long long)cells->options.layer.width);
    attn_parameters_initialise(&cells->parameters, 1);
    ATTN_TRY(lay_out(cells, error));
    cells->pool = cells->options.pool;
    if (!cells->pool)
        ATTN_TRY(attn_pool_create(&cells->pool, cells->options.threads, error));
    ATTN_TRY(attn_shards_create(&cells->shards, ATTN_CELLS_SHARDS,
                                cells->parameters.floats, cells->pool, error));
    return make_products(cells, error);
}

attn_status attn_cells_create(attn_cells **cells, const attn_cells_options *options,
                              attn_error *error)
{
    *cells = NULL;
    ATTN_TRY(check_options(options, error));
    if (!attn_blas_has_memory())
        return attn_error_set(error, ATTN_ENOMEM,
                              "no memory for the buffer of matrix products, 128 MiB a "
                              "thread");
    attn_blas_use_one_thread();
    attn_cells *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for a recurrent layer");
    created->options = *options;
    const attn_status status = prepare(created, error);
    if (status != ATTN_OK) {
        attn_cells_destroy(created);
        return status;
    }
    *cells = created;
    return ATTN_OK;
}

void attn_cells_destroy(attn_cells *cells)
{
    if (!cells)
        return;
    for (size_t shard = 0; shard < ATTN_CELLS_SHARDS; shard++)
        free(cells->products[shard]);
    attn_shards_free(&cells->shards);
    if (cells->pool && !cells->options.pool)
        pthreadpool_destroy(cells->pool);
    attn_parameters_free(&cells->parameters);
    free(cells->starts);
    free(cells);
}

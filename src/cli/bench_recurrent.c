/* Recurrent layers at the sizes of recipes: train/cells.h.  Their time is held against
 * that of their products of matrices alone, by BLAS: what is more is gates and the moving
 * of rows; what is less, that weights are packed once for all steps. */
#include "cli/bench.h"
#include "train/cells.h"
#include <stdio.h>

struct size {
    int64_t sequences, length, width; /* of input and state */
    bool both_ways;
};

/* A case's layer; x and dy, of both shards. */
struct recurrent {
    attn_cells *cells;
    float *x, *dy, *dx;
    bool trains;
};

enum { CELLS = 3 };
static const attn_cell cells[CELLS] = {ATTN_CELL_GRU, ATTN_CELL_LSTM, ATTN_CELL_TANH};
static const char *const names[CELLS][2] = {{"GRU forward", "GRU with backward"},
                                            {"LSTM forward", "LSTM with backward"},
                                            {"RNN forward", "RNN with backward"}};

static attn_status run_layer(struct bench_case *c, attn_context *context)
{
    const struct recurrent *const r = c->more;
    attn_error error;
    const attn_status status =
        r->trains ? attn_cells_train(r->cells, r->x, r->dy, r->dx, &error)
                  : attn_cells_forward(r->cells, r->x, &error);
    if (status != ATTN_OK)
        return attn_context_fail(context, status, "%s", error.message);
    return ATTN_OK;
}

static attn_status run_products(struct bench_case *c, attn_context *context)
{
    (void)context;
    const struct recurrent *const r = c->more;
    attn_cells_products(r->cells, r->trains);
    return ATTN_OK;
}

static attn_status create_layer(struct bench_group *group, const struct size *size,
                                attn_cell cell, struct recurrent *r, attn_error *error)
{
    const attn_cells_options options = {
        .layer = {.cell = cell,
                  .in = size->width,
                  .width = size->width,
                  .layers = 1,
                  .both_ways = size->both_ways,
                  .has_bias = true},
        .sequences = size->sequences,
        .length = size->length,
        .shortest = size->length,
        .threads = (size_t)group->bench->team->threads,
        .pool = group->bench->team->context.pool, /* other threads would be in the way */
    };
    ATTN_TRY(attn_cells_create(&r[0].cells, &options, error));
    const size_t floats = (size_t)(size->sequences * size->length * size->width);
    r[0].x = bench_numbers(group, floats);
    r[0].dy = bench_numbers(group, floats * (size->both_ways ? 2 : 1));
    r[0].dx = bench_memory(group, floats * sizeof(float));
    r[1] = r[0];
    r[1].trains = true;
    return ATTN_OK;
}

/* A case and its products. */
static void add_cases(struct bench_group *group, const struct size *size,
                      const char *name, struct recurrent *r)
{
    const attn_shape shape = {size->sequences, 1,           1,          size->length,
                              size->length,    size->width, size->width};
    struct bench_case *const products =
        bench_add_bare(group, "recurrent", "its products", &shape);
    products->run = run_products;
    products->more = r;
    products->work = attn_cells_work(r->cells, r->trains);
    products->quiet = true;
    struct bench_case *const c = bench_add_like(group, products, name);
    c->run = run_layer;
    c->quiet = false;
    bench_compare(c, products, BENCH_TIME, 0.0, 1.1);
    if (size->both_ways)
        snprintf(c->name, sizeof c->name, "%s, both ways", name);
}

static attn_status measure_size(struct bench *bench, const struct size *size,
                                attn_error *error)
{
    struct recurrent layers[CELLS][2] = {{{0}}};
    struct bench_group group;
    bench_group_init(&group, bench);
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < CELLS && status == ATTN_OK; i++) {
        status = create_layer(&group, size, cells[i], layers[i], error);
        for (size_t trains = 0; trains < 2 && status == ATTN_OK; trains++)
            add_cases(&group, size, names[i][trains], &layers[i][trains]);
    }
    if (status == ATTN_OK)
        status = bench_group_run(&group, error);
    else
        bench_group_end(&group);
    for (size_t i = 0; i < CELLS; i++)
        attn_cells_destroy(layers[i][0].cells);
    return status;
}

/* A translator's encoder; a tagger, and a classifier of long texts, both smaller. */
static const struct size own_sizes[] = {
    {64, 24, 256, false}, {32, 25, 128, true}, {30, 512, 64, false}};

attn_status bench_recurrent(struct bench *bench, attn_error *error)
{
    const struct size *const own = &own_sizes[0];
    const struct size asked = {
        .sequences = bench->B ? bench->B : own->sequences,
        .length = bench->length_count ? bench->lengths[0] : own->length,
        .width = bench->head_size_count ? bench->head_sizes[0] : own->width,
    };
    if (bench->B || bench->length_count || bench->head_size_count)
        return measure_size(bench, &asked, error);
    for (size_t i = 0; i < (bench->full ? sizeof own_sizes / sizeof *own : 1); i++)
        ATTN_TRY(measure_size(bench, &own_sizes[i], error));
    return ATTN_OK;
}

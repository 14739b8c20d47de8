/* What may change nothing: the number of threads, the batch a sequence is in, padding or
 * packing, lent memory; and what memory the forward pass may take. */
#include "dense.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

/* ---- Threads --------------------------------------------------------------------------
 */

/* Dense tensors of one call, and all results in one block of floats. */
struct call {
    attn_shape shape;
    attn_options options;
    attn_tensors tensors;
    float *query, *key, *value, *results;
    int64_t *keys, *visible;
    size_t floats;
};

static struct call call_create(attn_shape shape)
{
    struct call c = {.shape = shape};
    const int64_t rows = shape.B * shape.H * shape.Lq;
    const int64_t keys = shape.B * shape.H * shape.Lk;
    c.query = floats(rows * shape.D);
    c.key = floats(shape.B * shape.Hk * shape.Lk * shape.D);
    c.value = floats(shape.B * shape.Hk * shape.Lk * shape.Dv);
    c.floats = (size_t)(rows * (shape.Dv + 9) + keys);
    c.results = allocate(c.floats, sizeof *c.results);
    c.keys = allocate((size_t)rows, sizeof *c.keys);
    c.visible = allocate((size_t)rows, sizeof *c.visible);
    float *const o = c.results + rows * shape.Dv + keys;
    c.tensors = (attn_tensors){
        .query = attn_input_dense(c.query, shape.H, shape.Lq, shape.D),
        .key = attn_input_dense(c.key, shape.Hk, shape.Lk, shape.D),
        .value = attn_input_dense(c.value, shape.Hk, shape.Lk, shape.Dv),
        .output = attn_output_dense(c.results, shape.H, shape.Lq, shape.Dv),
        .lse = o,
        .statistics = {.entropy = o + rows,
                       .largest_weight = o + 2 * rows,
                       .largest_key = c.keys,
                       .distance = o + 3 * rows,
                       .signed_distance = o + 4 * rows,
                       .first_key_mass = o + 5 * rows,
                       .own_mass = o + 6 * rows,
                       .previous_mass = o + 7 * rows,
                       .next_mass = o + 8 * rows,
                       .visible_keys = c.visible,
                       .received = c.results + rows * shape.Dv}};
    attn_options_init(&c.options, &shape);
    return c;
}

static void call_destroy(struct call *c)
{
    free(c->query), free(c->key), free(c->value), free(c->results), free(c->keys);
    free(c->visible);
}

static void run(attn_context *context, const struct call *c)
{
    if (attn_forward(context, &c->shape, &c->tensors, &c->options) != ATTN_OK)
        fail_msg("%s", attn_context_message(context));
}

static void compare_threads(attn_context *context, const struct call *c)
{
    memset(c->results, 0, c->floats * sizeof *c->results);
    run(context, c);
    float *const alone = allocate(c->floats, sizeof *alone);
    memcpy(alone, c->results, c->floats * sizeof *alone);
    for (size_t threads = 2; threads <= 7; threads += 5) {
        size_t used = 0;
        const attn_context_options options = {.isa = attn_context_isa(context),
                                              .threads = threads,
                                              .parallel_for = thread_each,
                                              .pool = &used};
        attn_context *threaded = NULL;
        assert_int_equal(attn_context_create(&threaded, &options), ATTN_OK);
        memset(c->results, 0, c->floats * sizeof *c->results);
        run(threaded, c);
        assert_int_equal(used, threads);
        assert_memory_equal(alone, c->results, c->floats * sizeof *alone);
        attn_context_destroy(threaded);
    }
    free(alone);
}

static void check_threads(attn_context *context)
{
    struct call c = call_create((attn_shape){2, 4, 2, 611, 700, 56, 40});
    c.options.causal = true;
    c.options.dropout = 0.1;
    compare_threads(context, &c);
    call_destroy(&c);
}

/* Queries that see few keys, which others of their panel do not see: threads may part
 * panels elsewhere where nobody asks for received mass. */
static void check_threads_of_few_keys(attn_context *context)
{
    struct call c = call_create((attn_shape){1, 4, 2, 543, 543, 48, 16});
    const size_t pairs = 543 * 543;
    uint8_t *const keep = allocate(pairs, sizeof *keep);
    for (size_t n = 0; n < pairs; n++)
        keep[n] = n * 2654435761u % 4294967296u < 85899346u; /* one in 50 */
    c.options.keep = (attn_keep){keep, {0, 0, 543, 1}};
    c.tensors.statistics.received = NULL;
    compare_threads(context, &c);
    free(keep);
    call_destroy(&c);
}

/* Groups of panels are smaller where there are few for each thread, so that rows go
 * through a pipeline in other company; those with a NaN too. */
static void check_threads_of_groups(attn_context *context)
{
    struct call c = call_create((attn_shape){2, 4, 2, 611, 700, 56, 40});
    c.tensors.statistics.received = NULL;
    compare_threads(context, &c);
    for (int64_t n = 0; n < 4 * 700 * 56; n += 7919)
        c.key[n] = n % 2 == 0 ? NAN : INFINITY;
    c.options.causal = true;
    compare_threads(context, &c);
    call_destroy(&c);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    on_every_level(check_threads);
    on_every_level(check_threads_of_groups);
    on_every_level(check_threads_of_few_keys);
}

/* ---- Batches --------------------------------------------------------------------------
 */

static void assert_rows_equal(const float *a, const float *b, int64_t count)
{
    assert_memory_equal(a, b, (size_t)count * sizeof *a);
}

/* Head h of sequence [first, first + L) of a pack against a call of its own; strides of
 * both lead along the tokens. */
static void compare_alone(attn_context *context, const struct call *pack, int64_t first,
                          int64_t L)
{
    const attn_shape *const s = &pack->shape;
    struct call alone = call_create((attn_shape){1, s->H, s->Hk, L, L, s->D, s->Dv});
    attn_tensors *const t = &alone.tensors;
    t->query = pack->tensors.query, t->query.data = pack->query + first * s->D;
    t->key = pack->tensors.key, t->key.data = pack->key + first * s->D;
    t->value = pack->tensors.value, t->value.data = pack->value + first * s->Dv;
    alone.options = pack->options;
    alone.options.query_starts = alone.options.key_starts = NULL;
    alone.options.query_lengths = alone.options.key_lengths = NULL;
    run(context, &alone);
    const attn_statistics *const a = &t->statistics, *const b = &pack->tensors.statistics;
    for (int64_t h = 0; h < s->H; h++) {
        const int64_t mine = h * L, its = h * s->Lq + first;
        assert_rows_equal(alone.results + mine * s->Dv, pack->results + its * s->Dv,
                          L * s->Dv);
        assert_rows_equal(t->lse + mine, pack->tensors.lse + its, L);
        assert_rows_equal(a->entropy + mine, b->entropy + its, L);
        assert_rows_equal(a->distance + mine, b->distance + its, L);
        assert_rows_equal(a->own_mass + mine, b->own_mass + its, L);
        assert_rows_equal(a->received + mine, b->received + its, L);
        assert_memory_equal(a->largest_key + mine, b->largest_key + its,
                            (size_t)L * sizeof(int64_t));
    }
    call_destroy(&alone);
}

static void check_packs(attn_context *context)
{
    static const int64_t starts[] = {0, 1, 10, 10, 75, 333, 600};
    struct call c = call_create((attn_shape){1, 2, 1, 600, 600, 17, 9});
    c.options.causal = true;
    c.options.sequences = 6;
    c.options.query_starts = c.options.key_starts = starts;
    run(context, &c);
    for (int s = 0; s < 6; s++)
        if (starts[s + 1] > starts[s])
            compare_alone(context, &c, starts[s], starts[s + 1] - starts[s]);
    call_destroy(&c);
}

static void a_packed_sequence_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    on_every_level(check_packs);
}

/* Padding may hold anything. */
static void check_padding(attn_context *context)
{
    static const int64_t lengths[] = {131};
    struct call c = call_create((attn_shape){1, 2, 2, 200, 200, 8, 8});
    for (int64_t h = 0; h < 2; h++)
        for (int64_t l = lengths[0]; l < 200; l++) {
            c.query[(h * 200 + l) * 8] = NAN;
            c.key[(h * 200 + l) * 8] = INFINITY;
            c.value[(h * 200 + l) * 8] = 1e30f;
        }
    c.options.query_lengths = c.options.key_lengths = lengths;
    run(context, &c);
    compare_alone(context, &c, 0, lengths[0]);
    for (int64_t l = lengths[0]; l < 200; l++) {
        assert_true(c.tensors.lse[l] == -INFINITY && c.results[l * 8] == 0.0f);
        assert_true(c.keys[l] == -1 && c.visible[l] == 0);
        assert_true(c.tensors.statistics.received[l] == 0.0f);
    }
    call_destroy(&c);
}

static void a_padded_sequence_has_the_bits_it_has_alone(void **state)
{
    (void)state;
    on_every_level(check_padding);
}

/* ---- Neighbours -----------------------------------------------------------------------
 */

/* Few queries are not. */
static bool by_tiles(attn_context *context, const struct call *c)
{
    attn_plan plan;
    assert_int_equal(
        attn_plan_forward(context, &c->shape, &c->tensors, &c->options, &plan), ATTN_OK);
    return strstr(plan.path, "products of tiles");
}

/* Queries [first, first + count) of head 0, called by themselves at the place they have.
 * Other neighbours, other panels: a row must not notice, where products are the same. */
static bool compare_part(attn_context *context, const struct call *whole, int64_t first,
                         int64_t count)
{
    struct call part = *whole;
    const attn_shape *const s = &whole->shape;
    float *const output = allocate((size_t)(count * s->Dv), sizeof *output);
    float *const lse = allocate((size_t)count, sizeof *lse);
    part.shape.Lq = count;
    part.options.alignment = ATTN_ALIGN_OFFSET;
    part.options.query_offset = whole->options.query_offset + first;
    part.tensors.query.data = whole->query + first * s->D;
    part.tensors.output = attn_output_dense(output, 1, count, s->Dv);
    part.tensors.lse = lse;
    part.tensors.statistics = (attn_statistics){0};
    run(context, &part);
    const bool tiles = by_tiles(context, whole), same = by_tiles(context, &part) == tiles;
    if (same) {
        assert_rows_equal(output, whole->results + first * s->Dv, count * s->Dv);
        assert_rows_equal(lse, whole->tensors.lse + first, count);
    }
    free(output);
    free(lse);
    return tiles && same;
}

/* Every alignment of the diagonal and of a window's edge with the vectors of a panel. */
static void check_neighbours(attn_context *context)
{
    static const int64_t offsets[] = {-40, 0, 7, 64, 133}, windows[] = {-1, 0, 5, 50};
    int compared_by_tiles = 0;
    for (int o = 0; o < 5; o++) {
        for (int w = 0; w < 4; w++) {
            struct call c = call_create((attn_shape){1, 1, 1, 1117, 1201, 48, 7});
            c.options.causal = o != 3;
            c.options.window_left = windows[w];
            c.options.window_right = o == 3 ? 11 : -1;
            c.options.alignment = ATTN_ALIGN_OFFSET;
            c.options.query_offset = offsets[o];
            run(context, &c);
            const int64_t cuts[] = {0, 19, 36, 85, 134, 200, 217, 750, 1117};
            for (int i = 0; i < 8; i++)
                compared_by_tiles +=
                    compare_part(context, &c, cuts[i], cuts[i + 1] - cuts[i]);
            call_destroy(&c);
        }
    }
    if (strcmp(attn_context_isa(context), "amx") == 0)
        assert_true(compared_by_tiles > 0);
}

static void a_query_has_the_same_bits_among_any_neighbours(void **state)
{
    (void)state;
    on_every_level(check_neighbours);
}

/* ---- Memory ---------------------------------------------------------------------------
 */

static void check_plan(attn_context *context)
{
    struct call c = call_create((attn_shape){2, 4, 2, 150, 300, 24, 40});
    for (int received = 0; received < 2; received++) {
        attn_plan plan;
        char path[80];
        if (!received)
            c.tensors.statistics.received = NULL;
        else
            c.tensors.statistics.received = c.results + 2 * 4 * 150 * 40;
        c.options.causal = received;
        assert_int_equal(
            attn_plan_forward(context, &c.shape, &c.tensors, &c.options, &plan), ATTN_OK);
        snprintf(path, sizeof path, "panels of queries, %s%s",
                 received ? "weights kept for received mass, " : "",
                 attn_context_isa(context));
        assert_string_equal(plan.path, path);
        double counted = 0.0;
        for (int64_t i = 0; i < 150; i++)
            counted += received ? (double)(i + 151) : 300.0;
        assert_true(plan.visible_pairs == 8.0 * counted);

        void *const memory = aligned_alloc(64, (plan.scratch_bytes + 63) / 64 * 64);
        assert_non_null(memory);
        assert_int_equal(
            attn_context_lend_scratch(context, memory, plan.scratch_bytes - 1), ATTN_OK);
        c.results[0] = 77.0f;
        assert_int_equal(attn_forward(context, &c.shape, &c.tensors, &c.options),
                         ATTN_ENOMEM);
        assert_true(c.results[0] == 77.0f);
        assert_non_null(strstr(attn_context_message(context), "lent scratch has"));
        assert_int_equal(attn_context_lend_scratch(context, memory, plan.scratch_bytes),
                         ATTN_OK);
        run(context, &c);
        assert_true(c.results[0] != 77.0f);
        assert_int_equal(attn_context_lend_scratch(context, NULL, 0), ATTN_OK);
        run(context, &c);
        free(memory);
    }
    call_destroy(&c);
}

static void the_plan_names_the_path_and_exactly_the_scratch(void **state)
{
    (void)state;
    on_every_level(check_plan);
}

/* Visible pairs of one head, by the rules of position alone. */
static double count_pairs(const struct problem *p)
{
    const attn_options *const o = &p->options;
    const int64_t sequences = o->query_starts ? o->sequences : p->shape.B;
    double pairs = 0.0;
    for (int64_t s = 0; s < sequences; s++) {
        int64_t Lq = o->query_lengths ? o->query_lengths[s] : p->shape.Lq;
        int64_t Lk = o->key_lengths ? o->key_lengths[s] : p->shape.Lk;
        if (o->query_starts)
            Lq = o->query_starts[s + 1] - o->query_starts[s];
        if (o->key_starts)
            Lk = o->key_starts[s + 1] - o->key_starts[s];
        const int64_t offset = o->alignment == ATTN_ALIGN_BOTTOM_RIGHT ? Lk - Lq
                               : o->alignment == ATTN_ALIGN_OFFSET     ? o->query_offset
                                                                       : 0;
        for (int64_t i = offset; i < Lq + offset; i++)
            for (int64_t j = 0; j < Lk; j++)
                pairs += (!o->causal || j <= i) &&
                         (o->window_left < 0 || j >= i - o->window_left) &&
                         (o->window_right < 0 || j <= i + o->window_right);
    }
    return pairs;
}

static void visible_pairs_are_those_that_counting_finds(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct problem p = problem_create(seed, seed % 2 ? RULE_PACKED : RULE_LENGTHS);
        struct results r = results_create(&p);
        const attn_tensors tensors = problem_tensors(&p, &r);
        attn_plan plan;
        assert_int_equal(
            attn_plan_forward(context, &p.shape, &tensors, &p.options, &plan), ATTN_OK);
        const double expected = (double)p.shape.H * count_pairs(&p);
        if (plan.visible_pairs != expected)
            fail_msg("seed %d: %.0f pairs, expected %.0f", (int)seed, plan.visible_pairs,
                     expected);
        results_destroy(&r);
        problem_destroy(&p);
    }
    attn_context_destroy(context);
}

/* Nothing may go query by query, or sequence by sequence. */
static void assert_plans(attn_shape shape, int64_t sink_keys, double pairs)
{
    attn_context *context = NULL;
    float data = 0.0f, made = 0.0f;
    const attn_context_options two = {.threads = 2, .parallel_for = thread_each};
    assert_int_equal(attn_context_create(&context, &two), ATTN_OK);
    const attn_input one = {&data, {0}, ATTN_F32};
    const attn_tensors tensors = {.query = one,
                                  .key = one,
                                  .value = one,
                                  .output = attn_output_dense(&made, 1, shape.Lq, 1),
                                  .lse = &data};
    const attn_gradients gradients = {.output = one,
                                      .key = attn_output_dense(&made, 1, shape.Lk, 1)};
    attn_options options;
    attn_options_init(&options, &shape);
    options.causal = true;
    options.window_left = 9;
    options.sink_keys = sink_keys;
    options.alignment = ATTN_ALIGN_TOP_LEFT;
    attn_plan plan;
    assert_int_equal(attn_plan_forward(context, &shape, &tensors, &options, &plan),
                     ATTN_OK);
    assert_true(plan.visible_pairs == pairs);
    assert_int_equal(
        attn_plan_backward(context, &shape, &tensors, &options, &gradients, &plan),
        ATTN_OK);
    assert_true(plan.visible_pairs == pairs);
    attn_context_destroy(context);
}

static void the_plan_of_an_enormous_problem_is_made_at_once(void **state)
{
    (void)state;
    const int64_t many = (int64_t)1 << 44;
    const double all = (double)many;
    assert_plans((attn_shape){1, 1, 1, many, 1000, 1, 1}, 0, 10000.0);
    assert_plans((attn_shape){1, 1, 1, many, 1000, 1, 1}, 4, 4.0 * all + 9954.0);
    assert_plans((attn_shape){many, 1, 1, 12, 12, 1, 1}, 0, 75.0 * all);
    assert_plans((attn_shape){many, 1, 1, 12, 12, 1, 1}, 2, 78.0 * all);
    assert_plans((attn_shape){many, 1, 1, 1, 12, 1, 1}, 0, all);
}

/* 32,768 queries and keys: a matrix of weights would be 4 GiB.  A window keeps it short.
 */
static void memory_grows_with_the_length_and_not_its_square(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    struct call c = call_create((attn_shape){1, 1, 1, 32768, 32768, 8, 8});
    c.options.causal = true;
    c.options.window_left = 256;
    attn_plan plan;
    assert_int_equal(attn_plan_forward(context, &c.shape, &c.tensors, &c.options, &plan),
                     ATTN_OK);
    assert_true(plan.scratch_bytes < 2u << 20);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    run(context, &c);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 16 << 10); /* KiB */
    call_destroy(&c);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(a_packed_sequence_has_the_bits_it_has_alone),
        cmocka_unit_test(a_padded_sequence_has_the_bits_it_has_alone),
        cmocka_unit_test(a_query_has_the_same_bits_among_any_neighbours),
        cmocka_unit_test(the_plan_names_the_path_and_exactly_the_scratch),
        cmocka_unit_test(visible_pairs_are_those_that_counting_finds),
        cmocka_unit_test(the_plan_of_an_enormous_problem_is_made_at_once),
        cmocka_unit_test(memory_grows_with_the_length_and_not_its_square),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

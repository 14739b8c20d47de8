/* Decoding with sink logits, forget gates, layouts and sink keys is the last row of the
 * whole text, whatever type the cache keeps, and reads no key that nobody sees.  That it
 * has the bits of attn_forward with every option is in test_cache.c. */
#include "attention/cache.h"
#include "attention/reference.h"
#include "attn/cache.h"
#include "dense.h"
#include "kernel/decode_table.h"
#include "problems.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { H = 6, HK = 2, GROUP = H / HK, L = 1500, D = 24, DV = 17, BLOCK = 32 };
enum { BLOCKS = (L + BLOCK - 1) / BLOCK };

/* ---- A text and its cache -------------------------------------------------------------
 */

/* Rules are those of the whole text: causal, positions, gates of all keys, a layout of
 * all rows of blocks. */
struct text {
    attn_shape shape; /* B = 1, Lq = Lk = L */
    attn_tensors tensors;
    attn_options options;
    float *query, *key, *value, *gates;
    uint8_t blocks[H * BLOCKS * BLOCKS];
    float sinks[H];
    attn_cache *cache; /* of all keys */
    int64_t sequence;
};

/* Each group of heads has a layout of its own, or each head. */
static void choose_layout(struct text *t, bool of_heads)
{
    for (int64_t h = 0; h < H; h++) {
        const int64_t n = of_heads ? h : h / GROUP;
        const attn_layout layout = {.local = n % 2, .global = 1, .stride = 5 + n};
        assert_int_equal(
            attn_layout_fill(t->blocks + h * BLOCKS * BLOCKS, BLOCKS, BLOCKS, &layout),
            ATTN_OK);
    }
    t->options.blocks = (attn_keep){t->blocks, {0, BLOCKS * BLOCKS, BLOCKS, 1}};
    t->options.block_size = BLOCK;
}

enum rules { SINKS = 1, GATES = 2, LAYOUT = 4, OF_HEADS = 8, WINDOW = 16, BENT = 32 };

static void choose_rules(struct text *t, unsigned rules)
{
    static const float slopes[H] = {0.01f, 0.02f, 0.003f, 0.0f, 0.01f, 0.005f};
    attn_options_init(&t->options, &t->shape);
    t->options.causal = true;
    if (rules & SINKS)
        t->options.sinks = t->sinks;
    if (rules & GATES)
        t->options.log_forget = attn_input_dense(t->gates, H, L, 1);
    if (rules & LAYOUT)
        choose_layout(t, rules & OF_HEADS);
    if (rules & WINDOW) {
        t->options.window_left = 300;
        t->options.sink_keys = 3;
    }
    if (rules & BENT) {
        t->options.softcap = 4.0f;
        t->options.alibi_slopes = slopes;
    }
}

static struct text *text_create(void)
{
    struct text *const t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->shape = (attn_shape){1, H, HK, L, L, D, DV};
    t->query = floats(H * L * D);
    t->key = floats(HK * L * D);
    t->value = floats(HK * L * DV);
    t->gates = floats(H * L);
    for (int64_t n = 0; n < H * L; n++) /* most are nearly open, some nearly closed */
        t->gates[n] = -0.01f * fabsf(t->gates[n]) - (n % 97 == 0 ? 3.0f : 0.0f);
    for (int64_t h = 0; h < H; h++)
        t->sinks[h] = h == 2 ? -INFINITY : 2.0f * random_float();
    t->tensors = (attn_tensors){.query = attn_input_dense(t->query, H, L, D),
                                .key = attn_input_dense(t->key, HK, L, D),
                                .value = attn_input_dense(t->value, HK, L, DV)};
    return t;
}

static void text_destroy(struct text *t)
{
    free(t->query), free(t->key), free(t->value), free(t->gates), free(t);
}

/* Only until the next one. */
static void open_cache(attn_context *context, struct text *t, attn_cache_type type,
                       int64_t page_keys, int64_t length)
{
    const attn_cache_options options = {.Hk = HK,
                                        .D = D,
                                        .Dv = DV,
                                        .pages = (L + page_keys - 1) / page_keys,
                                        .page_keys = page_keys,
                                        .type = type};
    assert_ok(context, attn_cache_create(&t->cache, context, &options));
    assert_ok(context, attn_cache_open(context, t->cache, &t->sequence));
    assert_ok(context, attn_cache_append(context, t->cache, t->sequence, length,
                                         &t->tensors.key, &t->tensors.value));
}

/* What the cache keeps, as floats, in place of what was appended. */
static void read_back(struct text *t, int64_t length)
{
    const attn_cache_type type = t->cache->options.type;
    for (int64_t n = 0; n < HK * length; n++) {
        const int64_t hk = n / length, j = n % length;
        const struct attn_cached_rows rows =
            attn_cache_rows(t->cache, attn_cache_find(t->cache, t->sequence), hk, j);
        const uint8_t *const keys = rows.key, *const values = rows.value;
        for (size_t d = 0; d < D; d++)
            t->key[(hk * L + j) * D + (int64_t)d] =
                type == ATTN_CACHE_I8
                    ? (float)(keys[attn_byte_of_key(D, rows.row, d)] - ATTN_BYTES_ZERO) *
                          attn_byte_scale(*rows.key_scale)
                    : (float)attn_reference_load(rows.key, (attn_type)type, (int64_t)d);
        for (size_t d = 0; d < DV; d++)
            t->value[(hk * L + j) * DV + (int64_t)d] =
                type == ATTN_CACHE_I8
                    ? (float)(values[attn_byte_of_value(DV, rows.row, d)] -
                              ATTN_BYTES_ZERO) *
                          attn_byte_scale(*rows.value_scale)
                    : (float)attn_reference_load(rows.value, (attn_type)type, (int64_t)d);
    }
}

/* ---- One row --------------------------------------------------------------------------
 */

enum { TOP = 3 };

struct row {
    float output[H * DV], lse[H], entropy[H], largest_weight[H], distance[H];
    float first_key_mass[H], own_mass[H], top_weight[H * TOP], received[H * L];
    int64_t largest_key[H], visible_keys[H], top_key[H * TOP];
};

/* The options of the whole text, as the query at that position has them. */
static attn_options options_at(const struct text *t, int64_t position)
{
    attn_options o = t->options;
    if (o.blocks.data)
        o.blocks.data += position / BLOCK * o.blocks.stride[2];
    return o;
}

static attn_tensors tensors_at(const struct text *t, int64_t position, struct row *row)
{
    return (attn_tensors){
        .query = attn_input_dense(t->query + position * D, H, L, D),
        .output = attn_output_dense(row->output, H, 1, DV),
        .lse = row->lse,
        .statistics = {.entropy = row->entropy,
                       .largest_weight = row->largest_weight,
                       .largest_key = row->largest_key,
                       .distance = row->distance,
                       .first_key_mass = row->first_key_mass,
                       .own_mass = row->own_mass,
                       .visible_keys = row->visible_keys,
                       .received = row->received,
                       .top = TOP,
                       .top_weight = row->top_weight,
                       .top_key = row->top_key},
    };
}

static void decode(attn_context *context, const struct text *t, int64_t position,
                   struct row *row)
{
    const attn_batch batch = {1, &t->sequence, H};
    const attn_options options = options_at(t, position);
    const attn_tensors tensors = tensors_at(t, position, row);
    assert_ok(context, attn_decode(context, t->cache, &batch, &tensors, &options));
}

static void assert_near(double got, double expected, double bound, const char *what,
                        int64_t h)
{
    if (!(fabs(got - expected) <= bound * fmax(1.0, fabs(expected))))
        fail_msg("%s of head %d is %.9g, expected %.9g", what, (int)h, got, expected);
}

/* The header's: `loose` is what 8 bits add to a score and to a weight. */
static void assert_row(const struct text *t, int64_t position, const struct row *got,
                       double loose)
{
    struct attn_reference_row row;
    assert_true(attn_reference_row_create(&row, &t->shape));
    for (int64_t h = 0; h < H; h++) {
        attn_reference_attend(&row, &t->shape, &t->tensors, &t->options, 0, h, position);
        double entropy = 0.0, distance = 0.0, largest = 0.0;
        for (int64_t j = 0; j <= position; j++) {
            const double w = row.weight[j];
            entropy -= w > 0.0 ? w * log(w) : 0.0;
            distance += w * (double)(position - j);
            largest = fmax(largest, w);
            assert_near((double)got->received[h * (position + 1) + j], w, 8e-6 + loose,
                        "received mass", h);
        }
        for (int64_t d = 0; d < DV; d++) /* values are below 2 */
            assert_near((double)got->output[h * DV + d], row.output[d],
                        8e-6 + 2.0 * loose, "output", h);
        assert_near((double)got->lse[h], row.lse, 4e-6 + loose, "lse", h);
        assert_near((double)got->entropy[h], entropy, 2e-5 + 10.0 * loose, "entropy", h);
        assert_near((double)got->distance[h], distance, 8e-6 + 2.0 * loose, "distance",
                    h);
        assert_near((double)got->largest_weight[h], largest, 8e-6 + loose,
                    "largest weight", h);
        assert_near(row.weight[got->largest_key[h]], largest, 8e-6 + loose,
                    "weight of the largest key", h);
        assert_near((double)got->first_key_mass[h], row.weight[0], 8e-6 + loose,
                    "first key's mass", h);
        assert_near((double)got->own_mass[h], row.weight[position], 8e-6 + loose,
                    "own mass", h);
        assert_int_equal(got->visible_keys[h], row.visible_keys);
        for (int64_t n = 0; n < TOP; n++)
            assert_near((double)got->top_weight[h * TOP + n],
                        got->top_key[h * TOP + n] < 0
                            ? 0.0
                            : row.weight[got->top_key[h * TOP + n]],
                        8e-6 + loose, "weight of the top", h);
    }
    attn_reference_row_destroy(&row);
}

/* Scores of |q·k| below 4·D, and with them the bound of 8 bits, are far from reached. */
static void check_type(attn_context *context, attn_cache_type type, int64_t page_keys)
{
    static const unsigned rules[] = {SINKS,
                                     GATES,
                                     LAYOUT,
                                     LAYOUT | OF_HEADS,
                                     WINDOW,
                                     GATES | WINDOW,
                                     SINKS | GATES | LAYOUT,
                                     GATES | LAYOUT | OF_HEADS,
                                     SINKS | LAYOUT | WINDOW,
                                     SINKS | GATES | LAYOUT | OF_HEADS | WINDOW | BENT};
    static const int64_t positions[] = {0, 40, 511, 512, 1100, L - 1};
    const double loose = type == ATTN_CACHE_I8 ? 1e-3 : 0.0;
    struct row *const row = calloc(1, sizeof *row);
    assert_non_null(row);
    for (size_t p = 0; p < sizeof positions / sizeof *positions; p++) {
        struct text *const t = text_create();
        open_cache(context, t, type, page_keys, positions[p] + 1);
        read_back(t, positions[p] + 1);
        for (size_t n = 0; n < sizeof rules / sizeof *rules; n++) {
            choose_rules(t, rules[n]);
            decode(context, t, positions[p], row);
            assert_row(t, positions[p], row, loose);
        }
        attn_cache_destroy(t->cache);
        text_destroy(t);
    }
    free(row);
}

static void check_types(attn_context *context)
{
    check_type(context, ATTN_CACHE_F32, 128);
    check_type(context, ATTN_CACHE_F16, 21);
    check_type(context, ATTN_CACHE_BF16, 128);
    check_type(context, ATTN_CACHE_I8, 128);
    check_type(context, ATTN_CACHE_I8, 21);
}

static void a_step_is_the_last_row_of_the_text_with_sinks_gates_and_layouts(void **state)
{
    (void)state;
    on_every_level(check_types);
}

/* ---- Gates ----------------------------------------------------------------------------
 */

static void check_gates(attn_context *context)
{
    struct text *const t = text_create();
    struct row *const row = calloc(2, sizeof *row);
    assert_non_null(row);
    open_cache(context, t, ATTN_CACHE_F32, 128, L);
    choose_rules(t, SINKS);
    decode(context, t, L - 1, &row[0]);
    memset(t->gates, 0, H * L * sizeof *t->gates);
    choose_rules(t, SINKS | GATES);
    decode(context, t, L - 1, &row[1]);
    assert_memory_equal(&row[0], &row[1], sizeof row[0]); /* open gates */

    /* Closed at two positions: it sees the keys from the later one on. */
    choose_rules(t, SINKS);
    t->options.window_left = L - 1 - 900;
    decode(context, t, L - 1, &row[0]);
    for (int64_t h = 0; h < H; h++)
        t->gates[h * L + 100] = -INFINITY, t->gates[h * L + 900] = -1e30f;
    choose_rules(t, SINKS | GATES);
    decode(context, t, L - 1, &row[1]);
    for (int64_t n = 0; n < H * DV; n++)
        assert_near((double)row[1].output[n], (double)row[0].output[n], 4e-6, "output",
                    n / DV);
    attn_cache_destroy(t->cache);
    text_destroy(t), free(row);
}

static void open_gates_change_no_bit_and_a_closed_one_hides_what_is_before(void **state)
{
    (void)state;
    on_every_level(check_gates);
}

/* Of head 0 at position 700: who sees a key before it is NaN. */
static void check_nan_gate(attn_context *context)
{
    enum { AT = 700 };
    struct text *const t = text_create();
    struct row *const row = calloc(1, sizeof *row);
    assert_non_null(row);
    open_cache(context, t, ATTN_CACHE_F32, 128, L);
    t->gates[AT] = NAN;
    choose_rules(t, GATES);
    for (int64_t left = L - AT - 2; left <= L - AT + 1; left++) {
        t->options.window_left = left;
        decode(context, t, L - 1, row);
        const bool sees_one = L - 1 - left < AT;
        assert_true(sees_one == !!isnan(row->output[0]));
        assert_true(sees_one == !!isnan(row->lse[0]));
        assert_true(sees_one == !!isnan(row->entropy[0]));
        assert_true(sees_one == !!isnan(row->received[L - 1]));
        assert_true(row->received[0] == 0.0f); /* hidden */
        assert_false(isnan(row->output[DV]));
    }
    attn_cache_destroy(t->cache);
    text_destroy(t), free(row);
}

static void a_gate_of_nan_reaches_who_sees_a_key_before_it(void **state)
{
    (void)state;
    on_every_level(check_nan_gate);
}

/* ---- Work -----------------------------------------------------------------------------
 */

/* Every 16th block of 16 keys, which are a page of the cache and of the system each, in
 * memory that cannot be touched elsewhere. */
static void check_touched(attn_context *context)
{
    enum { KEYS = 16, SIZE = 64, PAGES = 640, PAGE_BYTES = 2 * KEYS * SIZE * 4 };
    const int64_t length = PAGES * KEYS;
    const attn_cache_options options = {
        .Hk = 1, .D = SIZE, .Dv = SIZE, .pages = PAGES, .page_keys = KEYS};
    float *const rows = floats(length * SIZE);
    attn_cache *cache = NULL;
    int64_t sequence;
    assert_ok(context, attn_cache_create(&cache, context, &options));
    assert_ok(context, attn_cache_open(context, cache, &sequence));
    const attn_input all = attn_input_dense(rows, 1, length, SIZE);
    assert_ok(context, attn_cache_append(context, cache, sequence, length, &all, &all));
    assert_int_equal((uintptr_t)cache->memory % 4096, 0);
    uint8_t blocks[PAGES];
    for (int64_t n = 0; n < PAGES; n++)
        blocks[n] = n % 16 == 3;

    float output[2 * SIZE], again[2 * SIZE];
    const attn_batch batch = {1, &sequence, 2};
    const attn_tensors tensors = {.query = attn_input_dense(rows, 2, 1, SIZE),
                                  .output = attn_output_dense(output, 2, 1, SIZE)};
    attn_options o;
    attn_plan dense, sparse;
    attn_options_init(&o, &(attn_shape){.D = SIZE});
    o.causal = true;
    assert_ok(context, attn_plan_decode(context, cache, &batch, &tensors, &o, &dense));
    o.blocks = (attn_keep){blocks, {0, 0, 0, 1}};
    o.block_size = KEYS;
    assert_ok(context, attn_plan_decode(context, cache, &batch, &tensors, &o, &sparse));
    assert_true(dense.visible_pairs == 2.0 * (double)length);
    assert_true(sparse.visible_pairs == 2.0 * (double)length / 16.0);
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &o));
    memcpy(again, output, sizeof again);
    if (sysconf(_SC_PAGESIZE) == 4096) {
        for (int64_t n = 0; n < PAGES; n++)
            if (!blocks[n])
                assert_int_equal(
                    mprotect(cache->memory + n * PAGE_BYTES, PAGE_BYTES, PROT_NONE), 0);
        assert_ok(context, attn_decode(context, cache, &batch, &tensors, &o));
        assert_memory_equal(output, again, sizeof again);
        assert_int_equal(
            mprotect(cache->memory, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE), 0);
    } else {
        print_message("the system's pages are not of 4 KB: what is touched is not "
                      "checked\n");
    }

    /* Splits that nobody sees take nothing. */
    memset(blocks, 0, sizeof blocks);
    blocks[PAGES / 2] = 1;
    assert_ok(context, attn_plan_decode(context, cache, &batch, &tensors, &o, &sparse));
    assert_true(sparse.visible_pairs == 2.0 * KEYS);
    assert_true(sparse.scratch_bytes < dense.scratch_bytes);
    memset(blocks, 0, sizeof blocks);
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &o));
    for (int n = 0; n < 2 * SIZE; n++)
        assert_true(output[n] == 0.0f);
    attn_cache_destroy(cache);
    free(rows);
}

static void blocks_that_nobody_sees_are_not_touched_and_cost_nothing(void **state)
{
    (void)state;
    on_every_level(check_touched);
}

/* What lies between sink keys and window is poison. */
static void check_poison(attn_context *context)
{
    static const attn_cache_type types[] = {ATTN_CACHE_F32, ATTN_CACHE_F16,
                                            ATTN_CACHE_BF16, ATTN_CACHE_I8};
    struct row *const row = calloc(2, sizeof *row);
    assert_non_null(row);
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        struct text *const t = text_create();
        choose_rules(t, SINKS | GATES | LAYOUT | WINDOW);
        open_cache(context, t, types[n], 128, L);
        decode(context, t, L - 1, &row[0]);
        attn_cache_destroy(t->cache);
        struct attn_reference_row seen;
        assert_true(attn_reference_row_create(&seen, &t->shape));
        for (int64_t hk = 0; hk < HK; hk++) {
            attn_reference_attend(&seen, &t->shape, &t->tensors, &t->options, 0,
                                  hk * GROUP, L - 1);
            for (int64_t j = 0; j < L; j++)
                if (!seen.visible[j]) {
                    t->key[(hk * L + j) * D + j % D] = j % 2 ? NAN : INFINITY;
                    t->value[(hk * L + j) * DV + j % DV] = j % 2 ? -INFINITY : NAN;
                }
        }
        attn_reference_row_destroy(&seen);
        open_cache(context, t, types[n], 128, L);
        decode(context, t, L - 1, &row[1]);
        assert_memory_equal(&row[0], &row[1], sizeof row[0]);
        attn_cache_destroy(t->cache);
        text_destroy(t);
    }
    free(row);
}

static void nothing_hidden_is_read_into_a_result_whatever_is_kept(void **state)
{
    (void)state;
    on_every_level(check_poison);
}

/* ---- Company --------------------------------------------------------------------------
 */

/* Three lengths of one text, each with its own row of the layout and gates of its own,
 * alone and together, on 1, 3 and 8 threads. */
static void check_company(attn_context *context)
{
    enum { COUNT = 3, LONGEST = L };
    static const int64_t lengths[COUNT] = {LONGEST, 700, 33};
    static const unsigned rules[] = {SINKS | LAYOUT | WINDOW, SINKS | GATES | LAYOUT,
                                     GATES | LAYOUT | OF_HEADS};
    struct row *const rows = calloc(1, sizeof *rows);
    assert_non_null(rows);
    for (int n = 0; n < 3; n++) {
        struct text *const t = text_create();
        float alone[COUNT][H * DV], query[COUNT][H * D], together[COUNT][H * DV];
        float *const gates = calloc((size_t)COUNT * H * L, sizeof *gates);
        uint8_t blocks[COUNT][H * BLOCKS];
        int64_t sequences[COUNT];
        assert_non_null(gates);
        choose_rules(t, rules[n]);
        open_cache(context, t, n == 1 ? ATTN_CACHE_I8 : ATTN_CACHE_BF16, 128, 0);
        attn_cache_options pages = t->cache->options;
        attn_cache_destroy(t->cache);
        pages.pages = 20;
        assert_ok(context, attn_cache_create(&t->cache, context, &pages));
        for (int b = 0; b < COUNT; b++) {
            const int64_t own = lengths[b] - 1;
            assert_ok(context, attn_cache_open(context, t->cache, &sequences[b]));
            assert_ok(context,
                      attn_cache_append(context, t->cache, sequences[b], lengths[b],
                                        &t->tensors.key, &t->tensors.value));
            t->sequence = sequences[b];
            decode(context, t, own, rows);
            memcpy(alone[b], rows->output, sizeof alone[b]);
            memcpy(gates + b * H * L, t->gates, H * L * sizeof *gates);
            for (int64_t h = 0; h < H; h++) {
                memcpy(query[b] + h * D, t->query + (h * L + own) * D, D * sizeof(float));
                memcpy(blocks[b] + h * BLOCKS,
                       t->blocks + (h * BLOCKS + own / BLOCK) * BLOCKS, BLOCKS);
            }
        }
        attn_options o = t->options;
        o.blocks = (attn_keep){blocks[0], {H * BLOCKS, BLOCKS, BLOCKS, 1}};
        if (o.log_forget.data)
            o.log_forget = attn_input_dense(gates, H, L, 1);
        const attn_batch batch = {COUNT, sequences, H};
        const attn_tensors tensors = {.query = attn_input_dense(query, H, 1, D),
                                      .output = attn_output_dense(together, H, 1, DV)};
        for (size_t threads = 1; threads <= 8; threads += threads + 1) {
            const attn_context_options options = {.isa = attn_context_isa(context),
                                                  .threads = threads,
                                                  .parallel_for = thread_each};
            attn_context *threaded = NULL;
            assert_int_equal(attn_context_create(&threaded, &options), ATTN_OK);
            assert_ok(threaded, attn_decode(threaded, t->cache, &batch, &tensors, &o));
            assert_memory_equal(together, alone, sizeof alone);
            attn_context_destroy(threaded);
        }
        attn_cache_destroy(t->cache);
        free(gates);
        text_destroy(t);
    }
    free(rows);
}

static void threads_and_company_change_no_bit_of_gates_and_layouts(void **state)
{
    (void)state;
    on_every_level(check_company);
}

/* ---- Refusals -------------------------------------------------------------------------
 */

static void assert_refused(const attn_context *context, attn_status status,
                           const char *message)
{
    assert_int_equal(status, ATTN_EINVAL);
    if (!strstr(attn_context_message(context), message))
        fail_msg("\"%s\", expected \"%s\"", attn_context_message(context), message);
}

static void what_does_not_fit_is_refused_by_name_and_writes_nothing(void **state)
{
    (void)state;
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    struct text *const t = text_create();
    struct row *const row = calloc(2, sizeof *row);
    assert_non_null(row);
    open_cache(c, t, ATTN_CACHE_F32, 128, 40);
    const attn_batch batch = {1, &t->sequence, H};
    const attn_tensors tensors = tensors_at(t, 39, row);
    choose_rules(t, SINKS | GATES | LAYOUT);
    const attn_options good = options_at(t, 39);
    attn_options o = good;
    o.causal = false;
    assert_refused(c, attn_decode(c, t->cache, &batch, &tensors, &o),
                   "attn_decode: options.log_forget is given without causal");
    o = good;
    o.log_forget.type = (attn_type)9;
    assert_refused(c, attn_decode(c, t->cache, &batch, &tensors, &o),
                   "attn_decode: options.log_forget.type is 9");
    o = good;
    o.log_forget.stride[2] = INT64_MAX / 8;
    assert_refused(c, attn_decode(c, t->cache, &batch, &tensors, &o),
                   "attn_decode: options.log_forget.stride[2] is");
    o = good;
    o.block_size = 24;
    assert_refused(c, attn_decode(c, t->cache, &batch, &tensors, &o),
                   "attn_decode: options.block_size is 24, expected a multiple of 16");
    o = good;
    o.blocks.stride[3] = INT64_MIN;
    assert_refused(c, attn_decode(c, t->cache, &batch, &tensors, &o),
                   "attn_decode: options.blocks.stride[3] is");
    o = good;
    o.sink_keys = -1;
    assert_refused(c, attn_decode(c, t->cache, &batch, &tensors, &o),
                   "attn_decode: options.sink_keys is -1");
    assert_memory_equal(&row[0], &row[1], sizeof *row);
    assert_ok(c, attn_decode(c, t->cache, &batch, &tensors, &good));
    attn_cache_destroy(t->cache);
    text_destroy(t), free(row);
    attn_context_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_the_last_row_of_the_text_with_sinks_gates_and_layouts),
        cmocka_unit_test(open_gates_change_no_bit_and_a_closed_one_hides_what_is_before),
        cmocka_unit_test(a_gate_of_nan_reaches_who_sees_a_key_before_it),
        cmocka_unit_test(blocks_that_nobody_sees_are_not_touched_and_cost_nothing),
        cmocka_unit_test(nothing_hidden_is_read_into_a_result_whatever_is_kept),
        cmocka_unit_test(threads_and_company_change_no_bit_of_gates_and_layouts),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name_and_writes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

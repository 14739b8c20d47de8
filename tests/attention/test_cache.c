/* The paged cache: it gives back what was appended, whatever was opened, forked, cut and
 * closed meanwhile; it refuses without changing anything; and decoding from it is
 * attn_forward. */
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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed; /* names the problem in a failure */

static attn_cache *create(attn_context *context, const attn_cache_options *options)
{
    attn_cache *cache = NULL;
    assert_ok(context, attn_cache_create(&cache, context, options));
    return cache;
}

static int64_t open_sequence(attn_context *context, attn_cache *cache)
{
    int64_t sequence = -1;
    assert_ok(context, attn_cache_open(context, cache, &sequence));
    return sequence;
}

/* Rows [first, first + count) of dense [Hk][rows][D] and [Hk][rows][Dv]. */
static attn_status append(attn_context *context, attn_cache *cache, int64_t sequence,
                          const float *key, const float *value, int64_t rows,
                          int64_t first, int64_t count)
{
    const attn_cache_options *const o = &cache->options;
    const attn_input k = attn_input_dense(key + first * o->D, o->Hk, rows, o->D);
    const attn_input v = attn_input_dense(value + first * o->Dv, o->Hk, rows, o->Dv);
    return attn_cache_append(context, cache, sequence, count, &k, &v);
}

/* ---- As attn_forward ------------------------------------------------------------------
 */

static size_t output_floats(const struct results *r)
{
    return r->output.floats * sizeof(float);
}

static void assert_same_results(const struct results *a, const struct results *b,
                                int64_t classes)
{
    const attn_statistics *const s = &a->statistics, *const t = &b->statistics;
    const size_t floats = a->rows * sizeof(float), keys = a->rows * sizeof(int64_t);
    if (memcmp(a->output.memory, b->output.memory, output_floats(a)) != 0)
        fail_msg("seed %d: outputs differ", (int)seed);
    assert_memory_equal(a->lse, b->lse, floats);
    assert_memory_equal(s->entropy, t->entropy, floats);
    assert_memory_equal(s->largest_weight, t->largest_weight, floats);
    assert_memory_equal(s->largest_key, t->largest_key, keys);
    assert_memory_equal(s->distance, t->distance, floats);
    assert_memory_equal(s->first_key_mass, t->first_key_mass, floats);
    assert_memory_equal(s->own_mass, t->own_mass, floats);
    assert_memory_equal(s->visible_keys, t->visible_keys, keys);
    assert_memory_equal(s->class_mass, t->class_mass, floats * (size_t)classes);
    assert_memory_equal(s->top_weight, t->top_weight, floats * RESULT_TOP);
    assert_memory_equal(s->top_key, t->top_key, keys * RESULT_TOP);
}

/* Appends in pieces what the problem's sequence b has. */
static void append_problem(attn_context *context, attn_cache *cache, int64_t sequence,
                           const struct problem *p, int64_t b, int64_t length)
{
    for (int64_t done = 0; done < length;) {
        const int64_t most = length - done < 200 ? length - done : 200;
        const int64_t count = 1 + random_below(most);
        attn_input key = tensor_input(&p->key), value = tensor_input(&p->value);
        key.data = tensor_at(&p->key, b, 0, done, 0);
        value.data = tensor_at(&p->value, b, 0, done, 0);
        assert_ok(context,
                  attn_cache_append(context, cache, sequence, count, &key, &value));
        done += count;
    }
    assert_int_equal(attn_cache_length(cache, sequence), length);
}

static bool fits(const struct problem *p)
{
    return p->shape.Lq == 1 && p->shape.B > 0 && !p->options.query_starts &&
           !p->options.query_lengths && p->options.dropout == 0.0 && !p->options.additive;
}

/* Rows are as long as the longest sequence of either. */
static void assert_same_received(const attn_shape *shape, const attn_cache *cache,
                                 const attn_batch *batch, const attn_statistics *expected,
                                 const attn_statistics *got)
{
    int64_t longest = 0;
    for (int64_t b = 0; b < batch->count; b++) {
        const int64_t length = attn_cache_length(cache, batch->sequences[b]);
        longest = length > longest ? length : longest;
    }
    for (int64_t row = 0; row < shape->B * shape->H; row++)
        assert_memory_equal(expected->received + row * shape->Lk,
                            got->received + row * longest,
                            (size_t)longest * sizeof(float));
}

static void compare_with_forward(attn_context *context, const struct problem *p)
{
    const attn_shape *const s = &p->shape;
    const int64_t *const lengths = p->options.key_lengths;
    const attn_cache_options options = {
        .Hk = s->Hk, .D = s->D, .Dv = s->Dv, .pages = 40, .page_keys = 128};
    attn_cache *const cache = create(context, &options);
    struct results expected = results_create(p), got = results_create(p);
    free(got.output.memory);
    got.output = expected.output; /* the same strides, and NaN in the same gaps */
    got.output.memory = allocate(expected.output.floats, sizeof(float));
    memcpy(got.output.memory, expected.output.memory, output_floats(&got));
    got.output.data = got.output.memory + (expected.output.data - expected.output.memory);
    attn_tensors tensors = problem_tensors(p, &expected);
    assert_ok(context, attn_forward(context, s, &tensors, &p->options));

    int64_t sequences[4];
    for (int64_t b = 0; b < s->B; b++) {
        sequences[b] = open_sequence(context, cache);
        append_problem(context, cache, sequences[b], p, b, lengths ? lengths[b] : s->Lk);
    }
    const attn_batch batch = {s->B, sequences, s->H};
    attn_options without = p->options;
    without.key_lengths = NULL;
    tensors = problem_tensors(p, &got);
    tensors.key = tensors.value = (attn_input){.data = NULL};
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &without));
    assert_same_results(&expected, &got, RESULT_CLASSES);
    assert_same_received(s, cache, &batch, &expected.statistics, &got.statistics);
    results_destroy(&expected), results_destroy(&got);
    attn_cache_destroy(cache);
}

static void check_as_forward(attn_context *context)
{
    int compared = 0;
    for (seed = 0; compared < 150; seed++) {
        struct problem p = problem_create(
            seed,
            (RULES_ALL & ~(RULE_DROPOUT | RULE_PACKED | RULE_ADDITIVE)) | RULE_ONE_QUERY);
        if (p.key.stride[3] == 1 && p.value.stride[3] == 1 && fits(&p)) {
            compare_with_forward(context, &p);
            compared++;
        }
        problem_destroy(&p);
    }
}

static void decoding_has_the_bits_of_forward_with_every_option(void **state)
{
    (void)state;
    on_every_level(check_as_forward);
}

/* Dense tensors of one sequence, [H][L][D] and so on. */
struct text {
    attn_shape shape; /* B = 1, Lq = Lk = L */
    float *query, *key, *value, *output;
};

static struct text text_create(int64_t H, int64_t Hk, int64_t L, int64_t D, int64_t Dv)
{
    return (struct text){
        .shape = {1, H, Hk, L, L, D, Dv},
        .query = floats(H * L * D),
        .key = floats(Hk * L * D),
        .value = floats(Hk * L * Dv),
        .output = allocate((size_t)(H * L * Dv), sizeof(float)),
    };
}

static void text_destroy(struct text *t)
{
    free(t->query), free(t->key), free(t->value), free(t->output);
}

/* The query of one position of all heads, and an output for it. */
static attn_tensors at_position(const struct text *t, int64_t position, float *output)
{
    const attn_shape *const s = &t->shape;
    return (attn_tensors){
        .query = attn_input_dense(t->query + position * s->D, s->H, s->Lq, s->D),
        .output = attn_output_dense(output, s->H, 1, s->Dv),
    };
}

static void check_every_step(attn_context *context)
{
    enum { L = 300, H = 6, HK = 2, D = 20, DV = 13 };
    struct text t = text_create(H, HK, L, D, DV);
    const attn_cache_options cache_options = {
        .Hk = HK, .D = D, .Dv = DV, .pages = 20, .page_keys = 16};
    attn_cache *const cache = create(context, &cache_options);
    const int64_t sequence = open_sequence(context, cache);
    attn_options options;
    attn_options_init(&options, &t.shape);
    options.causal = true;
    const attn_tensors full = {.query = attn_input_dense(t.query, H, L, D),
                               .key = attn_input_dense(t.key, HK, L, D),
                               .value = attn_input_dense(t.value, HK, L, DV),
                               .output = attn_output_dense(t.output, H, L, DV)};
    assert_int_equal(attn_forward_reference(&t.shape, &full, &options), ATTN_OK);
    const attn_batch batch = {1, &sequence, H};
    for (int64_t i = 0; i < L; i++) {
        float output[H * DV];
        const attn_tensors tensors = at_position(&t, i, output);
        assert_ok(context, append(context, cache, sequence, t.key, t.value, L, i, 1));
        assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
        for (int64_t h = 0; h < H; h++)
            for (int64_t d = 0; d < DV; d++)
                assert_float_equal(output[h * DV + d], t.output[(h * L + i) * DV + d],
                                   8e-6);
    }
    attn_cache_destroy(cache);
    text_destroy(&t);
}

static void decoding_step_by_step_is_the_full_pass_at_every_step(void **state)
{
    (void)state;
    on_every_level(check_every_step);
}

/* ---- 8 bits and 16 --------------------------------------------------------------------
 */

/* What the cache keeps of one head, as floats. */
static void read_back(const attn_cache *cache, int64_t sequence, int64_t hk, int64_t key,
                      float *k, float *v)
{
    const struct attn_cached_rows rows =
        attn_cache_rows(cache, attn_cache_find(cache, sequence), hk, key);
    const size_t D = (size_t)cache->options.D, Dv = (size_t)cache->options.Dv;
    const uint8_t *const keys = rows.key, *const values = rows.value;
    for (size_t d = 0; d < D; d++)
        k[d] = (float)(keys[attn_byte_of_key(D, rows.row, d)] - ATTN_BYTES_ZERO) *
               attn_byte_scale(*rows.key_scale);
    for (size_t d = 0; d < Dv; d++)
        v[d] = (float)(values[attn_byte_of_value(Dv, rows.row, d)] - ATTN_BYTES_ZERO) *
               attn_byte_scale(*rows.value_scale);
}

static void assert_rounded(const float *got, const float *expected, int64_t size)
{
    float most = 0.0f;
    for (int64_t d = 0; d < size; d++)
        most = fmaxf(most, fabsf(expected[d]));
    for (int64_t d = 0; d < size; d++)
        if (!(fabsf(got[d] - expected[d]) <= most / 252.9f))
            fail_msg("seed %d: %g is kept as %g, largest %g", (int)seed,
                     (double)expected[d], (double)got[d], (double)most);
}

/* As the header states it; keys are below 6 in size, queries and values below 2. */
static float eight_bit_bound(const struct text *t, float scale)
{
    const float of_score = fabsf(scale) * (float)t->shape.D * 2.0f * 6.0f / 65278.0f;
    return 2.0f * (2.0f * of_score + 1e-3f);
}

static void check_eight_bits(attn_context *context)
{
    static const int64_t sizes[][2] = {{128, 128}, {64, 64}, {1, 1},
                                       {37, 5},    {16, 80}, {520, 9}};
    static const int64_t groups[] = {1, 2, 3, 4, 7, 8, 16, 21};
    for (seed = 0; seed < 40; seed++) {
        enum { L = 700, HK = 2 };
        const int64_t D = sizes[seed % 6][0], Dv = sizes[seed % 6][1];
        const int64_t H = HK * groups[seed % 8], length = 1 + random_below(L);
        struct text t = text_create(H, HK, L, D, Dv);
        for (int64_t i = 0; i < HK * L * D; i++) /* rows of any size */
            t.key[i] *= (float)(1 + i / D % 3) * (i / D % 5 == 0 ? 0.01f : 1.0f);
        const attn_cache_options cache_options = {.Hk = HK,
                                                  .D = D,
                                                  .Dv = Dv,
                                                  .pages = 50,
                                                  .page_keys = seed % 2 ? 128 : 21,
                                                  .type = ATTN_CACHE_I8};
        attn_cache *const cache = create(context, &cache_options);
        const int64_t sequence = open_sequence(context, cache);
        assert_ok(context,
                  append(context, cache, sequence, t.key, t.value, L, 0, length));
        for (int64_t hk = 0; hk < HK; hk++)
            for (int64_t j = 0; j < length; j++) {
                float k[520], v[128];
                read_back(cache, sequence, hk, j, k, v);
                assert_rounded(k, t.key + (hk * L + j) * D, D);
                assert_rounded(v, t.value + (hk * L + j) * Dv, Dv);
                memcpy(t.key + (hk * L + j) * D, k, (size_t)D * sizeof *k);
                memcpy(t.value + (hk * L + j) * Dv, v, (size_t)Dv * sizeof *v);
            }
        attn_options options;
        attn_options_init(&options, &t.shape);
        options.softcap = seed % 3 ? 0.0f : 5.0f;
        options.window_left = seed % 4 ? -1 : 100;
        const attn_batch batch = {1, &sequence, H};
        float *const output = allocate((size_t)(H * Dv), sizeof *output);
        attn_tensors tensors = at_position(&t, 0, output);
        assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
        const attn_shape shape = {1, H, HK, 1, length, D, Dv};
        tensors.key = attn_input_dense(t.key, HK, L, D);
        tensors.value = attn_input_dense(t.value, HK, L, Dv);
        float *const expected = allocate((size_t)(H * Dv), sizeof *expected);
        tensors.output.data = expected;
        assert_int_equal(attn_forward_reference(&shape, &tensors, &options), ATTN_OK);
        for (int64_t i = 0; i < H * Dv; i++)
            if (!(fabsf(output[i] - expected[i]) <= eight_bit_bound(&t, options.scale)))
                fail_msg("seed %d: output %d is %.9g, expected %.9g", (int)seed, (int)i,
                         (double)output[i], (double)expected[i]);
        free(output), free(expected);
        attn_cache_destroy(cache);
        text_destroy(&t);
    }
}

static void eight_bits_are_off_by_half_a_scale_and_decoding_by_no_more(void **state)
{
    (void)state;
    on_every_level(check_eight_bits);
}

static void check_sixteen_bits(attn_context *context)
{
    enum { L = 260, H = 8, HK = 2, D = 24 };
    static const attn_type types[] = {ATTN_F16, ATTN_BF16};
    struct text t = text_create(H, HK, L, D, D);
    for (int n = 0; n < 2; n++) {
        const attn_cache_options cache_options = {
            .Hk = HK, .D = D, .Dv = D, .pages = 9, .type = (attn_cache_type)types[n]};
        attn_cache *const cache = create(context, &cache_options);
        const int64_t sequence = open_sequence(context, cache);
        assert_ok(context, append(context, cache, sequence, t.key, t.value, L, 0, L));
        uint16_t key[HK * L * D], value[HK * L * D];
        for (int64_t hk = 0; hk < HK; hk++)
            for (int64_t j = 0; j < L; j++) {
                const struct attn_cached_rows rows =
                    attn_cache_rows(cache, attn_cache_find(cache, sequence), hk, j);
                memcpy(key + (hk * L + j) * D, rows.key, D * sizeof *key);
                memcpy(value + (hk * L + j) * D, rows.value, D * sizeof *value);
            }
        float cached[H * D], output[H * D];
        const attn_batch batch = {1, &sequence, H};
        attn_options options;
        attn_options_init(&options, &t.shape);
        attn_tensors tensors = at_position(&t, 3, cached);
        assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
        tensors.key = attn_input_dense(key, HK, L, D);
        tensors.value = attn_input_dense(value, HK, L, D);
        tensors.key.type = tensors.value.type = types[n];
        tensors.output.data = output;
        const attn_shape shape = {1, H, HK, 1, L, D, D};
        assert_ok(context, attn_forward(context, &shape, &tensors, &options));
        assert_memory_equal(cached, output, sizeof output);
        attn_cache_destroy(cache);
    }
    text_destroy(&t);
}

static void sixteen_bits_are_decoded_with_the_bits_of_forward(void **state)
{
    (void)state;
    on_every_level(check_sixteen_bits);
}

/* Everything in bfloat16, which avx512bf16 multiplies in pairs; one value that is hidden
 * is NaN. */
static void check_bfloat16(attn_context *context)
{
    enum { L = 700, H = 8, HK = 2, D = 64, DV = 96 };
    const char *const isa = attn_context_isa(context);
    const bool in_pairs = strcmp(isa, "avx512bf16") == 0;
    for (seed = 0; seed < 8; seed++) {
        struct text t = text_create(H, HK, L, D, DV);
        const int64_t length = 1 + random_below(L), hidden = random_below(length);
        uint16_t query[H * D], output[H * DV], again[H * DV];
        uint8_t keep[L];
        float lse[H], expected[H * DV], expected_lse[H];
        for (int64_t i = 0; i < H * D; i++)
            attn_reference_store(query, ATTN_BF16, i, (double)random_float());
        for (int64_t j = 0; j < L; j++)
            keep[j] = j != hidden || length == 1;
        for (int64_t hk = 0; hk < HK && seed % 2; hk++)
            t.value[(hk * L + hidden) * DV + 7] = length > 1 ? NAN : 0.5f;
        const attn_cache_options cache_options = {.Hk = HK,
                                                  .D = D,
                                                  .Dv = DV,
                                                  .pages = 50,
                                                  .page_keys = seed % 3 ? 128 : 17,
                                                  .type = ATTN_CACHE_BF16};
        attn_cache *const cache = create(context, &cache_options);
        const int64_t sequence = open_sequence(context, cache);
        assert_ok(context,
                  append(context, cache, sequence, t.key, t.value, L, 0, length));
        uint16_t *const key = allocate(HK * L * D, sizeof *key);
        uint16_t *const value = allocate(HK * L * DV, sizeof *value);
        for (int64_t i = 0; i < HK * L * D; i++)
            attn_reference_store(key, ATTN_BF16, i, (double)t.key[i]);
        for (int64_t i = 0; i < HK * L * DV; i++)
            attn_reference_store(value, ATTN_BF16, i, (double)t.value[i]);
        const attn_batch batch = {1, &sequence, H};
        const attn_shape shape = {1, H, HK, 1, length, D, DV};
        attn_options options;
        attn_options_init(&options, &t.shape);
        options.window_left = seed % 4 == 3 ? 100 : -1;
        if (seed % 2)
            options.keep = (attn_keep){.data = keep, .stride = {0, 0, 0, 1}};
        attn_tensors tensors = {.query = attn_input_dense(query, H, 1, D),
                                .output = attn_output_dense(output, H, 1, DV),
                                .lse = lse};
        tensors.query.type = tensors.output.type = ATTN_BF16;
        attn_plan plan;
        assert_ok(context,
                  attn_plan_decode(context, cache, &batch, &tensors, &options, &plan));
        if (in_pairs != (strstr(plan.path, "bf16 products") != NULL))
            fail_msg("seed %d: the path is %s", (int)seed, plan.path);
        assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));

        tensors.key = attn_input_dense(key, HK, L, D);
        tensors.value = attn_input_dense(value, HK, L, DV);
        tensors.key.type = tensors.value.type = ATTN_BF16;
        tensors.output.data = again;
        assert_ok(context, attn_forward(context, &shape, &tensors, &options));
        if (seed % 3) /* pages of 17 keys have blocks of their own */
            for (int64_t i = 0; i < H * DV; i++)
                if (output[i] != again[i])
                    fail_msg("%s, seed %d: output %d is %x from the cache, %x from "
                             "tensors",
                             attn_context_isa(context), (int)seed, (int)i, output[i],
                             again[i]);

        tensors.output = attn_output_dense(expected, H, 1, DV);
        tensors.lse = expected_lse;
        assert_int_equal(attn_forward_reference(&shape, &tensors, &options), ATTN_OK);
        for (int64_t i = 0; i < H * DV; i++) { /* values are below 2 */
            const double got = attn_reference_load(output, ATTN_BF16, i);
            if (!(fabs(got - (double)expected[i]) <= 2.0 * (0x1p-8 + 0x1p-9)))
                fail_msg("seed %d: output %d is %.9g, expected %.9g", (int)seed, (int)i,
                         got, (double)expected[i]);
        }
        for (int64_t h = 0; h < H; h++)
            if (!(fabsf(lse[h] - expected_lse[h]) <=
                  4e-6f * fmaxf(1.0f, fabsf(expected_lse[h]))))
                fail_msg("seed %d: lse %d is %.9g, expected %.9g", (int)seed, (int)h,
                         (double)lse[h], (double)expected_lse[h]);
        free(key), free(value);
        attn_cache_destroy(cache);
        text_destroy(&t);
    }
}

static void bfloat16_is_decoded_in_pairs_within_its_bound(void **state)
{
    (void)state;
    on_every_level(check_bfloat16);
}

/* A key of NaN, then a value of ∞, in a window of 10 and outside. */
static void check_nan(attn_context *context)
{
    enum { L = 40, D = 20 };
    static const attn_cache_type types[] = {ATTN_CACHE_F32, ATTN_CACHE_BF16,
                                            ATTN_CACHE_I8};
    struct text t = text_create(2, 1, L, D, D);
    t.key[5 * D + 3] = NAN;
    t.value[6 * D + 3] = INFINITY;
    for (int n = 0; n < 3; n++) {
        const attn_cache_options cache_options = {
            .Hk = 1, .D = D, .Dv = D, .pages = 1, .type = types[n]};
        attn_cache *const cache = create(context, &cache_options);
        const int64_t sequence = open_sequence(context, cache);
        const attn_batch batch = {1, &sequence, 2};
        attn_options options;
        attn_options_init(&options, &t.shape);
        options.window_left = 9;
        uint8_t keep[L];
        for (int i = 0; i < L; i++) {
            float output[2 * D];
            attn_tensors tensors = at_position(&t, i, output);
            assert_ok(context, append(context, cache, sequence, t.key, t.value, L, i, 1));
            assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
            const bool hit = i >= 5 && i - 9 <= 6;
            assert_true(hit == !isfinite(output[3]));
            keep[i] = i != 5 && i != 6;
            options.keep = (attn_keep){.data = keep, .stride = {0, 0, 0, 1}};
            if (i != 5) {
                assert_ok(context,
                          attn_decode(context, cache, &batch, &tensors, &options));
                assert_true(isfinite(output[3]) && isfinite(output[2 * D - 1]));
            }
            options.keep.data = NULL;
        }
        attn_cache_destroy(cache);
    }
    text_destroy(&t);
}

static void nan_reaches_those_who_see_it_whatever_is_kept(void **state)
{
    (void)state;
    on_every_level(check_nan);
}

/* ---- Pages ----------------------------------------------------------------------------
 */

static attn_context *plain_context(void)
{
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    return context;
}

/* Four keys fit; a fifth is refused, and nothing has moved. */
static void a_full_cache_refuses_with_numbers_and_stays_as_it_was(void **state)
{
    (void)state;
    enum { D = 3 };
    attn_context *const context = plain_context();
    struct text t = text_create(1, 1, 5, D, D);
    const attn_cache_options options = {
        .Hk = 1, .D = D, .Dv = D, .pages = 2, .page_keys = 2};
    attn_cache *const cache = create(context, &options);
    const int64_t sequence = open_sequence(context, cache);
    assert_ok(context, append(context, cache, sequence, t.key, t.value, 5, 0, 3));
    assert_ok(context, append(context, cache, sequence, t.key, t.value, 5, 3, 1));
    const size_t bytes = cache->layout.page * 2;
    char *const before = allocate(bytes, 1);
    memcpy(before, cache->memory, bytes);
    assert_int_equal(append(context, cache, sequence, t.key, t.value, 5, 4, 1),
                     ATTN_ENOMEM);
    assert_string_equal(attn_context_message(context),
                        "attn_cache_append: 1 keys after 4 need 1 more pages of 2 keys, "
                        "and 0 of 2 are free");
    assert_int_equal(attn_cache_length(cache, sequence), 4);
    assert_memory_equal(before, cache->memory, bytes);

    /* All or nothing: two of these three would fit. */
    assert_ok(context, attn_cache_truncate(context, cache, sequence, 2));
    assert_int_equal(append(context, cache, sequence, t.key, t.value, 5, 2, 3),
                     ATTN_ENOMEM);
    assert_int_equal(attn_cache_length(cache, sequence), 2);
    assert_int_equal(attn_cache_free_pages(cache), 1);
    assert_memory_equal(before, cache->memory, bytes);
    free(before);
    attn_cache_destroy(cache);
    text_destroy(&t);
    attn_context_destroy(context);
}

static void decode_all(attn_context *context, const attn_cache *cache,
                       const struct text *t, int64_t sequence, float *output)
{
    const attn_batch batch = {1, &sequence, t->shape.H};
    const attn_tensors tensors = at_position(t, 0, output);
    attn_options options;
    attn_options_init(&options, &t->shape);
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
}

static void a_sequence_cut_and_filled_again_equals_a_fresh_one(void **state)
{
    (void)state;
    enum { L = 700, H = 4, D = 32 };
    attn_context *const context = plain_context();
    struct text t = text_create(H, 1, L, D, D), other = text_create(H, 1, L, D, D);
    for (int type = 0; type < 2; type++) {
        const attn_cache_options options = {.Hk = 1,
                                            .D = D,
                                            .Dv = D,
                                            .pages = 24,
                                            .page_keys = 64,
                                            .type =
                                                type ? ATTN_CACHE_I8 : ATTN_CACHE_F32};
        attn_cache *const cache = create(context, &options);
        const int64_t cut = open_sequence(context, cache);
        const int64_t fresh = open_sequence(context, cache);
        assert_ok(context, append(context, cache, fresh, t.key, t.value, L, 0, L));
        assert_ok(context, append(context, cache, cut, t.key, t.value, L, 0, 100));
        assert_ok(context,
                  append(context, cache, cut, other.key, other.value, L, 0, 600));
        assert_ok(context, attn_cache_truncate(context, cache, cut, 100));
        assert_ok(context, append(context, cache, cut, t.key, t.value, L, 100, L - 100));
        float a[H * D], b[H * D];
        decode_all(context, cache, &t, cut, a);
        decode_all(context, cache, &t, fresh, b);
        assert_memory_equal(a, b, sizeof a);
        attn_cache_destroy(cache);
    }
    text_destroy(&t), text_destroy(&other);
    attn_context_destroy(context);
}

static void a_fork_shares_pages_until_one_of_both_writes(void **state)
{
    (void)state;
    enum { L = 20, H = 2, D = 8 };
    attn_context *const context = plain_context();
    struct text t = text_create(H, 1, L, D, D), other = text_create(H, 1, L, D, D);
    const attn_cache_options options = {
        .Hk = 1, .D = D, .Dv = D, .pages = 10, .page_keys = 4};
    attn_cache *const cache = create(context, &options);
    const int64_t parent = open_sequence(context, cache);
    assert_ok(context, append(context, cache, parent, t.key, t.value, L, 0, 10));
    assert_int_equal(attn_cache_free_pages(cache), 7);
    int64_t child = -1;
    assert_ok(context, attn_cache_fork(context, cache, parent, &child));
    assert_int_equal(attn_cache_free_pages(cache), 7);
    assert_ok(context, append(context, cache, child, other.key, other.value, L, 10, 1));
    assert_int_equal(attn_cache_free_pages(cache), 6);
    assert_ok(context, append(context, cache, parent, t.key, t.value, L, 10, 1));
    assert_int_equal(attn_cache_free_pages(cache), 6); /* nobody shares it any more */
    assert_int_equal(attn_cache_length(cache, parent), 11);

    float forked[H * D], fresh[H * D];
    const int64_t alone = open_sequence(context, cache);
    assert_ok(context, append(context, cache, alone, t.key, t.value, L, 0, 10));
    assert_ok(context, append(context, cache, alone, other.key, other.value, L, 10, 1));
    decode_all(context, cache, &t, child, forked);
    decode_all(context, cache, &t, alone, fresh);
    assert_memory_equal(forked, fresh, sizeof fresh);
    assert_ok(context, attn_cache_close(context, cache, parent));
    decode_all(context, cache, &t, child, forked);
    assert_memory_equal(forked, fresh, sizeof fresh);
    assert_ok(context, attn_cache_close(context, cache, child));
    assert_ok(context, attn_cache_close(context, cache, alone));
    assert_int_equal(attn_cache_free_pages(cache), 10);
    attn_cache_destroy(cache);
    text_destroy(&t), text_destroy(&other);
    attn_context_destroy(context);
}

/* ---- A naive model --------------------------------------------------------------------
 */

enum { MOST_SEQUENCES = 8, MOST_KEYS = 64, FUZZ_D = 5, FUZZ_HK = 2 };

struct model {
    bool open;
    int64_t name, length;
    float key[MOST_KEYS][FUZZ_HK][FUZZ_D], value[MOST_KEYS][FUZZ_HK][FUZZ_D];
};

static void model_append(attn_context *context, attn_cache *cache, struct model *m)
{
    float key[FUZZ_HK][9][FUZZ_D], value[FUZZ_HK][9][FUZZ_D];
    const int64_t count = random_below(10);
    for (int64_t n = 0; n < FUZZ_HK * 9 * FUZZ_D; n++) {
        (&key[0][0][0])[n] = random_float();
        (&value[0][0][0])[n] = random_float();
    }
    const attn_input k = attn_input_dense(key, FUZZ_HK, 9, FUZZ_D);
    const attn_input v = attn_input_dense(value, FUZZ_HK, 9, FUZZ_D);
    const int64_t length = attn_cache_length(cache, m->name);
    assert_int_equal(length, m->length);
    if (m->length + count > MOST_KEYS)
        return;
    const attn_status status = attn_cache_append(context, cache, m->name, count, &k, &v);
    if (status == ATTN_ENOMEM) {
        assert_int_equal(attn_cache_length(cache, m->name), length);
        return;
    }
    assert_ok(context, status);
    for (int64_t n = 0; n < count; n++)
        for (int64_t hk = 0; hk < FUZZ_HK; hk++) {
            memcpy(m->key[m->length + n][hk], key[hk][n], sizeof key[hk][n]);
            memcpy(m->value[m->length + n][hk], value[hk][n], sizeof value[hk][n]);
        }
    m->length += count;
}

static void compare_model(const attn_cache *cache, const struct model *m)
{
    const struct attn_cached_sequence *const s = attn_cache_find(cache, m->name);
    assert_non_null(s);
    assert_int_equal(s->length, m->length);
    for (int64_t key = 0; key < m->length; key++)
        for (int64_t hk = 0; hk < FUZZ_HK; hk++) {
            const struct attn_cached_rows rows = attn_cache_rows(cache, s, hk, key);
            assert_memory_equal(rows.key, m->key[key][hk], sizeof m->key[key][hk]);
            assert_memory_equal(rows.value, m->value[key][hk], sizeof m->value[key][hk]);
        }
}

/* Each page is free or held by as many sequences as it says. */
static void assert_pages_counted(const attn_cache *cache)
{
    int64_t held[64] = {0}, in_use = 0;
    for (int64_t i = 0; i < cache->sequence_count; i++) {
        const struct attn_cached_sequence *const s = &cache->sequences[i];
        for (int64_t n = 0; s->open && n < attn_cache_pages_of(cache, s->length); n++)
            held[s->pages[n]]++;
    }
    for (int64_t page = 0; page < cache->options.pages; page++) {
        assert_int_equal(held[page], cache->references[page]);
        in_use += held[page] > 0;
    }
    assert_int_equal(in_use + cache->free_count, cache->options.pages);
}

static void one_step(attn_context *context, attn_cache *cache, struct model *models)
{
    struct model *const m = &models[random_below(MOST_SEQUENCES)];
    struct model *const other = &models[random_below(MOST_SEQUENCES)];
    const int64_t what = random_below(10);
    if (!m->open) {
        const int64_t stale = m->name;
        m->name = open_sequence(context, cache);
        m->open = true;
        m->length = 0;
        assert_int_equal(attn_cache_length(cache, stale), -1);
    } else if (what < 6) {
        model_append(context, cache, m);
    } else if (what == 6) {
        m->length = random_below(m->length + 1);
        assert_ok(context, attn_cache_truncate(context, cache, m->name, m->length));
    } else if (what == 7) {
        assert_ok(context, attn_cache_close(context, cache, m->name));
        m->open = false;
    } else if (!other->open) {
        int64_t name = -1;
        assert_ok(context, attn_cache_fork(context, cache, m->name, &name));
        *other = *m;
        other->name = name;
    }
}

static void what_is_done_in_any_order_is_what_a_naive_model_does(void **state)
{
    (void)state;
    attn_context *const context = plain_context();
    struct model *const models = allocate(MOST_SEQUENCES, sizeof *models);
    for (seed = 0; seed < 30; seed++) {
        const attn_cache_options options = {.Hk = FUZZ_HK,
                                            .D = FUZZ_D,
                                            .Dv = FUZZ_D,
                                            .pages = 10 + random_below(40),
                                            .page_keys = 1 + random_below(9)};
        attn_cache *const cache = create(context, &options);
        memset(models, 0, MOST_SEQUENCES * sizeof *models);
        for (int i = 0; i < MOST_SEQUENCES; i++)
            models[i].name = -1;
        for (int step = 0; step < 300; step++) {
            one_step(context, cache, models);
            assert_pages_counted(cache);
            for (int i = 0; i < MOST_SEQUENCES; i++)
                if (models[i].open)
                    compare_model(cache, &models[i]);
        }
        attn_cache_destroy(cache);
    }
    free(models);
    attn_context_destroy(context);
}

/* ---- Threads, memory, refusals --------------------------------------------------------
 */

/* Three sequences, alone and together, on 1, 2 and 3 threads. */
static void check_threads(attn_context *context)
{
    enum { L = 8700, H = 8, HK = 2, D = 32, FLOATS = H * D };
    static const int64_t lengths[] = {2999, 1, L}; /* the last in longer splits */
    struct text t = text_create(H, HK, L, D, D);
    for (int type = 0; type < 2; type++) {
        const attn_cache_options cache_options = {.Hk = HK,
                                                  .D = D,
                                                  .Dv = D,
                                                  .pages = 100,
                                                  .type = type ? ATTN_CACHE_I8
                                                               : ATTN_CACHE_F16};
        attn_cache *const cache = create(context, &cache_options);
        int64_t sequences[3];
        float alone[3][FLOATS], query[3][FLOATS];
        for (int n = 0; n < 3; n++) {
            sequences[n] = open_sequence(context, cache);
            assert_ok(context, append(context, cache, sequences[n], t.key, t.value, L, 0,
                                      lengths[n]));
            decode_all(context, cache, &t, sequences[n], alone[n]);
            for (int h = 0; h < H; h++)
                memcpy(query[n] + h * D, t.query + h * L * D, D * sizeof(float));
        }
        for (size_t threads = 1; threads <= 3; threads++) {
            size_t used = 1;
            const attn_context_options options = {.isa = attn_context_isa(context),
                                                  .threads = threads,
                                                  .parallel_for = thread_each,
                                                  .pool = &used};
            attn_context *threaded = NULL;
            assert_int_equal(attn_context_create(&threaded, &options), ATTN_OK);
            float together[3][FLOATS];
            const attn_tensors tensors = {.query = attn_input_dense(query, H, 1, D),
                                          .output = attn_output_dense(together, H, 1, D)};
            attn_options attention;
            attn_options_init(&attention, &t.shape);
            const attn_batch batch = {3, sequences, H};
            assert_ok(threaded,
                      attn_decode(threaded, cache, &batch, &tensors, &attention));
            assert_int_equal(used, threads);
            assert_memory_equal(together, alone, sizeof alone);
            attn_context_destroy(threaded);
        }
        attn_cache_destroy(cache);
    }
    text_destroy(&t);
}

static void threads_and_company_change_no_bit(void **state)
{
    (void)state;
    on_every_level(check_threads);
}

/* Gates that forget nothing keep splits at 512. */
static void check_long_splits_of(attn_context *context, attn_cache_type type)
{
    enum { L = 8700, H = 4, D = 16, FLOATS = H * D };
    struct text t = text_create(H, 1, L, D, D);
    const attn_cache_options cache_options = {
        .Hk = 1, .D = D, .Dv = D, .pages = 70, .type = type};
    attn_cache *const cache = create(context, &cache_options);
    const int64_t sequence = open_sequence(context, cache);
    const attn_batch batch = {1, &sequence, H};
    float output[FLOATS], expected[FLOATS];
    float *const gates = allocate(H * L, sizeof *gates);
    memset(gates, 0, H * L * sizeof *gates);
    assert_ok(context, append(context, cache, sequence, t.key, t.value, L, 0, L));
    attn_options options;
    attn_options_init(&options, &t.shape);
    options.causal = true;
    attn_tensors tensors = at_position(&t, 0, output);
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
    options.log_forget = attn_input_dense(gates, H, L, 1);
    tensors.output.data = expected;
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &options));
    for (int i = 0; i < FLOATS; i++)
        assert_float_equal(output[i], expected[i], 1e-6);
    free(gates);
    attn_cache_destroy(cache);
    text_destroy(&t);
}

static void check_long_splits(attn_context *context)
{
    check_long_splits_of(context, ATTN_CACHE_F32);
    check_long_splits_of(context, ATTN_CACHE_F16);
    check_long_splits_of(context, ATTN_CACHE_BF16);
    check_long_splits_of(context, ATTN_CACHE_I8);
}

static void long_splits_give_what_short_ones_do(void **state)
{
    (void)state;
    on_every_level(check_long_splits);
}

/* With sink keys beside a window, splits end where keys that are seen add up: a worker
 * that reads several of them in a row does not read on beyond the end of one. */
static void check_splits_of_runs(attn_context *context)
{
    enum { L = 5000, D = 16 };
    struct text t = text_create(1, 1, L, D, D);
    const attn_cache_options cache_options = {
        .Hk = 1, .D = D, .Dv = D, .pages = 200, .page_keys = 33, .type = ATTN_CACHE_I8};
    attn_cache *const cache = create(context, &cache_options);
    const int64_t sequence = open_sequence(context, cache);
    const attn_batch batch = {1, &sequence, 1};
    float output[2][D];
    float *const received = allocate(2 * L, sizeof *received);
    assert_ok(context, append(context, cache, sequence, t.key, t.value, L, 0, L));
    for (int n = 0; n < 2; n++) {
        size_t used = 1;
        const attn_context_options context_options = {.isa = attn_context_isa(context),
                                                      .threads = n == 0 ? 1 : 8,
                                                      .parallel_for = thread_each,
                                                      .pool = &used};
        attn_context *threaded = NULL;
        assert_int_equal(attn_context_create(&threaded, &context_options), ATTN_OK);
        attn_options options;
        attn_options_init(&options, &t.shape);
        options.causal = true;
        options.window_left = 4500;
        options.sink_keys = 3;
        attn_tensors tensors = at_position(&t, 0, output[n]);
        tensors.statistics.received = received + n * L;
        assert_ok(threaded, attn_decode(threaded, cache, &batch, &tensors, &options));
        attn_context_destroy(threaded);
    }
    double sum = 0.0;
    for (int key = 0; key < L; key++)
        sum += (double)received[key];
    assert_float_equal(sum, 1.0, 1e-5);
    assert_memory_equal(received, received + L, L * sizeof *received);
    assert_memory_equal(output[0], output[1], sizeof output[0]);
    free(received);
    attn_cache_destroy(cache);
    text_destroy(&t);
}

static void splits_of_eight_bits_are_the_same_for_any_threads(void **state)
{
    (void)state;
    on_every_level(check_splits_of_runs);
}

static void the_plan_names_the_path_and_exactly_the_scratch(void **state)
{
    (void)state;
    enum { L = 1000, H = 4, D = 16 };
    attn_context *const context = plain_context();
    struct text t = text_create(H, 2, L, D, D);
    const attn_cache_options options = {.Hk = 2, .D = D, .Dv = D, .pages = 8};
    attn_cache *const cache = create(context, &options);
    const int64_t sequence = open_sequence(context, cache);
    assert_ok(context, append(context, cache, sequence, t.key, t.value, L, 0, L));
    float output[H * D] = {77.0f};
    const attn_tensors tensors = at_position(&t, 0, output);
    const attn_batch batch = {1, &sequence, H};
    attn_options attention;
    attn_options_init(&attention, &t.shape);
    attn_plan plan;
    char path[64];
    assert_ok(context,
              attn_plan_decode(context, cache, &batch, &tensors, &attention, &plan));
    snprintf(path, sizeof path, "single queries, splits of keys, %s",
             attn_context_isa(context));
    assert_string_equal(plan.path, path);
    assert_true(plan.visible_pairs == (double)(H * L));
    const attn_cache_options bytes = {
        .Hk = 2, .D = D, .Dv = D, .pages = 8, .type = ATTN_CACHE_I8};
    attn_cache *const cache_of_bytes = create(context, &bytes);
    const int64_t other = open_sequence(context, cache_of_bytes);
    const attn_batch batch_of_bytes = {1, &other, H};
    attn_plan plan_of_bytes;
    assert_ok(context, append(context, cache_of_bytes, other, t.key, t.value, L, 0, L));
    assert_ok(context, attn_plan_decode(context, cache_of_bytes, &batch_of_bytes,
                                        &tensors, &attention, &plan_of_bytes));
    assert_non_null(strstr(plan_of_bytes.path, "8 bits by "));
    attn_cache_destroy(cache_of_bytes);
    void *const memory = aligned_alloc(64, (plan.scratch_bytes + 63) / 64 * 64);
    assert_non_null(memory);
    assert_ok(context,
              attn_context_lend_scratch(context, memory, plan.scratch_bytes - 1));
    assert_int_equal(attn_decode(context, cache, &batch, &tensors, &attention),
                     ATTN_ENOMEM);
    assert_true(output[0] == 77.0f);
    assert_ok(context, attn_context_lend_scratch(context, memory, plan.scratch_bytes));
    assert_ok(context, attn_decode(context, cache, &batch, &tensors, &attention));
    assert_true(output[0] != 77.0f);
    assert_ok(context, attn_context_lend_scratch(context, NULL, 0));
    free(memory);
    attn_cache_destroy(cache);
    text_destroy(&t);
    attn_context_destroy(context);
}

/* Per token and key head: 2·128 elements, and two scales for 8 bits. */
static void a_token_takes_the_bytes_it_says(void **state)
{
    (void)state;
    static const struct {
        attn_cache_type type;
        size_t bytes;
    } cases[] = {{ATTN_CACHE_F32, 8 * 1024},
                 {ATTN_CACHE_F16, 8 * 512},
                 {ATTN_CACHE_BF16, 8 * 512},
                 {ATTN_CACHE_I8, 8 * (256 + 4)}};
    attn_context *const context = plain_context();
    for (size_t n = 0; n < 4; n++) {
        const attn_cache_options options = {
            .Hk = 8, .D = 128, .Dv = 128, .pages = 3, .type = cases[n].type};
        attn_cache *const cache = create(context, &options);
        assert_int_equal(attn_cache_token_bytes(cache), cases[n].bytes);
        const size_t pages = 3 * 128 * cases[n].bytes;
        assert_in_range(attn_cache_bytes(cache), pages, pages + 4096);
        attn_cache_destroy(cache);
    }
    attn_context_destroy(context);
}

static void assert_refused(const attn_context *context, attn_status status,
                           attn_status expected, const char *message)
{
    assert_int_equal(status, expected);
    if (!strstr(attn_context_message(context), message))
        fail_msg("\"%s\", expected \"%s\"", attn_context_message(context), message);
}

static void what_a_cache_cannot_do_is_refused_by_name(void **state)
{
    (void)state;
    enum { L = 8, D = 4 };
    attn_context *const c = plain_context();
    struct text t = text_create(2, 1, L, D, D);
    attn_cache_options options = {.Hk = 1, .D = D, .Dv = D, .pages = 2};
    attn_cache *const cache = create(c, &options);
    int64_t sequence = open_sequence(c, cache);
    assert_ok(c, append(c, cache, sequence, t.key, t.value, L, 0, L));
    float output[2 * D];
    const int64_t lengths[] = {1};
    const attn_tensors tensors = at_position(&t, 0, output);
    attn_batch batch = {1, &sequence, 2};
    attn_options good;
    attn_options_init(&good, &t.shape);

    attn_options o = good;
    o.dropout = 0.5;
    assert_refused(c, attn_decode(c, cache, &batch, &tensors, &o), ATTN_EUNSUPPORTED,
                   "attn_decode: options.dropout is given");
    attn_options_init_linear(&o, &t.shape, ATTN_FEATURE_ELU);
    assert_refused(c, attn_decode(c, cache, &batch, &tensors, &o), ATTN_EUNSUPPORTED,
                   "attn_decode: options.score ATTN_SCORE_LINEAR is given");
    o = good;
    o.key_lengths = lengths;
    assert_refused(c, attn_decode(c, cache, &batch, &tensors, &o), ATTN_EUNSUPPORTED,
                   "attn_decode: options.key_lengths is given");
    attn_tensors with = tensors;
    with.query.data = NULL;
    assert_refused(c, attn_decode(c, cache, &batch, &with, &good), ATTN_EINVAL,
                   "attn_decode: tensors.query is NULL");
    batch.H = -1;
    assert_refused(c, attn_decode(c, cache, &batch, &tensors, &good), ATTN_EINVAL,
                   "attn_decode: shape.H is -1");
    batch.H = 2;
    batch.count = (int64_t)INT32_MAX + 1;
    assert_refused(c, attn_decode(c, cache, &batch, &tensors, &good), ATTN_EINVAL,
                   "attn_decode: batch.count is 2147483648, expected 0 to 2147483647");
    batch.count = 1;
    assert_ok(c, attn_cache_close(c, cache, sequence));
    assert_refused(c, attn_decode(c, cache, &batch, &tensors, &good), ATTN_EINVAL,
                   "is not open");
    assert_refused(c, attn_cache_close(c, cache, sequence), ATTN_EINVAL, "is not open");
    sequence = open_sequence(c, cache);
    const attn_input key = attn_input_dense(t.key, 1, L, D), nothing = {.data = NULL};
    assert_refused(c, attn_cache_append(c, cache, sequence, 1, &key, &nothing),
                   ATTN_EINVAL, "attn_cache_append: value is NULL");
    assert_refused(c, attn_cache_truncate(c, cache, sequence, 1), ATTN_EINVAL,
                   "attn_cache_truncate: length is 1, expected 0 to 0");
    attn_cache *none = NULL;
    options.D = 0;
    assert_refused(c, attn_cache_create(&none, c, &options), ATTN_EINVAL,
                   "attn_cache_create: options.D is 0");
    options.D = D;
    options.type = (attn_cache_type)7;
    assert_refused(c, attn_cache_create(&none, c, &options), ATTN_EINVAL,
                   "attn_cache_create: options.type is 7");
    options.type = ATTN_CACHE_F32;
    options.pages = (int64_t)1 << 40;
    options.page_keys = options.D = options.Dv = options.Hk = 1 << 20;
    assert_refused(c, attn_cache_create(&none, c, &options), ATTN_ENOMEM,
                   "attn_cache_create: no memory");
    assert_null(none);
    attn_cache_destroy(cache);
    text_destroy(&t);
    attn_context_destroy(c);
}

static void what_is_missing_is_named_and_too_many_pages_are_refused(void **state)
{
    (void)state;
    attn_context *context = NULL;
    assert_int_equal(attn_context_create(&context, NULL), ATTN_OK);
    const attn_cache_options huge = {1, 1, 1, (int64_t)1 << 40, 1 << 20, ATTN_CACHE_F32};
    attn_cache *cache = NULL;
    assert_refused(
        context, attn_cache_create(&cache, context, &huge), ATTN_ENOMEM,
        "attn_cache_create: no memory for 1099511627776 pages of 1048576 keys");
    assert_null(cache);
    int64_t sequence = 0;
    const char *const missing = "cache is NULL, expected it to be given";
    const attn_input none = {.data = NULL};
    const attn_status without_cache[] = {
        attn_cache_open(context, NULL, &sequence),
        attn_cache_append(context, NULL, 0, 1, &none, &none),
        attn_cache_truncate(context, NULL, 0, 0),
        attn_cache_fork(context, NULL, 0, &sequence),
        attn_cache_close(context, NULL, 0),
    };
    for (size_t i = 0; i < sizeof without_cache / sizeof *without_cache; i++)
        assert_int_equal(without_cache[i], ATTN_EINVAL);
    assert_non_null(strstr(attn_context_message(context), missing));
    cache = create(context, &(attn_cache_options){.Hk = 1, .D = 1, .Dv = 1, .pages = 1});
    assert_int_equal(attn_cache_open(context, cache, NULL), ATTN_EINVAL);
    sequence = open_sequence(context, cache);
    assert_int_equal(attn_cache_fork(context, cache, sequence, NULL), ATTN_EINVAL);
    attn_cache_destroy(cache);
    attn_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_has_the_bits_of_forward_with_every_option),
        cmocka_unit_test(decoding_step_by_step_is_the_full_pass_at_every_step),
        cmocka_unit_test(eight_bits_are_off_by_half_a_scale_and_decoding_by_no_more),
        cmocka_unit_test(sixteen_bits_are_decoded_with_the_bits_of_forward),
        cmocka_unit_test(bfloat16_is_decoded_in_pairs_within_its_bound),
        cmocka_unit_test(nan_reaches_those_who_see_it_whatever_is_kept),
        cmocka_unit_test(a_full_cache_refuses_with_numbers_and_stays_as_it_was),
        cmocka_unit_test(a_sequence_cut_and_filled_again_equals_a_fresh_one),
        cmocka_unit_test(a_fork_shares_pages_until_one_of_both_writes),
        cmocka_unit_test(what_is_done_in_any_order_is_what_a_naive_model_does),
        cmocka_unit_test(threads_and_company_change_no_bit),
        cmocka_unit_test(long_splits_give_what_short_ones_do),
        cmocka_unit_test(splits_of_eight_bits_are_the_same_for_any_threads),
        cmocka_unit_test(the_plan_names_the_path_and_exactly_the_scratch),
        cmocka_unit_test(a_token_takes_the_bytes_it_says),
        cmocka_unit_test(what_a_cache_cannot_do_is_refused_by_name),
        cmocka_unit_test(what_is_missing_is_named_and_too_many_pages_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

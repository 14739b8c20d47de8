#include "problems.h"
#include "attention/reference.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 64 };

static uint64_t random_state, last_seed;

int64_t random_below(int64_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)bound);
}

float random_float(void)
{
    return (float)(random_below(2000001) - 1000000) * 2e-6f;
}

void *allocate(size_t count, size_t size)
{
    void *const memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

/* ---- Tensors --------------------------------------------------------------------------
 */

/* The axes in a random order in memory, with random gaps, one of them perhaps backwards.
 */
static struct tensor create(const int64_t extent[4], bool rows)
{
    struct tensor t = {.extent = {extent[0], extent[1], extent[2], extent[3]}};
    int order[4] = {3, 2, 1, 0};
    if (random_below(2))
        for (int i = 3; i > rows; i--) {
            const int j = rows + (int)random_below(i + 1 - rows), swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }
    int64_t floats = 1, offset = 0;
    for (int i = 0; i < 4; i++) {
        t.stride[order[i]] = floats + (rows && i == 0 ? 0 : random_below(3));
        floats = t.stride[order[i]] * (t.extent[order[i]] > 0 ? t.extent[order[i]] : 1);
    }
    const int backwards = (int)random_below(8);
    if (backwards < 4 - rows && t.extent[backwards] > 0) {
        offset = (t.extent[backwards] - 1) * t.stride[backwards];
        t.stride[backwards] = -t.stride[backwards];
    }
    t.floats = (size_t)floats + GUARD;
    t.memory = allocate(t.floats, sizeof *t.memory);
    for (size_t i = 0; i < t.floats; i++)
        t.memory[i] = NAN;
    t.data = t.memory + offset;
    return t;
}

struct tensor tensor_create(int64_t e0, int64_t e1, int64_t e2, int64_t e3)
{
    return create((const int64_t[]){e0, e1, e2, e3}, false);
}

float *tensor_at(const struct tensor *t, int64_t b, int64_t h, int64_t l, int64_t d)
{
    return t->data + b * t->stride[0] + h * t->stride[1] + l * t->stride[2] +
           d * t->stride[3];
}

attn_input tensor_input(const struct tensor *t)
{
    attn_input input = {.data = t->data};
    memcpy(input.stride, t->stride, sizeof input.stride);
    return input;
}

attn_output tensor_output(const struct tensor *t)
{
    attn_output output = {.data = t->data};
    memcpy(output.stride, t->stride, sizeof output.stride);
    return output;
}

void tensor_randomise(const struct tensor *t, float size)
{
    for (int64_t b = 0; b < t->extent[0]; b++)
        for (int64_t h = 0; h < t->extent[1]; h++)
            for (int64_t l = 0; l < t->extent[2]; l++)
                for (int64_t d = 0; d < t->extent[3]; d++)
                    *tensor_at(t, b, h, l, d) = size * random_float();
}

/* ---- Options --------------------------------------------------------------------------
 */

static void choose_positions(struct problem *p)
{
    attn_options *const o = &p->options;
    o->causal = random_below(2);
    if (random_below(3) == 0)
        o->window_left = random_below(100);
    if (random_below(3) == 0)
        o->window_right = random_below(100);
    o->alignment = (attn_alignment)random_below(3);
    o->query_offset = random_below(200) - 100;
    if (random_below(4) == 0)
        o->scale = 0.1f * random_float();
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Rising numbers from 0 to total. */
static void choose_starts(int64_t *starts, int64_t sequences, int64_t total)
{
    for (int64_t s = 0; s <= sequences; s++)
        starts[s] = random_below(total + 1);
    starts[0] = 0;
    starts[sequences] = total;
    qsort(starts, (size_t)sequences + 1, sizeof *starts, compare);
}

static void choose_sequences(struct problem *p, unsigned rules)
{
    attn_shape *const s = &p->shape;
    attn_options *const o = &p->options;
    p->numbers = allocate(64, sizeof *p->numbers);
    if ((rules & RULE_PACKED) && random_below(3) == 0) {
        s->B = 1;
        o->sequences = 1 + random_below(12);
        choose_starts(p->numbers, o->sequences, s->Lq);
        choose_starts(p->numbers + 32, o->sequences, s->Lk);
        o->query_starts = p->numbers;
        o->key_starts = p->numbers + 32;
    } else if (rules & RULE_LENGTHS) {
        for (int64_t b = 0; b < s->B; b++) {
            p->numbers[b] = random_below(s->Lq + 1);
            p->numbers[32 + b] = random_below(s->Lk + 1);
        }
        o->query_lengths = random_below(2) ? p->numbers : NULL;
        o->key_lengths = random_below(2) ? p->numbers + 32 : NULL;
    }
}

/* A run of keys, most of them all, at one end or inside. */
static void choose_run(int64_t Lk, int64_t *first, int64_t *end)
{
    *first = random_below(2) ? 0 : random_below(Lk + 1);
    *end = *first + random_below(Lk + 1 - *first);
}

/* Any axis may be broadcast, queries may lie closer than keys, and keys apart.  Whole
 * runs of keys may be hidden from a run of queries. */
static void choose_keep(struct problem *p)
{
    const attn_shape *const s = &p->shape;
    const int64_t extent[4] = {s->B, s->H, s->Lq, s->Lk};
    const int turned = random_below(3) == 0;
    const int order[4] = {turned ? 2 : 3, turned ? 3 : 2, 1, 0};
    int64_t *const stride = p->options.keep.stride, bytes = random_below(4) ? 1 : 2;
    for (int i = 0; i < 4; i++) {
        const int axis = order[i];
        const bool broadcast = axis < 3 && random_below(2);
        stride[axis] = broadcast ? 0 : bytes;
        bytes *= broadcast ? 1 : extent[axis] > 0 ? extent[axis] : 1;
    }
    p->keep = allocate((size_t)bytes, 1);
    const int64_t hides = random_below(3) ? 4 : 100000;
    for (int64_t n = 0; n < bytes; n++)
        p->keep[n] = random_below(hides) ? (uint8_t)(1 + random_below(255)) : 0;
    int64_t first, end;
    choose_run(s->Lk, &first, &end);
    const int64_t query = random_below(s->Lq + 1);
    for (int64_t i = random_below(2) ? query : 0; i < s->Lq; i++)
        for (int64_t j = first; j < end; j++)
            p->keep[i * stride[2] + j * stride[3]] = 0;
    p->options.keep.data = p->keep;
}

static void choose_bias(struct problem *p)
{
    const attn_shape *const s = &p->shape;
    p->bias = tensor_create(random_below(2) ? 1 : s->B, random_below(2) ? 1 : s->H,
                            random_below(3) ? s->Lq : 1, random_below(6) ? s->Lk : 1);
    tensor_randomise(&p->bias, 1.0f);
    const int64_t elements = p->bias.extent[2] * p->bias.extent[3];
    for (int64_t n = 0; n < elements / 5; n++)
        *tensor_at(&p->bias, 0, 0, random_below(p->bias.extent[2]),
                   random_below(p->bias.extent[3])) = -INFINITY;
    int64_t first, end;
    choose_run(p->bias.extent[3], &first, &end);
    for (int64_t i = 0; i < p->bias.extent[2] && end % 3 == 0; i++)
        for (int64_t j = first; j < end; j++)
            *tensor_at(&p->bias, 0, 0, i, j) = -INFINITY;
    const int64_t extent[4] = {s->B, s->H, s->Lq, s->Lk};
    for (int axis = 0; axis < 4; axis++)
        if (p->bias.extent[axis] == 1 && extent[axis] != 1)
            p->bias.stride[axis] = 0;
    p->options.bias = tensor_input(&p->bias);
}

/* Any axis may be broadcast; most blocks, or few, are visible. */
static void choose_blocks(struct problem *p)
{
    static const int64_t sizes[] = {16, 32, 48, 64, 80, 128, 256};
    const attn_shape *const s = &p->shape;
    attn_options *const o = &p->options;
    o->block_size = sizes[random_below(7)];
    const int64_t extent[4] = {s->B, s->H, (s->Lq + o->block_size - 1) / o->block_size,
                               (s->Lk + o->block_size - 1) / o->block_size};
    int64_t bytes = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const bool broadcast = random_below(3) == 0;
        o->blocks.stride[axis] = broadcast ? 0 : bytes;
        bytes *= broadcast || extent[axis] == 0 ? 1 : extent[axis];
    }
    p->blocks = allocate((size_t)bytes, 1);
    const int64_t hides = random_below(2) ? 4 : 2;
    for (int64_t n = 0; n < bytes; n++)
        p->blocks[n] = (uint8_t)random_below(hides);
    o->blocks.data = p->blocks;
}

/* Sums stay above −20, as scores should. */
static void choose_gates(struct problem *p)
{
    const attn_shape *const s = &p->shape;
    const bool open = random_below(4) == 0;
    p->log_forget =
        tensor_create(random_below(3) ? s->B : 1, random_below(3) ? s->H : 1, s->Lk, 1);
    const int64_t *const e = p->log_forget.extent;
    for (int64_t b = 0; b < e[0]; b++)
        for (int64_t h = 0; h < e[1]; h++)
            for (int64_t j = 0; j < e[2]; j++)
                *tensor_at(&p->log_forget, b, h, j, 0) =
                    open ? 0.0f : -0.05f * fabsf(random_float());
    for (int axis = 0; axis < 2; axis++)
        if (e[axis] == 1)
            p->log_forget.stride[axis] = 0;
    p->options.log_forget = tensor_input(&p->log_forget);
}

/* From numbers of their own: the rest of the problem is as it would be without. */
static void choose_runs_and_gates(struct problem *p, uint64_t seed, unsigned rules)
{
    const uint64_t rest = random_state;
    random_state = seed * 2 + 1000001;
    for (int i = 0; i < 4; i++)
        random_below(2);
    if ((rules & RULE_SINK_KEYS) && random_below(3) == 0)
        p->options.sink_keys = random_below(random_below(2) ? 5 : 150);
    if ((rules & RULE_BLOCKS) && random_below(3) == 0)
        choose_blocks(p);
    if ((rules & RULE_GATES) && random_below(2) == 0 && p->options.causal)
        choose_gates(p);
    random_state = rest;
}

static void choose_options(struct problem *p, unsigned rules)
{
    attn_options *const o = &p->options;
    choose_positions(p);
    choose_sequences(p, rules);
    if ((rules & RULE_KEEP) && random_below(3) == 0)
        choose_keep(p);
    if ((rules & RULE_BIAS) && random_below(3) == 0)
        choose_bias(p);
    p->head_floats = allocate(64, sizeof *p->head_floats);
    for (int h = 0; h < 32; h++) {
        p->head_floats[h] = 0.05f * random_float();
        p->head_floats[32 + h] = random_below(5) ? 3.0f * random_float() : -INFINITY;
    }
    if ((rules & RULE_BENT) && random_below(3) == 0)
        o->softcap = 1.0f + 10.0f * fabsf(random_float());
    if ((rules & RULE_BENT) && random_below(3) == 0)
        o->alibi_slopes = p->head_floats;
    if ((rules & RULE_SINK) && random_below(3) == 0)
        o->sinks = p->head_floats + 32;
    if ((rules & RULE_DROPOUT) && random_below(3) == 0)
        o->dropout = 0.25 * (double)(1 + random_below(3));
    o->dropout_seed = (uint64_t)random_below(1000);
}

/* The rest of the problem is as it would be without. */
static void choose_additive(struct problem *p)
{
    const attn_shape *const s = &p->shape;
    p->additive = allocate((size_t)(s->H * s->D), sizeof *p->additive);
    for (int64_t n = 0; n < s->H * s->D; n++)
        p->additive[n] = random_below(8) ? random_float() : 0.0f;
    p->options.score = ATTN_SCORE_ADDITIVE;
    p->options.additive = p->additive;
    struct tensor *const of[] = {&p->query, &p->key};
    for (int64_t n = 0; n < 12; n++) {
        struct tensor *const t = of[n % 2];
        const int64_t *const e = t->extent;
        if (e[2] > 0)
            *tensor_at(t, random_below(e[0]), random_below(e[1]), random_below(e[2]),
                       random_below(e[3])) = 30.0f * random_float();
    }
}

static void make_positive(const struct tensor *t)
{
    const int64_t *const e = t->extent;
    for (int64_t b = 0; b < e[0]; b++)
        for (int64_t h = 0; h < e[1]; h++)
            for (int64_t l = 0; l < e[2]; l++)
                for (int64_t d = 0; d < e[3]; d++)
                    *tensor_at(t, b, h, l, d) = fabsf(*tensor_at(t, b, h, l, d));
}

/* Features are not negative.  The rest of the problem is as it would be without. */
static void choose_linear(struct problem *p, uint64_t seed)
{
    p->options.score = ATTN_SCORE_LINEAR;
    p->options.feature = (attn_feature)(seed % 3);
    if (p->options.feature == ATTN_FEATURE_IDENTITY)
        make_positive(&p->query), make_positive(&p->key);
}

/* ---- Poison ---------------------------------------------------------------------------
 */

static void poison_key(struct problem *p, int64_t b, int64_t hk, int64_t key)
{
    *tensor_at(&p->key, b, hk, key, p->shape.D - 1) = key % 2 ? NAN : INFINITY;
    *tensor_at(&p->value, b, hk, key, 0) = key % 2 ? -INFINITY : NAN;
}

/* A key that no query of its group of heads sees becomes NaN or infinite, and so does a
 * query that is padding. */
static void poison_hidden(struct problem *p)
{
    const attn_shape *const s = &p->shape;
    const struct results none = {.output = {.data = NULL}};
    const attn_tensors tensors = problem_tensors(p, &none);
    struct attn_reference_row row;
    assert_true(attn_reference_row_create(&row, s));
    bool *const seen = allocate((size_t)(s->B * s->Hk * s->Lk), sizeof *seen);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < s->Lq; i++) {
                const int64_t hk = h / (s->H / s->Hk);
                attn_reference_attend(&row, s, &tensors, &p->options, b, h, i);
                for (int64_t j = 0; j < row.keys; j++)
                    if (row.visible[j])
                        seen[(b * s->Hk + hk) * s->Lk + row.first_key + j] = true;
                if (row.padding)
                    *tensor_at(&p->query, b, h, i, 0) = NAN;
            }
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t hk = 0; hk < s->Hk; hk++)
            for (int64_t j = 0; j < s->Lk; j++)
                if (!seen[(b * s->Hk + hk) * s->Lk + j])
                    poison_key(p, b, hk, j);
    free(seen);
    attn_reference_row_destroy(&row);
}

/* ---- Problems and results -------------------------------------------------------------
 */

/* Lengths around a split, groups of 1 to 20 heads. */
static void choose_one_query(attn_shape *s)
{
    static const int64_t lengths[] = {0, 1, 2, 127, 128, 129, 511, 512, 513, 1025, 1300};
    static const int64_t groups[] = {1, 2, 3, 4, 5, 8, 12, 16, 20};
    if (random_below(4)) {
        s->Lq = 1;
        s->Lk = lengths[random_below(sizeof lengths / sizeof *lengths)];
    }
    s->Hk = 1 + random_below(2);
    s->H = s->Hk * groups[random_below(s->Hk == 1 ? 9 : 8)];
}

/* Whole blocks of keys that whole panels of queries see. */
static void choose_long(attn_shape *s)
{
    static const int64_t sizes[] = {1, 17, 64, 80, 128};
    s->Hk = 1 + random_below(2);
    s->H = s->Hk * (1 + random_below(2));
    s->Lq = random_below(8) ? 1 + random_below(200) : 1;
    s->Lk = 200 + random_below(501);
    s->D = sizes[random_below(5)];
    s->Dv = sizes[random_below(5)];
}

static void widen_windows(attn_options *o)
{
    o->window_left *= o->window_left > 0 ? 6 : 1;
    o->window_right *= o->window_right > 0 ? 6 : 1;
}

struct problem problem_create(uint64_t seed, unsigned rules)
{
    last_seed = seed;
    random_state = seed * 2 + 1;
    for (int i = 0; i < 4; i++)
        random_below(2); /* neighbouring seeds begin alike */
    struct problem p = {.shape = {.B = 1 + random_below(2), .Hk = 1 + random_below(3)}};
    attn_shape *const s = &p.shape;
    s->H = s->Hk * (1 + random_below(3));
    s->Lq = random_below(random_below(2) ? 8 : 120);
    s->Lk = random_below(random_below(2) ? 20 : 400);
    s->D = 1 + random_below(40);
    s->Dv = 1 + random_below(40);
    if (rules & RULE_ONE_QUERY)
        choose_one_query(s);
    if (rules & RULE_LONG)
        choose_long(s);
    if (rules & RULE_MANY) {
        s->Lq = 256 + random_below(400);
        s->D = 20 + random_below(60);
    }
    attn_options_init(&p.options, s);
    choose_options(&p, rules);
    if (rules & RULE_LONG)
        widen_windows(&p.options);
    choose_runs_and_gates(&p, seed, rules);
    const int64_t key[] = {s->B, s->Hk, s->Lk, s->D};
    const int64_t value[] = {s->B, s->Hk, s->Lk, s->Dv};
    p.query = tensor_create(s->B, s->H, s->Lq, s->D);
    p.key = create(key, rules & RULE_ONE_QUERY);
    p.value = create(value, rules & RULE_ONE_QUERY);
    /* 5: peaked weights; with more elements their scores would round by more. */
    const bool flat = random_below(2) || (rules & RULE_MANY && s->D > 40);
    tensor_randomise(&p.query, flat ? 1.0f : 5.0f);
    tensor_randomise(&p.key, 1.0f);
    tensor_randomise(&p.value, 1.0f);
    p.key_class = allocate((size_t)(s->B * s->Lk), 1);
    for (int64_t j = 0; j < s->B * s->Lk; j++)
        p.key_class[j] = (uint8_t)random_below(RESULT_CLASSES);
    if ((rules & RULE_ADDITIVE) && seed % 3 == 0)
        choose_additive(&p);
    if (rules & RULE_LINEAR)
        choose_linear(&p, seed);
    poison_hidden(&p);
    if (s->B > 1 && random_below(3) == 0)
        p.key.stride[0] = p.value.stride[0] = 0; /* all sequences share one cache */
    return p;
}

void problem_destroy(struct problem *p)
{
    free(p->query.memory), free(p->key.memory), free(p->value.memory);
    free(p->bias.memory), free(p->keep), free(p->key_class), free(p->numbers);
    free(p->head_floats), free(p->additive), free(p->blocks);
    free(p->log_forget.memory);
}

struct results results_create(const struct problem *p)
{
    const attn_shape *const s = &p->shape;
    const size_t rows = (size_t)(s->B * s->H * s->Lq);
    struct results r = {.output = tensor_create(s->B, s->H, s->Lq, s->Dv), .rows = rows};
    attn_statistics *const t = &r.statistics;
    r.lse = allocate(rows, sizeof(float));
    float **const floats[] = {&t->entropy,         &t->largest_weight, &t->distance,
                              &t->signed_distance, &t->first_key_mass, &t->own_mass,
                              &t->previous_mass,   &t->next_mass};
    for (size_t n = 0; n < sizeof floats / sizeof *floats; n++)
        *floats[n] = allocate(rows, sizeof(float));
    t->largest_key = allocate(rows, sizeof(int64_t));
    t->visible_keys = allocate(rows, sizeof(int64_t));
    t->key_class = p->key_class;
    t->key_class_stride = s->Lk;
    t->classes = RESULT_CLASSES;
    t->class_mass = allocate(rows * RESULT_CLASSES, sizeof(float));
    t->received = allocate((size_t)(s->B * s->H * s->Lk), sizeof(float));
    t->top = RESULT_TOP;
    t->top_weight = allocate(rows * RESULT_TOP, sizeof(float));
    t->top_key = allocate(rows * RESULT_TOP, sizeof(int64_t));
    return r;
}

void results_destroy(struct results *r)
{
    attn_statistics *const t = &r->statistics;
    free(r->output.memory), free(r->lse), free(t->entropy), free(t->largest_weight);
    free(t->largest_key), free(t->distance), free(t->signed_distance);
    free(t->first_key_mass), free(t->own_mass), free(t->previous_mass);
    free(t->next_mass), free(t->visible_keys), free(t->class_mass), free(t->received);
    free(t->top_weight), free(t->top_key);
}

attn_tensors problem_tensors(const struct problem *p, const struct results *r)
{
    return (attn_tensors){
        .query = tensor_input(&p->query),
        .key = tensor_input(&p->key),
        .value = tensor_input(&p->value),
        .output = tensor_output(&r->output),
        .lse = r->lse,
        .statistics = r->statistics,
    };
}

uint64_t problem_seed(void)
{
    return last_seed;
}

void assert_ok(const attn_context *context, attn_status status)
{
    if (status != ATTN_OK)
        fail_msg("seed %d: %s", (int)last_seed, attn_context_message(context));
}

void problem_forward(attn_context *context, const struct problem *p,
                     const struct results *r)
{
    const attn_tensors tensors = problem_tensors(p, r);
    assert_ok(context, attn_forward(context, &p->shape, &tensors, &p->options));
}

size_t contexts_create(attn_context *contexts[LEVELS_MOST])
{
    static const char *const levels[LEVELS_MOST] = {"generic",    "avx2", "avx512",
                                                    "avx512bf16", "amx",  "neon"};
    size_t count = 0;
    for (size_t i = 0; i < LEVELS_MOST; i++) {
        const attn_context_options options = {.isa = levels[i], .threads = 1};
        const attn_status status = attn_context_create(&contexts[count], &options);
        if (status == ATTN_EUNSUPPORTED) {
            print_message("%s: not on this machine\n", levels[i]);
            continue;
        }
        assert_int_equal(status, ATTN_OK);
        assert_string_equal(attn_context_isa(contexts[count]), levels[i]);
        count++;
    }
    assert_true(count > 0);
    return count;
}

void contexts_destroy(attn_context **contexts, size_t count)
{
    for (size_t n = 0; n < count; n++)
        attn_context_destroy(contexts[n]);
}

void on_every_level(void (*check)(attn_context *))
{
    attn_context *contexts[LEVELS_MOST];
    const size_t count = contexts_create(contexts);
    for (size_t n = 0; n < count; n++)
        check(contexts[n]);
    contexts_destroy(contexts, count);
}

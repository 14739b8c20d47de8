/* A language model token by token gives the logits of a pass over the whole text, or with
 * a window and sinks of the text that is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/language_rows.h"
#include "model/language_run.h"
#include "small_language.h"

enum { TOKENS = 200, VOCABULARY = 23 };

static attn_language_run *run_over(const attn_language *language, attn_tape *tape,
                                   const attn_language_run_options *options)
{
    attn_language_run *run;
    attn_error error;
    if (attn_language_run_create(&run, language, tape, options, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return run;
}

static const float *read_ids(attn_language_run *run, const int32_t *ids, int64_t count)
{
    const float *logits;
    attn_error error;
    if (attn_language_run_read(run, ids, count, &logits, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return logits;
}

static void expect_close(const float *got, const float *expected, double bound,
                         const char *what, int64_t at)
{
    for (int64_t i = 0; i < VOCABULARY; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= bound))
            fail_msg("%s: logit %lld after %lld tokens is %.7g, expected %.7g", what,
                     (long long)i, (long long)at, (double)got[i], (double)expected[i]);
}

/* Reads `first` tokens together, then one by one but for three together in between. */
static void check_steps(const attn_language_config *config, attn_cache_type cache,
                        int64_t first, double bound, const char *what)
{
    attn_language *const language = small_language(config);
    attn_tape *const tape = small_tape(), *const whole = small_tape();
    const attn_language_run_options options = {.cache = cache};
    attn_language_run *const run = run_over(language, tape, &options);
    int32_t ids[TOKENS];
    small_language_ids(ids, TOKENS, VOCABULARY);
    const float *const expected = small_language_logits(language, whole, ids, TOKENS);
    for (int64_t at = 0; at < TOKENS;) {
        const int64_t count = at == 0 ? first : at > 100 && at < 104 ? 3 : 1;
        const float *const logits = read_ids(run, ids + at, count);
        at += count;
        assert_int_equal(attn_language_run_length(run), at);
        expect_close(logits, expected + (at - 1) * VOCABULARY, bound, what, at);
    }
    attn_language_run_destroy(run);
    small_tape_destroy(tape), small_tape_destroy(whole);
    attn_language_destroy(language);
}

/* Logits of up to 4: fp32 differs by the order of sums, 16 bits by 2⁻⁹ of keys and
 * values, 8 bits by 1/254 of them. */
static void each_step_gives_the_logits_of_the_whole_text(void **state)
{
    (void)state;
    attn_language_config config = small_language_config();
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "fp32");
    check_steps(&config, ATTN_CACHE_F32, 130, 2e-5, "fp32, most together");
    check_steps(&config, ATTN_CACHE_BF16, 5, 3e-2, "bf16");
    check_steps(&config, ATTN_CACHE_F16, 5, 4e-3, "fp16");
    check_steps(&config, ATTN_CACHE_I8, 5, 6e-2, "8 bits");
    config.untied = true;
    config.key_heads = 1;
    check_steps(&config, ATTN_CACHE_F32, 2, 2e-5, "one key head, untied");
}

static void variants_go_on_too(void **state)
{
    (void)state;
    attn_language_config config = small_language_config();
    config.no_positions = true;
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "no positions");
    check_steps(&config, ATTN_CACHE_BF16, 5, 3e-2, "no positions, bf16");
    config.alibi = true;
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "alibi");
    config.sink_logits = true;
    check_steps(&config, ATTN_CACHE_F32, 130, 2e-5, "alibi and sinks, most together");
    check_steps(&config, ATTN_CACHE_BF16, 5, 3e-2, "alibi and sinks, bf16");
    config.forgets = true;
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "alibi, sinks and forget gates");
    config.alibi = config.sink_logits = false;
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "forget gates alone");
    config.no_positions = false;
    check_steps(&config, ATTN_CACHE_F32, 130, 2e-5, "forget gates, most together");
    check_steps(&config, ATTN_CACHE_BF16, 5, 3e-2, "forget gates, bf16");
    check_steps(&config, ATTN_CACHE_F16, 130, 4e-3, "forget gates, fp16");
    /* Root of the mean square 7.7e-3, the largest of 4,554 logits 6.02e-2. */
    check_steps(&config, ATTN_CACHE_I8, 1, 7e-2, "forget gates, 8 bits");
    config.key_heads = 1;
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "forget gates, one key head");
}

static void linear_attention_goes_on_from_its_sums(void **state)
{
    (void)state;
    attn_language_config config = small_language_config();
    config.linear_attention = true;
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "linear");
    check_steps(&config, ATTN_CACHE_F32, 130, 2e-5, "linear, most together");
    config.no_positions = true;
    config.key_heads = 1;
    check_steps(&config, ATTN_CACHE_F32, 2, 2e-5, "linear, no positions, one key head");

    /* As much for a long text as for a short one. */
    attn_language *const language = small_language(&config);
    attn_tape *const tape = small_tape();
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        const attn_language_run_options options = {.capacity = i ? 300 : 1};
        attn_language_run *const run = run_over(language, tape, &options);
        bytes[i] = attn_language_run_bytes(run);
        attn_language_run_destroy(run);
    }
    const size_t head = (size_t)(config.width / config.heads);
    assert_int_equal(bytes[0], bytes[1]);
    assert_int_equal(bytes[0], (size_t)(config.layers * config.heads) * head *
                                   (head + 1) * sizeof(float));
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

static void an_lstm_goes_on_from_its_state(void **state)
{
    (void)state;
    const attn_language_config config = small_lstm_config();
    check_steps(&config, ATTN_CACHE_F32, 1, 2e-5, "lstm");
    check_steps(&config, ATTN_CACHE_F32, 60, 2e-5, "lstm, most together");
}

static void fewer_bits_take_less_memory(void **state)
{
    (void)state;
    const attn_language_config config = small_language_config();
    attn_language *const language = small_language(&config);
    attn_tape *const tape = small_tape();
    const attn_cache_type types[] = {ATTN_CACHE_F32, ATTN_CACHE_BF16, ATTN_CACHE_F16,
                                     ATTN_CACHE_I8};
    for (int64_t window = 0; window <= 40; window += 40) {
        size_t bytes[4];
        for (int i = 0; i < 4; i++) {
            const attn_language_run_options options = {
                .cache = types[i], .window = window, .heavy = window};
            attn_language_run *const run = run_over(language, tape, &options);
            bytes[i] = attn_language_run_bytes(run);
            attn_language_run_destroy(run);
        }
        assert_true(bytes[1] < bytes[0] * 6 / 10);
        assert_true(bytes[2] == bytes[1] && bytes[3] < bytes[1]);
    }
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

/* ---- A window and sinks ---------------------------------------------------------- */

enum { SINKS = 4, WINDOW = 4, MOST = 40 };

/* Reads `first` tokens together, then one by one. */
static void check_window(const attn_language *language, int64_t sinks, int64_t first,
                         attn_cache_type cache, double bound)
{
    attn_tape *const tape = small_tape(), *const whole = small_tape();
    const attn_language_run_options options = {
        .cache = cache, .window = WINDOW, .sinks = sinks};
    attn_language_run *const run = run_over(language, tape, &options);
    int32_t ids[MOST], left[SINKS + WINDOW];
    small_language_ids(ids, MOST, VOCABULARY);
    for (int64_t at = 0; at < MOST;) {
        const int64_t count = at == 0 ? first : 1;
        const float *const logits = read_ids(run, ids + at, count);
        at += count;
        const int64_t rows = at < sinks + WINDOW ? at : sinks + WINDOW;
        for (int64_t i = 0; i < rows; i++)
            left[i] = ids[i < sinks ? i : at - rows + i];
        const float *const expected = small_language_logits(language, whole, left, rows);
        expect_close(logits, expected + (rows - 1) * VOCABULARY, bound, "window", at);
    }
    assert_int_equal(attn_language_run_length(run), MOST);
    attn_language_run_destroy(run);
    small_tape_destroy(tape), small_tape_destroy(whole);
}

/* With one layer, keys and values are those of the tokens alone, so that what is left is
 * a text: of 0 to 9 with 4 sinks and 4 in the window, 0 1 2 3 6 7 8 9, at positions 0 to
 * 7 (Xiao et al. 2023, section 3.2); of 0 to 5 without sinks, 2 3 4 5. */
static void a_window_with_sinks_reads_what_is_left_as_a_text(void **state)
{
    (void)state;
    attn_language_config config = small_language_config();
    config.layers = 1;
    config.max_positions = SINKS + WINDOW;
    attn_language *const language = small_language(&config);
    config.alibi = config.sink_logits = true;
    attn_language *const variant = small_language(&config);
    for (int64_t sinks = 0; sinks <= SINKS; sinks += 2) {
        check_window(variant, sinks, 1, ATTN_CACHE_F32, 2e-5);
        check_window(language, sinks, 1, ATTN_CACHE_F32, 2e-5);
        check_window(language, sinks, 12, ATTN_CACHE_F32, 2e-5);
        check_window(language, sinks, 12, ATTN_CACHE_BF16, 3e-2);
        check_window(language, sinks, 1, ATTN_CACHE_F16, 4e-3);
        check_window(language, sinks, 12, ATTN_CACHE_I8, 6e-2);
    }
    attn_language_destroy(language), attn_language_destroy(variant);
}

static void a_window_longer_than_the_text_changes_nothing(void **state)
{
    (void)state;
    const attn_language_config config = small_language_config();
    attn_language *const language = small_language(&config);
    attn_tape *const tape = small_tape(), *const other = small_tape();
    const attn_language_run_options options = {.window = 250, .sinks = 2};
    attn_language_run *const run = run_over(language, tape, &options);
    attn_language_run *const plain = run_over(language, other, NULL);
    int32_t ids[TOKENS];
    small_language_ids(ids, TOKENS, VOCABULARY);
    for (int64_t at = 0; at < TOKENS; at++)
        expect_close(read_ids(run, ids + at, 1), read_ids(plain, ids + at, 1), 2e-5,
                     "long window", at + 1);
    attn_language_run_destroy(run), attn_language_run_destroy(plain);
    small_tape_destroy(tape), small_tape_destroy(other);
    attn_language_destroy(language);
}

/* ---- Heavy hitters --------------------------------------------------------------- */

/* The weight that keys received from the queries of some heads. */
struct received {
    int64_t first_query, first_head, heads;
    double of_key[MOST];
};

static attn_status receive(void *user, const attn_observation *o)
{
    struct received *const received = user;
    for (int64_t h = received->first_head; h < received->first_head + received->heads;
         h++)
        for (int64_t query = received->first_query; query < o->shape->Lq; query++) {
            float weights[MOST];
            const attn_rectangle row = {
                .h = h, .first_query = query, .queries = 1, .keys = o->shape->Lk};
            ATTN_TRY(attn_weights(o->context, o->shape, o->tensors, o->options, &row,
                                  weights, MOST));
            for (int64_t key = 0; key < o->shape->Lk; key++)
                received->of_key[key] += (double)weights[key];
        }
    return ATTN_OK;
}

/* Nothing of the other key heads' queries reaches the output. */
static void mute_others(attn_language *language, const struct received *heard)
{
    const attn_language_config *const config = attn_language_config_of(language);
    attn_parameters *const parameters = attn_language_parameters(language);
    const attn_parameter *const out =
        attn_parameters_find(parameters, "model.layers.0.self_attn.o_proj.weight");
    const int64_t width = config->width / config->heads;
    for (int64_t i = 0; i < config->width * config->width; i++) {
        const int64_t head = i % config->width / width - heard->first_head;
        if (head < 0 || head >= heard->heads)
            parameters->values[out->offset + (size_t)i] = 0.0f;
    }
}

static const float *observed_logits(attn_language *language, attn_tape *tape,
                                    const int32_t *ids, int64_t count,
                                    struct received *received)
{
    const attn_observer observer = {received, receive};
    const attn_pass pass = {.tape = tape,
                            .parameters = attn_language_parameters(language),
                            .observer = &observer};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_language_logits(
        language, &pass, ids, (attn_packing){1, (const int64_t[]){0, count}});
    if (!logits)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    return logits->data + (count - 1) * VOCABULARY;
}

/* Drops of the rows that may go that which received least. */
static void drop_least(int32_t *left, double *received, int64_t rows, int64_t sinks,
                       int64_t heavy)
{
    int64_t least = sinks;
    for (int64_t row = sinks + 1; row <= sinks + heavy; row++)
        if (received[row] < received[least])
            least = row;
    const size_t after = (size_t)(rows - least - 1);
    memmove(left + least, left + least + 1, after * sizeof *left);
    memmove(received + least, received + least + 1, after * sizeof *received);
    received[rows - 1] = 0.0;
}

/* With one layer and one key head that is heard, what is left is a text, at positions in
 * the cache. */
static void check_heavy(const attn_language_run_options *options, int64_t key_head,
                        int64_t first, double bound)
{
    attn_language_config config = small_language_config();
    const int64_t capacity = options->window + options->sinks + options->heavy;
    config.layers = 1;
    config.max_positions = capacity;
    attn_language *const language = small_language(&config);
    attn_tape *const tape = small_tape(), *const whole = small_tape();
    struct received received = {.first_head = 2 * key_head, .heads = 2};
    mute_others(language, &received);
    attn_language_run *const run = run_over(language, tape, options);
    int32_t ids[MOST], left[MOST];
    small_language_ids(ids, MOST, VOCABULARY);
    int64_t rows = 0, young = 0;
    for (int64_t at = 0; at < MOST;) {
        const int64_t count = at == 0 ? first : 1;
        if (rows == capacity)
            drop_least(left, received.of_key, rows--, options->sinks, options->heavy);
        memcpy(left + rows, ids + at, (size_t)count * sizeof *ids);
        const float *const logits = read_ids(run, ids + at, count);
        received.first_query = rows;
        rows += count, at += count;
        const float *const expected =
            observed_logits(language, whole, left, rows, &received);
        expect_close(logits, expected, bound, "heavy hitters", at);
        for (int64_t row = 0; row < rows - options->window; row++)
            young += left[row] != ids[at - rows + row];
    }
    assert_true(options->heavy == 0 || young > 0); /* it is not the window alone */
    attn_language_run_destroy(run);
    small_tape_destroy(tape), small_tape_destroy(whole);
    attn_language_destroy(language);
}

static void what_was_looked_at_most_stays_beside_the_window(void **state)
{
    (void)state;
    for (int64_t key_head = 0; key_head < 2; key_head++) {
        check_heavy(&(attn_language_run_options){.window = 4, .heavy = 5}, key_head, 1,
                    2e-5);
        check_heavy(&(attn_language_run_options){.window = 3, .sinks = 1, .heavy = 4},
                    key_head, 8, 2e-5);
        check_heavy(&(attn_language_run_options){.window = 1, .sinks = 2, .heavy = 6},
                    key_head, 5, 2e-5);
    }
}

/* What received least is no near thing here: rounding lets no other token go. */
static void heavy_hitters_stay_in_every_type_of_cache(void **state)
{
    (void)state;
    static const struct {
        attn_cache_type type;
        double bound;
    } types[] = {{ATTN_CACHE_F16, 4e-3}, {ATTN_CACHE_BF16, 3e-2}, {ATTN_CACHE_I8, 6e-2}};
    for (size_t n = 0; n < 3; n++)
        for (int64_t key_head = 0; key_head < 2; key_head++) {
            const attn_language_run_options options = {
                .cache = types[n].type, .window = 4, .heavy = 5};
            check_heavy(&options, key_head, 1, types[n].bound);
        }
}

/* What a row is when it was kept in less than fp32: rounded once, whatever is dropped
 * around it. */
static void check_kept(attn_cache_type type)
{
    enum { ROWS = 9, WIDTH = 6 };
    const attn_language_config config = {.width = 2 * WIDTH, .heads = 2, .key_heads = 2};
    attn_tape *const tape = small_tape();
    attn_language_rows rows;
    float x[ROWS][2 * WIDTH];
    for (int n = 0; n < ROWS * 2 * WIDTH; n++)
        x[n / (2 * WIDTH)][n % (2 * WIDTH)] =
            sinf((float)(n * n)) * (n % 3 ? 1.0f : 9.0f);
    x[5][1] = NAN; /* of head 0 */
    assert_int_equal(attn_language_rows_create(&rows, &config, type, ROWS, true),
                     ATTN_OK);
    attn_tape_begin(tape, false, 0);
    attn_language_rows_keep(
        &rows, &rows.key, 0,
        attn_tape_leaf(tape, x[0], NULL, 2, (const int64_t[]){4, 2 * WIDTH}));
    attn_language_rows_keep(
        &rows, &rows.key, 4,
        attn_tape_leaf(tape, x[4], NULL, 2, (const int64_t[]){5, 2 * WIDTH}));
    for (int n = 0; n < 2 * ROWS; n++) /* head 0 looked least at row 3, head 1 at row 2 */
        rows.received[n] = n == 6 || n == 5 ? 0.5f : 1.0f;
    attn_language_rows_drop(&rows, ROWS, 1, 5);
    const attn_tensor *const got =
        attn_language_rows_read(&rows, &rows.key, tape, ROWS - 1);
    assert_non_null(got);
    for (int row = 0; row < ROWS - 1; row++)
        for (int i = 0; i < 2 * WIDTH; i++) {
            const int head = i / WIDTH, from = row + (row >= 3 - head);
            const float value = got->data[row * 2 * WIDTH + i];
            float largest = 0.0f;
            for (int d = 0; d < WIDTH; d++)
                largest = fmaxf(largest, fabsf(x[from][head * WIDTH + d]));
            if (from == 5 && head == 0 && (type == ATTN_CACHE_I8 || i == 1))
                assert_true(isnan(value));
            else
                assert_true(fabsf(value - x[from][i]) <=
                            (type == ATTN_CACHE_I8     ? largest / 253.9f
                             : type == ATTN_CACHE_BF16 ? fabsf(x[from][i]) * 0x1p-8f
                             : type == ATTN_CACHE_F16  ? fabsf(x[from][i]) * 0x1p-11f
                                                       : 0.0f));
        }
    attn_language_rows_free(&rows);
    small_tape_destroy(tape);
}

static void rows_are_rounded_once_and_each_head_drops_its_own(void **state)
{
    (void)state;
    check_kept(ATTN_CACHE_F32);
    check_kept(ATTN_CACHE_F16);
    check_kept(ATTN_CACHE_BF16);
    check_kept(ATTN_CACHE_I8);
}

/* ---- Refusals -------------------------------------------------------------------- */

static void check_too_long(attn_language_config config)
{
    config.max_positions = 4;
    attn_language *const language = small_language(&config);
    attn_tape *const tape = small_tape(), *const whole = small_tape();
    attn_language_run *const run = run_over(language, tape, NULL);
    const int32_t ids[] = {3, 4, 5, 6, 7};
    const float *logits;
    attn_error error;
    read_ids(run, ids, 3);
    assert_int_equal(attn_language_run_read(run, ids, 2, &logits, &error), ATTN_EINVAL);
    assert_non_null(strstr(error.message, "5 tokens, expected at most 4"));
    assert_int_equal(attn_language_run_length(run), 3);
    expect_close(read_ids(run, ids + 3, 1),
                 small_language_logits(language, whole, ids, 4) + 3 * VOCABULARY, 2e-5,
                 "after a refusal", 4);
    attn_language_run_destroy(run);
    small_tape_destroy(tape), small_tape_destroy(whole);
    attn_language_destroy(language);
}

static void a_text_longer_than_the_positions_is_refused_with_both_numbers(void **state)
{
    (void)state;
    attn_language_config config = small_language_config();
    check_too_long(config);
    config.forgets = true;
    check_too_long(config);
    config.forgets = false;
    config.linear_attention = true;
    check_too_long(config);
}

static void refuses(const attn_language_config *config,
                    const attn_language_run_options *options, const char *fragment)
{
    attn_language *const language = small_language(config);
    attn_tape *const tape = small_tape();
    attn_language_run *run;
    attn_error error;
    assert_int_equal(attn_language_run_create(&run, language, tape, options, &error),
                     ATTN_EINVAL);
    assert_null(run);
    if (!strstr(error.message, fragment))
        fail_msg("\"%s\" without \"%s\"", error.message, fragment);
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

static void options_that_do_not_fit_are_named(void **state)
{
    (void)state;
    const attn_language_config llama = small_language_config();
    const attn_language_config lstm = small_lstm_config();
    refuses(&llama, &(attn_language_run_options){.capacity = 301},
            "301 tokens, expected at most the model's 300");
    refuses(&llama, &(attn_language_run_options){.window = 299, .sinks = 2},
            "window of 299 tokens and 2 sinks");
    refuses(&llama, &(attn_language_run_options){.sinks = 2}, "window of 0 tokens");
    refuses(&llama, &(attn_language_run_options){.heavy = 2}, "window of 0 tokens");
    refuses(&llama, &(attn_language_run_options){.window = 9, .heavy = 292},
            "0 sinks, and 292 heavy hitters");
    refuses(&llama, &(attn_language_run_options){.window = 9, .heavy = -1}, "-1 heavy");
    refuses(&llama, &(attn_language_run_options){.cache = (attn_cache_type)7},
            "a cache of type 7, expected one of attn_cache_type");
    refuses(&llama,
            &(attn_language_run_options){.window = 9, .cache = (attn_cache_type)7},
            "a cache of type 7, expected one of attn_cache_type");
    refuses(&lstm, &(attn_language_run_options){.window = 9}, "window of an LSTM");
    attn_language_config linear = small_language_config();
    linear.linear_attention = true;
    refuses(&linear, &(attn_language_run_options){.window = 9}, "sums and no tokens");
    refuses(&linear, &(attn_language_run_options){.cache = ATTN_CACHE_I8},
            "sums and no tokens");
}

static void an_id_outside_the_vocabulary_is_named(void **state)
{
    (void)state;
    const attn_language_config config = small_language_config();
    attn_language *const language = small_language(&config);
    attn_tape *const tape = small_tape();
    attn_language_run *const run = run_over(language, tape, NULL);
    const int32_t ids[] = {3, VOCABULARY};
    const float *logits;
    attn_error error;
    assert_int_equal(attn_language_run_read(run, ids, 2, &logits, &error), ATTN_EINVAL);
    assert_non_null(strstr(error.message, "token 1 is 23, expected 0 to 22"));
    assert_int_equal(attn_language_run_read(run, ids, 0, &logits, &error), ATTN_EINVAL);
    assert_int_equal(attn_language_run_length(run), 0);
    attn_language_run_destroy(run);
    small_tape_destroy(tape);
    attn_language_destroy(language);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_gives_the_logits_of_the_whole_text),
        cmocka_unit_test(variants_go_on_too),
        cmocka_unit_test(linear_attention_goes_on_from_its_sums),
        cmocka_unit_test(an_lstm_goes_on_from_its_state),
        cmocka_unit_test(fewer_bits_take_less_memory),
        cmocka_unit_test(a_window_with_sinks_reads_what_is_left_as_a_text),
        cmocka_unit_test(a_window_longer_than_the_text_changes_nothing),
        cmocka_unit_test(what_was_looked_at_most_stays_beside_the_window),
        cmocka_unit_test(heavy_hitters_stay_in_every_type_of_cache),
        cmocka_unit_test(rows_are_rounded_once_and_each_head_drops_its_own),
        cmocka_unit_test(a_text_longer_than_the_positions_is_refused_with_both_numbers),
        cmocka_unit_test(options_that_do_not_fit_are_named),
        cmocka_unit_test(an_id_outside_the_vocabulary_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Token by token.  A pass is language_forward.c's; this file is its attention, which
 * reads what is kept: in pages; or, for a text without end, from which rows are dropped,
 * in plain arrays of each layer (language_rows.c); or in sums (language_sums.c). */
#include "model/language_run.h"
#include "base/context.h"
#include "model/language_parts.h"
#include "model/language_rows.h"
#include "model/language_sums.h"
#include <stdlib.h>
#include <string.h>

struct attn_language_run {
    const attn_language *language;
    attn_tape *tape;
    attn_language_run_options options;
    int64_t capacity; /* rows that are kept at most */
    int64_t length;   /* tokens read */

    attn_cache *cache; /* a sequence for each layer */
    int64_t *sequences;
    float *gates; /* beside the pages, [layers][heads][capacity]: ln of forget gates */

    attn_language_rows *window; /* [layers] */
    int64_t rows;               /* kept, of each layer */

    float *sums; /* of linear attention, [layers] of attn_language_sums_floats */

    float *state, *memory; /* of the LSTM, [layers][width] */
};

/* ---- Attention over pages or sums ------------------------------------------------ */

/* [1][heads][rows][width of a head], of rows that lie as [rows][heads·width]. */
static attn_input rows_of(const float *data, int64_t heads, int64_t width)
{
    return (attn_input){.data = data,
                        .stride = {heads * width, width, heads * width, 1},
                        .type = ATTN_F32};
}

/* Gates of a layer's heads. */
static float *gates_of(const attn_language_run *run, int64_t layer)
{
    return run->gates + layer * run->language->config.heads * run->capacity;
}

static void keep_gates(const attn_language_run *run, int64_t layer, int64_t first,
                       int64_t count, const attn_tensor *log_forget)
{
    const int64_t heads = run->language->config.heads;
    const int64_t before = attn_cache_length(run->cache, run->sequences[layer]);
    for (int64_t head = 0; head < heads; head++)
        for (int64_t row = 0; row < count; row++)
            gates_of(run, layer)[head * run->capacity + before + row] =
                log_forget->data[(first + row) * heads + head];
}

static attn_status append(const attn_language_run *run, int64_t layer, int64_t first,
                          int64_t count, const attn_memory *memory)
{
    const attn_language_config *const config = &run->language->config;
    const attn_tensor *const key = memory->key, *const value = memory->value;
    const int64_t width = config->width / config->heads;
    const int64_t stride = key->extent[1];
    if (run->gates)
        keep_gates(run, layer, first, count, memory->log_forget);
    const attn_input keys = rows_of(key->data + first * stride, config->key_heads, width);
    const attn_input values =
        rows_of(value->data + first * stride, config->key_heads, width);
    return attn_cache_append(attn_tape_context(run->tape), run->cache,
                             run->sequences[layer], count, &keys, &values);
}

/* Row `row` of the queries, over what the cache holds now. */
static attn_status decode(const attn_language_run *run, const attn_heads *heads,
                          int64_t row, const attn_tensor *query, attn_tensor *output)
{
    const attn_language_config *const config = &run->language->config;
    const int64_t width = config->width / config->heads;
    const attn_batch batch = {1, &run->sequences[heads->index], config->heads};
    const attn_input out =
        rows_of(output->data + row * config->width, config->heads, width);
    attn_tensors tensors = {
        .query = rows_of(query->data + row * config->width, config->heads, width),
        .output = {.data = output->data + row * config->width, .type = ATTN_F32}};
    memcpy(tensors.output.stride, out.stride, sizeof out.stride);
    attn_options options;
    attn_options_init(&options, &(attn_shape){.D = width});
    options.alibi_slopes = heads->alibi_slopes;
    options.sinks = heads->sinks ? heads->sinks->data : NULL;
    if (run->gates) {
        options.causal = true;
        options.log_forget = (attn_input){.data = gates_of(run, heads->index),
                                          .stride = {0, run->capacity, 1, 0},
                                          .type = ATTN_F32};
    }
    return attn_decode(attn_tape_context(run->tape), run->cache, &batch, &tensors,
                       &options);
}

/* Rows that follow others: each is appended, then attends. */
static attn_tensor *decode_rows(const attn_language_run *run, const attn_heads *heads,
                                const attn_tensor *query, const attn_memory *memory)
{
    attn_tensor *const output = attn_tape_tensor(run->tape, 2, query->extent);
    if (!output)
        return NULL;
    for (int64_t row = 0; row < query->extent[0]; row++) {
        attn_status status = append(run, heads->index, row, 1, memory);
        if (status == ATTN_OK)
            status = decode(run, heads, row, query, output);
        if (status != ATTN_OK) {
            attn_tape_fail_as_context(run->tape, status);
            return NULL;
        }
    }
    return output;
}

static attn_tensor *attend_kept(const attn_language_reading *reading, int64_t layer,
                                attn_tensor *query, const attn_memory *memory)
{
    const attn_language_run *const run = reading->user;
    const attn_heads heads = attn_language_heads(run->language, reading->pass, layer);
    attn_memory turned = *memory;
    query = attn_language_turn(reading, query, reading->positions, heads.heads);
    turned.key =
        attn_language_turn(reading, memory->key, reading->positions, heads.key_heads);
    if (!query || !turned.key)
        return NULL;
    if (run->sums)
        return attn_language_sums_attend(
            run->sums + (size_t)layer * attn_language_sums_floats(&run->language->config),
            &heads, run->tape, query, &turned);
    if (run->length > 0)
        return decode_rows(run, &heads, query, &turned);
    const attn_status status = append(run, layer, 0, query->extent[0], &turned);
    if (status != ATTN_OK) {
        attn_tape_fail_as_context(run->tape, status);
        return NULL;
    }
    return attn_heads_forward(&heads, reading->pass, query, reading->packing, &turned);
}

/* ---- Attention over a window and sinks ------------------------------------------- */

/* The gates of the new rows, after those that are kept; run->rows is that of before. */
static attn_tensor *add_gates(const attn_language_run *run, float *kept,
                              const attn_tensor *added)
{
    const int64_t heads = added->extent[1], rows = run->rows + added->extent[0];
    memcpy(kept + run->rows * heads, added->data,
           (size_t)(added->extent[0] * heads) * sizeof *kept);
    return attn_tape_leaf(run->tape, kept, NULL, 2, (const int64_t[]){rows, heads});
}

static attn_tensor *attend_window(const attn_language_reading *reading, int64_t layer,
                                  attn_tensor *query, const attn_memory *added)
{
    const attn_language_run *const run = reading->user;
    attn_language_rows *const window = &run->window[layer];
    attn_heads heads = attn_language_heads(run->language, reading->pass, layer);
    const int64_t rows = run->rows + query->extent[0];
    const int64_t starts[] = {0, rows};
    attn_language_rows_keep(window, &window->key, run->rows, added->key);
    attn_language_rows_keep(window, &window->value, run->rows, added->value);
    const int32_t *const positions =
        attn_positions(run->tape, (attn_packing){1, starts}, rows, run->capacity, 0);
    if (!positions)
        return NULL;
    attn_memory memory = {
        .key = attn_language_rows_read(window, &window->key, run->tape, rows),
        .value = attn_language_rows_read(window, &window->value, run->tape, rows),
        .packing = {1, starts},
    };
    if (!memory.key || !memory.value)
        return NULL;
    memory.key = attn_language_turn(reading, memory.key, positions, heads.key_heads);
    if (added->log_forget)
        memory.log_forget = add_gates(run, window->log_forget, added->log_forget);
    query = attn_language_turn(reading, query, reading->positions, heads.heads);
    if (window->received)
        heads.received =
            attn_tape_allocate(run->tape, (size_t)(heads.heads * rows) * sizeof(float));
    attn_tensor *const y =
        attn_heads_forward(&heads, reading->pass, query, reading->packing, &memory);
    if (y && heads.received)
        attn_language_rows_receive(window, heads.received, run->rows, rows - run->rows);
    return y;
}

/* Room for one more row of each layer, which will be the last of the window. */
static void drop_row(attn_language_run *run)
{
    for (int64_t layer = 0; layer < run->language->config.layers; layer++)
        attn_language_rows_drop(&run->window[layer], run->rows, run->options.sinks,
                                run->options.heavy + 1);
    run->rows--;
}

/* ---- Reading --------------------------------------------------------------------- */

/* The LSTM's state before, as tensors over the run's memory. */
static attn_recurrent_states states_before(const attn_language_run *run)
{
    attn_recurrent_states states = {{0}, {0}};
    const int64_t extent[] = {1, run->language->config.width};
    for (int64_t i = 0; i < run->language->config.layers; i++) {
        states.state[i] =
            attn_tape_leaf(run->tape, run->state + i * extent[1], NULL, 2, extent);
        states.memory[i] =
            attn_tape_leaf(run->tape, run->memory + i * extent[1], NULL, 2, extent);
    }
    return states;
}

static void keep_states(attn_language_run *run, const attn_recurrent_states *states)
{
    const size_t width = (size_t)run->language->config.width;
    for (size_t i = 0; i < (size_t)run->language->config.layers; i++) {
        memcpy(run->state + i * width, states->state[i]->data, width * sizeof(float));
        memcpy(run->memory + i * width, states->memory[i]->data, width * sizeof(float));
    }
}

static attn_tensor *last_row(attn_tape *tape, attn_tensor *hidden)
{
    if (!hidden)
        return NULL;
    const int64_t extent[] = {1, hidden->extent[1]};
    return attn_tape_leaf(tape, hidden->data + (hidden->extent[0] - 1) * extent[1], NULL,
                          2, extent);
}

/* Tokens that one pass reads. */
static attn_status read_together(attn_language_run *run, const int32_t *ids,
                                 int64_t count, const float **logits, attn_error *error)
{
    const attn_language *const language = run->language;
    const bool is_llama = language->config.body == ATTN_LANGUAGE_LLAMA;
    const int64_t starts[] = {0, count};
    attn_tape_begin(run->tape, false, 0);
    const attn_pass pass = {.tape = run->tape, .parameters = &language->parameters};
    attn_language_reading reading = {
        .language = language,
        .pass = &pass,
        .packing = {1, starts},
        .attend = run->window ? attend_window : attend_kept,
        .user = run,
    };
    const attn_recurrent_states before =
        is_llama ? (attn_recurrent_states){{0}, {0}} : states_before(run);
    attn_recurrent_states after = {{0}, {0}};
    if (is_llama) {
        reading.positions =
            attn_positions(run->tape, reading.packing, count, run->capacity, run->rows);
    } else {
        reading.before = &before;
        reading.after = &after;
    }
    attn_tensor *hidden = NULL;
    if (attn_tape_status(run->tape) == ATTN_OK)
        hidden = attn_language_read(&reading, ids);
    const attn_tensor *const projected =
        attn_language_project(language, &pass, last_row(run->tape, hidden));
    ATTN_TRY(attn_tape_report(run->tape, error));
    if (!is_llama)
        keep_states(run, &after);
    run->length += count;
    run->rows += count;
    *logits = projected->data;
    return ATTN_OK;
}

static attn_status check_ids(const attn_language_run *run, const int32_t *ids,
                             int64_t count, attn_error *error)
{
    const int64_t vocabulary = run->language->config.vocabulary;
    if (count < 1)
        return attn_error_set(error, ATTN_EINVAL,
                              "attn_language_run_read: %lld tokens, expected at least 1",
                              (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return attn_error_set(error, ATTN_EINVAL,
                                  "attn_language_run_read: token %lld is %ld, expected "
                                  "0 to %lld",
                                  (long long)i, (long)ids[i], (long long)vocabulary - 1);
    if ((run->cache || run->sums) && count > run->capacity - run->length)
        return attn_error_set(
            error, ATTN_EINVAL,
            "attn_language_run_read: a text of %lld tokens, expected at most %lld, what "
            "this run has positions for",
            (long long)(run->length + count), (long long)run->capacity);
    return ATTN_OK;
}

attn_status attn_language_run_read(attn_language_run *run, const int32_t *ids,
                                   int64_t count, const float **logits, attn_error *error)
{
    ATTN_TRY(check_ids(run, ids, count, error));
    if (run->options.window == 0)
        return read_together(run, ids, count, logits, error);
    int64_t together = count < run->capacity ? count : run->capacity;
    if (run->length > 0)
        together = 1;
    for (; count > 0; ids += together, count -= together, together = 1) {
        if (run->rows == run->capacity)
            drop_row(run);
        ATTN_TRY(read_together(run, ids, together, logits, error));
    }
    return ATTN_OK;
}

int64_t attn_language_run_length(const attn_language_run *run)
{
    return run->length;
}

static size_t gates_bytes(const attn_language_run *run)
{
    const attn_language_config *const config = &run->language->config;
    return (size_t)(config->layers * config->heads * run->capacity) * sizeof(float);
}

size_t attn_language_run_bytes(const attn_language_run *run)
{
    const attn_language_config *const config = &run->language->config;
    if (run->cache)
        return attn_cache_bytes(run->cache) + (run->gates ? gates_bytes(run) : 0);
    if (run->window)
        return (size_t)(config->layers * run->capacity) *
               attn_language_rows_bytes(&run->window[0]);
    if (run->sums)
        return (size_t)config->layers * attn_language_sums_floats(config) * sizeof(float);
    return (size_t)(2 * config->layers * config->width) * sizeof(float);
}

/* ---- Life ------------------------------------------------------------------------ */

static attn_status check_options(const attn_language_config *config,
                                 const attn_language_run_options *options,
                                 attn_error *error)
{
    const bool has_window =
        options->window != 0 || options->sinks != 0 || options->heavy != 0;
    if (options->capacity < 0 || options->capacity > config->max_positions)
        return attn_error_set(error, ATTN_EINVAL,
                              "language run: a text of %lld tokens, expected at most the "
                              "model's %lld positions",
                              (long long)options->capacity,
                              (long long)config->max_positions);
    if (options->cache != ATTN_CACHE_I8 &&
        attn_type_bytes((attn_type)options->cache) == 0)
        return attn_error_set(error, ATTN_EINVAL,
                              "language run: a cache of type %d, expected one of "
                              "attn_cache_type",
                              (int)options->cache);
    if (config->linear_attention && (has_window || options->cache != ATTN_CACHE_F32))
        return attn_error_set(error, ATTN_EINVAL,
                              "language run: a window, or a cache of fewer bits, of "
                              "linear attention, which keeps sums and no tokens; "
                              "expected neither");
    if (!has_window)
        return ATTN_OK;
    if (config->body != ATTN_LANGUAGE_LLAMA)
        return attn_error_set(error, ATTN_EINVAL,
                              "language run: a window of an LSTM, which sees no tokens; "
                              "expected none");
    const int64_t most = config->max_positions;
    if (options->window < 1 || options->sinks < 0 || options->heavy < 0 ||
        options->window > most || options->sinks > most - options->window ||
        options->heavy > most - options->window - options->sinks)
        return attn_error_set(
            error, ATTN_EINVAL,
            "language run: a window of %lld tokens and %lld sinks, and %lld heavy "
            "hitters, expected at least one token and together at most the model's %lld "
            "positions",
            (long long)options->window, (long long)options->sinks,
            (long long)options->heavy, (long long)most);
    return ATTN_OK;
}

static attn_status open_pages(attn_language_run *run)
{
    enum { PAGE_KEYS = 128 };
    const attn_language_config *const config = &run->language->config;
    attn_context *const context = attn_tape_context(run->tape);
    const int64_t pages = (run->capacity + PAGE_KEYS - 1) / PAGE_KEYS;
    const int64_t width = config->width / config->heads;
    const attn_cache_options options = {.Hk = config->key_heads,
                                        .D = width,
                                        .Dv = width,
                                        .pages = config->layers * pages,
                                        .page_keys = PAGE_KEYS,
                                        .type = run->options.cache};
    run->sequences = calloc((size_t)config->layers, sizeof *run->sequences);
    if (config->forgets)
        run->gates = malloc(gates_bytes(run));
    if (!run->sequences || (config->forgets && !run->gates))
        return ATTN_ENOMEM;
    ATTN_TRY(attn_cache_create(&run->cache, context, &options));
    for (int64_t i = 0; i < config->layers; i++)
        ATTN_TRY(attn_cache_open(context, run->cache, &run->sequences[i]));
    return ATTN_OK;
}

static attn_status open_window(attn_language_run *run)
{
    const attn_language_config *const config = &run->language->config;
    run->window = calloc((size_t)config->layers, sizeof *run->window);
    if (!run->window)
        return ATTN_ENOMEM;
    for (int64_t i = 0; i < config->layers; i++)
        ATTN_TRY(attn_language_rows_create(&run->window[i], config, run->options.cache,
                                           run->capacity, run->options.heavy > 0));
    return ATTN_OK;
}

static attn_status open_sums(attn_language_run *run)
{
    const attn_language_config *const config = &run->language->config;
    run->sums = calloc((size_t)config->layers * attn_language_sums_floats(config),
                       sizeof *run->sums);
    return run->sums ? ATTN_OK : ATTN_ENOMEM;
}

static attn_status open_states(attn_language_run *run)
{
    const attn_language_config *const config = &run->language->config;
    const size_t floats = (size_t)(config->layers * config->width);
    run->state = calloc(floats, sizeof *run->state);
    run->memory = calloc(floats, sizeof *run->memory);
    return run->state && run->memory ? ATTN_OK : ATTN_ENOMEM;
}

attn_status attn_language_run_create(attn_language_run **run,
                                     const attn_language *language, attn_tape *tape,
                                     const attn_language_run_options *options,
                                     attn_error *error)
{
    static const attn_language_run_options plain = {0};
    const attn_language_config *const config = &language->config;
    options = options ? options : &plain;
    *run = NULL;
    ATTN_TRY(check_options(config, options, error));
    attn_language_run *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_error_set(error, ATTN_ENOMEM, "language run: no memory");
    *created =
        (attn_language_run){.language = language, .tape = tape, .options = *options};
    created->capacity = options->window > 0
                            ? options->window + options->sinks + options->heavy
                        : options->capacity > 0 ? options->capacity
                                                : config->max_positions;
    const attn_status status = config->body == ATTN_LANGUAGE_LSTM ? open_states(created)
                               : config->linear_attention         ? open_sums(created)
                               : options->window > 0              ? open_window(created)
                                                                  : open_pages(created);
    if (status == ATTN_OK) {
        *run = created;
        return ATTN_OK;
    }
    const int64_t capacity = created->capacity;
    attn_language_run_destroy(created);
    return attn_error_set(error, status,
                          "language run: no memory for the keys and values of %lld "
                          "tokens: %s",
                          (long long)capacity,
                          attn_context_message(attn_tape_context(tape)));
}

void attn_language_run_destroy(attn_language_run *run)
{
    if (!run)
        return;
    attn_cache_destroy(run->cache);
    free(run->sequences);
    free(run->gates);
    for (int64_t i = 0; run->window && i < run->language->config.layers; i++)
        attn_language_rows_free(&run->window[i]);
    free(run->window);
    free(run->sums);
    free(run->state);
    free(run->memory);
    free(run);
}

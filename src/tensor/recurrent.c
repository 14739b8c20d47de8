/* Recurrent cells along packed sequences.
 *
 * Rows are taken into the order of steps: all sequences' first tokens, then all second
 * ones, the longest sequence first.  The sequences that are still there at a step are
 * then the first rows of the step before, and a step is two products without gaps, of the
 * input and of the states before.
 * Weights are packed once for all steps: BLAS would pack them again for each, which took
 * a third of its time where rows are few. */
#include "tensor/recurrent.h"
#include "tensor/checks.h"
#include <string.h>

int attn_cell_gates(attn_cell cell)
{
    return cell == ATTN_CELL_LSTM ? 4 : cell == ATTN_CELL_GRU ? 3 : 1;
}

/* ---- Order ----------------------------------------------------------------------------
 */

static size_t length_of(const int64_t *starts, size_t sequence)
{
    return (size_t)(starts[sequence + 1] - starts[sequence]);
}

/* The longest first, those of one length as they stand; `place` has steps + 1 counts. */
static void sort_by_length(struct attn_recur *r, const int64_t *starts, size_t *place)
{
    memset(place, 0, (r->steps + 1) * sizeof *place);
    for (size_t i = 0; i < r->sequences; i++)
        place[length_of(starts, i)]++;
    size_t end = r->sequences;
    for (size_t length = 0; length <= r->steps; length++) {
        end -= place[length];
        place[length] = end;
    }
    for (size_t i = 0; i < r->sequences; i++)
        r->sequence[place[length_of(starts, i)]++] = i;
}

static bool put_in_order(attn_tape *tape, struct attn_recur *r,
                         const attn_recurrence *given)
{
    const int64_t *const starts = given->starts;
    for (size_t i = 0; i < r->sequences; i++)
        if (length_of(starts, i) > r->steps)
            r->steps = length_of(starts, i);
    r->token = attn_tape_allocate(tape, r->tokens * sizeof *r->token);
    r->first = attn_tape_allocate(tape, (r->steps + 1) * sizeof *r->first);
    r->sequence = attn_tape_allocate(tape, r->sequences * sizeof *r->sequence);
    if (!r->token || !r->first || !r->sequence)
        return false;
    sort_by_length(r, starts, r->first);
    size_t place = 0;
    for (size_t step = 0; step < r->steps; step++) {
        r->first[step] = place;
        for (size_t i = 0; i < r->sequences; i++) {
            const size_t length = length_of(starts, r->sequence[i]);
            if (length <= step)
                break;
            const size_t at = given->backwards ? length - 1 - step : step;
            r->token[place++] = (size_t)starts[r->sequence[i]] + at;
        }
    }
    r->first[r->steps] = place;
    r->keeps_order = true;
    for (size_t i = 0; i < r->tokens; i++)
        r->keeps_order &= r->token[i] == i;
    return true;
}

/* ---- Moving rows ----------------------------------------------------------------------
 */

void attn_recur_take_rows(float *to, const float *from, const size_t *rows, size_t count,
                          size_t width, size_t stride)
{
    for (size_t i = 0; i < count; i++) {
        if (from)
            memcpy(to + i * width, from + rows[i] * stride, width * sizeof *to);
        else
            memset(to + i * width, 0, width * sizeof *to);
    }
}

void attn_recur_give_rows(attn_tape *tape, float *to, const float *from,
                          const size_t *rows, size_t count, size_t width, size_t stride,
                          bool add)
{
    for (size_t i = 0; i < count; i++) {
        float *const row = to + rows[i] * stride;
        if (add)
            attn_tape_rows(tape)->add(row, row, from + i * width, width);
        else
            memcpy(row, from + i * width, width * sizeof *to);
    }
}

/* ---- Forward --------------------------------------------------------------------------
 */

/* Neighbouring steps whose input is multiplied at once: enough rows that the weights' way
 * from memory does not count, few enough that their gates stay in the cache. */
enum { RUN_ROWS = 64 };

/* The step behind the run that begins with this one. */
static size_t run_end(const struct attn_recur *r, size_t step)
{
    const size_t first = r->first[step];
    do
        step++;
    while (step < r->steps && r->first[step + 1] - first <= RUN_ROWS);
    return step;
}

size_t attn_recur_run_rows(const struct attn_recur *r, size_t usual)
{
    const size_t most = r->sequences > usual ? r->sequences : usual;
    return r->tokens < most ? r->tokens : most;
}

struct attn_recur_rows attn_recur_rows(const struct attn_recur *r, size_t step,
                                       size_t kept_first)
{
    const size_t first = r->first[step], state = r->sequences + first - kept_first;
    const bool follows = step > 0 && r->first[step - 1] >= kept_first;
    return (struct attn_recur_rows){
        .before = follows ? state - (first - r->first[step - 1]) : 0,
        .state = state,
    };
}

struct attn_cell_step attn_recur_step(const struct attn_recur *r, size_t step,
                                      size_t kept_first)
{
    const size_t first = r->first[step], w = r->width;
    const struct attn_recur_rows rows = attn_recur_rows(r, step, kept_first);
    const size_t before = rows.before, state = rows.state;
    struct attn_cell_step s = {
        .cell = r->cell,
        .rows = r->first[step + 1] - first,
        .width = w,
        .gates = r->gate + (first - kept_first) * r->gates * w,
        .recurrent = r->recurrent,
        .before = r->states + before * w,
        .state = r->states + state * w,
    };
    if (r->candidate)
        s.candidate = r->candidate + first * w;
    if (r->cell == ATTN_CELL_LSTM) {
        s.memory_before = r->memories + before * w;
        s.memory = r->memories + state * w;
    }
    return s;
}

/* What forward multiplies with. */
struct forward {
    struct attn_packed in, state;
    float *bias; /* all that is added to the input's part; NULL for 0 */
    size_t out;
};

static void take_step(attn_tape *tape, const struct attn_recur *r,
                      const struct forward *f, size_t step, size_t kept_first)
{
    const struct attn_rows *const loops = attn_tape_rows(tape);
    const struct attn_cell_step s = attn_recur_step(r, step, kept_first);
    const bool is_gru = r->cell == ATTN_CELL_GRU;
    const float *const bias =
        is_gru && r->weights.has_bias ? r->weights.state_bias->data : NULL;
    loops->multiply(&(struct attn_panel_product){
        .y = is_gru ? r->recurrent : s.gates,
        .x = s.before,
        .matrix = &f->state,
        .bias = bias,
        .rows = s.rows,
        .add = !is_gru,
    });
    loops->cell_step(&s);
}

/* The states, and memories, of some rows into y. */
static void give_states(attn_tape *tape, const struct attn_recur *r, size_t first,
                        size_t rows, size_t kept_first)
{
    const size_t w = r->width, row = (size_t)r->y->extent[1];
    const size_t *const token = r->token + first;
    const size_t from = (r->sequences + first - kept_first) * w;
    attn_recur_give_rows(tape, r->y->data, r->states + from, token, rows, w, row, false);
    if (row > w)
        attn_recur_give_rows(tape, r->y->data + w, r->memories + from, token, rows, w,
                             row, false);
}

/* The last step of a run is what is before the next one. */
static void move_to_front(const struct attn_recur *r, size_t end, size_t kept_first)
{
    const size_t w = r->width, last = r->first[end - 1];
    const size_t from = (r->sequences + last - kept_first) * w;
    const size_t bytes = (r->first[end] - last) * w * sizeof(float);
    memcpy(r->states, r->states + from, bytes);
    if (r->memories)
        memcpy(r->memories, r->memories + from, bytes);
}

const float *attn_recur_take_input(const struct attn_recur *r, float *to, size_t first,
                                   size_t rows)
{
    if (r->keeps_order)
        return r->x->data + first * r->in;
    attn_recur_take_rows(to, r->x->data, r->token + first, rows, r->in, r->in);
    return to;
}

/* What moves between x, y and the order of steps does so while it is in the cache. */
static void take_run(attn_tape *tape, const struct attn_recur *r, const struct forward *f,
                     size_t begin, size_t end)
{
    const size_t first = r->first[begin], rows = r->first[end] - first;
    const size_t kept_first = attn_tape_training(tape) ? 0 : first;
    attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
        .y = r->gate + (first - kept_first) * f->out,
        .x = attn_recur_take_input(r, r->input, first, rows),
        .matrix = &f->in,
        .bias = f->bias,
        .rows = rows,
    });
    for (size_t step = begin; step < end; step++)
        take_step(tape, r, f, step, kept_first);
    give_states(tape, r, first, rows, kept_first);
    if (!attn_tape_training(tape))
        move_to_front(r, end, kept_first);
}

/* A matrix of 64 by 64 takes as long as splitting the rows of a step into parts. */
enum { SMALL_MATRIX = 64 * 64 };

struct attn_packed attn_recur_pack(attn_tape *tape, const attn_tensor *weight,
                                   size_t inner, size_t columns, bool turned)
{
    return attn_panels_pack(tape, (struct attn_packed){
                                      .matrix = weight->data,
                                      .inner = inner,
                                      .columns = columns,
                                      .turned = turned,
                                      .few_rows = !attn_tape_training(tape) ||
                                                  inner * columns <= SMALL_MATRIX,
                                  });
}

static struct forward prepare_forward(attn_tape *tape, const struct attn_recur *r)
{
    struct forward f = {.out = r->gates * r->width};
    f.in = attn_recur_pack(tape, r->weights.in, r->in, f.out, true);
    f.state = attn_recur_pack(tape, r->weights.state, r->width, f.out, true);
    f.bias = r->weights.has_bias ? attn_tape_borrow(tape, f.out) : NULL;
    if (f.bias && r->cell == ATTN_CELL_GRU)
        memcpy(f.bias, r->weights.in_bias->data, f.out * sizeof *f.bias);
    else if (f.bias)
        attn_tape_rows(tape)->add(f.bias, r->weights.in_bias->data,
                                  r->weights.state_bias->data, f.out);
    return f;
}

static void run_forward(attn_tape *tape, const struct attn_recur *r)
{
    const size_t w = r->width;
    attn_recur_take_rows(r->states, r->state ? r->state->data : NULL, r->sequence,
                         r->sequences, w, w);
    if (r->memories)
        attn_recur_take_rows(r->memories, r->memory ? r->memory->data : NULL, r->sequence,
                             r->sequences, w, w);
    const struct forward f = prepare_forward(tape, r);
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    for (size_t begin = 0, end; begin < r->steps; begin = end) {
        end = run_end(r, begin);
        take_run(tape, r, &f, begin, end);
    }
    attn_panels_return(tape, &f.in);
    attn_panels_return(tape, &f.state);
    attn_tape_return(tape, f.bias);
}

/* ---- The operation --------------------------------------------------------------------
 */

static bool before_fits(attn_tape *tape, const char *name, const attn_tensor *before,
                        int64_t sequences, int64_t width)
{
    const int64_t extent[] = {sequences, width};
    return !before || attn_tensor_has_shape(tape, "attn_recur",
                                            (attn_named_tensor){name, before}, 2, extent);
}

static bool biases_fit(attn_tape *tape, const char *operation,
                       const attn_cell_weights *weights, int64_t out)
{
    const attn_named_tensor biases[] = {{"input bias", weights->in_bias},
                                        {"state bias", weights->state_bias}};
    return !weights->has_bias ||
           (attn_tensors_given(tape, operation, biases, 2) &&
            attn_tensor_has_shape(tape, operation, biases[0], 1, &out) &&
            attn_tensor_has_shape(tape, operation, biases[1], 1, &out));
}

static bool recurrence_fits(attn_tape *tape, const struct attn_recur *r,
                            const attn_recurrence *given)
{
    static const char operation[] = "attn_recur";
    const attn_named_tensor tensors[] = {
        {"x", r->x}, {"input weight", r->weights.in}, {"state weight", r->weights.state}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, tensors, 3) ||
        !attn_tensor_has_shape(tape, operation, tensors[0], 2, any) ||
        !attn_tensor_has_shape(tape, operation, tensors[2], 2, any))
        return false;
    const int64_t width = r->weights.state->extent[1], in = r->x->extent[1];
    const int64_t out = width * attn_cell_gates(r->cell);
    const int64_t in_shape[] = {out, in}, state_shape[] = {out, width};
    if (!attn_tensor_has_shape(tape, operation, tensors[1], 2, in_shape) ||
        !attn_tensor_has_shape(tape, operation, tensors[2], 2, state_shape) ||
        !biases_fit(tape, operation, &r->weights, out) ||
        !before_fits(tape, "state", r->state, given->sequences, width) ||
        !before_fits(tape, "memory", r->memory, given->sequences, width))
        return false;
    if (in == 0 || width == 0) {
        attn_tape_fail(tape, ATTN_EINVAL,
                       "attn_recur: x has rows of %lld and states are %lld wide, "
                       "expected an element or more",
                       (long long)in, (long long)width);
        return false;
    }
    return attn_starts_fit(tape, operation, given->starts, given->sequences,
                           r->x->extent[0]);
}

static bool lay_out(attn_tape *tape, struct attn_recur *r, bool gives_memory)
{
    const bool is_gru = r->cell == ATTN_CELL_GRU, is_lstm = r->cell == ATTN_CELL_LSTM;
    const size_t row = r->width * sizeof(float);
    /* All rows for backward, else those of a run. */
    const size_t run = attn_recur_run_rows(r, RUN_ROWS);
    const size_t kept = attn_tape_training(tape) ? r->tokens : run;
    const size_t states = (r->sequences + kept) * row;
    const int64_t columns = (int64_t)r->width * (is_lstm && gives_memory ? 2 : 1);
    r->y = attn_tape_tensor(tape, 2, (const int64_t[]){(int64_t)r->tokens, columns});
    if (!r->keeps_order)
        r->input = attn_tape_allocate(tape, run * r->in * sizeof(float));
    r->gate = attn_tape_allocate(tape, kept * r->gates * row);
    r->states = attn_tape_allocate(tape, states);
    r->candidate = is_gru && attn_tape_training(tape)
                       ? attn_tape_allocate(tape, r->tokens * row)
                       : NULL;
    r->memories = is_lstm ? attn_tape_allocate(tape, states) : NULL;
    r->recurrent =
        is_gru ? attn_tape_allocate(tape, r->sequences * r->gates * row) : NULL;
    return attn_tape_status(tape) == ATTN_OK;
}

attn_tensor *attn_recur(attn_tape *tape, attn_tensor *x, const attn_cell_weights *weights,
                        const attn_recurrence *recurrence)
{
    struct attn_recur *const r = attn_tape_allocate(tape, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct attn_recur){
        .cell = recurrence->cell,
        .sequences = (size_t)recurrence->sequences,
        .gates = (size_t)attn_cell_gates(recurrence->cell),
        .x = x,
        .weights = *weights,
        .state = recurrence->state,
        .memory = recurrence->cell == ATTN_CELL_LSTM ? recurrence->memory : NULL,
    };
    if (!recurrence_fits(tape, r, recurrence))
        return NULL;
    r->tokens = (size_t)x->extent[0];
    r->in = (size_t)x->extent[1];
    r->width = (size_t)weights->state->extent[1];
    if (!put_in_order(tape, r, recurrence) || !lay_out(tape, r, recurrence->gives_memory))
        return NULL;
    run_forward(tape, r);
    if (attn_tape_status(tape) != ATTN_OK)
        return NULL;
    attn_tape_record(tape, r->y, attn_recur_backward, r);
    return r->y;
}

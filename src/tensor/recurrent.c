/* Recurrent cells along packed sequences.
 *
 * Rows are taken into the order of steps: all sequences' first tokens, then all second
 * ones, the longest sequence first.  The sequences that are still there at a step are
 * then the first rows of the step before, and a step is one product of matrices without
 * gaps; the weight's gradient is one product over all steps. */
#include "tensor/checks.h"
#include <cblas.h>
#include <string.h>

struct recurrence {
    attn_cell cell;
    size_t sequences, steps, tokens, width, gates;
    attn_tensor *given, *weight, *bias; /* bias may be NULL */
    attn_tensor *state, *memory;        /* before the first step; may be NULL */
    attn_tensor *y;

    size_t *token;    /* [tokens]: which token stands at each place */
    size_t *first;    /* [steps + 1]: where each step begins */
    size_t *sequence; /* [sequences]: the longest first */

    /* In the order of steps. */
    float *gate;              /* [tokens][gates·width] */
    float *candidate;         /* GRU: [tokens][width] */
    float *states, *memories; /* [sequences + tokens][width]: first those before */
    float *recurrent;         /* GRU: of one step, [sequences][3·width] */
};

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
static void sort_by_length(struct recurrence *r, const int64_t *starts, size_t *place)
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

static bool put_in_order(attn_tape *tape, struct recurrence *r,
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
    return true;
}

/* ---- Moving rows ----------------------------------------------------------------------
 */

/* to[i] = from[rows[i]], or 0 where there is no from. */
static void take_rows(float *to, const float *from, const size_t *rows, size_t count,
                      size_t width, size_t stride)
{
    for (size_t i = 0; i < count; i++) {
        if (from)
            memcpy(to + i * width, from + rows[i] * stride, width * sizeof *to);
        else
            memset(to + i * width, 0, width * sizeof *to);
    }
}

/* to[rows[i]] (+)= from[i] */
static void give_rows(attn_tape *tape, float *to, const float *from, const size_t *rows,
                      size_t count, size_t width, size_t stride, bool add)
{
    for (size_t i = 0; i < count; i++)
        attn_tape_rows(tape)->scale(to + rows[i] * stride, from + i * width, 1.0f, width,
                                    add);
}

/* ---- Forward --------------------------------------------------------------------------
 */

static struct attn_cell_step step_of(const struct recurrence *r, size_t step)
{
    const size_t first = r->first[step], w = r->width;
    /* What is before step 0 lies in front of the states; step s − 1 begins there. */
    const size_t before = step > 0 ? r->sequences + r->first[step - 1] : 0;
    struct attn_cell_step s = {
        .cell = r->cell,
        .rows = r->first[step + 1] - first,
        .width = w,
        .gates = r->gate + first * r->gates * w,
        .recurrent = r->recurrent,
        .before = r->states + before * w,
        .state = r->states + (r->sequences + first) * w,
    };
    if (r->cell == ATTN_CELL_GRU)
        s.candidate = r->candidate + first * w;
    if (r->cell == ATTN_CELL_LSTM) {
        s.memory_before = r->memories + before * w;
        s.memory = r->memories + (r->sequences + first) * w;
    }
    return s;
}

/* to (+)= state · weightᵀ.  In inference a row has the same bits in any batch. */
static void multiply_state(attn_tape *tape, const struct recurrence *r, float *to,
                           const struct attn_cell_step *s, bool add)
{
    const size_t out = r->gates * r->width;
    if (attn_tape_training(tape)) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)s->rows, (int)out,
                    (int)r->width, 1.0f, s->before, (int)r->width, r->weight->data,
                    (int)r->width, add ? 1.0f : 0.0f, to, (int)out);
        return;
    }
    float *const product = add ? r->recurrent : to;
    attn_tape_rows(tape)->dot(product, s->before, r->weight->data, NULL, s->rows,
                              r->width, out);
    if (add)
        attn_tape_rows(tape)->add(to, to, product, s->rows * out);
}

static void take_step(attn_tape *tape, const struct recurrence *r, size_t step)
{
    const struct attn_cell_step s = step_of(r, step);
    if (r->cell == ATTN_CELL_GRU) {
        multiply_state(tape, r, r->recurrent, &s, false);
        for (size_t i = 0; r->bias && i < s.rows; i++) {
            float *const row = r->recurrent + i * 3 * r->width;
            attn_tape_rows(tape)->add(row, row, r->bias->data, 3 * r->width);
        }
    } else {
        multiply_state(tape, r, s.gates, &s, true);
    }
    attn_tape_rows(tape)->cell_step(&s);
}

static void run_forward(attn_tape *tape, const struct recurrence *r)
{
    const size_t w = r->width, columns = r->gates * w;
    take_rows(r->gate, r->given->data, r->token, r->tokens, columns, columns);
    for (size_t i = 0; r->bias && r->cell != ATTN_CELL_GRU && i < r->tokens; i++)
        attn_tape_rows(tape)->add(r->gate + i * columns, r->gate + i * columns,
                                  r->bias->data, columns);
    take_rows(r->states, r->state ? r->state->data : NULL, r->sequence, r->sequences, w,
              w);
    if (r->memories)
        take_rows(r->memories, r->memory ? r->memory->data : NULL, r->sequence,
                  r->sequences, w, w);
    for (size_t step = 0; step < r->steps; step++)
        take_step(tape, r, step);

    const size_t row = (size_t)r->y->extent[1];
    give_rows(tape, r->y->data, r->states + r->sequences * w, r->token, r->tokens, w, row,
              false);
    if (r->memories)
        give_rows(tape, r->y->data + w, r->memories + r->sequences * w, r->token,
                  r->tokens, w, row, false);
}

/* ---- Backward -------------------------------------------------------------------------
 */

/* Gradients in the order of steps; those of states and memories like these themselves. */
struct ways_back {
    float *states, *memories; /* [sequences + tokens][width] */
    float *recurrent;         /* [tokens][gates·width]; the gates' own but for the GRU */
};

static void step_back(attn_tape *tape, const struct recurrence *r,
                      const struct ways_back *back, size_t step)
{
    struct attn_cell_step s = step_of(r, step);
    const int w = (int)r->width, out = (int)(r->gates * r->width);
    float *const recurrent = back->recurrent + r->first[step] * (size_t)out;
    float *const before = back->states + (s.before - r->states);
    s.state_gradient = back->states + (s.state - r->states);
    s.before_gradient = before;
    s.recurrent_gradient = recurrent;
    if (r->memories) {
        s.memory_gradient = back->memories + (s.memory - r->memories);
        s.memory_before_gradient = back->memories + (s.memory_before - r->memories);
    }
    attn_tape_rows(tape)->cell_back(&s);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)s.rows, w, out, 1.0f,
                recurrent, out, r->weight->data, w, 1.0f, before, w);
}

/* The weight's gradient: that of what its product gave, times the states before. */
static void weight_back(attn_tape *tape, const struct recurrence *r,
                        const struct ways_back *back)
{
    const size_t w = r->width, out = r->gates * w;
    bool add;
    float *const to = attn_tape_gradient(tape, r->weight, &add);
    float *const before = to ? attn_tape_borrow(tape, r->tokens * w) : NULL;
    if (before) {
        for (size_t step = 0; step < r->steps; step++) {
            const struct attn_cell_step s = step_of(r, step);
            memcpy(before + r->first[step] * w, s.before, s.rows * w * sizeof *before);
        }
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)w,
                    (int)r->tokens, 1.0f, back->recurrent, (int)out, before, (int)w,
                    add ? 1.0f : 0.0f, to, (int)w);
        attn_tape_return(tape, before, r->tokens * w);
    }
    float *const bias = r->bias ? attn_tape_gradient(tape, r->bias, &add) : NULL;
    if (bias && !add)
        memset(bias, 0, out * sizeof *bias);
    if (bias)
        attn_tape_rows(tape)->sum(bias, back->recurrent, r->tokens, out);
}

static void before_back(attn_tape *tape, const struct recurrence *r, attn_tensor *before,
                        const float *gradient)
{
    bool add;
    float *const to = before ? attn_tape_gradient(tape, before, &add) : NULL;
    if (to)
        give_rows(tape, to, gradient, r->sequence, r->sequences, r->width, r->width, add);
}

static void run_back(attn_tape *tape, const struct recurrence *r,
                     const struct ways_back *back)
{
    const size_t w = r->width, row = (size_t)r->y->extent[1], first = r->sequences * w;
    memset(back->states, 0, first * sizeof(float));
    take_rows(back->states + first, r->y->gradient, r->token, r->tokens, w, row);
    if (r->memories) {
        memset(back->memories, 0, first * sizeof(float));
        take_rows(back->memories + first, r->y->gradient + w, r->token, r->tokens, w,
                  row);
    }
    for (size_t step = r->steps; step > 0; step--)
        step_back(tape, r, back, step - 1);

    bool add;
    float *const gates = attn_tape_gradient(tape, r->given, &add);
    if (gates)
        give_rows(tape, gates, r->gate, r->token, r->tokens, r->gates * w, r->gates * w,
                  add);
    weight_back(tape, r, back);
    before_back(tape, r, r->state, back->states);
    before_back(tape, r, r->memory, back->memories);
}

static void recur_backward(attn_tape *tape, void *arguments)
{
    const struct recurrence *const r = arguments;
    const size_t states = (r->sequences + r->tokens) * r->width;
    const size_t gates = r->tokens * r->gates * r->width;
    const bool is_gru = r->cell == ATTN_CELL_GRU;
    const struct ways_back back = {
        .states = attn_tape_borrow(tape, states),
        .memories = r->memories ? attn_tape_borrow(tape, states) : NULL,
        .recurrent = is_gru ? attn_tape_borrow(tape, gates) : r->gate,
    };
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    run_back(tape, r, &back);
    attn_tape_return(tape, back.states, states);
    if (r->memories)
        attn_tape_return(tape, back.memories, states);
    if (is_gru)
        attn_tape_return(tape, back.recurrent, gates);
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

static bool recurrence_fits(attn_tape *tape, const struct recurrence *r,
                            const attn_recurrence *given)
{
    static const char operation[] = "attn_recur";
    const attn_named_tensor tensors[] = {
        {"gates", r->given}, {"weight", r->weight}, {"bias", r->bias}};
    const int64_t any[] = {-1, -1};
    if (!attn_tensors_given(tape, operation, tensors, r->bias ? 3 : 2) ||
        !attn_tensor_has_shape(tape, operation, tensors[1], 2, any))
        return false;
    const int64_t width = r->weight->extent[1], out = width * attn_cell_gates(r->cell);
    const int64_t gates[] = {-1, out}, weight[] = {out, width};
    if (!attn_tensor_has_shape(tape, operation, tensors[0], 2, gates) ||
        !attn_tensor_has_shape(tape, operation, tensors[1], 2, weight) ||
        (r->bias && !attn_tensor_has_shape(tape, operation, tensors[2], 1, &out)) ||
        !attn_matrix_fits_blas(tape, operation, tensors[0]) ||
        !attn_matrix_fits_blas(tape, operation, tensors[1]) ||
        !before_fits(tape, "state", r->state, given->sequences, width) ||
        !before_fits(tape, "memory", r->memory, given->sequences, width))
        return false;
    return attn_starts_fit(tape, operation, given->starts, given->sequences,
                           r->given->extent[0]);
}

static bool lay_out(attn_tape *tape, struct recurrence *r)
{
    const bool is_gru = r->cell == ATTN_CELL_GRU, is_lstm = r->cell == ATTN_CELL_LSTM;
    const size_t row = r->width * sizeof(float);
    const size_t states = (r->sequences + r->tokens) * row;
    const bool needs_product = is_gru || !attn_tape_training(tape);
    const int64_t columns = (int64_t)r->width * (is_lstm ? 2 : 1);
    r->y = attn_tape_tensor(tape, 2, (const int64_t[]){(int64_t)r->tokens, columns});
    r->gate = attn_tape_allocate(tape, r->tokens * r->gates * row);
    r->states = attn_tape_allocate(tape, states);
    r->candidate = is_gru ? attn_tape_allocate(tape, r->tokens * row) : NULL;
    r->memories = is_lstm ? attn_tape_allocate(tape, states) : NULL;
    r->recurrent =
        needs_product ? attn_tape_allocate(tape, r->sequences * r->gates * row) : NULL;
    return attn_tape_status(tape) == ATTN_OK;
}

attn_tensor *attn_recur(attn_tape *tape, attn_tensor *gates, attn_tensor *weight,
                        attn_tensor *bias, bool has_bias,
                        const attn_recurrence *recurrence)
{
    struct recurrence *const r = attn_tape_allocate(tape, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct recurrence){
        .cell = recurrence->cell,
        .sequences = (size_t)recurrence->sequences,
        .gates = (size_t)attn_cell_gates(recurrence->cell),
        .given = gates,
        .weight = weight,
        .bias = has_bias ? bias : NULL,
        .state = recurrence->state,
        .memory = recurrence->cell == ATTN_CELL_LSTM ? recurrence->memory : NULL,
    };
    if (has_bias && !bias)
        return attn_tape_fail(tape, ATTN_EINVAL,
                              "attn_recur: bias is NULL, expected a tensor");
    if (!recurrence_fits(tape, r, recurrence))
        return NULL;
    r->tokens = (size_t)gates->extent[0];
    r->width = (size_t)weight->extent[1];
    if (!put_in_order(tape, r, recurrence) || !lay_out(tape, r))
        return NULL;
    run_forward(tape, r);
    attn_tape_record(tape, r->y, recur_backward, r);
    return r->y;
}

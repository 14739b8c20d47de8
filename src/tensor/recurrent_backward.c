/* Recurrent cells backwards: runs of steps from the last to the first, and of each run,
 * while the gradients of its gates are in the cache, what it gives input and weights. */
#include "tensor/recurrent.h"
#include <string.h>

/* Of neighbouring steps that are multiplied at once: the gradient of a weight comes from
 * memory and goes there for each run, so there are more than forward. */
enum { RUN_ROWS = 128 };

/* The first step of the run that ends there. */
static size_t run_begin(const struct attn_recur *r, size_t end)
{
    size_t begin = end - 1;
    while (begin > 0 && r->first[end] - r->first[begin - 1] <= RUN_ROWS)
        begin--;
    return begin;
}

/* Gradients in the order of steps; those of states and memories like these themselves. */
struct ways_back {
    float *states, *memories; /* [sequences + rows of a run][width]: first those before */
    float *recurrent; /* GRU: [rows of a run][gates·width]; else NULL, the gates' own */
    float *bias;      /* sums of the gates', or NULL */
    float *recurrent_bias; /* and of `recurrent` */
    float *input;          /* [tokens][in], or NULL where x wants none */
    bool input_adds;       /* to what is there */
    float *input_run;      /* [rows of a run][in] on the way there and from x, or NULL */
    float *in_weight, *state_weight; /* like the weights; NULL likewise */
    bool in_weight_adds, state_weight_adds;
    struct attn_packed in_panels, state_panels;
};

/* What the states' part of the gates gives, from that row on. */
static float *recurrent_from(const struct attn_recur *r, const struct ways_back *back,
                             size_t row, size_t kept_first)
{
    const size_t out = r->gates * r->width;
    return back->recurrent ? back->recurrent + (row - kept_first) * out
                           : r->gate + row * out;
}

/* kept_first: the row with which those of the gradients begin. */
static void step_back(attn_tape *tape, const struct attn_recur *r,
                      const struct ways_back *back, size_t step, size_t kept_first)
{
    struct attn_cell_step s = attn_recur_step(r, step, 0);
    const struct attn_recur_rows rows = attn_recur_rows(r, step, kept_first);
    const size_t w = r->width;
    float *const recurrent = recurrent_from(r, back, r->first[step], kept_first);
    float *const before = back->states + rows.before * w;
    s.state_gradient = back->states + rows.state * w;
    s.before_gradient = before;
    s.recurrent_gradient = recurrent;
    if (r->memories) {
        s.memory_gradient = back->memories + rows.state * w;
        s.memory_before_gradient = back->memories + rows.before * w;
    }
    attn_tape_rows(tape)->cell_back(&s);
    attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
        .y = before,
        .x = recurrent,
        .matrix = &back->state_panels,
        .rows = s.rows,
        .add = true,
    });
}

/* The states before the rows of a run lie step by step: in one piece, or put into one. */
static void state_weight_back(attn_tape *tape, const struct attn_recur *r,
                              const struct ways_back *back, size_t begin, size_t end)
{
    const size_t w = r->width, first = r->first[begin], rows = r->first[end] - first;
    const float *before = attn_recur_step(r, begin, 0).before;
    float *piece = NULL;
    if (rows != r->sequences * (end - begin)) {
        piece = attn_tape_borrow(tape, rows * w);
        for (size_t step = begin; piece && step < end; step++) {
            const struct attn_cell_step s = attn_recur_step(r, step, 0);
            memcpy(piece + (r->first[step] - first) * w, s.before,
                   s.rows * w * sizeof *piece);
        }
        before = piece;
    }
    if (before)
        attn_weight_gradient_take(tape,
                                  &(struct attn_weight_gradient){
                                      .to = back->state_weight,
                                      .dy = recurrent_from(r, back, first, first),
                                      .x = before,
                                      .rows = rows,
                                      .out = r->gates * w,
                                      .in = w,
                                      .add = back->state_weight_adds || end < r->steps,
                                  });
    attn_tape_return(tape, piece);
}

static void clear_front(const struct attn_recur *r, const struct ways_back *back)
{
    const size_t bytes = r->sequences * r->width * sizeof(float);
    memset(back->states, 0, bytes);
    if (r->memories)
        memset(back->memories, 0, bytes);
}

/* What arrived at y of some rows, to that row of the gradients on. */
static void take_rows(const struct attn_recur *r, const struct ways_back *back, size_t to,
                      size_t first, size_t end)
{
    const size_t w = r->width, row = (size_t)r->y->extent[1];
    const size_t *const token = r->token + first;
    attn_recur_take_rows(back->states + to * w, r->y->gradient, token, end - first, w,
                         row);
    if (r->memories)
        attn_recur_take_rows(back->memories + to * w, row > w ? r->y->gradient + w : NULL,
                             token, end - first, w, row);
}

/* The gradients of a run's states, and in front of those before it, before its steps: its
 * last step is what was in front of the run behind it. */
static void take_gradients(const struct attn_recur *r, const struct ways_back *back,
                           size_t begin, size_t end)
{
    const size_t w = r->width, first = r->first[begin], last = r->first[end - 1];
    const size_t place = r->sequences + last - first;
    const size_t bytes = (r->first[end] - last) * w * sizeof(float);
    if (end == r->steps) {
        take_rows(r, back, place, last, r->first[end]);
    } else {
        memcpy(back->states + place * w, back->states, bytes);
        if (r->memories)
            memcpy(back->memories + place * w, back->memories, bytes);
    }
    take_rows(r, back, r->sequences, first, last);
    if (begin > 0)
        take_rows(r, back, 0, r->first[begin - 1], first);
    else
        clear_front(r, back);
}

static void input_back(attn_tape *tape, const struct attn_recur *r,
                       const struct ways_back *back, size_t first, size_t rows)
{
    const size_t out = r->gates * r->width;
    const bool turns = !r->keeps_order;
    attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
        .y = turns ? back->input_run : back->input + first * r->in,
        .x = r->gate + first * out,
        .matrix = &back->in_panels,
        .rows = rows,
        .add = back->input_adds && !turns,
    });
    if (turns)
        attn_recur_give_rows(tape, back->input, back->input_run, r->token + first, rows,
                             r->in, r->in, back->input_adds);
}

/* The steps begin to end − 1, and what they give input and weights.  What moves between
 * the tensors and the order of steps does so while it is in the cache. */
static void run_steps_back(attn_tape *tape, const struct attn_recur *r,
                           const struct ways_back *back, size_t begin, size_t end)
{
    const size_t out = r->gates * r->width;
    const size_t first = r->first[begin], rows = r->first[end] - first;
    const float *const gates = r->gate + first * out;
    take_gradients(r, back, begin, end);
    for (size_t step = end; step > begin; step--)
        step_back(tape, r, back, step - 1, first);
    if (back->input)
        input_back(tape, r, back, first, rows);
    if (back->in_weight)
        attn_weight_gradient_take(
            tape, &(struct attn_weight_gradient){
                      .to = back->in_weight,
                      .dy = gates,
                      .x = attn_recur_take_input(r, back->input_run, first, rows),
                      .rows = rows,
                      .out = out,
                      .in = r->in,
                      .add = back->in_weight_adds || end < r->steps,
                  });
    if (back->state_weight)
        state_weight_back(tape, r, back, begin, end);
    if (back->bias)
        attn_tape_rows(tape)->sum(back->bias, gates, rows, out);
    if (back->recurrent_bias)
        attn_tape_rows(tape)->sum(back->recurrent_bias, back->recurrent, rows, out);
}

/* Runs from the last steps to the first. */
static void all_steps_back(attn_tape *tape, const struct attn_recur *r,
                           const struct ways_back *back)
{
    if (r->steps == 0)
        clear_front(r, back);
    for (size_t end = r->steps; end > 0;) {
        const size_t begin = run_begin(r, end);
        run_steps_back(tape, r, back, begin, end);
        end = begin;
    }
}

static float *borrow_zeros(attn_tape *tape, size_t floats)
{
    float *const x = attn_tape_borrow(tape, floats);
    if (x)
        memset(x, 0, floats * sizeof *x);
    return x;
}

static void bias_back(attn_tape *tape, const struct attn_recur *r, attn_tensor *bias,
                      const float *sum)
{
    bool add;
    float *const to = attn_tape_gradient(tape, bias, &add);
    if (to)
        attn_tape_rows(tape)->scale(to, sum, 1.0f, r->gates * r->width, add);
}

/* Biases that are added to each other have one sum. */
static void biases_back(attn_tape *tape, const struct attn_recur *r,
                        const struct ways_back *back)
{
    bias_back(tape, r, r->weights.in_bias, back->bias);
    bias_back(tape, r, r->weights.state_bias,
              back->recurrent_bias ? back->recurrent_bias : back->bias);
}

static void before_back(attn_tape *tape, const struct attn_recur *r, attn_tensor *before,
                        const float *gradient)
{
    bool add;
    float *const to = before ? attn_tape_gradient(tape, before, &add) : NULL;
    if (to)
        attn_recur_give_rows(tape, to, gradient, r->sequence, r->sequences, r->width,
                             r->width, add);
}

/* Where the gradients of weights go; without a step nobody writes them. */
static void take_weights(attn_tape *tape, const struct attn_recur *r,
                         struct ways_back *back)
{
    const size_t out = r->gates * r->width;
    back->in_weight = attn_tape_gradient(tape, r->weights.in, &back->in_weight_adds);
    back->state_weight =
        attn_tape_gradient(tape, r->weights.state, &back->state_weight_adds);
    if (r->steps > 0)
        return;
    if (back->in_weight && !back->in_weight_adds)
        memset(back->in_weight, 0, out * r->in * sizeof(float));
    if (back->state_weight && !back->state_weight_adds)
        memset(back->state_weight, 0, out * r->width * sizeof(float));
}

void attn_recur_backward(attn_tape *tape, void *arguments)
{
    const struct attn_recur *const r = arguments;
    const size_t out = r->gates * r->width;
    const size_t run = attn_recur_run_rows(r, RUN_ROWS);
    const size_t states = (r->sequences + run) * r->width;
    const bool is_gru = r->cell == ATTN_CELL_GRU, has_bias = r->weights.has_bias;
    struct ways_back back = {
        .states = attn_tape_borrow(tape, states),
        .memories = r->memories ? attn_tape_borrow(tape, states) : NULL,
        .bias = has_bias ? borrow_zeros(tape, out) : NULL,
        .recurrent_bias = has_bias && is_gru ? borrow_zeros(tape, out) : NULL,
        .recurrent = is_gru ? attn_tape_borrow(tape, run * out) : NULL,
        .input_run = r->keeps_order ? NULL : attn_tape_borrow(tape, run * r->in),
        .state_panels = attn_recur_pack(tape, r->weights.state, out, r->width, false),
    };
    back.input = attn_tape_gradient(tape, r->x, &back.input_adds);
    if (back.input)
        back.in_panels = attn_recur_pack(tape, r->weights.in, out, r->in, false);
    take_weights(tape, r, &back);
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    all_steps_back(tape, r, &back);
    attn_panels_return(tape, &back.state_panels);
    attn_panels_return(tape, &back.in_panels);
    attn_tape_return(tape, back.input_run);
    if (has_bias)
        biases_back(tape, r, &back);
    before_back(tape, r, r->state, back.states);
    before_back(tape, r, r->memory, back.memories);
    attn_tape_return(tape, back.states);
    attn_tape_return(tape, back.memories);
    attn_tape_return(tape, back.recurrent);
    attn_tape_return(tape, back.bias);
    attn_tape_return(tape, back.recurrent_bias);
}

/* Recurrent cells backwards: steps from the last to the first, and when all gates'
 * gradients are there, those of the weights as one product each. */
#include "tensor/recurrent.h"
#include <cblas.h>
#include <string.h>

/* Gradients in the order of steps; those of states and memories like these themselves. */
struct ways_back {
    float *states, *memories; /* [sequences + tokens][width] */
    float *recurrent;         /* [tokens][gates·width]; the gates' own but for the GRU */
    float *input;             /* [tokens][in], or NULL where x wants none */
    bool input_adds;          /* to what is there */
    struct attn_recur_panels in_panels, state_panels;
};

static void step_back(attn_tape *tape, const struct attn_recur *r,
                      const struct ways_back *back, size_t step)
{
    struct attn_cell_step s = attn_recur_step(r, step, 0);
    const size_t out = r->gates * r->width;
    float *const recurrent = back->recurrent + r->first[step] * out;
    float *const before = back->states + (s.before - r->states);
    s.state_gradient = back->states + (s.state - r->states);
    s.before_gradient = before;
    s.recurrent_gradient = recurrent;
    if (r->memories) {
        s.memory_gradient = back->memories + (s.memory - r->memories);
        s.memory_before_gradient = back->memories + (s.memory_before - r->memories);
    }
    attn_tape_rows(tape)->cell_back(&s);
    attn_tape_rows(tape)->multiply(before, recurrent, back->state_panels.data, NULL,
                                   s.rows, out, r->width, true);
}

/* The steps begin to end − 1, and what they give the input. */
static void run_steps_back(attn_tape *tape, const struct attn_recur *r,
                           const struct ways_back *back, size_t begin, size_t end)
{
    const size_t first = r->first[begin], out = r->gates * r->width;
    for (size_t step = end; step > begin; step--)
        step_back(tape, r, back, step - 1);
    if (back->input)
        attn_tape_rows(tape)->multiply(back->input + first * r->in, r->gate + first * out,
                                       back->in_panels.data, NULL, r->first[end] - first,
                                       out, r->in, back->input_adds);
}

/* Runs from the last steps to the first. */
static void all_steps_back(attn_tape *tape, const struct attn_recur *r,
                           const struct ways_back *back)
{
    for (size_t end = r->steps; end > 0;) {
        size_t begin = end - 1;
        while (begin > 0 && r->first[end] - r->first[begin - 1] <= ATTN_RECUR_ROWS)
            begin--;
        run_steps_back(tape, r, back, begin, end);
        end = begin;
    }
}

/* The gradient of weight: of what its product gave, times what it multiplied. */
static void weight_back(attn_tape *tape, const struct attn_recur *r, attn_tensor *weight,
                        const float *gradient, const float *multiplied)
{
    const int out = (int)weight->extent[0], in = (int)weight->extent[1];
    bool add;
    float *const to = attn_tape_gradient(tape, weight, &add);
    if (to)
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, (int)r->tokens,
                    1.0f, gradient, out, multiplied, in, add ? 1.0f : 0.0f, to, in);
}

static void state_weight_back(attn_tape *tape, const struct attn_recur *r,
                              const struct ways_back *back)
{
    const size_t w = r->width;
    if (r->tokens == r->sequences * r->steps) {
        /* No sequence ends before the others: those states lie in one piece. */
        weight_back(tape, r, r->weights.state, back->recurrent, r->states);
        return;
    }
    float *const before = attn_tape_borrow(tape, r->tokens * w);
    for (size_t step = 0; before && step < r->steps; step++) {
        const struct attn_cell_step s = attn_recur_step(r, step, 0);
        memcpy(before + r->first[step] * w, s.before, s.rows * w * sizeof *before);
    }
    if (before)
        weight_back(tape, r, r->weights.state, back->recurrent, before);
    attn_tape_return(tape, before, r->tokens * w);
}

/* For two biases that are added where one is: the sum is taken once. */
static void bias_back(attn_tape *tape, const struct attn_recur *r, const float *gradient,
                      attn_tensor *bias, attn_tensor *same)
{
    const struct attn_rows *const loops = attn_tape_rows(tape);
    const size_t out = r->gates * r->width;
    float *const sum = attn_tape_borrow(tape, out);
    if (!sum)
        return;
    memset(sum, 0, out * sizeof *sum);
    loops->sum(sum, gradient, r->tokens, out);
    bool add;
    float *to = attn_tape_gradient(tape, bias, &add);
    if (to)
        loops->scale(to, sum, 1.0f, out, add);
    to = same ? attn_tape_gradient(tape, same, &add) : NULL;
    if (to)
        loops->scale(to, sum, 1.0f, out, add);
    attn_tape_return(tape, sum, out);
}

static void biases_back(attn_tape *tape, const struct attn_recur *r,
                        const struct ways_back *back)
{
    const bool is_one = back->recurrent == r->gate;
    bias_back(tape, r, r->gate, r->weights.in_bias,
              is_one ? r->weights.state_bias : NULL);
    if (!is_one)
        bias_back(tape, r, back->recurrent, r->weights.state_bias, NULL);
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

/* What arrived at y. */
static void take_gradients(const struct attn_recur *r, const struct ways_back *back)
{
    const size_t w = r->width, row = (size_t)r->y->extent[1], first = r->sequences * w;
    memset(back->states, 0, first * sizeof(float));
    attn_recur_take_rows(back->states + first, r->y->gradient, r->token, r->tokens, w,
                         row);
    if (!r->memories)
        return;
    memset(back->memories, 0, first * sizeof(float));
    if (row > w)
        attn_recur_take_rows(back->memories + first, r->y->gradient + w, r->token,
                             r->tokens, w, row);
    else
        memset(back->memories + first, 0, r->tokens * w * sizeof(float));
}

static void weights_back(attn_tape *tape, const struct attn_recur *r,
                         const struct ways_back *back)
{
    weight_back(tape, r, r->weights.in, r->gate, r->input);
    state_weight_back(tape, r, back);
    if (r->weights.has_bias)
        biases_back(tape, r, back);
}

void attn_recur_backward(attn_tape *tape, void *arguments)
{
    const struct attn_recur *const r = arguments;
    const size_t states = (r->sequences + r->tokens) * r->width;
    const size_t gates = r->tokens * r->gates * r->width, inputs = r->tokens * r->in;
    const bool is_gru = r->cell == ATTN_CELL_GRU;
    bool add;
    float *const x = attn_tape_gradient(tape, r->x, &add);
    const bool turns = x && !r->keeps_order; /* x's rows come in another order */
    const struct ways_back back = {
        .states = attn_tape_borrow(tape, states),
        .memories = r->memories ? attn_tape_borrow(tape, states) : NULL,
        .recurrent = is_gru ? attn_tape_borrow(tape, gates) : r->gate,
        .input = turns ? attn_tape_borrow(tape, inputs) : x,
        .input_adds = add && !turns,
        .in_panels = x ? attn_recur_pack(tape, r->weights.in, false)
                       : (struct attn_recur_panels){NULL, 0},
        .state_panels = attn_recur_pack(tape, r->weights.state, false),
    };
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    take_gradients(r, &back);
    all_steps_back(tape, r, &back);
    attn_recur_unpack(tape, back.state_panels);
    attn_recur_unpack(tape, back.in_panels);
    if (turns) {
        attn_recur_give_rows(tape, x, back.input, r->token, r->tokens, r->in, r->in, add);
        attn_tape_return(tape, back.input, inputs);
    }
    weights_back(tape, r, &back);
    before_back(tape, r, r->state, back.states);
    before_back(tape, r, r->memory, back.memories);
    attn_tape_return(tape, back.states, states);
    attn_tape_return(tape, back.memories, states);
    if (is_gru)
        attn_tape_return(tape, back.recurrent, gates);
}

/* Recurrent cells backwards: runs of steps from the last to the first, and of each run,
 * while the gradients of its gates are in the cache, what it gives input and weights. */
#include "tensor/recurrent.h"
#include <string.h>

/* Of neighbouring steps that are multiplied at once: the gradient of a weight comes from
 * memory and goes there for each run, so there are more than forward. */
enum { RUN_ROWS = 128 };

/* Gradients in the order of steps; those of states and memories like these themselves. */
struct ways_back {
    float *states, *memories; /* [sequences + tokens][width] */
    float *recurrent;         /* [tokens][gates·width]; the gates' own but for the GRU */
    float *input;             /* [tokens][in], or NULL where x wants none */
    bool input_adds;          /* to what is there */
    float *in_weight, *state_weight; /* like the weights; NULL likewise */
    bool in_weight_adds, state_weight_adds;
    struct attn_packed in_panels, state_panels;
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
                                      .dy = back->recurrent + first * r->gates * w,
                                      .x = before,
                                      .rows = rows,
                                      .out = r->gates * w,
                                      .in = w,
                                      .add = back->state_weight_adds || end < r->steps,
                                  });
    attn_tape_return(tape, piece);
}

/* The steps begin to end − 1, and what they give input and weights. */
static void run_steps_back(attn_tape *tape, const struct attn_recur *r,
                           const struct ways_back *back, size_t begin, size_t end)
{
    const size_t out = r->gates * r->width;
    const size_t first = r->first[begin], rows = r->first[end] - first;
    const float *const gates = r->gate + first * out;
    for (size_t step = end; step > begin; step--)
        step_back(tape, r, back, step - 1);
    if (back->input)
        attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
            .y = back->input + first * r->in,
            .x = gates,
            .matrix = &back->in_panels,
            .rows = rows,
            .add = back->input_adds,
        });
    if (back->in_weight)
        attn_weight_gradient_take(tape, &(struct attn_weight_gradient){
                                            .to = back->in_weight,
                                            .dy = gates,
                                            .x = r->input + first * r->in,
                                            .rows = rows,
                                            .out = out,
                                            .in = r->in,
                                            .add = back->in_weight_adds || end < r->steps,
                                        });
    if (back->state_weight)
        state_weight_back(tape, r, back, begin, end);
}

/* Runs from the last steps to the first. */
static void all_steps_back(attn_tape *tape, const struct attn_recur *r,
                           const struct ways_back *back)
{
    for (size_t end = r->steps; end > 0;) {
        size_t begin = end - 1;
        while (begin > 0 && r->first[end] - r->first[begin - 1] <= RUN_ROWS)
            begin--;
        run_steps_back(tape, r, back, begin, end);
        end = begin;
    }
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
    attn_tape_return(tape, sum);
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
    const size_t states = (r->sequences + r->tokens) * r->width;
    const size_t out = r->gates * r->width;
    const size_t gates = r->tokens * out, inputs = r->tokens * r->in;
    const bool is_gru = r->cell == ATTN_CELL_GRU;
    bool add;
    float *const x = attn_tape_gradient(tape, r->x, &add);
    const bool turns = x && !r->keeps_order; /* x's rows come in another order */
    struct ways_back back = {
        .states = attn_tape_borrow(tape, states),
        .memories = r->memories ? attn_tape_borrow(tape, states) : NULL,
        .recurrent = is_gru ? attn_tape_borrow(tape, gates) : r->gate,
        .input = turns ? attn_tape_borrow(tape, inputs) : x,
        .input_adds = add && !turns,
        .state_panels =
            attn_panels_pack(tape, (struct attn_packed){.matrix = r->weights.state->data,
                                                        .inner = out,
                                                        .columns = r->width}),
    };
    if (x)
        back.in_panels = attn_panels_pack(
            tape, (struct attn_packed){
                      .matrix = r->weights.in->data, .inner = out, .columns = r->in});
    take_weights(tape, r, &back);
    if (attn_tape_status(tape) != ATTN_OK)
        return;
    take_gradients(r, &back);
    all_steps_back(tape, r, &back);
    attn_panels_return(tape, &back.state_panels);
    attn_panels_return(tape, &back.in_panels);
    if (turns) {
        attn_recur_give_rows(tape, x, back.input, r->token, r->tokens, r->in, r->in, add);
        attn_tape_return(tape, back.input);
    }
    if (r->weights.has_bias)
        biases_back(tape, r, &back);
    before_back(tape, r, r->state, back.states);
    before_back(tape, r, r->memory, back.memories);
    attn_tape_return(tape, back.states);
    attn_tape_return(tape, back.memories);
    if (is_gru)
        attn_tape_return(tape, back.recurrent);
}

/* Packed matrices in memory of the tape, and the product that packs x. */
#include "tensor/panels.h"

struct attn_packed attn_panels_pack(attn_tape *tape, struct attn_packed given)
{
    const struct attn_rows *const loops = attn_tape_rows(tape);
    given.memory = attn_tape_borrow(
        tape, loops->packed_floats(given.inner, given.columns, given.few_rows));
    if (given.memory)
        loops->pack(&given);
    return given;
}

void attn_panels_return(attn_tape *tape, const struct attn_packed *packed)
{
    attn_tape_return(tape, packed->memory);
}

/* x is packed a few rows at a time, which are still near when they are multiplied. */
void attn_weight_gradient_take(attn_tape *tape, const struct attn_weight_gradient *g)
{
    size_t first = 0;
    do {
        const size_t left = g->rows - first;
        const size_t rows = left < ATTN_PANEL_STEPS ? left : ATTN_PANEL_STEPS;
        const struct attn_packed x = attn_panels_pack(
            tape, (struct attn_packed){
                      .matrix = g->x + first * g->in, .inner = rows, .columns = g->in});
        if (!x.memory)
            return;
        attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
            .y = g->to,
            .x = g->dy + first * g->out,
            .matrix = &x,
            .rows = g->out,
            .add = g->add || first > 0,
            .turned = g->out,
        });
        attn_panels_return(tape, &x);
        first += rows;
    } while (first < g->rows);
}

/* Packed matrices in memory of the tape, and the product that packs x. */
#include "tensor/panels.h"

float *attn_panels_pack(attn_tape *tape, const float *matrix, size_t inner,
                        size_t columns, bool turned)
{
    const size_t last = (size_t)ATTN_PANEL_COLUMNS - 1;
    float *const panels = attn_tape_borrow(tape, inner * ((columns + last) & ~last));
    if (panels)
        attn_tape_rows(tape)->pack(panels, matrix, inner, columns, turned);
    return panels;
}

/* x is packed a few rows at a time, which are still near when they are multiplied. */
void attn_weight_gradient_take(attn_tape *tape, const struct attn_weight_gradient *g)
{
    float *const bands = attn_tape_borrow(tape, ATTN_BAND_FLOATS);
    size_t first = 0;
    do {
        const size_t left = g->rows - first;
        const size_t rows = left < ATTN_PANEL_STEPS ? left : ATTN_PANEL_STEPS;
        float *const panels =
            attn_panels_pack(tape, g->x + first * g->in, rows, g->in, false);
        if (!panels || !bands)
            return;
        attn_tape_rows(tape)->multiply(&(struct attn_panel_product){
            .y = g->to,
            .x = g->dy + first * g->out,
            .panels = panels,
            .rows = g->out,
            .inner = rows,
            .columns = g->in,
            .add = g->add || first > 0,
            .turned = g->out,
            .bands = bands,
        });
        attn_tape_return(tape, panels);
        first += rows;
    } while (first < g->rows);
    attn_tape_return(tape, bands);
}

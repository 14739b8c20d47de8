/* The loops of one instruction set.  The build compiles this file once per set, each time
 * with other flags and another ATTN_ROWS; the table is the only symbol that leaves the
 * object. */
#include "tensor/rows_elements.h"
#include "tensor/rows_gate.h"
#include "tensor/rows_loss.h"
#include "tensor/rows_norm.h"
#include "tensor/rows_panels.h"
#if VF_TILES
#    include "tensor/rows_parts.h"
#endif
#include "tensor/rows_product.h"
#include "tensor/rows_recurrent.h"
#include "tensor/rows_rms.h"
#include "tensor/rows_turn.h"

const struct attn_rows ATTN_ROWS = {
    .isa = ATTN_ISA_NAME,
    .add = add_rows,
    .scale = scale_rows,
    .drop = drop_rows,
    .drop_backward = drop_backward,
    .activate = activate,
    .activate_backward = activate_backward,
    .norm = norm,
    .norm_backward = norm_backward,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .gate = gate_rows,
    .gate_backward = gate_rows_backward,
    .turn = turn,
    .sum = sum_rows,
    .dot = dot,
#if VF_TILES
    .packed_floats = either_floats,
    .pack = pack_either,
    .multiply = multiply_either,
#else
    .packed_floats = panels_floats,
    .pack = pack_panels,
    .multiply = multiply_panels,
#endif
    .cross_entropy = cross_entropy,
    .cell_step = cell_step,
    .cell_back = cell_back,
};

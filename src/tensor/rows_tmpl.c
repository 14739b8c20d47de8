/* The loops of one instruction set.  The build compiles this file once per set, each time
 * with other flags and another ATTN_ROWS; the table is the only symbol that leaves the
 * object. */
#include "tensor/rows_elements.h"
#include "tensor/rows_loss.h"
#include "tensor/rows_norm.h"
#include "tensor/rows_product.h"
#include "tensor/rows_recurrent.h"

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
    .fill = fill_rows,
    .sum = sum_rows,
    .dot = dot,
    .cross_entropy = cross_entropy,
    .cell_step = cell_step,
    .cell_back = cell_back,
};

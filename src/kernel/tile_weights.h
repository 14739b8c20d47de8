/* The softmax of columns in the pipeline, two keys at a time, so that it can be woven
 * into products of tiles: what softmax.h does with a whole column, and the weights split
 * into parts while they are in registers.  Two keys take some hundred cycles, to which
 * what is asked beside the sum adds a test each. */
#ifndef ATTN_KERNEL_TILE_WEIGHTS_H
#define ATTN_KERNEL_TILE_WEIGHTS_H

#include "kernel/tile_scores.h"

enum {
    BLOCK_GROUPS = ATTN_BLOCK_KEYS / TILE_STEP,
    COLUMN_WEIGHTS = BLOCK_GROUPS * BF16_PARTS * TILE_FLOATS
};

/* What is kept of a column besides the sum of its weights: nothing; or entropy and, by
 * sums, distances, which stay in registers, where no score is −∞; or whatever is asked
 * for. */
enum noting { NOTE_NOTHING, NOTE_ROWS, NOTE_ALL };

struct column_notes {
    const struct pipe_column *column;
    struct column as; /* in softmax */
    size_t row;       /* of the next key */
    vf entropy_sum, distance_sum, signed_sum, distance;
    enum distance distances;
    bool uses_each; /* a weight is not only multiplied */
};

/* Rows of a bias as the lines of memory that they lie in. */
struct bias_lines {
    uintptr_t at, stride;
    size_t line, in_row; /* of the row at hand */
    size_t rows;         /* still to be called */
};

/* Two of the columns, which are one below the other if they are the same panel's: those
 * of others are few.  Nothing where keys do not lie side by side. */
INLINE struct bias_lines lines_of_bias(const struct pipe_column *c, size_t columns)
{
    const struct attn_matrix *const bias = &c->show->block.bias;
    const uintptr_t bytes = bias->type == ATTN_F32 ? 4 : 2;
    const uintptr_t stride = (uintptr_t)bias->row_stride * bytes;
    if (!bias->x || bias->element_stride != 1 || bias->row_stride == 0)
        return (struct bias_lines){.rows = 0};
    const size_t rows = bias->rows - c->lane;
    return (struct bias_lines){
        .at = (uintptr_t)bias->x + c->lane * stride,
        .stride = stride,
        .in_row = c->show->block.keys * bytes / ATTN_LINE_BYTES + 1,
        .rows = rows < columns * VF_LANES ? rows : columns * VF_LANES,
    };
}

INLINE void call_next_line(struct bias_lines *lines)
{
    call_line(lines->at + lines->line * ATTN_LINE_BYTES);
    if (++lines->line == lines->in_row) {
        lines->at += lines->stride;
        lines->line = 0;
        lines->rows--;
    }
}

/* Where the weighing of a column begins: with the pair in which its first key is. */
struct weighing_start {
    const float *scores;
    float *weights, *sum;
    vf shift;
    size_t pairs, in_group; /* of the column, and until a group of keys ends */
};

/* Scores on their way to weights, of one column after the other.  Pairs are counted over
 * both.  Its members stay in registers as long as no function takes them all. */
struct weighing {
    const float *scores; /* of the next pair */
    float *weights;
    vf shift, sum, entropy_sum, sum_of_sums; /* of the column; the last two of rows */
    size_t pair, stop, end_pair, end;        /* the next, and where a group of keys or the
                                              * column, the column, and all end */
    size_t due, share;                       /* pairs that are due, in 2⁻⁸ */
    const struct weighing_start *at;
    struct column_notes *notes; /* the column's, or NULL */
    struct bias_lines lines;    /* that are called meanwhile */
    struct attn_lines ahead;    /* likewise, of the next block */
};

static void clear_pairs(float *weights, size_t begin, size_t end)
{
    for (size_t pair = begin; pair < end; pair++)
        for (size_t part = 0; part < BF16_PARTS; part++)
            vf_store(weights + place_of_pair(pair, VF_LANES, BF16_PARTS) +
                         part * TILE_FLOATS,
                     vf_set1(0.0f));
}

INLINE struct weighing_start start_of(const struct pipe_column *c)
{
    struct attn_panel *const panel = c->show->panel;
    const size_t first = c->begin / 2;
    return (struct weighing_start){
        .scores = c->scores + 2 * first * VF_LANES,
        .weights = c->weights + place_of_pair(first, VF_LANES, BF16_PARTS),
        .sum = panel->sum + c->lane,
        .shift = shift_from(vf_load(panel->reference + c->lane)),
        .pairs = (c->end + 1) / 2 - first,
        .in_group = TILE_EDGE - first % TILE_EDGE,
    };
}

/* Takes the shift from scores of which some may be −∞, and leaves them finite. */
static __attribute__((noinline)) void shift_scores(struct weighing_start *start,
                                                   struct pipe_column *c)
{
    const vf least = vf_set1(2.0f * VF_EXP_FLOOR); /* whose weight is 0 */
    for (size_t row = c->begin; row < c->end; row++) {
        float *const at = c->scores + row * VF_LANES;
        vf_store(at, vf_max(least, vf_load(at) - start->shift));
    }
    start->shift = vf_set1(0.0f);
}

INLINE void begin_column(struct weighing *w, const struct weighing_start *at)
{
    w->at = at;
    w->scores = at->scores;
    w->weights = at->weights;
    w->shift = at->shift;
    w->sum = w->entropy_sum = w->sum_of_sums = vf_set1(0.0f);
    w->end_pair = w->pair + at->pairs;
    w->stop = w->pair + (at->in_group < at->pairs ? at->in_group : at->pairs);
}

/* For more than products. */
INLINE bool uses_each_weight(const struct attn_sweep *sweep)
{
    return sweep->classes > 0 || sweep->dropout;
}

static void begin_notes(struct column_notes *notes, const struct column *as,
                        const struct pipe_column *column)
{
    const size_t other = column->begin % 2; /* key of the first pair */
    notes->column = column;
    notes->row = column->begin - other;
    notes->as = *as;
    notes->entropy_sum = notes->distance_sum = notes->signed_sum = vf_set1(0.0f);
    notes->distances = distance_sums_of(&notes->as);
    notes->distance =
        distance_to(notes->as.first_key - (int64_t)other, notes->as.panel, notes->as.v);
    notes->uses_each = uses_each_weight(as->sweep);
}

static void end_notes(const struct column_notes *notes, vf sum)
{
    struct attn_panel *const panel = notes->as.panel;
    if (notes->as.sweep->entropy)
        add_in_place(panel->entropy_sum + notes->as.lane, notes->entropy_sum);
    vf signed_sum = notes->signed_sum;
    if (notes->distances == DISTANCE_BY_SUMS) {
        const vf first = distance_to(notes->as.first_key, panel, notes->as.v);
        signed_sum = distance_by_sums(first, notes->as.keys, sum, signed_sum);
    }
    add_distances(&notes->as, notes->distances, notes->distance_sum, signed_sum);
}

/* What becomes of a weight before it is multiplied: it is summed by classes, or dropped.
 */
static vf use_weight(const struct column_notes *notes, size_t row, vf weight)
{
    const struct pipe_column *const c = notes->column;
    const struct column *const as = &notes->as;
    const struct attn_sweep *const sweep = as->sweep;
    const int64_t key = c->show->block.first_key + (int64_t)(row - c->first_row);
    if (row < c->begin || row >= c->end)
        return weight;
    if (sweep->classes > 0)
        add_in_place(as->panel->class_sum + sweep->key_class[key] * as->width + c->lane,
                     weight);
    return sweep->dropout ? dropped_weight(as, key, weight) : weight;
}

INLINE void add_pair_distances(struct column_notes *notes, const vf weight[2])
{
    for (size_t i = 0; i < 2; i++) {
        notes->distance_sum =
            vf_fma(weight[i], vf_abs(notes->distance), notes->distance_sum);
        notes->signed_sum = vf_fma(weight[i], notes->distance, notes->signed_sum);
        notes->distance -= 1.0f;
    }
}

/* Weights are 0 where the clamp matters. */
INLINE vf add_entropy(vf sum, vf weight, vf exponent)
{
    return vf_fma(weight, vf_max(vf_set1(VF_EXP_FLOOR), exponent), sum);
}

/* The key after the column's last adds nothing. */
INLINE void add_sums_of(struct column_notes *notes, const vf sums[2])
{
    notes->signed_sum += sums[0];
    if (notes->row + 1 < notes->column->end)
        notes->signed_sum += sums[1];
}

/* Statistics of the next pair, and what else becomes of its weights.  sums: of weights,
 * with the first and with both. */
INLINE void note_pair(struct column_notes *notes, const vf exponent[2], vf weight[2],
                      const vf sums[2])
{
    const struct attn_sweep *const sweep = notes->as.sweep;
    const size_t row = notes->row;
    if (sweep->entropy) {
        const vf sum = add_entropy(notes->entropy_sum, weight[0], exponent[0]);
        notes->entropy_sum = add_entropy(sum, weight[1], exponent[1]);
    }
    if (notes->distances == DISTANCE_BY_SUMS)
        add_sums_of(notes, sums);
    else if (notes->distances != DISTANCE_NONE)
        add_pair_distances(notes, weight);
    if (notes->uses_each)
        for (size_t i = 0; i < 2; i++)
            weight[i] = use_weight(notes, row + i, weight[i]);
    notes->row = row + 2;
}

INLINE void go_past_stop(struct weighing *w, const enum noting noting)
{
    if (w->stop != w->end_pair) {
        const size_t next = w->stop + TILE_EDGE;
        w->weights += (BF16_PARTS - 1) * TILE_FLOATS;
        w->stop = next < w->end_pair ? next : w->end_pair;
        return;
    }
    add_in_place(w->at->sum, w->sum);
    if (noting == NOTE_ROWS) {
        w->notes->entropy_sum = w->entropy_sum;
        w->notes->signed_sum = w->sum_of_sums;
    }
    if (noting != NOTE_NOTHING)
        end_notes(w->notes++, w->sum);
    if (w->pair < w->end)
        begin_column(w, w->at + 1);
}

INLINE void weigh_pair(struct weighing *w, const enum noting noting)
{
    const vf exponent[2] = {vf_load(w->scores) - w->shift,
                            vf_load(w->scores + VF_LANES) - w->shift};
    vf weight[2] = {vf_exp_flushed(exponent[0]), vf_exp_flushed(exponent[1])};
    const vf first_sum = w->sum + weight[0];
    w->sum = first_sum + weight[1];
    if (noting == NOTE_ROWS) {
        w->entropy_sum = vf_fma(weight[0], exponent[0], w->entropy_sum);
        w->entropy_sum = vf_fma(weight[1], exponent[1], w->entropy_sum);
        w->sum_of_sums = w->sum_of_sums + first_sum + w->sum;
    } else if (noting == NOTE_ALL) {
        note_pair(w->notes, exponent, weight, (const vf[]){first_sum, w->sum});
    }
    store_parts(w->weights, TILE_FLOATS, weight[0], weight[1]);
    w->scores += 2 * VF_LANES;
    w->weights += VF_LANES;
    if (++w->pair == w->stop)
        go_past_stop(w, noting);
}

enum { LINES_OF_SHARE = 3 }; /* of the next block */

/* A share of what is left, after which products go on. */
INLINE void weigh_share(struct weighing *w, const enum noting noting)
{
    w->due += w->share;
    for (size_t i = 0; w->lines.rows > 0 && i < 2; i++)
        call_next_line(&w->lines);
    for (size_t i = 0; w->ahead.count > 0 && i < LINES_OF_SHARE; i++) {
        call_line(w->ahead.first);
        w->ahead.first += (uintptr_t)w->ahead.stride;
        w->ahead.count--;
    }
    while (w->pair < w->due >> 8)
        weigh_pair(w, noting);
}

INLINE void weigh_share_of_nothing(void *weighing)
{
    weigh_share(weighing, NOTE_NOTHING);
}

INLINE void weigh_share_of_rows(void *weighing)
{
    weigh_share(weighing, NOTE_ROWS);
}

INLINE void weigh_share_of_all(void *weighing)
{
    weigh_share(weighing, NOTE_ALL);
}

#endif

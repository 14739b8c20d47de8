/* What the parts of the terminal picture share: styles, labels that keep their columns,
 * cells.  Private to the terminal. */
#ifndef ATTN_DRAW_TERMINAL_CANVAS_H
#define ATTN_DRAW_TERMINAL_CANVAS_H

#include "draw/draw.h"
#include "inspect/sentence.h"

typedef struct canvas {
    attn_buffer out;
    const attn_record *record;
    const attn_summary *summary;
    const attn_draw_options *options;
    attn_spelling spelling;
} canvas;

typedef enum canvas_style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_DIM,
    STYLE_AMBER
} canvas_style;

void canvas_put(canvas *c, canvas_style style, const char *text);
__attribute__((format(printf, 3, 4))) void canvas_print(canvas *c, canvas_style style,
                                                        const char *format, ...);
void canvas_spaces(canvas *c, int64_t count);

/* A title and, dim, what it is about; on the next line where one does not hold both. */
void canvas_title(canvas *c, const char *title, const char *about);

/* unicode, or its stand-in where there is only ASCII. */
const char *canvas_mark(const canvas *c, const char *unicode, const char *ascii);

/* attn_put_label in the canvas's spelling. */
int64_t canvas_label(const canvas *c, attn_buffer *label, const attn_record_word *word,
                     int64_t columns);

/* Spells text, which begins `indent` columns into the line, and puts what does not fit on
 * further lines, as far to the right, at most `lines` of them. */
void canvas_wrap(canvas *c, canvas_style style, attn_spelling spelling, const char *text,
                 int64_t indent, int64_t lines);

/* Text whose clauses are two spaces apart; goes on below where one does not fit. */
void canvas_flow(canvas *c, canvas_style style, int64_t indent, const char *text);

/* A weight on its colour, or between shades: "░05░" (width 4) or "░05" (width 3); a dot
 * when it is faint. */
void canvas_cell(canvas *c, double weight, int64_t visible, int width);
/* A cell that the row cannot see. */
void canvas_hidden_cell(canvas *c, int width);
bool canvas_faint(const canvas *c, double weight);
/* Text on the ramp's colour at a position (a head of the grid). */
void canvas_on_ramp(canvas *c, double position, const char *text);

/* Labels of keys [first, end) over cells `width` wide, on 6 − width lines in turn, with a
 * tick in the lines below where there is room. */
void canvas_header(canvas *c, const attn_record_words *keys, int64_t first, int64_t end,
                   int64_t left, int width);

/* The parts of the picture. */
typedef struct canvas_matrix {
    const attn_record_part *part;
    const float *weights; /* [rows][keys] */
    const int64_t *rows;  /* which rows, or NULL for all */
    int64_t row_count;
    bool judged; /* rows under the convention `clear` are marked */
} canvas_matrix;
void canvas_draw_matrix(canvas *c, const canvas_matrix *matrix);
/* What shades, numbers and marks of cells `width` wide mean. */
void canvas_draw_legend(canvas *c, const attn_record_part *part, bool judged, int width);
/* At most `most` rows in their order, to stand for all: those with the largest weights,
 * and the last one where later words are hidden.  Returns how many. */
int64_t canvas_pick_rows(const canvas_matrix *matrix, int64_t *rows, int64_t most);
/* The same over the places of a picture: for each row a small map. */
void canvas_draw_places(canvas *c, const canvas_matrix *matrix);
void canvas_draw_heads(canvas *c);
void canvas_draw_row_of_heads(canvas *c, int64_t part, int64_t layer, int64_t row);
void canvas_draw_row_in_full(canvas *c, int64_t part, int64_t layer, int64_t head,
                             int64_t row);

#endif

/* A summary in words, the same in every picture: labels, numbers, the verdict, and a line
 * for each head worth a look. */
#ifndef ATTN_INSPECT_SENTENCE_H
#define ATTN_INSPECT_SENTENCE_H

#include "inspect/buffer.h"
#include "inspect/summary.h"

/** How words are spelled. */
typedef enum attn_spelling {
    ATTN_SPELL_PLAIN, /* "was²": for formats that escape by themselves and take any text
                       */
    ATTN_SPELL_TERMINAL, /* "was²", control characters as \x1b, right-to-left isolated */
    ATTN_SPELL_ASCII     /* "was#2", accents dropped, the rest as "?" */
} attn_spelling;

/** Text without its word's mark; for source and translation. */
void attn_put_text(attn_buffer *buffer, const char *text, attn_spelling spelling);
/** A word with its mark: ¹ ² or #1 #2 where it occurs more than once. */
void attn_put_word(attn_buffer *buffer, const attn_record_word *word,
                   attn_spelling spelling);
/** The same in at most `columns` columns: what is longer ends in "…" ("~"), before its
 * mark, which stays.  Returns the columns it takes. */
int64_t attn_put_label(attn_buffer *buffer, const attn_record_word *word,
                       attn_spelling spelling, int64_t columns);
/** ".68", "1.0", ".00": two digits, no leading zero, three columns. */
void attn_put_weight(attn_buffer *buffer, double weight);
/** What a layer's map is of: "mean of 4 heads", "its one head". */
void attn_put_mean(attn_buffer *buffer, int64_t heads);

enum { ATTN_VERDICT_LINES = 4 };

/** What a matrix of the part answers: "Which source word each written word read". */
const char *attn_question(const attn_record *record, const attn_record_part *part);

/** How many lines the verdict has (0 of several heads without cross or pooling), and each
 * of them, without line end.  Line 0 is the count, or the words a label was read from, or
 * the links of a model's only head; the others name what to look at.
 * @param columns  where words are listed, as many as fit, and a count of the rest (source
 *                 words left unread: as many as fit into two lines); 0 for all. */
int64_t attn_verdict_lines(const attn_record *record, const attn_summary *summary);
void attn_put_verdict(attn_buffer *buffer, const attn_record *record,
                      const attn_summary *summary, int64_t line, attn_spelling spelling,
                      int64_t columns);

/** "entropy .18; "chat" reads "cat" .99": clauses that do not fit into columns are left
 * out from the end (the first always stays); 0 for all. */
void attn_put_finding(attn_buffer *buffer, const attn_record *record,
                      const attn_finding *finding, attn_spelling spelling,
                      int64_t columns);

#endif

/* What is measured from a record: roles of heads, the alignment, the verdict, and the
 * heads worth a look.  Numbers and word pairs only: sentence.h puts them in words, draw
 * in pictures. */
#ifndef ATTN_INSPECT_SUMMARY_H
#define ATTN_INSPECT_SUMMARY_H

#include "inspect/record.h"

/** Where a head's weight goes.  Masses are means over the rows that see two keys or more.
 */
typedef enum attn_role {
    ATTN_ROLE_MIXED,
    ATTN_ROLE_PREVIOUS,  /* the word before; self-attention only, as next and own */
    ATTN_ROLE_NEXT,      /* the word after */
    ATTN_ROLE_OWN,       /* the word itself */
    ATTN_ROLE_FIRST,     /* the first key */
    ATTN_ROLE_DELIMITER, /* punctuation, and specials */
    ATTN_ROLE_SAME, /* other keys of the same text, over rows that have one; cross: keys
                     * of the row's text */
    ATTN_ROLE_BROAD /* its mass is the entropy */
} attn_role;
enum { ATTN_ROLES = ATTN_ROLE_BROAD + 1 };

/** Thresholds.  They are conventions: pictures print them, users set them.  What is
 * printed beside the judgement (clear, broad) is judged as printed, in hundredths. */
typedef struct attn_conventions {
    double clear;  /* .50: a row reads one word when its top weight is this or more, */
    double lead;   /* .10: and this much more than the second; not in a picture */
    double strong; /* .50: mass of a role that is sure (a capital) */
    double weak;   /* .30: mass of a role that shows (a small letter) */
    double lift;   /* 1.4: and this many times the mass of an even spread */
    double broad;  /* .80: normalised entropy of a broad head */
    double faint;  /* .05: cells under this show a dot */
    int64_t same_rows; /* 3: fewest rows with a repeated word for the role */
    double unread;     /* .20: a source word is hardly read when no word written gives */
    double unread_share;  /* it this much, in a run whose mean is under .50 of an even */
    int64_t unread_words; /* spread, and which has 3 words or more */
    int64_t far_distance; /* 2: fewest words between the ends of a far link */
} attn_conventions;

void attn_conventions_init(attn_conventions *conventions);

typedef struct attn_head_summary {
    attn_role role;
    bool strong;               /* a capital letter */
    double mass, even;         /* of the role, and what an even spread would give it */
    double entropy;            /* normalised, as in the record; −1 for none */
    double masses[ATTN_ROLES]; /* of every role, 0 where it does not apply */
    double evens[ATTN_ROLES];
} attn_head_summary;

typedef struct attn_part_summary {
    attn_head_summary *heads; /* [layers][heads] */
    double *layer_entropy;    /* [layers]: mean over its heads */
} attn_part_summary;

/** A row and the key it gives weight to. */
typedef struct attn_link {
    int64_t row, key;
    double weight;
} attn_link;

/** Keys first to end − 1. */
typedef struct attn_run {
    int64_t first, end;
} attn_run;

typedef enum attn_finding_kind {
    ATTN_FINDING_SHARPEST,   /* value: entropy */
    ATTN_FINDING_FAR,        /* value: sum of its two links */
    ATTN_FINDING_SAME,       /* value: mass where words repeat */
    ATTN_FINDING_DELIMITERS, /* value: mass, even: of an even spread; its link's weight is
                              * what the row gives to all delimiters, its key −1 */
    ATTN_FINDING_BROADEST    /* value: entropy; its link is the row with the lowest top */
} attn_finding_kind;
enum { ATTN_FINDINGS = ATTN_FINDING_BROADEST + 1, ATTN_LINKS = 3 };

typedef struct attn_finding {
    attn_finding_kind kind;
    int64_t part; /* index into record->parts */
    int64_t layer, head;
    double value, even;
    attn_link links[2];
    int64_t link_count;
} attn_finding;

typedef struct attn_summary {
    attn_conventions conventions;
    attn_part_summary parts[ATTN_RECORD_PARTS];

    /* The alignment: mean of the heads of the cross layer, or of pooling's, with the
     * lowest mean entropy. */
    int64_t alignment_part;  /* index into record->parts, −1 where there is neither */
    int64_t alignment_layer; /* from 0 */
    float *alignment;        /* [rows][keys] */
    attn_link *top; /* [rows]: the largest weight of each row, lowest key on a tie; in a
                     * picture with the weight of the eight places around it */
    double *second; /* [rows]: the largest of the other weights; in a picture 0 */

    /* The verdict about the words written: the rows of a cross part that are no mark of
     * the model.  Clear is one whose largest weight is on a word, is `clear` or more,
     * and leads the second by `lead`. */
    int64_t judged_count, clear_count;
    int64_t *unclear, unclear_count;       /* the other words, in order */
    int64_t *at_special, at_special_count; /* of these, those whose top key is a mark,
                                            * but for punctuation and the first word:
                                            * good translations have these there too */

    /* Source words in a row that no word written read much, in order: a text that was
     * dropped, where it is long.  Pairs do not count: "in the" goes unread in good
     * translations. */
    attn_run *unread;
    int64_t unread_count;

    attn_finding findings[ATTN_FINDINGS]; /* by kind, no head twice; none of a
                                           * model with one head */
    int64_t finding_count;

    /* Of a model whose one head is of self-attention: its heaviest links from one word to
     * another, at most one of a row and none of delimiters, the heaviest first. */
    attn_link links[ATTN_LINKS];
    int64_t link_count;
} attn_summary;

/** @param conventions  NULL for the defaults. */
ATTN_CHECKED attn_status attn_summary_create(attn_summary **summary,
                                             const attn_record *record,
                                             const attn_conventions *conventions,
                                             attn_error *error);
/** NULL is fine. */
void attn_summary_destroy(attn_summary *summary);

const attn_head_summary *attn_summary_head(const attn_summary *summary,
                                           const attn_record *record, int64_t part,
                                           int64_t layer, int64_t head);

/** The alignment's row is a word written that has no clear source. */
bool attn_is_unclear(const attn_summary *summary, int64_t row);

/** "previous", …; the letter is 'P', 'N', 'O', 'F', 'D', 'S', 'B', small when not strong,
 * and 0 for mixed (drawn "·", "-" without Unicode). */
const char *attn_role_name(attn_role role);
char attn_role_letter(const attn_head_summary *head);
/** "sharpest", "far links", "same word", "delimiters", "broadest" */
const char *attn_finding_name(attn_finding_kind kind);

/** A number as it is printed: hundredths, to nearest. */
int attn_hundredths(double value);
/** It reaches the threshold as it is printed: where the number stands beside the
 * judgement, nothing says that ".50" falls short of ".50". */
bool attn_prints_as(double value, double threshold);

/** Is punctuation and nothing else, or special. */
bool attn_record_word_delimits(const attn_record_word *word);

#endif

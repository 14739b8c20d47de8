/* What heads do, in words: the role of one, and what the letters of a grid mean. */
#ifndef ATTN_DRAW_ROLES_H
#define ATTN_DRAW_ROLES_H

#include "inspect/buffer.h"
#include "inspect/summary.h"

/** The roles that occur among heads. */
typedef struct attn_roles {
    bool occurs[ATTN_ROLES];
    bool sized; /* a letter occurs that is a capital or small by its head's mass */
    const attn_head_summary *only; /* the head, where there is one alone; or NULL */
} attn_roles;

/** Of all parts' heads, or of those of one.  @param kind  attn_part, or −1 */
attn_roles attn_roles_of(const attn_record *record, const attn_summary *summary,
                         int kind);

/** "What the heads do", or does where it is one. */
const char *attn_roles_title(const attn_roles *roles);
/** "o", "·" */
void attn_put_role_letter(attn_buffer *buffer, const attn_head_summary *head);
/** "leans to previous word .34", "same word .57", "broad", "mixed" */
void attn_put_role(attn_buffer *buffer, const attn_head_summary *head);
/** "P previous", "S same word": letter and word of each role that occurs, but for mixed.
 * @param space    within one
 * @param between  two */
void attn_put_role_names(attn_buffer *buffer, const attn_roles *roles, const char *space,
                         const char *between);
/** What the letters that occur mean and from when on, with the conventions in force; of
 * one head alone its letter and its role. */
void attn_put_letters(attn_buffer *buffer, const attn_roles *roles,
                      const attn_conventions *conventions);

#endif

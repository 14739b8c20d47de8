/* The heads worth a look, and source words left unread; private to inspect. */
#ifndef ATTN_INSPECT_FINDINGS_H
#define ATTN_INSPECT_FINDINGS_H

#include "inspect/summary.h"

/* Fills summary->findings from the parts measured. */
attn_status attn_find(attn_summary *summary, const attn_record *record);
/** Fills summary->unread from the alignment. */
attn_status attn_find_unread(attn_summary *summary, const attn_record *record);

#endif

/* The heads worth a look; private to inspect. */
#ifndef ATTN_INSPECT_FINDINGS_H
#define ATTN_INSPECT_FINDINGS_H

#include "inspect/summary.h"

/* Fills summary->findings from the parts measured. */
attn_status attn_find(attn_summary *summary, const attn_record *record);

#endif

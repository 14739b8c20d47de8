/* How sharply heads look, to be watched while a model trains: entropy tells a head that
 * has collapsed onto one key, or that never began to choose. */
#ifndef ATTN_TRAIN_HEADS_H
#define ATTN_TRAIN_HEADS_H

#include "nn/observer.h"
#include "train/shards.h"

/** The head whose entropy, divided by the log of the number of visible keys and averaged
 * over queries that see two keys or more, is lowest. */
typedef struct attn_lowest_head {
    double entropy; /* 0 looks at one key, 1 at all alike; NAN: there is no head */
    attn_part part;
    int64_t layer, head; /* from 0 */
} attn_lowest_head;

/** Over task->valid's examples list[0] to list[count − 1].
 * @param shards  of one shard. */
ATTN_CHECKED attn_status attn_heads_measure(attn_shards *shards, const attn_task *task,
                                            const size_t *list, size_t count,
                                            attn_lowest_head *lowest, attn_error *error);

#endif

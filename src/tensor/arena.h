/* Memory that is handed out piece by piece and taken back all at once: a few large
 * blocks, kept for the next use until the arena is freed. */
#ifndef ATTN_TENSOR_ARENA_H
#define ATTN_TENSOR_ARENA_H

#include <stddef.h>

struct attn_arena_block;

/* All zero is an empty arena. */
typedef struct attn_arena {
    struct attn_arena_block *first, *current;
    size_t used;  /* bytes of the current block */
    size_t total; /* bytes of all blocks */
} attn_arena;

/* Aligned to 64 bytes, of any content.  NULL when memory is refused. */
void *attn_arena_allocate(attn_arena *arena, size_t bytes);

/* Everything handed out is forgotten; the memory stays with the arena. */
void attn_arena_rewind(attn_arena *arena);

void attn_arena_free(attn_arena *arena);

#endif

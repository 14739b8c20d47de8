/* The arena: a chain of blocks, each about as large as all before it together. */
#include "tensor/arena.h"
#include "base/pages.h"
#include <stdint.h>
#include <stdlib.h>

enum {
    ALIGNMENT = 64,
    SMALLEST_BLOCK_BYTES = 1 << 18,
    LARGEST_BLOCK_BYTES = 1 << 26 /* unless one piece is larger */
};

struct attn_arena_block {
    struct attn_arena_block *next;
    size_t bytes; /* the header's own included */
};

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static struct attn_arena_block *block_create(const attn_arena *arena, size_t bytes)
{
    size_t wanted = arena->total;
    if (wanted < SMALLEST_BLOCK_BYTES)
        wanted = SMALLEST_BLOCK_BYTES;
    if (wanted > LARGEST_BLOCK_BYTES)
        wanted = LARGEST_BLOCK_BYTES;
    if (wanted < bytes + ALIGNMENT)
        wanted = bytes + ALIGNMENT;
    if (wanted >= ATTN_LARGE_PAGE_BYTES)
        wanted = round_up(wanted, ATTN_LARGE_PAGE_BYTES);
    struct attn_arena_block *const block = attn_pages_allocate(wanted);
    if (!block)
        return NULL;
    *block = (struct attn_arena_block){.bytes = wanted}; /* the last of the chain */
    return block;
}

void *attn_arena_allocate(attn_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = round_up(bytes, ALIGNMENT);
    struct attn_arena_block *const current = arena->current;
    if (!current || bytes > current->bytes - arena->used) {
        struct attn_arena_block **place = current ? &current->next : &arena->first;
        /* Blocks that are too small are left out until the next rewind, and not joined by
         * another: in a training whose batches differ in size one would come now and
         * then, and fresh pages cost more than a step. */
        while (*place && bytes > (*place)->bytes - ALIGNMENT)
            place = &(*place)->next;
        if (!*place) {
            *place = block_create(arena, bytes);
            if (!*place)
                return NULL;
            arena->total += (*place)->bytes;
        }
        arena->current = *place;
        arena->used = ALIGNMENT; /* the header */
    }
    void *const memory = (char *)arena->current + arena->used;
    arena->used += bytes;
    return memory;
}

void attn_arena_rewind(attn_arena *arena)
{
    arena->current = NULL;
    arena->used = 0;
}

void attn_arena_free(attn_arena *arena)
{
    for (struct attn_arena_block *block = arena->first, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    *arena = (attn_arena){0};
}

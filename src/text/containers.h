/* The three containers that byte-pair encoding needs: a map of pairs, a map of byte
 * strings, a heap.  Each grows as needed; a false return is memory refused. */
#ifndef ATTN_TEXT_CONTAINERS_H
#define ATTN_TEXT_CONTAINERS_H

#include "attn/attention.h"

/* Grows *array, of elements of element_bytes, so that it holds at least `needed`. */
ATTN_CHECKED bool attn_grow(void *array, size_t *capacity, size_t needed,
                            size_t element_bytes);

/* (left, right) → value. */
typedef struct attn_pair_map {
    struct attn_pair_slot {
        int32_t left, right, value; /* left −1: free */
    } * slots;
    size_t capacity, count;
} attn_pair_map;

/* The value of a pair, or −1. */
int32_t attn_pair_map_find(const attn_pair_map *map, int32_t left, int32_t right);
/* The pair must not be there yet. */
ATTN_CHECKED bool attn_pair_map_add(attn_pair_map *map, int32_t left, int32_t right,
                                    int32_t value);

/* Distinct byte strings, numbered from 0 in the order they were added. */
typedef struct attn_string_set {
    char *bytes;
    size_t bytes_used, bytes_capacity;
    struct attn_string_place {
        size_t begin, length;
    } * places;
    size_t count, places_capacity;
    int32_t *slots; /* numbers, −1: free */
    size_t slot_count;
} attn_string_set;

/* Adds a string unless it is there, and tells its number. */
ATTN_CHECKED bool attn_string_set_add(attn_string_set *set, const char *bytes,
                                      size_t length, int32_t *number);
void attn_string_set_reset(attn_string_set *set);

/* The least entry first: by `first`, then by `second`. */
typedef struct attn_heap_entry {
    int64_t first;
    uint64_t second;
    int32_t value;
} attn_heap_entry;

typedef struct attn_heap {
    attn_heap_entry *entries;
    size_t count, capacity;
} attn_heap;

ATTN_CHECKED bool attn_heap_push(attn_heap *heap, attn_heap_entry entry);
/* The heap must not be empty. */
attn_heap_entry attn_heap_pop(attn_heap *heap);

#endif

/* Open addressing with linear probing, at most half full; a binary heap. */
#include "text/containers.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool attn_grow(void *array, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity)
        return true;
    size_t larger = *capacity < 8 ? 8 : *capacity;
    while (larger < needed && larger <= SIZE_MAX / 2)
        larger *= 2;
    if (larger < needed || larger > SIZE_MAX / 2 / element_bytes)
        return false;
    void *memory;
    memcpy(&memory, array,
           sizeof memory); /* array is a pointer to a pointer of any type */
    memory = realloc(memory, larger * element_bytes);
    if (!memory)
        return false;
    memcpy(array, &memory, sizeof memory);
    *capacity = larger;
    return true;
}

/* ---- Pairs ----------------------------------------------------------------------- */

static size_t hash_pair(int32_t left, int32_t right)
{
    uint64_t mixed = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    mixed *= 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio */
    return (size_t)(mixed ^ mixed >> 29);
}

/* The slot that holds the pair, or the free one where it would go. */
static struct attn_pair_slot *pair_slot(const attn_pair_map *map, int32_t left,
                                        int32_t right)
{
    size_t at = hash_pair(left, right) & (map->capacity - 1);
    while (map->slots[at].left >= 0 &&
           (map->slots[at].left != left || map->slots[at].right != right))
        at = (at + 1) & (map->capacity - 1);
    return &map->slots[at];
}

int32_t attn_pair_map_find(const attn_pair_map *map, int32_t left, int32_t right)
{
    if (map->capacity == 0)
        return -1;
    const struct attn_pair_slot *const slot = pair_slot(map, left, right);
    return slot->left < 0 ? -1 : slot->value;
}

static bool pair_map_enlarge(attn_pair_map *map)
{
    const size_t capacity = map->capacity ? map->capacity * 2 : 64;
    attn_pair_map larger = {malloc(capacity * sizeof *map->slots), capacity, map->count};
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < capacity; i++)
        larger.slots[i].left = -1;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].left >= 0)
            *pair_slot(&larger, map->slots[i].left, map->slots[i].right) = map->slots[i];
    free(map->slots);
    *map = larger;
    return true;
}

bool attn_pair_map_add(attn_pair_map *map, int32_t left, int32_t right, int32_t value)
{
    if (map->count >= map->capacity / 2 && !pair_map_enlarge(map))
        return false;
    struct attn_pair_slot *const slot = pair_slot(map, left, right);
    assert(slot->left < 0);
    *slot = (struct attn_pair_slot){left, right, value};
    map->count++;
    return true;
}

/* ---- Strings --------------------------------------------------------------------- */

static size_t hash_string(const char *bytes, size_t length)
{
    uint64_t mixed = 0xCBF29CE484222325u; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        mixed = (mixed ^ (unsigned char)bytes[i]) * 0x100000001B3u;
    return (size_t)(mixed ^ mixed >> 32);
}

static int32_t *string_slot(const attn_string_set *set, const char *bytes, size_t length)
{
    size_t at = hash_string(bytes, length) & (set->slot_count - 1);
    while (set->slots[at] >= 0) {
        const struct attn_string_place *const place = &set->places[set->slots[at]];
        if (place->length == length &&
            memcmp(set->bytes + place->begin, bytes, length) == 0)
            break;
        at = (at + 1) & (set->slot_count - 1);
    }
    return &set->slots[at];
}

static bool string_set_enlarge(attn_string_set *set)
{
    const size_t slot_count = set->slot_count ? set->slot_count * 2 : 1024;
    int32_t *const slots = malloc(slot_count * sizeof *slots);
    if (!slots)
        return false;
    free(set->slots);
    set->slots = slots;
    set->slot_count = slot_count;
    for (size_t i = 0; i < slot_count; i++)
        slots[i] = -1;
    for (size_t i = 0; i < set->count; i++) {
        const struct attn_string_place *const place = &set->places[i];
        *string_slot(set, set->bytes + place->begin, place->length) = (int32_t)i;
    }
    return true;
}

bool attn_string_set_add(attn_string_set *set, const char *bytes, size_t length,
                         int32_t *number)
{
    if (set->count >= set->slot_count / 2 && !string_set_enlarge(set))
        return false;
    int32_t *const slot = string_slot(set, bytes, length);
    if (*slot < 0) {
        if (set->count == INT32_MAX ||
            !attn_grow(&set->places, &set->places_capacity, set->count + 1,
                       sizeof *set->places) ||
            !attn_grow(&set->bytes, &set->bytes_capacity, set->bytes_used + length + 1,
                       1))
            return false;
        memcpy(set->bytes + set->bytes_used, bytes, length);
        set->places[set->count] = (struct attn_string_place){set->bytes_used, length};
        set->bytes_used += length;
        *slot = (int32_t)set->count++;
    }
    *number = *slot;
    return true;
}

void attn_string_set_reset(attn_string_set *set)
{
    free(set->bytes);
    free(set->places);
    free(set->slots);
    *set = (attn_string_set){0};
}

/* ---- Heap ------------------------------------------------------------------------ */

static bool before(const attn_heap_entry *a, const attn_heap_entry *b)
{
    return a->first != b->first ? a->first < b->first : a->second < b->second;
}

bool attn_heap_push(attn_heap *heap, attn_heap_entry entry)
{
    if (!attn_grow(&heap->entries, &heap->capacity, heap->count + 1, sizeof entry))
        return false;
    size_t at = heap->count++;
    while (at > 0 && before(&entry, &heap->entries[(at - 1) / 2])) {
        heap->entries[at] = heap->entries[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->entries[at] = entry;
    return true;
}

attn_heap_entry attn_heap_pop(attn_heap *heap)
{
    assert(heap->count > 0);
    const attn_heap_entry least = heap->entries[0];
    const attn_heap_entry last = heap->entries[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < heap->count &&
            before(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (child >= heap->count || !before(&heap->entries[child], &last))
            break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = last;
    return least;
}

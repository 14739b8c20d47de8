/* How a paged cache lies in memory, and how decoding looks into it. */
#ifndef ATTN_ATTENTION_CACHE_H
#define ATTN_ATTENTION_CACHE_H

#include "attn/cache.h"
#include "base/context.h"

/* Where the parts of one head lie in a page, in bytes from the head's beginning: keys
 * [page_keys][D], values [page_keys][Dv]; 8 bits lie in the order of attn_byte_of_key and
 * attn_byte_of_value, and have a scale for each of either. */
struct attn_page_layout {
    size_t value, key_scale, value_scale, head, page;
};

struct attn_cached_sequence {
    bool open;
    uint32_t generation; /* of this place: names of closed sequences stay unknown */
    int64_t length;
    int64_t *pages; /* [room]; those of length are in use */
    int64_t room;
};

struct attn_cache {
    attn_cache_options options;
    struct attn_page_layout layout;
    char *memory;        /* [pages][layout.page] */
    int64_t *references; /* [pages]: sequences that hold it */
    int64_t *free_pages; /* [pages]: the first free_count of them nobody holds */
    int64_t free_count;
    struct attn_cached_sequence *sequences;
    int64_t sequence_count; /* places, open or not */
};

/* What attn_decode attends to. */
struct attn_cached {
    const attn_cache *cache;
    const attn_batch *batch;
};

/* NULL if it is not open. */
struct attn_cached_sequence *attn_cache_find(const attn_cache *cache, int64_t sequence);

/* The same, and a message in function's name. */
ATTN_CHECKED attn_status attn_cache_look_up(attn_context *context,
                                            const attn_cache *cache, const char *function,
                                            int64_t sequence,
                                            struct attn_cached_sequence **found);

size_t attn_cache_element_bytes(const attn_cache *cache);

/* Keys of sequence number `index` of the batch. */
int64_t attn_cached_length(const struct attn_cached *cached, int64_t index);

static inline int64_t attn_cache_pages_of(const attn_cache *cache, int64_t keys)
{
    return (keys + cache->options.page_keys - 1) / cache->options.page_keys;
}

/* Rows from one key on, to the end of its page. */
struct attn_cached_rows {
    const void *key, *value;           /* of 8 bits: of the page's first key */
    size_t row;                        /* of 8 bits: the first one's place in the page */
    uint16_t *key_scale, *value_scale; /* NULL but for 8 bits; see attn_byte_scale */
    int64_t keys;                      /* to the end of the page */
};

/* Makes the sequence's table larger; false when memory is refused. */
ATTN_CHECKED bool attn_cache_make_room(struct attn_cached_sequence *sequence,
                                       int64_t pages);

struct attn_cached_rows attn_cache_rows(const attn_cache *cache,
                                        const struct attn_cached_sequence *sequence,
                                        int64_t hk, int64_t key);

#endif

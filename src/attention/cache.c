/* The life of a paged cache and of its sequences: pages go from the stock to sequences
 * and back.  A page that several sequences hold is counted, and copied by the first that
 * writes into it. */
#include "attention/cache.h"
#include "attention/problem.h"
#include "base/pages.h"
#include "kernel/decode_table.h"
#include <stdlib.h>
#include <string.h>

#define LARGEST_SIZE ((int64_t)1 << 20)
#define LARGEST_COUNT ((int64_t)1 << 40)
#define DEFAULT_PAGE_KEYS 128

/* ---- A cache --------------------------------------------------------------------------
 */

static size_t element_bytes(attn_cache_type type)
{
    return type == ATTN_CACHE_I8 ? 1 : attn_type_bytes((attn_type)type);
}

size_t attn_cache_element_bytes(const attn_cache *cache)
{
    return element_bytes(cache->options.type);
}

static attn_status check_options(attn_context *context, const attn_cache_options *options)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } sizes[] = {
        {"Hk", options->Hk, 1, LARGEST_SIZE},
        {"D", options->D, 1, LARGEST_SIZE},
        {"Dv", options->Dv, 1, LARGEST_SIZE},
        {"pages", options->pages, 0, LARGEST_COUNT},
        {"page_keys", options->page_keys, 0, LARGEST_SIZE},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
            return attn_context_fail(
                context, ATTN_EINVAL,
                "attn_cache_create: options.%s is %lld, expected %lld to %lld",
                sizes[i].name, (long long)sizes[i].value, (long long)sizes[i].least,
                (long long)sizes[i].most);
    if (element_bytes(options->type) == 0)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_cache_create: options.type is %d, expected one of "
                                 "attn_cache_type",
                                 (int)options->type);
    return ATTN_OK;
}

/* Every size is below 2^60: 2^20 keys of 2^20 elements of 2^20 heads overflow only when
 * multiplied, and that is checked. */
static bool lay_out(struct attn_page_layout *layout, const attn_cache_options *options)
{
    const size_t keys = (size_t)options->page_keys, bytes = element_bytes(options->type);
    const size_t D = (size_t)options->D, Dv = (size_t)options->Dv;
    const bool scaled = options->type == ATTN_CACHE_I8;
    const size_t scales = scaled ? keys * sizeof(uint16_t) : 0;
    /* The last tile of keys, and the last four values, are whole. */
    const size_t last = (keys + ATTN_BYTES_TILE - 1) / ATTN_BYTES_TILE * ATTN_BYTES_TILE;
    layout->value =
        attn_round_up(scaled ? attn_byte_of_key(D, last, 0) : keys * D * bytes);
    layout->key_scale =
        layout->value +
        attn_round_up(scaled ? attn_byte_of_value(Dv, last, 0) : keys * Dv * bytes);
    layout->value_scale = layout->key_scale + attn_round_up(scales);
    layout->head = layout->value_scale + attn_round_up(scales);
    return !__builtin_mul_overflow(layout->head, (size_t)options->Hk, &layout->page);
}

static bool allocate(attn_cache *cache)
{
    const size_t pages = (size_t)cache->options.pages;
    size_t bytes = 0;
    if (!lay_out(&cache->layout, &cache->options) ||
        __builtin_mul_overflow(cache->layout.page, pages, &bytes))
        return false;
    cache->references = calloc(pages + 1, sizeof *cache->references);
    cache->free_pages = calloc(pages + 1, sizeof *cache->free_pages);
    if (!cache->references || !cache->free_pages || bytes > SIZE_MAX / 2)
        return false;
    cache->memory = attn_pages_allocate(bytes);
    return cache->memory;
}

attn_status attn_cache_create(attn_cache **cache, attn_context *context,
                              const attn_cache_options *options)
{
    *cache = NULL;
    if (!options)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_cache_create: options is NULL, expected it to be "
                                 "given");
    ATTN_TRY(check_options(context, options));
    attn_cache *const created = calloc(1, sizeof *created);
    if (!created)
        return attn_context_fail(context, ATTN_ENOMEM, "attn_cache_create: no memory");
    created->options = *options;
    if (options->page_keys == 0)
        created->options.page_keys = DEFAULT_PAGE_KEYS;
    if (!allocate(created)) {
        const int64_t page_keys = created->options.page_keys;
        attn_cache_destroy(created);
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "attn_cache_create: no memory for %lld pages of %lld "
                                 "keys",
                                 (long long)options->pages, (long long)page_keys);
    }
    /* The first page is taken first. */
    for (int64_t page = options->pages - 1; page >= 0; page--)
        created->free_pages[created->free_count++] = page;
    *cache = created;
    return ATTN_OK;
}

void attn_cache_destroy(attn_cache *cache)
{
    if (!cache)
        return;
    for (int64_t i = 0; i < cache->sequence_count; i++)
        free(cache->sequences[i].pages);
    free(cache->sequences);
    free(cache->references);
    free(cache->free_pages);
    free(cache->memory);
    free(cache);
}

size_t attn_cache_bytes(const attn_cache *cache)
{
    const size_t pages = (size_t)cache->options.pages;
    size_t bytes = sizeof *cache + pages * cache->layout.page +
                   2 * pages * sizeof(int64_t) +
                   (size_t)cache->sequence_count * sizeof *cache->sequences;
    for (int64_t i = 0; i < cache->sequence_count; i++)
        bytes += (size_t)cache->sequences[i].room * sizeof(int64_t);
    return bytes;
}

size_t attn_cache_token_bytes(const attn_cache *cache)
{
    const size_t keys = (size_t)cache->options.page_keys;
    return (cache->layout.page + keys - 1) / keys;
}

int64_t attn_cache_free_pages(const attn_cache *cache)
{
    return cache->free_count;
}

/* ---- Sequences ------------------------------------------------------------------------
 */

struct attn_cached_sequence *attn_cache_find(const attn_cache *cache, int64_t sequence)
{
    const int64_t place = sequence & UINT32_MAX;
    if (sequence < 0 || place >= cache->sequence_count)
        return NULL;
    struct attn_cached_sequence *const found = &cache->sequences[place];
    return found->open && found->generation == (uint32_t)(sequence >> 32) ? found : NULL;
}

attn_status attn_cache_look_up(attn_context *context, const attn_cache *cache,
                               const char *function, int64_t sequence,
                               struct attn_cached_sequence **found)
{
    ATTN_TRY(attn_check_given(context, function, "cache", cache));
    *found = attn_cache_find(cache, sequence);
    return *found ? ATTN_OK
                  : attn_context_fail(context, ATTN_EINVAL,
                                      "%s: sequence %lld is not open, expected one that "
                                      "is",
                                      function, (long long)sequence);
}

/* A closed place, or a new one. */
static struct attn_cached_sequence *find_place(attn_cache *cache)
{
    for (int64_t i = 0; i < cache->sequence_count; i++)
        if (!cache->sequences[i].open && cache->sequences[i].generation < INT32_MAX)
            return &cache->sequences[i];
    const int64_t count = cache->sequence_count + 1;
    struct attn_cached_sequence *const larger =
        realloc(cache->sequences, (size_t)count * sizeof *larger);
    if (!larger)
        return NULL;
    cache->sequences = larger;
    cache->sequence_count = count;
    larger[count - 1] = (struct attn_cached_sequence){.open = false};
    return &larger[count - 1];
}

attn_status attn_cache_open(attn_context *context, attn_cache *cache, int64_t *sequence)
{
    ATTN_TRY(attn_check_given(context, "attn_cache_open", "cache", cache));
    ATTN_TRY(attn_check_given(context, "attn_cache_open", "sequence", sequence));
    struct attn_cached_sequence *const place = find_place(cache);
    if (!place)
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "attn_cache_open: no memory for sequence %lld",
                                 (long long)cache->sequence_count);
    place->open = true;
    place->length = 0;
    *sequence = (int64_t)place->generation << 32 | (place - cache->sequences);
    return ATTN_OK;
}

int64_t attn_cache_length(const attn_cache *cache, int64_t sequence)
{
    const struct attn_cached_sequence *const found = attn_cache_find(cache, sequence);
    return found ? found->length : -1;
}

static void cut(attn_cache *cache, struct attn_cached_sequence *sequence, int64_t length)
{
    const int64_t had = attn_cache_pages_of(cache, sequence->length);
    for (int64_t i = attn_cache_pages_of(cache, length); i < had; i++) {
        const int64_t page = sequence->pages[i];
        if (--cache->references[page] == 0)
            cache->free_pages[cache->free_count++] = page;
    }
    sequence->length = length;
}

attn_status attn_cache_truncate(attn_context *context, attn_cache *cache,
                                int64_t sequence, int64_t length)
{
    struct attn_cached_sequence *found = NULL;
    ATTN_TRY(attn_cache_look_up(context, cache, "attn_cache_truncate", sequence, &found));
    if (length < 0 || length > found->length)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_cache_truncate: length is %lld, expected 0 to "
                                 "%lld",
                                 (long long)length, (long long)found->length);
    cut(cache, found, length);
    return ATTN_OK;
}

attn_status attn_cache_close(attn_context *context, attn_cache *cache, int64_t sequence)
{
    struct attn_cached_sequence *found = NULL;
    ATTN_TRY(attn_cache_look_up(context, cache, "attn_cache_close", sequence, &found));
    cut(cache, found, 0);
    found->open = false;
    found->generation++;
    return ATTN_OK;
}

attn_status attn_cache_fork(attn_context *context, attn_cache *cache, int64_t parent,
                            int64_t *child)
{
    struct attn_cached_sequence *from = NULL;
    int64_t name = 0;
    ATTN_TRY(attn_check_given(context, "attn_cache_fork", "child", child));
    ATTN_TRY(attn_cache_look_up(context, cache, "attn_cache_fork", parent, &from));
    ATTN_TRY(attn_cache_open(context, cache, &name));
    from = attn_cache_find(cache, parent); /* opening may have moved it */
    struct attn_cached_sequence *const to = attn_cache_find(cache, name);
    const int64_t pages = attn_cache_pages_of(cache, from->length);
    if (!attn_cache_make_room(to, pages)) {
        to->open = false;
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "attn_cache_fork: no memory for a table of %lld pages",
                                 (long long)pages);
    }
    for (int64_t i = 0; i < pages; i++) {
        to->pages[i] = from->pages[i];
        cache->references[to->pages[i]]++;
    }
    to->length = from->length;
    *child = name;
    return ATTN_OK;
}

bool attn_cache_make_room(struct attn_cached_sequence *sequence, int64_t pages)
{
    if (pages <= sequence->room)
        return true;
    const int64_t room = pages + sequence->room;
    int64_t *const larger =
        realloc(sequence->pages, (size_t)room * sizeof *sequence->pages);
    if (!larger)
        return false;
    sequence->pages = larger;
    sequence->room = room;
    return true;
}

struct attn_cached_rows attn_cache_rows(const attn_cache *cache,
                                        const struct attn_cached_sequence *sequence,
                                        int64_t hk, int64_t key)
{
    const struct attn_page_layout *const layout = &cache->layout;
    const int64_t page = sequence->pages[key / cache->options.page_keys];
    const size_t row = (size_t)(key % cache->options.page_keys);
    const size_t bytes = attn_cache_element_bytes(cache);
    char *const head =
        cache->memory + (size_t)page * layout->page + (size_t)hk * layout->head;
    const int64_t keys = cache->options.page_keys - (int64_t)row;
    if (cache->options.type == ATTN_CACHE_I8)
        return (struct attn_cached_rows){
            .key = head,
            .value = head + layout->value,
            .row = row,
            .key_scale = (uint16_t *)(head + layout->key_scale) + row,
            .value_scale = (uint16_t *)(head + layout->value_scale) + row,
            .keys = keys,
        };
    return (struct attn_cached_rows){
        .key = head + row * (size_t)cache->options.D * bytes,
        .value = head + layout->value + row * (size_t)cache->options.Dv * bytes,
        .keys = keys,
    };
}

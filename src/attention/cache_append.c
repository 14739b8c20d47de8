/* Appending to a cached sequence: pages are found first, so that a failure changes
 * nothing; then rows are converted to what the cache keeps. */
#include "attention/cache.h"
#include "attention/rows.h"
#include "kernel/backward_table.h"
#include "kernel/decode_table.h"
#include <string.h>

static attn_status check_rows(attn_context *context, const char *name,
                              const attn_input *rows, const attn_cache *cache,
                              int64_t count, int64_t size)
{
    const int64_t extent[4] = {1, cache->options.Hk, count, size};
    if (!rows || !rows->data)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_cache_append: %s is NULL, expected data", name);
    ATTN_TRY(attn_check_type(context, "attn_cache_append", name, rows->type));
    return attn_check_strides(context, "attn_cache_append", name, rows->stride, extent);
}

/* Whether the next key goes into a page that another sequence holds as well. */
static bool shares_last_page(const attn_cache *cache,
                             const struct attn_cached_sequence *sequence)
{
    if (sequence->length % cache->options.page_keys == 0)
        return false;
    const int64_t last = sequence->length / cache->options.page_keys;
    return cache->references[sequence->pages[last]] > 1;
}

static int64_t take_page(attn_cache *cache)
{
    const int64_t page = cache->free_pages[--cache->free_count];
    cache->references[page] = 1;
    return page;
}

static void own_last_page(attn_cache *cache, struct attn_cached_sequence *sequence)
{
    int64_t *const page = &sequence->pages[sequence->length / cache->options.page_keys];
    const int64_t copy = take_page(cache);
    memcpy(cache->memory + (size_t)copy * cache->layout.page,
           cache->memory + (size_t)*page * cache->layout.page, cache->layout.page);
    cache->references[*page]--;
    *page = copy;
}

/* Pages for count more keys. */
static attn_status take_pages(attn_context *context, attn_cache *cache,
                              struct attn_cached_sequence *sequence, int64_t count)
{
    const int64_t had = attn_cache_pages_of(cache, sequence->length);
    const int64_t needed = attn_cache_pages_of(cache, sequence->length + count);
    const bool copies = shares_last_page(cache, sequence);
    if (needed - had + copies > cache->free_count)
        return attn_context_fail(
            context, ATTN_ENOMEM,
            "attn_cache_append: %lld keys after %lld need %lld more pages of %lld keys, "
            "and %lld of %lld are free",
            (long long)count, (long long)sequence->length,
            (long long)(needed - had + copies), (long long)cache->options.page_keys,
            (long long)cache->free_count, (long long)cache->options.pages);
    if (!attn_cache_make_room(sequence, needed))
        return attn_context_fail(context, ATTN_ENOMEM,
                                 "attn_cache_append: no memory for a table of %lld pages",
                                 (long long)needed);
    if (copies)
        own_last_page(cache, sequence);
    for (int64_t i = had; i < needed; i++)
        sequence->pages[i] = take_page(cache);
    return ATTN_OK;
}

/* Rows of one head, by way of fp32; `to` is not consulted for 8 bits, bytes for others.
 */
static void convert(const attn_context *context, const attn_cache *cache, float *wide,
                    const struct attn_matrix *from, void *to,
                    const struct attn_byte_rows *bytes)
{
    const struct attn_kernels *const kernels = context->kernels;
    const size_t stride =
        (from->size + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
    kernels->widen(wide, from);
    if (cache->options.type == ATTN_CACHE_I8) {
        kernels->decode->quantise(bytes, wide, stride, from->rows);
        return;
    }
    const struct attn_target target = {
        .x = to,
        .row_stride = (ptrdiff_t)from->size,
        .element_stride = 1,
        .rows = from->rows,
        .size = from->size,
        .type = (attn_type)cache->options.type,
    };
    kernels->backward->put(&target, wide, stride, 1.0f);
}

static struct attn_matrix rows_of(const attn_input *x, int64_t hk, int64_t first,
                                  int64_t rows, int64_t size)
{
    return attn_rows_of(x, attn_input_row(x, 0, hk, 0), first, rows, size);
}

attn_status attn_cache_append(attn_context *context, attn_cache *cache, int64_t sequence,
                              int64_t count, const attn_input *key,
                              const attn_input *value)
{
    struct attn_cached_sequence *found = NULL;
    void *wide = NULL;
    ATTN_TRY(attn_cache_look_up(context, cache, "attn_cache_append", sequence, &found));
    const attn_cache_options *const o = &cache->options;
    const size_t lanes = context->kernels->lanes;
    const int64_t size = o->D > o->Dv ? o->D : o->Dv;
    if (count < 0 || count > INT64_MAX - found->length - o->page_keys)
        return attn_context_fail(context, ATTN_EINVAL,
                                 "attn_cache_append: count is %lld, expected 0 or more",
                                 (long long)count);
    if (count == 0)
        return ATTN_OK;
    ATTN_TRY(check_rows(context, "key", key, cache, count, o->D));
    ATTN_TRY(check_rows(context, "value", value, cache, count, o->Dv));
    ATTN_TRY(attn_context_reserve(
        context, ATTN_BLOCK_KEYS * ((size_t)size + lanes) * sizeof(float), &wide));
    ATTN_TRY(take_pages(context, cache, found, count));
    for (int64_t done = 0; done < count;) {
        int64_t rows = attn_cache_rows(cache, found, 0, found->length + done).keys;
        rows = rows < count - done ? rows : count - done;
        rows = rows < ATTN_BLOCK_KEYS ? rows : ATTN_BLOCK_KEYS;
        for (int64_t hk = 0; hk < o->Hk; hk++) {
            const struct attn_cached_rows to =
                attn_cache_rows(cache, found, hk, found->length + done);
            const struct attn_matrix keys = rows_of(key, hk, done, rows, o->D);
            const struct attn_matrix values = rows_of(value, hk, done, rows, o->Dv);
            const struct attn_byte_rows key_bytes = {(uint8_t *)to.key, to.key_scale,
                                                     to.row, (size_t)o->D, true};
            const struct attn_byte_rows value_bytes = {
                (uint8_t *)to.value, to.value_scale, to.row, (size_t)o->Dv, false};
            convert(context, cache, wide, &keys, (char *)to.key, &key_bytes);
            convert(context, cache, wide, &values, (char *)to.value, &value_bytes);
        }
        done += rows;
    }
    found->length += count;
    return ATTN_OK;
}

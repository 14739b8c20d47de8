/* Decoding in a program of your own: tokens arrive one at a time, each leaves its key and
 * value in a cache and attends to all that are there.
 *     cc decode.c $(pkg-config --cflags --libs attn) -o decode */
#include <attn/cache.h>
#include <stdio.h>

enum { H = 2, Hk = 1, D = 2, TOKENS = 4 }; /* two query heads share one key head */

/* Of each token, as a model's projections would give them. */
static const float queries[TOKENS][H * D] = {
    {1, 0, 0, 1}, {0, 3, 3, 0}, {3, -3, 0, 3}, {-3, 3, 3, 3}};
static const float keys[TOKENS][Hk * D] = {{1, 0}, {0, 1}, {1, 2}, {-1, 1}};
static const float values[TOKENS][Hk * D] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};

/* Appends token t to the sequence, lets it attend, and prints what came of it. */
static attn_status decode_token(attn_context *context, attn_cache *cache,
                                int64_t sequence, int t)
{
    const attn_input key = attn_input_dense(keys[t], Hk, 1, D);
    const attn_input value = attn_input_dense(values[t], Hk, 1, D);
    attn_status status = attn_cache_append(context, cache, sequence, 1, &key, &value);
    if (status != ATTN_OK)
        return status;

    float output[H * D];
    int64_t largest_key[H];
    const attn_batch batch = {.count = 1, .sequences = &sequence, .H = H};
    const attn_shape shape = {
        .B = 1, .H = H, .Hk = Hk, .Lq = 1, .Lk = t + 1, .D = D, .Dv = D};
    const attn_tensors tensors = {.query = attn_input_dense(queries[t], H, 1, D),
                                  .output = attn_output_dense(output, H, 1, D),
                                  .statistics = {.largest_key = largest_key}};
    attn_options options;
    attn_options_init(&options, &shape);
    status = attn_decode(context, cache, &batch, &tensors, &options);
    for (int h = 0; h < H && status == ATTN_OK; h++)
        printf("token %d, head %d: output %.3f %.3f, looked most at token %d\n", t, h,
               (double)output[h * D], (double)output[h * D + 1], (int)largest_key[h]);
    return status;
}

int main(void)
{
    const attn_cache_options options = {
        .Hk = Hk, .D = D, .Dv = D, .pages = 1, .type = ATTN_CACHE_F32};
    attn_context *context = NULL;
    attn_cache *cache = NULL;
    int64_t sequence = 0;
    attn_status status = attn_context_create(&context, NULL);
    if (status == ATTN_OK)
        status = attn_cache_create(&cache, context, &options);
    if (status == ATTN_OK)
        status = attn_cache_open(context, cache, &sequence);
    for (int t = 0; t < TOKENS && status == ATTN_OK; t++)
        status = decode_token(context, cache, sequence, t);
    if (status != ATTN_OK)
        fprintf(stderr, "%s\n", context ? attn_context_message(context) : "no context");
    attn_cache_destroy(cache);
    attn_context_destroy(context);
    return status == ATTN_OK ? 0 : 1;
}

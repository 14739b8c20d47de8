/* Attention in a program of your own:
 *     cc embed.c $(pkg-config --cflags --libs attn) -o embed */
#include <attn/attention.h>
#include <stdio.h>

int main(void)
{
    enum { H = 1, L = 3, D = 2 };
    const float query[L * D] = {1, 0, 0, 1, 1, 1}, key[L * D] = {1, 0, 0, 2, 1, 1};
    const float value[L * D] = {1, 2, 3, 4, 5, 6};
    float output[L * D], entropy[L];
    const attn_shape shape = {.B = 1, .H = H, .Hk = H, .Lq = L, .Lk = L, .D = D, .Dv = D};
    const attn_tensors tensors = {.query = attn_input_dense(query, H, L, D),
                                  .key = attn_input_dense(key, H, L, D),
                                  .value = attn_input_dense(value, H, L, D),
                                  .output = attn_output_dense(output, H, L, D),
                                  .statistics = {.entropy = entropy}};
    attn_options options;
    attn_options_init(&options, &shape);
    options.causal = true;

    attn_context *context = NULL;
    if (attn_context_create(&context, NULL) != ATTN_OK ||
        attn_forward(context, &shape, &tensors, &options) != ATTN_OK) {
        fprintf(stderr, "%s\n", context ? attn_context_message(context) : "no context");
        return 1;
    }
    for (int i = 0; i < L; i++)
        printf("row %d: output %.3f %.3f, entropy %.3f\n", i, (double)output[i * D],
               (double)output[i * D + 1], (double)entropy[i]);
    attn_context_destroy(context);
    return 0;
}

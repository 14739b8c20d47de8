/* A small language model, for the tests of what is done with one. */
#ifndef ATTN_TESTS_MODEL_SMALL_LANGUAGE_H
#define ATTN_TESTS_MODEL_SMALL_LANGUAGE_H

#include "base/context.h"
#include "model/language.h"
#include "small.h"
#include <math.h>

static inline attn_language_config small_language_config(void)
{
    return (attn_language_config){.vocabulary = 23,
                                  .width = 24,
                                  .layers = 2,
                                  .heads = 4,
                                  .key_heads = 2,
                                  .inner = 40,
                                  .max_positions = 300,
                                  .rotary_base = 500.0,
                                  .epsilon = 1e-5f,
                                  .bos = 0,
                                  .eos = 2};
}

static inline attn_language_config small_lstm_config(void)
{
    return (attn_language_config){.body = ATTN_LANGUAGE_LSTM,
                                  .vocabulary = 23,
                                  .width = 24,
                                  .layers = 2,
                                  .max_positions = 300,
                                  .bos = 0,
                                  .eos = 2};
}

/* With gains and biases that are not 1 and 0, so that their places matter. */
static inline attn_language *small_language(const attn_language_config *config)
{
    attn_language *language;
    attn_error error;
    if (attn_language_create(&language, config, 5, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_parameters *const parameters = attn_language_parameters(language);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        for (size_t j = 0; !p->decays && j < p->count; j++)
            parameters->values[p->offset + j] += 0.3f * sinf((float)(i + 3 * j));
    }
    return language;
}

static inline void small_language_ids(int32_t *ids, size_t count, int64_t vocabulary)
{
    for (size_t n = 0; n < count; n++)
        ids[n] = (int32_t)((n * n * 7 + n * 5 + 3) % (size_t)vocabulary);
}

/* [count][vocabulary], of one text; valid until the tape's next use. */
static inline const float *small_language_logits(const attn_language *language,
                                                 attn_tape *tape, const int32_t *ids,
                                                 int64_t count)
{
    const attn_pass pass = {
        .tape = tape,
        .parameters = attn_language_parameters((attn_language *)(uintptr_t)language)};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_language_logits(
        language, &pass, ids, (attn_packing){1, (const int64_t[]){0, count}});
    if (!logits)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    return logits->data;
}

#endif

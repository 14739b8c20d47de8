/* A small BERT, and a packed batch of four texts, one of them of a single token. */
#include "small_bert.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

const int64_t BERT_STARTS[BERT_TEXTS + 1] = {0, 7, 8, 12, BERT_TOKENS};
const int32_t BERT_IDS[BERT_TOKENS] = {0, 17, 9,  4, 21, 22, 2, 0, 0, 5,
                                       6, 2,  11, 0, 13, 7,  7, 7, 1, 2};
const int32_t BERT_TYPES[BERT_TOKENS] = {0, 0, 0, 0, 1, 1, 1, 0, 0, 0,
                                         0, 0, 1, 1, 0, 0, 1, 0, 1, 1};

attn_bert_config bert_config(attn_bert_head head)
{
    attn_bert_config config;
    attn_bert_config_init(&config);
    config.head = head;
    config.labels = head == ATTN_BERT_MASKED ? 0 : BERT_LABELS;
    config.vocabulary = BERT_VOCABULARY;
    config.width = 24;
    config.layers = 2;
    config.heads = 4;
    config.inner = 40;
    config.max_positions = 16;
    config.epsilon = 1e-5f;
    return config;
}

attn_bert *bert_create(const attn_bert_config *config, uint64_t seed)
{
    attn_bert *bert;
    attn_error error;
    if (attn_bert_create(&bert, config, seed, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_parameters *const parameters = attn_bert_parameters(bert);
    for (size_t i = 0; i < parameters->length; i++) {
        const attn_parameter *const p = &parameters->list[i];
        for (size_t j = 0; !p->decays && j < p->count; j++)
            parameters->values[p->offset + j] += 0.3f * sinf((float)(i + 3 * j));
    }
    return bert;
}

attn_bert_input bert_input(void)
{
    return (attn_bert_input){BERT_IDS, BERT_TYPES, {BERT_TEXTS, BERT_STARTS}};
}

attn_bert_input bert_input_alone(int64_t text, int64_t *starts)
{
    starts[0] = 0;
    starts[1] = BERT_STARTS[text + 1] - BERT_STARTS[text];
    return (attn_bert_input){
        BERT_IDS + BERT_STARTS[text], BERT_TYPES + BERT_STARTS[text], {1, starts}};
}

int64_t bert_rows_of(attn_bert_head head, int64_t tokens)
{
    return head == ATTN_BERT_SEQUENCE || head == ATTN_BERT_MEAN ? 1 : tokens;
}

int64_t bert_rows(const attn_bert_config *config)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < BERT_TEXTS; i++)
        rows += bert_rows_of(config->head, BERT_STARTS[i + 1] - BERT_STARTS[i]);
    return rows;
}

int64_t bert_columns(const attn_bert_config *config)
{
    return config->head == ATTN_BERT_MASKED ? config->vocabulary : config->labels;
}

const float *bert_logits(attn_bert *bert, attn_tape *tape, const attn_bert_input *input)
{
    const attn_pass pass = {.tape = tape, .parameters = attn_bert_parameters(bert)};
    attn_tape_begin(tape, false, 0);
    const attn_tensor *const logits = attn_bert_logits(bert, &pass, input);
    if (!logits)
        fail_msg("%s", attn_context_message(attn_tape_context(tape)));
    return logits->data;
}

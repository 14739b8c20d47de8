/* What BERT computes:
 *
 *     x = norm(word + position + type)
 *     each layer:  x ← norm(x + attention(x)),  x ← norm(x + feed_forward(x))
 *
 * and one of four heads on x.  Dropout falls on the first norm's result and on what
 * joins the residual stream. */
#include "model/bert_parts.h"
#include <math.h>
#include <string.h>

/* ---- The encoder ----------------------------------------------------------------- */

static attn_tensor *embed(const attn_bert *bert, const attn_pass *pass,
                          const attn_bert_input *input)
{
    attn_tape *const tape = pass->tape;
    const int64_t tokens = input->packing.starts[input->packing.sequences];
    const int32_t *types = input->types;
    if (!types) {
        int32_t *const zeros = attn_tape_allocate(tape, (size_t)tokens * sizeof *zeros);
        if (!zeros)
            return NULL;
        memset(zeros, 0, (size_t)tokens * sizeof *zeros);
        types = zeros;
    }
    attn_tensor *x = attn_embedding(tape, attn_pass_parameter(pass, bert->embedding),
                                    input->ids, tokens, 1.0f);
    attn_tensor *const type =
        attn_embedding(tape, attn_pass_parameter(pass, bert->types), types, tokens, 1.0f);
    x = attn_add(tape, x, type);
    x = attn_add_positions(pass, x, input->packing,
                           attn_pass_parameter(pass, bert->positions), 0);
    x = attn_norm_layer_forward(&bert->embedding_norm, pass, x);
    return attn_dropout(tape, x, bert->config.dropout);
}

static attn_tensor *layer_forward(const attn_bert *bert, const attn_bert_layer *layer,
                                  const attn_pass *pass, attn_tensor *x,
                                  attn_packing packing)
{
    const float dropout = bert->config.dropout;
    const attn_memory memory =
        attn_multihead_layer_memory(&layer->self, pass, x, packing);
    attn_tensor *const attended = attn_multihead_layer_forward(
        &layer->self, pass, x, packing, &memory, false, bert->config.attention_dropout);
    x = attn_add_dropout(pass->tape, x, attended, dropout);
    x = attn_norm_layer_forward(&layer->self_norm, pass, x);
    attn_tensor *const fed =
        attn_feed_forward_layer_forward(&layer->feed_forward, pass, x, 0.0f);
    x = attn_add_dropout(pass->tape, x, fed, dropout);
    return attn_norm_layer_forward(&layer->final_norm, pass, x);
}

/* Hidden states of the last layer, [tokens][width]. */
static attn_tensor *encode(const attn_bert *bert, const attn_pass *pass,
                           const attn_bert_input *input)
{
    attn_tensor *x = embed(bert, pass, input);
    for (int64_t i = 0; i < bert->config.layers; i++)
        x = layer_forward(bert, &bert->layers[i], pass, x, input->packing);
    return x;
}

/* ---- Heads ----------------------------------------------------------------------- */

/* What the last matrix of a head reads, and that matrix. */
struct head {
    attn_tensor *x, *weight, *bias;
};

static struct head vocabulary_head(const attn_bert *bert, const attn_pass *pass,
                                   attn_tensor *x)
{
    x = attn_linear_activate(
        pass->tape, x, attn_pass_parameter(pass, bert->transform.weight),
        attn_pass_parameter(pass, bert->transform.bias), bert->config.activation, 0.0f);
    return (struct head){
        .x = attn_norm_layer_forward(&bert->transform_norm, pass, x),
        .weight = attn_pass_parameter(pass, bert->output),
        .bias = attn_pass_parameter(pass, bert->output_bias),
    };
}

/* The first token of each text, as BERT's pooler turns it. */
static attn_tensor *pool_first(const attn_bert *bert, const attn_pass *pass,
                               attn_tensor *x, attn_packing packing)
{
    const size_t bytes = (size_t)packing.sequences * sizeof(int32_t);
    int32_t *const rows = attn_tape_allocate(pass->tape, bytes);
    if (!rows)
        return NULL;
    for (int64_t s = 0; s < packing.sequences; s++)
        rows[s] = (int32_t)packing.starts[s];
    return attn_linear_activate(
        pass->tape, attn_gather(pass->tape, x, rows, packing.sequences, 1),
        attn_pass_parameter(pass, bert->pooler.weight),
        attn_pass_parameter(pass, bert->pooler.bias), ATTN_TANH, 0.0f);
}

/* A row for each text. */
static attn_tensor *pool(const attn_bert *bert, const attn_pass *pass, attn_tensor *x,
                         attn_packing packing)
{
    for (int64_t s = 0; s < packing.sequences; s++)
        if (packing.starts[s] == packing.starts[s + 1])
            return attn_tape_fail(pass->tape, ATTN_EINVAL,
                                  "bert: text %lld has no token, expected one at least, "
                                  "from which its label is read",
                                  (long long)s);
    if (bert->config.head == ATTN_BERT_SEQUENCE)
        return pool_first(bert, pass, x, packing);
    return attn_pool(pass->tape, x, ATTN_POOL_MEAN, packing.sequences, packing.starts);
}

static struct head label_head(const attn_bert *bert, const attn_pass *pass,
                              attn_tensor *x, attn_packing packing)
{
    if (bert->config.head != ATTN_BERT_TOKENS && x)
        x = pool(bert, pass, x, packing);
    return (struct head){
        .x = attn_dropout(pass->tape, x, bert->config.classifier_dropout),
        .weight = attn_pass_parameter(pass, bert->classifier.weight),
        .bias = attn_pass_parameter(pass, bert->classifier.bias),
    };
}

static attn_tensor *logits_of(const attn_pass *pass, const struct head *head)
{
    return attn_linear(pass->tape, head->x, head->weight, head->bias, true);
}

attn_tensor *attn_bert_logits(const attn_bert *bert, const attn_pass *pass,
                              const attn_bert_input *input)
{
    attn_tensor *const x = encode(bert, pass, input);
    const struct head head = bert->config.head == ATTN_BERT_MASKED
                                 ? vocabulary_head(bert, pass, x)
                                 : label_head(bert, pass, x, input->packing);
    return logits_of(pass, &head);
}

attn_tensor *attn_bert_logits_at(const attn_bert *bert, const attn_pass *pass,
                                 const attn_bert_input *input, const int32_t *at,
                                 int64_t count)
{
    if (bert->config.head != ATTN_BERT_MASKED)
        return attn_tape_fail(pass->tape, ATTN_EINVAL,
                              "attn_bert_logits_at: the head has labels, expected the "
                              "vocabulary of a masked language model");
    attn_tensor *const x = encode(bert, pass, input);
    attn_tensor *const chosen = attn_gather(pass->tape, x, at, count, 1);
    const struct head head = vocabulary_head(bert, pass, chosen);
    return logits_of(pass, &head);
}

/* Only the rows that have a target, in memory of the tape. */
struct targets {
    int32_t *rows, *values;
    int64_t count;
};

static struct targets choose_targets(attn_tape *tape, const int32_t *targets,
                                     int64_t tokens)
{
    struct targets chosen = {0};
    chosen.rows = attn_tape_allocate(tape, (size_t)tokens * sizeof *chosen.rows);
    chosen.values = attn_tape_allocate(tape, (size_t)tokens * sizeof *chosen.values);
    for (int64_t n = 0; chosen.rows && chosen.values && n < tokens; n++) {
        if (targets[n] < 0)
            continue;
        chosen.rows[chosen.count] = (int32_t)n;
        chosen.values[chosen.count++] = targets[n];
    }
    return chosen;
}

/* The head of the rows that are needed for targets, which become those of these rows. */
static struct head head_of_targets(const attn_bert *bert, const attn_pass *pass,
                                   const attn_bert_input *input, const int32_t **targets)
{
    attn_tensor *const x = encode(bert, pass, input);
    if (bert->config.head != ATTN_BERT_MASKED)
        return label_head(bert, pass, x, input->packing);
    const struct targets chosen = choose_targets(
        pass->tape, *targets, input->packing.starts[input->packing.sequences]);
    *targets = chosen.values;
    return vocabulary_head(bert, pass,
                           attn_gather(pass->tape, x, chosen.rows, chosen.count, 1));
}

attn_tensor *attn_bert_loss(const attn_bert *bert, const attn_pass *pass,
                            const attn_bert_input *input, const int32_t *targets,
                            float smoothing, double divisor, double *plain)
{
    const struct head head = head_of_targets(bert, pass, input, &targets);
    return attn_linear_cross_entropy(pass->tape, head.x, head.weight, head.bias, true,
                                     targets, smoothing, divisor, plain);
}

/* −log softmax(logits)[target] */
static double cross_entropy(const float *logits, int64_t count, int32_t target,
                            bool *is_largest)
{
    int64_t largest = 0;
    double sum = 0.0;
    for (int64_t i = 1; i < count; i++)
        largest = logits[i] > logits[largest] ? i : largest;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)logits[largest]);
    *is_largest = largest == target;
    return log(sum) + (double)logits[largest] - (double)logits[target];
}

bool attn_bert_measure(const attn_bert *bert, const attn_pass *pass,
                       const attn_bert_input *input, const int32_t *targets,
                       attn_bert_measures *measures)
{
    *measures = (attn_bert_measures){0};
    if (attn_tape_training(pass->tape)) {
        attn_tape_fail(pass->tape, ATTN_EINVAL,
                       "attn_bert_measure: the tape is in training, expected one that is "
                       "not");
        return false;
    }
    const struct head head = head_of_targets(bert, pass, input, &targets);
    const attn_tensor *const logits = logits_of(pass, &head);
    if (!logits)
        return false;
    const int64_t columns = logits->extent[1];
    measures->logits = logits->data;
    for (int64_t row = 0; row < logits->extent[0]; row++) {
        bool is_largest;
        if (targets[row] < 0)
            continue;
        if (targets[row] >= columns) {
            attn_tape_fail(pass->tape, ATTN_EINVAL,
                           "attn_bert_measure: target %ld, expected less than %lld",
                           (long)targets[row], (long long)columns);
            return false;
        }
        measures->plain += cross_entropy(logits->data + row * columns, columns,
                                         targets[row], &is_largest);
        measures->count++;
        measures->correct += is_largest;
    }
    return true;
}

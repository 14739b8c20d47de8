/* Random problems of attention with every option, for tests: odd sizes, any strides, gaps
 * that hold NaN, and poison in every key, value, query and bias that nobody may look at.
 */
#ifndef ATTN_TESTS_PROBLEMS_H
#define ATTN_TESTS_PROBLEMS_H

#include "attn/attention.h"

/* One tensor in memory of its own, NaN wherever no element lies. */
struct tensor {
    float *memory, *data;
    size_t floats;
    int64_t extent[4], stride[4];
};

struct tensor tensor_create(int64_t e0, int64_t e1, int64_t e2, int64_t e3);
float *tensor_at(const struct tensor *t, int64_t b, int64_t h, int64_t l, int64_t d);
void tensor_randomise(const struct tensor *t, float size); /* −2·size to 2·size */
attn_input tensor_input(const struct tensor *t);
attn_output tensor_output(const struct tensor *t);

/* Which rules a random problem may have, beyond causal, window, offset and grouped heads.
 */
enum problem_rules {
    RULE_LENGTHS = 1,
    RULE_PACKED = 2,
    RULE_KEEP = 4,
    RULE_BIAS = 8,
    RULE_BENT = 16, /* ALiBi and softcap */
    RULE_SINK = 32,
    RULE_DROPOUT = 64,
    RULE_ADDITIVE = 128,
    RULE_GATES = 256, /* forget gates, where causal */
    RULE_BLOCKS = 512,
    RULE_SINK_KEYS = 1024,
    RULES_ALL = 2047,
    RULE_ONE_QUERY = 2048, /* mostly one query a sequence, and rows without gaps inside */
    RULE_LINEAR = 4096,    /* always: scores of linear attention, of any feature */
    RULE_LONG = 8192,      /* 200 to 700 keys, wider windows, more elements */
    RULE_MANY = 16384,     /* 256 queries and more */
};

struct problem {
    attn_shape shape;
    attn_options options;
    struct tensor query, key, value, bias, log_forget;
    uint8_t *keep, *blocks, *key_class;
    int64_t *numbers; /* lengths or starts */
    float *head_floats;
    float *additive; /* [H][D]; NULL: scores are products */
};

/* The same problem for the same seed.  With additive scores some queries and keys have
 * large elements, and v has zeros. */
struct problem problem_create(uint64_t seed, unsigned rules);
void problem_destroy(struct problem *problem);

/* All that attn_forward can give. */
struct results {
    struct tensor output;
    attn_statistics statistics;
    float *lse;
    size_t rows;
};

enum { RESULT_TOP = 5, RESULT_CLASSES = 3 };

struct results results_create(const struct problem *problem);
void results_destroy(struct results *results);
attn_tensors problem_tensors(const struct problem *problem,
                             const struct results *results);

/* All that attn_forward gives of the problem. */
void problem_forward(attn_context *context, const struct problem *problem,
                     const struct results *results);

uint64_t problem_seed(void); /* of the problem that was created last */

/* Or the test fails, and names that problem. */
void assert_ok(const attn_context *context, attn_status status);
void *allocate(size_t count, size_t size); /* zeros */

int64_t random_below(int64_t bound);
float random_float(void); /* −2 to 2 */

/* A context of each instruction set that this machine has; returns how many. */
enum { LEVELS_MOST = 6 };
size_t contexts_create(attn_context *contexts[LEVELS_MOST]);
void contexts_destroy(attn_context **contexts, size_t count);

/* Runs check with a context of each instruction set that this machine has. */
void on_every_level(void (*check)(attn_context *));

#endif

/* What the tests of this room share: a small translator, and random batches for it. */
#ifndef ATTN_TESTS_MODEL_SMALL_H
#define ATTN_TESTS_MODEL_SMALL_H

#include "model/translator.h"

enum { SMALL_VOCABULARY = 40, SMALL_POSITIONS = 24, SMALL_MOST_TOKENS = 128 };

attn_translator_config small_config(void);
/* The same, normalising last. */
attn_translator_config small_config_last(bool learned_positions);
attn_translator *small_translator(uint64_t seed);
attn_translator *small_translator_like(const attn_translator_config *config,
                                       uint64_t seed);
attn_context *small_context(void);
/* On a context of its own. */
attn_tape *small_tape(void);
void small_tape_destroy(attn_tape *tape);

/* A model that is trained by hand.  loss adds to the gradients, unless they are NULL. */
struct small_learner {
    attn_parameters *parameters;
    double (*loss)(void *user, float *gradients);
    void *user;
};

/* That gradients are central differences of the loss, for about as many elements of each
 * parameter, within near and a hundredth; name says of what. */
void assert_gradients(const struct small_learner *learner, const char *name, float step,
                      size_t elements, double near);

/* The last loss of so many steps downhill. */
double small_learn(const struct small_learner *learner, int steps, float rate);

/* A packed batch and its own memory; source and target lengths, without </s>, are given.
 */
struct small_batch {
    attn_pair_batch pairs;
    int64_t source_starts[9], target_starts[9];
    int32_t source[SMALL_MOST_TOKENS];
    int32_t target_in[SMALL_MOST_TOKENS], target_out[SMALL_MOST_TOKENS];
};

void small_batch_fill(struct small_batch *batch, int64_t sentences,
                      const int64_t *source_lengths, const int64_t *target_lengths,
                      uint64_t seed);
/* One sentence of it, as a batch of its own. */
void small_batch_alone(struct small_batch *alone, const struct small_batch *batch,
                       int64_t sentence);

/* The status, and what the message has in it. */
void assert_fails(attn_status status, const attn_error *error, attn_status expected,
                  const char *fragment);

/* A translator and a folder that it is saved in, for cmocka: *state is it. */
struct small_saved {
    char folder[512];
    attn_translator *translator;
};
int small_saved_set_up(void **state);
int small_saved_tear_down(void **state);

/* Loads, or fails the test; and the other way round. */
attn_translator *small_load(const char *folder);
void small_load_fails(const char *folder, attn_status expected, const char *fragment);
/* In the folder's config.json; value, JSON, may be NULL to take the key away. */
void small_config_change(const char *folder, const char *key, const char *value);

/* Their ids with </s>, −1 beyond, in out [count][columns]; frees them. */
void small_translations_take(attn_translation *translations, int64_t count,
                             int64_t columns, int32_t *out);

/* A folder under the system's temporary one, and its end. */
void folder_make(char *folder, size_t size);
void folder_remove(const char *folder);
void path_join(char *path, size_t size, const char *folder, const char *name);

#endif

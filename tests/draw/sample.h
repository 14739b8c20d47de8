/* Records for tests of pictures, any size, the same every time. */
#ifndef ATTN_TESTS_DRAW_SAMPLE_H
#define ATTN_TESTS_DRAW_SAMPLE_H

#include "inspect/summary.h"

typedef struct sample_shape {
    int64_t layers, heads;
    int64_t source, written;  /* words, with the marks of the model */
    const char *const *words; /* NULL: w1, w2, …; else taken in turn */
    int64_t word_count;
    bool causal_only; /* a decoder and nothing else */
} sample_shape;

typedef struct draw_sample {
    attn_record *record;
    attn_summary *summary;
} draw_sample;

/** Fails the test where anything fails. */
draw_sample sample_create(const sample_shape *shape);
void sample_destroy(draw_sample *sample);

#endif

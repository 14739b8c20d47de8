/* Calls on contiguous memory, and threads. */
#include "dense.h"
#include "problems.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

float *floats(int64_t count)
{
    float *const x = calloc((size_t)count + 1, sizeof *x);
    assert_non_null(x);
    for (int64_t n = 0; n < count; n++)
        x[n] = random_float();
    return x;
}

float *copied(const float *x, int64_t count)
{
    float *const copy = floats(count);
    memcpy(copy, x, (size_t)count * sizeof *copy);
    return copy;
}

struct dense dense_create(attn_shape s, bool additive)
{
    struct dense c = {.shape = s};
    const int64_t queries = s.B * s.H * s.Lq, keys = s.B * s.Hk * s.Lk;
    c.query = floats(queries * s.D), c.query_slope = floats(queries * s.D);
    c.key = floats(keys * s.D), c.key_slope = floats(keys * s.D);
    c.value = floats(keys * s.Dv), c.value_slope = floats(keys * s.Dv);
    c.output = floats(queries * s.Dv), c.slope = floats(queries * s.Dv);
    c.lse = floats(queries);
    if (additive) {
        c.vector = floats(s.H * s.D), c.vector_slope = floats(s.H * s.D);
        attn_options_init_additive(&c.options, &c.shape, c.vector);
    } else {
        attn_options_init(&c.options, &c.shape);
    }
    return c;
}

void dense_destroy(struct dense *c)
{
    free(c->query), free(c->key), free(c->value), free(c->vector), free(c->output);
    free(c->lse), free(c->slope), free(c->query_slope), free(c->key_slope);
    free(c->value_slope), free(c->vector_slope);
}

attn_tensors dense_tensors(const struct dense *c)
{
    const attn_shape *const s = &c->shape;
    return (attn_tensors){
        .query = attn_input_dense(c->query, s->H, s->Lq, s->D),
        .key = attn_input_dense(c->key, s->Hk, s->Lk, s->D),
        .value = attn_input_dense(c->value, s->Hk, s->Lk, s->Dv),
        .output = attn_output_dense(c->output, s->H, s->Lq, s->Dv),
        .lse = c->lse,
    };
}

attn_gradients dense_gradients(const struct dense *c)
{
    const attn_shape *const s = &c->shape;
    return (attn_gradients){
        .output = attn_input_dense(c->slope, s->H, s->Lq, s->Dv),
        .query = attn_output_dense(c->query_slope, s->H, s->Lq, s->D),
        .key = attn_output_dense(c->key_slope, s->Hk, s->Lk, s->D),
        .value = attn_output_dense(c->value_slope, s->Hk, s->Lk, s->Dv),
        .additive = c->vector_slope,
    };
}

void dense_forward(attn_context *context, const struct dense *c)
{
    const attn_tensors tensors = dense_tensors(c);
    if (attn_forward(context, &c->shape, &tensors, &c->options) != ATTN_OK)
        fail_msg("%s", attn_context_message(context));
}

void dense_backward(attn_context *context, const struct dense *c)
{
    const attn_tensors tensors = dense_tensors(c);
    const attn_gradients gradients = dense_gradients(c);
    if (attn_backward(context, &c->shape, &tensors, &c->options, &gradients) != ATTN_OK)
        fail_msg("%s", attn_context_message(context));
}

struct task {
    void (*run)(void *argument, size_t index);
    void *argument;
    size_t index;
    pthread_t thread;
};

static void *run_task(void *task)
{
    struct task *const t = task;
    t->run(t->argument, t->index);
    return NULL;
}

void thread_each(void *pool, size_t count, void (*run)(void *argument, size_t index),
                 void *argument)
{
    struct task tasks[16];
    assert_true(count <= 16);
    if (pool)
        *(size_t *)pool = count;
    for (size_t i = 0; i < count; i++) {
        tasks[i] = (struct task){run, argument, i, 0};
        assert_int_equal(pthread_create(&tasks[i].thread, NULL, run_task, &tasks[i]), 0);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(tasks[i].thread, NULL);
}

attn_context *context_of(const char *isa, size_t threads)
{
    attn_context *context = NULL;
    const attn_context_options options = {
        .isa = isa,
        .threads = threads,
        .parallel_for = threads > 1 ? thread_each : NULL,
    };
    const attn_status status = attn_context_create(&context, &options);
    if (status == ATTN_EUNSUPPORTED) {
        print_message("%s: not on this machine\n", isa);
        skip();
    }
    assert_int_equal(status, ATTN_OK);
    return context;
}

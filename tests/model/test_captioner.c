/* The captioner: gradients are those of the loss, a picture is computed as if it were
 * alone, what is saved comes back, and what does not fit is named. */
#include "file/file.h"
#include "file/safetensors.h"
#include "model/captioner.h"
#include "small.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka last: it needs what stands above */
#include <cmocka.h>

enum { ROWS = 10, COLUMNS = 14, POINTS = ROWS * COLUMNS, PICTURES = 3, TOKENS = 11 };

static attn_error error;
static char folder[256];

static attn_captioner_config usual_config(void)
{
    return (attn_captioner_config){.rows = ROWS,
                                   .columns = COLUMNS,
                                   .cell_rows = 1,
                                   .cell_columns = 2,
                                   .layers = 2,
                                   .channels = {4, 6},
                                   .halvings = 1,
                                   .max_positions = 8,
                                   .decoder = {.vocabulary = 12,
                                               .embedding = 6,
                                               .cell = ATTN_CELL_GRU,
                                               .width = 5,
                                               .layers = 1,
                                               .source_width = 6,
                                               .attention = ATTN_CROSS_ADDITIVE,
                                               .attention_width = 4}};
}

struct fixture {
    attn_context *context;
    attn_tape *tape;
    attn_captioner *captioner;
    uint8_t grey[PICTURES * POINTS];
    int32_t in[TOKENS], out[TOKENS];
    int64_t starts[PICTURES + 1];
    attn_caption_batch batch;
};

static int set_up(void **state)
{
    struct fixture *const f = calloc(1, sizeof *f);
    const attn_captioner_config config = usual_config();
    const int64_t starts[] = {0, 4, 6, TOKENS};
    f->context = small_context();
    assert_int_equal(attn_tape_create(&f->tape, f->context), ATTN_OK);
    assert_int_equal(attn_captioner_create(&f->captioner, &config, 3, &error), ATTN_OK);
    for (size_t i = 0; i < sizeof f->grey; i++)
        f->grey[i] = (uint8_t)(i * i * 31 % 251);
    for (int i = 0; i < TOKENS; i++) {
        f->in[i] = 4 + i * 5 % 8;
        f->out[i] = 4 + i * 3 % 8;
    }
    memcpy(f->starts, starts, sizeof starts);
    f->batch = (attn_caption_batch){PICTURES, f->grey, f->in, f->out, f->starts};
    *state = f;
    folder_make(folder, sizeof folder);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const f = *state;
    attn_captioner_destroy(f->captioner);
    attn_tape_destroy(f->tape);
    attn_context_destroy(f->context);
    free(f);
    folder_remove(folder);
    return 0;
}

static double loss_of(const struct fixture *f, float *gradients, bool training)
{
    attn_tape_begin(f->tape, training, 1);
    const attn_pass pass = {.tape = f->tape,
                            .parameters = attn_captioner_parameters(f->captioner),
                            .gradients = gradients};
    attn_tensor *const loss =
        attn_captioner_loss(f->captioner, &pass, &f->batch, 0.1f, 5.0, NULL);
    if (attn_tape_status(f->tape) != ATTN_OK)
        fail_msg("%s", attn_context_message(f->context));
    if (training)
        assert_int_equal(attn_tape_backward(f->tape, loss, 1.0f), ATTN_OK);
    return (double)loss->data[0];
}

/* d loss / d ε of parameters + ε·(±1), for each parameter by itself. */
static void gradients_are_slopes_of_the_loss(void **state)
{
    struct fixture *const f = *state;
    attn_parameters *const parameters = attn_captioner_parameters(f->captioner);
    float *const gradients = calloc(parameters->floats, sizeof *gradients);
    const float step = 1e-3f;
    loss_of(f, gradients, true);
    for (size_t p = 0; p < parameters->length; p++) {
        const attn_parameter *const parameter = &parameters->list[p];
        float *const values = parameters->values + parameter->offset;
        double slope = 0.0, loss[2];
        for (int side = 0; side < 2; side++) {
            const float by = side ? step : -step;
            for (size_t j = 0; j < parameter->count; j++)
                values[j] += by * (j % 3 == 1 ? -1.0f : 1.0f);
            loss[side] = loss_of(f, NULL, false);
            for (size_t j = 0; j < parameter->count; j++)
                values[j] -= by * (j % 3 == 1 ? -1.0f : 1.0f);
        }
        for (size_t j = 0; j < parameter->count; j++)
            slope += (double)gradients[parameter->offset + j] * (j % 3 == 1 ? -1.0 : 1.0);
        const double measured = (loss[1] - loss[0]) / (2.0 * (double)step);
        if (!(fabs(measured - slope) < 2e-3 + 0.03 * fabs(slope)))
            fail_msg("%s: slope %g, measured %g", parameter->name, slope, measured);
    }
    free(gradients);
}

static void a_picture_is_computed_as_if_it_were_alone(void **state)
{
    struct fixture *const f = *state;
    const attn_parameters *const parameters = attn_captioner_parameters(f->captioner);
    float together[TOKENS * 6];
    attn_tape_begin(f->tape, false, 0);
    const attn_pass pass = {.tape = f->tape, .parameters = parameters};
    const attn_tensor *all = attn_captioner_hidden(f->captioner, &pass, &f->batch);
    assert_non_null(all);
    memcpy(together, all->data, sizeof together);
    for (int n = 0; n < PICTURES; n++) {
        const int64_t starts[] = {0, f->starts[n + 1] - f->starts[n]};
        const attn_caption_batch one = {1, f->grey + n * POINTS, f->in + f->starts[n],
                                        NULL, starts};
        attn_tape_begin(f->tape, false, 0);
        const attn_tensor *alone = attn_captioner_hidden(f->captioner, &pass, &one);
        assert_non_null(alone);
        assert_memory_equal(alone->data, together + f->starts[n] * 6,
                            (size_t)starts[1] * 6 * sizeof(float));
    }
}

static void a_caption_does_not_depend_on_the_batch(void **state)
{
    struct fixture *const f = *state;
    attn_translation together[PICTURES] = {{0}}, alone = {0};
    attn_search_options options;
    attn_search_options_init(&options);
    options.beams = 3;
    assert_int_equal(attn_captioner_write(f->captioner, f->context, f->grey, PICTURES,
                                          &options, together, &error),
                     ATTN_OK);
    for (int n = 0; n < PICTURES; n++) {
        assert_int_equal(attn_captioner_write(f->captioner, f->context,
                                              f->grey + n * POINTS, 1, &options, &alone,
                                              &error),
                         ATTN_OK);
        assert_int_equal(alone.count, together[n].count);
        for (size_t i = 0; i < alone.count; i++)
            assert_int_equal(alone.ids[i], together[n].ids[i]);
        free(alone.ids);
        free(together[n].ids);
        alone = (attn_translation){0};
    }
}

static void what_is_saved_comes_back(void **state)
{
    struct fixture *const f = *state;
    attn_captioner *loaded = NULL;
    const double before = loss_of(f, NULL, false);
    if (attn_captioner_save(f->captioner, folder, ATTN_DTYPE_F32, &error) != ATTN_OK ||
        attn_captioner_load(&loaded, folder, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    attn_captioner_destroy(f->captioner);
    f->captioner = loaded;
    assert_true(before == loss_of(f, NULL, false));
    assert_int_equal(attn_captioner_config_of(loaded)->cell_columns, 2);
}

static void refuses(const attn_captioner_config *config, const char *fragment)
{
    attn_captioner *captioner;
    assert_fails(attn_captioner_create(&captioner, config, 1, &error), &error,
                 ATTN_EINVAL, fragment);
}

static void a_configuration_that_does_not_fit_is_named(void **state)
{
    (void)state;
    attn_captioner_config config = usual_config();
    config.cell_columns = 3;
    refuses(&config, "in 1 × 3 cells, expected cells that divide them");
    config = usual_config();
    config.channels[1] = 7;
    refuses(&config, "reads a width of 6, expected 7");
    config = usual_config();
    config.layers = 9;
    refuses(&config, "layers is 9, expected 1 to 6");
    config = usual_config();
    config.rows = 2000;
    refuses(&config, "rows is 2000, expected 1 to 1024");
    config = usual_config();
    config.decoder.attention_width = 0;
    refuses(&config, "attention_width is 0");
}

static void a_file_of_another_shape_is_named(void **state)
{
    struct fixture *const f = *state;
    attn_captioner *loaded;
    assert_int_equal(attn_captioner_save(f->captioner, folder, ATTN_DTYPE_BF16, &error),
                     ATTN_OK);
    attn_captioner_config config = usual_config();
    config.channels[0] = 5;
    attn_captioner *other;
    assert_int_equal(attn_captioner_create(&other, &config, 1, &error), ATTN_OK);
    char *text;
    size_t length;
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(attn_file_read(path, 1 << 20, &text, &length, &error), ATTN_OK);
    assert_int_equal(attn_captioner_save(other, folder, ATTN_DTYPE_BF16, &error),
                     ATTN_OK);
    assert_int_equal(attn_file_write(path, text, length, &error), ATTN_OK);
    free(text);
    attn_captioner_destroy(other);
    assert_int_equal(attn_captioner_load(&loaded, folder, &error), ATTN_EFORMAT);
    if (!strstr(error.message, "convolutions.0.weight"))
        fail_msg("%s", error.message);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(attn_captioner_load(&loaded, folder, &error), ATTN_EIO);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gradients_are_slopes_of_the_loss),
        TEST(a_picture_is_computed_as_if_it_were_alone),
        TEST(a_caption_does_not_depend_on_the_batch),
        TEST(what_is_saved_comes_back),
        cmocka_unit_test(a_configuration_that_does_not_fit_is_named),
        TEST(a_file_of_another_shape_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

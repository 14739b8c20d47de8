/* PyTorch's softmax, log_softmax, cross_entropy, gelu, embedding and LayerNorm, with
 * their gradients; and that no folder of cases is there which no test tries.
 *
 * Three have no operation of their own here and are made of those that are.  softmax is
 * attention with the logits for keys and an identity for values.  log_softmax is minus
 * the cross-entropy of each class.  A cross-entropy of class weights, of probabilities or
 * that is not reduced is a sum of those. */
#include "arrays.h"
#include "tensor_test.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct operation_case {
    const char *folder;
    json_t *meta;
    bool is_first; /* of all instruction sets, which says what is skipped */
};

static void *zeros(size_t count, size_t size)
{
    void *const memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

/* An argument of the function or of the module's constructor. */
static const json_t *argument(const struct operation_case *c, const char *name)
{
    const json_t *const constructor = json_object_get(c->meta, "ctor");
    if (constructor)
        return json_object_get(constructor, name);
    char *const keyword = text_of("kw.%s", name);
    const json_t *const value =
        json_object_get(json_object_get(c->meta, "args"), keyword);
    free(keyword);
    return value;
}

static double number(const struct operation_case *c, const char *name, double otherwise)
{
    const json_t *const value = argument(c, name);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static bool says(const struct operation_case *c, const char *name, const char *text)
{
    const char *const value = json_string_value(argument(c, name));
    return value && strcmp(value, text) == 0;
}

/* Whether the case has a tensor of that name, and of what type. */
static const char *type_of(const struct operation_case *c, const char *name)
{
    static const char *const groups[] = {"args", "forward"};
    for (int n = 0; n < 2; n++) {
        const json_t *const tensor =
            json_object_get(json_object_get(c->meta, groups[n]), name);
        if (json_is_object(tensor))
            return json_string_value(json_object_get(tensor, "dtype"));
    }
    return NULL;
}

static struct array load(const struct operation_case *c, const char *name)
{
    char *const file = text_of("%s.npy", name);
    const struct array array = array_load(c->folder, file);
    free(file);
    return array;
}

static void check(const struct operation_case *c, const float *got, const char *name)
{
    struct array expected = load(c, name);
    assert_floats_near(got, &expected, 0.0, 1e-5 + 1e-5 * largest_magnitude(&expected),
                       c->folder, name);
    array_free(&expected);
}

static bool is_module(const struct operation_case *c)
{
    return json_object_get(c->meta, "module");
}

static const char *input_of(const struct operation_case *c)
{
    return is_module(c) ? "in.0" : "arg.0";
}

static void check_input_gradient(const struct operation_case *c, const float *got)
{
    char *const name = text_of("grad_%s", input_of(c));
    check(c, got, name);
    free(name);
}

static void succeed(attn_tape *tape, const struct operation_case *c, const attn_tensor *y)
{
    if (!y)
        fail_msg("%s: %s", c->folder, attn_context_message(attn_tape_context(tape)));
}

static void backward_from(attn_tape *tape, attn_tensor *y, const float *cotangent)
{
    assert_int_equal(attn_tape_backward(tape, test_weigh_by(tape, y, cotangent), 1.0f),
                     ATTN_OK);
}

/* ---- gelu -----------------------------------------------------------------------------
 */

static void run_gelu(attn_tape *tape, const struct operation_case *c)
{
    struct array x = load(c, input_of(c)), cotangent = load(c, "cot");
    float *const data = array_floats(&x), *const slope = array_floats(&cotangent);
    float *const gradient = zeros(x.count, sizeof *gradient);
    const int64_t extent[] = {(int64_t)x.count};
    attn_tape_begin(tape, true, 0);
    attn_tensor *const y =
        attn_activate(tape, attn_tape_leaf(tape, data, gradient, 1, extent),
                      says(c, "approximate", "tanh") ? ATTN_GELU_TANH : ATTN_GELU);
    succeed(tape, c, y);
    check(c, y->data, "out");
    backward_from(tape, y, slope);
    check_input_gradient(c, gradient);
    array_free(&x), array_free(&cotangent);
    free(data), free(slope), free(gradient);
}

/* ---- embedding ------------------------------------------------------------------------
 */

static const char *embedding_reason(const struct operation_case *c)
{
    if (json_is_number(argument(c, "max_norm")))
        return "max_norm: rows of the table are not rescaled as they are read";
    if (json_is_true(argument(c, "scale_grad_by_freq")))
        return "scale_grad_by_freq: gradients are not divided by how often a row is read";
    return NULL;
}

/* The row whose gradient stays 0 there, −1 for none. */
static int64_t padding_row(const struct operation_case *c, int64_t rows)
{
    if (!json_is_integer(argument(c, "padding_idx")))
        return -1;
    const int64_t row = json_integer_value(argument(c, "padding_idx"));
    return row < 0 ? row + rows : row;
}

static void run_embedding(attn_tape *tape, const struct operation_case *c)
{
    struct array table = load(c, is_module(c) ? "param.weight" : "arg.0");
    struct array given = load(c, is_module(c) ? "in.0" : "arg.1");
    struct array cotangent = load(c, "cot");
    float *const data = array_floats(&table), *const slope = array_floats(&cotangent);
    float *const gradient = zeros(table.count, sizeof *gradient);
    int32_t *const ids = zeros(given.count, sizeof *ids);
    for (size_t n = 0; n < given.count; n++)
        ids[n] = (int32_t)given.x[n];
    attn_tape_begin(tape, true, 0);
    attn_tensor *const y =
        attn_embedding(tape, attn_tape_leaf(tape, data, gradient, 2, table.extent), ids,
                       (int64_t)given.count, 1.0f);
    succeed(tape, c, y);
    check(c, y->data, "out");
    backward_from(tape, y, slope);
    const int64_t padding = padding_row(c, table.extent[0]);
    if (padding >= 0) {
        memset(gradient + padding * table.extent[1], 0,
               (size_t)table.extent[1] * sizeof *gradient);
        if (c->is_first)
            say_skipped(c->folder,
                        "only the gradient of the row of padding_idx, which is "
                        "a row like any other here");
    }
    check(c, gradient, is_module(c) ? "grad_param.weight" : "grad_arg.0");
    array_free(&table), array_free(&given), array_free(&cotangent);
    free(data), free(slope), free(gradient), free(ids);
}

/* ---- LayerNorm ------------------------------------------------------------------------
 */

/* A parameter of the module with its gradient, or `otherwise` without one. */
struct parameter {
    const char *name;
    bool is_given;
    float *data, *gradient;
};

static struct parameter parameter_load(const struct operation_case *c, const char *name,
                                       size_t count, float otherwise)
{
    struct parameter p = {.name = name,
                          .is_given =
                              json_object_get(json_object_get(c->meta, "params"), name)};
    p.gradient = zeros(count, sizeof *p.gradient);
    if (p.is_given) {
        char *const file = text_of("param.%s", name);
        struct array array = load(c, file);
        assert_int_equal(array.count, count);
        p.data = array_floats(&array);
        array_free(&array), free(file);
        return p;
    }
    p.data = zeros(count, sizeof *p.data);
    for (size_t n = 0; n < count; n++)
        p.data[n] = otherwise;
    return p;
}

static void parameter_end(const struct operation_case *c, struct parameter *p)
{
    if (p->is_given) {
        char *const name = text_of("grad_param.%s", p->name);
        check(c, p->gradient, name);
        free(name);
    }
    free(p->data), free(p->gradient);
}

/* The last axes, as many as the norm's shape has, are columns. */
static size_t normalised_columns(const struct operation_case *c)
{
    size_t columns = 1;
    for (int axis = 0;; axis++) {
        char *const name = text_of("normalized_shape.%d", axis);
        const json_t *const extent = argument(c, name);
        free(name);
        if (!extent)
            return columns;
        columns *= (size_t)json_integer_value(extent);
    }
}

static void run_layer_norm(attn_tape *tape, const struct operation_case *c)
{
    const size_t columns = normalised_columns(c);
    struct array x = load(c, "in.0"), cotangent = load(c, "cot");
    float *const data = array_floats(&x), *const slope = array_floats(&cotangent);
    float *const gradient = zeros(x.count, sizeof *gradient);
    struct parameter gain = parameter_load(c, "weight", columns, 1.0f);
    struct parameter bias = parameter_load(c, "bias", columns, 0.0f);
    const int64_t extent[] = {(int64_t)(x.count / columns), (int64_t)columns};
    attn_tape_begin(tape, true, 0);
    attn_tensor *const y =
        attn_layer_norm(tape, attn_tape_leaf(tape, data, gradient, 2, extent),
                        attn_tape_leaf(tape, gain.data, gain.gradient, 1, extent + 1),
                        attn_tape_leaf(tape, bias.data, bias.gradient, 1, extent + 1),
                        (float)number(c, "eps", 1e-5));
    succeed(tape, c, y);
    check(c, y->data, "out");
    backward_from(tape, y, slope);
    check_input_gradient(c, gradient);
    parameter_end(c, &gain), parameter_end(c, &bias);
    array_free(&x), array_free(&cotangent);
    free(data), free(slope), free(gradient);
}

/* ---- Classes --------------------------------------------------------------------------
 */

/* [outer][classes][inner]; each outer and inner is a row. */
struct classes {
    size_t outer, count, inner, rows;
};

static struct classes classes_of(const struct array *array, int64_t axis)
{
    struct classes n = {1, 1, 1, 1};
    if (axis < 0)
        axis += array->rank;
    for (int at = 0; at < array->rank; at++)
        *(at < axis    ? &n.outer
          : at == axis ? &n.count
                       : &n.inner) *= (size_t)array->extent[at];
    n.rows = n.outer * n.inner;
    return n;
}

static size_t place_of(const struct classes *n, size_t row, size_t label)
{
    return (row / n->inner * n->count + label) * n->inner + row % n->inner;
}

/* [rows][classes] of an array that lies as PyTorch has it. */
static float *rows_of(const struct array *array, const struct classes *n)
{
    float *const rows = zeros(array->count, sizeof *rows);
    for (size_t row = 0; row < n->rows; row++)
        for (size_t label = 0; label < n->count; label++)
            rows[row * n->count + label] = (float)array->x[place_of(n, row, label)];
    return rows;
}

static void check_rows(const struct operation_case *c, const float *rows,
                       const struct classes *n, const char *name)
{
    float *const got = zeros(n->rows * n->count, sizeof *got);
    for (size_t row = 0; row < n->rows; row++)
        for (size_t label = 0; label < n->count; label++)
            got[place_of(n, row, label)] = rows[row * n->count + label];
    check(c, got, name);
    free(got);
}

static const char *softmax_reason(const struct operation_case *c)
{
    struct array x = load(c, "arg.0");
    const size_t count = x.count;
    array_free(&x);
    if (count == 0)
        return "has no elements";
    return argument(c, "dtype") ? "is asked for in another type than its input" : NULL;
}

static struct classes axis_of(const struct operation_case *c, const struct array *x)
{
    return classes_of(x, json_integer_value(
                             json_object_get(json_object_get(c->meta, "args"), "arg.1")));
}

static void run_softmax(attn_tape *tape, const struct operation_case *c)
{
    struct array x = load(c, "arg.0"), cotangent = load(c, "cot");
    const struct classes n = axis_of(c, &x);
    const int64_t rows = (int64_t)n.rows, classes = (int64_t)n.count;
    float *const key = rows_of(&x, &n), *const slope = rows_of(&cotangent, &n);
    float *const gradient = zeros(x.count, sizeof *gradient);
    float *const query = zeros(n.rows, sizeof *query);
    float *const value = zeros(x.count * n.count, sizeof *value);
    int64_t *const query_starts = zeros(n.rows + 1, sizeof *query_starts);
    int64_t *const key_starts = zeros(n.rows + 1, sizeof *key_starts);
    for (size_t row = 0; row < n.rows; row++) {
        query[row] = 1.0f;
        query_starts[row + 1] = (int64_t)row + 1;
        key_starts[row + 1] = (int64_t)(row + 1) * classes;
        for (size_t label = 0; label < n.count; label++)
            value[(row * n.count + label) * n.count + label] = 1.0f;
    }
    attn_packed_attention attention = {.H = 1, .Hk = 1};
    attn_options_init(&attention.options, &(attn_shape){.D = 1});
    attention.options.sequences = rows;
    attention.options.query_starts = query_starts;
    attention.options.key_starts = key_starts;

    attn_tape_begin(tape, true, 0);
    attn_tensor *const y = attn_attend(
        tape, attn_tape_leaf(tape, query, NULL, 2, (int64_t[]){rows, 1}),
        attn_tape_leaf(tape, key, gradient, 2, (int64_t[]){rows * classes, 1}),
        attn_tape_leaf(tape, value, NULL, 2, (int64_t[]){rows * classes, classes}),
        &attention, NULL, NULL);
    succeed(tape, c, y);
    check_rows(c, y->data, &n, "out");
    backward_from(tape, y, slope);
    check_rows(c, gradient, &n, "grad_arg.0");
    array_free(&x), array_free(&cotangent);
    free(key), free(slope), free(gradient), free(query), free(value);
    free(query_starts), free(key_starts);
}

/* ---- Cross-entropy --------------------------------------------------------------------
 */

/* Logits of rows, and an identity that leaves them as they are. */
struct logits {
    struct classes n;
    float *x, *gradient, *identity;
};

static struct logits logits_create(const struct array *x, struct classes n)
{
    struct logits l = {n, rows_of(x, &n), zeros(x->count, sizeof(float)),
                       zeros(n.count * n.count, sizeof(float))};
    for (size_t label = 0; label < n.count; label++)
        l.identity[label * n.count + label] = 1.0f;
    return l;
}

static void logits_destroy(struct logits *l)
{
    free(l->x), free(l->gradient), free(l->identity);
}

/* The cross-entropy of some rows, summed and divided; its gradient times `times` is added
 * to theirs. */
static double entropy_of(attn_tape *tape, const struct operation_case *c,
                         const struct logits *l, size_t first, size_t rows,
                         const int32_t *targets, double smoothing, double divisor,
                         double times)
{
    const int64_t extent[] = {(int64_t)rows, (int64_t)l->n.count};
    attn_tape_begin(tape, true, 0);
    attn_tensor *const loss = attn_linear_cross_entropy(
        tape,
        attn_tape_leaf(tape, l->x + first * l->n.count, l->gradient + first * l->n.count,
                       2, extent),
        attn_tape_leaf(tape, l->identity, NULL, 2, (int64_t[]){extent[1], extent[1]}),
        NULL, false, targets, (float)smoothing, divisor, NULL);
    succeed(tape, c, loss);
    const double value = (double)loss->data[0];
    assert_int_equal(attn_tape_backward(tape, loss, (float)times), ATTN_OK);
    return value;
}

static double entropy_of_class(attn_tape *tape, const struct operation_case *c,
                               const struct logits *l, size_t row, size_t label,
                               double times)
{
    const int32_t target = (int32_t)label;
    return entropy_of(tape, c, l, row, 1, &target, 0.0, 1.0, times);
}

static void run_log_softmax(attn_tape *tape, const struct operation_case *c)
{
    struct array x = load(c, "arg.0"), cotangent = load(c, "cot");
    struct logits l = logits_create(&x, axis_of(c, &x));
    float *const slope = rows_of(&cotangent, &l.n);
    float *const out = zeros(x.count, sizeof *out);
    for (size_t n = 0; n < x.count; n++)
        out[n] = (float)-entropy_of_class(tape, c, &l, n / l.n.count, n % l.n.count,
                                          -(double)slope[n]);
    check_rows(c, out, &l.n, "out");
    check_rows(c, l.gradient, &l.n, "grad_arg.0");
    logits_destroy(&l);
    array_free(&x), array_free(&cotangent);
    free(slope), free(out);
}

static const char *entropy_reason(const struct operation_case *c)
{
    struct array out = load(c, "out");
    bool has_nan = false;
    for (size_t n = 0; n < out.count; n++)
        has_nan = has_nan || isnan(out.x[n]);
    array_free(&out);
    return has_nan ? "a mean over no row is NaN there" : NULL;
}

struct entropy {
    struct logits logits;
    struct array target, weight, cotangent; /* weight.x NULL: 1 of each class */
    bool is_index, is_mean, is_each;
    int64_t ignored;
    double smoothing;
};

static double weight_of(const struct entropy *e, size_t label)
{
    return e->weight.x ? e->weight.x[label] : 1.0;
}

static bool counts(const struct entropy *e, size_t row)
{
    return !e->is_index || (int64_t)e->target.x[row] != e->ignored;
}

/* How much the cross-entropy of that class is of the row's. */
static double share_of(const struct entropy *e, size_t row, size_t label)
{
    const double even = e->smoothing / (double)e->logits.n.count;
    const double kept = 1.0 - e->smoothing;
    if (!counts(e, row))
        return 0.0;
    if (!e->is_index)
        return weight_of(e, label) *
               (kept * e->target.x[place_of(&e->logits.n, row, label)] + even);
    const bool is_target = (size_t)e->target.x[row] == label;
    return weight_of(e, label) * ((is_target ? kept : 0.0) + even);
}

static double divisor_of(const struct entropy *e)
{
    double sum = 0.0;
    for (size_t row = 0; row < e->logits.n.rows && e->is_mean; row++)
        if (counts(e, row))
            sum += e->is_index ? weight_of(e, (size_t)e->target.x[row]) : 1.0;
    return e->is_mean ? sum : 1.0;
}

/* All rows in one call, as training does. */
static void run_at_once(attn_tape *tape, const struct operation_case *c,
                        const struct entropy *e)
{
    const size_t rows = e->logits.n.rows;
    int32_t *const targets = zeros(rows, sizeof *targets);
    for (size_t row = 0; row < rows; row++)
        targets[row] = counts(e, row) ? (int32_t)e->target.x[row] : -1;
    const float loss = (float)entropy_of(tape, c, &e->logits, 0, rows, targets,
                                         e->smoothing, divisor_of(e), e->cotangent.x[0]);
    check(c, &loss, "out");
    free(targets);
}

static void run_by_class(attn_tape *tape, const struct operation_case *c,
                         const struct entropy *e)
{
    const double divisor = divisor_of(e);
    float *const loss = zeros(e->logits.n.rows, sizeof *loss);
    double sum = 0.0;
    for (size_t row = 0; row < e->logits.n.rows; row++) {
        const double slope = e->cotangent.x[e->is_each ? row : 0] / divisor;
        double of_row = 0.0;
        for (size_t label = 0; label < e->logits.n.count; label++) {
            const double share = share_of(e, row, label);
            of_row +=
                share * entropy_of_class(tape, c, &e->logits, row, label, share * slope);
        }
        loss[row] = (float)of_row;
        sum += of_row / divisor;
    }
    if (!e->is_each)
        loss[0] = (float)sum;
    check(c, loss, "out");
    free(loss);
}

static void run_cross_entropy(attn_tape *tape, const struct operation_case *c)
{
    struct array x = load(c, "arg.0");
    const char *const type = type_of(c, "arg.1");
    struct entropy e = {
        .logits = logits_create(&x, classes_of(&x, x.rank > 1 ? 1 : 0)),
        .target = load(c, "arg.1"),
        .weight = type_of(c, "kw.weight") ? load(c, "kw.weight") : (struct array){0},
        .cotangent = load(c, "cot"),
        .is_index = type && strcmp(type, "int64") == 0,
        .is_each = says(c, "reduction", "none"),
        .is_mean = !says(c, "reduction", "none") && !says(c, "reduction", "sum"),
        .ignored = (int64_t)number(c, "ignore_index", -100.0),
        .smoothing = number(c, "label_smoothing", 0.0),
    };
    if (e.is_index && !e.weight.x && !e.is_each)
        run_at_once(tape, c, &e);
    else
        run_by_class(tape, c, &e);
    check_rows(c, e.logits.gradient, &e.logits.n, "grad_arg.0");
    if (c->is_first && !e.is_index)
        say_skipped(c->folder, "only the gradients of targets and class weights, which "
                               "are no tensors of the tape here");
    logits_destroy(&e.logits);
    array_free(&x), array_free(&e.target), array_free(&e.weight);
    array_free(&e.cotangent);
}

/* ---- All of them ----------------------------------------------------------------------
 */

static const struct kind {
    const char *below;
    void (*run)(attn_tape *, const struct operation_case *);
    const char *(*reason_of)(const struct operation_case *);
} kinds[] = {
    {"gelu", run_gelu, NULL},
    {"nn.GELU", run_gelu, NULL},
    {"embedding", run_embedding, embedding_reason},
    {"nn.Embedding", run_embedding, embedding_reason},
    {"nn.LayerNorm", run_layer_norm, NULL},
    {"softmax", run_softmax, softmax_reason},
    {"log_softmax", run_log_softmax, softmax_reason},
    {"cross_entropy", run_cross_entropy, entropy_reason},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct tally {
    int passed, skipped;
};

static struct tally run_folder(attn_tape *tape, const char *folder,
                               const struct kind *kind, bool is_first)
{
    struct tally tally = {0, 0};
    for (int n = 0; n < 1000; n++) {
        char *const of_case = text_of("%s/%03d", folder, n);
        char *const meta = text_of("%s/meta.json", of_case);
        struct operation_case c = {of_case, json_load_file(meta, 0, NULL), is_first};
        const char *const reason = c.meta && kind->reason_of ? kind->reason_of(&c) : NULL;
        if (reason && is_first)
            say_skipped(of_case, reason);
        if (c.meta && !reason)
            kind->run(tape, &c);
        tally.passed += c.meta && !reason;
        tally.skipped += reason != NULL;
        json_decref(c.meta);
        free(of_case), free(meta);
    }
    return tally;
}

static void operation_cases_pass_with_gradients(void **state)
{
    (void)state;
    char *const torch =
        shared_folder("conformance/torch", "operation_cases_pass_with_gradients");
    for (size_t k = 0; k < KINDS; k++) {
        char *const folder = text_of("%s/%s", torch, kinds[k].below);
        struct tally tally = {0, 0};
        bool is_first = true;
        EACH_TAPE(tape)
        {
            tally = run_folder(tape, folder, &kinds[k], is_first);
            is_first = false;
        }
        print_message("%s: %d passed on each instruction set, %d skipped\n",
                      kinds[k].below, tally.passed, tally.skipped);
        assert_true(tally.passed > 0);
        free(folder);
    }
    free(torch);
}

/* Those that other tests try: of attention, of layers, of recurrent ones, of Llama's
 * operations. */
static const char *const elsewhere[] = {
    "scaled_dot_product_attention",
    "nn.MultiheadAttention",
    "nn.TransformerEncoderLayer",
    "nn.RNN",
    "nn.GRU",
    "nn.RNNCell",
    "nn.GRUCell",
    "nn.LSTMCell",
    "nn.RMSNorm",
    "rms_norm",
};

static bool is_tried(const char *name)
{
    for (size_t k = 0; k < KINDS; k++)
        if (strcmp(kinds[k].below, name) == 0)
            return true;
    for (size_t n = 0; n < sizeof elsewhere / sizeof *elsewhere; n++)
        if (strcmp(elsewhere[n], name) == 0)
            return true;
    return false;
}

static void every_folder_of_cases_is_tried(void **state)
{
    (void)state;
    char *const torch =
        shared_folder("conformance/torch", "every_folder_of_cases_is_tried");
    DIR *const directory = opendir(torch);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && !is_tried(entry->d_name))
            fail_msg("%s/%s has cases that no test tries", torch, entry->d_name);
    closedir(directory);
    free(torch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operation_cases_pass_with_gradients),
        cmocka_unit_test(every_folder_of_cases_is_tried),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

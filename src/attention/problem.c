/* The checks of every argument that forward, backward and weights share, and the way from
 * a problem to its sequences and heads. */
#include "attention/problem.h"
#include "attention/cache.h"
#include <math.h>
#include <string.h>

/* Positions are sums of three of these, so nothing can overflow. */
#define LARGEST_SIZE ((int64_t)1 << 48)
#define LARGEST_HEAD ((int64_t)1 << 20)

/* Whom a message is for, and in whose name. */
struct check {
    attn_context *context;
    const char *function;
};

attn_status attn_check_given(attn_context *context, const char *function,
                             const char *name, const void *argument)
{
    return argument ? ATTN_OK
                    : attn_context_fail(context, ATTN_EINVAL,
                                        "%s: %s is NULL, expected it to be given",
                                        function, name);
}

static attn_status check_range(const struct check *check, const char *name, int64_t value,
                               int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return ATTN_OK;
    return attn_context_fail(check->context, ATTN_EINVAL,
                             "%s: %s is %lld, expected %lld to %lld", check->function,
                             name, (long long)value, (long long)least, (long long)most);
}

static attn_status check_shape(const struct check *check, const attn_shape *shape)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } sizes[] = {
        {"shape.B", shape->B, 0, LARGEST_SIZE},
        {"shape.H", shape->H, 0, LARGEST_SIZE},
        {"shape.Hk", shape->Hk, 1, LARGEST_SIZE},
        {"shape.Lq", shape->Lq, 0, LARGEST_SIZE},
        {"shape.Lk", shape->Lk, 0, LARGEST_SIZE},
        {"shape.D", shape->D, 1, LARGEST_HEAD},
        {"shape.Dv", shape->Dv, 1, LARGEST_HEAD},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ATTN_TRY(check_range(check, sizes[i].name, sizes[i].value, sizes[i].least,
                             sizes[i].most));
    if (shape->H % shape->Hk != 0)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: shape.H is %lld, expected a multiple of shape.Hk, "
                                 "%lld",
                                 check->function, (long long)shape->H,
                                 (long long)shape->Hk);
    const int64_t longest = shape->Lq > shape->Lk ? shape->Lq : shape->Lk;
    int64_t rows = 0;
    if (__builtin_mul_overflow(shape->B, shape->H, &rows) ||
        __builtin_mul_overflow(rows, longest, &rows) || rows > LARGEST_SIZE)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: shape has B %lld, H %lld and length %lld, expected "
                                 "a product of at most 2^48",
                                 check->function, (long long)shape->B,
                                 (long long)shape->H, (long long)longest);
    return ATTN_OK;
}

static attn_status check_numbers(const struct check *check, const attn_options *options)
{
    ATTN_TRY(check_range(check, "options.alignment", (int64_t)options->alignment,
                         ATTN_ALIGN_BOTTOM_RIGHT, ATTN_ALIGN_OFFSET));
    if (options->alignment == ATTN_ALIGN_OFFSET)
        ATTN_TRY(check_range(check, "options.query_offset", options->query_offset,
                             -LARGEST_SIZE, LARGEST_SIZE));
    ATTN_TRY(check_range(check, "options.window_left", options->window_left, -1,
                         LARGEST_SIZE));
    ATTN_TRY(check_range(check, "options.window_right", options->window_right, -1,
                         LARGEST_SIZE));
    ATTN_TRY(
        check_range(check, "options.sink_keys", options->sink_keys, 0, LARGEST_SIZE));
    ATTN_TRY(check_range(check, "options.score", (int64_t)options->score, ATTN_SCORE_DOT,
                         ATTN_SCORE_LINEAR));
    if (options->score == ATTN_SCORE_LINEAR)
        ATTN_TRY(check_range(check, "options.feature", (int64_t)options->feature,
                             ATTN_FEATURE_ELU, ATTN_FEATURE_IDENTITY));
    if (options->score == ATTN_SCORE_ADDITIVE && !options->additive)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.additive is NULL, expected a vector for "
                                 "each head with ATTN_SCORE_ADDITIVE",
                                 check->function);
    if (options->score != ATTN_SCORE_ADDITIVE && options->additive)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.additive is given with ATTN_SCORE_DOT, "
                                 "expected NULL or ATTN_SCORE_ADDITIVE",
                                 check->function);
    if (!isfinite(options->scale))
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.scale is %g, expected a finite number",
                                 check->function, (double)options->scale);
    if (!(options->softcap >= 0.0f) || !isfinite(options->softcap))
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.softcap is %g, expected 0 or a positive "
                                 "finite number",
                                 check->function, (double)options->softcap);
    if (options->log_forget.data && !options->causal)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.log_forget is given without causal, "
                                 "expected both: what is after a query cannot have been "
                                 "forgotten",
                                 check->function);
    if (options->blocks.data &&
        (options->block_size < 16 || options->block_size % 16 != 0 ||
         options->block_size > LARGEST_SIZE))
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.block_size is %lld, expected a multiple "
                                 "of 16",
                                 check->function, (long long)options->block_size);
    if (!(options->dropout >= 0.0 && options->dropout <= 1.0))
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.dropout is %g, expected 0 to 1",
                                 check->function, options->dropout);
    return ATTN_OK;
}

static attn_status check_lengths(const struct check *check, const char *name,
                                 const int64_t *lengths, int64_t B, int64_t most)
{
    for (int64_t b = 0; lengths && b < B; b++)
        if (lengths[b] < 0 || lengths[b] > most)
            return attn_context_fail(check->context, ATTN_EINVAL,
                                     "%s: options.%s[%lld] is %lld, expected 0 to %lld",
                                     check->function, name, (long long)b,
                                     (long long)lengths[b], (long long)most);
    return ATTN_OK;
}

static attn_status check_starts(const struct check *check, const char *name,
                                const int64_t *starts, int64_t sequences, int64_t total)
{
    if (starts[0] != 0)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.%s[0] is %lld, expected 0", check->function,
                                 name, (long long)starts[0]);
    for (int64_t s = 0; s < sequences; s++)
        if (starts[s + 1] < starts[s] || starts[s + 1] > total)
            return attn_context_fail(
                check->context, ATTN_EINVAL,
                "%s: options.%s[%lld] is %lld, expected %lld to %lld", check->function,
                name, (long long)s + 1, (long long)starts[s + 1], (long long)starts[s],
                (long long)total);
    if (starts[sequences] != total)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options.%s[%lld], the last, is %lld, expected the "
                                 "length in the shape, %lld",
                                 check->function, name, (long long)sequences,
                                 (long long)starts[sequences], (long long)total);
    return ATTN_OK;
}

static attn_status check_sequences(const struct check *check, const attn_shape *shape,
                                   const attn_options *options)
{
    ATTN_TRY(check_lengths(check, "query_lengths", options->query_lengths, shape->B,
                           shape->Lq));
    ATTN_TRY(
        check_lengths(check, "key_lengths", options->key_lengths, shape->B, shape->Lk));
    if (!options->query_starts && !options->key_starts)
        return ATTN_OK;
    if (!options->query_starts || !options->key_starts)
        return attn_context_fail(
            check->context, ATTN_EINVAL,
            "%s: options.%s is NULL, expected both starts or neither", check->function,
            options->query_starts ? "key_starts" : "query_starts");
    if (options->query_lengths || options->key_lengths)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: options has both lengths and starts, expected one "
                                 "of them",
                                 check->function);
    ATTN_TRY(check_range(check, "shape.B with packed sequences", shape->B, 1, 1));
    ATTN_TRY(
        check_range(check, "options.sequences", options->sequences, 0, LARGEST_SIZE));
    ATTN_TRY(check_starts(check, "query_starts", options->query_starts,
                          options->sequences, shape->Lq));
    return check_starts(check, "key_starts", options->key_starts, options->sequences,
                        shape->Lk);
}

attn_status attn_check_strides(attn_context *context, const char *function,
                               const char *name, const int64_t stride[4],
                               const int64_t extent[4])
{
    int64_t reach = 0;
    for (int axis = 0; axis < 4; axis++) {
        const int64_t steps = extent[axis] > 0 ? extent[axis] - 1 : 0;
        int64_t along = 0;
        bool overflows = stride[axis] == INT64_MIN ||
                         __builtin_mul_overflow(steps, stride[axis], &along);
        along = along < 0 ? -along : along;
        overflows = overflows || __builtin_add_overflow(reach, along, &reach);
        if (overflows || reach > INT64_MAX / (int64_t)sizeof(float) - 1)
            return attn_context_fail(context, ATTN_EINVAL,
                                     "%s: %s.stride[%d] is %lld for %lld steps, expected "
                                     "offsets that fit 64 bits",
                                     function, name, axis, (long long)stride[axis],
                                     (long long)steps);
    }
    return ATTN_OK;
}

/* One tensor of the call; no data is fine where nothing needs it. */
static attn_status check_tensor(const struct check *check, const char *name,
                                const void *data, bool needed, const int64_t stride[4],
                                const int64_t extent[4])
{
    if (needed && !data)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: %s is NULL, expected data", check->function, name);
    return data
               ? attn_check_strides(check->context, check->function, name, stride, extent)
               : ATTN_OK;
}

attn_status attn_check_type(attn_context *context, const char *function, const char *name,
                            attn_type type)
{
    if (attn_type_bytes(type) > 0)
        return ATTN_OK;
    return attn_context_fail(context, ATTN_EINVAL,
                             "%s: %s.type is %d, expected ATTN_F32, ATTN_F16 or "
                             "ATTN_BF16",
                             function, name, (int)type);
}

static attn_status check_types(const struct check *check, const attn_tensors *t,
                               const attn_options *o)
{
    const struct {
        const char *name;
        const void *data;
        attn_type type;
    } tensors[] = {
        {"tensors.query", t->query.data, t->query.type},
        {"tensors.key", t->key.data, t->key.type},
        {"tensors.value", t->value.data, t->value.type},
        {"tensors.output", t->output.data, t->output.type},
        {"options.bias", o->bias.data, o->bias.type},
        {"options.log_forget", o->log_forget.data, o->log_forget.type},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i].data)
            ATTN_TRY(attn_check_type(check->context, check->function, tensors[i].name,
                                     tensors[i].type));
    return ATTN_OK;
}

/* What options give for each pair, block or key. */
static attn_status check_option_tensors(const struct check *check, const attn_shape *s,
                                        const attn_options *o)
{
    const int64_t size = o->blocks.data ? o->block_size : 1;
    const int64_t pairs[] = {s->B, s->H, s->Lq, s->Lk};
    const int64_t keys[] = {s->B, s->H, s->Lk, 1};
    const int64_t blocks[] = {s->B, s->H, (s->Lq + size - 1) / size,
                              (s->Lk + size - 1) / size};
    ATTN_TRY(
        check_tensor(check, "options.keep", o->keep.data, false, o->keep.stride, pairs));
    ATTN_TRY(
        check_tensor(check, "options.bias", o->bias.data, false, o->bias.stride, pairs));
    ATTN_TRY(check_tensor(check, "options.blocks", o->blocks.data, false,
                          o->blocks.stride, blocks));
    return check_tensor(check, "options.log_forget", o->log_forget.data, false,
                        o->log_forget.stride, keys);
}

static attn_status check_tensors(const struct check *check,
                                 const struct attn_problem *problem, unsigned needs)
{
    const attn_shape *const s = problem->shape;
    const attn_tensors *const t = problem->tensors;
    const attn_options *const o = problem->options;
    const bool keys = s->Lk > 0;
    const int64_t query[] = {s->B, s->H, s->Lq, s->D};
    const int64_t key[] = {s->B, s->Hk, s->Lk, s->D};
    const int64_t value[] = {s->B, s->Hk, s->Lk, s->Dv};
    const int64_t output[] = {s->B, s->H, s->Lq, s->Dv};
    ATTN_TRY(check_types(check, t, o));
    ATTN_TRY(check_tensor(check, "tensors.query", t->query.data, true, t->query.stride,
                          query));
    ATTN_TRY(check_tensor(check, "tensors.key", t->key.data, keys, t->key.stride, key));
    ATTN_TRY(check_tensor(check, "tensors.value", t->value.data,
                          keys && (needs & ATTN_NEEDS_VALUE), t->value.stride, value));
    ATTN_TRY(check_tensor(check, "tensors.output", t->output.data,
                          needs & ATTN_NEEDS_OUTPUT, t->output.stride, output));
    ATTN_TRY(check_option_tensors(check, s, o));
    if ((needs & ATTN_NEEDS_LSE) && !t->lse)
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: tensors.lse is NULL, expected what attn_forward "
                                 "wrote",
                                 check->function);
    const void *const to = t->output.data;
    if ((needs & ATTN_NEEDS_OUTPUT) &&
        (to == t->query.data || to == t->key.data || to == t->value.data))
        return attn_context_fail(check->context, ATTN_EINVAL,
                                 "%s: tensors.output is at the address of an input, "
                                 "expected memory of its own",
                                 check->function);
    return ATTN_OK;
}

attn_status attn_problem_init(struct attn_problem *problem, attn_context *context,
                              const char *function, const attn_shape *shape,
                              const attn_tensors *tensors, const attn_options *options,
                              unsigned needs)
{
    const struct check check = {context, function};
    ATTN_TRY(attn_check_given(context, function, "shape", shape));
    ATTN_TRY(attn_check_given(context, function, "tensors", tensors));
    ATTN_TRY(attn_check_given(context, function, "options", options));
    ATTN_TRY(check_shape(&check, shape));
    ATTN_TRY(check_numbers(&check, options));
    ATTN_TRY(check_sequences(&check, shape, options));
    const bool packed = options->query_starts;
    const bool empty = shape->B == 0 || shape->H == 0 || shape->Lq == 0;
    *problem = (struct attn_problem){
        .shape = shape,
        .tensors = tensors,
        .options = options,
        .packed = packed,
        .empty = empty,
        .sequences = empty    ? 0
                     : packed ? options->sequences
                              : shape->B,
    };
    return problem->empty ? ATTN_OK : check_tensors(&check, problem, needs);
}

struct attn_sequence attn_problem_sequence(const struct attn_problem *problem,
                                           int64_t index)
{
    const attn_options *const options = problem->options;
    struct attn_sequence sequence = {.index = index};
    if (problem->packed) {
        sequence.first_query = options->query_starts[index];
        sequence.first_key = options->key_starts[index];
        sequence.Lq = options->query_starts[index + 1] - sequence.first_query;
        sequence.Lk = options->key_starts[index + 1] - sequence.first_key;
    } else {
        sequence.b = index;
        sequence.Lq =
            options->query_lengths ? options->query_lengths[index] : problem->shape->Lq;
        sequence.Lk =
            options->key_lengths ? options->key_lengths[index] : problem->shape->Lk;
        if (problem->cached)
            sequence.Lk = attn_cached_length(problem->cached, index);
    }
    if (options->alignment == ATTN_ALIGN_BOTTOM_RIGHT)
        sequence.offset = sequence.Lk - sequence.Lq;
    else if (options->alignment == ATTN_ALIGN_OFFSET)
        sequence.offset = options->query_offset;
    return sequence;
}

int64_t attn_sequences_alike(const struct attn_problem *problem, int64_t index)
{
    const attn_options *const options = problem->options;
    const bool each_its_own = problem->packed || problem->cached ||
                              options->query_lengths || options->key_lengths ||
                              (options->blocks.data && options->blocks.stride[0] != 0);
    return each_its_own ? 1 : problem->sequences - index;
}

struct attn_head attn_problem_head(const struct attn_problem *problem,
                                   const struct attn_sequence *sequence, int64_t h)
{
    const attn_shape *const shape = problem->shape;
    const attn_tensors *const t = problem->tensors;
    const attn_options *const o = problem->options;
    const int64_t hk = h / (shape->H / shape->Hk);
    const int64_t b = sequence->b, i = sequence->first_query, j = sequence->first_key;
    struct attn_head head = {
        .h = h,
        .hk = hk,
        .query = attn_input_row(&t->query, b, h, i),
        .row = (b * shape->H + h) * shape->Lq + i,
        .additive = o->additive ? o->additive + h * shape->D : NULL,
        .alibi_slope = o->alibi_slopes ? o->alibi_slopes[h] : 0.0f,
        .sink = o->sinks ? o->sinks[h] : -INFINITY,
    };
    if (t->key.data)
        head.key = attn_input_row(&t->key, b, hk, j);
    if (t->value.data)
        head.value = attn_input_row(&t->value, b, hk, j);
    if (t->output.data)
        head.output = attn_output_row(&t->output, b, h, i);
    if (o->keep.data)
        head.keep = o->keep.data + attn_row_offset(o->keep.stride, b, h, i) +
                    j * o->keep.stride[3];
    if (o->blocks.data) /* which count in the sequence */
        head.blocks = o->blocks.data + attn_row_offset(o->blocks.stride, b, h, 0);
    if (o->bias.data)
        head.bias = attn_element(o->bias.data, o->bias.type,
                                 attn_row_offset(o->bias.stride, b, h, i) +
                                     j * o->bias.stride[3]);
    return head;
}

void attn_clear_rows(const attn_output *x, int64_t b, int64_t h, int64_t first_row,
                     int64_t end_row, int64_t size)
{
    const size_t bytes = attn_type_bytes(x->type);
    for (int64_t row = first_row; row < end_row && x->data; row++) {
        const int64_t first = attn_row_offset(x->stride, b, h, row);
        if (x->stride[3] == 1)
            memset(attn_place(x->data, x->type, first), 0, (size_t)size * bytes);
        for (int64_t n = 0; n < size && x->stride[3] != 1; n++)
            memset(attn_place(x->data, x->type, first + n * x->stride[3]), 0, bytes);
    }
}

/* Reading and writing the JSON beside a model. */
#include "model/config_file.h"
#include "base/context.h"
#include "file/file.h"
#include "file/path.h"
#include "file/safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CONFIG_BYTES = 1 << 20 };

/* ---- Reading --------------------------------------------------------------------- */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object", "a list", "a text", "a whole number",
                                        "a decimal", "true",   "false",  "null"};
    return names[json_typeof(value)];
}

attn_status attn_config_file_open(attn_config_file *file, const char *path,
                                  attn_error *error)
{
    char *text;
    size_t length;
    *file = (attn_config_file){.path = path, .error = error};
    ATTN_TRY(attn_file_read_text(path, MOST_CONFIG_BYTES, &text, &length, error));
    json_error_t parse_error;
    file->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &parse_error);
    free(text);
    if (!file->root)
        return attn_error_set(error, ATTN_EFORMAT, "%s: line %d: %s", path,
                              parse_error.line, parse_error.text);
    if (json_is_object(file->root))
        return ATTN_OK;
    const char *const type = type_name(file->root);
    attn_config_file_close(file);
    return attn_error_set(error, ATTN_EFORMAT, "%s: the whole is %s, expected an object",
                          path, type);
}

void attn_config_file_close(attn_config_file *file)
{
    json_decref(file->root);
    file->root = NULL;
}

attn_status attn_config_file_refuse(const attn_config_file *file, const char *key,
                                    const json_t *value, const char *expected)
{
    return attn_error_set(file->error, ATTN_EFORMAT, "%s: %s is %s, expected %s",
                          file->path, key, value ? type_name(value) : "missing",
                          expected);
}

attn_status attn_config_file_integer(const attn_config_file *file, const char *key,
                                     int64_t fallback, int64_t *out)
{
    const json_t *const value = json_object_get(file->root, key);
    if (!value && fallback >= 0) {
        *out = fallback;
        return ATTN_OK;
    }
    if (!json_is_integer(value))
        return attn_config_file_refuse(file, key, value, "a whole number");
    *out = json_integer_value(value);
    return ATTN_OK;
}

attn_status attn_config_file_number(const attn_config_file *file, const char *key,
                                    double fallback, double *out)
{
    const json_t *const value = json_object_get(file->root, key);
    if (value ? !json_is_number(value) : isnan(fallback))
        return attn_config_file_refuse(file, key, value, "a number");
    *out = value ? json_number_value(value) : fallback;
    return ATTN_OK;
}

attn_status attn_config_file_probability(const attn_config_file *file, const char *key,
                                         double fallback, float *out)
{
    double number;
    ATTN_TRY(attn_config_file_number(file, key, fallback, &number));
    if (!(number >= 0.0 && (float)number < 1.0f))
        return attn_error_set(file->error, ATTN_EFORMAT,
                              "%s: %s is %g, expected 0 to below 1", file->path, key,
                              number);
    *out = (float)number;
    return ATTN_OK;
}

attn_status attn_config_file_flag(const attn_config_file *file, const char *key,
                                  bool fallback, bool *out)
{
    const json_t *const value = json_object_get(file->root, key);
    if (value && !json_is_boolean(value))
        return attn_config_file_refuse(file, key, value, "true or false");
    *out = value ? json_is_true(value) : fallback;
    return ATTN_OK;
}

attn_status attn_config_file_choice(const attn_config_file *file, const char *key,
                                    const char *const *names, size_t *out)
{
    const json_t *const value = json_object_get(file->root, key);
    const char *const text = json_string_value(value);
    char expected[160] = ""; /* "a", "b" or "c" */
    size_t end = 0;
    for (*out = 0; names[*out]; ++*out) {
        if (text && strcmp(text, names[*out]) == 0)
            return ATTN_OK;
        if (end < sizeof expected)
            end += (size_t)snprintf(expected + end, sizeof expected - end, "%s\"%s\"",
                                    *out == 0         ? ""
                                    : names[*out + 1] ? ", "
                                                      : " or ",
                                    names[*out]);
    }
    if (!text)
        return attn_config_file_refuse(file, key, value, expected);
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: %s is \"%.40s\", expected %s", file->path, key, text,
                          expected);
}

attn_status attn_config_file_expect(const attn_config_file *file, const char *key,
                                    int64_t expected)
{
    int64_t value = expected;
    if (json_object_get(file->root, key))
        ATTN_TRY(attn_config_file_integer(file, key, -1, &value));
    if (value == expected)
        return ATTN_OK;
    return attn_error_set(file->error, ATTN_EUNSUPPORTED, "%s: %s is %lld, expected %lld",
                          file->path, key, (long long)value, (long long)expected);
}

attn_status attn_config_file_expect_flag(const attn_config_file *file, const char *key,
                                         bool fallback, bool expected)
{
    bool flag = fallback;
    ATTN_TRY(attn_config_file_flag(file, key, fallback, &flag));
    if (flag == expected)
        return ATTN_OK;
    return attn_error_set(file->error, ATTN_EUNSUPPORTED, "%s: %s is %s, expected %s",
                          file->path, key, flag ? "true" : "false",
                          expected ? "true" : "false");
}

static const struct {
    const char *name;
    attn_activation activation;
} ACTIVATIONS[] = {
    /* The first of each is what is written. */
    {"relu", ATTN_RELU},
    {"gelu", ATTN_GELU},
    {"silu", ATTN_SILU},
    {"tanh", ATTN_TANH},
    {"swish", ATTN_SILU},
    {"gelu_new", ATTN_GELU_TANH},
    {"gelu_pytorch_tanh", ATTN_GELU_TANH},
};
enum { ACTIVATION_COUNT = sizeof ACTIVATIONS / sizeof ACTIVATIONS[0] };

attn_status attn_config_file_activation(const attn_config_file *file, const char *key,
                                        const char *fallback, attn_activation *out)
{
    const json_t *const value = json_object_get(file->root, key);
    if (value && !json_is_string(value))
        return attn_config_file_refuse(file, key, value, "a text");
    const char *const name = value ? json_string_value(value) : fallback;
    for (size_t i = 0; i < ACTIVATION_COUNT; i++)
        if (strcmp(name, ACTIVATIONS[i].name) == 0) {
            *out = ACTIVATIONS[i].activation;
            return ATTN_OK;
        }
    return attn_error_set(file->error, ATTN_EUNSUPPORTED,
                          "%s: %s is \"%.40s\", expected relu, gelu, gelu_new, "
                          "gelu_pytorch_tanh, silu, swish or tanh",
                          file->path, key, name);
}

const char *attn_activation_name(attn_activation activation)
{
    size_t i = 0;
    while (ACTIVATIONS[i].activation != activation)
        i++;
    return ACTIVATIONS[i].name;
}

attn_status attn_config_file_blame(const attn_config_file *file, attn_status status)
{
    if (status != ATTN_EINVAL)
        return status;
    return attn_error_set(file->error, ATTN_EFORMAT, "%s: %s", file->path,
                          file->error->message);
}

/* ---- Writing --------------------------------------------------------------------- */

const char *attn_json_dtype(int dtype)
{
    return dtype == ATTN_DTYPE_BF16 ? "bfloat16" : "float32";
}

json_t *attn_json_decimal(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return json_real(strtod(text, NULL));
}

attn_status attn_config_file_write(json_t *document, const char *folder, const char *name,
                                   attn_error *error)
{
    char path[ATTN_PATH_BYTES];
    char *const text = document ? json_dumps(document, JSON_INDENT(2) | JSON_SORT_KEYS |
                                                           JSON_REAL_PRECISION(9))
                                : NULL;
    json_decref(document);
    if (!text)
        return attn_error_set(error, ATTN_ENOMEM, "%s/%s: no memory", folder, name);
    size_t length = strlen(text);
    text[length++] = '\n'; /* in the place of the NUL, which is not written */
    attn_status status = attn_path_join(path, folder, name, error);
    if (status == ATTN_OK)
        status = attn_file_write(path, text, length, error);
    free(text);
    return status;
}

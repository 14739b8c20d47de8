/* Loading tokenizer.json, as the `tokenizers` package reads and writes it, for the one
 * kind of tokenizer this library has: byte-level BPE with GPT-2's expression, no
 * normaliser or that of small letters, the four specials as ids 0 to 3, and perhaps
 * <mask> as the last id.  A file that asks for anything else is refused by the name of
 * what it asks for, since ignoring it would give other ids in silence. */
#include "base/context.h"
#include "file/file.h"
#include "file/utf8.h"
#include "text/bytes.h"
#include "text/vocabulary.h"
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 64 << 20, LARGEST_VOCABULARY = 1 << 20 };

struct loader {
    const char *path;
    const json_t *vocabulary;
    const char **names; /* by id */
    size_t size;
    bool has_mask, lowers;
    attn_tokenizer *tokenizer;
    attn_error *error;
};

__attribute__((format(printf, 2, 3))) static attn_status refuse(struct loader *loader,
                                                                const char *format, ...)
{
    char reason[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return attn_error_set(loader->error, ATTN_EFORMAT, "%s: %s", loader->path, reason);
}

static attn_status no_memory(struct loader *loader)
{
    return attn_error_set(loader->error, ATTN_ENOMEM, "no memory to load %s",
                          loader->path);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));
    return text ? text : "nothing";
}

/* Absent, null, false, 0 and "" all mean that a thing is not wanted. */
static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0.0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static attn_status check_off(struct loader *loader, const json_t *object,
                             const char *const *keys)
{
    for (; *keys; keys++)
        if (!is_off(json_object_get(object, *keys)))
            return refuse(loader, "%s is set, expected null: it is not supported here",
                          *keys);
    return ATTN_OK;
}

static attn_status check_pre_tokenizer(struct loader *loader, const json_t *root)
{
    const json_t *const pre = json_object_get(root, "pre_tokenizer");
    if (strcmp(text_of(pre, "type"), "ByteLevel") != 0)
        return refuse(loader, "pre_tokenizer has type %.60s, expected ByteLevel",
                      text_of(pre, "type"));
    if (json_is_false(json_object_get(pre, "use_regex")))
        return refuse(loader, "pre_tokenizer.use_regex is false, expected true");
    /* Absent means true to `tokenizers`. */
    if (!json_is_false(json_object_get(pre, "add_prefix_space")))
        return refuse(loader,
                      "pre_tokenizer.add_prefix_space is not false, expected false");
    return ATTN_OK;
}

static attn_status check_normaliser(struct loader *loader, const json_t *root)
{
    const json_t *const normaliser = json_object_get(root, "normalizer");
    loader->lowers = strcmp(text_of(normaliser, "type"), "Lowercase") == 0;
    return loader->lowers || is_off(normaliser)
               ? ATTN_OK
               : refuse(loader, "normalizer has type %.60s, expected null or Lowercase",
                        text_of(normaliser, "type"));
}

static attn_status check_frame(struct loader *loader, const json_t *root,
                               const json_t *model)
{
    static const char *const unsupported[] = {"truncation", "padding", NULL};
    static const char *const unsupported_of_model[] = {"dropout",
                                                       "continuing_subword_prefix",
                                                       "end_of_word_suffix",
                                                       "byte_fallback",
                                                       "ignore_merges",
                                                       NULL};
    if (!json_is_object(model))
        return refuse(loader, "no \"model\" object in it: not a tokenizer.json");
    if (strcmp(text_of(model, "type"), "BPE") != 0)
        return refuse(loader, "model.type is %.60s, expected BPE",
                      text_of(model, "type"));
    ATTN_TRY(check_normaliser(loader, root));
    ATTN_TRY(check_off(loader, root, unsupported));
    ATTN_TRY(check_off(loader, model, unsupported_of_model));
    ATTN_TRY(check_pre_tokenizer(loader, root));
    const json_t *const decoder = json_object_get(root, "decoder");
    if (strcmp(text_of(decoder, "type"), "ByteLevel") != 0)
        return refuse(loader, "decoder has type %.60s, expected ByteLevel",
                      text_of(decoder, "type"));
    return ATTN_OK;
}

static attn_status check_special(struct loader *loader, const json_t *added, size_t i,
                                 const char *name, size_t expected)
{
    const json_t *const token = json_array_get(added, i);
    const json_t *const id = json_object_get(token, "id");
    if (strcmp(text_of(token, "content"), name) != 0 || !json_is_integer(id) ||
        json_integer_value(id) != (json_int_t)expected)
        return refuse(loader,
                      "added_tokens[%zu] is \"%.60s\", expected \"%s\" with id %zu", i,
                      text_of(token, "content"), name, expected);
    if (!json_is_true(json_object_get(token, "special")))
        return refuse(loader, "added_tokens[%zu].special is not true, expected true", i);
    return ATTN_OK;
}

static attn_status check_added(struct loader *loader, const json_t *added)
{
    const size_t count = json_array_size(added);
    if (count != ATTN_SPECIALS && count != ATTN_SPECIALS + 1)
        return refuse(loader,
                      "added_tokens has %zu entries, expected %d: <s> <pad> </s> <unk>, "
                      "and perhaps <mask>",
                      count, ATTN_SPECIALS);
    for (size_t i = 0; i < ATTN_SPECIALS; i++)
        ATTN_TRY(check_special(loader, added, i, attn_special_names[i], i));
    loader->has_mask = count > ATTN_SPECIALS;
    return loader->has_mask ? check_special(loader, added, ATTN_SPECIALS, attn_mask_name,
                                            loader->size - 1)
                            : ATTN_OK;
}

/* Puts the names in the order of their ids: each id from 0 to size − 1 once. */
static attn_status order_vocabulary(struct loader *loader)
{
    loader->size = json_object_size(loader->vocabulary);
    if (loader->size < ATTN_SPECIALS + 256 || loader->size > LARGEST_VOCABULARY)
        return refuse(loader, "model.vocab has %zu tokens, expected %d to %d",
                      loader->size, ATTN_SPECIALS + 256, LARGEST_VOCABULARY);
    loader->names = calloc(loader->size, sizeof *loader->names);
    if (!loader->names)
        return no_memory(loader);
    const char *name;
    const json_t *value;
    json_object_foreach((json_t *)loader->vocabulary, name, value)
    {
        const json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= (json_int_t)loader->size)
            return refuse(loader,
                          "token \"%.60s\" has id %lld, expected a whole number "
                          "from 0 to %zu",
                          name, json_is_integer(value) ? (long long)id : -1LL,
                          loader->size - 1);
        if (loader->names[id])
            return refuse(loader, "tokens \"%.60s\" and \"%.60s\" share id %lld",
                          loader->names[id], name, (long long)id);
        loader->names[id] = name;
    }
    return ATTN_OK;
}

/* Turns a name's characters back into bytes. */
static attn_status add_token(struct loader *loader, const char *name, char *bytes)
{
    const size_t length = strlen(name);
    size_t used = 0;
    for (size_t at = 0, step; at < length; at += step) {
        uint32_t character = 0;
        const bool read = attn_utf8_read(name + at, length - at, &character, &step);
        const int byte = read ? attn_character_to_byte(character) : -1;
        if (byte < 0)
            return refuse(loader, "token \"%.60s\" has U+%04X, which stands for no byte",
                          name, (unsigned)character);
        bytes[used++] = (char)byte;
    }
    if (used == 0)
        return refuse(loader, "a token of model.vocab is empty");
    return attn_tokenizer_add_token(loader->tokenizer, bytes, used, loader->error);
}

static attn_status add_tokens(struct loader *loader)
{
    size_t longest = 0;
    for (size_t i = 0; i < loader->size; i++)
        if (strlen(loader->names[i]) > longest)
            longest = strlen(loader->names[i]);
    for (size_t i = 0; i < ATTN_SPECIALS; i++) {
        if (strcmp(loader->names[i], attn_special_names[i]) != 0)
            return refuse(loader, "id %zu is \"%.60s\", expected \"%s\"", i,
                          loader->names[i], attn_special_names[i]);
        ATTN_TRY(attn_tokenizer_add_token(loader->tokenizer, attn_special_names[i],
                                          strlen(attn_special_names[i]), loader->error));
    }
    char *const bytes = malloc(longest + 1);
    if (!bytes)
        return no_memory(loader);
    attn_status status = ATTN_OK;
    for (size_t i = ATTN_SPECIALS; i < loader->size && status == ATTN_OK; i++)
        status = add_token(loader, loader->names[i], bytes);
    free(bytes);
    ATTN_TRY(status);
    if (loader->has_mask && strcmp(loader->names[loader->size - 1], attn_mask_name) != 0)
        return refuse(loader, "id %zu is \"%.60s\", expected \"%s\"", loader->size - 1,
                      loader->names[loader->size - 1], attn_mask_name);
    loader->tokenizer->has_mask = loader->has_mask;
    for (int byte = 0; byte < 256; byte++)
        if (loader->tokenizer->byte_token[byte] == 0)
            return refuse(loader, "model.vocab has no token for byte 0x%02X", byte);
    return ATTN_OK;
}

/* The id of a name of `length` bytes, or −1. */
static int32_t id_of(const struct loader *loader, const char *name, size_t length)
{
    const json_t *const id = json_object_getn(loader->vocabulary, name, length);
    return id ? (int32_t)json_integer_value(id) : -1;
}

/* The two names of a merge: "left right", or ["left", "right"]. */
static bool split_merge(const json_t *merge, const char *name[2], size_t length[2])
{
    if (json_is_string(merge)) {
        name[0] = json_string_value(merge);
        const char *const space = strchr(name[0], ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        length[0] = (size_t)(space - name[0]);
        name[1] = space + 1;
        length[1] = strlen(name[1]);
        return true;
    }
    if (json_array_size(merge) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        name[i] = json_string_value(json_array_get(merge, i));
        if (!name[i])
            return false;
        length[i] = strlen(name[i]);
    }
    return true;
}

static bool is_text(const struct loader *loader, int32_t id)
{
    return id >= 0 && !attn_tokenizer_is_special(loader->tokenizer, id);
}

static attn_status add_merge(struct loader *loader, size_t rank, const json_t *json,
                             char *joined)
{
    const char *name[2];
    size_t length[2];
    if (!split_merge(json, name, length))
        return refuse(loader, "model.merges[%zu] is not two tokens", rank);
    memcpy(joined, name[0], length[0]);
    memcpy(joined + length[0], name[1], length[1]);
    joined[length[0] + length[1]] = '\0';
    const struct attn_merge merge = {id_of(loader, name[0], length[0]),
                                     id_of(loader, name[1], length[1]),
                                     id_of(loader, joined, length[0] + length[1])};
    for (size_t i = 0; i < 2; i++)
        if (!is_text(loader, i == 0 ? merge.left : merge.right))
            return refuse(loader,
                          "model.merges[%zu] names \"%.*s\", which is no token of "
                          "text",
                          rank, length[i] > 60 ? 60 : (int)length[i], name[i]);
    if (!is_text(loader, merge.result))
        return refuse(loader,
                      "model.merges[%zu] makes \"%.60s\", which is no token of text",
                      rank, joined);
    if (attn_pair_map_find(&loader->tokenizer->ranks, merge.left, merge.right) >= 0)
        return refuse(loader, "model.merges[%zu] repeats an earlier one", rank);
    return attn_tokenizer_add_merge(loader->tokenizer, merge, loader->error);
}

static attn_status add_merges(struct loader *loader, const json_t *merges, size_t longest)
{
    if (!json_is_array(merges))
        return refuse(loader, "no \"merges\" array in the model");
    char *const joined = malloc(longest + 1);
    if (!joined)
        return no_memory(loader);
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < json_array_size(merges) && status == ATTN_OK; i++)
        status = add_merge(loader, i, json_array_get(merges, i), joined);
    free(joined);
    return status;
}

static bool is_special(const json_t *part, int id)
{
    const char *const name =
        json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
    return name && strcmp(name, attn_special_names[id]) == 0;
}

/* How the template begins and ends; the rest of it is of no concern here. */
static attn_text_frame frame_of(const json_t *root)
{
    const json_t *const single =
        json_object_get(json_object_get(root, "post_processor"), "single");
    const size_t size = json_array_size(single);
    if (!is_special(json_array_get(single, 0), ATTN_TOKEN_BOS))
        return ATTN_FRAME_END;
    return is_special(json_array_get(single, size - 1), ATTN_TOKEN_EOS)
               ? ATTN_FRAME_BOTH
               : ATTN_FRAME_START;
}

static attn_status load_json(struct loader *loader, const json_t *root, size_t length)
{
    const json_t *const model = json_object_get(root, "model");
    ATTN_TRY(check_frame(loader, root, model));
    loader->vocabulary = json_object_get(model, "vocab");
    ATTN_TRY(order_vocabulary(loader));
    ATTN_TRY(check_added(loader, json_object_get(root, "added_tokens")));
    ATTN_TRY(attn_tokenizer_begin(&loader->tokenizer, loader->error));
    ATTN_TRY(add_tokens(loader));
    loader->tokenizer->frame = frame_of(root);
    loader->tokenizer->lowers = loader->lowers;
    return add_merges(loader, json_object_get(model, "merges"), length);
}

attn_status attn_tokenizer_load(attn_tokenizer **tokenizer, const char *path,
                                attn_error *error)
{
    *tokenizer = NULL;
    char *text;
    size_t length;
    ATTN_TRY(attn_file_read_text(path, FILE_LIMIT, &text, &length, error));
    struct loader loader = {.path = path, .error = error};
    json_error_t reason;
    json_t *const root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    free(text);
    if (!root)
        return refuse(&loader, "not JSON: %.160s (line %d, column %d)", reason.text,
                      reason.line, reason.column);
    const attn_status status = load_json(&loader, root, length);
    free(loader.names);
    json_decref(root);
    if (status != ATTN_OK) {
        attn_tokenizer_destroy(loader.tokenizer);
        return status;
    }
    *tokenizer = loader.tokenizer;
    return ATTN_OK;
}

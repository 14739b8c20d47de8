/* Saving a tokenizer as the tokenizer.json that the `tokenizers` package reads and
 * tokenizer_file.c loads. */
#include "base/context.h"
#include "file/file.h"
#include "file/utf8.h"
#include "text/bytes.h"
#include "text/vocabulary.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* A token's name: its bytes as printable characters, a special as it is.  out has room
 * for 2 bytes a byte and a NUL. */
static size_t write_name(const attn_tokenizer *tokenizer, int32_t id, char *out)
{
    const struct attn_token_place place = tokenizer->tokens[id];
    const char *const bytes = tokenizer->bytes + place.begin;
    if (attn_tokenizer_is_special(tokenizer, id)) {
        memcpy(out, bytes, place.length + 1);
        return place.length;
    }
    size_t used = 0;
    for (size_t i = 0; i < place.length; i++)
        used += attn_utf8_write(attn_byte_to_character((uint8_t)bytes[i]), out + used);
    out[used] = '\0';
    return used;
}

static size_t longest_token(const attn_tokenizer *tokenizer)
{
    size_t longest = 0;
    for (size_t i = 0; i < tokenizer->size; i++)
        if (tokenizer->tokens[i].length > longest)
            longest = tokenizer->tokens[i].length;
    return longest;
}

static json_t *vocabulary_of(const attn_tokenizer *tokenizer, char *name)
{
    json_t *const vocabulary = json_object();
    for (size_t i = 0; i < tokenizer->size; i++) {
        write_name(tokenizer, (int32_t)i, name);
        if (json_object_set_new(vocabulary, name, json_integer((json_int_t)i)) != 0) {
            json_decref(vocabulary);
            return NULL;
        }
    }
    return vocabulary;
}

/* "left right": no name has a space in it. */
static json_t *merges_of(const attn_tokenizer *tokenizer, char *name)
{
    json_t *const merges = json_array();
    for (size_t i = 0; i < tokenizer->merge_count; i++) {
        size_t used = write_name(tokenizer, tokenizer->merges[i].left, name);
        name[used++] = ' ';
        write_name(tokenizer, tokenizer->merges[i].right, name + used);
        if (json_array_append_new(merges, json_string(name)) != 0) {
            json_decref(merges);
            return NULL;
        }
    }
    return merges;
}

/* A mask takes the space before it, as a word does. */
static json_t *special(size_t id, const char *name, bool takes_space)
{
    return json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                     "content", name, "single_word", 0, "lstrip", takes_space, "rstrip",
                     0, "normalized", 0, "special", 1);
}

static json_t *specials(const attn_tokenizer *tokenizer)
{
    json_t *const added = json_array();
    for (size_t i = 0; i < ATTN_SPECIALS; i++)
        json_array_append_new(added, special(i, attn_special_names[i], false));
    if (tokenizer->has_mask)
        json_array_append_new(added, special(tokenizer->size - 1, attn_mask_name, true));
    return added;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", 1);
}

/* An entry of a template: {"SpecialToken": {"id": "</s>", "type_id": 0}} */
static json_t *template_part(const char *kind, const char *id, int type)
{
    return json_pack("{s:{s:s, s:i}}", kind, "id", id, "type_id", type);
}

static json_t *template_special(int id)
{
    const char *const name = attn_special_names[id];
    return json_pack("{s:s, s:[i], s:[s]}", "id", name, "ids", id, "tokens", name);
}

/* "$A </s>", "<s> $A </s>" or "<s> $A"; for a pair "$A $B </s>", BERT's
 * "<s> $A </s> $B </s>" and Llama's "<s> $A <s> $B", the second text of type 1 but in the
 * first of these. */
static json_t *template_list(attn_text_frame frame, bool pair)
{
    static const char marker[] = "SpecialToken", text[] = "Sequence";
    const char *const start = attn_special_names[ATTN_TOKEN_BOS];
    const char *const end = attn_special_names[ATTN_TOKEN_EOS];
    const int second = pair && frame != ATTN_FRAME_END;
    json_t *const list = json_array();
    if (frame != ATTN_FRAME_END)
        json_array_append_new(list, template_part(marker, start, 0));
    json_array_append_new(list, template_part(text, "A", 0));
    if (pair && frame == ATTN_FRAME_BOTH)
        json_array_append_new(list, template_part(marker, end, 0));
    if (pair && frame == ATTN_FRAME_START)
        json_array_append_new(list, template_part(marker, start, 1));
    if (pair)
        json_array_append_new(list, template_part(text, "B", second));
    if (frame != ATTN_FRAME_START)
        json_array_append_new(list, template_part(marker, end, second));
    return list;
}

static json_t *template(const attn_tokenizer *tokenizer)
{
    const attn_text_frame frame = tokenizer->frame;
    json_t *const names = json_object();
    if (frame != ATTN_FRAME_END)
        json_object_set_new(names, attn_special_names[ATTN_TOKEN_BOS],
                            template_special(ATTN_TOKEN_BOS));
    if (frame != ATTN_FRAME_START)
        json_object_set_new(names, attn_special_names[ATTN_TOKEN_EOS],
                            template_special(ATTN_TOKEN_EOS));
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single",
                     template_list(frame, false), "pair", template_list(frame, true),
                     "special_tokens", names);
}

/* NULL when memory is short: json_pack gives NULL where one of its values is. */
static json_t *tokenizer_to_json(const attn_tokenizer *tokenizer)
{
    char *const name = malloc(4 * longest_token(tokenizer) + 16);
    if (!name)
        return NULL;
    json_t *const model = json_pack(
        "{s:s, s:n, s:s, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
        "unk_token", attn_special_names[ATTN_TOKEN_UNK], "continuing_subword_prefix",
        "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0,
        "vocab", vocabulary_of(tokenizer, name), "merges", merges_of(tokenizer, name));
    free(name);
    return json_pack(
        "{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0", "truncation",
        "padding", "added_tokens", specials(tokenizer), "normalizer",
        tokenizer->lowers ? json_pack("{s:s}", "type", "Lowercase") : json_null(),
        "pre_tokenizer", byte_level(), "post_processor", template(tokenizer), "decoder",
        byte_level(), "model", model);
}

attn_status attn_tokenizer_save(const attn_tokenizer *tokenizer, const char *path,
                                attn_error *error)
{
    json_t *const root = tokenizer_to_json(tokenizer);
    char *const text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    if (!text)
        return attn_error_set(error, ATTN_ENOMEM, "no memory to write %s", path);
    const attn_status status = attn_file_write(path, text, strlen(text), error);
    free(text);
    return status;
}

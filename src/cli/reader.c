/* Loading a classifier or tagger, and walking over the texts it is to read. */
#include "cli/reader.h"
#include "base/context.h"
#include "cli/cli.h"
#include "model/folder.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

attn_status cli_reader_load(cli_reader *reader, const char *name, bool tags,
                            attn_error *error)
{
    ATTN_TRY(cli_find_model(name, reader->folder, error));
    ATTN_TRY(attn_reader_load(&reader->reader, reader->folder, error));
    const attn_reader_config *const config = attn_reader_config_of(reader->reader);
    if (config->tags != tags)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: its labels are of %s: attn %s reads with it",
                              reader->folder, config->tags ? "words" : "texts",
                              config->tags ? "tag" : "classify");
    ATTN_TRY(attn_folder_tokenizer_load(&reader->tokenizer, reader->folder,
                                        config->vocabulary, error));
    return attn_context_open(&reader->context, NULL, error);
}

void cli_reader_free(cli_reader *reader)
{
    attn_context_destroy(reader->context);
    attn_tokenizer_destroy(reader->tokenizer);
    attn_reader_destroy(reader->reader);
    *reader = (cli_reader){0};
}

static void warn_of_tab(const char *verb, const char *place)
{
    cli_say("attn %.*s: %s: a tab is read as a space; labels in a file are for attn eval "
            "MODEL FILE\n",
            (int)strcspn(verb, " "), verb, place);
}

attn_status cli_reader_each(const char *verb, char **arguments, int count,
                            cli_reader_text *what, void *user, attn_error *error)
{
    cli_lines lines;
    attn_error inner;
    attn_status status;
    bool more, is_warned = false;
    cli_lines_open(&lines, verb, arguments, count);
    while ((status = cli_lines_next(&lines, &more, error)) == ATTN_OK && more) {
        if (lines.has_tab && !is_warned) {
            warn_of_tab(verb, lines.place);
            is_warned = true;
        }
        status = what(user, lines.line, lines.length, &inner);
        if (status != ATTN_OK) {
            attn_error_set(error, status, "%s: %s", lines.place, inner.message);
            break;
        }
    }
    cli_lines_close(&lines);
    return status;
}

attn_status cli_reader_print(json_t *object, attn_error *error)
{
    char *const text =
        object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(object);
    if (!text)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for a line of JSON");
    const bool is_written = cli_print_json(text);
    free(text);
    return is_written
               ? ATTN_OK
               : attn_error_set(error, ATTN_EIO, "cannot write standard output: %s",
                                strerror(errno));
}

json_t *cli_reader_probability(float probability)
{
    return json_real(round((double)probability * 1e4) / 1e4);
}

/* What verbs print of texts: those of users and of models. */
#include "cli/cli.h"
#include "file/shown.h"
#include "file/utf8.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool cli_print(const char *text, size_t length_bytes)
{
    return isatty(STDOUT_FILENO) ? attn_show(stdout, text, length_bytes)
                                 : fwrite(text, 1, length_bytes, stdout) == length_bytes;
}

bool cli_print_json(const char *text)
{
    size_t used;
    for (size_t left = strlen(text); left > 0; left -= used, text += used) {
        uint32_t point;
        if (attn_utf8_read(text, left, &point, &used) && point >= 0x7F &&
            attn_is_command(point))
            printf("\\u%04x", (unsigned)point);
        else
            fwrite(text, 1, used, stdout);
    }
    return putchar('\n') != EOF && !ferror(stdout);
}

/* What tests of the terminal picture share. */
#include "terminal.h"

char *draw(attn_record *record, const attn_draw_options *options)
{
    attn_summary *summary = hand_summary(record);
    attn_error error;
    char *text = NULL;
    size_t length = 0;
    if (attn_draw_terminal(record, summary, options, &text, &length, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    assert_int_equal(strlen(text), length);
    attn_summary_destroy(summary);
    return text;
}

attn_draw_options plain(void)
{
    attn_draw_options options;
    attn_draw_options_init(&options);
    return options;
}

/* The page's script in a browser: it reads the page's data, draws without an error and
 * says what is shown.  Chromium (CHROMIUM, or chromium of the path) runs it, and what
 * then stands in the document is looked at. */
#include "check.h"
#include "tests/inspect/hand.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DOCUMENT_BYTES = 1 << 20 };

/* The document after its script ran, "" where no browser starts. */
static char *document_of(const char *html, const char *address)
{
    char folder[] = "/tmp/attn-page-XXXXXX", path[64], command[1024];
    const char *const browser = getenv("CHROMIUM");
    char *const document = calloc(1, DOCUMENT_BYTES);
    assert_non_null(document);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/page.html", folder);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    fputs(html, file);
    assert_int_equal(fclose(file), 0);
    /* Root has no sandbox; the page is our own. */
    snprintf(command, sizeof command,
             "timeout 100 '%s' --headless --no-sandbox --disable-gpu --dump-dom "
             "--user-data-dir='%s/user' 'file://%s%s' 2> /dev/null",
             browser ? browser : "chromium", folder, path, address);
    FILE *const output = popen(command, "r");
    assert_non_null(output);
    const size_t length = fread(document, 1, DOCUMENT_BYTES - 1, output);
    document[pclose(output) == 0 ? length : 0] = '\0';
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    return document;
}

/* Fails where the document has not what is expected; false, said in the test's name,
 * where no browser starts. */
static bool shows(const char *test, const char *html, const char *address,
                  const char *expected)
{
    char *const document = document_of(html, address);
    const bool starts = *document != '\0', is_shown = strstr(document, expected) != NULL;
    free(document);
    if (!starts)
        print_message("skipped: %s (no chromium starts; see CHROMIUM)\n", test);
    else if (!is_shown)
        fail_msg("no %s at \"%s\"", expected, address);
    return starts;
}

static void the_script_shows_the_map_that_the_address_names(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(
        &(sample_shape){.layers = 3, .heads = 4, .source = 7, .written = 9});
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    char alignment[64];
    snprintf(alignment, sizeof alignment, "id=\"name\">Cross layer %d, mean of 4 heads<",
             (int)sample.summary->alignment_layer + 1);
    const bool ran =
        shows(__func__, html, "", alignment) &&
        shows(__func__, html, "#d2.3&q=2", "id=\"name\">Decoder layer 2 head 3: ") &&
        shows(__func__, html, "#c1.2&t=1&m=1&s=2", "special tokens hidden; they hold ");
    free(html);
    sample_destroy(&sample);
    if (!ran)
        skip();
}

static void the_script_shows_a_picture_s_places(void **unused)
{
    (void)unused;
    attn_record *const record = hand_picture("one two three nothing five");
    draw_sample sample = {record, hand_summary(record)};
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    const bool ran = shows(__func__, html, "", "in amber less than .50.");
    free(html);
    sample_destroy(&sample);
    if (!ran)
        skip();
}

/* Nor is one drawn that the address asks for. */
static void the_script_needs_no_thumbnails_for_one_head(void **unused)
{
    (void)unused;
    draw_sample sample = sample_create(
        &(sample_shape){.layers = 1, .heads = 1, .written = 6, .causal_only = true});
    char *const html = draw(attn_draw_html, &sample, NULL, NULL);
    const bool ran =
        shows(__func__, html, "#d1.1&m=1", "id=\"name\">Decoder layer 1 head 1: ");
    free(html);
    sample_destroy(&sample);
    if (!ran)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_script_shows_the_map_that_the_address_names),
        cmocka_unit_test(the_script_shows_a_picture_s_places),
        cmocka_unit_test(the_script_needs_no_thumbnails_for_one_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

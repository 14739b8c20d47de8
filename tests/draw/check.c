/* Drawing and looking at the result. */
#include "check.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/python.h"
#include <cmocka.h>
#include <librsvg/rsvg.h>

const char *const hostile_words[] = {"<script>alert(1)</script>",
                                     "a<b<c",
                                     "&amp;\"'",
                                     "\x1b[2J",
                                     "日本語",
                                     "👩‍👩‍👧",
                                     "e\u0301tude",
                                     "שלום",
                                     "مرحبا",
                                     "]]>",
                                     "</text></svg>",
                                     "\u202eevil",
                                     "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
                                     "\x01\x7f",
                                     "<!--",
                                     "${alert(1)}"};
const int64_t hostile_count = sizeof hostile_words / sizeof *hostile_words;

char *draw(attn_draw *format, const draw_sample *sample, const attn_draw_options *options,
           size_t *length)
{
    attn_draw_options defaults;
    attn_draw_options_init(&defaults);
    attn_error error = {0};
    char *text = NULL;
    size_t bytes = 0;
    if (format(sample->record, sample->summary, options ? options : &defaults, &text,
               &bytes, &error) != ATTN_OK)
        fail_msg("drawing failed: %s", error.message);
    assert_non_null(text);
    assert_int_equal(text[bytes], '\0');
    if (length)
        *length = bytes;
    return text;
}

int64_t occurrences(const char *text, const char *part)
{
    int64_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

void check_with_python(const char *name, const char *program, const char *text)
{
    if (!python_has_for("xml.dom.minidom", name))
        skip();
    char path[] = "/tmp/attn-check-XXXXXX", command[4096];
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    FILE *const file = fdopen(descriptor, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    const char *const python = getenv("ATTN_PYTHON");
    snprintf(command, sizeof command, "'%s' -c '%s' < %s", python ? python : "python3",
             program, path);
    const int status = system(command);
    remove(path);
    assert_int_equal(status, 0);
}

static uint32_t pixel(cairo_surface_t *surface, int x, int y)
{
    const unsigned char *const row = cairo_image_surface_get_data(surface) +
                                     y * cairo_image_surface_get_stride(surface);
    uint32_t value;
    memcpy(&value, row + 4 * x, sizeof value);
    return value;
}

/* All pixels of a frame inside the edges are paper; the corners are round. */
static void assert_edges_are_paper(cairo_surface_t *surface, int width, int height)
{
    enum { EDGE = 4, CORNER = 10 };
    const uint32_t paper = pixel(surface, CORNER, 2);
    for (int x = CORNER; x < width - CORNER; x++)
        for (int y = 1; y < EDGE; y++) {
            assert_int_equal(pixel(surface, x, y), paper);
            assert_int_equal(pixel(surface, x, height - 1 - y), paper);
        }
    for (int y = CORNER; y < height - CORNER; y++)
        for (int x = 1; x < EDGE; x++) {
            assert_int_equal(pixel(surface, x, y), paper);
            assert_int_equal(pixel(surface, width - 1 - x, y), paper);
        }
}

void assert_draws_within_its_edges(const char *svg, size_t length)
{
    GError *error = NULL;
    RsvgHandle *const handle =
        rsvg_handle_new_from_data((const guint8 *)svg, length, &error);
    if (!handle)
        fail_msg("librsvg: %s", error->message);
    gdouble width, height;
    assert_true(rsvg_handle_get_intrinsic_size_in_pixels(handle, &width, &height));
    cairo_surface_t *const surface =
        cairo_image_surface_create(CAIRO_FORMAT_ARGB32, (int)width, (int)height);
    cairo_t *const cairo = cairo_create(surface);
    const RsvgRectangle all = {.width = width, .height = height};
    if (!rsvg_handle_render_document(handle, cairo, &all, &error))
        fail_msg("librsvg: %s", error->message);
    cairo_destroy(cairo);
    cairo_surface_flush(surface);
    assert_edges_are_paper(surface, (int)width, (int)height);
    cairo_surface_destroy(surface);
    g_object_unref(handle);
}

/* The figure in pixels: the SVG of one theme, drawn by librsvg into memory.  What it
 * would take is known before it is drawn, and said where it is too much. */
#include "base/context.h"
#include "draw/svg.h"
#include <stdlib.h>
#include <string.h>

#include <librsvg/rsvg.h>

enum { SIDE_LIMIT = 16384, PIXEL_LIMIT = 64 * 1024 * 1024 };

static cairo_status_t put_png(void *closure, const unsigned char *data, unsigned length)
{
    attn_buffer *const buffer = closure;
    attn_buffer_put_bytes(buffer, (const char *)data, length);
    return buffer->failed ? CAIRO_STATUS_NO_MEMORY : CAIRO_STATUS_SUCCESS;
}

static attn_status paint(RsvgHandle *handle, cairo_surface_t *surface, double zoom,
                         double width, double height, attn_buffer *png, attn_error *error)
{
    cairo_t *const cairo = cairo_create(surface);
    cairo_scale(cairo, zoom, zoom);
    GError *failure = NULL;
    const RsvgRectangle all = {.width = width, .height = height};
    const gboolean drawn = rsvg_handle_render_document(handle, cairo, &all, &failure);
    const cairo_status_t painted = cairo_status(cairo);
    cairo_destroy(cairo);
    if (!drawn || painted != CAIRO_STATUS_SUCCESS) {
        attn_error_set(error, ATTN_EFORMAT, "the figure could not be drawn: %s",
                       failure ? failure->message : cairo_status_to_string(painted));
        g_clear_error(&failure);
        return ATTN_EFORMAT;
    }
    const cairo_status_t written =
        cairo_surface_write_to_png_stream(surface, put_png, png);
    if (written != CAIRO_STATUS_SUCCESS)
        return attn_error_set(error, ATTN_ENOMEM, "the picture could not be written: %s",
                              cairo_status_to_string(written));
    return ATTN_OK;
}

static attn_status render(RsvgHandle *handle, double zoom, attn_buffer *png,
                          attn_error *error)
{
    gdouble width = 0, height = 0;
    if (!rsvg_handle_get_intrinsic_size_in_pixels(handle, &width, &height))
        return attn_error_set(error, ATTN_EFORMAT, "the figure has no size");
    const double across = width * zoom + 0.5, down = height * zoom + 0.5;
    if (across < 1 || down < 1 || across > SIDE_LIMIT || down > SIDE_LIMIT ||
        across * down > PIXEL_LIMIT)
        return attn_error_set(
            error, ATTN_EINVAL,
            "a PNG of %.0f × %.0f pixels, expected at most %d a side and "
            "%d in all: ask for fewer pixels a unit, or for SVG",
            across - 0.5, down - 0.5, SIDE_LIMIT, PIXEL_LIMIT);
    cairo_surface_t *const surface =
        cairo_image_surface_create(CAIRO_FORMAT_ARGB32, (int)across, (int)down);
    attn_status status = ATTN_OK;
    if (cairo_surface_status(surface) != CAIRO_STATUS_SUCCESS)
        status = attn_error_set(error, ATTN_ENOMEM, "no memory for %.0f × %.0f pixels",
                                across, down);
    if (status == ATTN_OK)
        status = paint(handle, surface, zoom, width, height, png, error);
    cairo_surface_destroy(surface);
    return status;
}

/* zoom is in pixels a unit of the SVG; png is the caller's to free. */
static attn_status png_of_svg(const char *svg, size_t length_bytes, double zoom,
                              char **png, size_t *png_bytes, attn_error *error)
{
    GError *failure = NULL;
    RsvgHandle *const handle =
        rsvg_handle_new_from_data((const guint8 *)svg, length_bytes, &failure);
    if (!handle) {
        attn_error_set(error, ATTN_EFORMAT, "the figure is no SVG: %s",
                       failure ? failure->message : "unknown");
        g_clear_error(&failure);
        return ATTN_EFORMAT;
    }
    attn_buffer buffer = {0};
    attn_status status = render(handle, zoom, &buffer, error);
    g_object_unref(handle);
    if (status == ATTN_OK)
        status = attn_buffer_take(&buffer, png, png_bytes, error);
    attn_buffer_free(&buffer);
    return status;
}

attn_status attn_draw_png(const attn_record *record, const attn_summary *summary,
                          const attn_draw_options *options, char **text, size_t *length,
                          attn_error *error)
{
    const double zoom = options->zoom == 0 ? 2 : options->zoom;
    if (!(zoom >= 0.125 && zoom <= 16))
        return attn_error_set(error, ATTN_EINVAL, "zoom is %g, expected .125 to 16",
                              zoom);
    attn_figure figure;
    ATTN_TRY(attn_figure_create(&figure, record, summary, options, error));
    attn_buffer svg = {0};
    attn_svg_write(&svg, &figure,
                   options->theme == ATTN_THEME_DARK ? ATTN_SVG_DARK : ATTN_SVG_LIGHT,
                   true);
    attn_figure_destroy(&figure);
    char *drawn;
    size_t bytes;
    attn_status status = attn_buffer_take(&svg, &drawn, &bytes, error);
    attn_buffer_free(&svg);
    if (status != ATTN_OK)
        return status;
    status = png_of_svg(drawn, bytes, zoom, text, length, error);
    free(drawn);
    return status;
}

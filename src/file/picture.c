/* PNG by libpng's simplified interface, from and to memory, so that files are read with a
 * limit and written whole. */
#include "file/picture.h"
#include "base/context.h"
#include "file/file.h"
#include <png.h>
#include <stdlib.h>

enum { FILE_LIMIT = 1 << 26, POINT_LIMIT = 1 << 24 };

static attn_status decode(attn_picture *picture, png_image *image, const char *path,
                          attn_error *error)
{
    const uint64_t points = (uint64_t)image->width * image->height;
    if (points > POINT_LIMIT)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s has %llu × %llu points, expected at most %d in all",
                              path, (unsigned long long)image->width,
                              (unsigned long long)image->height, POINT_LIMIT);
    image->format = PNG_FORMAT_GRAY;
    *picture = (attn_picture){image->height, image->width, malloc((size_t)points)};
    if (!picture->grey)
        return attn_error_set(error, ATTN_ENOMEM, "no memory for %s", path);
    const png_color black = {0, 0, 0};
    if (png_image_finish_read(image, &black, picture->grey, 0, NULL))
        return ATTN_OK;
    attn_picture_free(picture);
    return attn_error_set(error, ATTN_EFORMAT, "%s: %s", path, image->message);
}

attn_status attn_picture_load(attn_picture *picture, const char *path, attn_error *error)
{
    char *data;
    size_t length;
    *picture = (attn_picture){0};
    ATTN_TRY(attn_file_read(path, FILE_LIMIT, &data, &length, error));
    png_image image = {.version = PNG_IMAGE_VERSION};
    attn_status status = png_image_begin_read_from_memory(&image, data, length)
                             ? decode(picture, &image, path, error)
                             : attn_error_set(error, ATTN_EFORMAT, "%s is no PNG: %s",
                                              path, image.message);
    png_image_free(&image);
    free(data);
    return status;
}

attn_status attn_picture_encode(const attn_picture *picture, char **png,
                                size_t *length_bytes, attn_error *error)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)picture->columns,
                       .height = (png_uint_32)picture->rows,
                       .format = PNG_FORMAT_GRAY};
    png_alloc_size_t length = 0;
    char *data = NULL;
    if (png_image_write_to_memory(&image, NULL, &length, 0, picture->grey, 0, NULL))
        data = malloc(length);
    if (!data ||
        !png_image_write_to_memory(&image, data, &length, 0, picture->grey, 0, NULL)) {
        free(data);
        return attn_error_set(error, ATTN_ENOMEM, "a picture could not be made: %s",
                              image.message[0] ? image.message : "no memory");
    }
    *png = data;
    *length_bytes = length;
    return ATTN_OK;
}

attn_status attn_picture_save(const attn_picture *picture, const char *path,
                              attn_error *error)
{
    char *png;
    size_t length;
    ATTN_TRY(attn_picture_encode(picture, &png, &length, error));
    const attn_status status = attn_file_write(path, png, length, error);
    free(png);
    return status;
}

void attn_picture_free(attn_picture *picture)
{
    free(picture->grey);
    *picture = (attn_picture){0};
}

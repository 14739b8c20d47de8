/* Composing pictures: each cell draws whether it is empty, then a digit, its size and its
 * place; the digit is drawn by bilinear interpolation. */
#include "train/pictures.h"
#include "base/context.h"
#include "base/mix.h"
#include "file/path.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 10 };

/* Sizes of a digit's square, in parts of its cell; and how far it leans, columns a row.
 */
static const double SMALLEST = 0.55, LARGEST = 0.95, MOST_SLANT = 0.3;

/* ---- Digits ---------------------------------------------------------------------- */

static attn_status name_labels(char *labels, const char *images, attn_error *error)
{
    static const char WORD[] = "images", OTHER[] = "labels";
    const char *found = NULL;
    for (const char *at = strstr(images, WORD); at; at = strstr(at + 1, WORD))
        found = at;
    if (!found)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s: expected a name with \"images\", beside a file whose "
                              "name has \"labels\" there",
                              images);
    ATTN_TRY(attn_path_join(labels, "", images, error));
    char *const name = labels + (found - images);
    memcpy(name, OTHER, sizeof OTHER - 1); /* as long as WORD */
    char *const rank = strstr(name, "idx3");
    if (rank)
        rank[3] = '1'; /* MNIST's own names have the rank in them */
    return ATTN_OK;
}

static attn_status check(const attn_digits *digits, const char *images, attn_error *error)
{
    const int64_t *const extent = digits->images.extent;
    if (extent[0] == 0 || extent[1] != extent[2] || extent[1] > ATTN_CELL_SIDE ||
        extent[1] < 2)
        return attn_error_set(error, ATTN_EFORMAT,
                              "%s has %lld pictures of %lld × %lld points, expected "
                              "squares of 2 to %d",
                              images, (long long)extent[0], (long long)extent[1],
                              (long long)extent[2], ATTN_CELL_SIDE);
    if (digits->labels.extent[0] != extent[0])
        return attn_error_set(
            error, ATTN_EFORMAT, "%s has %lld pictures and %lld labels, expected as many",
            images, (long long)extent[0], (long long)digits->labels.extent[0]);
    for (int64_t n = 0; n < extent[0]; n++)
        if (digits->labels.bytes[n] >= DIGITS)
            return attn_error_set(error, ATTN_EFORMAT,
                                  "%s: label %lld is %d, expected a digit", images,
                                  (long long)n + 1, digits->labels.bytes[n]);
    return ATTN_OK;
}

attn_status attn_digits_load(attn_digits *digits, const char *images, attn_error *error)
{
    char labels[ATTN_PATH_BYTES];
    *digits = (attn_digits){0};
    ATTN_TRY(name_labels(labels, images, error));
    attn_status status = attn_idx_load(&digits->images, images, 3, error);
    if (status == ATTN_OK)
        status = attn_idx_load(&digits->labels, labels, 1, error);
    if (status == ATTN_OK)
        status = check(digits, images, error);
    if (status != ATTN_OK)
        attn_digits_free(digits);
    return status;
}

void attn_digits_free(attn_digits *digits)
{
    attn_idx_free(&digits->images);
    attn_idx_free(&digits->labels);
}

/* ---- Pictures -------------------------------------------------------------------- */

/* A random number of a cell's, uniform in [0, 1). */
typedef struct dice {
    uint64_t seed, thrown;
} dice;

static double throw_dice(dice *d)
{
    return attn_mix_unit(d->seed, d->thrown++);
}

/* Ink of an image at a point between its points; 0 beyond the edge. */
static double ink_at(const uint8_t *image, int64_t side, double y, double x)
{
    const int64_t top = (int64_t)floor(y), left = (int64_t)floor(x);
    double ink = 0.0;
    for (int64_t row = top; row <= top + 1; row++)
        for (int64_t column = left; column <= left + 1; column++) {
            if (row < 0 || row >= side || column < 0 || column >= side)
                continue;
            ink += (1.0 - fabs(y - (double)row)) * (1.0 - fabs(x - (double)column)) *
                   image[row * side + column];
        }
    return ink;
}

/* cell is the upper left point of an ATTN_CELL_SIDE square in lines of `stride`. */
static void draw(uint8_t *cell, int64_t stride, const uint8_t *image, int64_t side,
                 dice *d)
{
    const double size =
        (SMALLEST + (LARGEST - SMALLEST) * throw_dice(d)) * ATTN_CELL_SIDE;
    const double top = (ATTN_CELL_SIDE - size) * throw_dice(d);
    const double left = (ATTN_CELL_SIDE - size) * throw_dice(d);
    const double step = (double)side / size;
    const double slant = MOST_SLANT * (2.0 * throw_dice(d) - 1.0);
    const double middle = ((double)side - 1.0) / 2.0;
    for (int64_t row = 0; row < ATTN_CELL_SIDE; row++)
        for (int64_t column = 0; column < ATTN_CELL_SIDE; column++) {
            const double y = ((double)row + 0.5 - top) * step - 0.5;
            const double x = ((double)column + 0.5 - left) * step - 0.5;
            cell[row * stride + column] =
                (uint8_t)lrint(ink_at(image, side, y, x + slant * (y - middle)));
        }
}

void attn_compose(const attn_digits *digits, const attn_composition *composition,
                  uint64_t number, uint8_t *grey, int8_t *cells)
{
    const int64_t stride = composition->columns * ATTN_CELL_SIDE;
    const int64_t side = digits->images.extent[1];
    memset(grey, 0, (size_t)(composition->rows * ATTN_CELL_SIDE * stride));
    for (int64_t n = 0; n < composition->rows * composition->columns; n++) {
        dice d = {attn_mix(number, (uint64_t)n), 0};
        cells[n] = -1;
        if (throw_dice(&d) < composition->empty)
            continue;
        const size_t chosen =
            composition->first + (size_t)(throw_dice(&d) * (double)composition->count);
        const int64_t row = n / composition->columns, column = n % composition->columns;
        cells[n] = (int8_t)digits->labels.bytes[chosen];
        draw(grey + row * ATTN_CELL_SIDE * stride + column * ATTN_CELL_SIDE, stride,
             digits->images.bytes + (int64_t)chosen * side * side, side, &d);
    }
}

void attn_caption(const attn_composition *composition, const int8_t *cells,
                  char caption[ATTN_CAPTION_BYTES])
{
    static const char *const WORDS[] = {"nothing", "zero",  "one",  "two",
                                        "three",   "four",  "five", "six",
                                        "seven",   "eight", "nine"};
    size_t used = 0;
    caption[0] = '\0';
    for (int64_t n = 0; n < composition->rows * composition->columns; n++) {
        const char *const joint = n == 0                          ? ""
                                  : n % composition->columns == 0 ? " over "
                                                                  : " ";
        used += (size_t)snprintf(caption + used, ATTN_CAPTION_BYTES - used, "%s%s", joint,
                                 WORDS[cells[n] + 1]);
    }
}

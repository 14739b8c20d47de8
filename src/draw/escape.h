/* Text from outside on its way into XML, HTML and JSON: escaped, and never a character
 * these formats forbid or a reader could not see. */
#ifndef ATTN_DRAW_ESCAPE_H
#define ATTN_DRAW_ESCAPE_H

#include "inspect/buffer.h"

/** The next code point as it is shown, 0 at the end: what is not UTF-8 is U+FFFD, control
 * characters are their pictures (ESC is U+241B), what XML forbids or would reorder the
 * text around it U+FFFD. */
int32_t attn_shown_next(const char **text);

/** For content and for attributes in double quotes, of XML and HTML alike. */
void attn_put_xml(attn_buffer *buffer, const char *text);
/** The same for the first length_bytes of text. */
void attn_put_xml_bytes(attn_buffer *buffer, const char *text, size_t length_bytes);

/** A JSON string with its quotes; "<" is \u003c, so that no element ends inside one. */
void attn_put_json(attn_buffer *buffer, const char *text);

/** Base64 with padding, without line ends. */
void attn_put_base64(attn_buffer *buffer, const uint8_t *data, size_t length_bytes);

#endif

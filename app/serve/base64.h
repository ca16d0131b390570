/* base64.h - decodes and encodes base64 (RFC 4648) in requests and replies */
#ifndef XD_SERVE_BASE64_H
#define XD_SERVE_BASE64_H

#include <stddef.h>

#include "base/json.h"

/* Decodes a base64 text of n characters into malloc'ed bytes. xd_base64_read accepts blanks and
 * missing padding. Returns NULL if the base64 text is invalid. */
char *xd_base64_read(const char *text, size_t n, size_t *bytes);
/* Appends bytes to b, encoded in base64. */
void  xd_base64_add(xd_text_buf *b, const unsigned char *data, size_t bytes);

#endif

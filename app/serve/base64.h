/* base64.h - base64 (RFC 4648) in requests and replies */
#ifndef XD_SERVE_BASE64_H
#define XD_SERVE_BASE64_H

#include <stddef.h>

#include "base/json.h"

/* Decodes a text into malloc'ed bytes; accepts blanks and missing padding. NULL: invalid. */
char *xd_base64_read(const char *text, size_t n, size_t *bytes);
/* Appends bytes in base64. */
void  xd_base64_add(xd_text_buf *b, const unsigned char *data, size_t bytes);

#endif

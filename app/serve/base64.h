/* base64.h - bytes as text (RFC 4648), in requests and answers */
#ifndef XD_SERVE_BASE64_H
#define XD_SERVE_BASE64_H

#include <stddef.h>

#include "base/json.h"

/* The bytes of a text, malloc'ed; blanks and a missing end of '=' are taken. NULL: it is none. */
char *xd_base64_read(const char *text, size_t n, size_t *bytes);
void  xd_base64_add(xd_text_buf *b, const unsigned char *data, size_t bytes);

#endif

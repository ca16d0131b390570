/* http_head.h - finds where HTTP requests begin and end in the bytes of a client, strictly by RFC
 * 9112.
 *
 * A proxy in front of the server and libmicrohttpd must agree where each request ends, otherwise
 * clients could smuggle requests. Requests that the proxy and libmicrohttpd may interpret
 * differently are refused before libmicrohttpd reads them. A request is refused if it has line ends
 * other than CR LF, control characters, blanks before colons, folded lines, repeated or non-numeric
 * lengths, transfer codings other than chunked, or a missing or repeated Host header. Chunk
 * extensions, which libmicrohttpd 1.0.1 reads as part of the body, are removed. */
#ifndef XD_SERVE_HTTP_HEAD_H
#define XD_SERVE_HTTP_HEAD_H

#include <stddef.h>
#include <stdint.h>

/* state of the parser; the caller sets it to {0} before the first byte of a connection */
typedef struct xd_head {
    int      state;
    int      status;  /* HTTP status 400 or 501: the request is refused; 0: not refused */
    int      in_body; /* 1: the head of the current request is complete */
    char     name[24], value[24]; /* header name and value of the current line, truncated */
    size_t   nname, nvalue;
    /* last bytes of the current request line, which contain the HTTP version */
    char     version[8];
    /* Numbers of header lines Host, Content-Length and Transfer-Encoding in this request. */
    int      hosts, lengths, codings;
    uint64_t left;   /* bytes of the body or of the current chunk that have not arrived yet */
    int      digits; /* number of digits of the chunk size */
} xd_head;

/* Returns the error message for a request that is refused with `status`. */
const char *xd_head_sentence(int status);
/* Parses the next n bytes of a connection. Returns how many of the n bytes at p may be forwarded to
 * libmicrohttpd. If a request is refused, only the bytes before this request may be forwarded.
 * Chunk extensions are removed from the array p in place. */
size_t      xd_head_read(xd_head *h, char *p, size_t n);

#endif

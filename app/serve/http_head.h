/* http_head.h - finds where requests begin and end in the bytes of a client, strictly by RFC 9112
 *
 * A proxy in front of the server and libmicrohttpd must agree on these limits (request smuggling).
 * Requests that they may interpret differently are refused before libmicrohttpd sees them: line
 * ends other than CR LF, control characters, blanks before colons, folded lines, repeated or
 * non-numeric lengths, transfer codings other than chunked, and a missing or repeated Host. Chunk
 * extensions, which libmicrohttpd 1.0.1 reads as part of the body, are removed. */
#ifndef XD_SERVE_HTTP_HEAD_H
#define XD_SERVE_HTTP_HEAD_H

#include <stddef.h>
#include <stdint.h>

typedef struct xd_head {        /* starts as {0}, at the first byte of a request               */
    int      state;
    int      status;            /* 400, 501: the request is refused; 0: not refused             */
    int      in_body;           /* the head of the request is complete                         */
    char     name[24], value[24];       /* of the current line, truncated                      */
    size_t   nname, nvalue;
    char     version[8];        /* the last bytes of the request line                          */
    int      hosts, lengths, codings;   /* number of lines with this name in the head          */
    uint64_t left;              /* remaining bytes of the body, or of the chunk                */
    int      digits;            /* of the chunk size                                           */
} xd_head;

/* Returns the error message for a request that is refused with `status`. */
const char *xd_head_sentence(int status);
/* Parses the next n bytes. Returns how many bytes at p may be forwarded: those before a refusal,
 * without chunk extensions, which it removes in place. */
size_t xd_head_read(xd_head *h, char *p, size_t n);

#endif

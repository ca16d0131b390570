/* http_head.h - where requests begin and end in the bytes of a client, by the letter of RFC 9112
 *
 * A proxy before the server and libmicrohttpd after it must agree on that. What one of them may
 * take in another way is refused before libmicrohttpd sees it: ends of lines that are no CR LF,
 * bytes of control, blanks before colons, folded lines, lengths that are no numbers or come twice,
 * codings but chunks, and no Host or two. Extensions of chunks, which libmicrohttpd 1.0.1 takes for
 * bytes of the body in part, are taken out. */
#ifndef XD_SERVE_HTTP_HEAD_H
#define XD_SERVE_HTTP_HEAD_H

#include <stddef.h>
#include <stdint.h>

typedef struct xd_head {        /* begins as {0}: the next byte is the first of a request       */
    int      state;
    int      status;            /* 400, 501: the request is refused; 0: not yet                */
    int      in_body;           /* the head of the request has ended                           */
    char     name[24], value[24];       /* of the line; what is longer is cut                  */
    size_t   nname, nvalue;
    char     version[8];        /* the last bytes of the request's line                        */
    int      hosts, lengths, codings;   /* lines of that name in the head                      */
    uint64_t left;              /* bytes of the body, or of the chunk                          */
    int      digits;            /* of the chunk's size                                         */
} xd_head;

/* What is wrong with a request of `status`, in one sentence. */
const char *xd_head_sentence(int status);
/* Reads on; how many bytes, from p on, may be passed on: those before a refusal without extensions
 * of chunks. */
size_t xd_head_read(xd_head *h, char *p, size_t n);

#endif

/* fuzz_frame.c - any bytes as what a worker sends to the server over their socket.
 *
 * Besides not crashing: texts lie inside their frame and fill it, a frame that is sent again is
 * received as the same, and a refusal has a sentence. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "serve/frame.h"

/* The texts, one behind the other, are all of the data. */
static void check_texts(const xd_frame *f)
{
    const char *at = f->data;
    for (int i = 0; i < f->n; i++) {
        MUST(f->v[i] == at);
        at += strlen(at) + 1;
    }
    MUST((size_t)(at - f->data) == f->bytes && !f->v[f->n]);
}

static void check_again(const xd_frame *f)
{
    int      pair[2];
    xd_frame back;
    xd_err   e = { 0 };
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    MUST(xd_frame_send(pair[0], f->kind, (const char *const *)f->v, f->n, &e) == XD_OK);
    MUST(xd_frame_receive(pair[1], &back, &e) == XD_OK);
    MUST(back.kind == f->kind && back.n == f->n && back.bytes == f->bytes);
    MUST(!f->bytes || memcmp(back.data, f->data, f->bytes) == 0);
    xd_frame_free(&back);
    close(pair[0]);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int      pair[2];
    xd_err   e = { 0 };
    xd_frame f;
    if (size > 60000) /* what a socket takes without a reader */
        return 0;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    MUST(!size || write(pair[0], data, size) == (ssize_t)size);
    close(pair[0]);
    while (xd_frame_receive(pair[1], &f, &e) == XD_OK) {
        check_texts(&f);
        check_again(&f);
        xd_frame_free(&f);
    }
    MUST(e.msg[0]);
    xd_frame_free(&f);
    close(pair[1]);
    return 0;
}

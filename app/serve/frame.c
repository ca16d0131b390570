/* frame.c - sends and receives frames over a stream socket. A frame, a message between server and
 * worker, consists of its kind and length, followed by texts that end with a NUL each. */
#include "serve/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static xd_status is_gone(xd_err *e, const char *how)
{
    return xd_fail(e, XD_EIO, "the connection of the server and its worker was closed: %s", how);
}

static xd_status send_all(int fd, const void *p, size_t n, xd_err *e)
{
    const char *at = p;
    while (n) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return is_gone(e, strerror(errno));
        at += k;
        n -= (size_t)k;
    }
    return XD_OK;
}

static xd_status receive_all(int fd, void *p, size_t n, xd_err *e)
{
    char *at = p;
    while (n) {
        ssize_t k = recv(fd, at, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return is_gone(e, k ? strerror(errno) : "end of file");
        at += k;
        n -= (size_t)k;
    }
    return XD_OK;
}

xd_status xd_frame_send(int fd, xd_frame_kind kind, const char *const *v, int n, xd_err *e)
{
    uint32_t head[2] = { kind, 0 };
    size_t   bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += strlen(v[i]) + 1;
    if (bytes > XD_FRAME_MAX)
        return xd_fail(e, XD_EINVAL, "the request has %zu bytes; the limit is %d", bytes,
                       XD_FRAME_MAX);
    char *data = malloc(sizeof head + bytes);
    if (!data)
        return xd_fail(e, XD_ENOMEM, "no memory for a message of %zu bytes", bytes);
    head[1] = (uint32_t)bytes;
    memcpy(data, head, sizeof head);
    char *at = data + sizeof head;
    for (int i = 0; i < n; i++) {
        size_t k = strlen(v[i]) + 1;
        memcpy(at, v[i], k);
        at += k;
    }
    xd_status s = send_all(fd, data, sizeof head + bytes, e);
    free(data);
    return s;
}

xd_status xd_frame_split(xd_frame *f, char *data, size_t bytes, xd_err *e)
{
    f->data = data;
    f->bytes = bytes;
    f->n = 0;
    if (bytes && data[bytes - 1])
        return xd_fail(e, XD_EFORMAT, "a message of %zu bytes has no NUL at its end", bytes);
    for (size_t i = 0; i < bytes; i++)
        f->n += !data[i];
    f->v = malloc(((size_t)f->n + 1) * sizeof *f->v);
    if (!f->v)
        return xd_fail(e, XD_ENOMEM, "no memory for a message of %zu bytes", bytes);
    for (int i = 0; i < f->n; i++) {
        f->v[i] = data;
        data += strlen(data) + 1;
    }
    f->v[f->n] = NULL;
    return XD_OK;
}

xd_status xd_frame_receive(int fd, xd_frame *f, xd_err *e)
{
    uint32_t head[2];
    *f = (xd_frame){ 0 };
    xd_status s = receive_all(fd, head, sizeof head, e);
    if (s != XD_OK)
        return s;
    if (head[1] > XD_FRAME_MAX)
        return xd_fail(e, XD_EFORMAT, "a message has %u bytes; the limit is %d", head[1],
                       XD_FRAME_MAX);
    f->kind = (xd_frame_kind)head[0];
    char *data = malloc((size_t)head[1] + 1);
    if (!data)
        return xd_fail(e, XD_ENOMEM, "no memory for a message of %u bytes", head[1]);
    s = receive_all(fd, data, head[1], e);
    if (s == XD_OK)
        return xd_frame_split(f, data, head[1], e);
    free(data);
    return s;
}

void xd_frame_free(xd_frame *f)
{
    free(f->v);
    free(f->data);
    *f = (xd_frame){ 0 };
}

/* request_key.c - computes task ids and fingerprints of requests with an Idempotency-Key; see
 * request_key.h */
#include "serve/request_key.h"

#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "serve/task_flags.h"

enum { HASH = 32 }; /* number of bytes of a SHA-256 hash */
static const size_t MAX_IMAGE = (size_t)1 << 40;

int xd_request_key_is_valid(const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if (key[i] < ' ' || key[i] > '~')
            return 0;
    return n > 0 && n <= XD_KEY_BYTES;
}

static void to_hex(const unsigned char *hash, int bytes, char *text)
{
    for (int i = 0; i < bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
}

void xd_request_key_id(const char *kind, const char *owner, const char *key, char id[40])
{
    unsigned char hash[HASH];
    char          text[XD_KEY_BYTES + 128];
    int           n = snprintf(text, sizeof text, "%s\n%s\n%s", kind, owner, key);
    gnutls_hash_fast(GNUTLS_DIG_SHA256, text, (size_t)n, hash);
    n = snprintf(id, 40, "%.12s_", kind);
    to_hex(hash, 12, id + n);
}

/* Adds an argument of the task to the hash of the request. If the argument is the path of an image
 * file, the file's bytes are added instead of the path. */
static xd_status add_arg(gnutls_hash_hd_t h, const char *arg, xd_err *e)
{
    const char *path = xd_task_image_path(arg);
    size_t      n = path ? (size_t)(path - arg) : strlen(arg), bytes;
    char       *data;
    gnutls_hash(h, arg, n);
    if (path) {
        xd_status s = xd_file_read(path, MAX_IMAGE, &data, &bytes, e);
        if (s != XD_OK)
            return s;
        gnutls_hash(h, data, bytes);
        free(data);
    }
    gnutls_hash(h, "", 1);
    return XD_OK;
}

xd_status xd_request_key_fingerprint(xd_task *task, xd_err *e)
{
    unsigned char    hash[HASH];
    gnutls_hash_hd_t h;
    xd_status        s = XD_OK;
    if (gnutls_hash_init(&h, GNUTLS_DIG_SHA256) < 0)
        return xd_fail(e, XD_ENOMEM, "no memory for the hash of a request");
    for (int i = 0; i < task->nargs && s == XD_OK; i++)
        s = add_arg(h, task->args[i], e);
    gnutls_hash_deinit(h, hash);
    to_hex(hash, HASH, task->fingerprint);
    return s;
}

/* websocket.c - see websocket.h */
#include "serve/websocket.h"

#include <gnutls/crypto.h>
#include <string.h>

#include "serve/base64.h"

/* ---- handshake ------------------------------------------------------------------------------- */

enum { SHA1 = 20 }; /* bytes of a SHA-1 hash */

int xd_ws_accept(const char *key, char accept[XD_WS_ACCEPT + 1])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char suffix[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* section 1.3 */
    char              text[XD_WS_KEY + sizeof suffix];
    uint8_t           hash[SHA1];
    xd_text_buf       b = { 0 };
    if (strlen(key) != XD_WS_KEY || strspn(key, alphabet) != XD_WS_KEY - 2 ||
        strcmp(key + XD_WS_KEY - 2, "==") != 0)
        return 0;
    memcpy(text, key, XD_WS_KEY);
    memcpy(text + XD_WS_KEY, suffix, sizeof suffix);
    /* The handshake uses SHA-1 as a checksum, not as a secret. */
    if (gnutls_hash_fast(GNUTLS_DIG_SHA1, text, sizeof text - 1, hash) < 0)
        return 0;
    xd_base64_add(&b, hash, sizeof hash);
    int made = !b.failed && b.len == XD_WS_ACCEPT;
    if (made)
        memcpy(accept, b.p, XD_WS_ACCEPT + 1);
    xd_buf_free(&b);
    return made;
}

/* ---- frames ---------------------------------------------------------------------------------- */

enum { FINAL = 0x80, RESERVED = 0x70, MASKED = 0x80, CONTROL = 8, SHORT = 125, TWO = 126 };

size_t xd_ws_head(uint8_t head[XD_WS_HEAD], xd_ws_opcode opcode, uint64_t bytes)
{
    size_t digits = bytes <= SHORT ? 0 : bytes < 1 << 16 ? 2 : 8;
    head[0] = (uint8_t)(FINAL | opcode);
    head[1] = (uint8_t)(digits == 0 ? bytes : digits == 2 ? TWO : TWO + 1);
    for (size_t i = 0; i < digits; i++)
        head[2 + i] = (uint8_t)(bytes >> 8 * (digits - 1 - i));
    return 2 + digits;
}

static int is_known(int opcode)
{
    return opcode <= XD_WS_BINARY || (opcode >= XD_WS_CLOSE && opcode <= XD_WS_PONG);
}

int64_t xd_ws_read(uint8_t *data, size_t n, size_t most, xd_ws_frame *f)
{
    if (n < 2)
        return 0;
    int      opcode = data[0] & 15, final = (data[0] & FINAL) != 0;
    size_t   length = data[1] & 127, digits = length == TWO ? 2 : length > TWO ? 8 : 0;
    uint64_t bytes = digits ? 0 : length;
    if (data[0] & RESERVED || !(data[1] & MASKED) || !is_known(opcode) ||
        (opcode >= CONTROL && (!final || digits)))
        return -XD_WS_PROTOCOL;
    size_t head = 2 + digits + 4;
    if (n < head)
        return 0;
    for (size_t i = 0; i < digits; i++)
        bytes = bytes << 8 | data[2 + i];
    if (bytes > most)
        return -XD_WS_TOO_BIG;
    if (n - head < bytes)
        return 0;
    for (size_t i = 0; i < bytes; i++)
        data[head + i] ^= data[head - 4 + i % 4];
    *f = (xd_ws_frame){ .opcode = (xd_ws_opcode)opcode,
                        .final = final,
                        .payload = data + head,
                        .bytes = (size_t)bytes };
    return (int64_t)(head + bytes);
}

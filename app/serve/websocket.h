/* websocket.h - the frames and the handshake of WebSocket connections (RFC 6455)
 *
 * The functions of this file access no socket. */
#ifndef XD_SERVE_WEBSOCKET_H
#define XD_SERVE_WEBSOCKET_H

#include <stddef.h>
#include <stdint.h>

enum { XD_WS_KEY = 24, XD_WS_ACCEPT = 28 }; /* characters of the two keys of a handshake */

/* Opcodes of frames (RFC 6455, section 5.2). */
typedef enum xd_ws_opcode {
    XD_WS_MORE = 0,
    XD_WS_TEXT = 1,
    XD_WS_BINARY = 2,
    XD_WS_CLOSE = 8,
    XD_WS_PING = 9,
    XD_WS_PONG = 10
} xd_ws_opcode;

/* Codes of the reason in a frame XD_WS_CLOSE (section 7.4.1). */
enum { XD_WS_NORMAL = 1000, XD_WS_GOING_AWAY = 1001, XD_WS_PROTOCOL = 1002, XD_WS_TOO_BIG = 1009 };

/* Computes the value of the header Sec-WebSocket-Accept for the client's Sec-WebSocket-Key (section
 * 4.2.2). Returns 0 if the key does not have the form of 16 bytes in base64. */
int xd_ws_accept(const char *key, char accept[XD_WS_ACCEPT + 1]);

/* Writes the head of a server's frame, which is not masked, with a payload of `bytes` bytes.
 * Returns the length of the head. */
enum { XD_WS_HEAD = 14 }; /* maximum bytes of a frame's head */
size_t xd_ws_head(uint8_t head[XD_WS_HEAD], xd_ws_opcode opcode, uint64_t bytes);

typedef struct xd_ws_frame {
    xd_ws_opcode opcode;
    int          final;   /* 1: the last frame of its message */
    uint8_t     *payload; /* points into the buffer of xd_ws_read */
    size_t       bytes;
} xd_ws_frame;

/* Reads a client's frame at the beginning of a buffer of n bytes, and removes the mask of its
 * payload in place. Returns the length of the frame; 0: the frame is not complete; negative: the
 * frame is invalid, and the result is the negative of the code with which to close the connection.
 * A client's frame must be masked (section 5.1) and have at most `most` bytes of payload. */
int64_t xd_ws_read(uint8_t *data, size_t n, size_t most, xd_ws_frame *f);

#endif

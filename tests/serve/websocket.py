"""websocket.py - a client of WebSocket connections (RFC 6455) of the standard library alone."""

import base64
import hashlib
import json
import os
import socket
import ssl
import struct

MORE, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Socket:
    """A connection to `path` of a server. `messages` has what read() has skipped."""

    def __init__(self, address, path, headers=(), tls=False, key=None, timeout=60):
        self.s = socket.create_connection(address, timeout=timeout)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.s = context.wrap_socket(self.s)
        key = key or base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: {address[0]}:{address[1]}", "Upgrade: websocket",
                 "Connection: keep-alive, Upgrade", f"Sec-WebSocket-Key: {key}",
                 "Sec-WebSocket-Version: 13", *headers]
        self.s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.rest = b""
        head = self.until(b"\r\n\r\n").decode()
        self.status = int(head.split()[1])
        self.headers = {k.lower(): v for k, v in (
            line.split(": ", 1) for line in head.split("\r\n")[1:] if line)}
        want = base64.b64encode(hashlib.sha1(
            (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
        self.accepted = self.headers.get("sec-websocket-accept") == want

    def fill(self):
        more = self.s.recv(65536)
        if not more:
            raise EOFError
        self.rest += more

    def until(self, end):
        while end not in self.rest:
            self.fill()
        found, self.rest = self.rest.split(end, 1)
        return found

    def take(self, n):
        while len(self.rest) < n:
            self.fill()
        found, self.rest = self.rest[:n], self.rest[n:]
        return found

    def send(self, opcode, payload=b"", final=True, mask=b"mask"):
        head = bytes([opcode | (128 if final else 0)])
        n, bit = len(payload), 128 if mask else 0
        if n < 126:
            head += bytes([bit | n])
        elif n < 65536:
            head += struct.pack(">BH", bit | 126, n)
        else:
            head += struct.pack(">BQ", bit | 127, n)
        if mask:
            payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
        self.s.sendall(head + mask + payload)

    def frame(self):
        a, b = self.take(2)
        assert a & 128 and not b & 128
        n = b & 127
        if n == 126:
            n = struct.unpack(">H", self.take(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.take(8))[0]
        return a & 15, self.take(n)

    def message(self):
        """The next message: a dictionary, or bytes. Pings are answered."""
        while True:
            opcode, data = self.frame()
            if opcode == PING:
                self.send(PONG, data)
            elif opcode == TEXT:
                return json.loads(data)
            elif opcode == BINARY:
                return data
            elif opcode == CLOSE:
                raise EOFError(struct.unpack(">H", data[:2])[0] if data else 0)

    def close(self):
        self.s.close()

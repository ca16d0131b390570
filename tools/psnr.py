#!/usr/bin/env python3
"""psnr.py A.png B.png [LEAST] - how near two images are, in dB; fails below LEAST."""
import math
import struct
import sys
import zlib


def pixels(name):
    """(width, height, channels, bytes) of a PNG without interlacing."""
    with open(name, 'rb') as f:
        data = f.read()
    at, packed = 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        if kind == b'IHDR':
            w, h, bits, colour = struct.unpack('>IIBB', data[at + 8:at + 18])
        if kind == b'IDAT':
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    if bits != 8:
        sys.exit(name + ' has no 8 bits a channel')
    n = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    raw, row, out = zlib.decompress(packed), bytearray(w * n), bytearray()
    for y in range(h):
        kind, line = raw[y * (w * n + 1)], bytearray(raw[y * (w * n + 1) + 1:(y + 1) * (w * n + 1)])
        for i in range(w * n):
            a, b = line[i - n] if i >= n else 0, row[i]
            c = row[i - n] if i >= n else 0
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line[i] = line[i] + (0, a, b, (a + b) // 2, near)[kind] & 255
        row = line
        out += line
    return w, h, n, out


def main():
    a, b = pixels(sys.argv[1]), pixels(sys.argv[2])
    if a[:3] != b[:3]:
        sys.exit('the images have other sizes')
    e = sum((x - y) ** 2 for x, y in zip(a[3], b[3])) / len(a[3])
    db = 99.0 if e == 0 else 10 * math.log10(255 ** 2 / e)
    print('%.1f dB' % db)
    return len(sys.argv) > 3 and db < float(sys.argv[3])


sys.exit(main())

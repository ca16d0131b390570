"""exif.py FILE PROMPT STEPS - what stable-diffusion-webui would find in a JPEG or WebP: the Exif
UserComment, by its own rules, has the prompt and the parameters; the ImageDescription is our
JSON."""

import json, re, struct, sys

data = open(sys.argv[1], 'rb').read()


def block():
    """The Exif block, from its TIFF header on."""
    if data[:2] == b'\xff\xd8':
        at = 2
        while data[at + 1] != 0xDA:  # segments up to the pixels
            (n,) = struct.unpack('>H', data[at + 2 : at + 4])
            if data[at + 1] == 0xE1 and data[at + 4 : at + 10] == b'Exif\0\0':
                return data[at + 10 : at + 2 + n]
            at += 2 + n
    at = 12
    while data[:4] == b'RIFF' and at < len(data):
        (n,) = struct.unpack('<I', data[at + 4 : at + 8])
        if data[at : at + 4] == b'EXIF':
            return data[at + 8 : at + 8 + n]
        at += 8 + n + n % 2
    sys.exit('no Exif in %s' % sys.argv[1])


def directory(b, at):
    (n,) = struct.unpack('>H', b[at : at + 2])
    rows = [struct.unpack('>HHI4s', b[at + 2 + 12 * i : at + 14 + 12 * i]) for i in range(n)]
    assert [r[0] for r in rows] == sorted(r[0] for r in rows)
    size = {2: 1, 4: 4, 7: 1}
    out = {}
    for tag, kind, count, value in rows:
        (where,) = struct.unpack('>I', value)
        out[tag] = value if count * size[kind] <= 4 else b[where : where + count * size[kind]]
    return out


b = block()
assert b[:8] == b'MM\0*\0\0\0\x08', b[:8]
first = directory(b, 8)
second = directory(b, struct.unpack('>I', first[0x8769])[0])
comment = second[0x9286]
assert comment[:8] == b'UNICODE\0', comment[:8]
text = comment[8:].decode('utf-16-be')  # as piexif does
*lines, last = text.strip().split('\n')
pairs = dict(re.findall(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)', last))
about = json.loads(first[0x010E].rstrip(b'\0').decode('ascii'))
assert lines == [sys.argv[2]], lines
assert (
    len(pairs) >= 3
    and pairs['Sampler'] == 'DPM++ 2M'
    and pairs['Steps'] == sys.argv[3]
    and pairs['Size'] == '128x128'
), pairs
assert about['prompt'] == sys.argv[2] and about['steps'] == int(sys.argv[3]), about

"""Image files and the pixels that diffusers' load_image reads from them with Pillow: every Exif
orientation in every format, odd and broken metadata, colours, palettes, depths, animations.

image-files.safetensors has "file.NAME", the bytes, and "rgb.NAME", [h,w,3]; without the latter the
file is refused. A NAME that begins with "near" is compressed with losses.
"""
import io
import struct
import zlib

import numpy as np
import torch
from diffusers.utils import load_image
from PIL import Image
from safetensors.torch import save_file

W, H = 21, 13
TIFF = {"<": b"II*\0", ">": b"MM\0*"}
XMP = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><r tiff:Orientation="%d"/></x:xmpmeta>'


def pixels(c=3):
    y, x = np.mgrid[:H, :W]
    planes = [40 + 9 * x, 250 - 17 * y, 5 * x + 8 * y, 255 - 7 * x - 8 * y]
    return np.stack(planes[:c], -1).clip(0, 255).astype(np.uint8)


def image(mode="RGB"):
    if mode in ("RGB", "RGBA"):
        return Image.fromarray(pixels(len(mode)))
    if mode == "LA":
        return Image.fromarray(pixels(4)[:, :, 2:])
    return Image.fromarray(pixels()).convert(mode)


def saved(im, kind, **how):
    to = io.BytesIO()
    im.save(to, kind, **how)
    return to.getvalue()


def exif(value, order=">", kind=3, count=1, tag=0x0112, at=8, rows=1):
    """A TIFF directory with an orientation as its last row, before it rows of other tags."""
    number = {1: "BBBB", 3: "HH", 4: "I", 8: "hh"}[kind]
    data = struct.pack(order + number, *([value] + [0] * 3)[:len(number)])
    out = TIFF[order] + struct.pack(order + "I", at) + bytes(at - 8)
    out += struct.pack(order + "H", rows)
    for i in range(rows - 1):
        out += struct.pack(order + "HHI", 0x0100 + i, 4, 1) + struct.pack(order + "I", i)
    return out + struct.pack(order + "HHI", tag, kind, count) + data + bytes(4)


# What is odd in a block of Exif, or broken.
ODD = {
    "little": exif(6, "<"), "long": exif(6, kind=4), "signed": exif(6, kind=8),
    "byte": exif(6, kind=1), "several": exif(6, rows=5), "behind": exif(6, at=40),
    "zero": exif(0), "nine": exif(9), "other_tag": exif(6, tag=0x0113), "two": exif(6, count=2),
    "none_of_it": exif(6, count=0), "far_values": exif(6, count=7),
    "cut_row": exif(6)[:16], "cut_head": exif(6)[:9], "far": b"MM\0*\0\x0f\0\0" + exif(6)[8:],
    "more_rows": exif(6)[:8] + b"\0\x09" + exif(6)[10:], "twice": b"Exif\0\0" + exif(6),
    "empty": b"",
}


# ---- PNG -----------------------------------------------------------------------------------------

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def with_chunk(png, name, data, before=b"IDAT"):
    at = png.index(before) - 4
    return png[:at] + chunk(name, data) + png[at:]


def png(depth, colour, rows, *chunks):
    """rows: bytes of each; chunks: name, data."""
    raw = b"".join(b"\0" + bytes(r) for r in rows)
    head = struct.pack(">IIBBBBB", W, H, depth, colour, 0, 0, 0)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    for name, data in zip(chunks[::2], chunks[1::2]):
        out += chunk(name, data)
    return out + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def interlaced(a):
    raw = b""
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
                         (1, 0, 2, 2), (0, 1, 1, 2)):
        raw += b"".join(b"\0" + row.tobytes() for row in a[y::dy, x::dx] if row.size)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 1)) +
            chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


def deep(channels):
    """Levels of 16 bits whose upper bytes are those of the image."""
    a = pixels(channels).astype(">u2") * 257
    return [r.tobytes() for r in a]


def pngs():
    plain, rgba, palette = saved(image(), "PNG"), saved(image("RGBA"), "PNG"), image("P")
    profile = b"\nexif\n      26\n" + exif(6).hex().encode() + b"\n"
    key, xmp = b"Raw profile type exif\0", b"XML:com.adobe.xmp\0"
    grey = np.asarray(image("L"))
    for o in range(1, 9):
        yield f"png_{o}", with_chunk(plain, b"eXIf", exif(o))
    for name, data in ODD.items():
        yield f"png_exif_{name}", with_chunk(plain, b"eXIf", data)
    yield "png_exif_last", with_chunk(plain, b"eXIf", exif(6), b"IEND")
    yield "png_profile", with_chunk(plain, b"tEXt", key + profile)
    packed = key + b"\0" + zlib.compress(profile)
    yield "png_profile_packed", with_chunk(rgba, b"zTXt", packed)
    yield "png_profile_last", with_chunk(plain, b"zTXt", packed, b"IEND")
    yield "png_profile_both", with_chunk(with_chunk(plain, b"tEXt", key + profile), b"eXIf",
                                         exif(3))
    yield "png_xmp", with_chunk(plain, b"iTXt", xmp + b"\0\0\0\0" + (XMP % 8).encode())
    yield "png_xmp_packed", with_chunk(plain, b"iTXt", xmp + b"\1\0\0\0" +
                                       zlib.compress((XMP % 5).encode()))
    yield "png_xmp_and_exif", with_chunk(with_chunk(plain, b"eXIf", exif(1)), b"iTXt",
                                         xmp + b"\0\0\0\0" + (XMP % 8).encode())
    for mode in ("1", "L", "LA", "RGBA"):
        yield f"png_{mode}", saved(image(mode), "PNG")
    yield "png_P", saved(palette, "PNG")
    yield "png_P_clear", saved(palette, "PNG", transparency=bytes(range(200)))
    yield "png_RGB_clear", saved(image(), "PNG", transparency=tuple(pixels()[2, 3].tolist()))
    yield "png_L_clear", saved(image("L"), "PNG", transparency=int(grey[2, 3]))
    for bits in (1, 2, 4):
        levels = grey >> 8 - bits
        packed = np.packbits(np.unpackbits(levels[:, :, None], axis=2)[:, :, 8 - bits:]
                             .reshape(H, -1), axis=1)
        colours = np.arange(3 << bits, dtype=np.uint8) * 5
        yield f"png_grey_{bits}", png(bits, 0, packed)
        yield f"png_palette_{bits}", png(bits, 3, packed, b"PLTE", colours.tobytes())
    yield "png_16", png(16, 2, deep(3))
    yield "png_16_alpha", png(16, 6, deep(4))
    yield "png_interlaced", interlaced(pixels())
    yield "png_gamma", with_chunk(plain, b"gAMA", struct.pack(">I", 100000))
    end = plain.index(b"IEND") - 4
    yield "png_no_end", plain[:end]
    yield "png_odd_end", plain[:end] + b"\0\1and more"
    yield "png_wrong_sum", plain[:end - 2] + b"ab" + plain[end:]
    yield "png_cut", plain[:end - 40]
    yield "png_dot", saved(Image.new("RGB", (1, 1), (9, 99, 199)), "PNG")


# ---- JPEG ----------------------------------------------------------------------------------------

def marked(jpeg, marker, data, at=2):
    return jpeg[:at] + bytes((0xff, marker)) + struct.pack(">H", len(data) + 2) + data + jpeg[at:]


def jpegs():
    plain = saved(image(), "JPEG", quality=95, subsampling=0)
    coarse = saved(image(), "JPEG", quality=90, subsampling=2)
    scan, head = plain.index(b"\xff\xda"), b"http://ns.adobe.com/xap/1.0/\0"
    xmp = marked(plain, 0xe1, head + (XMP % 6).encode())
    for o in range(1, 9):
        yield f"jpeg_{o}", marked(plain, 0xe1, b"Exif\0\0" + exif(o))
    for name, data in ODD.items():
        yield f"jpeg_exif_{name}", marked(plain, 0xe1, b"Exif\0\0" + data)
    yield "jpeg_exif_late", marked(coarse, 0xe1, b"Exif\0\0" + exif(8), coarse.index(b"\xff\xda"))
    yield "jpeg_xmp", xmp
    yield "jpeg_xmp_element", marked(plain, 0xe1, head + b"<tiff:Orientation>3</tiff:Orientation>")
    yield "jpeg_xmp_and_exif", marked(xmp, 0xe1, b"Exif\0\0" + exif(3))
    yield "jpeg_xmp_and_other_tag", marked(xmp, 0xe1, b"Exif\0\0" + exif(3, tag=0x0113))
    yield "jpeg_coarse", coarse
    yield "jpeg_progressive", saved(image(), "JPEG", quality=95, progressive=True)
    yield "jpeg_grey", saved(image("L"), "JPEG", quality=95)
    yield "jpeg_rgb", saved(image(), "JPEG", quality=95, keep_rgb=True)
    cmyk = saved(image("CMYK"), "JPEG", quality=95)
    adobe = cmyk.index(b"Adobe")
    yield "jpeg_cmyk", cmyk
    yield "jpeg_cmyk_turned", marked(cmyk, 0xe1, b"Exif\0\0" + exif(6))
    yield "jpeg_ycck", cmyk[:adobe + 11] + b"\2" + cmyk[adobe + 12:]
    yield "jpeg_cmyk_plain", cmyk[:adobe - 4] + cmyk[adobe + 12:]
    for n in (1, 5):
        yield f"jpeg_stray_{n}", plain[:scan] + bytes(n) + plain[scan:]
    yield "jpeg_stray_first", plain[:2] + b"\1\2\3" + plain[2:]
    yield "jpeg_stray_last", plain[:-2] + b"\1\2\3" + plain[-2:]
    yield "jpeg_more", plain + b"and more"
    yield "jpeg_ends_early", coarse[:-40] + b"\xff\xd9"
    for n in (40, len(plain) - scan - 4):
        yield f"jpeg_cut_{n}", plain[:-n]


# ---- WebP and GIF --------------------------------------------------------------------------------

def frames():
    a = pixels()
    return [Image.fromarray(np.roll(a, 3 * i, 1)) for i in range(3)]


def webps():
    how = dict(lossless=True, exact=True)
    plain = saved(image(), "WEBP", **how)
    for o in range(1, 9):
        yield f"webp_{o}", saved(image(), "WEBP", exif=exif(o), **how)
    for name, data in ODD.items():
        if data:
            yield f"webp_exif_{name}", saved(image(), "WEBP", exif=data, **how)
    yield "webp_exif_name", saved(image(), "WEBP", exif=b"Exif\0\0" + exif(6), **how)
    yield "webp_xmp", saved(image(), "WEBP", xmp=(XMP % 7).encode(), **how)
    yield "webp_alpha", saved(image("RGBA"), "WEBP", **how)
    yield "near_webp", saved(image(), "WEBP", quality=90)
    yield "near_webp_alpha", saved(image("RGBA"), "WEBP", quality=90)
    first, *rest = frames()
    moving = saved(first, "WEBP", save_all=True, append_images=rest, duration=40, **how)
    yield "webp_animated", moving
    yield "near_webp_animated", saved(first, "WEBP", save_all=True, append_images=rest, duration=40,
                                      quality=80)
    yield "webp_animated_turned", saved(first, "WEBP", save_all=True, append_images=rest,
                                        exif=exif(6), **how)
    frame = plain[12:]
    box = struct.pack("<I", 2)[:3] + struct.pack("<I", 1)[:3]           # x 4, y 2
    box += struct.pack("<I", W - 1)[:3] + struct.pack("<I", H - 1)[:3] + b"\x28\0\0\0"
    body = b"WEBPVP8X" + struct.pack("<IIHBHB", 10, 2, W + 9, 0, H + 6, 0)
    body += b"ANIM" + struct.pack("<IIH", 6, 0x40302010, 0)
    body += b"ANMF" + struct.pack("<I", 16 + len(frame)) + box + frame
    yield "webp_animated_inside", b"RIFF" + struct.pack("<I", len(body)) + body
    yield "webp_cut", plain[:-9]
    yield "webp_animated_cut", moving[:60]


def gif(raw, screen=(W, H), flags=0xf7, palette=None, local=None, box=(0, 0, W, H), clear=None,
        interlaced=False, background=0, head=b"GIF89a", more=b""):
    """raw: the coded pixels with their code size. flags: of the screen."""
    out = head + struct.pack("<HHBBB", *screen, flags, background, 0)
    out += palette if flags & 128 else b""
    out += more
    out += b"" if clear is None else b"!\xf9\4\1\0\0" + bytes((clear, 0))
    out += b"," + struct.pack("<HHHHB", *box, (0x87 if local else 0) | (64 if interlaced else 0))
    return out + (local or b"") + raw + b";"


def gifs():
    im = image().quantize(200)
    palette = bytes(im.getpalette()).ljust(768, b"\0")
    other = bytes(255 - v for v in palette)
    plain = saved(im, "GIF", optimize=False, interlace=0)

    def coded(a):
        whole = saved(Image.fromarray(a, "P"), "GIF", optimize=False, interlace=0)
        return whole[whole.index(b",", 13 + 3 * (2 << (whole[10] & 7))) + 10:-1]
    index = np.asarray(im)
    raw = coded(index)
    order = [y for a, b in ((0, 8), (4, 8), (2, 4), (1, 2)) for y in range(a, H, b)]
    yield "gif", plain
    yield "gif_87", gif(raw, palette=palette, head=b"GIF87a")
    yield "gif_local", gif(raw, palette=palette, local=other)
    yield "gif_interlaced", gif(coded(index[order]), palette=palette, interlaced=True)
    yield "gif_clear", gif(raw, palette=palette, clear=int(index[3, 4]))
    yield "gif_inside", gif(raw, (W + 9, H + 6), palette=palette, box=(4, 2, W, H), background=7)
    yield "gif_inside_clear", gif(raw, (W + 9, H + 6), palette=palette, box=(4, 2, W, H), clear=9)
    yield "gif_outside", gif(raw, (W - 4, H - 2), palette=palette, box=(3, 2, W, H))
    yield "gif_no_palette", gif(raw, flags=7)
    loop = b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0"
    yield "gif_more", gif(raw, palette=palette, more=b"!\xfe\3abc\2de\0" + loop + b"!\1\x0c" +
                          bytes(12) + b"\3abc\0")
    yield "gif_1", saved(image("1"), "GIF")
    yield "gif_grey", saved(image("L"), "GIF")
    first, *rest = frames()
    yield "gif_animated", saved(first, "GIF", save_all=True, append_images=rest)
    noise = np.random.default_rng(5).integers(0, 256, (H * 6, W * 4), np.uint8)
    big = Image.fromarray(noise, "P")
    yield "gif_short_palette", gif(raw, flags=0xf2, palette=palette[:24])
    big.putpalette(palette)
    yield "gif_large", saved(big, "GIF", optimize=False, interlace=0)
    yield "gif_greys", gif(raw, flags=0xf3, palette=bytes(i // 3 for i in range(48)))
    yield "gif_ends_early", gif(b"\x08\x05\0\x02\x06\x02\x04\0", palette=palette)
    yield "gif_no_codes", gif(b"\x08\0", palette=palette)
    yield "gif_cut", plain[:-60]
    yield "gif_no_end", plain[:-1]
    yield "gif_head", plain[:13]


def read(data):
    """None: Pillow refuses the file."""
    try:
        im = Image.open(io.BytesIO(data))
        im.load()
    except Exception:                   # of any class, by the format
        return None
    try:
        return np.asarray(load_image(im))
    except Exception:                   # of its Exif
        return np.asarray(im.convert("RGB"))


def make(names, options):
    out = {}
    for files in (pngs, jpegs, webps, gifs):
        for name, data in files():
            name = "near_" + name if name.startswith("jpeg") else name
            out["file." + name] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
            rgb = read(data)
            if rgb is not None:
                out["rgb." + name] = torch.from_numpy(rgb.copy())
    save_file(out, options.out / "image-files.safetensors")

"""corpus_serve.py - the beginnings for the targets of the server; make_corpus.py writes them.

JPEG and WebP files of the corpus were made with Pillow and are in the tree."""
import base64
import json
import pathlib
import struct
import zlib

HERE = pathlib.Path(__file__).resolve().parent / "corpus"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(w, h, *more, colour=2, depth=8, rows=None):
    head = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(3 * w) for _ in range(h)) if rows is None else rows
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(more) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def larger(jpeg, w, h):
    """The same JPEG, but for its size."""
    at = max(jpeg.find(b"\xff\xc0"), jpeg.find(b"\xff\xc2"))
    return jpeg[:at + 5] + struct.pack(">HH", h, w) + jpeg[at + 9:]


# A directory with the orientation 6.
TIFF = b"MM\0*\0\0\0\x08" + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, 6, 0, 0)
XMP = b'<r tiff:Orientation="8"/>'


def riff(*chunks):
    body = b"WEBP" + b"".join(k + struct.pack("<I", len(d)) + d + bytes(len(d) % 2)
                              for k, d in zip(chunks[::2], chunks[1::2]))
    return b"RIFF" + struct.pack("<I", len(body)) + body


def gif(flags, *blocks, code=b"\2\3\x44\x34\5\0"):
    """Four pixels of four colours."""
    return (b"GIF89a" + struct.pack("<HHBBB", 3, 3, 0x81, 0, 0) + bytes(range(12)) +
            b"".join(blocks) + b"," + struct.pack("<HHHHB", 1, 0, 2, 2, flags) + code + b";")


def turned(plain):
    """Files with an orientation."""
    lossless = (HERE / "image" / "webp_lossless").read_bytes()[20:]
    bits, = struct.unpack("<I", lossless[1:5])
    size = struct.pack("<I", bits & 0x3fff)[:3] + struct.pack("<I", bits >> 14 & 0x3fff)[:3]
    exif, xmp = b"Exif\0\0" + TIFF, b"http://ns.adobe.com/xap/1.0/\0" + XMP
    app = b"".join(b"\xff\xe1" + struct.pack(">H", len(d) + 2) + d for d in (exif, xmp))
    text = b"Raw profile type exif\0"
    profile = b"\nexif\n%8d\n%s\n" % (len(TIFF), TIFF.hex().encode())
    return {
        "jpeg_exif": plain[:2] + app + plain[2:],
        "png_exif": png(3, 2, chunk(b"eXIf", TIFF)),
        "png_exif_text": png(3, 2, chunk(b"tEXt", text + profile)),
        "png_exif_packed": png(3, 2, chunk(b"zTXt", text + b"\0" + zlib.compress(profile))),
        "png_xmp": png(3, 2, chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)),
        "webp_exif": riff(b"VP8X", b"\x0c" + bytes(3) + size, b"VP8L", lossless,
                          b"EXIF", TIFF, b"XMP ", XMP),
    }


def images():
    progressive = (HERE / "image" / "jpeg_progressive").read_bytes()
    plain = (HERE / "image" / "jpeg").read_bytes()
    scan = progressive.rfind(b"\xff\xda")
    return {
        "png": png(3, 2),
        "png_palette": png(2, 2, chunk(b"PLTE", bytes(range(12))), colour=3, rows=bytes(6)),
        "png_alpha_16": png(1, 1, colour=6, depth=16, rows=bytes(9)),
        "png_huge": png(50000, 50000, rows=bytes(100)),
        "png_zero": png(0, 5, rows=b""),
        "png_short": png(100, 100, rows=bytes(30)),
        "png_cut": png(3, 2)[:60],
        "png_text": png(1, 1, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(5000)))),
        "png_profile": png(1, 1, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(5000)))),
        "apng": png(1, 1, chunk(b"acTL", struct.pack(">II", 1 << 30, 0))),
        "jpeg_huge": larger(plain, 50000, 50000),
        "jpeg_progressive_huge": larger(progressive, 65000, 65000),
        "jpeg_scans": progressive[:-2] + progressive[scan:-2] * 300 + b"\xff\xd9",
        "ppm": b"P6\n# a\n2 1\n255\n" + bytes(6),
        "ppm_huge": b"P6 50000 50000 255\n" + bytes(6),
        "gif": b"GIF89a" + bytes(20),
        "gif_frame": gif(0x40, b"!\xf9\4\1\0\0\1\0", b"!\xfe\1a\0"),
        "gif_palette": gif(0x80, code=bytes(6) + b"\2\3\x44\x34\5\0"),
        "nothing": b"",
    } | turned(plain)


# ---- requests ------------------------------------------------------------------------------------

URL = "data:image/png;base64," + base64.b64encode(png(2, 2)).decode()
ROUTES = ("generations", "edits", "videos", "sync", "txt2img", "img2img", "options", "list", "get",
          "delete", "content", "image", "progress", "health", "models", "model")


def request(route, fields, outcome=0):
    return bytes([ROUTES.index(route), outcome << 1]) + json.dumps(fields).encode()


def part(name, data, file=""):
    data = data if isinstance(data, bytes) else data.encode()
    return (struct.pack(">BBH", len(name), len(file), len(data)) + name.encode() + file.encode() +
            data)


def parts(route, *all_parts, outcome=0):
    return bytes([ROUTES.index(route), outcome << 1 | 1]) + b"".join(all_parts)


def requests():
    all_fields = {
        "prompt": "a \u00e9\n\"cat\"", "model": "second", "n": 2, "size": "64x32",
        "response_format": "url", "output_format": "webp", "quality": "high", "user": "me",
        "background": "auto", "moderation": "low", "output_compression": 50, "seed": 7,
        "num_inference_steps": 2, "guidance_scale": 3.5, "negative_prompt": "dog",
        "scheduler": "euler", "lora": [{"name": "a", "scale": 0.5}, "b:2"], "strength": None}
    files = {"prompt": "a", "image": URL, "images": [{"image_url": URL}, {"image_url": {
        "url": URL}}], "mask": {"image_url": URL}, "strength": 0.5}
    webui = {"prompt": "a", "negative_prompt": "", "seed": -1, "steps": 3, "cfg_scale": 7,
             "width": 64, "height": 64, "batch_size": 2, "n_iter": 2, "unknown": [1, {}],
             "sampler_name": "DPM++ 2M Karras", "scheduler": "Beta", "enable_hr": False,
             "override_settings": {"sd_model_checkpoint": "first"}}
    made = {
        "all": request("generations", {k: v for k, v in all_fields.items() if k != "lora"}),
        "lora": request("generations", all_fields),
        "b64": request("generations", {"prompt": "a", "n": "1"}, 1),
        "stream": request("generations", {"prompt": "a", "stream": True, "partial_images": 2}),
        "stream_failed": request("edits", {"prompt": "a", "image": URL, "stream": True}, 3),
        "failed": request("generations", {"prompt": "a"}, 3),
        "cancelled": request("txt2img", webui, 2),
        "edit": request("edits", files),
        "fetch": request("edits", {"prompt": "a", "image": "http://127.0.0.1/a.png"}),
        "huge_image": request("edits", {"prompt": "a", "image": base64.b64encode(png(
            50000, 50000, rows=b"")).decode()}),
        "size": request("generations", {"prompt": "a", "size": "99999999999x1"}),
        "size_far": request("generations", {"prompt": "a", "size": "9" * 40 + "x" + "9" * 40}),
        "numbers": request("generations",
                           {"prompt": "a", "n": 1e300, "seed": -1e300, "width": 1.5}),
        "unknown": request("generations", {"prompt": "a", "output": "/etc/x", "id": "b"}),
        "list": request("generations", [1]),
        "video": request("videos", {"prompt": "a", "seconds": "4", "size": "64x64", "fps": 8,
                                "input_reference": {"image_url": URL}, "last_image": URL}),
        "sync": request("sync", {"prompt": "a", "output_format": "gif", "seconds": 1}),
        "txt2img": request("txt2img", webui),
        "img2img": request("img2img", {**webui, "init_images": [URL, URL[22:]], "mask": URL}),
        "txt2img_lora": request("txt2img", {**webui, "prompt": "<lora:a:0.5> b <LORA:c> <lora:> "
                                        "<lora:d:1:1><lora:e:1:2> <lora:" + 400 * "f" +
                                        "> <lora:g <h>"}),
        "options": request("options", {"sd_model_checkpoint": "org/second"}),
        "form": parts("edits", part("prompt", "a"), part("image[]", png(2, 2), "a.png"),
                      part("mask", png(2, 2), "b.png"), part("n", "2"), part("stream", "true")),
        "form_text_image": parts("edits", part("prompt", "a"), part("image", URL)),
        "form_video": parts("videos", part("prompt", "a"), part("seconds", "2"),
                            part("input_reference", png(1, 1), "a")),
        "form_twice": parts("generations", *[part("prompt", "a")] * 40),
    }
    made |= {r: bytes([ROUTES.index(r), 0]) + b"image_0\r\n" for r in ROUTES[7:]}
    return made


# ---- connections ---------------------------------------------------------------------------------

def http(method, path, body=b"", *headers, keyed=0):
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return bytes([keyed]) + "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def sized(method, path, body, *headers, keyed=0):
    return http(method, path, body, f"Content-Length: {len(body)}", *headers, keyed=keyed)


def connections():
    form = (b'--b\r\nContent-Disposition: form-data; name="a"; filename="f"\r\nContent-Type: '
            b'image/png\r\n\r\ndata\r\n--b\r\nContent-Disposition: form-data; name="c"\r\n\r\n'
            b'\r\n--b--\r\n')
    kind = "Content-Type: multipart/form-data; boundary="
    chunks, js = "Transfer-Encoding: chunked", "Content-Type: application/json"
    return {
        "get": http("GET", "/get/x?limit=3&after=%20a", b"", "Range: bytes=0-9"),
        "more": http("GET", "/get/x/more") + http("HEAD", "/get/y")[1:],
        "keyed": http("GET", "/get/x", b"", "Authorization: Bearer secret", keyed=1),
        "keyed_basic": http("GET", "/get/x", b"", "Authorization: Basic dTpzZWNyZXQ=", keyed=1),
        "keyed_header": sized("POST", "/post", b"{}", "X-API-Key: secret", js, keyed=1),
        "unkeyed": http("GET", "/get/x", b"", "Authorization: Bearer secre", keyed=1),
        "origin": http("OPTIONS", "/post", b"", "Origin: http://a"),
        "foreign": http("GET", "/get/x", b"", "Origin: null"),
        "json": sized("POST", "/post", b'{"a":[1]}', js),
        "json_bad": sized("POST", "/post", b'{"a":', js),
        "form": sized("POST", "/post", form, kind + "b"),
        "form_quoted": sized("POST", "/post", form, kind + '"b"'),
        "form_no_boundary": sized("POST", "/post", form, kind),
        "form_odd_boundary": sized("POST", "/post", form, kind + '"'),
        "form_cut": sized("POST", "/post", form[:90], kind + "b"),
        "form_mixed": sized("POST", "/post", b'--b\r\nContent-Disposition: form-data; name="a"\r\n'
                            b'Content-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nx\r\n'
                            b'--c--\r\n--b--\r\n', kind + "b"),
        "urlencoded": sized("POST", "/post", b"prompt=a+b%21&n=%zz&&=&x",
                            "Content-Type: application/x-www-form-urlencoded"),
        "chunks": http("POST", "/post", b"3;x=y\r\n{ }\r\n0\r\nA: b\r\n\r\n", chunks, js),
        "chunks_bad": http("POST", "/post", b"zz\r\n{}", chunks),
        "chunks_long": http("POST", "/post", b"ffffffffffffffff\r\n{}", chunks),
        "both": http("POST", "/post", b"0\r\n\r\n", chunks, "Content-Length: 4"),
        "two_lengths": http("POST", "/post", b"{}", "Content-Length: 2", "Content-Length: 20"),
        "too_long": http("POST", "/post", b"{}", "Content-Length: 99999999999999999999"),
        "folded": http("GET", "/get/x", b"", "A: b\r\n c"),
        "bare": b"\0GET /get/x HTTP/1.1\nHost: a\n\n",
        "old": b"\0GET /get/x HTTP/1.0\r\n\r\n",
        "expect": sized("POST", "/post", b"{}", "Expect: 100-continue", js),
        "nothing": b"",
    }


# ---- the rest ------------------------------------------------------------------------------------

def texts():
    return {"url": URL, "digits": base64.b64encode(bytes(range(256))), "blanks": "YWJj \r\n\tZA",
            "safe": "_-_-", "ends": "YQ==", "end_first": "=YQ", "none": "!", "nothing": b""}


def frame(kind, *words):
    data = b"".join(w.encode() + b"\0" for w in words)
    return struct.pack("=II", kind, len(data)) + data


def frames():
    name = "image_0123"
    return {
        "ready": frame(4, "2", "1.0"), "step": frame(6, name, "1", "2", "1", "1"),
        "image": frame(8, name, "/a/b.png", "7", "{}", "", "8", "8", "1", "0"),
        "done": frame(9, name, "total", "0.5") + frame(11, "1e9", "1"),
        "failed": frame(10, name, "3", "a sentence"), "empty": frame(3),
        "no_end": struct.pack("=II", 5, 3) + b"abc", "long": struct.pack("=II", 5, 1 << 31),
        "cut": frame(4, "2", "1.0")[:-2], "nothing": b"",
    }


NAME = "image_0123456789abcdef01234567"


def task(**more):
    return json.dumps({
        "video": False, "created": 1.5, "started": 2, "ended": 3.25, "code": 0, "id": NAME,
        "state": "done", "model": "m", "prompt": "a", "size": None, "owner": "",
        "seconds_asked": "", "error": None, "seconds": "{}", "args": [
            f"--id={NAME}", "--video=false", "--prompt=a", "--model=m", f"--output=./{NAME}.png"],
        "done": [{"width": 8, "height": 8, "frames": 1, "fps": 0, "file": NAME + ".png",
                  "seed": "7", "json": "{}", "parameters": ""}], **more})


def tasks():
    image = json.loads(task())["done"][0]
    return {
        "done": task(), "queued": task(state="queued", done=[], ended=0),
        "failed": task(state="failed", code=-3, error="it broke", done=[]),
        "far": task(created=1e300, ended=1e999, code=1e300),
        "far_image": task(done=[{**image, "width": 1e300, "fps": 1e999}]),
        "outside": task(args=["--id=" + NAME, "--image=/etc/passwd", "--output=/etc/x",
                              "--prompt=a", "--model=m"]),
        "other_id": task(id="../../x"), "odd_seed": task(done=[{**image, "seed": "7,\"a\":1"}]),
        "odd_json": task(done=[{**image, "json": "}"}]), "up": task(done=[{**image, "file": ".."}]),
        "no_args": task(args=[]), "nothing": b"",
    }


def corpus():
    """target -> name -> contents"""
    return {"image": images(), "request": requests(), "http": connections(), "base64": texts(),
            "frame": frames(), "task_store": tasks()}

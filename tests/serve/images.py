#!/usr/bin/env python3
"""images.py XDIT ROOT FILL - images over HTTP: those of the command line, byte for byte, by every
way of asking for them; every wrong field with its status and a sentence. FILL makes a model of
random weights. Speaks TAP."""

import array
import base64
import json
import re
import struct
import subprocess
import sys
import zlib

from harness import (DEMO, PROMPT, ROOT, T, XDIT, Server, end, generate, image_of, pixels, report,
                     wait_for)

GEN, EDIT = "/v1/images/generations", "/v1/images/edits"
FAST = {"prompt": PROMPT, "num_inference_steps": 2, "seed": 0}


def same_as_command_line(s):
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7")
    asked = {"prompt": PROMPT, "num_inference_steps": 3, "seed": 7}
    r = s.post(GEN, asked)
    report(r.status == 200 and image_of(r) == mine, "the image of the command line", r)
    report(r.json["data"][0]["seed"] == 7 and r.json["size"] == "128x128" and
           r.json["output_format"] == "png", "and what it is", r)
    r = s.form(GEN, list(asked.items()))
    report(r.status == 200 and image_of(r) == mine, "the same by a form", r)
    r = s.post(GEN, {**asked, "steps": None, "size": None, "model": "gpt-image-1", "quality":
                     "auto", "moderation": "low", "background": "opaque", "user": "u", "n": 1,
                     "style": "vivid", "output_compression": 100, "safety_identifier": "u"})
    report(r.status == 200 and image_of(r) == mine, "the same with all fields of OpenAI's", r)
    wide = generate("--prompt", PROMPT, "--num_inference_steps", "2", "--width", "96", "--height",
                    "160", "--negative_prompt", "a circle", "--guidance_scale", "3")
    r = s.post(GEN, {**FAST, "size": "96x160", "negative_prompt": "a circle", "cfg_scale": 3})
    report(r.status == 200 and image_of(r) == wide, "size, negative prompt, guidance", r)
    r = s.post(GEN, {**FAST, "size": "96x160", "negative_prompt": ["a circle"], "cfg_scale": 3})
    report(r.status == 200 and image_of(r) == wide, "a list of one negative prompt", r)
    for wrong in (["a circle", "a dog"], [1], ["a", None]):
        r = s.post(GEN, {**FAST, "negative_prompt": wrong})
        report(r.status == 400 and "negative_prompt" in r.json["error"]["message"],
               f"a list of negative prompts {wrong}", r)
    less = generate("--prompt", PROMPT, "--num_inference_steps", "4", "--cache", "fbcache:1e6")
    r = s.post(GEN, {**FAST, "num_inference_steps": 4, "cache": "fbcache:1e6"})
    report(r.status == 200 and image_of(r) == less and b'"cache_reused": 6' in less,
           "a step cache", r)
    less = generate("--prompt", PROMPT, "--num_inference_steps", "4", "--fast_attn", "share,full")
    r = s.post(GEN, {**FAST, "num_inference_steps": 4, "fast_attn": "share,full"})
    report(r.status == 200 and image_of(r) == less and b"share" in less, "shared attention", r)
    return mine


def several(s):
    r = s.post(GEN, {**FAST, "n": 3, "seed": 5})
    seeds = [d["seed"] for d in r.json["data"]]
    report(seeds == [5, 6, 7] and len({d["b64_json"] for d in r.json["data"]}) == 3,
           "three images of three seeds", seeds)
    r2 = s.post(GEN, {**FAST, "seed": 6})
    report(image_of(r, 1) == image_of(r2), "the second one is that of its seed")
    r = s.post(GEN, {**FAST, "response_format": "url", "n": 2})
    urls = [d["url"] for d in r.json["data"]]
    got = [s.get(u[u.index("/v1"):]) for u in urls]
    report(all(g.status == 200 and g.body[:4] == b"\x89PNG" and
               g.headers["Content-Type"] == "image/png" for g in got), "by URL", urls)
    report(s.get("/v1/images/image_0/content").status == 404, "an unknown image is 404")
    report(s.get(urls[0][urls[0].index("/v1"):].replace("index=0", "index=9")).status == 404,
           "and so is one too many")


def formats(s):
    for name, head in (("jpeg", b"\xff\xd8"), ("webp", b"RIFF"), ("png", b"\x89PNG")):
        r = s.post(GEN, {**FAST, "output_format": name})
        report(r.status == 200 and image_of(r).startswith(head) and
               r.json["output_format"] == name, name, r)
        if name != "png":
            fewer = s.post(GEN, {**FAST, "output_format": name, "output_compression": 20})
            report(len(image_of(fewer)) < len(image_of(r)), f"{name} at 20 is smaller",
                   len(image_of(fewer)), len(image_of(r)))


def edits(s, start):
    path = T / "start.png"
    path.write_bytes(start)
    mine = data_of(generate("--prompt", PROMPT, "--num_inference_steps", "4", "--image", str(path),
                            "--strength", "0.5"))
    asked = {**FAST, "num_inference_steps": 4, "strength": 0.5}
    url = "data:image/png;base64," + base64.b64encode(start).decode()
    for what, r in (
            ("a form", s.form(EDIT, [*asked.items(), ("image", "a.png", start)])),
            ("a form of a list", s.form(EDIT, [*asked.items(), ("image[]", "a.png", start)])),
            ("JSON", s.post(EDIT, {**asked, "images": [{"image_url": url}]})),
            ("a data URL", s.post(EDIT, {**asked, "image": url}))):
        report(r.status == 200 and data_of(image_of(r)) == mine and
               "image_" not in str(r.json["data"][0]["parameters"]), f"an edit by {what}", r)
    refused(s, EDIT, asked, 400, "image", "image is missing")
    refused(s, EDIT, {**asked, "image": "https://example.org/a.png"}, 400, "image",
            "--allow_url")
    refused(s, EDIT, {**asked, "image": "data:image/png;base64,@@"}, 400, "image", "base64")
    refused(s, EDIT, {**asked, "image": "data:image/png;base64,aGVsbG8="}, 400, "image",
            "PNG, JPEG")
    huge = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(
        ">IIBBBBB", 50000, 50000, 8, 2, 0, 0, 0)) + png_chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    r = s.form(EDIT, [*asked.items(), ("image", "a.png", huge)])
    report(r.status == 400 and "50000x50000" in r.error, "a huge PNG is refused by its head", r)


def data_of(png):
    """The chunks of the pixels, without the texts."""
    at, data = 8, b""
    while at < len(png):
        (n,) = struct.unpack(">I", png[at:at + 4])
        data += png[at + 8:at + 8 + n] if png[at + 4:at + 8] == b"IDAT" else b""
        at += n + 12
    return data


def png_chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def refused(s, path, fields, status, param, text):
    r = s.post(path, fields)
    e = r.json.get("error", {})
    report(r.status == status and e.get("param") == param and text in e.get("message", "") and
           r.json.get("detail") == e["message"], f"{status}: {str(fields)[:60]}", r)


def mistakes(s):
    for fields, status, param, text in (
            ({}, 400, "prompt", "prompt is missing"),
            ({**FAST, "model": "nope"}, 404, "model", "demo-pixart"),
            ({**FAST, "size": "12"}, 400, "size", "WIDTHxHEIGHT"),
            ({**FAST, "size": "12xx5"}, 400, "size", "WIDTHxHEIGHT"),
            ({**FAST, "size": "100x100"}, 400, None, "multiple of 16"),
            ({**FAST, "size": "100000x128"}, 400, "size", "128 x 128"),
            ({**FAST, "width": "wide"}, 400, "width", "10000000"),
            ({**FAST, "n": 0}, 400, "num_images_per_prompt", "from 1"),
            ({**FAST, "num_inference_steps": 1e9}, 400, "num_inference_steps", "from 1 to 1000"),
            ({**FAST, "scheduler": "nope"}, 400, None, "scheduler"),
            ({**FAST, "fast_attn": "/etc/table.json"}, 400, "fast_attn", "list of share"),
            ({**FAST, "fast_attn": "shared"}, 400, None, "share"),
            ({**FAST, "cache": "nope"}, 400, None, "fbcache, dbcache"),
            ({**FAST, "output_format": "bmp"}, 400, "output_format", "png, jpeg or webp"),
            ({**FAST, "response_format": "x"}, 400, "response_format", "b64_json or url"),
            ({**FAST, "partial_images": 9}, 400, "partial_images", "from 0 to 3"),
            ({**FAST, "background": "blue"}, 400, "background", "transparent"),
            ({**FAST, "quality": "auto standard"}, 400, "quality", "medium"),
            ({**FAST, "quality": ""}, 400, "quality", "auto"),
            ({**FAST, "moderation": "high"}, 400, "moderation", "'high'"),
            ({**FAST, "output_compression": 101}, 400, "output_compression", "from 0 to 100"),
            ({**FAST, "output_compression": "a"}, 400, "output_compression", "from 0 to 100"),
            ({**FAST, "nosuch": 1}, 400, "nosuch", "no field"),
            ({**FAST, "prompt": 7}, 400, "prompt", "a text"),
            ({**FAST, "prompt": None}, 400, "prompt", "is missing"),
            ({**FAST, "output": "/etc/x.png"}, 400, "output", "no field"),
            ({**FAST, "mask_image": "/etc/passwd"}, 400, "mask_image", "no field"),
            ({**FAST, "guidance_scale": {"a": 1}}, 400, "guidance_scale", "a text, a number"),
            ({**FAST, "size": "+64x64"}, 400, "size", "WIDTHxHEIGHT"),
            ({**FAST, "size": " 64x64"}, 400, "size", "WIDTHxHEIGHT"),
            ({**FAST, "stream": "yes"}, 400, "stream", "true or false"),
            ({**FAST, "seed": 2**53 + 1000}, 400, "seed", 'text, "seed": "9007199254741992"'),
            ({**FAST, "sigmas": [1, "a"]}, 400, "sigmas", "list of numbers"),
            ({**FAST, "lora": {"name": "a", "scale": "b"}}, 400, "lora", '"scale": 0.8'),
            ({**FAST, "lora": "a"}, 400, "lora", "--loras DIR")):
        refused(s, GEN, fields, status, param, text)
    for body in (b"", b"{", b"[1]", b'"a"', b"\0\0", b"[" * 100000):
        r = s.request("POST", GEN, body, {"Content-Type": "application/json"})
        report(r.status == 400 and r.error, f"400: the body {body[:10]!r}", r)
    r = s.get(GEN)
    report(r.status == 405 and "POST" in r.error, "405 names the method", r)
    report(s.get("/nothing").status == 404, "404")
    r = s.request("POST", GEN, b"x", {"Content-Length": str(1 << 40)})
    report(r.status == 413, "413 by the length alone", r)


def spellings(s):
    """The same request in other words."""
    want = image_of(s.post(GEN, {**FAST, "timesteps": "900,500", "num_inference_steps": 2,
                                 "seed": 2**53 - 1}))
    r = s.post(GEN, {**FAST, "timesteps": [900, 500], "num_inference_steps": 2, "priority": None,
                     "deadline": None, "lora": None, "seed": str(2**53 - 1), "stream": "false"})
    report(r.status == 200 and image_of(r) == want, "a list, a text, and nothing", r)
    far = [s.post(GEN, {**FAST, "seed": str(2**64 - i)}) for i in (1, 2)]
    report([r.json["data"][0]["seed"] for r in far] == [2**64 - 1, 2**64 - 2] and
           image_of(far[0]) != image_of(far[1]), "long seeds keep their last digit")


def loras(s):
    r = s.get("/sdapi/v1/loras")
    report([x["name"] for x in r.json] == ["a.b", "link"] and r.json[0]["alias"] == "a.b",
           "LoRA files that there are", r)
    for name in ("../a", "a/b", "/etc/passwd", ".hidden", "", "link"):
        r = s.post(GEN, {**FAST, "lora": name})
        report(r.status in (400, 404) and r.json["error"]["param"] == "lora",
               f"no LoRA file '{name}'", r)


def stream(s):
    r = s.post(GEN, {**FAST, "stream": True, "n": 2})
    events = [e.split("\n") for e in r.body.decode().strip().split("\n\n")]
    data = [json.loads(e[1][len("data: "):]) for e in events]
    report(r.headers["Content-Type"].startswith("text/event-stream") and
           [d["type"] for d in data] == ["image_generation.completed"] * 2 and
           all(e[0] == f"event: {d['type']}" for e, d in zip(events, data)), "a stream", r)
    plain = s.post(GEN, {**FAST, "n": 2})
    report([d["b64_json"] for d in data] == [d["b64_json"] for d in plain.json["data"]],
           "has the images of the reply")
    r = s.post(GEN, {**FAST, "num_inference_steps": 20, "stream": True, "progress": True, "n": 2})
    data = [json.loads(e.split("\n")[1][len("data: "):]) for e in
            r.body.decode().strip().split("\n\n")]
    told = [d for d in data if d["type"] == "image_generation.progress"]
    steps = [(d["image"], d["step"]) for d in told if d["stage"] == "denoise" and d["step"]]
    report(len(data) == len(told) + 2 and len(steps) > 4 and steps == sorted(steps) and
           all(d["steps"] == 20 and d["images"] == 2 for d in told if d["step"]),
           "progress, where it is asked for", data)


def tokens(text, read, made):
    """`usage` of so many tokens: of the prompt, of images that are read, of those that are made."""
    return {"input_tokens": text + read, "input_tokens_details": {
        "image_tokens": read, "text_tokens": text}, "output_tokens": made,
        "output_tokens_details": {"image_tokens": made, "text_tokens": 0},
        "total_tokens": text + read + made}


def usage(s):
    """The demo's tokenizer makes 22 ids of PROMPT, and 128 x 128 pixels are 8 x 8 tokens."""
    r = s.post(GEN, FAST)
    report(r.json["usage"] == tokens(22, 0, 64), "tokens of an image", r.json["usage"])
    r = s.post(GEN, {**FAST, "n": 2, "size": "96x160", "negative_prompt": "a circle"})
    report(r.json["usage"] == tokens(22, 0, 2 * 60), "of two others", r.json["usage"])
    r = s.post(GEN, {"prompt": "a red circle", "num_inference_steps": 1, "stream": True, "n": 2})
    used = [json.loads(e.split("data: ")[1])["usage"] for e in r.body.decode().strip().split(
        "\n\n")]
    report(used == [tokens(6, 0, 64)] * 2, "of a stream, each its own", used)


def as_xdit(s, folder):
    """POST /generate of xDiT's service: its names, its defaults (cfg 7.5), its answer."""
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "2", "--seed", "42",
                    "--guidance_scale", "7.5", "--width", "128", "--height", "128")
    asked = {**FAST, "seed": 42, "height": 128, "width": 128}
    r = s.post("/generate", asked)
    report(r.status == 200 and sorted(r.json) == ["elapsed_time", "message", "output",
                                                  "save_to_disk", "seed"] and
           r.json["message"] == "Image generated successfully" and
           r.json["elapsed_time"].endswith(" sec") and r.json["save_to_disk"] is False and
           base64.b64decode(r.json["output"]) == mine, "xDiT's service", r)
    r = s.post("/generate", {**asked, "seed": 7, "cfg": 1, "save_disk_path": None})
    report(base64.b64decode(r.json["output"]) != mine, "its seed and cfg", r)
    r = s.post("/generate", {**asked, "save_disk_path": str(folder)})
    report(r.json.get("save_to_disk") is True and r.json["output"].startswith(f"{folder}/") and
           open(r.json["output"], "rb").read() == mine, "a file where results are", r)
    for wrong, text in (({"prompt": ""}, "Prompt cannot be empty"), ({"prompt": None}, "missing"),
                        ({"width": 0}, "width"), ({"save_disk_path": "/tmp"}, "--results")):
        r = s.post("/generate", {**asked, **wrong})
        report(r.status == 400 and text in r.json["detail"], f"refused: {wrong}", r)


def shape_of_images():
    """Without a size the result has the shape of the image, turned as its Exif says."""
    turned = struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 0x0112, 3, 1, 6, 0, 0)
    rows = zlib.compress((b"\0" + bytes(3 * 48)) * 96)
    image = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", struct.pack(">IIBBBBB", 48, 96, 8, 2, 0, 0, 0)),
                       (b"eXIf", turned), (b"IDAT", rows), (b"IEND", b"")):
        image += struct.pack(">I", len(data)) + kind + data
        image += struct.pack(">I", zlib.crc32(kind + data))
    with Server() as s:
        for more in ([], [("size", "auto")]):
            r = s.form(EDIT, [("prompt", "a cat"), ("num_inference_steps", 2), *more,
                              ("image", "a.png", image)])
            report(r.status == 200 and r.json["size"] == "96x48", f"the image's shape {more}", r)


def usage_of_edits():
    """A model that reads images beside the one that it makes: 8 x 8 pixels are a token."""
    model = T / "kontext"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "kontext"), str(model)],
                   check=True, stdout=subprocess.DEVNULL)
    image = (model / "image.png").read_bytes()
    with Server("--dtype", "f32", model=str(model)) as s:
        r = s.form(EDIT, [("prompt", "a cat"), ("num_inference_steps", 1), ("max_area", 48 * 48),
                          ("no_auto_resize", "true"), ("image", "a.png", image)])
        size = struct.unpack(">II", image[16:24])
        report(r.json["size"] == "64x32" and r.json["usage"] == tokens(
            6, size[0] * size[1] // 64, 32), f"tokens of an edit of {size}", r.json["usage"])


def layers():
    """A model that separates an image with alpha into layers: each is a result of its own, and the
    first has the numbers of tokens."""
    model = T / "qwen-layered"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "qwen-layered"), str(model)],
                   check=True, stdout=subprocess.DEVNULL)
    path = model / "image.png"
    subprocess.run([XDIT, "generate", "--model", str(model), "--quiet", "--threads", "1",
                    "--prompt", "a star", "--num_inference_steps", "2", "--image", str(path),
                    "--layers", "2", "--max_area", "2048", "--dtype", "f32", "--output",
                    str(T / "layer.png")],
                   check=True, timeout=120, stdout=subprocess.DEVNULL)
    want = [(T / f"layer_000{i}.png").read_bytes() for i in (1, 2)]
    with Server("--dtype", "f32", model=str(model)) as s:
        r = s.form(EDIT, [("prompt", "a star"), ("num_inference_steps", 2), ("layers", 2),
                          ("seed", 0), ("max_area", 2048), ("image", "a.png", path.read_bytes())])
        report(r.status == 200 and len(r.json["data"]) == 2 and
               [pixels(image_of(r, i)) for i in (0, 1)] == [pixels(w) for w in want],
               "the layers of the command line", r)
        report([image_of(r, i)[25] for i in (0, 1)] == [6, 6], "they have alpha")
        report(r.json["data"][0]["parameters"]["layers"] == 2, "the number of layers is told")


def control():
    """A model that reads a control image; it comes with or without an image to start from."""
    model = T / "flux-control"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "flux-control"), str(model)],
                   check=True, stdout=subprocess.DEVNULL)
    path = model / "control.png"
    image = path.read_bytes()
    url = "data:image/png;base64," + base64.b64encode(image).decode()
    line = ["--prompt", "a cat", "--num_inference_steps", "2", "--seed", "3", "--dtype", "f32",
            "--control_image", str(path)]
    asked = [("prompt", "a cat"), ("num_inference_steps", 2), ("seed", 3)]
    with Server("--dtype", "f32", "--width", "32", "--height", "32", model=str(model)) as s:
        m = s.get("/v1/models").json["data"][0]
        report(m["needs"] == ["control_image"] and "control_image" in m["takes"], "what it takes",
               m)
        want = pixels(generate(*line, model=str(model)))
        got = [s.form(GEN, asked + [("control_image", "a.png", image)]),
               s.post(GEN, {**dict(asked), "control_image": url})]
        report(all(r.status == 200 and pixels(image_of(r)) == want for r in got),
               "a control image as a file and as JSON, which sets the size", *got)
        r = s.form(EDIT, asked + [("control_image", "a.png", image), ("image", "b.png", image)])
        report(r.status == 200 and pixels(image_of(r)) == pixels(generate(
            *line, "--image", str(path), model=str(model))), "with an image, too", r)
        r = s.post(GEN, dict(asked))
        report(r.status == 400 and "control" in r.error, "it must be there", r)
        r = s.post(GEN, {**dict(asked), "control_image": "/etc/passwd"})
        report(r.status == 400, "and is no name of a file here", r)


def controls():
    """Two control networks, each with its own image and numbers."""
    for name in ("flux", "flux-controlnet"):
        subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(T / name)],
                       check=True, stdout=subprocess.DEVNULL)
    nets = ["--controlnet", str(T / "flux-controlnet" / "controlnet_2")] * 2
    paths = [T / "flux-controlnet" / "control.png", ROOT / "tests" / "golden" / "kontext" /
             "image.png"]
    images = [p.read_bytes() for p in paths]
    urls = ["data:image/png;base64," + base64.b64encode(i).decode() for i in images]
    numbers = {"conditioning_scale": [0.7, 1.3], "control_guidance_start": [0.2, 0],
               "control_guidance_end": [0.8, 0.6], "control_mode": [0, 1]}
    texts = {name: ",".join(map(str, v)) for name, v in numbers.items()}
    want = pixels(generate(
        "--prompt", "a cat", "--num_inference_steps", "5", "--seed", "3", "--width", "64",
        "--height", "48", "--dtype", "f32", *nets, "--control_image", str(paths[0]),
        "--control_image", str(paths[1]), *(f"--{k}={v}" for k, v in texts.items()),
        model=str(T / "flux")))
    asked = {"prompt": "a cat", "num_inference_steps": 5, "seed": 3, "size": "64x48"}
    with Server("--dtype", "f32", *nets, model=str(T / "flux")) as s:
        m = s.get("/v1/models").json["data"][0]
        report(m["needs"] == ["control_image"] and m["control_images"] == 2,
               "a model takes an image for each control network", m)
        for name in ("control_image", "control_image[]"):
            r = s.form(GEN, [*asked.items(), *texts.items(),
                             *((name, "a.png", i) for i in images)])
            report(r.status == 200 and pixels(image_of(r)) == want, f"two as {name}", r)
        for what, given in (("URLs", urls), ("objects", [{"image_url": u} for u in urls])):
            r = s.post(GEN, {**asked, **numbers, "control_image": given})
            report(r.status == 200 and pixels(image_of(r)) == want, f"two in JSON as {what}", r)
        r = s.post(GEN, {**asked, **numbers, "control_image": urls[::-1]})
        report(r.status == 200 and pixels(image_of(r)) != want, "in their order", r)
        r = s.post(GEN, {**asked, **numbers, "control_image": urls, "control_preprocess": "gray"})
        report(r.status == 200 and pixels(image_of(r)) != want, "as gray images", r)
        for wrong, words in (({"control_image": urls[0]}, "1 control image is given for 2"),
                             ({"control_preprocess": "sobel"}, "sobel"),
                             ({"conditioning_scale": [1, 2, 3]}, "conditioning_scale"),
                             ({"control_mode": [0, 3]}, "control_mode of controlnet 1 is 3"),
                             ({"control_guidance_start": 0.9}, "start must be less"),
                             ({"control_image": [urls[0], 7]}, "control_image must be")):
            r = s.post(GEN, {**asked, **numbers, "control_image": urls, **wrong})
            report(r.status == 400 and words in r.error, f"refused: {list(wrong)[0]}", r)


def status(s):
    r = s.get("/health")
    report(r.status == 200 and r.json["status"] == "ok" and r.json["ranks"] == 1, "health", r)
    r = s.get("/v1/models")
    report([m["id"] for m in r.json["data"]] == ["demo-pixart"], "models", r)
    m = r.json["data"][0]
    report(m["makes"] == "image" and m["takes"] == ["image", "strength"] and m["needs"] == [] and
           m["multiple"] == 16 and
           m["defaults"] == {"width": 128, "height": 128, "num_inference_steps": 20,
                             "guidance_scale": 4.5, "strength": 0.6}, "what they make and take", m)
    report(s.get("/v1/models/demo-pixart").json["object"] == "model" and
           s.get("/v1/models/nope").status == 404, "one model")
    report(s.metric('jobs_total{state="done"}') > 5 and s.metric("queue_length") == 0 and
           s.metric('seconds_total{part="denoise"}') > 0, "metrics")
    r = s.get("/metrics")
    names = [x.split("{")[0].split()[0] for x in r.body.decode().splitlines() if x[0] != "#"]
    typed = [x.split()[2] for x in r.body.decode().splitlines() if x.startswith("# TYPE")]
    plain = [re.sub("_(bucket|sum|count)$", "", n) if n not in typed else n for n in names]
    report(set(plain) == set(typed), "every metric has a type", names, typed)


def write_lora(path):
    """Differences of one matrix of the demo's transformer, of rank 4."""
    width, rank, name = 192, 4, "transformer.transformer_blocks.0.attn1.to_q.lora_{}.weight"
    shapes = {name.format("A"): [rank, width], name.format("B"): [width, rank]}
    head, at = {}, 0
    for key, shape in shapes.items():
        head[key] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * rank * width]}
        at += 4 * rank * width
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    data = array.array("f", [0.3 * ((i * 37) % 17 - 8) / 8 for i in range(2 * rank * width)])
    path.write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())


def switch_loras(folder):
    """A LoRA file changes the transformer alone, and comes back without being read again."""
    write_lora(folder / "one.safetensors")
    asked = {"prompt": PROMPT, "num_inference_steps": 2, "seed": 3}
    line = ["--prompt", PROMPT, "--num_inference_steps", "2", "--seed", "3"]
    file = str(folder / "one.safetensors")
    want = [pixels(generate(*line, *more)) for more in ([], ["--lora", file],
                                                        ["--lora", file + ":0.5"])]
    report(len(set(want)) == 3, "the command line's images differ")
    with Server("--loras", str(folder), "--verbose", "--omit_folders") as s:
        for lora, i in ((None, 0), ("one", 1), (None, 0), ("one:0.5", 2), ("one", 1), (None, 0)):
            r = s.post(GEN, {**asked, **({"lora": lora} if lora else {})})
            report(r.status == 200 and pixels(image_of(r)) == want[i],
                   f"the command line's image with LoRA {lora}", r)
            told = r.json["data"][0]["parameters"]
            report(told["model"] == "demo-pixart" and
                   [f["path"] for f in told.get("loras", ())] == ["one.safetensors"] * bool(lora),
                   "its parameters name files without folders", told)
        said = s.said()
        loads = [len(re.findall(rf"^xdit: {part}: .*MB of weights", said, re.M))
                 for part in ("transformer", "text_encoder", "vae")]
        report(loads == [3, 1, 1], "the transformer is loaded once for each, other parts once",
               loads, said)
        report(s.metric("models_open") == 1, "one model is open", s.get("/metrics").body)


def adapter(folder):
    """A folder of peft with the file's numbers, half of them by its alpha."""
    (folder / "peft").mkdir()
    write_lora(folder / "peft/adapter_model.safetensors")
    (folder / "peft/adapter_config.json").write_text('{"r": 4, "lora_alpha": 2}')


def tagged_loras(folder):
    """Tags in prompts of stable-diffusion-webui, and mistakes about files, without their paths."""
    adapter(folder)
    (folder / "foreign.safetensors").write_bytes(
        (folder / "one.safetensors").read_bytes().replace(b"_blocks", b"_blocqs"))
    asked = {"steps": 2, "seed": 3}
    line = ["--prompt", f"{PROMPT} of clay", "--num_inference_steps", "2", "--seed", "3"]
    file = str(folder / "one.safetensors")
    want = [pixels(generate(*line, *(x for f in files for x in ("--lora", f))))
            for files in ([file], [file + ":0.5"], [file, file + ":0.25"])]
    tags = (("<lora:one:1>", 0), ("<lora:one>", 0), ("<LORA:one:0.5:0.5>", 1), ("<lora:peft:1>", 1),
            ("<lora:one:1><lora:one:0.25>", 2))
    with Server("--loras", str(folder)) as s:
        names = [x["name"] for x in s.get("/sdapi/v1/loras").json]
        report("peft" in names and "one" in names, "folders of peft are LoRA files", names)
        for tag, i in tags:
            r = s.post("/sdapi/v1/txt2img", {**asked, "prompt": f"{PROMPT}{tag} of clay"})
            report(r.status == 200 and pixels(base64.b64decode(r.json["images"][0])) == want[i] and
                   "<lora" not in json.loads(r.json["info"])["prompt"], f"{tag} in a prompt", r)
        for tag in ("none:1", "one:x", "one:", "one:0.5:0.7", "../one:1", "foreign:1"):
            r = s.post("/sdapi/v1/txt2img", {**asked, "prompt": f"{PROMPT}<lora:{tag}>"})
            report(r.status == 400 and str(folder) not in r.body.decode(), f"<lora:{tag}>: 400", r)
        for lora in ("one:x", "one:", "none", "foreign", {"name": "foreign", "scale": 0.5}):
            r = s.post(GEN, {**FAST, "lora": lora})
            report(r.status == 400 and str(folder) not in r.body.decode() and
                   (lora in ("one:x", "one:") or "none" in r.error or "foreign" in r.error),
                   f"lora {lora!r}: 400", r)


def png_of(side, pixel):
    """A square PNG; pixel(x, y) has 1, 3 or 4 bytes."""
    rows = b"".join(b"\0" + b"".join(bytes(pixel(x, y)) for x in range(side)) for y in range(side))
    kind = {1: 0, 3: 2, 4: 6}[len(pixel(0, 0))]
    return (b"\x89PNG\r\n\x1a\n"
            + png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, kind, 0, 0, 0))
            + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))


def masks():
    """The hole of OpenAI's masks is what is white in others, whatever colours lie around it."""
    model = T / "flux"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "flux"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    start = png_of(64, lambda x, y: (3 * x, 2 * y, 90))

    def inside(x, y):
        return 16 <= x < 48 and y < 32

    white, other = (png_of(64, lambda x, y, i=i: (255 * (inside(x, y) != i),)) for i in (0, 1))
    holes = [png_of(64, lambda x, y, c=c: (c, c, c, 255 * (not inside(x, y)))) for c in (0, 255)]
    opaque = png_of(64, lambda x, y: (255 * inside(x, y),) * 3 + (255,))
    asked = [("prompt", "a cat"), ("num_inference_steps", 2), ("size", "64x64"), ("seed", 0)]
    with Server("--dtype", "f32", model=str(model)) as s:
        got = [s.form(EDIT, asked + [("image", "a.png", start), ("mask", "m.png", m)])
               for m in (white, other, *holes, opaque)]
        images = [pixels(image_of(r)) for r in got if r.status == 200]
        report(len(images) == 5 and images[0] != images[1] and
               images[0] == images[2] == images[3] == images[4],
               "masks that are transparent are OpenAI's", got)


def flags_of_opening():
    """How a model is opened is said as on the command line, and gives its image."""
    line = ["--prompt", PROMPT, "--num_inference_steps", "2", "--seed", "3"]
    weights = DEMO + "/transformer/diffusion_pytorch_model.safetensors"
    plain = pixels(generate(*line))
    for flags, other in (
            (["--weights_dtype", "int8", "--text_weights_dtype", "int8"], True),
            (["--dtype", "f32", "--transformer", weights], None),
            (["--offload", "stream", "--memory", "1GB"], False),
            (["--fit", "auto", "--bind", "none", "--device", "cpu"], False)):
        want = pixels(generate(*line, *flags))
        with Server(*flags) as s:
            r = s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 2, "seed": 3})
            report(r.status == 200 and pixels(image_of(r)) == want and
                   (other is None or (want != plain) == other), f"opened with {flags}", r)


def expiry():
    """More than --keep_mb: the oldest results go, the newest stays."""
    with Server("--keep_mb", "1") as s:
        urls = [s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 1, "size": "512x512",
                             "seed": i, "response_format": "url"}).json["data"][0]["url"]
                for i in range(4)]
        paths = [u[u.index("/v1"):] for u in urls]
        report(wait_for(lambda: s.get(paths[0]).status == 404) and s.get(paths[-1]).status == 200,
               "the oldest results make way")


def main():
    folder = T / "loras"
    folder.mkdir()
    (folder / "link.safetensors").symlink_to(DEMO + "/transformer/config.json")
    for name in ("a.b.safetensors", ".hidden.safetensors", "readme.txt", "safetensors"):
        (folder / name).write_bytes(b"")
    with Server() as s:
        report(s.get("/sdapi/v1/loras").json == [], "no LoRA files")
        start = same_as_command_line(s)
        several(s)
        formats(s)
        edits(s, start)
        mistakes(s)
        spellings(s)
        stream(s)
        usage(s)
        status(s)
        report(s.stop() == 0, "SIGTERM ends it well", s.said())
    with Server("--loras", str(folder)) as s:
        loras(s)
    switch_loras(folder)
    tagged_loras(folder)
    results = (T / "results").resolve()
    results.mkdir()
    with Server("--results", str(results)) as s:
        as_xdit(s, results)
    usage_of_edits()
    layers()
    control()
    controls()
    shape_of_images()
    masks()
    flags_of_opening()
    expiry()
    end()


if __name__ == "__main__":
    sys.exit(main())

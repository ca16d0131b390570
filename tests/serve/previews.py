#!/usr/bin/env python3
"""previews.py XDIT ROOT FILL - previews over HTTP: partial images of streams, current_image of
stable-diffusion-webui, those of a video; their files. FILL makes a tiny model of videos. Speaks
TAP."""

import array
import base64
import json
import math
import random
import re
import struct
import subprocess
import sys
import threading
import zlib

from harness import DEMO, PROMPT, ROOT, T, XDIT, Server, end, image_of, report, wait_for

GEN, EDIT, WEBUI = "/v1/images/generations", "/v1/images/edits", "/sdapi/v1"
RANDOM = random.Random(1)
ASKED = {"prompt": PROMPT, "num_inference_steps": 12, "seed": 3}


def pixels(png):
    """(width, height, bytes) of a PNG of 8-bit RGB; None: it is none."""
    if png[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    at, data, width, height = 8, b"", 0, 0
    while at < len(png):
        n, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", png[at + 8:at + 18])
            if (depth, colour) != (8, 2):
                return None
        data += png[at + 8:at + 8 + n] if kind == b"IDAT" else b""
        at += n + 12
    raw, row, out = zlib.decompress(data), 3 * width, bytearray()
    before = bytearray(row)
    for y in range(height):
        how, line = raw[y * (row + 1)], bytearray(raw[y * (row + 1) + 1:(y + 1) * (row + 1)])
        for x in range(row):
            a, b, c = (line[x - 3] if x > 2 else 0, before[x], before[x - 3] if x > 2 else 0)
            p = a + b - c
            near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line[x] = (line[x] + (0, a, b, (a + b) // 2, near)[how]) % 256
        out += line
        before = line
    return width, height, bytes(out)


def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a[2], b[2])) / len(a[2])


def events(reply):
    """The data of all events, whose names are their types."""
    found = []
    for e in reply.body.decode().strip().split("\n\n"):
        name, data = e.split("\n")
        found.append(json.loads(data[len("data: "):]))
        assert name == f"event: {found[-1]['type']}", name
    return found


def file_of(event):
    return base64.b64decode(event["b64_json"])


def partial_images(s):
    plain = s.post(GEN, {**ASKED, "n": 2})      # the colours of the model are learned from it
    got = events(s.post(GEN, {**ASKED, "n": 2, "stream": True, "partial_images": 3}))
    partial, done = "image_generation.partial_image", "image_generation.completed"
    report([(e["type"], e.get("partial_image_index")) for e in got] ==
           [(partial, 0), (partial, 1), (partial, 2), (done, None)] * 2,
           "three partial images before each of two images", [e["type"] for e in got])
    report([e["b64_json"] for e in got[3::4]] == [d["b64_json"] for d in plain.json["data"]],
           "which are those of a request without")
    wrong = [e for e in got if e["type"] == partial and (
        e["size"] != "auto" or e["output_format"] != "png" or e["quality"] != "auto" or
        e["background"] != "opaque" or not e["created_at"])]
    report(not wrong, "fields of OpenAI's", wrong)
    for i in (0, 4):
        seen = [pixels(file_of(e)) for e in got[i:i + 4]]
        report(all(p and p[:2] == (128, 128) for p in seen), "images of 128 x 128")
        far = [distance(p, seen[3]) for p in seen[:3]]
        report(far[2] < 20 and far[2] < 0.75 * far[0], "the last is nearer than the first", far)
    return [file_of(e) for e in got[:3]]


def how_many(s):
    for fields, n in (({"partial_images": 0}, 0), ({"partial_images": 2}, 2), ({}, 0),
                      ({"partial_images": 3, "num_inference_steps": 2}, 1),
                      ({"partial_images": 3, "num_inference_steps": 1}, 0),
                      ({"preview_every": 2}, 6), ({"previews": 5}, 5)):
        got = events(s.post(GEN, {**ASKED, **fields, "stream": True}))
        report(len(got) == n + 1, f"{fields}: {n}", [e["type"] for e in got])
    for name, head in (("jpeg", b"\xff\xd8"), ("webp", b"RIFF")):
        got = events(s.post(GEN, {**ASKED, "output_format": name, "stream": True,
                                  "partial_images": 1, "size": "64x96"}))
        report(len(got) == 2 and file_of(got[0]).startswith(head) and
               got[0]["output_format"] == name and got[0]["size"] == "64x96", name, got[0])
    start = image_of(s.post(GEN, ASKED))
    r = s.form(EDIT, [*ASKED.items(), ("strength", 0.5), ("stream", "true"),
                      ("partial_images", 2), ("image", "a.png", start)])
    report([e["type"] for e in events(r)] == ["image_edit.partial_image"] * 2 +
           ["image_edit.completed"], "of an edit", r)


def current_image(s):
    replies = []
    t = threading.Thread(target=lambda: replies.append(s.post(WEBUI + "/txt2img", {
        "prompt": PROMPT, "steps": 400, "width": 256, "height": 128})))
    t.start()
    came = wait_for(lambda: s.get(WEBUI + "/progress").json["current_image"], 60)
    r = s.get(WEBUI + "/progress").json
    p = pixels(base64.b64decode(r["current_image"] or ""))
    report(came and p and p[:2] == (256, 128), "current_image", came, r)
    r = s.get(WEBUI + "/progress?skip_current_image=true").json
    report(r["current_image"] is None and r["progress"] > 0, "skip_current_image", r)
    s.post(WEBUI + "/interrupt", {})
    t.join(60)
    report(replies and replies[0].status == 200 and
           s.get(WEBUI + "/progress").json["current_image"] is None, "none when nothing runs")


def names(results):
    return sorted(p.name for p in results.iterdir() if ".preview" in p.name)


def videos():
    model, results = T / "cog", T / "results"
    results.mkdir()
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "cog2b"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    fields = {"prompt": "a cat", "num_inference_steps": 3, "output_format": "gif"}
    with Server("--dtype", "f32", "--results", str(results), model=str(model)) as s:
        v = s.post("/v1/videos", {**fields, "preview_every": 1}).json["id"]
        url = f"/v1/videos/{v}"
        made = wait_for(lambda: s.get(url).json["status"] == "completed", 60)
        r = s.get(url + "/content?variant=preview")
        p = pixels(r.body)
        report(made and r.status == 200 and r.headers["Content-Type"] == "image/png" and
               p and p[:2] == (56, 40), "a frame of a video", r)
        report(len(names(results)) == 3, "a file for each preview", names(results))
    with Server("--dtype", "f32", "--results", str(results), model=str(model)) as s:
        report(s.request("DELETE", url).status == 200 and names(results) == [],
               "removed with the video, also by a later server", names(results))
        v = s.post("/v1/videos", fields).json["id"]
        url = f"/v1/videos/{v}"
        made = wait_for(lambda: s.get(url).json["status"] == "completed", 60)
        r = s.get(url + "/content?variant=preview")
        report(made and r.status == 404 and "preview_every" in r.error, "none was asked for", r)


def write_tiny(folder, latents=4, width=16):
    """A tiny autoencoder of random weights with cells of 8 pixels."""
    convs = {"decoder.layers.0": (width, latents), "decoder.layers.12": (3, width),
             "encoder.layers.0": (width, 3), "encoder.layers.8": (latents, width)}
    bare = [f"decoder.layers.{i}" for i in (4, 7, 10)] + [f"encoder.layers.{i}" for i in (2, 4, 6)]
    blocks = [f"decoder.layers.{i}.conv.{k}" for i in (2, 5, 8, 11) for k in (0, 2, 4)]
    blocks += [f"encoder.layers.{i}.conv.{k}" for i in (1, 3, 5, 7) for k in (0, 2, 4)]
    convs.update({name: (width, width) for name in bare + blocks})
    head, data = {}, array.array("f")
    for name, (out, into) in convs.items():
        for part, shape in (("weight", [out, into, 3, 3]), ("bias", [out])):
            if part == "bias" and name in bare:
                continue
            n, at = math.prod(shape), 4 * len(data)
            data.extend(RANDOM.uniform(-1, 1) * (0.2 if part == "weight" else 0.3)
                        for _ in range(n))
            head[f"{name}.{part}"] = {"dtype": "F32", "shape": shape,
                                      "data_offsets": [at, at + 4 * n]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + data.tobytes())
    (folder / "config.json").write_text(json.dumps({
        "_class_name": "AutoencoderTiny", "latent_channels": latents,
        **{f"{side}_block_out_channels": [width] * 4 for side in ("encoder", "decoder")},
        **{f"num_{side}_blocks": [1] * 4 for side in ("encoder", "decoder")}}))


def line(out, *more, model=DEMO):
    """What the command line prints, and the pixels of a file that it writes."""
    r = subprocess.run([XDIT, "generate", "--model", str(model), "--threads", "1", "--dtype", "f32",
                        "--prompt", PROMPT, "--seed", "3", "--num_inference_steps", "4", "--output",
                        str(T / "tiny.png"), *more], capture_output=True, text=True, timeout=120,
                       check=False)
    return r, pixels((T / out).read_bytes()) if r.returncode == 0 else None


def decoders():
    """The last step's preview is the image of a model whose autoencoder is the decoder."""
    tiny, other, asked = T / "tiny", T / "other", ["--preview", str(T / "seen.png")]
    write_tiny(tiny)
    write_tiny(other, 3)
    model = T / "model"
    model.mkdir()
    for path in (ROOT / "models" / "demo-pixart").iterdir():
        (model / path.name).symlink_to(tiny if path.name == "vae" else path)
    want = line("tiny.png", model=model)[1]
    plain = line("seen.png", *asked, "--preview_every", "4")[1]
    image = pixels((T / "tiny.png").read_bytes())
    _, seen = line("seen.png", *asked, "--preview_every", "4", "--preview_decoder", str(tiny))
    report(want and seen and seen[:2] == (128, 128) and distance(seen, want) < 1 and
           distance(plain, want) > 8, "a preview is decoded", distance(plain, want),
           distance(seen, want))
    report(pixels((T / "tiny.png").read_bytes()) == image, "the image is as without")
    peaks = [re.search(r"peak (\S+),", line("tiny.png", "-v", "--width", "512", "--height", "512",
                                            "--num_inference_steps", "1", *more)[0].stderr)[1]
             for more in ([], ["--taesd", str(tiny)], [*asked, "--taesd", str(tiny)])]
    report(float(peaks[0]) == float(peaks[1]) < float(peaks[2]) - 0.04,
           "the memory plan has it where previews are asked for", peaks)
    for folder, code, text in ((other, 2, "latents of 3 channels"),
                               (T / "none", 1, "no directory")):
        r = line("tiny.png", "--preview_decoder", str(folder))[0]
        report(r.returncode == code and text in r.stderr, f"refused: {text}", r)
    for ranks in ([], ["--ulysses_degree", "2"]):
        with Server("--dtype", "f32", "--preview_decoder", str(tiny), *ranks) as s:
            got = events(s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 4, "seed": 3,
                                      "stream": True, "preview_every": 4}))
            report(len(got) == 2 and distance(pixels(file_of(got[0])), seen) < 0.5,
                   f"over HTTP {ranks}", [e["type"] for e in got])


def main():
    results = T / "images"
    results.mkdir()
    with Server("--results", str(results), "--keep", "8") as s:
        mine = partial_images(s)
        report(names(results), "files while they are kept")
        how_many(s)
        current_image(s)
        report(wait_for(lambda: not names(results), 40), "and none later", names(results))
    with Server("--ulysses_degree", "2", model=DEMO) as s:
        s.post(GEN, {**ASKED, "n": 2})
        got = events(s.post(GEN, {**ASKED, "n": 2, "stream": True, "partial_images": 3}))
        far = [distance(pixels(a), pixels(file_of(e))) for a, e in zip(mine, got)]
        report(len(far) == 3 and max(far) < 0.5, "those of two ranks", far)
    videos()
    decoders()
    end()


if __name__ == "__main__":
    sys.exit(main())

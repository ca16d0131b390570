#!/usr/bin/env python3
"""openai_client.py XDIT ROOT FILL - the Python package openai, unchanged: generate, edit, stream,
models, videos. Skipped without the package; XDIT_TEST_OPENAI_PYTHON names a Python that has it.
Speaks TAP."""

import base64
import os
import subprocess
import sys

try:
    import openai
except ImportError:
    other = os.environ.get("XDIT_TEST_OPENAI_PYTHON")
    if other:
        os.environ.pop("XDIT_TEST_OPENAI_PYTHON")
        os.execv(other, [other, *sys.argv])
    print("1..0 # SKIP the Python package openai is not there (XDIT_TEST_OPENAI_PYTHON)")
    sys.exit(0)

from harness import PROMPT, ROOT, T, Server, end, generate, image_of, report

FAST = {"num_inference_steps": 2, "seed": 4}


def client(s, key="none"):
    host, port = s.address
    return openai.OpenAI(base_url=f"http://{host}:{port}/v1", api_key=key, max_retries=0)


def decoded(data):
    return base64.b64decode(data.b64_json)


def images(s):
    c = client(s)
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "2", "--seed", "4")
    r = c.images.generate(prompt=PROMPT, model="gpt-image-1", n=2, size="128x128",
                          quality="auto", background="auto", moderation="auto",
                          output_compression=100, user="u", extra_body=FAST)
    report(decoded(r.data[0]) == mine and len(r.data) == 2 and r.output_format == "png" and
           r.size == "128x128", "images.generate", r.size)
    u = r.usage
    report((u.input_tokens_details.text_tokens, u.output_tokens, u.total_tokens) ==
           (22, 128, 150) and
           u.output_tokens_details.image_tokens == 128, "its usage", u)
    events = list(c.images.generate(prompt=PROMPT, model="demo-pixart", stream=True,
                                    partial_images=2, extra_body=FAST))
    report(events[-1].type == "image_generation.completed" and
           decoded(events[-1]) == mine and events[-1].usage.total_tokens == 22 + 64, "a stream",
           [e.type for e in events])
    events = list(c.images.generate(prompt=PROMPT, model="demo-pixart", stream=True, size="128x128",
                                    partial_images=2, extra_body={**FAST, "steps": 6}))
    partial = events[:-1]
    report([type(e).__name__ for e in events] == ["ImageGenPartialImageEvent"] * 2 +
           ["ImageGenCompletedEvent"] and [e.partial_image_index for e in partial] == [0, 1] and
           all(decoded(e)[:4] == b"\x89PNG" and e.size == "128x128" and e.created_at and
               (e.output_format, e.quality, e.background) == ("png", "auto", "opaque")
               for e in partial), "partial images", events)
    path = T / "a.png"
    path.write_bytes(mine)
    with open(path, "rb") as f:
        r = c.images.edit(image=f, prompt="a blue circle", extra_body={**FAST, "strength": "0.5"})
    same = s.post("/v1/images/edits", {**FAST, "prompt": "a blue circle", "strength": 0.5, "image":
                  "data:image/png;base64," + base64.b64encode(mine).decode()})
    report(decoded(r.data[0]) == image_of(same), "images.edit")
    with open(path, "rb") as f, open(path, "rb") as g:
        try:
            events = list(c.images.edit(image=[f], mask=g, prompt="a", stream=True,
                                        extra_body=FAST))
            report(False, "a mask where the model takes none", events)
        except openai.APIError as e:
            report("mask" in str(e), "a mask where the model takes none: an event says so", e)


def failures(s):
    for what, kind, fields in (
            ("an unknown model", openai.NotFoundError, {"model": "nope"}),
            ("a wrong size", openai.BadRequestError, {"size": "5x5"})):
        try:
            client(s).images.generate(prompt="a", **fields)
            report(False, what)
        except kind as e:
            report(e.body["message"] in str(e), what, e.body)
    with Server("--api_key", "right") as locked:
        try:
            client(locked, "wrong").models.list()
            report(False, "a wrong key")
        except openai.AuthenticationError:
            report(True, "a wrong key")
        report(client(locked, "right").models.list().data[0].id == "demo-pixart", "the right key")


def videos(s):
    c = client(s)
    v = c.videos.create_and_poll(prompt="a cat", seconds="1", extra_body={
        **FAST, "output_format": "gif"})
    report(v.status == "completed" and v.progress == 100 and v.size == "56x40",
           "videos.create_and_poll", v)
    report(c.videos.download_content(v.id).read()[:6] == b"GIF89a", "videos.download_content")
    report([x.id for x in c.videos.list(limit=1, order="asc")] == [v.id], "videos.list")
    w = c.videos.remix(v.id, prompt="a dog")
    report(w.remixed_from_video_id == v.id and w.prompt == "a dog" and c.videos.poll(
        w.id, poll_interval_ms=100).status == "completed", "videos.remix", w)
    report([x.id for x in c.videos.list(limit=1)] == [w.id, v.id], "videos.list of two pages")
    report(c.videos.download_content(v.id, variant="thumbnail").read()[8:12] == b"WEBP",
           "a thumbnail")
    report(c.videos.download_content(v.id, variant="spritesheet").read()[8:12] == b"WEBP",
           "a sheet of frames")
    report(c.videos.delete(v.id).deleted, "videos.delete")


def main():
    with Server() as s:
        images(s)
        failures(s)
    model = T / "cog"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "cog2b"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    with Server("--dtype", "f32", model=str(model)) as s:
        videos(s)
    end()


if __name__ == "__main__":
    sys.exit(main())

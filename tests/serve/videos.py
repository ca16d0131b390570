#!/usr/bin/env python3
"""videos.py XDIT ROOT FILL - videos over HTTP: made in the background, polled, read, listed,
cancelled, deleted; those of the command line. FILL makes a tiny model of 9 frames of 56 x 40, and
one that reads a control video. Speaks TAP."""

import base64
import json
import pathlib
import struct
import subprocess
import sys
import time

from harness import ROOT, T, XDIT, Server, end, report, wait_for

FAST = {"prompt": "a cat", "num_inference_steps": 2, "output_format": "gif", "seed": 0}
LONG = {**FAST, "num_inference_steps": 1000, "num_frames": 49, "size": "128x96"}


def made(s, fields, form=False):
    r = s.form("/v1/videos", list(fields.items())) if form else s.post("/v1/videos", fields)
    report(r.status == 200 and r.json["object"] == "video", f"begun: {str(fields)[:60]}", r)
    path = f"/v1/videos/{r.json['id']}"
    wait_for(lambda: s.get(path).json["status"] in ("completed", "failed", "cancelled"), 60)
    return path, s.get(path).json


def same_as_command_line(s, model):
    out = T / "out.gif"
    subprocess.run([XDIT, "generate", "--model", str(model), "--prompt", "a cat", "--steps", "2",
                    "--dtype", "f32", "--quiet", "--threads", "1", "-o", str(out)], check=True,
                   stdout=subprocess.DEVNULL)
    for form in (False, True):
        path, v = made(s, FAST, form)
        report(v["status"] == "completed" and v["progress"] == 100 and v["size"] == "56x40" and
               v["seconds"] == "1.12" and v["error"] is None and v["expires_at"] >
               v["completed_at"] >= v["created_at"] and v["model"] == model.name, "complete", v)
        r = s.get(path + "/content")
        report(r.status == 200 and r.headers["Content-Type"] == "image/gif" and
               r.body == out.read_bytes(), "the video of the command line", len(r.body))
    r = s.get(path + "/content?variant=thumbnail")
    report(r.status == 200 and r.body[8:12] == b"WEBP", "a thumbnail", r)
    r = s.get(path + "/content?variant=spritesheet")
    at = r.body.index(b"VP8 ") + 14
    report(r.status == 200 and r.body[8:12] == b"WEBP" and struct.unpack(
        "<HH", r.body[at:at + 4]) == (4 * 56, 3 * 40), "sprites: 9 frames in rows of 4", r)
    report(s.get(path + "/content?variant=nosuch").status == 400, "nothing else")
    r = s.post("/v1/videos/sync", FAST)
    report(r.status == 200 and r.body == out.read_bytes() and r.headers["X-Video-Id"],
           "in one request", r.status)
    return path


def lengths(s):
    for asked, seconds in (({"seconds": "0.6"}, "1"), ({"seconds": 1}, "1.12"),
                           ({"seconds": 0.7, "fps": 30}, "0.8"), ({"num_frames": 5}, "1")):
        _, v = made(s, {**FAST, **asked})
        report(v["seconds"] == seconds, f"{asked}: {seconds} s", v)


def the_list(s, path):
    ids = [v["id"] for v in s.get("/v1/videos?limit=100").json["data"]]
    report(len(ids) > 4 and path.split("/")[-1] in ids, "the list", ids)
    up = [v["id"] for v in s.get("/v1/videos?order=asc&limit=100").json["data"]]
    report(up == ids[::-1], "from the oldest")
    r = s.get("/v1/videos?limit=2").json
    report([v["id"] for v in r["data"]] == ids[:2] and r["has_more"] and r["last_id"] == ids[1],
           "two of them", r)
    r = s.get(f"/v1/videos?limit=100&after={ids[1]}").json
    report([v["id"] for v in r["data"]] == ids[2:] and not r["has_more"], "those behind", r)
    r = s.request("DELETE", path)
    report(r.status == 200 and r.json["deleted"], "deleted", r)
    report(s.get(path).status == 404 and s.get(path + "/content").status == 404 and
           s.request("DELETE", path).status == 404, "and gone")


def cancelled(s):
    r = s.post("/v1/videos", LONG)
    path = f"/v1/videos/{r.json['id']}"
    report(wait_for(lambda: s.get(path).json["progress"] > 0), "a long one runs")
    second = s.post("/v1/videos", LONG).json["id"]
    report(s.get(f"/v1/videos/{second}").json["queue_position"] == 1, "another one waits")
    left = []
    report(wait_for(lambda: left.append([s.get(at).json["predicted_seconds"] for at in (
        path, f"/v1/videos/{second}")]) or None not in left[-1]) and 0 < left[-1][0] < left[-1][1],
        "how long they will take", left[-1])
    r = s.get(path + "/content")
    report(r.status == 409 and "in_progress" in r.error, "is not made yet", r)
    began = time.monotonic()
    r = s.post(f"/v1/videos/{second}/cancel", {})
    report(r.json["status"] == "cancelled", "the waiting one is cancelled at once", r)
    r = s.post(path + "/cancel", {})
    report(r.json["status"] in ("cancelling", "cancelled"), "the running one", r)
    report(wait_for(lambda: s.get(path).json["status"] == "cancelled") and
           time.monotonic() - began < 5, "soon")
    r = s.request("DELETE", path)
    report(r.status == 200 and s.get(path).status == 404, "and is deleted", r)
    path = f"/v1/videos/{s.post('/v1/videos', LONG).json['id']}"
    report(s.request("DELETE", path).status == 200 and s.metric("running") == 0,
           "deleting one cancels it")


def refused(s):
    image = "data:image/png;base64," + base64.b64encode(
        (ROOT / "doc" / "sheet.png").read_bytes()).decode()
    for fields, text in (
            ({**FAST, "input_reference": {"image_url": image}}, "from text only"),
            ({**FAST, "seconds": 1, "num_frames": 5}, "both given"),
            ({**FAST, "size": "50x40"}, "multiple")):
        _, v = made(s, fields)
        report(v["status"] == "failed" and text in v["error"]["message"] and
               v["error"]["code"] == "invalid_request", f"failed: {text}", v)
    for fields, status, text in (
            ({}, 400, "prompt"), ({**FAST, "seconds": "long"}, 400, "seconds"),
            ({**FAST, "output_format": "png"}, 400, "mp4"),
            ({**FAST, "nosuch": 1}, 400, "no field"), ({**FAST, "model": "x"}, 404, "no model")):
        r = s.post("/v1/videos", fields)
        report(r.status == status and text in r.error, f"{status}: {text}", r)
    r = s.post("/v1/images/generations", {"prompt": "a", "num_inference_steps": 1})
    report(r.status == 400 and "/v1/videos" in r.error, "images of a model of videos", r)
    report(s.get("/v1/videos/video_0").status == 404, "an unknown one is 404")


def remixed(s, model):
    path, v = made(s, {**FAST, "seconds": 0.6, "seed": 9})
    r = s.post(path + "/remix", {"prompt": "a dog"})
    report(r.status == 200 and r.json["remixed_from_video_id"] == v["id"] and
           r.json["prompt"] == "a dog" and v["remixed_from_video_id"] is None, "a remix", r)
    again = f"/v1/videos/{r.json['id']}"
    wait_for(lambda: s.get(again).json["status"] in ("completed", "failed"), 60)
    out = T / "dog.gif"
    subprocess.run([XDIT, "generate", "--model", str(model), "--prompt", "a dog", "--steps", "2",
                    "--seconds", "0.6", "--seed", "9", "--dtype", "f32", "--quiet", "--threads",
                    "1", "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
    report(s.get(again + "/content").body == out.read_bytes(),
           "is the video of its prompt with the other's options", s.get(again))
    report(s.post(path + "/remix", {}).status == 400, "a remix has a prompt")
    report(s.post("/v1/videos/video_0/remix", {"prompt": "a"}).status == 404, "of what there is")
    long = f"/v1/videos/{s.post('/v1/videos', LONG).json['id']}"
    r = s.post(long + "/remix", {"prompt": "a"})
    report(r.status == 409 and "only a completed" in r.error, "and is complete", r)
    s.request("DELETE", long)


def difference(body, path):
    """The largest difference of the levels of two videos, of which texts differ."""
    own = T / "own.gif"
    own.write_bytes(body)
    r = subprocess.run([XDIT, "compare", str(own), str(path), "--json"], check=True,
                       capture_output=True)
    return json.loads(r.stdout)["largest"]


def controlled():
    """A model that reads a control video, its mask and images: as files and as JSON."""
    model = T / "vace"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "vace"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    asked = {**FAST, "size": "48x32", "num_frames": 5}
    image = (model / "image.png").read_bytes()
    with Server("--dtype", "f32", model=str(model)) as s:
        m = s.get("/v1/models").json["data"][0]
        report(m["takes"] == ["image", "mask_image", "control_video"] and m["needs"] == [] and
               m["images"] == 16, "what it takes", m)
        path, v = made(s, asked)
        report(v["status"] == "completed", "a video of a text", v)
        film = s.get(path + "/content").body
        inputs = T / "film.gif", T / "image.png", T / "out.gif"
        inputs[0].write_bytes(film)
        inputs[1].write_bytes(image)
        subprocess.run([XDIT, "generate", "--model", str(model), "--prompt", "a cat", "--steps",
                        "2", "--num_frames", "5", "--width", "48", "--height", "32", "--seed", "0",
                        "--control_video", str(inputs[0]), "--mask_image", str(inputs[1]),
                        "--image", str(inputs[1]), "--conditioning_scale", "0.5,1.5",
                        "--dtype", "f32", "--quiet", "--threads", "1", "-o", str(inputs[2])],
                       check=True, stdout=subprocess.DEVNULL)
        url = ["data:application/octet-stream;base64," + base64.b64encode(b).decode()
               for b in (film, image)]
        r = s.form("/v1/videos/sync", [*asked.items(), ("conditioning_scale", "0.5,1.5"),
                                       ("control_video", "a.gif", film), ("mask", "b.png", image),
                                       ("reference_images", "c.png", image)])
        report(r.status == 200 and difference(r.body, inputs[2]) == 0, "files in a form", r)
        path, v = made(s, {**asked, "conditioning_scale": [0.5, 1.5], "video": url[0],
                           "mask": url[1], "image": [url[1]]})
        report(difference(s.get(path + "/content").body, inputs[2]) == 0, "data URLs in JSON", v)
        report("/" not in v["parameters"]["control_video"], "no file name is told", v)
        r = s.post(path + "/remix", {"prompt": "a dog"})
        report(r.status == 400 and "not stored" in r.error, "it cannot be remixed", r)
        _, v = made(s, {**asked, "num_frames": 9, "video": url[0]})
        report("9 are generated" in v["error"]["message"], "too few frames", v)
        for wrong in ("/etc/passwd", "data:video/mp4;base64,aGVsbG8="):
            r = s.post("/v1/videos", {**asked, "control_video": wrong})
            report(r.status == 400 and "control_video" in r.error, f"no video: {wrong}", r)


def conditioned():
    """A model whose videos have given frames: an image and a video, each at its place."""
    model = T / "ltx-cond"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "ltx-cond"), str(model)],
                   check=True, stdout=subprocess.DEVNULL)
    asked = {**FAST, "size": "64x64", "num_frames": 17}
    image = (model / "image.png").read_bytes()
    with Server("--dtype", "f32", model=str(model)) as s:
        path, _ = made(s, {**asked, "num_frames": 9})
        film = s.get(path + "/content").body
        inputs = T / "given.png", T / "given.gif", T / "conditioned.gif"
        inputs[0].write_bytes(image)
        inputs[1].write_bytes(film)
        subprocess.run([XDIT, "generate", "--model", str(model), "--prompt", "a cat", "--steps",
                        "2", "--num_frames", "17", "--width", "64", "--height", "64", "--seed", "0",
                        "--image", str(inputs[0]), "--image", str(inputs[1]), "--frame_index",
                        "0,8", "--condition_strength", "1,0.5", "--dtype", "f32", "--quiet",
                        "--threads", "1", "-o", str(inputs[2])],
                       check=True, stdout=subprocess.DEVNULL)
        url = ["data:application/octet-stream;base64," + base64.b64encode(b).decode()
               for b in (image, film)]
        path, v = made(s, {**asked, "image": url, "frame_index": [0, 8],
                           "condition_strength": [1, 0.5]})
        report(difference(s.get(path + "/content").body, inputs[2]) == 0, "lists of conditions", v)
        _, v = made(s, {**asked, "image": url, "frame_index": [0, 8, 16]})
        report("3 numbers, but 2 images" in v["error"]["message"], "too many places", v)


def sounding():
    """A model of videos with sound: a WAV file beside the video, and options as fields."""
    model = T / "ltx2"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "ltx2"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    asked = {**FAST, "size": "64x64", "num_frames": 9, "max_sequence_length": 12}
    out = T / "out.wav"
    subprocess.run([XDIT, "generate", "--model", str(model), "--prompt", "a cat", "--steps", "2",
                    "--num_frames", "9", "--width", "64", "--height", "64", "--seed", "0",
                    "--max_sequence_length", "12", "--audio_guidance_scale", "2",
                    "--modality_scale", "1.5", "--dtype", "f32", "--quiet", "--threads", "1",
                    "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
    wav = out.read_bytes()
    rate, = struct.unpack("<I", wav[24:28])
    with Server("--dtype", "f32", model=str(model)) as s:
        path, v = made(s, {**asked, "audio_guidance_scale": 2, "modality_scale": 1.5})
        r = s.get(path + "/content?variant=audio")
        report(r.status == 200 and r.headers["Content-Type"] == "audio/wav" and r.body == wav,
               "the sound of the command line", len(r.body))
        report(v["audio_sample_rate"] == rate and
               v["parameters"]["audio_guidance_scale"] == 2, "its rate", v)
        job = s.get(path.replace("videos", "jobs")).json["results"][0]
        report(job["audio_sample_rate"] == rate and s.get(job["audio_url"]).body == wav,
               "and that of a job", job)
        film = s.get(path + "/content").body
        path, v = made(s, {**asked, "audio_guidance_scale": 2, "modality_scale": 1.5,
                           "no_audio": True})
        r = s.get(path + "/content?variant=audio")
        report(r.status == 404 and "no sound" in r.error and v["audio_sample_rate"] == 0,
               "no sound with no_audio", r)
        job = s.get(path.replace("videos", "jobs")).json["results"][0]
        report("audio_url" not in job, "none of its job", job)
        (T / "film.gif").write_bytes(film)
        report(difference(s.get(path + "/content").body, T / "film.gif") == 0, "the same frames")
        for fields, text in (({"modality_scale": -1}, "modality_scale"),
                             ({"no_audio": "loud"}, "no_audio")):
            r = s.post("/v1/videos", {**asked, **fields})
            report(r.status == 400 and text in r.error, f"refused: {fields}", r)


def main():
    controlled()
    sounding()
    conditioned()
    model = T / "cog"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "cog2b"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    with Server("--dtype", "f32", model=str(model)) as s:
        path = same_as_command_line(s, pathlib.Path(model))
        lengths(s)
        the_list(s, path)
        cancelled(s)
        remixed(s, model)
        refused(s)
    with Server() as s:
        for path in ("/v1/videos", "/v1/videos/sync"):
            r = s.post(path, FAST)
            report(r.status == 400 and "/v1/images" in r.error, f"{path} of a model of images", r)
    with Server("--dtype", "f32", "--model", str(model)) as s:
        r = s.post("/v1/videos/sync", {**FAST, "model": "sora-2"})
        report(r.status == 200, "a video of the second of two models", r)
        r = s.post("/v1/videos", {**FAST, "model": s.get("/v1/models").json["data"][0]["id"]})
        report(r.status == 400 and "/v1/images" in r.error, "a video of the first one", r)
    end()


if __name__ == "__main__":
    sys.exit(main())

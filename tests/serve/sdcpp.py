#!/usr/bin/env python3
"""sdcpp.py XDIT ROOT FILL - the routes of stable-diffusion.cpp's server: what there is, jobs of
images and videos with all fields that its clients send, cancelling. FILL makes a tiny model of
videos. Speaks TAP."""

import base64
import subprocess
import sys

from harness import PROMPT, ROOT, T, Server, end, generate, report, wait_for

API = "/sdcpp/v1"


def job(s, kind, fields):
    """A finished job, polled where its answer says."""
    r = s.post(f"{API}/{kind}", fields)
    if not report(r.status == 202 and r.json["status"] == "queued" and r.json["kind"] == kind and
                  r.json["poll_url"] == f"{API}/jobs/{r.json['id']}" and r.json["created"] > 0,
                  f"202: {str(fields)[:50]}", r):
        return {}
    at = r.json["poll_url"]
    wait_for(lambda: s.get(at).json["status"] in ("completed", "failed", "cancelled"), 60)
    return s.get(at).json


def capabilities(s):
    r = s.get(API + "/capabilities")
    c = r.json
    report(r.status == 200 and c["current_mode"] == "img_gen" and
           c["supported_modes"] == ["img_gen"] and c["model"]["name"] == "demo-pixart" and
           c["defaults"] == c["defaults_by_mode"]["img_gen"] and
           c["features"] == c["features_by_mode"]["img_gen"] and
           c["output_formats"] == c["output_formats_by_mode"]["img_gen"] ==
           ["png", "jpeg", "webp"], "what there is", c)
    d = c["defaults"]
    report((d["width"], d["height"], d["sample_params"]["sample_steps"],
            d["sample_params"]["guidance"]["txt_cfg"]) == (128, 128, 20, 4.5) and
           c["features"]["init_image"] and not c["features"]["mask_image"] and
           "karras" in c["schedulers"] and "dpm++2m" in c["samplers"] and
           c["limits"]["max_queue_size"] > 0, "and its defaults", c)
    return d


def images(s, defaults):
    """All fields, those that are not set at what capabilities say."""
    sampling = {**defaults["sample_params"], "sample_steps": 3, "sample_method": "dpm++2m",
                "scheduler": "karras", "custom_sigmas": [], "shifted_timestep": 0}
    asked = {**defaults, "prompt": PROMPT, "seed": 7, "clip_skip": -1, "init_image": None,
             "ref_images": [], "mask_image": None, "control_image": None, "lora": [],
             "sample_params": sampling, "hires": {"enabled": False, "upscaler": "Latent"}}
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7", "--scheduler",
                    "dpm++", "--use_karras_sigmas")
    j = job(s, "img_gen", asked)
    report(j["status"] == "completed" and j["started"] and j["completed"] >= j["started"] and
           j["error"] is None and j["queue_position"] == 0 and
           j["result"]["output_format"] == "png" and
           base64.b64decode(j["result"]["images"][0]["b64_json"]) == mine,
           "the image of the command line", str(j)[:400])
    j = job(s, "img_gen", {**asked, "batch_count": 2, "output_format": "jpeg",
                           "output_compression": 30})
    small = [base64.b64decode(i["b64_json"]) for i in j["result"]["images"]]
    j = job(s, "img_gen", {**asked, "output_format": "jpeg"})
    report(len(small) == 2 and small[0][:2] == b"\xff\xd8" and
           len(small[0]) < len(base64.b64decode(j["result"]["images"][0]["b64_json"])),
           "two of less quality")
    start = base64.b64encode(mine).decode()
    j = job(s, "img_gen", {**asked, "init_image": start, "strength": 0.5})
    report(j["status"] == "completed", "an image from an image", str(j)[:400])
    j = job(s, "img_gen", {**asked, "width": 100})
    report(j["status"] == "failed" and j["result"] is None and
           j["error"]["code"] == "generation_failed" and "multiple" in j["error"]["message"],
           "a failure", j)
    for wrong, text in (({"control_image": start}, "control_image"),
                        ({"hires": {"enabled": True}}, "hires"), ({"prompt": None}, "prompt"),
                        ({"cache_mode": "easycache"}, "cache_mode"),
                        ({"sample_params": {"sample_method": "ipndm"}}, "ipndm"),
                        ({"sample_params": {"sample_steps": 5000}}, "num_inference_steps"),
                        ({"lora": [{"path": "a", "multiplier": 1}]}, "--loras"),
                        ({"init_image": "@@"}, "base64"), ({"output_format": "bmp"}, "png")):
        r = s.post(API + "/img_gen", {**asked, **wrong})
        report(r.status == 400 and text in r.error, f"refused: {str(wrong)[:50]}", r)
    report(s.request("POST", API + "/img_gen", b"[1]").status == 400, "a list")


def cancelled(s):
    long = {"prompt": PROMPT, "sample_params": {"sample_steps": 1000}, "width": 256, "height": 256}
    first, second = (s.post(API + "/img_gen", long).json["poll_url"] for _ in range(2))
    report(wait_for(lambda: s.get(first).json["status"] == "generating") and
           s.get(second).json["queue_position"] == 1, "one runs, one waits")
    r = s.post(second + "/cancel", {})
    report(r.status == 200 and r.json["status"] == "cancelled" and
           r.json["error"]["code"] == "cancelled" and r.json["started"] is None,
           "the waiting one is cancelled", r)
    report(s.post(first + "/cancel", {}).status == 200 and
           wait_for(lambda: s.get(first).json["status"] == "cancelled"), "and the running one")
    report(s.get(API + "/jobs/none").status == 404 and
           s.post(API + "/jobs/none/cancel", {}).status == 404, "404: no such job")


def videos():
    model = T / "cog"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "cog2b"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    with Server("--dtype", "f32", model=str(model)) as s:
        c = s.get(API + "/capabilities").json
        report(c["current_mode"] == "vid_gen" and c["defaults"]["video_frames"] == 9 and
               c["features"]["end_image"] is False, "a model of videos", c)
        j = job(s, "vid_gen", {"prompt": "a cat", "video_frames": 5, "output_format": "gif",
                               "sample_params": {"sample_steps": 2}})
        r = j.get("result") or {}
        report(r.get("mime_type") == "image/gif" and r["fps"] == 8 and r["frame_count"] == 8 and
               base64.b64decode(r["b64_json"])[:6] == b"GIF89a", "a video", str(j)[:300])
        r = s.post(API + "/img_gen", {"prompt": "a cat"})
        report(r.status == 400 and "generates videos" in r.error, "no image of it", r)


def main():
    with Server() as s:
        images(s, capabilities(s))
        cancelled(s)
    videos()
    end()


if __name__ == "__main__":
    sys.exit(main())

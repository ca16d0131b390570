#!/usr/bin/env python3
"""a1111.py XDIT ROOT - the calls that SillyTavern and Open WebUI make of stable-diffusion-webui:
options, lists, images, progress, interrupt. Speaks TAP."""

import base64
import json
import shutil
import sys
import threading
import time

from harness import DEMO, PROMPT, T, Server, end, generate, pixels, report, wait_for

API = "/sdapi/v1"
# What SillyTavern sends, with fields that have no use here.
ASKED = {"prompt": PROMPT, "negative_prompt": "", "sampler_name": "DPM++ 2M",
         "scheduler": "Automatic", "steps": 3,
         "cfg_scale": 4.5, "width": 128, "height": 128, "restore_faces": False,
         "enable_hr": False, "hr_upscaler": "Latent", "hr_scale": 2, "denoising_strength": 0.7,
         "hr_second_pass_steps": 0, "seed": 7, "clip_skip": 1, "save_images": True,
         "send_images": True, "do_not_save_grid": False, "do_not_save_samples": False,
         "override_settings": {"CLIP_stop_at_last_layers": 1}, "tiling": False,
         "override_settings_restore_afterwards": True}


def png(text):
    return base64.b64decode(text)


def lists(s):
    r = s.get(API + "/options")
    report(r.status == 200 and r.json["sd_model_checkpoint"] == "demo-pixart", "options", r)
    r = s.get(API + "/sd-models").json
    report([m["model_name"] for m in r] == ["demo-pixart", "other"] and r[0]["title"], "models", r)
    names = [x["name"] for x in s.get(API + "/samplers").json]
    report({"Euler", "Euler a", "DPM++ 2M", "DDIM", "DPM++ 2S", "DDPM"} <= set(names) and
           names[0] == "Automatic" and len(set(names)) == len(names), "samplers", names)
    labels = [x["label"] for x in s.get(API + "/schedulers").json]
    report({"Automatic", "Karras"} <= set(labels), "schedulers", labels)
    r = s.get("/sdapi/v1/embeddings").json, s.get("/sdapi/v1/scripts").json
    report(r == ({"loaded": {}, "skipped": {}}, {"txt2img": [], "img2img": []}),
           "neither embeddings nor scripts", r)
    report(all(s.request("POST", f"/sdapi/v1/{p}").json == {} for p in (
        "refresh-checkpoints", "refresh-loras", "skip")), "what clients post without a body")
    for name in ("upscalers", "latent-upscale-modes", "sd-vae", "sd-modules", "hypernetworks",
                 "face-restorers", "realesrgan-models", "prompt-styles"):
        report(s.get(f"{API}/{name}").json == [] and s.get(f"{API}/{name}").status == 200, name)
    return names


def images(s, names):
    fields = {k: v for k, v in ASKED.items() if k != "denoising_strength"}
    r = s.post(API + "/txt2img", fields)
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7",
                    "--scheduler", "dpm++")
    report(r.status == 200 and png(r.json["images"][0]) == mine, "the image of the command line",
           r)
    info = json.loads(r.json["info"])
    report(info["seed"] == 7 and info["all_seeds"] == [7] and "Steps: 3" in info["infotexts"][0] and
           r.json["parameters"]["steps"] == 3, "and what is said of it", info)
    r = s.post(API + "/txt2img", {**fields, "batch_size": 2, "n_iter": 2})
    report(len(r.json["images"]) == 4 and json.loads(r.json["info"])["all_seeds"] == [7, 8, 9, 10],
           "batches", r)
    for name in names:
        r = s.post(API + "/txt2img", {**fields, "sampler_name": name})
        report(r.status == 200, f"sampler {name}", r)
    karras = [png(s.post(API + "/txt2img", {**fields, **k}).json["images"][0]) for k in (
        {"scheduler": "Karras"}, {"sampler_name": "DPM++ 2M Karras"})]
    report(karras[0] == karras[1] != mine, "Karras by both names")
    r = s.post(API + "/img2img", {**fields, "denoising_strength": 0.5, "steps": 4, "init_images": [
        "data:image/png;base64," + base64.b64encode(mine).decode()]})
    report(r.status == 200 and len(r.json["images"]) == 1, "an image from an image", r)
    r = s.post(API + "/txt2img", {**fields, "denoising_strength": 0.7})
    report(r.status == 200 and base64.b64decode(r.json["images"][0]) == mine,
           "without an image its strength is passed over", r)
    r = s.post(API + "/txt2img", {**fields, "enable_hr": True, "hr_scale": 1.5,
                                  "denoising_strength": 0.6, "hr_second_pass_steps": 4})
    large = generate("--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7",
                     "--scheduler", "dpm++", "--hires_scale", "1.5", "--hires_strength", "0.6",
                     "--hires_steps", "4")
    report(r.status == 200 and png(r.json["images"][0]) == large != mine, "a second pass", r)
    r = s.post(API + "/txt2img", {**fields, "mask": "", "init_images": [""]})
    report(r.status == 200 and base64.b64decode(r.json["images"][0]) == mine,
           "empty images are none", r)
    r = s.post(API + "/txt2img", {**fields, "sampler_name": "DPM++ 2M SDE Karras"})
    report(r.status == 200 and "Sampler: DPM++ 2M SDE Karras" in r.json["info"],
           "a sampler with noise of its own, and a schedule", r)
    noises(s, fields, mine)
    r = s.post(API + "/img2img", fields)
    report(r.status == 400 and "init_images" in r.json["detail"], "which must be there", r)
    for wrong, text in (({"sampler_name": "Nope"}, "Nope"), ({"steps": 0}, "num_inference_steps"),
                        ({"enable_hr": True, "hr_upscaler": "ESRGAN_4x"}, "ESRGAN_4x"),
                        ({"enable_hr": True, "hr_resize_x": 512}, "hr_resize_x"),
                        ({"batch_size": 0}, "batch_size"), ({"width": 100}, "multiple"),
                        ({"override_settings": {"sd_model_checkpoint": "x"}}, "no model 'x'")):
        r = s.post(API + "/txt2img", {**fields, **wrong})
        report(r.status in (400, 404) and text in r.json["detail"], f"refused: {wrong}", r)


def noises(s, fields, mine):
    """eta is of DDIM, by default 0, and of ancestral samplers, by default 1."""
    def made(sampler, **more):
        return png(s.post(API + "/txt2img", {**fields, "sampler_name": sampler, **more})
                   .json["images"][0])

    def plain(*flags):
        return generate("--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7", *flags)

    ddim, noisy = plain("--scheduler", "ddim"), plain("--scheduler", "ddim", "--eta", "0.5")
    ancestral = plain("--scheduler", "euler-ancestral")
    for what, got, want in (
            ("none", made("DDIM", eta=None), ddim),
            ("DDIM's", made("DDIM", eta=0.5), noisy),
            ("DDIM's setting", made("DDIM", override_settings={"eta_ddim": 0.5,
                                                               "eta_ancestral": 0}), noisy),
            ("a field above its setting", made("DDIM", eta=0.5, override_settings={
                "eta_ddim": 1}), noisy),
            ("all noise", made("Euler a", eta=1), ancestral),
            ("DDIM's setting with another", made("Euler a", override_settings={"eta_ddim": 0.5}),
             ancestral),
            ("without noise", made("Euler a", eta=0), plain("--scheduler", "euler")),
            ("a sampler without it", made("DPM++ 2M", eta=0.5), mine)):
        report(pixels(got) == pixels(want), f"eta: {what}")
    report(len({pixels(x) for x in (ddim, noisy, ancestral)}) == 3, "which differ")
    report(b"Eta DDIM: 0.5," in noisy and b"Eta" not in ddim, "the file's text has it")
    for sampler, eta, text in (("Euler a", 0.5, "0.5"), ("DDIM", 2, "eta"), ("DDIM", "x", "'x'")):
        r = s.post(API + "/txt2img", {**fields, "sampler_name": sampler, "eta": eta})
        report(r.status == 400 and "eta" in r.json["detail"] and text in r.json["detail"],
               f"refused: eta {eta} of {sampler}", r)


def switching(s):
    r = s.post(API + "/options", {"sd_model_checkpoint": "other"})
    report(r.status == 200 and s.get(API + "/options").json["sd_model_checkpoint"] == "other",
           "another model is chosen", r)
    r = s.post(API + "/txt2img", {"prompt": PROMPT, "steps": 1, "seed": -1})
    report(r.status == 200, "and generates", r)
    report(wait_for(lambda: s.metric("models_open") == 2), "beside the first one")
    report(s.post(API + "/options", {"sd_model_checkpoint": "x"}).status == 404, "an unknown one")


def progress(s):
    r = s.get(API + "/progress").json
    report(r["progress"] == 0 and r["state"]["job_count"] == 0, "nothing runs", r)
    replies = []
    t = threading.Thread(target=lambda: replies.append(s.post(API + "/txt2img", {
        "prompt": PROMPT, "steps": 1000, "width": 512, "height": 512})))
    t.start()
    moved = wait_for(lambda: 0 < s.get(API + "/progress").json["progress"] < 1)
    r = s.get(API + "/progress").json
    report(moved and r["state"]["sampling_steps"] == 1000 and r["eta_relative"] > 0 and
           r["state"]["job_count"] == 1, "progress", r)
    began = time.monotonic()
    report(s.post(API + "/interrupt", {}).status == 200, "interrupt")
    t.join(20)
    report(replies and replies[0].status == 200 and replies[0].json["images"] == [] and
           time.monotonic() - began < 5, "ends it soon", replies)
    report(s.post(API + "/interrupt", {}).status == 200, "also where nothing runs")


def odd_bodies(s):
    """The answer repeats the request: it stays JSON."""
    for what, body, status in (
            ("a byte order mark", b'\xef\xbb\xbf{"prompt":"a","steps":1}', 200),
            ("bytes that are not UTF-8", b'{"prompt":"\x80","steps":1}', 400)):
        r = s.request("POST", "/sdapi/v1/txt2img", body, {"Content-Type": "application/json"})
        report(r.status == status and r.json, what, r)
    r = s.form("/v1/images/generations", [("prompt", b"a\0b")])
    report(r.status == 400 and "UTF-8" in r.error, "a NUL inside a prompt", r)


def main():
    other = T / "other"
    shutil.copytree(DEMO, other)
    with Server("--model", str(other)) as s:
        names = lists(s)
        images(s, names)
        progress(s)
        switching(s)
        odd_bodies(s)
    with Server("--api_key", "k") as s:
        basic = base64.b64encode(b"u:k").decode()
        r = s.request("GET", API + "/options", headers={"Authorization": f"Basic {basic}"})
        report(r.status == 200 and s.get(API + "/options").status == 401, "basic authentication")
    end()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""options.py XDIT ROOT FILL - what a request does not have: seeds by chance, which every answer has
and which make the same again; defaults of the server and of a model; OpenAI's fields that make no
difference; no folder of this host in any answer. FILL makes models of random weights. TAP."""

import base64
import json
import os
import shutil
import subprocess
import sys

from harness import DEMO, PROMPT, ROOT, T, Server, end, generate, image_of, pixels, report, wait_for

GEN, EDIT, VIDEOS = "/v1/images/generations", "/v1/images/edits", "/v1/videos"
TEXT, IMAGE = "/sdapi/v1/txt2img", "/sdapi/v1/img2img"
FAST = {"prompt": PROMPT, "num_inference_steps": 1}
MOST = 2**31        # a seed is a number for clients with 32 bits


def filled(name):
    model = T / name
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    return model


# ---- seeds ---------------------------------------------------------------------------------------

def url_of(png):
    return "data:image/png;base64," + base64.b64encode(png).decode()


def events_of(r):
    return [json.loads(e.split("data: ")[1]) for e in r.body.decode().strip().split("\n\n")]


def job_of(s, r):
    """The result of a job of stable-diffusion.cpp."""
    path = f"/sdcpp/v1/jobs/{r.json['id']}"
    wait_for(lambda: s.get(path).json["status"] in ("completed", "failed"), 60)
    return s.get(path).json["result"]


def openai_image(s, seed):
    r = s.post(GEN, {**FAST, **seed})
    return image_of(r), r.json["data"][0]["seed"]


def openai_edit(s, seed):
    start = url_of(generate("--prompt", "a", "--num_inference_steps", "1"))
    r = s.post(EDIT, {**FAST, "image": start, "strength": 1, **seed})
    return image_of(r), r.json["data"][0]["seed"]


def openai_stream(s, seed):
    d = events_of(s.post(GEN, {**FAST, "stream": True, **seed}))[-1]
    return base64.b64decode(d["b64_json"]), d["seed"]


def webui_text(s, seed):
    r = s.post(TEXT, {"prompt": PROMPT, "steps": 1, **seed})
    return base64.b64decode(r.json["images"][0]), json.loads(r.json["info"])["seed"]


def webui_image(s, seed):
    start = base64.b64encode(generate("--prompt", "a", "--num_inference_steps", "1")).decode()
    r = s.post(IMAGE, {"prompt": PROMPT, "steps": 1, "init_images": [start],
                       "denoising_strength": 1, **seed})
    return base64.b64decode(r.json["images"][0]), json.loads(r.json["info"])["seed"]


def sdcpp(s, seed):
    r = s.post("/sdcpp/v1/img_gen", {"prompt": PROMPT, "sample_params": {"sample_steps": 1},
                                     **seed})
    im = job_of(s, r)["images"][0]
    return base64.b64decode(im["b64_json"]), im["seed"]


def xdit(s, seed):
    r = s.post("/generate", {"prompt": PROMPT, "num_inference_steps": 1, "height": 128,
                             "width": 128, **seed})
    return base64.b64decode(r.json["output"]), r.json["seed"]


def seeds(s):
    for ask in (openai_image, openai_edit, openai_stream, webui_text, webui_image, sdcpp, xdit):
        made = [ask(s, seed) for seed in ({}, {}, {"seed": -1})]
        told = [seed for _, seed in made]
        report(len({pixels(im) for im, _ in made}) == 3 and len(set(told)) == 3 and
               all(0 <= seed < MOST for seed in told),
               f"{ask.__name__}: no seed, and -1, are by chance and told", told)
        report(all(f"Seed: {seed},".encode() in im for im, seed in made),
               f"{ask.__name__}: also by the file")
        again, seed = ask(s, {"seed": told[0]})
        report(pixels(again) == pixels(made[0][0]) and seed == told[0],
               f"{ask.__name__}: the seed makes the same again", seed, told)
        if ask is not xdit:
            report(ask(s, {"seed": None})[1] not in told, f"{ask.__name__}: null is none")
    zero = generate("--prompt", PROMPT, "--num_inference_steps", "1")
    report(image_of(s.post(GEN, {**FAST, "seed": 0})) == zero, "0 is a seed, the command line's")


def video_seeds(model):
    ask = {"prompt": "a cat", "num_inference_steps": 1, "num_frames": 1, "output_format": "gif"}
    with Server("--dtype", "f32", model=str(model)) as s:
        def made(**more):
            v = s.post(VIDEOS, {**ask, **more}).json
            wait_for(lambda: s.get(f"{VIDEOS}/{v['id']}").json["status"] == "completed", 60)
            return s.get(f"{VIDEOS}/{v['id']}").json, s.get(f"{VIDEOS}/{v['id']}/content").body
        a, b = made(), made(seed=-1)
        report(a[0]["seed"] != b[0]["seed"] and a[1] != b[1] and 0 <= a[0]["seed"] < MOST,
               "videos: by chance", a[0], b[0])
        c = made(seed=a[0]["seed"])
        report(c[1] == a[1] and c[0]["seed"] == a[0]["seed"], "and the same again", c[0])
        sync = s.post(VIDEOS + "/sync", {**ask, "seed": a[0]["seed"]})
        report(sync.body == a[1] and sync.headers["X-Seed"] == str(a[0]["seed"]),
               "a video in one request", sync)
        for fields, same in (({}, True), ({"num_inference_steps": 2}, False),
                             ({"seed": 5}, False)):
            r = s.post(f"{VIDEOS}/{a[0]['id']}/remix", {"prompt": "a cat", **fields}).json
            wait_for(lambda i=r["id"]: s.get(f"{VIDEOS}/{i}").json["status"] == "completed", 60)
            got = s.get(f"{VIDEOS}/{r['id']}").json
            report((s.get(f"{VIDEOS}/{r['id']}/content").body == a[1]) == same and
                   all(got["parameters"]["steps" if "steps" in k else k] == v
                       for k, v in fields.items()),
                   f"a remix with {fields}: what the client gives wins", got)
        r = s.post("/sdcpp/v1/vid_gen", {"prompt": "a cat", "video_frames": 1, "output_format":
                                         "gif", "sample_params": {"sample_steps": 1}, "seed": -1})
        report(0 <= job_of(s, r)["seed"] < MOST, "a job of a video", r)


# ---- defaults ------------------------------------------------------------------------------------

def parameters(r):
    return r.json["data"][0]["parameters"]


def defaults():
    """Of the server by flags, of a model behind its directory, below those of the client."""
    with Server("--num_inference_steps", "2", "--width=96", "--negative-prompt", "a dog, x=y",
                "--enable_tiling", "--scheduler", "DPM++ 2M", "--use_karras_sigmas", "--seed", "9",
                "--strength", "0.4", "--fps", "12",
                model=f"small={DEMO},height=160,steps=3,negative_prompt=a cat, grey") as s:
        told = s.get("/v1/models").json["data"]
        report([m["id"] for m in told] == ["small"] and told[0]["defaults"] == {
            "height": 160, "num_inference_steps": 3, "negative_prompt": "a cat, grey", "width": 96,
            "enable_tiling": True, "scheduler": "DPM++ 2M", "use_karras_sigmas": True, "seed": 9,
            "strength": 0.4, "fps": 12, "guidance_scale": 4.5}, "a model tells its defaults", told)
        r = s.post(GEN, {"prompt": PROMPT})
        want = generate("--prompt", PROMPT, "--num_inference_steps", "3", "--width", "96",
                        "--height", "160", "--negative_prompt", "a cat, grey", "--enable_tiling",
                        "--scheduler", "DPM++ 2M", "--use_karras_sigmas", "--seed", "9")
        report(r.status == 200 and image_of(r) == want, "they are what a request takes", r)
        p = parameters(s.post(GEN, {"prompt": PROMPT, "size": "128x128", "steps": 2, "seed": 4,
                                    "negative_prompt": "", "scheduler": "ddim"}))
        report((p["width"], p["height"], p["steps"], p["seed"]) == (128, 128, 2, 4)
               and not p.get("negative_prompt") and "karras" not in str(p) and
               "dog" not in str(p), "what the client gives wins, of what belongs together too", p)
        p = parameters(s.post(GEN, {"prompt": PROMPT, "size": "auto", "seed": -1}))
        report((p["width"], p["height"]) == (96, 160) and p["seed"] != 9,
               "auto leaves the size to the server, and -1 is by chance", p)
        r = s.post(TEXT, {"prompt": PROMPT, "batch_size": 2})
        info = json.loads(r.json["info"])
        report("Steps: 3," in info["infotexts"][0] and info["steps"] == 3 and
               info["all_prompts"] == 2 * [PROMPT] and info["all_seeds"] == [9, 10] and
               info["all_negative_prompts"] == 2 * ["a cat, grey"] and info["cfg_scale"] == 4.5 and
               info["sd_model_name"] == "small", "also of A1111's", info)
        r = s.post("/generate", {"prompt": PROMPT})
        report(base64.b64decode(r.json["output"])[16:24] == bytes([0, 0, 0, 96, 0, 0, 0, 160]) and
               r.json["seed"] == 9, "also of xDiT's service", r)
        c = s.get("/sdcpp/v1/capabilities").json["defaults"]
        report((c["width"], c["height"], c["sample_params"]["sample_steps"]) == (96, 160, 3) and
               c["negative_prompt"] == "a cat, grey", "and of stable-diffusion.cpp's", c)
        r = s.post(EDIT, {"prompt": PROMPT, "image": url_of(want), "size": "128x128"})
        report(r.status == 200 and parameters(r)["strength"] == 0.4, "a strength, of an edit", r)


def two_models(video):
    """One directory under two names; what is of videos does not reach images."""
    with Server("--dtype", "f32", "--num_frames", "1", "--num_inference_steps", "2",
                "--model", f"fast={DEMO},num_inference_steps=1", str(video), model=DEMO) as s:
        names = [m["id"] for m in s.get("/v1/models").json["data"]]
        report(names == ["demo-pixart", "fast", video.name], "models by names and without a flag",
               names)
        steps = [parameters(s.post(GEN, {"prompt": "a", "model": m}))["steps"]
                 for m in ("demo-pixart", "fast")]
        report(steps == [2, 1], "each has its own", steps)
        v = s.post(VIDEOS, {"prompt": "a", "output_format": "gif"}).json
        wait_for(lambda: s.get(f"{VIDEOS}/{v['id']}").json["status"] == "completed", 60)
        p = s.get(f"{VIDEOS}/{v['id']}").json.get("parameters", {})
        report((p.get("num_frames", 1), p.get("steps")) == (1, 2), "a video", p)


def refused(what, words, *args, model=DEMO):
    with Server(*args, model=model, start=False) as s:
        code = s.process.wait(60)
        said = s.said()
        report(code == 2 and all(w in said for w in words), what, said)


def wrong_lines():
    refused("a default that no request takes", ["num_inference_steps", "1000"],
            "--num_inference_steps", "5000")
    refused("one of a model", ["demo-pixart", "guidance_scale"], model=f"{DEMO},guidance_scale=x")
    refused("one that there is not", ["demo-pixart", "num_inference_steps"],
            model=f"{DEMO},num_inference_step=4")
    refused("a name twice", ["demo-pixart", "NAME=DIR"], "--model", DEMO)
    refused("a letter that means the prompt", ["-p", "--port"], "-p", "80")
    refused("the letter of stable-diffusion.cpp", ["--host"], "-l", "127.0.0.1")


# ---- OpenAI's fields -----------------------------------------------------------------------------

def makes_no_difference(s):
    asked = {**FAST, "seed": 3}
    want = image_of(s.post(GEN, asked))
    for field, values in (("quality", "auto standard low medium high xhigh max hd"),
                          ("style", "vivid natural"), ("background", "auto opaque transparent"),
                          ("moderation", "auto low"), ("input_fidelity", "low high"),
                          ("complexity", "low medium high"), ("size", "auto"),
                          ("output_compression", "0 50 100"), ("n", "1"), ("user", "u"),
                          ("model", "gpt-image-1-mini chatgpt-image-latest")):
        got = [s.post(GEN, {**asked, field: int(v) if v.isdigit() else v}) for v in values.split()]
        got += [s.post(GEN, {**asked, field: None}), s.form(GEN, [*asked.items(), (
            field, values.split()[0])])]
        report(all(r.status == 200 and image_of(r) == want for r in got),
               f"{field} as the official client sends it", [r.json.get("error") for r in got])
    r = s.post(GEN, {**asked, "quality": "high", "background": "transparent"})
    report(r.json["quality"] == "high" and r.json["background"] == "opaque", "the answer is true",
           r.json["quality"], r.json["background"])
    r = s.post(GEN, {**asked, "model": "dall-e-3"})
    report(r.json["data"][0].get("url", "").startswith("http") and "b64_json" not in
           r.json["data"][0], "dall-e gives URLs where nothing else is asked for", r)
    r = s.post(GEN, {**asked, "model": "dall-e-3", "response_format": "b64_json"})
    report(image_of(r) == want, "and the image where it is")
    for field, value in (("quality", "best"), ("style", ""), ("background", "auto opaque"),
                         ("moderation", 1), ("output_compression", 101), ("frame_count", 4)):
        r = s.post(GEN, {**asked, field: value})
        report(r.status == 400 and r.json["error"]["param"] == field, f"400: {field} {value!r}", r)


# ---- folders -------------------------------------------------------------------------------------

def no_folders():
    """Failures of requests that name files: none of their folders reaches a client."""
    home = T / "secret home"
    home.mkdir()
    model, loras = home / "model", home / "loras"
    shutil.copytree(DEMO, model)
    loras.mkdir()
    (loras / "bad.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    asked = {**FAST, "seed": 1}
    with Server("--loras", str(loras), model=str(model)) as s:
        said = [s.post(GEN, {**asked, **more}) for more in (
            {"lora": "bad"}, {"lora": "none"}, {"lora": "bad:x"}, {"lora": "../model"},
            {"scheduler": "nope"}, {"size": "100x100"}, {"fast_attn": "share,half"})]
        said += [s.post(EDIT, {**asked, "image": "data:image/png;base64,aGVsbG8="}),
                 s.post(TEXT, {"prompt": "a", "sampler_name": "nope"}),
                 s.get("/page/../../etc/passwd"), s.get("/v1/models/nope")]
        r = s.post("/sdcpp/v1/img_gen", {"prompt": "a", "lora": [{"path": "bad"}]})
        said.append(s.get(f"/sdcpp/v1/jobs/{r.json['id']}") if wait_for(lambda: s.get(
            f"/sdcpp/v1/jobs/{r.json['id']}").json["status"] == "failed", 60) else r)
        stream = s.post(GEN, {**asked, "lora": "bad", "stream": True})
        text = [r.body.decode() for r in (*said, stream)]
        report(all(r.status >= 400 for r in said[:-1]) and not any(
            w in t for t in text for w in ("secret", str(T), "/dev/", "/tmp", os.getcwd())),
            "refusals name no folder of this host", text)
        report("bad" in said[0].error and "bad" in text[-1], "but the file", text[0], text[-1])
    with Server(model=str(model)) as s:
        os.truncate(model / "transformer" / "diffusion_pytorch_model.safetensors", 100)
        r = s.post(GEN, asked)
        report(r.status == 500 and "model/transformer" in r.error and "secret" not in str(r.json)
               and str(model) in s.said(), "of a failure the log has the folder", r, s.said())


# ---- switches ------------------------------------------------------------------------------------

def switches():
    """A key of the scheduler's config: left alone, on, or off, in each way that JSON has."""
    model = T / "switched"
    shutil.copytree(DEMO, model)
    path = model / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_karras_sigmas": True}))
    asked = {"prompt": PROMPT, "num_inference_steps": 3, "seed": 3}
    with Server(model=str(model)) as s:
        def made(value):
            return pixels(image_of(s.post(GEN, {**asked, "use_karras_sigmas": value})))
        plain, own = made(False), pixels(image_of(s.post(GEN, asked)))
        report(plain != own and plain == pixels(generate("--prompt", PROMPT, "--seed", "3",
                                                         "--num_inference_steps", "3")),
               "false switches off what the config has")
        for value, same in ((None, own), (True, own), (1, own), ("true", own), (0, plain),
                            ("false", plain)):
            report(made(value) == same, f"a switch is {json.dumps(value)}")
        for value in (2, -1, "maybe", [], {}):
            r = s.post(GEN, {**asked, "use_karras_sigmas": value})
            report(r.status == 400 and "use_karras_sigmas" in r.error,
                   f"{json.dumps(value)} is refused", r)


def main():
    cog = filled("cog2b")
    wrong_lines()
    defaults()
    two_models(cog)
    with Server() as s:
        seeds(s)
        makes_no_difference(s)
    switches()
    video_seeds(cog)
    no_folders()
    end()


if __name__ == "__main__":
    sys.exit(main())

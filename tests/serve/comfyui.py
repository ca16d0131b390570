#!/usr/bin/env python3
"""comfyui.py XDIT ROOT FILL - the calls that clients of ComfyUI make: graphs with their messages
over a WebSocket, history, images, lists, and graphs that are refused. FILL makes models of random
weights. Speaks TAP."""

import base64
import copy
import http.client
import json
import random
import shutil
import ssl
import struct
import subprocess
import sys
import threading
import time
import zlib

from harness import DEMO, PROMPT, ROOT, T, Server, end, generate, image_of, pixels, report, wait_for
from websocket import BINARY, CLOSE, PING, PONG, TEXT, Socket


def node(class_type, **inputs):
    return {"class_type": class_type, "inputs": inputs}


def text_graph(**sampler):
    """The graph that ComfyUI opens with, which is also SillyTavern's and Open WebUI's."""
    return {
        "3": node("KSampler", **{
            "seed": 7, "steps": 3, "cfg": 4.5, "sampler_name": "dpmpp_2m", "scheduler": "normal",
            "denoise": 1, "model": ["4", 0], "positive": ["6", 0], "negative": ["7", 0],
            "latent_image": ["5", 0], **sampler}),
        "4": node("CheckpointLoaderSimple", ckpt_name="demo-pixart"),
        "5": node("EmptyLatentImage", width=128, height=128, batch_size=1),
        "6": node("CLIPTextEncode", text=PROMPT, clip=["4", 1]),
        "7": node("CLIPTextEncode", text="", clip=["4", 1]),
        "8": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
        "9": node("SaveImage", filename_prefix="ComfyUI", images=["8", 0])}


def custom_graph(guider):
    """The graph of models with separate loaders, which Krita sends: a custom sampler."""
    g = {"1": node("UNETLoader", unet_name="demo-pixart", weight_dtype="default"),
         "2": node("CLIPLoader", clip_name="t5xxl_fp16.safetensors", type="pixart"),
         "3": node("VAELoader", vae_name="ae.safetensors"),
         "4": node("CLIPTextEncode", text=PROMPT, clip=["2", 0]),
         "5": node("CLIPTextEncode", text="blurry", clip=["2", 0]),
         "6": node("EmptySD3LatentImage", width=128, height=128, batch_size=1),
         "7": node("CFGGuider", model=["1", 0], positive=["4", 0], negative=["5", 0], cfg=3.5),
         "8": node("RandomNoise", noise_seed=11),
         "9": node("KSamplerSelect", sampler_name="euler"),
         "10": node("BasicScheduler", model=["1", 0], scheduler="karras", steps=4, denoise=1),
         "11": node("SamplerCustomAdvanced", noise=["8", 0], guider=["7", 0], sampler=["9", 0],
                    sigmas=["10", 0], latent_image=["6", 0]),
         "12": node("VAEDecode", samples=["11", 1], vae=["3", 0]),
         "13": node("SaveImageWebsocket", images=["12", 0])}
    if guider == "BasicGuider":
        g["7"] = node("BasicGuider", model=["1", 0], conditioning=["4", 0])
        del g["5"]
    return g


def openai(s, **fields):
    """The image of the same request by OpenAI's interface."""
    r = s.post("/v1/images/generations", {"prompt": PROMPT, "seed": 7, "num_inference_steps": 3,
                                          "size": "128x128", **fields})
    return image_of(r) if report(r.status == 200, f"OpenAI's interface: {fields}", r) else b""


def wait(s, prompt_id, seconds=120):
    """The entry of a prompt in the history, as SillyTavern polls for it."""
    wait_for(lambda: prompt_id in s.get(f"/history/{prompt_id}").json, seconds)
    return s.get("/history").json.get(prompt_id, {})


def view(s, image, where=""):
    return s.get(f"{where}/view?filename={image['filename']}&subfolder={image['subfolder']}"
                 f"&type={image['type']}")


def images_of(s, graph):
    """The images of a graph's outputs."""
    r = s.post("/prompt", {"prompt": graph})
    if not report(r.status == 200, "a graph is queued", r, r.body):
        return []
    item = wait(s, r.json["prompt_id"])
    report(item.get("status", {}).get("status_str") == "success", "and runs", item.get("status"))
    return [view(s, x).body for out in item.get("outputs", {}).values() for x in out["images"]]


def until_end(w, prompt_id):
    """The messages up to the end of a prompt."""
    found = []
    while True:
        m = w.message()
        found.append(m)
        if isinstance(m, dict) and m["type"] == "executing" and m["data"]["node"] is None and \
                m["data"]["prompt_id"] == prompt_id:
            return found


def types(messages):
    return [m["type"] if isinstance(m, dict) else "bytes" for m in messages]


def png(w, h, of, channels=3):
    """A PNG whose pixel x, y has the values of(x, y)."""
    rows = b"".join(b"\0" + bytes(v for x in range(w) for v in of(x, y)) for y in range(h))

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))

    head = struct.pack(">IIBBBBB", w, h, 8, 2 if channels == 3 else 6, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


# ---- clients -------------------------------------------------------------------------------------

def silly_tavern(s):
    """POST /prompt as text/plain, poll /history, GET /view."""
    report(s.get("/system_stats").json["devices"][0]["vram_total"] > 0, "system_stats")
    info = s.get("/object_info").json
    required = info["KSampler"]["input"]["required"]
    report("euler" in required["sampler_name"][0] and "karras" in required["scheduler"][0] and
           info["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0] ==
           ["demo-pixart", "other"] and info["VAELoader"]["input"]["required"]["vae_name"][0],
           "the lists of the dropdowns")
    body = json.dumps({"prompt": text_graph()}).encode()
    for kind in ("text/plain;charset=UTF-8", "application/x-www-form-urlencoded"):
        r = s.request("POST", "/prompt", body, {"Content-Type": kind})
        report(r.status == 200 and r.json["node_errors"] == {}, f"a body of type {kind}", r)
    item = wait(s, r.json["prompt_id"])
    image = [x for o in item["outputs"].values() for x in o["images"]][0]
    got = view(s, image)
    want = openai(s, guidance_scale=4.5, scheduler="DPM++ 2M", negative_prompt="")
    report(got.status == 200 and got.headers["Content-Type"] == "image/png" and got.body == want,
           "the image of OpenAI's interface, byte for byte", got)
    report(pixels(want) == pixels(generate(
        "--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7", "--scheduler", "dpm++")),
        "and of the command line")
    report(item["status"]["completed"] and item["prompt"][1] == r.json["prompt_id"] and
           item["prompt"][2] == text_graph() and item["prompt"][4] == ["9"] and
           item["status"]["messages"][-1][0] == "execution_success", "the history", item)
    report(list(s.get("/history?max_items=1").json) == [r.json["prompt_id"]], "the last one")


def open_webui(s):
    """A WebSocket with the client id, then the graph, then the history; below /api as well."""
    w = Socket(s.address, "/ws?clientId=webui")
    first = w.message()
    report(w.status == 101 and w.accepted and first["type"] == "status" and
           first["data"]["sid"] == "webui" and
           first["data"]["status"]["exec_info"]["queue_remaining"] == 0, "the handshake", first)
    r = s.post("/api/prompt", {"prompt": text_graph(), "client_id": "webui"})
    got = until_end(w, r.json["prompt_id"])
    kinds = [t for t in types(got) if t not in ("status", "bytes")]
    report(kinds[:2] == ["execution_start", "execution_cached"] and kinds[-3:] == [
        "executed", "execution_success", "executing"], "the order of the messages", kinds)
    nodes = [m["data"]["node"] for m in got if isinstance(m, dict) and m["type"] == "executing"]
    report(sorted(nodes[:-1]) == ["3", "4", "5", "6", "7", "8", "9"] and
           nodes.index("4") < nodes.index("6") < nodes.index("3") < nodes.index("8") <
           nodes.index("9"), "every node once, after those that it needs", nodes)
    steps = [m["data"] for m in got if isinstance(m, dict) and m["type"] == "progress"]
    report(steps and steps[-1]["value"] == steps[-1]["max"] == 3 and
           all(x["node"] == "3" for x in steps), "progress of the sampler", steps)
    previews = [m for m in got if isinstance(m, bytes)]
    report(previews and all(m[:8] == struct.pack(">II", 1, 1) and m[8:10] == b"\xff\xd8"
                            for m in previews), "previews are JPEG files", len(previews))
    out = next(m for m in got if isinstance(m, dict) and m["type"] == "executed")["data"]
    report(out["node"] == "9" and view(s, out["output"]["images"][0], "/api").body ==
           openai(s, guidance_scale=4.5, scheduler="DPM++ 2M", negative_prompt=""),
           "the image of the message", out)
    report({"status", "bytes"} & set(types(got)) == {"status", "bytes"}, "the length of the queue")
    w.close()


def krita(s):
    """Separate loaders, a custom sampler, a prompt id of the client; images over the WebSocket."""
    w = Socket(s.address, "/ws?clientId=krita")
    w.message()
    for guider, fields in (("CFGGuider", {"guidance_scale": 3.5, "negative_prompt": "blurry"}),
                           ("BasicGuider", {"guidance_scale": 1})):
        r = s.post("/prompt", {"prompt": custom_graph(guider), "client_id": "krita",
                               "prompt_id": "my-" + guider})
        report(r.json.get("prompt_id") == "my-" + guider, "the id of the client", r)
        got = until_end(w, "my-" + guider)
        results = [m[8:] for m in got if isinstance(m, bytes) and
                   m[:8] == struct.pack(">II", 1, 2)]
        want = openai(s, seed=11, num_inference_steps=4, scheduler="Euler",
                      use_karras_sigmas=True, **fields)
        report(results == [want], f"SaveImageWebsocket with {guider}", types(got))
    g = custom_graph("CFGGuider")
    g["13"] = node("ETN_SaveImageCache", images=["12", 0], format="PNG")
    r = s.post("/prompt", {"prompt": g, "client_id": "krita"})
    out = next(m for m in until_end(w, r.json["prompt_id"])
               if isinstance(m, dict) and m["type"] == "executed")["data"]["output"]["images"]
    report(out[0]["source"] == "http" and s.get("/api/etn/image/" + out[0]["id"]).body == openai(
        s, seed=11, num_inference_steps=4, scheduler="Euler", use_karras_sigmas=True,
        guidance_scale=3.5, negative_prompt="blurry"), "an image by its id", out)
    w.close()


# ---- images and masks ----------------------------------------------------------------------------

def upload(s, name, data, path="/upload/image", **fields):
    return s.form(path, [("image", name, data), *fields.items()])


def image_graph(**sampler):
    g = text_graph(**{"steps": 4, "denoise": 0.5, **sampler})
    g["5"] = node("VAEEncode", pixels=["10", 0], vae=["4", 2])
    g["10"] = node("LoadImage", image="start.png")
    return g


def edit(s, data, size="128x128", mask=None, **fields):
    url = "data:image/png;base64,"
    r = s.post("/v1/images/edits", {
        "prompt": PROMPT, "seed": 7, "size": size, "image": url + base64.b64encode(data).decode(),
        "guidance_scale": 4.5, "scheduler": "DPM++ 2M", "negative_prompt": "",
        **({"mask": url + base64.b64encode(mask).decode()} if mask else {}), **fields})
    return image_of(r) if report(r.status == 200, "OpenAI's edits", r) else b""


def start_images(s):
    data = png(128, 128, lambda x, y: (x, y, 128))
    r = upload(s, "start.png", data, "/api/upload/image", type="input")
    report(r.status == 200 and r.json == {"name": "start.png", "subfolder": "", "type": "input"},
           "an image is uploaded", r)
    report(s.get("/view?filename=start.png&type=input").body == data, "and can be read")
    report(s.get("/object_info/LoadImage").json["LoadImage"]["input"]["required"]["image"][0] ==
           ["start.png"], "and is in the list")
    # denoise 0.5 of 4 steps: the last 4 of 8
    want = edit(s, data, num_inference_steps=8, strength=0.5)
    report(images_of(s, image_graph()) == [want], "an image from an image")
    scaled = image_graph()
    scaled["11"] = node("ImageScale", image=["10", 0], upscale_method="lanczos", width=96,
                        height=64, crop="disabled")
    scaled["5"]["inputs"]["pixels"] = ["11", 0]
    report(images_of(s, scaled) == [edit(s, data, "96x64", num_inference_steps=8, strength=0.5)],
           "ImageScale sets the size")
    late = image_graph()
    late["3"] = node("KSamplerAdvanced", **{
        **{k: v for k, v in late["3"]["inputs"].items() if k not in ("seed", "denoise")},
        "noise_seed": 7, "steps": 8, "start_at_step": 5, "end_at_step": 1000,
        "add_noise": "enable", "return_with_leftover_noise": "disable"})
    report(images_of(s, late) == [edit(s, data, num_inference_steps=8, strength=0.375)],
           "KSamplerAdvanced begins at a step")
    for steps, denoise in ((20, 0.6), (7, 0.3), (9, 0.9)):
        r = s.post("/prompt", {"prompt": image_graph(steps=steps, denoise=denoise)})
        item = wait(s, r.json["prompt_id"])
        job = s.get("/v1/jobs/" + item["outputs"]["9"]["images"][0]["filename"][:-11]).json
        report(job.get("steps") == steps, f"{steps} steps of denoise {denoise} run", job)
    again = image_graph()
    again["10"]["inputs"]["image"] = item["outputs"]["9"]["images"][0]["filename"] + " [output]"
    report(len(images_of(s, again)) == 1, "a result is the next start")


def mask_graph(**sampler):
    """An image whose masked part changes; cfg 1 needs no negative text."""
    g = image_graph(**{"cfg": 1, "sampler_name": "euler", "scheduler": "simple", **sampler})
    g["4"]["inputs"]["ckpt_name"] = "inpaints"
    g["12"] = node("SetLatentNoiseMask", samples=["5", 0], mask=["11", 0])
    g["3"]["inputs"]["latent_image"] = ["12", 0]
    return g


def masks(s):
    """A mask is white where the image changes. The alpha of an image is its inverse."""
    def half(x, _):
        return (255,) * 3 if x < 32 else (0,) * 3

    data, white = png(64, 64, lambda x, y: (3 * x, 2 * y, 90)), png(64, 64, half)
    clear = png(64, 64, lambda x, y: (3 * x, 2 * y, 90, 0 if x < 32 else 255), 4)
    for name, image in (("start.png", data), ("mask.png", white), ("clear.png", clear)):
        upload(s, name, image)
    fields = {"size": "64x64", "guidance_scale": None, "negative_prompt": None,
              "scheduler": "Euler", "true_cfg_scale": 1, "num_inference_steps": 8, "strength": 0.5}
    want = pixels(edit(s, data, mask=white, **fields))

    def same(what, mask, **more):
        g = mask_graph()
        g.update({"11": mask, **more})
        got = images_of(s, g)
        report(got and pixels(got[0]) == want, what)

    report(want != pixels(edit(s, data, **fields)), "a mask keeps a part")
    same("a mask from a channel", node("LoadImageMask", image="mask.png", channel="red"))
    same("a mask from alpha", node("LoadImageMask", image="clear.png", channel="alpha"))
    r = upload(s, "joined.png", clear, "/upload/mask",
               original_ref=json.dumps({"filename": "start.png", "type": "input"}))
    report(r.status == 200 and r.json["name"] == "joined.png", "a mask is uploaded", r)
    same("the mask of the image itself", node("ImageToMask", image=["10", 0], channel="alpha"),
         **{"10": node("LoadImage", image="joined.png"),
            "12": node("SetLatentNoiseMask", samples=["5", 0], mask=["10", 1])})
    upload(s, "inverse.png", png(64, 64, lambda x, y: (255 - half(x, y)[0],) * 3))
    same("an inverted mask", node("InvertMask", mask=["13", 0]),
         **{"13": node("LoadImageMask", image="inverse.png", channel="blue")})
    upload(s, "small.png", png(64, 64, lambda x, y: (255,) * 3 if x < 24 else (0,) * 3))
    for tapered in (True, False):
        same("a grown mask", node("GrowMask", mask=["13", 0], expand=8, tapered_corners=tapered),
             **{"13": node("LoadImageMask", image="small.png", channel="green")})
    r = s.request("PUT", "/api/etn/image/abc", white)
    same("a mask by its id", node("InvertMask", mask=["13", 0]),
         **{"13": node("InvertMask", mask=["14", 1]), "14": node("ETN_LoadImageCache", id="abc")})
    report(r.status == 200, "which Krita sends", r)
    for grow, size in ((0, 32), (6, 29), (7, 29)):
        upload(s, "grow.png", png(64, 64, lambda x, y, n=size: (
            200 if x < n else 90,) * 3))
        g = mask_graph(denoise=1)
        g["5"] = node("VAEEncodeForInpaint", pixels=["10", 0], vae=["4", 2], mask=["11", 0],
                      grow_mask_by=grow)
        g["11"] = node("LoadImageMask", image="grow.png", channel="red")
        g["3"]["inputs"]["latent_image"] = ["5", 0]
        report(pixels(images_of(s, g)[0]) == pixels(edit(s, data, mask=white, **{
            **fields, "num_inference_steps": 4, "strength": 1})), f"grow_mask_by {grow}")


def separate_graph():
    """The graph of a model with distilled guidance."""
    return {"1": node("UNETLoader", unet_name="inpaints", weight_dtype="fp8_e4m3fn"),
            "2": node("DualCLIPLoader", clip_name1="t5xxl_fp16.safetensors",
                      clip_name2="clip_l.safetensors", type="flux"),
            "3": node("VAELoader", vae_name="ae.safetensors"),
            "4": node("CLIPTextEncode", text="a cat", clip=["2", 0]),
            "5": node("FluxGuidance", conditioning=["4", 0], guidance=2.5),
            "6": node("EmptySD3LatentImage", width=64, height=48, batch_size=1),
            "7": node("BasicGuider", model=["1", 0], conditioning=["5", 0]),
            "8": node("RandomNoise", noise_seed=3),
            "9": node("KSamplerSelect", sampler_name="euler"),
            "10": node("BasicScheduler", model=["1", 0], scheduler="simple", steps=2, denoise=1),
            "11": node("SamplerCustomAdvanced", noise=["8", 0], guider=["7", 0],
                       sampler=["9", 0], sigmas=["10", 0], latent_image=["6", 0]),
            "12": node("VAEDecode", samples=["11", 0], vae=["3", 0]),
            "13": node("SaveImage", images=["12", 0], filename_prefix="a/b")}


def other_image(s, path="generations", **fields):
    r = s.post("/v1/images/" + path, {
        "prompt": "a cat", "seed": 3, "num_inference_steps": 2, "size": "64x48",
        "scheduler": "Euler", "guidance_scale": 2.5, "true_cfg_scale": 1, **fields})
    return image_of(r) if report(r.status == 200, "OpenAI's interface", r) else b""


def guidance(s):
    """FluxGuidance is guidance_scale, and cfg is true_cfg_scale."""
    plain = separate_graph()
    report(images_of(s, plain) == [other_image(s)], "FluxGuidance")
    batch = copy.deepcopy(plain)
    batch["6"]["inputs"]["batch_size"] = 2
    two = images_of(s, batch)
    report(len(two) == 2 and two[0] == other_image(s) and pixels(two[1]) == pixels(
        other_image(s, seed=4)), "batch_size")
    both = copy.deepcopy(plain)
    both["4"] = node("CLIPTextEncodeFlux", clip=["2", 0], clip_l="a cat", t5xxl="a black cat",
                     guidance=2.5)
    both["7"]["inputs"]["conditioning"] = ["4", 0]
    report(images_of(s, both) == [other_image(s, prompt_2="a black cat")], "two texts")
    true = copy.deepcopy(plain)
    true["14"] = node("CLIPTextEncode", text="blurry", clip=["2", 0])
    true["7"] = node("CFGGuider", model=["1", 0], positive=["5", 0], negative=["14", 0], cfg=3)
    report(images_of(s, true) == [other_image(s, true_cfg_scale=3, negative_prompt="blurry")],
           "cfg")
    seed = copy.deepcopy(plain)
    seed["8"]["inputs"]["noise_seed"] = str(2**64 - 1)
    report(images_of(s, seed) == [other_image(s, seed=str(2**64 - 1))], "a seed as text")
    value = copy.deepcopy(plain)
    value["20"] = node("PrimitiveInt", value=48)
    value["21"] = node("PrimitiveString", value="a cat")
    value["6"]["inputs"]["height"] = ["20", 0]
    value["4"]["inputs"]["text"] = ["21", 0]
    report(images_of(s, value) == [other_image(s)], "values of other nodes")
    tiled = copy.deepcopy(plain)
    tiled["12"] = node("VAEDecodeTiled", samples=["11", 0], vae=["3", 0], tile_size=512,
                       overlap=64)
    report(images_of(s, tiled) and True, "VAEDecodeTiled")


def loras(s):
    names = s.get("/models/loras").json
    report({"kohya", "peft"} <= set(names), "the LoRA files", names)
    g = separate_graph()
    g["14"] = node("LoraLoader", model=["1", 0], clip=["2", 0], lora_name="peft",
                   strength_model=0.5, strength_clip=0.5)
    g["15"] = node("LoraLoaderModelOnly", model=["14", 0], lora_name="kohya", strength_model=0.25)
    g["4"]["inputs"]["clip"] = ["14", 1]
    g["7"]["inputs"]["model"] = ["15", 0]
    report(images_of(s, g) == [other_image(s, lora=["peft:0.5", "kohya:0.25"])], "two LoRA files")
    g["14"]["inputs"].update(strength_model=0, strength_clip=0)
    report(images_of(s, g) == [other_image(s, lora="kohya:0.25")], "strength 0 is none")
    g["14"]["inputs"].update(strength_model=1)
    r = s.post("/prompt", {"prompt": g})
    report(r.status == 400 and "14" in r.json["node_errors"], "two strengths are refused", r)


def control_graph(names):
    g = separate_graph()
    for i, name in enumerate(names):
        last = [f"c{i - 1}", 0] if i else ["5", 0]
        g[f"l{i}"] = node("ControlNetLoader", control_net_name=name)
        g[f"i{i}"] = node("LoadImage", image=f"{i}.png")
        g[f"c{i}"] = node("ControlNetApplyAdvanced", positive=last, negative=last,
                          control_net=[f"l{i}", 0], image=[f"i{i}", 0], strength=0.5 + i,
                          start_percent=0.25 * i, end_percent=0.75, vae=["3", 0])
    g["7"]["inputs"]["conditioning"] = [f"c{len(names) - 1}", 0]
    return g


def controls(s):
    data = [png(64, 48, lambda x, y, i=i: (x * 3, y * 4, 99 * i)) for i in range(2)]
    for i, image in enumerate(data):
        upload(s, f"{i}.png", image)
    names = s.get("/models/controlnet").json
    report(names == ["controlnet"] * 2, "the control networks", names)
    urls = ["data:image/png;base64," + base64.b64encode(x).decode() for x in data]
    report(images_of(s, control_graph(names)) == [other_image(
        s, control_image=urls, conditioning_scale=[0.5, 1.5], control_guidance_start=[0, 0.25],
        control_guidance_end=[0.75, 0.75])], "two control networks")
    r = s.post("/prompt", {"prompt": control_graph(names[:1])})
    report(r.status == 400 and "c0" in r.json["node_errors"] and "controlnet" in
           r.json["error"]["details"], "all of them are required", r)


def references(s):
    """A reference image; the latents of an image only set the size."""
    data = png(80, 64, lambda x, y: (3 * x, 2 * y, 90))
    upload(s, "reference.png", data)
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    g = separate_graph()
    g["20"] = node("LoadImage", image="reference.png")
    g["21"] = node("FluxKontextImageScale", image=["20", 0])
    g["22"] = node("VAEEncode", pixels=["21", 0], vae=["3", 0])
    g["23"] = node("ReferenceLatent", conditioning=["4", 0], latent=["22", 0])
    g["5"]["inputs"]["conditioning"] = ["23", 0]
    report(images_of(s, g) == [other_image(s, "edits", image=url)], "a reference image")
    g["6"] = node("EmptyFlux2LatentImage", width=64, height=48, batch_size=1)
    g["10"] = node("Flux2Scheduler", steps=2, width=64, height=48)
    report(images_of(s, g) == [other_image(s, "edits", image=url)], "nodes of their own")
    g["11"]["inputs"]["latent_image"] = ["22", 0]
    report(images_of(s, g) == [other_image(s, "edits", image=url, size="auto")],
           "whose size the result has")


def other_models():
    for name, to in (("flux", "inpaints"), ("flux-controlnet", "nets"), ("flux2", "edits")):
        subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(T / to)],
                       check=True, stdout=subprocess.DEVNULL)
    with Server("--dtype", "f32", "--loras", str(ROOT / "tests" / "golden" / "flux-lora"),
                model=str(T / "inpaints")) as s:
        masks(s)
        guidance(s)
        loras(s)
    nets = ["--controlnet", str(T / "nets" / "controlnet")] * 2
    with Server("--dtype", "f32", *nets, model=str(T / "inpaints")) as s:
        controls(s)
    with Server("--dtype", "f32", model="inpaints=" + str(T / "edits")) as s:
        references(s)


def uploads(s):
    for what, r in (("no image", s.form("/upload/image", [("type", "input")])),
                    ("not an image", upload(s, "a.png", b"hello")),
                    ("a path", upload(s, "../a.png", png(8, 8, lambda x, y: (0, 0, 0)))),
                    ("an absolute path", upload(s, "/a.png", png(8, 8, lambda x, y: (0, 0, 0)))),
                    ("an output", upload(s, "a.png", png(8, 8, lambda x, y: (0, 0, 0)),
                                         type="output")),
                    ("no original", upload(s, "a.png", png(8, 8, lambda x, y: (0, 0, 0)),
                                           "/upload/mask", original_ref='{"filename": "x"}'))):
        report(r.status == 400 and r.error, f"refused: {what}", r)
    for path in ("/view", "/view?filename=nope.png", "/view?filename=../../etc/passwd&type=input",
                 "/view?filename=image_0_00001_.png"):
        report(s.get(path).status == 404, f"nothing at {path}")
    small = png(8, 8, lambda x, y: (x, y, 0))
    for i in range(66):
        upload(s, f"{i}.png", small, subfolder="more")
    names = s.get("/object_info/LoadImage").json["LoadImage"]["input"]["required"]["image"][0]
    report(len(names) == 64 and names[0] == "more/65.png" and "more/1.png" not in names,
           "the last 64 images are kept", names)
    report(s.get("/view?filename=65.png&subfolder=more&type=input").body == small, "in folders")


# ---- queue ---------------------------------------------------------------------------------------

def long_graph():
    g = text_graph(steps=1000)
    g["5"]["inputs"].update(width=512, height=512)
    return g


def queue(s):
    w = Socket(s.address, "/ws?clientId=q")
    w.message()
    ids = [s.post("/prompt", {"prompt": long_graph(), "client_id": "q"}).json["prompt_id"]
           for _ in range(4)]
    wait_for(lambda: len(s.get("/queue").json["queue_running"]) == 1)
    q = s.get("/queue").json
    running = q["queue_running"][0][1]
    report(len(q["queue_pending"]) == 3 and s.get("/prompt").json == {
        "exec_info": {"queue_remaining": 4}} and q["queue_running"][0][2] == long_graph(),
        "the queue", str(q)[:300])
    waiting = [i for i in ids if i != running]
    report(s.post("/queue", {"delete": [waiting[0]]}).status == 200 and
           len(s.get("/queue").json["queue_pending"]) == 2, "a prompt is deleted")
    report(s.post("/queue", {"clear": True}).status == 200 and
           s.get("/queue").json["queue_pending"] == [], "the queue is cleared")
    report(s.post("/interrupt", {"prompt_id": "another"}).status == 200 and
           len(s.get("/queue").json["queue_running"]) == 1, "another one is not interrupted")
    began = time.monotonic()
    report(s.request("POST", "/interrupt", b"").status == 200, "interrupt")
    got = until_end(w, running)
    report("execution_interrupted" in types(got) and time.monotonic() - began < 10 and
           all(m["data"].get("prompt_id", running) == running for m in got
               if isinstance(m, dict)), "ends it soon, with a message", types(got))
    item = s.get("/history").json[running]
    report(item["status"]["status_str"] == "error" and not item["status"]["completed"] and
           item["status"]["messages"][-1][0] == "execution_interrupted", "in the history", item)
    report(s.post("/history", {"delete": [running]}).status == 200 and
           running not in s.get("/history").json, "which forgets it")
    s.post("/history", {"clear": True})
    report(s.get("/history").json == {}, "and everything")
    g = text_graph()
    g["5"]["inputs"]["width"] = 100
    r = s.post("/prompt", {"prompt": g, "client_id": "q"})
    got = until_end(w, r.json["prompt_id"])
    error = next(m for m in got if isinstance(m, dict) and m["type"] == "execution_error")["data"]
    report(error["node_id"] == "3" and error["node_type"] == "KSampler" and
           "multiple" in error["exception_message"], "an error while it runs", error)
    report(s.get("/history").json[r.json["prompt_id"]]["status"]["status_str"] == "error",
           "is in the history")
    w.close()


# ---- refused graphs ------------------------------------------------------------------------------

def changed(change):
    g = text_graph()
    change(g)
    return g


def set_input(id_, name, value):
    return lambda g: g[id_]["inputs"].__setitem__(name, value)


def refused(s):
    cases = [
        # what, change of the graph, error type, node with the error (None: the graph), text
        ("an unknown class", lambda g: g.update({"x": node("FreeU_V2")}), "missing_node_type",
         None, "FreeU_V2"),
        ("no class", lambda g: g["3"].pop("class_type"), "invalid_prompt", None, "#3"),
        ("no inputs", lambda g: g["3"].pop("inputs"), "invalid_prompt", None, "#3"),
        ("no output", lambda g: g.pop("9"), "prompt_no_outputs", None, ""),
        ("an unknown model", set_input("4", "ckpt_name", "v1-5.safetensors"),
         "value_not_in_list", "4", "demo-pixart"),
        ("an unknown sampler", set_input("3", "sampler_name", "gradient_estimation"),
         "value_not_in_list", "3", "gradient_estimation"),
        ("no steps", set_input("3", "steps", 0), "value_smaller_than_min", "3", "steps"),
        ("too many steps", set_input("3", "steps", 99999), "value_bigger_than_max", "3", "steps"),
        ("a rounded seed", set_input("3", "seed", 2**60), "value_bigger_than_max", "3", "seed"),
        ("a text as number", set_input("3", "cfg", "high"), "invalid_input_type", "3", "cfg"),
        ("a missing input", lambda g: g["8"]["inputs"].pop("vae"), "required_input_missing", "8",
         "vae"),
        ("a missing node", set_input("8", "samples", ["33", 0]), "bad_linked_input", "8", "33"),
        ("a missing output", set_input("8", "vae", ["4", 3]), "bad_linked_input", "8", "vae"),
        ("a long link", set_input("8", "vae", ["4", 2, 0]), "bad_linked_input", "8", "vae"),
        ("a link of texts", set_input("8", "vae", ["4", "2"]), "bad_linked_input", "8", "vae"),
        ("no link", set_input("8", "vae", 7), "bad_linked_input", "8", "vae"),
        ("another type", set_input("8", "vae", ["4", 1]), "return_type_mismatch", "8", "CLIP"),
        ("a cycle", set_input("3", "latent_image", ["3", 0]), "dependency_cycle", "3", "3"),
        ("a part of noise", set_input("3", "denoise", 0.5), "custom_validation_failed", "3",
         "VAEEncode"),
        ("no denoise", set_input("3", "denoise", 0), "custom_validation_failed", "3", "denoise"),
        ("1001 steps", set_input("3", "steps", 1001), "custom_validation_failed", "3",
         "num_inference_steps"),
        ("a huge image", lambda g: g["5"]["inputs"].update(width=16000, height=16000),
         "custom_validation_failed", "5", "limit"),
        ("too many images", set_input("5", "batch_size", 2000), "custom_validation_failed", "5",
         "1000 images"),
        ("another image", lambda g: g.update({
            "10": node("VAEDecode", samples=["3", 0], vae=["4", 2]),
            "11": node("PreviewImage", images=["10", 0])}), "custom_validation_failed", "11",
         "same images"),
        ("latents of a sampler", lambda g: (g.update({"10": copy.deepcopy(g["3"])}), set_input(
            "3", "latent_image", ["10", 0])(g)), "custom_validation_failed", "3", "KSampler"),
        ("guidance", lambda g: (g.update({"10": node(
            "FluxGuidance", conditioning=["6", 0], guidance=3.5)}), set_input(
                "3", "positive", ["10", 0])(g)), "custom_validation_failed", "10", "cfg"),
        ("zeros", lambda g: (g.update({"10": node(
            "ConditioningZeroOut", conditioning=["6", 0])}), set_input(
                "3", "negative", ["10", 0])(g)), "custom_validation_failed", "3", "cfg 1"),
        ("LoRA files", lambda g: (g.update({"10": node(
            "LoraLoaderModelOnly", model=["4", 0], lora_name="x", strength_model=1)}), set_input(
                "3", "model", ["10", 0])(g)), "value_not_in_list", "10", "lora_name"),
        ("a clip layer", lambda g: (g.update({"10": node(
            "CLIPSetLastLayer", clip=["4", 1], stop_at_clip_layer=-2)}), set_input(
                "6", "clip", ["10", 0])(g)), "custom_validation_failed", "10", "-1")]
    for what, change, kind, where, text in cases:
        r = s.post("/prompt", {"prompt": changed(change)})
        error, nodes = r.json.get("error", {}), r.json.get("node_errors", {})
        ok = r.status == 400 and set(error) == {"type", "message", "details", "extra_info"}
        if where is None:
            ok = ok and error["type"] == kind and text in error["message"] + error["details"]
        else:
            own = nodes.get(where, {"errors": [{}]})
            ok = (ok and error["type"] == "prompt_outputs_failed_validation" and
                  own["errors"][0].get("type") == kind and own["dependent_outputs"] in (
                      ["9"], ["11"], []) and
                  own["class_type"] == changed(change)[where]["class_type"] and
                  text in own["errors"][0]["message"] + own["errors"][0]["details"])
        report(ok, f"refused: {what}", r.status, r.body)
    for what, body in (("no prompt", {}), ("a list", {"prompt": []}), ("nothing", {"prompt": {}}),
                       ("a text", {"prompt": "x"}), ("too many nodes", {"prompt": {
                           str(i): node("PrimitiveInt", value=1) for i in range(301)}})):
        r = s.post("/prompt", body)
        report(r.status == 400 and r.json["error"]["message"], f"refused: {what}", r)


def chain(s):
    """As many nodes as a graph may have, one behind the other."""
    g = text_graph(steps=1)
    for i in range(290):
        g[f"r{i}"] = node("RepeatLatentBatch", samples=[f"r{i - 1}" if i else "5", 0], amount=1)
    g["3"]["inputs"]["latent_image"] = ["r289", 0]
    report(len(images_of(s, g)) == 1, "a long chain")
    g["5"] = node("RepeatLatentBatch", samples=["r289", 0], amount=1)
    r = s.post("/prompt", {"prompt": g})
    report(r.status == 400 and b"dependency_cycle" in r.body, "a long cycle", r)


def mutations(s, seed=1, n=150):
    """Graphs with random changes are queued or refused in ComfyUI's form."""
    rng, bad = random.Random(seed), []
    values = [None, True, -1, 1e300, 2**70, "", "x" * 5000, [], {}, ["4", 0], ["9", 0], [4, 0],
              ["4", -1], ["4", 1e9], ["4", 0.5], [["4"], 0], {"a": [1]}, "euler", "\u0000\u1234"]
    for _ in range(n):
        g = rng.choice([text_graph(steps=1), custom_graph("CFGGuider")])
        for _ in range(rng.randint(1, 4)):
            key = rng.choice(list(g))
            inputs = g[key].get("inputs") if isinstance(g[key], dict) else None
            how = rng.randrange(5)
            if how == 0:
                g.pop(key)
            elif how == 1:
                g[key] = rng.choice(values + [node(rng.choice(["KSampler", "LoadImage", ""]))])
            elif inputs:
                name = rng.choice(list(inputs))
                inputs[name if how < 4 else "new"] = rng.choice(values)
            if not g:
                break
        r = s.post("/prompt", {"prompt": g})
        if r.status != 200 and not (r.status in (400, 429) and r.json.get("error", {}).get("type")):
            bad.append((r.status, r.body[:200], g))
    s.post("/queue", {"clear": True})
    s.post("/interrupt", {})
    report(not bad and s.get("/liveness").status == 200, "random graphs", *bad[:2])


# ---- WebSockets and lists ------------------------------------------------------------------------

def sockets(s):
    w = Socket(s.address, "/ws", key="dGhlIHNhbXBsZSBub25jZQ==")
    report(w.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
           "the accepted key of RFC 6455", w.headers)
    w.message()
    w.send(PING, b"hello")
    report(w.frame() == (PONG, b"hello"), "a ping is answered")
    w.send(TEXT, json.dumps({"type": "feature_flags", "data": {}}).encode())
    w.send(TEXT, b"x" * 60000, final=False)
    w.send(BINARY, b"x" * 300)
    w.send(PING, b"")
    report(w.frame() == (PONG, b""), "messages of clients are dropped")
    w.send(CLOSE, struct.pack(">H", 1000))
    report(w.frame() == (CLOSE, struct.pack(">H", 1000)), "close is answered")
    for what, opcode, data, more in (("no mask", TEXT, b"x", {"mask": b""}),
                                     ("an unknown opcode", 3, b"", {}),
                                     ("a long ping", PING, b"x" * 200, {}),
                                     ("a long message", TEXT, b"x" * 70000, {})):
        w = Socket(s.address, "/ws")
        w.message()
        w.send(opcode, data, **more)
        kind, payload = w.frame()
        report(kind == CLOSE and struct.unpack(">H", payload)[0] in (1002, 1009),
               f"closed: {what}", kind, payload)
        w.close()
    for what, headers in (("no upgrade", {}),
                          ("a short key", {"Upgrade": "websocket", "Connection": "Upgrade",
                                           "Sec-WebSocket-Version": "13",
                                           "Sec-WebSocket-Key": "short"}),
                          ("another version", {"Upgrade": "websocket", "Connection": "Upgrade",
                                               "Sec-WebSocket-Version": "8", "Sec-WebSocket-Key":
                                               "dGhlIHNhbXBsZSBub25jZQ=="})):
        r = s.get("/ws", **headers)
        report(r.status == 400 and r.error, f"refused: {what}", r)
    many = [Socket(s.address, f"/ws?clientId={i}") for i in range(20)]
    report(all(m.message()["type"] == "status" for m in many), "many connections")
    for m in many:
        m.close()


def lists(s):
    for prefix in ("", "/api"):
        report("checkpoints" in s.get(prefix + "/models").json and
               s.get(prefix + "/models/checkpoints").json == ["demo-pixart", "other"] and
               s.get(prefix + "/models/loras").json == [] and
               s.get(prefix + "/models/x").status == 404, "models")
        report(s.get(prefix + "/embeddings").json == s.get(prefix + "/extensions").json == [],
               "empty lists")
        one = s.get(prefix + "/object_info/KSampler").json
        report(list(one) == ["KSampler"] and one["KSampler"]["input_order"]["required"][:3] == [
            "model", "seed", "steps"] and one["KSampler"]["output"] == ["LATENT"], "one class")
        report(s.get(prefix + "/object_info/Nope").json == {}, "an unknown class")
        report(s.get(prefix + "/features").json["max_upload_size"] > 0, "features")
    report(s.post("/free", {"unload_models": True}).status == 200, "free")
    report(s.get("/api/v1/models").status == 404 and s.get("/apiprompt").status == 404,
           "only these routes exist below /api")
    info = s.get("/object_info").json
    for name, k in info.items():
        known = {"MODEL", "CLIP", "VAE", "CONDITIONING", "LATENT", "IMAGE", "MASK", "CONTROL_NET",
                 "NOISE", "GUIDER", "SAMPLER", "SIGMAS", "INT", "FLOAT", "STRING", "BOOLEAN"}
        inputs = {**k["input"]["required"], **k["input"].get("optional", {})}
        if not (k["name"] == name and set(k["output"]) <= known and all(
                isinstance(v[0], list) or v[0] in known for v in inputs.values())):
            report(False, f"the class {name}", k)
    report(len(info) > 50, "the classes")


def keys():
    with Server("--api_key", "k", "--api_key", "other") as s:
        mine, other = {"Authorization": "Bearer k"}, {"Authorization": "Bearer other"}
        report(s.post("/prompt", {"prompt": text_graph()}).status == 401 and
               s.get("/view?filename=x").status == 401 and
               Socket(s.address, "/ws").status == 401, "a key is required")
        w = Socket(s.address, "/ws?clientId=a", ["Authorization: Bearer k"])
        report(w.status == 101 and w.message()["type"] == "status", "also for the WebSocket")
        r = s.post("/prompt", {"prompt": text_graph(steps=1), "client_id": "a"}, mine)
        until_end(w, r.json["prompt_id"])
        item = s.get("/history", **mine).json[r.json["prompt_id"]]
        name = item["outputs"]["9"]["images"][0]["filename"]
        report(s.get("/history", **other).json == {} and
               s.get(f"/view?filename={name}", **other).status == 404 and
               s.get(f"/view?filename={name}", **mine).status == 200, "prompts belong to a key")
        s.request("POST", "/interrupt", b"", other)
        began = time.monotonic()
        t = threading.Thread(target=s.stop)
        t.start()
        try:
            while True:
                w.frame()
        except EOFError:
            pass
        t.join()
        report(time.monotonic() - began < 15, "the server ends with an open WebSocket")


def encrypted():
    """A WebSocket over TLS: libmicrohttpd encrypts its bytes."""
    cert, key = str(T / "cert.pem"), str(T / "key.pem")
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
         "-days", "1", "-subj", "/CN=127.0.0.1"], capture_output=True, check=False)
    if made.returncode:
        print("# TLS is not tested: openssl makes no certificate")
        return
    with Server("--tls_cert", cert, "--tls_key", key) as s:
        sockets_ = [Socket(s.address, "/ws?clientId=t", tls=True) for _ in range(3)]
        w = sockets_[0]
        report(w.status == 101 and w.message()["type"] == "status", "a WebSocket over TLS")
        c = http.client.HTTPSConnection(*s.address, timeout=60,
                                        context=ssl._create_unverified_context())
        c.request("POST", "/prompt", json.dumps({"prompt": text_graph(), "client_id": "t"}))
        got = until_end(w, json.loads(c.getresponse().read())["prompt_id"])
        report("executed" in types(got) and "bytes" in types(got), "has all messages", types(got))
        w.send(PING, b"x" * 100)
        while True:     # the length of the queue may come before
            opcode, data = w.frame()
            if opcode != TEXT:
                break
        report((opcode, data) == (PONG, b"x" * 100), "in both directions")
        w.close()
        began = time.monotonic()
        report(s.stop() == 0 and time.monotonic() - began < 30,
               "the server ends with open WebSockets over TLS")


def main():
    shutil.copytree(DEMO, T / "other")
    with Server("--model", str(T / "other")) as s:
        lists(s)
        silly_tavern(s)
        open_webui(s)
        krita(s)
        start_images(s)
        uploads(s)
        queue(s)
        refused(s)
        chain(s)
        sockets(s)
        mutations(s)
    other_models()
    encrypted()
    keys()
    end()


if __name__ == "__main__":
    sys.exit(main())

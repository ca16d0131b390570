#!/usr/bin/env python3
"""clients.py XDIT ROOT - what SillyTavern and Open WebUI send, as they send it: their requests in
their order, with their heads and bodies, and of every answer what they read. Speaks TAP.

SillyTavern: src/endpoints/stable-diffusion.js, openai.js. Open WebUI: routers/images.py."""

import base64
import http.client
import json
import socket
import sys
import time

import openapi
from harness import PROMPT, Reply, Server, end, report, wait_for

API, KEY = "/sdapi/v1", "a key"
NODE = ["User-Agent: node-fetch/1.0 (+https://github.com/bitinn/node-fetch)",
        "Accept-Encoding: gzip,deflate", "Connection: close", "Accept: */*"]
AIOHTTP = ["Accept: */*", "Accept-Encoding: gzip, deflate",
           "User-Agent: Python/3.11 aiohttp/3.13.2"]


def opened(s, method, path, lines, body=None):
    """A connection with a request of these lines, in this order."""
    k = socket.create_connection(s.address, timeout=60)
    head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{s.address[1]}", *lines]
    if body is not None or method == "POST":
        head.append(f"Content-Length: {len(body or b'')}")
    k.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + (body or b""))
    return k


def send(s, method, path, lines, body=None):
    k = opened(s, method, path, lines, body)
    response = http.client.HTTPResponse(k, method=method)
    response.begin()
    reply = Reply(response)
    k.close()
    for complaint in openapi.complaints(method, path, reply):
        report(False, f"{method} {path}: as the document says", complaint)
    return reply


def png(text):
    return base64.b64decode(text)[:4] == b"\x89PNG"


# ---- SillyTavern ---------------------------------------------------------------------------------

def tavern_lines(kind=None):
    basic = base64.b64encode(f"user:{KEY}".encode()).decode()
    return [*([f"Content-Type: {kind}"] if kind else []), f"Authorization: Basic {basic}", *NODE]


def tavern_get(s, route):
    return send(s, "GET", f"{API}/{route}", tavern_lines())


def tavern_post(s, route, fields):
    return send(s, "POST", f"{API}/{route}", tavern_lines("application/json"),
                json.dumps(fields).encode())


def tavern_request(s, **more):
    """All fields of its form, which its server passes on."""
    return {"url": f"http://127.0.0.1:{s.address[1]}", "auth": f"user:{KEY}", "prompt": PROMPT,
            "negative_prompt": "low quality", "sampler_name": "DDIM", "scheduler": "normal",
            "steps": 2, "cfg_scale": 7, "width": 128, "height": 128, "restore_faces": False,
            "enable_hr": False, "hr_upscaler": "Latent", "hr_scale": 2, "denoising_strength": 0.7,
            "hr_second_pass_steps": 0, "override_settings": {"CLIP_stop_at_last_layers": 1},
            "override_settings_restore_afterwards": True, "clip_skip": 1, "save_images": True,
            "send_images": True, "do_not_save_grid": False, "do_not_save_samples": False, **more}


def sillytavern(s):
    report(tavern_get(s, "options").status == 200, "SillyTavern: its ping")
    now = tavern_get(s, "options").json["sd_model_checkpoint"]
    titles = [m["title"] for m in tavern_get(s, "sd-models").json]
    report(now in titles, "its models", titles)
    for route in ("samplers", "schedulers", "upscalers", "latent-upscale-modes"):
        r = tavern_get(s, route)
        report(r.status == 200 and all(isinstance(x["name"], str) for x in r.json), f"its {route}")
    report(all("model_name" in x for x in tavern_get(s, "sd-vae").json), "its autoencoders")
    r = tavern_post(s, "options", {"sd_model_checkpoint": titles[0]})
    p = tavern_get(s, "progress").json
    report(r.status == 200 and p["progress"] == 0 and p["state"]["job_count"] == 0,
           "a model is set, and nothing runs", p)
    r = tavern_post(s, "txt2img", tavern_request(s))
    report(r.status == 200 and png(r.json["images"][0]), "an image", r)
    r = tavern_post(s, "txt2img", tavern_request(s, seed=5, sampler_name="DPM++ 2M",
                                                 scheduler="Karras"))
    report(r.status == 200 and json.loads(r.json["info"])["seed"] == 5, "one of a seed", r)
    k = opened(s, "POST", API + "/txt2img", tavern_lines("application/json"),
               json.dumps(tavern_request(s, steps=1000, width=512, height=512)).encode())
    running = wait_for(lambda: tavern_get(s, "progress").json["state"]["job_count"] == 1)
    began = time.monotonic()
    r = send(s, "POST", API + "/interrupt", tavern_lines())
    k.close()
    report(running and r.status == 200 and wait_for(
        lambda: tavern_get(s, "progress").json["state"]["job_count"] == 0) and
        time.monotonic() - began < 8, "one that nobody waits for is interrupted", r)
    r = send(s, "POST", "/v1/images/generations",
             ["Content-Type: application/json", f"Authorization: Bearer {KEY}", *NODE], json.dumps(
                 {"prompt": PROMPT, "model": "dall-e-3", "size": "128x128", "n": 1, "quality":
                  "standard", "style": "vivid", "response_format": "b64_json"}).encode())
    report(r.status == 200 and png(r.json["data"][0]["b64_json"]), "one of its OpenAI", r)


# ---- Open WebUI ----------------------------------------------------------------------------------

def webui_lines(kind=None):
    basic = base64.b64encode(f"user:{KEY}".encode()).decode()
    return [f"authorization: Basic {basic}", *AIOHTTP, *([f"Content-Type: {kind}"] if kind else [])]


def webui_openai(s, fields):
    return send(s, "POST", "/v1/images/generations",
                [f"Authorization: Bearer {KEY}", "Content-Type: application/json", *AIOHTTP],
                json.dumps(fields).encode())


def webui_edit(s, image):
    """Multipart as aiohttp writes it: a type and a length in every part."""
    mark, body = "c1d3f4a2b5e64f0d9b1f3c5a7e9d2b40", b""
    for name, value in (("model", "gpt-image-1"), ("prompt", "a blue circle"), ("n", "1"),
                        ("response_format", "b64_json")):
        body += (f'--{mark}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: '
                 f'form-data; name="{name}"\r\n\r\n{value}\r\n').encode()
    body += (f'--{mark}\r\nContent-Type: image/png\r\nContent-Disposition: form-data; '
             'name="image"; filename="7c9e6679-7425-40de-944b-e07fc1f90ae7.png"\r\n\r\n').encode()
    return send(s, "POST", "/v1/images/edits",
                [f"Authorization: Bearer {KEY}", *AIOHTTP,
                 f"Content-Type: multipart/form-data; boundary={mark}"],
                body + image + f"\r\n--{mark}--\r\n".encode())


def open_webui(s):
    r = send(s, "GET", API + "/options", webui_lines())
    report(r.status == 200, "Open WebUI: its check of the address", r)
    models = send(s, "GET", API + "/sd-models", webui_lines()).json
    report(models and all(m["title"] and m["model_name"] for m in models), "its models", models)
    options = send(s, "GET", API + "/options", webui_lines()).json
    options["sd_model_checkpoint"] = models[0]["title"]
    r = send(s, "POST", API + "/options", webui_lines("application/json"),
             json.dumps(options).encode())
    report(r.status == 200, "a model is set among all options", r)
    r = send(s, "POST", API + "/txt2img", webui_lines("application/json"), json.dumps(
        {"prompt": PROMPT, "batch_size": 2, "width": 128, "height": 128, "steps": 2,
         "negative_prompt": "low quality"}).encode())
    report(r.status == 200 and [png(i) for i in r.json["images"]] == [True, True] and
           r.json["info"], "two images", r)
    r = webui_openai(s, {"model": "dall-e-2", "prompt": PROMPT, "n": 1, "size": "128x128",
                         "response_format": "b64_json", "seed": 3})
    report(r.status == 200 and png(r.json["data"][0]["b64_json"]), "one of its OpenAI", r)
    image = base64.b64decode(r.json["data"][0]["b64_json"])
    r = webui_openai(s, {"model": "gpt-image-1", "prompt": PROMPT, "n": 1, "size": "auto",
                         "num_inference_steps": 2})
    report(r.status == 200 and png(r.json["data"][0]["b64_json"]), "of a model without a size", r)
    r = webui_openai(s, {"model": "dall-e-2", "prompt": PROMPT, "n": 1, "size": "128x128",
                         "response_format": "url", "seed": 3})
    url = r.json["data"][0]["url"]
    at = url.index("/v1")
    r = send(s, "GET", url[at:], [f"Authorization: Bearer {KEY}", *AIOHTTP])
    report(url[:at] == f"http://127.0.0.1:{s.address[1]}" and r.body == image and
           r.headers["Content-Type"].split("/")[0] == "image", "by its URL", url)
    r = webui_edit(s, image)
    report(r.status == 200 and png(r.json["data"][0]["b64_json"]), "an edit", r)


def main():
    with Server("--api_key", KEY) as s:
        sillytavern(s)
        open_webui(s)
    with Server() as s:         # Open WebUI has a head for keys also where it has none
        r = send(s, "GET", API + "/options", ["authorization: ", *AIOHTTP])
        report(r.status == 200, "a server without keys", r)
    end()


if __name__ == "__main__":
    sys.exit(main())

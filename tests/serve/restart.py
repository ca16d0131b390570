#!/usr/bin/env python3
"""restart.py XDIT ROOT FILL - what a server with --results still has when it starts again, after an
end and after a kill: finished videos, failures, and what was queued. Speaks TAP."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

from harness import ROOT, T, Server, end, report, wait_for

FAST = {"prompt": "a cat", "num_inference_steps": 2, "output_format": "gif"}
LONG = {**FAST, "num_inference_steps": 300}


def status(s, name):
    return s.get(f"/v1/videos/{name}").json.get("status")


def start(model, folder, *more):
    return Server("--dtype", "f32", "--results", str(folder), *more, model=str(model))


def fill(s):
    """Ids: finished, failed, running, two that wait."""
    made = s.post("/v1/videos", FAST).json["id"]
    wrong = s.post("/v1/videos", {**FAST, "size": "50x40"}).json["id"]
    wait_for(lambda: status(s, wrong) == "failed")
    ids = [s.post("/v1/videos", f).json["id"] for f in (LONG, FAST, {**FAST, "seed": 3})]
    wait_for(lambda: status(s, ids[0]) == "in_progress")
    return made, wrong, ids


def again(model, folder, sig):
    with start(model, folder) as s:
        made, wrong, ids = fill(s)
        before = s.get(f"/v1/videos/{made}").json
        content = s.get(f"/v1/videos/{made}/content").body
        error = s.get(f"/v1/videos/{wrong}").json["error"]
        s.process.send_signal(sig)
        s.process.wait(90)
    with start(model, folder) as s:
        report(s.get(f"/v1/videos/{made}").json == before and
               s.get(f"/v1/videos/{made}/content").body == content, f"signal {sig}: a finished one")
        report(s.get(f"/v1/videos/{wrong}").json["error"] == error, "a failed one")
        done = wait_for(lambda: all(status(s, i) == "completed" for i in ids), 60)
        report(done, "what was queued is made", [s.get(f"/v1/videos/{i}").json for i in ids])
        other = s.get(f"/v1/videos/{ids[2]}").json["parameters"]
        report(other["seed"] == 3 and s.get(f"/v1/videos/{ids[2]}/content").body != content,
               "as it was asked for", other)
        listed = [v["id"] for v in s.get("/v1/videos?order=asc").json["data"]]
        report(listed[-5:] == [made, wrong, *ids], "in their order", listed)
        for i in (made, wrong, *ids):
            s.request("DELETE", f"/v1/videos/{i}")
    report(not list(folder.iterdir()), "deleted ones leave nothing", list(folder.iterdir()))


def continued(model, folder):
    """A video that a killed server was making goes on after its last checkpoint, and is the video
    that another server makes at once. It takes several times the seconds between two saves."""
    folder.mkdir()
    fields = {**LONG, "num_inference_steps": 1000, "num_frames": 49, "seed": 5}
    with start(model, folder) as s:
        name = s.post("/v1/videos", fields).json["id"]
        there = wait_for(lambda: list(folder.glob(f"{name}.saved/image-*.safetensors")), 60)
        report(there, "a running request has a checkpoint", s.get(f"/v1/videos/{name}").json)
        s.process.kill()
        s.process.wait()
    with start(model, folder, "--verbose") as s:
        done = wait_for(lambda: status(s, name) == "completed", 240)
        report(done and re.search(r"image 1 continues after step \d+ of 1000", s.said()),
               "the killed server's video goes on", s.said())
        other = s.post("/v1/videos", fields).json["id"]
        wait_for(lambda: status(s, other) == "completed", 240)
        made = [s.get(f"/v1/videos/{i}/content").body for i in (name, other)]
        report(made[0] == made[1], "and is that of an undisturbed one")
        third = s.post("/v1/videos", fields).json["id"]
        wait_for(lambda: list(folder.glob(f"{third}.saved/image-*.safetensors")), 60)
        s.process.kill()
        s.process.wait()
    saved = next(folder.glob(f"{third}.saved/image-*.safetensors"))
    saved.write_bytes(saved.read_bytes()[:100])
    with start(model, folder) as s:
        report(wait_for(lambda: status(s, third) == "completed", 240),
               "it begins again without a whole checkpoint", s.said())
        for i in (name, other, third):
            s.request("DELETE", f"/v1/videos/{i}")
    report(not list(folder.iterdir()), "nothing is left of checkpoints", list(folder.iterdir()))


def images(folder):
    """An image that a killed server was asked for, from an image that the client sent."""
    with Server("--results", str(folder)) as s:
        r = s.post("/v1/images/generations", {"prompt": "a", "num_inference_steps": 1,
                                              "response_format": "url"})
        url = r.json["data"][0]["url"]
        body = json.dumps({"prompt": "a", "num_inference_steps": 999, "strength": 0.9, "size":
                           "512x512", "image": base64.b64encode(
                               s.get(url[url.index("/v1"):]).body).decode()}).encode()
        with socket.create_connection(s.address) as k:
            k.sendall(f"POST /v1/images/edits HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                      f"application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_for(lambda: s.metric("running") == 1)
            s.process.kill()
            s.process.wait()
    with Server("--results", str(folder)) as s:
        path = url[url.index("/v1"):]
        report(s.get(path).body[:4] == b"\x89PNG", "a finished image by its URL")
        report(wait_for(lambda: s.metric("running") == 1), "the killed one runs again")
        s.post("/sdapi/v1/interrupt", {})


def order(model, folder):
    """Priorities and deadlines of what was queued hold after a kill."""
    folder.mkdir()
    with start(model, folder) as s:
        long = s.post("/v1/videos", LONG).json["id"]
        wait_for(lambda: status(s, long) == "in_progress")
        ids = [s.post("/v1/videos", {**FAST, "seed": i, "priority": p}).json["id"]
               for i, p in enumerate(("low", "normal", "high"))]
        late = s.post("/v1/videos", {**FAST, "priority": "low", "deadline": 1.5}).json["id"]
        s.process.kill()
        s.process.wait()
    time.sleep(2)
    with start(model, folder) as s:
        wait_for(lambda: all(status(s, i) == "completed" for i in ids), 60)
        began = [json.loads((folder / f"{i}.task").read_text())["started"] for i in ids]
        report(began[0] > began[1] > began[2] > 0, "the higher priority goes first", began)
        r = s.get(f"/v1/videos/{late}").json
        report(r["status"] == "cancelled" and "deadline" in json.dumps(r),
               "a deadline that passed meanwhile", r)


def odd_files(folder):
    folder.mkdir()
    for name, text in (("a.task", ""), ("b.task", "{}"), ("c.task", '{"id":"../x","state":"done"}'),
                       ("d.task", "[" * 5000), ("e.txt", "mine")):
        (folder / name).write_text(text)
    (folder / "f.task").mkdir()
    with Server("--results", str(folder)) as s:
        report(s.get("/health").status == 200 and s.said().count("is ignored") == 5,
               "files of others are left alone", s.said())
    report(len(list(folder.iterdir())) == 6, "and are still there")


def kept(name, folder, **more):
    """What a server would have kept of an image that has failed."""
    return json.dumps({
        "video": False, "created": 1, "started": 1, "ended": time.time(), "code": 2, "id": name,
        "state": "failed", "model": "m", "prompt": "a", "owner": "", "error": "it broke",
        "args": [f"--id={name}", "--video=false", "--prompt=a", "--model=m",
                 f"--output={folder}/{name}.png"], "done": [], **more})


def changed_files(folder):
    """Files of tasks that somebody else has written, or changed."""
    folder.mkdir()
    victim = T / "victim"
    victim.write_text("mine")
    image = {"width": 8, "height": 8, "frames": 1, "fps": 0, "seed": "7", "json": "{}",
             "parameters": ""}
    names = [f"image_{i:024x}" for i in range(8)]
    args = json.loads(kept(names[0], folder))["args"]
    texts = [kept(names[0], folder, args=[*args, f"--image={victim}"], state="queued"),
             kept(names[1], folder, done=[{**image, "file": "../victim"}], state="done"),
             kept(names[2], folder, done=[{**image, "file": names[2], "seed": '7,"a":1'}]),
             kept(names[3], folder, args=[*args[:4], f"--output={victim}"], state="queued"),
             kept(names[4], folder), kept(names[5], folder), kept("image_0", folder),
             kept(names[7], folder)]
    for name, text in zip(names, texts):
        (folder / f"{name}.task").write_text(text)
    (folder / f"{names[4]}.task").chmod(0o666)
    (folder / f"{names[5]}.task").rename(T / "elsewhere")
    (folder / f"{names[5]}.task").symlink_to(T / "elsewhere")
    with Server("--results", str(folder), "--keep", "1") as s:
        report(s.said().count("is ignored") == 7, "changed files are left alone", s.said())
        report(wait_for(lambda: not (folder / f"{names[7]}.task").exists()),
               "one that is as it was is taken, and expires")
        report(s.metric("running") == 0 and s.metric("queue_length") == 0, "nothing of them runs")
    report(victim.read_text() == "mine", "and no file of others is touched")


def halves(folder):
    """Incomplete files of a killed server go when no server is alive that may still write them."""
    folder.mkdir()
    half, mine = folder / f"image_{7:024x}.png.tmpAbCdEf", folder / "mine.tmpAbCdEf"
    half.write_text("half")
    mine.write_text("mine")
    with Server("--results", str(folder)) as s:
        report(not half.exists() and mine.exists(), "halves of a server's files go, and no other",
               list(folder.iterdir()))
        half.write_text("half")
        with Server("--results", str(folder)):
            report(half.exists(), "a second one does not know whose they are")
        report(s.get("/health").status == 200, "and disturbs no other")


def dead_folders():
    """What a killed server has in memory goes when the next one starts."""
    os.environ["TMPDIR"] = str(T)
    with Server() as living:
        mine = set(T.glob("xdit-server-*"))
        s = Server()
        s.post("/v1/images/generations", {"prompt": "a", "num_inference_steps": 1,
                                          "response_format": "url"})
        dead = set(T.glob("xdit-server-*")) - mine
        s.process.kill()
        s.process.wait()
        report(len(mine) == 1 and len(dead) == 1 and all(list(d.glob("*.png")) for d in dead),
               "a killed server leaves a folder", mine, dead)
        other = T / "xdit-server-a-file"
        other.write_text("mine")
        with Server():
            report(not any(d.exists() for d in dead) and all(d.exists() for d in mine) and
                   other.exists(), "the next one removes it, and no other", list(T.iterdir()))
        report(living.get("/health").status == 200, "a living one is not touched")
    report(list(T.glob("xdit-server-*")) == [other], "and nothing is left", list(T.iterdir()))


def main():
    model = T / "cog"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "cog2b"), str(model)], check=True,
                   stdout=subprocess.DEVNULL)
    for sig in (signal.SIGKILL, signal.SIGTERM):
        folder = T / f"results-{sig}"
        folder.mkdir()
        again(model, folder, sig)
    folder = T / "images"
    folder.mkdir()
    images(folder)
    continued(model, T / "continued")
    order(model, T / "order")
    odd_files(T / "odd")
    changed_files(T / "changed")
    halves(T / "two")
    dead_folders()
    end()


if __name__ == "__main__":
    sys.exit(main())

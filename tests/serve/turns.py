#!/usr/bin/env python3
"""turns.py XDIT ROOT FILL - many requests at a time: short ones pass long ones between two steps,
ranks work by themselves, priorities, deadlines, keys. The images stay those of the command line.
FILL makes a tiny model of videos. Speaks TAP."""

import base64
import os
import signal
import subprocess
import sys
import threading
import time

from harness import DEMO, ROOT, Server, T, end, generate, pixels, report, wait_for

LONG = {"prompt": "a long one", "size": "256x256", "num_inference_steps": 1000, "seed": 1}
SHORT = {"prompt": "a red circle", "size": "64x64", "num_inference_steps": 4}
IMAGES = "/v1/images/generations"


class Asked(threading.Thread):
    """A request in the background."""

    def __init__(self, server, fields, path=IMAGES, **headers):
        super().__init__()
        self.server, self.fields, self.path, self.headers = server, fields, path, headers
        self.reply, self.ended = None, 0
        self.start()

    def run(self):
        self.reply = self.server.post(self.path, self.fields, self.headers)
        self.ended = time.monotonic()

    def wait(self):
        self.join()
        return self

    @property
    def image(self):
        return base64.b64decode(self.reply.json["data"][0]["b64_json"])


def by_command_line(seed):
    return pixels(generate("--prompt", SHORT["prompt"], "--width", "64", "--height", "64",
                           "--steps", "4", "--seed",
                           str(seed)))


def is_running(s):
    return wait_for(lambda: s.metric("running") == 1, 30)


def passes(s, want, what):
    """Short requests beside a long one, which is returned."""
    long = Asked(s, LONG)
    is_running(s)
    shorts = [Asked(s, {**SHORT, "seed": i}) for i in range(3)]
    for i, a in enumerate(shorts):
        a.wait()
        report(a.reply.status == 200 and pixels(a.image) == want[i],
               f"{what}: short one {i} passes, with the pixels of the command line", a.reply)
    report(s.metric("running") == 1, f"{what}: the long one is not done")
    return long


def one_rank(want):
    with Server("--threads", "1") as s:
        long = passes(s, want, "one rank")
        deadline = s.post(IMAGES, {**SHORT, "seed": 1, "deadline": 0.000001})
        report(deadline.status == 409 and "deadline" in deadline.error,
               "a deadline that has passed", deadline)
        for field in ({"priority": "urgent"}, {"deadline": "soon"}, {"deadline": -1}):
            r = s.post(IMAGES, {**SHORT, **field})
            report(r.status == 400 and next(iter(field)) in r.error, f"refused: {field}", r)
        report(s.post("/sdapi/v1/interrupt", {}).status == 200, "interrupted")
        long.wait()
        report(long.reply.status == 409, "the long one is cancelled, also while it waits",
               long.reply)


def priorities():
    """Of requests that wait together: the high ones first, then the others, then the low ones."""
    with Server("--threads", "1") as s:
        s.post(IMAGES, SHORT)
        first = Asked(s, {**LONG, "num_inference_steps": 60, "priority": "high"})
        is_running(s)
        asked = [(p, Asked(s, {**SHORT, "num_inference_steps": 60, "priority": p, "seed": i}))
                 for i, p in enumerate(("low", "normal", "high"))]
        order = [p for p, a in sorted(asked, key=lambda pair: pair[1].wait().ended)]
        first.wait()
        report(order == ["high", "normal", "low"], "priorities", order)


def fairness():
    """Who has asked for much already waits for who has not."""
    with Server("--threads", "1", "--api_key", "one", "--api_key", "two") as s:
        def ask(key, i):
            return Asked(s, {**SHORT, "num_inference_steps": 40, "seed": i},
                         Authorization=f"Bearer {key}")
        ask("one", 0).wait()
        ask("two", 0).wait()
        many = [ask("one", i) for i in range(10)]
        time.sleep(0.05)
        other = ask("two", 50).wait()
        late = sum(a.wait().ended > other.ended for a in many)
        report(late >= 3, f"another key passes {late} of 10 requests of the first one")


def two_ranks(want):
    with Server("--nproc", "2", "--ulysses_degree", "2") as s:
        got = [s.post(IMAGES, {**SHORT, "seed": i}) for i in range(3)]
        report([pixels(base64.b64decode(r.json["data"][0]["b64_json"])) for r in got] == want,
               "two ranks together")
        asked = [Asked(s, {**SHORT, "seed": i % 3}) for i in range(24)]
        same = [pixels(a.wait().image) == want[i % 3] for i, a in enumerate(asked)]
        report(all(same), "24 requests at a time have the same pixels", same)
        plans = [a.reply.json["data"][0]["parameters"]["plan"] for a in asked]
        report("1 rank" in plans, "some by one rank each", plans)
        long = passes(s, want, "two ranks")
        for pid in s.workers()[-1:]:
            os.kill(pid, signal.SIGKILL)
        long.wait()
        report(long.reply.status == 500 and "signal 9" in long.reply.error,
               "a rank dies: the running one fails with a sentence", long.reply)
        report(wait_for(lambda: s.post(IMAGES, SHORT).status == 200, 10), "and new ranks go on")


def dies_apart(want):
    """A rank dies while each works by itself: what it had begun fails, the rest is done."""
    with Server("--nproc", "2", "--ulysses_degree", "2") as s:
        s.post(IMAGES, SHORT)
        asked = [Asked(s, {**SHORT, "num_inference_steps": 100, "seed": i % 3}) for i in range(12)]
        time.sleep(0.6)
        for pid in s.workers()[-1:]:
            os.kill(pid, signal.SIGKILL)
        status = [a.wait().reply.status for a in asked]
        report(set(status) <= {200, 500} and status.count(500) <= 2,
               "every request has a result or a sentence", status)
        r = s.post(IMAGES, {**SHORT, "seed": 2})
        report(r.status == 200, "and the server goes on", r)


def beside_a_video(want, fill):
    video = T / "wan"
    subprocess.run([fill, str(ROOT / "tests" / "golden" / "wan"), str(video)], check=True,
                   stdout=subprocess.DEVNULL)
    with Server("--threads", "1", "--model", DEMO, model=str(video)) as s:
        long = s.post("/v1/videos", {"prompt": "a cat", "num_inference_steps": 1000,
                                     "output_format": "gif"})
        report(long.status == 200, "a video has begun", long)
        path = f"/v1/videos/{long.json['id']}"
        wait_for(lambda: s.get(path).json["status"] == "in_progress", 30)
        for i in range(3):
            r = s.post(IMAGES, {**SHORT, "model": "demo-pixart", "seed": i})
            report(r.status == 200 and
                   pixels(base64.b64decode(r.json["data"][0]["b64_json"])) == want[i],
                   f"image {i} passes a video of another model", r)
        report(s.get(path).json["status"] == "in_progress", "the video is not done")
        s.post(path + "/cancel", {})
        report(wait_for(lambda: s.get(path).json["status"] == "cancelled", 20), "and is cancelled")
        passes_decoding(s, want[0])


def passes_decoding(s, want):
    """Decoding takes nine tenths of this video: an image passes it between two frames."""
    fields = {"prompt": "a cat", "num_inference_steps": 1, "num_frames": 81, "size": "128x128",
              "output_format": "gif", "seed": 3}
    alone = s.post("/v1/videos/sync", fields)
    long = s.post("/v1/videos", fields)
    path = f"/v1/videos/{long.json['id']}"
    decodes = wait_for(lambda: s.get("/sdapi/v1/progress").json["textinfo"] == "decode", 30)
    r = s.post(IMAGES, {**SHORT, "model": "demo-pixart", "seed": 0})
    after = s.get(path).json["status"]
    report(decodes and r.status == 200 and after == "in_progress" and
           pixels(base64.b64decode(r.json["data"][0]["b64_json"])) == want,
           "an image passes the decoding of a video", decodes, after, r)
    report(wait_for(lambda: s.get(path).json["status"] == "completed", 30) and
           s.get(path + "/content").body == alone.body, "which is the video without it")


def main():
    want = [by_command_line(i) for i in range(3)]
    one_rank(want)
    priorities()
    fairness()
    beside_a_video(want, sys.argv[3])
    if subprocess.run(["sh", "-c", "command -v mpirun"], capture_output=True,
                      check=False).returncode == 0:
        two_ranks(want)
        dies_apart(want)
    else:
        print("# SKIP two ranks: there is no mpirun")
    end()


main()

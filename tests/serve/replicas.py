#!/usr/bin/env python3
"""replicas.py XDIT ROOT - several servers with one --results: each answers for all, the work of a
dead or stopped one is done once by another, and a key makes a request once. Speaks TAP."""

import concurrent.futures
import os
import signal
import time

from harness import PROMPT, T, Server, end, generate, image_of, pixels, report, wait_for

STEPS = 60              # of a request that runs for seconds
FAST = {"prompt": PROMPT, "num_inference_steps": 2, "size": "256x256", "seed": 3}
LONG = {**FAST, "num_inference_steps": STEPS}
DEAD_S = 10             # as in app/serve/replica.h


def start(folder, *more):
    return Server("--results", str(folder), *more)


def job(s, fields, key=None):
    headers = {"Idempotency-Key": key} if key else {}
    return s.post("/v1/images/generations", {**fields, "wait": False}, headers)


def state(s, name):
    return s.get(f"/v1/jobs/{name}").json.get("status")


def content(s, name):
    return s.get(f"/v1/jobs/{name}/content").body


def made(*servers):
    return sum(s.metric('jobs_total{state="done"}') for s in servers)


def of_command_line(steps):
    return pixels(generate("--prompt", PROMPT, "--num_inference_steps", str(steps),
                           "--width", "256", "--height", "256", "--seed", "3"))


def shared(a, b):
    """What one server has made, and what it makes, the other one knows."""
    name = job(a, FAST).json["id"]
    report(wait_for(lambda: state(b, name) == "completed", 60), "the other server knows a result")
    report(content(a, name) == content(b, name) != b"" and
           pixels(content(b, name)) == of_command_line(2), "the same bytes")
    slow = job(a, LONG).json["id"]
    step = wait_for(lambda: 0 < b.get(f"/v1/jobs/{slow}").json.get("step", 0) < STEPS, 60)
    report(step and state(b, slow) == "in_progress", "and the progress of a running one")
    listed = [v["id"] for v in b.get("/v1/jobs").json["data"]]
    report(listed[:2] == [slow, name], "and lists both", listed)
    b.post(f"/v1/jobs/{slow}/cancel", {})
    report(wait_for(lambda: state(a, slow) == "cancelled", 30), "and cancels it", state(a, slow))
    for n in (name, slow):
        b.request("DELETE", f"/v1/jobs/{n}")
        report(a.get(f"/v1/jobs/{n}").status == 404, "deleted by one, gone for the other")


def keys(a, b):
    """A request with one key is made once, wherever it comes from."""
    before = made(a, b)
    first = job(a, FAST, "key 1").json["id"]
    again = job(b, FAST, "key 1").json.get("id")
    report(first == again, "the same key is the same job", first, again)
    other = job(b, {**FAST, "seed": 4}, "key 1")
    report(other.status == 422 and "Idempotency-Key" in other.error, "another request is refused",
           other)
    report(job(a, FAST, "x" * 256).status == 400, "a key that is too long is refused")
    free = {k: v for k, v in FAST.items() if k != "seed"}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: [a, b][i % 2].post(
            "/v1/images/generations", free, {"Idempotency-Key": "key 2"}), range(8)))
    report(all(r.status == 200 for r in replies) and
           len({image_of(r) for r in replies}) == 1, "eight at once get the same image",
           [r.status for r in replies])
    report(made(a, b) - before == 2, "and each was made once", made(a, b) - before)
    report(job(b, FAST, "key 3").json["id"] != first, "another key, another job")


def killed(folder, b):
    """A server dies: another one makes what it had, from the last checkpoint."""
    with start(folder) as a:
        running, waiting = job(a, LONG).json["id"], job(a, FAST).json["id"]
        wait_for(lambda: state(a, running) == "in_progress", 60)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            lost = pool.submit(a.post, "/v1/images/generations", {**FAST, "seed": 9},
                               {"Idempotency-Key": "key 4"})
            wait_for(lambda: a.metric("queue_length") == 2)
            a.process.kill()
            a.process.wait()
            report(lost.exception() is not None, "a killed server's client is cut off")
    again = b.post("/v1/images/generations", {**FAST, "seed": 9}, {"Idempotency-Key": "key 4"})
    report(again.status == 200, "and gets its image from another one by its key", again)
    report(wait_for(lambda: state(b, running) == state(b, waiting) == "completed", 120),
           "what ran and waited is made", state(b, running), state(b, waiting))
    report(pixels(content(b, running)) == of_command_line(STEPS) and
           pixels(content(b, waiting)) == of_command_line(2), "with the bytes of the command line")


def stopped(folder, b):
    """A server stands still, counts as dead, and goes on: it makes nothing again."""
    with start(folder) as a:
        before = made(b)
        running, waiting = job(a, LONG).json["id"], job(a, FAST).json["id"]
        wait_for(lambda: state(a, running) == "in_progress", 60)
        group = [a.process.pid, *a.workers()]
        for p in group:
            os.kill(p, signal.SIGSTOP)
        taken = wait_for(lambda: state(b, running) == state(b, waiting) == "completed",
                         DEAD_S + 120)
        report(taken, "what a stopped server had is made", b.get(f"/v1/jobs/{running}").json,
               b.said())
        right = content(b, running)
        for p in group:
            os.kill(p, signal.SIGCONT)
        report(wait_for(lambda: a.metric("running") == 0, 30), "it gives up when it goes on")
        time.sleep(3)
        report(state(a, running) == state(a, waiting) == "completed" and
               made(a) == 0 and made(b) - before == 2, "nothing is made twice", made(a), made(b))
        report(content(a, running) == content(b, running) == right and
               pixels(right) == of_command_line(STEPS), "and the bytes are right")
        name = job(a, FAST).json["id"]
        report(wait_for(lambda: state(b, name) == "completed", 60) and made(a) == 1,
               "it accepts requests again")


def drained(folder, b):
    """A server ends: what waits is handed to the others."""
    with start(folder, "--drain_seconds", "300") as a:
        running = job(a, LONG).json["id"]
        wait_for(lambda: state(a, running) == "in_progress", 60)
        waiting = job(a, {**FAST, "seed": 11}).json["id"]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            kept = pool.submit(a.post, "/v1/images/generations", {**FAST, "seed": 12},
                               {"Idempotency-Key": "key 5"})
            plain = pool.submit(a.post, "/v1/images/generations", {**FAST, "seed": 13})
            wait_for(lambda: a.metric("queue_length") == 3)
            a.process.send_signal(signal.SIGTERM)
            replies = [kept.result(), plain.result()]
        report([r.status for r in replies] == [503, 503], "clients that wait are told to repeat",
               replies)
        report(a.process.wait(300) == 0, "the server ends with 0")
        report(state(b, running) == "completed", "after its running request", state(b, running))
    again = b.post("/v1/images/generations", {**FAST, "seed": 12}, {"Idempotency-Key": "key 5"})
    report(again.status == 200 and wait_for(lambda: state(b, waiting) == "completed", 60),
           "another server makes the rest", again)


def names(folder):
    """--served_model_name: the first name and the others."""
    with start(folder, "--served_model_name", "painter", "--served_model_name", "demo") as s:
        ids = [m["id"] for m in s.get("/v1/models").json["data"]]
        report(ids == ["painter", "demo"], "all names are listed", ids)
        r = job(s, {**FAST, "model": "demo"})
        report(r.status == 202 and r.json["model"] == "painter", "an alias is accepted", r)
        report(job(s, {**FAST, "model": "demo-pixart"}).status == 404, "the folder's name is not")


folder = T / "shared"
folder.mkdir()
with start(folder) as b:
    with start(folder) as a:
        shared(a, b)
        keys(a, b)
    killed(folder, b)
    stopped(folder, b)
    drained(folder, b)
    for v in b.get("/v1/jobs?limit=100").json["data"]:
        b.request("DELETE", f"/v1/jobs/{v['id']}")
    left = [p.name for p in folder.iterdir() if p.suffix != ".lease"]
    report(not left, "deleted ones leave nothing", left)
report(not list(folder.iterdir()), "nor do servers", list(folder.iterdir()))
names(folder)
end()

#!/usr/bin/env python3
"""faults.py XDIT ROOT - what breaks while a server works: clients that go, a full queue, workers
that are killed, the end of the server. Speaks TAP."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from harness import DEMO, PROMPT, T, XDIT, Server, end, report, wait_for

GEN = "/v1/images/generations"
FAST = {"prompt": PROMPT, "num_inference_steps": 1, "response_format": "url"}
LONG = {**FAST, "num_inference_steps": 1000, "size": "512x512"}


def in_background(s, fields, replies):
    t = threading.Thread(target=lambda: replies.append(s.post(GEN, fields)))
    t.start()
    return t


def send_only(s, fields):
    """A connection that has asked and not read."""
    body = json.dumps(fields).encode()
    k = socket.create_connection(s.address)
    k.sendall(f"POST {GEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
              f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return k


def clients_that_go(s):
    for what, fields in (("a client", LONG), ("one that reads events", {**LONG, "stream": True})):
        before = s.metric('jobs_total{state="cancelled"}')
        k = send_only(s, fields)
        report(wait_for(lambda: s.metric("running") == 1), f"{what} asks")
        k.close()
        began = time.monotonic()
        gone = wait_for(lambda: s.metric('jobs_total{state="cancelled"}') == before + 1)
        report(gone and s.metric("running") == 0, f"{what} goes: its job is cancelled",
               time.monotonic() - began)
    k = send_only(s, LONG)
    waiting = send_only(s, LONG)
    report(wait_for(lambda: s.metric("queue_length") == 1), "one waits")
    waiting.close()
    report(wait_for(lambda: s.metric("queue_length") == 0) and s.metric("running") == 1,
           "one that waits goes: the other one runs on")
    k.close()
    report(s.post(GEN, FAST).status == 200, "the next one is served")


def full_queue():
    with Server("--queue", "2") as s:
        held = []
        for i in range(3):
            held.append(send_only(s, LONG))
            wait_for(lambda: s.metric("running") == 1 and s.metric("queue_length") == i)
        r = s.post(GEN, FAST)
        report(r.status == 429 and int(r.headers["Retry-After"]) >= 1 and
               "2 requests wait" in r.error,
               "a full queue: 429", r)
        for k in held:
            k.close()
        report(wait_for(lambda: s.metric("running") == 0, 30), "all of them go")
        report(s.post(GEN, FAST).status == 200, "and there is room again")


def killed_workers(args, ranks):
    with Server(*args) as s:
        for who in range(ranks):
            replies = []
            t = in_background(s, LONG, replies)
            wait_for(lambda: s.metric("running") == 1)
            time.sleep(0.3)
            before = s.workers()
            os.kill(before[-1 - who], signal.SIGKILL)
            began = time.monotonic()
            t.join(30)
            report(replies and replies[0].status == 500 and
                   "killed by signal 9" in replies[0].error,
                   f"a rank of {ranks} is killed: a sentence", replies)
            r = s.post(GEN, FAST)
            took = time.monotonic() - began
            report(r.status == 200 and took < 10, "and the next request is served in 10 s", r, took)
            report(wait_for(lambda: not set(s.workers()) & set(before)), "by other processes",
                   before, s.workers())
        report(s.metric("worker_restarts_total") == ranks, "restarts are counted")


def idle_worker_killed():
    with Server() as s:
        os.kill(s.workers()[0], signal.SIGKILL)
        report(wait_for(lambda: s.metric("worker_restarts_total") == 1), "an idle one is noticed")
        report(wait_for(lambda: s.get("/health").status == 200), "and replaced")
        report(s.post(GEN, FAST).status == 200, "and serves")


def the_end():
    os.environ["TMPDIR"] = str(T)
    for sig in (signal.SIGTERM, signal.SIGINT):
        s = Server("--drain_seconds", "200")
        replies = []
        running = in_background(s, {**FAST, "num_inference_steps": 30, "size": "512x512"}, replies)
        wait_for(lambda: s.metric("running") == 1)
        waiting = in_background(s, LONG, replies)
        wait_for(lambda: s.metric("queue_length") == 1)
        s.process.send_signal(sig)
        gone = wait_for(lambda: s.get("/health").status == 503)
        health, late = s.get("/health"), s.post(GEN, FAST)
        report(gone and health.json["status"] == "draining" and s.get("/liveness").status == 200,
               f"signal {sig}: the server drains", health)
        report(late.status == 503 and int(late.headers["Retry-After"]) >= 1,
               "a new request is refused with Retry-After", late)
        rc = s.stop(0, 200)
        running.join()
        waiting.join()
        codes = sorted(r.status for r in replies)
        report(all("Retry-After" in r.headers for r in replies if r.status == 503),
               "the waiting one with Retry-After", replies)
        report(rc == 0 and codes == [200, 503], f"signal {sig}: the running one ends well, the "
               "waiting one is told", rc, replies)
        report(not list(T.glob("xdit-server-*")), "no file is left")
    s = Server()
    workers = s.workers()
    s.process.kill()
    s.process.wait()
    report(wait_for(lambda: not any(os.path.exists(f"/proc/{p}") for p in workers)),
           "a killed server takes its worker along", workers)


def launcher():
    """Ranks of a typed mpirun do not become servers."""
    if not shutil.which("mpirun.openmpi"):
        print("# no mpirun.openmpi: serve under a launcher is not run")
        return
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    p = subprocess.run(["mpirun.openmpi", "--oversubscribe", "-n", "2", XDIT, "serve", "--model",
                        DEMO, "--port", "0"], capture_output=True, text=True, timeout=60, env=env,
                       check=False)
    report(p.returncode == 2 and p.stderr.count("give --nproc 2") == 1 and not p.stdout,
           "ranks of mpirun are refused with the cure, once", p)


def main():
    with Server() as s:
        clients_that_go(s)
    full_queue()
    killed_workers([], 1)
    killed_workers(["--ulysses_degree", "2"], 2)
    idle_worker_killed()
    the_end()
    launcher()
    end()


if __name__ == "__main__":
    sys.exit(main())

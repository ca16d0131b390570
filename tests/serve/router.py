#!/usr/bin/env python3
"""router.py XDIT ROOT [REQUESTS] - three servers behind a real nginx and a real HAProxy, with the
files of packaging/router, while servers are killed, drained and started again: every request gets
the bytes of the command line, and is generated once. Speaks TAP; REQUESTS for each router."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from harness import PROMPT, ROOT, T, Reply, Server, end, generate, image_of, pixels, report

REQUESTS = int(sys.argv[3]) if len(sys.argv) > 3 else 24
SEEDS, CLIENTS = 4, 6
FIELDS = {"prompt": PROMPT, "num_inference_steps": 2, "size": "128x128"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def config(name, ports, port):
    """A configuration of packaging/router with the addresses of this machine."""
    text = (ROOT / "packaging" / "router" / name).read_text()
    for i, p in enumerate(ports, 1):
        text = text.replace(f"10.0.0.{i}:8080", f"127.0.0.1:{p}")
    text = re.sub(r"listen 80;", f"listen 127.0.0.1:{port};", text)
    text = re.sub(r"bind :80\b", f"bind 127.0.0.1:{port}", text)
    path = T / name
    path.write_text(text)
    return path


def nginx(ports, port):
    base = T / "nginx"
    base.mkdir(exist_ok=True)
    places = "".join(f"{kind}_temp_path {base}/{kind};" for kind in
                     ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = config("nginx.conf", ports, port)
    path.write_text(path.read_text().replace("http {", f"http {{ access_log off; {places}", 1))
    return ["nginx", "-p", str(base), "-c", str(path), "-e", str(T / "nginx.log"), "-g",
            f"daemon off; pid {base}/pid;" + (" user root;" if os.geteuid() == 0 else "")]


def haproxy(ports, port):
    return ["haproxy", "-db", "-f", str(config("haproxy.cfg", ports, port))]


class Fleet:
    """Three servers on fixed ports."""

    def __init__(self, folder):
        self.folder, self.ports = folder, [free_port() for _ in range(3)]
        self.servers = [self.start(i) for i in range(3)]
        self.lock = threading.Lock()

    def start(self, i):
        return Server("--results", str(self.folder), "--port", str(self.ports[i]), "--queue", "6",
                      "--drain_seconds", "60")

    def disturb(self, stop, events):
        """Kills, drains or stops one server after the other, until told to end."""
        chance = random.Random(1)
        while not stop.wait(2):
            i = events[0] % 3
            what = ("kill", "drain", "pause")[chance.randrange(3)] if events[0] else "kill"
            s = self.servers[i]
            if what == "pause":
                s.process.send_signal(signal.SIGSTOP)
                stop.wait(3)
                s.process.send_signal(signal.SIGCONT)
            else:
                s.process.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
                s.process.wait(120)
                self.servers[i] = self.start(i)
            events[0] += 1
            events.append(what)

    def end(self):
        for s in self.servers:
            s.stop()


def ask(port, seed, key):
    """The reply to a request, its seconds, and how often it was sent. As its clients do, it repeats
    a request that every server of the router has sent away (429, 502, 503)."""
    began = time.monotonic()
    for tries in range(1, 11):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            c.request("POST", "/v1/images/generations", json.dumps({**FIELDS, "seed": seed}),
                      {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else
                                                              {})})
            reply = Reply(c.getresponse())
        finally:
            c.close()
        if reply.status not in (429, 502, 503) or not key:
            break
        time.sleep(0.5)
    return reply, time.monotonic() - began, tries


def through(name, command, right):
    """REQUESTS requests through a router while servers come and go."""
    if not shutil.which(name):
        print(f"# skipped: there is no {name}")
        report(True, f"{name} # SKIP not installed")
        return
    folder, port = T / name / "results", free_port()
    folder.mkdir(parents=True)
    fleet = Fleet(folder)
    router = subprocess.Popen(command(fleet.ports, port), stdout=subprocess.DEVNULL,
                              stderr=open(T / f"{name}.err", "wb"))
    stop, events = threading.Event(), [0]
    try:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        plain = [ask(port, 0, None)[0] for _ in range(2)]
        report([r.status for r in plain] == [200, 200] and len(list(folder.glob("*.task"))) == 2,
               f"{name}: two requests without a key are two", plain)
        with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
            trouble = pool.submit(fleet.disturb, stop, events)
            results = list(pool.map(lambda i: (i % SEEDS, *ask(port, i % SEEDS, f"request {i}")),
                                    range(REQUESTS)))
            while events[0] < 2:
                time.sleep(0.1)
            stop.set()
            trouble.result()
        wrong = [(r.status, r.body[:300]) for _, r, *_ in results if r.status != 200]
        report(not wrong, f"{name}: {REQUESTS} requests are answered, {events[0]} disturbances",
               events, wrong, pathlib.Path(T / f"{name}.err").read_text()[-1000:])
        report(all(pixels(image_of(r)) == right[seed] for seed, r, *_ in results
                   if r.status == 200),
               f"{name}: with the bytes of the command line")
        done = [json.loads(p.read_text())["state"] for p in folder.glob("*.task")]
        report(done.count("done") == 2 + len(results) - len(wrong) and
               len(list(folder.glob("*.png"))) == done.count("done"),
               f"{name}: each is generated once", len(done), len(results))
        times = sorted(s for _, _, s, _ in results)
        print(f"# {name}: median {times[len(times) // 2]:.2f} s, 99 % "
              f"{times[int(len(times) * 0.99)]:.2f} s, {events[1:].count('kill')} killed, "
              f"{events[1:].count('drain')} drained, {events[1:].count('pause')} paused, "
              f"{sum(tries > 1 for *_, tries in results)} sent again by the client")
    finally:
        stop.set()
        router.terminate()
        router.wait(20)
        fleet.end()


images = [pixels(generate("--prompt", PROMPT, "--num_inference_steps", "2", "--width", "128",
                          "--height", "128", "--seed", str(i))) for i in range(SEEDS)]
through("nginx", nginx, images)
through("haproxy", haproxy, images)
end()

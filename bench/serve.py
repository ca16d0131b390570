#!/usr/bin/env python3
"""The server's scheduling against one request at a time, on the same trace of requests.

    bench/serve.py build/app/xdit --model DIR [--video DIR] [--requests 200] [--load 1.6]
                   [-- FLAGS OF xdit serve, such as --nproc 2 --ulysses_degree 2 --threads 1]

The trace: requests arrive by a Poisson process, of three sizes and two numbers of steps, and one
long one (a video with --video, else an image of many steps) near the beginning. --load is the work
that arrives, in parts of what one request at a time can do. Both ways see the same trace: first the
server with one request at a time, as a client that waits for each answer before it sends the next
one in order of arrival; then the server as it is. Prints p50 and p99 of the short requests and the
throughput, the ratios, and whether the images are those of `xdit generate`. Needs Python alone.
"""
import argparse
import base64
import http.client
import json
import pathlib
import queue
import random
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time

import need


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("xdit")
    p.add_argument("--model", required=True)
    p.add_argument("--video", help="a model of videos, for the long request")
    p.add_argument("--sizes", default="64x64,80x64,96x96")
    p.add_argument("--steps", default="10,20")
    p.add_argument("--long_steps", type=int, default=100, help="of the long request")
    p.add_argument("--long_size", default="256x256")
    p.add_argument("--long_frames", type=int, default=9, help="of a video")
    p.add_argument("--requests", type=int, default=200)
    p.add_argument("--load", type=float, default=1.6)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--check", type=int, default=3, help="images compared with xdit generate")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a = p.parse_args(sys.argv[1:at])
    a.flags = sys.argv[at + 1:]
    a.xdit = need.program(a.xdit, "app/xdit")
    return a


class Server:
    def __init__(self, a):
        models = ["--model", a.model] + (["--model", a.video] if a.video else [])
        self.process = subprocess.Popen(
            [a.xdit, "serve", "--port", "0", "--queue", "10000", "--quiet", *models, *a.flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        line = self.process.stdout.readline().decode()
        address = re.match(r"http://.*:(\d+)\n", line)
        if not address:
            need.fail("xdit serve has not started: run it with these options to see why")
        self.port = int(address[1])

    def post(self, path, fields):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        c.request("POST", path, json.dumps(fields), {"Content-Type": "application/json"})
        r = c.getresponse()
        body = r.read()
        if r.status != 200:
            sys.exit(f"serve: {path} answers {r.status}: {body[:300]}")
        return body

    def run(self, request):
        if request["kind"] == "video":
            return self.post("/v1/videos/sync", request["fields"])
        j = json.loads(self.post("/v1/images/generations", request["fields"]))
        return base64.b64decode(j["data"][0]["b64_json"])

    def stop(self):
        self.process.terminate()
        self.process.wait()


def kinds_of(a):
    """The requests that the trace is made of: (name, request without a seed)."""
    model = pathlib.Path(a.model).name if pathlib.Path(a.model).is_dir() else a.model
    for size in a.sizes.split(","):
        for steps in a.steps.split(","):
            yield {"kind": "short", "name": f"{size} {steps} steps",
                   "fields": {"prompt": "a red circle on a blue background", "model": model,
                              "size": size, "num_inference_steps": int(steps)}}
    if a.video:
        yield {"kind": "video", "name": "video", "fields": {
            "prompt": "a cat", "model": pathlib.Path(a.video).name,
            "num_inference_steps": a.long_steps, "size": a.long_size,
            "num_frames": a.long_frames}}
    else:
        yield {"kind": "long", "name": "long image", "fields": {
            "prompt": "a long one", "model": model, "size": a.long_size,
            "num_inference_steps": a.long_steps}}


def seconds_of(server, kinds):
    """Seconds of each kind alone, of the second run."""
    for k in kinds:
        for _ in range(2):
            t0 = time.monotonic()
            server.run({**k, "fields": {**k["fields"], "seed": 0}})
            k["seconds"] = time.monotonic() - t0


def trace_of(a, kinds):
    """(time of arrival, request) in order; the long one comes after a tenth of them."""
    r = random.Random(a.seed)
    short = [k for k in kinds if k["kind"] == "short"]
    long = next(k for k in kinds if k["kind"] != "short")
    mean = sum(k["seconds"] for k in short) / len(short)
    at, trace = 0.0, []
    for i in range(a.requests):
        if i == a.requests // 10:
            trace.append((at, {**long, "fields": {**long["fields"], "seed": 7}}))
        at += r.expovariate(a.load / mean)
        k = r.choice(short)
        trace.append((at, {**k, "fields": {**k["fields"], "seed": i}}))
    return trace


def one_at_a_time(server, trace):
    waiting, done, t0 = queue.Queue(), [], time.monotonic()

    def serve():
        while (item := waiting.get()) is not None:
            body = server.run(item[1])
            done.append((time.monotonic() - t0, *item, body))
    thread = threading.Thread(target=serve)
    thread.start()
    for at, request in trace:
        time.sleep(max(0, t0 + at - time.monotonic()))
        waiting.put((at, request))
    waiting.put(None)
    thread.join()
    return done


def all_at_once(server, trace):
    done, t0, threads = [], time.monotonic(), []

    def serve(at, request):
        body = server.run(request)
        done.append((time.monotonic() - t0, at, request, body))
    for at, request in trace:
        time.sleep(max(0, t0 + at - time.monotonic()))
        threads.append(threading.Thread(target=serve, args=(at, request)))
        threads[-1].start()
    for t in threads:
        t.join()
    return done


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def report(name, done):
    short = [end - at for end, at, r, _ in done if r["kind"] == "short"]
    long = [end - at for end, at, r, _ in done if r["kind"] != "short"]
    whole = max(end for end, *_ in done)
    row = {"p50": quantile(short, 0.5), "p99": quantile(short, 0.99), "long": long[0],
           "rate": len(done) / whole}
    print(f"{name:18} short p50 {row['p50']:8.3f} s   p99 {row['p99']:8.3f} s   long "
          f"{row['long']:8.2f} s   {row['rate']:7.3f} requests/s", flush=True)
    return row


def pixels(png):
    """The compressed pixels: the text of a file names the plan."""
    at, found = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        found += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return found


def compare_images(a, done, number):
    """Images of the trace against those of the command line; how many differ."""
    bad = 0
    with tempfile.TemporaryDirectory() as d:
        for _, _, r, body in [x for x in done if x[2]["kind"] == "short"][:number]:
            f, out = r["fields"], pathlib.Path(d) / "out.png"
            w, h = f["size"].split("x")
            subprocess.run([a.xdit, "generate", "--model", a.model, "--prompt", f["prompt"],
                            "--width", w, "--height", h, "--num_inference_steps",
                            str(f["num_inference_steps"]), "--seed", str(f["seed"]), "--quiet",
                            "--output", str(out)], check=True, stdout=subprocess.DEVNULL)
            bad += pixels(out.read_bytes()) != pixels(body)
    return bad


def main():
    a = arguments()
    server, kinds = Server(a), list(kinds_of(a))
    try:
        seconds_of(server, kinds)
        for k in kinds:
            print(f"{k['name']:18} {k['seconds']:.3f} s alone")
        trace = trace_of(a, kinds)
        before = one_at_a_time(server, trace)
        first = report("one at a time", before)
        now = all_at_once(server, trace)
        second = report("scheduled", now)
    finally:
        server.stop()
    print(f"throughput {second['rate'] / first['rate']:.2f} times, p99 of short requests "
          f"{second['p99'] / first['p99']:.2f} times, p50 {second['p50'] / first['p50']:.2f} times")
    by_seed = {(r["name"], r["fields"]["seed"]): body for _, _, r, body in before}
    differ = sum(r["kind"] == "short" and
                 pixels(body) != pixels(by_seed[(r["name"], r["fields"]["seed"])])
                 for _, _, r, body in now)
    apart = sum(b'"plan": "1 rank"' in body for _, _, _, body in now)
    print(f"{apart} of {len(now)} were made by one rank each")
    print(f"{differ} images differ between both ways, "
          f"{compare_images(a, now, a.check)} of {a.check} from xdit generate")


main()

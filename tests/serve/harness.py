"""harness.py - a server for tests, requests to it, and TAP."""

import base64
import http.client
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

import openapi

XDIT, ROOT = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
DEMO = str(ROOT / "models" / "demo-pixart")
T = pathlib.Path(tempfile.mkdtemp(prefix="xdit-test-"))
PROMPT = "a large red circle on a blue background"
count = bad = 0


def report(ok, what, *more):
    global count, bad
    count += 1
    bad += not ok
    print(f"{'' if ok else 'not '}ok {count} - {what}", flush=True)
    if not ok:
        for m in more:
            print("#", repr(m)[:2000], flush=True)
    return ok


def end():
    print(f"1..{count}")
    subprocess.run(["rm", "-rf", str(T)], check=False)
    sys.exit(bad != 0)


class Reply:
    def __init__(self, response):
        self.status, self.headers = response.status, dict(response.getheaders())
        self.body = response.read()

    @property
    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def error(self):
        return self.json.get("error", {}).get("message", "")

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:500]!r}"


class Server:
    """`xdit serve` of the demo on a free port, until the end of a with statement."""

    def __init__(self, *args, model=DEMO, env=None, start=True):
        self.log = open(T / "log", "w+b")
        self.process = subprocess.Popen(
            [XDIT, "serve", "--model", model, "--port", "0", "--threads", "1", *args],
            stdout=subprocess.PIPE, stderr=self.log, env={**os.environ, **(env or {})})
        self.address = None
        if start:
            line = self.process.stdout.readline().decode()
            m = re.match(r"https?://(?:\[(.*)\]|([^:]*)):(\d+)\n", line)
            assert m, (line, self.said())
            self.address = (m[1] or m[2], int(m[3]))

    def said(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def request(self, method, path, body=None, headers=None, timeout=120):
        c = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            c.request(method, path, body=body, headers=headers or {})
            reply = Reply(c.getresponse())
        finally:
            c.close()
        for complaint in openapi.complaints(method, path, reply):
            report(False, f"{method} {path} answers as app/serve/openapi.json says", complaint)
        return reply

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)

    def post(self, path, fields, headers=None, timeout=120):
        return self.request("POST", path, json.dumps(fields).encode(),
                            {"Content-Type": "application/json", **(headers or {})}, timeout)

    def form(self, path, fields, headers=None):
        """Fields of (name, value) or (name, file name, bytes)."""
        mark, body = "------boundary", b""
        for f in fields:
            name = f'; filename="{f[1]}"' if len(f) == 3 else ""
            value = f[-1] if isinstance(f[-1], bytes) else str(f[-1]).encode()
            body += (f'--{mark}\r\nContent-Disposition: form-data; name="{f[0]}"{name}\r\n\r\n'
                     ).encode() + value + b"\r\n"
        body += f"--{mark}--\r\n".encode()
        return self.request("POST", path, body, {
            "Content-Type": f"multipart/form-data; boundary={mark}", **(headers or {})})

    def metric(self, name):
        m = re.search(rf"^xdit_{re.escape(name)} (\S+)$", self.get("/metrics").body.decode(), re.M)
        return float(m[1]) if m else None

    def workers(self):
        """Process ids of the ranks of this server, those without children last."""
        found, grown = [], [self.process.pid]
        while grown:
            parent = grown.pop()
            out = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(parent)],
                                 capture_output=True, text=True, check=False).stdout
            for line in out.splitlines():
                pid, args = line.split(None, 1)
                grown.append(int(pid))
                if " worker " in args and "mpirun" not in args:
                    found.append(int(pid))
        return found

    def stop(self, sig=signal.SIGTERM, timeout=90):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def image_of(reply, i=0):
    return base64.b64decode(reply.json["data"][i]["b64_json"])


def pixels(png):
    """The compressed pixels: text in the file names the plan, which differs."""
    at, found = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        found += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return found


def generate(*args, model=DEMO):
    """The bytes of the file that the command line makes."""
    out = T / "out.png"
    subprocess.run([XDIT, "generate", "--model", model, "--quiet", "--threads", "1", "--output",
                    str(out), *args], check=True, timeout=120, stdout=subprocess.DEVNULL)
    return out.read_bytes()


def wait_for(what, seconds=10):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.05)
    return False

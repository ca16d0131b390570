"""soak_clients.py - what clients of soak.py do: requests of all interfaces, and what is none.

Every action is a function of a client; what it expects it asserts. A client notes what became of
its requests, by which the counts of the server are checked."""

import base64
import collections
import http.client
import json
import os
import socket
import struct
import time

from harness import pixels

GEN, EDIT, VIDEOS = "/v1/images/generations", "/v1/images/edits", "/v1/videos"
FAST = {"prompt": "a cat", "num_inference_steps": 1}
VIDEO = {"prompt": "a cat", "model": "cog2b", "num_inference_steps": 1, "num_frames": 1,
         "output_format": "gif"}
LONG = {**VIDEO, "num_frames": 9, "num_inference_steps": 40}
JOB_ENDS = (200, 409, 500, 503)


class Ledger(collections.Counter):
    """Of requests that become tasks: done, failed, cancelled, refused, cut (nobody knows)."""

    sentences = []              # of those that failed, for a report that does not add up

    def note(self, status, error=""):
        state = {200: "done", 409: "cancelled", 429: "refused"}.get(
            status, "cut" if status is None or "shutting down" in error else "failed")
        self[state] += 1
        if state == "failed":
            self.sentences.append(f"{status}: {error}")


class Client:
    def __init__(self, server, random, references, ledger):
        self.s, self.r, self.references, self.ledger = server, random, references, ledger

    # ---- requests --------------------------------------------------------------------------------

    def ask(self, path, body, kind="application/json", **more):
        """A reply, whose end is noted; None: cut by the server, which may happen after a kill."""
        r = self.s.request("POST", path, body, {"Content-Type": kind, **more}, timeout=60)
        self.ledger.note(r.status, r.error)
        assert r.status in (200, 429, 409, 500), r
        assert r.status == 200 or r.error, r
        return r if r.status == 200 else None

    def json(self, path, **fields):
        return self.ask(path, json.dumps(fields).encode())

    def seed(self):
        return self.r.randrange(len(self.references))

    def check(self, data, seed):
        assert pixels(data) == pixels(self.references[seed]), (len(data), seed)

    def images(self):
        seed = self.seed()
        r = self.json(GEN, **FAST, seed=seed)
        if r:
            self.check(base64.b64decode(r.json["data"][0]["b64_json"]), seed)

    def images_by_url(self):
        seed = self.seed()
        r = self.json(GEN, **FAST, seed=seed, response_format="url", n=2)
        if r:
            url = r.json["data"][0]["url"]
            got = self.s.get(url[url.index("/v1"):])
            assert got.status == 200 and r.json["data"][0]["seed"] == seed, r
            self.check(got.body, seed)

    def form(self, mark=b"mark", prompt=b"a cat"):
        parts = [(b'"prompt"', prompt), (b'"num_inference_steps"', b"2"), (b'"strength"', b"0.5"),
                 (b'"image"; filename="a.png"', self.references[self.seed()])]
        return b"".join(b"--" + mark + b"\r\nContent-Disposition: form-data; name=" + n +
                        b"\r\n\r\n" + v + b"\r\n" for n, v in parts) + b"--" + mark + b"--\r\n"

    def edit(self):
        r = self.ask(EDIT, self.form(), "multipart/form-data; boundary=mark")
        assert not r or base64.b64decode(r.json["data"][0]["b64_json"])[:4] == b"\x89PNG", r

    def stream(self):
        seed = self.seed()
        r = self.s.request("POST", GEN, json.dumps({**FAST, "seed": seed, "stream": True}).encode(),
                           {"Content-Type": "application/json"}, timeout=60)
        if r.status != 200:
            self.ledger.note(r.status, r.error)
            assert r.status in (429, 500), r
            return
        last = json.loads(r.body.decode().strip().split("\n")[-1].removeprefix("data: "))
        failed = last["type"] == "error"
        why = last["error"]["message"] if failed else ""
        self.ledger.note(409 if why == "cancelled" else 500 if failed else 200, why)
        assert why or not failed, last
        if not failed:
            self.check(base64.b64decode(last["b64_json"]), seed)

    def webui(self):
        seed = self.seed()
        self.webui_ended(self.json("/sdapi/v1/txt2img", prompt="a cat", steps=1, seed=seed,
                                   unknown=1))

    def webui_image(self):
        image = base64.b64encode(self.references[0]).decode()
        self.webui_ended(self.json("/sdapi/v1/img2img", prompt="a", steps=2, init_images=[image],
                                   denoising_strength=0.5))

    def webui_ended(self, r):
        """Of one that another client has interrupted those images that were done: none."""
        assert not r or len(r.json["images"]) <= 1, r
        if r and not r.json["images"]:
            self.ledger.subtract(["done"])
            self.ledger.note(409)

    def video_sync(self):
        r = self.json(VIDEOS + "/sync", **VIDEO)
        assert not r or r.body[:3] == b"GIF", r

    def begin_video(self, fields):
        r = self.s.post(VIDEOS, fields, timeout=60)
        if r.status == 429:
            self.ledger.note(429)
            return None
        assert r.status == 200, r
        return f"{VIDEOS}/{r.json['id']}"

    def end_video(self, path):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            v = self.s.get(path)
            assert v.status == 200, (path, v)
            if v.json["status"] in ("completed", "failed", "cancelled"):
                break
            time.sleep(0.05)
        status = v.json["status"]
        self.ledger.note({"completed": 200, "failed": 500, "cancelled": 409}.get(status),
                         str(v.json.get("error")))
        assert status != "failed" or v.json["error"]["message"], v
        return status

    def video(self):
        path = self.begin_video(VIDEO)
        if path and self.end_video(path) == "completed":
            assert self.s.get(path + "/content").body[:3] == b"GIF"
            if self.r.random() < 0.5:
                assert self.s.request("DELETE", path).status == 200
                assert self.s.get(path).status == 404

    def cancelled_video(self):
        path = self.begin_video(LONG)
        if path:
            time.sleep(self.r.random() * 0.3)
            assert self.s.request("POST", path + "/cancel").status == 200
            self.end_video(path)

    def interrupt(self):
        assert self.s.post("/sdapi/v1/interrupt", {}).status == 200

    def look(self):
        for path in self.r.sample(["/health", "/metrics", "/v1/models", "/v1/videos?limit=5",
                                   "/sdapi/v1/progress", "/sdapi/v1/options"], 2):
            assert self.s.get(path).status in (200, 503), path      # 503: a worker starts

    def wrong(self):
        for fields, status in self.r.sample([
                ({"n": 1}, 400), ({**FAST, "size": "99999999999x1"}, 400),
                ({**FAST, "model": "x"}, 404), ({**FAST, "nosuch": 1}, 400),
                ({**FAST, "image": "http://127.0.0.1/"}, 400), ({**FAST, "image": "!"}, 400),
                ({**FAST, "image": base64.b64encode(b"no image").decode()}, 400),
                ({**FAST, "lora": "../../etc/passwd"}, 400), ({**FAST, "n": 1e300}, 400)], 2):
            r = self.s.post(GEN, fields)
            assert r.status == status and r.error, (fields, r)
        r = self.s.request("POST", GEN, b'{"prompt":' + b"[" * 500,
                           {"Content-Type": "application/json"})
        assert r.status == 400, r

    def kept_connection(self):
        c = http.client.HTTPConnection(*self.s.address, timeout=60)
        for _ in range(4):
            c.request("GET", "/v1/models")
            assert c.getresponse().read()
        c.close()

    # ---- bytes -----------------------------------------------------------------------------------

    def request_bytes(self, path=GEN, fields=None, head=b"", body=None):
        if body is None:
            body = json.dumps(fields or {**FAST, "seed": self.seed()}).encode()
        return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n".encode() + head + b"\r\n" + body)

    def connect(self):
        return socket.create_connection(self.s.address, timeout=30)

    @staticmethod
    def read(k):
        got = b""
        try:
            while (more := k.recv(1 << 16)):
                got += more
        except OSError:
            pass
        return got

    @staticmethod
    def reset(k):
        k.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        k.close()

    def raw(self, data, close=True):
        """What comes back; the server may close before it has read everything."""
        with self.connect() as k:
            try:
                k.sendall(data)
                if close:
                    k.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return self.read(k)

    def slow_writer(self):
        seed = self.seed()
        data = self.request_bytes(fields={**FAST, "seed": seed}, head=b"Connection: close\r\n")
        with self.connect() as k:
            for i in range(0, len(data), 40):
                k.sendall(data[i:i + 40])
                time.sleep(0.01)
            got = self.read(k)
        self.ledger.note(int(got[9:12]) if got[:5] == b"HTTP/" else None)
        assert got[:5] == b"HTTP/", got

    def too_slow(self):
        data = self.request_bytes()
        with self.connect() as k:
            began = time.monotonic()
            try:
                while time.monotonic() - began < 20:
                    k.sendall(data[:1] or b"a")
                    data = data[1:] if len(data) > 20 else data
                    time.sleep(0.2)
            except OSError:
                pass
            assert time.monotonic() - began < 15, "a trickling request is not cut"

    def slow_reader(self):
        k = socket.socket()
        k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        k.settimeout(60)
        k.connect(self.s.address)
        with k:
            k.sendall(self.request_bytes(fields={**FAST, "n": 3}, head=b"Connection: close\r\n"))
            got = b""
            while (more := k.recv(700)):
                got += more
                time.sleep(0.001)
        status = int(got[9:12])
        self.ledger.note(status)
        body = got.split(b"\r\n\r\n", 1)[1]
        assert status != 200 or len(json.loads(body)["data"]) == 3, got[:200]

    def silent_reader(self):
        k = self.connect()
        k.sendall(self.request_bytes(fields={**FAST, "stream": True, "n": 2}))
        time.sleep(self.r.random())
        self.ledger.note(None)
        self.reset(k)

    def cut_request(self):
        """In its line, its header or its body: it never becomes a task."""
        data = self.request_bytes()
        k = self.connect()
        k.sendall(data[:self.r.randrange(len(data))])
        time.sleep(self.r.random() * 0.02)
        (self.reset if self.r.random() < 0.5 else socket.socket.close)(k)

    def cut_task(self):
        """While it waits, or runs."""
        k = self.connect()
        k.sendall(self.request_bytes(fields={**FAST, "stream": self.r.random() < 0.5,
                                             "num_inference_steps": 1 + self.r.randrange(20)}))
        time.sleep(self.r.random() * 0.1)
        self.ledger.note(None)
        (self.reset if self.r.random() < 0.5 else socket.socket.close)(k)

    def cut_answer(self):
        k = self.connect()
        k.sendall(self.request_bytes(fields={**FAST, "stream": self.r.random() < 0.5}))
        try:
            k.recv(100)
        except OSError:
            pass
        self.ledger.note(None)
        self.reset(k)

    def garbage(self):
        data = bytearray(self.request_bytes(fields={"n": 1}))   # no task, whatever is left of it
        for _ in range(self.r.randrange(1, 30)):
            data[self.r.randrange(len(data))] = self.r.randrange(256)
        got = self.raw(self.r.choice([bytes(data), os.urandom(2000), b"\x16\x03\x01" * 99]))
        assert b" 200 " not in got[:20], (data, got)

    def too_long(self):
        got = self.raw(self.r.choice([
            self.request_bytes(body=b'{"prompt":"' + b"a" * 400000 + b'"}'),
            b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked"
            b"\r\n\r\n" + (b"10000\r\n" + b"a" * 65536 + b"\r\n") * 6 + b"0\r\n\r\n"]), False)
        assert not got or b" 413 " in got[:20], got[:200]

    def flood(self):
        got = self.raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" +
                       self.r.choice([b"a: b\r\n" * 30000, b"a: " + b"b" * 200000 + b"\r\n"]))
        assert b" 200 " not in got[:20], got[:100]

    def bad_chunks(self):
        head = (b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        got = self.raw(head + self.r.choice([
            b"zz\r\n{}", b"ffffffffffffffffff\r\n{}", b"-1\r\n{}", b"2\r\n{}3\r\n", b"\r\n\r\n",
            b"2;" + b"a" * 50000 + b"\r\n{}", b"2\r\n{}\r\n", b"0x2\r\n{}\r\n0\r\n\r\n"]))
        assert b" 200 " not in got[:20], got[:100]

    def smuggled(self):
        """Two readings of where a request ends: the second request must not be answered."""
        inner = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        lines = self.r.choice([
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            b"Content-Length: 5\r\nContent-Length: %d\r\n" % (5 + len(inner)),
            b"Content-Length: 5, 60\r\n", b"Content-Length: +5\r\n", b"Content-Length: 0x5\r\n",
            b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: chunked, identity\r\n",
            b"Transfer-Encoding : chunked\r\n", b"X: y\r\n Content-Length: 5\r\n",
            b"Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n",
            b"Content-Length: 5\nTransfer-Encoding: chunked\n"])
        got = self.raw(b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                       b"application/json\r\n" + lines + b"\r\n0\r\n\r\n" + inner)
        assert b"demo" not in got and b'"object":"list"' not in got, (lines, got)

    def half_closed(self):
        got = self.raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert not got or got[:5] == b"HTTP/", got
        got = self.raw(self.request_bytes())
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"         # asks whether the client is there
        while got.startswith(interim):
            got = got[len(interim):]
        self.ledger.note(int(got[9:12]) if got else None)


WEIGHTS = {
    "images": 20, "images_by_url": 6, "edit": 6, "stream": 6, "webui": 4, "webui_image": 2,
    "video": 3, "video_sync": 1, "cancelled_video": 2, "interrupt": 1, "look": 4, "wrong": 6,
    "kept_connection": 3, "slow_writer": 2, "too_slow": 0.3, "slow_reader": 2, "silent_reader": 1,
    "cut_request": 8, "cut_task": 6, "cut_answer": 4, "garbage": 6, "too_long": 2, "flood": 2,
    "bad_chunks": 3, "smuggled": 5, "half_closed": 2,
}

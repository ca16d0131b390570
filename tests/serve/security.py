#!/usr/bin/env python3
"""security.py XDIT ROOT FILL - who is served and who is not: addresses, keys, foreign pages,
limits, TLS, connections that are slow, cut or speak something else. FILL makes a model of videos.
Speaks TAP."""

import base64
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import zlib

from harness import DEMO, PROMPT, ROOT, T, XDIT, Server, end, report, wait_for

GEN = "/v1/images/generations"
FAST = {"prompt": PROMPT, "num_inference_steps": 1}


def refused_lines():
    for args, code, text in (
            (["--host", "0.0.0.0"], 2, "--api_key"),
            (["--host", "::"], 2, "--api_key"),
            (["--host", "nowhere"], 2, "--api_key"),
            (["--host", "nowhere", "--no_auth"], 2, "127.0.0.1"),
            (["--api_key", ""], 2, "empty"),
            (["--port", "70000"], 2, "65535"),
            (["--tls_cert", "a"], 2, "--tls_key is missing"),
            (["--loras", "/nowhere"], 1, "directory"),
            (["--max_body", "5000", "--max_bodies", "4000"], 2, "--max_bodies 4000"),
            (["--results", "/nowhere"], 1, "directory"),
            (["--tls_cert", "/nowhere", "--tls_key", "/nowhere"], 1, "/nowhere"),
            (["--model", DEMO + "/"], 2, "NAME=DIR"),
            (["--ulysses_degree", "4", "--nproc", "2"], 2, "ranks"),
            (["--nosuch"], 2, "unknown flag")):
        s = Server("--port", "0", *args, start=False)
        rc = s.process.wait(60)
        said = s.said()
        report(rc == code and text in said and said.count("xdit: ") >= 1, f"refused: {args}", rc,
               said)
    s = Server(model="/nowhere", start=False)
    report(s.process.wait(60) != 0 and "/nowhere" in s.said(), "a model that is not there",
           s.said())
    report(not list(T.glob("xdit-server-*")), "nothing is left")


def taken_port():
    with socket.socket() as k:
        k.bind(("127.0.0.1", 0))
        k.listen()
        s = Server("--port", str(k.getsockname()[1]), start=False)
        report(s.process.wait(60) == 1 and "--port" in s.said(), "a port that is taken", s.said())


def keys():
    with Server("--api_key", "secret", env={"XDIT_API_KEY": "other"}) as s:
        basic = base64.b64encode(b"user:secret").decode()
        for what, headers, status in (
                ("no key", {}, 401), ("a wrong key", {"Authorization": "Bearer nope"}, 401),
                ("half a key", {"Authorization": "Bearer secre"}, 401),
                ("a longer key", {"Authorization": "Bearer secretsecret"}, 401),
                ("no bearer", {"Authorization": "Bearer "}, 401),
                ("the key", {"Authorization": "Bearer secret"}, 200),
                ("that of the variable", {"Authorization": "bearer other"}, 200),
                ("a header of its own", {"X-API-Key": "secret"}, 200),
                ("a password", {"Authorization": f"Basic {basic}"}, 200),
                ("a wrong password", {"Authorization": "Basic dTpw"}, 401),
                ("nonsense", {"Authorization": "Basic %%%"}, 401)):
            r = s.request("GET", "/v1/models", headers=headers)
            report(r.status == status, f"{what}: {status}", r)
        report(s.get("/health").status == 200, "health needs none")
        r = s.post(GEN, FAST)
        report(r.status == 401 and r.json["error"]["code"] == "invalid_api_key", "nor are images",
               r)


def tasks_of_others():
    """Keys that begin alike are two: neither sees or cancels what the other one has asked for."""
    model = str(T / "cog")
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "cog2b"), model], check=True,
                   stdout=subprocess.DEVNULL)
    with Server("--model", model, "--api_key", "same-start-1", "--api_key", "same-start-2") as s:
        a, b = ({"Authorization": f"Bearer same-start-{i}"} for i in (1, 2))
        r = s.post("/v1/videos", {"prompt": "a"}, a)
        path = "/v1/videos/" + r.json.get("id", "none")
        report(r.status == 200 and s.request("GET", path, headers=a).status == 200, "its own", r)
        for method, more in (("GET", ""), ("GET", "/content"), ("POST", "/cancel"),
                             ("DELETE", "")):
            r = s.request(method, path + more, headers=b)
            report(r.status == 404, f"{method} {more} by another key: 404", r)
        report(s.request("GET", "/v1/videos", headers=b).json["data"] == [] and
               len(s.request("GET", "/v1/videos", headers=a).json["data"]) == 1, "nor in its list")
        replies = []
        fields = {**FAST, "num_inference_steps": 40, "size": "512x512", "response_format": "url"}
        t = threading.Thread(target=lambda: replies.append(s.post(GEN, fields, a)))
        t.start()
        running = wait_for(lambda: s.request("GET", "/sdapi/v1/progress", headers=a).json["state"][
            "job"])
        job = s.request("GET", "/sdapi/v1/progress", headers=b).json["state"]["job"]
        s.request("POST", "/sdapi/v1/interrupt", headers=b)
        t.join()
        report(running and not job and replies[0].status == 200,
               "another key neither sees nor interrupts what runs", running, job, replies)


def kept_private():
    """Files of results, of requests, and the socket are those of this user."""
    folder = T / "private"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with Server("--results", str(folder), "--api_key", "very-secret") as s:
        key = {"Authorization": "Bearer very-secret"}
        r = s.post(GEN, {**FAST, "response_format": "url"}, key)
        modes = {f.name.split(".")[-1]: f.stat().st_mode & 0o777 for f in folder.iterdir()}
        report(modes == {"png": 0o600, "task": 0o600, "lease": 0o600}, "results: 0600", modes)
        text = next(folder.glob("*.task")).read_text()
        report("very" not in text and "secret" not in text, "no letter of the key is kept", text)
        report("other users can write" in s.said(), "a folder of all users is warned of", s.said())
        own = next(T.glob("xdit-server-*"))
        report(own.stat().st_mode & 0o777 == 0o700, "the server's directory: 0700", own.stat())
        image = next(folder.glob("*.png"))
        image.unlink()
        image.symlink_to("/etc/passwd")
        url = r.json["data"][0]["url"]
        got = s.get(url[url.index("/v1"):])
        report(got.status == 404 and b"root" not in got.body, "a link in its place: 404", got)


def png_head(w, h):
    """A PNG of which the header is whole."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I",
                                                                        zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", b""))


def much():
    """What a request may ask for, and bring."""
    images = {n: base64.b64encode(d).decode() for n, d in (
        ("png", png_head(50000, 50000)), ("half", png_head(7000, 7000)),
        ("webp", b"RIFF\x16\0\0\0WEBPVP8L\x0a\0\0\0\x2f\xff\xff\xff\x0f" + bytes(5)),
        ("gif", b"GIF89a\x50\xc3\x50\xc3" + bytes(10)))}
    corpus = ROOT / "tests" / "fuzz" / "corpus" / "image"
    for n in ("jpeg_huge", "jpeg_progressive_huge"):
        images[n] = base64.b64encode((corpus / n).read_bytes()).decode()
    with Server() as s:
        before = s.metric("resident_bytes")
        for n in ("png", "webp", "jpeg_huge", "jpeg_progressive_huge", "gif"):
            r = s.post("/v1/images/edits", {**FAST, "image": images[n]})
            report(r.status == 400 and r.error, f"a large image is refused by its head: {n}", r)
        r = s.post("/v1/images/edits", {**FAST, "images": [images["half"]] * 2})
        report(r.status == 400 and "million" in r.error, "two that are too large together", r)
        small = base64.b64encode((corpus / "webp").read_bytes()).decode()
        r = s.post("/v1/images/edits", {**FAST, "images": [small] * 21})
        report(r.status == 400 and "20 images" in r.error, "many images", r)
        for what, fields, text in (
                ("a long prompt", {"prompt": "a" * 100001}, "100000"),
                ("a long option", {"negative_prompt": "a" * 100001}, "100000"),
                ("many images asked for", {"n": 1001}, "1000 images"),
                ("a size beyond numbers", {"size": "99999999999x1"}, "width"),
                ("one that wraps around", {"size": "18446744073709551680x64"}, "width"),
                ("a number without end", {"n": 1e999}, "n")):
            r = s.post(GEN, {**FAST, **fields})
            report(r.status == 400 and text in r.error, f"{what}: refused", r)
        r = s.request("POST", GEN, b'{"prompt":"a","x":[' + b"0," * 20000 + b"0]}",
                      {"Content-Type": "application/json"})
        report(r.status == 400 and "10000 values" in r.error, "many values", r)
        body = ('{"prompt":"a"' + ',"prompt":"a"' * 2000 + "}").encode()
        r = s.request("POST", GEN, body, {"Content-Type": "application/json"})
        report(r.status == 400 and "1000 values" in r.error, "many prompts", r)
        report(s.metric("resident_bytes") == before, "no image has reached the worker")
        line = "\nxdit: error: no\x1b[31m"
        s.post(GEN, {**FAST, "prompt": line, "negative_prompt": line, "guidance_scale": 1})
        said = s.said()
        report("\x1b" not in said and "error: no" not in said.replace("?xdit: error: no", ""),
               "a prompt is no line of the log", said)


def links(folder):
    """Links of the folder of LoRA files lead nowhere else."""
    folder.mkdir()
    (T / "outside.safetensors").write_bytes(b"x")
    (folder / "a.safetensors").symlink_to(T / "outside.safetensors")
    with Server("--loras", str(folder)) as s:
        for name in ("a", "a.safetensors", "../outside", "..", "", "/etc/passwd", "a\\..\\b"):
            r = s.post(GEN, {**FAST, "lora": name})
            report(r.status in (400, 404) and "/" not in r.error.replace("a name has no '/'", "")
                   .replace(repr(name), ""), f"LoRA file {name!r}: refused", r)


def silent_readers():
    """Who asks for much and reads nothing is cut: the connection is free, the rest is not made."""
    body = json.dumps({**FAST, "n": 30, "size": "512x512", "stream": True}).encode()
    with Server("--connections", "3", "--request_timeout", "2") as s:
        fds = f"/proc/{s.process.pid}/fd"
        before = len(os.listdir(fds))
        with socket.socket() as k:
            k.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            k.connect(s.address)
            k.sendall(f"POST {GEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
                      f"\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            report(wait_for(lambda: len(os.listdir(fds)) > before), "one reads nothing")
            cut = wait_for(lambda: s.metric('jobs_total{state="cancelled"}') == 1, 90)
            report(cut and wait_for(lambda: len(os.listdir(fds)) == before), "and is cut",
                   os.listdir(fds))


def pages():
    with Server("--cors", "https://good.example") as s:
        port = s.address[1]
        for what, headers, status in (
                ("another site", {"Origin": "https://bad.example"}, 403),
                ("no site", {"Origin": "null"}, 403),
                ("our own page", {"Origin": f"http://127.0.0.1:{port}"}, 200),
                ("a site that is named", {"Origin": "https://good.example"}, 200),
                ("a name that leads here", {"Host": f"bad.example:{port}"}, 403),
                ("this host by name", {"Host": f"localhost:{port}"}, 200)):
            r = s.request("GET", "/v1/models", headers=headers)
            report(r.status == status, f"{what}: {status}", r)
        r = s.request("OPTIONS", GEN, headers={"Origin": "https://good.example"})
        report(r.status == 204 and r.headers.get("Access-Control-Allow-Origin") ==
               "https://good.example" and "Authorization" in
               r.headers["Access-Control-Allow-Headers"], "it may ask first", r)
        r = s.request("OPTIONS", GEN, headers={"Origin": "https://bad.example"})
        report("Access-Control-Allow-Origin" not in r.headers, "another one may not", r)
        good = {"Origin": "https://good.example"}
        own = ("authorization,content-type,openai-organization,openai-project,x-stainless-arch,"
               "x-stainless-lang,x-stainless-os,x-stainless-package-version,"
               "x-stainless-retry-count,x-stainless-runtime,x-stainless-runtime-version")
        for path, method in ((GEN, "POST"), ("/v1/videos/video_1", "DELETE"),
                             ("/v1/models", "GET")):
            r = s.request("OPTIONS", path, headers={
                **good, "Access-Control-Request-Method": method,
                "Access-Control-Request-Headers": own})
            h = r.headers
            report(r.status == 204 and h.get("Access-Control-Allow-Headers") == own and
                   method in h["Access-Control-Allow-Methods"].split(", ") and
                   {"Origin", "Access-Control-Request-Headers"} <= set(h["Vary"].split(", ")),
                   f"the headers of OpenAI's JavaScript for {method} {path}", h)
        r = s.request("OPTIONS", GEN, headers={**good, "Access-Control-Request-Headers": "a;b"})
        report("a;b" not in str(r.headers), "no list of headers", r.headers)
        r = s.request("OPTIONS", GEN, headers={"Access-Control-Request-Headers": own})
        report("Access-Control-Allow-Headers" not in r.headers, "no page", r.headers)
        r = s.get("/v1/models")
        report(r.headers.get("Vary") == "Origin", "caches keep replies apart", r.headers)
        r = s.request("GET", "/v1/models", headers=good)
        report("Retry-After" in r.headers["Access-Control-Expose-Headers"], "what it reads", r)
        r = s.request("PUT", GEN)
        report(r.status == 405 and r.headers["Allow"] == "POST", "a path tells its methods", r)


def raw(s, data, seconds=5, close=False):
    """What comes back to these bytes, until the end or the time is over; None: not yet ended."""
    got = b""
    with socket.create_connection(s.address, timeout=seconds) as k:
        try:
            k.sendall(data)
            if close:
                k.shutdown(socket.SHUT_WR)
            while True:
                b = k.recv(65536)
                if not b:
                    return got
                got += b
        except TimeoutError:
            return None if not got else got
        except OSError:         # cut, while it was sent or read
            return got


def garbage(s):
    for what, data in (
            ("random bytes", os.urandom(4000)), ("a TLS hello", b"\x16\x03\x01\x02\x00\x01" * 50),
            ("no version", b"GET /health\r\n\r\n"), ("zeros", b"\0" * 3000),
            ("an endless line", b"GET /" + b"a" * 200000),
            ("endless headers", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50000),
            ("a folded header", b"GET /health HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"),
            ("two lengths", b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
             b"Content-Length: 5\r\nContent-Length: 50\r\n\r\n{}{}{}"),
            ("two lengths and a request between them", b"POST " + GEN.encode() + b" HTTP/1.1\r\n"
             b"Host: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n0\r\n\r\n"
             b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
            ("two hosts", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: a\r\n\r\n"),
            ("a negative length", b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
             b"Content-Length: -5\r\n\r\n{}"),
            ("length and chunks", b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
             b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics "
             b"HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
            ("bad chunks", b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
             b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")):
        got = raw(s, data, 3, close=True)
        report(got is not None and b" 200 " not in got, f"{what}: refused or cut",
               got and got[:300])
    for what, data in (("no host", b"GET /health HTTP/1.1\r\n\r\n"),
                       ("a blank before the colon", b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n")):
        got = raw(s, data, 3, close=True)
        report(got and got.startswith(b"HTTP/1.1 400 ") and got.count(b"HTTP/1.1") == 1 and
               b"one Host" in got, f"{what}: one reply", got)
    report(raw(s, b"GET /health HTTP/1.0\r\n\r\n", 3, close=True).startswith(b"HTTP/1.1 200 ") or
           raw(s, b"GET /health HTTP/1.0\r\n\r\n", 3, close=True).startswith(b"HTTP/1.0 200 "),
           "HTTP/1.0 needs none")
    report(s.get("/health").status == 200, "and others are served")


def slow():
    """A request that does not come is cut, whatever trickles."""
    with Server("--request_timeout", "2", "--connections", "8") as s:
        began = time.monotonic()
        held = [socket.create_connection(s.address) for _ in range(8)]
        for k in held:
            k.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        cut = 0
        while cut < 8 and time.monotonic() - began < 20:
            time.sleep(0.2)
            cut = 0
            for k in held:
                try:
                    k.sendall(b"a: b\r\n")
                    k.setblocking(False)
                    cut += k.recv(1) == b""
                except BlockingIOError:
                    pass
                except OSError:
                    cut += 1
                finally:
                    k.setblocking(True)
        took = time.monotonic() - began
        report(cut == 8 and took < 10, "eight slow ones are cut", cut, took)
        report(wait_for(lambda: s.get("/health").status == 200), "and make way")
        c = http.client.HTTPConnection(*s.address, timeout=20)
        for _ in range(3):
            time.sleep(1.2)
            c.request("GET", "/health")
            ok = c.getresponse().read()
        report(b"ok" in ok, "a connection that is kept lives longer than one request may take")
        c.close()


def crowd():
    """Connections that ask nothing make way, those that wait for an answer do not."""
    with Server("--connections", "8") as s:
        body = json.dumps({**FAST, "num_inference_steps": 40}).encode()
        asks = socket.create_connection(s.address, timeout=60)
        asks.sendall(f"POST {GEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
                     f"\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        report(wait_for(lambda: s.metric("running") == 1), "an image is made")
        held = [socket.create_connection(s.address) for _ in range(40)]
        began = time.monotonic()
        for _ in range(3):
            report(s.get("/health").status == 200, "served beside 40 that say nothing")
        report(time.monotonic() - began < 1, "at once", time.monotonic() - began)
        reply = asks.recv(12)
        report(reply == b"HTTP/1.1 200", "and an image that was asked for before is made", reply)
        asks.close()
        for k in held:
            k.close()


def half_closed(s):
    """Who closes its side after asking reads on, and gets the reply however long it takes."""
    got = raw(s, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 5, True)
    report(b" 200 " in got, "a half-closed one is answered", got)
    for what, more in (("an image", {}), ("events", {"stream": True})):
        got = raw(s, request({**FAST, "num_inference_steps": 60, "size": "256x256", **more}), 60,
                  True)
        replies = re.findall(rb"HTTP/1\.1 (\d+)", got)
        report(replies[-1] == b"200" and set(replies[:-1]) <= {b"100"} and b"b64_json" in got,
               f"{what} of many steps, too", got[:300])


def framed(s):
    """What a proxy before the server may understand in another way ends the connection at once."""
    post = b"POST " + GEN.encode() + b" HTTP/1.1\r\n"
    host, second = b"Host: 127.0.0.1\r\n", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for what, head, status in (
            ("a blank before the colon", b"Content-Length : 5\r\n", 400),
            ("a tab before the colon", b"Content-Length\t: 5\r\n", 400),
            ("chunked, a blank before the colon", b"Transfer-Encoding : chunked\r\n", 400),
            ("a NUL in a value", b"X-A: a\0b\r\n", 400),
            ("a NUL in a name", b"X-\0A: b\r\n", 400),
            ("a NUL in a length", b"Content-Length: 5\0\r\n", 400),
            ("a bare CR in a value", b"X-A: a\rContent-Length: 5\r\n", 400),
            ("a bare CR at the end", b"X-A: a\rX-B: b\r\n", 400),
            ("a bare LF", b"X-A: a\nContent-Length: 5\r\n", 400),
            ("bare LFs", b"Content-Length: 5\n", 400),
            ("a byte of control", b"X-A: a\x0bb\r\n", 400),
            ("a folded line", b"X-A: a\r\n b\r\n", 400),
            ("a length with letters", b"Content-Length: 5x\r\n", 400),
            ("a negative length", b"Content-Length: -5\r\n", 400),
            ("a length beyond all", b"Content-Length: 18446744073709551621\r\n", 400),
            ("a list of lengths", b"Content-Length: 5, 5\r\n", 400),
            ("two codings", b"Transfer-Encoding: gzip, chunked\r\n", 501),
            ("a coding", b"Transfer-Encoding: gzip\r\n", 501)):
        began = time.monotonic()
        got = raw(s, post + host + head + b"\r\nhello" + second, 10)
        took = time.monotonic() - began
        report(got and re.findall(rb"HTTP/1\.1 (\d+)", got) == [str(status).encode()] and took < 3,
               f"{what}: {status}, once and at once", got and got[:400], took)
    got = raw(s, second * 3 + second.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    report(got.count(b" 200 ") == 4, "four at once are answered", got)
    got = raw(s, second + post + host + b"X: a\rContent-Length: 5\r\n\r\nhello" + second)
    report(re.findall(rb"HTTP/1\.1 (\d+)", got) == [b"200", b"400"],
           "a wrong one behind a good one", got)
    body = json.dumps({**FAST, "size": "64x64"}).encode()
    chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(c), c) for c in (body[:7], body[7:]))
    for what, head, sent in (
            ("chunks", b"Transfer-Encoding: Chunked\r\n", chunks + b"0\r\nX-A: b\r\n\r\n"),
            ("a length", b"content-length:%d\r\n" % len(body), body)):
        got = raw(s, post + host + b"Content-Type: application/json\r\n" + head + b"\r\n" + sent +
                  second.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), 30)
        report(re.findall(rb"HTTP/1\.1 (\d+)", got) == [b"200", b"200"], f"{what}: read", got[:300])


def request(fields):
    body = json.dumps(fields).encode()
    return (f"POST {GEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


def parts(s):
    """Browsers ask for parts of files."""
    url = s.post(GEN, {**FAST, "response_format": "url"}).json["data"][0]["url"]
    path = url[url.index("/v1"):]
    r = s.get(path)
    whole, size, tag = r.body, len(r.body), r.headers.get("ETag", "")
    report(r.status == 200 and r.headers.get("Accept-Ranges") == "bytes" and tag, "all of it", r)
    for asked, first, last in (("bytes=0-1", 0, 1), ("bytes=5-", 5, size - 1),
                               ("bytes=-7", size - 7, size - 1), (f"bytes=10-{size}", 10, size - 1),
                               (f"bytes=-{2 * size}", 0, size - 1),
                               (f"bytes={size - 1}-9999999999999999999999", size - 1, size - 1)):
        r = s.get(path, Range=asked)
        report(r.status == 206 and r.body == whole[first:last + 1] and
               r.headers["Content-Range"] == f"bytes {first}-{last}/{size}" and
               int(r.headers["Content-Length"]) == len(r.body), asked, r.status, r.headers)
    for asked in (f"bytes={size}-", "bytes=-0", f"bytes={size + 5}-{size + 9}"):
        r = s.get(path, Range=asked)
        report(r.status == 416 and r.headers["Content-Range"] == f"bytes */{size}", asked, r)
    for asked in ("bytes=3-1", "bytes=a-b", "bytes=", "bytes=-", "lines=1-2", "bytes=1-2,4-5",
                  "bytes=0x1-2", "bytes=+1-2", "bytes=1-2x"):
        r = s.get(path, Range=asked)
        report(r.status == 200 and r.body == whole, f"{asked}: all", r.status, r.headers)
    r = s.request("GET", path, headers={"Range": "bytes=0-3", "If-Range": tag})
    report(r.status == 206 and r.body == whole[:4], "a part of the same file", r)
    r = s.request("GET", path, headers={"Range": "bytes=0-3", "If-Range": '"other"'})
    report(r.status == 200 and r.body == whole, "all of another one", r.status)
    r = s.request("HEAD", path, headers={"Range": "bytes=0-3"})
    report(r.status == 200 and int(r.headers["Content-Length"]) == size and not r.body and
           r.headers["Accept-Ranges"] == "bytes", "HEAD", r)


def limits():
    with Server("--max_body", "2000") as s:
        r = s.post(GEN, {"prompt": "a" * 3000})
        report(r.status == 413 and "2000" in r.error, "413", r)
        got = raw(s, b"POST " + GEN.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                  b"application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" +
                  b"800\r\n" + b"a" * 2048 + b"\r\n" + b"800\r\n" + b"a" * 2048 + b"\r\n0\r\n\r\n")
        report(got and b" 413 " in got, "413 of chunks without a length", got and got[:200])


def upload(s, size):
    """A connection that has sent so much of a longer body."""
    k = socket.create_connection(s.address)
    k.sendall(f"POST {GEN} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
              f"Content-Length: {size + 1}\r\nConnection: close\r\n\r\n".encode() + b" " * size)
    return k


def all_bodies():
    with Server("--max_body", "100000", "--max_bodies", "200000") as s:
        held = [upload(s, 90000) for _ in range(2)]
        report(wait_for(lambda: s.metric("body_bytes") == 180000), "bodies that come are counted",
               s.metric("body_bytes"))
        r = s.post(GEN, {**FAST, "prompt": "a" * 50000})
        report(r.status == 503 and "max_bodies" in r.error and int(r.headers["Retry-After"]) > 0,
               "one too many is told to come later", r)
        got = s.form(GEN, [("prompt", "a" * 50000), ("num_inference_steps", 1)])
        report(got.status == 503, "so is a form", got)
        report(s.post(GEN, {**FAST, "num_inference_steps": 1}).status == 200, "a short one is not")
        report(s.metric("body_bytes") == 180000, "what was refused takes nothing",
               s.metric("body_bytes"))
        for k in held:
            k.close()
        report(wait_for(lambda: s.metric("body_bytes") == 0), "those that are gone take nothing")
        r = s.post(GEN, {**FAST, "num_inference_steps": 1, "negative_prompt": "a" * 80000})
        report(r.status == 200, "then there is room", r)


def tls():
    if not shutil.which("openssl"):
        report(True, "TLS # SKIP no openssl to make a certificate")
        return
    cert, key = str(T / "cert.pem"), str(T / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                    "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with Server("--tls_cert", cert, "--tls_key", key) as s:
        c = http.client.HTTPSConnection(*s.address, timeout=60,
                                        context=ssl.create_default_context(cafile=cert))
        c.request("GET", "/v1/models")
        r = c.getresponse()
        report(r.status == 200 and b"demo-pixart" in r.read(), "HTTPS")
        got = raw(s, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        report(not got or b" 200 " not in got, "and no plain HTTP there", got)
        for version, taken in (("-tls1", 0), ("-tls1_1", 0), ("-tls1_2", 1), ("-tls1_3", 1)):
            p = subprocess.run(["openssl", "s_client", "-connect", "{}:{}".format(*s.address),
                                version, "-cipher", "ALL:@SECLEVEL=0"], input=b"",
                               capture_output=True, check=False)
            report((b"BEGIN CERTIFICATE" in p.stdout) == bool(taken),
                   f"{version}: {'taken' if taken else 'refused'}", p.stdout[-300:])
    s = Server("--tls_cert", key, "--tls_key", cert, start=False)
    report(s.process.wait(60) == 1 and "PEM" in s.said(), "a certificate that is none", s.said())


def main():
    os.environ["TMPDIR"] = str(T)
    refused_lines()
    taken_port()
    keys()
    tasks_of_others()
    kept_private()
    much()
    links(T / "loras")
    silent_readers()
    pages()
    with Server() as s:
        garbage(s)
        half_closed(s)
        framed(s)
        parts(s)
    slow()
    crowd()
    limits()
    all_bodies()
    tls()
    help_text = subprocess.run([XDIT, "serve", "--help", "all"], capture_output=True, text=True,
                               check=True).stdout
    report("--api_key" in help_text and "curl" in help_text, "help")
    end()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""tools/fetch_configs.py against a hub of this machine: what it fetches, and what it leaves.

usage: fetch.py ROOT UNIT_TEXT UNIT_DIT

The hub has a tiny model of tests/golden under a published name; the unit tests then compare its
fetched lists with what the engine declares. Prints TAP.
"""
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

from tap import check, done

MODEL = "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS"
TOKEN = "secret"


class FakeHub(http.server.BaseHTTPRequestHandler):
    """Weights lie on another server: /cdn/, which must see no token."""
    protocol_version = "HTTP/1.1"
    source = None               # the folder of the model
    ranges = True               # does it know Range?
    weights = 0                 # bytes of weight files that were sent
    tokens = set()              # paths that came with a token

    def log_message(self, *args):
        pass

    def answer(self, code, data=b"", **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True        # who read enough has gone

    def names(self):
        files = [f.relative_to(self.source).as_posix() for f in self.source.rglob("*")
                 if f.is_file()]
        return json.dumps({"siblings": [{"rfilename": f} for f in files + [".gitattributes"]]})

    def do_GET(self):
        if "Authorization" in self.headers:
            FakeHub.tokens.add(self.path.split("/")[1])
        if self.path.startswith("/api/models/gated/") or self.path.startswith("/gated/"):
            return self.answer(401)
        if self.path == "/api/models/%s/revision/main" % MODEL:
            return self.answer(200, self.names().encode())
        m = re.fullmatch("/(%s/resolve/main|cdn)/(.*)" % MODEL, self.path)
        if not m or not (self.source / m[2]).is_file():
            return self.answer(404)
        if m[2].endswith(".safetensors") and m[1] != "cdn":
            return self.answer(302, Location="/cdn/" + m[2])
        data, code = (self.source / m[2]).read_bytes(), 200
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if span and self.ranges:
            data, code = data[int(span[1]):int(span[2]) + 1], 206
        if m[2].endswith(".safetensors"):
            FakeHub.weights += len(data)
        return self.answer(code, data)


def fetch(root, url, *args, token=None):
    env = dict(os.environ, HF_ENDPOINT=url + "/", HF_TOKEN=token or "", no_proxy="127.0.0.1")
    return subprocess.run([sys.executable, root / "tools/fetch_configs.py", *args], env=env,
                          text=True, capture_output=True, timeout=60)


def small(folder):
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in sorted(folder.rglob("*"))
            if f.is_file() and f.suffix in {".json", ".txt", ".model"} and f.name != "tensors.txt"}


def check_unit(program, folder, root):
    """A unit test finds the fetched list to be what the engine declares; others are absent."""
    env = dict(os.environ, XDIT_TEST_HF=str(folder), CMOCKA_MESSAGE_OUTPUT="TAP")
    run = subprocess.run([program], env=env, cwd=root, text=True, capture_output=True, timeout=300)
    name = pathlib.Path(program).name
    check("%s: the fetched list is what is declared" % name,
          run.returncode == 0 and "needs %s" % MODEL not in run.stdout, run.stdout + run.stderr)
    return run


def run_checks(root, url, programs, top):
    source, home = FakeHub.source, top / "hf" / MODEL
    run = fetch(root, url, top / "hf", MODEL, token=TOKEN)
    check("a model is fetched", run.returncode == 0 and run.stdout.startswith(MODEL + ": "), run)
    want = {k: v for k, v in small(source).items() if k != "golden.json"}
    check("all but its weights", small(home) == want, sorted(small(home)))
    check("no weights", not list(home.rglob("*.safetensors")))
    headers = sum(8 + int.from_bytes(f.read_bytes()[:8], "little")
                  for f in source.glob("*/*.safetensors"))
    check("of weight files the headers alone were read", FakeHub.weights == headers,
          "%d bytes, %d of headers" % (FakeHub.weights, headers))
    check("the token goes to the hub and no further", FakeHub.tokens == {"api", "PixArt-alpha"},
          FakeHub.tokens)
    lists = [f.parent.name for f in sorted(home.rglob("tensors.txt"))]
    check("lists of tensors", lists == ["text_encoder", "transformer", "vae"], lists)
    for program in programs:
        check_unit(program, top / "hf", root)
    lines = (home / "transformer/tensors.txt").read_text().splitlines(keepends=True)
    (home / "transformer/tensors.txt").write_text("".join(lines[1:]))
    run = subprocess.run([programs[1]], env=dict(os.environ, XDIT_TEST_HF=str(top / "hf")),
                         cwd=root, text=True, capture_output=True, timeout=300)
    check("a list without its first line is found", run.returncode != 0, run.stdout)
    (home / "transformer/tensors.txt").unlink()
    FakeHub.ranges, FakeHub.tokens = False, set()
    run = fetch(root, url, top / "hf", MODEL)
    check("what is there is kept; a server without ranges will do",
          run.stdout == MODEL + ": 1 files\n" and not FakeHub.tokens and
          (home / "transformer/tensors.txt").read_text() == "".join(lines), run)
    run = fetch(root, url, top / "hf", MODEL)
    check("nothing is left to fetch", run.stdout == MODEL + ": all there\n", run)
    run = fetch(root, url, top / "hf", "gated/model", "no/model", "../model", MODEL)
    said = run.stderr.splitlines()
    check("what fails is said, and the rest is fetched",
          run.returncode == 1 and len(said) == 3 and "a token is needed (HF_TOKEN)" in said[0] and
          "404" in said[1] and "ORGANISATION/MODEL" in said[2] and MODEL in run.stdout, run)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    FakeHub.source = root / "tests/golden/sigma"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    programs = [str(pathlib.Path(p).resolve()) for p in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as top:
        run_checks(root, "http://127.0.0.1:%d" % server.server_port, programs, pathlib.Path(top))
    run = fetch(root, "http://127.0.0.1:1", "nowhere", MODEL)
    check("a hub that does not answer", run.returncode == 1 and "refused" in run.stderr, run)
    server.shutdown()
    return done()


sys.exit(main())

#!/usr/bin/env python3
"""urls.py XDIT ROOT - images by URLs of other servers: refused without --allow_url; with it from
where it says, also after redirects; private addresses, long and slow ones are not. Speaks TAP."""

import base64
import http.server
import json
import socket
import sys
import threading
import time

from harness import Server, end, generate, image_of, report

EDIT = "/v1/images/edits"
FAST = {"prompt": "a red circle", "num_inference_steps": 3, "strength": 0.5, "seed": 1}
asked = []


class Other(http.server.BaseHTTPRequestHandler):
    """Another server."""
    protocol_version = "HTTP/1.1"
    image = b""

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        asked.append(self.path)
        what, _, rest = self.path[1:].partition("?")
        try:
            if what == "good.png":
                self.reply(200, self.image)
            elif what == "to":
                self.reply(302, b"", Location=rest)
            elif what == "times":
                self.reply(307, b"", Location=f"/times?{int(rest) - 1}" if rest != "1"
                           else "/good.png")
            elif what == "long":
                self.reply(200, b"", **{"Content-Length": "99999999"})
            elif what == "endless":
                self.send_response(200)
                self.end_headers()
                while True:
                    self.wfile.write(bytes(1 << 16))
            elif what == "slow":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                while True:
                    self.wfile.write(b"a")
                    time.sleep(0.1)
            elif what == "text":
                self.reply(200, b"no image")
            else:
                self.reply(404)
        except OSError:
            self.close_connection = True


def serve_others():
    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    other.daemon_threads = True
    threading.Thread(target=other.serve_forever, daemon=True).start()
    return other.server_address[1]


def refused(s, url, *texts, path=EDIT, status=400, **fields):
    began = time.monotonic()
    r = s.post(path, {**FAST, **({"image": url} if not fields else fields)})
    report(r.status == status and all(t in r.error for t in texts), f"refused: {url[:60]}", r)
    return time.monotonic() - began


def off(port):
    url = f"http://127.0.0.1:{port}/good.png"
    with Server() as s:
        refused(s, url, "--allow_url")
        refused(s, url, "--allow_url", images=[{"image_url": {"url": url}}])
        refused(s, url, "--allow_url", path="/sdapi/v1/img2img", init_images=[url])
        refused(s, url, "--allow_url", path="/v1/videos", input_reference={"image_url": url})
    report(not asked, "nothing was asked for", asked)


def public_alone(port):
    """No way of writing a private address leads to one."""
    with Server("--allow_url", "any") as s:
        for host in ("127.0.0.1", "localhost", "0.0.0.0", "2130706433", "0x7f.1", "127.1",
                     "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "127.0.0.1."):
            refused(s, f"http://{host}:{port}/good.png", "image: the ")
        for host in ("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1",
                     "224.0.0.1", "255.255.255.255", "[fe80::1]", "[fd00::1]", "[ff02::1]",
                     "[64:ff9b::7f00:1]", "[2002:7f00:1::]"):
            refused(s, f"http://{host}/", "not public")
    report(not asked, "nothing was asked for", asked)


def named(port):
    here = f"http://127.0.0.1:{port}"
    with Server("--allow_url", f"127.0.0.1:{port}", "--request_timeout", "2", "--max_body",
                "300000") as s:
        mine = base64.b64encode(Other.image).decode()
        same = image_of(s.post(EDIT, {**FAST, "image": mine}))
        for fields in ({"image": here + "/good.png"}, {"images": [{"image_url":
                       here + "/times?3"}]}):
            r = s.post(EDIT, {**FAST, **fields})
            report(r.status == 200 and image_of(r) == same, f"fetched: {fields}", r)
        r = s.post("/sdapi/v1/img2img", {"prompt": "a", "steps": 3, "denoising_strength": 0.5,
                                         "init_images": [here + "/good.png"]})
        report(r.status == 200 and r.json["images"], "by A1111's interface", r)
        refused(s, here + "/times?4", "more than 3 times")
        refused(s, here + "/to?file:///etc/passwd", "only http and https")
        refused(s, here + "/to?gopher://127.0.0.1/", "gopher")
        refused(s, here + f"/to?http://localhost:{port}/good.png", "--allow_url")
        refused(s, here + f"/to?http://127.0.0.1:{port + 1}/good.png", "--allow_url")
        refused(s, here + "/to?http://10.0.0.1/", "--allow_url")
        refused(s, f"http://user:word@127.0.0.1:{port}/good.png", "user")
        refused(s, f"http://127.0.0.1:{port}@example.org/", "user")
        refused(s, "http://example.org/", "--allow_url")
        refused(s, here + "/long", "300000 bytes")
        refused(s, here + "/endless", "300000 bytes")
        took = refused(s, here + "/slow", " 2 s")
        report(took < 6, "and not waited for", took)
        refused(s, here + "/text", "is not an image")
        refused(s, here + "/none", "status 404")
        refused(s, here + "/" + "a" * 3000, "a URL of at most")
        refused(s, "http://", "a URL")
        refused(s, "ftp://127.0.0.1/a.png", "neither base64")
        with socket.socket() as k:      # nobody listens
            k.bind(("127.0.0.1", 0))
            refused(s, f"http://127.0.0.1:{k.getsockname()[1]}/", "--allow_url")
        report(s.get("/health").status == 200, "and it serves")
        client_goes(s, here)


def client_goes(s, here):
    """What nobody waits for is not fetched to its end: the connection is free before its time."""
    body = json.dumps({**FAST, "image": here + "/slow"}).encode()
    before = len(asked)
    with socket.create_connection(s.address) as k:
        k.sendall(f"POST {EDIT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while len(asked) == before:
            time.sleep(0.01)
    report(s.get("/health").status == 200, "a client goes while its image comes")


def main():
    probe = Server("--allow_url", "any", start=False)
    line = probe.process.stdout.readline()
    probe.stop()
    if not line:
        report("no libcurl" in probe.said(), "a build without libcurl says so", probe.said())
        print("# no libcurl: the rest is not run")
        end()
    Other.image = generate("--prompt", "a", "--num_inference_steps", "1")
    port = serve_others()
    off(port)
    public_alone(port)
    named(port)
    end()


if __name__ == "__main__":
    sys.exit(main())

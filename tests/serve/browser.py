"""browser.py - a headless Chromium for tests, driven over a pipe by the DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import threading
import time
import zlib

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
         "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
         "--disable-component-update", "--disable-extensions", "--no-first-run",
         "--no-proxy-server", "--disable-features=Translate,MediaRouter,OptimizationHints",
         "--window-size=1200,900")


def find():
    """A browser's path; None: there is none. XDIT_TEST_CHROMIUM names another one."""
    own = os.environ.get("XDIT_TEST_CHROMIUM")
    return own or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. Events are kept in `events` as (method, params)."""

    def __init__(self, folder):
        to, self.out = os.pipe()
        self.into, of = os.pipe()

        def set_pipes():                # the browser reads 3 and writes 4
            held = os.dup(to), os.dup(of)
            os.dup2(held[0], 3)
            os.dup2(held[1], 4)

        self.folder = folder
        self.process = subprocess.Popen(
            [find(), *FLAGS, f"--user-data-dir={folder}", "about:blank"], preexec_fn=set_pipes,
            close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)})
        os.close(to)
        os.close(of)
        self.events, self.replies, self.last, self.session = [], {}, 0, None
        self.came = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def read(self):
        held = b""
        while True:
            try:
                data = os.read(self.into, 1 << 20)
            except OSError:
                data = b""
            with self.came:
                if not data:
                    self.replies[None] = True
                *whole, held = (held + data).split(b"\0")
                for text in whole:
                    message = json.loads(text)
                    if "id" in message:
                        self.replies[message["id"]] = message
                    else:
                        self.events.append((message["method"], message.get("params", {})))
                self.came.notify_all()
            if not data:
                return

    def call(self, method, **params):
        self.last += 1
        number = self.last
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        with self.came:
            ok = self.came.wait_for(lambda: number in self.replies or None in self.replies, 60)
        assert ok and number in self.replies, f"no answer to {method}"
        reply = self.replies.pop(number)
        assert "error" not in reply, (method, params, reply["error"])
        return reply["result"]

    def run(self, text):
        """The value of an expression of JavaScript, also of a promise."""
        r = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True,
                      userGesture=True)
        assert "exceptionDetails" not in r, (text, r["exceptionDetails"])
        return r["result"].get("value")

    def wait(self, text, seconds=30):
        """The value of an expression as soon as it is true; what it was last otherwise."""
        until = time.monotonic() + seconds
        while True:
            value = self.run(text)
            if value or time.monotonic() > until:
                return value
            time.sleep(0.05)

    def loads(self):
        return sum(m == "Page.loadEventFired" for m, _ in self.events)

    def open(self, url=None):
        """Opens an address, or the same one again."""
        before = self.loads()
        if url:
            self.call("Page.navigate", url=url)
        else:
            self.call("Page.reload")
        with self.came:
            assert self.came.wait_for(lambda: self.loads() > before, 60), url

    def key(self, name, text="", modifiers=0):
        code = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "ArrowRight": 39, "ArrowDown": 40,
                "z": 90}.get(name, 0)
        more = {"key": name, "code": {" ": "Space"}.get(name, name), "modifiers": modifiers,
                "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **more,
                  **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1,
                  **more)

    def box(self, selector):
        """x, y, width, height in the window, once it is scrolled there."""
        return self.run(f"""(() => {{ const e = document.querySelector('{selector}');
            e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect();
            return [b.x, b.y, b.width, b.height]; }})()""")

    def click(self, selector):
        x, y, w, h = self.box(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x + w / 2, y + h / 2)

    def drop(self, path, selector):
        """A file from outside."""
        x, y, w, h = self.box(selector)
        data = {"items": [], "files": [os.path.abspath(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x + w / 2, y=y + h / 2, data=data)

    def choose(self, path, selector):
        """A file in an input of files."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", files=[os.path.abspath(path)], nodeId=node)

    def pixel(self, x, y):
        """Red, green and blue of a pixel of the window."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png", clip={
            "x": x, "y": y, "width": 1, "height": 1, "scale": 1})["data"])
        at, pixels = 8, b""
        while at < len(data):
            n = int.from_bytes(data[at:at + 4], "big")
            pixels += data[at + 8:at + 8 + n] if data[at + 4:at + 8] == b"IDAT" else b""
            at += n + 12
        return tuple(zlib.decompress(pixels)[1:4])

    def complaints(self):
        """Errors of the console, exceptions, what the policy of the page refused."""
        with self.came:
            return [p for m, p in self.events
                    if m == "Runtime.exceptionThrown" or
                    (m == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning")) or
                    (m == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"))]

    def requested(self):
        with self.came:
            return [p["request"]["url"] for m, p in self.events
                    if m == "Network.requestWillBeSent"]

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

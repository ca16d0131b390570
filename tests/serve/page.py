#!/usr/bin/env python3
"""page.py XDIT ROOT FILL - the web page at / in a headless Chromium: a whole session, with pointer
and keyboard, in light and dark, on a phone; every request goes to the server, no error comes to the
console. Skipped without Chromium (XDIT_TEST_CHROMIUM). FILL makes tiny models that inpaint, that
read several images and that make videos. Speaks TAP."""

import base64
import json
import re
import struct
import subprocess
import sys
import zlib

import browser

if not browser.find():
    print("1..0 # SKIP there is no Chromium (Debian's chromium, or XDIT_TEST_CHROMIUM)")
    sys.exit(0)

from harness import DEMO, PROMPT, ROOT, T, Server, end, generate, report, wait_for

ITEMS = "document.querySelectorAll('#gallery > li').length"
JOBS = "document.querySelectorAll('#jobs > li').length"
STATES = "[...document.querySelectorAll('#jobs .state')].map((e) => e.textContent).join('|')"


def value(b, name):
    return b.run(f"document.getElementById('form').elements['{name}'].value")


def fill(b, **fields):
    """Fields by their names, as a visitor changes them."""
    for name, text in fields.items():
        b.run(f"""(() => {{ const e = document.getElementById('form').elements['{name}'];
            e.value = {json.dumps(str(text))};
            e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()""")


def text_of(b, selector):
    return b.run(f"document.querySelector('{selector}')?.textContent")


def saved(b, number):
    """The bytes that "Save" of a result writes."""
    folder = T / "saved"
    folder.mkdir(exist_ok=True)
    for f in folder.iterdir():
        f.unlink()
    b.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    b.click(f"#result-{number} a[download]")
    name = b.run(f"document.querySelector('#result-{number} a[download]').download")
    wait_for(lambda: (folder / name).is_file() and (folder / name).stat().st_size, 20)
    return (folder / name).read_bytes() if (folder / name).is_file() else b""


def button(b, number, text):
    b.run(f"""[...document.querySelectorAll('#result-{number} button')]
        .find((e) => e.textContent.startsWith('{text}')).click()""")


def made(b, items, seconds=60):
    """Are there so many results, and does nothing run?"""
    return b.wait(f"{ITEMS} === {items} && {JOBS} === 0", seconds)


# ---- requests -------------------------------------------------------------------------------


def session(b):
    report(b.wait("document.getElementById('model').options.length === 5"), "the page has models")
    report(b.run("document.getElementById('steps').placeholder") == "20" and
           b.run("document.getElementById('width').placeholder") == "128", "and their defaults")
    report(b.run("document.activeElement === document.body"), "the focus is nowhere yet")
    b.click("#prompt")
    b.type(PROMPT)
    fill(b, num_inference_steps=30, seed=7)
    b.run("""window.told = new Set(); new MutationObserver(() => {
        const p = document.querySelector('#jobs progress');
        const i = document.querySelector('#jobs img:not([hidden])');
        if (i) told.add('preview ' + i.src);
        if (p) told.add(`${p.value} ${document.querySelector('#jobs .state').textContent}`);
        }).observe(document.getElementById('jobs'), { subtree: true, childList: true,
                                                      characterData: true, attributes: true })""")
    b.click("#generate")
    report(made(b, 1), "an image appears", text_of(b, "#alert"), b.run(STATES))
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "30", "--seed", "7")
    report(saved(b, 1) == mine, "saved, it is the file of the command line")
    told = b.run("[...told]")
    steps = [int(m[1]) for t in told if (m := re.search(r"Step (\d+) of 30", t))]
    report(len(steps) > 3 and steps == sorted(steps) and
           any(re.search(r"\d:\d\d left", t) for t in told), "steps and the time left are told",
           told)
    report(len([t for t in told if t.startswith("preview blob:")]) > 3, "previews are shown", told)
    report("Request 1: the image is there" in text_of(b, "#news"), "and screen readers hear of it")
    shown = text_of(b, "#result-1 dl")
    report(PROMPT in shown and "Seed7" in shown and "Steps30" in shown, "with its parameters",
           shown)
    return mine


def again(b, mine):
    fill(b, seed="", prompt="a green square")
    b.click("#generate")
    report(made(b, 2) and text_of(b, "#result-2 dl dd") == "a green square", "another prompt")
    other = re.search(r"Seed (\d+)", text_of(b, "#result-2 summary"))
    report(other and int(other[1]) > 7, "with a seed by chance", other)
    button(b, 1, "Again with this seed")
    report(made(b, 3) and "Seed 7" in text_of(b, "#result-3 summary") and
           text_of(b, "#result-3 dl dd") == "a green square", "again with the seed of the first")
    button(b, 1, "Use these parameters")
    report(value(b, "prompt") == PROMPT and value(b, "seed") == "7" and
           value(b, "num_inference_steps") == "30" and value(b, "width") == "128" and
           value(b, "model") == "demo-pixart", "the first one's parameters are in the form")
    b.click("#generate")
    report(made(b, 4) and saved(b, 4) == mine, "and make the same file")
    button(b, 4, "Remove")
    report(b.run(ITEMS) == 3, "removed")


def several(b):
    items = b.run(ITEMS)
    fill(b, prompt=PROMPT, num_inference_steps=2, n=2, seed=5)
    b.click("#generate")
    report(made(b, items + 2) and "2 images" in text_of(b, "#news"), "two images of one request")
    fill(b, n=1)


def cancelled(b, s):
    items, before = b.run(ITEMS), s.metric('jobs_total{state="cancelled"}')
    fill(b, num_inference_steps=1000, width=256, height=256)
    for _ in range(6):
        b.click("#generate")
    report(b.wait(f"/Step \\d+ of 1000/.test({STATES})") and
           b.wait(f"/Waiting: 1 request is before it/.test({STATES})") and
           b.wait(f"/Waiting: 3 requests are before it/.test({STATES})"),
           "one runs, three others wait", b.run(STATES))
    report(b.run(STATES).count("another request of this page") == 2 and
           s.metric("queue_length") == 3, "two wait in the page, for connections are few",
           b.run(STATES))
    for left in (5, 4, 3, 2, 1, 0):
        b.click("#jobs > li:last-child button")
        report(b.wait(f"{JOBS} === {left}"), f"cancelled: {left} left")
    report(wait_for(lambda: s.metric('jobs_total{state="cancelled"}') == before + 4 and
                    s.metric("running") == 0), "on the server, too")
    report(b.run(ITEMS) == items and text_of(b, "#alert") == "" and
           b.run("document.activeElement.id") == "generate", "nothing comes of it; the focus stays")
    fill(b, width="", height="")


def mistakes(b):
    """The server's sentence, at the request and at the field."""
    fill(b, num_inference_steps=2, width=100)
    b.click("#generate")
    said = b.wait("document.querySelector('#jobs .error')?.textContent") or ""
    report("multiple of 16" in said and b.run(
        "document.querySelector('#jobs .error').role") == "alert", "the sentence", said)
    b.click("#jobs > li button")
    fill(b, width="", num_inference_steps=1)
    b.run("document.getElementById('sampler').append(new Option('x', 'no-such'))")
    fill(b, scheduler="no-such")
    b.click("#generate")
    said = b.wait("document.querySelector('#jobs .error')?.textContent") or ""
    report("scheduler" in said, "another one", said)
    b.click("#jobs > li button")
    report(b.run(JOBS) == 0, "dismissed")
    fill(b, scheduler="")


# ---- files ----------------------------------------------------------------------------------


def chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def with_texts(png, *chunks):
    """The PNG without its texts, with other ones."""
    out, at = png[:8], 8
    while at < len(png):
        (n,) = struct.unpack(">I", png[at:at + 4])
        if png[at + 4:at + 8] != b"tEXt":
            out += png[at:at + 12 + n]
        if png[at + 4:at + 8] == b"IHDR":
            out += b"".join(chunk(k, d) for k, d in chunks)
        at += 12 + n
    return out


def parameters(b, mine):
    """Of files of ours, of A1111, of none."""
    path = T / "drop.png"
    webui = ("a cat, \u00e4 dog <lora:none:0.5>\nof two lines\nNegative prompt: ugly\n"
             "Steps: 12, Sampler: Euler a, CFG scale: 6.5, Seed: 18446744073709551615, "
             'Size: 96x160, Model: other, Note: "a, b: c", Version: v1.9').encode()
    files = {
        "ours": (mine, {"prompt": PROMPT, "seed": "7", "num_inference_steps": "30"}),
        "A1111's iTXt": (with_texts(mine, (b"iTXt", b"parameters\0\0\0\0\0" + webui)), {
            "prompt": "a cat, \u00e4 dog \nof two lines", "negative_prompt": "ugly",
            "num_inference_steps": "12", "scheduler": "Euler a", "guidance_scale": "6.5",
            "seed": "18446744073709551615", "width": "96", "height": "160"}),
        "packed": (with_texts(mine, (b"iTXt", b"parameters\0\1\0\0\0" + zlib.compress(webui))),
                   {"seed": "18446744073709551615", "width": "96"}),
        "zTXt": (with_texts(mine, (b"zTXt", b"parameters\0\0" + zlib.compress(
            b"a\nSteps: 3, Seed: 4"))), {"prompt": "a", "seed": "4", "width": ""}),
    }
    for what, (data, wanted) in files.items():
        path.write_bytes(data)
        fill(b, prompt="nothing", seed="", negative_prompt="")
        b.drop(path, "h1")
        b.wait("document.getElementById('prompt').value !== 'nothing'")
        got = {name: value(b, name) for name in wanted}
        report(got == wanted, f"dropped: {what}", got)
    report(text_of(b, "#alert") == "", "no complaint about it")
    path.write_bytes(files["A1111's iTXt"][0])
    b.drop(path, "h1")
    report(b.wait("/no LoRA file none/.test(document.getElementById('alert').textContent)"),
           "a LoRA file that the server lacks is named", text_of(b, "#alert"))
    path.write_bytes(with_texts(mine, (b"tEXt", b"parameters"), (b"iTXt", b"a\0\1")))
    b.choose(path, "#read-file")
    report(b.wait("/no PNG file with parameters/.test(document.getElementById('alert')"
                  ".textContent)"), "a file without them", text_of(b, "#alert"))


def write_start():
    """An image of 64 x 64 pixels."""
    rows = b"".join(b"\0" + bytes(v for x in range(64) for v in (4 * x, 4 * y, 128))
                    for y in range(64))
    path = T / "start.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
        ">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
        chunk(b"IEND", b""))
    return path


def mask_of(b):
    """Rows of the mask that would be sent, and the file."""
    data = base64.b64decode(b.run("""import('/page/mask.js').then((m) => m.maskBlob())
        .then((blob) => blob.arrayBuffer())
        .then((a) => btoa(String.fromCharCode(...new Uint8Array(a))))"""))
    width, height, bits, colour = struct.unpack(">IIBB", data[16:26])
    at = data.index(b"IDAT")
    (n,) = struct.unpack(">I", data[at - 4:at])
    raw = zlib.decompress(data[at + 4:at + 4 + n])
    assert (bits, colour) == (8, 0), (bits, colour)
    return [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)], data


def drawn(b, erase=False):
    """A stroke from left to right through the middle, a tenth of the height wide."""
    b.run(f"document.getElementById('erase').checked = {str(erase).lower()}")
    x, y, w, h = b.box("#mask")
    b.mouse("mousePressed", x + 1, y + h / 2, buttons=1)
    for i in range(1, 5):
        b.mouse("mouseMoved", x + w * (0.3 if erase else 1) * i / 4 - 1, y + h / 2, buttons=1)
    b.mouse("mouseReleased", x + w * (0.3 if erase else 1) - 1, y + h / 2)


def mask(b):
    b.run("document.getElementById('brush').value = 20")
    drawn(b)
    rows, _ = mask_of(b)
    side, middle = len(rows), len(rows) // 2
    bright = sum(v == 255 for r in rows for v in r)
    report(side == 64 and len(rows[0]) == 64 and set(rows[middle]) == {255} and
           set(rows[0]) == {0} and 0.15 < bright / side ** 2 < 0.25, "a mask is drawn", bright)
    drawn(b, True)
    rows, _ = mask_of(b)
    report(rows[middle][5] == 0 and rows[middle][-5] == 255, "and erased on its left")
    b.click("#mask-clear")
    report(b.run("import('/page/mask.js').then((m) => m.maskBlob())") is None, "cleared")
    b.run("document.getElementById('erase').checked = false")
    b.run("document.getElementById('mask').focus()")
    b.key("ArrowDown")
    b.key(" ", " ")
    b.key("ArrowRight")
    rows, _ = mask_of(b)
    report(rows[middle + 6][middle] == 255 and rows[middle + 6][middle + 12] == 0 and
           rows[middle - 10][middle] == 0, "drawn with the keyboard")
    b.choose(ROOT / "tests" / "golden" / "sd3-mask" / "mask.png", "#mask-file")
    b.wait("document.getElementById('mask-file').value === ''")
    bright = sum(v == 255 for r in mask_of(b)[0] for v in r) / 64 ** 2
    report(0.02 < bright < 0.98, "read from a file", bright)
    b.click("#mask-clear")
    drawn(b)


def edits(b, s):
    """From an image, by file and by paste, with a mask: what the interface makes of the same."""
    start = write_start()
    fields = {"model": "sd3", "prompt": "a tiger", "num_inference_steps": 2, "seed": 3,
              "strength": 0.7}
    fill(b, **fields, width="", height="", guidance_scale="", negative_prompt="", scheduler="")
    b.choose(start, "#start-file")
    report(b.wait("!document.getElementById('start-there').hidden"), "an image to start from",
           text_of(b, "#alert"))
    items = b.run(ITEMS)
    sent = start.read_bytes()
    for what in ("without a mask", "with one"):
        files = [("image", "a.png", sent)]
        if what == "with one":
            mask(b)
            files.append(("mask", "m.png", mask_of(b)[1]))
        b.click("#generate")
        report(made(b, items + 1), f"an edit {what}", b.run(STATES), text_of(b, "#alert"))
        items += 1
        r = s.form("/v1/images/edits", [*fields.items(), *files])
        data = saved(b, newest(b))
        report(r.status == 200 and data == base64.b64decode(r.json["data"][0]["b64_json"]) and
               (b"mask_image" in data) == (what == "with one"), "is that of the interface", r)
    b.click("#start-remove")
    report(b.run("document.getElementById('start-there').hidden"), "removed")
    b.run("""(async () => { const c = document.createElement('canvas'); c.width = c.height = 64;
        c.getContext('2d').fillRect(0, 0, 9, 9); const t = new DataTransfer();
        t.items.add(new File([await new Promise((r) => c.toBlob(r))], 'a.png',
                             { type: 'image/png' }));
        document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData: t, bubbles: true,
            cancelable: true })); })()""")
    report(b.wait("!document.getElementById('start-there').hidden"), "pasted")
    b.click("#start-remove")
    b.drop(start, "#start-file")
    report(b.wait("!document.getElementById('start-there').hidden"), "dropped")
    everything_has_a_name(b)
    b.click("#start-remove")
    button(b, 1, "Start from this image")
    report(b.wait("!document.getElementById('start-there').hidden"), "a result to start from")
    b.click("#start-remove")


def turned(b, s):
    """A photograph that is to be held otherwise is sent as it is seen; others are sent as they are.
    """
    fill(b, model="demo-pixart")
    r = s.post("/v1/images/generations", {"prompt": PROMPT, "num_inference_steps": 1, "size":
                                          "96x160", "output_format": "jpeg"})
    data = base64.b64decode(r.json["data"][0]["b64_json"])
    exif = b"Exif\0\0II*\0\x08\0\0\0\1\0" + struct.pack("<HHIHHI", 0x0112, 3, 1, 6, 0, 0)
    for what, more, size, kind in (
            ("a photograph", b"", [96, 160], "image/jpeg"),
            ("a turned one", b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif, [160, 96],
             "image/png")):
        path = T / "photo.jpg"
        path.write_bytes(data[:2] + more + data[2:])
        b.choose(path, "#start-file")
        b.wait("!document.getElementById('start-there').hidden")
        got = b.run("""import('/page/mask.js').then((m) => { const c =
            document.getElementById('mask'); return [c.width, c.height, m.startBlob().type]; })""")
        report(got == [*size, kind], f"{what}: {size}, {kind}", got)
        b.click("#start-remove")
    names = b.run("""import('/page/png.js').then((m) => ['models/a/',
        'c/models--org--name/snapshots/5f'].map((model) => m.ownParameters({ model }).model))""")
    report(names == ["a", "org/name"], "models by the names that requests use", names)


def newest(b):
    return b.run("document.querySelector('#gallery > li').id").split("-")[1]


def more_images(b, s):
    """Models that read several images, and that begin and end a video with one."""
    start, items = write_start(), b.run(ITEMS)
    wide = ROOT / "doc" / "sheet.png"
    fields = {"model": "flux2", "prompt": "a", "num_inference_steps": 1, "seed": 3, "width": 64,
              "height": 64}
    fill(b, **fields, strength="", guidance_scale="", scheduler="")
    b.choose(start, "#start-file")
    b.choose(wide, "#more-files")
    b.wait("!document.getElementById('start-there').hidden")
    report(b.run("document.getElementById('strength-row').hidden"), "a model without strength")
    b.click("#generate")
    report(made(b, items + 1), "two images are read", b.run(STATES), text_of(b, "#alert"))
    r = s.form("/v1/images/edits", [*fields.items(), ("image", "a.png", start.read_bytes()),
                                    ("image[]", "b.png", wide.read_bytes())])
    report(r.status == 200 and
           saved(b, newest(b)) == base64.b64decode(r.json["data"][0]["b64_json"]),
           "as by the interface", r)
    fill(b, model="wan-flf", num_frames=5)
    b.click("#generate")
    report(b.wait("/ends with/.test(document.getElementById('alert').textContent)") and
           b.run("document.activeElement.id") == "last-file", "a last image is missing")
    b.choose(start, "#last-file")
    b.click("#generate")
    report(made(b, items + 2), "a video with both ends", b.run(STATES), text_of(b, "#alert"))
    b.click("#start-remove")
    b.click("#generate")
    report(b.wait("/needs an image/.test(document.getElementById('alert').textContent)"),
           "the first one is missing")
    fill(b, model="demo-pixart", width="", height="", num_frames="")


def video(b):
    items = b.run(ITEMS)
    fill(b, model="cog2b", strength="", num_frames=5)
    hidden = b.run("['#start', 'p:has(#count)', 'p:has(#frames)'].map((s) => "
                   "document.querySelector(s).hidden)")
    report(hidden == [True, True, False], "a model of videos has other fields", hidden)
    b.click("#generate")
    report(made(b, items + 1), "a video", b.run(STATES), text_of(b, "#alert"))
    report(b.wait("(() => { const v = document.querySelector('#gallery video');"
                  " return v ? v.readyState > 1 : document.querySelector('#gallery img').complete;"
                  " })()"), "is shown")
    shown = text_of(b, "#gallery dl")
    report("Frames8" in shown and "Modelcog2b" in shown, "with its parameters", shown)
    # long enough for a slow browser beside a fast processor
    fill(b, num_inference_steps=1000, num_frames=49, width=128, height=96)
    b.click("#generate")
    report(b.wait(f"/%/.test({STATES})"), "a long one runs", b.run(STATES))
    report(b.wait("document.querySelector('#jobs img')?.naturalWidth", 30), "and has a preview",
           b.run(STATES))
    b.click("#jobs > li button")
    report(b.wait(f"{JOBS} === 0"), "and is cancelled", b.run(STATES))
    fill(b, num_inference_steps=2, num_frames="", width="", height="")


# ---- who looks at it, and how ---------------------------------------------------------------

CONTROLS = {"button", "textbox", "combobox", "spinbutton", "slider", "checkbox", "link", "image",
            "progressindicator", "application", "Video", "dialog", "Canvas"}


def everything_has_a_name(b):
    nodes = [n for n in b.call("Accessibility.getFullAXTree")["nodes"] if not n["ignored"]]
    found = [(n["role"]["value"], n.get("name", {}).get("value", "").strip()) for n in nodes
             if n["role"]["value"] in CONTROLS]
    names = [f for f in found if f[0] in ("button", "link") and
             not f[1].islower()]        # those are the browser's own, of videos: "play"
    report(len(found) > 20 and all(name for _, name in found), f"{len(found)} controls have names",
           [f for f in found if not f[1]])
    bare = b.run("""[...document.querySelectorAll('input, select, textarea')].filter((e) =>
        !e.labels.length && !e.ariaLabel).map((e) => e.outerHTML)""")
    report(not bare, "every field has a label", bare)
    report(len(set(names)) == len(names), "no two buttons have one name",
           [n for n in names if names.count(n) > 1])


CONTRAST = """(() => {
    const parse = (c) => c.match(/[\\d.]+/g).map(Number);
    const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) =>
        v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => { for (; e; e = e.parentElement) {
        const c = parse(getComputedStyle(e).backgroundColor);
        if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
    return [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() &&
        [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) => {
        const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))]
            .sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), e.textContent.trim().slice(0, 30)]; })
        .sort((x, y) => x[0] - y[0])[0]; })()"""


def colours(b):
    seen = []
    b.run("scrollTo(0, 0)")
    for scheme, most in (("light", 255 * 3), ("dark", 150)):
        b.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": scheme}])
        seen.append(b.pixel(3, 3))
        report((sum(seen[-1]) > 600) if scheme == "light" else sum(seen[-1]) < most,
               f"the background of {scheme}", seen)
        least = b.run(CONTRAST)
        report(least[0] >= 4.5, f"contrast of every text in {scheme}: {least[0]:.1f}", least)
    b.call("Emulation.setEmulatedMedia", features=[])


def phone(b):
    b.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1,
           mobile=True)
    wide = b.run("""[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() &&
        !e.closest('.unseen, .skip') && e.getBoundingClientRect().right > 360.5).map((e) =>
        e.outerHTML.slice(0, 80))""")
    report(b.run("document.documentElement.scrollWidth") <= 360 and not wide,
           "360 pixels are wide enough", wide)
    b.call("Emulation.clearDeviceMetricsOverride")


def focused(b):
    return b.run("document.activeElement.id || document.activeElement.tagName")


def keyboard(b):
    """A new session without a pointer."""
    b.open()
    b.wait("document.getElementById('model').options.length === 5")
    report(b.wait(f"{ITEMS} === 2 && {JOBS} === 0"), "the server's videos are there after a reload")
    frames = "[...document.querySelectorAll('#gallery img')].map((e) => e.naturalWidth)"
    b.wait(f"{frames}.every((w) => w)")
    frames = b.run(frames)
    b.click("#gallery button")
    report(sorted(frames) == [56, 64] and b.wait(
        f"document.querySelector('#gallery video, #gallery a img') && {ITEMS} === 2"),
           "by their first frames, and one of them when it is asked for", frames,
           text_of(b, "#alert"), text_of(b, "#gallery"))
    items, order = b.run(ITEMS), []
    b.run("document.activeElement.blur(); scrollTo(0, 0)")
    b.run("document.getElementById('model').focus()")
    for _ in range(30):
        b.key("Tab")
        order.append(focused(b))
        if order[-1] == "prompt":
            b.type("a red circle")
        if order[-1] == "steps":
            b.type("2")
        if order[-1] == "generate":
            break
    wanted = ["prompt", "negative", "width", "height", "steps", "guidance", "seed",
              "count", "sampler", "start-file", "previews", "generate"]
    report(order == wanted, "Tab goes from the model to the button", order)
    ring = b.run("getComputedStyle(document.activeElement).outlineWidth")
    report(ring == "3px", "the focus is seen", ring)
    b.key("Enter", "\r")
    report(made(b, items + 1), "Enter generates", b.run(STATES), text_of(b, "#alert"))
    b.run("document.getElementById('prompt').focus()")
    b.key("Enter", "\r", modifiers=2)
    report(made(b, items + 2), "and Ctrl+Enter in the prompt")
    b.run("document.querySelector('.skip').focus()")
    b.key("Enter", "\r")
    report(focused(b) == "results", "the link skips to the results")


def clean(b, origin, expected=()):
    """Nothing is complained of but what is expected, and nothing is asked of another host."""
    bad = [c for c in b.complaints()
           if not any(e in json.dumps(c) for e in expected)]
    report(not bad, "no error in the console", bad)
    asked = {re.match(r"[a-z]+:(//[^/]*|)", u)[0] for u in b.requested()
             if not u.startswith(("blob:" + origin, "data:", "about:"))}
    report(asked == {origin}, "no request to another host", asked)


# ---- the page itself ------------------------------------------------------------------------


def headers(s):
    r = s.get("/")
    policy = r.headers.get("Content-Security-Policy", "")
    report(r.status == 200 and r.headers["Content-Type"] == "text/html; charset=utf-8" and
           "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
           "media-src 'self' blob:; connect-src 'self'" in policy, "the page and its policy", r)
    report(b"<script>" not in r.body and b" style=" not in r.body and b" on" + b"click" not in
           r.body and not re.search(rb"https?://", r.body), "nothing inline or from elsewhere")
    tag = r.headers["ETag"]
    r = s.get("/", **{"If-None-Match": tag})
    report(r.status == 304 and not r.body and r.headers["Cache-Control"] == "no-cache",
           "304 where it is known", r)
    for name, kind in (("page.css", "text/css"), ("page.js", "text/javascript"),
                       ("icon.svg", "image/svg+xml")):
        r = s.get("/page/" + name)
        report(r.status == 200 and r.headers["Content-Type"].startswith(kind) and
               r.headers["ETag"] != tag and r.body ==
               (ROOT / "app" / "serve" / "page" / name).read_bytes(), name, r.headers)
    for path in ("/page/nope", "/page/", "/page/../index.html", "/page/..%2fserver.c", "/page"):
        report(s.get(path).status == 404, f"404: {path}")
    report(s.post("/", {}).status == 405, "405")
    report("innerHTML" not in "".join(f.read_text() for f in
                                      (ROOT / "app" / "serve" / "page").glob("*.js")),
           "no script writes HTML")


def key(b):
    """A server that asks for one: the page asks the visitor, once, until it is right."""
    with Server("--api_key", "secret") as s:
        b.open(address(s))
        report(b.wait("document.getElementById('key-dialog').open"), "it asks for the key")
        report(b.run("document.activeElement.id") == "key" and
               "asks for a key" in text_of(b, "#key-why"), "and says why")
        everything = "document.getElementById('model').options.length"
        b.type("wrong")
        b.key("Enter", "\r")
        b.wait("!document.getElementById('key').value")
        report(b.wait("document.getElementById('key-dialog').open") and b.run(everything) == 0,
               "a wrong one is asked for again")
        b.type("secret")
        b.key("Enter", "\r")
        report(b.wait(everything + " === 1"), "the right one opens the page")
        b.open()
        report(b.wait(everything + " === 1") and
               not b.run("document.getElementById('key-dialog').open"), "and is kept")
        fill(b, prompt=PROMPT, num_inference_steps=2)
        b.click("#generate")
        report(made(b, 1), "and an image is made")
        clean(b, address(s), ["status of 401"])


def ended(b, s):
    """The server ends while a request runs, and is not there for the next one."""
    fill(b, prompt=PROMPT, num_inference_steps=1000, width=256, height=256)
    b.click("#generate")
    b.wait(f"/Step/.test({STATES})")
    s.process.kill()
    s.process.wait()
    error = "document.querySelector('#jobs .error')?.textContent"
    said = b.wait(error) or ""
    report("connection to the server broke" in said, "a server that breaks", said)
    b.click("#jobs > li button")
    b.click("#generate")
    said = b.wait(error) or ""
    report("cannot be reached" in said, "a server that is gone", said)


def address(s):
    return "http://{}:{}".format(*s.address)


def main():
    for name in ("sd3", "cog2b", "flux2", "wan-flf"):
        subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(T / name)],
                       check=True, stdout=subprocess.DEVNULL)
    models = [a for m in ("sd3", "cog2b", "flux2", "wan-flf") for a in ("--model", str(T / m))]
    with Server(*models) as s, \
         browser.Browser(T / "profile") as b:
        headers(s)
        b.open(address(s))
        mine = session(b)
        again(b, mine)
        several(b)
        cancelled(b, s)
        clean(b, address(s))
        mistakes(b)
        parameters(b, mine)
        edits(b, s)
        turned(b, s)
        more_images(b, s)
        video(b)
        everything_has_a_name(b)
        colours(b)
        phone(b)
        keyboard(b)
        clean(b, address(s), ["status of 400"])
        ended(b, s)
    with browser.Browser(T / "profile2") as b:
        key(b)
    end()


if __name__ == "__main__":
    sys.exit(main())

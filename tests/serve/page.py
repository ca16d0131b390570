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

RESULTS = "document.querySelectorAll('#gallery > .card:not(.run, .failed)').length"
RUNS = "document.querySelectorAll('#gallery > .run').length"
STATES = "[...document.querySelectorAll('.state')].map((e) => e.textContent).join('|')"
NEWEST = "#gallery > .card:not(.run, .failed)"
ORDER = r"/^(?=.*Waiting: 1 ahead in the queue)(?=.*Waiting: 2 ahead).*Step \d+ of 1000/"
FITS = "document.documentElement.scrollHeight <= innerHeight"
ALERT = "document.getElementById('alert-text').textContent"
MODELS = "document.getElementById('model').options.length"
GIVEN = "!!document.querySelector('#start-slot.filled')"


def value(b, name):
    return b.run(f"document.getElementById('form').elements['{name}'].value")


def fill(b, **fields):
    """Fields by their names, as a visitor changes them; the model first, which has its own."""
    for name, text in sorted(fields.items(), key=lambda f: f[0] != "model"):
        b.run(f"""(() => {{ const e = document.getElementById('form').elements['{name}'];
            e.value = {json.dumps(str(text))};
            e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()""")


def text_of(b, selector):
    return b.run(f"document.querySelector('{selector}')?.textContent")


def focused(b):
    return b.run("document.activeElement.id || document.activeElement.tagName")


def file_of(b):
    """The file that "Save" of the newest result gives: its bytes and its name."""
    data = b.run(f"""(async () => {{ const a = document.querySelector('{NEWEST} a[download]');
        const bytes = new Uint8Array(await (await fetch(a.href)).arrayBuffer());
        let text = ''; for (const v of bytes) text += String.fromCharCode(v);
        return [btoa(text), a.download]; }})()""")
    return base64.b64decode(data[0]), data[1]


def choose_action(b, text):
    """One of the menu of the newest result."""
    b.click(NEWEST + " [aria-haspopup=menu]")
    b.run(f"""[...document.querySelectorAll('#menu button')]
        .find((e) => e.textContent.startsWith('{text}')).click()""")


def made(b, items, seconds=60):
    """Are there so many results, and does nothing run?"""
    ok = b.wait(f"{RESULTS} === {items} && {RUNS} === 0", seconds)
    if not ok:
        print("#", b.run(f"[{RESULTS}, {STATES}, {ALERT}, document.getElementById('news')"
                         ".textContent, ...[...document.querySelectorAll('.error, .field-error')]"
                         ".map((e) => e.textContent)]"), flush=True)
    return ok


def error_at(b, name):
    """The sentence at a field, which has the focus or shows where it is wrong."""
    return b.wait(f"""(() => {{ const e = document.getElementById('form').elements['{name}'];
        return e.ariaInvalid === 'true' &&
            document.getElementById(e.getAttribute('aria-describedby'))?.textContent; }})()""", 10)


# ---- requests -------------------------------------------------------------------------------


def session(b):
    report(b.wait(f"{MODELS} === 7") and value(b, "num_inference_steps") == "20" and
           value(b, "width") == "128" and value(b, "guidance_scale") == "4.5",
           "the form has the model's defaults")
    report(b.run("document.activeElement === document.body"), "the focus is nowhere yet")
    report(b.run(FITS), "the window itself does not scroll")
    b.click("#generate")
    report(error_at(b, "prompt") and focused(b) == "prompt", "a prompt is missing, at its field")
    b.type(PROMPT)
    report(b.run("!document.querySelector('.field-error')"), "the sentence goes as it is mended")
    fill(b, num_inference_steps=300, seed=7)
    b.run("""window.told = new Set(); new MutationObserver(() => {
        const i = document.querySelector('.run img:not([hidden])');
        if (i) told.add('preview ' + i.src);
        told.add(document.querySelector('.state')?.textContent + ' ' + document.title); })
        .observe(document.getElementById('gallery'), { subtree: true, childList: true,
                                                       characterData: true, attributes: true })""")
    b.key("Enter", "\r", modifiers=2)
    report(made(b, 1), "Ctrl+Enter generates", b.run(ALERT), b.run(STATES))
    told = b.run("[...told]")
    report(any(re.search(r"Step \d+ of 300 [\d.]+ (it/s|s/it) \d+:\d\d left .*\d+ % - xdit", t)
               for t in told), "step, speed, time left, and per cent in the title", told)
    report(any(t.startswith("preview") for t in told) and b.run("document.title") == "xdit",
           "previews are shown, and the title ends", told)
    report("The image is ready" in text_of(b, "#news"), "screen readers hear of it")
    fill(b, num_inference_steps=30)
    b.click("#generate")
    report(made(b, 2), "a second image", b.complaints())
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "30", "--seed", "7")
    data, name = file_of(b)
    report(data == mine and name.startswith("xdit-7-") and name.endswith(".png"),
           "saved, it is the file of the command line", name)
    shown = text_of(b, NEWEST + " dl")
    report("Steps30" in shown and "Size128 x 128" in shown and "Seed7" in shown and
           text_of(b, NEWEST + " .prompt") == PROMPT, "with its settings", shown)
    return mine


def seeds(b):
    """The dice, the lock, and what the menu of a result does."""
    fill(b, num_inference_steps=2, prompt="a green square")
    b.click("#dice")
    b.click("#generate")
    made(b, 3)
    drawn = re.search(r"seed (\d+)", text_of(b, NEWEST + " .hint"))[1]
    report(value(b, "seed") == "" and int(drawn) != 7 and drawn in text_of(b, "#last-seed"),
           "a seed by chance, which is shown", drawn)
    b.click("#lock")
    report(value(b, "seed") == drawn and
           b.run("document.getElementById('lock').ariaPressed") == "true", "and can be kept")
    fill(b, prompt="nothing", num_inference_steps=9, seed="")
    choose_action(b, "Use these settings")
    report(value(b, "prompt") == "a green square" and value(b, "num_inference_steps") == "2" and
           value(b, "seed") == drawn, "its settings are in the form")
    b.run("navigator.clipboard.writeText = (t) => { window.copied = t; return Promise.resolve(); }")
    choose_action(b, "Copy the prompt")
    report(b.run("window.copied") == "a green square", "the prompt is copied")
    choose_action(b, "Delete")
    report(b.wait(f"{RESULTS} === 2"), "deleted")
    fill(b, prompt=PROMPT, n=2, seed=5)
    b.click("#generate")
    report(made(b, 4) and "2 images are ready" in text_of(b, "#news"), "two of one request")
    fill(b, num_inference_steps=200)
    b.click("#generate")
    b.wait(f"{RESULTS} === 5")
    b.click(".run .cancel")
    report(made(b, 5), "cancelled, what was made before stays")
    choose_action(b, "Delete")
    report(b.wait(f"{RESULTS} === 4"), "and can be deleted")
    fill(b, n=1, num_inference_steps=2)


def sizes(b):
    """Presets have the area of the model's own size, in its multiples."""
    found = []
    for i in range(1, 7):
        b.run(f"document.querySelector('.preset:nth-child({i})').click()")
        found.append((int(value(b, "width")), int(value(b, "height"))))
    report(found[0] == (128, 128) and found[3][0] == found[5][1] and
           all(w % 16 == h % 16 == 0 and 0.8 < w * h / 128 ** 2 < 1.2 for w, h in found) and
           len(set(found)) > 3, "ratios", found)
    b.click("#swap")
    report((int(value(b, "width")), int(value(b, "height"))) == found[5][::-1], "swapped")
    b.run("document.querySelector('.preset').click()")
    b.run("""(() => { const s = document.querySelector('[data-for=steps]'); s.value = 33;
        s.dispatchEvent(new Event('input', { bubbles: true })); })()""")
    report(value(b, "num_inference_steps") == "33", "the slider sets the number")


def cancelled(b, s):
    """A running request is found again after a reload, and is cancelled at its card."""
    items, before = b.run(RESULTS), s.metric('jobs_total{state="cancelled"}')
    fill(b, num_inference_steps=1000, width=256, height=256)
    for _ in range(3):
        b.click("#generate")
    report(b.wait(f"{ORDER}.test({STATES})"),
           "one runs, two wait", b.run(STATES))
    b.open()
    report(b.wait(f"{ORDER}.test({STATES}) && {RESULTS} === {items}"),
           "and are found after a reload, with the results", b.run(STATES), b.run(RESULTS))
    report(value(b, "num_inference_steps") == "1000" and value(b, "prompt") == PROMPT,
           "so is the form")
    for left in (2, 1, 0):
        b.click("#gallery > .run:nth-last-child(1 of .run) .cancel")
        report(b.wait(f"{RUNS} === {left}"), f"cancelled: {left} left", b.run(STATES))
    report(wait_for(lambda: s.metric('jobs_total{state="cancelled"}') == before + 3 and
                    s.metric("running") == 0), "on the server, too")
    report(b.run(RESULTS) == items and b.run(ALERT) == "" and focused(b) == "generate",
           "nothing comes of it; the focus stays")
    fill(b, width=128, height=128, num_inference_steps=2)


def mistakes(b):
    """The server's sentence stands at the field that it is about."""
    items = b.run(RESULTS)
    fill(b, width=100)
    b.click("#generate")
    said = error_at(b, "width") or ""
    report("multiple of 16" in said and focused(b) == "width", "at the width", said)
    fill(b, width=128)
    report(b.run("!document.querySelector('.field-error, [aria-invalid]')"), "and goes")
    b.run("document.getElementById('sampler').append(new Option('x', 'no-such'))")
    fill(b, scheduler="no-such")
    b.click("#generate")
    report("no-such" in (error_at(b, "scheduler") or "") and
           b.run("document.getElementById('advanced').open"), "where it was folded")
    fill(b, scheduler="")
    b.run("document.getElementById('advanced').open = false")
    report(b.wait(f"{RUNS} === 0 && !document.querySelector('.failed')") and
           b.run(RESULTS) == items, "no card is left of them")


def others(b, s):
    """A request of another client is there when the window is seen again."""
    items = b.run(RESULTS)
    s.post("/v1/images/generations", {"prompt": "another", "num_inference_steps": 1})
    b.run("document.dispatchEvent(new Event('visibilitychange'))")
    report(made(b, items + 1) and text_of(b, NEWEST + " .prompt") == "another",
           "what others ask for appears")


def lightbox(b):
    """The next one, zoom, two compared, closed."""
    items = b.run(RESULTS)
    b.click(NEWEST + " .media")
    title = "document.getElementById('viewer-title').textContent"
    report(b.run("document.getElementById('viewer').open") and b.run(title) == f"1 of {items}",
           "a result fills the window", b.run(title))
    b.key("ArrowRight")
    report(b.run(title) == f"2 of {items}", "the arrow shows the next one", b.run(title))
    b.key("+", "+")
    zoom = "document.querySelector('#viewer-stage img').style.transform"
    report("scale(1.25)" in b.run(zoom), "larger", b.run(zoom))
    b.key("c", "c")
    report(b.run("document.querySelectorAll('#viewer-stage img').length") == 2 and
           "on the left" in b.run(title), "two are compared")
    b.run("""(() => { const r = document.getElementById('compare-at'); r.value = 25;
        r.dispatchEvent(new Event('input')); })()""")
    clip = b.run("document.querySelector('.layer.over').style.clipPath")
    report("25%" in clip, "by a divider that moves", clip)
    everything_has_a_name(b)
    b.key("Escape")
    report(b.wait("!document.getElementById('viewer').open") and b.run(FITS), "Escape closes it")


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


def drop(b, path, place):
    """A file from outside: where it may go is shown while it is over the page."""
    x, y = 640, 400
    data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver"):
        b.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)
    x, y, w, h = b.box(f"#drops [data-place={place}]")
    for kind in ("dragOver", "drop"):
        b.call("Input.dispatchDragEvent", type=kind, x=x + w / 2, y=y + h / 2, data=data)


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
        drop(b, path, "read")
        b.wait("document.getElementById('prompt').value !== 'nothing'")
        got = {name: value(b, name) for name in wanted}
        report(got == wanted, f"dropped: {what}", got)
    report(b.run(ALERT) == "", "no complaint about it")
    path.write_bytes(files["A1111's iTXt"][0])
    drop(b, path, "read")
    report(b.wait(f"/no LoRA file none/.test({ALERT})"),
           "a LoRA file that the server lacks is named", b.run(ALERT))
    path.write_bytes(with_texts(mine, (b"tEXt", b"parameters"), (b"iTXt", b"a\0\1")))
    b.choose(path, "#read-file")
    report(b.wait(f"/PNG file with settings/.test({ALERT})"), "a file without them",
           b.run(ALERT))


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
    """Rows of the mask that would be sent, and the file; None: there is none."""
    text = b.run("""import('/page/images.js').then((m) => m.maskBlob()?.arrayBuffer())
        .then((a) => a && btoa(String.fromCharCode(...new Uint8Array(a))))""")
    if not text:
        return None, None
    data = base64.b64decode(text)
    width, height, bits, colour = struct.unpack(">IIBB", data[16:26])
    at = data.index(b"IDAT")
    (n,) = struct.unpack(">I", data[at - 4:at])
    raw = zlib.decompress(data[at + 4:at + 4 + n])
    assert (bits, colour) == (8, 0), (bits, colour)
    return [raw[y * (width + 1) + 1:(y + 1) * (width + 1)] for y in range(height)], data


def alpha(b):
    """Rows of what is drawn in the editor: 1 where it is generated anew."""
    data = b.run("""(() => { const c = document.getElementById('mask');
        const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
        return [c.width, [...data].filter((v, i) => i % 4 === 3).map((v) => +(v > 127))]; })()""")
    return [data[1][i:i + data[0]] for i in range(0, len(data[1]), data[0])]


def part(rows):
    return sum(map(sum, rows)) / len(rows) / len(rows[0])


def stroke(b, upto=1.0):
    """From left to right through the middle."""
    x, y, w, h = b.box("#mask")
    b.mouse("mousePressed", x + 1, y + h / 2, buttons=1)
    for i in range(1, 5):
        b.mouse("mouseMoved", x + w * upto * i / 4 - 1, y + h / 2, buttons=1)
    b.mouse("mouseReleased", x + w * upto - 1, y + h / 2)


def mask(b):
    """The editor by pointer, keyboard, file and fingers; what is undone and done again."""
    b.click("#mask-open")
    report(b.wait("document.getElementById('mask-dialog').open") and "area to regenerate" in
           text_of(b, "#mask-title"), "the editor of the mask")
    stroke(b)
    rows = alpha(b)
    middle = len(rows) // 2
    report(len(rows) == len(rows[0]) == 64 and all(rows[middle]) and not any(rows[0]) and
           0.15 < part(rows) < 0.25, "a mask is drawn", part(rows))
    b.click("#erase")
    stroke(b, 0.3)
    rows = alpha(b)
    report(not rows[middle][5] and rows[middle][-5], "and erased on its left")
    b.click("#undo")
    report(alpha(b)[middle][5], "undone")
    b.click("#redo")
    report(not alpha(b)[middle][5], "done again")
    b.click("#erase")
    b.click("#mask-clear")
    report(part(alpha(b)) == 0, "cleared")
    b.click("#mask-invert")
    report(part(alpha(b)) == 1, "inverted")
    b.run("document.getElementById('mask').focus()")
    for _ in range(2):
        b.key("z", modifiers=2)
    report(alpha(b)[middle][-5] and not alpha(b)[middle][5], "twice back with Ctrl+Z")
    b.click("#mask-clear")
    keyboard_mask(b, middle)
    fingers(b)
    b.choose(ROOT / "tests" / "golden" / "sd3-mask" / "mask.png", "#mask-file")
    b.wait("document.getElementById('mask-file').value === ''")
    report(wait_for(lambda: 0.02 < part(alpha(b)) < 0.98), "read from a file", part(alpha(b)))
    b.click("#mask-clear")
    stroke(b)
    b.click("#mask-done")
    report(b.wait("!!document.querySelector('.mask-over')") and focused(b) == "mask-open",
           "it is shown over the image")


def keyboard_mask(b, middle):
    size = "Number(document.getElementById('brush').value)"
    b.run("""document.getElementById('mask').focus();
        document.getElementById('mask').dispatchEvent(new PointerEvent('pointermove', (() => {
        const r = document.getElementById('mask').getBoundingClientRect();
        return { clientX: r.x + r.width / 2, clientY: r.y + r.height / 2 }; })()))""")
    b.key("ArrowDown")
    b.key(" ", " ")
    rows = alpha(b)
    report(rows[middle + 6][middle] and not rows[middle + 6][middle + 12] and
           not rows[middle - 10][middle], "drawn with the keyboard")
    b.key("]", "]")
    report(b.run(size) == 23, "a wider brush")
    b.key("[", "[")


def fingers(b):
    """Two of them zoom, and draw nothing."""
    x, y, w, h = b.box("#mask")
    before = part(alpha(b))
    for kind, apart in (("touchStart", 20), ("touchMove", 60), ("touchMove", 90)):
        b.call("Input.dispatchTouchEvent", type=kind, touchPoints=[
            {"x": x + w / 2 - apart, "y": y + h / 2, "id": 1},
            {"x": x + w / 2 + apart, "y": y + h / 2, "id": 2}])
    b.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    grown = b.box("#mask")[2] / w
    report(grown > 2 and part(alpha(b)) == before, "two fingers zoom", grown)
    b.run("document.querySelector('[aria-label=\"Whole image\"]').click()")
    report(abs(b.box("#mask")[2] / w - 1) < 0.01, "and back")


def edits(b, s):
    """From an image with a mask: what the interface makes of the same; also after a reload."""
    start = write_start()
    fields = {"model": "sd3", "prompt": "a tiger", "num_inference_steps": 2, "seed": 3,
              "strength": 0.7, "width": 64, "height": 64, "guidance_scale": 7}
    fill(b, model="sd3")
    b.choose(start, "#start-file")
    report(b.wait(GIVEN) and value(b, "width") == value(b, "height") == "" and
           b.run("document.querySelector('.preset:last-child').ariaPressed") == "true",
           "an image to start from, with its own size", b.run(ALERT))
    fill(b, **fields, negative_prompt="", scheduler="")
    mask(b)
    _, sent = mask_of(b)
    b.open()
    report(b.wait(f"{MODELS} === 7 && {GIVEN} && !!document.querySelector('.mask-over')") and
           mask_of(b)[1] == sent and value(b, "model") == "sd3",
           "image and mask are there after a reload")
    items = b.run(RESULTS)
    b.wait(f"{RESULTS} > 0")
    items = b.run(RESULTS)
    b.click("#generate")
    report(made(b, items + 1), "an edit with a mask", b.run(STATES), b.run(ALERT))
    r = s.form("/v1/images/edits", [*fields.items(), ("image", "a.png", start.read_bytes()),
                                    ("mask", "m.png", sent)])
    report(r.status == 200 and file_of(b)[0] == base64.b64decode(r.json["data"][0]["b64_json"]) and
           b"mask_image" in file_of(b)[0], "is that of the interface", r)
    remove_start(b)
    report(mask_of(b)[0] is None and b.run("document.getElementById('mask-row').hidden") and
           value(b, "width") == "64", "removed, with its mask")
    b.run("""(async () => { const c = document.createElement('canvas'); c.width = c.height = 64;
        c.getContext('2d').fillRect(0, 0, 9, 9); const t = new DataTransfer();
        t.items.add(new File([await new Promise((r) => c.toBlob(r))], 'a.png',
                             { type: 'image/png' }));
        document.body.dispatchEvent(new ClipboardEvent('paste', { clipboardData: t, bubbles: true,
            cancelable: true })); })()""")
    report(b.wait(GIVEN), "pasted")
    remove_start(b)
    drop(b, start, "start")
    report(b.wait(GIVEN), "dropped")
    everything_has_a_name(b)
    remove_start(b)
    fill(b, model="cog2b")
    choose_action(b, "Change a part of it")
    report(b.wait("document.getElementById('mask-dialog').open") and value(b, "model") != "cog2b",
           "a result to inpaint, by a model that can", value(b, "model"))
    b.key("Escape")
    b.wait("!document.getElementById('mask-dialog').open")
    remove_start(b)


def remove_start(b):
    b.run("document.querySelector('#start-slot .thumbnail button')?.click()")
    b.wait("!" + GIVEN)


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
        b.wait(GIVEN)
        got = b.run("""import('/page/images.js').then(async (m) => { const i = await
            createImageBitmap(m.startBlob()); return [i.width, i.height, m.startBlob().type]; })""")
        report(got == [*size, kind], f"{what}: {size}, {kind}", got)
        items = b.run(RESULTS)
        fill(b, num_inference_steps=2, scheduler="")
        b.click("#generate")
        report(made(b, items + 1) and text_of(b, NEWEST + " .hint").startswith(
            f"{size[0]} x {size[1]} "), "the result has its shape", text_of(b, NEWEST + " .hint"))
        remove_start(b)
    names = b.run("""import('/page/png.js').then((m) => ['models/a/',
        'c/models--org--name/snapshots/5f'].map((model) => m.ownParameters({ model }).model))""")
    report(names == ["a", "org/name"], "models by the names that requests use", names)


def more_images(b, s):
    """Models that read several images, and that begin and end a video with one."""
    start, items = write_start(), b.run(RESULTS)
    wide = ROOT / "doc" / "sheet.png"
    fields = {"model": "flux2", "prompt": "a", "num_inference_steps": 1, "seed": 3, "width": 64,
              "height": 64, "guidance_scale": 4}
    fill(b, model="flux2")
    b.choose(start, "#start-file")
    b.choose(wide, "#more-files")
    b.wait(GIVEN + " && !!document.querySelector('#more-slot.filled')")
    fill(b, **fields, scheduler="")
    report(b.run("document.getElementById('strength-row').hidden"), "a model without strength")
    b.click("#generate")
    report(made(b, items + 1), "two images are read", b.run(STATES), b.run(ALERT))
    r = s.form("/v1/images/edits", [*fields.items(), ("image", "a.png", start.read_bytes()),
                                    ("image[]", "b.png", wide.read_bytes())])
    report(r.status == 200 and
           file_of(b)[0] == base64.b64decode(r.json["data"][0]["b64_json"]),
           "as by the interface", r)
    fill(b, model="wan-flf", num_inference_steps=1, num_frames=5, width=64, height=64)
    b.click("#generate")
    report("ends with" in (error_at(b, "last_image") or ""), "a last image is missing")
    b.choose(start, "#last-file")
    b.wait("!!document.querySelector('#last-slot.filled')")
    b.click("#generate")
    report(made(b, items + 2), "a video with both ends", b.run(STATES), b.run(ALERT))
    remove_start(b)
    b.click("#generate")
    report("needs an image" in (error_at(b, "image") or ""), "the first one is missing")
    fill(b, model="vace", num_inference_steps=1, num_frames=1, width=32, height=32)
    b.choose(start, "#start-file")
    b.choose(start, "#more-files")
    b.choose(wide, "#video-file")
    b.wait("!!document.querySelector('#video-slot.filled')")
    b.click("#generate")
    report(made(b, items + 3), "a control video", b.run(STATES), b.run(ALERT))
    whole = file_of(b)[0]
    b.choose(start, "#area-file")
    b.wait("!!document.querySelector('#area-slot.filled')")
    b.click("#generate")
    report(made(b, items + 4), "its mask", b.run(STATES), b.run(ALERT))
    report(file_of(b)[0] != whole, "which changes the video")
    b.click("#area-slot .icon-button")
    items += 2
    remove_start(b)
    fill(b, model="flux-control", num_inference_steps=1)
    b.click("#generate")
    report("control image" in (error_at(b, "control_image") or ""), "a control image is missing")
    b.choose(start, "#control-file")
    b.wait("!!document.querySelector('#control-slot.filled')")
    report(value(b, "width") == value(b, "height") == "", "which sets the size")
    b.click("#generate")
    report(made(b, items + 3), "an image that follows it", b.run(STATES), b.run(ALERT))


def video(b):
    items = b.run(RESULTS)
    fill(b, model="cog2b", num_frames=5, num_inference_steps=2)
    hidden = b.run("['#start', '.field:has(#count)', '.pair:has(#frames)'].map((s) => "
                   "document.querySelector(s).hidden)")
    report(hidden == [True, True, False], "a model of videos has other fields", hidden)
    b.click("#generate")
    report(made(b, items + 1), "a video", b.run(STATES), b.run(ALERT))
    report(b.run(f"!!document.querySelector('{NEWEST} .play')") and
           b.wait(f"document.querySelector('{NEWEST} img').naturalWidth") == 56,
           "by its first frame, with a sign")
    shown = text_of(b, NEWEST + " dl")
    report("Frames8" in shown and "Modelcog2b" in shown, "with its settings", shown)
    b.click(NEWEST + " .media")
    report(b.wait("document.querySelector('#viewer video')?.src.startsWith('blob:')"), "it plays")
    b.key("Escape")
    fill(b, model="demo-pixart")


# ---- who looks at it, and how ---------------------------------------------------------------

CONTROLS = {"button", "textbox", "combobox", "spinbutton", "slider", "checkbox", "link", "image",
            "progressindicator", "application", "Video", "dialog", "Canvas",
            "menuitem"}


def everything_has_a_name(b):
    nodes = [n for n in b.call("Accessibility.getFullAXTree")["nodes"] if not n["ignored"]]
    found = [(n["role"]["value"], n.get("name", {}).get("value", "").strip()) for n in nodes
             if n["role"]["value"] in CONTROLS]
    names = [f for f in found if f[0] in ("button", "link") and
             not f[1].islower()]        # those are the browser's own, of videos: "play"
    report(len(found) > 8 and all(name for _, name in found), f"{len(found)} controls have names",
           [f for f in found if not f[1]])
    bare = b.run("""[...document.querySelectorAll('input, select, textarea')].filter((e) =>
        e.type !== 'hidden' && !e.labels.length && !e.ariaLabel).map((e) => e.outerHTML)""")
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
    """Nothing is too wide, and what is touched is large enough; results come into sight."""
    b.call("Emulation.setDeviceMetricsOverride", width=390, height=740, deviceScaleFactor=1,
           mobile=True)
    b.run("document.getElementById('advanced').open = true")
    wide = b.run("""[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() &&
        !e.closest('.unseen, .skip, svg') && e.getBoundingClientRect().right > 390.5).map((e) =>
        e.outerHTML.slice(0, 80))""")
    report(b.run("document.documentElement.scrollWidth") <= 390 and not wide,
           "390 pixels are wide enough", wide)
    small = b.run("""[...document.querySelectorAll('button, input, select, textarea, summary, a')]
        .filter((e) => e.checkVisibility() && !e.closest('.unseen, .skip, label, .card') &&
            e.getBoundingClientRect().height < 43.9).map((e) => e.outerHTML.slice(0, 80))""")
    report(not small, "targets have 44 pixels", small)
    b.click(NEWEST + " [aria-haspopup=menu]")
    x, _, w, _ = b.box("#menu")
    report(x >= 0 and w > 100 and x + w <= 390, "the menu fits", x, w)
    b.key("Escape")
    b.run("document.getElementById('advanced').open = false; scrollTo(0, 0)")
    items = b.run(RESULTS)
    fill(b, num_inference_steps=2, prompt=PROMPT)
    seen = b.run("(() => { const r = document.getElementById('generate').getBoundingClientRect();"
                 "return r.bottom <= innerHeight; })()")
    b.run("document.getElementById('generate').click()")
    report(seen and made(b, items + 1) and b.wait(
        "Math.abs(document.getElementById('results').getBoundingClientRect().top) < 100"),
        "the button is in sight, and results come into sight")
    b.call("Emulation.clearDeviceMetricsOverride")


def keyboard(b):
    """A new session without a pointer."""
    b.open()
    b.wait(f"{MODELS} === 7 && {RESULTS} > 0")
    items, order = b.run(RESULTS), []
    b.run("document.getElementById('model').focus()")
    for _ in range(40):
        b.key("Tab")
        name = focused(b)
        order += [name] if name not in ("INPUT", "BUTTON", "SUMMARY") else []
        if name == "prompt":
            b.run("document.activeElement.select()")
            b.type("a red circle")
        if name == "generate":
            break
    wanted = ["prompt", "negative", "start-file", "width", "swap", "height", "steps", "guidance",
              "seed", "dice", "lock", "count", "generate"]
    report(order == wanted, "Tab goes from the model to the button", order)
    ring = b.run("getComputedStyle(document.activeElement).outlineWidth")
    report(ring == "3px", "the focus is seen", ring)
    b.key("Enter", "\r")
    report(made(b, items + 1), "Enter generates", b.run(STATES), b.run(ALERT))
    b.run(f"document.querySelector('{NEWEST} [aria-haspopup=menu]').focus()")
    b.key("Enter", "\r")
    b.key("ArrowDown")
    report(b.run("document.activeElement.role") == "menuitem" and
           text_of(b, "#menu button:nth-child(2)") == b.run("document.activeElement.textContent"),
           "the menu by arrows")
    everything_has_a_name(b)
    b.key("Escape")
    report(b.wait("document.activeElement.ariaHasPopup === 'menu'"), "and back to its button")
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
    with Server("--api_key", "secret", "--num_inference_steps", "7", "--scheduler", "euler",
                "--negative_prompt", "ugly", "--seed", "5") as s:
        b.open(address(s))
        report(b.wait("document.getElementById('key-dialog').open"), "it asks for the key")
        report(b.run("document.activeElement.id") == "key" and
               "requires a key" in text_of(b, "#key-why"), "and says why")
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
        report(value(b, "num_inference_steps") == "7" and
               b.run("document.getElementById('negative').placeholder") == "ugly" and
               b.run("document.getElementById('sampler').options[0].text") == "Automatic (euler)",
               "the form has the server's defaults")
        fill(b, prompt=PROMPT, num_inference_steps=2)
        b.click("#generate")
        report(made(b, 1) and "seed 5" in text_of(b, NEWEST + " .hint"), "and an image is made")
        clean(b, address(s), ["status of 401"])


def controls(b):
    """A model with two control networks takes an image for each."""
    nets = ["--controlnet", str(T / "flux-controlnet" / "controlnet")] * 2
    images = [T / "flux-controlnet" / "control.png", T / "start.png"]
    with Server(*nets, "--num_inference_steps", "1", "--width", "64", "--height", "48",
                model=str(T / "flux-controlnet")) as s:
        b.open(address(s))
        b.wait("document.getElementById('model').options.length === 1")
        fill(b, prompt=PROMPT, seed=3)
        b.click("#generate")
        report("2 control images" in (error_at(b, "control_image") or ""), "two are missing")
        for i, path in enumerate(images):
            b.choose(path, "#control-file")
            b.wait(f"document.querySelectorAll('#control-slot .thumbnail').length === {i + 1}")
            full = b.run("document.querySelector('#control-slot').classList.contains('full')")
            report(full == (i == 1), f"room after {i + 1} of two")
        b.click("#generate")
        report(made(b, 1), "an image that follows two", b.run(STATES), b.run(ALERT))
        r = s.form("/v1/images/generations", [
            ("prompt", PROMPT), ("seed", 3),
            *(("control_image", "a.png", p.read_bytes()) for p in images)])
        report(r.status == 200 and
               file_of(b)[0] == base64.b64decode(r.json["data"][0]["b64_json"]),
               "as by the interface", r)
        fill(b, conditioning_scale="0.5, 2")
        b.click("#generate")
        report(made(b, 2), "with a scale for each", b.run(STATES), b.run(ALERT))
        scaled = s.form("/v1/images/generations", [
            ("prompt", PROMPT), ("seed", 3), ("conditioning_scale", "0.5,2"),
            *(("control_image", "a.png", p.read_bytes()) for p in images)])
        report(scaled.status == 200 and scaled.body != r.body and
               file_of(b)[0] == base64.b64decode(scaled.json["data"][0]["b64_json"]),
               "as by the interface with scales", scaled)
        b.click("#control-slot .icon-button")
        b.wait("document.querySelectorAll('#control-slot .thumbnail').length === 1")
        b.click("#generate")
        report("2 control images" in (error_at(b, "control_image") or ""), "one is missing")
        clean(b, address(s))


def varied(b):
    """A model with a prior: images to vary stand for the prompt, or beside it."""
    for name in ("flux", "flux-redux"):
        subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(T / name)],
                       check=True, stdout=subprocess.DEVNULL)
    image = ROOT / "tests" / "golden" / "flux-redux" / "redux.png"
    with Server("--redux", str(T / "flux-redux"), model=str(T / "flux")) as s:
        b.open(address(s))
        b.wait("document.getElementById('model').options.length === 1")
        fill(b, prompt="", num_inference_steps=1, width=32, height=32, seed=3)
        b.click("#generate")
        report(error_at(b, "prompt") and not b.run("document.getElementById('redux-slot').hidden"),
               "neither a prompt nor an image to vary")
        for n in (1, 2):
            b.choose(image, "#redux-file")
            b.wait(f"document.querySelectorAll('#redux-slot .thumbnail').length === {n}")
            b.click("#generate")
            report(made(b, n), f"{n} of the images to vary", b.run(STATES), b.run(ALERT))
        clean(b, address(s))


def layers(b):
    """A model that separates an image: the number of layers, each of which is a result."""
    model = T / "qwen-layered"
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "qwen-layered"), str(model)],
                   check=True, stdout=subprocess.DEVNULL)
    with Server("--max_area", "2048", model=str(model)) as s:
        b.open(address(s))
        b.wait("document.getElementById('model').options.length === 1")
        report(value(b, "layers") == "4" and not b.run(
            "document.getElementById('layers-row').hidden"), "a field of its layers")
        fill(b, prompt="a star", num_inference_steps=2, layers=2)
        b.choose(model / "image.png", "#start-file")
        b.wait(GIVEN)
        b.click("#generate")
        report(made(b, 2), "two layers", b.run(STATES), b.run(ALERT))
        shown = text_of(b, NEWEST + " dl")
        report("Layers2" in (shown or ""), "with their number", shown)
        clean(b, address(s))


def ended(b, s):
    """The server ends while a request runs, and is not there for the next one."""
    fill(b, prompt=PROMPT, num_inference_steps=1000, width=256, height=256)
    b.click("#generate")
    b.wait(f"/Step/.test({STATES})")
    s.process.kill()
    s.process.wait()
    said = b.wait(f"/Trying again/.test({ALERT}) && {ALERT}") or ""
    report("cannot be reached" in said, "a server that is gone is asked again", said)
    b.click("#alert-close")
    b.click("#generate")
    said = b.wait(ALERT) or ""
    report("cannot be reached" in said, "and refuses a request", said)


def address(s):
    return "http://{}:{}".format(*s.address)


def main():
    names = ("sd3", "cog2b", "flux2", "wan-flf", "flux-control", "vace")
    for name in names:
        subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(T / name)],
                       check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / "flux-controlnet"),
                    str(T / "flux-controlnet")], check=True, stdout=subprocess.DEVNULL)
    models = [a for m in names for a in ("--model", str(T / m))]
    with Server(*models) as s, \
         browser.Browser(T / "profile") as b:
        headers(s)
        b.open(address(s))
        mine = session(b)
        seeds(b)
        sizes(b)
        cancelled(b, s)
        mistakes(b)
        others(b, s)
        lightbox(b)
        clean(b, address(s))
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
    with browser.Browser(T / "profile3") as b:
        controls(b)
    with browser.Browser(T / "profile4") as b:
        varied(b)
    with browser.Browser(T / "profile5") as b:
        layers(b)
    end()


if __name__ == "__main__":
    sys.exit(main())

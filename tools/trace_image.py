#!/usr/bin/env python3
"""Draws the loop of a trace as an SVG: what `xdit generate --trace` wrote, for a document.

usage: trace_image.py TRACE OUT.svg [--steps FIRST-LAST] [--width PIXELS]

Each rank is a row. A coloured slice is a piece of work: one patch (its number, from 0, stands in
it; each has its colour) or all tokens (grey) through the blocks of the rank. White is waiting or
nothing to do. A thin line is a message between two ranks, from its send to the end of the wait for
it. FIRST and LAST are steps, from 1; all of the first image are drawn by default.
"""
import argparse
import html
import json

COLOURS = ["#8ecae6", "#ffb703", "#a7c957", "#f28482", "#cdb4db", "#e9c46a", "#84a98c", "#b5838d"]
GREY, LEFT, TOP, ROW, BAR = "#c9ced6", 118, 34, 64, 34


def read(path):
    with open(path, encoding="utf-8") as f:
        trace = json.load(f)
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events
             if e["ph"] == "M" and e["name"] == "process_name"}
    return trace["otherData"], events, names


def first_image(events):
    """Until the first image's loop ends on the rank that ends last."""
    ends = {}
    for e in events:
        if e.get("cat") == "phase" and e["name"] == "denoise":
            ends.setdefault(e["pid"], e["ts"] + e["dur"])
    return max(ends.values())


def chosen(events, steps, until):
    """Pieces of the steps wanted, and what else lies in their time."""
    pieces = [e for e in events if e.get("cat") == "piece" and e["ts"] < until and
              steps[0] <= e["args"]["step"] <= steps[1]]
    if not pieces:
        raise SystemExit(f"no piece of the steps {steps[0]} to {steps[1]} in this trace")
    begin = min(e["ts"] for e in pieces)
    end = max(e["ts"] + e["dur"] for e in pieces)
    waits = [e for e in events if e.get("cat") == "wait" and begin <= e["ts"] < end]
    arrows = {}
    for e in events:
        if e["ph"] in "sf" and e["name"] in ("pipefusion", "ring"):
            arrows.setdefault(e["id"], {})[e["ph"]] = e
    arrows = [a for a in arrows.values() if len(a) == 2 and begin <= a["s"]["ts"] and
              a["f"]["ts"] <= end]
    return begin, end, pieces, waits, arrows


def parts_of(piece, waits):
    """A piece of work without the time it waited: (begin, end) of what remains."""
    begin, end, parts = piece["ts"], piece["ts"] + piece["dur"], []
    for w in sorted((w for w in waits if w["pid"] == piece["pid"] and begin <= w["ts"] < end),
                    key=lambda w: w["ts"]):
        parts.append((begin, w["ts"]))
        begin = w["ts"] + w["dur"]
    return [(a, b) for a, b in parts + [(begin, end)] if b - a > .01 * piece["dur"]] or \
        [(begin, end)]


class Image:
    def __init__(self, begin, end, width, rows):
        self.begin, self.scale = begin, (width - LEFT - 12) / (end - begin)
        self.width, self.height = width, TOP + ROW * rows + 30
        self.parts = []

    def x(self, ts):
        return LEFT + (ts - self.begin) * self.scale

    def bar(self, begin, end, row, colour):
        self.parts.append(f'<rect x="{self.x(begin):.1f}" y="{TOP + ROW * row}" '
                          f'width="{max((end - begin) * self.scale, .3):.1f}" height="{BAR}" '
                          f'fill="{colour}" stroke="#555" stroke-width=".5"/>')

    def text(self, x, y, text, size=11, anchor="middle", colour="#222"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
                          f'text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>')

    def line(self, x0, y0, x1, y1, colour, more=""):
        self.parts.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
                          f'stroke="{colour}"{more}/>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" '
                f'height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                f'font-family="Helvetica, Arial, sans-serif">\n'
                f'<rect width="100%" height="100%" fill="#fff"/>\n' +
                "\n".join(self.parts) + "\n</svg>\n")


def draw_axis(p, begin, end, rows):
    span, tick = (end - begin) / 1e6, 1e-5
    while span / tick > 14:
        tick *= 2 if f"{tick:e}"[0] != "2" else 2.5
    y, t = TOP + ROW * rows - 14, 0.0
    while t <= span:
        p.line(p.x(begin + t * 1e6), TOP - 6, p.x(begin + t * 1e6), y, "#ddd", ' stroke-width=".6"')
        p.text(p.x(begin + t * 1e6), y + 14, f"{t * 1000:.6g}", 10, colour="#666")
        t += tick
    p.text(LEFT - 8, y + 14, "ms", 10, "end", "#666")


def draw_steps(p, pieces, row_of):
    """The number of each step above where it begins on the first rank."""
    first = {}
    for e in pieces:
        if row_of[e["pid"]] == 0:
            first[e["args"]["step"]] = min(first.get(e["args"]["step"], e["ts"]), e["ts"])
    for step, ts in first.items():
        p.text(p.x(ts) + 2, TOP - 12, f"step {step}", 11, "start")
        p.line(p.x(ts), TOP - 22, p.x(ts), TOP - 2, "#888", ' stroke-width=".8"')


def draw(path, out, steps, width):
    about, events, names = read(path)
    begin, end, pieces, waits, arrows = chosen(events, steps, first_image(events))
    ranks = sorted({e["pid"] for e in pieces})
    row_of = {pid: i for i, pid in enumerate(ranks)}
    p = Image(begin, end, width, len(ranks))
    draw_axis(p, begin, end, len(ranks))
    for e in pieces:
        patch, row = e["args"]["patch"], row_of[e["pid"]]
        label = "all" if patch < 0 else str(patch)
        work = parts_of(e, [w for w in waits if w["dur"] * p.scale > .3])
        for a, b in work:
            p.bar(a, b, row, GREY if patch < 0 else COLOURS[patch % len(COLOURS)])
        a, b = max(work, key=lambda w: w[1] - w[0])
        if (b - a) * p.scale > 5 + 6 * len(label):
            p.text(p.x((a + b) / 2), TOP + ROW * row + BAR / 2 + 4, label)
    for a in arrows:
        down = row_of[a["s"]["pid"]] < row_of[a["f"]["pid"]]
        y0 = TOP + ROW * row_of[a["s"]["pid"]] + (BAR if down else 0)
        y1 = TOP + ROW * row_of[a["f"]["pid"]] + (0 if down else BAR)
        p.line(p.x(a["s"]["ts"]), y0, p.x(a["f"]["ts"]), y1, "#1d3557" if down else "#c1121f",
               ' stroke-width=".8"')
    draw_steps(p, pieces, row_of)
    for pid in ranks:
        some = [w for i, w in enumerate(names[pid].split(", ")) if i != 1]      # not the host
        for i, word in enumerate([some[0], " ".join(some[1:])]):
            p.text(10, TOP + ROW * row_of[pid] + 15 + 14 * i, word, 12 - i, "start")
    with open(out, "w", encoding="utf-8") as f:
        f.write(p.svg())
    print(f"{out}: {about['plan']}, {len(pieces)} pieces, {len(arrows)} messages, "
          f"{(end - begin) / 1e3:.1f} ms")


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("trace")
    a.add_argument("out")
    a.add_argument("--steps", default="1-1000000", help="FIRST-LAST, from 1")
    a.add_argument("--width", type=int, default=960)
    o = a.parse_args()
    first, _, last = o.steps.partition("-")
    draw(o.trace, o.out, (int(first), int(last or first)), o.width)


main()

"""drawings.py XDIT MODEL - the drawings of xdit plan --svg and xdit trace show the right times.

A lane is 640 pixels wide from x = 76. Widths are compared with the seconds of xdit plan --json, and
with sums over the events of a trace that are computed here.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.dom.minidom

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))
from tap import check, done

XDIT, MODEL = str(pathlib.Path(sys.argv[1]).resolve()), str(pathlib.Path(sys.argv[2]).resolve())
T = pathlib.Path(tempfile.mkdtemp())
LEFT, LANE, WAITING, MESSAGE = 76, 640, "#e4e4e4", "#2f8f5b"
LANES, MEMORY = (LEFT, LEFT + LANE), 740


def run(*args):
    return subprocess.run([XDIT, *map(str, args)], capture_output=True, text=True, cwd=T)


def read(path):
    """Panels of a drawing: [(title, [{kind: pixels} of each lane], peaks)]."""
    root = xml.dom.minidom.parse(str(path)).documentElement
    panels = []
    for e in (n for n in root.childNodes if n.nodeType == n.ELEMENT_NODE):
        x, y = float(e.getAttribute("x") or 0), float(e.getAttribute("y") or 0)
        if e.tagName == "text":
            text = e.firstChild.data
            if y > 60 and e.getAttribute("font-size") == "13":
                panels.append((text, [], []))
            elif panels and text.startswith("rank "):
                panels[-1][1].append({"compute": 0.0, "wait": 0.0, "message": 0.0})
            elif panels and x > MEMORY:
                panels[-1][2].append(text)
        elif panels and panels[-1][1] and LANES[0] <= x < LANES[1]:
            fill, lane = e.getAttribute("fill"), panels[-1][1][-1]
            if fill == "#c8c8c8":       # a line of the axis
                continue
            kind = {WAITING: "wait", MESSAGE: "message"}.get(fill, "compute")
            lane[kind] += float(e.getAttribute("width"))
    return panels


def near(a, b, tolerance):
    return abs(a - b) <= tolerance


# ---- plans ----

r = run("plan", "--model", MODEL, "--cluster", "8xH100", "--world", 3, "--json", "--svg", "p.svg")
plans = [p for p in json.loads(r.stdout)["plans"] if "refused" not in p]
panels = read(T / "p.svg")
check("a drawing of the fastest plans", r.returncode == 0 and len(panels) == min(4, len(plans)) and
      all(f"{p['plan']}:" in title and len(lanes) == p["ranks"]
          for p, (title, lanes, _) in zip(plans, panels)), r)
wrong = []
for p, (title, lanes, peaks) in zip(plans, panels):
    for k, lane in zip(p["rank"], lanes):
        whole = k["busy_s"] + k["wait_s"]
        if not near(lane["compute"] / LANE, k["busy_s"] / whole, .01):
            wrong.append((title, lane, k["busy_s"] / whole))
check("computing is as long as JSON says, within 1 %", panels and not wrong, wrong)
check("messages of plans with several ranks", all(any(lane["message"] for lane in lanes)
                                                  for _, lanes, _ in panels), panels)
check("the peak of every rank", all(len(peaks) == len(lanes) for _, lanes, peaks in panels), panels)
r = run("plan", "--model", MODEL, "--cluster", "8xH100", "--world", 5, "--explain", 2, "--svg",
        "one.svg")
one = read(T / "one.svg")
check("only the plan that --explain names", r.returncode == 0 and len(one) == 1 and
      one[0][0].startswith("2. "), r)
r = run("plan", "--model", MODEL, "--cluster", "8xH100", "--world", 2, "--svg", "none/p.svg")
check("a directory that does not exist", r.returncode == 1 and "none/p.svg" in r.stderr, r)
r = run("plan", "--model", MODEL, "--cluster", "6x8xH100", "--world", 48, "--plan", "u8",
        "--explain", 1, "--svg", "many.svg")
check("more ranks than lanes", r.returncode == 0 and len(read(T / "many.svg")[0][1]) == 32 and
      "and 16 more ranks" in (T / "many.svg").read_text(), r)

# ---- traces ----

r = run("generate", "--model", MODEL, "--prompt", "a", "--num_inference_steps", 3, "--nproc", 2,
        "--pipefusion_parallel_degree", 2, "--num_pipeline_patch", 3, "--warmup_steps", 1,
        "--height", 64, "--width", 64, "--trace", "t.json", "-o", "x.png", "--quiet")
check("a trace of two ranks", r.returncode == 0 and (T / "t.json").exists(), r)
events = [e for e in json.loads((T / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
ends = {1: 0, 2: 0}             # of steps, on the rank that is last
for e in events:
    if e["cat"] == "step" and e["args"]["step"] in ends:
        ends[e["args"]["step"]] = max(ends[e["args"]["step"]], e["ts"] + e["dur"])
begin, end = ends[1], ends[2]


def share(rank, cat, a, b):
    """Percent of the time from a to b that events of a category take."""
    inside = sum(max(0, min(b, e["ts"] + e["dur"]) - max(a, e["ts"])) for e in events
                 if e["pid"] == rank and e["cat"] == cat)
    return 100 * inside / (b - a)


r = run("trace", "t.json", "--step", 2, "--svg", "t.svg")
rows = [[float(w) for w in line.replace("%", "").split()] for line in r.stdout.splitlines()[2:]]
last = max(e["ts"] + e["dur"] for e in events)
wants = [[k, share(k, "op", 0, last), share(k, "wait", 0, last), share(k, "op", begin, end),
          share(k, "wait", begin, end)] for k in (0, 1)]
check("shares of the request and of step 2, within a percent",
      r.returncode == 0 and len(rows) == 2 and
      all(near(a, b, 1) for x, y in zip(rows, wants) for a, b in zip(x, y)), (r, wants))
panels = read(T / "t.svg")
check("two panels of two lanes", [len(p[1]) for p in panels] == [2, 2] and
      panels[1][0].startswith("step 2 of 3: "), panels)
drawn = [100 * lane["compute"] / LANE for lane in panels[1][1]]
check("the drawing has the same shares, within 2 percent",
      all(near(a, w[3], 2) for a, w in zip(drawn, wants)), (drawn, wants))
colors = {e.getAttribute("fill") for e in
          xml.dom.minidom.parse(str(T / "t.svg")).getElementsByTagName("rect")}
check("a colour for each of three patches", {"#4c86d6", "#f0a63c", "#7fb35a"} <= colors, colors)
r = run("trace", "t.json")
check("the last step without --step", r.returncode == 0 and "step 3 of 3" in r.stdout, r)
r = run("trace", "t.json", "--step", 4)
check("a step that is not there", r.returncode == 2 and "t.json" in r.stderr and "4" in r.stderr, r)
(T / "x.json").write_text('{"traceEvents": [{"ph": "X", "pid": 70000000, "ts": 1}, 3, null]}')
for name, word in (("x.json", "--trace"), ("x.png", "JSON"), ("nothing.json", "nothing.json")):
    r = run("trace", name, "--svg", "y.svg")
    check(f"refused: {name}", r.returncode == 1 and word in r.stderr and
          not (T / "y.svg").exists(), r)
r = run("trace")
check("no file", r.returncode == 2 and "xdit trace FILE" in r.stderr, r)
sys.exit(done())

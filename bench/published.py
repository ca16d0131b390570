#!/usr/bin/env python3
"""Compares the planner with published times: order of the configurations, ratios to one device.

usage: published.py XDIT [MODELS [TABLE.json...]]

XDIT is the program; MODELS has the configs as org/name (default: what XDIT_TEST_HF names, or
../shared/hf; tools/fetch_configs.py makes such a folder). Prints TAP: a table holds when Kendall's
tau of its order is at least 0.8, pairs less than 3 % apart being ties, and ratios to one device are
within 30 % in the median. Nothing is computed: `xdit plan` runs on the count device.
"""
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys

import need

TIE, TAU, RATIO = 1.03, 0.8, 0.3


def predict(xdit, models, table, world, plan=None):
    """Plans of `world` ranks, the degrees of `plan` as they are."""
    args = [xdit, "plan", "--json", "--exact", "--model", str(models / table["model"]),
            "--cluster", table["cluster"], "--world", str(world)]
    for key, value in table["request"].items():
        args += ["--" + key, str(value)]
    if plan and plan != "1":
        args += ["--plan", plan]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit("published.py: %s: %s" % (" ".join(args), done.stderr.strip()))
    return json.loads(done.stdout)["plans"]


def seconds(plan, alone):
    """Of a request as the sources run it: one rank encodes text and decodes, whatever the plan."""
    return alone["text_s"] + plan["steps"] * plan["step_s"] + alone["decode_s"]


def kendall(rows):
    """Rows of (published, predicted): (agreeing - disagreeing) / pairs, without published ties."""
    score = pairs = 0
    for a, b in itertools.combinations(rows, 2):
        if max(a[0], b[0]) >= TIE * min(a[0], b[0]):
            pairs += 1
            score += 1 if (a[0] - b[0]) * (a[1] - b[1]) > 0 else -1
    return score / pairs


def compare_rows(xdit, models, table):
    alone = predict(xdit, models, table, 1)[0]
    base = next(r["seconds"] for r in table["rows"] if r["devices"] == 1)
    rows, errors = [], []
    for r in sorted(table["rows"], key=lambda r: -r["seconds"]):
        t = seconds(predict(xdit, models, table, r["devices"], r["plan"])[0], alone)
        off = (t / seconds(alone, alone)) / (r["seconds"] / base) - 1
        print("# %-8s %d devices  published %7.2f s (%.2fx)  predicted %7.2f s (%.2fx)  "
              "ratio %+.0f %%" %
              (r["plan"], r["devices"], r["seconds"], base / r["seconds"], t,
               seconds(alone, alone) / t, 100 * off))
        rows.append((r["seconds"], t))
        if r["devices"] > 1:
            errors.append(abs(off))
    tau, middle = kendall(rows), statistics.median(errors)
    print("# tau %.3f (at least %.1f), ratios off by %.0f %% in the median (at "
          "most %.0f %%), %.0f %% at worst" %
          (tau, TAU, 100 * middle, 100 * RATIO, 100 * max(errors)))
    return tau >= TAU and middle <= RATIO


def compare_best(xdit, models, table):
    alone, best = predict(xdit, models, table, 1)[0], table["best"]
    plans = [p for w in best["worlds"] for p in predict(xdit, models, table, w, best["plan"])]
    p = min(plans, key=lambda p: p["step_s"])
    t = seconds(p, alone)
    speedup = seconds(alone, alone) / t
    print("# best: %s on %d devices, %.2f s a step, %.1f s; %.2fx, published %.2fx" %
          (p["plan"], p["ranks"], p["step_s"], t, speedup, best["speedup"]))
    return abs(speedup / best["speedup"] - 1) <= RATIO


def main():
    here = pathlib.Path(__file__).resolve().parent
    if len(sys.argv) < 2:
        need.fail("usage: published.py XDIT [MODELS [TABLE.json...]]")
    xdit = need.program(sys.argv[1], "app/xdit")
    there = here.parent / (os.environ.get("XDIT_TEST_HF") or "../shared/hf")
    models = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else there
    files = [pathlib.Path(f) for f in sys.argv[3:]] or sorted((here / "published").glob("*.json"))
    failed = 0
    print("1..%d" % len(files))
    for i, path in enumerate(files, 1):
        table = json.loads(path.read_text())
        skip = "".join(table.get("skip", ""))          # a sentence, or its pieces
        if not skip and not (models / table["model"]).is_dir():
            skip = "needs %s of the published configs (XDIT_TEST_HF)" % table["model"]
        if skip:
            print("# skipped: %s: %s\nok %d - %s" % (table["title"], skip, i, table["title"]))
            continue
        print("# %s: %s, %s" % (table["title"], table["cluster"],
                                table["source"].split("/docs/")[-1]))
        good = (compare_rows if "rows" in table else compare_best)(xdit, models, table)
        failed += not good
        print("%s %d - %s" % ("ok" if good else "not ok", i, table["title"]))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

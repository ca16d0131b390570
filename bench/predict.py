#!/usr/bin/env python3
"""predict.py - what xdit plan says of a step against what xdit bench measures, plan by plan.

    bench/predict.py XDIT [--ranks N] [--repeats N] [--only WORD] MODEL[:SIDE[:BLOCKS]]...

MODEL:SIDE is a directory with configs and an image's side: xdit bench times a step (and once a
decoding), weights are random, blocks of one kind share storage. BLOCKS are, as --layers of step, 2
or 2,4 of each kind, instead of the model's: FLUX.1-dev:256:2,4. A MODEL alone generates its image:
denoising of 40 steps, all of it counts. One thread a rank. Prints a row a plan, and the median and
the worst difference of time; bytes must be equal. The machine is probed first.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import need


def run(*args):
    r = subprocess.run(args, capture_output=True, text=True)
    if r.returncode:
        sys.exit("%s: %s" % (" ".join(args), r.stderr.strip()))
    return r.stdout


def dtype_here(xdit, config):
    """The type in which this machine computes; plans for a cluster file are in bf16."""
    return json.loads(run(xdit, "plan", "--model", config, "--world", "1", "--json"))["dtype"]


def plans(xdit, config, side, ranks, guidance, cluster):
    out = run(xdit, "plan", "--model", config, "--cluster", cluster, "--world", str(ranks), "-W",
              side, "--height",
              side, "--guidance_scale", guidance, "--no_resolution_binning", "--dtype",
              dtype_here(xdit, config), "--json")
    return json.loads(out)["plans"]


KEYS = ("num_layers", "n_layers", "num_single_layers", "n_refiner_layers", "num_mmdit_layers",
        "num_single_dit_layers")


def shorter(config, blocks, folder):
    """The same configs with so many blocks of each kind; kinds without a number get the last."""
    where = os.path.join(folder, os.path.basename(config.rstrip("/")) + "-" + blocks)
    os.makedirs(os.path.join(where, "transformer"))
    for name in os.listdir(config):
        if name != "transformer":
            os.symlink(os.path.abspath(os.path.join(config, name)), os.path.join(where, name))
    with open(os.path.join(config, "transformer", "config.json")) as f:
        doc = json.load(f)
    counts = [int(n) for n in blocks.split(",")]
    for i, key in enumerate(k for k in KEYS if doc.get(k)):
        doc[key] = counts[min(i, len(counts) - 1)]
    with open(os.path.join(where, "transformer", "config.json"), "w") as f:
        json.dump(doc, f)
    return where


def measured(xdit, config, side, flags, repeats, decodes):
    out = run(xdit, "bench", "--config", config, "--random_weights", "--share_layers", "--threads",
              "1", "-W", side,
              "--height", side, "--repeats", str(repeats), "--parts", "step vae" if decodes and
              "parallel_vae" in flags else "step", "--json", *flags.split())
    parts = {p["part"]: p for p in json.loads(out)["parts"]}
    return parts


def generate(xdit, model, ranks, repeats, cluster, only):
    """Images of a model with weights."""
    seen = []
    asked = ["--num_inference_steps", "40"]
    prompt = "red " * 400       # as long as a prompt can be: plans count on it
    dtype = dtype_here(xdit, model)
    said = json.loads(run(xdit, "plan", "--model", model, "--cluster", cluster, "--world",
                          str(ranks), "--dtype", dtype, "--json", *asked))["plans"]
    for p in said:
        if only and only not in p["plan"]:
            continue
        times = []
        for _ in range(repeats):
            out = json.loads(run(xdit, "generate", "--model", model, "--prompt", prompt,
                                 "--threads", "1", "--quiet",
                                 "--output", os.path.join(os.path.dirname(cluster), "a.png"),
                                 "--json", *asked, *p["flags"].split()))
            times.append(out["seconds"]["denoise"])
            if out["sent"] != p["sent"]:
                sys.exit("%s: sent %d, predicted %d" % (p["plan"], out["sent"], p["sent"]))
        is_s = statistics.median(times)
        exact = p["exact_steps"]
        said_s = exact * p["exact_step_s"] + (p["steps"] - exact) * p["step_s"]
        row(seen, model, ranks, p["plan"], "40 steps", is_s, said_s)
    return seen


def row(seen, model, ranks, plan, what, is_s, said_s):
    seen.append(said_s / is_s)
    print("| %s | %d | %s | %s | %.4g | %.4g | %+.0f %% |" % (
        os.path.basename(model.rstrip("/")), ranks, plan, what, is_s, said_s,
        100 * (said_s / is_s - 1)), flush=True)


def compare(xdit, config, side, ranks, repeats, cluster, only):
    """Ratios of predicted to measured seconds."""
    seen = []
    for guidance in ["1", "4.5"] if ranks > 1 else ["1"]:
        for p in plans(xdit, config, side, ranks, guidance, cluster):
            if ("cfg" in p["plan"]) != (guidance != "1") or (only and only not in p["plan"]):
                continue
            parts = measured(xdit, config, side, p["flags"], repeats, not seen)
            step = parts["step"]
            rows = [("step", step.get("plan_s", step.get("seconds")), p["step_s"])]
            if "vae" in parts:
                rows.append(("decode", parts["vae"]["plan_s"], p["decode_s"]))
            sent = [r["sent_a_step"] for r in p["rank"]]
            if "sent" in step and step["sent"] != sent:
                sys.exit("%s: sent %s, predicted %s" % (p["plan"], step["sent"], sent))
            for what, is_s, said_s in rows:
                row(seen, config, ranks, p["plan"], "%s, %s px" % (what, side), is_s, said_s)
    return seen


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("xdit")
    a.add_argument("model", nargs="+")
    a.add_argument("--ranks", type=int, default=2)
    a.add_argument("--repeats", type=int, default=3)
    a.add_argument("--only", default="")
    a = a.parse_args()
    a.xdit = need.program(a.xdit, "app/xdit")
    off = []
    print("| model | ranks | plan | what | measured, s | predicted, s | off by |\n"
          "|---|--:|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as d:
        cluster = os.path.join(d, "cluster.json")
        for model in a.model:
            run(a.xdit, "probe", "--ranks", str(a.ranks), "--threads", "1", "--output", cluster)
            config, side, blocks = (model + "::").split(":")[:3]
            if blocks:
                config = shorter(config, blocks, d)
            off += (compare(a.xdit, config, side, a.ranks, a.repeats, cluster, a.only) if side else
                    generate(a.xdit, config, a.ranks, a.repeats, cluster, a.only))
    if not off:
        sys.exit("no plan has \"%s\" in its name" % a.only)
    gaps = sorted(abs(v - 1) for v in off)
    print("median %.0f %%, worst %.0f %% of %d" % (100 * statistics.median(gaps), 100 * gaps[-1],
                                                   len(gaps)))


main()

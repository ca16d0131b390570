#!/usr/bin/env python3
"""examples.py XDIT ROOT TINY - every example script and every model of the runner of xDiT that has
a recipe here generates.

The rows are those of `xdit from-xdit --tables`. A script's command line is translated by
`xdit from-xdit --json` and run; a runner's model is run by `xdit run`. The model is the tiny model
in TINY with the recipe of the row; the request is small. Speaks TAP.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))
from tap import check, done

XDIT, ROOT, TINY = map(os.path.abspath, sys.argv[1:4])
# Rows that are not run, and the reason. A row that is not here and has no tiny model fails.
SKIPPED = {}


def run(*words):
    return subprocess.run([XDIT, *map(str, words)], capture_output=True, text=True, timeout=60)


def rows(title):
    """The rows of a table of `xdit from-xdit --tables`: title, names, recipe."""
    tables = run("from-xdit", "--tables").stdout
    for line in re.search(rf"(?ms)^### {title}$(.*?)(^###|\Z)", tables)[1].splitlines():
        cells = [c.strip().strip("`") for c in line.split("|")[1:-1]]
        if len(cells) > 2 and cells[0] != "model" and not cells[0].startswith("-"):
            yield cells[0], cells[1].split(), cells[2]


def tiny_models():
    """A tiny model of each recipe, the one that needs the fewest inputs: its directory and uses."""
    found = {}
    for folder in sorted(pathlib.Path(TINY).iterdir(), key=lambda p: (len(p.name), p.name)):
        if not any(folder.glob("*model_index.json")):
            continue
        told = json.loads(run("inspect", folder, "--json").stdout)
        recipe, uses = told["recipe"], told.get("uses")
        if not told.get("missing") and (recipe not in found or
                                        len(uses["needs"]) < len(found[recipe][1]["needs"])):
            found[recipe] = folder, uses
    return found


def request(uses, video):
    """A small request of a model, in the flags of xDiT."""
    side = max(32, 2 * uses["multiple"])
    words = ["--prompt", "a red circle", "--height", side, "--width", side,
             "--num_inference_steps", 2]
    return words + (["--num_frames", 5] if video else [])


def run_small(*words):
    """Runs a command with options of xdit generate that keep images small, where models have
    them."""
    small = ["--max_area", 4096, "--no_resolution_binning"]
    while (p := run(*words, *small)).returncode == 2 and small:
        small = small[2:] if "max_area is for" in p.stderr else []
    return p


def generated(p, output):
    return p.returncode == 0 and output.exists() and output.stat().st_size > 100


def example(scripts, uses, model, folder):
    """Runs the first script of a row; the others must become the same command."""
    video = uses["makes"] == "video"
    output = folder / ("o.rgb" if video else "o.png")
    words = request(uses, video)
    if "image" in uses["needs"]:
        words += ["--img_file_path", IMAGE]
    made = [json.loads(run("from-xdit", "--json", "--", "torchrun", "--nproc_per_node=1",
                           f"examples/{script}.py", "--model", model, *words).stdout)
            for script in scripts]
    first = made[0]
    words = [*first["command"][1:], "--output", output, "--quiet"]
    if "control_image" in uses["needs"]:        # the script's own image is not here
        words[words.index("--control_image") + 1] = IMAGE
    p = run_small(*words)
    check(f"{scripts[0]}.py", first["refusal"] is None and generated(p, output),
          f"{words}\n{first['refusal']}\n{p.stderr}")
    output.unlink(missing_ok=True)
    for script, other in zip(scripts[1:], made[1:]):
        check(f"{script}.py: the same command", other == first, f"{other}\n{first}")


def runner(names, uses, model, folder):
    """Runs a model whose directory has the first name of a row."""
    name = names[0]
    video = uses["makes"] == "video"
    output = folder / ("o.rgb" if video else "o.png")
    link = folder / name
    link.symlink_to(model)
    words = request(uses, video)
    if "image" in uses["needs"]:
        words += ["--input_images", IMAGE]
    p = run_small("run", "--model", link, *words, "--", "--output", output)
    check(f"the runner's {name}", generated(p, output), p.stderr)
    output.unlink(missing_ok=True)
    link.unlink()


IMAGE = pathlib.Path(TINY) / "vace" / "image.png"
tiny = tiny_models()
scratch = pathlib.Path(tempfile.mkdtemp())
try:
    for table, one in (("Models of the example scripts", example),
                       ("Models of the runner", runner)):
        for title, names, recipe in rows(table):
            if recipe.startswith("not built: "):
                continue
            if title in SKIPPED:
                print(f"# skipped: {title}: {SKIPPED[title]}")
                continue
            if recipe not in tiny:
                check(f"{title} has a tiny model", False, f"{recipe}: {sorted(tiny)}")
                continue
            one(names, tiny[recipe][1], tiny[recipe][0], scratch)
finally:
    shutil.rmtree(scratch)
sys.exit(done())

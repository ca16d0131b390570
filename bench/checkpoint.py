#!/usr/bin/env python3
"""The part of a step that saving checkpoints takes.

    bench/checkpoint.py build/app/xdit --model DIR [--every "steps 1,steps 5,seconds 2"]
                        [-- FLAGS OF xdit generate, such as --width 512 --plan u2]

Reads from the program's debug log how long rank 0 gathered and wrote the latents of each saved
step, and from --json how long denoising took without that. Prints the ratio of the two for each
way to choose the steps. Needs Python alone.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile


def measure(command, folder, every):
    word, n = every.split()
    run = subprocess.run(
        [*command, "--json", "--verbose", "-o", folder / "x.ppm", "--checkpoint", folder / "saved",
         f"--checkpoint_{word}", n], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    saved = [float(x) for x in re.findall(r"checkpoint after step \d+: ([\d.]+) ms", run.stderr)]
    denoise = json.loads(run.stdout)["seconds"]["denoise"] * 1e3 - sum(saved)
    return saved, denoise


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("xdit")
    p.add_argument("--model", required=True)
    p.add_argument("--every", default="steps 1,steps 5,seconds 2")
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a, flags = p.parse_args(sys.argv[1:cut]), sys.argv[cut + 1:]
    command = [a.xdit, "generate", "-m", a.model, "-p", "a red circle", "--seed", "1", *flags]
    for every in a.every.split(","):
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder:
            saved, denoise = measure(command, pathlib.Path(folder), every)
        one = sum(saved) / len(saved) if saved else 0
        print(f"--checkpoint_{every}: {len(saved)} saved, {one:.2f} ms each, beside "
              f"{denoise:.0f} ms of denoising: {100 * sum(saved) / denoise:.2f} %", flush=True)


main()

#!/usr/bin/env python3
"""The part of a step that saving checkpoints takes.

    bench/checkpoint.py build/app/xdit --model DIR [--every "steps 1,steps 5,seconds 2"]
                        [--against OTHER] [--repeats 5]
                        [-- FLAGS OF xdit generate, such as --width 512 --plan u2]

Reads from the program's debug log how long the steps waited for each saved step, and from --json
how long denoising took. Prints the sum of the first as a share of the second for each way to choose
the steps, and the ratio of the time of denoising to that without checkpoints, which includes what
the thread that writes takes from the steps. Runs take turns, and medians are printed. --against:
the program of an older version, which takes turns, too. Needs Python alone.
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile


def measure(command, every):
    """The milliseconds that the steps waited for each save, and those of denoising."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as name:
        folder = pathlib.Path(name)
        word, n = every.split() if every else ("", "")
        saves = ["--checkpoint", folder / "saved", f"--checkpoint_{word}", n] if every else []
        run = subprocess.run([*command, "--json", "--verbose", "-o", folder / "x.ppm", *saves],
                             capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    saved = [float(x) for x in re.findall(r"checkpoint after step \d+: ([\d.]+) ms", run.stderr)]
    return saved, json.loads(run.stdout)["seconds"]["denoise"] * 1e3


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("xdit")
    p.add_argument("--model", required=True)
    p.add_argument("--every", default="steps 1,steps 5,seconds 2")
    p.add_argument("--against")
    p.add_argument("--repeats", type=int, default=5)
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    a, flags = p.parse_args(sys.argv[1:cut]), sys.argv[cut + 1:]
    for every in a.every.split(","):
        runs = {}
        for _ in range(a.repeats):
            for program in filter(None, (a.xdit, a.against)):
                command = [program, "generate", "-m", a.model, "-p", "a red circle", "--seed", "1",
                           *flags]
                saved, with_saves = measure(command, every)
                ratio = with_saves / measure(command, None)[1]
                runs.setdefault(program, []).append((len(saved), sum(saved), with_saves, ratio))
        for program, rows in runs.items():
            n, waited, denoise, ratio = map(statistics.median, zip(*rows))
            print(f"{program} --checkpoint_{every}: {n:.0f} saved, {waited / n if n else 0:.2f} ms "
                  f"each, of {denoise:.0f} ms of denoising: {100 * waited / denoise:.2f} %; "
                  f"{ratio:.3f} times the time without", flush=True)


main()

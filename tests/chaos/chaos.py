#!/usr/bin/env python3
"""chaos.py XDIT ROOT FULL - faults at random moments of runs of several ranks: each run ends with
the right image, or within 15 seconds of the fault with one sentence, and leaves nothing behind.

Environment: CHAOS_RUNS (40), CHAOS_SEED (0), CHAOS_ONLY (the number of one run, to repeat it),
CHAOS_FAULT (a name of FAULTS, to try this alone), CHAOS_CGROUP (a folder of cgroup version 1 or 2
below which this program may create one with a limit of memory), CHAOS_DIR (keeps files there).

Every run draws a model, a plan, a fault and a moment from its own seed, which its line prints. The
image is compared with that of one undisturbed rank: at most one level of difference for exact
methods. PipeFusion begins again with an exact step, so that its image only has to be close. Speaks
TAP; a run is one check."""
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

import faults
from ranks import Run, children, end_all, marked

PLANS = {
    "alpha": ["u2", "r2", "tp2", "cfg2", "pp2", "u3", "r3", "u2r2", "u2cfg2", "tp2cfg2", "pp2cfg2",
              "r2cfg2", "pp2u2", "u3cfg2", "r3cfg2"],
    "flux": ["u2", "r2", "tp2", "pp2", "u3", "r3", "u2r2", "tp2u2", "pp2u2", "pp3", "u2r3"],
}
MODELS = {"alpha": ["--dtype", "f32"], "flux": ["--width", "128", "--height", "112"]}
SECONDS = 15            # from the fault to the end, beside what the undisturbed run takes
EXACT, CLOSE = 1, 64    # largest difference of two images, in levels


def number(name, default):
    return int(os.environ.get(name, default))


def pixels(path):
    """The numbers behind the head of a PPM file."""
    data = path.read_bytes()
    at = 0
    for _ in range(3):          # the kind, the size and the largest number
        at = data.index(b"\n", at) + 1
        while data[at:at + 1] == b"#":
            at = data.index(b"\n", at) + 1
    return data[at:]


def difference(a, b):
    x, y = pixels(a), pixels(b)
    return max(abs(p - q) for p, q in zip(x, y)) if len(x) == len(y) else 256


class Chaos:
    def __init__(self, xdit, root, full):
        self.xdit = os.path.abspath(xdit)
        self.models = {"alpha": pathlib.Path(root).resolve() / "tests/golden/alpha",
                       "flux": pathlib.Path(full).resolve() / "flux"}
        self.dir = pathlib.Path(os.environ.get("CHAOS_DIR") or tempfile.mkdtemp(prefix="chaos-"))
        self.dir.mkdir(parents=True, exist_ok=True)
        self.seconds = {}       # of an undisturbed run, by model and plan
        self.again = []         # seconds that runs with a fault took longer

    def command(self, model, *more):
        return [self.xdit, "generate", "-m", self.models[model], "-p", "a red circle", "--seed",
                "3", "-t", "1", "--steps", "60" if model == "alpha" else "40", *MODELS[model],
                *more]

    def whole(self, model, plan):
        """The image of one undisturbed rank; notes how long the plan takes."""
        image = self.dir / f"{model}.ppm"
        if not image.exists():
            Run(self.command(model, "-q", "-o", image), self.dir / "whole").finish(120)
        if (model, plan) not in self.seconds:
            run = Run(self.command(model, "-q", "--plan", plan, "-o", self.dir / "plan.ppm"),
                      self.dir / "whole")
            run.finish(120)
            self.seconds[model, plan] = run.seconds
            found = difference(image, self.dir / "plan.ppm")
            if run.code or found > (CLOSE if "pp" in plan else EXACT):
                raise SystemExit(f"Bail out! the undisturbed {plan} of {model} ends with "
                                 f"{run.code} and differs by {found}: {run.said()[-300:]}")
        return image

    def judge(self, run, image, whole, plan):
        """What is wrong with a run that has ended, or None."""
        if run.code == 0:
            if not image.exists():
                return "it succeeded without an image"
            found = difference(image, whole)
            limit = CLOSE if "pp" in plan or run.replanned else EXACT
            return None if found <= limit else f"the image differs by {found}"
        if run.code < 0:
            return None if run.killed else f"signal {-run.code} ended it"
        return None if run.cause() else f"code {run.code} and no sentence"

    def one(self, i, seed):
        """A run; what it was, and what is wrong with it, or None."""
        r = random.Random(f"{seed} {i}")
        fault = r.choice(sorted(faults.FAULTS))
        fault = os.environ.get("CHAOS_FAULT", fault)
        model = r.choice(sorted(PLANS))
        plan = r.choice(PLANS[model])
        where = self.dir / f"run-{i}"
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        whole = self.whole(model, plan)
        at = r.uniform(0, 1.1 * self.seconds[model, plan])
        about = f"{fault} at {at:.2f} s of {model} by {plan}"
        task = faults.Task(self, r, where, model, plan, whole, at, SECONDS)
        try:
            why = faults.FAULTS[fault](task)
        finally:
            left = task.leftovers()
            task.close()
        why = why or left
        if not why:
            shutil.rmtree(where, ignore_errors=True)
        return about + task.note, why


def stop(*_):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    chaos = Chaos(*sys.argv[1:4])
    runs, seed = number("CHAOS_RUNS", 40), number("CHAOS_SEED", 0)
    only = os.environ.get("CHAOS_ONLY")
    which = [int(only)] if only else range(runs)
    failed, done, began = 0, 0, time.monotonic()
    print(f"# CHAOS_SEED={seed}", flush=True)
    try:
        if not shutil.which("mpirun") and not os.environ.get("XDIT_MPIRUN"):
            print("1..0 # SKIP there is no MPI to start several ranks with")
            return
        for i in which:
            about, why = chaos.one(i, seed)
            done += 1
            failed += why not in (None, faults.SKIP)
            word = "not ok" if why not in (None, faults.SKIP) else "ok"
            skip = " # SKIP it needs rights that this process has not" if why == faults.SKIP else ""
            print(f"{word} {done} - run {i}: {about}{skip}", flush=True)
            if word == "not ok":
                print(f"# {why}", flush=True)
    except KeyboardInterrupt:
        pass
    print(f"# {done} runs, {failed} failed, {time.monotonic() - began:.0f} s")
    print(f"1..{done}")
    if not failed and "CHAOS_DIR" not in os.environ:
        shutil.rmtree(chaos.dir, ignore_errors=True)
    elif failed:
        print(f"# their files are in {chaos.dir}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

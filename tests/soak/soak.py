#!/usr/bin/env python3
"""soak.py XDIT ROOT - many short runs of several ranks beside load; a run that is silent too long
is a failure.

Environment: SOAK_RUNS (1000), SOAK_RANKS (8), SOAK_LOAD (busy loops beside, default: cores),
SOAK_SILENT (seconds without an end, default 60), SOAK_SEED (0), SOAK_FAULTS (0; 1: in every second
run a rank, the launcher or the program is sent a signal at a random moment, and a cause is asked
for), SOAK_DIR (where stacks of silent runs go).

Every run generates two steps by a plan drawn at random and must end with the image of the first run
of that plan. Of a silent run the stacks of all its processes are written down, by gdb, eu-stack or
/proc, and it is ended. The last line says how many runs there were and how many failed; the exit
code is 0 when none did."""
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PLANS = {
    2: ["u2", "r2", "pp2", "tp2", "cfg2", "dp2"],
    4: ["u4", "u2r2", "u2cfg2", "pp2cfg2", "tp2cfg2", "pp2u2", "dp2u2"],
    8: ["u4cfg2", "u2r2cfg2", "u2pp2cfg2", "dp2u2cfg2", "r4dp2", "u2r2pp2"],
}
PICKED = [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT]


def number(name, default):
    return int(os.environ.get(name, default))


def children(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    own = [int(w) for w in words]
    return own + [c for p in own for c in children(p)]


def stack_of(pid):
    """What a process stands in, by whatever there is."""
    for tool in (["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
                 ["eu-stack", "-p", str(pid)]):
        if shutil.which(tool[0]):
            done = subprocess.run(tool, capture_output=True, text=True, timeout=120, check=False)
            return "\n".join(x for x in done.stdout.splitlines() if not x.startswith("["))
    try:
        return "".join(p.read_text() for p in pathlib.Path(f"/proc/{pid}/task").glob("*/stack"))
    except OSError as why:
        return str(why)


def write_stacks(pid, path):
    """Where all stood at one moment: they are stopped first, since looking at one takes seconds."""
    every = [pid] + children(pid)
    for p in every:
        try:
            os.kill(p, signal.SIGSTOP)
        except ProcessLookupError:
            pass
    with open(path, "w", encoding="utf-8") as f:
        for p in every:
            try:
                line = pathlib.Path(f"/proc/{p}/cmdline").read_bytes()
                line = line.replace(b"\0", b" ").decode(errors="replace")
                state = re.search(r"State:.*", pathlib.Path(f"/proc/{p}/status").read_text())[0]
            except OSError:
                continue
            f.write(f"==== {p} {state}: {line[:200]}\n{stack_of(p)}\n")


def end(pid):
    for p in [pid] + children(pid):
        try:
            os.kill(p, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Soak:
    def __init__(self, xdit, root):
        self.xdit = xdit
        self.root = root
        self.ranks = number("SOAK_RANKS", 8)
        self.silent = number("SOAK_SILENT", 60)
        self.faults = number("SOAK_FAULTS", 0)
        self.random = random.Random(number("SOAK_SEED", 0))
        self.dir = pathlib.Path(os.environ.get("SOAK_DIR") or tempfile.mkdtemp(prefix="soak-"))
        self.dir.mkdir(parents=True, exist_ok=True)
        self.first = {}
        self.slowest = 0.0
        self.hurt = 0

    def one(self, i):
        """A run; what is wrong with it, or None."""
        plan = self.random.choice(PLANS[self.ranks])
        out = self.dir / "x.ppm"
        out.unlink(missing_ok=True)
        command = [self.xdit, "generate", "-m", self.root / "tests/golden/alpha", "-p",
                   "a red circle", "--seed", "3",
                   "--steps", "2", "--dtype", "f32", "-t", "1", "-q", "--plan", plan, "-o", out]
        at = time.monotonic()
        with open(self.dir / "stderr", "wb+") as said:
            run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=said)
            hit = self.faults and i % 2 and self.hurt_one(run)
            try:
                code = run.wait(self.silent)
            except subprocess.TimeoutExpired:
                stacks = self.dir / f"stacks-{i}.txt"
                write_stacks(run.pid, stacks)
                end(run.pid)
                run.wait()
                return f"silent for {self.silent} s by {plan}: see {stacks}"
            said.seek(0)
            words = said.read().decode(errors="replace")
        self.slowest = max(self.slowest, time.monotonic() - at)
        if hit and code:
            cause = [x for x in words.splitlines() if x.startswith("xdit: ") and
                     not x.startswith("xdit: warning") and " of memory" not in x]
            return None if cause or code < 0 else f"{hit} by {plan} ended with {code} and no cause"
        if code:
            return f"exit code {code} by {plan}: {words.strip()[-300:]}"
        seen = hashlib.sha256(out.read_bytes()[-128 * 128 * 3:]).hexdigest()
        if self.first.setdefault(plan, seen) != seen:
            return f"another image by {plan}"
        return None

    def hurt_one(self, run):
        time.sleep(self.random.uniform(0, 0.8))
        whom = self.random.choice([run.pid] + children(run.pid))
        sig = self.random.choice(PICKED)
        try:
            os.kill(whom, sig)
        except ProcessLookupError:
            return None
        self.hurt += 1
        return f"{sig.name} to {'the program' if whom == run.pid else whom}"


def stop(*_):
    raise KeyboardInterrupt


def main():
    # also where a shell has started it in the background
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    soak = Soak(os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve())
    runs, failed = number("SOAK_RUNS", 1000), 0
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(number("SOAK_LOAD", len(os.sched_getaffinity(0))))]
    done = 0
    try:
        for i in range(runs):
            why = soak.one(i)
            done += 1
            if why:
                failed += 1
                print(f"run {i}: {why}", flush=True)
            if (i + 1) % 50 == 0:
                print(f"{i + 1} runs, {failed} failed, slowest {soak.slowest:.1f} s", flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        for p in load:
            p.kill()
    print(f"{done} runs of {soak.ranks} ranks, {soak.hurt} of them sent a signal, {failed} failed, "
          "slowest "
          f"{soak.slowest:.1f} s")
    sys.exit(failed > 0)


main()

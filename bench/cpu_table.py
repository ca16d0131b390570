#!/usr/bin/env python3
"""The table of Diffusion Transformers on this CPU: xdit and the other programs that run them, in
bf16 and in int8, each in turn with xdit.

    cpu_table.py --pair build/bench/step                        every row, every peer (hours)
    cpu_table.py flux-512 t5-120 --pair build/bench/step --peers openvino,torch-compiled
    cpu_table.py --resume rows.json --markdown                  prints what has been measured

For each row and peer one process of xdit and one of the peer run alternately on the same cores; the
peer's first run, in which compilers work, does not count. Medians count. Every tensor of the peer
has numbers of its own. Memory is the most that a process needed while it ran, without what
preparation needed. xdit runs in bf16, with int8 weights (the inputs of the products are int8, too)
and with int8 attention scores besides. A peer is compared with xdit of its precision.

The peers' packages are installed by pip into environments below --env. A row of the table that
could not be measured says why.
"""
import argparse
import json
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import cpu_peers
import models
import need
from torch_step import ROWS, spread, step_command

OURS = {"bf16": ((), "xdit"), "int8": (("--weights_dtype", "int8"), "xdit int8"),
        "int8-attention": (("--weights_dtype", "int8", "--attention", "int8"),
                           "xdit int8, int8 attention")}
PREPARE_S = 1200                # the time in which a peer must be ready


class Gone(Exception):
    """A process that ended or gave no answer, with the reason."""


class Turns:
    """A process that runs once for every line that it reads."""

    def __init__(self, command, env, limit):
        self.errors = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=self.errors, env=env)
        self.lines = [b""]      # what has been read; the last one is not complete
        self.ready = self.answer("ready", limit)

    def line(self, limit):
        while len(self.lines) < 2:
            if not select.select([self.p.stdout], [], [], limit)[0]:
                self.p.kill()
                raise Gone(f"no answer within {limit} s")
            piece = os.read(self.p.stdout.fileno(), 1 << 16)
            if not piece:
                code = self.p.wait()
                self.errors.seek(0)
                lines = self.errors.read().strip().splitlines() or [f"exit code {code}"]
                raise Gone("killed, as for lack of memory" if code == -9 else lines[-1][:200])
            *whole, rest = (self.lines[0] + piece).split(b"\n")
            self.lines = whole + [rest]
        return self.lines.pop(0)

    def answer(self, key, limit=PREPARE_S):
        while True:
            try:
                found = json.loads(self.line(limit))
            except ValueError:  # the pieces of the report of `step`
                continue
            if key in found:
                return found

    def run(self):
        self.p.stdin.write(b"\n")
        self.p.stdin.flush()
        return self.answer("seconds")

    def forget_peak(self):
        try:
            pathlib.Path(f"/proc/{self.p.pid}/clear_refs").write_text("5")
        except OSError:
            pass                # the memory then includes the preparation's

    def peak(self):
        """The most bytes that were resident since forget_peak."""
        for line in pathlib.Path(f"/proc/{self.p.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def end(self):
        self.p.stdin.close()
        self.p.stdout.read()
        self.p.wait()


def python_of(args, name):
    """The Python of an environment, which is made if it is not there."""
    home = pathlib.Path(args.env) / name
    python = home / "bin/python"
    if not (home / "complete").exists():
        print(f"cpu_table.py: installing {' '.join(cpu_peers.ENVIRONMENTS[name])} into {home}",
              file=sys.stderr)
        subprocess.run([args.python, "-m", "venv", home], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", *cpu_peers.ENVIRONMENTS[name]],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Gone((done.stderr.strip().splitlines() or ["pip failed"])[-1][:200])
        (home / "complete").touch()
    return str(python)


def open_ours(args, row, config, precision):
    step = argparse.Namespace(pair=args.pair, threads=args.threads, dtype="bf16", device="cpu")
    more = OURS[precision][0]
    if more and row["part"] != "step":      # the VAE stays in bf16
        more = ("--text_weights_dtype", "int8") if row["part"] == "text" else ()
    return Turns([str(c) for c in step_command(step, row, config, more)], args.run_env, PREPARE_S)


def rounds_of(args, row):
    return args.rounds or (3 if row["tflop"] > 4 else 5 if row["tflop"] > 1 else 9)


def in_turn(args, row, config, precision, other):
    """Runs xdit and, unless it is None, the other process in turn."""
    r = {"precision": precision}
    ours = open_ours(args, row, config, precision)
    pair = [p for p in (ours, other) if p]
    for p in pair:
        p.run()
        p.forget_peak()
    a, b = [], []
    for _ in range(rounds_of(args, row)):
        a.append(ours.run())
        if other:
            b.append(other.run()["seconds"])
    r["ours_s"] = [x["seconds"] for x in a]
    r["gflop"] = a[0]["gflop"]
    r["peak_gflops"] = statistics.median(x["peak_gflops"] for x in a)
    r["ours_rss"] = ours.peak()
    if other:
        r["peer_s"], r["peer_rss"] = b, other.peak()
    for p in pair:
        p.end()
    return r


def measure(args, name, peer, config):
    """One row and one peer, or one setting of xdit alone."""
    row = ROWS[name]
    r = {"row": name, "peer": peer, "threads": args.threads}
    if (peer, row["part"]) in (("int8", "vae"), ("int8-attention", "vae"),
                               ("int8-attention", "text")):
        return {**r, "precision": peer, "unsuited": "xdit has no int8 there"}
    if peer in OURS:
        return {**r, **in_turn(args, row, config, peer, None)}
    about = cpu_peers.PEERS[peer]
    r["precision"] = about["precision"]
    try:
        other = Turns([python_of(args, about["env"]), str(HERE / "cpu_peers.py"), name, peer,
                       "--config", str(config), "--threads", str(args.threads)], args.run_env,
                      PREPARE_S)
        if not other.ready["ready"]:
            return {**r, **other.ready}
        return {**r, "finite": other.ready["finite"],
                **in_turn(args, row, config, about["precision"], other)}
    except Gone as e:
        return {**r, "failed": str(e)}


# ---- the table -----------------------------------------------------------------------------------

def ratio(r):
    return statistics.median(r["peer_s"]) / statistics.median(r["ours_s"])


def share(r):
    return r["gflop"] / statistics.median(r["ours_s"]) / r["peak_gflops"]


def line_of(r):
    """One measurement as a sentence."""
    what = OURS[r["peer"]][1] if r["peer"] in OURS else cpu_peers.PEERS[r["peer"]]["what"]
    head = f"{ROWS[r['row']]['what']}, {what}: "
    for key, word in (("failed", "failed: "), ("unsuited", "not measured: ")):
        if key in r:
            return head + word + r[key]
    ours = (f"{spread(r['ours_s'])} s, {100 * share(r):.0f} % of {r['peak_gflops']:.0f} GFLOP/s, "
            f"{r['ours_rss'] / 1e9:.2f} GB")
    if "peer_s" not in r:
        return head + ours
    odd = "" if r["finite"] else ", NOT FINITE"
    return (f"{head}{spread(r['peer_s'])} s, {r['peer_rss'] / 1e9:.2f} GB{odd}; xdit {ours}; "
            f"ratio {ratio(r):.2f}")


def markdown(rows):
    """Two tables: for every row xdit and the best peer of each precision, then all peers."""
    out = ["| work | precision | xdit, s | of bf16 peak | GB | best other program | its s | its GB "
           "| ratio |", "|---|---|--:|--:|--:|---|--:|--:|--:|"]
    for name in ROWS:
        for precision in ("bf16", "int8"):
            found = [r for r in rows if r["row"] == name and r["precision"] == precision]
            against = [r for r in found if "peer_s" in r]
            if not against:
                continue
            r = min(against, key=ratio)
            out.append(f"| {ROWS[name]['what']} | {precision} | {spread(r['ours_s'])} | "
                       f"{100 * share(r):.0f} % | {r['ours_rss'] / 1e9:.2f} | "
                       f"{cpu_peers.PEERS[r['peer']]['what']} | {spread(r['peer_s'])} | "
                       f"{r['peer_rss'] / 1e9:.2f} | **{ratio(r):.2f}** |")
    shown = [p for p in cpu_peers.PEERS if any(r["peer"] == p for r in rows)]
    out += ["", "How many times as fast xdit is as each program, at equal precision:", "",
            "| work | " + " | ".join(cpu_peers.PEERS[p]["what"] for p in shown) + " |",
            "|---|" + "--:|" * len(shown)]
    reasons = []
    for name in ROWS:
        cells = []
        for p in shown:
            r = next((r for r in rows if r["row"] == name and r["peer"] == p), {})
            cells.append(f"{ratio(r):.2f}" + ("" if r["finite"] else " (not finite)")
                         if "peer_s" in r else "failed" if "failed" in r else "-")
            if "failed" in r:
                reasons.append(line_of(r))
        if any(c != "-" for c in cells):
            out.append(f"| {ROWS[name]['what']} | " + " | ".join(cells) + " |")
    return "\n".join(out + [""] * bool(reasons) + [f"* {x}" for x in reasons])


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("rows", nargs="*", metavar="ROW", help="default: all (torch_step.py --list)")
    p.add_argument("--pair", metavar="STEP", help="bench/step as it was built")
    p.add_argument("--peers", default=",".join([*OURS, *cpu_peers.PEERS]), metavar="LIST",
                   help="default: %(default)s")
    p.add_argument("--env", default="build/cpu_table", metavar="DIR",
                   help="folder of the peers' Python environments (default: %(default)s)")
    p.add_argument("--python", default=sys.executable,
                   help="with which the environments are made (default: this one)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                   help="default: all cores")
    p.add_argument("--rounds", type=int, help="default: 9, 5 or 3, by the work")
    p.add_argument("--resume", metavar="FILE", help="measurements are kept there as JSON, "
                                                    "and those that it has are not repeated")
    p.add_argument("--markdown", action="store_true", help="print the tables at the end")
    args = p.parse_args()
    args.peers = args.peers.split(",")
    for name in args.rows:
        if name not in ROWS:
            p.error(f"there is no row {name}; there are {', '.join(ROWS)}")
    for name in args.peers:
        if name not in OURS and name not in cpu_peers.PEERS:
            p.error(f"there is no peer {name}; there are {', '.join([*OURS, *cpu_peers.PEERS])}")
    if not args.pair and not args.resume:
        p.error("--pair names bench/step; without it, --resume names measurements to print")
    return args


def main():
    args = parse()
    done = []
    if args.resume and os.path.exists(args.resume):
        done = [json.loads(line) for line in open(args.resume, encoding="utf-8")]
    if args.pair:
        args.pair = need.program(args.pair, "bench/step")
        if not shutil.which(args.python):
            need.fail(f"--python {args.python} is not a program")
        cores = sorted(os.sched_getaffinity(0))[:args.threads]
        os.sched_setaffinity(0, set(cores))
        args.run_env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
        with tempfile.TemporaryDirectory() as scratch:
            for name in args.rows or sorted(ROWS, key=lambda n: ROWS[n]["tflop"]):
                config = models.write(scratch, ROWS[name]["model"], ROWS[name].get("layers"))
                for peer in args.peers:
                    if any((r["row"], r["peer"], r["threads"]) == (name, peer, args.threads)
                           for r in done):
                        continue
                    r = measure(args, name, peer, config)
                    done.append(r)
                    if args.resume:
                        with open(args.resume, "a", encoding="utf-8") as f:
                            f.write(json.dumps(r) + "\n")
                    print(line_of(r), flush=True)
    if args.markdown:
        print(markdown([r for r in done if not args.rows or r["row"] in args.rows]))


if __name__ == "__main__":
    main()

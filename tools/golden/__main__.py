#!/usr/bin/env python3
"""Write the reference data under tests/golden: what diffusers and transformers compute.

    pip install -r tools/golden/requirements.txt
    python3 tools/golden                    everything
    python3 tools/golden joint vae          all cases of some suites
    python3 tools/golden pixart/alpha stale       some cases
    python3 tools/golden --list             every case, and what it writes; needs no packages

The same versions of the packages write the same models and, to the last bits of the sums, the same
numbers. A suite is a module of tools/golden/cases, which says what its files hold. Cases build on
files of others: those of lora and stale on models of joint and pixart.
"""
import argparse
import importlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
if not __package__:                     # called by its folder's name
    sys.path[0] = str(HERE.parent)
from golden.index import OTHERS, SUITES  # noqa: E402


def arguments():
    root = HERE.parent.parent
    p = argparse.ArgumentParser(prog="golden", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cases", nargs="*", metavar="SUITE[/CASE]", help="default: all")
    p.add_argument("--list", action="store_true", help="print every case and what it writes")
    p.add_argument("--out", type=pathlib.Path, default=root / "tests" / "golden")
    p.add_argument("--hf", type=pathlib.Path, help="published tokenizers, for tok (XDIT_TEST_HF)",
                   default=root / (os.environ.get("XDIT_TEST_HF") or "../shared/hf"))
    p.add_argument("--bf16", action="store_true",
                   help="pixart: write nothing, say how far bf16 GEMM inputs move each stage")
    p.add_argument("--random", type=int, default=0, metavar="N",
                   help="sampler: N random configs instead of those that are kept")
    return p.parse_args()


def chosen(words):
    """{suite: cases} of the words of a command line, in the order of the index."""
    known = {f"{suite}/{case}" for suite, cases in SUITES.items() for case in cases}
    strange = [w for w in words if w not in SUITES and w not in known]
    if strange:
        sys.exit(f"golden: there is no case {strange[0]}; --list prints all of them")
    picked = {suite: [c for c in cases if not words or suite in words or f"{suite}/{c}" in words]
              for suite, cases in SUITES.items()}
    return {suite: cases for suite, cases in picked.items() if cases}


def main():
    o = arguments()
    if o.list:
        for suite, cases in SUITES.items():
            for case, path in cases.items():
                print(f"{suite + '/' + case:<28} tests/golden/{path}")
        for path, program in OTHERS.items():
            print(f"{program:<28} tests/golden/{path}")
        return 0
    todo = chosen(o.cases)
    if len(todo) == 1:
        (suite, cases), = todo.items()
        o.out.mkdir(parents=True, exist_ok=True)
        importlib.import_module("golden.cases." + suite).make(cases, o)
        return 0
    rest = [f"--out={o.out}", f"--hf={o.hf}"] + ["--bf16"] * o.bf16 + [f"--random={o.random}"]
    for suite, cases in todo.items():   # each in a process of its own: torch is set up anew
        words = [f"{suite}/{case}" for case in cases]
        if subprocess.run([sys.executable, str(HERE), *words, *rest], check=False).returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks what the compiler made of the kernels: nothing spills, and tensor cores, asynchronous
copies and 16-byte accesses are there.

usage: check_kernels.py LOG FATBIN DOCUMENT [--table]

LOG is what ptxas said (src/backend/cuda/kernels/compile.py). DOCUMENT has a table of registers,
which must be right where it was made by the same nvcc; --table prints it. Instructions are looked
at where cuobjdump is installed.
"""
import pathlib
import re
import shutil
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'.*?"
                   r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
                   re.S)
NEEDED = {"flash_64": ("HMMA", "LDSM", "LDGSTS"), "flash_128": ("HMMA", "LDSM", "LDGSTS"),
          "conv": ("HMMA", "LDSM", "LDGSTS"), "norm_12": (r"LDG\.E\.128", r"STG\.E\.128"),
          "epilogue_wide": (r"LDG\.E\.128", r"STG\.E\.128")}


def table_of(uses, archs):
    """Rows of a Markdown table."""
    yield "| kernel | " + " | ".join(f"sm_{a}" for a in archs) + " |"
    yield "|---|" + "---|" * len(archs)
    for name in sorted({k for k, _ in uses}):
        registers = (str(uses.get((name, a), ("-",))[0]) for a in archs)
        yield f"| `{name}` | " + " | ".join(registers) + " |"


def instructions(fatbin, arch, complain):
    tool = shutil.which("cuobjdump") or shutil.which("cuobjdump", path="/usr/local/cuda/bin")
    if not tool:
        print("# cuobjdump is not installed: instructions are not looked at")
        return
    run = subprocess.run([tool, "-sass", "-arch", f"sm_{arch}", fatbin], text=True,
                         capture_output=True)
    if run.returncode:
        print(f"# cuobjdump cannot disassemble here: {run.stderr.strip()}")
        return
    text = run.stdout
    parts = dict(p.split("\n", 1) for p in text.split("Function : ")[1:])
    for name, wanted in NEEDED.items():
        for w in wanted:
            n = len(re.findall(rf"\b{w}", parts.get(name, "")))
            print(f"# {name}, sm_{arch}: {n} {w}")
            if not n:
                complain(f"{name} has no {w} for sm_{arch}")


def main():
    log = pathlib.Path(sys.argv[1]).read_text()
    document = pathlib.Path(sys.argv[3]).read_text()
    bad = []
    uses = {(m[1], m[2]): (int(m[5]), int(m[3]) + int(m[4])) for m in ENTRY.finditer(log)}
    archs = sorted({a for _, a in uses}, key=lambda a: int(a.rstrip("a")))
    if "--table" in sys.argv:
        print(*table_of(uses, archs), sep="\n")
        return 0
    names = {k for k, _ in uses}
    for name in names:
        for a in archs:
            if (name, a) not in uses:
                bad.append(f"{name} is not compiled for sm_{a}")
            elif uses[name, a][1]:
                bad.append(f"{name} spills {uses[name, a][1]} bytes on sm_{a}")
    version = re.search(r"release (\S+),", log)
    stated = re.search(r"nvcc (\d+\.\d+)", document)
    rows = list(table_of(uses, archs))
    if stated and version and stated[1] == version[1] and rows[0] in document:
        bad += [f"the document lacks: {r}" for r in rows if r not in document]
    else:
        print("# the document's table is of another nvcc or of other capabilities")
    if "90a" in archs:
        instructions(sys.argv[2], "90a", bad.append)
    print(*bad, f"{len(names)} kernels, {len(archs)} capabilities, {len(bad)} complaints", sep="\n")
    return 1 if bad or not names else 0


sys.exit(main())

#!/usr/bin/env python3
"""Every header compiles alone: the public ones as C99 and as C++, the rooms' as C11.

usage: headers.py ROOT -- CC... -- CXX...
"""
import pathlib
import subprocess
import sys

WARN = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]


def alone(compiler, flags, header, include):
    """None, or what the compiler says about a file that includes this header twice."""
    run = subprocess.run([*compiler, *flags, *WARN, *(f"-I{d}" for d in include), "-"],
                         input=f'#include "{header}"\n#include "{header}"\n', text=True,
                         capture_output=True)
    return None if run.returncode == 0 else run.stderr


def mpi_flags():
    """Where mpi.h is, for the headers of the room that uses it; None: there is no MPI here."""
    for name in ("ompi-c", "mpich"):
        run = subprocess.run(["pkg-config", "--cflags", name], text=True, capture_output=True)
        if run.returncode == 0:
            return run.stdout.split()
    return None


def main():
    args = sys.argv[1:]
    cut = args.index("--")
    root = pathlib.Path(args[0]).resolve()
    rest = args[cut + 1:]
    cc, cxx = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    include = [root / "include", root / "src"]
    jobs = []
    for h in sorted((root / "include").rglob("*.h")):
        name = h.relative_to(root / "include")
        jobs.append((name, "C99", cc, ["-std=c99", "-xc"], include[:1]))
        jobs.append((name, "C++", cxx, ["-std=c++11", "-xc++"], include[:1]))
    public = len(jobs)
    for h in sorted((root / "src").glob("*/*.h")):
        flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-xc"]
        if "<mpi.h>" in h.read_text():
            more = mpi_flags()
            if more is None:
                print(f"# skipped {h.name}: it needs mpi.h, which is not installed")
                continue
            flags += more
        jobs.append((h.relative_to(root / "src"), "C11", cc, flags, include))
    bad = 0
    for name, language, compiler, flags, dirs in jobs:
        says = alone(compiler, flags, name, dirs)
        if says is not None:
            bad += 1
            print(f"{name} alone as {language}:\n{says}")
    print(f"{public} runs over public headers, {len(jobs) - public} over inner ones, {bad} failed")
    return 1 if bad or not public else 0


sys.exit(main())

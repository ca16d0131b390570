#!/usr/bin/env python3
"""One name, one thing: no xd_ name stands for two structs, enums, functions or unions in two files.

usage: names.py [ROOT]

Names are found by ctags (universal-ctags); without it the test is skipped. A header and the source
file of the same path count as one file.
"""
import collections
import pathlib
import shutil
import subprocess
import sys


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    if not shutil.which("ctags"):
        print("SKIP: ctags is not installed (Debian's universal-ctags)")
        return 77
    files = [str(f.relative_to(root)) for d in ("src", "app", "bench", "include")
             for f in sorted((root / d).rglob("*.[ch]"))]
    out = subprocess.run(["ctags", "-x", "--c-kinds=sguef", "--_xformat=%N %F", *files], cwd=root,
                         text=True, capture_output=True, check=True).stdout
    places = collections.defaultdict(set)
    for line in out.splitlines():
        name, path = line.split(" ", 1)
        if name.startswith("xd_"):
            places[name].add(path.rsplit(".", 1)[0])
    twice = {name: sorted(at) for name, at in places.items() if len(at) > 1}
    for name, at in sorted(twice.items()):
        print(f"{name} is defined in {' and '.join(at)}")
    print(f"{len(places)} names, {len(twice)} of them mean two things")
    return 1 if twice or not places else 0


sys.exit(main())

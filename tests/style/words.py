#!/usr/bin/env python3
"""Finds words that do not belong in the tree: paths of one machine, marks of unfinished work.

usage: words.py [ROOT]

Looks at the files that git knows (all files where there is no git), except those that are not
text. Also complains about tabs in C and Python, spaces at line ends, and a last line without end.
"""
import pathlib
import re
import sys

import tree

# Pieces are put together here so that this file passes its own test.
PATHS = re.compile(r"(?<![\w.$}/-])/(" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me",
                                                   "t" + "mp",
                                                  "o" + "pt", "Us" + "ers")) + r")/\w")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
NO_TABS = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".py"}
# Data, not prose: what tokenizers and models bring along, and files made to be broken.
SKIP = re.compile(r"^(models/|tests/fuzz/corpus/|tests/golden/.*\.(json|txt)$|shared/)")


def complaints(path):
    data = path.read_bytes()
    if b"\0" in data:
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return
    for n, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((PATHS, "a path of one machine"), (UNFINISHED, "unfinished work")):
            m = pattern.search(line)
            if m:
                yield n, f"{what}: {m[0]}"
        if "\t" in line and path.suffix in NO_TABS:
            yield n, "a tab"
        if line != line.rstrip() and path.suffix != ".md":
            yield n, "spaces at the end of the line"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no end of the last line"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    files = [root / n for n in tree.names(root) if not SKIP.match(n)]
    found = [f"{p.relative_to(root)}:{n}: {what}" for p in files for n, what in complaints(p)]
    print(*found, f"{len(files)} files, {len(found)} complaints", sep="\n")
    return 1 if found or not files else 0


sys.exit(main())

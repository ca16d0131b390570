#!/usr/bin/env python3
"""Finds words that do not belong in the tree: paths of one machine, marks of unfinished work, words
of our own where the field has a word.

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
# Words that the field has others for: bf16, fp8, softmax, predict or prefetch, image, generate
# (doc/glossary.md).
OLD = re.compile(r"(?<![A-Za-z])(br" + r"ains?|eig" + r"hths|so" + r"ften(s|ed|ing)?|for" +
                 r"e(see[ns]?|casts?)|rec" + r"kon(s|ed|ing|er)?|"
                 r"pic" + r"tures?|pa" + r"int(s|ed|ing)?)(?![A-Za-z])", re.IGNORECASE)
# A brush does that to a mask, whatever the rest of the tree calls it.
BRUSH = re.compile(r"pa" + r"int(s|ed|ing)?", re.IGNORECASE)
# Functions of the program and the library are named by what they do: a verb and its noun. These
# words alone say nothing at the call site, or say it in words of our own.
FUNCTIONS = """
alien alone at attempt be behind beside can cannot check collect cuts do each everything few
find finish fit fits fly form give given go greet guess has hear held hidden hire instead is
judge keep known land lap least leave lift lighter list look make meant meet mine more most
named near note nothing number of offer one other owe park part pass past perhaps place play
put ready rest room said say see show some soon spare spread start stay strip take taken
tell test there told took trade turn turned turns unknown up use wait wanted ways wear when
within word words work
"""
FUNCTION = re.compile(r"^(?:[A-Za-z_]\w*[ *]+)+(" + "|".join(FUNCTIONS.split()) + r")\((?!\*)")
NO_TABS = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".py"}
# Data, not prose: what tokenizers and models bring along, and files made to be broken; old names
# that changed.
SKIP = re.compile(r"^(CHANGELOG.md$|models/|tests/fuzz/corpus/|"
                  r"tests/golden/.*\.(json|txt)$|shared/)")


def complaints(path, own):
    """own: it is a C file of the program or the library."""
    data = path.read_bytes()
    if b"\0" in data:
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return
    for n, line in enumerate(text.split("\n"), 1):
        for pattern, what in ((PATHS, "a path of one machine"), (UNFINISHED, "unfinished work"),
                              (OLD, "a word that the field has another one for")):
            masks = path.parent.name == "page" and pattern is OLD
            m = pattern.search(BRUSH.sub("", line) if masks else line)
            if m:
                yield n, f"{what}: {m[0]}"
        m = FUNCTION.match(line) if own and not line.startswith("typedef") else None
        if m:
            yield n, f"a function whose name does not say what it does: {m[1]}"
        if "\t" in line and path.suffix in NO_TABS:
            yield n, "a tab"
        if line != line.rstrip() and path.suffix != ".md":
            yield n, "spaces at the end of the line"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no end of the last line"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    files = [root / n for n in tree.names(root) if not SKIP.match(n)]
    found = []
    for p in files:
        name = p.relative_to(root)
        own = name.parts[0] in ("src", "app") and p.suffix in (".c", ".h", ".cc")
        found += [f"{name}:{n}: {what}" for n, what in complaints(p, own)]
    print(*found, f"{len(files)} files, {len(found)} complaints", sep="\n")
    return 1 if found or not files else 0


sys.exit(main())

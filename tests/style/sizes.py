#!/usr/bin/env python3
"""Lengths of functions and files (CONTRIBUTING.md, "Language and layout").

usage: sizes.py [ROOT]

Fails at the hard limits: a function of more than 80 lines, a line of more than 100 columns. Kernels
(the directories inside src/backend) may have longer functions. A function in src/exec has at most 6
parameters: more of them are members of a struct. The rest is a report: the median function, and
what is above the soft limits of 50 lines (functions) and 400 (files). A function counts from its
first line to its closing brace; both braces stand in the first column.

The limit of columns holds for every text file that git knows, of any language. Longer are, by rule:
  * data (DATA), which programs write and compare as it is;
  * a row of a Markdown table, and a request of a manual page, which end with their line;
  * a line that has 100 columns or less without the addresses (http...) in it, which do not break.
"""
import pathlib
import re
import statistics
import sys

import tree

FUNCTION, SOFT_FUNCTION, SOFT_FILE, COLUMNS = 80, 50, 400, 100
FOLDERS = ("src", "include", "app", "examples", "bench", "tests")
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh"}
PARAMETERS, PARAMETER_FOLDERS = 6, (("src", "exec"),)
NAME = re.compile(r"(\w+)\s*\(")
DATA = re.compile(r"(models/|tests/golden/.*\.(json|txt)$|tests/fuzz/corpus/|.*\.svg$|LICENSE$)")
ADDRESS = re.compile(r"https?://\S+")


def start_of(lines, brace):
    """The first line of the function whose opening brace is line `brace`."""
    at = brace
    while at and lines[at - 1].strip() and not re.match(r"[}#/]|.*(;|\*/)\s*$", lines[at - 1]):
        at -= 1
    return at


def parameters(head):
    """Number of parameters in a function's head, which begins with its name."""
    depth, commas, text = 0, 0, ""
    for c in head[head.find("("):]:
        depth += (c in "([") - (c in ")]")
        if not depth:
            break
        commas += c == "," and depth == 1
        text += c
    return commas + (text.strip("( ") not in ("", "void"))


def functions(lines):
    """(name, first line, length, number of parameters) of every function, lines from 1."""
    at = 0
    while at < len(lines):
        if lines[at].rstrip() != "{":
            at += 1
            continue
        first, end = start_of(lines, at), at
        while end < len(lines) and lines[end].rstrip() != "}":
            end += 1
        head = " ".join(lines[first:at])
        m = NAME.search(head)
        many = parameters(head[m.start():]) if m else 0
        yield (m[1] if m else "?"), first + 1, end - first + 1, many
        at = end + 1


def text_files(root):
    """(path, lines) of every file that git knows and that is text; of all files without git."""
    for name in tree.names(root):
        path = root / name
        if DATA.match(name):
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode("utf-8", errors="replace").splitlines()


def may_be_wide(path, line):
    return (path.suffix == ".md" and line.lstrip().startswith("|") or
            path.suffix == ".1" and line.startswith(".") or
            len(ADDRESS.sub("", line)) <= COLUMNS)


def wide_lines(root):
    return [f"{path.relative_to(root)}:{n}: {len(line)} columns" for path, lines in text_files(root)
            for n, line in enumerate(lines, 1)
            if len(line) > COLUMNS and not may_be_wide(path, line)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    bad, soft, lengths, many = [], [], [], 0
    for path in sorted(f for d in FOLDERS for f in (root / d).rglob("*") if f.suffix in SUFFIXES):
        name = path.relative_to(root)
        kernel = len(name.parts) > 3 and name.parts[:2] == ("src", "backend")
        lines = path.read_text(encoding="utf-8").splitlines()
        if len(lines) > SOFT_FILE:
            soft.append(f"{name}: {len(lines)} lines")
        for function, at, n, arguments in functions(lines):
            if name.parts[0] != "tests":
                lengths.append(n)
                many += arguments > PARAMETERS
            if arguments > PARAMETERS and name.parts[:2] in PARAMETER_FOLDERS:
                bad.append(f"{name}:{at}: {function} has {arguments} parameters")
            if n > SOFT_FUNCTION:
                hard = n > FUNCTION and not kernel
                (bad if hard else soft).append(f"{name}:{at}: {function} has {n} lines")
    if not lengths:
        print(f"no functions found below {root}")
        return 1
    print("above the soft limits:", *soft, sep="\n  ")
    bad += wide_lines(root)
    print("above the hard limits:", *bad, sep="\n  ")
    print(f"{len(lengths)} functions without the tests', median {statistics.median(lengths):g} "
          f"lines, longest {max(lengths)}; {many} with more than {PARAMETERS} parameters; "
          f"{len(bad)} above the hard limits")
    return 1 if bad else 0


sys.exit(main())

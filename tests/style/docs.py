#!/usr/bin/env python3
"""Checks that what the documents mention is in the tree.

usage: docs.py [ROOT]

Looks at doc/, README.md, CONTRIBUTING.md and integrations/. There must be
  * every path that begins with a folder of the tree: src/ doc/ tests/ tools/ bench/ app/ include/
    models/ python/ integrations/. It is a file, a directory, a pattern (bench/*.c, src/{io,tok},
    doc/NAME.md) or a program that meson builds there;
  * every C file that is named by its end ("plan.h", "exec/op.h", "gemm/tile_tmpl.h"), unless it is
    a header of the system ("<stdio.h>");
  * every name that begins with xd_, XD_ or XDIT_, somewhere in the code; xd_w_* and xd_dit_NAME
    are beginnings;
  * the target of every link of a Markdown file, and the heading behind its '#'.
Blocks of ```diff, which show what a reader would add, are not looked at. Rows of the README's table
of speed are rows of doc/performance.md, and a document names every variable XDIT_* of the
environment.
"""
import os
import pathlib
import re
import sys

FOLDERS = "src doc tests tools bench app include models python integrations".split()
CODE = "src include app tests bench tools examples python integrations".split()
PATH = re.compile(r"(?<![\w/.$~}*-])((?:%s)/[\w./*{},<>?-]*)" % "|".join(FOLDERS))
FILE = re.compile(r"(?<![\w/.$~}*<>-])((?:[\w-]+/)*[\w-]+\.[ch])(?![\w/*])")
NAME = re.compile(r"(?<![\w-])((?:xd|XD|XDIT)_\w*)(\*?)")
PROGRAM = re.compile(r"executable\(\s*'([\w-]+)'")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def documents(root):
    found = [root / "README.md", root / "CONTRIBUTING.md"]
    found += [p for d in ("doc", "integrations") for p in (root / d).rglob("*")
              if p.suffix in {".md", ".1"}]
    return sorted(p for p in found if p.is_file())


def tree(root):
    """The names of all files below the folders of the tree and of the programs built there."""
    names = set()
    for folder in sorted(set(FOLDERS + CODE)):
        for at, folders, files in os.walk(root / folder):
            folders[:] = [d for d in folders if d not in {"__pycache__", ".git"}]
            names |= {(pathlib.Path(at) / f).relative_to(root).as_posix() for f in files}
    for build in [root / n for n in names if n.endswith("/meson.build")]:
        names |= {(build.parent / p).relative_to(root).as_posix()
                  for p in PROGRAM.findall(build.read_text(encoding="utf-8"))}
    return names


def identifiers(root, names):
    """Every name of NAME's kinds that the code or a file of the build has."""
    found = set()
    here = pathlib.Path(__file__).resolve()
    files = [root / n for n in names if n.split("/")[0] in CODE] + sorted(root.glob("meson*"))
    for path in files + [root / "Makefile"]:
        if path.is_file() and path.resolve() != here and b"\0" not in path.read_bytes()[:4096]:
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= {m[1] for m in re.finditer(r"((?:xd|XD|XDIT)_\w+)", text)}
    return found


def expanded(path):
    """The patterns that a path with braces and placeholders stands for."""
    m = re.search(r"\{([^{}]*)\}", path)
    if m:
        return [p for part in m[1].split(",")
                for p in expanded(path[:m.start()] + part + path[m.end():])]
    path = re.sub(r"<[^<>/]*>", "*", path)
    return [re.sub(r"(?<![A-Za-z0-9_])[A-Z]{2,}(?![A-Za-z0-9_])", "*", path)
            if not path.endswith("README.md") else path]


def exists(root, names, path):
    """Is everything that `path` stands for below the folder `root`?"""
    for p in expanded(path.rstrip(".,-")):
        p = p.rstrip("/")
        if "*" in p or "?" in p:
            if not any(root.glob(p)):
                return False
        elif not (root / p).exists() and p not in names:
            return False
    return True


def slugs(path):
    """The anchors of a Markdown file's headings, as GitHub makes them."""
    heads = re.findall(r"(?m)^#+ +(.*?) *$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def bad_link(root, path, target):
    name, _, anchor = target.partition("#")
    if re.match(r"[a-z]+:", target):
        return None
    to = (path.parent / name).resolve() if name else path
    if not to.exists():
        return f"the link leads to {target}, which is not there"
    if anchor and to.suffix == ".md" and anchor not in slugs(to):
        return f"{to.relative_to(root)} has no heading #{anchor}"
    return None


def without_diffs(lines):
    """The lines, with those of ```diff blocks empty."""
    diff = False
    for line in lines:
        if line.lstrip().startswith("```"):
            diff = line.strip() == "```diff"
        yield "" if diff else line


def complaints(root, path, names, known):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".1":
        text = text.replace("\\-", "-")
        text = re.sub(r"\\f[BRI]", " ", text)
    for n, line in enumerate(without_diffs(text.splitlines()), 1):
        for m in PATH.finditer(line):
            if not exists(root, names, m[1]) and not exists(root / "doc", names, m[1]):
                yield n, f"there is no {m[1].rstrip('.,')}"
        for m in FILE.finditer(line):
            if m[1].split("/")[0] not in FOLDERS and \
               not any(have == m[1] or have.endswith("/" + m[1]) for have in names):
                yield n, f"there is no file {m[1]}"
        for m in NAME.finditer(line):
            stem = re.sub(r"(?<=_)NAME$", "", m[1])
            starts = m[2] or stem.endswith("_")
            if m[1] not in known and not (starts and any(k.startswith(stem) for k in known)):
                yield n, f"no code has the name {m[1]}"
        if path.suffix == ".md":
            for m in LINK.finditer(line):
                what = bad_link(root, path, m[1])
                if what:
                    yield n, what


def cells(line):
    """Cells of a row of a table, without ranges, marks and notes behind a number."""
    return [re.sub(r"^([\d.]+) .*", r"\1", c.strip()) for c in line.strip("|\n ").split("|")]


def speeds(root):
    """Rows of the README's table of speed that doc/performance.md does not have."""
    measured = [cells(line) for line in (root / "doc/performance.md").read_text().splitlines()
                if line.startswith("| ")]
    text = (root / "README.md").read_text()
    rows = re.search(r"\| work \| CPU .*\n\|-.*\n((?:\|.*\n)+)", text)
    if not rows:
        yield "README.md has no table of speed"
        return
    for work, _, *numbers in map(cells, rows[1].splitlines()):
        if not any(re.sub(r" \(\d\)$", "", m[0]) == work and set(numbers) <= set(m)
                   for m in measured):
            yield f"README.md: doc/performance.md does not have {work} {' '.join(numbers)}"


def variables(root, names, files):
    """Variables that the program reads, does not set itself, and no document names."""
    code = "".join((root / n).read_text() for n in names
                   if n.startswith(("src/", "app/")) and n.endswith(".c"))
    read = set(re.findall(r'\bgetenv\("(XDIT_\w+)"', code))
    read -= set(re.findall(r'\bsetenv\("(XDIT_\w+)"', code))
    written = "".join(p.read_text(encoding="utf-8") for p in files)
    for v in sorted(read):
        if v not in written:
            yield f"no document names {v}, which the program reads"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    names = tree(root)
    known = identifiers(root, names)
    files = documents(root)
    found = [f"{p.relative_to(root)}:{n}: {what}" for p in files
             for n, what in complaints(root, p, names, known)]
    found += [*speeds(root), *variables(root, names, files)]
    print(*found, f"{len(files)} documents, {len(found)} complaints", sep="\n")
    return 1 if found or not files or not known else 0


sys.exit(main())

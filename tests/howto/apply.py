#!/usr/bin/env python3
"""Applies the diff of doc/howto/add-a-model.md to a copy of src/families, and gives what it makes
to the build.

usage: apply.py GUIDE FAMILIES TOY REGISTRY

The diff is the guide's ```diff block whose first line begins with "---". It may add files to
src/families and lines to its meson.build, and nothing else. TOY becomes the new file, REGISTRY what
src/families/meson.build makes of registry.c.in with the new list.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def diff_of(guide):
    blocks = re.findall(r"^```diff\n(--- .*?)^```$", guide.read_text(encoding="utf-8"),
                        re.MULTILINE | re.DOTALL)
    if len(blocks) != 1:
        sys.exit(f"{guide}: {len(blocks)} diffs of files, not one")
    return blocks[0]


def check_names(diff):
    names = re.findall(r"^(?:---|\+\+\+) (\S+)", diff, re.MULTILINE)
    strange = [n for n in names if n != "/dev/null" and
               not re.fullmatch(r"[ab]/src/families/[\w/.]+", n)]
    if strange:
        sys.exit(f"the diff changes {strange[0]}: a model is a place in src/families and a line of "
                 "its registry")


def registry_of(folder):
    rows = re.findall(r"^  \['(\w+)',", (folder / "meson.build").read_text(encoding="utf-8"),
                      re.MULTILINE)
    text = (folder / "registry.c.in").read_text(encoding="utf-8")
    return text.replace("@NAMES@", ", ".join("xd_family_" + r for r in rows)).replace(
        "@ENTRIES@", ", ".join("&xd_family_" + r for r in rows))


def changes(before, after):
    """(files that are new, lines that are new) in `after`; nothing else may differ."""
    old = {p.relative_to(before): p.read_bytes() for p in before.rglob("*") if p.is_file()}
    new = {p.relative_to(after): p.read_bytes() for p in after.rglob("*") if p.is_file()}
    changed = [n for n in old if new.get(n) != old[n]]
    if changed != [pathlib.Path("meson.build")]:
        sys.exit(f"the diff changes {[str(c) for c in changed]}, not meson.build alone")
    lines = old[changed[0]].splitlines(), new[changed[0]].splitlines()
    added = [s for s in lines[1] if s not in lines[0]]
    if [s for s in lines[1] if s not in added] != lines[0]:
        sys.exit("the diff changes lines of meson.build that are there")
    return sorted(set(new) - set(old)), added


def main():
    guide, families, toy, registry = map(pathlib.Path, sys.argv[1:])
    diff = diff_of(guide)
    check_names(diff)
    with tempfile.TemporaryDirectory() as tmp:
        copy = pathlib.Path(tmp) / "src/families"
        shutil.copytree(families, copy)
        p = subprocess.run(["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "-d", tmp],
                           input=diff, text=True, capture_output=True, check=False)
        if p.returncode:
            sys.exit(f"{guide}: the diff does not apply:\n{p.stdout}{p.stderr}")
        files, lines = changes(families, copy)
        if len(files) != 1 or len(lines) != 1:
            sys.exit(f"{guide}: the diff adds {len(files)} files and {len(lines)} lines of "
                     "meson.build, not one of each")
        toy.write_bytes((copy / files[0]).read_bytes())
        registry.write_text(registry_of(copy), encoding="utf-8")


main()

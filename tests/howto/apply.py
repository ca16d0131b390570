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
import sys
import tempfile


def diff_of(guide):
    blocks = re.findall(r"^```diff\n(--- .*?)^```$", guide.read_text(encoding="utf-8"),
                        re.MULTILINE | re.DOTALL)
    if len(blocks) != 1:
        sys.exit(f"{guide}: {len(blocks)} diffs of files, not one")
    return blocks[0]


def files_of(diff):
    """(name, old or None, hunks) of every file of the diff."""
    for part in re.split(r"^(?=--- )", diff, flags=re.MULTILINE)[1:]:
        old, new, body = re.match(r"--- (\S+)\n\+\+\+ b/(\S+)\n(.*)", part, re.DOTALL).groups()
        if not re.fullmatch(r"src/families/[\w/.]+", new) or old not in ("/dev/null", "a/" + new):
            sys.exit(f"the diff changes {new}: a model is a place in src/families and a line of "
                     "its registry")
        yield new, old != "/dev/null", re.split(r"^@@ ", body, flags=re.MULTILINE)[1:]


def apply_hunk(text, hunk, name):
    """`text` with a hunk, whose old lines must be in one place of it."""
    head, _, body = hunk.partition("\n")
    lines = body.splitlines(keepends=True)
    old, new = ("".join(s[1:] for s in lines if s[0] in kinds) for kinds in (" -", " +"))
    counts = re.match(r"-\d+,(\d+) \+\d+,(\d+) @@", head)
    if not counts or [int(n) for n in counts.groups()] != [old.count("\n"), new.count("\n")]:
        sys.exit(f"{name}: the numbers of the hunk @@ {head} are not those of its lines")
    if text.count(old) != 1 and (old or text):
        sys.exit(f"{name}: the diff of the guide does not apply; its context is\n{old}")
    return text.replace(old, new) if old else new


def apply(diff, folder):
    for name, there, hunks in files_of(diff):
        text = (folder / name).read_text(encoding="utf-8") if there else ""
        for hunk in hunks:
            text = apply_hunk(text, hunk, name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


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
    with tempfile.TemporaryDirectory() as tmp:
        copy = pathlib.Path(tmp) / "src/families"
        shutil.copytree(families, copy)
        apply(diff, pathlib.Path(tmp))
        files, lines = changes(families, copy)
        if len(files) != 1 or len(lines) != 1:
            sys.exit(f"{guide}: the diff adds {len(files)} files and {len(lines)} lines of "
                     "meson.build, not one of each")
        toy.write_bytes((copy / files[0]).read_bytes())
        registry.write_text(registry_of(copy), encoding="utf-8")


main()

#!/usr/bin/env python3
"""Checks which room includes which (the table of rooms in doc/architecture.md).

usage: layers.py [ROOT]

Rooms are the directories of src/ and app/. src/lib.c, the top, may include anything. Rooms of app/
see the public header, base, the headers of DATA and the rooms in APP; examples see the public
header alone.
"""
import pathlib
import re
import sys

MAY = {  # room: rooms whose headers it may include, besides its own
    "base": "xdit",
    "tensor": "base",
    "backend": "base tensor",
    "comm": "base tensor backend",
    "exec": "base tensor backend",
    "io": "base tensor",
    "tok": "base io",
    "text": "base tensor exec tok",
    "dit": "base tensor exec",
    "families": "base tensor exec tok dit vae",
    "vae": "base tensor exec",
    "upsample": "base tensor exec vae",
    "audio": "base tensor exec",
    "sampler": "base tensor exec",
    "parallel": "base tensor exec comm",
    "observe": "base tensor backend comm exec parallel",
    "ranks": "xdit base tensor comm exec",
    "plan": "xdit base tensor backend exec dit parallel ranks",
    "model": "xdit base tensor backend comm exec io tok text dit families vae upsample audio "
             "sampler ranks",
    "pipeline": "xdit base tensor backend comm exec io tok text dit families vae upsample audio "
                "sampler parallel observe ranks plan model",
    "module": "xdit base tensor backend exec dit families vae parallel model pipeline",
    "convert": "xdit base tensor exec io families model pipeline",
    "predict": "xdit base tensor backend comm exec dit families vae sampler parallel "
               "observe ranks plan model pipeline",
    "engine": "xdit base tensor backend comm exec io dit upsample parallel "
              "observe ranks plan model pipeline predict",
    "report": "xdit base tensor backend comm exec io tok text dit vae sampler parallel "
              "observe ranks plan model pipeline predict engine",
}
APP = {
    "launch": "",
    "cli": "launch",
    "from_xdit": "cli",
    "serve": "cli launch",
}
# What families say of themselves, which a program reads beside the public header.
DATA = {"families/from_xdit.h", "families/help.h"}
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".inc"}


def sources(folder):
    return sorted(f for f in folder.rglob("*") if f.suffix in SUFFIXES)


def includes(path):
    """(line number, name) of every include in quotes."""
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        m = INCLUDE.match(line)
        if m:
            yield n, m[1]


def check_room(path, room, complain):
    if room not in MAY:
        complain(path, 1, f"{room}/ is no room that tests/style/layers.py knows")
        return
    for n, name in includes(path):
        if "/" not in name:
            complain(path, n, f'"{name}" has no room: write "{room}/{name}"')
        elif name.split("/")[0] not in MAY[room].split() + [room]:
            complain(path, n, f"{room}/ may not include {name.split('/')[0]}/")


def check_program(path, rooms, complain):
    for n, name in includes(path):
        known = name in DATA or name == "commit.h" or name.split("/")[0] in rooms
        if not known and not (path.parent / name).exists():
            complain(path, n, f"a program may not include {name}")


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = []

    def complain(path, n, what):
        found.append(f"{path.relative_to(root)}:{n}: {what}")

    files = 0
    for path in sources(root / "src"):
        parts = path.relative_to(root / "src").parts
        files += 1
        if len(parts) > 1:
            check_room(path, parts[0], complain)
        elif path.name != "lib.c":
            complain(path, 1, "only lib.c stands outside the rooms")
    for path in sources(root / "app"):
        files += 1
        room = path.parent.name
        if room not in APP:
            complain(path, 1, f"{room}/ is no room that tests/style/layers.py knows")
        check_program(path, ["xdit", "base", room, *APP.get(room, "").split()], complain)
    for path in sources(root / "examples"):
        files += 1
        check_program(path, ["xdit"], complain)
    print(*found, f"{files} files, {len(found)} forbidden includes", sep="\n")
    return 1 if found or not files else 0


sys.exit(main())

"""need.py - checks the needs of a measuring program: a sentence, exit code 2, if one is missing."""
import importlib
import pathlib
import shutil
import sys

# Packages whose name at the registry is not that of the module.
PACKAGES = {"PIL": "pillow"}


def fail(sentence):
    print(f"{pathlib.Path(sys.argv[0]).name}: {sentence}", file=sys.stderr)
    sys.exit(2)


def packages(*modules):
    """Imports the modules."""
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as e:
            missing.append((name, e))
    if not missing:
        return
    names = " ".join(PACKAGES.get(name, name) for name, _ in missing)
    if "xdit" in (name for name, _ in missing):
        fail(f"cannot import {names} ({missing[0][1]}): run it with PYTHONPATH=build/python, or "
             "install the packages with pip")
    fail(f"cannot import {names} ({missing[0][1]}): pip install {names}")


def program(path, target):
    """Returns the absolute path of a program; `target` of the build makes it."""
    found = shutil.which(path)
    if not found:
        fail(f"{path} is not a program: build it with ninja -C build {target}, and pass "
             f"build/{target}")
    return str(pathlib.Path(found).resolve())

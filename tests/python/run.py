#!/usr/bin/env python3
"""run.py PACKAGE ROOT XDIT TINY TESTS [MPIRUN...] - tests with pytest: TESTS is "package", those of
the Python package in python/tests, the examples of doc/python.md and the notebook, or "comfyui",
those of integrations/comfyui. PACKAGE: the folder with xdit/; TINY: models of tests. Needs cffi,
numpy, Pillow and pytest; XDIT_TEST_PYTHON names a Python that has them. Speaks TAP."""
import os
import pathlib
import re
import subprocess
import sys

NEEDS = "import cffi, numpy, PIL, pytest"
TESTS = {"package": ["python/tests", "tests/python/test_documents.py"],
         "comfyui": ["tests/comfyui"]}


def interpreter():
    """A Python with the packages that the tests need, or None."""
    for p in (os.environ.get("XDIT_TEST_PYTHON"), sys.executable, "/usr/bin/python3"):
        if p and subprocess.run([p, "-c", NEEDS], capture_output=True).returncode == 0:
            return p
    return None


def main():
    package, root, program, tiny = (pathlib.Path(v).resolve() for v in sys.argv[1:5])
    python = interpreter()
    if not python:
        print("1..0 # SKIP no Python has cffi, numpy, Pillow and pytest (XDIT_TEST_PYTHON)")
        return
    env = {**os.environ, "PYTHONPATH": str(package), "XDIT_PROGRAM": str(program),
           "XDIT_TINY_MODELS": str(tiny), "PYTHONDONTWRITEBYTECODE": "1",
           "COLUMNS": "200"}            # pytest cuts reasons of skips at the line's end
    if len(sys.argv) > 6:
        env["XDIT_MPIRUN"] = " ".join(sys.argv[6:])
    run = subprocess.run([python, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short",
                          *TESTS[sys.argv[5]]], cwd=root, env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True)
    n = 0
    for line in run.stdout.splitlines():
        what = re.match(r"\S*?(\w+\.py::\S.*?) (PASSED|FAILED|ERROR|SKIPPED)(?: \((.*)\))? +\[",
                        line)
        if what:
            n += 1
            good = "ok" if what[2] in ("PASSED", "SKIPPED") else "not ok"
            print(f"{good} {n} - {what[1]}" + (f" # SKIP {what[3]}" if what[3] else ""))
        else:
            print("# " + line)
    if run.returncode not in (0, 1) or not n:
        n += 1
        print(f"not ok {n} - pytest ends with {run.returncode}")
    print(f"1..{n}")


main()

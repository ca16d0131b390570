#!/usr/bin/env python3
"""tools/golden/index.py is right: its cases are those of the modules, and of tests/golden.

usage: cases.py ROOT

Nothing is generated, and none of the packages is needed. Prints TAP.
"""
import ast
import pathlib
import subprocess
import sys

from tap import check, done

# What a module of cases/ calls the table of its cases.
TABLES = ("RUNS", "VARIANTS", "CASES")


def golden(root, *args):
    return subprocess.run([sys.executable, "-S", root / "tools/golden", *args], text=True,
                          capture_output=True)


def table_of(tree):
    """The keys of the module's table of cases; None: it has none."""
    for node in tree.body:
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        if names and names[0] in TABLES and isinstance(node.value, ast.Dict):
            return {ast.literal_eval(k) for k in node.value.keys}
    return None


def check_modules(root, cases):
    modules = {p.stem: p for p in (root / "tools/golden/cases").glob("*.py") if p.stem[0] != "_"}
    suites = {c.split("/")[0] for c in cases}
    check("a suite is a module", set(modules) == suites, set(modules) ^ suites)
    for suite, path in sorted(modules.items()):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        makes = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "make"]
        check(f"{suite}: makes cases",
              len(makes) == 1 and [a.arg for a in makes[0].args.args] == ["names", "options"])
        mine = {c.partition("/")[2] for c in cases if c.startswith(suite + "/")}
        table = table_of(tree)
        extra = {"pixart": {"binning"}, "hunyuan": {"forms"}, "wan": {"forms"},
                 "mochi": {"forms"}, "ltx": {"forms"}, "vace": {"forms"},
                 "animate": {"forms"},
                 "ltx2": {"forms", "connectors", "audio"}, "minimaxh3": {"forms", "audio"},
                 "skyreels": {"forms"}, "qwen": {"forms"}}.get(suite, set())
        check(f"{suite}: its table is in the index", table is None or table | extra == mine,
              f"{table} and {mine}")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    run = golden(root, "--list")
    lines = [line.split() for line in run.stdout.splitlines()]
    check("--list prints two words a case",
          run.returncode == 0 and len(lines) > 50 and all(len(w) == 2 for w in lines), run)
    paths = [path for _, path in lines]
    check("nothing is written by two cases", len(set(paths)) == len(paths), paths)
    absent = [p for p in paths if not (root / p).exists()]
    check("all that is written is there", not absent, absent)
    sources = {".c", ".h", ".build"}
    files = [p.relative_to(root).as_posix() for p in (root / "tests/golden").rglob("*")
             if p.is_file() and p.suffix not in sources]
    orphans = [f for f in files if not any(f == p or f.startswith(p + "/") for p in paths)]
    check("all that is there is written", len(files) > 200 and not orphans, orphans)
    check_modules(root, [case for case, _ in lines if not case.startswith("tools/")])
    run = golden(root, "pixart/no-such")
    check("no such case: a sentence",
          run.returncode == 1 and run.stderr == "golden: there is no case pixart/no-such; "
          "--list prints all of them\n", run)
    return done()


sys.exit(main())

#!/usr/bin/env python3
"""commands.py XDIT ROOT BUILD - the command lines of README, the guides and the manual pages work.

Every `xdit COMMAND ...` of an indented or fenced block, and every one in backquotes that has a
flag, is parsed by the program itself: "..." becomes a model and a prompt, no model of these names
exists, so the exit code is 1 for the missing file, and never 2 for a wrong flag or value. Targets
of make, tests of tests/run.sh and programs of build/bench exist. The plans in README are those that
xdit plan prints, within TOLERANCE. Speaks TAP.
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools"))
from tap import check, done

XDIT, ROOT, BUILD = map(pathlib.Path, map(os.path.abspath, sys.argv[1:4]))
HF = ROOT / os.environ.get("XDIT_TEST_HF", "../shared/hf")
TOLERANCE = 0.05                # of seconds, memory and bytes that README prints
LINE = re.compile(r"(?:^|[\s;|])(?:build/app/)?xdit(\s+[a-z].*)$")
# A command is shown without arguments, or these measure or ask the machine: only parsed.
PARSED_ONLY = {"probe", "doctor", "models"}
NEEDED = {"generate": ["--prompt", "p", "--model", "DIR"], "plan": ["--model", "DIR"],
          "run": ["--prompt", "p", "--model", "DIR"],
          "serve": ["--model", "DIR"], "bench": ["--config", "DIR"],
          "calibrate": ["--model", "DIR", "--prompt", "p"],
          "convert": ["--model", "DIR", "--output", "DIR2"],
          "upscale": ["IN", "--model", "FILE", "--output", "OUT"]}
SCRIPT = "torchrun --nproc_per_node=2 examples/flux_example.py --model M --prompt p"


def documents():
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("integrations/*/README.md")]
    return found + sorted(p for p in (ROOT / "doc").rglob("*")
                          if p.suffix in {".md", ".1"} and p.parent.name != "lab")


def text_of(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".1":             # as roff sets its literal lines
        text = text.replace("\\-", "-").replace("\\e\n", "\\\n").replace("\\(aq", "'")
        text = re.sub(r"(?m)^(?=xdit )", "    ", text)
    return text


def blocks(text):
    """Lines of indented and fenced blocks, continued ones joined."""
    fenced, joined = False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
            joined = ""
        elif fenced or line.startswith("    ") or joined:
            joined += line.strip()
            if joined.endswith("\\"):
                joined = joined[:-1]
            else:
                yield joined
                joined = ""


def commands(text):
    """Arguments of every command of a document, and whether it is a mention within a sentence."""
    lines = [(m[1], False) for m in map(LINE.search, blocks(text)) if m]
    flat = re.sub(r"\s+", " ", text)
    lines += [(m[1].replace("[", "").replace("]", ""), True)
              for m in re.finditer(r"(?<!`)`xdit( [^`]* -[^`]*)`(?!`)", flat)]
    for line, mention in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:              # a quote that ends on another line
            words = line.split()
        for command in words[0].split("|"):
            yield [command, *words[1:]], mention


def arguments(words, mention):
    """The words, with values for placeholders, and what a shortened command leaves out."""
    command, *rest = words
    cut = next((i for i, w in enumerate(rest) if w in {"|", ">", ">>", "2>", "&&", ";", "&"}),
               len(rest))
    values = {"N": "2", "SIZE": "12GB", "RATE": "8", "TYPE": "int8"}
    rest = [values.get(w, w) for w in rest[:cut]]
    rest = ["p" if w == "..." and before in ("-p", "--prompt") else w
            for before, w in zip(["", *rest], rest)]
    shortened = mention or "..." in rest
    rest = [w for w in rest if w != "..."]
    known = {"-m": "--model", "-p": "--prompt", "--prompts": "--prompt", "--config": "--model"}
    given = {known.get(w, w).split("=")[0] for w in rest}
    needed = NEEDED.get(command, [])
    for flag, value in zip(needed[::2], needed[1::2]):
        if shortened and known.get(flag, flag) not in given:
            rest = [flag, value, *rest]
    return [command, *rest]


def run(words, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_", "OMPI_", "PMI"))}
    return subprocess.run([XDIT, *words], cwd=folder, env=env | {"HF_HUB_CACHE": str(folder)},
                          input=SCRIPT, capture_output=True, text=True, timeout=60)


def refusal(words, folder, mention=False):
    """Why the program does not parse these words, or an empty text."""
    if words[0] in PARSED_ONLY:         # a last flag that does not exist is what is refused
        words = [*words, "--no-such-flag"]
        p = run(words, folder)
        return "" if p.returncode == 2 and "--no-such-flag" in p.stderr else p.stderr or "accepted"
    p = run(words, folder)
    if mention and "needs a value" in p.stderr:
        p = run([*words, "x"], folder)
    return "" if p.returncode in (0, 1) else f"exit code {p.returncode}: {p.stderr}"


def targets(text):
    """Targets of make, and tests of run.sh, that a document names."""
    made = re.findall(r"(?m)(?:^    |`)make ([a-z][a-z-]*)", text)
    ran = [w for m in re.findall(r"tests/run\.sh build((?: [\w-]+)+)", text) for w in m.split()
           if not w.startswith("-")]
    programs = re.findall(r"build/bench/([a-z_]+)", text)
    return made, ran, programs


def plan_rows(text):
    """The rows of a table of plans: number, name, ~, then numbers with units."""
    found = re.findall(r"(?m)^ *(\d+)  (\S+?) *(~?)  +([\d.]+e?[+\d]*) +([\d.]+) +([\d.]+) +"
                       r"([\d.]+e?[+\d]*) +([\d.]+ \wB) +([\d.]+ \wB)", text)
    unit = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    for row in found:
        yield row[:3], [float(v.split()[0]) * unit.get(v[-2:], 1) for v in row[3:]]


def check_plans(text, folder):
    command = next(c for c, _ in commands(text) if c[0] == "plan" and "--cluster" in c)
    model = HF / command[command.index("--model") + 1]
    if not model.is_dir():
        print(f"# skipped: there is no {model} (XDIT_TEST_HF)")
        return
    command[command.index("--model") + 1] = str(model)
    p = run(command, folder)
    shown, printed = list(plan_rows(text)), list(plan_rows(p.stdout))
    check("README shows plans", len(shown) > 3, shown)
    close = [a[0] == b[0] and all(abs(x - y) <= TOLERANCE * max(x, y) for x, y in zip(a[1], b[1]))
             for a, b in zip(shown, printed)]
    check("they are the plans that xdit plan prints", len(printed) >= len(shown) and all(close),
          p.stdout + p.stderr)


def check_documents(folder):
    names = {w for t in json.loads((BUILD / "meson-info/intro-tests.json").read_text())
             for w in (t["name"], *(s.split(":")[-1] for s in t["suite"]))}
    make = set(re.findall(r"(?m)^([\w -]+):(?!=)", (ROOT / "Makefile").read_text()))
    make = {w for m in make for w in m.split()}
    bench = set(re.findall(r"executable\('(\w+)'", (ROOT / "bench/meson.build").read_text()))
    parsed = 0
    for path in documents():
        name, text, wrong = path.relative_to(ROOT), text_of(path), []
        for words, mention in commands(text):
            words = arguments(words, mention)
            why = refusal(words, folder, mention)
            parsed += 1
            if why:
                wrong.append(f"xdit {shlex.join(words)}: {why}")
        made, ran, programs = targets(text)
        wrong += [f"make has no target {m}" for m in made
                  if m not in make and not m.startswith("check-")]
        wrong += [f"there is no test {t}" for t in ran if t not in names]
        wrong += [f"meson builds no bench/{b}" for b in programs if b not in bench]
        check(f"{name}: its commands", not wrong, "\n".join(wrong))
    check("the documents have commands", parsed > 80, parsed)


with tempfile.TemporaryDirectory() as at:
    check_documents(at)
    check_plans(text_of(ROOT / "README.md"), at)
    # The check itself finds what is wrong.
    check("an unknown flag is found",
          refusal(["generate", "--model", "DIR", "--prompt", "p", "--ulises_degree", "2"], at))
    check("a wrong value is found", refusal(["plan", "--model", "DIR", "--world", "many"], at))
    check("and of commands that are only parsed",
          not refusal(["doctor", "--no_ranks"], at) and refusal(["doctor", "--ranks_no"], at))
sys.exit(done())

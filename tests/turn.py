#!/usr/bin/env python3
"""turn.py BUILD MINUTES [DAY] - as many of the slow tests as MINUTES allow, in turn.

Every day begins at another of DAYS places of the list, so that all tests run within as many days
where a day runs its share. DAY counts days; default today. Prints which tests ran and which did
not, and ends with one line "N passed, N failed, N skipped". Tests run in groups, and none is begun
that has no time left.
"""
import pathlib
import re
import subprocess
import sys
import time

DAYS, GROUP = 4, 8


def slow_tests(build):
    """Their names, in the order of meson."""
    run = subprocess.run(["meson", "test", "-C", build, "--list", "--suite", "slow"], text=True,
                         capture_output=True, check=True)
    return [line.rsplit(" / ", 1)[1] for line in run.stdout.splitlines() if " / " in line]


def main():
    build, minutes = sys.argv[1], float(sys.argv[2])
    day = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time() // 86400)
    end = time.monotonic() + 60 * minutes
    names = slow_tests(build)
    start = day % DAYS * len(names) // DAYS
    names = names[start:] + names[:start]
    run_sh = pathlib.Path(__file__).with_name("run.sh")
    counts, longest, ran = [0, 0, 0], 0.0, 0
    while ran < len(names) and time.monotonic() + longest < end:
        group = names[ran:ran + GROUP]
        began = time.monotonic()
        run = subprocess.run([run_sh, build, *group], text=True, stdout=subprocess.PIPE)
        print(run.stdout, flush=True)
        found = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", run.stdout, re.MULTILINE)
        counts = [a + int(b) for a, b in zip(counts, found.groups() if found else "010")]
        longest = max(longest, time.monotonic() - began)
        ran += len(group)
    print(f"{ran} of {len(names)} slow tests ran (day {day}, from {names[0]}):", *names[:ran])
    print("not run today:", *names[ran:] or ["none"])
    print("%d passed, %d failed, %d skipped" % tuple(counts))
    return counts[1] > 0


sys.exit(main())

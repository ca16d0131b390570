#!/usr/bin/env python3
"""clock.py XDIT ROOT - somebody sets the clock of the host while a server runs: deadlines, what is
kept and what runs are the same. Speaks TAP."""

import os
import shutil
import subprocess
import sys
import threading
import time

from harness import PROMPT, T, Server, end, report, wait_for

GEN = "/v1/images/generations"
FAST = {"prompt": PROMPT, "num_inference_steps": 1, "response_format": "url"}
DAY = 86400
# The date is moved by the seconds in the file $AHEAD.
AHEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))
        dlsym(RTLD_NEXT, "clock_gettime");
    int   rc = real(id, t);
    long  s = 0;
    FILE *f = id == CLOCK_REALTIME ? fopen(getenv("AHEAD"), "r") : NULL;
    if (f && fscanf(f, "%ld", &s) == 1)
        t->tv_sec += s;
    if (f)
        fclose(f);
    return rc;
}
time_t time(time_t *to)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to)
        *to = t.tv_sec;
    return t.tv_sec;
}
"""


def jump(days, env, ahead):
    ahead.write_text("0")
    folder = T / f"results{days}"
    folder.mkdir()
    with Server("--results", str(folder), env=env) as s:
        url = s.post(GEN, FAST).json["data"][0]["url"]
        path = url[url.index("/v1"):]
        replies = []
        t = threading.Thread(target=lambda: replies.append(s.post(GEN, {
            **FAST, "num_inference_steps": 40, "size": "256x256", "deadline": 600})))
        t.start()
        wait_for(lambda: s.metric("running") == 1)
        ahead.write_text(str(days * DAY))
        time.sleep(2.5)         # what is kept is looked through every second
        report(s.get(path).status == 200, f"{days} days: a result stays", s.get(path))
        r = s.post(GEN, {**FAST, "deadline": 60})
        report(r.status == 200 and abs(r.json["created"] - time.time() - days * DAY) < 60,
               "a new request has its deadline and the new date", r)
        t.join()
        report(replies[0].status == 200, "one that runs has its deadline", replies)
        r = s.post(GEN, {**FAST, "num_inference_steps": 999, "size": "512x512", "deadline": 1})
        report(r.status == 409 and "deadline" in r.error, "and a deadline that passes is named", r)
    with Server("--results", str(folder), env=env) as s:
        report(s.get(path).status == (404 if days > 0 else 200),
               "the next server goes by the date", s.get(path))


def main():
    so, ahead = T / "ahead.so", T / "ahead"
    (T / "ahead.c").write_text(AHEAD)
    if not shutil.which("cc") or os.environ.get("LD_PRELOAD") or subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(so), str(T / "ahead.c"), "-ldl"],
            check=False).returncode:
        print("1..0 # SKIP no cc, or LD_PRELOAD is taken")
        return
    for days in (400, -400):
        jump(days, {"LD_PRELOAD": str(so), "AHEAD": str(ahead)}, ahead)
    end()


if __name__ == "__main__":
    sys.exit(main())

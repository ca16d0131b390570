#!/usr/bin/env python3
"""hangs.py XDIT ROOT - workers that hang: stopped, in a loop without end, waiting for a disk that
is gone; and ranks that somebody ends. Deadlines, /health and the end of the server hold all the
same. Speaks TAP."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from harness import PROMPT, T, Server, end, report, wait_for

GEN = "/v1/images/generations"
FAST = {"prompt": PROMPT, "num_inference_steps": 1, "response_format": "url"}
LONG = {**FAST, "num_inference_steps": 1000, "size": "512x512"}
PAIR = ["--ulysses_degree", "2"]
# A file that is written hangs: with processor time, and without.
HANG = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int linkat(int at, const char *from, int there, const char *to, int flags)
{
    int (*real)(int, const char *, int, const char *, int) =
        (int (*)(int, const char *, int, const char *, int))dlsym(RTLD_NEXT, "linkat");
    char *way = getenv("HANG");
    volatile unsigned long n = 0;
    if (way && strstr(to, ".png") && access(getenv("HANG_ONCE"), F_OK) != 0)
        for (;;)
            if (*way == 'l')
                n++;
            else
                pause();
    return real(at, from, there, to, flags);
}
"""


def ask(s, fields, replies):
    def run():
        began = time.monotonic()
        try:
            r = s.post(GEN, fields)
        except http.client.RemoteDisconnected:
            return
        r.took = time.monotonic() - began
        replies.append(r)
    t = threading.Thread(target=run)
    t.start()
    return t


def begin(s, fields, replies):
    t = ask(s, fields, replies)
    wait_for(lambda: s.get("/sdapi/v1/progress").json["state"]["sampling_step"] >= 1)
    return t


def lives(pid):
    """Also one that nobody has asked how it ended has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def stopped(args, who):
    """`who`: of the worker's processes."""
    with Server("--worker_timeout", "6", *args) as s:
        before, replies = s.workers(), []
        threads = [begin(s, {**LONG, "deadline": 3}, replies)]
        os.kill(before[who], signal.SIGSTOP)
        threads.append(ask(s, {**FAST, "deadline": 2}, replies))
        silent = wait_for(lambda: s.get("/health").status == 503, 6)
        report(silent and s.get("/health").json["status"] == "silent", "health reports it",
               s.get("/health"))
        for t in threads:
            t.join()
        report(all(r.status == 409 and "deadline" in r.error and r.took < 20 for r in replies),
               "clients with deadlines are answered", replies, [r.took for r in replies])
        r = s.post(GEN, FAST)
        report(r.status == 200 and s.get("/health").status == 200, "the next worker serves", r)
        report(wait_for(lambda: not any(map(lives, before))), "the stopped one has gone",
               before, s.workers())
        replies.clear()
        t = begin(s, LONG, replies)
        os.kill(s.workers()[who], signal.SIGSTOP)
        t.join()
        report(replies[0].status == 500 and "no sign of life" in replies[0].error and
               replies[0].took < 20, "without a deadline it is killed, too", replies)
        s.post(GEN, FAST)
        os.kill(s.workers()[who], signal.SIGSTOP)
        report(wait_for(lambda: s.metric("worker_restarts_total") == 3, 20),
               "and where it has nothing to do", s.metric("worker_restarts_total"), s.said())


def for_a_moment(args):
    """A worker that goes on in time is left alone."""
    with Server(*args) as s:
        replies = []
        t = begin(s, {**FAST, "num_inference_steps": 30, "size": "256x256"}, replies)
        rank = s.workers()[-1]
        os.kill(rank, signal.SIGSTOP)
        time.sleep(3)
        os.kill(rank, signal.SIGCONT)
        t.join()
        report(replies[0].status == 200 and s.metric("worker_restarts_total") == 0,
               "stopped for 3 s: it goes on", replies)


def before_it_is_named():
    """A rank that is stopped between its connection and its first word holds up nobody, and is not
    sent away: it would take that for the server's end and cancel what the others compute."""
    with Server() as s:
        with open(f"/proc/{s.workers()[-1]}/cmdline", "rb") as f:
            words = f.read().split(b"\0")
        path = next(p for w, p in zip(words, words[1:]) if w == b"--connect")
        with socket.socket(socket.AF_UNIX) as rank:
            rank.connect(path)
            took = []
            until = time.monotonic() + 11
            while time.monotonic() < until:
                began = time.monotonic()
                r = s.post(GEN, FAST)
                took.append(time.monotonic() - began)
                time.sleep(0.5)
            report(r.status == 200 and max(took) < 8, "a rank without a name holds up nobody", took)
            rank.setblocking(False)
            try:
                report(rank.recv(1) != b"", "and it may still say who it is")
            except BlockingIOError:
                report(True, "and it may still say who it is")


def the_end(args, signals, most):
    s = Server(*args)
    replies = []
    t = begin(s, LONG, replies)
    ranks = s.workers()
    for p in ranks:
        os.kill(p, signal.SIGSTOP)
    began = time.monotonic()
    for sig in signals:
        s.process.send_signal(sig)
        time.sleep(0.5)
    rc = s.process.wait(100)
    took = time.monotonic() - began
    t.join()
    report(took < most and rc == (0 if len(signals) < 3 else 128 + signals[-1]),
           f"{len(signals)} signals end a server whose worker is stopped", took, rc, s.said())
    if len(signals) < 3:
        report(wait_for(lambda: not any(map(lives, ranks))), "and its ranks", ranks)
        report(replies[0].status in (409, 500, 503), "the client is told", replies)
    for p in ranks:
        if lives(p):
            os.kill(p, signal.SIGKILL)


def idle_end():
    s = Server()
    os.kill(s.workers()[0], signal.SIGSTOP)
    began = time.monotonic()
    report(s.stop() == 0 and time.monotonic() - began < 20, "one that is stopped and idle, too")


def in_library():
    so = T / "hang.so"
    (T / "hang.c").write_text(HANG)
    if not shutil.which("cc") or os.environ.get("LD_PRELOAD") or subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", str(so), str(T / "hang.c"), "-ldl"],
            check=False).returncode:
        print("# no cc, or LD_PRELOAD is taken: loops without end are not tried")
        return
    once = T / "once"
    env = {"LD_PRELOAD": str(so), "HANG_ONCE": str(once)}
    for way, how in (("loop", "did not end within"), ("disk", "no sign of life")):
        once.unlink(missing_ok=True)
        with Server("--worker_timeout", "4", env={**env, "HANG": way}) as s:
            replies = []
            t = begin(s, {**FAST, "deadline": 5}, replies)
            t.join()
            report(replies[0].status == 409 and "deadline" in replies[0].error and
                   replies[0].took < 25, f"{way}: the deadline holds", replies, replies[0].took)
            once.touch()
            r = s.post(GEN, FAST)
            report(r.status == 200 and how in s.said(), "the next worker serves", r, s.said())
    once.unlink()
    with Server("--worker_timeout", "4", env={**env, "HANG": "disk"}) as s:
        r = s.post(GEN, FAST)
        report(r.status == 500 and "no sign of life" in r.error,
               "waiting for a disk that is gone is noticed without a deadline", r)


def told_to_end(args, who):
    """SIGTERM to a rank is no cancel."""
    with Server(*args) as s:
        replies = []
        threads = [begin(s, LONG, replies)]
        time.sleep(0.3)
        threads.append(ask(s, FAST, replies))
        os.kill(s.workers()[who], signal.SIGTERM)
        for t in threads:
            t.join()
        codes = sorted(r.status for r in replies)
        report(codes in ([200, 500], [500, 500]) and
               all("worker" in r.error for r in replies if r.status == 500),
               "a rank that is told to end: what had begun fails, and is not cancelled", replies)
        report(s.post(GEN, FAST).status == 200 and s.metric('jobs_total{state="cancelled"}') == 0,
               "and the next one is served")


def main():
    stopped([], -1)
    stopped(PAIR, -1)
    for_a_moment([])
    for_a_moment(PAIR)
    before_it_is_named()
    the_end([], [signal.SIGTERM, signal.SIGTERM], 25)
    the_end(PAIR, [signal.SIGINT, signal.SIGTERM], 25)
    the_end([], [signal.SIGTERM] * 3, 10)
    idle_end()
    in_library()
    told_to_end([], -1)
    told_to_end(PAIR, -1)
    told_to_end(PAIR, 0)
    end()


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Is this a sound trace? Prints what is wrong with it, one line each; exit code 1 when something
is.

usage: trace_check.py TRACE RANKS STEPS SENT SECONDS [NAME...]

RANKS is how many must be there, STEPS how many each of them took, SENT the bytes that the run says
it sent ("-": not known), SECONDS the longest that the run can have taken. Every NAME, or one of
those that its slashes part (of lent memory and of messages), must be the name of a slice.
"""
import collections
import json
import sys

wrong = []


def check(ok, what):
    if not ok:
        wrong.append(what)


def nest(slices, where):
    """Slices of one thread lie inside or behind each other. In nanoseconds: exact."""
    stack = []
    for e in sorted(slices, key=lambda e: (ns(e["ts"]), -ns(e["dur"]))):
        begin, end = ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])
        while stack and stack[-1][1] <= begin:
            stack.pop()
        if stack and end > stack[-1][1]:
            check(False, f"{where}: {e['name']} ends after {stack[-1][0]}, in which it began")
            return
        stack.append((e["name"], end))


def ns(us):
    return round(us * 1000)


def phase(events, pid, name):
    return [e for e in events if e["pid"] == pid and e.get("cat") == "phase" and e["name"] == name]


def check_bytes(events, pids, sent):
    """Sent between the begin of the request and its end, when the ranks add them up."""
    total = 0
    for pid in pids:
        begin = min(e["ts"] for e in phase(events, pid, "prepare"))
        end = max(e["ts"] for e in phase(events, pid, "finish"))
        total += sum(e["args"].get("sent", 0) for e in events
                     if e["pid"] == pid and e.get("cat") == "message" and begin <= e["ts"] < end)
    check(total == sent, f"messages are {total} bytes, the run sent {sent}")


def check_device(slices, pid):
    """A device that works on its own: one slice an op, in the same order, none beside another."""
    device, ops, steps = ([e for e in slices if e["pid"] == pid and e["cat"] == cat]
                          for cat in ("device", "op", "step"))
    if not device:
        return
    check([e["name"] for e in device] == [e["name"] for e in ops],
          f"rank {pid} has {len(ops)} ops, and its device {len(device)} or others")
    for a, b in zip(device, device[1:]):
        check(ns(a["ts"]) + ns(a["dur"]) <= ns(b["ts"]), f"device of rank {pid}: {b['name']} "
              f"begins at {b['ts']}, before {a['name']} has ended")
    check(all(e["dur"] > 0 for e in device), f"rank {pid}: an op takes no time on the device")
    for s in steps:
        begin, end = s["ts"], s["ts"] + s["dur"]
        inside = [e for e in device if begin <= e["ts"] < end]
        check(inside and all(e["ts"] + e["dur"] <= end for e in inside),
              f"rank {pid}: {s['name']} has no ops on the device, or ends before them")
        check(sum(e["dur"] for e in inside) < s["dur"],
              f"rank {pid}: {s['name']} is shorter than its ops on the device")


def main():
    path, ranks, steps, sent, seconds, *names = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        trace = json.load(f)
    events = trace["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    pids = sorted({e["pid"] for e in slices})
    check(pids == list(range(int(ranks))), f"the ranks are {pids}")
    named = {e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    check(named >= set(pids), f"only the ranks {sorted(named)} have a name")
    check(trace["otherData"]["events_lost"] == 0, "events are lost")
    for pid in pids:
        n = sum(e["cat"] == "step" for e in slices if e["pid"] == pid)
        check(n == int(steps), f"rank {pid} has {n} steps")
        lacks = {"piece", "block", "op"} - {e["cat"] for e in slices if e["pid"] == pid}
        check(not lacks, f"rank {pid} has no {lacks}")
    threads = collections.defaultdict(list)
    for e in slices:
        threads[e["pid"], e["tid"]].append(e)
    for key, some in threads.items():
        nest(some, f"rank {key[0]}, thread {key[1]}")
    times = [e["ts"] for e in slices] + [e["ts"] + e["dur"] for e in slices]
    check(min(times) == 0, f"the first time is {min(times)}")
    check(all(e["dur"] >= 0 for e in slices), "a slice ends before it begins")
    check(max(times) <= float(seconds) * 1e6, f"{max(times) / 1e6} s are longer than the run")
    for pid in pids:
        check_device(slices, pid)
    arrows = collections.defaultdict(list)
    for e in events:
        if e["ph"] in "sf":
            arrows[e["id"]].append(e)
    bad = [a for a in arrows.values() if sorted(e["ph"] for e in a) != ["f", "s"]]
    check(not bad, f"{len(bad)} of {len(arrows)} arrows have not two ends")
    back = [a for a in arrows.values() if a not in bad and
            {e["ph"]: e["ts"] for e in a}["s"] > {e["ph"]: e["ts"] for e in a}["f"]]
    check(not back, f"{len(back)} messages arrive before they are sent")
    sends = sum(e["cat"] == "message" and e["name"].split()[1] == "send" for e in slices)
    takes = sum(e["cat"] == "message" and e["name"].split()[1] == "receive" for e in slices)
    check(sends == takes == len(arrows), f"{sends} sends, {takes} receives, {len(arrows)} arrows")
    if sent != "-":
        check_bytes(slices, pids, int(sent))
    have = {e["name"] for e in slices}
    for name in names:
        check(have & set(name.split("/")), f"nothing is called {name!r}")
    print(*wrong, f"{len(events)} events, {len(arrows)} arrows", sep="\n")
    return 1 if wrong else 0


sys.exit(main())

#!/usr/bin/env python3
"""interface.py XDIT ROOT - the document /openapi.json has exactly the routes of the server, and the
fields of requests that there are; what checks answers against it finds faults. Speaks TAP."""

import copy
import json
import re
import subprocess
import sys
import time

import openapi
from harness import PROMPT, ROOT, T, XDIT, Reply, Server, end, report, wait_for

GEN = "/v1/images/generations"


def routes():
    found = {}
    for file, name in (("server.c", "xd_server_routes[]"), ("api_comfy.c", "xd_comfy_routes[]")):
        source = (ROOT / "app" / "serve" / file).read_text(encoding="utf-8")
        table = source[source.index(name):]
        found.update({(m, p): public == "1" for m, p, public in re.findall(
            r'\{ "(\w+)", "([^"]+)", \w+, (\d) \}', table[:table.index("};")])})
    return found


def same_routes():
    own, told = routes(), {}
    for path, item in openapi.DOCUMENT["paths"].items():
        for method, op in item.items():
            told[method.upper(), re.sub(r"\{\w+\}", "*", path)] = op.get("security") == []
            named = set(re.findall(r"\{(\w+)\}", path))
            given = {p["name"] for p in op.get("parameters", ()) if p["in"] == "path"}
            if named != given or not op["summary"]:
                report(False, f"{method} {path}: its parameters", named, given)
    report(len(own) > 30 and set(own) == set(told), "the routes of the document are those of the "
           "server", set(own) ^ set(told))
    report(own == told, "and so is who needs no key", [k for k in own if own[k] != told.get(k)])


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            openapi.resolve(node)
        for v in node.values():
            references(v)
    elif isinstance(node, list):
        for v in node:
            references(v)


def same_but_options(served):
    """The server adds the options of its table to the file, and nothing else."""
    options = served["components"]["schemas"]["Options"]["properties"]
    fixed = openapi.DOCUMENT["components"]["schemas"]["Options"]["properties"]
    own = {k: v for k, v in options.items() if k in fixed}
    report(len(options) > 55 + len(own) and own == {k: v for k, v in fixed.items()
                                                    if k != "(options)"},
           "the options of the table are in the document", list(options))
    report(options["width"]["type"] == "integer" and options["width"]["minimum"] == 1 and
           options["eta"]["maximum"] == 1 and options["rng"]["enum"] == ["philox", "torch"] and
           "Numbers" in str(options["sigmas"]) and "Texts" in str(options["prompt_2"]) and
           options["clean_caption"]["type"] == "boolean" and "image" not in options,
           "with the types of their values", options)
    openapi.DOCUMENT["components"]["schemas"]["Options"]["properties"] = options
    report(served == openapi.DOCUMENT, "the rest is the file")


def same_fields(s):
    """Every field of the document is known to the server, and every flag of xdit generate that the
    server knows is in the document. Nothing is generated: the prompt is missing."""
    schemas = openapi.DOCUMENT["components"]["schemas"]
    told = set(schemas["Options"]["properties"])
    for name in ("ImageRequest", "EditRequest"):
        told |= set(schemas[name]["allOf"][-1]["properties"])
    text = subprocess.run([XDIT, "generate", "--help", "all"], capture_output=True, text=True,
                          check=True).stdout
    flags = set(re.findall(r"--(\w+)", text))
    report(len(told) > 40 and len(flags) > 60, "fields and flags", len(told), len(flags))
    strange = []
    for name in sorted((told | flags) - {"prompt"}):
        r = s.post(GEN, {name: "1"})
        known = r.status >= 400 and "there is no field" not in r.error
        if known != (name in told):
            strange.append((name, r.error))
    report(not strange, "the fields of the document are those of requests", strange)


class Made(Reply):
    def __init__(self, status, kind, body):     # pylint: disable=super-init-not-called
        self.status, self.headers, self.body = status, {"Content-Type": kind}, body


def faults_are_found(s):
    good = s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 1})

    def found(change, text, status=200, kind="application/json", method="POST", path=GEN):
        j = copy.deepcopy(good.json)
        change(j)
        said = list(openapi.complaints(method, path, Made(status, kind, json.dumps(j).encode())))
        report(any(text in x for x in said), f"found: {text}", said)

    report(not list(openapi.complaints("POST", GEN, good)), "an answer as the document says")
    found(lambda j: j.pop("usage"), "lacks usage")
    found(lambda j: j["usage"].update(total_tokens="86"), "usage.total_tokens is '86'")
    found(lambda j: j["usage"].update(total_tokens=True), "usage.total_tokens is 'True'")
    found(lambda j: j.update(extra=1), "extra is not in the document")
    found(lambda j: j["data"][0].update(seed=0.5), "data[0].seed is '0.5'")
    found(lambda j: j.update(background="auto"), "not one of ['opaque']")
    found(lambda j: j, "lacks error", status=400)
    found(lambda j: j, "204 is not", status=204)
    found(lambda j: j, "'text/html' is not", kind="text/html")
    found(lambda j: j, "no GET /nothing", method="GET", path="/nothing")
    event = json.dumps({"type": "image_generation.completed"})
    said = list(openapi.complaints("POST", GEN, Made(
        200, "text/event-stream", f"event: x\ndata: {event}\n\n".encode())))
    report(len(said) == 2, "found: an event without an image, of another name", said)


NAME = re.compile(r"xdit_[a-z_]+")
SAMPLE = re.compile(r'(xdit_[a-z_]+)(\{[a-z_]+="[^"\\\n]*"(?:,[a-z_]+="[^"\\\n]*")*\})? (\S+)')
PARTS = ("_bucket", "_sum", "_count")       # of a histogram


def told_of(about, name):
    """What is said about a sample's metric: a histogram has three kinds of samples."""
    for part in PARTS:
        if name.endswith(part) and about.get(name[:-len(part)], ("", ""))[1:] == ["histogram"]:
            return about[name[:-len(part)]]
    return about.get(name, ())


def histograms(found, about):
    """{name and labels: (its buckets, its count)}; buckets grow up to the count."""
    wrong = []
    for name in (n for n, a in about.items() if a[1:] == ["histogram"]):
        series = {k[len(name) + 7:].split(',le="')[0] for k in found if k.startswith(name + "_bu")}
        for labels in series:
            ends = [(float(k.split('le="')[1][:-2]), v) for k, v in found.items()
                    if k.startswith(f"{name}_bucket{labels},")]
            counts = [v for _, v in ends]
            if [e for e, _ in ends] != sorted(e for e, _ in ends) or counts != sorted(counts) or \
                    ends[-1] != (float("inf"), found.get(f"{name}_count{labels}}}")) or \
                    f"{name}_sum{labels}}}" not in found:
                wrong.append((name, labels, ends))
        wrong += [] if series else [name]
    return wrong


def samples(text):
    """{name and labels: value} of Prometheus' text format; every fault of it is reported."""
    about, found, wrong = {}, {}, []
    for line in text.split("\n")[:-1]:
        words = line.split(" ", 3)
        if words[0] == "#":
            fresh = words[2] not in about or (words[1] == "TYPE" and len(about[words[2]]) == 1)
            about.setdefault(words[2], []).append(words[3])
            if not fresh or words[1] != ("HELP", "TYPE")[len(about[words[2]]) - 1] or (
                    words[1] == "HELP" and not words[3].endswith(".")):
                wrong.append(line)
            continue
        m = SAMPLE.fullmatch(line)
        if not m or len(told_of(about, m[1])) != 2 or m[1] + (m[2] or "") in found:
            wrong.append(line)
        else:
            found[m[1] + (m[2] or "")] = float(m[3])
    for name, (_, kind) in about.items():
        if not NAME.fullmatch(name) or (kind == "counter") != name.endswith("_total") or \
                kind not in ("counter", "gauge", "histogram") or not any(
                    told_of(about, k.split("{")[0]) is about[name] for k in found):
            wrong.append(name)
    wrong += histograms(found, about)
    report(text.endswith("\n") and not wrong, "metrics in Prometheus' text format", wrong)
    return found


def metrics(s):
    r = s.get("/metrics")
    first = samples(r.body.decode())
    report(r.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8", "their type", r)
    s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 2})
    s.get("/nothing")
    second = samples(s.get("/metrics").body.decode())

    def grew(name):
        return second[name] - first[name]

    report(set(first) == set(second) and all(
        grew(k) >= 0 for k in first if k.split("{")[0].endswith("_total")), "counters only grow")
    parts = sum(grew(f'xdit_seconds_total{{part="{p}"}}') for p in ("text", "load", "denoise",
                                                                  "decode"))
    report(grew('xdit_jobs_total{state="done"}') == 1 and
           grew('xdit_http_requests_total{status="4xx"}') == 1 and
           0 < grew('xdit_seconds_total{part="denoise"}') < parts <=
           grew("xdit_request_seconds_total") * 1.01, "by a request and its parts", second)
    report(second["xdit_worker_ready"] == second["xdit_ranks"] == 1 and
           second["xdit_models_open"] == 1 and
           second["xdit_queue_length"] == second["xdit_running"] == 0 and
           second["xdit_resident_bytes"] > 1e6 and second["xdit_queue_limit"] > 0 and
           abs(second["xdit_start_time_seconds"] - time.time()) < 600, "and what there is", second)
    here = '{model="demo-pixart",kind="image"}'
    speed = grew("xdit_steps_per_second_sum" + here)
    report(all(grew(f"xdit_{n}_count{here}") == 1 for n in (
        "request_duration_seconds", "request_queue_seconds", "steps_per_second")) and
        grew("xdit_request_queue_seconds_sum" + here) <=
        grew("xdit_request_duration_seconds_sum" + here) < 120 and
        abs(speed * grew('xdit_seconds_total{part="denoise"}') - 2) < 0.01,
        "its duration, its wait and its 2 steps in histograms", second)
    health = s.get("/health").json
    report(f'xdit_build_info{{version="{health["version"]}"}}' in second and
           health["queued"] == 0 and health["status"] == "ok", "the version of /health", health)


LINE = re.compile(r'(\S+) - (\S+) \[\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] '
                  r'"(\w+) (\S+) (HTTP/1.[01])" (\d{3}) (\d+) (\d+\.\d{3}) (\S+)')


def access_log():
    """A line for every request; a client writes none of its own."""
    log, old = T / "access", T / "access.1"

    def lines(path, n):
        wait_for(lambda: path.exists() and path.read_text().count("\n") >= n)
        return [LINE.fullmatch(x) for x in path.read_text().splitlines()]
    with Server("--access_log", str(log), "--api_key", "secret") as s:
        key = {"Authorization": "Bearer secret"}
        r = s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 1}, key)
        s.get("/v1/models")
        s.get("/a%0d%0a%22b", **key)
        s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 1, "stream": True}, key)
        got = lines(log, 4)
        report(len(got) == 4 and all(got), "lines in the common log format", log.read_text())
        by = {m[6]: m.groups() for m in got}            # lines come when replies have gone
        second, third = by.get("401"), by.get("404")
        first, last = (m.groups() for m in got if m[6] == "200")
        report(first[2:5] == ("POST", GEN, "HTTP/1.1") and first[5] == "200" and
               first[0] == "127.0.0.1" and int(first[6]) == len(r.body) and
               0 < float(first[7]) < 60 and first[8] == r.json["id"] and
               first[1] not in ("-", "secret"), "an image, its bytes, seconds and task", first)
        report(second[1] == "-" and second[5] == "401" and second[8] == "-", "a refusal", second)
        report(third[3] == "/a\\x0d\\x0a\\x22b" and third[5] == "404", "a path that would be more",
               third)
        report(int(last[6]) > 1000 and last[8].startswith("image_"), "a stream", last)
        log.rename(old)
        s.get("/health")
        report(lines(log, 1)[0][4] == "/health" and len(lines(old, 4)) == 4,
               "a file that is moved away is begun anew")
    with Server("--access_log", "-") as s:
        s.get("/health")
        line = s.process.stdout.readline().decode()
        report(LINE.fullmatch(line[:-1]) and "/health" in line, "standard output", line)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with Server("--access_log", "-", "--log_format", "json") as s:
        for given in ({"X-Request-Id": "a.b:1-2", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"},
                      {"X-Request-Id": 'a"b', "traceparent": "00-12-13-01"}, {}):
            r = s.get("/a%0d%22b" if not given else "/health", **given)
            line = json.loads(s.process.stdout.readline())
            own = given.get("X-Request-Id") == "a.b:1-2"
            report(line["request_id"] == r.headers["X-Request-Id"] and
                   (line["request_id"] == "a.b:1-2") == own and len(line["request_id"]) in (7, 32)
                   and line.get("trace_id") == (trace if own else None) and
                   line["status"] == r.status and line["client"] == "127.0.0.1" and
                   line["bytes"] == len(r.body) and line["path"] in ("/health", '/a\r"b'),
                   "a line of JSON with the ids", line, given)
    with Server("--access_log", str(T / "no" / "where"), start=False) as s:
        report(s.process.wait(60) == 1 and "--access_log" in s.said(), "no file", s.said())


def main():
    same_routes()
    references(openapi.DOCUMENT)
    with Server() as s:
        r = s.get("/openapi.json")
        report(r.status == 200 and r.headers["Content-Type"] == "application/json" and
               r.json["openapi"].startswith("3.1"), "is served", r)
        same_but_options(r.json)
        same_fields(s)
        faults_are_found(s)
        metrics(s)
    access_log()
    end()


if __name__ == "__main__":
    sys.exit(main())

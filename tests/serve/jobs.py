#!/usr/bin/env python3
"""jobs.py XDIT ROOT - requests that go on without their client: how far they are, their previews,
their results, cancelling and forgetting them, the list of a key. Speaks TAP."""

import sys

from harness import PROMPT, Server, end, generate, report, wait_for

GEN, EDIT, JOBS = "/v1/images/generations", "/v1/images/edits", "/v1/jobs"
LONG = {"prompt": "long", "num_inference_steps": 1000, "width": 256, "height": 256,
        "wait": False, "previews": 100}


def at(r, s):
    return s.get(f"{JOBS}/{r.json['id']}").json


def made(s):
    """A job of two images ends as the request that waits."""
    mine = generate("--prompt", PROMPT, "--num_inference_steps", "3", "--seed", "7")
    r = s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 3, "seed": 7, "n": 2, "wait": False})
    report(r.status == 202 and r.json["object"] == "job" and r.json["kind"] == "image" and
           r.json["status"] in ("queued", "in_progress") and r.json["results"] == [], "begun", r)
    report(wait_for(lambda: at(r, s)["status"] == "completed", 60), "ends", at(r, s))
    j = at(r, s)
    report(j["progress"] == 100 and j["images"] == 2 and j["elapsed_seconds"] > 0 and
           [v["seed"] for v in j["results"]] == [7, 8] and
           all((v["width"], v["height"], v["type"]) == (128, 128, "image/png") and
               v["parameters"]["prompt"] == PROMPT for v in j["results"]), "with its results", j)
    files = [s.get(v["url"]) for v in j["results"]]
    report(files[0].body == mine and files[1].body != mine and files[1].body[:4] == b"\x89PNG",
           "which are the files of the command line")
    report(s.get(j["results"][0]["url"] + "&variant=thumbnail").body == mine,
           "an image is its own thumbnail")
    for path in ("?index=2", "?index=-1", "?variant=preview"):
        report(s.get(f"{JOBS}/{j['id']}/content{path}").status == 404, f"404: {path}")
    r = s.form(EDIT, [("prompt", PROMPT), ("num_inference_steps", "2"), ("wait", "false"),
                      ("image", "a.png", mine)])
    report(r.status == 202 and wait_for(lambda: at(r, s)["status"] == "completed", 60),
           "an edit", r)
    return j


def runs(s):
    """The long one shows how far it is; the short one waits behind it, or passes it."""
    r = s.post(GEN, LONG)
    report(wait_for(lambda: at(r, s)["step"] > 20 and at(r, s)["previews"] > 0, 60), "runs")
    j = at(r, s)
    report(j["status"] == "in_progress" and j["stage"] == "denoise" and j["steps"] == 1000 and
           0 < j["progress"] < 95 and j["image"] == 1, "how far it is", j)
    p = s.get(f"{JOBS}/{j['id']}/content?variant=preview")
    report(p.status == 200 and p.headers["Content-Type"] == "image/png", "its preview", p)
    second = s.post(GEN, {**LONG, "num_inference_steps": 999})
    report(at(second, s)["queue_position"] == 1, "another one waits", at(second, s))
    for which in (second, r):
        c = s.post(f"{JOBS}/{which.json['id']}/cancel", {})
        report(c.status == 200 and wait_for(lambda w=which: at(w, s)["status"] == "cancelled", 30)
               and at(which, s)["error"]["code"] == 409, "cancelled", at(which, s))
    d = s.request("DELETE", f"{JOBS}/{r.json['id']}")
    report(d.status == 200 and d.json["deleted"] and
           s.get(f"{JOBS}/{r.json['id']}").status == 404, "forgotten", d)
    r = s.post(GEN, LONG)
    wait_for(lambda: at(r, s)["step"] > 0, 60)
    report(s.request("DELETE", f"{JOBS}/{r.json['id']}").status == 200 and
           s.metric("running") == 0, "one that runs is cancelled before")


def listed(s, first):
    failed = s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 2, "width": 100,
                          "wait": False})
    if failed.status == 202:
        wait_for(lambda: at(failed, s)["status"] == "failed", 30)
        report("multiple of 16" in at(failed, s)["error"]["message"] and
               at(failed, s)["error"]["code"] == 400, "a failure has its sentence", at(failed, s))
    else:
        report(failed.status == 400 and "multiple of 16" in failed.error, "refused", failed)
    r = s.get(JOBS).json
    ids = [j["id"] for j in r["data"]]
    times = [j["created_at"] for j in r["data"]]
    report(times == sorted(times, reverse=True) and ids[-1] == first["id"] and
           not r["has_more"], "the newest first", times)
    page = s.get(f"{JOBS}?limit=2").json
    rest = s.get(f"{JOBS}?limit=100&after={page['data'][1]['id']}").json
    report(page["has_more"] and [j["id"] for j in page["data"] + rest["data"]] == ids,
           "by pages")
    report(s.get(f"{JOBS}?after=none").json["data"] == [], "after one that is gone")


def odd(s):
    for path in ("/nope", "/nope/content"):
        report(s.get(JOBS + path).status == 404, f"404: {path}")
    report(s.post(JOBS + "/nope/cancel", {}).status == 404, "404: cancel")
    r = s.post(GEN, {"prompt": PROMPT, "wait": "perhaps"})
    report(r.status == 400 and r.json["error"]["param"] == "wait", "wait is true or false", r)


def keys():
    """Jobs are those of the key that asked for them; their files need none."""
    one, other = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}
    with Server("--api_key", "one", "--api_key", "two") as s:
        r = s.post(GEN, {"prompt": PROMPT, "num_inference_steps": 1, "wait": False}, one)
        path = f"{JOBS}/{r.json['id']}"
        wait_for(lambda: s.get(path, **one).json["status"] == "completed", 60)
        report(s.get(path).status == 401 and s.get(path, **other).status == 404 and
               s.request("DELETE", path, headers=other).status == 404 and
               s.get(JOBS, **other).json["data"] == [] and
               len(s.get(JOBS, **one).json["data"]) == 1, "another key sees nothing of them")
        report(s.get(path + "/content").status == 200, "who knows the address has the file")


def main():
    with Server() as s:
        odd(s)
        first = made(s)
        runs(s)
        listed(s, first)
    keys()
    end()


if __name__ == "__main__":
    sys.exit(main())

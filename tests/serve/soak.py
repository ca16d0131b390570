#!/usr/bin/env python3
"""soak.py XDIT ROOT FILL - many clients of all kinds at once (soak_clients.py), in two halves; the
server must be after the second what it was after the first. FILL makes the models. Speaks TAP.

Environment: SOAK_REQUESTS (200), SOAK_CLIENTS (8), SOAK_SEED (0), SOAK_RSS (percent by which the
resident memory of the second half may differ; default: not checked, it takes thousands of requests
to settle). A server of two ranks gets a fifteenth of the requests, and its ranks are killed
meanwhile. A build with AddressSanitizer tells of itself by what it writes."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

from harness import ROOT, T, Server, end, image_of, report, wait_for
from soak_clients import FAST, GEN, WEIGHTS, Client, Ledger

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "200"))
CLIENTS = int(os.environ.get("SOAK_CLIENTS", "8"))
SEED = int(os.environ.get("SOAK_SEED", "0"))
RSS = os.environ.get("SOAK_RSS")
KEEP = 3
ARGS = ["--dtype", "f32", "--keep", str(KEEP), "--max_body", "300000", "--request_timeout", "5",
        "--queue", "16", "--connections", "64"]


class Soak:
    def __init__(self, server, seed):
        self.s, self.seed, self.failures, self.ledger = server, seed, [], Ledger()
        self.counts, self.lock = Ledger(), threading.Lock()
        self.references = [image_of(server.post(GEN, {**FAST, "seed": i})) for i in range(3)]
        self.before = self.jobs()

    def jobs(self):
        return {k: int(self.s.metric(f'jobs_total{{state="{k}"}}'))
                for k in ("done", "failed", "cancelled", "refused")}

    def run_client(self, number, requests):
        r = random.Random(f"{self.seed} {number}")
        client = Client(self.s, r, self.references, Ledger())
        for _ in range(requests):
            name = r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            try:
                getattr(client, name)()
            except Exception:   # what breaks one client is told, and the others go on
                self.failures.append(f"{name}: {traceback.format_exc()[-1500:]}")
            with self.lock:
                self.counts[name] += 1
        with self.lock:
            self.ledger.update(client.ledger)

    def run(self, requests, half):
        threads = [threading.Thread(target=self.run_client,
                                    args=(f"{half} {i}", requests // CLIENTS))
                   for i in range(CLIENTS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def check(self, what, kills=0):
        """Every task has ended, and the counts are those of the clients."""
        idle = wait_for(lambda: self.s.metric("running") == self.s.metric("queue_length") == 0, 60)
        report(idle, f"{what}: all that was begun has ended")
        report(not self.failures, f"{what}: {sum(self.counts.values())} requests as they should be",
               len(self.failures), *{f.split(":")[0]: f for f in self.failures}.values())
        now, seen = self.jobs(), self.ledger
        made = {k: now[k] - self.before[k] for k in now}
        low = all(made[k] >= seen[k] for k in ("done", "cancelled", "failed", "refused"))
        high = sum(made.values()) <= sum(seen.values())
        report(low and high and (kills or not seen["failed"]),
               f"{what}: {sum(made.values())} tasks, {seen['cut']} requests without an end: "
               "counts of both sides agree", made, dict(seen), *Ledger.sentences)
        said = self.s.said()
        report(not any(w in said for w in ("Sanitizer", "runtime error")), f"{what}: no complaint",
               said[-2000:])

    def settle(self):
        """Descriptors, files and memory (KiB) when results have expired and connections ended."""
        folder = self.s.folder
        wait_for(lambda: os.listdir(folder) == ["worker"], KEEP + 20)
        pid = self.s.process.pid
        fds = [0]
        wait_for(lambda: fds.append(len(os.listdir(f"/proc/{pid}/fd"))) or
                 (len(fds) > 20 and fds[-1] == min(fds[1:])), 3)
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        rss = int(status[status.index("VmRSS:") + 6:].split()[0])
        return fds[-1], os.listdir(folder), rss


def start(*args):
    os.environ["TMPDIR"] = str(T / "tmp")
    (T / "tmp").mkdir(exist_ok=True)
    s = Server("--model", str(T / "cog2b"), *ARGS, *args, model=str(T / "sd3"))
    s.folder = next((T / "tmp").glob("xdit-server-*"))
    return s


def one_rank():
    began = time.monotonic()
    with start() as s:
        soak = Soak(s, SEED)
        soak.run(REQUESTS // 10, "first")       # pools of threads and of memory are filled
        states = [soak.settle()]
        for half in ("1", "2"):
            soak.run(REQUESTS // 2, half)
            states.append(soak.settle())
        soak.check("one rank")
        (first, _, _), (fds, files, rss), (fds2, files2, rss2) = states
        report(first == fds == fds2, f"descriptors: {first}, {fds}, {fds2}")
        report(files == files2 == ["worker"], "no file is left", files, files2)
        print(f"# {REQUESTS} requests in {time.monotonic() - began:.0f} s: {dict(soak.counts)}")
        print(f"# {dict(soak.ledger)}, resident {rss} KiB, then {rss2} KiB "
              f"({100 * rss2 / rss - 100:+.2f} %)", flush=True)
        if RSS:
            report(abs(rss2 / rss - 1) <= float(RSS) / 100, f"memory: within {RSS} %", rss, rss2)
        report(s.stop() == 0, "it ends", s.said()[-2000:])
        report("Sanitizer" not in s.said(), "nothing is left in memory", s.said()[-3000:])


def two_ranks():
    """Ranks are killed while they work; some requests fail with a sentence, none is lost."""
    with start("--ulysses_degree", "2") as s:
        soak = Soak(s, SEED + 1)
        kills, over = [], threading.Event()

        def kill():
            r = random.Random(SEED)
            while not over.wait(1 + 2 * r.random() if kills else 0.1):
                workers = s.workers()
                if workers and s.get("/health").status == 200:
                    kills.append(r.choice(workers))
                    os.kill(kills[-1], signal.SIGKILL)
        killer = threading.Thread(target=kill)
        killer.start()
        soak.run(max(REQUESTS // 15, 6 * CLIENTS), "ranks")
        over.set()
        killer.join()
        soak.check(f"two ranks, {len(kills)} of them killed", kills=1)
        report(len(kills) > 0 and s.metric("worker_restarts_total") > 0, "some were killed")
        report(wait_for(lambda: s.post(GEN, FAST).status == 200, 30), "and it serves")
        _, files, _ = soak.settle()
        report(files == ["worker"], "no file is left", files)
        print(f"# {dict(soak.ledger)}, {len(kills)} ranks killed")
        report(s.stop() == 0, "it ends", s.said()[-2000:])


def main():
    options = os.environ.get("ASAN_OPTIONS", "")
    os.environ["ASAN_OPTIONS"] = f"quarantine_size_mb=8:{options}"
    for name in ("sd3", "cog2b"):
        subprocess.run([sys.argv[3], str(ROOT / "tests" / "golden" / name), str(T / name)],
                       check=True, stdout=subprocess.DEVNULL)
    one_rank()
    os.environ["ASAN_OPTIONS"] = f"detect_leaks=0:{options}"    # of MPI's
    two_ranks()
    end()


if __name__ == "__main__":
    sys.exit(main())

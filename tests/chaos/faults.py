"""faults.py - the faults of chaos.py: each starts a run, hurts it, and returns what is wrong with
the end, None or SKIP."""
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from hosts import Hosts, address
from ranks import Run, end_all, marked, send

SKIP = "skip"
DEATHS = [signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS]
OTHERS = ["u2", "r2", "u3", "tp2"]      # plans of a run that continues


class Task:
    """What a fault needs: the drawn numbers, the plan, the folders, and the runs it has begun."""

    def __init__(self, chaos, r, where, model, plan, whole, at, seconds):
        self.chaos, self.r, self.where, self.model, self.plan = chaos, r, where, model, plan
        self.whole, self.at, self.seconds = whole, at, seconds
        self.out = where / "out"
        self.out.mkdir()
        self.image = self.out / "x.ppm"
        self.saved = where / "saved"
        self.usual = chaos.seconds[model, plan]
        self.runs, self.mounts, self.note = [], [], ""

    def start(self, *more, prefix=(), env=(), saved=True):
        keep = ["--checkpoint", self.saved] if saved else []
        run = Run(self.chaos.command(self.model, "-q", "--plan", self.plan, "-o", self.image,
                                     *keep, *more), self.where, prefix, env)
        self.runs.append(run)
        return run

    def resume(self, *more):
        run = Run([self.chaos.xdit, "generate", "-q", "--resume", self.saved, *more], self.where)
        self.runs.append(run)
        return run

    def tmpfs(self, name, size):
        """A small file system, or None."""
        path = self.where / name
        path.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", path],
                              capture_output=True, check=False)
        if done.returncode:
            return None
        self.mounts.append(path)
        return path

    def end(self, run, success=False, longer=0):
        """Waits for the end of a run and judges it; `success`: it has to succeed."""
        if not run.finish(2 * self.usual + self.seconds + longer):
            states = [(p, pathlib.Path(f"/proc/{p}/wchan").read_text()) for p in marked(run.mark)]
            end_all(run.mark)
            run.process.wait()
            return f"no end after {run.seconds:.1f} s: {states} {run.said()[-300:]}"
        why = self.chaos.judge(run, self.image, self.whole, self.plan)
        if not why and success and run.code:
            why = f"code {run.code}: {run.said()[-400:]}"
        return f"{why}: {run.said()[-300:]}" if why else None

    def leftovers(self):
        """What still exists of the runs, or None. Processes and folders have some seconds."""
        left = None
        for _ in range(150):
            left = [f"process {p}" for r in self.runs for p in marked(r.mark)]
            left += [x for r in self.runs for x in r.rooms if os.path.exists(x)]
            left += [str(x) for r in self.runs for x in r.tmp.iterdir()]
            if not left:
                break
            time.sleep(0.1)
        left += [str(x) for x in self.out.iterdir() if x != self.image]
        if self.saved.exists():
            if not self.runs[-1].code:
                left.append(str(self.saved))
            left += [str(x) for x in self.saved.iterdir() if ".tmp" in x.name and
                     not self.runs[-1].killed]
        return f"left: {left[:5]}" if left else None

    def close(self):
        for run in self.runs:
            end_all(run.mark)
        for path in self.mounts:
            subprocess.run(["umount", path], check=False)


def continued(t, plan=None):
    """Runs --resume, where there is something to resume, until the image is right."""
    if not (t.saved / "options.json").exists():
        t.note += ", before there was a checkpoint" if not t.image.exists() else ", at the end"
        shutil.rmtree(t.saved, ignore_errors=True)
        return None
    run = t.resume(*(["--plan", plan] if plan else []))
    run.replanned = bool(plan) and "pp" in t.plan
    why = t.end(run)
    if run.code and not t.saved.exists() and t.image.exists():  # the killed command's ranks
        t.note += ", at the end"                                # have finished meanwhile
        run.code = 0
        return t.chaos.judge(run, t.image, t.whole, t.plan)
    return why or (f"code {run.code}: {run.said()[-400:]}" if run.code else None)


def kill_rank(t):
    run = t.start()
    sig = t.r.choice(DEATHS)
    t.note = f", {sig.name}"
    if run.wait_until(t.at) and run.ranks():
        send(t.r.choice(run.ranks()), sig)
    why = t.end(run, success=sig == signal.SIGKILL)
    if not why and run.code:
        why = continued(t)
    return why


def kill_plain(t):
    run = t.start(saved=False)
    if run.wait_until(t.at) and run.ranks():
        send(t.r.choice(run.ranks()), t.r.choice(DEATHS))
    return t.end(run)


def kill_twice(t):
    """With a spare rank, the second restart has as many ranks as the first."""
    spare = t.r.random() < 0.5
    t.note = ", with a spare rank" if spare else ""
    run = t.start("--max_restarts", "2", *(["--spare", "1"] if spare else []))
    for moment in (t.at, t.at + t.usual * t.r.uniform(0.3, 1.5)):
        if run.wait_until(moment) and run.ranks():
            send(t.r.choice(run.ranks()), signal.SIGKILL)
    run.replanned = not spare or "pp" in t.plan
    why = t.end(run, success=True, longer=2 * t.usual)
    ranks = re.findall(r"starting (\d+) rank", run.said())
    if not why and len(ranks) == 2 and (ranks[0] == ranks[1]) != spare:
        why = f"{ranks[1]} ranks after {ranks[0]}"
    return why


def pause_rank(t):
    run = t.start()
    seconds = t.r.uniform(0.2, 4)
    t.note = f", for {seconds:.1f} s"
    if run.wait_until(t.at) and run.ranks():
        rank = t.r.choice(run.ranks())
        send(rank, signal.SIGSTOP)
        time.sleep(seconds)
        send(rank, signal.SIGCONT)
    return t.end(run, success=True, longer=seconds)


def stop_rank(t):
    """A rank that stands still counts as killed: another run takes its place."""
    run = t.start("--rank_timeout", "2")
    if run.wait_until(t.at) and run.ranks():
        send(t.r.choice(run.ranks()), signal.SIGSTOP)
    run.replanned = "pp" in t.plan
    return t.end(run, success=True, longer=4)


def limit_memory(t):
    """A control group has less memory than the ranks need: the image by a plan that needs less, or
    one sentence."""
    home = os.environ.get("CHAOS_CGROUP")
    if not home:
        return SKIP
    group = pathlib.Path(home) / f"xdit-chaos-{os.getpid()}"
    group.mkdir()
    name = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
    (group / name).write_text(str(t.r.randrange(40, 400) << 20))
    try:
        run = t.start(prefix=["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)])
        why = t.end(run, longer=t.usual)
        return why or (continued(t) if run.code else None)
    finally:
        end_all(run.mark)
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def kill_launcher(t):
    run = t.start()
    if run.wait_until(t.at) and run.launcher():
        send(run.launcher(), signal.SIGKILL)
    return t.end(run) or (continued(t) if run.code else None)


def kill_program(t):
    run = t.start()
    if run.wait_until(t.at):
        send(run.program(), signal.SIGKILL)
        run.killed = True
    return t.end(run) or (continued(t) if run.code else None)


def power(t):
    """All processes end at once; the image continues by another plan."""
    run = t.start()
    if run.wait_until(t.at):
        run.killed = True
        end_all(run.mark)
        for room in run.rooms:      # shared memory does not survive a loss of power, either
            shutil.rmtree(room, ignore_errors=True)
        shutil.rmtree(run.tmp)
        run.tmp.mkdir()
    plan = t.r.choice(OTHERS)
    t.note = f", then {plan}"
    return t.end(run) or (continued(t, plan) if run.code else None)


def cancel(t):
    run = t.start()
    sig = t.r.choice([signal.SIGINT, signal.SIGTERM])
    if run.wait_until(t.at):
        send(run.program(), sig)
    why = t.end(run)
    if not why and run.code not in (0, 128 + sig, -sig):
        why = f"code {run.code} after {sig.name}: {run.said()[-200:]}"
    run.killed |= run.code < 0
    return why or (continued(t) if run.code else None)


def full_disk(t):
    """There is no space for checkpoints: a warning, and the image goes on."""
    if not t.tmpfs("saved", "16k"):
        return SKIP
    run = t.start()
    why = t.end(run, success=True)
    if not why and "no checkpoint after step" not in run.said():
        why = "no warning of the full disk"
    left = [x.name for x in t.saved.iterdir()]
    why = why or (f"left: {left}" if left else None)
    subprocess.run(["umount", t.mounts.pop()], check=False)
    t.saved.rmdir()
    return why


def full_output(t):
    """There is no space for the image: one sentence, which names the file."""
    if not t.tmpfs("out", "4k"):
        return SKIP
    run = t.start()
    why = t.end(run)
    if not why and (run.code != 1 or "x.ppm" not in run.said()):
        why = f"code {run.code}: {run.said()[-200:]}"
    subprocess.run(["umount", t.mounts.pop()], check=False)
    return why or continued(t)


def cut_link(t):
    """Ranks that exchange messages by TCP lose their network for a while."""
    run = t.start(prefix=["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"],
                  env={"OMPI_MCA_btl": "self,tcp"}.items())
    seconds = t.r.uniform(0.2, 3)
    t.note = f", for {seconds:.1f} s"
    if run.wait_until(t.at):
        inside = ["nsenter", "-t", str(run.program()), "-n", "ip", "link", "set", "lo"]
        if subprocess.run([*inside, "down"], capture_output=True, check=False).returncode:
            t.end(run)
            return SKIP if run.code else None
        time.sleep(seconds)
        subprocess.run([*inside, "up"], capture_output=True, check=False)
    elif "unshare" in run.said():
        t.end(run)
        return SKIP
    return t.end(run, longer=seconds + 5)


def lose_host(t):
    """The link of one of two hosts is cut, and its processes may end: the other one goes on."""
    hosts = Hosts(t.where)
    try:
        if not hosts.ready:
            return SKIP
        n = math.prod(int(x) for x in re.findall(r"\d+", t.plan))
        run = t.start("--nproc", str(n), "--hosts",
                      f"{address('one')}:{n - n // 2},{address('two')}:{n // 2}",
                      prefix=[str(hosts.on), "zero"], env=hosts.env().items())
        lost, ends = t.r.choice(["one", "two"]), t.r.random() < 0.5
        t.note = f", host {lost}{' with its processes' if ends else ''}"
        at = t.at + t.usual         # logins take longer than the start on one host
        if run.wait_until(at):
            hosts.cut(lost)
            if ends:
                hosts.end(lost)
        run.replanned = True
        why = t.end(run, longer=60 + 3 * t.usual)
        hosts.end(lost)
        return why or (continued(t, t.plan) if run.code else None)
    finally:
        hosts.close()
        for run in t.runs:      # folders of Open MPI's processes that were killed
            for path in run.tmp.glob("ompi.*"):
                shutil.rmtree(path, ignore_errors=True)


FAULTS = {f.__name__: f for f in (kill_rank, kill_plain, kill_twice, pause_rank, stop_rank,
                                  limit_memory, kill_launcher, kill_program, power, cancel,
                                  full_disk, full_output, cut_link, lose_host)}

"""ranks.py - a run of xdit of which the processes can be found and hurt."""
import os
import pathlib
import re
import signal
import subprocess
import time

MARK = "XDIT_CHAOS_RUN"


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def children(pid):
    """The processes below a process, of which each follows its parent."""
    own = [int(w) for w in read(f"/proc/{pid}/task/{pid}/children").split()]
    return [q for p in own for q in [p, *children(p)]]


def state(pid):
    text = read(f"/proc/{pid}/stat")
    return text[text.rindex(b")") + 2:][:1].decode() if b")" in text else ""


def marked(mark):
    """The processes of a run, also of those whose parents have ended; zombies are none."""
    word = f"{MARK}={mark}".encode()
    return [int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and
            word in read(p / "environ").split(b"\0") and state(p.name) not in ("Z", "X", "")]


def end_all(mark):
    for p in marked(mark):
        send(p, signal.SIGKILL)


def send(pid, sig):
    """Sends a signal; False: there is no such process."""
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return False
    return True


class Run:
    """A started command. Its processes have a mark in their environment, its temporary files are
    in `where`."""
    count = 0

    def __init__(self, command, where, prefix=(), env=()):
        Run.count += 1
        where.mkdir(exist_ok=True)
        self.mark = f"{os.getpid()}.{Run.count}"
        self.tmp = where / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.log = where / f"said-{Run.count}.txt"
        self.code = None
        self.killed = self.replanned = False
        self.hurt_s = None      # when the fault happened
        self.rooms = set()      # folders in shared memory
        self.began = time.monotonic()
        with open(self.log, "wb") as said:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(
                [*prefix, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=said, cwd=where, start_new_session=True,
                env={**os.environ, MARK: self.mark, "TMPDIR": str(self.tmp), **dict(env)})

    def wait_until(self, moment):
        """Sleeps until `moment` seconds after the start; False: the run has ended before."""
        while time.monotonic() - self.began < moment:
            self.note_rooms()
            if self.process.poll() is not None:
                return False
            time.sleep(0.005)
        self.note_rooms()
        return self.process.poll() is None

    def program(self):
        """The process of xdit that was started, below the prefix."""
        for p in [self.process.pid, *children(self.process.pid)]:
            if os.path.basename(read(f"/proc/{p}/cmdline").split(b"\0")[0]) == b"xdit":
                return p
        return self.process.pid

    def launcher(self):
        """mpirun, or None."""
        for p in children(self.program()):
            if b"mpi" in os.path.basename(read(f"/proc/{p}/cmdline").split(b"\0")[0]):
                return p
        return None

    def ranks(self):
        at = self.launcher()
        return [p for p in children(at) if
                os.path.basename(read(f"/proc/{p}/cmdline").split(b"\0")[0]) == b"xdit"] \
            if at else []

    def note_rooms(self):
        if not self.rooms:
            at = self.launcher()
            for word in read(f"/proc/{at}/cmdline").split(b"\0") if at else []:
                if word.startswith(b"/") and os.path.basename(word).startswith(b"xdit."):
                    self.rooms.add(word.decode())

    def finish(self, seconds):
        """Waits for the end; False: the run takes longer, and is killed."""
        try:
            self.code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.seconds = time.monotonic() - self.began
        return True

    def said(self):
        return self.log.read_text(errors="replace")

    def cause(self):
        """The sentences that tell why a run failed."""
        return [x for x in re.split(r"[\r\n]+", self.said()) if x.startswith("xdit: ") and
                not x.startswith("xdit: warning") and " of memory" not in x]

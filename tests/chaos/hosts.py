"""hosts.py - three network namespaces on a bridge, as hosts: `zero`, where a command runs, and
`one` and `two`, which have ranks. They have one file system in common."""
import os
import shutil
import signal
import subprocess

from ranks import send

NAMES = ("zero", "one", "two")


def address(name):
    return f"10.213.79.{2 + NAMES.index(name)}"


class Hosts:
    """Hosts whose links can be cut. `ready` is False where they cannot be made."""
    count = 0

    def __init__(self, where):
        Hosts.count += 1
        self.tag = f"{os.getpid()}-{Hosts.count}"
        self.on = where / "on"
        self.on.write_text('#!/bin/sh\nname=$1\nshift\nexec ip netns exec "xdit-$name-'
                           f'{self.tag}" unshare --uts --ipc sh -c \'hostname "$0" && '
                           'mount -t tmpfs shm /dev/shm && exec "$@"\' "$name" "$@"\n')
        self.agent = where / "agent"        # in place of ssh
        self.agent.write_text(f'#!/bin/sh\ncase $1 in {address("one")}) name=one ;; '
                              '*) name=two ;; esac\nshift\n'
                              f'exec {self.on} $name sh -c "$*"\n')
        for path in (self.on, self.agent):
            path.chmod(0o755)
        bridge = self.space("bridge")
        ready = os.geteuid() == 0 and shutil.which("ip") and self.ip("netns", "add", bridge) and \
            self.ip("-n", bridge, "link", "add", "br0", "type", "bridge") and \
            self.ip("-n", bridge, "link", "set", "br0", "up")
        self.ready = bool(ready) and all(self.join(n) for n in NAMES) and \
            self.runs(str(self.on), "zero", "true")

    def space(self, name):
        return f"xdit-{name}-{self.tag}"

    @staticmethod
    def runs(*words):
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def ip(self, *words):
        return self.runs("ip", *words)

    def join(self, name):
        """Makes a host, and connects it to the bridge."""
        own, bridge = self.space(name), self.space("bridge")
        return self.ip("netns", "add", own) and \
            self.ip("link", "add", "eth-x", "netns", own, "type", "veth", "peer", "name",
                    f"to-{name}", "netns", bridge) and \
            self.ip("-n", bridge, "link", "set", f"to-{name}", "master", "br0", "up") and \
            self.ip("-n", own, "link", "set", "lo", "up") and \
            self.ip("-n", own, "addr", "add", f"{address(name)}/24", "dev", "eth-x") and \
            self.ip("-n", own, "link", "set", "eth-x", "up")

    def env(self):
        launcher = shutil.which("mpirun.openmpi") or "mpirun"
        return {"OMPI_MCA_plm_rsh_agent": str(self.agent), "OMPI_MCA_oob_tcp_if_include": "eth-x",
                "OMPI_MCA_btl_tcp_if_include": "eth-x", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
                "XDIT_MPIRUN": os.environ.get("XDIT_MPIRUN", launcher)}

    def pids(self, name):
        said = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True,
                              text=True, check=False)
        return [int(x) for x in said.stdout.split()]

    def cut(self, name):
        self.ip("-n", self.space("bridge"), "link", "set", f"to-{name}", "down")

    def end(self, name):
        for p in self.pids(name):
            send(p, signal.SIGKILL)

    def close(self):
        for name in NAMES:
            self.end(name)
        for name in (*NAMES, "bridge"):
            self.ip("netns", "del", self.space(name))

# hosts_lib.sh - sourced behind lib.sh: two hosts, which are two network namespaces joined by a veth
# pair, with two ranks in each and MPI over TCP between them. $MPIRUN is Open MPI's launcher.
#
# A host has interfaces, a host name, shared memory and mounts of its own; only processes are
# visible from both. Both see their model at one path, where the second has mounted its own copy.
A=xdit-a-$$ B=xdit-b-$$
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1

skip() { echo "1..0 # SKIP $1"; exit 0; }
# What still runs in a namespace would keep it alive under no name.
clean() {
    for n in "$A" "$B"; do
        for p in $(ip netns pids "$n" 2>/dev/null); do kill -s KILL "$p" 2>/dev/null; done
        ip netns del "$n" 2>/dev/null
    done
    rm -rf "$T"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP PIPE

[ "$(id -u)" = 0 ] || skip "only root can make network namespaces"
command -v ip >/dev/null || skip "there is no program ip: install the package iproute2"
command -v unshare >/dev/null || skip "there is no program unshare: install the package util-linux"
why=$(ip netns add "$A" 2>&1 && ip netns add "$B" 2>&1) || skip "no network namespaces here: $why"
why=$(ip link add eth-x netns "$A" type veth peer name eth-x netns "$B" 2>&1) ||
    skip "no veth pairs here: $why"
why=$(ip netns exec "$B" unshare --uts --ipc sh -c 'hostname two && mount -t tmpfs shm /dev/shm' \
    2>&1) ||
    skip "no host names or mounts of their own here: $why"
for n in "$A" "$B"; do
    ip -n "$n" link set lo up && ip -n "$n" link set eth-x up || skip "interfaces stay down here"
done
ip -n "$A" addr add 10.213.77.1/24 dev eth-x && ip -n "$B" addr add 10.213.77.2/24 dev eth-x ||
    skip "interfaces take no addresses here"

mkdir "$T/model" "$T/b" "$T/bin"
cp -R "$MODEL/." "$T/model" && cp -R "$MODEL/." "$T/b" && chmod -R u+w "$T/model" "$T/b"
printf '10.213.77.1 slots=2\n10.213.77.2 slots=2\n' >"$T/hostfile"

# on NAME COMMAND...: runs on a host.
cat >"$T/bin/on" <<END
#!/bin/sh
ns=$A
[ "\$1" = one ] || ns=$B
exec ip netns exec "\$ns" unshare --uts --ipc sh -c '
    hostname "\$1" && mount -t tmpfs shm /dev/shm || exit 1
    [ "\$1" = one ] || mount --bind "$T/b" "$T/model" || exit 1
    shift
    exec "\$@"' sh "\$@"
END
# In place of ssh: ADDRESS, then words of a command line.
cat >"$T/bin/agent" <<END
#!/bin/sh
shift
exec "$T/bin/on" two sh -c "\$*"
END
chmod +x "$T/bin/on" "$T/bin/agent"

# ranks WORDS...: what mpirun is given, on host one.
ranks() {
    timeout 120 "$T/bin/on" one "$MPIRUN" --hostfile "$T/hostfile" --bind-to none \
        --mca plm_rsh_agent "$T/bin/agent" --mca oob_tcp_if_include eth-x \
        --mca btl_tcp_if_include eth-x --mca pml ob1 --mca btl tcp,vader,self "$@" \
        >"$T/stdout" 2>"$T/stderr" </dev/null
    rc=$?
    out=$(cat "$T/stdout") err=$(cat "$T/stderr")
}
# Bytes that host one has sent to host two, and those it got.
sent() { ip netns exec "$A" awk '/eth-x:/ { sub(/.*:/, ""); print $9 }' /proc/net/dev; }
got() { ip netns exec "$A" awk '/eth-x:/ { sub(/.*:/, ""); print $1 }' /proc/net/dev; }

ranks -n 4 sh -c 'echo $(hostname) $OMPI_COMM_WORLD_LOCAL_SIZE $(ls /dev/shm | wc -l)'
check "two hosts, two ranks on each" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | sort | uniq -c |
    tr -s ' \n' ' ')" = " 2 one 2 0 2 two 2 0 " ] ||
    skip "MPI does not start on two hosts here"

#!/bin/sh
# oom.sh XDIT ROOT GOLDEN - the system kills a rank for lack of memory: the cause is told, and the
# image continues by a plan that needs less.
#
# The kernel's counters are first files that are bound over those of the host and of control groups
# of version 1 and 2. Then the kernel itself kills a rank in a group with a limit. Each part prints
# why it is skipped where this process lacks the rights.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3
cd "$T" || exit 1
GROUP=
leave() { # ends what runs in the group, and removes it
    [ -z "$GROUP" ] || while [ -s "$GROUP/cgroup.procs" ]; do
        while read -r p; do kill -s KILL "$p" 2>/dev/null; done <"$GROUP/cgroup.procs"
        sleep 0.1
    done
    [ -z "$GROUP" ] || rmdir "$GROUP"
    rm -rf "$T"
}
trap leave EXIT
trap 'exit 1' INT TERM HUP PIPE

image() { # image FILE ARGS...
    name=$1
    shift
    "$XDIT" generate --model "$GOLDEN/flux" --width 128 --height 112 --num_inference_steps 40 \
        --seed 3 -p "a red circle" -t 1 --output "$name" "$@"
}
image a.ppm -q >/dev/null || echo "not ok - the undisturbed run"
skipped() { count=$((count + 1)); echo "ok $count - $1 # SKIP $2"; }
if image x.ppm -q --steps 1 --nproc 2 2>&1 | grep -Eq 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi

# start PREFIX...: three ranks, in the background; returns when a step is saved
start() {
    rm -rf saved b.ppm
    setsid "$@" "$XDIT" generate --model "$GOLDEN/flux" --width 128 --height 112 \
        --num_inference_steps 40 --seed 3 -p "a red circle" -t 1 --output b.ppm \
        --checkpoint saved --nproc 3 --ulysses_degree 3 --max_restarts 3 >died.txt 2>&1 &
    pid=$!
    while [ ! -e saved/image-0001.safetensors ] && kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
}
finish() { # finish TITLE CAUSE
    wait "$pid"
    rc=$? out=$(cat died.txt)
    check "$1: the command goes on" [ "$rc" = 0 ]
    check "$1: the cause is told" [ "${out#*no memory left for it, "$2"}" != "$out" ]
    check "$1: by a plan that needs less" [ "${out#*which needs * in place of}" != "$out" ]
    check "$1: the image is that of the undisturbed run" [ "$("$XDIT" compare a.ppm b.ppm |
        sed -n 's/^largest *\([0-9]*\).*/\1/p')" -le 1 ]
    check "$1: nothing is left" [ ! -e saved ]
}

# bound.sh FILE NAME COMMAND...: FILE becomes the counter NAME of the host, or of control groups. A
# process whose own group is not visible, as in a container, finds the file in the root group.
cat >bound.sh <<'END'
file=$1 at=/sys/fs/cgroup name=$2
shift 2
mount -t tmpfs none "$at" || exit 1
case $name in
vmstat) mount --bind "$file" /proc/vmstat || exit 1 ;;
memory.events) grep -q '^0::' /proc/self/cgroup && ln -s "$file" "$at/$name" || exit 1 ;;
*) grep -q ':memory:' /proc/self/cgroup && mkdir "$at/memory" &&
    ln -s "$file" "$at/memory/$name" || exit 1 ;;
esac
exec "$@"
END
for name in vmstat memory.events memory.oom_control; do
    cause="within the limit of its control group"
    [ "$name" != vmstat ] || cause="because the host's is used up"
    printf 'low 0\noom_kill 3\n' >kills.txt
    if unshare -m sh bound.sh "$T/kills.txt" "$name" true 2>/dev/null; then
        start unshare -m sh bound.sh "$T/kills.txt" "$name"
        printf 'low 0\noom_kill 4\n' >kills.txt
        kill -s KILL "$(pgrep -s "$pid" -f "xdit generate" | tail -1)"
        finish "$name" "$cause"
    else
        skipped "$name" "a file cannot be bound over the kernel's counter"
    fi
done

# A group with a limit, a little more than the ranks use. Then small processes of the group use up
# what is left, so that a rank is the largest one, which the kernel kills.
cat >hog.py <<'END'
import os, re, signal, sys, time
name = "memory.events" if sys.argv[2] == "memory.max" else "memory.oom_control"
def kills():
    with open(f"{sys.argv[1]}/{name}") as f:
        return int(re.search(r"oom_kill (\d+)", f.read())[1])
before, small = kills(), []
while kills() == before and len(small) < 200:
    ready, done = os.pipe()
    pid = os.fork()
    if not pid:
        taken = b"x" * (4 << 20)
        os.write(done, b"x")
        time.sleep(60)
        os._exit(len(taken) == 0)
    small.append(pid)
    os.close(done)
    os.read(ready, 1)
    os.close(ready)
found = kills() - before
for pid in small:
    os.kill(pid, signal.SIGKILL)
sys.exit(found < 1)
END
for dir in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -z "$GROUP" ] && why=$(mkdir "$dir/xdit-oom-$$" 2>&1) || continue
    GROUP=$dir/xdit-oom-$$
    for limit in memory.max memory.limit_in_bytes; do
        [ -e "$GROUP/$limit" ] && break 2
    done
    rmdir "$GROUP"
    GROUP=
    why="$dir has no limits of memory"
done
if [ -n "$GROUP" ] && why=$(sh -c 'echo $$ >"$0/cgroup.procs"' "$GROUP" 2>&1); then
    # shellcheck disable=SC2016
    start sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP"
    usage=$GROUP/memory.current
    [ -e "$usage" ] || usage=$GROUP/memory.usage_in_bytes
    echo $(($(cat "$usage") + (16 << 20))) >"$GROUP/$limit"
    sh -c 'echo $$ >"$0/cgroup.procs" && exec python3 hog.py "$0" "$1"' "$GROUP" "$limit"
    check "the kernel has killed a process of the group" [ $? = 0 ]
    finish "a group with a limit" "within the limit of its control group"
else
    skipped "a group with a limit" "no control group can be made here: $why"
fi
done_testing

#!/bin/sh
# A rank that is killed, ends by itself, or whose messages or memory fail, in every phase of a run:
# the run ends within ten seconds with a sentence that names the rank, and nothing stays behind. So
# it is when the process that was started or the MPI launcher is killed. XDIT is a program with the
# faults of inject.c in it. XDIT_FAULT_ALL=1 tries more calls.
. "$(dirname "$0")/../cli/lib.sh"
MODEL=$ROOT/tests/golden/alpha

if "$XDIT" generate -m "$MODEL" -p a --steps 1 --nproc 2 -q -o "$T/x.ppm" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi

# Nothing of ours runs any more, waiting ten seconds at most: the ranks of a killed launcher end by
# themselves, and a keeper cleans up behind.
gone() {
    n=0
    while [ "$n" -lt 100 ]; do
        if ! pgrep -f "$T/" >/dev/null && [ -z "$room" -o ! -e "$room" ]; then
            return 0
        fi
        sleep 0.1
        n=$((n + 1))
    done
    return 1
}
clean() {
    check "$1: no process and no shared memory is left" gone
    check "$1: no half file" [ -z "$(ls -A "$T/d" | grep -v '\.ppm$')" ]
    for f in "$T/d"/*.ppm; do
        [ ! -e "$f" ] || check "$1: a whole file" [ "$(tail -c 49152 "$f" | wc -c)" = 49152 ]
    done
    rm -rf "$T/d"
}
# The directory of the launcher, which stands in its arguments.
find_room() {
    room=
    for p in $(pgrep -P "$1"); do
        room=$(tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | grep -m 1 '^/dev/shm/xdit\.')
        [ -z "$room" ] || return 0
    done
}

# fault FAULT PATTERN PLAN...: the fault happens and is told so; "done": the run may also succeed.
fault() {
    case_=$1 pattern=$2
    shift 2
    mkdir -p "$T/d"
    t0=$(date +%s)
    XDIT_FAULT=$case_ "$XDIT" generate -m "$MODEL" -p a --steps 3 -q --num_images_per_prompt 2 \
        "$@" -o "$T/d/x.ppm" >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
    sleep 0.05
    find_room "$pid"
    ( sleep 20; kill -s KILL "$pid" ) >/dev/null 2>&1 &
    guard=$!
    wait "$pid"
    rc=$? took=$(($(date +%s) - t0))
    kill "$guard" 2>/dev/null
    out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    check "$case_, $*: within ten seconds" [ "$took" -le 12 ]
    case $pattern in
    done:*) [ "$rc" = 0 ] || check "$case_, $*: it is told" said "${pattern#done:}" ;;
    *)  check "$case_, $*: an error" [ "$rc" = 1 ]
        check "$case_, $*: it is told" said "$pattern" ;;
    esac
    clean "$case_, $*"
}

plan="--ulysses_degree 2 --use_parallel_vae"
for seam in host:1 host:150 read:1 op:1 op:40 send:3 test:60; do
    fault "1:$seam:kill" "rank (1|with process id [0-9]+) was killed by signal 9" $plan
done
for seam in send:2 send:20 recv:2 recv:20 test:5 test:100 msgmem:1; do
    fault "1:$seam:fail" "^xdit: (error: )?rank 1: .*(fail|memory)" $plan
done
fault 0:read:1:segv "rank (0|with process id [0-9]+) was killed by signal 11" $plan
fault 1:op:30:exit "(rank 1|launcher).* ended with exit code 7" $plan
plan="--pipefusion_parallel_degree 3 --num_pipeline_patch 4"
for seam in op:40 test:60; do
    fault "2:$seam:kill" "rank (2|with process id [0-9]+) was killed by signal 9" $plan
done
for seam in send:20 recv:3 test:100; do
    fault "1:$seam:fail" "^xdit: (error: )?rank 1: .*fail" $plan
done
fault 0:sync:1:kill "rank (0|with process id [0-9]+) was killed by signal 9" --use_cfg_parallel
fault 0:sync:1:fail "cannot write .*x_0001.ppm" --use_cfg_parallel
fault 0:link:1:fail "done:never" --ring_degree 2
check "a file without a link" [ "$rc" = 0 ]
step=${XDIT_FAULT_ALL:+3}
for n in $(seq 5 "${step:-67}" 340); do
    fault "1:host:$n:fail" "done:^xdit: .*rank 1: .*memory" --tensor_parallel_degree 2
done

# killed WHO SIGNALLED: somebody beside the ranks is killed while steps are taken.
killed() {
    mkdir "$T/d"
    : >"$T/stderr"
    "$XDIT" generate -m "$MODEL" -p a --steps 1000 --num_images_per_prompt 50 --nproc 2 \
        -o "$T/d/x.ppm" >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
    n=0
    while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
    find_room "$pid"
    launcher=
    for p in $(pgrep -P "$pid"); do
        tr '\0' '\n' <"/proc/$p/cmdline" | head -n 1 | grep -Eq 'mpirun|mpiexec' && launcher=$p
    done
    check "$1: there is a launcher" [ -n "$launcher" ]
    case $(tr '\0' ' ' <"/proc/$launcher/cmdline") in
    *hydra*) ;;                 # it has no room
    *) check "$1: it has a room" [ -n "$room" -a -d "$room" ] ;;
    esac
    case $1 in
    parent) kill -s KILL "$pid" ;;
    launcher) kill -s KILL "$launcher" ;;
    both) kill -s KILL "$pid" "$launcher" ;;
    esac
    wait "$pid" 2>/dev/null
    rc=$? err=$(cat "$T/stderr") out=
    [ "$1" != launcher ] || check "launcher: it is told" said "the MPI launcher failed: .*signal 9"
    check "$1: an error" [ "$rc" != 0 ]
    clean "$1 is killed"
}
killed parent
killed launcher
killed both
done_testing

#!/bin/sh
# cuda.sh XDIT ROOT SIM - a rank with --device cuda that is killed, or whose GPU or messages fail:
# the run ends within ten seconds with a sentence that names the rank, and leaves nothing behind.
# XDIT is a program with the faults of inject.c in it; SIM has the libraries of the simulated GPU.
. "$(dirname "$0")/../cli/lib.sh"
MODEL=$ROOT/tests/golden/alpha
SIM=$(cd "$3" && pwd)
export XDIT_CUDA_DIR="$SIM" XDIT_SIM_DEVICES=2

small="generate -m $MODEL -p a --steps 3 -W 32 -H 32 --no_resolution_binning --dtype f32 -q"
if "$XDIT" $small --steps 1 --nproc 2 -o "$T/x.ppm" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi

# ended WHAT PATTERN ARGS...: the run ends in time with an error that matches and leaves no file.
ended() {
    case_=$1 pattern=$2
    shift 2
    mkdir -p "$T/d"
    t0=$(date +%s)
    timeout -s KILL 60 "$XDIT" $small "$@" -o "$T/d/x.ppm" >"$T/stdout" 2>"$T/stderr" </dev/null
    rc=$? took=$(($(date +%s) - t0)) out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    check "$case_, $*: within twelve seconds" [ "$took" -le 12 ]
    check "$case_, $*: an error" [ "$rc" = 1 ]
    check "$case_, $*: it is told" said "$pattern"
    check "$case_, $*: no file" [ -z "$(ls -A "$T/d")" ]
    n=0
    while pgrep -f "$T/d/" >/dev/null && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
    check "$case_, $*: no process is left" [ "$n" -lt 100 ]
}
# fault FAULT PATTERN ARGS...: a fault of inject.c.
fault() {
    XDIT_FAULT=$1
    export XDIT_FAULT
    ended "$@"
    unset XDIT_FAULT
}
# failing GPU:N PATTERN ARGS...: launches of that GPU fail from the N-th on.
failing() {
    XDIT_SIM_FAIL=$1
    export XDIT_SIM_FAIL
    ended "GPU $1" "$2" --device cuda --ulysses_degree 2
    ended "GPU $1" "$2" --device cuda --pipefusion_parallel_degree 2 --num_pipeline_patch 3
    unset XDIT_SIM_FAIL
}

killed="rank (1|with process id [0-9]+) was killed by signal 9"
for device in cuda cuda:0; do
    fault 1:host:150:kill "$killed" --device $device --ulysses_degree 2
    fault 1:send:3:kill "$killed" --device $device --pipefusion_parallel_degree 2
done
for way in staged ipc; do
    XDIT_DEVICE_MESSAGES=$way
    export XDIT_DEVICE_MESSAGES
    fault 1:host:150:kill "$killed" --device cuda --ulysses_degree 2
    fault 1:send:40:fail "^xdit: (error: )?rank 1: .*fail" --device cuda --ulysses_degree 2
    failing 1:100 "^xdit: (error: )?rank 1: .*(device|cuda:1)"
    unset XDIT_DEVICE_MESSAGES
done
fault 1:recv:5:fail "^xdit: (error: )?rank 1: .*fail" --device cuda --ulysses_degree 2
fault 1:send:5:fail "^xdit: (error: )?rank 1: .*fail" --device cuda --ring_degree 2

# The first error is printed with its number, its name and what returned it.
XDIT_SIM_FAIL=0:100 "$XDIT" $small --device cuda -o "$T/x.ppm" >"$T/stdout" 2>"$T/stderr"
rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
check "one GPU fails: an error" [ "$rc" = 1 ]
check "one GPU fails: its cause" said "CUDA error 700 \(CUDA_ERROR_[A-Z_]*: .*\) by [a-z_0-9]+,"
check "one GPU fails: once" [ "$(grep -c 'CUDA error' "$T/stderr")" = 1 ]

for launch in 1 100 250; do
    failing 1:$launch "^xdit: (error: )?rank 1: .*(device|cuda:1)"
done
done_testing

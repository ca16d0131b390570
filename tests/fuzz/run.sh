#!/bin/sh
# run.sh BUILD [SECONDS] - runs each libFuzzer target of a build directory (meson -Dfuzz=true,
# clang) for SECONDS (else $FUZZ_SECONDS, else 60) on its corpus. New inputs go to
# BUILD/tests/fuzz/found/, the tree stays as it is; an input that fails stays there as crash-*, and
# the exit status is 1.
set -u
build=${1:?usage: run.sh BUILD [SECONDS]}
seconds=${2:-${FUZZ_SECONDS:-60}}
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$build" && pwd) || exit 1
[ -n "${TMPDIR:-}" ] || [ ! -w /dev/shm ] || export TMPDIR=/dev/shm      # files made per input
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# Freed memory that waits in the quarantine counts as used.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:quarantine_size_mb=64

failed=0
for corpus in "$here"/corpus/*/; do
    name=$(basename "$corpus")
    target=$build/tests/fuzz/fuzz_$name
    found=$build/tests/fuzz/found/$name
    if [ ! -x "$target" ]; then
        echo "$target is not there: configure with -Dfuzz=true and clang" >&2
        exit 1
    fi
    mkdir -p "$found"
    log=$found.log
    echo "fuzz_$name: $seconds s"
    if "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=8192 \
        -artifact_prefix="$found/" -print_final_stats=1 "$found" "$corpus" >"$log" 2>&1; then
        grep -E 'number_of_executed_units|average_exec' "$log"
    else
        echo "fuzz_$name failed, see $log:"
        tail -n 40 "$log"
        failed=1
    fi
done
exit $failed

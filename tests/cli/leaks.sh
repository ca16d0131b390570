#!/bin/sh
# leaks.sh XDIT ROOT GOLDEN - of a build with AddressSanitizer: nothing that is allocated is lost,
# by one rank, by three, and where a run is refused. tests/cli/leaks.supp has what is not ours.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3
LSAN_OPTIONS=suppressions=$ROOT/tests/cli/leaks.supp:print_suppressions=0
# Whole stacks: modules that Open MPI has unloaded have no name any more, its library below them
# has. Calls of __tls_get_addr are not followed: LeakSanitizer of gcc 12 takes what lies before the
# variables of a thread for their size, and may crash.
ASAN_OPTIONS=detect_leaks=1:exitcode=97:fast_unwind_on_malloc=0:intercept_tls_get_addr=0
export LSAN_OPTIONS ASAN_OPTIONS

# kept WHAT CODE ARGS...: the program ends with CODE and no rank has lost memory.
kept() {
    what=$1 code=$2
    shift 2
    try "$@"
    check "$what" [ "$rc" = "$code" ]
    check "$what: nothing is lost" \
        sh -c '! printf "%s" "$1" | grep -q "LeakSanitizer\|AddressSanitizer"' x "$err"
}
# image MODEL ARGS...: by one rank, and by three.
image() {
    model=$1
    shift
    set -- generate -q -m "$GOLDEN/$model" -p "a red circle" --steps 2 -t 1 "$@"
    kept "$model, one rank" 0 "$@"
    for plan in "--ulysses_degree 3" "--ring_degree 3" "--tensor_parallel_degree 3" \
        "--pipefusion_parallel_degree 3 --num_pipeline_patch 3 --warmup_steps 1"; do
        # A plan is several words.
        # shellcheck disable=SC2086
        [ "$model" != alpha ] && [ "$plan" != "--ring_degree 3" ] ||
            kept "$model, $plan" 0 "$@" $plan
    done
}

# LeakSanitizer cannot look where another debugger does.
try --version
if said 'LeakSanitizer has encountered a fatal error'; then
    echo "1..0 # SKIP LeakSanitizer does not work here (ptrace)"
    exit 0
fi
if ! "$XDIT" generate -m "$GOLDEN/alpha" -p a --steps 1 --nproc 2 -q -o "$T/x.ppm" >"$T/no" 2>&1 &&
    grep -Eq 'has no MPI|install the package' "$T/no"; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi
image alpha -o "$T/x.ppm"
image flux -W 64 -H 48 -o "$T/x.png"
image cog15 -W 64 -H 48 --num_frames 9 -o "$T/x.rgb"
kept "a model that is not there" 1 generate -q -m "$T/none" -p a -o "$T/x.ppm"
kept "degrees that need more ranks" 2 generate -q -m "$GOLDEN/alpha" -p a --nproc 3 \
    --ring_degree 5 -o "$T/x.ppm"
done_testing

# lib.sh - sourced by the tests of the command line; speaks TAP.
#
# Every test is called with XDIT (the program) and ROOT (the source tree). `try` runs the program
# and keeps its exit code in $rc, its output in $out and its error output in $err.
set -u
XDIT=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")     # meson gives a relative name
ROOT=$2
MODEL=$ROOT/models/demo-pixart
# Configs of published models, which are not in the tree (tools/fetch_configs.py).
HF=${XDIT_TEST_HF:-../shared/hf}
case $HF in /*) ;; *) HF=$ROOT/$HF ;; esac
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
count=0
out=
err=
rc=0

# pass WHAT, fail WHAT [WHY]: one result.
pass() { count=$((count + 1)); echo "ok $count - $1"; }
fail() {
    count=$((count + 1))
    echo "not ok $count - $1"
    printf '%s\nrc %s\nstdout: %s\nstderr: %s\n' "${2-}" "$rc" "$out" "$err" | sed 's/^/# /'
}
check() { what=$1; shift; if "$@"; then pass "$what"; else fail "$what" "$*"; fi; }
done_testing() { echo "1..$count"; }

try() {
    "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null
    rc=$?
    out=$(cat "$T/stdout")
    err=$(cat "$T/stderr")
}
# two_ranks MPIRUN WORDS0 WORDS1: the commands of rank 0 and rank 1, lists of words. Debian's mpirun
# of Open MPI 5 crashes where it gets two commands, so it gets one that chooses.
two_ranks() {
    timeout 100 "$1" --oversubscribe --bind-to none -n 2 sh -c '
        [ "$OMPI_COMM_WORLD_RANK" = 0 ] || shift
        exec $1' x "$2" "$3"
}
# A quick image: two steps of the demo model.
generate() { try generate --model "$MODEL" --num_inference_steps 2 --quiet "$@"; }

# published MODEL...: are the configs of all of them there? A line says which checks are not run.
published() {
    for need; do
        [ -d "$HF/$need" ] && continue
        echo "# skipped: needs $need of the published configs (XDIT_TEST_HF)"
        return 1
    done
}

# json EXPRESSION: is it true of the JSON in $out, which is j?
json() {
    printf '%s' "$out" | python3 -c 'import json, sys
j = json.load(sys.stdin)
sys.exit(not eval("(" + sys.argv[1] + ")"))' "$1"
}

said() { printf '%s\n' "$err" | grep -Eq -- "$1"; }
one_line() { [ "$(printf '%s\n' "$err" | wc -l)" = 1 ]; }

# advice: the flags of every change that would fit, one a line, after a refusal for want of memory.
advice() {
    printf '%s\n' "$err" | sed -n 's/.*; what would fit: //p' | sed 's/); /)\n/g' |
        sed 's/ ([^()]*\(([^()]*)\)*[^()]*)$//; s/ without other degrees//'
}

# mentions WORDS: does the sentence in $err have every one of them, in any order? Each is an
# extended expression without blanks; a number is no part of a longer one.
mentions() (
    set -f
    for word in $1; do
        case $word in *[!0-9]*) ;; *) word="(^|[^0-9.])$word([^0-9]|\$)" ;; esac
        said "$word" || return 1
    done
)

# refused WHAT CODE WORDS ARGS...: the program ends with CODE and one sentence that has the names,
# the numbers and the cure that matter. How it is worded is not tested.
refused() {
    what=$1 code=$2 words=$3
    shift 3
    try "$@"
    if echo "$rc" | grep -qx "$code" && [ -z "$out" ] && one_line && said "^xdit: " &&
        mentions "$words"
    then
        pass "$what"
    else
        fail "$what" "expected exit code $code and one line with: $words"
    fi
}
# Is FILE a whole PNG? Its first and last bytes are there.
whole_png() {
    [ "$(head -c 4 "$1" | tail -c 3)" = PNG ] && [ "$(tail -c 8 "$1" | head -c 4)" = IEND ]
}

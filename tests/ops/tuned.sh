#!/bin/sh
# tuned.sh PROGRAM - with XDIT_TUNE=1 the fastest algorithm of each kind of product is found and
# kept in the user's cache, and later runs take it.
set -eu
program=$(readlink -f "$1")
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export XDG_CACHE_HOME="$T" XDIT_TEST_ONLY='test_gemm*'
XDIT_TUNE=1 "$program"
kept=$(echo "$T"/xdit/cublaslt-*/algorithms.txt)
all=$(wc -l <"$kept") best=$(grep -cE ' [0-9a-f]{64}0{15}2' "$kept")
[ "$all" -ge 20 ] || { echo "only $all kinds of products were timed"; exit 1; }
[ "$best" = "$all" ] || { echo "the fastest was found for $best of $all"; exit 1; }
echo 'a damaged line' >>"$kept"
XDIT_SIM_ALGORITHMS=1 "$program" 2>"$T/later"
# The alignment of operands is a part of a kind, and differs a little from run to run.
first=$(grep -c '^algorithm 0' "$T/later") || true
best=$(grep -c '^algorithm 2' "$T/later") || true
[ "$best" -gt $((3 * first)) ] || {
    echo "$best products take what was kept, $first do not"
    exit 1
}

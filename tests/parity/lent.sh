#!/bin/sh
# lent.sh PROGRAM MODEL MPIRUN ARGUMENTS... - two groups of ranks of one MPI program generate two
# images at a time, each with the bits of a run of its own. The arguments end before the number of
# ranks. Speaks TAP.
set -u
program=$1 model=$2
shift 2
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
if ! "$@" 4 true >"$T/log" 2>&1; then
    echo "1..0 # SKIP MPI cannot start 4 processes here: $(head -n 1 "$T/log")"
    exit 0
fi
bad=0
. "$(dirname "$0")/../tap.sh"
check "a communicator needs MPI" "$program" "$model" "$T" early
check "two groups of 2 ranks, and two others" "$@" 4 "$program" "$model" "$T" split
for seed in 1 2 3 4; do
    check "a run of its own with seed $seed" "$@" 2 "$program" "$model" "$T" world "$seed"
    check "the same file" cmp "$T/split_$seed.ppm" "$T/world_$seed.ppm"
done
for seed in 101 102; do
    check "the second request, seed $seed" cmp "$T/split_$seed.ppm" "$T/world_$seed.ppm"
done
differ() { ! cmp -s "$1" "$2"; }
check "the groups have generated two images" differ "$T/split_1.ppm" "$T/split_2.ppm"
check "a communicator of one rank works, too" [ -s "$T/alone_70.ppm" -a -s "$T/self_73.ppm" ]
echo "1..$count"
exit $bad

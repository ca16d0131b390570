#!/bin/sh
# seeds.sh BUILD N - tests on the simulated GPU with the seeds 1 to N of the order of its work
set -eu
build=$(cd "$1" && pwd)
golden=$(cd "$(dirname "$0")/../golden" && pwd)
export XDIT_CUDA_DIR="$build/tests/sim" CMOCKA_MESSAGE_OUTPUT=TAP OMP_WAIT_POLICY=passive
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# run SEED PROGRAM [ARGUMENTS]: what fails is printed, and ends the script.
run() {
    XDIT_SIM_SEED=$1
    export XDIT_SIM_SEED
    shift
    if "$@" >"$log" 2>&1 && ! grep -q '^not ok' "$log"; then
        return 0
    fi
    echo "seed $XDIT_SIM_SEED: $* fails"
    grep -v '^ok' "$log" | tail -n 20
    exit 1
}

seed=1
while [ "$seed" -le "$2" ]; do
    run "$seed" "$build/tests/ops/ops_cuda"
    run "$seed" "$build/tests/ops/ops_attn_cuda"
    run "$seed" "$build/tests/golden/test_golden_cuda" "$golden" "$build/tests/golden/full" micro \
        flux-schnell cog5b-one
    echo "ok $seed"
    seed=$((seed + 1))
done

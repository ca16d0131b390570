#!/bin/sh
# cuda_all.sh TEST_DEVICE TESTS MPIRUN [ITS ARGUMENTS...] -n - many plans of three families on the
# simulated GPU: on one GPU, on one each, in several orders of work. Minutes.
set -u
program=$1 tests=$2
shift 2
failed=0

# ranks N GPUS ARGUMENTS OF test_device...
ranks() {
    n=$1
    XDIT_SIM_DEVICES=$2
    export XDIT_SIM_DEVICES
    shift 2
    echo "# $n ranks, $XDIT_SIM_DEVICES GPUs, $XDIT_DEVICE_MESSAGES: $*"
    $mpirun "$n" "$program" "$@" || failed=1
}
mpirun=$*

several_plans() {
    for gpus in 1 4; do
        [ $gpus$XDIT_DEVICE_MESSAGES != 1nccl ] || continue
        device=cuda
        [ $gpus = 4 ] || device=cuda:0
        set -- 24x20 3
        ranks 2 $gpus "$tests/parity/model" $device "$@" u2v r2v r2x r2xw1 t2v c2 d2 p2 p2m4w1
        ranks 3 $gpus "$tests/parity/model" $device "$@" u3v r3 r3xw1 t3 d3 p3m3w1
        ranks 4 $gpus "$tests/parity/model" $device "$@" u2r2v t2u2 c2u2 d2p2 u2p2m2w1 c2p2m3w1 p4
        for model in flux sd3; do
            set -- 24x24 3 text=5
            ranks 2 $gpus "$tests/golden/$model" $device "$@" u2 r2 r2xw1 t2 c2 d2 p2 p2m3w1
            ranks 4 $gpus "$tests/golden/$model" $device "$@" u2r2 t2u2 c2r2 p4m3w1 u2p2m3w1
        done
    done
}

for XDIT_DEVICE_MESSAGES in staged ipc nccl; do
    for XDIT_SIM_SEED in 0 1 2; do
        export XDIT_DEVICE_MESSAGES XDIT_SIM_SEED
        several_plans
    done
done
exit $failed

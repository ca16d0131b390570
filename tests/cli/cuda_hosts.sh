#!/bin/sh
# Two hosts (hosts_lib.sh) with two simulated GPUs each: groups of ranks of one host send by memory
# that they lend each other, groups of several hosts through the hosts' memory.
#
#     cuda_hosts.sh XDIT ROOT SIM MPIRUN
. "$(dirname "$0")/lib.sh"
MPIRUN=$4
XDIT_CUDA_DIR=$(cd "$3" && pwd) XDIT_SIM_DEVICES=2 OMP_WAIT_POLICY=passive
export XDIT_CUDA_DIR XDIT_SIM_DEVICES OMP_WAIT_POLICY
. "$(dirname "$0")/hosts_lib.sh"

how="generate --model $T/model --steps 2 --seed 3 --dtype f32 --device cuda -W 48 -H 32"
how="$how --no_resolution_binning --prompt circle --verbose"
# same FILE: its latents, [4, 4, 6], are those of one rank.
same() { tail -c 384 "$1" >"$T/these" && tail -c 384 "$T/one.safetensors" | cmp -s "$T/these"; }
try $how -o "$T/one.safetensors"
check "one rank" [ "$rc" = 0 ]
# run WAY TITLE WORDS...: mpirun's words up to a --, then the program's.
run() {
    way=$1 title=$2 words=
    shift 2
    while [ "$1" != -- ]; do
        words="$words $1"
        shift
    done
    shift
    rm -f "$T/x.safetensors"
    # shellcheck disable=SC2086
    ranks $words -x XDIT_CUDA_DIR -x XDIT_SIM_DEVICES "$XDIT" $how "$@" -o "$T/x.safetensors"
    check "$title: generated" [ "$rc" = 0 ]
    check "$title: $way" said "messages between devices: .*$way"
    check "$title: the bits of one rank" same "$T/x.safetensors"
}
# Bytes of its GPU that rank 0's messages have used: those of mailboxes, if it has any.
taken() { sed -n 's/.*messages have used \([0-9]*\) bytes.*/\1/p' "$T/stderr"; }
run "staged" "staged, as asked" -n 4 -x XDIT_DEVICE_MESSAGES=staged -- --ulysses_degree 2 \
    --use_cfg_parallel
staged=$(taken)
some='(ipc), through host memory (staged) in groups of several hosts'
some=$(printf '%s' "$some" | sed 's/[()]/\\&/g')
run "$some" "ulysses inside hosts" -n 4 -- --ulysses_degree 2 --use_cfg_parallel
check "$(taken) bytes of mailboxes and buffers, $staged without mailboxes" \
    [ "$(taken)" -ge $((staged + 2097152)) ]
run "$some" "ulysses between hosts" --map-by node -n 4 -- --ulysses_degree 2 --use_cfg_parallel
check "mailboxes are of the other pass's rank then: $(taken) bytes" \
    [ "$(taken)" -ge $((staged + 2097152)) ]
run "$some" "ulysses in hosts, ring between" -n 4 -- --ulysses_degree 2 --ring_degree 2
run "$some" "stages on two hosts" -n 4 -- --ulysses_degree 2 --pipefusion_parallel_degree 2 \
    --warmup_steps 2
run "$some" "two ranks and one" -n 3 -- --ring_degree 3
run "staged\\): no host has two ranks" "a rank on each" --map-by node -n 2 -- --ulysses_degree 2
done_testing

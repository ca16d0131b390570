#!/bin/sh
# cuda_ranks.sh XDIT ROOT SIM MPIRUN - ranks with a GPU each, simulated, that stream blocks: one
# pinned copy for a host, the latents of one rank, and every allocation that can fail.
. "$(dirname "$0")/lib.sh"
XDIT_CUDA_DIR=$(cd "$3" && pwd) XDIT_SIM_DEVICES=4 OMP_WAIT_POLICY=passive
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export XDIT_CUDA_DIR XDIT_SIM_DEVICES OMP_WAIT_POLICY
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
if ! MPIRUN=$(command -v "$4"); then
    echo "1..0 # SKIP there is no $4"
    exit 0
fi
# on N FILE ARGS...: two steps of N ranks, the latents into FILE.
each='exec "$@"'               # what a rank runs
on() {
    n=$1 to=$2
    shift 2
    timeout 120 "$MPIRUN" --oversubscribe --bind-to none -n "$n" sh -c "$each" - "$XDIT" \
        generate --model "$MODEL" --prompt "a circle" --num_inference_steps 2 --height 32 \
        --width 48 --dtype f32 --device cuda --verbose --output "$to" "$@" \
        >"$T/stdout" 2>"$T/stderr" </dev/null
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
}
shared='transformer: .*one copy of streamed blocks for this host'
# same FILE: its latents, 4 x 4 x 6 floats at the end, are those of one rank.
same() { tail -c 384 "$1" >"$T/these" && tail -c 384 "$T/one.safetensors" | cmp -s "$T/these"; }
# MiB that the ranks of the host take together.
host_mib() { said_number 's/.* \([0-9.]*\) on this host of .*/\1/p'; }
said_number() { sed -n "$1" "$T/stderr" | head -n 1 | awk '{ print int($1 * 1024 + 0.5) }'; }

on 1 "$T/one.safetensors" --offload stream
check "one rank streams" eval '[ "$rc" = 0 ] && ! said "$shared"'
one=$(host_mib)
for plan in "2 --ulysses_degree 2" "3 --ring_degree 3" "2 --use_cfg_parallel"; do
    # shellcheck disable=SC2086
    set -- $plan
    n=$1
    shift
    on "$n" "$T/x.safetensors" --offload stream "$@"
    check "$*: one copy" eval '[ "$rc" = 0 ] && said "$shared"'
    check "$*: the latents of one rank" same "$T/x.safetensors"
    many=$(host_mib)
    check "$*: $many MiB of the host, $one of one rank" \
        [ "$one" -gt 15 -a "$many" -le $((one + 1)) ]
done

# Ranks of a stage share its blocks; halves of a matrix have no second rank that needs them.
on 4 "$T/x.safetensors" --offload stream --ulysses_degree 2 --pipefusion_parallel_degree 2 \
    --warmup_steps 2
check "two stages of two ranks: a copy of each" eval '[ "$rc" = 0 ] && said "$shared"'
check "its latents" same "$T/x.safetensors"
check "two stages take what one rank takes" [ "$(host_mib)" -le $((one + 1)) ]
on 2 "$T/x.safetensors" --offload stream --tensor_parallel_degree 2
check "tensor ranks: nothing is shared" eval '[ "$rc" = 0 ] && ! said "$shared"'

# On one GPU, which streams what it does not hold.
XDIT_SIM_MEMORY=68000000
export XDIT_SIM_MEMORY
on 2 "$T/x.safetensors" --ulysses_degree 2 --device cuda:0
check "two ranks on a GPU of 68 MB" eval '[ "$rc" = 0 ] && said "are streamed" && said "$shared"'
check "the latents of one rank" same "$T/x.safetensors"
unset XDIT_SIM_MEMORY

# An allocation of device or pinned memory fails on the second rank: a sentence, or where the copy
# cannot be pinned, a copy of each rank's own.
each='[ "$OMPI_COMM_WORLD_RANK" != 1 ] || export XDIT_SIM_NO_MEMORY=$NTH; exec "$@"'
bad='' own=0
for NTH in 9 10 11 12 13 14 15 16; do
    export NTH
    on 2 "$T/x.safetensors" --offload stream --ulysses_degree 2
    if [ "$rc" = 0 ] && said "every rank keeps its own copy"; then
        own=$((own + 1))
        same "$T/x.safetensors" || bad="$bad $NTH"
    elif [ "$rc" = 0 ] || [ "$rc" -ge 124 ] || ! said 'memory' || said 'simulated GPU:'; then
        bad="$bad $NTH"
    fi
done
check "each allocation that fails on a rank is a sentence, or ranks keep their own:$bad" \
    [ -z "$bad" -a "$own" = 1 ]
done_testing

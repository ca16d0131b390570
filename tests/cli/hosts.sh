#!/bin/sh
# Two hosts (hosts_lib.sh): images of one rank, bytes that really crossed, and refusals of hosts
# that differ.
#
#     hosts.sh XDIT ROOT OTHER MPIRUN TEST_COMM GOLDEN FAULT
#
# OTHER is the same program with another version, FAULT with the faults of tests/fault.
. "$(dirname "$0")/lib.sh"
OTHER=$3 MPIRUN=$4 COMM=$5 GOLDEN=$6 FAULT=$7
case $OTHER in /*) ;; *) OTHER=$PWD/$OTHER ;; esac
case $COMM in /*) ;; *) COMM=$PWD/$COMM ;; esac
case $FAULT in /*) ;; *) FAULT=$PWD/$FAULT ;; esac
. "$(dirname "$0")/hosts_lib.sh"

s0=$(sent)
ranks --map-by node -n 2 "$COMM"
check "every call of the communicator between hosts" [ "$rc" = 0 -a "$(printf '%s\n' "$out" |
    grep -c ', 0 failed')" = 2 ]
check "its messages crossed" [ $(($(sent) - s0)) -gt 4000000 ]

# 256 tokens of 192 numbers in 8 blocks, 8 steps of 2 passes, f32.
STEPS=8 N=256 D=192 F=16
how="generate --model $T/model --steps $STEPS --seed 3 --dtype f32"
how="$how -W 256 -H 256 --no_resolution_binning"
latents=$((4 * 32 * 32 * 4))            # bytes of [4,32,32] at the end of a file
same() {
    [ -s "$1" ] && tail -c $latents "$1" >"$T/1.lat" && tail -c $latents "$2" >"$T/2.lat" &&
        cmp "$T/1.lat" "$T/2.lat"
}
alone() { try $how --prompt "a red circle" --quiet "$@"; }

alone -o "$T/one.safetensors"
check "one rank" [ "$rc" = 0 ]
# plan NAME REFERENCE ARGS...: the same bits as REFERENCE; what crossed is what stages send, 4 N D
# bytes a pass forward and 4 N F a step back, and at most a quarter and 200 kB more (text, latents,
# words of the launcher, TCP's headers).
forward=$((4 * N * D * 2 * STEPS)) back=$((4 * N * F * (STEPS - 1)))
plan() {
    title=$1 want=$2
    shift 2
    s0=$(sent) g0=$(got)
    ranks -n 4 "$XDIT" $how --prompt "a red circle" --quiet "$@" -o "$T/x.safetensors"
    s=$(($(sent) - s0)) g=$(($(got) - g0))
    echo "# $title: $s bytes to host two ($forward of them the plan's), $g back ($back)"
    check "$title: generated" [ "$rc" = 0 ]
    check "$title: the bits of $(basename "$want" .safetensors)" same "$want" "$T/x.safetensors"
    check "$title: its bytes crossed" [ "$s" -ge "$forward" -a "$g" -ge "$back" ]
    check "$title: and few others" [ "$s" -le $((forward * 5 / 4 + 200000)) -a "$g" \
        -le $((back * 5 / 4 + 200000)) ]
    rm -f "$T/x.safetensors"
}
plan "pipefusion 4, all steps exact" "$T/one.safetensors" --pipefusion_parallel_degree 4 \
    --warmup_steps $STEPS
plan "pipefusion 2 x ulysses 2, all steps exact" "$T/one.safetensors" \
    --ulysses_degree 2 --pipefusion_parallel_degree 2 --warmup_steps $STEPS
alone --pipefusion_parallel_degree 2 --num_pipeline_patch 4 -o "$T/patches-on-one-host.safetensors"
check "patches on one host" [ "$rc" = 0 ]
plan "pipefusion 4" "$T/patches-on-one-host.safetensors" --pipefusion_parallel_degree 4
plan "pipefusion 2 x ulysses 2" "$T/patches-on-one-host.safetensors" \
    --ulysses_degree 2 --pipefusion_parallel_degree 2 --num_pipeline_patch 4

# FLUX in four stages, as many patches as stages: 256 tokens of 24 numbers in 5 blocks, one pass,
# text of 77 rows with everything in exact steps and with the first patch in others. Both hosts read
# one copy.
STEPS=4 N=256 D=24 K=77
latents=$((4 * 32 * 32 * 4))
how="generate --model $GOLDEN/flux --steps $STEPS --seed 3 --dtype f32"
how="$how -W 128 -H 128 --max_sequence_length $K"
forward=$((4 * (N + K) * D * STEPS)) back=$((4 * N * F * (STEPS - 1)))
alone -o "$T/flux.safetensors"
check "FLUX on one rank" [ "$rc" = 0 ]
plan "FLUX, pipefusion 4, all steps exact" "$T/flux.safetensors" --pipefusion_parallel_degree 4 \
    --warmup_steps $STEPS
alone --num_pipeline_patch 4 --patches_without_stages -o "$T/flux-patches.safetensors"
check "FLUX with patches on one rank" [ "$rc" = 0 ]
plan "FLUX, pipefusion 4" "$T/flux-patches.safetensors" --pipefusion_parallel_degree 4
STEPS=8
how="generate --model $T/model --steps $STEPS --seed 3 --dtype f32"
how="$how -W 256 -H 256 --no_resolution_binning"

# Messages in 8 bits between hosts: the bytes of f32 become a quarter and scales, the image stays
# near. Within a host, values are exchanged as they are.
for c in int8 fp8; do
    for p in "--pipefusion_parallel_degree 4 --warmup_steps $STEPS" "--ulysses_degree 4" \
        "--ulysses_degree 2 --ring_degree 2"; do
        s0=$(sent)
        ranks -n 4 "$XDIT" $how --prompt "a red circle" --quiet $p -o "$T/exact.png"
        s1=$(sent)
        ranks -n 4 "$XDIT" $how --prompt "a red circle" --quiet $p --comms $c -o "$T/coded.png"
        s2=$(sent)
        check "$c, $p: generated" [ "$rc" = 0 -a -s "$T/coded.png" ]
        check "$c, $p: at most four tenths of the bytes ($((s1 - s0)), $((s2 - s1)))" \
            [ $((s2 - s1)) -le $(((s1 - s0) * 4 / 10 + 200000)) ]
        try compare --json "$T/exact.png" "$T/coded.png"
        echo "# $c, $p: $out"
        least=$([ "$c" = fp8 ] && echo 25 || echo 35)
        check "$c, $p: near, not equal" json "$least <= j['psnr'] < 99"
        rm -f "$T/coded.png"
    done
done
for c in exact int8; do
    ranks -n 4 "$XDIT" $how --prompt "a red circle" --quiet --ulysses_degree 2 --use_cfg_parallel \
        --comms $c -o "$T/$c.safetensors"
done
check "inside a host messages are exact" same "$T/exact.safetensors" "$T/int8.safetensors"

# no WHAT PATTERN WORDS...: refused by one sentence with exit code 2, nothing generated.
no() {
    title=$1 pattern=$2
    shift 2
    ranks "$@"
    n=$(printf '%s\n' "$err" | grep -c '^xdit: ')
    if [ "$rc" = 2 ] && [ "$n" = 1 ] && said "^xdit: .*$pattern" && [ -z "$out" ] &&
        [ ! -e "$T/x.safetensors" ]; then
        pass "$title"
    else
        fail "$title" "expected exit code 2 and one sentence with: $pattern"
    fi
}
job="$how --prompt circle --quiet --pipefusion_parallel_degree 4 -o $T/x.safetensors"
no "another version on the second host" "rank 2 on host two runs xdit 0.0.0.*rank 0 on host one" \
    -n 2 "$XDIT" $job : -n 2 "$OTHER" $job
no "another plan on the second host" \
    "rank 2 on host two was started with the plan pipefusion 2.*rank 0 with pipefusion 4" \
    -n 2 "$XDIT" $job : -n 2 "$XDIT" $job --pipefusion_parallel_degree 2
no "other stages on the second host" "rank 2 on host two .*stages 1.2.2.3.*with pipefusion 4" \
    -n 2 "$XDIT" $job : -n 2 "$XDIT" $job --attn_layer_num_for_pp 1,2,2,3
if XDIT_BF16=emulate "$XDIT" generate --model "$MODEL" --prompt circle --quiet --steps 1 --json \
    --dtype bf16 -o "$T/bf16.png" | grep -q '"dtype": "bf16"'; then
    no "another dtype on the second host" "rank 2 on host two computes in bf16.*in f32" \
        -n 2 "$XDIT" $job : -n 2 -x XDIT_BF16=emulate "$XDIT" $job --dtype bf16
else
    echo "# skipped: another dtype on the second host: this processor computes in f32 alone"
fi
no "other weights on the second host" \
    "rank 2 on host two keeps weights in int8.*in f32.*--weights_dtype" \
    -n 2 "$XDIT" $job : -n 2 "$XDIT" $job --weights_dtype int8
# The last byte of the weights: exponents of the last tensor's last number.
file=$T/b/transformer/diffusion_pytorch_model.safetensors
printf '\125' | dd of="$file" bs=1 seek=$(($(wc -c <"$file") - 1)) conv=notrunc 2>/dev/null
check "a byte was changed on the second host" \
    [ "$(cmp -l "$file" "$T/model/transformer/diffusion_pytorch_model.safetensors" | wc -l)" = 1 ]
no "another weight file on the second host" "model of rank 2 on host two.*differ" -n 4 "$XDIT" $job
cp "$MODEL/transformer/diffusion_pytorch_model.safetensors" "$file"
sed 's/"steps_offset": 0/"steps_offset": 1/; s/^{/{ /' "$MODEL/scheduler/scheduler_config.json" \
    >"$T/b/scheduler/scheduler_config.json"
no "another scheduler on the second host" "model of rank 2 on host two.*differ" -n 4 "$XDIT" $job
cp "$MODEL/scheduler/scheduler_config.json" "$T/b/scheduler/scheduler_config.json"
mv "$file" "$T/away"
ranks -n 4 "$XDIT" $job
check "weights that the second host has not: it says so" [ "$rc" = 1 -a "$(printf '%s\n' "$err" |
    grep -c '^xdit: rank 2: .*transformer')" = 1 ]
mv "$T/away" "$file"
# The second host loads while the first encodes.
for rank in 2 3; do
    ranks -n 4 -x XDIT_FAULT=$rank:read:2 "$FAULT" $job
    check "weights that rank $rank cannot read: it says so" \
        [ "$rc" = 1 -a "$(printf '%s\n' "$err" |
        grep -c "^xdit: rank $rank: .*tensor .* cannot be read")" = 1 -a ! -e "$T/x.safetensors" ]
done
ranks -n 4 "$XDIT" $job
check "and all is well again" [ "$rc" = 0 -a -s "$T/x.safetensors" ]

# The program starts ranks on both hosts by itself, and the network between them fails.
mkdir "$T/c"
( export OMPI_MCA_orte_default_hostfile="$T/hostfile" OMPI_MCA_plm_rsh_agent="$T/bin/agent" \
    OMPI_MCA_oob_tcp_if_include=eth-x OMPI_MCA_btl_tcp_if_include=eth-x XDIT_MPIRUN="$MPIRUN"
  exec timeout 120 "$T/bin/on" one "$XDIT" generate --model "$T/model" --prompt "a red circle" \
      --steps 1000 \
    --num_images_per_prompt 50 -W 128 -H 128 --no_resolution_binning --nproc 4 \
    --pipefusion_parallel_degree 4 -o "$T/c/x.png" ) >"$T/stdout" 2>"$T/stderr" </dev/null &
pid=$! n=0
while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
check "the program starts ranks on two hosts" grep -q '^denoise' "$T/stderr"
ip -n "$A" link set eth-x down
at=$(date +%s)
wait "$pid"
rc=$? took=$(($(date +%s) - at)) out=$(cat "$T/stdout") err=$(cat "$T/stderr")
echo "# a cut link: ended after $took s"
check "a cut link: an error within 40 s" [ "$rc" = 1 -a "$took" -le 40 ]
check "a cut link: one sentence names the host" \
    [ "$(grep -c '^xdit: lost the connection to host 10.213.77.2' "$T/stderr")" = 1 ]
check "a cut link: no rank is left on either host" sh -c '
    n=0
    while [ -n "$(ip netns pids "$1")$(ip netns pids "$2")" ] && [ "$n" -lt 150 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    [ "$n" -lt 150 ]' x "$A" "$B"

# The same with an mpirun that a person typed: it waits for minutes, rank 0 does not.
ip -n "$A" link set eth-x up
sleep 1
ranks -n 4 "$XDIT" $how --prompt circle --quiet --pipefusion_parallel_degree 4 \
    -o "$T/again.safetensors"
check "the link is there again" [ "$rc" = 0 ]
for plan in "--pipefusion_parallel_degree 4" "--ulysses_degree 2 --use_cfg_parallel"; do
    rm -f "$T/stderr"
    ranks -n 4 "$XDIT" generate --model "$T/model" --prompt "a red circle" --steps 1000 \
        --num_images_per_prompt 50 -W 128 -H 128 --no_resolution_binning $plan \
        -o "$T/c/x.png" &
    pid=$! n=0
    while ! grep -q '^denoise' "$T/stderr" 2>/dev/null && [ "$n" -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    ip -n "$A" link set eth-x down
    n=0
    while ! grep -q '^xdit: rank' "$T/stderr" && [ "$n" -lt 400 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    echo "# a cut link under mpirun: said after $n tenths of a second"
    check "under mpirun rank 0 says which host is lost: $plan" \
        grep -q '^xdit: rank 0: lost the connection to host 10.213.77.2' "$T/stderr"
    for p in $(ip netns pids "$A") $(ip netns pids "$B"); do kill -s KILL "$p" 2>/dev/null; done
    wait "$pid"
    ip -n "$A" link set eth-x up
    sleep 1
done
done_testing

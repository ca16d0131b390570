#!/bin/sh
# cuda_plan.sh XDIT ROOT SIM - a GPU that is probed, and plans of one rank a GPU, on the simulated
# GPU and where there is none. Rates are not looked at.
. "$(dirname "$0")/lib.sh"
SIM=$(cd "$3" && pwd)
export XDIT_CUDA_DIR="$SIM" XDG_CACHE_HOME="$T/cache"
mkdir "$T/none"

# file FILE EXPRESSION: is it true of the machine file, or of the plans in JSON?
file() {
    python3 -c '
import json, sys
doc = json.load(open(sys.argv[1]))
sys.exit(not eval("(" + sys.argv[2] + ")", {**doc, "all": all, "doc": doc}))' "$1" "$2"
}
positive="all(r[k] > 0 for r in (f32, bf16) for k in ('gemm_flops', 'attention_flops_64',
    'attention_flops_128', 'convolution_flops', 'memory_bandwidth', 'norm_bandwidth',
    'call_seconds', 'group_norm_bandwidth', 'activation_bandwidth', 'int8_speedup', 'fp8_speedup'))"

XDIT_SIM_MEMORY=320000000 try probe --device cuda --output "$T/one.json"
check "the gain of e4m3 on both sides" file "$T/one.json" \
    "bf16['fp8_gemm_speedup'] > 0 and f32['fp8_gemm_speedup'] == 0"
check "a GPU is probed" [ "$rc" = 0 -a "$out" = "$T/one.json" ]
check "its rates" file "$T/one.json" "($positive)"
check "its links to the host" file "$T/one.json" \
    "upload_bytes_per_second > 0 and download_bytes_per_second > 0"
check "its memory, less what libraries take" file "$T/one.json" "2e8 < memory <= 3.1e8"
check "a rank a GPU" file "$T/one.json" "(device, hosts, ranks_per_host, threads_per_rank,
    shared_weights, weight_cache) == ('cuda', 1, 1, 0, False, 0)"

# Plans of a machine that is not this one.
XDIT_CUDA_DIR=$T/none
plan() { try plan --model "$MODEL" --num_inference_steps 1 --dtype f32 "$@"; }
plan --machine "$T/one.json"
check "a plan where there is no GPU" eval '[ "$rc" = 0 ] && printf "%s\n" "$out" |
    grep -q "on 1 of 1 rank of .*, 1 x simulated GPU, f32"'
plan --cluster "$T/one.json" --json
printf '%s\n' "$out" >"$T/plan.json"
words='circle circle circle circle circle circle circle circle circle circle'    # more than count
words="$words $words $words $words $words $words $words $words $words $words $words $words $words"
XDIT_CUDA_DIR=$SIM XDIT_SIM_MEMORY=320000000 try generate --model "$MODEL" --prompt "$words" \
    --num_inference_steps 1 --dtype f32 --device cuda --verbose --output "$T/x.png"
check "its memory is what the GPU's plan says, and 10 MB of libraries" python3 -c '
import json, re, sys
peak = json.load(open(sys.argv[1]))["plans"][0]["peak"]
said = float(re.search(r"memory of cuda:0: ([0-9.]+) MB needed", sys.argv[2])[1])
sys.exit(not abs(said * 1e6 - (peak + 1e7)) <= 0.006 * said * 1e6)' "$T/plan.json" "$err"
check "and not the CPU's" eval 'plan --cluster H100 --json; printf "%s\n" "$out" >"$T/cpu.json"
    ! file "$T/cpu.json" "plans[0][\"peak\"] == $(python3 -c "import json
print(json.load(open(\"$T/plan.json\"))[\"plans\"][0][\"peak\"])")"'

# Streaming: a step takes at least its copies.
sed 's/\("upload_bytes_per_second": \)[0-9]*/\11000/' "$T/one.json" >"$T/slow.json"
plan --machine "$T/slow.json" --offload stream
check "what streaming costs is said" eval 'printf "%s\n" "$out" | grep -Eq \
    "^offload: plan 1 streams 38 MB per step from host memory, at least [0-9.e+]+ s at"'
plan --machine "$T/slow.json" --offload stream --json
printf '%s\n' "$out" >"$T/stream.json"
check "and is the time of a step" file "$T/stream.json" "plans[0]['step_s'] > 1e4"
plan --machine "$T/slow.json" --json
printf '%s\n' "$out" >"$T/held.json"
check "a GPU that holds the model streams nothing" file "$T/held.json" "plans[0]['step_s'] < 1e4"
sed 's/"memory": [0-9]*/"memory": 12000000/' "$T/slow.json" >"$T/small.json"
plan --machine "$T/small.json" --height 64 --width 64
check "a small GPU streams by itself" eval '[ "$rc" = 0 ] &&
    printf "%s\n" "$out" | grep -q "^offload: plan 1 streams"'
plan --machine "$T/small.json" --height 64 --width 64 --offload none
check "--offload none: what would fit" eval '[ "$rc" = 1 ] && said "what would fit: --offload auto"'
for name in A100 H100 H200 L40S RTX4090 RTX5090; do
    plan --cluster 2x$name --device cuda
    check "2 x $name" eval '[ "$rc" = 0 ] && printf "%s\n" "$out" | grep -q "on 2 of 2 ranks of 2x"'
done

# This machine.
refused "plans for this machine's GPUs, where there are none" 1 \
    "CUDA --cluster" \
    plan --model "$MODEL" --device cuda
refused "a probe without a driver" 1 "CUDA" probe --device cuda
refused "the machine of a GPU is no CPU's" 2 \
    "--device" \
    plan --model "$MODEL" --cluster "$T/one.json" --device cpu
XDIT_CUDA_DIR=$SIM
refused "a probe of no device" 2 "cuda:3" probe --device cuda:3
XDIT_SIM_VERSION=11080; export XDIT_SIM_VERSION
refused "a probe with an old driver" 1 "CUDA 11.8" \
    probe --device cuda
unset XDIT_SIM_VERSION
XDIT_SIM_CAPABILITY=75; export XDIT_SIM_CAPABILITY
refused "plans for an old GPU" 1 "7.5 8.0" \
    plan --model "$MODEL" --device cuda
unset XDIT_SIM_CAPABILITY
XDIT_SIM_DEVICES=2; export XDIT_SIM_DEVICES
plan --device cuda
check "a rank for each GPU, not probed" eval 'printf "%s\n" "$out" |
    grep -q "on 2 of 2 ranks of simulated GPU, not probed"'
refused "more ranks than GPUs" 2 "3 2" \
    plan --model "$MODEL" --device cuda --world 3
try probe --device cuda
check "a probe for this machine" eval '[ "$rc" = 0 ] && case $out in
    "$XDG_CACHE_HOME"/xdit/machine-*-1xcuda.json) ;; *) false ;; esac'
plan --device cuda:0
check "cuda:0 is what was probed" eval 'printf "%s\n" "$out" | grep -q "as measured by xdit probe"'
plan
check "plans for the CPU do not take it" eval '! printf "%s\n" "$out" | grep -q "as measured by"'

if [ -n "${XDIT_NO_MPI-}" ] || "$XDIT" probe --ranks 2 --threads 1 --output "$T/cpu.json" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "# skipped: there is no MPI to start several ranks with"
    done_testing
    exit 0
fi
try probe --device cuda --ranks 2 --output "$T/two.json"
check "two GPUs, and messages between them" file "$T/two.json" "ranks_per_host == 2 and
    ($positive) and inside['latency_seconds'] > 0 and inside['bandwidth'] > 0 and
    0 <= inside['overlap'] <= 1"
refused "three ranks and two GPUs" 2 "3 ranks" \
    probe --device cuda --ranks 3
plan --machine "$T/two.json"
check "plans of two GPUs" eval 'printf "%s\n" "$out" | grep -q ", 2 x simulated GPU, f32"'
try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 1 --height 32 --width 32 \
    --device cuda --nproc 2 --output "$T/two.png"
check "generate chooses a plan for two GPUs" eval '[ "$rc" = 0 ] && said "plan: .*2 ranks"'
done_testing

#!/bin/sh
# cuda.sh XDIT ROOT SIM - the device cuda on the simulated GPU whose libraries lie in SIM: an image,
# and what is refused.
. "$(dirname "$0")/lib.sh"
SIM=$(cd "$3" && pwd)
export XDIT_CUDA_DIR="$SIM"

small() {
    try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 1 --height 32 \
        --width 32 --quiet "$@"
}

small --device cuda --dtype f32 --output "$T/a.png"
check "an image by the device cuda" [ "$rc" = 0 -a -s "$T/a.png" ]
small --device cuda --dtype float16 --output "$T/half.png"
check "f16 generates an image" test -s "$T/half.png"
XDIT_SIM_SEED=7 small --device cuda:0 --dtype f32 --output "$T/b.png"
check "another order of work gives the same image" cmp -s "$T/a.png" "$T/b.png"

# The GPU's own times, in a trace and in the profile of bench.
if command -v python3 >/dev/null; then
    small --device cuda --dtype f32 --num_inference_steps 2 --trace "$T/t.json" --output "$T/t.png"
    out=$(python3 "$ROOT/tests/cli/trace_check.py" "$T/t.json" 1 2 - 600 gemm 2>&1)
    check "a sound trace with the GPU's times" [ $? = 0 ]
    check "the GPU has slices" grep -q '"cat":"device","name":"gemm"' "$T/t.json"
fi
try bench --config "$MODEL" --random_weights --parts block --repeats 1 --height 32 --width 32 \
    --device cuda --dtype f32
check "bench has the GPU's times" eval 'printf "%s\n" "$out" |
    grep -Eq "gemm +6 calls +0*\.?0*[1-9][0-9.]* ms"'

# doctor: driver, GPUs, links, libraries and where they come from; or why there are none.
finds() { printf '%s\n' "$out" | grep -Eq -- "$1"; }
XDIT_SIM_DEVICES=2 try doctor --no_ranks
check "doctor names the driver and its file" finds "^ok +driver +CUDA 13.0, .*$SIM/libcuda.so.1$"
check "doctor names the GPUs" finds "^ok +gpu +cuda:1: simulated GPU, compute capability 9.0, "\
"85.9 GB of 85.9 GB free$"
check "doctor says whether GPUs reach each other" finds "^ok +peers +each of the 2 GPUs .*access"
check "doctor names cuBLASLt and its file" finds \
    "^ok +cublaslt +cuBLASLt 13.0.0, $SIM/libcublasLt.so.13$"
check "doctor names cuDNN and its file" finds "^ok +cudnn +cuDNN 9.19.0, $SIM/libcudnn.so.9$"
check "doctor names NCCL and its file" finds "^ok +nccl +NCCL 2.28.0, $SIM/libnccl.so.2$"
check "doctor says that no real card has run it" finds \
    "^ok +cuda +.*no real card has run this backend yet$"
check "so does the README" grep -q 'no real card has run it' "$ROOT/README.md"
XDIT_SIM_DEVICES=2 XDIT_SIM_NO_PEER=1 try doctor --no_ranks
check "GPUs that do not reach each other" finds \
    "peers +cuda:0 has no peer access to cuda:1.*host memory"
XDIT_SIM_CAPABILITY=75,90 XDIT_SIM_DEVICES=2 try doctor --no_ranks
check "an old GPU beside a usable one" eval '[ "$rc" = 0 ] && finds \
    "^warn +gpu +cuda:0: .*compute capability 7.5; xdit needs 8.0 or higher" &&
    finds "^ok +gpu +cuda:1: .*compute capability 9.0"'
XDIT_SIM_VERSION=11080 try doctor --no_ranks
check "an old driver" finds "gpu .*the CUDA driver is too old: it supports CUDA 11.8"
XDIT_SIM_DEVICES=0 try doctor --no_ranks
check "a driver without a GPU" finds "gpu .*there is a CUDA driver, but no GPU"
mkdir "$T/alone"
cp "$SIM/libcuda.so.1" "$T/alone"
XDIT_CUDA_DIR=$T/alone try doctor --no_ranks
check "a driver alone" eval 'finds "^warn +cublaslt +cuBLASLt cannot be loaded" &&
    finds "^ok +cudnn +cuDNN cannot be loaded.*attention uses kernels of xdit" &&
    finds "^ok +nccl +NCCL cannot be loaded"'

cp "$SIM/libcublasLt.so.13" "$T/alone"
cp "$SIM/libcublasLt.so.13" "$T/alone/libcublasLt.so.12"
for v in 12040 13000; do
    XDIT_CUDA_DIR=$T/alone XDIT_SIM_VERSION=$v try doctor --no_ranks
    check "the cuBLASLt of a driver of version $v" finds "/libcublasLt.so.${v%???}\$"
done

# inspect: what of the model the GPU holds, what is dropped, what is streamed.
holds() {
    want=$2
    XDIT_SIM_MEMORY=$1 try inspect "$MODEL"
    check "inspect on a GPU of $1 bytes" eval '[ "$rc" = 0 ] && finds "$want"'
}
holds 60000000 "^cuda:0 of 24.6 MB free: peak 12.5 MB; text encoders 1.01 MB, dropped after use; "\
"transformer 10.3 MB, dropped before the VAE; vae 2.43 MB, loaded after the transformer$"
holds 44000000 "transformer 6.71 MB with 6 of 8 blocks streamed; .*step copies 14.3 MB, at least "
holds 35000000 "^cuda:0: .* 7.5 MB .* 352 kB"
XDIT_SIM_MEMORY=44000000 try inspect "$MODEL" --json
printf '%s\n' "$out" >"$T/inspect.json"
check "the same as JSON" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))["device"]
assert d["name"] == "cuda:0" and d["fits"] and d["transformer_blocks_streamed"] == 6, d
assert d["peak"] <= d["free"] and d["apart"]' "$T/inspect.json"
XDIT_SIM_CAPABILITY=75 try inspect "$MODEL"
check "inspect and an old GPU" finds "^cuda:0 .* has compute capability 7.5"
XDIT_CUDA_DIR=$T/alone try inspect "$MODEL" --json
check "inspect without a GPU that works" eval '[ "$rc" = 0 ] && finds "\"fits\": false"'
XDIT_SIM_DEVICES=0 try inspect "$MODEL"
check "inspect without a GPU" eval '[ "$rc" = 0 ] && ! finds "cuda"'

# GEMMs in fp8, where the GPU and the weights have them.
gemms() {
    rm -f "$T/fp8.png"
    try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 1 --height 32 \
        --width 32 --device cuda --weights_dtype fp8 --gemm fp8 --json --output "$T/fp8.png" "$@"
}
unused="gemm fp8 has no effect on weights of"
gemms --dtype bf16
check "GEMMs in fp8" eval '[ "$rc" = 0 ] && finds "\"gemm\": \"fp8\"" && ! said "$unused"'
gemms --dtype f32
check "not in f32" eval '[ "$rc" = 0 ] && ! finds "\"gemm\"" && said "$unused fp8 on cuda:0 in f32"'
gemms --dtype bf16 --weights_dtype int8
check "nor of int8" eval '[ "$rc" = 0 ] && ! finds "\"gemm\"" && said "$unused int8 on cuda:0"'
XDIT_SIM_CAPABILITY=80 gemms --dtype bf16
check "nor on a GPU without them" eval '[ "$rc" = 0 ] && ! finds "\"gemm\"" && said "$unused fp8"'

# Their image beside that of f32: e4m3 on both sides costs a few dB more than weights alone.
exact() {
    try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 4 --guidance_scale 1 \
        --height 64 --width 64 --device cuda --quiet "$@"
}
psnr() { try compare "$T/exact.png" "$1" --json; printf '%s\n' "$out" | grep -q "\"psnr\": $2"; }
exact --dtype f32 --output "$T/exact.png"
exact --dtype bf16 --weights_dtype fp8 --gemm fp8 --output "$T/narrow.png"
check "an image of fp8 GEMMs has 35 dB or more" psnr "$T/narrow.png" "\(3[5-9]\|4[0-9]\)[.]"

# Without --device: a GPU that can be used, else the CPU; a GPU that cannot be used hinders nothing.
chosen() { try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 1 --dtype f32 \
    --verbose --output "$T/auto.safetensors" "$@"; }
tiny="--height 32 --width 32"
# shellcheck disable=SC2086
{
    chosen $tiny
    check "a GPU is chosen" eval '[ "$rc" = 0 ] && said "device: cuda:0 .--device cpu"'
    chosen $tiny --device cpu
    check "--device cpu takes the CPU" eval '[ "$rc" = 0 ] && said "device cpu-" && ! said "cuda"'
    for why in "VERSION=11080 driver is too old" "CAPABILITY=75 compute capability 7.5" \
        "DEVICES=0 but no GPU"; do
        export "XDIT_SIM_${why%% *}"
        chosen $tiny
        check "the CPU computes: ${why#* }" eval \
            '[ "$rc" = 0 ] && said "the CPU computes: .*${why#* }" && said "device cpu-"'
        unset "XDIT_SIM_${why%%=*}"
    done
    XDIT_SIM_MEMORY=36000000; export XDIT_SIM_MEMORY
    chosen $tiny
    check "the CPU computes what the GPU does not hold" eval \
        '[ "$rc" = 0 ] && said "CPU: the request needs .* of the memory of cuda:0"'
    unset XDIT_SIM_MEMORY
}

set -- generate --model "$MODEL" --prompt x --quiet --output "$T/c.png" --device
refused "a number beyond the GPUs" 2 "cuda:3 1 GPU" "$@" cuda:3
refused "no number" 2 "\"cuda:x\"" "$@" cuda:x
XDIT_SIM_CAPABILITY=75,90; export XDIT_SIM_CAPABILITY
refused "the first of two GPUs is too old" 1 "cuda:0 7.5" "$@" cuda
unset XDIT_SIM_CAPABILITY
XDIT_SIM_VERSION=11080; export XDIT_SIM_VERSION
refused "an old driver" 1 "CUDA 11.8 12.0" "$@" cuda
unset XDIT_SIM_VERSION
XDIT_SIM_CAPABILITY=75; export XDIT_SIM_CAPABILITY
refused "an old GPU" 1 "7.5 8.0" "$@" cuda
unset XDIT_SIM_CAPABILITY
XDIT_SIM_DEVICES=0; export XDIT_SIM_DEVICES
refused "no GPU" 1 "CUDA GPU" "$@" cuda
unset XDIT_SIM_DEVICES
XDIT_SIM_MEMORY=40000000; export XDIT_SIM_MEMORY
refused "a GPU with too little memory" 1 \
    "1[0-9.]* cuda:0 6.45 --offload auto" \
    "$@" cuda --offload none
XDIT_SIM_MEMORY=33000000
refused "a GPU with no memory for the workspace" 1 "cuda:0" "$@" cuda
unset XDIT_SIM_MEMORY

mkdir "$T/none" "$T/driver" "$T/libraries"
cp "$SIM/libcuda.so.1" "$T/driver"
cp "$SIM/libcuda.so.1" "$SIM/libcublasLt.so.13" "$T/libraries"
XDIT_CUDA_DIR=$T/none
refused "no driver" 1 "CUDA" "$@" cuda
XDIT_CUDA_DIR=$T/libraries
refused "no kernels" 1 "kernels" "$@" cuda
if said "made without nvcc"; then
    echo "# skipped: a driver older than the kernels, this build has none"
else
    export XDIT_SIM_VERSION=12000
    # kernels of CUDA 11 suit that driver, and the stand-in loads none
    refused "a driver older than the kernels" 1 "driver|kernels newer|loaded" "$@" cuda
    if said "made by CUDA 1[3-9]"; then
        try doctor --no_ranks
        check "doctor says so" finds \
            "^warn +gpu +the kernels .*supports CUDA 12\.0: .*newer driver.* older nvcc .-Dnvcc.; "
    fi
    unset XDIT_SIM_VERSION
fi
cp "$SIM/xdit_kernels.so" "$T/driver"
XDIT_CUDA_DIR=$T/driver
refused "no cuBLASLt" 1 "cuBLASLt" "$@" cuda

# Several ranks: a GPU for each, or one for all.
XDIT_CUDA_DIR=$SIM
small --nproc 2 --output "$T/cpu.png"
if said 'has no MPI|install the package'; then
    echo "# skipped: several ranks, there is no MPI to start them with"
else
    # shellcheck disable=SC2086
    chosen $tiny --nproc 2 --ulysses_degree 2
    check "the CPU computes: two ranks and one GPU" eval \
        '[ "$rc" = 0 ] && said "the CPU computes: 2 ranks .* there is 1"'
    set -- "$@" cuda --nproc 2 --ulysses_degree 2
    refused "two ranks and one GPU" 2 \
        "2 1 --device cuda:0" "$@"
    XDIT_SIM_DEVICES=2; export XDIT_SIM_DEVICES
    # shellcheck disable=SC2086
    chosen $tiny --nproc 2 --ulysses_degree 2
    check "two GPUs are chosen" eval '[ "$rc" = 0 ] && said "device: cuda:0"'
    XDIT_SIM_MEMORY=36000000; export XDIT_SIM_MEMORY
    # shellcheck disable=SC2086
    chosen $tiny --nproc 2 --ulysses_degree 2
    check "two ranks go to the CPU together" eval \
        '[ "$rc" = 0 ] && said "CPU: the req"'
    unset XDIT_SIM_MEMORY
    small --device cuda --dtype f32 --nproc 2 --ulysses_degree 2 --output "$T/two.png"
    check "two ranks on two GPUs" [ "$rc" = 0 -a -s "$T/two.png" ]
    XDIT_SIM_CAPABILITY=90,75; export XDIT_SIM_CAPABILITY
    refused "the second rank takes the second GPU" 1 "cuda:1 7.5" "$@"
    small --device cuda:0 --dtype f32 --nproc 2 --ulysses_degree 2 --output "$T/one.png"
    check "two ranks share a GPU" [ "$rc" = 0 ]
    check "two ranks share a GPU: the same image" cmp -s "$T/one.png" "$T/two.png"
    unset XDIT_SIM_CAPABILITY
    # goes WAY: messages go that way, and --verbose says it.
    goes() {
        try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 1 --height 32 \
            --width 32 --verbose --device cuda --dtype f32 --nproc 2 --ulysses_degree 2 \
            --output "$T/way.png"
        check "messages between devices: $1" said "messages between devices: .*$1"
        check "the same image: $1" cmp -s "$T/way.png" "$T/two.png"
        case $1 in *staged*) ;; *) planned "$1" ;; esac
    }
    # planned WHAT [LEAST]: messages have taken no more of the GPU than was planned, and more than
    # so many bytes.
    planned() {
        check "the memory of messages is planned: $1" python3 -c '
import re, sys
took, plan = map(int, re.search(
    r"messages have used (\d+) bytes.*; (\d+) were predicted", sys.argv[1]).groups())
assert int(sys.argv[2]) < took <= plan < 40 * took, (took, plan)' "$err" "${2-0}"
    }
    goes NCCL
    XDIT_DEVICE_MESSAGES=ipc; export XDIT_DEVICE_MESSAGES
    goes "\(ipc\)"
    for plan in ring_degree tensor_parallel_degree pipefusion_parallel_degree; do
        XDIT_SIM_SEED=3 try generate --model "$MODEL" --prompt "a circle" --verbose \
            --num_inference_steps 2 --height 64 --width 64 --device cuda --nproc 2 --$plan 2 \
            --output "$T/plan.png"
        planned "$plan" 2097152
    done
    unset XDIT_DEVICE_MESSAGES
    # Without NCCL, and in containers that may not open each other's memory.
    mkdir "$T/bare"
    cp "$SIM"/libcuda.so.1 "$SIM"/libcublasLt.so.13 "$SIM"/xdit_kernels.so "$T/bare"
    XDIT_CUDA_DIR=$T/bare
    goes "\(ipc\); no links: a rank has no NCCL"
    XDIT_SIM_NO_IPC=1; export XDIT_SIM_NO_IPC
    goes "\(staged\): a rank cannot open another rank's memory"
    unset XDIT_SIM_NO_IPC
    XDIT_CUDA_DIR=$SIM
    XDIT_DEVICE_MESSAGES=staged; export XDIT_DEVICE_MESSAGES
    goes "\(staged\): XDIT_DEVICE_MESSAGES"
    unset XDIT_DEVICE_MESSAGES XDIT_SIM_DEVICES
    XDIT_SIM_MEMORY=56000000; export XDIT_SIM_MEMORY
    small --device cuda --dtype f32 --output "$T/small.png"
    check "one rank in 56 MB" [ "$rc" = 0 ]
    refused "two ranks that share 56 MB" 1 \
        "cuda:0 2 ranks available" \
        generate --model "$MODEL" --prompt x --num_inference_steps 1 --height 32 --width 32 \
        --quiet --output "$T/c.png" --device cuda:0 --dtype f32 --nproc 2 --ulysses_degree 2 \
        --offload none
    unset XDIT_SIM_MEMORY
fi
done_testing

#!/usr/bin/env bash
# gpu_check.sh - what a real GPU has to show, the most valuable first
#
#   tools/gpu_check.sh bundle BUILD DIR             before: programs, kernels, libraries into DIR
#   tools/gpu_check.sh [--bundle DIR | --build DIR] [--out DIR] [--dry-run] [PART ...]
#
# Parts, each within ten minutes: ops, images, speed, steps (default: all). Nothing is downloaded.
# The machine needs bash, python3, a driver and cuBLASLt (of the toolkit or of a wheel, which
# LD_LIBRARY_PATH or CUDA_HOME names or python3 finds); without a bundle all that a build needs,
# too. What needs mpirun, PyTorch with a GPU, diffusers, compute-sanitizer or ncu is skipped, and
# said to be, where that is not there.
#
# Without --bundle and --build the tree is built here. --dry-run takes the simulated GPU of a build
# and small sizes. $OUT (--out) gets a log of each part, at most 15 MB, and results.txt: a line for
# each check, "ok", "FAILED", "late" or "skipped", its part, its seconds and its name. Fails when a
# check failed or was late.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-}
build='' bundle='' dry='' parts=''
programs='app/xdit bench/step tests/ops/ops_cuda tests/ops/ops_attn_cuda
    tests/golden/test_golden_cuda'

die() { echo "gpu_check.sh: $*" >&2; exit 2; }

# ---- a bundle: programs with all their libraries and the loader, for a machine without them ------

make_bundle() {
    local from=$1 to=$2 p
    ninja -C "$from" $programs tests/golden/full.stamp || die "the build fails"
    mkdir -p "$to/lib" "$to/tests/golden" || die "no folder $to"
    for p in $programs; do
        mkdir -p "$to/$(dirname "$p")"
        cp "$from/$p" "$to/$p"
        strip "$to/$p"
        ldd "$from/$p" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p'
    done | sort -u | while read -r p; do cp -L "$p" "$to/lib/"; done
    cp "$from/src/backend/cuda/kernels.fatbin" "$to/" 2>/dev/null ||
        echo "this build has no kernels (no nvcc)"
    cp -r "$from/tests/golden/full" "$to/tests/golden/"
    du -sh "$to"
}

# The command line of a program of the bundle or of the build.
program() {
    if [ -n "$bundle" ]; then
        echo "$(echo "$bundle"/lib/ld-linux*) --library-path $bundle/lib:${LD_LIBRARY_PATH:-}" \
            "$bundle/$1"
    else
        echo "$build/$1"
    fi
}

# ---- checks --------------------------------------------------------------------------------------

line() { printf '%-8s %-7s %5s s  %s\n' "$@" | tee -a "$out/results.txt"; }
skip() { line skipped "$part" 0 "$1: $2"; }

# check NAME SECONDS COMMAND...: at most so many seconds, and no more than the part has left.
check() {
    local name=$1 most=$2 begin=$SECONDS left rc
    shift 2
    left=$((ends - SECONDS))
    [ "$most" -gt "$left" ] && most=$left
    if [ "$most" -lt 1 ]; then
        skip "$name" "no time is left"
        return 0
    fi
    echo "== $name: $*" >>"$log"
    timeout -k 5 "$most" bash -c '"$@"' check "$@" >"$out/now" 2>&1
    rc=$?
    head -c 2000000 "$out/now" >>"$log"
    rm -f "$out/now"
    case $rc in
    0) line ok "$part" $((SECONDS - begin)) "$name" ;;
    124 | 137) failed=1; line late "$part" $((SECONDS - begin)) "$name" ;;
    *) failed=1; line FAILED "$part" $((SECONDS - begin)) "$name (exit $rc)" ;;
    esac
    return $rc
}

small() { [ -n "$dry" ] && echo "$1" || echo "$2"; }

# In a bundle the doctor cannot start ranks of itself.
found() { "$@" doctor || [ -n "$bundle" ]; }

image() {
    local name=$1
    shift
    "$@" generate --model "$root/models/demo-pixart" --prompt "a circle" --seed 1 --quiet \
        --output "$out/$name.png" --num_inference_steps "$(small 1 20)" \
        --height "$(small 32 256)" --width "$(small 32 256)" $more
}

# An image by the GPU against the same by the processor.
near() {
    local name=$1 db=$2
    shift 2
    rm -f "$out/$name.png"
    image "$name" "$@" && python3 "$root/tools/psnr.py" "$out/cpu.png" "$out/$name.png" "$db"
    local rc=$?
    rm -f "$out/$name.png"
    return $rc
}

# The image of a family's tiny model by the processor and by the GPU, both in f32.
family() {
    local name=$1 device rc=0
    shift
    for device in cpu cuda; do
        "$@" generate --model "$full/$name" --prompt "a circle" --seed 1 --quiet --dtype f32 \
            --device $device --output "$out/$device-$name.png" --no_resolution_binning $more \
            --num_inference_steps "$(small 1 8)" --height "$(small 32 256)" \
            --width "$(small 32 256)" || rc=1
    done
    [ $rc = 0 ] &&
        python3 "$root/tools/psnr.py" "$out/cpu-$name.png" "$out/cuda-$name.png" 60 || rc=1
    rm -f "$out/cpu-$name.png" "$out/cuda-$name.png"
    return $rc
}

# ---- parts ---------------------------------------------------------------------------------------

part_ops() {
    if command -v nvidia-smi >/dev/null; then
        check "the machine" 30 nvidia-smi
        check "links" 30 nvidia-smi topo -m
    else
        skip nvidia-smi "not on this machine"
    fi
    check "what xdit finds" 60 found $xdit
    check "the programs of this part are there" 5 test -x "${ops##* }" -a -x "${attn##* }"
    if [ -n "$dry" ]; then              # these tests alone take minutes of a simulated GPU
        local attn="$xdit doctor" ops="$xdit doctor"
    fi
    check "tests of attention" 200 $attn
    check "tests of ops" 200 $ops
    if ! command -v compute-sanitizer >/dev/null; then
        skip compute-sanitizer "not on this machine"
        return
    fi
    for tool in memcheck racecheck synccheck; do
        check "attention under $tool" 120 compute-sanitizer --tool $tool --error-exitcode 9 \
            --target-processes all $attn
    done
    check "ops under memcheck" 150 compute-sanitizer --tool memcheck --error-exitcode 9 \
        --target-processes all $ops
}

part_images() {
    local golden flags name
    golden=$root/tests/golden
    full=$(realpath "${bundle:-$build}/tests/golden/full")
    local cfg='--guidance_scale 4'
    more="--dtype f32 --device cpu $cfg" check "the processor's image" 60 image cpu $xdit
    more="--dtype f32 --device cuda $cfg" check "an image in f32" 60 near f32 60 $xdit
    more="--dtype bf16 --device cuda $cfg" check "an image in bf16" 60 near bf16 20 $xdit
    for name in alpha $(small '' 'flux sd3 hunyuan12 flux2-base') zimage; do
        more='' check "$name in f32, 60 dB from the processor's" 60 family $name $xdit
    done
    more="--image $golden/kontext/image.png --no_auto_resize --max_area $(small 1024 65536)"
    more="$more --max_sequence_length 16"
    check "kontext in f32, 60 dB from the processor's" 60 family kontext $xdit
    check "goldens" "$(small 100 300)" $(program tests/golden/test_golden_cuda) "$golden" "$full" \
        $(small micro '')
    if [ -z "$mpirun" ]; then
        skip "two ranks on one GPU" "no mpirun"
    else
        for flags in $(small --ulysses_degree=2 \
            '--ulysses_degree=2 --ring_degree=2 --tensor_parallel_degree=2
             --pipefusion_parallel_degree=2 --use_cfg_parallel'); do
            more="--dtype f32 --device cuda:0 $cfg $flags"
            more=${more/=/ }
            check "two ranks on one GPU, ${flags#--}" 60 near ranks 60 $mpirun -n 2 $xdit
        done
    fi
    rm -f "$out/cpu.png"
}

part_speed() {
    local models=$out/models
    if ! python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
        skip "PyTorch's GEMM, attention and convolution" "no PyTorch with a GPU"
    else
        check "PyTorch's GEMM, attention and convolution" 200 python3 "$root/bench/torch_cuda.py"
    fi
    python3 "$root/bench/models.py" "$models" >>"$log" || die "bench/models.py fails"
    if [ -n "$dry" ]; then
        check "a step of the demo" 100 $step "$root/models/demo-pixart" --device cuda --width 32 \
            --height 32 --repeats 1 --layers 1
    else
        check "parts of PixArt 1024" 120 $xdit bench --config "$models/PixArt-XL-2-1024-MS" \
            --random_weights --device cuda --dtype bf16
        check "parts of FLUX.1 1024" 150 $xdit bench --config "$models/FLUX.1-dev" \
            --random_weights --device cuda --dtype bf16 --layers 2,4 --width 1024 --height 1024
    fi
    rm -rf "$models"
}

# The rows of bench/torch_step.py: model, part, width, height, more flags.
rows='PixArt-XL-2-512x512 step 512 512
PixArt-XL-2-1024-MS step 1024 1024
FLUX.1-dev step 1024 1024 --layers 2,4
CogVideoX-5b step 720 480 --num_frames 49 --layers 1
FLUX.1-dev step 512 512 --layers 2,4
FLUX.1-dev vae 1024 1024
HunyuanDiT-v1.2 step 1024 1024 --layers 8
PixArt-XL-2-512x512 text 512 512 --layers 4'

part_steps() {
    local models=$out/models model part_of w h flags
    python3 "$root/bench/models.py" "$models" >>"$log" || die "bench/models.py fails"
    [ -n "$dry" ] && rows='PixArt-XL-2-512x512 step 32 32 --layers 1 --max_sequence_length 8'
    if [ -z "$dry$bundle" ] && python3 -c 'import torch, diffusers, transformers' 2>/dev/null; then
        check "steps beside PyTorch's" 400 python3 "$root/bench/torch_step.py" \
            pixart-1024 flux-1024 cogvideox-5b pixart-512 vae-1024 hunyuan-1024 t5-512 \
            --pair "$step" --device cuda --markdown --resume "$out/rows.json"
    else
        skip "steps beside PyTorch's" "needs a build, PyTorch and diffusers here"
    fi
    while read -r model part_of w h flags; do
        check "$model, $part_of, $w x $h" 90 $step "$models/$model" --part "$part_of" --width "$w" \
            --height "$h" $flags --device cuda --dtype bf16 $(small '--repeats 1' '')
    done <<<"$rows"
    if ! command -v ncu >/dev/null; then
        skip "profile of FLUX.1's blocks" "no ncu on this machine"
    elif [ -n "$dry" ]; then
        check "profile of a step" 60 ncu --set basic --launch-count 40 --clock-control none \
            --target-processes all $xdit doctor
    else
        check "profile of FLUX.1's blocks" 120 ncu --set basic --launch-count 40 \
            --clock-control none --target-processes all $step "$models/FLUX.1-dev" --layers 1,1 \
            --width 1024 --height 1024 --device cuda --dtype bf16 --repeats 1
    fi
    rm -rf "$models"
}

# ---- the program ---------------------------------------------------------------------------------

if [ "${1-}" = bundle ]; then
    [ $# = 3 ] || die "bundle BUILD DIR"
    make_bundle "$2" "$3"
    exit
fi
while [ $# -gt 0 ]; do
    case $1 in
    --bundle) bundle=$(realpath "$2") && shift ;;
    --build) build=$(realpath "$2") && shift ;;
    --out) out=$2 && shift ;;
    --dry-run) dry=1 ;;
    ops | images | speed | steps) parts="$parts $1" ;;
    *) die "$1? parts are ops, images, speed, steps" ;;
    esac
    shift
done
command -v python3 >/dev/null || die "there is no python3"
[ -n "$out" ] || die "where do results go? --out DIR, or \$OUT"
mkdir -p "$out" && out=$(cd "$out" && pwd)
if [ -z "$bundle$build" ]; then
    build=$root/build-gpu
    { [ -f "$build/build.ninja" ] || meson setup "$build" "$root" --buildtype=release; } &&
        ninja -C "$build" $programs tests/golden/full.stamp || die "the tree does not build here"
fi
if [ -n "$dry" ]; then
    [ -n "$build" ] || die "--dry-run needs --build: the simulated GPU is a part of it"
    export XDIT_CUDA_DIR=$build/tests/sim
else
    for d in "${CUDA_HOME:-/usr/local/cuda}/lib64" $(python3 -c 'import sys, glob
for p in sys.path: print(*glob.glob(p + "/nvidia/*/lib"))' 2>/dev/null); do
        ls "$d"/libcublasLt.so.1[23] >/dev/null 2>&1 &&
            export LD_LIBRARY_PATH=$d:${LD_LIBRARY_PATH:-}
    done
    if [ -n "$bundle" ]; then           # the carried loader knows no cache of the machine's
        driver=$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -n 1)
        driver=$(dirname "${driver:-/usr/local/nvidia/lib64/x}")
        export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}:$driver
    fi
fi
export OMP_WAIT_POLICY=passive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export -f found image near small family
export out root dry bundle more= full=
xdit=$(program app/xdit) step=$(program bench/step)
ops=$(program tests/ops/ops_cuda) attn=$(program tests/ops/ops_attn_cuda)
mpirun=$(command -v mpirun.openmpi || command -v mpirun || true)
[ -n "$mpirun" ] && mpirun="$mpirun --oversubscribe --bind-to none"
failed=0
: >"$out/results.txt"
for part in ${parts:-ops images speed steps}; do
    log=$out/$part.log
    : >"$log"
    ends=$((SECONDS + $(small 200 560)))
    "part_$part"
    truncate -s '<15000000' "$log"
done
exit $failed

#!/usr/bin/env bash
# gpu_check.sh - what a real GPU has to show, within minutes and on a machine with a driver alone
#
#   tools/gpu_check.sh pack BUILD FILE             where it builds: FILE (.tar.xz, about 12 MB)
#   tools/gpu_check.sh first SECONDS [--package FILE] [--out DIR]       where the GPU is
#   tools/gpu_check.sh second SECONDS [--package FILE] [--out DIR]
#   tools/gpu_check.sh two SECONDS [--package FILE] [--out DIR]         where two GPUs are
#
# `first`: is every kernel right, how fast are products, attention and parts of models beside
# PyTorch's kernels on the same card, are images those of the processor. `second`: profiles, steps
# beside diffusers, races. `two`: images by two ranks of a GPU each. They run in the tree whose
# `pack` made FILE (default: .gpu/pack.tar.xz) and end within SECONDS. Nothing ends them early: a
# check that fails runs again with waits behind each launch, and its last lines are printed. A table
# of all checks is printed last. --out DIR ($OUT) gets table.txt, log.txt, env.txt, clocks.csv and
# rest.tgz.
#
# The machine needs bash, python3, tar with xz, a driver, and cuBLASLt in a wheel that python3
# finds, in CUDA_HOME or in LD_LIBRARY_PATH. PyTorch with a GPU, diffusers, mpirun, ncu and
# compute-sanitizer are used where they are. With XDIT_CUDA_DIR, which names the simulated GPU of a
# build, sizes are small.
#
# A build for it: meson setup BUILD --buildtype=release -Dvideo=disabled
# -Dserver=disabled -Dfetch=disabled, or any other one. With MPI in it the package holds Open MPI.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
programs='app/xdit bench/step bench/products tests/ops/ops_cuda tests/ops/ops_attn_cuda
    tests/golden/test_golden_cuda tests/golden/fill'
P=${TMPDIR:-/tmp}/xdit-gpu-check.$UID          # where a package is unpacked
simulated=${XDIT_CUDA_DIR:-}

die() { echo "gpu_check.sh: $*" >&2; exit 2; }
small() { [ -n "$simulated" ] && echo "$1" || echo "$2"; }

# Images: name, least PSNR in f32 and in bf16, folder of the model and flags. The processor's are
# made by `pack`.
images() {
    local d=models/demo-pixart g size steps
    size=$(small 32 256) steps=$(small 1 20)
    echo "demo 60 25 $d --guidance_scale 4 --num_inference_steps $steps" \
        "--height $size --width $size"
    size=$(small 32 96) steps=$(small 1 4)
    for g in alpha zimage $(small '' 'flux sd3 hunyuan12 flux2-base chroma qwen lumina2 sana-sprint
        auraflow'); do
        echo "$g 60 20 full/$g --no_resolution_binning --num_inference_steps $steps" \
            "--height $size --width $size"
    done
    echo "kontext 60 20 full/kontext --image tests/golden/kontext/image.png --no_auto_resize" \
        "--max_area $(small 1024 16384) --max_sequence_length 16 --num_inference_steps $steps"
}

# image XDIT FULL DEVICE TYPE FILE MODEL FLAGS...: one line of `images`, made.
image() {
    local xdit=$1 full=$2 device=$3 type=$4 to=$5 model=$6
    shift 6
    case $model in full/*) model=$full/${model#full/} ;; esac
    (cd "$root" && "$xdit" generate --model "$model" --prompt "a circle" --seed 1 --quiet \
        --device "$device" --dtype "$type" --output "$to" "$@")
}

# ---- a package -----------------------------------------------------------------------------------

# Open MPI and what it loads, for machines without one; `ready_mpi` tells it where that lies.
carry_mpi() {
    local libs data pmix
    libs=$(ompi_info --path pkglibdir | sed 's/.*: //') &&
        data=$(ompi_info --path pkgdatadir | sed 's/.*: //') || return 1
    mkdir -p "$w/mpi/bin" "$w/mpi/${libs#/usr/}" "$w/mpi/share" &&
        cp -L "$(command -v mpirun.openmpi || command -v mpirun)" "$w/mpi/bin/mpirun" &&
        cp -L "$(command -v orted)" "$w/mpi/bin/" && cp -rL "$data" "$w/mpi/share/" &&
        cp -L "$libs"/*.so "$w/mpi/${libs#/usr/}/" || return 1
    for pmix in "${libs%/openmpi/*}"/pmix2; do
        [ -d "$pmix" ] && cp -rL "$pmix" "$w/mpi/pmix2"
    done
    return 0
}
ready_mpi() {
    [ -d "$P/mpi" ] && ! command -v mpirun >/dev/null || return 0
    export XDIT_MPIRUN=$P/mpi/bin/mpirun OPAL_PREFIX=$P/mpi PMIX_INSTALL_PREFIX=$P/mpi/pmix2 \
        PATH=$P/mpi/bin:$PATH
}

pack() {
    local b to p line
    b=$(realpath "$1") to=$(realpath -m "$2")
    w=$(mktemp -d) && mkdir -p "$(dirname "$to")" "$w/bin" "$w/lib" "$w/cpu" || exit 1
    trap 'rm -rf "$w"' EXIT
    ninja -C "$b" $programs tests/golden/full.stamp >/dev/null || die "$b: the build fails"
    for p in $programs; do
        cp "$b/$p" "$w/bin/" && strip "$w/bin/${p##*/}" || exit 1
    done
    if ldd "$w/bin/xdit" | grep -q libmpi; then
        carry_mpi || die "Open MPI cannot be packed"
    fi
    # Everything but glibc and the compiler's: those of the other machine are newer.
    p='(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so|ld-linux|libcu(da|bl|dnn)'
    find "$w" -name '*.so' -o -path '*/bin/*' | xargs ldd 2>/dev/null |
        sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u | grep -vE "/($p)" |
        while read -r p; do cp -L "$p" "$w/lib/"; done
    while read -r line; do
        set -- $line
        p=$1
        shift 3
        XDIT_CUDA_DIR='' image "$w/bin/xdit" "$b/tests/golden/full" cpu f32 "$w/cpu/$p.png" "$@" \
            >/dev/null ||
            die "the processor makes no image of $p"
    done < <(images)
    python3 "$root/bench/models.py" "$w/models" >/dev/null || exit 1
    XZ_OPT=$(small -1 -6) tar cJf "$to" -C "$w" . || exit 1
    ls -l "$to"
}

# ---- checks --------------------------------------------------------------------------------------

line() { printf '%-8s %4d s  %s\n' "$@" | tee -a "$out/table.txt"; }

# check NAME SECONDS COMMAND...: at most so many seconds, and no more than are left.
check() {
    local name=$1 most=$2 begin=$SECONDS rc left f
    shift 2
    f=$out/rest/${name//[ \/]/_}.txt
    left=$((ends - SECONDS))
    [ "$most" -gt "$left" ] && most=$left
    [ "$most" -lt 3 ] && { line late 0 "$name: no time is left"; return 1; }
    timeout -k 3 "$most" bash -c '"$@"' check "$@" >"$f" 2>&1
    rc=$?
    { echo "== $name: $*"; head -c 400000 "$f"; } >>"$out/log.txt"
    grep -aqE '^1\.\.0|^Bail out' "$f" && rc=1          # tests that did not begin
    case $rc in
    0) line ok $((SECONDS - begin)) "$name"; return 0 ;;
    77) line skipped $((SECONDS - begin)) "$name: $(tail -n 1 "$f")"; return 0 ;;
    124 | 137) line late $((SECONDS - begin)) "$name" ;;
    *) line FAILED $((SECONDS - begin)) "$name (exit $rc)" ;;
    esac
    { echo "-- $name"
      grep -aE 'not ok|FAILED|rror' "$f" | head -n 5
      tail -n 5 "$f"; } >>"$out/rest/failures.txt"
    left=$((ends - SECONDS))
    [ $rc != 124 ] && [ $left -gt 60 ] && [ "$(grep -c '^FAILED' "$out/table.txt")" -lt 4 ] &&
        { echo "-- $name, with waits behind each launch"
          XDIT_CUDA_SYNC=1 CUDA_LAUNCH_BLOCKING=1 CUBLASLT_LOG_LEVEL=1 \
              timeout -k 3 30 bash -c '"$@"' check "$@" 2>&1 |
              tail -n 20; } >>"$out/rest/failures.txt"
    return 1
}

# Ends with 77 where a command is not there.
needs() { command -v "$1" >/dev/null || { echo "there is no $1"; exit 77; }; }

# near NAME LEAST TYPE DEVICE FLAGS...: an image against the processor's.
near() {
    local name=$1 db=$2 type=$3 device=$4
    shift 4
    local to=$out/rest/$name-$type-${device/:/}.png
    image "$P/bin/xdit" "$P/full" "$device" "$type" "$to" "$@" &&
        python3 "$root/tools/psnr.py" "$P/cpu/$name.png" "$to" "$db"
}
torch_cuda() {
    python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
        { echo "no PyTorch with a GPU"; exit 77; }
    python3 "$root/bench/torch_cuda.py" --seconds 0.15
}
torch_step() {
    python3 -c 'import torch, diffusers, transformers' 2>/dev/null ||
        { echo "no diffusers"; exit 77; }
    python3 "$root/bench/torch_step.py" "$@"
}
sanitizer() {
    needs compute-sanitizer
    compute-sanitizer --tool "$1" --error-exitcode 9 --target-processes all "$2"
}
profile() {                     # KERNEL LAUNCHES-BEFORE ARGUMENTS of bench/step
    local kernel=$1 skip=$2
    shift 2
    needs ncu
    ncu -k "$kernel" --launch-skip "$skip" -c 1 --set full --clock-control none "$P/bin/step" "$@"
}
two_ranks() {                   # DEVICE FLAGS...
    local device=$1
    shift
    needs mpirun
    near demo 60 f32 "$device" models/demo-pixart --guidance_scale 4 --height "$(small 32 256)" \
        --width "$(small 32 256)" --num_inference_steps "$(small 1 20)" --nproc 2 "$@"
}

describe() {
    nvidia-smi
    nvidia-smi -q -d CLOCK,POWER
    nvidia-smi topo -m
    ldd --version | head -n 1
    lscpu | head -n 20
    free -g
    ldconfig -p | grep -E 'libcuda.so|cublasLt|cudnn|nvrtc'
    tr : '\n' <<<"$LD_LIBRARY_PATH"
    command -v gcc meson ninja mpirun ncu compute-sanitizer
}

# least NAME: the fewest seconds of a run that the check NAME has timed.
least() {
    grep -ao '"seconds": [0-9.e+-]*' "$out/rest/${1//[ \/]/_}.txt" | cut -d ' ' -f 2 | sort -g |
        head -n 1
}
# faster WHAT CHECK NAME CHECK NAME: the times of two checks, and which is less.
faster() {
    local a b
    a=$(least "$2") b=$(least "$4")
    [ -n "$a" ] && [ -n "$b" ] || return
    line note 0 "$1: $a s by $3, $b s by $5: $(awk -v a="$a" -v b="$b" -v x="$3" -v y="$5" \
        'BEGIN { print (a + 0 < b + 0 ? x : y) " is faster" }')"
}

# step NAME SECONDS MODEL FLAGS...: a part of a model, timed.
step() {
    local name=$1 most=$2 model=$3
    shift 3
    check "$name" "$most" "$P/bin/step" "$P/models/$model" --device cuda --dtype bf16 "$@"
}

first() {
    local line name f32 bf16 vae big="--width $(small 32 1024) --height $(small 32 1024)"
    local some="--layers $(small 1,1 2,4)" one="--layers $(small 1 4)"
    describe >"$out/env.txt" 2>&1
    nvidia-smi --query-gpu=timestamp,clocks.sm,power.draw,memory.used --format=csv,noheader \
        -lms 500 >"$out/clocks.csv" 2>/dev/null &
    local watch=$!
    "$P/bin/fill" "$root/tests/golden" "$P/full" all "$P/full.d" "$P/full.stamp" \
        >"$P/fill.log" 2>&1 &
    local filling=$!
    check "doctor" 20 "$P/bin/xdit" doctor --no_ranks
    check "attention" 45 $(small "$P/bin/xdit doctor --no_ranks" "$P/bin/ops_attn_cuda")
    check "ops" 60 $(small "$P/bin/xdit doctor --no_ranks" "$P/bin/ops_cuda")
    check "products of cuBLASLt" 45 "$P/bin/products" $(small --quick '')
    if [ -n "$simulated" ]; then
        check "demo step" 60 "$P/bin/step" "$root/models/demo-pixart" --device cuda $big \
            --repeats 1 --layers 1
    else
        check "FLUX.1 parts" 40 "$P/bin/xdit" bench --config "$P/models/FLUX.1-dev" \
            --random_weights --device cuda --dtype bf16 $some $big
        step "FLUX.1 step" 60 FLUX.1-dev $big --repeats 5
        step "FLUX.1 step with fp8" 60 FLUX.1-dev $big --weights_dtype fp8 --gemm fp8 --repeats 5
        step "PixArt step" 15 PixArt-XL-2-1024-MS $big
        step "CogVideoX block" 20 CogVideoX-5b --width 720 --height 480 --num_frames 49 --layers 1
        step "T5 layers" 15 PixArt-XL-2-512x512 --part text $one
    fi
    # Convolutions by cuDNN are the default as soon as a GPU shows that they are faster.
    vae=$(small "$root/models/demo-pixart" "$P/models/FLUX.1-dev")
    XDIT_CUDNN=1 check "VAE" 20 "$P/bin/step" "$vae" --part vae --device cuda --dtype bf16 $big
    XDIT_CUDNN=all check "VAE by cuDNN" 60 "$P/bin/step" "$vae" --part vae --device cuda \
        --dtype bf16 $big
    faster "convolutions" "VAE by cuDNN" cuDNN "VAE" "xdit's kernel"
    check "PyTorch's kernels" 40 torch_cuda
    wait $filling
    # These need no quiet GPU: all at once.
    local jobs=()
    while read -r line; do
        set -- $line
        name=$1 f32=$2 bf16=$3
        shift 3
        check "$name f32" 60 near "$name" "$f32" f32 cuda "$@" & jobs+=($!)
        check "$name bf16" 60 near "$name" "$bf16" bf16 cuda "$@" & jobs+=($!)
    done < <(images)
    check "goldens" 120 "$P/bin/test_golden_cuda" "$root/tests/golden" "$P/full" \
        $(small micro 'micro flux-schnell sd3-no-t5 cog5b-one hunyuan12-one zimage-lora
            lumina2-cut wan-one chroma-one qwen-five auraflow-one hunyuanvideo-one
            krea2-turbo qwen21-five latte-one ltx-five mochi-one hunyuanvideo15-one
            sana-video-i2v sd2') & jobs+=($!)
    check "two ranks on one GPU, ulysses" 60 two_ranks cuda:0 --ulysses_degree 2 & jobs+=($!)
    check "two ranks on one GPU, cfg" 60 two_ranks cuda:0 --use_cfg_parallel & jobs+=($!)
    wait "${jobs[@]}"
    check "attention under memcheck" 60 sanitizer memcheck "$(small true "$P/bin/ops_attn_cuda")"
    kill $watch 2>/dev/null
}

second() {
    local k big='--width 1024 --height 1024 --device cuda --dtype bf16 --repeats 1'
    local flux=$P/models/FLUX.1-dev layers='--layers 1,1'
    [ -n "$simulated" ] && flux=$root/models/demo-pixart layers='--layers 1' \
        big='--width 32 --height 32 --device cuda --dtype bf16 --repeats 1'
    [ -n "$simulated" ] || XDIT_TUNE=1 step "FLUX.1 step, algorithms timed" 45 FLUX.1-dev \
        --width 1024 --height 1024 --repeats 3
    [ -n "$simulated" ] || XDIT_CUDNN=0 step "FLUX.1 step without cuDNN" 45 FLUX.1-dev \
        --width 1024 --height 1024 --repeats 3
    for k in flash_128 epilogue_wide qknorm_128 norm_12; do
        XDIT_CUDNN=0 check "profile of $k" 25 profile $k 1 "$flux" $layers $big
    done
    for k in conv gnorm; do
        check "profile of $k" 25 profile $k 20 "$flux" --part vae $big
    done
    check "FLUX.1 beside diffusers" 90 torch_step flux-1024 --pair "$P/bin/step" --device cuda
    check "attention under racecheck" 60 sanitizer racecheck "$(small true "$P/bin/ops_attn_cuda")"
    check "ops under memcheck" 90 sanitizer memcheck "$(small true "$P/bin/ops_cuda")"
}

# Ranks of a GPU each: every method by every way of messages, then what moves between them.
two() {
    local way flags
    describe >"$out/env.txt" 2>&1
    for way in staged ipc nccl; do
        export XDIT_DEVICE_MESSAGES=$way
        while read -r flags; do
            check "$way $flags" 60 two_ranks cuda $flags
        done < <(small '--ulysses_degree 2' "--ulysses_degree 2 --trace $out/rest/$way.json
--ring_degree 2
--use_cfg_parallel
--tensor_parallel_degree 2
--pipefusion_parallel_degree 2 --warmup_steps 20")
    done
    unset XDIT_DEVICE_MESSAGES
}

# ---- the program ---------------------------------------------------------------------------------

what=${1-}
case $what in
pack)
    [ $# = 3 ] || die "pack BUILD FILE"
    pack "$2" "$3"
    exit ;;
first | second | two) [ "${2-0}" -gt 9 ] 2>/dev/null || die "$what SECONDS: at least 10" ;;
*) die "${what:-nothing}? It does pack, first, second or two" ;;
esac
ends=$((SECONDS + $2)) package=.gpu/pack.tar.xz out=${OUT-}
shift 2
while [ $# -gt 0 ]; do
    case $1 in
    --package) package=${2-} ;;
    --out) out=${2-} ;;
    *) die "$1? Options are --package FILE and --out DIR" ;;
    esac
    shift 2 || die "an option lacks its value"
done
command -v python3 >/dev/null || die "there is no python3"
[ -n "$out" ] || die "where do results go? --out DIR, or \$OUT"
mkdir -p "$out/rest" && out=$(cd "$out" && pwd) || die "$out cannot be made"
[ -f "$package" ] || die "there is no $package: gpu_check.sh pack BUILD $package makes it"
if [ ! -d "$P/bin" ] || [ "$package" -nt "$P/bin" ]; then
    rm -rf "$P" && mkdir -p "$P" && tar xJf "$package" -C "$P" && touch "$P/bin" ||
        die "$package is no package of pack"
fi
libraries=$(python3 -c 'import glob, sys
print(":".join(d for p in sys.path for d in glob.glob(p + "/nvidia/*/lib")))' 2>/dev/null)
export LD_LIBRARY_PATH=$P/lib:$libraries:${CUDA_HOME:-/usr/local/cuda}/lib64:${LD_LIBRARY_PATH-}
export OMP_WAIT_POLICY=passive CMOCKA_MESSAGE_OUTPUT=TAP PYTHONUNBUFFERED=1 \
    CUDA_DEVICE_MAX_CONNECTIONS=32 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ready_mpi
export -f image near small torch_cuda torch_step sanitizer profile two_ranks needs
export P out root simulated
: >"$out/table.txt"
: >"$out/rest/failures.txt"
"$what"
echo
cat "$out/rest/failures.txt"
sort -s -k1,1 "$out/table.txt"
tar czf "$out/rest.tgz" -C "$out" rest && rm -rf "$out/rest"
! grep -qE '^(FAILED|late)' "$out/table.txt"

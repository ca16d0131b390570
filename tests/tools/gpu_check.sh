#!/bin/sh
# gpu_check.sh BUILD ROOT - tools/gpu_check.sh packs and runs all its checks on the simulated GPU,
# and names those that fail.
build=$1
root=$2
n=0
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
check() {
    what=$1
    shift
    n=$((n + 1))
    if "$@"; then echo "ok $n - $what"; else echo "not ok $n - $what"; fi
}
has() { grep -Eq "$1" "$T/out/table.txt"; }

# Tools of NVIDIA's, as far as the script needs them: they run what they are given.
mkdir "$T/bin"
cat >"$T/bin/compute-sanitizer" <<'EOF'
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    -*) shift 2 ;;
    *) exec "$@" ;;
    esac
done
EOF
printf '#!/bin/sh\necho a GPU\n' >"$T/bin/nvidia-smi"
cp "$T/bin/compute-sanitizer" "$T/bin/ncu"
chmod +x "$T/bin/compute-sanitizer" "$T/bin/nvidia-smi" "$T/bin/ncu"
PATH=$T/bin:$PATH

run() { bash "$root/tools/gpu_check.sh" "$@" >"$T/said" 2>&1; }
export XDIT_CUDA_DIR="$build/tests/sim" TMPDIR="$T"

run pack "$build" "$T/pack.tar.xz"
rc=$?
sed 's/^/# /' "$T/said"
check "a package is made" [ $rc = 0 ]
run first 300 --package "$T/pack.tar.xz" --out "$T/out"
rc=$?
sed 's/^/# /' "$T/said"
check "every check passes on the simulated GPU" [ $rc = 0 ]
for name in demo alpha zimage kontext; do
    check "the image of $name is near the processor's in f32" has "^ok +[0-9]+ s  $name f32"
    check "the image of $name is near the processor's in bf16" has "^ok +[0-9]+ s  $name bf16"
done
check "compute-sanitizer ran" has '^ok .*attention under memcheck'
check "products were timed" has '^ok .*products of cuBLASLt'
check "PyTorch's kernels ran or were skipped" has "^(skipped|ok) .*PyTorch"
check "goldens were compared" has '^ok .*goldens'
check "two ranks ran on one GPU" has '^(ok|skipped) .*two ranks on one GPU, ulysses'
check "a step was timed" has '^ok .*demo step'
check "the faster convolution is named" has '^note .*convolutions: .* is faster'
check "the table is printed last" grep -q "$(tail -n 1 "$T/out/table.txt" | cut -c1-7)" "$T/said"
check "results are at most eight files" [ "$(find "$T/out" -type f | wc -l)" -le 8 ]
run second 120 --package "$T/pack.tar.xz" --out "$T/out"
rc=$?
[ $rc = 0 ] || sed 's/^/# /' "$T/said"
check "profiles pass on the simulated GPU" [ $rc = 0 ]
check "a kernel was profiled" has '^ok .*profile of flash_128'

XDIT_SIM_DEVICES=2 run two 240 --package "$T/pack.tar.xz" --out "$T/out"
rc=$?
[ $rc = 0 ] || sed 's/^/# /' "$T/said"
check "two GPUs give the image, each way of messages" [ $rc = 0 ]
check "by NCCL, too" has '^(ok|skipped) .*nccl --ulysses_degree 2'

# A GPU without memory: nothing is skipped, the script fails, and the cause is printed.
export XDIT_SIM_MEMORY=1000000
run first 60 --package "$T/pack.tar.xz" --out "$T/bad"
check "a failure fails the script" [ $? = 1 ]
check "its check is named" grep -q '^FAILED .*demo step' "$T/said"
check "so is the cause" grep -q 'memory' "$T/said"
unset XDIT_SIM_MEMORY
run first 60 --package "$T/none.tar.xz" --out "$T/out"
check "without a package" [ $? = 2 ]
run nothing
check "an unknown word is refused" [ $? = 2 ]
echo "1..$n"

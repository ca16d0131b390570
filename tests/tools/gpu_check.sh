#!/bin/sh
# gpu_check.sh BUILD ROOT - tools/gpu_check.sh runs all its parts on the simulated GPU, and says so
# when one fails.
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
has() { grep -Eq "$1" "$T/out/results.txt"; }

# Tools of NVIDIA's, as far as the script needs them: they run what they are given.
mkdir "$T/bin"
cat >"$T/bin/compute-sanitizer" <<'EOF'
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --*) shift 2 ;;
    *) exec "$@" ;;
    esac
done
EOF
printf '#!/bin/sh\necho a GPU\n' >"$T/bin/nvidia-smi"
cp "$T/bin/compute-sanitizer" "$T/bin/ncu"
chmod +x "$T/bin/compute-sanitizer" "$T/bin/nvidia-smi" "$T/bin/ncu"
PATH=$T/bin:$PATH

bash "$root/tools/gpu_check.sh" --dry-run --build "$build" --out "$T/out" >"$T/said" 2>&1
rc=$?
sed 's/^/# /' "$T/said"
check "every check passes on the simulated GPU" [ $rc = 0 ]
[ $rc = 0 ] || sed 's/^/# /' "$T"/out/*.log | tail -n 60
check "an image was near the processor's" has '^ok +images .*an image in f32'
check "families were near the processor's" has '^ok +images .*zimage in f32'
check "an edited image was, too" has '^ok +images .*kontext in f32'
check "compute-sanitizer ran the tests" has '^ok +ops .*ops under memcheck'
check "a step was profiled" has '^ok +steps .*profile'
check "what needs PyTorch ran or was skipped" has '^(skipped|ok) +speed .*PyTorch'
check "goldens were compared" has '^ok +images .*goldens'
check "a step was timed" has '^ok +steps .*PixArt'
check "results are at most eight files" [ "$(find "$T/out" -type f | wc -l)" -le 8 ]

# A GPU without memory: checks fail, and so does the script.
XDIT_SIM_MEMORY=1000000 bash "$root/tools/gpu_check.sh" --dry-run --build "$build" --out "$T/out" \
    steps >"$T/said" 2>&1
check "a failure fails the script" [ $? = 1 ]
check "and is in the results" has '^FAILED +steps .*PixArt'
bash "$root/tools/gpu_check.sh" --out "$T/out" nothing >"$T/said" 2>&1
check "an unknown part is refused" [ $? = 2 ]
echo "1..$n"

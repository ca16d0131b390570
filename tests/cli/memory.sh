#!/bin/sh
# memory.sh XDIT ROOT FILL - a budget of memory (--memory): what needs more is refused with numbers,
# and what is advised works within it.
. "$(dirname "$0")/lib.sh"
FILL=$3
export OMP_NUM_THREADS=1

# A transformer that is nearly all of it: 136 MB in f32, 18 of them a block.
MODEL=$T/model
cp -R "$ROOT/tests/golden/alpha" "$MODEL.bare" && chmod -R u+w "$MODEL.bare" &&
    rm -f "$MODEL.bare"/*/*.safetensors
sed -i 's/"num_attention_heads": 5/"num_attention_heads": 8/
        s/"attention_head_dim": 8/"attention_head_dim": 64/
        s/"cross_attention_dim": 40/"cross_attention_dim": 512/
        s/"num_layers": 3/"num_layers": 8/' "$MODEL.bare/transformer/config.json"
"$FILL" "$MODEL.bare" "$MODEL" || fail "$MODEL is made"

# image SIZE FLAGS...: an image of one step within a budget.
image() {
    size=$1
    shift
    rm -f "$T/x.png"
    try generate --model "$MODEL" --prompt "a red circle" --steps 1 --quiet -o "$T/x.png" \
        --dtype f32 --memory "$size" "$@"
}

for size in 400MB 0.4GB 400000000 400000kB 390MiB "0.4 gb"; do
    image "$size"
    check "--memory $size: it fits" whole_png "$T/x.png"
done
refused "no size" 2 '"lots" 12GB' \
    generate --model "$MODEL" --prompt x --memory lots -o "$T/x.png"
image 100MB
check "100 MB do not hold it" [ "$rc" = 1 ] && one_line &&
    said 'needs 1[0-9][0-9] MB of a budget of 100 MB \(--memory\): text encoder .*transformer 1'
advice >"$T/advice"
check "something is advised" [ -s "$T/advice" ]
while read -r flags; do
    # shellcheck disable=SC2086
    image 100MB $flags
    check "$flags works" whole_png "$T/x.png"
done <"$T/advice"
# What changes no pixel comes first, then types of weights; size and tiles, which cannot help, are
# not named, though a budget of half would hold a smaller image of int8.
image 100MB
check "streaming comes first, with what it reads" said \
    'fit: --offload auto \([0-9.]+ MB, each step reads 2[0-9]+ MB of weights, the same image\)'
check "then int8" said '\); --weights_dtype int8 \([0-9.]+ MB\)'
# need FLAGS...: the bytes of a request, which depend on the processor's kernels; between A B: a
# budget halfway.
need() {
    image 1MB "$@"
    printf '%s\n' "$err" | python3 -c 'import re, sys
n, unit = re.search("needs ([0-9.]+) ([kM])B of a budget", sys.stdin.read()).groups()
print(int(float(n) * {"k": 1e3, "M": 1e6}[unit]))'
}
image "$(($(need --dtype bf16) - 1000000))" --dtype bf16
check "a model in bf16: no smaller image, no tiles" \
    sh -c '! grep -Eq "enable_tiling|width" "$1"' x "$T/stderr"
check "but streaming and int8" said \
    'would fit: --offload auto \([0-9.]+ MB, [^()]*\); --weights_dtype int8 \([0-9.]+ MB\)$'
between() { echo $((($1 + $2) / 2)); }
streamed=$(need --offload stream)
eight=$(need --offload none --weights_dtype int8)
both=$(need --offload stream --weights_dtype int8)
four=$(need --offload none --dtype bf16 --weights_dtype int4)
either=$((streamed < eight ? streamed : eight))
echo "# streamed $streamed bytes, int8 $eight, both $both, int4 $four"
check "each takes less" [ "$both" -lt "$either" -a "$four" -lt "$eight" ]
image $((streamed - 500000))
check "where streaming is not enough: types" said \
    'would fit: (--dtype bf16 )?(--offload auto )?--weights_dtype int8 \('
try plan --model "$MODEL" --world 1 --dtype bf16 --memory 60MB
check "plan: streaming" said 'would fit: --offload auto \([0-9.]+ MB, [^()]*\)'
for flags in "--offload auto" "--weights_dtype int8"; do
    # shellcheck disable=SC2086
    try plan --model "$MODEL" --world 1 --dtype bf16 --memory 60MB $flags
    check "plan: $flags" [ "$rc" = 0 ]
done
# taken SIZE "FLAGS" ARGS...: --fit auto takes these flags, says so, and gives the image that they
# give.
taken() {
    size=$1 flags=$2
    shift 2
    image "$size" --fit auto "$@"
    cp "$T/x.png" "$T/taken.png"
    check "--fit auto $*: $flags is taken" said "does not fit into memory.*using $flags \\("
    # shellcheck disable=SC2086
    image "$size" $flags "$@"
    check "--fit auto $*: the image of $flags" eval '[ "$rc" = 0 ] &&
        cmp "$T/x.png" "$T/taken.png" && ! said "is taken"'
}
taken 100MB "--offload auto"
taken 100MB "--weights_dtype int8" --offload none
taken "$(between "$both" "$either")" "--offload auto --weights_dtype int8"
taken "$(between "$four" "$(need --offload none --dtype bf16 --weights_dtype int8)")" \
    "--weights_dtype int4" --offload none --dtype bf16
image 400MB --fit auto
check "--fit auto takes nothing where all fits" eval '[ "$rc" = 0 ] && [ -z "$err" ]'
image 100MB --fit auto --offload none --weights_dtype f32
check "--fit auto keeps what is given" said 'budget of 100 MB .*; what would fit: --offload auto'
image 100MB --fit none
check "--fit none refuses" said 'budget of 100 MB'
image 10MB -W 4096 -H 4096 --no_resolution_binning
check "an image beyond the budget" said 'needs at least .* of a budget of 10 MB \(--memory\)'

try plan --model "$MODEL" --world 1 --dtype f32 --memory 400MB
check "plan: it fits" [ "$rc" = 0 ]
try plan --model "$MODEL" --world 1 --dtype f32 --memory 100MB
check "plan: it does not" said 'needs 1[0-9][0-9] MB .*100 MB; what would fit: '
try plan --model "$MODEL" --world 2 --cluster 8xH100 --memory 1MB
check "plan: the budget of a cluster's device" said 'needs .* 1 MB'

if [ -z "${XDIT_NO_MPI-}" ] && ! "$XDIT" generate --model "$MODEL" -p a --steps 1 -q \
    --ulysses_degree 2 -o "$T/x.png" 2>&1 | grep -Eq 'has no MPI|install the package'; then
    image 100MB --ulysses_degree 2
    check "two ranks have it together" said 'of a budget of 100 MB \(--memory\): '
    taken "$(between "$(need --ulysses_degree 2)" \
        "$(need --ulysses_degree 2 --offload stream)")" "--offload auto" --ulysses_degree 2
    image 500MB --ulysses_degree 2
    check "and 500 MB hold them" whole_png "$T/x.png"
else
    echo "# skipped: there is no MPI to start several ranks with"
fi
done_testing

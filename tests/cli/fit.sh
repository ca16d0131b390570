#!/bin/sh
# fit.sh XDIT ROOT FILL - what a refusal for want of memory advises: each piece of advice is run at
# the limit that refused, and works. Published models are looked at without their numbers.
. "$(dirname "$0")/lib.sh"
FILL=$3
export OMP_NUM_THREADS=1
if ! (ulimit -v 1000000 && "$XDIT" --version >/dev/null 2>&1); then
    echo "1..0 # SKIP this build does not start under ulimit -v 1000000"
    exit 0
fi

# limited KB ARGS...: xdit, of which no process maps more than so many kB.
limited() {
    limit=$1
    shift
    (ulimit -v "$limit" && exec "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null)
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
}
# generate KB FLAGS...: an image of one step.
generate() {
    limit=$1
    shift
    rm -f "$T/x.png"
    limited "$limit" generate --model "$MODEL" --prompt "a red circle" --steps 1 \
        --quiet -o "$T/x.png" "$@"
}
# obeyed KB WHAT FLAGS...: all that is advised generates at that limit.
obeyed() {
    limit=$1 which=$2
    shift 2
    advice >"$T/advice"
    check "$which: something is advised" [ -s "$T/advice" ]
    while read -r flags; do
        # Flags are words; with other degrees advised those that were given go.
        # shellcheck disable=SC2086
        case $flags in
        --tensor_parallel_degree*) generate "$limit" $flags $asked ;;
        *) generate "$limit" "$@" $flags ;;
        esac
        check "$which: $flags works" whole_png "$T/x.png"
    done <"$T/advice"
}
# refusing FROM TO FLAGS...: the largest limit (kB, in steps of 8 MB) that refuses, found by halves;
# asks of one rank or several alike.
refusing() {
    at=$1 top=$1 works=-1 refuses=$((($1 - $2) / 8000))
    shift 2
    while [ $((refuses - works)) -gt 1 ]; do
        half=$(((works + refuses) / 2))
        generate $((top - 8000 * half)) "$@"
        if [ "$rc" = 0 ]; then works=$half; else refuses=$half; fi
    done
    at=$((top - 8000 * refuses))
    generate "$at" "$@"
    [ "$rc" != 0 ]
}
# model NAME: a copy of the small model, to be widened.
model() {
    MODEL=$T/$1
    cp -R "$ROOT/tests/golden/alpha" "$MODEL.bare" && chmod -R u+w "$MODEL.bare" &&
        rm -f "$MODEL.bare"/*/*.safetensors
}
filled() { "$FILL" "$MODEL.bare" "$MODEL" || fail "$MODEL is made"; }

# 1. The transformer is nearly all of it: 126 MB in f32.
model dit
sed -i 's/"num_attention_heads": 5/"num_attention_heads": 8/
        s/"attention_head_dim": 8/"attention_head_dim": 64/
        s/"cross_attention_dim": 40/"cross_attention_dim": 512/
        s/"num_layers": 3/"num_layers": 8/' \
    "$MODEL.bare/transformer/config.json"
filled
asked="--dtype f32"
refusing 500000 100000 --dtype f32
check "a transformer that does not fit ($at kB): exit 1" [ "$rc" = 1 ]
check "a sentence" one_line
check "the transformer's weights come first" said \
    'what would fit: (--offload auto \([^()]*\); )?--(dtype bf16|weights_dtype int8) \('
check "tiles and sizes, which cannot help, are not named" \
    sh -c '! grep -Eq "enable_tiling|--width" "$1"' x "$T/stderr"
obeyed "$at" "one rank" --dtype f32
# Two steps less: a process that plans has more of its address space left.
limited $((at - 16000)) plan --model "$MODEL" --world 1 --dtype f32
check "xdit plan advises the same" said \
    'what would fit: (--offload auto \([^()]*\); )?--(dtype bf16|weights_dtype int8) \('

# 2. The text encoder is: 140 MB in f32.
model text
sed -i 's/"d_model": 24/"d_model": 512/; s/"d_ff": 40/"d_ff": 2048/; s/"d_kv": 8/"d_kv": 64/
        s/"num_heads": 3/"num_heads": 8/; s/"num_layers": 2/"num_layers": 8/' \
    "$MODEL.bare/text_encoder/config.json"
sed -i 's/"caption_channels": 24/"caption_channels": 512/' "$MODEL.bare/transformer/config.json"
filled
refusing 500000 100000 --dtype f32
check "a text encoder that does not fit ($at kB): exit 1" [ "$rc" = 1 ]
check "the text encoder's come first" said \
    'what would fit: (--offload auto \([^()]*\); )?--(dtype bf16|text_weights_dtype int8) \('
check "the transformer's do not help" sh -c '! grep -Eq -- "--weights_dtype" "$1"' x "$T/stderr"
obeyed "$at" "text" --dtype f32
if [ -z "${XDIT_NO_MPI-}" ] && ! "$XDIT" generate --model "$MODEL" -p a --steps 1 -q \
    --nproc 2 -o "$T/x.png" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    for plan in "--nproc 2" "--ulysses_degree 2"; do
        # shellcheck disable=SC2086
        refusing 560000 120000 --dtype f32 $plan
        check "two ranks, $plan ($at kB): exit 1" [ "$rc" = 1 ]
        check "two ranks, $plan: int8, or both share the text encoder" said \
            'what would fit: .*--text_weights_dtype int8 \(.*--text_tensor_parallel_degree 2 \('
        # shellcheck disable=SC2086
        obeyed "$at" "two ranks, $plan" --dtype f32 $plan
    done
else
    echo "# skipped: there is no MPI to start several ranks with"
fi

# 3. The image is: tiles first, then a smaller one; what no change makes fit is said with the least.
MODEL=$ROOT/models/demo-pixart
big="-W 512 -H 512 --no_resolution_binning"
# shellcheck disable=SC2086
refusing 260000 120000 $big
check "an image that does not fit ($at kB)" said \
    'what would fit: (--enable_tiling|--width [0-9]+ --height [0-9]+) \('
# shellcheck disable=SC2086
obeyed "$at" "an image" $big
generate "$at" -W 32768 -H 32768 --no_resolution_binning
check "an image beyond all measure: a size that fits" said \
    'of 32768 x 32768 needs .*; what would fit: --width [0-9]+ --height [0-9]+ \('
obeyed "$at" "beyond all measure"
generate 90000
check "nothing fits at all: exit 1 and a sentence" [ "$rc" = 1 ] && said '^xdit: .'

# 4. Models as they are published, on machines that hold some of them.
machine() {
    cat >"$T/machine.json" <<MACHINE
{ "name": "of $1 bytes", "hosts": 1, "ranks_per_host": 4, "threads_per_rank": 1,
  "memory": $1, "shared_weights": true,
  "bf16": { "gemm_flops": 5e10, "gemm_half_rows": 4, "attention_flops_64": 4e10,
            "attention_flops_128": 4e10, "attention_half_keys": 24, "convolution_flops": 4e10,
            "memory_bandwidth": 7e9, "call_seconds": 4e-6 },
  "inside": { "latency_seconds": 3e-6, "bandwidth": 4e9, "overlap": 0 } }
MACHINE
}
# told BYTES MODEL WORLD ADVICE FLAGS...: what xdit plan advises on such a machine; its first advice
# is then planned.
told() {
    published "$2" || return 0
    machine "$1"
    m=$HF/$2 world=$3 pattern=$4
    shift 4
    try plan --model "$m" --world "$world" --cluster "$T/machine.json" "$@"
    check "${m##*/} on $world of $(grep -o 'of [0-9e]* bytes' "$T/machine.json"): $pattern" said \
        "$pattern"
    flags=$(advice | head -n 1)
    # shellcheck disable=SC2086
    try plan --model "$m" --world "$world" --cluster "$T/machine.json" "$@" $flags
    check "and with $flags there is a plan" [ "$rc" = 0 -a -n "$flags" ]
}
told 22e9 black-forest-labs/FLUX.1-dev 1 \
    'what would fit: --offload auto \(.*--weights_dtype int8 \('
told 6e9 PixArt-alpha/PixArt-XL-2-1024-MS 1 \
    'what would fit: --offload auto \(.*--text_weights_dtype int8 \('
told 6e9 PixArt-alpha/PixArt-XL-2-1024-MS 2 \
    'what would fit: --offload auto \(.*--text_weights_dtype int8 \('
told 9e9 THUDM/CogVideoX-5b 1 'what would fit: --offload auto \(.*--weights_dtype int8'
# streamed MODEL BYTES: the model fits into so many bytes (T5-XXL, of 19 GB in f32, among it).
streamed() {
    published "$1" || return 0
    machine 64e9
    try plan --model "$HF/$1" --world 1 --cluster "$T/machine.json" --offload stream --memory "$2"
    check "${1##*/} is streamed in $2" [ "$rc" = 0 ]
}
streamed black-forest-labs/FLUX.1-dev 8GiB
streamed PixArt-alpha/PixArt-XL-2-1024-MS 2GiB
if published PixArt-alpha/PixArt-XL-2-1024-MS; then
    machine 3e8
    try plan --model "$HF/PixArt-alpha/PixArt-XL-2-1024-MS" --world 1 --cluster "$T/machine.json"
    check "the least where nothing fits, and by which flags" said \
        'minimum: [0-9.]+ [MG]B, with .*--text_weights_dtype int8'
fi
# The same with files of the published lengths, which are opened and not read.
if ! published black-forest-labs/FLUX.1-dev; then
    :
elif python3 "$ROOT/tests/cli/holes.py" "$HF/black-forest-labs/FLUX.1-dev" "$T/flux" 2>"$T/why"
then
    MODEL=$T/flux
    generate 22000000
    check "FLUX.1-dev in 22 GB of address space: int8" said \
        'what would fit: --offload auto \(.*--weights_dtype int8 \('
    check "quickly, and without reading" [ "$rc" = 1 ]
else
    echo "# skipped: no sparse files of these lengths can be made here: $(tail -n 1 "$T/why")"
fi
done_testing

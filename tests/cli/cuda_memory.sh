#!/bin/sh
# cuda_memory.sh XDIT ROOT SIM FILL - a GPU of 300 MB, simulated: transformers that it holds, others
# that are streamed, requests that are refused, and what the refusals advise; smaller GPUs; and
# every allocation that can fail.
. "$(dirname "$0")/lib.sh"
XDIT_CUDA_DIR=$(cd "$3" && pwd)
FILL=$4
export XDIT_CUDA_DIR
# on BYTES ARGS...: a step of one rank on a GPU of so many bytes; the latents alone.
on() {
    XDIT_SIM_MEMORY=$1
    export XDIT_SIM_MEMORY
    shift
    rm -f "$T/x.safetensors"
    try generate --model "$MODEL" --prompt "a circle" --num_inference_steps 1 --height 32 \
        --width 32 --no_resolution_binning --dtype f32 --device cuda \
        --output "$T/x.safetensors" "$@"
}
# obeyed BYTES WHAT ARGS...: all that is advised generates on such a GPU.
obeyed() {
    bytes=$1 which=$2
    shift 2
    advice >"$T/advice"
    check "$which: something is advised" [ -s "$T/advice" ]
    while read -r flags; do
        # shellcheck disable=SC2086
        on "$bytes" "$@" $flags
        check "$which: $flags works" [ "$rc" = 0 ]
    done <"$T/advice"
}
# widened NAME FROM COMPONENT JSON: the model NAME is FROM with these keys in a component's config.
widened() {
    MODEL=$T/$1
    cp -R "$ROOT/tests/golden/$2" "$MODEL.bare" && chmod -R u+w "$MODEL.bare" &&
        rm -f "$MODEL.bare"/*/*.safetensors
    python3 -c 'import json, sys
path, more = sys.argv[1], json.loads(sys.argv[2])
config = json.load(open(path)) | more
json.dump(config, open(path, "w"))' "$MODEL.bare/$3/config.json" "$4"
    "$FILL" "$MODEL.bare" "$MODEL" || fail "$MODEL is made"
}
# sentence: an exit by a sentence of xdit's, as of any failure.
sentence() { [ "$rc" = 1 ] && said '^xdit: .*[Mm]emory' && ! said 'simulated GPU:'; }

# 1. A transformer of 126 MB, and one of 315 MB, on 300 MB.
wide='"num_attention_heads": 8, "attention_head_dim": 64'
for layers in 8 20; do
    widened dit$layers alpha transformer \
        "{ $wide, \"cross_attention_dim\": 512, \"num_layers\": $layers }"
done
MODEL=$T/dit8
on 300000000
check "300 MB hold a transformer of 126 MB" [ "$rc" = 0 ]
check "and nothing is streamed" eval '! said offload'
MODEL=$T/dit20
on 300000000
cp "$T/x.safetensors" "$T/streamed.safetensors"
check "300 MB stream one of 315 MB" eval '[ "$rc" = 0 ] && \
    said "offload: [0-9]+ of the transformer.s 20 blocks are streamed .* to cuda:0: .* per step"'
on 300000000 --offload none
check "--offload none refuses it" eval 'sentence && \
    said "needs .* of the memory of cuda:0 .*what would fit: --offload auto"'
on 800000000
check "the latents are those of a GPU that holds it" \
    cmp "$T/x.safetensors" "$T/streamed.safetensors"
on 300000000 --height 8192 --width 8192
check "300 MB refuse 8192 x 8192" eval 'sentence && said "what would fit: .*--width"'

# Other families, and a text encoder, of 19 to 22 MB on a GPU that has 11 MB for them: what does not
# fit is streamed, with the same latents.
small() {
    set -- --max_sequence_length 32 "$@"
    on 100000000 "$@"
    check "100 MB hold ${MODEL##*/}" eval '[ "$rc" = 0 ] && ! said offload'
    cp "$T/x.safetensors" "$T/whole.safetensors"
    on 45000000 "$@"
    check "45 MB stream it" eval '[ "$rc" = 0 ] && said "$streams"'
    check "with the same latents" cmp "$T/x.safetensors" "$T/whole.safetensors"
    on 45000000 "$@" --offload none
    check "--offload none refuses it" eval 'sentence && said "would fit: --offload auto "'
    obeyed 45000000 "${MODEL##*/}" "$@" --offload none
}
streams='offload: [0-9]+ of the transformer'
wide='"num_attention_heads": 2, "attention_head_dim": 64'
widened flux2-klein flux2-klein transformer \
    "{ $wide, \"axes_dims_rope\": [16, 16, 16, 16], \"num_single_layers\": 20 }"
small
widened zimage zimage transformer '{ "dim": 128, "n_heads": 2, "n_kv_heads": 2, "n_layers": 20,
    "axes_dims": [32, 16, 16] }'
small
widened wan wan transformer "{ $wide, \"ffn_dim\": 512, \"num_layers\": 18 }"
small --num_frames 5
widened text alpha transformer '{ "caption_channels": 128 }'
sed -i 's/"d_model": 24/"d_model": 128/; s/"d_ff": 40/"d_ff": 512/; s/"d_kv": 8/"d_kv": 64/
    s/"num_heads": 3/"num_heads": 2/; s/"num_layers": 2/"num_layers": 20/' \
    "$MODEL.bare/text_encoder/config.json"
"$FILL" "$MODEL.bare" "$MODEL" || fail "$MODEL is made"
streams=text                    # of its encoder no line has the number of blocks
small

# 2. The small model, on GPUs from 34 MB on: an image with the same latents, or a sentence.
MODEL=$ROOT/models/demo-pixart
on 800000000
cp "$T/x.safetensors" "$T/whole.safetensors"
fits=0 streams=0 refused=0 bad=
for mb in 34 37 39 40 41 43 46 50 54 56 60; do
    on ${mb}000000
    if [ "$rc" = 0 ] && cmp -s "$T/x.safetensors" "$T/whole.safetensors"; then
        fits=$((fits + 1))
        ! said offload || streams=$((streams + 1))
    elif sentence; then
        refused=$((refused + 1))
    else
        bad="$bad $mb"
    fi
done
check "every GPU from 34 to 60 MB generates or says why not:$bad" [ -z "$bad" ]
check "some hold the model, some stream it, some refuse ($fits, $streams, $refused)" \
    [ "$streams" -gt 2 -a "$fits" -gt "$streams" -a "$refused" -gt 1 ]

# An image that the small model cannot decode there: what is advised is done.
set -- --height 128 --width 128 --output "$T/x.png"
on 46000000 "$@"
check "46 MB refuse 128 x 128" sentence
obeyed 46000000 "46 MB" "$@"

# 3. Each allocation of device or pinned memory fails once.
bad='' n=0 rc=1
while [ "$rc" != 0 ] && [ "$n" -lt 60 ]; do
    n=$((n + 1))
    XDIT_SIM_NO_MEMORY=$n
    export XDIT_SIM_NO_MEMORY
    on 42000000 --quiet
    [ "$rc" = 0 ] || sentence || bad="$bad $n"
done
check "each of $n allocations that fails is a sentence:$bad" \
    [ -z "$bad" -a "$n" -gt 5 -a "$rc" = 0 ]
done_testing

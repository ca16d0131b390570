#!/bin/sh
# cuda_memory.sh XDIT ROOT SIM FILL - a GPU of 300 MB, simulated: a transformer that it holds, one
# that is streamed, and a request that is refused; smaller GPUs; and every allocation that can fail.
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
# sentence: an exit by a sentence of xdit's, as of any failure.
sentence() { [ "$rc" = 1 ] && said '^xdit: .*[Mm]emory' && ! said 'simulated GPU:'; }

# 1. A transformer of 126 MB, and one of 315 MB, on 300 MB.
for layers in 8 20; do
    MODEL=$T/dit$layers
    cp -R "$ROOT/tests/golden/alpha" "$MODEL.bare" && chmod -R u+w "$MODEL.bare" &&
        rm -f "$MODEL.bare"/*/*.safetensors
    sed -i "s/\"num_attention_heads\": 5/\"num_attention_heads\": 8/
        s/\"attention_head_dim\": 8/\"attention_head_dim\": 64/
        s/\"cross_attention_dim\": 40/\"cross_attention_dim\": 512/
        s/\"num_layers\": 3/\"num_layers\": $layers/" "$MODEL.bare/transformer/config.json"
    "$FILL" "$MODEL.bare" "$MODEL" || fail "$MODEL is made"
done
MODEL=$T/dit8
on 300000000
check "300 MB hold a transformer of 126 MB" [ "$rc" = 0 ]
check "and nothing is streamed" eval '! said offload'
MODEL=$T/dit20
on 300000000
cp "$T/x.safetensors" "$T/streamed.safetensors"
check "300 MB stream one of 315 MB" eval '[ "$rc" = 0 ] && \
    said "offload: [0-9]+ of the transformer.s 20 blocks are streamed .* to cuda:0: .* a step"'
on 300000000 --offload none
check "--offload none refuses it" eval 'sentence && \
    said "needs .* of the memory of cuda:0 .*what would fit: --offload auto"'
on 800000000
check "the latents are those of a GPU that holds it" \
    cmp "$T/x.safetensors" "$T/streamed.safetensors"
on 300000000 --height 8192 --width 8192
check "300 MB refuse 8192 x 8192" eval 'sentence && said "what would fit: .*--width"'

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

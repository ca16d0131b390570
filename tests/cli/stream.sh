#!/bin/sh
# Weights that stay in their files (--stream_weights, --offload auto): the latents are those of
# weights in memory, bit for bit, whatever the plan, the types and the adapters. The third argument
# is the folder of the golden models.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3

# latents NAME FLAGS...: two steps; the latents' numbers, without their metadata, in $T/NAME.
latents() {
    name=$1
    shift
    try generate --prompt "a red circle" --num_inference_steps 2 --seed 3 --threads 1 \
        -o "$T/$name.safetensors" "$@"
    [ "$rc" = 0 ] && python3 -c 'import sys
d = open(sys.argv[1], "rb").read()
open(sys.argv[2], "wb").write(d[8 + int.from_bytes(d[:8], "little"):])' \
        "$T/$name.safetensors" "$T/$name"
}

# same WHAT FLAGS...: with and without streaming.
same() {
    what=$1
    shift
    rm -f "$T/here" "$T/there"
    latents here "$@" && latents there --stream_weights "$@" && cmp -s "$T/here" "$T/there" &&
        said "blocks .*stay in their files"
    if [ $? = 0 ]; then pass "$what"; else fail "$what"; fi
}

for type in f32 bf16 int8 fp8; do
    same "$type" --model "$MODEL" --weights_dtype "$type"
done
same "int8 text encoders" --model "$MODEL" --text_weights_dtype int8
for model in flux sd3 qwen zimage lumina2 sana flux2 hunyuan mochi ltx; do
    same "$model" --model "$GOLDEN/$model" --height 64 --width 64
done
for plan in "--ulysses_degree 2" "--ring_degree 3" "--tensor_parallel_degree 2" \
    "--pipefusion_parallel_degree 2 --warmup_steps 1" "--use_cfg_parallel" \
    "--tensor_parallel_degree 2 --weights_dtype int8" \
    "--tensor_parallel_degree 2 --weights_dtype fp8" \
    "--text_tensor_parallel_degree 2 --ulysses_degree 2"; do
    set -- $plan
    n=2
    [ "$1" = --ring_degree ] && n=3
    same "$n ranks $plan" --model "$MODEL" --nproc "$n" "$@"
done

latents here --model "$MODEL" --offload auto
check "--offload auto streams nothing that memory holds" test "$rc" = 0
said "stay in their files" && fail "nothing is streamed" || pass "nothing is streamed"

# One process, three images: the blocks go round and round.
try generate --model "$MODEL" --num_images_per_prompt 3 --num_inference_steps 2 --stream_weights \
    --quiet -o "$T/%d.png" --prompt x
check "three images" test "$rc" = 0 -a -s "$T/2.png"
done_testing

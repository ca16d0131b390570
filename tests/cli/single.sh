#!/bin/sh
# single.sh XDIT ROOT GOLDEN WRITER - weights from single files on the command line; WRITER is
# test_single, which makes them of a golden model.
. "$(dirname "$0")/lib.sh"
WRITER=$4
export OMP_WAIT_POLICY=passive
FLUX=$3/flux

"$WRITER" "$3" flux "$T" || fail "the files are written"
cp -r "$FLUX" "$T/bare"
rm -f "$T"/bare/*/*.safetensors "$T"/bare/golden.*
ask() {
    name=$1
    shift
    try generate --prompt "a red circle" --width 64 --height 64 --num_inference_steps 2 --seed 3 \
        --dtype f32 --quiet --output "$T/$name.ppm" "$@"
}
# The images differ in their comments, which name the model, not in their 64 x 64 pixels.
pixels() { tail -c 12288 "$T/$1.ppm" >"$T/$1.raw"; }
alike() { pixels "$1" && pixels "$2" && cmp -s "$T/$1.raw" "$T/$2.raw"; }
same() { [ "$rc" = 0 ] && [ -z "$err" ] && alike dir "$1"; }

ask dir --model "$FLUX"
check "a directory" [ "$rc" = 0 ]
ask files --config "$T/bare" --transformer "$T/model.safetensors" --vae "$T/ae.safetensors" \
    --clip_l "$T/clip_l.safetensors" --t5xxl "$T/t5xxl.safetensors"
check "a file for each component" same files
A=$T/all.safetensors
ask all --config "$T/bare" --transformer "$A" --vae "$A" --clip-l "$A" --t5xxl="$A"
check "one file for all" same all
ask some --model "$FLUX" --vae "$A"
check "a file for one component" same some
ask ranks --config "$T/bare" --transformer "$A" --vae "$A" --clip_l "$A" --t5xxl "$A" --nproc 2
check "two ranks" same ranks
ask tensor --config "$T/bare" --transformer "$A" --vae "$A" --clip_l "$A" --t5xxl "$A" \
    --tensor_parallel_degree 2
ask other --model "$FLUX" --tensor_parallel_degree 2
check "two ranks that share matrices" alike tensor other

refused "weights nowhere" 1 "weights" generate --config "$T/bare" --prompt a \
    --output "$T/x.png"
refused "a VAE as the transformer" 2 "KL" generate --config "$FLUX" --prompt a \
    --transformer "$T/ae.safetensors" --output "$T/x.png"
refused "an encoder too many" 2 ".it clip_l t5xxl" generate \
    --config "$FLUX" --prompt a --clip_g "$T/clip_l.safetensors" --output "$T/x.png"
check "nothing is written" [ ! -e "$T/x.png" ]

L=$3/flux2-klein
ask two --model "$L"
ask llm --model "$L" --llm "$L/text_encoder/model.safetensors"
check "a file for a language model" [ "$rc" = 0 -a -z "$err" ]
check "makes the same" alike two llm
refused "another encoder as the language model" 2 "T5" generate \
    --config "$L" --prompt a --llm "$T/t5xxl.safetensors" --output "$T/x.png"
refused "a language model as T5" 2 "language" generate --config "$FLUX" \
    --prompt a --t5xxl "$L/text_encoder/model.safetensors" --output "$T/x.png"
refused "a language model of another size" 1 "28 model.layers" generate --prompt a \
    --config "$3/zimage" --llm "$L/text_encoder/model.safetensors" --output "$T/x.png"
try inspect "$L/text_encoder/model.safetensors"
check "inspect a language model" \
    sh -c 'printf "%s" "$1" | grep -q "^llm .*a language model: 310 tensors"' x "$out"

try inspect "$T/model.safetensors"
check "inspect a file" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | wc -l)" = 1 ]
check "its layout and types" \
    sh -c 'printf "%s" "$1" |
        grep -q "^transformer .*FLUX.1 transformer in its original.*: 92 tensors, .*BF16$"' x "$out"
try inspect "$A" --json
check "inspect one file for all" sh -c 'printf "%s" "$1" | python3 -c "
import json, sys
c = json.load(sys.stdin)[\"components\"]
assert [x[\"component\"] for x in c] == [\"transformer\", \"vae\", \"clip_l\", \"t5xxl\"], c
assert c[0][\"prefix\"] == \"model.diffusion_model.\" and c[0][\"dtype\"] == \"BF16\", c"' x "$out"
try inspect "$T/clip_l.safetensors"
check "inspect an encoder" \
    sh -c 'printf "%s" "$1" | grep -q "^clip_l, clip_g  *a CLIP text encoder: 52 tensors"' x "$out"
# of_diffusers FILE COMPONENT WORD: a file is one component, whose layout has the word.
of_diffusers() {
    try inspect "$L/../$1/diffusion_pytorch_model.safetensors"
    check "inspect $1 of diffusers" sh -c '[ "$(printf "%s\n" "$1" | wc -l)" = 1 ] &&
        printf "%s" "$1" | grep -q "^$2 .*$3.* in the layout of diffusers"' x "$out" "$2" "$3"
}
of_diffusers wan/vae vae causal
of_diffusers ltx/vae vae LTX
of_diffusers mochi/vae vae Mochi
of_diffusers hunyuanvideo15/vae vae HunyuanVideo-1.5
of_diffusers cog2b/transformer transformer CogVideoX
try inspect "$3/wan-i2v/image_encoder/model.safetensors"
check "inspect an encoder of images" sh -c 'printf "%s" "$1" | grep -q "^clip_vision "' x "$out"
try inspect "$FLUX/golden.safetensors"
check "inspect a file of another kind" \
    sh -c 'printf "%s" "$1" | grep -q "an unknown layout"' x "$out"
try inspect "$T/ae.safetensors" --tensors vae
check "its tensors" sh -c 'printf "%s\n" "$1" | grep -qx "decoder.mid.attn_1.q.weight 12x12x1x1"' \
    x "$out"
done_testing

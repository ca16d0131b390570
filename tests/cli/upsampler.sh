#!/bin/sh
# upsampler.sh XDIT ROOT FULL - a latent upsampler and the second pass: what they are refused for,
# what counts, what is told and planned.
. "$(dirname "$0")/lib.sh"
FULL=$3
NET=$FULL/ltx-up/latent_upsampler
film() {
    model=$1
    shift
    try generate --model "$FULL/$model" --prompt a --num_inference_steps 2 --guidance_scale 1 \
        --dtype f32 --width 128 --height 64 --num_frames 9 --output "$T/x.rgb" --json "$@"
}
no() {
    what=$1 code=$2 pattern=$3
    shift 3
    film "$@"
    check "$what" [ "$rc" = "$code" -a ! -e "$T/x.rgb" ]
    check "in one sentence" said "^xdit: .*$pattern"
}
differs() { check "$1" sh -c "! cmp -s '$T/x.rgb' '$T/plain'"; }

no "a model whose latents stay" 2 \
    "is given as latent_upsampler, but the latents of wan cannot.*(those of LTX-Video, LTX-2 can)" \
    wan --latent_upsampler "$NET"
no "another network" 1 "vae/config.json names the class AutoencoderKLLTXVideo, .*knows LTXLatent" \
    ltx-up --latent_upsampler "$FULL/ltx-up/vae"
no "no such folder" 1 "$T/none" ltx-up --latent_upsampler "$T/none"
mkdir "$T/second" "$T/wide" "$T/late"
for folder in second wide late; do
    cp "$NET"/* "$T/$folder"
done
sed -i s/LTXLatent/LTX2Latent/ "$T/second/config.json"
no "the network of another version" 2 \
    "second is a LTX2LatentUpsamplerModel, but .* are enlarged by a LTXLatentUpsamplerModel" \
    ltx-up --latent_upsampler "$T/second"
sed -i 's/"in_channels": 6/"in_channels": 7/' "$T/wide/config.json"
no "other channels" 2 "wide enlarges latents of 7 channels, but those of .* have 6" \
    ltx-up --latent_upsampler "$T/wide"
sed -i 's/"temporal_upsample": false/"temporal_upsample": true/' "$T/late/config.json"
no "one that adds frames" 1 "late adds frames to a video; supported are" \
    ltx-up --latent_upsampler "$T/late"
no "half a cell" 2 "width 96 is not a multiple of 64 .*latent upsampler 2.; .* 64 and 128" \
    ltx-up --latent_upsampler "$NET" --width 96
no "a second pass without latents" 2 "denoise_strength 0.5 .*: add --latent_upsampler" \
    ltx-up --denoise_strength 0.5
no "a pipeline without a second pass" 2 "denoise_strength is for LTX-Video; .* ltx " \
    ltx --latent_upsampler "$NET" --denoise_strength 0.5
no "all noise" 2 "denoise_strength 1 would replace" \
    ltx-up --latent_upsampler "$NET" --denoise_strength 1
no "no step" 2 "denoise_strength 0.3 of 2 steps leaves no step" \
    ltx-up --latent_upsampler "$NET" --denoise_strength 0.3

film ltx-up --adain_factor 1
check "options without a network" [ "$rc" = 0 ]
check "have no effect" said "adain_factor has no effect.*without --latent_upsampler"
film ltx-up --latent_upsampler "$NET"
check "one pass" [ "$rc" = 0 ]
check "of this size" [ "$(wc -c <"$T/x.rgb")" = $((9 * 128 * 64 * 3)) ]
cp "$T/x.rgb" "$T/plain"
film ltx-up --latent_upsampler "$FULL/ltx-up"
check "the folder of a pipeline" cmp "$T/x.rgb" "$T/plain"
film ltx-up --latent_upsampler "$NET/diffusion_pytorch_model.safetensors"
check "a file beside its config" cmp "$T/x.rgb" "$T/plain"
film ltx-up --latent_upsampler "$NET" --denoise_strength 0
check "no second pass" cmp "$T/x.rgb" "$T/plain"
film ltx-up --latent_upsampler "$NET" --adain_factor 1
differs "AdaIN changes it"
film ltx-up --latent_upsampler "$NET" --tone_map_compression_ratio 1
differs "so do tones"
film ltx-up --latent_upsampler "$NET" --denoise_strength 0.6 --upsampled_num_inference_steps 4
differs "and a second pass"
check "which is told" json 'j["parameters"]["denoise_strength"] == 0.6'
check "with its steps" json 'j["parameters"]["upsampled_num_inference_steps"] == 4'
check "beside those of the first" json 'j["parameters"]["steps"] == 2'

# The files of a checkpoint have the second pass.
film ltx-up --latent_upsampler "$NET" --denoise_strength 0.6 --upsampled_num_inference_steps 4 \
    --checkpoint "$T/saved"
check "a checkpoint" [ "$rc" = 0 ]

planned() {
    to=$1
    shift
    try plan --model "$FULL/ltx-up" --world 1 --width 128 --height 64 --num_frames 9 --dtype f32 \
        --json "$@"
    check "a plan" [ "$rc" = 0 ]
    printf '%s' "$out" | python3 -c 'import json, sys
p = json.load(sys.stdin)["plans"][0]
print(p["request_s"], p["rank"][0]["vae"])' >"$to"
}
planned "$T/one"
planned "$T/both" --latent_upsampler "$NET" --denoise_strength 0.6
planned "$T/first" --latent_upsampler "$NET"
check "plans count both passes and the network" python3 - "$T/one" "$T/first" "$T/both" <<'END2'
import sys
one, first, both = ([float(v) for v in open(path).read().split()] for path in sys.argv[1:])
sys.exit(not (first[0] < both[0] and both[1] == first[1] > one[1]))
END2
done_testing

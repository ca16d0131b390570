#!/bin/sh
# sound.sh XDIT ROOT FULL - videos with sound: files, their guidance, what has none.
. "$(dirname "$0")/lib.sh"
FULL=$3
film() {
    try generate --model "$FULL/ltx2" --prompt a --num_inference_steps 2 --dtype f32 --width 64 \
        --height 64 --num_frames 9 --max_sequence_length 12 --rng torch --quiet "$@"
}
latents() {
    name=$1
    shift
    film -o "$T/$name.safetensors" "$@"
}
differs() { ! cmp -s "$T/$1.safetensors" "$T/$2.safetensors"; }
equals() { cmp -s "$T/$1.safetensors" "$T/$2.safetensors"; }

film -o "$T/x.wav"
check "a file of sound" [ "$rc" = 0 -a "$(head -c 4 "$T/x.wav")" = RIFF ]
rate() { python3 -c "import sys, wave; print(wave.open(sys.argv[1]).getframerate())" "$1"; }
check "of the vocoder's rate" [ "$(rate "$T/x.wav")" = 24000 ]
# second FILE: the sound of a vocoder whose second network triples the rate of samples.
second() {
    try generate --model "$FULL/ltx23" --prompt a --num_inference_steps 2 --dtype f32 --width 64 \
        --height 64 --num_frames 9 --max_sequence_length 12 --rng torch --quiet \
        --spatio_temporal_guidance_blocks 1 -o "$@"
}
second "$T/second.wav"
check "of the second network's rate" [ "$(rate "$T/second.wav")" = 12000 ]
film -o "$T/with.rgb"
film -o "$T/without.rgb" --no_audio
check "no_audio changes no pixel" cmp "$T/with.rgb" "$T/without.rgb"
refused "no sound to write" 2 "no_audio x.wav .mp4" generate --model "$FULL/ltx2" --prompt a \
    --no_audio -o "$T/x.wav"
refused "no sound of another model" 2 "audio x.wav .mp4" generate --model "$FULL/ltx" --prompt a \
    -o "$T/x.wav"

printed() { printf '%s\n' "$out" | grep -q "$1"; }
try inspect "$FULL/ltx2"
check "networks of audio are listed" printed 'audio_vae *AutoencoderKLLTX2Audio *44 .*bf16'
try inspect "$FULL/ltx2" --tensors vocoder
check "and their tensors" printed 'conv_in.weight 24x16x7'
cp -r "$FULL/ltx2" "$T/mute"
rm "$T/mute/vocoder/config.json"
try inspect "$T/mute"
check "and what they lack" printed 'missing: .*vocoder/config.json'

latents usual
for flag in guidance_scale audio_guidance_scale modality_scale audio_modality_scale \
    guidance_rescale audio_guidance_rescale; do
    latents other --$flag 0.5
    check "$flag changes the video" differs usual other
done
film -o "$T/x.rgb" --json --stg_scale 2 --audio_modality_scale 1.5
check "the attention of no block is perturbed" said 'stg_scale has no effect .*perturbed_attn'
check "JSON has what was given" json 'j["parameters"]["audio_modality_scale"] == 1.5 and
    "modality_scale" not in j["parameters"]'
latents ranks --nproc 2 --use_cfg_parallel
check "the same on two ranks" [ "$rc" = 0 ]
# near NAME: the samples are those of x.wav, up to two of 65536 levels.
near() {
    python3 - "$T/x.wav" "$T/$1.wav" <<'EOF'
import array, sys, wave
one, two = (array.array("h", wave.open(name).readframes(1 << 24)) for name in sys.argv[1:])
sys.exit(len(one) != len(two) or max(one) < 100 or
         max(abs(a - b) for a, b in zip(one, two)) > 2)
EOF
}
for plan in u3 pp2patch2warm2 tp3 cfg2 r2u3; do
    ranks=$(case $plan in r2u3) echo 6 ;; *3) echo 3 ;; *) echo 2 ;; esac)
    film -o "$T/$plan.wav" --nproc "$ranks" --plan $plan
    check "the same sound with $plan" near $plan
done
mv "$T/second.wav" "$T/x.wav"
second "$T/more.wav" --nproc 2 --plan u2
check "the same sound of two networks" near more
refused "a block that is none" 2 "spatio_temporal_guidance_blocks layer 9, .* 0 to" generate \
    --model "$FULL/ltx2" --prompt a --spatio_temporal_guidance_blocks 9 -o "$T/x.rgb"
refused "methods that do not know a pass" 2 "fast_attn modality_scale 1" generate \
    --model "$FULL/ltx2" --prompt a --fast_attn share,full -o "$T/x.rgb"

# Two sides, which a network decodes one after the other.
H3="$FULL/minimaxh3"
film() {
    try generate --model "$H3" --prompt "a bell" --num_inference_steps 3 --dtype f32 --width 40 \
        --height 24 --num_frames 20 --rng torch --quiet "$@"
}
film -o "$T/x.wav"
check "a file of two sides" python3 - "$T/x.wav" <<'EOF'
import sys, wave
w = wave.open(sys.argv[1])
# 22 frames are 37 latents of 6 samples
sys.exit((w.getnchannels(), w.getnframes(), w.getframerate()) != (2, 37 * 6, 32000))
EOF
for plan in u3 tp3 pp2patch2warm2 u2vae; do
    film -o "$T/$plan.wav" --nproc "$(case $plan in *3) echo 3 ;; *) echo 2 ;; esac)" --plan $plan
    check "the same two sides with $plan" near $plan
done
try generate --model "$H3" --prompt a --num_inference_steps 2 --num_frames 20 --width 40 \
    --height 24 --no_audio -o "$T/x.rgb"
check "frames of complete clips" said 'generating 22 frames, not 20.*17 frames, and 5 more'
refused "an empty prompt" 2 "prompt is empty" generate --model "$H3" --prompt "" -o "$T/x.rgb"
refused "an empty negative prompt" 2 "negative prompt is empty" generate --model "$H3" --prompt a \
    --guidance_scale 3 -o "$T/x.rgb"
refused "guidance of sound alone" 2 "audio_guidance_scale LTX-2" generate --model "$H3" \
    --prompt a --audio_guidance_scale 3 -o "$T/x.rgb"
refused "one step" 2 "num_inference_steps at least 2" generate --model "$H3" --prompt a \
    --num_inference_steps 1 -o "$T/x.rgb"
done_testing

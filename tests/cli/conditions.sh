#!/bin/sh
# conditions.sh XDIT ROOT FULL - given images and videos: places, strengths, refusals, what counts.
. "$(dirname "$0")/lib.sh"
FULL=$3
VIDEO=$FULL/ltx-cond/video              # 20 frames of 50 x 40
IMAGE=$FULL/ltx-cond/image.png          # 70 x 37
film() {
    model=$1
    shift
    try generate --model "$FULL/$model" --prompt a --num_inference_steps 2 --guidance_scale 1 \
        --dtype f32 --width 64 --height 64 --num_frames 17 --output "$T/x.rgb" --json "$@"
}
no() {
    what=$1 pattern=$2
    shift 2
    film "$@"
    check "$what" [ "$rc" = 2 -a ! -e "$T/x.rgb" ]
    check "in one sentence" said "^xdit: $pattern"
}
differs() { check "$1" sh -c "! cmp -s '$T/x.rgb' '$T/plain'"; }

for flag in frame_index condition_strength image_cond_noise_scale; do
    no "$flag of a model without given frames" "$flag is for .*LTX-Video.*; ltx has no" \
        ltx --image "$IMAGE" --$flag 0.5
done
no "no image" 'frame_index is for given images: add --image' ltx-cond --frame_index 8
no "too few places" 'frame_index has 2 numbers, but 3 images are given' \
    ltx-cond --image "$IMAGE" --image "$IMAGE" --image "$VIDEO" --frame_index 0,8
no "no number" 'frame_index is \"late\"' ltx-cond --image "$IMAGE" --frame_index late
no "half a frame" 'frame_index has 0.5; it must have whole numbers' \
    ltx-cond --image "$IMAGE" --frame_index 0.5
no "behind the end" 'frame_index has 17, but 17 frames are generated: it must be at most 16' \
    ltx-cond --image "$IMAGE" --frame_index 17
no "too strong" 'condition_strength has 2; it must be from 0 to 1' \
    ltx-cond --image "$IMAGE" --condition_strength 2
no "strength of nothing" 'strength 0.5 needs an initial image' ltx-cond --strength 0.5
images=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do
    images="$images --image $IMAGE"
done
no "seventeen images" '17 images are given, but ltx-condition reads at most 16' ltx-cond $images
film ltx-cond --image "$T/none.mp4"
check "no such file" [ "$rc" = 1 ]
check "by its name" said "cannot read $T/none.mp4: "
film ltx-cond --image "$T"
check "no frames" [ "$rc" = 1 ]
check "by its name" said "$T has no images"

film ltx-cond
check "no image" [ "$rc" = 0 ]
cp "$T/x.rgb" "$T/plain"
film ltx-cond --image "$IMAGE" --condition_strength 0
check "an image of strength 0 changes nothing" cmp "$T/x.rgb" "$T/plain"
film ltx-cond --image "$IMAGE" --frame_index 8
differs "an image does"
check "and adds no frame" [ "$(wc -c <"$T/x.rgb")" = $((17 * 64 * 64 * 3)) ]
check "its place is told" json 'j["parameters"]["frame_index"] == "8"'
cp "$T/x.rgb" "$T/plain"
film ltx-cond --image "$VIDEO" --frame_index 8
differs "so does a video"
film ltx-cond --image "$IMAGE" --frame_index 8 --strength 0.5
differs "and a strength"
cp "$T/x.rgb" "$T/plain"
film ltx-cond --image "$IMAGE" --frame_index 8 --condition_strength 0.5
check "of either name" cmp "$T/x.rgb" "$T/plain"

# Keyframes: all latent frames of what is given behind frame 0 come before the video's.
rm -f "$T/x.rgb"
no "noise of keyframes" 'image_cond_noise_scale is set, but steps of ltx2 add no noise' \
    ltx2 --image "$IMAGE" --frame_index 9 --image_cond_noise_scale 0.1
no "the end of one frame" 'last_image is given, but the video has one frame' \
    ltx2 --last_image "$IMAGE" --num_frames 1
no "too few strengths" 'condition_strength has 3 numbers, but 2 images are given' \
    ltx2 --image "$IMAGE" --last_image "$IMAGE" --condition_strength 1,1,1
film ltx2 --last_image "$IMAGE" --no_audio
check "a last image alone" [ "$rc" = 0 ]
check "adds no frame" [ "$(wc -c <"$T/x.rgb")" = $((17 * 64 * 64 * 3)) ]
cp "$T/x.rgb" "$T/plain"
film ltx2 --image "$IMAGE" --frame_index 9 --no_audio
check "is at the last latent frame" cmp "$T/x.rgb" "$T/plain"
film ltx2 --image "$VIDEO" --frame_index 9 --no_audio
differs "a video is not"

# What is planned counts the frames of videos: from frame 8 on, nine of them are two latent frames.
planned() {
    to=$1
    shift
    try plan --model "$FULL/ltx-cond" --world 1 --width 64 --height 64 --num_frames 17 --dtype f32 \
        --frame_index 8 --json "$@"
    check "a plan" [ "$rc" = 0 ]
    printf '%s' "$out" | python3 -c 'import json, sys
rank = json.load(sys.stdin)["plans"][0]["rank"][0]
print(rank["transformer_tmp"], rank["vae_tmp"])' \
        >"$to"
}
planned "$T/image" --image "$IMAGE"
planned "$T/video" --image "$VIDEO"
check "a video takes more memory than an image" python3 - "$T/image" "$T/video" <<'END'
import sys
one, more = ([int(n) for n in open(f).read().split()] for f in sys.argv[1:])
sys.exit(not all(a < b for a, b in zip(one, more, strict=True)))
END
done_testing

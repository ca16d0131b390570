#!/bin/sh
# control_video.sh XDIT ROOT FULL - control videos, their masks and reference images: sizes, frames,
# refusals, what counts.
. "$(dirname "$0")/lib.sh"
FULL=$3
VIDEO=$FULL/vace/video                  # 9 frames of 96 x 72
MASK=$FULL/vace/mask                    # 9 of 31 x 40
IMAGE=$FULL/vace/image.png              # 70 x 37
film() {
    model=$1
    shift
    try generate --model "$FULL/$model" --prompt a --num_inference_steps 1 --guidance_scale 1 \
        --dtype f32 --output "$T/x.rgb" --json "$@"
}
small() { film "$@" --width 48 --height 32; }
no() {
    what=$1 pattern=$2
    shift 2
    small "$@"
    check "$what" [ "$rc" = 2 -a ! -e "$T/x.rgb" ]
    check "in one sentence" said "^xdit: $pattern"
}

no "a model without control" 'control_video is for models such as Wan2.1-VACE; this wan model' \
    wan --control_video "$VIDEO"
no "nor has it scales" 'conditioning_scale is for models such as Wan2.1-VACE' \
    wan --conditioning_scale 1
no "too few frames" 'the control video of .*/video has 9 frames, but 13 are generated: .* 9 or' \
    vace --control_video "$VIDEO" --num_frames 13
no "of the default, too" 'the control video of .* but 81 are' vace --control_video "$VIDEO"
mkdir "$T/two"
cp "$MASK/0.png" "$MASK/1.png" "$T/two"
no "a short mask" 'the mask of .*/two has 2 frames, but 5 are generated' \
    vace --control_video "$VIDEO" --mask_image "$T/two" --num_frames 5
no "a mask alone" 'mask_image needs .*--control_video$' vace --mask_image "$MASK"
no "a list of scales" 'conditioning_scale has 3 numbers; it must have one, or 2' \
    vace --conditioning_scale 1,2,3
no "no number" 'conditioning_scale is \"much\"' vace --conditioning_scale much
no "no strength" 'strength 0.5 .*wan-vace' vace --image "$IMAGE" --strength 0.5
no "no last image" 'last_image is for' vace --image "$IMAGE" --last_image "$IMAGE"
no "no control image" 'control_image is for' vace --control_image "$IMAGE"
no "diffusers' name" 'unknown flag --video; use --control_video' vace --video "$VIDEO"
no "its name of images" 'unknown flag --reference_images; use --image' vace --reference_images x
for flag in --control_video --mask_image; do
    small vace --control_video "$VIDEO" --num_frames 5 $flag "$T/none.mp4"
    check "$flag: no such file" [ "$rc" = 1 ]
    check "by its name" said "cannot read $T/none.mp4: "
    small vace --control_video "$VIDEO" --num_frames 5 $flag "$T"
    check "$flag: no frames" [ "$rc" = 1 ]
    check "by its name" said "$T has no images"
done
images=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do
    images="$images --image $IMAGE"
done
no "seventeen images" '17 images are given, but wan-vace reads at most 16' vace $images
{ printf 'P6 40 7 255\n'; head -c 840 /dev/zero; } >"$T/flat.ppm"
small vace --image "$T/flat.ppm" --num_frames 5
check "an image of no cell" said '^xdit: image 1 has 40 x 7 pixels; it needs at least 8 x 8'

small vace --control_video "$VIDEO" --num_frames 5
check "more frames than are generated" [ "$rc" = 0 ]
check "which are told" json "j['parameters']['control_video'] == '$VIDEO'"
cp "$T/x.rgb" "$T/plain"
check "a video and no image" [ "$(wc -c <"$T/plain")" = $((5 * 48 * 32 * 3)) ]
small vace --control_video "$VIDEO" --num_frames 5 --conditioning_scale 1,1
check "scales of one change nothing" cmp "$T/x.rgb" "$T/plain"
small vace --control_video "$VIDEO" --num_frames 5 --conditioning_scale 0.5
check "another scale does" sh -c "! cmp -s '$T/x.rgb' '$T/plain'"
check "and is told" json 'j["parameters"]["conditioning_scale"] == "0.5"'
small vace --control_video "$VIDEO" --num_frames 5 --mask_image "$MASK"
check "so does a mask" sh -c "! cmp -s '$T/x.rgb' '$T/plain'"
small vace --control_video "$VIDEO" --num_frames 5 --image "$IMAGE"
check "and an image" sh -c "! cmp -s '$T/x.rgb' '$T/plain'"
check "which adds no frame" [ "$(wc -c <"$T/x.rgb")" = $((5 * 48 * 32 * 3)) ]
small vace --num_frames 5
check "all is left out" [ "$rc" = 0 ]
try plan --model "$FULL/vace" --world 2 --width 48 --height 32 --num_frames 5 \
    --control_video "$VIDEO" --image "$IMAGE" --json
check "a request is planned" [ "$rc" = 0 ]

film vace --control_video "$VIDEO" --num_frames 1 --width 64
check "the height has the ratio of the video" json 'j["parameters"]["height"] == 48'
done_testing

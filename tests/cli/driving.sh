#!/bin/sh
# driving.sh XDIT ROOT FULL - videos that drive a character: segments, modes, refusals, what counts.
. "$(dirname "$0")/lib.sh"
FULL=$3
POSE=$FULL/animate/pose                 # 12 frames of 70 x 40
FACE=$FULL/animate/face                 # 3 of 19 x 23
IMAGE=$FULL/animate/image.png
BACK=$FULL/animate-five/video
MASK=$FULL/animate-five/mask
any() {
    model=$1
    shift
    try generate --model "$FULL/$model" --prompt a --num_inference_steps 1 --dtype f32 \
        --width 32 --height 32 --output "$T/x.rgb" --json "$@"
}
drive() { any animate --image "$IMAGE" --pose_video "$POSE" --face_video "$FACE" "$@"; }
no() {
    what=$1 pattern=$2
    shift 2
    rm -f "$T/x.rgb"
    "$@"
    check "$what" [ "$rc" = 2 -a ! -e "$T/x.rgb" ]
    check "in one sentence" said "^xdit: $pattern"
}
# bytes of the frames of 32 x 32 pixels that were written
frames() { check "$1 frames" [ "$rc" = 0 -a "$(wc -c <"$T/x.rgb")" = $(($1 * 32 * 32 * 3)) ]; }

no "a model that nothing drives" 'pose_video is for Wan; wan does not' any wan --pose_video "$POSE"
no "nor has it a mode" 'mode is for Wan' any wan --mode animate
no "nor segments" 'segment_frame_length is for Wan' any wan --segment_frame_length 5
no "no image" 'wan-animate needs the image of a character: add --image' any animate
no "no poses" 'wan-animate needs a video of poses: add --pose_video' any animate --image "$IMAGE"
no "no face" 'wan-animate needs a video of a face: add --face_video' \
    any animate --image "$IMAGE" --pose_video "$POSE"
no "two images" '2 images are given, but wan-animate uses one' drive --image "$IMAGE"
no "no mode" "mode is 'dance'; it must be animate or replace" drive --mode dance
no "nothing to replace" 'to replace a person of a video, .* add --control_video' \
    drive --mode replace
no "nobody to replace" 'to replace a person of a video, .* add --mask_image' \
    drive --control_video "$BACK"
no "a video of no use" 'mode is animate, which reads no control_video' \
    drive --mode animate --control_video "$BACK" --mask_image "$MASK"
no "a mask alone" 'mask_image needs .*--control_video$' drive --mask_image "$MASK"
no "more frames than poses" 'the pose video has 12 frames, but 13 are generated' \
    drive --num_frames 13
no "one frame" '1 frames are too few: .* at least 2' drive --num_frames 1
no "three shared frames" 'prev_segment_conditioning_frames is 3; it must be 1 or 5' \
    drive --prev_segment_conditioning_frames 3
no "a segment of shared frames" 'a segment of 5 frames is too short .* at least 9' \
    drive --prev_segment_conditioning_frames 5 --segment_frame_length 5
no "scales" 'conditioning_scale is for' drive --conditioning_scale 1
no "diffusers' name" 'unknown flag --background_video; use --control_video' \
    drive --background_video "$BACK"
no "and of the mask" 'unknown flag --mask_video; use --mask_image' drive --mask_video "$MASK"
no "what changes nothing" 'unknown flag --motion_encode_batch_size.*changes no result' \
    drive --motion_encode_batch_size 4
drive --segment_frame_length 5 --checkpoint "$T/saved"
check "checkpoints of segments" [ "$rc" != 0 ]
check "in one sentence" said 'checkpoint cannot be used with 12 frames, .* 3 segments'

drive
frames 12
drive --segment_frame_length 5 --num_frames 7
frames 7
drive --segment_frame_length 7
frames 12
check "rounded segments" said 'generating segments of 5 frames, not 7'
drive --segment_frame_length 9 --control_video "$BACK" --mask_image "$MASK/0.png" --mode replace
frames 12
drive --segment_frame_length 5 --output "$T/x.safetensors"
check "latents of the last segment" [ "$rc" = 0 ]
done_testing

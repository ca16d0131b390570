#!/bin/sh
# frames.sh XDIT ROOT GOLDEN - requests for videos of tiny CogVideoX models: frames, images to begin
# with, what is refused, several ranks. The files are video.sh's business.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3
export OMP_WAIT_POLICY=passive
T2V=$GOLDEN/cog2b I2V=$GOLDEN/cog5b-i2v
FRAME=$((40 * 56 * 3))

film() {
    model=$1
    shift
    try generate --model "$model" --prompt "a red circle" -W 56 -H 40 --steps 2 --seed 3 \
        --rng torch --dtype f32 --max_sequence_length 13 --quiet "$@"
}
size() { wc -c <"$1" | tr -d ' '; }

film "$T2V" --num_frames 9 -o "$T/one.rgb"
check "nine frames" [ "$rc" = 0 -a "$out" = "$T/one.rgb" -a "$(size "$T/one.rgb")" = \
    $((9 * FRAME)) ]
film "$T2V" -o "$T/two.rgb"
check "the model's frames" cmp -s "$T/one.rgb" "$T/two.rgb"
film "$T2V" --num_frames 5 -o "$T/x.rgb"
check "an even latent makes no frame more than four each" [ "$(size "$T/x.rgb")" = $((8 * FRAME)) ]
check "a warning says so, quiet or not" said \
    '^xdit: warning: generating 8 frames, not 5'
film "$T2V" --seconds 1 -o "$T/x.rgb"
check "a second is nine frames of eight" cmp -s "$T/x.rgb" "$T/one.rgb"
refused "two lengths" 2 "num_frames seconds" generate --model "$T2V" -p a \
    --num_frames 5 --seconds 1
film "$T2V" --num_frames 5 --skip_existing -o "$T/f%d.ppm"
made=$out
rm "$T/f8.ppm"
film "$T2V" --num_frames 5 --skip_existing -o "$T/f%d.ppm"
check "a frame that is missing: the video is made again" [ -s "$T/f8.ppm" -a "$out" = "$made" ]
touch -d 2001-01-01 "$T/f1.ppm"
film "$T2V" --num_frames 5 --skip_existing -o "$T/f%d.ppm"
check "all frames are there: it is skipped" [ "$out" = "$made" -a -z "$(find "$T/f1.ppm" \
    -newermt 2001-06-01)" ]
film "$T2V" --num_frames 9 --use_dynamic_cfg -o "$T/x.rgb"
check "guidance that grows" sh -c '[ -s "$1/x.rgb" ] && ! cmp -s "$1/one.rgb" "$1/x.rgb"' x "$T"
film "$T2V" --num_frames 5 --use_dynamic_cfg --guidance_scale 1 -o "$T/x.rgb"
check "and that of one pass cannot" said \
    "warning: use_dynamic_cfg .*guidance"
film "$T2V" --num_frames 9 --json -o "$T/x.rgb"
check "sizes in the JSON" sh -c 'printf "%s" "$1" | python3 -c "
import json, sys
j = json.loads(sys.stdin.readline())[\"parameters\"]
assert (j[\"num_frames\"], j[\"width\"], j[\"height\"], j[\"fps\"]) == (9, 56, 40, 8), j"' x "$out"
film "$GOLDEN/cog15" --json -o "$T/x.rgb"
check "frames a second of patches of two frames" sh -c '
case $1 in *"\"fps\": 16"*) ;; *) exit 1 ;; esac' x "$out"
film "$I2V" --image "$I2V/image.png" -o "$T/i.rgb"
check "a video of an image" [ "$rc" = 0 -a "$(size "$T/i.rgb")" = $((9 * FRAME)) ]
film "$I2V" --image "$ROOT/doc/sheet.png" -o "$T/j.rgb"
check "another of another" sh -c '[ -s "$1/j.rgb" ] && ! cmp -s "$1/i.rgb" "$1/j.rgb"' x "$T"

# refuse WHAT PATTERN MODEL ARGS...: the request is wrong, says one sentence.
refuse() {
    what=$1 pattern=$2 model=$3
    shift 3
    refused "$what" 2 "$pattern" generate --model "$model" --prompt a --quiet "$@"
}
refuse "frames of an image" "num_frames is for videos" "$MODEL" --num_frames 9 -o "$T/no.png"
refuse "an MP4 of an image" "no.mp4 .*video" "$MODEL" -o "$T/no.mp4"
refuse "an image that is needed" "--image" "$I2V" -o "$T/no.gif"
refuse "an image that is not" "cannot start from the image" "$T2V" --image "$I2V/image.png" \
    -o "$T/no.gif"
refuse "strength" "strength 0.5" "$I2V" --image "$I2V/image.png" --strength 0.5 -o "$T/no.gif"
refuse "a width between tokens" "width 60 .*56 .*64" "$T2V" -W 60 -o "$T/no.gif"
refuse "a size without positions" "9 frames of 56 x 40 pixels" "$I2V" --image "$I2V/image.png" \
    -W 64 -H 40 -o "$T/no.gif"
refuse "frames without positions" "9 frames of 56 x 40 pixels" "$I2V" --image "$I2V/image.png" \
    --num_frames 17 -o "$T/no.gif"
refuse "no frames" "num_frames" "$T2V" --num_frames -1 -o "$T/no.gif"
check "nothing is written" [ -z "$(find "$T" -name 'no*')" ]

# Frames that attend within themselves and over time; both prompts have the rows of the first one.
LATTE=$GOLDEN/latte
film "$LATTE" -o "$T/l.rgb"
check "a video of the model's five frames" [ "$(size "$T/l.rgb")" = $((5 * FRAME)) ]
film "$LATTE" --num_frames 4 -o "$T/x.rgb"
check "or of fewer" [ "$rc" = 0 -a "$(size "$T/x.rgb")" = $((4 * FRAME)) ]
film "$LATTE" --prompt "a large green ring" --negative_prompt "two stars" --seed 2 -o "$T/m_%d.rgb"
film "$LATTE" --negative_prompt "two stars" --seed 2 -o "$T/x.rgb"
check "the rows of a negative prompt are those of each prompt" cmp -s "$T/m_1.rgb" "$T/x.rgb"
refuse "more frames than positions" "6 frames 5" "$LATTE" --num_frames 6 -o "$T/no.gif"
refuse "a window" "attention_window latte-1" "$LATTE" --attention_window 1,2,2 -o "$T/no.gif"

film "$T2V" --num_frames 9 --ulysses_degree 2 --use_parallel_vae -o "$T/x.rgb"
if ! said 'has no MPI|install the package'; then
    check "two ranks" cmp -s "$T/one.rgb" "$T/x.rgb"
    film "$I2V" --image "$I2V/image.png" --use_cfg_parallel -o "$T/x.rgb"
    check "two ranks and an image" cmp -s "$T/i.rgb" "$T/x.rgb"
fi
done_testing

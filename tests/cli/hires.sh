#!/bin/sh
# hires.sh XDIT ROOT FULL - the second pass of --hires_scale: sizes, ranks, refusals, what is told.
. "$(dirname "$0")/lib.sh"
FULL=$3
draw() {
    model=$1
    shift
    rm -f "$T/x.ppm"
    try generate --model "$FULL/$model" --prompt "a red ring" --num_inference_steps 4 \
        --guidance_scale 1 --width 64 --height 48 --no_resolution_binning --dtype f32 \
        --output "$T/x.ppm" --json "$@"
}
no() {
    what=$1 pattern=$2
    shift 2
    draw "$@"
    check "$what" [ "$rc" != 0 -a ! -e "$T/x.ppm" ]
    check "in one sentence" said "^xdit: .*$pattern"
}
sized() { head -c 4096 "$T/x.ppm" | grep -aqx "$1"; }
keep() { tail -c "$1" "$T/x.ppm" >"$T/$2"; }
same() { cmp -s "$T/a" "$T/b"; }
differ() { ! same; }

draw flux --hires_scale 2
check "two passes" [ "$rc" = 0 ]
check "of twice the size" sized '128 96'
check "are told" json 'j["parameters"]["hires_scale"] == 2 and j["parameters"]["steps"] == 4 and
    "hires_strength" not in j["parameters"]'
keep 36864 a
draw flux --hires_scale 2 --hires_strength 0.7 --hires_steps 4 --hires_upscaler bilinear
keep 36864 b
check "with the default strength, steps and interpolation" same
for more in "--hires_upscaler nearest" "--hires_strength 0.5" "--hires_steps 8" "--seed 9"; do
    draw flux --hires_scale 2 $more
    keep 36864 b
    check "which $more changes" differ
done
draw flux --width 128 --height 96
keep 36864 b
check "one pass of the larger size is another image" differ
draw flux --hires_scale 1.4
check "sides are complete tokens" sized '88 64'
for plan in u2 r2 tp2 pp2warm9 u2vae; do
    draw flux --hires_scale 2 --nproc 2 --plan $plan
    said 'has no MPI|install the package' && break
    check "$plan" [ "$rc" = 0 ]
    cp "$T/x.ppm" "$T/two.ppm"
    draw flux --hires_scale 2
    try compare "$T/two.ppm" "$T/x.ppm" --json
    check "$plan has the image of one rank" json 'j["largest"] <= 1'
done
draw sdxl --hires_scale 1.5 --hires_strength 0.5
check "a U-Net with conditions of sizes" sized '96 72'
draw hunyuan-control --control_image "$FULL/hunyuan-control/control.png" --hires_scale 2
check "with a control image" sized '128 96'

no "a model that cannot start from an image" 'hires_scale is for models that can start' \
    wan --hires_scale 2
no "an initial image" 'hires_scale has a first pass from noise: omit --image' flux --hires_scale 2 \
    --image "$FULL/hunyuan-control/control.png"
no "no room for a step" 'hires_strength 0.1 of 4 steps leaves no step .*hires_steps' \
    flux --hires_scale 2 --hires_strength 0.1
no "only noise" 'hires_strength 1 would replace' flux --hires_scale 2 --hires_strength 1
no "a smaller size" 'hires_scale' flux --hires_scale 0.5
no "another interpolation" 'needs bilinear or nearest' flux --hires_scale 2 --hires_upscaler cubic
draw flux --hires_strength 0.5
check "a strength without a second pass" said 'warning: .*hires_strength .*without --hires_scale'
done_testing

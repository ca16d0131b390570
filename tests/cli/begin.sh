#!/bin/sh
# begin.sh XDIT ROOT FULL - videos that begin, and end, with images: sizes, refusals, what counts.
. "$(dirname "$0")/lib.sh"
FULL=$3
FIRST=$FULL/wan-flf/image.png           # 60 x 44
LAST=$FULL/wan-flf/last.png             # 29 x 80
{ printf 'P6 4000 1 255\n'; head -c 12000 /dev/zero; } >"$T/line.ppm"
film() {
    model=$1
    shift
    try generate --model "$FULL/$model" --prompt a --num_inference_steps 2 --num_frames 5 \
        --guidance_scale 1 --dtype f32 --output "$T/x.rgb" --json "$@"
}
small() { film "$@" --width 32 --height 32; }
no() {
    what=$1 pattern=$2
    shift 2
    small "$@"
    check "$what" [ "$rc" = 2 -a ! -e "$T/x.rgb" ]
    check "in one sentence" said "^xdit: $pattern"
}

no "an image is needed" 'wan-i2v .*--image$' wan-i2v
no "text alone" 'wan .*text.*Wan2.1-I2V-14B' wan --image "$FIRST"
no "text has no last image" 'last_image is for models .*Wan2.1-FLF2V-14B' wan --last_image "$LAST"
no "a last image is needed" '.*--last_image$' wan-flf --image "$FIRST"
no "a first image is needed" 'wan-flf .*--image|wan-i2v .*--image' wan-flf --last_image "$LAST"
no "no last image is read" 'last_image .*first frame' wan-i2v \
    --image "$FIRST" --last_image "$LAST"
no "one image begins it" '2 images .*wan-i2v .*one' wan-i2v \
    --image "$FIRST" --image "$LAST"
no "one frame has no end" 'last_image .*one frame' wan-flf \
    --image "$FIRST" --last_image "$LAST" --num_frames 1
no "it has no strength" 'strength 0.5 .*wan-i2v' wan-i2v --image "$FIRST" \
    --strength 0.5
no "nor a mask" 'mask_image is for' wan-i2v --image "$FIRST" --mask_image "$LAST"
no "a line" '.*4000 x 1 pixels' wan-i2v \
    --image "$T/line.ppm"
no "1.5 needs an image" 'hunyuan-video-1.5-i2v .*--image$' hunyuanvideo15-i2v
no "but has no last one" 'last_image is for models' hunyuanvideo15-i2v \
    --image "$FIRST" --last_image "$LAST"
no "nor a strength" 'strength 0.5 .*hunyuan-video-1.5-i2v' hunyuanvideo15-i2v --image "$FIRST" \
    --strength 0.5
for flag in --image --last_image; do
    other=--last_image
    [ $flag = $other ] && other=--image
    small wan-flf $other "$FIRST" $flag "$T/none.png"
    check "$flag: no such file" [ "$rc" = 1 ]
    check "by its name" said "cannot open $T/none.png: "
    small wan-flf $other "$FIRST" $flag "$0"
    check "$flag: no image" [ "$rc" = 1 ]
    check "by its name" said "$0 is not an image"
done

film wan-i2v --image "$FIRST" --max_area 3072
check "the size has the image's ratio" json 'j["parameters"]["width"] == 64'
check "in whole tokens" json 'j["parameters"]["height"] == 32'
film wan-i2v --image "$FIRST" --max_area 3072 --height 48
check "unless a side is given" json 'j["parameters"]["height"] == 48'

# The sizes are those of diffusers' HunyuanVideo15ImageProcessor.
film hunyuanvideo15-i2v --image "$FIRST"
check "a size of the image's ratio" json 'j["parameters"]["width"] == 64'
check "and its height" json 'j["parameters"]["height"] == 48'
film hunyuanvideo15-i2v --image "$FIRST" --max_area 9216
check "a size of another area" json 'j["parameters"]["width"] == 96'
check "and its height" json 'j["parameters"]["height"] == 80'
film hunyuanvideo15-few --image "$LAST"
check "a tall one" json 'j["parameters"]["width"] == 32'
check "and its height" json 'j["parameters"]["height"] == 80'
film hunyuanvideo15-i2v --image "$T/line.ppm"
check "a line is cropped" json 'j["parameters"]["width"] == 128'
film hunyuanvideo15-i2v --image "$FIRST" --height 32
check "unless a side is given" json 'j["parameters"]["height"] == 32'

small wan-flf --image "$FIRST" --last_image "$LAST"
check "a first and a last image" [ "$rc" = 0 ]
check "which are told" sh -c "printf '%s' \"\$1\" | grep -q '\"last_image\": \"$LAST\"'" x "$out"
cp "$T/x.rgb" "$T/both"
small wan-flf --image "$FIRST" --last_image "$FIRST"
check "the last one counts" sh -c "! cmp -s '$T/x.rgb' '$T/both'"
small wan-flf --image "$LAST" --last_image "$LAST"
check "and the first one" sh -c "! cmp -s '$T/x.rgb' '$T/both'"
small wan-flf --image "$FIRST" --last_image "$LAST" --enable_tiling
check "a video of one tile" cmp "$T/x.rgb" "$T/both"
small wan-i2v-blind --image "$FIRST"
check "a model without an encoder of images takes a last one or none" [ "$rc" = 0 ]

for model in wan-flf wan-i2v; do
    last=
    [ $model = wan-flf ] && last="--last_image $LAST"
    small $model --image "$FIRST" $last --nproc 2
    if said 'has no MPI|install the package'; then
        echo "# $model on two ranks is not tested: there is no MPI"
    else
        check "a plan for two ranks is chosen for $model" [ "$rc" = 0 ]
        check "and printed" said '^xdit: plan: .*for 2 ranks'
    fi
done

try inspect "$FULL/wan-i2v"
check "inspect lists the encoder of images" sh -c "printf '%s' \"\$1\" | grep -q \
    '^image_encoder  *CLIPVisionModel'" x "$out"
check "and its processor" sh -c "printf '%s' \"\$1\" | grep -q \
    '^image_processor  *preprocessor_config.json'" x "$out"
if published Wan-AI/Wan2.1-I2V-14B-480P-Diffusers; then
    I2V=$HF/Wan-AI/Wan2.1-I2V-14B-480P-Diffusers
    try plan --model "$I2V" --cluster 8xH100 --json
    check "a published model is planned from its configs" [ "$rc" = 0 ]
    try plan --model "$I2V" --cluster 8xH100 --width 832 --height 480 --image "$FIRST" --json
    check "with an image" [ "$rc" = 0 ]
fi
done_testing

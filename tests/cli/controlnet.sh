#!/bin/sh
# controlnet.sh XDIT ROOT FULL - control networks: which fit, their images, factors and steps.
. "$(dirname "$0")/lib.sh"
FULL=$3
NET=$FULL/hunyuan-control/controlnet
EDGES=$FULL/hunyuan-control/control.png
draw() {
    model=$1
    shift
    try generate --model "$FULL/$model" --prompt "a red ring" --num_inference_steps 4 \
        --guidance_scale 1 --width 64 --height 48 --no_resolution_binning --dtype f32 \
        --output "$T/x.ppm" --json "$@"
}
no() {
    what=$1 pattern=$2
    shift 2
    rm -f "$T/x.ppm"
    draw "$@"
    check "$what" [ "$rc" != 0 -a ! -e "$T/x.ppm" ]
    check "in one sentence" said "^xdit: .*$pattern"
}
same() { cmp -s "$T/a" "$T/b"; }
differ() { ! same; }
pixels() { tail -c 9216 "$T/x.ppm" >"$T/$1"; }

no "an annotator without an image" 'control_preprocess "canny" has no image to read' \
    hunyuan --control_preprocess canny
no "an unknown annotator" 'control_preprocess "sobel" is unknown; it can be canny' \
    hunyuan-control --control_image "$EDGES" --control_preprocess sobel
no "two names for one image" 'control_preprocess has 2 names for 1 control images' \
    hunyuan-control --control_image "$EDGES" --control_preprocess gray,blur
no "an annotator for a model without control images" 'control_image is for' \
    alpha --control_image "$EDGES" --control_preprocess canny
no "of other sizes" 'controlnet 0 does not fit the transformer: its .* is 8, not 6' \
    hunyuan --controlnet "$NET" --control_image "$EDGES"
no "of another class" 'config.json names the class HunyuanDiT2DModel, but a control network of a' \
    hunyuan12 --controlnet "$FULL/hunyuan12/transformer" --control_image "$EDGES"
no "a model that can have none" 'control networks of a .* are not supported' \
    alpha --controlnet "$NET" --control_image "$EDGES"
no "no such folder" 'none' hunyuan12 --controlnet "$T/none" --control_image "$EDGES"
mkdir "$T/empty"
no "no config" 'there is no config.json in this folder' \
    hunyuan12 --controlnet "$T/empty" --control_image "$EDGES"
cp "$NET/diffusion_pytorch_model.safetensors" "$T/net.safetensors"
no "nor beside a file" 'there is no config.json beside this file' \
    hunyuan12 --controlnet "$T/net.safetensors" --control_image "$EDGES"
no "five networks" '5 control networks are given; at most 4' hunyuan12 --controlnet "$NET" \
    --controlnet "$NET" --controlnet "$NET" --controlnet "$NET" --controlnet "$NET"
no "no image" 'needs a control image' hunyuan-control
no "no network" 'add --controlnet' hunyuan12 --control_image "$EDGES"
no "two images for one" '2 control images are given for 1 control network: give' \
    hunyuan-control --control_image "$EDGES" --control_image "$EDGES"
no "one image for two" '1 control image is given for 2 control networks: give' \
    hunyuan12 --controlnet "$NET" --controlnet "$NET" --control_image "$EDGES"
no "three factors" 'conditioning_scale has 3 numbers; it must have one, or 1' \
    hunyuan-control --control_image "$EDGES" --controlnet_conditioning_scale 1,2,3
no "a late end" 'control_guidance_end is 1.5; they must be 0 to 1' \
    hunyuan-control --control_image "$EDGES" --control_guidance_end 1.5
no "a late start" 'the start must be less than the end' \
    hunyuan-control --control_image "$EDGES" --control_guidance_start 0.6 --control_guidance_end 0.5
no "a mask for inpainting" 'is for inpainting its control image: add --mask_image' \
    qwen-control --controlnet "$FULL/qwen-control/controlnet_3" --control_image "$EDGES"
no "two images to inpaint" 'inpaint their control images: omit --image' \
    qwen-control --controlnet "$FULL/qwen-control/controlnet_3" --control_image "$EDGES" \
    --image "$EDGES" --mask_image "$EDGES"
no "a part of the noise" 'strength 0.5 cannot be used with control networks that read the mask' \
    qwen-control --controlnet "$FULL/qwen-control/controlnet_3" --control_image "$EDGES" \
    --mask_image "$EDGES" --strength 0.5
no "an image without a mask of it" 'mask_image needs the image to inpaint: add --image' \
    zimage-control --controlnet "$FULL/zimage-control/controlnet_2" --control_image "$EDGES" \
    --mask_image "$EDGES"
no "another model's network" 'config.json names the class Z.*, but a control network of a Qwen' \
    qwen-control --controlnet "$FULL/zimage-control/controlnet" --control_image "$EDGES"
no "steps of no network" 'control_guidance_start is for control networks: add' \
    hunyuan12 --control_guidance_start 0.5

# published weight files of Z-Image's networks, which have no config beside them
for net in controlnet controlnet_3; do
    draw zimage-control --controlnet "$FULL/zimage-control/$net" --control_image "$EDGES"
    pixels a
    mkdir "$T/$net"
    cp "$FULL/zimage-control/$net/diffusion_pytorch_model.safetensors" "$T/$net/union.safetensors"
    draw zimage-control --controlnet "$T/$net/union.safetensors" --control_image "$EDGES"
    pixels b
    check "the config of a file without it" [ "$rc" = 0 ]
    check "is that of the folder $net" same
done
cp "$FULL/zimage-control/controlnet_2/diffusion_pytorch_model.safetensors" "$T/net.safetensors"
draw zimage-control --controlnet "$T/net.safetensors" --control_image "$EDGES"
check "a file of version 2.1" [ "$rc" = 0 ]

draw hunyuan-control --control_image "$EDGES"
check "the network of the folder" [ "$rc" = 0 ]
pixels a
draw hunyuan-control --controlnet "$NET" --control_image "$EDGES"
pixels b
check "and the same one by its name" same
draw hunyuan-control --controlnet "$NET/diffusion_pytorch_model.safetensors" \
    --control_image "$EDGES" --controlnet_conditioning_scale 1
pixels b
check "and by its file" same
check "which is told" json '"control_image" in j["parameters"]'
pixels own
draw hunyuan-control --control_image "$EDGES" --control_preprocess canny:50:100
check "edges of a photo" [ "$rc" = 0 ]
check "with their name in the metadata" \
    json 'j["parameters"]["control_preprocess"] == "canny:50:100"'
pixels a
cp "$T/own" "$T/b"
check "which differ from the photo" differ
draw hunyuan-control --control_image "$EDGES" --control_preprocess none
pixels a
check "with none, the image is read as it is" same
draw hunyuan-control --control_image "$EDGES" --conditioning_scale 0.5
pixels b
check "less of it" differ
cp "$T/b" "$T/a"
draw hunyuan-control --controlnet "$NET" --controlnet "$NET" --control_image "$EDGES" \
    --control_image "$EDGES" --conditioning_scale 0.5,0
pixels b
check "a second one of no influence" same
draw hunyuan-control --control_image "$EDGES" --conditioning_scale 0
pixels a
draw hunyuan-control --control_image "$EDGES" --control_guidance_start 0.9
pixels b
check "in no step" same
draw hunyuan-control --control_image "$EDGES" --weights_dtype int8
check "in int8" [ "$rc" = 0 ]
draw hunyuan-control --control_image "$EDGES" --offload stream
pixels a
draw hunyuan-control --control_image "$EDGES"
pixels b
check "in streamed blocks" same
held() {
    printf '%s' "$out" |
        python3 -c 'import json, sys
print(json.load(sys.stdin)["plans"][0]["rank"][0]["transformer"])'
}
try plan --model "$FULL/hunyuan12" --world 2 --json
less=$(held)
try plan --model "$FULL/hunyuan12" --world 2 --json --controlnet "$NET"
more=$(held)
check "plans count it" [ "$more" -gt "$less" ]

# the networks of FLUX.1, one of them for three kinds of images
FLUX=$FULL/flux-controlnet
EDGES=$FLUX/control.png
no "a kind that is not given" 'controlnet 0 is for 3 kinds of control images: add control_mode' \
    flux-controlnet --controlnet "$FLUX/controlnet_2" --control_image "$EDGES"
no "an unknown kind" 'control_mode of controlnet 0 is 3; it must be a whole number from 0 to 2' \
    flux-controlnet --controlnet "$FLUX/controlnet_2" --control_image "$EDGES" --control_mode 3
no "half a kind" 'control_mode of controlnet 0 is 0.5' \
    flux-controlnet --controlnet "$FLUX/controlnet_2" --control_image "$EDGES" --control_mode 0.5
no "a kind for a network of one" 'control_mode is for control networks of several kinds' \
    flux-controlnet --control_image "$EDGES" --control_mode 1
no "a kind without a network" 'control_mode is for control networks: add' flux --control_mode 1
no "a network of other widths" 'controlnet 0 does not fit the transformer: its .* is 3, not 5' \
    flux-schnell --controlnet "$FLUX/controlnet" --control_image "$EDGES"
no "a network beside a model that edits" 'kontext models have none' \
    kontext --controlnet "$FLUX/controlnet" --control_image "$EDGES"
mkdir "$T/pixels"
cp "$FLUX/controlnet/diffusion_pytorch_model.safetensors" "$T/pixels"
sed 's/"conditioning_embedding_channels": null/"conditioning_embedding_channels": 16/' \
    "$FLUX/controlnet/config.json" >"$T/pixels/config.json"
no "a network that reads pixels in other cells" 'its patch_size is 1, not 2' \
    flux --controlnet "$T/pixels" --control_image "$EDGES"
sed -i 's/"patch_size": 1/"patch_size": 2/' "$T/pixels/config.json"
no "a network that reads pixels in other channels" \
    'its conditioning_embedding_channels is 16, not 4' \
    flux --controlnet "$T/pixels" --control_image "$EDGES"
no "a network that reads pixels in other cells" 'reads cells of 8 x 8 pixels, .* have 4 x 4' \
    flux --controlnet "$FULL/flux-controlnet-pixels/controlnet" --control_image "$EDGES"
counted() {
    try generate --model "$FULL/$1" --prompt a --num_inference_steps 1 --width 512 --height 512 \
        --control_image "$FULL/$1/control.png" --dtype f32 --memory 8MB -o "$T/x.safetensors"
    check "a request of $1 is refused" [ "$rc" != 0 ]
}
counted flux-controlnet-pixels
check "latents of a network that reads pixels need no VAE" said 'vae 0 kB [+] '
counted flux-controlnet
check "those of another network do" said 'vae [1-9][0-9]* kB [+] '
two() {
    draw flux --controlnet "$FLUX/controlnet" --controlnet "$FLUX/controlnet_2" \
        --control_image "$EDGES" --control_image "$EDGES" "$@"
}
two --control_mode 0,1
check "two networks of FLUX.1" [ "$rc" = 0 ]
pixels a
two --control_mode 1
pixels b
check "one kind for both" same
two --control_mode 2
pixels b
check "another kind" differ
two --control_mode 1 --offload stream
pixels b
check "its blocks are streamed" same
two --control_mode 1 --weights_dtype int8
check "and in int8" [ "$rc" = 0 ]

# LoRA files that widen the input layer for a control image
LORA=$FULL/flux-control-lora/control.safetensors
EDGES=$FULL/flux-control-lora/control.png
no "a control LoRA without an image" 'flux-control needs a control image' flux --lora "$LORA"
no "a control image without a control LoRA" 'this flux model reads none: add --controlnet' \
    flux --lora "$FULL/flux-control-lora/plain.safetensors" --control_image "$EDGES"
mkdir "$T/full"
cp -r "$FULL/flux" "$T/full/editor"
cp -r "$FULL/flux" "$T/full/schnell"
sed -i 's/FluxPipeline/FluxKontextPipeline/' "$T/full/editor/model_index.json"
sed -i 's/"guidance_embeds": true/"guidance_embeds": false/' \
    "$T/full/schnell/transformer/config.json"
WHOLE=$FULL
FULL=$T/full
no "a control LoRA for a model that edits" '32 channels for img_in, which has 16 in this model' \
    editor --lora "$LORA"
no "a control LoRA of another model" 'fit nothing in this model: guidance_in.in_layer' \
    schnell --lora "$LORA" --control_image "$EDGES"
FULL=$WHOLE
try convert --model "$FULL/flux" --lora "$LORA" --output "$T/merged"
check "a control LoRA is not merged" [ "$rc" != 0 ]
check "in one sentence" said '^xdit: .*32 channels for img_in, which has 16 in this model'
draw flux --lora "$LORA" --control_image "$EDGES"
check "a control LoRA" [ "$rc" = 0 ]
pixels a
draw flux --lora "$LORA" --control_image "$EDGES" --offload stream
pixels b
check "in streamed blocks" same
draw flux --lora "$LORA" --control_image "$EDGES" --weights_dtype int8
check "in int8" [ "$rc" = 0 ]
done_testing

#!/bin/sh
# edit.sh XDIT ROOT - models that read images: sizes, numbers of images, refusals.
. "$(dirname "$0")/lib.sh"
FULL=$3
MODEL=$FULL/kontext
IMAGE=$ROOT/tests/golden/kontext/image.png
edit() {
    try generate --model "$MODEL" --num_inference_steps 2 --prompt "make it red" --max_area 3072 \
        --no_auto_resize --output "$T/a.png" "$@"
}

{ printf 'P6 91 45 255\n'; head -c 12285 /dev/zero; } >"$T/odd.ppm"
edit --image "$T/odd.ppm"
check "it keeps its size but for whole tokens" said '91 x 45 pixels to 88 x 40'
# Reading comes before memory is planned, which is too little for such an image.
for area in "" "--max_area 3072"; do
    try generate --model "$MODEL" -p a $area --image "$T/odd.ppm" --memory 1MB --output "$T/a.png"
    check "without the flag it gets the nearest trained size ($area)" \
        said '91 x 45 pixels to 1456 x 720'
done
edit --image "$IMAGE"
check "an image is read" [ "$rc" = 0 ]
check "the ratio of width and height counts" said 'generating [0-9]+ x [0-9]+, with the ratio'
cp "$T/a.png" "$T/image.png"
edit
check "an edit needs no image" [ "$rc" = 0 ]
check "the image counts" sh -c "! cmp -s '$T/a.png' '$T/image.png'"

# Keys and values of the reference image that stay from step to step.
kept() { edit --image "$IMAGE" --num_inference_steps 4 --output "$T/$@"; }
kept exact.png
kept kept.png --reference_interval 0 --json
check "kept keys are said" json 'j["parameters"]["reference_interval"] == 0'
kept two.png --reference_interval 0 --nproc 2 --plan u2
kept stages.png --reference_interval 0 --nproc 2 --plan pp2 --num_pipeline_patch 1
same() { try compare --json "$T/$1" "$T/$2"; json 'j["largest"] == 0'; }
check "kept keys change the image" sh -c "! cmp -s '$T/exact.png' '$T/kept.png'"
check "a second rank does not" same kept.png two.png
check "nor do stages" same kept.png stages.png
kept bad.png --reference_interval 2 --cache fbcache:0.1
check "not with a cache" said '^xdit: reference_interval and cache '
kept bad.png --reference_interval 2 --nproc 2 --plan u2 --use_displaced_patches
check "not with displaced patches" [ "$rc" = 2 ]
kept bad.png --reference_interval=-1
check "no interval below 0" [ "$rc" = 2 ]
edit --reference_interval 2
check "nothing to keep" said '^xdit: warning: reference_interval .*reference images'
try plan --model "$MODEL" --image "$IMAGE" --max_area 3072 --no_auto_resize \
    --world 1 --reference_interval 0
check "plan marks kept keys" grep -q '^~ with --reference_interval 0: ' "$T/stdout"

try generate --model "$MODEL" --prompt a --num_inference_steps 1 --width 32 --height 32 \
    --max_area 1024 --image "$IMAGE" --image "$IMAGE" --output "$T/b.png"
check "one image is the most" [ "$rc" = 2 ]
check "in one sentence" said '^xdit: 2 images .*flux-kontext .*at most 1$'
edit --image "$IMAGE" --strength 0.5
check "there is no strength" [ "$rc" = 2 ] && check "it says why" said 'strength 0.5 .*flux-kontext'
edit --image "$T/none.png"
check "no such file" said "^xdit: cannot open $T/none.png: "

size() { json "(j['parameters']['width'], j['parameters']['height']) == ($1, $2)"; }
edit --image "$T/odd.ppm" --json
check "what is edited gives the ratio" size 72 32

# Without a size the result has the shape of the image, and not of its mask.
MODEL=$FULL/flux
{ printf 'P6 91 45 255\n'; head -c 12285 /dev/zero; } >"$T/wide.ppm"
shaped() { generate --prompt a --image "$T/wide.ppm" --output "$T/s.png" --json "$@"; }
shaped
check "an image keeps its shape" size 88 40
shaped --mask_image "$IMAGE"
check "a mask of another shape does not count" size 88 40
shaped --width 48
check "the other side follows" size 48 16
shaped --width 32 --height 32
check "the size asked for counts" size 32 32
shaped --nproc 2 --plan u2
check "all ranks have the size of rank 0" size 88 40
try plan --model "$MODEL" --image "$T/wide.ppm" --world 1 --json
check "a plan has it, too" [ "$rc" = 0 ]

MODEL=$ROOT/models/demo-pixart
generate --prompt a --max_area 4096 --output "$T/c.png"
check "max_area is refused elsewhere" [ "$rc" = 2 ]
check "it names who has it" said '^xdit: max_area is for FLUX, Qwen-Image; pixart-alpha generates'
refused "no_auto_resize of a model that resizes none" 2 "no_auto_resize is for FLUX; pixart-alpha" \
    generate --model "$MODEL" -p a --no_auto_resize --output "$T/c.png"
MODEL=$FULL/flux
generate --prompt a --width 32 --height 32 --image "$IMAGE" --image "$IMAGE" --output "$T/c.png"
check "noise starts from one image" said '^xdit: 2 images .*flux .*one$'

MODEL=$FULL/flux2-klein
A=$ROOT/tests/golden/flux2-images/image.png
set -- --image "$A" --image "$A" --image "$A"
generate --prompt "all of them" --width 64 --height 64 --output "$T/d.png" "$@"
check "several images are read" [ "$rc" = 0 ]
try generate --model "$MODEL" --prompt a --steps 1 --json --output "$T/d.png" "$@"
check "without a size the first image's is generated" json 'j["parameters"]["width"] == 72 and
    j["parameters"]["height"] == 64'
png_size() { od -An -tu1 -j16 -N8 "$1" | tr -s ' \n' ' '; }
size=$(png_size "$A")
check "which is no whole number of tokens" [ "$size" = " 0 0 0 75 0 0 0 64 " ]
check "cut to whole tokens" [ "$(png_size "$T/d.png")" = " 0 0 0 72 0 0 0 64 " ]
generate --prompt a --height 96 --nproc 2 --plan u2 --output "$T/d.png" "$@"
check "the other side is the one asked for, also on two ranks" \
    [ "$(png_size "$T/d.png")" = " 0 0 0 72 0 0 0 96 " ]
{ printf 'P6 1800 900 255\n'; head -c 4860000 /dev/zero; } >"$T/big.ppm"
try plan --model "$MODEL" --image "$T/big.ppm" --world 2 --plan u2 --json
sent_bytes() { printf %s "$out" | grep -o '"sent": [0-9]*'; }
sent=$(sent_bytes)
try plan --model "$MODEL" --image "$T/big.ppm" --world 2 --plan u2 --json -W 1448 -H 720
check "a plan is made for the first image's, of a megapixel at most" \
    [ "$(sent_bytes)" = "$sent" ]
generate --prompt a --output "$T/d.png" "$@" "$@" "$@" "$@"
check "but not any number" said '^xdit: 12 images .*flux2-klein .*at most 10$'
generate --prompt a --output "$T/d.png" --image "$IMAGE"
check "a small image is refused" said 'an image to read has 88 x 40 pixels; .* of at least 64 x 64$'

# Images that the text encoder sees, too.
MODEL=$FULL/qwen-edit-plus
A=$ROOT/tests/golden/qwen-edit-plus
set -- --prompt "side by side" --num_inference_steps 2 --max_area 6144 --json --output "$T/e.png"
try generate --model "$MODEL" "$@"
check "an image to edit is needed" \
    said '^xdit: qwen-image-edit-plus .*--image$'
try generate --model "$MODEL" "$@" --image "$A/image.png" --image "$A/image_2.png"
check "the last image gives the size" json 'j["parameters"]["width"] == 64 and
    j["parameters"]["height"] == 128'
try generate --model "$MODEL" "$@" --image "$A/image_2.png" --image "$A/image.png"
check "whichever that is" json 'j["parameters"]["width"] == 96 and j["parameters"]["height"] == 64'
try generate --model "$MODEL" --num_inference_steps 2 --max_area 6144 --output "$T/e.png" \
    --prompt "a <|image_pad|>" --image "$A/image.png"
check "a prompt has no token of an image" \
    said '^xdit: a prompt .*token \(id 272\) 2 times.* 1 image'
try generate --model "$MODEL" "$@" --image "$A/image.png" --max_sequence_length 9
check "nor is it cut off" said 'token \(id 272\) 0 times.* max_sequence_length$'
printf 'P6 1000 1 255\n%03000d' 0 >"$T/line.ppm"
try generate --model "$MODEL" "$@" --image "$T/line.ppm"
check "a line is no image" said '^xdit: an image to edit has 1000 x 1 pixels; with its ratio an'
try inspect "$MODEL" --tensors text_encoder
check "the vision tower is listed" \
    sh -c 'printf %s "$1" | grep -q "^visual.merger.mlp.0.weight 144x144$"' . "$out"

# Images that the transformer reads once per request, with the text.
MODEL=$FULL/qwen21-edit
A=$ROOT/tests/golden/qwen21-edit
set -- --prompt "side by side" --num_inference_steps 2 --max_area 6144 --json --output "$T/e.png"
try generate --model "$MODEL" "$@" --image "$A/image.png" --image "$A/image_2.png"
check "the last of several images gives the size" json 'j["parameters"]["width"] == 64 and
    j["parameters"]["height"] == 128'
try generate --model "$MODEL" "$@" --width 64 --height 32
check "no image is needed" json 'j["parameters"]["width"] == 64'
try generate --model "$MODEL" "$@" --max_area 40000 --image "$A/image.png"
check "the text encoder resizes no image" \
    said '^xdit: image 1: .*min_pixels to max_pixels of .*processor, .* 1024 and 20000$'
try generate --model "$MODEL" "$@" $(i=0; while [ $i -lt 17 ]; do
    printf -- '--image %s ' "$A/image.png"; i=$((i + 1)); done)
check "at most 16 images are read" said '^xdit: 17 images .*qwen-image-2.1 .*at most 16$'
try generate --model "$MODEL" "$@" --image "$A/golden.json"
check "other files are no images" said 'golden.json'
try generate --model "$FULL/qwen21" "$@" --image "$A/image.png"
check "without an image processor there are no images" \
    said '^xdit: .*qwen21/processor has no preprocessor_config.json, .*qwen-image-2.1'
try inspect "$MODEL" --tensors text_encoder
check "the vision tower of a file with a head is listed" \
    sh -c 'printf %s "$1" | grep -q "^model.visual.deepstack_merger_list.1.norm.bias 96$"' . "$out"
try inspect "$MODEL" --json
check "what the model reads is listed" json '"image" in j["uses"]["takes"] and
    j["uses"]["needs"] == [] and j["uses"]["images"] == 16'
try inspect "$FULL/qwen21" --json
check "nor does it read one without the processor" json '"image" not in j["uses"]["takes"] and
    j["uses"]["images"] == 0'

# Alpha, and layers of an image.
rgba() { for f; do [ "$(od -An -tu1 -j25 -N1 "$f" | tr -d ' ')" = 6 ] || return 1; done; }
try generate --model "$FULL/qwen21-edit" --prompt a --num_inference_steps 2 --width 64 --height 32 \
    --output "$T/alpha.png"
check "a PNG keeps alpha" rgba "$T/alpha.png"
try generate --model "$FULL/qwen21-edit" --prompt a --num_inference_steps 2 --width 64 --height 32 \
    --output "$T/alpha.jpg"
check "a JPEG shows the image on white" said 'warning: .*alpha.jpg: .*on white; .png and .webp'
MODEL=$FULL/qwen-layered
A=$ROOT/tests/golden/qwen-layered
separate() { try generate --model "$MODEL" --image "$A/image.png" --max_area 2048 \
                 --num_inference_steps 2 --output "$T/layer.png" --prompt "a star" "$@"; }
separate --layers 2
check "each layer has a file" [ "$out" = "$T/layer_0001.png
$T/layer_0002.png" ]
check "with alpha" rgba "$T/layer_0001.png" "$T/layer_0002.png"
mv "$T/layer_0001.png" "$T/kept_0001.png" && mv "$T/layer_0002.png" "$T/kept_0002.png"
separate --json
check "there are four layers" json 'j["parameters"]["layers"] == 4 and
    j["parameters"]["width"] == 64 and j["parameters"]["height"] == 32'
mkdir "$T/two"
separate --output "$T/two/layer.png" --layers 2 --nproc 2 --plan u2
said 'has no MPI|install the package' ||
    for i in 1 2; do
        check "layer $i of two ranks" same "kept_000$i.png" "two/layer_000$i.png"
    done
separate --width 32
check "layers have the size of the image" said '^xdit: the size 32 x .* differs .* 64 x 32'
separate --prompt " "
check "a prompt is needed" said '^xdit: prompt 2 is empty: .*qwen-image-layered .*the prompt$'
separate --output "$T/layer.gif"
check "layers are no video" said '^xdit: the output name .*layer.gif is for a video'
refused "layers of another model" 2 "layers is for Qwen-Image; kontext" generate \
    --model "$FULL/kontext" --prompt a --layers 2 --output "$T/a.png"
refused "an image is needed" 2 "qwen-image-layered needs --image" generate --model "$MODEL" \
    --prompt a --output "$T/a.png"

MODEL=$FULL/qwen-edit-plus
A=$ROOT/tests/golden/qwen-edit-mask
part() { try generate --model "$FULL/qwen-edit" --prompt a --num_inference_steps 2 \
             --max_area 6144 --json --output "$T/e.png" --image "$A/image.png" \
             --mask_image "$A/mask.png" "$@"; }
part
check "a part of the image is edited at its size" json 'j["parameters"]["width"] == 96 and
    j["parameters"]["height"] == 64 and j["parameters"]["strength"] == 0.6'
try plan --model "$FULL/qwen-edit" --image any.png --mask_image any.png --world 2 --json \
    --strength 0.1
check "a plan counts the steps of a strength" json 'j["plans"][0]["steps"] == 5'
part --width 64
check "no other size is" said '^xdit: the size 64 x 64 .* 96 x'
part --padding_mask_crop 4
check "nor is a part cut out" said '^xdit: padding_mask_crop .*qwen-image-edit'
part --image "$A/image.png"
check "nor are several images" \
    said '^xdit: 2 images .*qwen-image-edit .*one$'
try bench --model "$FULL/qwen-edit" --random_weights --width 32 --height 32 --parts text \
    --repeats 1 --max_sequence_length 5
check "a bench shows the encoder an image" \
    sh -c 'printf %s "$1" | grep -q "text_encoder, [0-9]* tokens, 5 blocks"' . "$out"
try bench --model "$FULL/qwen" --random_weights --width 32 --height 32 --parts step --repeats 1 \
    --nproc 2 --ulysses_degree 2
said 'has no MPI|install the package' || check "a schedule without a single step" [ "$rc" = 0 ]
cp -R "$MODEL" "$T/unseen"
chmod -R u+w "$T/unseen"
MODEL=$T/unseen
refused() { printf '{%s}' "$2" >"$MODEL/processor/preprocessor_config.json"
            try generate --model "$MODEL" --prompt a --image "$A/image.png" --output "$T/e.png"
            check "$1" said "$3"; }
refused "other patches are refused" '"patch_size": 14' 'patches of 14 pixels and tokens of 2 x 2'
refused "so are other filters" '"patch_size": 4, "resample": 2' 'resample 3, bicubic'
refused "and no limits" '"patch_size": 4, "max_pixels": 10' 'max_pixels 10 allow no image'
refused "and two colours" '"patch_size": 4, "image_std": [1, 2]' 'image_std must have three'
rm "$MODEL/processor/preprocessor_config.json"
try generate --model "$MODEL" --prompt a --image "$A/image.png" --output "$T/e.png"
check "a processor is needed" said "/unseen/processor has no preprocessor_config.json"

# A part of an image: flux-crop's image and mask have 41 x 90 pixels.
MODEL=$FULL/flux
A=$ROOT/tests/golden/flux-crop
inpaint() { try generate --model "$MODEL" --prompt a --num_inference_steps 1 --output "$T/e.ppm" \
              --width 32 --height 48 --dtype f32 "$@"; }
inpaint --image "$A/image.png" --mask_image "$A/mask.png" --strength 1
sized() { head -c 4096 "$T/e.ppm" | grep -aq "^$1\$"; }
check "a part is inpainted" sized '32 48'
check "a mask of the image's size needs no word" sh -c '! grep -q "the mask" "$1"' . "$T/stderr"
inpaint --image "$A/image.png" --mask_image "$IMAGE" --strength 1
check "one of another size does" said 'the mask from 88 x 40 pixels .* 41 x 90$'
inpaint --image "$A/image.png" --mask_image "$A/mask.png" --strength 1 --padding_mask_crop 0
check "only the part is generated" said 'inpainting [0-9]+ x [0-9]+ of the image.s 41 x 90 pixels'
check "the result has the image's size" sized '41 90'
inpaint --mask_image "$A/mask.png"
check "a mask needs an image" \
    said '^xdit: mask_image .*--image$'
inpaint --image "$A/image.png" --padding_mask_crop 3
check "a crop needs a mask" said '^xdit: padding_mask_crop .*--mask_image$'
printf 'P6 4 4 255\n%048d' 0 | tr 0 '\000' >"$T/black.ppm"
inpaint --image "$A/image.png" --mask_image "$T/black.ppm" --padding_mask_crop 3
check "a black mask shows no part" said '^xdit: the mask is black'
: >"$T/empty.png"
inpaint --image "$A/image.png" --mask_image "$T/empty.png"
check "an empty file is no mask" said "^xdit: $T/empty.png"
inpaint --image "$A/image.png" --mask_image "$T/none.png"
check "no such mask" said "^xdit: cannot open $T/none.png: "
# Steps and guidance that a request leaves out are those of the pipeline that it takes.
defaults() { kind=$1 wanted=$2
             shift 2
             try generate --model "$FULL/$kind" --prompt a --output "$T/e.ppm" --width 32 \
                 --height 32 --strength 0.1 --json --image "$A/image.png" "$@"
             check "defaults of $kind $*" json "
                 [j['parameters'][k] for k in ('steps', 'guidance_scale')] == [$wanted]"; }
defaults flux 28,7
defaults flux 28,7 --mask_image="$A/mask.png"
defaults flux-schnell 4,0
defaults sd3 50,7
defaults chroma 35,5
defaults auraflow 50,3.5
defaults chroma 28,7 --mask_image="$A/mask.png"
MODEL=$FULL/kontext
inpaint --image "$A/image.png" --mask_image "$A/mask.png"
check "not every model inpaints" \
    said '^xdit: mask_image is for FLUX, .*; flux-kontext .*inpaint'

# A model that reads the image and its mask beside the latents.
MODEL=$FULL/flux-fill
A=$ROOT/tests/golden/flux-fill
inpaint --image "$A/image.png" --mask_image "$A/mask.png"
check "an image and its mask are read" [ "$rc" = 0 ]
cp "$T/e.ppm" "$T/filled.ppm"
inpaint --image "$A/image.png" --mask_image "$A/mask.png" --nproc 2
if ! said 'has no MPI|install the package'; then
    check "two ranks find a plan with a mask" said '^xdit: plan: '
    for f in e filled; do tail -c 4608 "$T/$f.ppm" >"$T/$f.px"; done
    check "and generate the same pixels" cmp "$T/e.px" "$T/filled.px"
fi
inpaint --image "$A/image.png" --mask_image "$A/image.png"
other() { for f in e filled; do tail -c 4608 "$T/$f.ppm" >"$T/$f.px"; done
          ! cmp -s "$T/e.px" "$T/filled.px"; }
check "the mask counts" other
inpaint --image "$A/mask.png" --mask_image "$A/mask.png"
check "the image counts beside it" other
both='^xdit: flux-fill .*--image .*--mask_image'
inpaint --image "$A/image.png"
check "a mask must be there" said "$both"
inpaint --mask_image "$A/mask.png"
check "an image, too" said "$both"
begin_at() {
    inpaint --image "$A/image.png" --mask_image "$A/mask.png" --num_inference_steps 4 "$@"
}
begin_at
cp "$T/e.ppm" "$T/filled.ppm"
begin_at --strength 0.5
check "it starts from the image with a strength" [ "$rc" = 0 ]
check "which counts" other
cp "$T/e.ppm" "$T/filled.ppm"
begin_at --strength 0.5 --nproc 2 --plan u2
said 'has no MPI|install the package' ||
    { tail -c 4608 "$T/filled.ppm" >"$T/filled.px"
      check "and the same on two ranks" sh -c "tail -c 4608 '$T/e.ppm' | cmp - '$T/filled.px'"; }
inpaint --image "$A/image.png" --mask_image "$A/mask.png" --padding_mask_crop 3
check "nor a crop" said '^xdit: padding_mask_crop .*flux-fill'
cp -R "$MODEL" "$T/other"
chmod -R u+w "$T/other"
MODEL=$T/other
sed 's/FluxFillPipeline/FluxPipeline/' "$FULL/flux-fill/model_index.json" \
    >"$T/other/model_index.json"
inpaint
check "another pipeline gives no such channels" \
    said 'needs 20 image channels in addition to the latents, which flux does not provide$'
sed 's/: 96/: 80/' "$FULL/flux-fill/transformer/config.json" >"$T/other/transformer/config.json"
cp "$FULL/flux-fill/model_index.json" "$T/other/model_index.json"
inpaint --image "$A/image.png" --mask_image "$A/mask.png"
check "other channels are refused" \
    said 'flux-fill needs 16 channels in addition to the latents; an image and its mask have 20$'

# A model that reads a control image beside the latents, and can start from an image, too.
MODEL=$FULL/flux-control
A=$ROOT/tests/golden/flux-control-mask
C="--control_image $A/control.png"
inpaint $C --json
check "a control image is read" [ "$rc" = 0 ]
check "and told" json 'j["parameters"]["control_image"].endswith("/control.png") and
    j["parameters"]["guidance_scale"] == 3.5 and j["parameters"]["steps"] == 1'
cp "$T/e.ppm" "$T/filled.ppm"
inpaint $C --nproc 2 --plan u2
said 'has no MPI|install the package' ||
    { tail -c 4608 "$T/filled.ppm" >"$T/filled.px"
      check "and the same on two ranks" sh -c "tail -c 4608 '$T/e.ppm' | cmp - '$T/filled.px'"; }
inpaint --control_image "$A/image.png"
check "it counts" other
inpaint
check "it must be there" said '^xdit: flux-control .*--control_image'
inpaint --image "$A/image.png"
check "with an image, too" said '^xdit: flux-control .*--control_image'
begin_with() { inpaint $C --num_inference_steps 4 --image "$A/image.png" --json "$@"; }
begin_with
check "it starts from an image beside it" json 'j["parameters"]["strength"] == 0.6 and
    j["parameters"]["guidance_scale"] == 7'
begin_with --mask_image "$A/mask.png"
check "or inpaints it" json 'j["parameters"]["mask_image"].endswith("/mask.png")'
begin_with --mask_image "$A/mask.png" --padding_mask_crop 3
check "but no part of it" said '^xdit: padding_mask_crop .*flux-control'
begin_with --image "$A/image.png"
check "nor two images" said '^xdit: 2 images .*flux-control .*one$'
inpaint $C --strength 0.5
check "a strength needs an image" said '^xdit: strength 0.5 .*--image$'
inpaint --control_image "$T/none.png"
check "no such control image" said "^xdit: cannot open $T/none.png: "
try generate --model "$MODEL" --prompt a --num_inference_steps 1 --output "$T/e.ppm" $C
check "its size is the image's" sh -c 'head -c 4096 "$1" | grep -aq "^40 48$"' x "$T/e.ppm"
try generate --model "$FULL/flux" --prompt a --output "$T/e.ppm" $C
check "not every model reads one" \
    said '^xdit: control_image is for models such as FLUX.1-Canny-dev.*; this flux model reads none'

if published black-forest-labs/FLUX.1-Canny-dev; then
    try plan --model "$HF/black-forest-labs/FLUX.1-Canny-dev" --world 4 --cluster 8xH100 --json \
        --control_image any.png
    check "a plan needs no control image" [ "$rc" = 0 ]
fi
if published black-forest-labs/FLUX.1-Fill-dev; then
    try plan --model "$HF/black-forest-labs/FLUX.1-Fill-dev" --world 4 --cluster 8xH100 --json \
        --image any.png --mask_image any.png
    check "a plan needs no file" [ "$rc" = 0 ]
fi
if published black-forest-labs/FLUX.1-Kontext-dev; then
    try plan --model "$HF/black-forest-labs/FLUX.1-Kontext-dev" --world 4 --cluster 8xH100 --json
    plain=$(printf '%s' "$out" | python3 -c 'import json,sys
print(min(p["step_s"] for p in json.load(sys.stdin)["plans"]))')
    try plan --model "$HF/black-forest-labs/FLUX.1-Kontext-dev" --world 4 --cluster 8xH100 --json \
        --image any.png
    export plain
    check "a plan counts the tokens of the image" \
        json 'min(p["step_s"] for p in j["plans"]) > 1.5 * float(__import__("os").environ["plain"])'
fi

# Schedulers that add noise by alphas start from an image, too.
MODEL=$ROOT/tests/golden/alpha
A=$ROOT/tests/golden/alpha-image/image.png
over() { generate --prompt a --width 48 --height 64 --output "$T/f.png" --image "$A" "$@"; }
over --num_inference_steps 6 --strength 0.6 --scheduler HeunDiscreteScheduler
check "PixArt starts from an image" [ "$rc" = 0 ]
over --num_inference_steps 6 --strength 0.1
check "a step must be left" said 'strength 0.1 with 6 steps '
over --scheduler CogVideoXDDIMScheduler
check "a scheduler that adds no noise to an image says so" \
    said '^xdit: pixart-alpha cannot start from an image with the scheduler cogvideox-ddim'
over --mask_image "$A"
check "PixArt inpaints no part" said 'pixart-alpha .*inpaint'

done_testing

#!/bin/sh
# redux.sh XDIT ROOT FULL - images that a prior varies: which fit, their weights, and several ranks.
. "$(dirname "$0")/lib.sh"
FULL=$3
PRIOR=$FULL/flux-redux
STAR=$PRIOR/redux.png
RING=$FULL/flux-redux-two/redux_2.png
draw() {
    model=$1
    shift
    try generate --model "$FULL/$model" --num_inference_steps 2 --width 64 --height 48 \
        --max_sequence_length 9 --dtype f32 --output "$T/x.ppm" --json "$@"
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
near() {   # other orders of addition
    python3 -c 'import sys
a, b = (open(p, "rb").read() for p in sys.argv[1:])
sys.exit(len(a) != len(b) or max(abs(x - y) for x, y in zip(a, b)) > 1)' "$T/a" "$T/b"
}
pixels() { tail -c 9216 "$T/x.ppm" >"$T/$1"; }

no "no prior" 'add --redux DIR' flux --redux_image "$STAR"
no "a model that varies no images" 'but sd3 varies no images' \
    sd3 --redux "$PRIOR" --prompt star
no "images for such a model" 'is for a model with a prior .FLUX., not for sd3' \
    sd3 --redux_image "$STAR"
no "another folder" 'it has no folder image_encoder' \
    flux --redux "$FULL/sd3" --redux_image "$STAR"
no "a file" 'but it is a file: give the directory' flux --redux "$STAR" --redux_image "$STAR"
no "no such folder" 'none' flux --redux "$T/none" --redux_image "$STAR"
cp -r "$PRIOR" "$T/wide"
sed -i 's/"txt_in_features": 40/"txt_in_features": 48/' "$T/wide/image_embedder/config.json"
no "rows of another width" 'returns rows of width 48, but .* needs text of width 40' \
    flux --redux "$T/wide" --redux_image "$STAR"
cp -r "$PRIOR" "$T/deep"
sed -i 's/"redux_dim": 16/"redux_dim": 24/' "$T/deep/image_embedder/config.json"
no "another image encoder" 'image_embedder reads rows of width 24, but image_encoder returns' \
    flux --redux "$T/deep" --redux_image "$STAR"
no "weights of no image" 'prompt_embeds_scale is the weight of a redux_image' \
    flux --redux "$PRIOR" --prompt star --prompt_embeds_scale 0.5
no "three weights" 'prompt_embeds_scale has 3 numbers; it must have one, or one for each' flux \
    --redux "$PRIOR" --redux_image "$STAR" --redux_image "$RING" --prompt_embeds_scale 1,2,3
no "a weight that is no number" 'pooled_prompt_embeds_scale' \
    flux --redux "$PRIOR" --redux_image "$STAR" --pooled_prompt_embeds_scale much
no "an encoder's file without a prior" 'flux has no such text encoder .it has clip_l, t5xxl.' \
    flux --clip_vision "$STAR" --prompt star

draw flux --redux "$PRIOR" --redux_image "$STAR"
check "an image without a prompt" [ "$rc" = 0 ]
check "its parameters name the image" json '"redux_image" in j["parameters"]'
pixels a
draw flux --redux "$PRIOR" --redux_image "$RING"
pixels b
check "another image" differ
draw flux --redux "$PRIOR" --redux_image "$STAR" --redux_image "$RING" --prompt_embeds_scale 1,0 \
    --pooled_prompt_embeds_scale 1,0
pixels b
check "the weight 0 leaves an image out" same
draw flux --redux "$PRIOR" --redux_image "$STAR" --prompt "a red ring"
pixels b
check "a prompt beside the image" differ
draw flux --prompt "a red ring"
pixels a
draw flux --redux "$PRIOR" --prompt "a red ring"
pixels b
check "a prior without an image changes nothing" same

two() {
    draw flux --redux "$PRIOR" --redux_image "$STAR" --redux_image "$RING" --prompt star \
        --prompt_embeds_scale 0.7,0.4 --threads 1 "$@"
    check "two images $*" [ "$rc" = 0 ]
}
two
pixels a
for how in "--ulysses_degree 2" "--ring_degree 3" "--text_tensor_parallel_degree 2 --nproc 2" \
    "--tensor_parallel_degree 2" "--ulysses_degree 2 --ring_degree 2"; do
    two $how
    pixels b
    check "the image of one rank" near
done

held() {
    printf '%s' "$out" |
        python3 -c 'import json, sys
print(json.load(sys.stdin)["plans"][0]["request_s"])'
}
try plan --model "$FULL/flux" --world 2 --json
less=$(held)
try plan --model "$FULL/flux" --world 2 --json --redux "$PRIOR" --redux_image "$STAR"
check "plans with a prior" [ "$rc" = 0 -a "$(held)" != "$less" ]
done_testing

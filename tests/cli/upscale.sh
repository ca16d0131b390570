#!/bin/sh
# upscale.sh XDIT ROOT - xdit upscale: images, folders and videos, tiles, ranks, and refusals.
. "$(dirname "$0")/lib.sh"
NETS=$ROOT/tests/golden/upscaler
IMAGE=$NETS/image.png
up() {
    out_file=$1 net=$2
    shift 2
    rm -f "$T/$out_file"
    try upscale "$IMAGE" --model "$NETS/$net.safetensors" --output "$T/$out_file" --dtype f32 \
        --threads 1 "$@"
}
no() {
    what=$1 code=$2 pattern=$3
    shift 3
    rm -f "$T/x.ppm"
    try upscale "$@"
    check "$what" [ "$rc" = "$code" -a ! -e "$T/x.ppm" ]
    check "in one sentence" said "^xdit: .*$pattern"
}
shows() { printf '%s\n' "$out" | grep -Eq -- "$1"; }
same() { cmp -s "$T/$1" "$T/$2"; }

up a.ppm x4
check "an image" [ "$rc" = 0 ]
check "whose name is printed" [ "$out" = "$T/a.ppm" ]
check "of four times the size" sh -c "head -c 4096 '$T/a.ppm' | grep -aqx '56 44'"
check "with the radius of its receptive field" said 'RRDBNet enlarges by 4; .*radius of 34 pixels'
up b.ppm x4 --tile_size 5
check "the same in tiles" same a.ppm b.ppm
up one.png x4
check "a PNG tells its upscaler" grep -aq 'postprocessing.Postprocess upscale by: 4' "$T/one.png"
for net in x4 x2 x1 old-x2 compact-x4; do
    up a.ppm $net
    for ranks in 2 3; do
        up b.ppm $net --nproc $ranks
        said 'has no MPI|install the package' && break
        check "$net on $ranks ranks" same a.ppm b.ppm
    done
    up b.ppm $net --tile_size 8 --nproc 2
    said 'has no MPI|install the package' || check "$net in tiles on two ranks" same a.ppm b.ppm
done

mkdir "$T/frames"
cp "$IMAGE" "$T/frames/1.png"
cp "$IMAGE" "$T/frames/2.png"
try upscale "$T/frames" --model "$NETS/x2.safetensors" --output "$T/f.ppm" --dtype f32
check "a folder" [ "$rc" = 0 -a -e "$T/f_0001.ppm" -a -e "$T/f_0002.ppm" ]
up a.ppm x2
check "each of its images" same a.ppm f_0002.ppm
try upscale "$T/frames" --model "$NETS/x2.safetensors" --output "$T/f.rgb" --dtype f32 --fps 5
check "as raw frames" [ "$rc" = 0 -a "$(wc -c <"$T/f.rgb")" = $((2 * 22 * 28 * 3)) ]
no "a folder without a rate" 2 'add --fps' "$T/frames" --model "$NETS/x2.safetensors" \
    --output "$T/x.rgb"
no "a video of one image" 2 'x.rgb' "$IMAGE" --model "$NETS/x2.safetensors" --output "$T/x.rgb" \
    --fps 5

no "no input" 2 'upscale IN' --model "$NETS/x4.safetensors" --output "$T/x.ppm"
no "no model" 2 'add --model' "$IMAGE" --output "$T/x.ppm"
no "no output" 2 'add --output' "$IMAGE" --model "$NETS/x4.safetensors"
no "two inputs" 2 'image' "$IMAGE" "$IMAGE" --model "$NETS/x4.safetensors" --output "$T/x.ppm"
no "no such image" 1 "$T/none.png" "$T/none.png" --model "$NETS/x4.safetensors" --output "$T/x.ppm"
no "no such model" 1 "$T/none.safetensors" "$IMAGE" --model "$T/none.safetensors" \
    --output "$T/x.ppm"
no "a pickle" 1 'net.pth is a pickle .*save_file' "$IMAGE" --model "$T/net.pth" --output "$T/x.ppm"
no "an ONNX graph" 1 'net.onnx' "$IMAGE" --model "$T/net.onnx" --output "$T/x.ppm"
no "another network" 1 'RRDBNet' "$IMAGE" --model "$ROOT/tests/golden/annotate.safetensors" \
    --output "$T/x.ppm"
no "tiles of nothing" 2 'tile_size' "$IMAGE" --model "$NETS/x4.safetensors" --tile_size 0 \
    --output "$T/x.ppm"
no "an unknown type" 2 'x.bmp' "$IMAGE" --model "$NETS/x4.safetensors" --output "$T/x.bmp"
printf 'P6 4 4 255\n' >"$T/short.ppm"
no "a damaged image" 1 'short.ppm' "$T/short.ppm" --model "$NETS/x4.safetensors" \
    --output "$T/x.ppm"

demo() {
    out_file=$1
    shift
    generate --prompt "a red ring" --dtype f32 --no_resolution_binning --width 64 --height 64 \
        --output "$T/$out_file" "$@"
}
demo plain.png
try upscale "$T/plain.png" --model "$NETS/x2.safetensors" --output "$T/a.ppm" --dtype f32
demo b.ppm --upscale "$NETS/x2.safetensors" --json
check "the result of a request" [ "$rc" = 0 ]
check "with the upscaler in its parameters" json 'j["parameters"]["upscale"] == 2'
tail -c 49152 "$T/a.ppm" >"$T/a"
tail -c 49152 "$T/b.ppm" >"$T/b"
check "is the enlarged image" same a b
demo b.ppm --upscale "$NETS/x2.safetensors" --nproc 2
said 'has no MPI|install the package' || { tail -c 49152 "$T/b.ppm" >"$T/b"
    check "also on two ranks" same a b; }
demo c.ppm --upscale "$T/net.pth"
check "a pickle is refused" said 'net.pth is a pickle'

try inspect "$NETS/x2.safetensors"
check "inspect knows it" shows 'RRDBNet'
check "and its scale" shows 'enlarges by 2'
try inspect "$NETS/compact-x4.safetensors" --json
check "also in JSON" json 'j["upscaler"]["class"] == "SRVGGNetCompact" and
    j["upscaler"]["scale"] == 4'
done_testing

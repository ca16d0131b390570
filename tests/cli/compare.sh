#!/bin/sh
# compare.sh XDIT ROOT FILL - xdit compare: numbers of images, directories and videos, the image of
# where, and what is refused. FILL makes the weights of a tiny model of videos.
. "$(dirname "$0")/lib.sh"

# grey FILE WIDTH HEIGHT LEVEL: an image of one level.
grey() {
    python3 -c 'import sys
w, h, level = map(int, sys.argv[2:])
open(sys.argv[1], "wb").write(b"P6\n%d %d\n255\n" % (w, h) + bytes([level]) * (3 * w * h))' "$@"
}
grey "$T/a.ppm" 20 12 100
grey "$T/b.ppm" 20 12 103
grey "$T/wide.ppm" 21 12 100

try compare "$T/a.ppm" "$T/b.ppm"
check "two greys" [ "$rc" = 0 -a -z "$err" ]
check "their table" [ "$out" = "pixels   20x12
PSNR     38.59 dB
SSIM     0.99956
mean     3 of 255 levels
largest  3" ]
# 20 log10(255 / 3), and (2 a b + c1) / (a^2 + b^2 + c1).
try compare --json "$T/a.ppm" "$T/b.ppm"
check "their JSON" json 'abs(j["psnr"] - 38.588378) < 1e-5 and j["mean"] == 3 and
j["largest"] == 3 and not j["equal"] and j["frames"] == 1 and j["width"] == 20 and
abs(j["ssim"] - (2 * 100 * 103 + 6.5025) / (100 ** 2 + 103 ** 2 + 6.5025)) < 1e-7'
try compare "$T/a.ppm" "$T/a.ppm" --json -t 1
check "equal images" json 'j["equal"] and j["psnr"] is None and j["ssim"] == 1 and j["mean"] == 0'

try compare "$T/a.ppm" "$T/b.ppm" --difference "$T/d.ppm"
grey "$T/want.ppm" 20 12 64     # 255 log2(1 + 3) / 8
try compare --json "$T/d.ppm" "$T/want.ppm"
check "where they differ" json 'j["equal"] and j["width"] == 20'

# Directories, in the order of numbers in names.
mkdir "$T/one" "$T/two"
for i in 8 9 10; do
    grey "$T/one/f$i.ppm" 20 12 "$i"
    grey "$T/two/f$i.ppm" 20 12 "$((i + (i == 10) * 5))"
done
echo text >"$T/two/notes.txt"
try compare "$T/one" "$T/two" --json
check "directories" json 'j["frames"] == 3 and j["worst_frame"] == 2 and j["largest"] == 5'
try compare "$T/one" "$T/two"
check "their table" [ "$(printf '%s\n' "$out" | tail -n 1)" = \
    "largest  5, and frame 3 differs most" ]
rm "$T/two/f9.ppm"
refused "one frame less" 2 "2" compare "$T/one" "$T/two"

refused "another width" 2 "a.ppm 20x12 wide.ppm 21x12" \
    compare "$T/a.ppm" "$T/wide.ppm"
refused "one image" 2 "compare" compare "$T/a.ppm"
refused "three images" 2 "'c'" compare a b c
refused "no such file" 1 "$T/none.png" compare "$T/a.ppm" "$T/none.png"
mkdir "$T/empty"
refused "an empty directory" 1 "$T/empty" compare "$T/empty" "$T/a.ppm"
refused "a text" 1 "notes.txt" compare "$T/a.ppm" "$T/two/notes.txt"
head -c 100 "$T/a.ppm" >"$T/cut.ppm"
refused "a cut image" 1 "cut.ppm" compare "$T/cut.ppm" "$T/a.ppm"
refused "a difference that is no image" 2 "x.mp4 .png" \
    compare "$T/a.ppm" "$T/b.ppm" --difference "$T/x.mp4"
refused "a folder that is not there" 1 "none/d.png" \
    compare "$T/a.ppm" "$T/b.ppm" --difference "$T/none/d.png"

# Videos: H.264 and GIF beside the frames that they are made of.
"$3" "$ROOT/tests/golden/cog2b" "$T/cog" || fail "the model is made"
film() { try generate --model "$T/cog" --prompt "a cat" --steps 2 --dtype f32 --quiet "$@"; }
mkdir "$T/frames"
film -o "$T/frames/%d.ppm"
film -o "$T/x.gif"
try compare "$T/frames" "$T/x.gif" --json
if said "FFmpeg"; then
    echo "# skipped: videos are not compared, there is no FFmpeg: $err"
else
    check "frames and their GIF" json 'j["frames"] == 9 and 25 < j["psnr"] < 60 and j["ssim"] > 0.8'
    film -o "$T/x.mp4"
    try compare "$T/frames" "$T/x.mp4" --json
    check "frames and their H.264" json 'j["frames"] == 9 and 25 < j["psnr"] < 60'
    try compare "$T/x.mp4" "$T/x.mp4" --json
    check "a video and itself" json 'j["equal"] and j["frames"] == 9 and j["width"] == 56'
    head -c 2000 "$T/x.mp4" >"$T/cut.mp4"
    refused "a cut video" 1 "cut.mp4 FFmpeg" compare "$T/cut.mp4" "$T/x.mp4"
    refused "a video and an image" 2 "x.mp4" compare "$T/frames/1.ppm" "$T/x.mp4"
fi
# generate --compare: the numbers of two runs.
ring() { try generate --model "$MODEL" -p "a red ring" --steps 8 --seed 3 --quiet "$@"; }
ring -o "$T/exact.png"
ring -o "$T/saved.png" --cache fbcache:0.4 --compare
check "generate --compare" eval '[ "$rc" = 0 ] && [ "$(printf "%s\n" "$out" | wc -l)" = 3 ]'
check "it writes the image with the savings alone" [ "$(ls "$T" | grep -c saved)" = 1 ]
ring -o "$T/saved.png" --cache fbcache:0.4 --compare --json
out=$(printf '%s\n' "$out" | tail -n 1)
told=$out
check "its JSON" json 'j["compared"].endswith("saved.png") and j["seconds"] > 0 and
j["exact_seconds"] > 0 and 15 < j["psnr"] < 60'
try compare "$T/exact.png" "$T/saved.png" --json
check "the numbers of xdit compare" json "abs(j['psnr'] - ($told)['psnr']) < 1e-6 and
abs(j['ssim'] - ($told)['ssim']) < 1e-6 and j['largest'] == ($told)['largest']"
refused "nothing to compare" 2 "--cache --attention" generate --model "$MODEL" -p a --compare
refused "a seed by chance" 2 "--seed" generate --model "$MODEL" -p a --compare \
    --cache fbcache --seed -1
refused "latents" 2 "latents" generate --model "$MODEL" -p a --compare \
    --cache fbcache -o "$T/x.safetensors"
refused "only some images" 2 "--skip_existing" generate --model "$MODEL" -p a --compare \
    --attention int8 --skip_existing
done_testing

#!/bin/sh
# weights.sh XDIT MONTAGE MODEL PROMPTS - how far weights in eight and four bits move images.
#
# Generates every prompt of a file (image i with seed i) in f32 and in bf16, with weights as
# computed and in int8, fp8 and int4 (the T5 encoder's too in the last three columns), and prints
# PSNR over all channels in dB against f32 and against bf16, image by image, and the median.
set -eu
XDIT=$1 MONTAGE=$2 MODEL=$3 PROMPTS=$4
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
n=$(grep -c '[^ ]' "$PROMPTS")

# generate NAME FLAGS...
generate() {
    name=$1
    shift
    mkdir "$T/$name"
    "$XDIT" generate --model "$MODEL" --prompts "$PROMPTS" --seed 0 --rng torch \
        -q "$@" -o "$T/$name/%03d.png" >/dev/null
}
generate f32 --dtype f32
generate bf16 --dtype bf16
for w in int8 fp8 int4; do
    generate "$w" --dtype bf16 --weights_dtype $w
    generate "$w,text" --dtype bf16 --weights_dtype $w --text_weights_dtype $w
done
for against in f32 bf16; do
    columns="int8 fp8 int4 int8,text fp8,text int4,text"
    [ $against = bf16 ] || columns="bf16 $columns"
    echo "PSNR in dB against $against:"
    printf '%8s' image
    for w in $columns; do printf ' %10s' "$w"; done
    echo
    for i in $(seq -f %03g "$n"); do
        printf '%8s' "$i"
        for w in $columns; do
            printf ' %10s' "$("$MONTAGE" 2 "$T/m.png" "$T/$against/$i.png" "$T/$w/$i.png" |
                tail -n 1)"
        done
        echo
    done | tee "$T/rows"
    printf '%8s' median
    for k in $(seq 2 "$(awk 'NR == 1 { print NF }' "$T/rows")"); do
        printf ' %10s' "$(awk -v k=$k '{ print $k }' "$T/rows" | sort -n | awk '{ v[NR] = $1 }
            END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }')"
    done
    echo
done

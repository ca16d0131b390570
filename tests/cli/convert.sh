#!/bin/sh
# convert.sh XDIT ROOT GOLDEN WRITER - xdit convert; WRITER is test_single, which makes files in the
# layouts of original repositories of a golden model.
. "$(dirname "$0")/lib.sh"
WRITER=$4
CHECK=$(dirname "$0")/convert.py
FLUX=$3/flux
export OMP_WAIT_POLICY=passive

convert() { try convert "$@"; }
# image NAME ARGS...: NAME.raw has the pixels of a small image.
image() {
    shot=$1
    shift
    try generate --prompt "a red circle" --width 64 --height 64 --num_inference_steps 2 --seed 3 \
        --quiet --output "$T/$shot.ppm" "$@"
    tail -c 12288 "$T/$shot.ppm" >"$T/$shot.raw"
    [ "$rc" = 0 ] && [ "$(wc -c <"$T/$shot.raw")" = 12288 ]
}
alike() { cmp -s "$T/$1.raw" "$T/$2.raw"; }
# Processors without products of bf16 compute --dtype bf16 in f32, from numbers that a conversion to
# bf16 has rounded: by a few levels.
rounded() {
    alike "$1" "$2" || { [ -n "$wide" ] && python3 "$CHECK" near "$T/$1.raw" "$T/$2.raw" 4; }
}
wide=$("$XDIT" generate --model "$MODEL" -p a --steps 1 --width 64 --height 64 --dtype bf16 \
    -o "$T/wide.png" 2>&1 | grep 'bf16 is computed in f32')
[ -z "$wide" ] || echo "# bf16 is computed in f32 here: rounded numbers are within 4 levels"
# clean DIR: it is complete, and nothing but files of a model is there.
clean() { [ -e "$1/model_index.json" ] && [ -z "$(find "$1" -name '.*' -o -name '*tmp*')" ]; }

# The same numbers under the same names.
for name in demo flux wan zimage; do
    from=$3/$name
    [ $name = demo ] && from=$MODEL
    convert --model "$from" --output "$T/$name"
    check "$name: as stored" [ "$rc" = 0 -a "$out" = "$T/$name" -a -z "$err" ]
    check "$name: complete" clean "$T/$name"
    check "$name: the same tensors" python3 "$CHECK" same "$from" "$T/$name"
    check "$name: the same files beside them" diff -rq -x '*.safetensors' -x golden.json \
        "$from" "$T/$name"
done
places() { python3 "$CHECK" tensors "$1" | awk '/^transformer .*x192 / && $5 % 64'; }
check "matrices begin at multiples of 64 bytes" [ -z "$(places "$T/demo")" ]

# A type for matrices: the image is that of the original in this type.
for type in f32 bf16; do
    for name in demo flux; do
        from=$3/$name
        [ $name = demo ] && from=$MODEL
        image from --model "$from" --dtype $type
        convert --model "$from" --output "$T/$name-$type" --weights_dtype $type
        check "$name: $type" [ "$rc" = 0 ]
        image to --model "$T/$name-$type" --dtype $type
        check "$name: the image in $type" alike from to
    done
done
check "f32 numbers are the stored ones" python3 "$CHECK" same "$FLUX" "$T/flux-f32"
convert --model "$T/flux-f32" --output "$T/flux-back" --weights_dtype bf16
check "f32 and back" [ "$rc" = 0 ]
types() { python3 "$CHECK" tensors "$1" | grep "^$2 " | awk '{ print $3 }' | sort | uniq -c |
    awk '{ printf "%s ", $2 }'; }
check "vectors keep their numbers" [ "$(types "$T/flux-back" transformer)" = "BF16 F32 " ]

# Files in other layouts become those of diffusers.
"$WRITER" "$3" flux "$T" || fail "the files are written"
cp -r "$FLUX" "$T/bare"
rm -f "$T"/bare/*/*.safetensors "$T"/bare/golden.*
convert --config "$T/bare" --transformer "$T/model.safetensors" --vae "$T/ae.safetensors" \
    --clip_l "$T/clip_l.safetensors" --t5xxl "$T/t5xxl.safetensors" -o "$T/files"
check "original files" [ "$rc" = 0 -a -z "$err" ]
check "original files: the same tensors" python3 "$CHECK" same "$FLUX" "$T/files"

# GGUF.
python3 "$CHECK" q8 "$T/model.safetensors" "$T/model.gguf" || fail "the GGUF file is written"
image from --model "$FLUX" --transformer "$T/model.gguf" --dtype bf16
check "an image of a GGUF file" [ "$rc" = 0 ]
convert --model "$FLUX" --transformer "$T/model.gguf" --output "$T/gguf"
check "a GGUF file" [ "$rc" = 0 ]
check "blocks become bf16" [ "$(types "$T/gguf" transformer)" = "BF16 F32 " ]
image to --model "$T/gguf" --dtype bf16
check "the image of the GGUF file" rounded from to
cp -r "$FLUX" "$T/box"
rm "$T"/box/transformer/*.safetensors
cp "$T/model.gguf" "$T/box/transformer"
convert --model "$T/box" --output "$T/unpacked"
check "a directory with a GGUF file" [ "$rc" = 0 ]
check "becomes the same" diff -r "$T/gguf/transformer" "$T/unpacked/transformer"

# LoRA files are added.
LORA=$3/flux-lora/peft.safetensors
for type in f32 bf16; do
    image from --model "$FLUX" --dtype $type --lora "$LORA:0.7"
    convert --model "$FLUX" --lora "$LORA:0.7" --output "$T/lora-$type" --weights_dtype $type
    check "a LoRA in $type" [ "$rc" = 0 ]
    image to --model "$T/lora-$type" --dtype $type
    check "its image in $type" rounded from to
    image none --model "$FLUX" --dtype $type
    check "which is another one without it" sh -c '! cmp -s "$1" "$2"' x "$T/none.raw" "$T/to.raw"
done

# Integers: those that generate computes.
for name in demo flux; do
    from=$3/$name
    [ $name = demo ] && from=$MODEL
    convert --model "$from" --output "$T/$name-int8" --weights_dtype int8 --text_weights_dtype int8
    check "$name: int8" [ "$rc" = 0 -a -z "$err" ]
    for type in f32 bf16; do
        image from --model "$from" --weights_dtype int8 --text_weights_dtype int8 --dtype $type
        image to --model "$T/$name-int8" --weights_dtype int8 --text_weights_dtype int8 \
            --dtype $type
        check "$name: the image in int8 and $type" alike from to
        image to --model "$T/$name-int8" --weights_dtype auto --text_weights_dtype auto \
            --dtype $type
        check "$name: the image in auto and $type" alike from to
    done
done
# e4m3 with a scale a row, and blocks of four bits.
for kind in fp8 int4; do
    both="--weights_dtype $kind --text_weights_dtype $kind"
    # shellcheck disable=SC2086
    convert --model "$MODEL" --output "$T/$kind" $both
    check "$kind" [ "$rc" = 0 -a -z "$err" ]
    for type in f32 bf16; do
        # shellcheck disable=SC2086
        image from --model "$MODEL" $both --dtype $type
        # shellcheck disable=SC2086
        image to --model "$T/$kind" $both --dtype $type
        check "the image in $kind and $type" alike from to
        image to --model "$T/$kind" --weights_dtype auto --text_weights_dtype auto --dtype $type
        check "the image of $kind in auto and $type" alike from to
    done
    # shellcheck disable=SC2086
    convert --model "$T/$kind" --output "$T/$kind-again" $both
    check "$kind again is the same" python3 "$CHECK" same "$T/$kind" "$T/$kind-again"
    image from --model "$T/$kind" --dtype f32
    convert --model "$T/$kind" --output "$T/$kind-wide" --weights_dtype f32
    image to --model "$T/$kind-wide" --dtype f32
    check "$kind becomes f32" python3 "$CHECK" near "$T/from.raw" "$T/to.raw" 3
done
check "int4 takes a third" \
    [ "$(($(cat "$T"/int4/transformer/*.safetensors | wc -c) * 29 / 10))" \
    -lt "$(cat "$MODEL"/transformer/*.safetensors | wc -c)" ]
check "int8 takes half" [ "$(($(cat "$T"/demo-int8/transformer/*.safetensors | wc -c) * 17 / 10))" \
    -lt "$(cat "$MODEL"/transformer/*.safetensors | wc -c)" ]
check "its layout" python3 "$CHECK" layout "$T/demo-int8" transformer 81
convert --model "$T/demo-int8" --output "$T/demo-int8-again" --weights_dtype int8 \
    --text_weights_dtype int8
check "int8 again" [ "$rc" = 0 -a -z "$err" ]
check "is the same int8" python3 "$CHECK" same "$T/demo-int8" "$T/demo-int8-again"
image from --model "$T/demo-int8" --dtype bf16
convert --model "$T/demo-int8" --output "$T/demo-wide"
check "int8 becomes bf16" [ "$rc" = 0 -a "$(types "$T/demo-wide" transformer)" = "BF16 " ]
image to --model "$T/demo-wide" --dtype bf16
check "with the image that it has in bf16" rounded from to
image from --model "$FLUX" --dtype bf16 --lora "$LORA:0.7" --weights_dtype int8
convert --model "$FLUX" --lora "$LORA:0.7" --output "$T/lora-int8" --weights_dtype int8
image to --model "$T/lora-int8" --dtype bf16 --weights_dtype int8
check "int8 with a LoRA" rounded from to

# Shards.
convert --model "$MODEL" --output "$T/shards" --shard_size 0.5MB
check "shards" [ "$rc" = 0 ]
check "none is larger" [ -z "$(find "$T/shards" -size +520k -name '*.safetensors')" ]
check "there are many" [ "$(ls "$T"/shards/transformer/*-of-*.safetensors | wc -l)" -gt 10 ]
check "the same tensors in shards" python3 "$CHECK" same "$MODEL" "$T/shards"
image from --model "$MODEL"
image to --model "$T/shards"
check "the image of shards" alike from to

# Parts.
convert --model "$FLUX" --component transformer --output "$T/part"
check "one component" [ "$rc" = 0 -a "$(ls "$T/part")" = transformer ]
convert --model "$FLUX" --component text_encoder --component text_encoder_2 --output "$T/part"
check "others beside it" [ "$rc" = 0 -a "$(ls "$T/part" | wc -l)" = 3 ]
refused "the same again" 1 "part/transformer --force" convert \
    --model "$FLUX" --component transformer --output "$T/part"
refused "an unknown component" 2 ".it text_encoder text_encoder_2" \
    convert --model "$FLUX" --component unet --output "$T/none"
check "nothing is made" [ ! -e "$T/none" ]

# What is there.
refused "an output that is there" 1 "--force" convert \
    --model "$MODEL" --output "$T/demo"
cp -r "$T/shards" "$T/again"
convert --model "$MODEL" --output "$T/again/" --force
check "--force" [ "$rc" = 0 -a -z "$err" ]
check "--force leaves no old shards" diff -r "$T/demo" "$T/again"
refused "into itself" 2 "again read" convert --model "$T/again" --force \
    --output "$T/again"
check "it is as it was" diff -r "$T/demo" "$T/again"
refused "over a file that is read" 2 "transformer" convert --model "$FLUX" \
    --force --transformer "$T/part/transformer/diffusion_pytorch_model.safetensors" \
    --output "$T/part"
refused "a file as the output" 1 "model.gguf file" convert --model "$MODEL" --output "$T/model.gguf"
refused "an output in nothing" 1 "/nothing" convert --model "$MODEL" \
    --output "$T/nothing/x"
refused "an output that cannot be made" 1 "/proc/x" convert \
    --model "$MODEL" --output /proc/x
refused "no output" 2 "directory" convert --model "$MODEL"
refused "no model" 2 "convert model" convert --output "$T/none"
refused "a size of nothing" 2 "shard_size .5" convert --model "$MODEL" \
    --output "$T/none" --shard_size "5 apples"
refused "an unknown type" 2 "weights_dtype" convert --model "$MODEL" --output "$T/none" \
    --weights_dtype q9

# Killed in the middle, and run again.
go() { exec "$XDIT" convert --model "$MODEL" --output "$T/killed" --shard_size 100kB "$@"; }
tries=0
while [ $tries -lt 20 ]; do
    tries=$((tries + 1))
    rm -rf "$T/killed"
    go >/dev/null 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! ls "$T"/killed/transformer/*-0000[3-9]-of-* >/dev/null 2>&1
    do :; done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ -e "$T/killed/model_index.json" ] || break
done
check "killed" [ ! -e "$T/killed/model_index.json" -a -e "$T/killed/.xdit-convert.json" ]
check "no half file" [ -z "$(find "$T/killed" -name '*tmp*')" ]
refused "other arguments" 2 "f32" \
    convert --model "$MODEL" --output "$T/killed" --shard_size 100kB --weights_dtype f32
refused "another model" 2 "incomplete other" convert \
    --model "$T/demo-f32" --output "$T/killed" --shard_size 100kB
had=$(ls -i "$T"/killed/transformer/*-00002-of-* | cut -d ' ' -f 1)
convert --model "$MODEL" --output "$T/killed" --shard_size 100kB
check "it goes on" [ "$rc" = 0 ]
check "and says so" said "^xdit: warning: [0-9]* of [0-9]* weight files"
check "files that were complete stay" \
    [ "$had" = "$(ls -i "$T"/killed/transformer/*-00002-of-* | cut -d ' ' -f 1)" ]
convert --model "$MODEL" --output "$T/whole" --shard_size 100kB
check "as if it had not been killed" diff -r "$T/killed" "$T/whole"
check "complete" clean "$T/killed"

# Ctrl-C.
rm -rf "$T/killed"
go >/dev/null 2>"$T/stderr" &
pid=$!
while kill -0 $pid 2>/dev/null && ! ls "$T"/killed/transformer/*.safetensors >/dev/null 2>&1; do :
done
kill -INT $pid 2>/dev/null
wait $pid
rc=$?
check "Ctrl-C" [ "$rc" = 130 -o "$rc" = 0 ]
check "Ctrl-C leaves no half file" [ -z "$(find "$T/killed" -name '*tmp*')" ]

# A disk that gets full, and one that is too small.
rm -rf "$T/killed"
(ulimit -f 400 && trap '' XFSZ && "$XDIT" convert --model "$MODEL" --output "$T/killed") \
    >"$T/stdout" 2>"$T/stderr"
rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
check "a file that cannot be written" [ "$rc" = 1 ]
check "is said" said "^xdit: (cannot write .*killed/.*: File too large|.* KiB .*ulimit -f)"
convert --model "$MODEL" --output "$T/killed"
check "then it goes on" [ "$rc" = 0 ]
check "to the same end" diff -r "$T/killed" "$T/demo"
small() {
    unshare -m sh -c 'mount -t tmpfs -o size=8m small "$0" && exec "$@"' "$@" >"$T/stdout" \
        2>"$T/stderr" </dev/null
}
mkdir "$T/small"
if [ "$(id -u)" = 0 ] && small "$T/small" true 2>/dev/null; then
    small "$T/small" "$XDIT" convert --model "$MODEL" --output "$T/small/x"
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    check "a small disk" [ "$rc" = 1 ]
    check "is said with both sizes" said "13.[0-9] MB, and the disk has 8.* MB"
else
    echo "# skipped: a small disk, which needs root and mounts of one's own"
fi

# Memory: of a tensor of 256 MB a few rows at a time.
cp -r "$MODEL" "$T/large"
python3 "$CHECK" large "$T/large" 1048576
for type in bf16 f32; do
    check "a large tensor in little memory, as $type" python3 "$CHECK" most 100000 "$XDIT" convert \
        --model "$T/large" --output "$T/large-$type" --text_weights_dtype $type --threads 2 \
        --component text_encoder
    rm -rf "$T/large-$type"
done
done_testing

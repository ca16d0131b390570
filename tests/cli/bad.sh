#!/bin/sh
# Bad input: one clear sentence and an exit code that is not 0, before the first step.
. "$(dirname "$0")/lib.sh"

g() {
    what=$1 code=$2 pattern=$3; shift 3; refused "$what" "$code" "$pattern" generate --quiet "$@"
}

g "no such directory" 1 "$T/nothing" --model "$T/nothing" --prompt a -o "$T/x.png"
mkdir "$T/empty"
g "a directory without a model" 1 "model_index.json" --model "$T/empty" --prompt a -o "$T/x.png"
HF_HOME=$T/hf g "a model that is not in the cache" 1 "nobody/nothing" --model nobody/nothing \
    --prompt a
# A name without its organisation: of one model of the cache, of two, of none.
for id in a--one a--two b--two; do
    mkdir -p "$T/hub/models--$id/refs" "$T/hub/models--$id/snapshots"
    printf 0123 >"$T/hub/models--$id/refs/main"
    cp -r "$MODEL" "$T/hub/models--$id/snapshots/0123"
done
mkdir -p "$T/hub/models--c--bare"
for command in inspect "plan --world 2"; do
    HF_HUB_CACHE=$T/hub try ${command%% *} one ${command#"${command%% *}"}
    check "${command%% *} finds the one model of a name" [ "$rc" = 0 ]
done
HF_HUB_CACHE=$T/hub try generate --model one --prompt a --steps 1 -q -o "$T/one.png"
check "generate finds it, too" whole_png "$T/one.png"
HF_HUB_CACHE=$T/hub g "two models of a name" 1 \
    "two is the name of 2 models .*: a/two and b/two; name one of them" --model two --prompt a
HF_HUB_CACHE=$T/hub g "a model without a snapshot" 1 'c/bare is in .* without a snapshot of main' \
    --model bare --prompt a
HF_HUB_CACHE=$T/hub g "no model of a name" 1 \
    'no directory three, and no model of that name .*hub: .*"hf download ORG/three"' \
    --model three --prompt a
HF_HUB_CACHE=$T/none g "no cache" 1 "no directory three, and no model of that name" --model three \
    --prompt a
HF_HUB_CACHE=$T/hub g "a revision that is not there" 1 '"hf download a/one --revision v2"' \
    --model a/one@v2 --prompt a
rm "$T"/hub/models--a--one/snapshots/0123/vae/*.safetensors
HF_HUB_CACHE=$T/hub g "a file of the cache that is missing" 1 \
    'vae has no weights.*; "hf download a/one" downloads missing files$' --model a/one --prompt a
rm "$T/hub/models--a--one/snapshots/0123/model_index.json"
HF_HUB_CACHE=$T/hub g "the index, too" 1 'no model_index.json.*; "hf download a/one" downloads' \
    --model a/one --prompt a
g "a file instead of a directory" 1 "meson.build is a file; .*--transformer FILE" \
    --model "$ROOT/meson.build" --prompt a

g "a side that does not divide" 2 "100.*96.*112" --model "$MODEL" --prompt a \
    --width 100 -o "$T/x.png"
g "a side of a million pixels" 1 "[0-9] (GB|GiB|TB|TiB|PB|PiB|EB|EiB|bytes)" \
    --model "$MODEL" --prompt a --width 1000000 --height 1000000 -o "$T/x.png"
g "an unknown scheduler" 2 "scheduler" --model "$MODEL" --prompt a --scheduler dice -o "$T/x.png"
g "a scheduler of rectified flow" 2 \
    "flow-euler rectified pixart-alpha" \
    --model "$MODEL" --prompt a --scheduler flow-euler -o "$T/x.png"
refused "a scheduler without flow for FLUX" 2 \
    "rectified" \
    plan --model "$ROOT/tests/golden/flux" --world 2 --scheduler euler
g "an unknown device" "[12]" "abacus" --model "$MODEL" --prompt a --device abacus -o "$T/x.png"
g "what only counts" 2 'no device "count"' --model "$MODEL" --prompt a --device count -o "$T/x.png"
mkdir -p "$T/models--a--b/snapshots" "$T/models--a--b/refs"
g "a model's folder in the cache" 1 "models--a--b has no model_index.json: .*snapshots.*org/name" \
    -m "$T/models--a--b" -p a
XDIT_BF16=yes g "a word that XDIT_BF16 does not know" 2 "XDIT_BF16=yes .*emulate" -m "$MODEL" \
    -p a -o "$T/x.png"

g "an output directory that is not there" 1 "$T/no/where" --model "$MODEL" --prompt a \
    -o "$T/no/where/x.png"
g "a directory as output" "[12]" "$T/empty" --model "$MODEL" --prompt a -o "$T/empty"
g "an output that cannot be written" 1 "/proc/x.png" --model "$MODEL" --prompt a -o /proc/x.png
g "an unknown format" 2 "x.avi" --model "$MODEL" --prompt a -o "$T/x.avi"
for ext in mp4 gif rgb; do
    g "a video of a model of images: .$ext" 2 \
        "x.$ext .*video.*images" \
        --model "$MODEL" --prompt a -o "$T/x.$ext"
done
# The output is looked at before the model is: a wrong name costs no waiting.
g "a wrong output is found first" 1 "$T/no/x.png" --model "$T/nothing" --prompt a -o "$T/no/x.png"

try generate --model "$MODEL" --prompt a -o "$T/no/x.png"
check "no step was taken for an output that cannot be" [ "$rc" = 1 -a -z "$(echo "$err" |
    grep denoise)" ]

# A weight file cut short.
cp -r "$MODEL" "$T/cut" && chmod -R u+w "$T/cut"
file=$(find "$T/cut/transformer" -name '*.safetensors' | head -n 1)
size=$(wc -c <"$file")
head -c $((size / 2)) "$file" >"$T/half" && cat "$T/half" >"$file"
g "a truncated weight file" 1 "$(basename "$file").*[0-9]" --model "$T/cut" --prompt a -o "$T/x.png"
head -c 5 "$T/half" >"$file"
g "a weight file of 5 bytes" 1 "$(basename "$file")" --model "$T/cut" --prompt a -o "$T/x.png"
rm "$file"
g "a missing weight file" 1 "transformer" --model "$T/cut" --prompt a -o "$T/x.png"
cp "$MODEL/transformer/$(basename "$file")" "$file"
printf '{ "_class_name": ' >"$T/cut/transformer/config.json"
g "a config cut short" 1 "config.json" --model "$T/cut" --prompt a -o "$T/x.png"

# NaN in the first weights of the file: a warning that names the tensor, and a failure in place of a
# black image. Finite weights of the autoencoder that overflow fail as well.
cp -r "$MODEL" "$T/nan" && chmod -R u+w "$T/nan"
file=$(find "$T/nan/transformer" -name '*.safetensors' | head -n 1)
header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
name=$(head -c $((8 + header)) "$file" | tail -c +9 | tr '}' '\n' |
    sed -n 's/.*"\([^"]*\)": *{[^{]*"data_offsets": *\[0,.*/\1/p')
printf '\300\177' | dd of="$file" bs=1 seek=$((8 + header)) conv=notrunc 2>/dev/null
try generate --model "$T/nan" --prompt a --num_inference_steps 1 --quiet -o "$T/nan.png"
check "the test found the first tensor" [ -n "$name" ]
check "NaN weights are warned of by name" said "warning.*$name"
check "NaN latents are a failure" [ "$rc" = 1 ]
check "of the transformer" said "^xdit: image 1 .*latents.* NaN or infinite.* transformer .*weights"
check "without an image" [ ! -e "$T/nan.png" ]
{ head -c $((8 + header)) "$file"; head -c $(($(wc -c <"$file") - 8 - header)) /dev/zero |
    tr '\0' '\377'; } >"$T/half"
cat "$T/half" >"$file"
try generate --model "$T/nan" --prompt a --num_inference_steps 1 --quiet -o "$T/nan.png"
check "many of them fill no screen" said "more weights hold NaN"
check "but a few lines" [ "$(printf '%s\n' "$err" | wc -l)" -le 5 ]
cp -r "$MODEL" "$T/large" && chmod -R u+w "$T/large"
file=$(find "$T/large/vae" -name '*.safetensors' | head -n 1)
python3 - "$file" <<'END'
import json
import struct
import sys

path = sys.argv[1]
data = bytearray(open(path, "rb").read())
head, = struct.unpack("<Q", data[:8])
for name, t in json.loads(data[8:8 + head]).items():
    if name.startswith("decoder") and name.endswith(".weight"):
        begin, end = (8 + head + i for i in t["data_offsets"])
        number = struct.pack("<f", 3e38)[0 if t["dtype"] == "F32" else 2:]
        if t["dtype"] in ("F32", "BF16"):
            data[begin:end] = number * ((end - begin) // len(number))
open(path, "wb").write(data)
END
try generate --model "$T/large" --prompt a --num_inference_steps 1 --quiet -o "$T/large.png"
check "pixels beyond all numbers are a failure" [ "$rc" = 1 ]
check "of the autoencoder" said "^xdit: image 1 .* of its [0-9]+ levels are NaN or infinite.* vae "
check "without an image" [ ! -e "$T/large.png" ]
try generate --model "$T/large" --prompt a --num_inference_steps 1 --quiet --dtype f32 \
    --use_parallel_vae --nproc 2 --plan u2 -o "$T/large.png"
check "nor an image of two ranks" sh -c '[ "$1" = 1 ] && [ ! -e "$2" ]' - "$rc" "$T/large.png"

# What a file says of itself is no command to the terminal, and a pipe in its place no reason to
# wait.
cp -r "$MODEL" "$T/odd" && chmod -R u+w "$T/odd"
printf '{ "_class_name": "a\\u001b[31m\\nb" }' >"$T/odd/model_index.json"
g "a name with control characters" 1 "names the pipeline a.\[31m.b," --model "$T/odd" \
    --prompt a -o "$T/x.png"
mv "$T/odd/model_index.json" "$T/odd/modular_model_index.json"
g "a modular pipeline" 1 "odd/modular_model_index.json names the pipeline" --model "$T/odd" \
    --prompt a -o "$T/x.png"
rm "$T/odd/modular_model_index.json"
cp "$MODEL/model_index.json" "$T/odd/"
for pipe in "$T/odd/transformer/$(basename "$file")" "$T/odd/vae/config.json"; do
    rm "$pipe" && mkfifo "$pipe"
    timeout 20 "$XDIT" generate -m "$T/odd" -p a -q -o "$T/x.png" 2>"$T/stderr" </dev/null
    rc=$? err=$(cat "$T/stderr")
    check "a pipe as $(basename "$pipe")" [ "$rc" = 1 ]
    check "is no regular file" said "$(basename "$pipe") is not a regular file"
    rm "$pipe" && cp "$MODEL${pipe#"$T/odd"}" "$pipe"
done

# A stack that a run would overflow, and one that is enough for ranks, too.
small_stack() {
    ( ulimit -s "$1" && shift && "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null )
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
}
for what in generate plan; do
    small_stack 64 $what -m "$MODEL"
    check "a stack of 64 kB: $what" [ "$rc" = 1 ]
    check "is said: $what" \
        said "^xdit: the stack is limited to 64 kB .ulimit -s.*512 kB"
done
if ldd "$XDIT" 2>/dev/null | grep -q 'lib.san'; then
    echo "# skipped: a sanitizer's frames are larger"
else
    for n in 1 2; do
        small_stack 512 generate -m "$MODEL" -p a --steps 1 -q --nproc $n -o "$T/stack.png"
        check "512 kB are enough: $n" whole_png "$T/stack.png"
        rm -f "$T/stack.png"
    done
fi

# Processor time, where the soft and the hard limit are one.
(ulimit -t 1 && "$XDIT" generate -m "$MODEL" -p a -q --steps 1000 -W 512 -H 512 \
    --no_resolution_binning -o "$T/x.png" >"$T/stdout" 2>"$T/stderr" </dev/null)
rc=$? err=$(cat "$T/stderr")
check "a limit of processor time" [ "$rc" = 1 ]
check "is said" said "^xdit: .*1 s.*.ulimit -t.*"
(ulimit -S -t 1 && "$XDIT" generate -m "$MODEL" -p a -q --steps 1000 -W 512 -H 512 \
    --no_resolution_binning -o "$T/x.png" >"$T/stdout" 2>"$T/stderr" </dev/null)
rc=$? err=$(cat "$T/stderr")
check "a soft one, too" said \
    "^xdit: .*1 s.*.ulimit -t.*"

# Where no file may have a byte the sentence passes through a pipe.
for n in 1 2; do
    err=$( (ulimit -f 0 && "$XDIT" generate -m "$MODEL" -p a --steps 1 -q \
        --nproc $n -o "$T/x.png" 2>&1; echo "exit $?") | cat)
    check "files of no bytes: $n" said \
        "^xdit: (cannot write .*: File too large|.* 0 KiB .ulimit -f.*)$"
    check "end with 1: $n" said "^exit 1$"
done

generate --prompt "" -o "$T/none.png"
check "an empty prompt is allowed" [ "$rc" = 0 -a -s "$T/none.png" ]
check "nothing of the refused is left" [ ! -e "$T/x.png" ]
# A size far beyond the model's own is warned of before anything is loaded, with the time.
"$XDIT" generate --model "$MODEL" --prompt a -W 20000 -H 256 --num_inference_steps 500 \
    -o "$T/far.png" 2>"$T/far" </dev/null &
far=$!
n=0
while [ $n -lt 300 ] && ! grep -q 'transformer: ' "$T/far" && kill -0 $far 2>/dev/null; do
    sleep 0.1
    n=$((n + 1))
done
kill $far && wait $far 2>/dev/null
err=$(sed '/transformer: /,$d' "$T/far")
check "a far larger size is warned of" \
    said 'warning: 20000 x 256 pixels .* own size, 128 x 128.* [0-9.]+ (min|hours)'
generate --prompt a -W 192 -H 128 --num_inference_steps 1 -o "$T/larger.png"
check "not of one that takes no time" sh -c '[ "$1" = 0 ] && [ -z "$2" ]' - "$rc" "$err"

# A failure while oneDNN is being loaded and FFmpeg's libraries are there: exit waits for the load.
codes=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    try generate --model "$T/nowhere" --prompt a -o "$T/x.mp4"
    codes="$codes $rc"
done
check "no model for a video:$codes" [ -z "$(echo "$codes" | tr -d '1 ')" ]

done_testing

#!/bin/sh
# lora.sh XDIT MODEL LORA [FLAGS] - how long merging a LoRA file takes beside reading the weights.
#
# Generates the latents of one step five times without the file and five times with it, in turns,
# and prints the median seconds of loading the transformer in each case, and of reading the bytes
# of the transformer's files alone. Merging is what the file adds to the loading. The first run,
# which fills the page cache, does not count. FLAGS are those of xdit generate, --weights_dtype int8
# say.
set -eu
XDIT=$1 MODEL=$2 LORA=$3
shift 3
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT

# load FLAGS...: seconds.
load() {
    "$XDIT" generate --model "$MODEL" -p a --num_inference_steps 1 -q --json "$@" \
        -o "$T/a.safetensors" 2>"$T/err" >"$T/out" || { cat "$T/err" >&2; exit 1; }
    sed 's/.*"load":\([0-9.]*\).*/\1/' "$T/out"
}
median() { sort -n "$1" | sed -n 3p; }

load "$@" >/dev/null
for i in 1 2 3 4 5; do
    load "$@" >>"$T/plain"
    load --lora "$LORA" "$@" >>"$T/merged"
    { time -p cat "$MODEL"/transformer/*.safetensors >/dev/null; } 2>&1 |
        sed -n 's/^real //p' >>"$T/read"
done
plain=$(median "$T/plain") merged=$(median "$T/merged")
echo "reading the files: $(median "$T/read") s"
echo "loading: $plain s, with the LoRA $merged s"
echo "$plain $merged" | awk '{ printf "merging: %.3f s\n", $2 - $1 }'

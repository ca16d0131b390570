#!/bin/sh
# The demo's 24 colour prompts in one launch, by four stages with four patches and one exact step,
# at the demo's default steps: as many in their colours as diffusers generates with such keys and
# values (tests/golden/demo_prompts.json). The images are judged by the program in the third
# argument.
set -u
XDIT=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
ROOT=$2 JUDGE=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
MODEL=$ROOT/models/demo-pixart
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT

python3 -c '
import json, sys
want = json.load(open(sys.argv[1]))
prompts = want["colour_prompts"]
assert [p["seed"] for p in prompts] == list(range(len(prompts))), "image i of a request has seed i"
print(*(p["prompt"] for p in prompts), sep="\n", file=open(sys.argv[2], "w"))
for k in ("steps", "guidance_scale", "size", "patches", "warmup"):
    print("%s=%s" % (k, want[k]))' "$ROOT/tests/golden/demo_prompts.json" "$T/prompts" >"$T/sizes" \
        || exit 1
. "$T/sizes"
if ! "$XDIT" generate --model "$MODEL" --prompts "$T/prompts" --seed 0 --rng torch --dtype f32 \
    --threads 1 --width "$size" --height "$size" --num_inference_steps "$steps" \
    --guidance_scale "$guidance_scale" \
    --pipefusion_parallel_degree 4 --num_pipeline_patch "$patches" --warmup_steps "$warmup" \
    --quiet -o "$T/%02d.png" >/dev/null 2>"$T/stderr"; then
    if grep -Eq 'has no MPI|install the package' "$T/stderr"; then
        echo "1..0 # SKIP there is no MPI to start several ranks with"
        exit 0
    fi
    echo "not ok 1 - the images are generated"
    sed 's/^/# /' "$T/stderr"
    echo "1..1"
    exit 1
fi
"$JUDGE" "$ROOT/tests/golden" "$MODEL" "$T"

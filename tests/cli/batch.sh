#!/bin/sh
# batch.sh XDIT ROOT - files of prompts, images that are there already, times of each image, seeds
# chosen at random.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/tests/golden/alpha
batch() {
    try generate --model "$MODEL" --prompts "$T/prompts" --steps 2 --seed 3 --dtype f32 "$@"
}
names() { for i in "$@"; do echo "$T/$i.ppm"; done; }
sums() { (cd "$T" && cksum ?.ppm); }
# json EXPRESSION: is it true of the list d of objects that were printed?
json() {
    printf '%s\n' "$out" | python3 -c '
import json, sys
d = [json.loads(line) for line in sys.stdin]
sys.exit(not eval(sys.argv[1], {"d": d, "len": len, "all": all, "set": set, "sum": sum,
                                "sorted": sorted, "abs": abs, "max": max}))' "$1"
}

printf '# a comment\r\n  a red circle  \n\n#\n#\tanother\n#hashtag\n\tb\t\n a # in it' >"$T/prompts"
batch --json -q -o "$T/%d.ppm"
check "comments and blanks at the ends are no prompts" json \
    '[x["parameters"]["prompt"] for x in d] == [
    "a red circle", "#hashtag", "b", "a # in it"]'
check "times of each image, and of all" json \
    'all(x["seconds"].keys() == {"denoise", "decode"} for x in d) and len(
    {x["batch_seconds"]["total"] for x in d}) == 1 and abs(sum(x["seconds"]["denoise"] for x in d) -
    d[0]["batch_seconds"]["denoise"]) < 1e-3 and abs(sum(x["seconds"]["decode"] for x in d) -
    d[0]["batch_seconds"]["decode"]) < 1e-3 and d[0]["sent"] == 0'
try generate --model "$MODEL" -p a --steps 1 --json -q -o "$T/x.ppm"
check "a single image has all its times" json \
    '"total" in d[0]["seconds"] and "batch_seconds" not in d[0] and d[0]["sent"] == 0'
whole=$(sums)

# An interrupted run: only what is missing is made, with its own seed and prompt.
rm "$T/2.ppm" "$T/4.ppm"
touch -d '2001-01-01' "$T/1.ppm" "$T/3.ppm"
batch --skip_existing -o "$T/%d.ppm"
check "what is missing is made, and is the same as before" [ "$rc" = 0 -a "$(sums)" = "$whole" ]
check "it says how many were skipped" said '^xdit: 2 of 4 images skipped: their files exist'
check "and how many were made" said '^xdit: 2 images in '
check "progress counts those" said '^denoise 2/2 .*image 2/2$'
check "the others are untouched" [ -z "$(find "$T/1.ppm" "$T/3.ppm" -newermt 2001-06-01)" ]
check "all names are printed, in order" [ "$out" = "$(names 1 2 3 4)" ]
batch --skip_existing -o "$T/%d.ppm"
check "nothing is left to do" [ "$rc" = 0 -a "$out" = "$(names 1 2 3 4)" ] &&
    check "which is said" said '4 of 4 images skipped'
check "and no text is encoded" sh -c '! printf "%s\n" "$1" | grep -q "^text"' x "$err"
rm "$T/3.ppm"
batch --skip_existing --json -q -o "$T/%d.ppm"
check "JSON says which" json \
    '[x.get("skipped", False) for x in d] == [True, True, False, True] and d[2]["seed"] == 5'
check "quietly" [ -z "$err" ]
batch -q -o "$T/%d.ppm"
check "without the flag all are made" [ -n "$(find "$T/1.ppm" -newermt 2001-06-01)" \
    -a "$(sums)" = "$whole" ]
try generate --model "$MODEL" -p a --steps 1 -q --skip_existing -o "$T/x.ppm"
check "one image that is there" [ "$rc" = 0 -a "$out" = "$T/x.ppm" ]
mkdir "$T/none.ppm"
try generate --model "$MODEL" -p a --steps 1 -q --skip_existing -o "$T/new.ppm"
check "one that is not" [ "$rc" = 0 -a -s "$T/new.ppm" ]

# Random seeds.
one() { try generate --model "$MODEL" -p a --steps 1 --seed "$@"; }
one -1 --json -o "$T/a.png"
seed=$(printf '%s\n' "$err" | sed -n 's/^xdit: seed \([0-9]*\), .*--seed \1 .*/\1/p')
check "--seed -1 says its seed: $seed" [ -n "$seed" ]
check "JSON and parameters have it" json \
    "d[0]['seed'] == $seed and d[0]['parameters']['seed'] == $seed" &&
    check "the image, too" grep -qa "Seed: $seed" "$T/a.png"
one "$seed" -q -o "$T/b.png"
check "which makes the same image" cmp "$T/a.png" "$T/b.png"
one=$seed
one -1 -q --json -o "$T/b.png"
check "and the next one is another" json "d[0]['seed'] != $one"
one 18446744073709551615 -q --json -o "$T/b.png"
check "2^64 - 1 is a seed like others" json "d[0]['seed'] == 18446744073709551615"

# Names of types as others write them.
one 1 --dtype bfloat16 --weights_dtype float8_e4m3fn -q --json -o "$T/b.png"
check "bfloat16 is bf16, float8_e4m3fn fp8" json 'd[0]["parameters"]["weights_dtype"] == "fp8"'
one 1 --dtype float32 -q --json -o "$T/b.png"
check "float32 is f32" json 'd[0]["parameters"]["dtype"] == "f32"'
g="generate --model $MODEL -p a -q -o $T/no.png"
refused "float16 has a reason" 2 "float16 65504" $g \
    --dtype fp16
refused "of weights, too" 2 "'half' float16 65504" $g --weights_dtype half
refused "a strength of 0" 2 "0 1 '0'" $g --strength 0
refused "a model that is a file" 1 "directory" generate -p a \
    --model "$ROOT/README.md"
refused "a model that is not there" 1 "directory" generate -p a --model "$T/none"
refused "more text than FLUX reads" 2 "max_sequence_length 513 512" \
    plan --model "$ROOT/tests/golden/flux" --cluster H100 --max_sequence_length 513
refused "than SD3 reads" 2 "max_sequence_length 513 sd3 512" plan \
    --model "$ROOT/tests/golden/sd3" --cluster H100 --max_sequence_length 513
try generate --model "$MODEL" -p a --steps 1 -q -o "$T/b.png"
check "galleries know the sampler" grep -qa "Sampler: DPM++ 2M, " "$T/b.png"

# The same decisions on all ranks.
rm -f "$T"/?.ppm
batch --nproc 2 -q -o "$T/%d.ppm"
if said 'has no MPI|install the package'; then
    echo "# skipped: there is no MPI to start several ranks with"
    done_testing
    exit 0
fi
for plan in "--data_parallel_degree 2" "--ulysses_degree 2" \
    "--data_parallel_degree 2 --use_cfg_parallel"; do
    rm -f "$T"/?.ppm
    batch $plan -q -o "$T/%d.ppm"
    check "$plan: the bits of one rank" [ "$rc" = 0 ]
    whole=$(sums)
    rm "$T/1.ppm" "$T/2.ppm" "$T/4.ppm"
    batch $plan --skip_existing -o "$T/%d.ppm"
    check "$plan: what is missing is made" [ "$rc" = 0 -a "$(sums)" = "$whole" ]
    check "$plan: said once" [ "$(printf '%s\n' "$err" |
        grep -c '^xdit: 1 of 4 images skipped: its file exists')" = 1 ]
    check "$plan: all names in order" [ "$out" = "$(names 1 2 3 4)" ]
done
batch --ulysses_degree 2 --skip_existing -o "$T/%d.ppm" --trace "$T/t.json"
check "two ranks without anything to do" [ "$rc" = 0 -a "$out" = "$(names 1 2 3 4)" -a -s \
    "$T/t.json" ]
one -1 --ulysses_degree 2 -o "$T/a.png"
check "ranks agree on a random seed" [ "$rc" = 0 -a "$(printf '%s\n' "$err" |
    grep -c 'seed [0-9]*, ')" = 1 ]
seed=$(printf '%s\n' "$err" | sed -n 's/^xdit: seed \([0-9]*\), .*/\1/p')
one "${seed:-none}" --ulysses_degree 2 -q -o "$T/b.png"
check "which makes the same image" cmp "$T/a.png" "$T/b.png"
done_testing

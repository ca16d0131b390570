#!/bin/sh
# xdit bench with a plan: fields, and the bytes of a step against the formulas of doc/methods.md.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/tests/golden/alpha

# One rank: what kernels take and what lies between them is the whole of each part, to the rounding
# of its lines.
try bench --config "$MODEL" --random_weights --threads 1 --repeats 3 -W 64 -H 64
whole() {
    printf '%s\n' "$out" |
        awk '/% of the time/ {
            for (i = 2; i <= NF; i++)
                if ($i == "%" && $(i + 2) == "the" && $(i + 3) ~ /^time/) {
                    sum += $(i - 1); rows++; break
                }
        }
        /^[a-z]/ && rows {
            parts++
            if (sum < 99.5 || sum > 100.5)
                bad = bad " " sum
            sum = rows = 0
        }
        END { if (parts < 4 || bad) { print "# parts " parts ", sums" bad; exit 1 } }'
}
check "the shares of a part add up to 100 %" whole
# The first line is there long before the last one, also in a pipe.
"$XDIT" bench --config "$ROOT/models/demo-pixart" --random_weights --threads 1 --repeats 60 \
    -W 512 -H 512 --parts vae >"$T/lines" 2>"$T/stderr" &
pid=$!
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -s "$T/lines" ] && break
    sleep 0.2
done
check "the first line comes while parts are timed" \
    sh -c '[ "$(wc -l <"$1")" = 1 ] && kill -0 "$2"' x "$T/lines" $pid
kill $pid
wait $pid 2>/dev/null

if "$XDIT" bench --config "$MODEL" --nproc 2 --repeats 1 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi

# config NAME: a number of the transformer.
config() {
    python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' \
        "$MODEL/transformer/config.json" "$1"
}
H=$(config num_attention_heads) D=$((H * $(config attention_head_dim))) L=$(config num_layers)
C=$(config in_channels) P=$(config patch_size)
side=96                         # pixels: so many tokens that three ranks share them unevenly
N=$((side / 8 / P * (side / 8 / P)))
F=$((C * P * P))

plan() {
    try bench --config "$MODEL" --random_weights --dtype f32 --threads 1 --repeats 2 --json \
        -W $side -H $side "$@"
}
# report PART EXPRESSION: is it true of the part of that name, and of the whole (all)?
report() {
    printf '%s' "$out" | python3 -c '
import json, sys
everything = json.load(sys.stdin)
part = {p["part"]: p for p in everything["parts"]}.get(sys.argv[1], {})
near = lambda a, b: abs(a - b) <= 1e-3 * abs(b)
known = {"all": all, "near": near, "len": len, "min": min, "max": max, "every": everything, **part}
sys.exit(not eval("(" + sys.argv[2] + ")", known))' "$1" "$2"
}
# adds_up PLAN RANKS BYTES: a list of what each rank sends in a step.
adds_up() {
    check "$1: it runs and says nothing else" [ "$rc" = 0 -a -z "$err" ]
    check "$1: sent as predicted" report step \
        "as_predicted and sent == predicted and sent_all == predicted_all"
    check "$1: by the formula" report step "sent == $3"
    check "$1: $2 ranks, two rounds" report step \
        "every['ranks'] == $2 and rounds == len(alone) == len(plan) == len(busy) == 2"
    check "$1: the efficiency lies in its range, and is that of a round" report step \
        "near(efficiency_range[1], max(a / p for a, p in zip(alone, plan)) / $2)
            and efficiency_range[0] <= efficiency <= efficiency_range[1]
            and near(speedup, efficiency * $2)"
}
well=$((4 * 1))                 # bytes of "is everybody well", to each other rank

plan --ulysses_degree 2
# (3 n (H - h) + (N' - n) h) d e of an attention: five heads are two and three.
adds_up "ulysses 2" 2 "[(3 * n * ($H - h) + ($N - n) * h) * $D // $H * 4 * $L + $well
    for n in [$N // 2] for h in [$H // 2, $H - $H // 2]]"
plan --ring_degree 2
adds_up "ring 2" 2 "[2 * ($N // 2) * $D * 4 * $L + $well] * 2"
plan --use_cfg_parallel
adds_up "cfg 2" 2 "[4 * $N * $F + $well] * 2"
check "cfg 2: two passes" report step "what.endswith('2 passes')"
plan --pipefusion_parallel_degree 2 --num_pipeline_patch 3
adds_up "pipefusion 2" 2 "[4 * $N * $D + $well, 4 * $N * $F + $well]"
plan --tensor_parallel_degree 2 --use_parallel_vae --parts "step vae"
adds_up "tensor 2" 2 "[12 * $N * $D * $L + $well] * 2"
check "rows of the VAE: sent as predicted" report vae \
    "as_predicted and sent[1] > 4 * 3 * $side * $side // 2"
plan --pipefusion_parallel_degree 3 --ulysses_degree 2 --parts step
check "6 ranks, stages of uneven patches" report step \
    "as_predicted and len(sent) == 6 and min(sent) > 0"

try bench --config "$MODEL" --random_weights --threads 1 --repeats 1 --nproc 2 -W $side -H $side
check "without --json: the same as text" [ "$rc" = 0 -a "$(printf '%s\n' "$out" |
    grep -c 'as predicted, in every round')" = 1 ]
try bench --config "$MODEL" --random_weights --threads 1 --repeats 1 --nproc 3 --ring_degree 2 \
    -W $side -H $side
check "an idle rank waits" [ "$rc" = 0 -a "$(printf '%s\n' "$err" |
    grep -c '1 of 3 ranks are idle')" = 1 ]
refused "one rank decodes" 2 "--use_parallel_vae" bench --config "$MODEL" --nproc 2 --parts vae
refused "text with a plan" 2 'step vae .text' bench --config "$MODEL" --nproc 2 \
    --parts "text step"
refused "a block with a plan" 2 'step vae .block' bench --config "$MODEL" \
    --nproc 2 --parts block
refused "a part that is none" 2 'text vae .text:vae' bench \
    --config "$MODEL" --parts text:vae
refused "no parts" 2 'empty' bench --config "$MODEL" --parts ""
refused "a size that cannot be" 2 "33" bench --config "$MODEL" --random_weights --nproc 2 \
    -W 33
refused "more ranks than there are" 2 "would" bench --config "$MODEL" --nproc 2 \
    --ring_degree 3
refused "no such model" 1 "directory" bench --config "$T/none" --nproc 2
done_testing

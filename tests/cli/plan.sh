#!/bin/sh
# xdit plan: the table, one plan, JSON, clusters by name and by file, refusals. Times are not looked
# at.
. "$(dirname "$0")/lib.sh"

# table EXPRESSION: is it true of the JSON that was printed?
table() {
    printf '%s' "$out" | python3 -c '
import json, sys
doc = json.load(sys.stdin)
plans = doc["plans"]
good = [p for p in plans if "refused" not in p]
known = {"doc": doc, "plans": plans, "good": good, "len": len, "all": all, "any": any, "set": set,
         "sum": sum, "sorted": sorted, "abs": abs, "max": max}
sys.exit(not eval(sys.argv[1], known))' "$1"
}
shows() { printf '%s\n' "$out" | grep -qF -- "$1"; }
plan() { try plan --model "$MODEL" --cluster 8xH100 "$@"; }

plan --world 4 --json
check "plans of 4 ranks, as JSON" [ "$rc" = 0 -a -z "$err" ]
check "every one uses 4 ranks, and they are sorted" table \
    "(len(good) >= 10 and all(p['ranks'] == 4 for p in good) and
    [p['request_s'] for p in good] == sorted(p['request_s'] for p in good))"
check "ranks one by one" table \
    "all(len(p['rank']) == 4 and max(r['peak'] for r in p['rank']) == p['peak'] for p in good)"
check "the time of a request is that of its parts" table \
    "all(abs(p['text_s'] + p['exact_step_s'] * p['exact_steps'] +
    p['step_s'] * (p['steps'] - p['exact_steps']) + p['decode_s'] - p['request_s'])
        < 1e-4 * p['request_s'] for p in good)"
plan --world 4 --exact --json
check "--exact: the image of one rank" table "good and all(p['exact'] for p in good)"
plan --world 8 --json --plan u2 --ring_degree 2
check "degrees are kept" table "good and all('u2' in p['plan'] and 'r2' in p['plan'] for p in good)"
plan --world 4 --guidance_scale 1 --all --json
check "--all: what cannot be, with a reason" table \
    "good and any('guidance' in p.get('refused', '') for p in plans)"
plan --world 1 -W 512 -H 512
check "an image that is decoded in several bands" [ "$rc" = 0 -a -z "$err" ]
plan --world 4 --num_inference_steps 7 -W 64 -H 64
check "the table" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -Ec '^ +[0-9]+  (u|r|pp|tp|cfg)')" \
    -ge 10 ]
check "it says the cluster, the steps and the best" [ "$(printf '%s\n' "$out" |
    grep -Ec '8xH100, bf16, 7 steps|^best: --')" = 2 ]
plan --world 2 --json --exact
whole=$(printf '%s' "$out" |
    python3 -c \
    'import json,sys; d=json.load(sys.stdin); print(d["plans"][0]["rank"][0]["transformer"])')
plan --world 2 --json --exact --weights_dtype int8
check "int8: it says so, blocks take less memory" table "(doc['weights_dtype'] == 'int8' and
    all(r['transformer'] < 0.6 * $whole for p in good for r in p['rank']))"
plan --world 1 --weights-dtype fp8
check "the table says it" [ "$(printf '%s\n' "$out" | grep -c 'bf16 with fp8 weights')" = 1 ]
plan --world 4 --explain 2
check "one plan: a line of time for every rank" [ "$(printf '%s\n' "$out" |
    grep -Ec '^ +[0-3]  [#. ]{64}$')" = 4 ]
check "its flags" [ "$(printf '%s\n' "$out" | grep -c '^flags: --')" = 1 ]
plan --world 1
check "one rank" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -c '^best: one rank')" = 1 ]
plan --world 1 --json
check "one rank: transformer and autoencoder are never loaded together" table "all(r['peak'] <
    r['transformer'] + r['vae'] + max(r['transformer_tmp'], r['vae_tmp']) for r in good[0]['rank'])"

cat >"$T/two.json" <<'END'
{"name": "two small hosts", "hosts": 2, "ranks_per_host": 2, "memory": 1e10,
 "bf16": {"gemm_flops": 1e12, "gemm_half_rows": 8, "attention_flops_64": 5e11,
           "attention_flops_128": 6e11,
          "attention_half_keys": 16, "convolution_flops": 4e11,
           "memory_bandwidth": 1e10, "call_seconds": 1e-6},
 "inside": {"latency_seconds": 1e-5, "bandwidth": 1e9, "overlap": 0.5},
 "between": {"latency_seconds": 1e-4, "bandwidth": 1e8, "overlap": 0.5}}
END
try plan --model "$MODEL" --cluster "$T/two.json" --json
check "a cluster from a file: all of its ranks" table \
    "doc['ranks'] == 4 and doc['cluster'] == 'two small hosts'"
try plan --model "$MODEL" --world 2 --json
check "this machine" table "good and all(p['step_s'] > 0 for p in good)"
# The cost model alone would make cfg the best of two links where messages are dear.
sed 's/1e9, "overlap"/1e5, "overlap"/; s/1e8, "overlap"/1e5, "overlap"/' \
    "$T/two.json" >"$T/slow.json"
try plan --model "$MODEL" --cluster "$T/slow.json" --world 2 --exact
check "slow links: what sends least is best" [ "$(printf '%s\n' "$out" |
    grep -Ec '^best: --use_cfg_parallel')" = 1 ]

try plan --model "$ROOT/tests/golden/flux" --cluster 8xH100 --world 2 --exact --json
check "FLUX makes one pass a step" table "good and all('cfg2' not in p['plan'] for p in good)"
try plan --model "$ROOT/tests/golden/flux" --cluster 8xH100 --world 2 --exact --json \
    --true_cfg_scale 3
check "and two when it is guided" table "any('cfg2' in p['plan'] for p in good)"
# The best line is the whole plan: switches, numbers and texts. What makes no difference is left
# out.
best() { printf '%s\n' "$out" | sed -n 's/^best: //p'; }
try plan --model "$ROOT/tests/golden/flux" --cluster 2xH200 --plan pp2 --num_pipeline_patch 3 \
    --warmup_steps 2 --pipefusion_text every --attn_layer_num_for_pp 2,3
want="--pipefusion_parallel_degree 2 --num_pipeline_patch 3 --warmup_steps 2"
want="$want --pipefusion_text every --use_parallel_vae --attn_layer_num_for_pp 2,3"
check "the best line has every flag" [ "$(best)" = "$want" ]
check "a device by data sheet is marked" shows "of 2xH200 (by data sheet, not fitted), bf16"
try plan --model "$ROOT/tests/golden/flux" --cluster 2xH200 --plan u2 --explain 1
check "in detail, too" shows "1: ulysses 2 (VAE rows) by data sheet, not fitted"
try plan --model "$ROOT/tests/golden/flux" --cluster 2xH200 --plan u2 --num_pipeline_patch 3 \
    --pipefusion_text every --json
check "flags without effect are not in it" table \
    "(plans[0]['flags'] == '--ulysses_degree 2 --use_parallel_vae' and
    plans[0]['plan'] == 'u2vae' and plans[0]['exact'] and not doc['fitted'])"
check "and a warning says so" said \
    "^xdit: warning: num_pipeline_patch .*any of these plans"
try plan --model "$ROOT/tests/golden/flux" --cluster 4xH200 --num_pipeline_patch 3 \
    --pipefusion_text every
check "but not where one of the plans has stages" [ "$rc" = 0 -a -z "$err" ]
try plan --model "$MODEL" --cluster H100 --json
check "one device by its name" table \
    "doc['cluster'] == '1xH100' and doc['ranks'] == 1 and doc['fitted']"
try plan --model "$MODEL" --cluster none
known=$(printf '%s\n' "$err" | sed -n 's/.*known devices: \(.*\)$/\1/p' | tr -d ,)
help=$("$XDIT" plan --help all | tr '\n' ' ')
lacks=
for d in $known; do
    printf '%s' "$help" | grep -Eq "[ ,]$d[,;.]" || lacks="$lacks help:$d"
done
check "the help names all devices ($known)$lacks" [ -n "$known" -a -z "$lacks" ]
refused "no model" 2 "plan model" plan --world 2
refused "no such cluster" 2 "9xB H100 MI300X 8xH100" \
    plan --model "$MODEL" --cluster 9xB
refused "more ranks than the cluster has" 2 "9 8xH100 8" \
    plan --model "$MODEL" --cluster 8xH100 --world 9
refused "no such plan" 2 "99" plan --model "$MODEL" --cluster 8xH100 --world 2 \
    --explain 99
refused "a plan that cannot be read" 2 '"q7"' plan --model "$MODEL" --plan u2q7
refused "degrees that do not multiply" 2 "4" \
    plan --model "$MODEL" --cluster 8xH100 --world 4 --ulysses_degree 3

# In few columns the table leaves some out, in a stated order, and keeps plans and requests.
# titles: of the line that begins with WORD; widest: line of the table.
titles() { printf '%s\n' "$out" | grep -E "^ *$1 " | head -1 | tr -s ' ' | sed 's/^ //'; }
widest() {
    printf '%s\n' "$out" | grep -E '^ *([0-9]+|#|rank)  ?[^ ]' | awk '
        { if (length($0) > most) most = length($0) } END { print most }'
}
for columns in "0 # plan step, s text, s decode, s request, s memory sent" \
    "80 # plan step, s text, s decode, s request, s memory" \
    "70 # plan step, s text, s request, s memory" \
    "60 # plan step, s request, s memory" "40 # plan request, s"; do
    COLUMNS=${columns%% *} try plan --model "$MODEL" --cluster 8xH100 --world 4
    check "a table in ${columns%% *} columns" [ "$rc" = 0 -a "$(titles '#')" = "${columns#* }" ]
    [ "${columns%% *}" = 0 ] ||
        check "no line is wider: $(widest)" [ "$(widest)" -le "${columns%% *}" ]
done
for columns in "60 rank transformer peak busy waits sent/step" \
    "40 rank peak busy waits sent/step"; do
    COLUMNS=${columns%% *} try plan --model "$MODEL" --cluster 8xH100 --world 4 --explain 1
    check "ranks in ${columns%% *} columns" [ "$rc" = 0 -a "$(titles rank)" = "${columns#* }" ]
    check "no line is wider: $(widest)" [ "$(widest)" -le "${columns%% *}" ]
done
COLUMNS=40 try plan --model "$MODEL" --cluster 8xH100 --world 8 --plan u2r2pp2 --warmup_steps 1000
check "names that are too long are cut" [ "$rc" = 0 -a "$(widest)" -le 40 ]
check "and end in +" sh -c 'printf "%s\n" "$1" | grep -Eq "^  1  [a-z0-9]+\+ "' x "$out"

echo '{"hosts": 1}' >"$T/bad.json"
refused "a file that is no cluster" 1 "bad.json" plan --model "$MODEL" --cluster "$T/bad.json"
done_testing

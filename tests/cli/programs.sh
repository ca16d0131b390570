#!/bin/sh
# The measuring programs of bench/ at small sizes: they say what they promise, and numbers that can
# be. programs.sh XDIT ROOT STEP OPS LINK: LINK is "none" where there is no Open MPI.
. "$(dirname "$0")/lib.sh"
STEP=$3 OPS=$4 LINK=$5
MODEL=$ROOT/models/demo-pixart

# run PROGRAM ARGS...: like try, of another program.
run() {
    "$@" >"$T/stdout" 2>"$T/stderr" </dev/null
    rc=$?
    out=$(cat "$T/stdout")
    err=$(cat "$T/stderr")
}
# holds EXPRESSION: is it true of the JSON in $out (j)?
holds() {
    printf '%s' "$out" | python3 -c 'import json, sys
j = json.load(sys.stdin)
sys.exit(not eval("(" + sys.argv[1] + ")"))' "$1"
}
sane='lambda p: (0 < p["seconds_range"][0] <= p["seconds"] <= p["seconds_range"][1]
    and p["gflop"] > 0 and p["peak_gflops"] > 0
    and abs(p["share_of_peak"] * p["peak_gflops"] * p["seconds"] / p["gflop"] - 1) < 1e-2)'

for part in step text vae; do
    run "$STEP" "$MODEL" --part $part --threads 1 --repeats 2 --json
    check "step --part $part: one part, two runs" holds \
        "[p['part'] for p in j['parts']] == ['$part'] and j['parts'][0]['runs'] == 2
            and j['max_rss_bytes'] > 1e6"
    check "step --part $part: numbers that fit" holds "($sane)(j['parts'][0])"
done
run "$STEP" "$MODEL" --threads 1 --repeats 1 --json
whole=$(printf '%s' "$out" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["parts"][0]["gflop"])')
run "$STEP" "$MODEL" --threads 1 --repeats 1 --layers 1 --json
check "step --layers 1: less work" holds "j['parts'][0]['gflop'] < 0.5 * $whole"
run "$STEP" "$MODEL" --threads 1 --repeats 1 --max_sequence_length 4 --json
check "step --max_sequence_length: less work" holds \
    "', 4 of text' in j['parts'][0]['what'] and j['parts'][0]['gflop'] < $whole"
run "$STEP" "$MODEL" --layers 1,2
check "step --layers 1,2: one kind of blocks" [ $rc = 2 -a -z "$out" ]
check "it says which is too many" said 'layers has "2"'
printf '\n\n' | "$STEP" "$MODEL" --threads 1 --turns --json >"$T/turns"
check "step --turns: a line for each" [ "$(grep -c '^{"run": ' "$T/turns")" = 2 ]
check "step --turns: it says when it is ready" [ "$(grep -n '"ready"' "$T/turns" |
    cut -d: -f1)" = 2 ]
try bench --config "$MODEL" --random_weights --threads 1 --repeats 1 --layers 2 --parts block --json
check "xdit bench --layers" holds \
    "[p['part'] for p in j['parts']] == ['block'] and '(one of 2)' in j['parts'][0]['what']"

run "$OPS" --tiny --seconds 0.001 --threads 1 --json
check "ops: all of the table" holds "len({r['op'] for r in j['ops']}) == 15"
check "ops: against plain C and the machine" holds \
    "all(r['seconds'] > 0 and r['plain_seconds'] > 0 and r['limit'] > 0 for r in j['ops'])"
check "ops: against the library" holds \
    "j['device'] == 'cpu-c' or {r['op'] for r in j['ops'] if r['library_seconds'] > 0} ==
        {'gemm', 'conv', 'attn', 'norm'}"
run "$OPS" --tiny --seconds 0.001 --threads 1 --json moments
check "ops: those that are named" holds "{r['op'] for r in j['ops']} == {'moments'}"
run "$OPS" momentum
check "ops: none of that name" [ $rc = 2 -a -z "$out" ]

if [ "$LINK" = none ]; then
    echo "# skipped: no Open MPI to start bench/link with"
else
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
    run "$(command -v mpirun.openmpi || echo mpirun)" -n 2 "$LINK" --json 64
    check "link: pairs and groups" holds \
        "[p['bytes'] for p in j['pairs']] == [8, 64] == [g['bytes'] for g in j['groups']]"
    check "link: ours and MPI's" holds \
        "all(p[k] > 0 for p in j['pairs']
            for k in ('one_way_s', 'mpi_one_way_s', 'both_gbytes_s', 'mpi_both_gbytes_s'))"
fi

run python3 "$ROOT/bench/torch_step.py" --list
check "torch_step.py --list: rows of every part" holds \
    "len(j) > 16 and {r['part'] for r in j.values()} == {'step', 'text', 'vae'}"
run python3 "$ROOT/bench/torch_step.py" --help
check "torch_step.py --help" [ $rc = 0 ]
run python3 "$ROOT/bench/torch_step.py" pixart-2048
check "torch_step.py: no such row" [ $rc = 2 ]
# A program or a package that is missing: one sentence with the cure. -S hides all packages.
for words in "torch_step.py pixart-512 --pair $T/step:bench/step" \
    "torch_step.py pixart-512 --python $T/none:--python" \
    "cpu_table.py --pair $T/step:bench/step" \
    "cpu_table.py --pair $STEP --python $T/none:--python" \
    "torch_attn.py $T/attn:pip install torch" "torch_vae.py x 64:pip install torch" \
    "torch_pipeline.py:pip" "torch_cuda.py:pip install torch" \
    "demo_parallel.py $T/xdit m o.png:pip install pillow" "predict.py $T/xdit m:app/xdit" \
    "published.py $T/xdit:app/xdit" "serve.py $T/xdit --model m:app/xdit"; do
    run python3 -S "$ROOT/bench/"${words%%:*}
    check "missing: ${words%%:*}" [ $rc = 2 ] && one_line && said "${words#*:}"
done
run python3 "$ROOT/bench/models.py" "$T/models"
check "models.py: its directories" [ "$(ls "$T/models" | wc -l)" = "$(printf '%s\n' "$out" |
    wc -l)" ]
for m in "$T"/models/*; do
    try inspect "$m"
    check "models.py: $(basename "$m") is a model" [ $rc = 0 -o "$(printf '%s\n' "$err" |
        grep -c 'no weights')" = 1 ]
done
if published PixArt-alpha/PixArt-XL-2-512x512; then
    check "models.py: what was published" python3 -c '
import json, pathlib, sys
bad = []
for mine in pathlib.Path(sys.argv[1]).rglob("config.json"):
    name = mine.relative_to(sys.argv[1])
    for theirs in pathlib.Path(sys.argv[2]).glob("*/" + str(name)):
        a, b = json.loads(mine.read_text()), json.loads(theirs.read_text())
        bad += [(str(name), k, a[k], b.get(k)) for k in a
                if k in b and a[k] != b[k] and k != "dense_act_fn"]
print("#", bad)
sys.exit(bool(bad))' "$T/models" "$HF"
fi
done_testing

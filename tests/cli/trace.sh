#!/bin/sh
# --trace: a sound file of every rank for every kind of plan; refused early; none of a refused run.
# What "sound" means stands in trace_check.py.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/tests/golden/alpha
CHECK=$ROOT/tests/cli/trace_check.py
if ! command -v python3 >/dev/null; then
    echo "1..0 # SKIP there is no python3 to read traces with"
    exit 0
fi

quick() {
    try generate --model "$MODEL" --prompt "a red circle" --steps 3 --json -q -o "$T/x.png" "$@"
}
# traced RANKS NAMES ARGS...: NAMES are separated by |.
traced() {
    ranks=$1 names=$2
    shift 2
    rm -f "$T/t.json"
    begin=$(date +%s%N)
    quick --trace "$T/t.json" "$@"
    seconds=$(($(date +%s%N) - begin))
    check "$*: generated" [ "$rc" = 0 ]
    sent=$(printf '%s\n' "$out" | sed -n 's/.*"sent":\([0-9]*\).*/\1/p' | head -n 1)
    old=$IFS IFS='|'
    out=$(python3 "$CHECK" "$T/t.json" "$ranks" "${steps:-3}" "$sent" "$(echo "$seconds" |
        sed 's/.\{9\}$/.&/')" $names 2>&1)
    rc=$? IFS=$old
    check "$*: sound" [ "$rc" = 0 ]
}
trace() { python3 -c "import json,sys; t = json.load(open('$T/t.json')); sys.exit(not ($1))"; }

stages="open|prepare|text|load|denoise|decode|collect|finish|step 3"
traced 1 "$stages|block 0|all tokens, negative|gemm|convolution"
check "one rank sends nothing" trace "not any(e.get('cat') == 'message' for e in t['traceEvents'])"
check "it says what it shows" trace \
    "t['otherData']['steps'] == 3 and t['otherData']['outcome'] == 'done'"
quick
check "none without --trace" [ -z "$(ls "$T" | grep -v -e '^t.json$' -e '^std' -e '^x.png$')" ]

# A check that cannot fail would be none: the same file, spoilt.
spoil() {
    python3 - "$T/t.json" "$T/bad.json" "$1" <<'PY'
import json, sys
t = json.load(open(sys.argv[1]))
some = [e for e in t["traceEvents"] if e["ph"] == "X"]
exec(sys.argv[3])
json.dump(t, open(sys.argv[2], "w"))
PY
    check "$2 is found" sh -c '! python3 "$@" >/dev/null' x "$CHECK" "$T/bad.json" 1 3 "${3:-0}" \
        1000
}
spoil 'next(e for e in some if e["cat"] == "block")["dur"] *= 3' "a slice that ends too late"
spoil 't["traceEvents"].remove(next(e for e in some if e["cat"] == "step"))' "a step too few"
spoil 'some[-1]["ts"] = -1.0' "a time before the run"
spoil 'pass' "a byte too many" 1
check "the file itself is sound" sh -c 'python3 "$@" >/dev/null' x "$CHECK" "$T/t.json" 1 3 0 1000

refused "no such folder" 1 "$T/no/t.json" generate -m "$MODEL" -p a -o "$T/y.png" \
    --trace "$T/no/t.json"
refused "a folder" 1 "$T" generate -m "$MODEL" -p a -o "$T/y.png" \
    --trace "$T"
refused "the image's name" 2 "same" generate -m "$MODEL" -p a -o "$T/y.png" \
    --trace "$T/y.png"
refused "a width that is none" 2 "33" generate -m "$MODEL" -p a -o "$T/y.png" --width 33 \
    --trace "$T/w.json"
check "a refused run leaves no trace" [ ! -e "$T/w.json" -a ! -e "$T/y.png" ]

# A request that is stopped has one.
rm -f "$T/t.json"
"$XDIT" generate -m "$MODEL" -p a --steps 1000 --num_images_per_prompt 50 -o "$T/s.png" \
    --trace "$T/t.json" 2>"$T/stderr" &
pid=$!
n=0
while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
kill -s INT "$pid"
wait "$pid"
check "stopped: code 130" [ $? = 130 ]
check "stopped: a whole file that says so" trace \
    "'cancel' in t['otherData']['outcome'] and
        any(e.get('name') == 'step 1' for e in t['traceEvents'])"

if "$XDIT" generate -m "$MODEL" -p a --steps 1 --nproc 2 -q -o "$T/x.png" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "# skipped: there is no MPI to start several ranks with"
    done_testing
    exit 0
fi
traced 2 "ulysses exchange|wait ulysses exchange|ranks broadcast" --ulysses_degree 2
traced 2 "ring send/ring exchange|wait ring receive/wait ring exchange|vae exchange|vae gather" \
    --ring_degree 2 --use_parallel_vae
traced 2 "tensor all-reduce|wait tensor all-reduce" --tensor_parallel_degree 2
stages="patch 0|patch 3, negative|pipefusion send hidden|pipefusion receive latents"
traced 4 "$stages|sampler, patch 3|cfg broadcast" \
    --pipefusion_parallel_degree 2 --use_cfg_parallel --num_pipeline_patch 4
svg() {
    python3 "$ROOT/tools/trace_image.py" "$T/t.json" "$T/t.svg" >"$T/stdout" 2>"$T/stderr" &&
        python3 -c "
import xml.dom.minidom as x
d = x.parse('$T/t.svg')
n = [t.firstChild.data for t in d.getElementsByTagName('text')]
rects = d.getElementsByTagName('rect').length
raise SystemExit(not (rects > 36 and n.count('rank 3') == 1 and 'step 3' in n))"
}
check "its image has ranks, steps and pieces" svg
traced 4 "ulysses exchange|pipefusion send hidden" --ulysses_degree 2 --pipefusion_parallel_degree 2
traced 4 "ring gather|data send" --ring_degree 2 --use_displaced_patches --data_parallel_degree 2 \
    --num_images_per_prompt 2
traced 2 "vae send|vae receive" --ulysses_degree 2 --use_parallel_vae --enable_tiling --width 256
traced 2 "ulysses exchange" --ulysses_degree 2 --nproc 3
check "an idle rank is named" trace \
    "any(e['ph'] == 'M' and e['args'].get('name') == 'rank 2, idle' for e in t['traceEvents'])"
# Rank 1 with another clock, 1000 s ahead, as on another host: times are rank 0's all the same.
ahead="unshare -T --fork --monotonic 1000"
one="$XDIT generate -m $MODEL -p a --steps 3 --ring_degree 2 --json -q -o $T/x.png"
one="$one --trace $T/t.json"
if ! $ahead true 2>/dev/null || ! mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    echo "# skipped: two clocks need Open MPI's mpirun and the right to make a time namespace"
else
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    out=$(two_ranks mpirun "$one" "$ahead $one" 2>"$T/stderr")
    rc=$? err=$(cat "$T/stderr")
    check "two clocks: generated" [ "$rc" = 0 ]
    sent=$(printf '%s\n' "$out" | sed -n 's/.*"sent":\([0-9]*\).*/\1/p')
    out=$(python3 "$CHECK" "$T/t.json" 2 3 "$sent" 300 2>&1)
    rc=$?
    check "two clocks: sound" [ "$rc" = 0 ]
fi
refused "what only ranks can find out" 2 "33" generate -m "$MODEL" -p a -q -o "$T/y.png" \
    --ulysses_degree 2 --width 33 --trace "$T/w.json"
check "they leave no trace" [ ! -e "$T/w.json" ]
done_testing

#!/bin/sh
# auto.sh XDIT ROOT - plans that are chosen: what is said, what is kept, the pixels of one rank,
# memory before speed, and the same choice on all ranks.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/tests/golden/alpha
ask() { try generate --model "$MODEL" --prompt "a red circle" --steps 2 --seed 3 --dtype f32 "$@"; }
ask -o "$T/one.ppm"
check "one rank plans nothing" sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -q plan:' x "$rc" \
    "$err"
ask --nproc 2 -o "$T/x.ppm"
if said 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi
pixels() { tail -c 49152 "$1" >"$1.px"; }
same() { pixels "$T/one.ppm" && pixels "$T/x.ppm" && cmp "$T/one.ppm.px" "$T/x.ppm.px"; }
plan_of() { printf '%s\n' "$err" | sed -n 's/^xdit: plan: \([^(,]*[^(, ]\).*/\1/p'; }
ranks_of() {
    plan_of | tr -dc '0-9 ' | awk '{ n = 1; for (i = 1; i <= NF; i++) n *= $i; print n }'
}
check "two ranks say their plan, once" [ "$rc" = 0 -a "$(printf '%s\n' "$err" |
    grep -c '^xdit: plan: .*, the fastest of 4 for 2 ranks; predicted [0-9.e-]* s$')" = 1 ]
check "and generate the pixels of one" same
check "the prediction stands beside the time" said \
    '^xdit: 1 image in .*[a-z]+ [0-9.]+ \(predicted [0-9.]*\)'
ask --nproc 4 --ulysses_degree 2 -o "$T/x.ppm"
check "a degree that is given is kept: $(plan_of)" [ "$rc" = 0 -a "$(ranks_of)" = 4 ] &&
    check "ulysses 2" said 'plan: .*ulysses 2'
check "with the pixels of one" same
ask --nproc 3 --guidance_scale 1 -o "$T/x.ppm"
check "a prime number and one pass: $(plan_of)" [ "$rc" = 0 -a "$(ranks_of)" = 3 ]
ask --nproc 4 --plan pp2 --json -o "$T/x.png"
check "pipefusion when asked for: $(plan_of)" said 'plan: .*pipefusion 2 .*2 patches'
check "the JSON has the plan" sh -c 'printf "%s" "$1" | grep -q "\"plan\": \"$2 (2 patches"' x \
    "$out" "$(plan_of)"
ask --plan u2r2 -q -o "$T/x.ppm"
check "a short form starts the ranks it needs" \
    sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -v "take turns"' x "$rc" "$err"
ask --nproc 4 --num_images_per_prompt 4 --prompt b -o "$T/d%d.ppm"
check "eight images on four ranks are dealt out: $(plan_of)" said 'plan: data 4'
check "the first is that of one rank" sh -c 'cp "$1/d1.ppm" "$1/x.ppm"' x "$T" &&
    check "to the pixel" same

# What xdit plan calls the best is that plan when it is run.
try plan --model "$MODEL" --world 2 --plan pp2 --num_pipeline_patch 3 --warmup_steps 2 \
    --attn_layer_num_for_pp 1,2
best=$(printf '%s\n' "$out" | sed -n 's/^best: //p')
ask --steps 3 $best --json -o "$T/x.ppm"
check "the best line is the plan: $best" sh -c '[ "$1" = 0 ] && printf "%s" "$2" |
    grep -q "\"plan\": \"pipefusion 2 (3 patches, 2 warm-up, VAE rows, stages 1+2)\""' x "$rc" \
    "$out"
check "and nothing is warned of" \
    sh -c '! printf "%s" "$1" | grep -v "take turns" | grep -q warning' x "$err"

# Idle where nothing can fill, and more than are predicted.
ask --nproc 3 --ulysses_degree 2 -o "$T/x.ppm"
check "what cannot be filled stays idle" \
    sh -c '[ "$1" = 0 ] && printf "%s" "$2" |
        grep -q "1 of 3 ranks are idle: the plan ulysses 2 uses 2"' x "$rc" "$err"

g="generate --model $MODEL --prompt a -o $T/x.png"
refused "a plan that is none" 2 '"u2y2" "y2"' $g --plan u2y2
refused "two numbers of one degree" 2 "2 --ulysses_degree 4" $g --ulysses_degree 4 \
    --plan u2
refused "no plan has these degrees" 2 "6 4" $g \
    --nproc 4 --plan u2r3
refused "a request that cannot be" 2 "33" $g -q --nproc 2 -W 33 --no_resolution_binning
if command -v mpirun.openmpi >/dev/null; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun.openmpi --oversubscribe -n 3 "$XDIT" $g -q --nproc 2 >"$T/launched" 2>&1
    rc=$?
    check "a launcher that started others" sh -c '[ "$1" = 2 ] &&
        grep -q "nproc is 2, .* 3 ranks" "$2"' x "$rc" "$T/launched"
else
    echo "# skipped a launcher that started others: there is no mpirun.openmpi"
fi
refused "no such cluster" 2 "cluster" $g -q --nproc 2 --cluster small

# Weights that are not in memory are counted, and take their time where the speed of the disk is
# known.
cp -r "$ROOT/models/demo-pixart" "$T/cold" && MODEL=$T/cold
cool() {
    for f in "$MODEL"/*/*.safetensors; do sync "$f" && dd if="$f" iflag=nocache count=0 \
        of=/dev/null 2>"$T/dd"; done
}
read_cluster() {
    cat >"$T/read.json" <<END
{ "hosts": 1, "ranks_per_host": 2, "threads_per_rank": 1, "memory": 8e10, $1
  "f32": { "gemm_flops": 5e10, "attention_flops_64": 4e10,
           "attention_flops_128": 4e10,
           "convolution_flops": 4e10, "memory_bandwidth": 7e9 },
  "inside": { "latency_seconds": 3e-6, "bandwidth": 4e9 } }
END
}
cool
if [ "$(fincore -nb -o RES "$MODEL/transformer/diffusion_pytorch_model.safetensors" 2>"$T/dd" |
    tr -d ' ')" = 0 ]; then
    ask --nproc 1 -o "$T/x.ppm"
    check "one rank says what it reads" said '^xdit: 1 image .*load [0-9.]+ \(reading 9[.0-9]* MB\)'
    cool
    read_cluster '"read_bytes_per_second": 1e7,'
    ask --nproc 2 --cluster "$T/read.json" -o "$T/x.ppm"
    check "the plan says the time of reading" said \
        'predicted 1[0-9.]* s, 1\.[23][0-9]* s of it reading 1[23][.0-9]* MB of weights$'
    check "loading is predicted: 11.7 MB at 10 MB/s, those of the VAE too" said \
        'load [0-9.]+ \(predicted 1\.1[0-9], reading 11[.0-9]* MB\)'
    cool
    read_cluster ''
    ask --nproc 2 --cluster "$T/read.json" -o "$T/x.ppm"
    check "of a disk of unknown speed it is left out, and said" said \
        'predicted [0-9.e-]* s without reading 1[23][.0-9]* MB of weights$'
    check "of a part too" said 'load [0-9.]+ \(reading 11[.0-9]* MB\)'
    cool
    read_cluster '"read_bytes_per_second": 1e7,'
    mkdir -p "$T/cache/xdit" && cp "$T/read.json" "$T/cache/xdit/machine-$(hostname)-2x1.json"
    export XDG_CACHE_HOME=$T/cache
    try plan --model "$MODEL" --world 1
    check "a plan of one rank has the time of a disk that was probed" \
        sh -c 'printf "%s" "$1" | grep -Eq "adds 1\.[23][0-9]* s to the first request"' x "$out"
    ask --nproc 1 -o "$T/x.ppm"
    check "one rank says before it reads how long it will" said \
        '^xdit: predicted [0-9.]+ s, 1\.[23][0-9]* s of it reading 1[23][.0-9]* MB of weights$'
    check "and of a part" said \
        'load [0-9.]+ \(predicted (0\.9[5-9]|1\.0[0-3]), reading 9[.0-9]* MB\)'
    cool
    ask --ulysses_degree 2 -o "$T/x.ppm"
    check "so do ranks with nothing to choose" said \
        '^xdit: predicted [0-9.]+ s, 1\.[23][0-9]* s of it reading 1[23][.0-9]* MB of weights$'
    ask --nproc 1 -o "$T/x.ppm"
    check "in memory there is nothing to say" \
        sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -q predicted' x "$rc" "$err"
    unset XDG_CACHE_HOME
    cool
    try plan --model "$MODEL" --world 2 --cluster "$T/read.json" --dtype f32
    check "another machine reads nothing" sh -c '! printf "%s" "$1" | grep -q reading' x "$out"
    try plan --model "$MODEL" --world 2
    check "plans of this machine say it" \
        sh -c 'printf "%s" "$1" | grep -Eq "1[23][.0-9]* MB of weights"' x "$out"
    try plan --model "$MODEL" --world 2 --json
    check "the JSON has the bytes" \
        sh -c 'printf "%s" "$1" | grep -Eq "\"cold_bytes\": 1[23][0-9]{6}, "' x "$out"
else
    echo "# skipped: the file system of $T keeps its files in memory, or there is no fincore to ask"
fi
cat "$MODEL"/*/*.safetensors >"$T/all"
read_cluster '"read_bytes_per_second": 1e7,'
ask --nproc 2 --cluster "$T/read.json" -o "$T/x.ppm"
check "in memory they are not mentioned" \
    sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -q reading' x "$rc" "$err"

# A machine of our own, whose ranks have BYTES of memory each; tensor halves the weights.
MODEL=$ROOT/models/demo-pixart
cluster() {
    cat >"$T/cluster.json" <<END
{ "name": "of our own", "hosts": 1, "ranks_per_host": 2, "threads_per_rank": 1, "memory": $1,
  "shared_weights": false,
  "f32": { "gemm_flops": 5e10, "gemm_half_rows": 4, "attention_flops_64": 4e10,
           "attention_flops_128": 4e10,
           "attention_half_keys": 24, "convolution_flops": 4e10,
           "memory_bandwidth": 7e9, "call_seconds": 4e-6 },
  "inside": { "latency_seconds": 3e-6, "bandwidth": 4e9, "overlap": 0 } }
END
}
# Bytes that each of the plans of two ranks needs.
peaks() {
    try plan --model "$MODEL" --world 2 --exact --json --dtype f32 --steps 2 \
        --cluster "$T/cluster.json"
    printf '%s' "$out" | tr '{' '\n' |
        sed -n 's/.*"plan": "\([a-z0-9]*\)".*"peak": \([0-9]*\),.*/\2 \1/p' | sort -n
}
cluster 80000000000
set -- $(peaks)
check "plans of two ranks: $*" [ $# = 8 -a "$1" -lt "$3" -a "$2" = tp2vae ]
least=$1 name=$2
cluster $((least / 100 * 102))
ask --nproc 2 -v --cluster "$T/cluster.json" -o "$T/x.ppm"
check "memory decides before speed: $name alone fits" said "plan $name: " &&
    check "is the only one" said 'plan: .*, the only one for 2 ranks'
cluster $((least / 100 * 95))
refused "nothing fits" 1 "4 plans 2 MB --(dtype|weights_dtype)" \
    $g -q --model "$MODEL" --nproc 2 --dtype f32 --steps 2 --cluster "$T/cluster.json"
done_testing

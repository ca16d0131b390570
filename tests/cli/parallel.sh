#!/bin/sh
# Several ranks from the command line: the images of one rank, refusals, batches, signals, exit
# codes, and that nothing stays behind. A PPM ends with its pixels: 128 x 128 x 3 bytes.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/tests/golden/alpha
GOLDEN=$3

if "$XDIT" generate -m "$MODEL" -p a --steps 1 --nproc 2 -q -o "$T/x.ppm" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi

pixels() { tail -c 49152 "$1"; }
# levels A B: the largest difference of two images.
levels() {
    pixels "$1" >"$T/a.px" && pixels "$2" >"$T/b.px"
    cmp -l "$T/a.px" "$T/b.px" | awk '
        function oct(s,  i, v) {
            v = 0
            for (i = 1; i <= length(s); i++)
                v = v * 8 + substr(s, i, 1)
            return v
        }
        { d = oct($2) - oct($3); if (d < 0) d = -d; if (d > m) m = d } END { print m + 0 }'
}
# decibels A B: the PSNR of two images, in whole decibels; 999 where they are the same.
decibels() {
    pixels "$1" >"$T/a.px" && pixels "$2" >"$T/b.px"
    cmp -l "$T/a.px" "$T/b.px" | awk -v n="$(wc -c <"$T/a.px")" '
        function oct(s,  i, v) {
            v = 0
            for (i = 1; i <= length(s); i++)
                v = v * 8 + substr(s, i, 1)
            return v
        }
        { d = oct($2) - oct($3); sum += d * d }
        END { print sum ? int(10 * log(255 * 255 * n / sum) / log(10)) : 999 }'
}
# In f32: its bits, or in another order of sums a level; bf16 rounds more than that.
quick() {
    try generate --model "$MODEL" --prompt "a red circle" --num_inference_steps 2 --seed 3 \
        --dtype f32 --quiet "$@"
}
# No process of ours is left, for at most ten seconds: a launcher ends its ranks in its own time.
none_left() {
    n=0
    while pgrep -f "$T/" >/dev/null && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
    ! pgrep -f "$T/" >/dev/null
}

quick -o "$T/one.ppm"
check "one rank" [ "$rc" = 0 -a "$(pixels "$T/one.ppm" | wc -c)" = 49152 ]
# plan LEVELS ARGS...: the image of one rank, to so many levels.
plan() {
    limit=$1
    shift
    rm -f "$T/x.ppm"
    quick "$@" -o "$T/x.ppm"
    check "$*: generated, and rank 0 alone speaks" [ "$rc" = 0 -a "$out" = "$T/x.ppm" ]
    check "$*: within $limit levels" [ -s "$T/x.ppm" -a "$(levels "$T/one.ppm" "$T/x.ppm")" \
        -le "$limit" ]
}
plan 0 --ulysses_degree 2
plan 0 --nproc 2
plan 0 --ring_degree 2
plan 0 --pipefusion_parallel_degree 2 --num_pipeline_patch 1
plan 0 --use_cfg_parallel
plan 1 --tensor_parallel_degree 2
plan 0 --data_parallel_degree 2
plan 0 --ulysses_degree 2 --use_parallel_vae
plan 1 --ulysses_degree 3 --text-tensor-parallel-degree=2
refused "two ways to be stale, before degrees are blamed" 2 "PipeFusion --num_pipeline_patch" \
    generate --model "$MODEL" -p a --nproc 4 \
    --tensor_parallel_degree 7 --pipefusion_parallel_degree 3 --use_displaced_patches -o "$T/no.png"
quick --use_cfg_parallel --guidance_scale 1 -o "$T/x.ppm"
check "two ranks for one pass: generated, with a warning" [ "$rc" = 0 -a -s "$T/x.ppm" ]
check "it says which flag would use them" said \
    "half of the ranks .*use_cfg_parallel.*guidance_scale above 1"
# A launcher that starts nothing, or starts the program as no rank: a sentence, not success or ranks
# without end.
printf '#!/bin/sh\nwhile [ "${1##*/}" != "%s" ]; do shift; done\nexec "$@"\n' \
    "$(basename "$XDIT")" >"$T/alone"
chmod +x "$T/alone"
for how in "true:true succeeded without starting a rank" \
    "$T/alone:$T/alone starts this program"; do
    XDIT_MPIRUN=$(command -v "${how%%:*}")
    export XDIT_MPIRUN
    rm -f "$T/x.ppm"
    quick --nproc 2 -o "$T/x.ppm"
    unset XDIT_MPIRUN
    check "a launcher that is none, $(basename "${how%%:*}")" [ "$rc" = 1 -a ! -e "$T/x.ppm" ]
    check "is said" said "^xdit: .*${how#*:}"
done
printf 'a red circle\na blue square\n' >"$T/prompts"
quick --prompts "$T/prompts" -o "$T/f.ppm"
"$XDIT" generate --model "$MODEL" --prompt "a red circle" --num_inference_steps 2 --seed 3 \
    --dtype f32 -q --nproc 2 --prompts=- -o "$T/p.ppm" <"$T/prompts" >"$T/stdout"
check "ranks read prompts of a pipe" [ "$(pixels "$T/f_0003.ppm" |
    cksum)" = "$(pixels "$T/p_0003.ppm" | cksum)" -a -s "$T/p_0003.ppm" ]
# Each rank to its cores, or to none: the same image; ranks that are bound share no cpu.
quick --ulysses_degree 2 --bind none --threads 1 -o "$T/free.ppm"
try generate --model "$MODEL" --prompt "a red circle" --num_inference_steps 2 --seed 3 --dtype f32 \
    --ulysses_degree 2 --bind auto --threads 1 --verbose -o "$T/bound.ppm"
check "ranks that are bound generate the same" cmp "$T/free.ppm" "$T/bound.ppm"
if [ "$("$XDIT" doctor --no_ranks --nproc 2 | grep -c '^ok *placement *rank [01] of 2')" != 2 ] ||
    [ -n "${OMP_PROC_BIND-}${OMP_PLACES-}${GOMP_CPU_AFFINITY-}" ]; then
    echo "# skipped: ranks are bound where there are two cores and nothing says where threads run"
else
    on() { printf '%s\n' "$err" | sed -n "s/^xdit: rank $1 on cpus \([0-9,-]*\)$/\1/p"; }
    check "and share no cpu" python3 -c '
import sys
a, b = ({c for r in t.split(",") for lo, hi in [(r.split("-") * 2)[:2]]
         for c in range(int(lo), int(hi) + 1)}
        for t in sys.argv[1:])
assert a and b and not a & b, (a, b)' "$(on 0)" "$(on 1)"
fi
refused "a way to bind that is none" 2 "auto cores none" generate --model "$MODEL" \
    --prompt a --bind all
# In this machine's own type.
own() {
    try generate --model "$MODEL" --prompt "a red circle" --num_inference_steps 2 --seed 3 \
        --quiet "$@"
}
own -o "$T/own.ppm"
for flags in "--ring_degree 2" "--tensor_parallel_degree 2" "--ulysses_degree 2"; do
    # The flags are two words.
    # shellcheck disable=SC2086
    own $flags -o "$T/x.ppm"
    db=$(decibels "$T/own.ppm" "$T/x.ppm")
    echo "# $flags: $db dB"
    check "$flags: 42 dB in the type of this machine" [ "$rc" = 0 -a "$db" -ge 42 ]
done
quick --enable_tiling -o "$T/tiled.ppm"
quick --enable_tiling --use-parallel-vae --ulysses-degree 3 -o "$T/x.ppm"
check "tiles over 3 ranks are those of one" [ "$rc" = 0 -a "$(levels "$T/tiled.ppm" "$T/x.ppm")" = \
    0 ]
for ranks in 2 3; do
    for flags in "" "--use_parallel_vae --ulysses_degree $ranks"; do
        # The flags are several words.
        # shellcheck disable=SC2086
        quick --enable_tiling --vae_tile_size_height 48 --vae_tile_overlap_height 32 \
            --vae_tile_overlap_width 8 $flags -o "$T/own${flags:+$ranks}.ppm"
    done
    check "tiles of other sizes over $ranks ranks are those of one" [ "$rc" = 0 -a \
        "$(levels "$T/own.ppm" "$T/own$ranks.ppm")" = 0 ]
done
check "they are other tiles" [ "$(levels "$T/own.ppm" "$T/tiled.ppm")" != 0 ]
check "which are not the image without" [ "$(levels "$T/one.ppm" "$T/x.ppm")" != 0 ]
quick --pipefusion_parallel_degree 3 --num_pipeline_patch 4 -o "$T/x.ppm"
check "3 ranks with patches" [ "$rc" = 0 -a "$(pixels "$T/x.ppm" | wc -c)" = 49152 ]
quick --pipefusion_parallel_degree 3 --attn_layer_num_for_pp 0,2,1 --warmup_steps 2 -o "$T/x.ppm"
check "stages as they are listed" [ "$rc" = 0 -a "$(levels "$T/one.ppm" "$T/x.ppm")" = 0 ]
try generate --model "$MODEL" --prompt a --steps 2 --nproc 3 --ulysses_degree 2 -o "$T/x.ppm"
check "an idle rank is said once" [ "$rc" = 0 -a "$(printf '%s\n' "$err" |
    grep -c 'ranks are idle')" = 1 ]
check "so are the steps" [ "$(printf '%s\n' "$err" | grep -c '^denoise 2/2')" = 1 ]
try generate --model "$MODEL" --prompt a --steps 2 --use_cfg_parallel --json -o "$T/x.png"
check "--json tells the plan and what was sent" \
    json 'j["sent"] > 0 and j["parameters"]["plan"] == "cfg 2"'
# A launcher that marks what comes by way of it: mpirun of Open MPI 5 mixes up its two streams.
if mpirun --version 2>/dev/null | grep -q "Open MPI"; then
    printf '#!/bin/sh\nexec mpirun --tag-output "$@"\n' >"$T/mpirun"
    chmod +x "$T/mpirun"
    XDIT_MPIRUN="$T/mpirun" generate --prompt a --use_cfg_parallel --json -o "$T/x.png"
    check "what ranks print does not pass the launcher" json 'j["sent"] > 0'
else
    echo "# skipped: there is no mpirun of Open MPI"
fi

g="generate --model $MODEL --prompt a -o $T/x.png"
refused "more ranks than --nproc" 2 \
    "6 4 2" \
    $g --ulysses_degree 2 --ring_degree 3 --nproc 4
refused "more ranks for text than there are" 2 \
    "2" \
    $g --ulysses_degree 2 --text_tensor_parallel_degree 3
refused "no rank for text" 2 "text" $g --text-tensor-parallel-degree 0
refused "a list of another length" 2 "3 2" \
    $g --pipefusion_parallel_degree 2 --attn_layer_num_for_pp 1,1,1
refused "a list that is none" 2 "list" \
    $g --pipefusion_parallel_degree 2 --attn_layer_num_for_pp 1,x
refused "a list the model has not" 2 "3 blocks" \
    $g --pipefusion_parallel_degree 2 --attn_layer_num_for_pp 1,1
refused "two kinds of patches" 2 "PipeFusion" $g --ring_degree 2 --use_displaced_patches \
    --pipefusion_parallel_degree 2
refused "what only ranks can find out" 2 "33" $g --quiet --ulysses_degree 2 --width 33
refused "no such model" 1 "directory" generate --model "$T/none" --prompt a --nproc 2
refused "no such folder" 1 "write" generate --model "$MODEL" --prompt a \
    --nproc 2 -o "$T/no/x.png"
XDIT_MPIRUN=$T/none refused "no launcher" 1 "XDIT_MPIRUN" $g --nproc 2
refused "no file of prompts" 1 "none.txt" generate --model "$MODEL" --prompts "$T/none.txt"
# What launchers say in the environment, without one that lets the processes meet.
MPI_LOCALNRANKS=4 refused "the launcher of another MPI" 1 "4 MPI" \
    $g --ulysses_degree 4
SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0 SLURM_STEP_ID=0 refused "srun that cannot start MPI" 1 \
    "3" $g --ulysses_degree 3
SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=2 SLURM_STEP_ID=0 try $g --ulysses_degree 3
check "only its first task says so" [ "$rc" = 1 -a -z "$out$err" ]
SLURM_NTASKS=3 SLURM_PROCID=0 SLURM_JOB_ID=7 quick --ulysses_degree 2 -o "$T/x.ppm"
check "the script of a Slurm job starts its own ranks" \
    [ "$rc" = 0 -a "$(levels "$T/one.ppm" "$T/x.ppm")" = 0 ]
echo "   " >"$T/empty.txt"
refused "a file without prompts" 2 "prompt" generate --model "$MODEL" --prompts "$T/empty.txt"

printf 'a red circle\n\n   \na blue square\r\na white star' >"$T/p.txt"
mkdir "$T/d"
try generate --model "$MODEL" --prompts "$T/p.txt" --steps 2 --seed 3 -q --dtype f32 \
    --data_parallel_degree 2 -o "$T/d/%d.ppm"
check "a batch over two replicas" \
    [ "$rc" = 0 -a "$(echo "$T/d"/*)" = "$T/d/1.ppm $T/d/2.ppm $T/d/3.ppm" ]
check "its first image" [ "$(levels "$T/one.ppm" "$T/d/1.ppm")" = 0 ]
check "its second prompt" grep -qa 'a blue square' "$T/d/2.ppm"
"$XDIT" generate -m "$MODEL" -p a --steps 1 --nproc 2 -q -o "$T/x.png" >/dev/full 2>/dev/null
check "a full disk is an error" [ $? = 1 ]
rm -rf "$T/d"

# stopped SIGNAL CODE PLAN...: ended while it takes steps.
stopped() {
    sig=$1 code=$2
    shift 2
    mkdir "$T/d"
    : >"$T/stderr"
    "$XDIT" generate -m "$MODEL" -p a --steps 1000 --num_images_per_prompt 50 "$@" -o "$T/d/x.png" \
        >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
    n=0
    while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
    victim=$pid
    room=$(tr '\0' '\n' <"/proc/$(pgrep -P "$pid" | head -n 1)/cmdline" |
        grep -m 1 '^/dev/shm/xdit\.')
    if [ "$sig" = rank ]; then
        victim=$(pgrep -n -f "generate .*$T/d/")        # ranks start after all else
        kill -s KILL "$victim"
    else
        kill -s "$sig" "$pid"
    fi
    wait "$pid"
    rc=$? out=$(cat "$T/stdout")
    err=$(grep '^xdit: [^w]' "$T/stderr" | grep -v ' of memory')
    check "$sig, $*: code $code" [ "$rc" = "$code" ]
    check "$sig, $*: one sentence" one_line
    check "$sig, $*: no process is left" none_left
    check "$sig, $*: no half file" [ -z "$(ls -A "$T/d" | grep -v '\.png$')" ]
    check "$sig, $*: nothing of the launcher's" \
        [ -z "$(grep -Ev '^(xdit: |text|load|denoise|decode)' "$T/stderr")" ]
    rm -rf "$T/d"
}
# A signal while ranks start, which a launcher may drop: it is told again.
for ms in 06 10 14 18 25; do
    mkdir "$T/d"
    timeout 60 "$XDIT" generate -m "$MODEL" -p a --steps 1000 --num_images_per_prompt 50 --nproc 2 \
        -q -o "$T/d/x.png" >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
    sleep "0.$ms"
    at=$(date +%s)
    kill -s INT "$(pgrep -P "$pid" | head -n 1)"
    wait "$pid"
    rc=$? err=$(cat "$T/stderr")
    check "after 0.$ms s: 130, in less than 15 seconds" [ "$rc" = 130 -a "$(($(date +%s) - at))" \
        -lt 15 ]
    rm -rf "$T/d"
done
stopped INT 130 --ulysses_degree 2
stopped TERM 143 --pipefusion_parallel_degree 2
stopped rank 1 --ulysses_degree 2
check "it names the rank" said "rank ([01]|with process id [0-9]*) was killed by signal 9"
check "no shared memory is left" [ -z "$room" -o ! -e "$room" ]     # other MPIs have no room

# Where /dev/shm is nearly full messages have no room in it, and weights need none.
small() {
    unshare -m sh -c 'mount -t tmpfs -o size=4m shm /dev/shm && exec timeout 60 "$@"' sh \
        "$@" >"$T/stdout" 2>"$T/stderr" </dev/null
}
if [ "$(id -u)" = 0 ] && small true 2>/dev/null; then
    small "$XDIT" generate -m "$MODEL" -p a --steps 2 -v --ulysses_degree 2 -o "$T/x.ppm"
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    check "little room in /dev/shm: it generates" [ "$rc" = 0 -a -s "$T/x.ppm" ]
    check "little room in /dev/shm: one copy of the weights" said \
        "transformer: .*one copy for this host"
    rm -f "$T/x.ppm"
else
    echo "# skipped: a small /dev/shm, which needs root and mounts of one's own"
fi

# Text that flows, three encoders of which ranks share each, two passes.
pixels() { tail -c 6720 "$1"; }
for name in flux sd3 sd35; do
    MODEL=$GOLDEN/$name
    quick() {
        try generate --model "$MODEL" --prompt "a red circle" --steps 3 --seed 3 -W 56 -H 40 \
            --max_sequence_length 13 --dtype f32 --quiet "$@"
    }
    quick -o "$T/one.ppm"
    check "$name: one rank" [ "$rc" = 0 -a "$(pixels "$T/one.ppm" | wc -c)" = 6720 ]
    plan 0 --ulysses_degree 3
    plan 1 --tensor_parallel_degree 2 --text_tensor_parallel_degree 2
    plan 0 --pipefusion_parallel_degree 3 --use_parallel_vae --warmup_steps 3
    plan 1 --nproc 3 --use_cfg_parallel --text_tensor_parallel_degree 2
    for way in first every; do
        quick --num_pipeline_patch 3 --patches_without_stages --pipefusion_text "$way" \
            -o "$T/$way.ppm"
        quick --pipefusion_parallel_degree 3 --pipefusion_text "$way" -o "$T/x.ppm"
        check "$name: three stages, text with $way" \
            [ "$rc" = 0 -a "$(levels "$T/$way.ppm" "$T/x.ppm")" = 0 ]
    done
    quick --nproc 4 --plan pp2 --pipefusion_text every --json -o "$T/x.ppm"
    check "$name: a chosen plan keeps a flag that is text" sh -c '[ "$1" = 0 ] && printf "%s" "$2" |
        grep -q "\"plan\": \".*pipefusion 2.*2 patches, 1 warm-up, text with every patch"' x "$rc" \
        "$out"
    check "$name: the ways of the text differ" [ "$(levels "$T/first.ppm" "$T/every.ppm")" != 0 ]
done
done_testing

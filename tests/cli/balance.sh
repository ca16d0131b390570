#!/bin/sh
# balance.sh XDIT ROOT GOLDEN - shares by speed: a rank that is slowed down to half gets about half,
# and the image is that of one rank. Shares are asserted, not times.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/tests/golden/alpha
GOLDEN=$3
ask() { try generate --model "$MODEL" --prompt "a red circle" --steps 3 --seed 3 --dtype f32 "$@"; }
refused "a balance that is none" 2 "measured" generate --model "$MODEL" \
    --prompt a --balance odd
ask -o "$T/one.ppm" --balance measured
check "one rank has nothing to balance" \
    sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -q balance:' x "$rc" "$err"
XDIT_SLOW=1:2
export XDIT_SLOW
ask --ulysses_degree 2 -o "$T/x.ppm"
if said 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi
check "even shares are the default" sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -q balance:' \
    x "$rc" "$err"
pixels() { tail -c 49152 "$1" >"$1.px"; }
# levels: the largest difference of x.ppm and one.ppm.
levels() {
    pixels "$T/one.ppm" && pixels "$T/x.ppm"
    cmp -l "$T/one.ppm.px" "$T/x.ppm.px" | awk '
        function oct(s,  i, v) {
            v = 0
            for (i = 1; i <= length(s); i++)
                v = v * 8 + substr(s, i, 1)
            return v
        }
        { d = oct($2) - oct($3); if (d < 0) d = -d; if (d > m) m = d } END { print m + 0 }'
}
# numbers WORD: "tokens 43 + 21" -> "43 21".
numbers() { printf '%s\n' "$err" | sed -n "s/^xdit: balance: .*$1 \([0-9 +]*\).*/\1/p" | tr -d +; }
# half A B: is B between 0.35 and 0.7 of A?
half() { [ $# -ge 2 ] && [ $(($2 * 100)) -ge $(($1 * 35)) ] && [ $(($2 * 100)) -le $(($1 * 70)) ]; }
# shared LEVELS WORD ARGS...: the pixels must be right each time; the shares at one of four, as a
# neighbour may have half of another rank's core as well.
shared() {
    limit=$1 word=$2
    shift 2
    rm -f "$T/x.ppm"
    for again in 1 2 3 4; do
        ask --balance measured "$@" -o "$T/x.ppm"
        n=$(numbers "$word")
        [ "$rc" = 0 ] && [ "$(levels)" -le "$limit" ] || break
        # The numbers are words.
        # shellcheck disable=SC2086
        half $n && break
        echo "# $*: $word $n, try $again"
    done
    check "$*: within $limit levels of one rank" [ "$rc" = 0 -a "$(levels)" -le "$limit" ]
    # shellcheck disable=SC2086
    check "$*: $word $n" half $n
}
shared 0 tokens --ulysses_degree 2
shared 1 tokens --ring_degree 2
shared 0 rows --ulysses_degree 2 --use_parallel_vae
shared 0 tokens --ulysses_degree 2 --use_cfg_parallel
shared 1 rows --ring_degree 2 --tensor_parallel_degree 2 --use_parallel_vae
# Three blocks: two for the stage that is twice as fast.
# staged BLOCKS ARGS...: as above.
staged() {
    blocks=$1
    shift
    for again in 1 2 3 4; do
        ask --balance measured --pipefusion_parallel_degree 2 -v "$@" -o "$T/x.ppm"
        { [ "$rc" = 0 ] && [ "$(levels)" = 0 ] && ! said "stage 0 runs blocks $blocks of 3"; } ||
            break
        echo "# stages, try $again"
    done
    check "stages: the pixels of one rank" [ "$rc" = 0 -a "$(levels)" = 0 ]
    check "stages: blocks $blocks of 3 are the first" said "stage 0 runs blocks $blocks of 3"
}
staged "0 to 1" --warmup_steps 3
# A third as fast would lie between one block and none.
XDIT_SLOW=0:2 staged "0 to 0" --num_pipeline_patch 1
# Stale keys and values, tokens of text, and an idle rank beside.
MODEL=$GOLDEN/flux
pixels() { tail -c 6720 "$1" >"$1.px"; }
ask() {
    try generate --model "$MODEL" --prompt "a red circle" --steps 3 --seed 3 -W 56 -H 40 \
        --max_sequence_length 13 --dtype f32 "$@"
}
ask --num_pipeline_patch 2 --patches_without_stages -o "$T/one.ppm"
shared 0 tokens --ulysses_degree 2 --num_pipeline_patch 2 --patches_without_stages

# Adaptive shares: rank 1 becomes slow after some steps, and gets fewer tokens from the step on in
# which that is found. A busy neighbour may hide the change or bring others, so only one of three
# runs has to show it, and all have to give the image of one rank.
MODEL=$ROOT/models/demo-pixart
pixels() { tail -c 49152 "$1" >"$1.px"; }
ask() {
    try generate --model "$MODEL" --prompt "a red circle" --steps 12 --seed 3 --dtype f32 \
        -W 128 -H 128 "$@"
}
# adapts LEVELS PATTERN ARGS...: PATTERN is that of a line of the log.
adapts() {
    limit=$1 pattern=$2
    shift 2
    for again in 1 2 3; do
        rm -f "$T/x.ppm"
        ask --balance adaptive "$@" -o "$T/x.ppm"
        [ "$rc" = 0 ] && [ "$(levels)" -le "$limit" ] && ! said "$pattern" || break
        echo "# $*: no change, try $again"
    done
    check "adaptive $*: within $limit levels of one rank" [ "$rc" = 0 -a "$(levels)" -le "$limit" ]
    check "adaptive $*: shares change" said "$pattern"
}
changes='^xdit: balance: from step [0-9]+ of 12 on: speeds '
ask -o "$T/one.ppm"
XDIT_SLOW=1:5:700
adapts 0 "$changes" --ulysses_degree 2
adapts 1 "$changes" --ring_degree 2
adapts 0 "$changes" --ulysses_degree 2 --use_cfg_parallel
adapts 0 "$changes" --ulysses_degree 2 --pipefusion_parallel_degree 2 --warmup_steps 12
adapts 0 "$changes" --ulysses_degree 2 --checkpoint "$T/saved"
# Rank 1 is slow from the start, and then as fast as rank 0 again.
XDIT_SLOW=1:5:0:900 adapts 0 "$changes" --ulysses_degree 2
# Noise that the sampler draws in each step.
ask --scheduler ddim --eta 1 -o "$T/one.ppm"
adapts 0 "$changes" --ulysses_degree 2 --scheduler ddim --eta 1
ask --steps 1 --tensor_parallel_degree 2 --balance adaptive -o "$T/x.ppm"
check "adaptive shares without divided tokens: the image" [ "$rc" = 0 ]
check "adaptive shares without divided tokens: a warning" said "adaptive shares need Ulysses or a"
done_testing

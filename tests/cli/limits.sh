#!/bin/sh
# limits.sh XDIT ROOT - address space limits around what a command needs: it works, or ends with 1
# and a sentence, and never by a signal.
. "$(dirname "$0")/lib.sh"
if ! (ulimit -v 1000000 && "$XDIT" --version >/dev/null 2>&1); then
    echo "1..0 # SKIP this build does not start under ulimit -v 1000000"
    exit 0
fi
# under "LIMITS" ARGS...: runs under each of the limits (MB); counts what is refused and what works.
under() {
    limits=$1 refused=0 worked=0 bad=
    shift
    for mb in $limits; do
        (ulimit -v $((mb * 1000)) && exec timeout 120 "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" \
            </dev/null)
        rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
        case $rc in
        0) worked=$((worked + 1)) ;;
        1) refused=$((refused + 1)); said '^xdit: ' || bad="$bad $mb MB: no sentence;" ;;
        *) bad="$bad $mb MB: exit $rc;" ;;
        esac
    done
}
# sweep WHAT "LIMITS" ARGS...: one at least is refused, and one works.
sweep() {
    what=$1
    shift
    under "$@"
    check "$what: $refused refused, $worked worked, $bad" [ -z "$bad" -a "$refused" -gt 0 \
        -a "$worked" -gt 0 ]
}
bench="bench --config $MODEL --random_weights -W 64 -H 64 --repeats 1"
one="98 120 134 142 150 160 180 220 320"
for part in text step vae "text step block vae"; do
    # shellcheck disable=SC2086
    sweep "bench $part" "$one" $bench -t 1 --parts "$part"
done
# shellcheck disable=SC2086
sweep "bench with more threads" "120 140 160 180 200 300 500" $bench -t 4 --parts vae
sweep "bench of a large image" "150 200 250 300 400" bench --config "$MODEL" --random_weights \
    -W 512 -H 512 --repeats 1 -t 1 --parts vae
sweep "generate" "80 100 120 128 136 144 152 200" generate --model "$MODEL" -q -p a --steps 1 \
    -t 1 -o "$T/x.png"
sweep "generate, a large image" "290 320 350 380 520" generate --model "$MODEL" -q -p a --steps 1 \
    -t 1 -W 1024 -H 1024 --no_resolution_binning -o "$T/x.png"
# What no machine holds is predicted before it is refused.
for command in "plan --world 1" "generate -q -p a -t 1 -o x.png"; do
    # shellcheck disable=SC2086
    under "100 140 180 220 260 320" $command --model "$MODEL" -W 32768 -H 32768 \
        --no_resolution_binning
    check "far too large, $command: $bad" [ -z "$bad" -a "$refused" -gt 0 ]
done
if [ -n "${XDIT_NO_MPI-}" ] || "$XDIT" bench --config "$MODEL" --nproc 2 --repeats 1 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    echo "# skipped: there is no MPI to start several ranks with"
else
    # shellcheck disable=SC2086
    sweep "bench of two ranks" "160 205 213 240 260 800" $bench -t 1 --ulysses_degree 2 \
        --use_parallel_vae
    sweep "generate on two ranks" "160 205 213 260 800" generate --model "$MODEL" -q -p a \
        --steps 1 -t 1 --ulysses_degree 2 -o "$T/x.png"
    (ulimit -v 160000 && exec timeout 120 "$XDIT" generate --model "$MODEL" -q -p a \
        --ulysses_degree 2 -o "$T/x.png" >"$T/stdout" 2>"$T/stderr" </dev/null)
    rc=$? err=$(cat "$T/stderr")
    check "too little to start ranks in is said before they are started" said \
        '160000 kB .ulimit -v., and a rank needs [0-9]+ kB'
fi
done_testing

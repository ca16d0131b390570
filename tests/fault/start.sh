#!/bin/sh
# What ends a run besides its own errors: a rank that dies while it starts, ranks that do not meet,
# limits of the system, variables of a launcher that has gone, SIGTERM of a launcher or a rank, a
# model file that is cut off while it is in use. Each ends in time and in a sentence, and leaves
# nothing behind. XDIT_TRIES=100 makes more tries of what depends on the moment; busy loops beside
# it make such moments more frequent.
#
#     start.sh XDIT ROOT LOSTPAGE
. "$(dirname "$0")/../cli/lib.sh"
LOST=$3
case $LOST in /*) ;; *) LOST=$PWD/$LOST ;; esac
MODEL=$ROOT/tests/golden/alpha
TRIES=${XDIT_TRIES:-4}
PRELOAD="env LD_PRELOAD=$LOST"

job="generate -m $MODEL -p a -W 64 -H 64 --no_resolution_binning -t 1"
if "$XDIT" $job --steps 1 --nproc 2 -q -o "$T/x.ppm" 2>&1 |
    grep -Eq 'has no MPI|install the package'; then
    MPI=0
    echo "# skipped: what needs several ranks, there is no MPI to start them with"
else
    MPI=1
fi

# begin ARGS...: runs it beside; $pid, and $launcher once there is one.
begin() {
    rm -rf "$T/d"
    mkdir "$T/d"
    : >"$T/stderr"
    "$XDIT" $job -o "$T/d/x.ppm" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$! n=0 launcher=
    while [ -z "$launcher" ] && [ "$n" -lt 200 ] && kill -0 "$pid" 2>/dev/null; do
        for p in $(pgrep -P "$pid"); do
            tr '\0' '\n' <"/proc/$p/cmdline" 2>/dev/null | head -n 1 | grep -Eq 'mpirun|mpiexec' &&
                launcher=$p
        done
        sleep 0.01
        n=$((n + 1))
    done
    room=$(tr '\0' '\n' <"/proc/${launcher:-none}/cmdline" 2>/dev/null |
        grep -E -m 1 '^(/dev/shm|/tmp)/xdit\.')
}
# A rank: a process of this program below the launcher.
find_rank() {
    rank= n=0
    while [ -z "$rank" ] && [ "$n" -lt 300 ]; do
        for p in $(pgrep -P "$launcher"); do
            case $(readlink "/proc/$p/exe") in
            "$XDIT") rank=$p ;;
            *) q=$(pgrep -n -P "$p") && [ "$(readlink "/proc/$q/exe")" = "$XDIT" ] && rank=$q ;;
            esac
        done
        sleep 0.01
        n=$((n + 1))
    done
}
# Waits for its end, LIMIT seconds at most; then it is killed.
finish() {
    ( sleep "$1"; kill -s KILL "$pid" ) >/dev/null 2>&1 &
    guard=$!
    wait "$pid"
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    kill "$guard" 2>/dev/null
}
gone() {
    n=0
    while pgrep -f "$T/d/" >/dev/null && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
    ! pgrep -f "$T/d/" >/dev/null && [ -z "$room" -o ! -e "$room" ]
}
# It ended well, or by an error in a sentence.
ended() {
    check "$1: it ends" [ "$rc" != 137 ]
    check "$1: well, or with a cause" [ "$rc" = 0 -o -n "$(grep '^xdit: [^w]' "$T/stderr" |
        grep -v ' image')" ]
    check "$1: nothing is left" gone
}

if [ "$MPI" = 1 ]; then
    # At moments of its start; at most of them the launcher does notice.
    for i in $(seq "$TRIES"); do
        begin --steps 4 -q --nproc 2
        find_rank
        sleep "0.0$((i * 7 % 10))$((i * 3 % 10))"
        sig=KILL
        [ $((i % 2)) = 0 ] || sig=SEGV
        kill -s "$sig" "$rank" 2>/dev/null
        finish 25
        ended "try $i, SIG$sig while it starts"
    done
    # A handler of MPI's that takes memory would wait for ever where the fault was within malloc.
    begin --steps 1000 --nproc 2
    find_rank
    n=0
    while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$rank/status")
    echo "# signals that a rank catches: $caught"
    check "a rank leaves SIGSEGV, SIGFPE and SIGABRT to the system" \
        [ $((0x${caught:-ffff} & 0x4a0)) = 0 ]
    kill -s SEGV "$rank"
    finish 25
    check "SIGSEGV while it generates: an error" [ "$rc" = 1 ]
    check "SIGSEGV while it generates: it names the rank" said \
        "^xdit: (rank [01]|the rank .*) was killed by signal 11"
    ended "SIGSEGV while it generates"
    # A launcher that is stopped notices nothing.
    begin --steps 1000 -q --nproc 2
    find_rank
    kill -s STOP "$launcher"
    kill -s KILL "$rank"
    at=$(date +%s)
    finish 40
    check "the launcher does not notice: an error in time" [ "$rc" = 1 -a "$(($(date +%s) - at))" \
        -lt 35 ]
    check "it names the rank" said \
        "^xdit: (rank [01] (was killed by signal 9|\(process)|rank [01, ]*has ended while)"
    check "and nothing is left" gone
    # A launcher whose ranks never come.
    for how in "alone:sleep 100:2 ranks .* 2 s.*missing is rank 0, 1" \
        "silent:sleep 100 & sleep 100 & wait:missing is rank 0, 1" \
        "half:sleep 3 & sleep 100 & wait:rank 0, 1 has ended during its start"; do
        name=${how%%:*} rest=${how#*:}
        printf '#!/bin/sh\n%s\n' "${rest%%:*}" >"$T/$name"
        chmod +x "$T/$name"
        at=$(date +%s) limit=2
        [ "$name" != half ] || limit=60
        XDIT_MPIRUN=$T/$name try $job --steps 1 -q --nproc 2 --start_timeout $limit -o "$T/no.ppm"
        check "a launcher that is $name: an error in time" [ "$rc" = 1 -a "$(($(date +%s) - at))" \
            -lt 20 ]
        check "a launcher that is $name: it is told" said "^xdit: .*${rest#*:}"
    done
    refused "a time that is none" 2 "start_timeout" $job --nproc 2 \
        --start_timeout soon
    # Ranks of a launcher that a person started look at the clock where they are told to.
    MPIRUN=$(for m in mpirun.openmpi mpirun; do command -v "$m"; done | head -n 1)
    if [ -n "$MPIRUN" ] && "$MPIRUN" --version 2>/dev/null | grep -Eq 'Open MPI|OpenRTE'; then
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 60 "$MPIRUN" \
            --oversubscribe --bind-to none \
            -n 1 "$XDIT" $job --steps 1 -q --ulysses_degree 2 --start_timeout 3 -o "$T/no.ppm" : \
            -n 1 sleep 50 >"$T/stdout" 2>"$T/stderr" </dev/null
        rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
        check "a rank of mpirun that waits for one that never comes: an error" [ "$rc" = 1 ]
        check "a rank of mpirun that waits: it is told" said \
            "^xdit: rank 0: .* --start_timeout 3 s"
    else
        echo "# skipped: ranks that a person starts, without mpirun of Open MPI"
    fi
    limited() {
        ( ulimit "$1" "$2" && shift 2 && "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null )
        rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    }
    limited -n 32 $job --steps 1 -q --nproc 2 -o "$T/no.ppm"
    check "32 open files: refused" [ "$rc" = 1 ]
    check "32 open files: what is there, what is needed, and how" said \
        "^xdit: .* 32 .*needs [0-9]* for 2 ranks: .*ulimit -n"
    for blocks in 1 64 2000; do
        limited -f $blocks $job --steps 1 -q --nproc 2 -o "$T/no.ppm"
        check "files of $blocks blocks: refused" [ "$rc" = 1 ]
        check "files of $blocks blocks: it is told" said \
            "^xdit: .* [0-9]* KiB .*ulimit -f"
    done
    check "nothing was generated" [ ! -e "$T/no.ppm" ]
    limited -n 64 $job --steps 1 -q --nproc 2 -o "$T/x.ppm"
    check "64 open files are enough for 2 ranks" [ "$rc" = 0 ]
    # Little address space: an image, or an error in a sentence.
    for mb in 30 130 200 400; do
        limited -v $((mb << 10)) $job --steps 1 -q --nproc 2 -o "$T/v.ppm"
        if [ -n "$out$err" ] && printf '%s' "$err" |
            grep -q 'error while loading shared libraries\|Sanitizer'; then
            echo "# skipped: this build does not start in $mb MB of address space"
            continue
        fi
        check "$mb MB of address space: an image or an error" [ "$rc" -le 2 ]
        check "$mb MB of address space: in a sentence" \
            sh -c '[ "$1" = 0 ] || printf "%s\n" "$2" | grep -q "^xdit: "' x "$rc" "$err"
    done
    # SIGTERM, as batch systems send it.
    for i in $(seq "$TRIES"); do
        begin --steps 1000 --num_images_per_prompt 2 --nproc 2
        find_rank
        n=0
        while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
        if [ $((i % 2)) = 0 ]; then kill -s TERM "$launcher"; else kill -s TERM "$rank"; fi
        finish 25
        ended "try $i, SIGTERM while it generates"
        check "try $i, SIGTERM: an error" [ "$rc" = 1 -o "$rc" = 143 ]
    done
    begin --steps 1 --num_images_per_prompt 400 --nproc 2
    n=0
    while [ ! -s "$T/d/x_0001.ppm" ] && [ "$n" -lt 300 ]; do sleep 0.05; n=$((n + 1)); done
    kill -s TERM "$launcher"
    finish 25
    check "SIGTERM of the launcher behind an image: an error" [ "$rc" = 1 ]
    ended "SIGTERM of the launcher behind an image"
fi

# Variables of a launcher that has gone.
mkdir "$T/tmp"
for vars in "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=9" "PMIX_RANK=1 PMIX_NAMESPACE=x" \
    "PMI_SIZE=3 PMI_RANK=2" \
    "PMIX_RANK=0 PMIX_NAMESPACE=x PMIX_SERVER_URI2=1.0;tcp4://127.0.0.1:1"; do
    for c in "$job --steps 1 -q -o $T/no.ppm" "$job --ulysses_degree 2 -o $T/no.ppm" \
        "probe -o $T/no.json"; do
        # Variables and words are apart by blanks.
        # shellcheck disable=SC2086
        env TMPDIR="$T/tmp" $vars "$XDIT" $c >"$T/stdout" 2>"$T/stderr" </dev/null
        rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
        check "$vars, ${c%% *}: one sentence" \
            [ "$rc" = 1 -a "$(grep -c '^xdit: [A-Z_]* in the environment' "$T/stderr")" = 1 ]
    done
done
check "and no directory" [ -z "$(ls -A "$T/tmp")" ]
OMPI_COMM_WORLD_SIZE=4 try inspect "$MODEL"
check "inspect works all the same" [ "$rc" = 0 ]
XDIT_STARTED=nan try $job --steps 1 -o "$T/x.ppm"
check "a start that is no number is not said" \
    sh -c '[ "$1" = 0 ] && ! printf "%s" "$2" | grep -q nan' x "$rc" "$err"

# A file that is cut off.
if ! $PRELOAD "$XDIT" --version >"$T/stdout" 2>&1 || grep -q 'cannot be preloaded' "$T/stdout"; then
    echo "# skipped: this build takes no library to preload"
    done_testing
    exit 0
fi
lost=0
MODEL=$ROOT/models/demo-pixart
# lose AT ARGS...: of a copy at $T/copy. It ends well when so many are not mapped, else with 1 and a
# sentence.
lose() {
    at=$1
    shift
    rm -rf "$T/copy"
    cp -R "$MODEL/." "$T/copy" && chmod -R u+w "$T/copy"
    XDIT_CUT_AT=$at timeout 60 $PRELOAD "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    said "copy/.*(was (cut off|truncated) while it was in use|the file ends|too short|bytes)" &&
        lost=$((lost + 1))
    check "mapping $at is lost, $*: an end in words" \
        sh -c '[ "$1" = 0 ] || { [ "$1" = 1 ] && printf "%s\n" "$2" | grep -q "^xdit: "; }' x \
        "$rc" "$err"
}
c="-m $T/copy -p a --steps 1 -W 64 -H 64 --no_resolution_binning -q -o $T/x.ppm"
for at in $(seq 1 9 60); do
    lose "$at" generate $c -t 4
done
for at in 1 5 20; do
    lose $at generate $c -t 1
    lose $at bench --config "$T/copy" --parts "text step" --repeats 1 -W 64 -H 64 -t 4
done
lose 1 inspect "$T/copy"
lose 1 plan --model "$T/copy" --world 2
[ "$MPI" = 0 ] || lose 6 generate $c --nproc 2 -t 2
check "files were lost in use" [ "$lost" -ge 3 ]
done_testing

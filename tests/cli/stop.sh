#!/bin/sh
# Signals: the run ends with 128 + the signal's number, and no half file is left.
. "$(dirname "$0")/lib.sh"

# A run that takes long enough to be stopped; $pid is it.
start() {
    mkdir -p "$T/d"
    : >"$T/stderr"              # what the run before said must not be taken for this one
    "$XDIT" generate --model "$MODEL" --prompt "a red circle" --num_inference_steps 1000 \
        --num_images_per_prompt 50 -o "$T/d/x.png" >"$T/stdout" 2>"$T/stderr" </dev/null &
    pid=$!
}
# Waits until the run takes steps, for at most a minute.
await_step() {
    n=0
    while ! grep -q '^denoise' "$T/stderr" && [ "$n" -lt 600 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    grep -q '^denoise' "$T/stderr"
}
finish() { wait "$pid"; rc=$?; out=$(cat "$T/stdout"); err=$(cat "$T/stderr"); }
# Only whole images, however far the run came.
no_half() {
    for f in "$T/d"/* "$T/d"/.[!.]*; do
        [ -e "$f" ] || continue
        case $f in *.png) whole_png "$f" || return 1 ;; *) return 1 ;; esac
    done
}

# Under nohup SIGHUP is ignored, and the program leaves it so.
pairs="INT:130 TERM:143 HUP:129"
case $(sed -n 's/^SigIgn:.*\(.\)$/\1/p' "/proc/$$/status") in
*[13579bdf]) echo "# SIGHUP is not tested: it is ignored here"; pairs="INT:130 TERM:143" ;;
esac
for pair in $pairs; do
    start
    check "$pair: the run takes steps" await_step
    kill -s "${pair%:*}" "$pid"
    finish
    check "${pair%:*} gives ${pair#*:}" [ "$rc" = "${pair#*:}" ]
    check "${pair%:*}: no half file" no_half
    check "${pair%:*}: one sentence says so" said "^xdit: .*cancel"
    rm -rf "$T/d"
done

# A pipe that nobody reads: the image is there and cannot be told.
mkfifo "$T/pipe.ppm"
"$XDIT" generate -m "$MODEL" -p a --steps 1 -o "$T/pipe.ppm" >"$T/stdout" 2>"$T/stderr" </dev/null &
pid=$!
n=0
while ! grep -q '^decode' "$T/stderr" && [ "$n" -lt 600 ]; do
    sleep 0.1
    n=$((n + 1))
done
sleep 1
kill -s TERM "$pid"
n=0
while kill -0 "$pid" 2>/dev/null && [ "$n" -lt 100 ]; do
    sleep 0.1
    n=$((n + 1))
done
check "a pipe without a reader ends as well" [ "$n" -lt 100 ]
kill -s KILL "$pid" 2>/dev/null
finish
check "with 143" [ "$rc" = 143 ]

mkdir "$T/d"
echo old >"$T/d/x_0001.png"
start
await_step
kill -s INT "$pid"
kill -s INT "$pid"
finish
check "twice: 130" [ "$rc" = 130 ]
check "an older file of that name is kept" [ "$(cat "$T/d/x_0001.png")" = old ]
rm -rf "$T/d"

start
await_step
kill -s BUS "$pid"
finish
check "a page that is gone: 1" [ "$rc" = 1 ]
check "and one sentence" said "^xdit: a file of the model .*in use"
check "and no half file" no_half
rm -rf "$T/d"

# At any moment: while the model loads, generates and writes.
for ms in 005 020 040 080 120 160 200 300 400 600; do
    mkdir "$T/d"
    "$XDIT" generate -m "$MODEL" -p a --steps 1 --num_images_per_prompt 40 -q -o "$T/d/x.png" \
        >/dev/null 2>"$T/stderr" &
    pid=$!
    sleep "0.$ms"
    kill -s INT "$pid" 2>/dev/null
    wait "$pid"
    rc=$?
    err=$(cat "$T/stderr")
    # 5 ms may be before the handler is there: the shell's 130 for a death by SIGINT is the same.
    check "after 0.$ms s: 130 or done" [ "$rc" = 130 -o "$rc" = 0 ]
    check "after 0.$ms s: no half file" no_half
    rm -rf "$T/d"
done
done_testing

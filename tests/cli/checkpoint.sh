#!/bin/sh
# A command that is killed continues with --resume: the image is that of an undisturbed run, on one
# and on several ranks; files of other requests are refused.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3
cd "$T" || exit 1

# killed FILE ARGS...: starts xdit and kills all its processes as soon as FILE exists
killed() {
    wanted=$1
    shift
    setsid "$XDIT" "$@" >killed.txt 2>&1 &
    pid=$!
    while [ ! -e "$wanted" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    kill -KILL -"$pid" 2>/dev/null
    pkill -KILL -s "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    check "killed when $wanted was there" [ $? = 137 -a -e "$wanted" ]
}
same() { # same WHAT A B
    check "$1" cmp -s "$2" "$3"
}
near() { # near WHAT A B: at most a level, because plans add in another order
    check "$1" [ "$("$XDIT" compare "$2" "$3" | sed -n 's/^largest *\([0-9]*\).*/\1/p')" -le 1 ]
}
whole() { # pixels alone, because a file's metadata tell when it was made
    "$XDIT" generate --model "$GOLDEN/flux" --width 128 --height 112 --num_inference_steps 40 \
        --seed 3 -q "$@" >/dev/null || echo "not ok - the undisturbed run"
}

printf 'a red circle\na blue square\n' >prompts.txt
whole --prompts prompts.txt --output 'a%d.ppm'
with_mpi=yes
"$XDIT" generate -m "$ROOT/tests/golden/alpha" -p a --steps 1 --nproc 2 -q -o "$T/x.ppm" 2>&1 |
    grep -Eq 'has no MPI|install the package' && with_mpi=

killed saved/image-0002.safetensors generate --model "$GOLDEN/flux" --width 128 --height 112 \
    --num_inference_steps 40 --seed 3 --prompts prompts.txt --output 'b%d.ppm' --checkpoint saved
cp -a saved other
try generate --resume saved
check "continues" [ "$rc" = 0 ]
check "skips the complete image" said '1 of 2 images skipped: its file exists \(--resume\)'
check "and begins where the other was" said 'image 2 continues after step [0-9]+ of 40'
same "the complete image" a1.ppm b1.ppm
same "the continued image is that of the undisturbed run" a2.ppm b2.ppm
check "nothing is left" [ ! -e saved ]

mv other saved
rm b2.ppm
refused "another seed" 2 'image-0002.*another request: its seed is 4, not 6' \
    generate -q --resume saved --seed 5
refused "another size" 2 'another request: its size is 128 x 112, not 128 x 128' generate \
    -q --resume saved --height 128
refused "another option" 2 'another request: its guidance_scale is not given, not 2' generate \
    --model "$GOLDEN/flux" --width 128 --height 112 --num_inference_steps 40 --seed 3 \
    --prompts prompts.txt --output 'b%d.ppm' --checkpoint saved --guidance_scale 2
refused "another prompt" 2 'continues with the prompts of saved' generate --resume saved "a dog"
mkdir folder
(cd folder && refused "another folder" 2 "ran in the folder $T: run --resume in that folder" \
    generate --resume ../saved)
count=$((count + 1))
refused "a folder without a checkpoint" 1 'folder has no options.json' generate --resume folder
refused "no folder" 1 'no/saved of --checkpoint cannot be created' generate --model "$GOLDEN/flux" \
    -p a -o c.ppm --checkpoint no/saved
refused "hashes of all steps" 2 'determinism_check needs the hashes of all steps' generate \
    -q --resume saved --determinism_check
check "a refused command leaves the files" [ -s saved/image-0002.safetensors ]
flock saved sleep 60 &
busy=$!
sleep 0.2
refused "a folder in use" 2 'another process uses the checkpoint folder saved' generate -q \
    --resume saved
pkill -P "$busy" # the sleep inherits the lock
wait "$busy" 2>/dev/null
refused "prompts of a pipe" 2 '--checkpoint needs a file of prompts' generate \
    --model "$GOLDEN/flux" --prompts - -o c.ppm --checkpoint piped
cp saved/image-0002.safetensors good
head -c 3000 saved/image-0002.safetensors >cut && mv cut saved/image-0002.safetensors
refused "a file that is cut off" 1 'image-0002.safetensors' generate -q --resume saved
size=$(stat -c %s good)
{ head -c $((size - 1)) good && printf x; } >saved/image-0002.safetensors
refused "a byte that differs" 1 'image-0002.safetensors damaged checksum' generate -q --resume saved
rm saved/image-0002.safetensors
try generate --resume saved
check "without the file, the image begins again" [ "$rc" = 0 ]
same "and is the same" a2.ppm b2.ppm

if [ -z "$with_mpi" ]; then
    echo "ok $((count + 1)) - several ranks # SKIP there is no MPI to start them with"
    count=$((count + 1))
    done_testing
    exit 0
fi
whole -p "a red circle" --output a.ppm
killed saved/image-0001.safetensors generate --model "$GOLDEN/flux" --width 128 --height 112 \
    --num_inference_steps 40 --seed 3 -p "a red circle" --output b.ppm --checkpoint saved \
    --nproc 2 --ulysses_degree 2
cp -a saved other
try generate --resume saved --nproc 3 --ring_degree 3
check "three ranks continue what two began" [ "$rc" = 0 ]
check "with the new plan" said '3 ranks \(ring 3\)'
near "and the image is the same" a.ppm b.ppm
mv other saved
rm b.ppm
try generate --resume saved
check "the plan stays without another" said '2 ranks \(ulysses 2\)'
near "two ranks again" a.ppm b.ppm

# A rank gets a signal: the ranks start again and continue.
one_dies() { # one_dies SIGNAL ARGS...
    signal=$1
    shift
    setsid "$XDIT" generate --model "$GOLDEN/flux" --width 128 --height 112 \
        --num_inference_steps 40 --seed 3 -p "a red circle" --output b.ppm --checkpoint saved \
        --nproc 3 --ulysses_degree 3 "$@" >died.txt 2>&1 &
    pid=$!
    while [ ! -e saved/image-0001.safetensors ] && kill -0 "$pid" 2>/dev/null; do sleep 0.01; done
    kill -s "$signal" "$(pgrep -s "$pid" -f "xdit generate" | tail -1)"
    wait "$pid"
    rc=$?
    out=$(cat died.txt)
}
rm -rf saved other b.ppm
one_dies KILL
check "the command goes on after the death of a rank" [ "$rc" = 0 ]
check "it is named" [ "${out#*was killed by signal 9}" != "$out" ]
check "and the ranks start again" [ "${out#*starting 3 ranks again, restart 1 of 1}" != "$out" ]
check "from the last saved step" [ "${out#*image 1 continues after step}" != "$out" ]
near "the image is that of the undisturbed run" a.ppm b.ppm
check "nothing is left of it" [ ! -e saved ]
rm b.ppm
one_dies KILL --max_restarts 0
check "without restarts it fails" [ "$rc" = 1 -a ! -e b.ppm -a -e saved/options.json ]
rm -rf saved
one_dies STOP --rank_timeout 1
check "a rank that stands still counts as killed" [ "$rc" = 0 ]
check "it is named" [ "${out#*is stopped and has stood still for more than 1 s}" != "$out" ]
near "and the image is that of the undisturbed run" a.ppm b.ppm
rm b.ppm

rm -rf saved b.ppm
whole -p "a red circle" --output b.ppm --checkpoint saved --checkpoint_seconds 1000 --verbose \
    2>said.txt
check "no checkpoint is due before its time" [ "$(grep -c 'checkpoint after' said.txt)" = 0 ]
done_testing

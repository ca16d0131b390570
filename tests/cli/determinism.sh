#!/bin/sh
# Hashes of steps and blocks: equal for exact plans on any number of ranks, different for others;
# the first difference is named; ranks that disagree fail; files are refused that are none of ours.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3

hashed() { # hashed MODEL FILE ARGS...
    model=$1 file=$2
    shift 2
    try generate --model "$model" -p "a red circle" --num_inference_steps 2 --dtype f32 --seed 3 \
        --determinism_file "$file" -o "$T/a.png" "$@"
}
with_mpi=yes
"$XDIT" generate -m "$ROOT/tests/golden/alpha" -p a --steps 1 --nproc 2 -q -o "$T/x.ppm" 2>&1 |
    grep -Eq 'has no MPI|install the package' && with_mpi=

hashed "$MODEL" "$T/one.txt" --determinism_check=blocks
check "hashes are written" [ "$rc" = 0 -a "$(wc -l <"$T/one.txt")" = 35 ]
check "the file is named" said "wrote hashes to $T/one.txt"
hashed "$MODEL" "$T/one.txt" --determinism_check=blocks
check "a second run is equal" [ "$rc" = 0 ]
check "so many hashes" said 'equal to the bit: 34 hashes'
hashed "$MODEL" "$T/steps.txt" --determinism_check
check "hashes of steps alone" [ "$rc" = 0 -a "$(wc -l <"$T/steps.txt")" = 3 ]
try compare --steps "$T/one.txt" "$T/steps.txt"
check "compare finds what two files have in common" \
    [ "$rc" = 0 -a "${out#*bit: 2 hashes}" != "$out" ]
hashed "$MODEL" "$T/other.txt" --seed 4
check "the check alone hashes steps" [ "$(wc -l <"$T/other.txt")" = 3 ]
refused "two seeds differ" 1 \
    'other.txt differ: first in image 1, step 1, latents, by about 1\.[1-7] ' \
    compare --steps "$T/steps.txt" "$T/other.txt"
hashed "$MODEL" "$T/steps.txt" --seed 4
check "a run that differs fails" [ "$rc" = 1 -a -s "$T/a.png" ]
cp "$T/a.png" "$T/in.png"

# The difference is estimated: images of f32 and of bf16 are near.
hashed "$MODEL" "$T/one.txt" --determinism_check=blocks --weights_dtype int8
check "weights in int8 differ in the first block" [ "$rc" = 1 ]
check "by a little" said 'step 1, pass 1 block 0, by about (0\.0[0-9]+|[0-9.]+e-0[2-9]) of the root'

head -3 "$T/one.txt" >"$T/short.txt"
echo "image 1 step 1 pass" >>"$T/short.txt"
refused "a line that is no hash" 1 'short.txt: line 4' compare --steps "$T/one.txt" "$T/short.txt"
refused "another file" 1 'a.png is not a file that --determinism_file' compare --steps \
    "$T/one.txt" "$T/a.png"
refused "another file, before the model is loaded" 1 'a.png is not a file' generate \
    --model "$MODEL" -p a --determinism_file "$T/a.png" -o "$T/never.png"
check "and nothing is generated" [ ! -e "$T/never.png" ]
refused "a folder that is not there" 1 '/no/such' generate --model "$MODEL" -p a \
    --determinism_file "$T/no/such" -o "$T/never.png"
refused "an unknown kind" 2 '--determinism_check needs none, steps or blocks' generate \
    --model "$MODEL" -p a --determinism_check=layers

if [ -z "$with_mpi" ]; then
    echo "ok $((count + 1)) - several ranks # SKIP there is no MPI to start them with"
    count=$((count + 1))
    done_testing
    exit 0
fi

# Exact plans compute the same bits, whatever the tokens' flow through the blocks.
for kind in flux qwen hunyuan12 wan kontext; do
    rm -f "$T/m.txt"
    set -- --determinism_check=blocks -W 64 -H 64
    case $kind in
        wan) set -- "$@" --num_frames 5 ;;
        kontext) set -- "$@" --max_area 4096 --image "$T/in.png" ;;
    esac
    hashed "$GOLDEN/$kind" "$T/m.txt" "$@"
    check "$kind: hashes" [ "$rc" = 0 ]
    for plan in u3 cfg2r2; do
        hashed "$GOLDEN/$kind" "$T/m.txt" --plan $plan "$@"
        check "$kind $plan: the hashes of one rank" said 'equal to the bit'
    done
done
hashed "$MODEL" "$T/one.txt" --determinism_check=blocks --data_parallel_degree 2 -p b
check "data parallelism: images of all ranks" said 'equal to the bit: 34 hashes'
rm -f "$T/two.txt"
hashed "$MODEL" "$T/two.txt" -p b
hashed "$MODEL" "$T/two.txt" -p b --data_parallel_degree 2
check "the second image too" said 'equal to the bit: 4 hashes'
hashed "$MODEL" "$T/one.txt" --determinism_check=blocks --plan tp2
check "tensor parallelism adds in another order" [ "$rc" = 1 ]
check "which is little" said 'step 1, pass 1 block 0, by about [0-9.]+e-0[678] '
hashed "$MODEL" "$T/one.txt" --determinism_check=blocks --plan pp2
check "PipeFusion is exact in its first step" said 'first in image 1, step 2, pass 1 block 0, '

# Ranks that must have equal values and have not.
if mpirun=$(command -v mpirun.openmpi || command -v mpirun); then
    word="generate --model $GOLDEN/flux -p a --steps 2 -q -o $T/e.png --determinism_check=blocks"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    err=$(two_ranks "$mpirun" "env XDIT_ISA=c $XDIT $word --plan tp2" \
        "env XDIT_ISA=avx2 $XDIT $word --plan tp2" 2>&1 >/dev/null)
    check "ranks of different kernels are told apart" said \
        'step 1: ranks 0 and 1 should have equal hidden states after block 0 of pass 1'
fi
done_testing

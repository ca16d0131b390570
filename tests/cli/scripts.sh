#!/bin/sh
# Whole scripts of xDiT's kind: what each becomes, as a text, a file and standard input.
. "$(dirname "$0")/lib.sh"

has() { printf '%s\n' "$out" | grep -Eq -- "$1"; }
# The command that was printed, in one line.
command_of() {
    printf '%s\n' "$out" | awk '/^here:/ { on = 1; next }
        /^(plan|note):/ { exit }
        on { sub(/^ */, ""); printf "%s ", $0 }' |
        sed 's/\\ //g; s/ *$//'
}
# becomes WHAT CODE PLAN COMMAND: of the text in $T/script, three ways; PLAN is a pattern of the
# first line.
becomes() {
    for way in text file stdin; do
        case $way in
        text) try from-xdit "$(cat "$T/script")" ;;
        file) try from-xdit "$T/script" ;;
        *) "$XDIT" from-xdit - <"$T/script" >"$T/stdout" 2>"$T/stderr"; rc=$?
           out=$(cat "$T/stdout"); err=$(cat "$T/stderr") ;;
        esac
        if [ "$rc" = "$2" ] && has "^xDiT: $3" && [ "$(command_of)" = "$4" ]; then
            pass "$1, as $way"
        else
            fail "$1, as $way" "expected $2, '$3' and: $4
but: $(command_of)"
        fi
    done
}
# script TEXT...: the script that the next test reads
script() { cat >"$T/script"; }

# A table of models, a check of the key, `read` from it, variables that nothing sets.
script <<'EOF'
set -x
export PYTHONPATH=$PWD:$PYTHONPATH
# which one
export KIND="Flux"
declare -A TABLE=(
    # script, model, steps
    ["Pixart"]="pixartalpha_example.py /models/PixArt-XL-2-1024-MS 20"
    ["Flux"]="flux_example.py /models/FLUX.1-dev/ 28"
)

if [[ -v TABLE[$KIND] ]]; then
    IFS=' ' read -r PROGRAM WEIGHTS STEPS <<< "${TABLE[$KIND]}"
    export PROGRAM WEIGHTS STEPS
else
    echo "Invalid KIND: $KIND"
    exit 1
fi
mkdir -p ./results
SIZES="--height 1024 --width 1024 --no_use_resolution_binning --guidance_scale 3.5"
# STAGES="--num_pipeline_patch 8 "
GPUS=8
DEGREES="--pipefusion_parallel_degree 2 --ulysses_degree 2 --ring_degree 2"

torchrun --nproc_per_node=$GPUS ./examples/$PROGRAM \
--model $WEIGHTS \
$DEGREES \
$SIZES \
$STAGES \
$OUTPUTS \
--num_inference_steps $STEPS \
--warmup_steps 1 \
--prompt "a dog with a bowl" \
$GUIDES \
EOF
becomes "a table" 0 '8 processes by torchrun, FLUX.1 with .*pipefusion 2 x ring 2 x ulysses 2$' \
    "xdit generate --model /models/FLUX.1-dev/ --prompt 'a dog with a bowl' --height 1024 --width \
1024 --num_inference_steps 28 --guidance_scale 3.5 --no_resolution_binning --ulysses_degree 2 \
--ring_degree 2 --pipefusion_parallel_degree 2 --warmup_steps 1 --seed 42"
check "what nothing sets is said" has '^note: .*empty: \$STAGES, \$OUTPUTS, \$GUIDES$'

# Several video flags; every switch in a variable of its own; the launcher's port.
script <<'EOF'
#!/bin/bash
set -x
PROGRAM="cogvideox_example.py"
WEIGHTS="/models/CogVideoX1.5-5B"
SIZES="--height 768 --width 1360 --num_frames 17 --guidance_scale 6.0"
GPUS=8
DEGREES="--ulysses_degree 2 --ring_degree 2"
GUIDES="--use_cfg_parallel"
TILES="--enable_tiling"
torchrun --master_port=1234 --nproc_per_node=$GPUS ./examples/$PROGRAM --model $WEIGHTS $DEGREES \
$SIZES $STAGES --num_inference_steps 50 --warmup_steps 0 --prompt "a girl" $GUIDES $VAE \
$TILES $COMPILE
EOF
becomes "a video" 0 '8 processes by torchrun, CogVideoX with .*cfg 2 x ring 2 x ulysses 2$' "xdit \
generate --model /models/CogVideoX1.5-5B --prompt 'a girl' --height 768 --width 1360 --num_frames \
17 --num_inference_steps 50 --guidance_scale 6.0 --ulysses_degree 2 --ring_degree 2 \
--use_cfg_parallel --enable_tiling --seed 42"
check "with the failure that its users search for" has \
    'tensor a \(6592\) must match the size of tensor b \(6572\)'
check "and its cause" has 'fails in the first step where flash-attn is not installed'

# A model that is not built, with an apostrophe in its prompt and an address.
script <<'EOF'
PROGRAM="consisid_example.py"
torchrun --nproc_per_node=6 ./examples/$PROGRAM --model /models/ConsisID-preview \
--ulysses_degree 2 \
--ring_degree 3 --height 480 --width 720 --prompt "as if he's lost" \
--img_file_path "https://x.org/2.png?raw=true" $GUIDES
EOF
becomes "a model that is not built" 1 \
    '6 processes by torchrun, ConsisID with .*ring 3 x ulysses 2$' ""
check "and says so" has '^here: ConsisID is not built$'

# Two hosts, braces, --flag=value in variables, latents.
script <<'EOF'
export CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7"
NODE=0
HOST=10.0.0.1
HOSTS="--nnodes=2 --node_rank=${NODE} --master_addr=${HOST}  --master_port=6000"
SIZE=1024
SIZES="--height=${SIZE} --width=${SIZE} --no_use_resolution_binning --guidance_scale=4.5"
torchrun --nproc_per_node=8 $HOSTS \
./examples/pixartalpha_example.py \
--model="/models/PixArt-XL-2-1024-MS/" --ulysses_degree=1 --pipefusion_parallel_degree=8 \
$SIZES --output_type=latent --num_inference_steps 20 --warmup_steps=1 --prompt="a dog" \
--use_cfg_parallel $VAE
EOF
becomes "two hosts" 0 '16 processes by torchrun on 2 hosts, PixArt-alpha .*cfg 2 x pipefusion 8$' \
    "mpirun --hostfile hosts --map-by ppr:8:node -n 16 xdit generate --model \
/models/PixArt-XL-2-1024-MS/ --prompt 'a dog' --height 1024 --width 1024 --num_inference_steps 20 \
--guidance_scale 4.5 --no_resolution_binning --output latents.safetensors --use_cfg_parallel \
--pipefusion_parallel_degree 8 --warmup_steps 1 --seed 42"

# Loops of one round, a flag's name in comments.
script <<'EOF'
for SIZE in 1024
do
for GPUS in 1;
do

SIZES="--height $SIZE --width $SIZE --guidance_scale 3.5"
# COMPILE="--use_torch_compile"
python ./examples/flux_service.py --model /models/FLUX.1-schnell --ulysses_degree 1 $SIZES \
--num_inference_steps 4 --prompt "A small dog" $COMPILE

done
done
EOF
becomes "loops" 0 '1 process by python, FLUX.1 .*1 rank$' "xdit generate --model \
/models/FLUX.1-schnell --prompt 'A small dog' --height 1024 --width 1024 --num_inference_steps 4 \
--guidance_scale 3.5 --seed 42"

# Ray: processes of two kinds, of which those that only decode are not needed.
script <<'EOF'
GPUS=3
export CUDA_VISIBLE_DEVICES=4,5,6
python ./examples/ray/ray_flux_example.py --model /models/FLUX.1-dev \
--pipefusion_parallel_degree 2 --prompt a --use_ray --ray_world_size $GPUS --dit_parallel_size 2 \
--vae_parallel_size 1 --use_parallel_vae
EOF
becomes "Ray" 0 '3 processes by python, FLUX.1 .*pipefusion 2$' "xdit generate --model \
/models/FLUX.1-dev --prompt a --pipefusion_parallel_degree 2 --use_parallel_vae --height 1024 \
--width 1024 --num_inference_steps 20 --guidance_scale 3.5 --seed 42"

# The data set of FID: flags of its own scripts.
script <<'EOF'
export CAPTIONS="captions.json"
torchrun --nproc_per_node=8 ./benchmark/fid/pixartalpha_generate.py --model /models/PixArt \
--prompt a --pipefusion_parallel_degree 8 --caption_file $CAPTIONS --sample_images_folder images
EOF
becomes "images of a data set" 0 '8 processes by torchrun, PixArt-alpha .*pipefusion 8$' "xdit \
generate --model /models/PixArt --prompt a --pipefusion_parallel_degree 8 --height 1024 --width \
1024 --num_inference_steps 20 --seed 42"
check "its flags are known" has '^  runs$'

# A benchmark that starts a script with every plan.
script <<'EOF'
python benchmark/single_node_latency_test.py \
--model_id /models/FLUX.1-dev/ --script ./examples/flux_example.py --sizes 1024 \
--num_inference_steps 28 --n_gpus 4
EOF
becomes "a benchmark" 0 'benchmark/single_node_latency_test.py runs ./examples/flux_example.py' \
    "xdit plan --model /models/FLUX.1-dev/ --world 4 --width 1024 --height 1024 \
--num_inference_steps 28"

# elif, [ ], a script that looks for its own directory, a port by chance, defaults, a log.
script <<'EOF'
HERE=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )/.." &> /dev/null && pwd )
PORT=$(shuf -n 1 -i 10000-65535)
STAGES=${STAGES:-2}
KIND="Sd3"
if [ "$KIND" = "Flux" ]; then
    PROGRAM=flux_example.py
elif [ "$KIND" = "Sd3" ]; then
    export PROGRAM=sd3_example.py
    GUIDES="--use_cfg_parallel"
else
    exit 1
fi
LAUNCH="
  --nproc_per_node 4 \
  --master_port $PORT
"
torchrun $LAUNCH $HERE/examples/$PROGRAM --model m --pipefusion_parallel_degree $STAGES $GUIDES \
  --prompt a &> $HERE/log/$KIND.log
EOF
becomes "what only runs can know, where it does not matter" 0 \
    '4 processes by torchrun, Stable Diffusion 3 .*cfg 2 x pipefusion 2$' "xdit generate --model \
m --prompt a --use_cfg_parallel --pipefusion_parallel_degree 2 --height 1024 --width 1024 \
--num_inference_steps 20 --guidance_scale 3.5 --seed 42"

# Arrays, +=, sums, case, functions, arguments, eval, here documents, another test before &&.
script <<'EOF'
ULYSSES=2; RING=2
GPUS=$((ULYSSES * RING))
cat <<END > notes.txt
torchrun "this is text
END
ARGS=(--model m --prompt "two words")
ARGS+=(--ulysses_degree "$ULYSSES")
case "$GPUS" in
    1|2) ;;
    4) ARGS+=(--ring_degree $RING) ;;
    *) exit 3 ;;
esac
start() { local n=$1; shift; torchrun --nproc_per_node=$n "$@"; }
[ -d /nowhere/at/all ] || mkdir -p out
FILE=examples/sd3_example.py
cd xDiT && time start $GPUS "${FILE%.py}.py" "${ARGS[@]}" 2>&1 | tee log.txt
EOF
becomes "arrays and functions" 0 \
    '4 processes by torchrun, Stable Diffusion 3 .*ring 2 x ulysses 2$' "xdit generate --model m \
--prompt 'two words' --ulysses_degree 2 --ring_degree 2 --height 1024 --width 1024 \
--num_inference_steps 20 --guidance_scale 3.5 --seed 42"

# Several commands, one after the other.
script <<'EOF'
for n in 1 2 4; do
    torchrun --nproc_per_node=$n examples/sd3_example.py --model m --prompt a --ulysses_degree $n
done
EOF
try from-xdit "$T/script"
check "a loop of three rounds" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -c '^here:')" = 3 ]
check "they are counted" has '^command 3 of 3$'
check "and each has its plan" has '^plan: ulysses 4 on 4 ranks'

# Arguments of a script; a script that wants some.
script <<'EOF'
if [ $# -lt 1 ]; then echo "usage: $0 GPUS"; exit 1; fi
torchrun --nproc_per_node=$1 examples/sd3_example.py --model m --prompt a --ulysses_degree $1
EOF
mv "$T/script" "$T/run.sh"
try from-xdit "$T/run.sh" 4
check "arguments of a script" has '^plan: ulysses 4 on 4 ranks'
try from-xdit "bash $T/run.sh 2"
check "a line that starts a script" has '^plan: ulysses 2 on 2 ranks'
refused "a script without its arguments" 2 'xDiT' from-xdit "$T/run.sh"

# What cannot be read is said in one sentence.
refused "no such script" 1 'none.sh' from-xdit "$T/none.sh"
refused "a directory" 2 'xDiT' from-xdit "$T"
printf 'torchrun\0a.py' >"$T/nul.sh"
refused "a byte 0" 2 '0' from-xdit "$T/nul.sh"
refused "a loop without an end" 2 'end' from-xdit \
    'while true; do sleep 1; done; torchrun a.py'
refused "if without fi" 2 "'if' 'fi'" from-xdit 'if true; then torchrun a.py'
refused "for without done" 2 "'for' 'done'" from-xdit \
    'for i in 1; do torchrun a.py --model m'
refused "a sum that is none" 2 'value' from-xdit 'N=$((1 /)); torchrun a.py'
refused "a division by nothing" 2 'value' from-xdit \
    'N=$((1/0)); torchrun a.py'
refused "a function that calls itself" 2 'itself|64' \
    from-xdit 'f() { f; }; f; torchrun a.py'
refused "a text that grows without end" 2 '256 KB' from-xdit \
    'x=ab; for i in {1..99}; do x=$x$x; done; torchrun a.py'
refused "a count that only a command knows" 2 '--nproc_per_node' from-xdit \
    'torchrun --nproc_per_node=$(wc -l <f) a.py'
refused "a model that only a command knows" 2 '--model' from-xdit \
    'python a.py --model $(cat f) --prompt a'
try from-xdit \
    'CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) a.py \
    --model m --ulysses_degree 2'
check "GPUs that nvidia-smi counts" has '^xDiT: 2 processes .one per GPU'

# xDiT's own, where a checkout of it is: every script becomes something, and none is a surprise.
if [ -d "${XDIT_TEST_XDIT_DIR:-}/examples" ]; then
    D=$XDIT_TEST_XDIT_DIR
    real() {                    # SCRIPT CODE PLAN
        [ -f "$D/$1" ] || { echo "# $1 is not there"; return; }
        try from-xdit "$D/$1"
        if [ "$rc" = "$2" ] && has "^xDiT: .*$3"; then pass "$1"; else fail "$1" "expected $2 and \
$3"; fi
    }
    real examples/run.sh 0 'FLUX.1 .*pipefusion 2 x ring 2 x ulysses 2$'
    real examples/run_cogvideo.sh 0 'CogVideoX .*cfg 2 x ring 2 x ulysses 2$'
    real examples/run_consisid.sh 1 'ConsisID .*ring 3 x ulysses 2$'
    real examples/run_consisid_usp.sh 1 'ConsisID .*cfg 2 x ring 2$'
    real examples/run_fastditattn.sh 0 'PixArt-alpha .*1 rank$'
    real examples/run_multinodes.sh 0 'on 2 hosts, PixArt-alpha .*cfg 2 x pipefusion 8$'
    real examples/run_service.sh 0 'FLUX.1 .*1 rank$'
    real examples/ray/ray_run.sh 0 'FLUX.1 .*1 rank$'
    real benchmark/run.sh 0 'with every plan of 4 processes'
    real benchmark/fid/generate.sh 0 'PixArt-alpha .*pipefusion 8$'
else
    echo "# skipped: scripts of xDiT itself; XDIT_TEST_XDIT_DIR names no checkout of it"
fi
done_testing

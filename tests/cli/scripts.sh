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

# Several video flags; every switch in a variable of its own; the launcher's port.
script <<'EOF'
#!/bin/bash
set -x
PROGRAM="cogvideox_example.py"
WEIGHTS="/models/CogVideoX1.5-5B"
export PYTHONPATH=$PWD:$PYTHONPATH
# STAGES="--num_pipeline_patch 8 "
SIZES="--height 768 --width 1360 --num_frames 17 --guidance_scale 6.0"
export GPUS=8
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
check "what nothing sets is said" has '^note: .*empty: \$STAGES, \$VAE, \$COMPILE$'
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
check "and says so" \
    has '^here: ConsisID is not built: .*face detector; CogVideoX-5b-I2V is nearest$'

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

# Values of commands where they do not matter; a log; several commands.
script <<'EOF'
HERE=$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )/.." &> /dev/null && pwd )
PORT=$(shuf -n 1 -i 10000-65535)
LAUNCH="
  --nproc_per_node 4
"
[ -d out ] || mkdir -p out
cd xDiT && time torchrun --master_port $PORT $LAUNCH $HERE/examples/sd3_example.py --model m \
  --pipefusion_parallel_degree 2 --use_cfg_parallel --prompt a &> $HERE/log/$KIND.log
EOF
becomes "what only runs can know, where it does not matter" 0 \
    '4 processes by torchrun, Stable Diffusion 3 .*cfg 2 x pipefusion 2$' "xdit generate --model \
m --prompt a --use_cfg_parallel --pipefusion_parallel_degree 2 --height 1024 --width 1024 \
--num_inference_steps 20 --guidance_scale 3.5 --seed 42"
try from-xdit 'N=2; torchrun --nproc_per_node=$N a.py --model m --ulysses_degree $N
N=4; torchrun --nproc_per_node=$N a.py --model m --ulysses_degree $N'
check "two commands" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -c '^here:')" = 2 ]
check "they are counted" has '^command 2 of 2$'
check "and each has its plan" has '^plan: ulysses 4 on 4 ranks'

# What only a shell can evaluate is named, with the cure.
shell() { refused "$1" 2 "$2" from-xdit "$3"; check "$1: the cure" said 'echo before torchrun'; }
shell "an array" '{ARGS' 'ARGS=(--model m); torchrun a.py "${ARGS[@]}"'
shell "a table" '{T' 'declare -A T=([a]="b c"); torchrun ${T[a]} --model m'
shell "words of read" "MODEL'" 'read -r MODEL N <<< "m 2"; torchrun a.py --model $MODEL'
shell "a loop" "'for'" 'for n in 1 2; do
torchrun --nproc_per_node=$n a.py --model m; done'
shell "a value of a condition" "MODEL'" 'if [ $A = B ]; then MODEL=m; fi
torchrun a.py --model $MODEL'
shell "a value of case" "N'" 'case $A in 1|2) N=2 ;; esac; torchrun a.py --model m --seed $N'
shell "a function" "'{'" 'start() { torchrun a.py --model m "$@"; }; start 2'
shell "a sum" 'nproc_per_node' 'torchrun --nproc_per_node=$((1 + 1)) a.py --model m'
shell "a default" 'seed' 'torchrun a.py --model m --seed ${SEED:-2}'
shell "appended text" "A'" 'A=--seed; A+=" 1"; torchrun a.py --model m $A'
shell "a variable of one that nothing sets" 'NOWHERE/x' 'OUT=$NOWHERE/x
torchrun a.py --model $OUT'
echo 'torchrun --nproc_per_node=$1 a.py --model m' >"$T/run.sh"
shell "an argument of a script" 'nproc_per_node' "$(cat "$T/run.sh")"
refused "a script with arguments" 2 'arguments' from-xdit "$T/run.sh" 4

# What cannot be read is said in one sentence.
refused "no such script" 1 'none.sh' from-xdit "$T/none.sh"
refused "a directory" 2 'xDiT' from-xdit "$T"
printf 'torchrun\0a.py' >"$T/nul.sh"
refused "a byte 0" 2 '0' from-xdit "$T/nul.sh"
refused "eval" 2 "'eval'" from-xdit 'eval "torchrun a.py --model m"'
refused "a text that grows" 2 '256 KB' from-xdit \
    "x=ab; $(printf 'x=$x$x; %.0s' $(seq 30)); torchrun a.py"
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
    real() {                    # SCRIPT CODE PATTERN
        [ -f "$D/$1" ] || { echo "# $1 is not there"; return; }
        try from-xdit "$D/$1"
        if [ "$rc" = "$2" ] && printf '%s\n' "$out$err" | grep -q "$3"; then
            pass "$1"
        else
            fail "$1" "expected $2 and $3"
        fi
    }
    real examples/run.sh 2 'echo before torchrun'
    real examples/run_cogvideo.sh 0 'CogVideoX .*cfg 2 x ring 2 x ulysses 2$'
    real examples/run_consisid.sh 1 'ConsisID .*ring 3 x ulysses 2$'
    real examples/run_consisid_usp.sh 1 'ConsisID .*cfg 2 x ring 2$'
    real examples/run_fastditattn.sh 2 'echo before torchrun'
    real examples/run_multinodes.sh 0 'on 2 hosts, PixArt-alpha .*cfg 2 x pipefusion 8$'
    real examples/run_service.sh 2 "'for'.*echo before torchrun"
    real examples/ray/ray_run.sh 2 'echo before torchrun'
    real benchmark/run.sh 0 'with every plan of 4 processes'
    real benchmark/fid/generate.sh 2 'echo before torchrun'
else
    echo "# skipped: scripts of xDiT itself; XDIT_TEST_XDIT_DIR names no checkout of it"
fi
done_testing

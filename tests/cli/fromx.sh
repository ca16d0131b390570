#!/bin/sh
# Command lines of xDiT: what is said about them, what they become, and that every flag is known.
. "$(dirname "$0")/lib.sh"

has() { printf '%s\n' "$out" | grep -Eq -- "$1"; }
hasnt() { ! has "$1"; }
# The command that was printed, in one line.
command_of() {
    printf '%s\n' "$out" |
        awk '/^here:/ { on = 1; next } /^plan:/ { exit } on { sub(/^ */, ""); printf "%s ", $0 }' |
        sed 's/\\ //g; s/ *$//'
}
is_command() { [ "$(command_of)" = "$1" ] || { echo "# $(command_of)"; false; }; }
# line WHAT CODE PATTERN LINE: its exit code, and something in its output.
line() {
    try from-xdit "$4"
    if [ "$rc" = "$2" ] && has "$3"; then pass "$1"; else fail "$1" "expected $2 and: $3"; fi
}
torch() {
    printf 'torchrun --nproc_per_node=%s examples/%s_example.py --prompt a %s' "$1" "$2" "$3"
}

# What a script does besides needs no variables of ours.
try from-xdit 'set -x
export PYTHONPATH=$PWD:$PYTHONPATH
cd $HOME/xDiT && mkdir -p "$RESULTS" > $LOG
SCRIPT=flux_example.py
torchrun --nproc_per_node=2 ./examples/$SCRIPT --model FLUX.1-dev --prompt a --ulysses_degree 2'
check "a script that begins as xDiT's do" [ "$rc" = 0 ]

# xDiT's issue 492, as its user ran it.
try from-xdit 'export CUDA_VISIBLE_DEVICES=0,1
SCRIPT=cogvideox_example.py
MODEL_ID=ZhipuAI/CogVideoX-5b
INFERENCE_STEP=50
TASK_ARGS="--height 480 --width 720 --num_frames 49"
N_GPUS=2
PARALLEL_ARGS="--ulysses_degree 2"
CFG_ARGS=--use_cfg_parallel
ENABLE_TILING=--enable_tiling
torchrun --nproc_per_node=$N_GPUS ./examples/$SCRIPT \
--model $MODEL_ID \
$PARALLEL_ARGS \
$TASK_ARGS \
--num_inference_steps $INFERENCE_STEP \
--prompt "A small dog." \
$CFG_ARGS \
$ENABLE_TILING'
check "issue 492: xDiT's error" has 'parallel_world_size 4 must be equal to dit_parallel_size 2'
check "issue 492: why" has 'cfg 2 x ulysses 2 = 4 and there are 2 processes'
want="xdit generate --model ZhipuAI/CogVideoX-5b --prompt 'A small dog.' --height 480 --width 720"
want="$want --num_frames 49 --num_inference_steps 50 --ulysses_degree 2 --use_cfg_parallel"
want="$want --enable_tiling --guidance_scale 3.5 --seed 42"
check "issue 492: our command" is_command "$want"
check "issue 492: plans for two" has 'on 2 ranks instead: (cfg 2; ulysses 2|ulysses 2; cfg 2)'
# The same with a model that is there: the command is run as it was printed.
try from-xdit \
    "torchrun --nproc_per_node=2 ./examples/pixartalpha_example.py --model '$MODEL' \
    --ulysses_degree 2 --use_cfg_parallel --height 128 --width 128 --num_inference_steps 2 \
    --prompt 'a red circle'"
check "the same of the demo model" has 'parallel_world_size 4 must be equal to dit_parallel_size 2'
sh -c "xdit() { '$XDIT' \"\$@\" --quiet -o '$T/a.png'; }; $(command_of)" >/dev/null 2>"$T/log"
if grep -Eq 'has no MPI|install the package' "$T/log"; then
    echo "# skipped: there is no MPI to run the printed command with"
else
    check "the printed command generates" whole_png "$T/a.png"
fi

line "too few processes for cfg" 0 \
    'dp_degree \* cfg_degree must be less than or equal to dit_parallel_size' \
    "$(torch 1 pixartalpha '--model m --use_cfg_parallel')"
line "idle processes" 0 'parallel_world_size 2 must be equal to dit_parallel_size 4' \
    "$(torch 4 pixartalpha '--model m --ulysses_degree 2')"
line "no degrees" 0 'parallel_world_size 1 must be equal to dit_parallel_size 3' \
    "$(torch 3 pixartalpha '--model m')"
check "no degrees: ranks" has '--nproc 3'
line "a VAE's processes" 0 'DIT parallel size 2 and VAE parallel size 1 must sum to world size 4' \
    "$(torch 4 flux \
    '--model FLUX.1-dev --dit_parallel_size 2 --vae_parallel_size 1 --ulysses_degree 2')"
line "stages and their list" 1 'attn_layer_num_for_pp must have the same length' \
    "$(torch 2 pixartalpha \
    '--model PixArt --pipefusion_parallel_degree 2 --attn_layer_num_for_pp 9 9 10')"
line "a list that is too long for us, too" 1 \
    'refused, too: the stages .* have 29 blocks and the model has 28' \
    "$(torch 2 pixartalpha \
    '--model PixArt --pipefusion_parallel_degree 2 --attn_layer_num_for_pp 14 15')"
check "and xDiT says so" has 'Sum of attn_layer_num_for_pp should be equal'
line "a list" 0 '--attn_layer_num_for_pp 14,14' \
    "$(torch 2 pixartalpha \
    '--model PixArt --pipefusion_parallel_degree 2 --attn_layer_num_for_pp 14 14')"
check "that runs there" has '^  runs$'
line "heads" 0 \
    'backbone has 38 heads, which is not divisible by or smaller than ulysses_degree 4' \
    "$(torch 4 sd3 '--model stable-diffusion-3.5-large --ulysses_degree 4')"
check "heads here" has '38 heads, 9 or 10 a rank'
line "heads of a model that is there" 0 'has 6 heads, which is not' \
    "$(torch 4 pixartalpha "--model $MODEL --ulysses_degree 4 --height 512")"
line "rows of CogVideoX" 0 'last pipeline patch is 60, .*: 2 \* 4' \
    "$(torch 8 cogvideox \
    '--model CogVideoX-5b --ulysses_degree 4 --use_cfg_parallel --height 480 --width 720')"
line "rows that no rank count divides" 0 \
    'not divisible by the number of sequence parallel devices' \
    "$(torch 8 cogvideox '--model CogVideoX-5b --ulysses_degree 8 --height 480 --width 720')"
line "CogVideoX and stages" 0 'does not support PipeFusion' \
    "$(torch 2 cogvideox '--model CogVideoX-5b --pipefusion_parallel_degree 2')"
line "CogVideoX and its VAE" 0 'parallel VAE not implemented for CogVideo' \
    "$(torch 2 cogvideox \
    '--model CogVideoX-5b --ulysses_degree 2 --height 480 --width 720 --use_parallel_vae')"
line "FLUX and cfg" 0 'CFG parallelism is not supported by the model' \
    "$(torch 2 flux '--model FLUX.1-dev --use_cfg_parallel')"
line "a backend without ring" 0 'backend does not support ring' \
    "$(torch 2 flux '--model FLUX.1-dev --ring_degree 2 --attention_backend sdpa')"
line "SANA's VAE" 0 'Sana pipeline does not support vae parallel' \
    "$(torch 1 sana '--model Sana --use_parallel_vae')"
line "SANA's sizes" 0 'divisible by 32' "$(torch 1 sana '--model Sana --height 1000')"
line "SDXL" 0 'only supports 2 GPUs with CFG' "$(torch 4 sdxl '--model SDXL --ulysses_degree 4')"
line "DiTFastAttn" 0 'when using DiTFastAttn' \
    "$(torch 2 pixartalpha '--model m --ulysses_degree 2 --use_fast_attn')"
line "negative prompts" 0 'must have the same quantities' \
    "$(torch 1 pixartalpha '--model m --negative_prompt a b')"
line "patches that change" 0 'patches num changed from 5 to 4' \
    "$(torch 4 pixartalpha "--model PixArt --ulysses_degree 2 --pipefusion_parallel_degree 2 \
    --num_pipeline_patch 5 --height 128")"
line "negative prompts, one a prompt" 0 '--negative_prompt a --negative_prompt b' \
    "$(torch 1 pixartalpha '--model m --prompt c d --negative_prompt a b')"
line "a group without a prompt" 0 'last group gets none' \
    "$(torch 2 pixartalpha '--model m --data_parallel_degree 2')"
line "an empty stage" 0 'last stage is empty' \
    "$(torch 16 flux '--model FLUX.1-dev --pipefusion_parallel_degree 16')"
line "a mistyped flag" 0 'unrecognized arguments: --ulyses_degree' \
    "$(torch 1 pixartalpha '--model m --ulyses_degree 2')"
check "and the nearest one" has 'nearest one is --ulysses_degree'
line "an abbreviation" 0 '^plan: ulysses 2' "$(torch 2 pixartalpha '--model m --ulys 2')"
line "an ambiguous one" 0 'ambiguous option: --use could match' \
    "$(torch 1 pixartalpha '--model m --use 2')"
line "a word as a number" 0 "argument --seed: invalid int value: 'x'" \
    "$(torch 1 pixartalpha '--model m --seed x')"
line "no model" 0 'required: --model' "$(torch 1 pixartalpha '')"
line "a model that is not built" 1 'ConsisID is not built' "$(torch 1 consisid '--model ConsisID')"
line "HunyuanDiT" 0 '^plan: pipefusion 2' \
    "$(torch 2 hunyuandit '--model HunyuanDiT --pipefusion_parallel_degree 2 --prompt a')"
line "Z-Image" 0 '^plan: cfg 2' \
    "$(torch 2 zimage '--model Tongyi-MAI/Z-Image --use_cfg_parallel --prompt a')"
line "Lumina" 0 '^plan: ulysses 2.*24 heads' \
    "$(torch 2 lumina2 '--model Alpha-VLLM/Lumina-Image-2.0 --ulysses_degree 2 --prompt a')"
line "HunyuanVideo" 0 '^plan: ulysses 2.*24 heads' "$(torch 2 hunyuan_video_usp \
    '--model hunyuanvideo-community/HunyuanVideo --ulysses_degree 2 --prompt a --num_frames 61')"
line "the runner's HunyuanVideo" 0 '--model hunyuanvideo-community/HunyuanVideo .*num_frames 61' \
    "xdit --model HunyuanVideo --ulysses_degree 2 --prompt a --num_frames 61"
line "tokens that xDiT does not pad" 0 'hangs or fails in the first all-to-all' \
    "$(torch 7 hunyuan_video_usp '--model hunyuanvideo-community/HunyuanVideo --prompt a \
        --ulysses_degree 1 --ring_degree 7 --height 720 --width 1280')"
line "SANA" 0 '^plan: cfg 2' \
    "$(torch 2 sana '--model Efficient-Large-Model/SANA1.5_4.8B_1024px_diffusers \
        --use_cfg_parallel --prompt a')"
line "Wan" 0 '^plan: ulysses 2.*12 heads' \
    "$(torch 2 wan '--model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --ulysses_degree 2 --prompt a')"
line "Wan that begins with an image" 0 'Wan2.1-I2V-14B-480P-Diffusers --prompt a --image b.png' \
    "$(torch 1 wan_i2v '--model Wan-AI/Wan2.1-I2V-14B-480P-Diffusers --prompt a \
        --img_file_path b.png')"
line "the runner's Wan with references" 0 'Wan-AI/Wan2.1-VACE-14B-diffusers --prompt a' \
    "xdit --model Wan2.1-VACE-14B --ulysses_degree 4 --prompt a"
line "the runner's Wan" 0 'num_inference_steps 40 --guidance_scale 3.5' \
    "xdit --model Wan2.1-T2V --ulysses_degree 4 --prompt a"
line "the runner's Z-Image-Turbo" 0 '^plan: ulysses 4.*30 heads' \
    "torchrun --nproc_per_node=4 xfuser/runner.py --model Z-Image-Turbo --ulysses_degree 4 \
    --prompt a"
want="xdit generate --model Tongyi-MAI/Z-Image-Turbo --prompt a --ulysses_degree 4"
check "with its defaults" is_command \
    "$want --num_inference_steps 9 --guidance_scale 0 --seed 42"
line "the runner's Chroma" 0 '^plan: cfg 2 x ulysses 2' \
    "torchrun --nproc_per_node=4 xfuser/runner.py --model Chroma1-HD --ulysses_degree 2 \
    --use_cfg_parallel --prompt a"
check "its name of the hub" has '--model lodestones/Chroma1-HD'
line "the runner's Chroma has no ring" 0 'does not support ring_degree' \
    'torchrun --nproc_per_node=2 xfuser/runner.py --model Chroma1-HD --ring_degree 2 --prompt a'
line "the runner's FLUX.2-dev" 0 '^plan: ulysses 4.*48 heads' \
    "torchrun --nproc_per_node=4 xfuser/runner.py --model FLUX.2-dev --ulysses_degree 4 --prompt a"
want="xdit generate --model black-forest-labs/FLUX.2-dev --prompt a --ulysses_degree 4"
want="$want --num_inference_steps 28 --guidance_scale 4 --max_sequence_length 256 --seed 42"
check "with its defaults, too" is_command "$want"
line "the runner's FLUX.2-klein-4B with an image" 0 '^plan: pipefusion 2 x ulysses 2' \
    "torchrun --nproc_per_node=4 xfuser/runner.py --model FLUX.2-klein-4B --prompt a \
    --input_images a.png --ulysses_degree 2 --pipefusion_parallel_degree 2 --height 1024"
want="xdit generate --model black-forest-labs/FLUX.2-klein-4B --prompt a --height 1024"
want="$want --image a.png --ulysses_degree 2 --pipefusion_parallel_degree 2"
check "with those that are not given" is_command \
    "$want --num_inference_steps 9 --width 2048 --seed 42"
line "a script of FLUX.2" 0 '^plan: ulysses 2' \
    "$(torch 2 flux2 '--model black-forest-labs/FLUX.2-dev --ulysses_degree 2 --prompt a')"
line "the runner counts no dashes" 0 'dp_degree . cfg_degree must be less' \
    'xdit --model FLUX.1-dev --use-cfg-parallel --prompt a'
line "a script's flag for the runner" 0 'example scripts have it, the runner does not' \
    'xdit --model FLUX.1-dev --warmup_steps 3 --prompt a'
line "the runner without a prompt" 0 "Either 'prompt' or 'dataset_path'" 'xdit --model FLUX.1-dev'
line "a model that the runner lacks" 0 'not found in registry' 'xdit --model PixArt --prompt a'
line "tensor parallelism of the runner" 0 'does not support tensor_parallel_degree' \
    'xdit --model FLUX.1-dev --tensor_parallel_degree 2 --prompt a'

line "two hosts" 0 '10.0.0.1 slots=8' \
    "torchrun --nnodes=2 --nproc-per-node 8 --node_rank 1 --master_addr 10.0.0.1 \
    examples/flux_example.py --model FLUX.1-dev --ulysses_degree 4 --pipefusion_parallel_degree 4 \
    --prompt a"
want="mpirun --hostfile hosts --map-by ppr:8:node -n 16 xdit generate --model FLUX.1-dev --prompt a"
want="$want --ulysses_degree 4 --pipefusion_parallel_degree 4 --height 1024 --width 1024"
check "two hosts: mpirun" is_command \
    "$want --num_inference_steps 20 --guidance_scale 3.5 --seed 42"
line "python alone" 0 '1 process by python' \
    'CUDA_VISIBLE_DEVICES=3 OMP_NUM_THREADS=4 python3 -u examples/flux_example.py --model F'
line "python -m torch.distributed.run" 0 '2 processes by torchrun' \
    "python -m torch.distributed.run --standalone --nproc_per_node 2 a.py --model m \
    --ulysses_degree 2"
line "accelerate" 0 '2 processes by accelerate' \
    'accelerate launch --num_processes 2 examples/sd3_example.py --model m --ulysses_degree 2'
line "the runner's file" 0 '2 processes by torchrun, FLUX.1 with Flux;' \
    'torchrun --nproc_per_node=2 xfuser/runner.py --model FLUX.1-dev --ulysses_degree 2 --prompt a'
line "behind other programs" 0 '^xDiT: 2 processes by torchrun, Stable Diffusion 3' \
    'nohup numactl -N 0 timeout 600 torchrun --nproc_per_node=2 examples/sd3_example.py --model m'
line "in an environment of conda" 0 '^xDiT: 1 process by python, Stable Diffusion 3' \
    'conda activate x && conda run -n x python examples/sd3_example.py --model m --prompt a'
line "what set -x prints" 0 '2 processes' \
    '+ torchrun --nproc_per_node=2 a.py --model m --ulysses_degree 2 2>&1 | tee log'
line "quotes" 0 "--prompt 'it'\\\\''s \"one\"' --prompt two" \
    'python a.py --model m --prompt "it'"'"'s \"one\"" two'
try from-xdit -- torchrun --nproc_per_node=2 a.py --model m --ulysses_degree 2 --prompt 'a b'
check "words behind --" has "--prompt 'a b' --ulysses_degree 2"
# Names of the runner's registry are names of the hub; others stay.
for pair in FLUX.1-dev=black-forest-labs/FLUX.1-dev flux.1-DEV=black-forest-labs/FLUX.1-dev \
    SD3.5=stabilityai/stable-diffusion-3.5-large \
        black-forest-labs/FLUX.1-dev=black-forest-labs/FLUX.1-dev; do
    try from-xdit "xdit --model ${pair%%=*} --ulysses_degree 2 --prompt a"
    case $pair in SD3.5=*) own="--guidance_scale 3.5" ;; *) own="--num_inference_steps 50" ;; esac
    check "the runner's ${pair%%=*}" is_command \
        "xdit generate --model ${pair#*=} --prompt a --ulysses_degree 2 $own --seed 42"
done
line "the runner's sizes of a video" 0 '--height 720 --width 1280 --num_frames 81' \
    'xdit --model Wan2.1-T2V --prompt a'
line "of those that are not given" 0 '--guidance_scale 3.5 --width 1280' \
    'xdit --model Wan2.1-T2V --prompt a --height 480'
line "the runner's distilled Wan 2.2" 0 'Wan2.2-I2V-A14B-Diffusers .*num_inference_steps 4' \
    'xdit --model Wan2.2-Distilled-I2V --prompt a'
line "the script's control image" 0 "--control_image 'test_imgs/016#.png'" \
    "$(torch 1 flux_control '--model FLUX.1-Canny-dev')"
line "a model's name is said" 0 \
    '^note: SD3.5 of xDiT.s runner is stabilityai/stable-diffusion-3.5-large$' \
    'xdit --model SD3.5 --prompt a'
line "a model nobody has heard of" 0 '^note: .*xdit inspect DIR' \
    'torchrun x.py --model some/thing'
line "a directory that is not there" 0 'there is no directory /no/such/model on this machine' \
    "$(torch 1 pixartalpha '--model /no/such/model')"

# Sums that do not fit into an int.
for n in '2147483647 2147483647' '99999999999999999999 1' '-9223372036854775808 -5'; do
    line "numbers of blocks: $n" 1 \
        'refused, too: --attn_layer_num_for_pp: .* is not a number of blocks' \
        "$(torch 2 pixartalpha "--model PixArt --pipefusion_parallel_degree 2 \
            --attn_layer_num_for_pp $n")"
done
many=$(for i in $(seq 100); do printf '14 '; done)
line "a long list is not cut" 0 "(14,){99}14" \
    "$(torch 100 pixartalpha "--model m --pipefusion_parallel_degree 100 --attn_layer_num_for_pp \
        $many")"

# What is a value of a flag here.
try from-xdit "$(torch 1 flux '--model m --use_int8_gemms --use_fp8_t5_encoder --output_type \
latent')"
check "weights of a byte, latents" is_command "xdit generate --model m --prompt a --output \
latents.safetensors --text_weights_dtype fp8 --weights_dtype int8 --height 1024 --width 1024 \
--num_inference_steps 20 --guidance_scale 3.5 --seed 42"
line "fp8" 0 '--weights_dtype fp8 ' "$(torch 1 flux '--model m --use_fp8_gemms')"
try from-xdit "$(torch 1 flux '--model m --enable_tiling --vae_tile_size_height 256 \
--vae_tile_size_width 320 --vae_tile_overlap_height 64 --vae_tile_overlap_width 0')"
check "sizes of tiles" is_command "xdit generate --model m --prompt a --enable_tiling \
--vae_tile_size_height 256 --vae_tile_size_width 320 --vae_tile_overlap_height 64 \
--vae_tile_overlap_width 0 --height 1024 --width 1024 --num_inference_steps 20 --guidance_scale \
3.5 --seed 42"
line "images" 0 '^plan: 1 rank' "$(torch 1 flux '--model m --output_type pil')"
check "are what there is without --output" [ "$(printf '%s\n' "$out" | grep -c 'output')" = 0 ]

# Failures that depend on what is installed, with the numbers that people search for.
line "CogVideoX1.5 without flash-attn" 0 \
    'tensor a \(6592\) must match the size of tensor b \(6572\) at' \
    "$(torch 4 cogvideox '--model CogVideoX1.5-5B --ulysses_degree 2 --ring_degree 2 --height 768 \
--width 1360 --num_frames 17')"
check "its cause" has 'fails in the first step where flash-attn is not installed'
line "FLUX with diffusers 0.32" 0 'exactly to 4096 .*split_sizes=\[4096, 4096, 4096, 4096\]' \
    "$(torch 4 flux '--model FLUX.1-dev --pipefusion_parallel_degree 4')"
check "its cause, too" has 'fails when the request begins with diffusers 0.32 or newer'
try from-xdit "$(torch 2 flux '--model FLUX.1-dev --ulysses_degree 2')"
check "neither without ring or stages" hasnt 'but fails'

# Letters of blogs, words without dashes, patches without stages.
refused "a dash of a blog" 2 'seed dash' from-xdit \
    "$(printf 'torchrun a.py --model m \342\200\223seed 5')"
line "a flag without its dashes" 0 '^    because: --ulysses_degree is meant[?]' \
    "$(torch 4 cogvideox '--model CogVideoX-5b ulysses_degree 4 --ring_degree 1')"
check "xDiT prints both words" has 'unrecognized arguments: ulysses_degree 4'
check "it is taken as that flag" has '^plan: ulysses 4 on 4 ranks'
line "a switch takes no value" 0 'because: --use_cfg_parallel takes no value' \
    "$(torch 2 pixartalpha '--model m --use_cfg_parallel 2')"
try from-xdit "$(torch 2 pixartalpha '--model m --ulysses_degree 2 --num_pipeline_patch 4')"
check "patches without stages are dropped" is_command "xdit generate --model m --prompt a \
--ulysses_degree 2 --height 1024 --width 1024 --num_inference_steps 20 --seed 42"
check "and that is said" has '^note: --num_pipeline_patch is left out'
line "letters that a terminal would obey" 0 "--prompt .'a.033b'" "$(printf 'python \
examples/sd3_example.py --model m --prompt a\033b')"

line "notes on flags" 0 '--use_torch_compile is left out .not needed' \
    "$(torch 1 pixartalpha '--model m --use_torch_compile')"

refused "no line" 2 'command' from-xdit
refused "an empty one" 2 'command' from-xdit ''
refused "an open quote" 2 'quote' from-xdit 'torchrun "a.py'
refused "a variable" 2 'variable' from-xdit \
    'torchrun --nproc_per_node=$N a.py'
refused "an installation" 2 "pip xfuser" from-xdit \
    'pip install xfuser'
refused "a program of its own" 2 "npz.py xDiT" from-xdit \
    'python npz.py --num 3'
line "a launcher's option by its beginning" 0 '^xDiT: 8 processes by torchrun on 2 hosts' \
    "torchrun --nnode=2 --nproc_per=4 examples/sd3_example.py --model m --ulysses_degree 8 \
    --prompt a"
try from-xdit \
    "python prepare.py --out d && torchrun --nproc_per_node=2 examples/sd3_example.py --model m \
    --ulysses_degree 2"
check "beside one of xDiT it is passed over" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -c \
'^here:')" = 1 ]
refused "a request to the service" 2 'HTTP' from-xdit \
    'curl -X POST http://localhost:6000/generate'
refused "mpirun" 2 'xDiT' from-xdit 'mpirun -n 2 python a.py'
refused "our own" 2 'program' from-xdit 'xdit generate -p a'
refused "a launcher's strange option" 2 '--foo' from-xdit \
    'torchrun --foo 3 a.py'
refused "a launcher's strange number" 2 "nproc_per_node '0'" from-xdit \
    'torchrun --nproc_per_node 0 a.py'
refused "no script" 2 'script' from-xdit 'torchrun --nproc_per_node 2'
refused "the service" 2 'HTTP' from-xdit 'python entrypoints/launch.py --model_path m'
refused "an option that is none" 2 '--flag' from-xdit --flag

# Every flag of xDiT is known to generate: none is called unknown, and each that is not its own says
# a line.
try from-xdit --flags
check "--flags" [ "$rc" = 0 ]
printf '%s\n' "$out" | sed -n 's/^--\([a-z0-9_]*\) .*/\1/p' >"$T/flags"
check "all flags are there" [ "$(wc -l <"$T/flags")" -gt 90 ]
lacking=$(sort "$T/flags" | comm -13 - "$ROOT/tests/cli/xdit_0.7.0_flags.txt" | tr '\n' ' ')
check "every flag of xDiT 0.7.0 has a row: $lacking" [ -z "$lacking" ]
unknown=
while read -r f; do
    "$XDIT" generate "--$f" 1 --model no-such-model -p a >/dev/null 2>"$T/stderr" </dev/null
    grep -q 'unknown flag' "$T/stderr" && unknown="$unknown --$f"
done <"$T/flags"
check "generate knows them:$unknown" [ -z "$unknown" ]
generate -p a --use_torch_compile --use_fp8_gemms --attention-backend=FLASH \
    --input_images "$T/no.png" -o "$T/n.png"
check "flags with other names are taken" said 'no.png'
generate -p a --use_torch_compile --use_fp8_gemms --attention-backend=FLASH --vsa_drop_rates 0.1 \
    0.2 -o "$T/n.png"
check "flags that are not needed do not hinder" whole_png "$T/n.png"
check "--quiet prints only the warning" said \
    '^xdit: warning: --use_fp8_gemms: .*--weights_dtype fp8.*--gemm fp8' && check "alone" one_line
try generate --model "$MODEL" -p a --num_inference_steps 1 --use_torch_compile -o "$T/n.png"
check "a line for what is not needed" said '^xdit: --use_torch_compile '
refused "a flag that cannot be taken" 1 \
    '--cache_config of xDiT .*fbcache:residual_diff_threshold' generate --cache_config '{}'

# A data set of prompts is a CSV file, of which xDiT reads the column prompt.
printf 'id,prompt\r\n1,"a ""red"" fox,\nand odd"\r\n2,\r\n3,plain' >"$T/set.csv"
generate --dataset_path "$T/set.csv" -o "$T/set-%d.png"
check "a prompt of each row" [ -f "$T/set-1.png" -a -f "$T/set-2.png" -a ! -f "$T/set-3.png" ]
check "quotes, commas and line breaks in CSV" grep -aq 'a "red" fox, and odd' "$T/set-1.png"
printf 'id,text\n1,a\n' >"$T/set.csv"
refused "a data set without prompts" 2 'no column named prompt' generate --model "$MODEL" \
    --prompts "$T/set.csv"
printf 'prompt\n"a' >"$T/set.csv"
refused "an open quote in CSV" 2 'row 2 has no closing quote' generate --model "$MODEL" \
    --prompts "$T/set.csv"

# Flags of xDiT 0.7.0 whose values become values of xdit's flags.
line "cache options" 0 '--cache dbcache:Fn_compute_blocks=4,max_warmup_steps=2 ' \
    "torchrun --nproc_per_node=1 flux_example.py --model m --cache_method dbcache \
    --cache_config '{\"Fn_compute_blocks\": 4, \"max_warmup_steps\": 2}'"
line "GEMMs in int8" 0 '--weights_dtype int8 ' \
    'torchrun --nproc_per_node=1 flux_example.py --model m --gemm_quantization int8'
line "GEMMs in fp4" 0 'low=fp4,high=fp8 is not supported; the nearest is --weights_dtype fp8' \
    'torchrun --nproc_per_node=1 flux_example.py --model m --gemm_quantization low=fp4,high=fp8'
refused "a flag without its value" 2 '--attention_backend' generate \
    --attention_backend

# torchrun: rank 0 speaks, all fail.
as_torch() { RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=$2 MASTER_ADDR=localhost TORCHELASTIC_RUN_ID=none \
    "$XDIT" generate \
    --model "$MODEL" -p a --num_inference_steps 1 -q -o "$T/t.png" >"$T/stdout" 2>"$T/stderr" \
    </dev/null; rc=$?
    out=$(cat "$T/stdout"); err=$(cat "$T/stderr"); }
as_torch 0 2
check "torchrun's rank 0 says what to use" [ "$rc" = 2 -a -n "$err" ]
check "in one sentence" one_line
check "with the launcher" said 'generate --nproc 2 .* mpirun'
as_torch 1 2
check "its rank 1 is silent" [ "$rc" = 2 -a -z "$err" ]
as_torch 0 1
check "one process of torchrun generates" whole_png "$T/t.png"

cp "$ROOT/doc/from-xdit.md" "$T/page.md" && sh "$ROOT/tools/from-xdit-doc.sh" "$XDIT" "$T/page.md"
check "doc/from-xdit.md is up to date (tools/from-xdit-doc.sh)" cmp "$T/page.md" \
    "$ROOT/doc/from-xdit.md"
done_testing

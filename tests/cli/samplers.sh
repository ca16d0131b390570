#!/bin/sh
# samplers.sh XDIT ROOT FULL - schedulers by diffusers' names, and what the command line changes of
# them.
. "$(dirname "$0")/lib.sh"
FULL=$3

# latents NAME ARGS...: latents of two steps of $MODEL, into $T/NAME.safetensors.
latents() {
    file=$T/$1.safetensors
    shift
    try generate --model "$MODEL" --prompt "a blue square" --width 48 --height 48 --dtype f32 \
        --num_inference_steps 4 --quiet --output "$file" "$@"
}
# same A B: are the latents the same? The parameters of the files may differ.
same() {
    python3 - "$T/$1.safetensors" "$T/$2.safetensors" <<'P'
import struct, sys
def tensors(path):
    data = open(path, "rb").read()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]
sys.exit(tensors(sys.argv[1]) != tensors(sys.argv[2]))
P
}
# near A B: at most 1e-4 of the largest number apart; both are f32.
near() {
    python3 - "$T/$1.safetensors" "$T/$2.safetensors" <<'P'
import struct, sys
def numbers(path):
    data = open(path, "rb").read()
    data = data[8 + struct.unpack("<Q", data[:8])[0]:]
    return struct.unpack(f"<{len(data) // 4}f", data)
a, b = map(numbers, sys.argv[1:])
worst = max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a))
sys.exit(len(a) != len(b) or not worst <= 1e-4)
P
}
differ() { [ -s "$T/$1.safetensors" -a -s "$T/$2.safetensors" ] && ! same "$1" "$2"; }

# The config of sd3 has a shift of 3.
MODEL=$FULL/sd3
latents plain
check "a model of rectified flow generates" [ "$rc" = 0 ]
latents three --flow_shift 3
check "its own shift changes nothing" same plain three
latents six --flow_shift 6
check "another shift does" differ plain six
try generate --model "$MODEL" -p a --flow_shift 6 --width 32 --height 32 --num_inference_steps 1 \
    --output "$T/s.png" --json
check "JSON has it" json 'j["parameters"]["flow_shift"] == 6'
refused "a shift of nothing" 2 "--flow_shift" generate --model "$MODEL" -p a --flow_shift 0
refused "a sampler of other noise" 2 "rectified" \
    generate --model "$MODEL" -p a --scheduler UniPCMultistepScheduler -o "$T/x.png"
latents heun --scheduler FlowMatchHeunDiscreteScheduler
latents lcm --scheduler FlowMatchLCMScheduler
latents noisy --stochastic_sampling
check "new noise in every step is LCM's step" same lcm noisy
check "Heun's method" differ plain heun
latents webui --scheduler Heun
check "by its name in stable-diffusion-webui" same heun webui
latents webui --scheduler "EULER"
check "in any case of letters" same plain webui
latents solver --scheduler unipc --use_flow_sigmas --flow_shift 3
check "UniPC follows rectified flow" differ plain solver
latents two --scheduler unipc --use_flow_sigmas --flow_shift 3 --plan u2 --nproc 2
check "on two ranks, too" same solver two
latents beta --use_beta_sigmas
check "levels as quantiles" differ plain beta
refused "levels that are not below 1" 2 "1 1.5" generate --model "$MODEL" \
    -p a --sigmas 1.5,1 -o "$T/x.png"
refused "two lists" 2 "sigmas timesteps" generate --model "$MODEL" -p a --sigmas 1 \
    --timesteps 1 -o "$T/x.png"
refused "a list with something else" 2 'numbers' generate --model "$MODEL" \
    -p a --sigmas 1,x -o "$T/x.png"
refused "another number of steps" 2 "num_inference_steps 3 2" \
    generate --model "$MODEL" -p a --num_inference_steps 3 --sigmas 1,0.5 -o "$T/x.png"
MODEL=$FULL/flux
latents plain
latents given --sigmas 1,0.75,0.5,0.25
check "the pipeline's own levels in a list" same plain given
latents given --sigmas 1,0.8,0.5,0.25
check "others" differ plain given
latents six --flow_shift 6
check "a shift in place of that by size" differ plain six

# The scheduler of published recipes for Qwen-Image-Lightning: a shift of 3 for all sizes, as two
# equal points of a line, and no last level.
cp -r "$FULL/qwen" "$T/lightning"
python3 - "$T/lightning/scheduler/scheduler_config.json" <<'P'
import json, math, sys
c = json.load(open(sys.argv[1]))
c.update(base_shift=math.log(3), max_shift=math.log(3), shift_terminal=None)
json.dump(c, open(sys.argv[1], "w"))
P
MODEL=$T/lightning
latents theirs
MODEL=$FULL/qwen
latents plain
latents ours --flow_shift 3 --shift_terminal 0
check "a shift for all sizes without a last level" near theirs ours
check "is not the model's own" differ plain ours
latents stretched --flow_shift 3
check "nor with its last level" differ ours stretched
refused "a last level of a sampler that has none" 2 "shift_terminal" \
    generate --model "$FULL/alpha" -p a --shift_terminal 0.1 -o "$T/x.png"
MODEL=$FULL/flux
latents plain

# A LoRA is merged before weights are quantized: the steps compute the same ops.
ops() {
    python3 -c 'import json, sys
at = json.load(open(sys.argv[1]))["traceEvents"]
step = [e for e in at if e.get("cat") == "phase" and e["name"] == "denoise"][0]
inside = [e["name"] for e in at if e.get("cat") == "op"
          and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
print(len(inside), *inside)' "$1"
}
LORA=$FULL/flux-lora/kohya.safetensors
latents bare --weights_dtype int8 --trace "$T/bare.json"
latents lora --weights_dtype int8 --trace "$T/lora.json" --lora "$LORA"
check "a LoRA counts" differ bare lora
ops "$T/bare.json" >"$T/bare.ops"
ops "$T/lora.json" >"$T/lora.ops"
check "steps have ops" grep -q '^[1-9][0-9]* .*gemm' "$T/bare.ops"
check "and no more with a LoRA" cmp "$T/bare.ops" "$T/lora.ops"

MODEL=$FULL/alpha
latents dpm
latents unipc --scheduler unipc
check "UniPC generates" [ "$rc" = 0 ]
check "another image than DPM++" differ dpm unipc
latents class --scheduler UniPCMultistepScheduler
check "diffusers' name is the same" same unipc class
latents karras --use_karras_sigmas
check "Karras's levels" differ dpm karras
latents given --timesteps 999,749,500,250
check "its own timesteps in a list" same dpm given
latents noisy --algorithm_type sde-dpmsolver++
check "DPM++ with noise" differ dpm noisy
latents two --algorithm_type sde-dpmsolver++ --plan cfg2 --nproc 2
check "the same noise on two ranks" same noisy two
latents webui --scheduler "DPM++ 2M SDE"
check "which stable-diffusion-webui calls DPM++ 2M SDE" same noisy webui
try generate --model "$MODEL" -p a --scheduler "DPM++ 2m sde" --width 48 --height 48 \
    --num_inference_steps 1 --output "$T/s.png" --json
check "JSON has both" json 'j["parameters"]["sampler"] == "dpm++" and
    j["parameters"]["algorithm_type"] == "sde-dpmsolver++"'
last=dpm
latents ancestral --scheduler euler-ancestral
latents webui --scheduler "Euler a"
check "stable-diffusion-webui's name of another kind of noise" same ancestral webui
refused "a name that it has and this does not" 2 "DPM fast" generate \
    --model "$MODEL" -p a --scheduler "DPM fast" -o "$T/x.png"
for name in heun euler-ancestral lcm tcd dpm++-single; do
    latents $name --scheduler $name
    check "$name is another sampler" differ $last $name
    last=$name
done
latents eta --scheduler TCDScheduler --eta 0.9
check "eta counts" differ tcd eta
latents ddim --scheduler ddim
latents noisy --scheduler ddim --eta 0.9
check "that of ddim, too" differ ddim noisy
latents plain
latents zero --eta 0
check "no eta is every sampler's" same plain zero
refused "another is not" 2 "eta" generate --model "$MODEL" -p a --eta 0.5 -o "$T/x.png"
try generate --model "$MODEL" -p a --scheduler tcd --eta 0.9 --width 48 --height 48 \
    --num_inference_steps 1 --output "$T/s.png" --json
check "JSON has it, too" json 'j["parameters"]["eta"] == 0.9'
refused "a key of other schedulers" 2 "use_karras_sigmas" \
    generate --model "$MODEL" -p a --scheduler ddim --use_karras_sigmas -o "$T/x.png"
refused "levels of another kind of model" 2 "use_flow_sigmas" \
    generate --model "$MODEL" -p a --use_flow_sigmas -o "$T/x.png"
refused "a spacing that is none" 2 "timestep_spacing" generate --model "$MODEL" -p a \
    --timestep_spacing odd -o "$T/x.png"
refused "a shift of other noise" 2 "flow_shift 2" \
    generate --model "$MODEL" -p a --flow_shift 2 -o "$T/x.png"

# Every class of diffusers that the config of a diffusion model may name: those of this version
# generate, others are refused by a sentence that says what there is.
named() {       # named MODEL CLASS: a copy of MODEL whose config names CLASS
    rm -rf "$T/named"
    cp -r "$FULL/$1" "$T/named"
    sed -i "s/\"_class_name\": \"[A-Za-z+]*\"/\"_class_name\": \"$2\"/" \
        "$T/named/scheduler/scheduler_config.json"
    MODEL=$T/named
}
for class in DDIM DDPM DPMSolverMultistep DPMSolverSinglestep EulerAncestralDiscrete EulerDiscrete \
    HeunDiscrete LCM TCD UniPCMultistep; do
    named alpha ${class}Scheduler
    latents known
    check "a config that names ${class}Scheduler" [ "$rc" = 0 ]
done
for class in FlowMatchEulerDiscrete FlowMatchHeunDiscrete FlowMatchLCM; do
    named sd3 ${class}Scheduler
    latents known
    check "a config that names ${class}Scheduler" [ "$rc" = 0 ]
done
for class in CogVideoXDDIM CogVideoXDPM; do
    named cog2b ${class}Scheduler
    latents known --num_frames 5
    check "a config that names ${class}Scheduler" [ "$rc" = 0 ]
done
for class in LMSDiscrete KDPM2Discrete KDPM2AncestralDiscrete DEISMultistep EDMEuler \
    EDMDPMSolverMultistep IPNDM SASolver ScoreSdeVe UnCLIP VQDiffusion RePaint Amused \
    DDIMInverse DPMSolverMultistepInverse DDIMParallel DDPMParallel DDPMWuerstchen \
    CMStochasticIterative CosineDPMSolverMultistep ConsistencyDecoder LTXEulerAncestralRF \
    FlowMapEulerDiscrete; do
    named alpha ${class}Scheduler
    refused "a config that names ${class}Scheduler" 1 \
        "${class}Scheduler" \
        generate --model "$MODEL" -p a -o "$T/x.png"
done
refused "a name that is none" 2 "LMSDiscreteScheduler" \
    generate --model "$FULL/alpha" -p a --scheduler LMSDiscreteScheduler -o "$T/x.png"
for how in "--model $FULL/alpha --scheduler DPMSolverSDEScheduler" "--model $T/named"; do
    named alpha DPMSolverSDEScheduler
    rc=2
    case $how in *named) rc=1 ;; esac
    refused "the scheduler whose noise has no seed" $rc \
        "DPMSolverSDEScheduler .*dpm.. with algorithm_type sde-dpmsolver.." generate $how -p a \
        -o "$T/x.png"
done

# TCD draws noise in every step: every plan without stale tokens gives the latents of one rank.
MODEL=$FULL/alpha
latents tcd --scheduler tcd --eta 0.9
for plan in u2 r2 cfg2; do
    latents two --scheduler tcd --eta 0.9 --plan $plan --nproc 2
    check "TCD on two ranks, $plan" same tcd two
done

# A key that the config has is switched off, by the flag and by what stands for it.
keyed() {       # keyed MODEL KEY: a copy of MODEL whose scheduler has the key
    rm -rf "$T/keyed"
    cp -r "$FULL/$1" "$T/keyed"
    chmod -R u+w "$T/keyed"
    python3 - "$T/keyed/scheduler/scheduler_config.json" "$2" <<'P'
import json, sys
c = json.load(open(sys.argv[1]))
c[sys.argv[2]] = True
json.dump(c, open(sys.argv[1], "w"))
P
    MODEL=$T/keyed
}
for pair in alpha:use_karras_sigmas alpha:use_exponential_sigmas alpha:use_beta_sigmas \
    sd3:stochastic_sampling sd3:use_karras_sigmas; do
    key=${pair#*:}
    MODEL=$FULL/${pair%:*}
    latents plain
    keyed "${pair%:*}" "$key"
    latents on
    check "a config's $key counts" differ plain on
    latents off --$key=false
    check "and not with the flag false" same plain off
    latents on --$key=true
    check "true is the same as alone" differ plain on
done
try generate --model "$MODEL" -p a --use_karras_sigmas=false --width 32 --height 32 \
    --num_inference_steps 1 --output "$T/s.png" --json
check "JSON has that, too" json 'j["parameters"]["use_karras_sigmas"] is False'
latents other --scheduler unipc --use_flow_sigmas --stochastic_sampling=false
check "a scheduler without the key has nothing to switch off" [ "$rc" = 0 ]

# Skip layer guidance, whose third pass any plan computes.
MODEL=$FULL/sd35
skip="--skip_guidance_layers 1 --skip_layer_guidance_stop 0.8 --guidance_scale 3"
latents plain --guidance_scale 3
latents skip $skip
check "skipped layers count" differ plain skip
for plan in u2 r2 cfg2 "pp2 --num_pipeline_patch 1" "cfg2 --offload stream"; do
    latents two $skip --plan $plan --nproc 2
    check "on two ranks, too: $plan" same skip two
done
latents two $skip --plan tp2 --nproc 2
check "nearly the same with tensor parallelism" near skip two
latents stale $skip --plan pp2 --num_pipeline_patch 2 --nproc 2
check "patches of stages" [ "$rc" = 0 ]
try generate --model "$MODEL" -p a $skip --width 32 --height 32 --num_inference_steps 2 \
    --output "$T/s.png" --json
check "JSON has them" json 'j["parameters"]["skip_guidance_layers"] == "1" and
    j["parameters"]["skip_layer_guidance_scale"] == 2.8'
latents unguided --skip_guidance_layers 1 --guidance_scale 1
check "without guidance they make no difference" said 'skip_guidance_layers .*guidance_scale'
refused "a layer that is none" 2 "skip_guidance_layers layer 3, .* 0 to 2" \
    generate --model "$MODEL" -p a --skip_guidance_layers 1,3 -o "$T/x.png"
refused "no list" 2 "skip_guidance_layers list numbers" generate --model "$MODEL" -p a \
    --skip_guidance_layers 1,,2 -o "$T/x.png"
refused "beside a cache" 2 "skip_guidance_layers and cache" generate --model "$MODEL" -p a $skip \
    --cache fbcache:0.1 -o "$T/x.png"
refused "of another model" 2 "skip_guidance_layers is for Stable Diffusion 3" generate \
    --model "$FULL/alpha" -p a --skip_guidance_layers 1 -o "$T/x.png"

# A number that may be left out.
MODEL=$FULL/zimage
latents one --cfg_normalization 1 --guidance_scale 3
latents bare --cfg_normalization --guidance_scale 3
check "cfg_normalization without a number is 1" same one bare
latents bare --guidance_scale 3 --cfg_normalization=true
check "so is true" same one bare
latents none --guidance_scale 3
latents bare --guidance_scale 3 --cfg_normalization=false
check "false is none" same none bare
check "which counts" differ one none

# Levels that rise.
MODEL=$FULL/mochi
refused "a sampler whose levels fall" 2 "unipc invert_sigmas mochi flow-euler" generate \
    --model "$MODEL" -p a --scheduler unipc --use_flow_sigmas -o "$T/x.png"
refused "another sampler of rectified flow" 2 "flow-heun invert_sigmas" generate \
    --model "$MODEL" -p a --scheduler flow-heun -o "$T/x.png"
try generate --model "$MODEL" -p a --width 32 --height 32 --num_frames 6 --num_inference_steps 1 \
    --output "$T/m.gif"
check "one step" [ "$rc" = 0 ]
check "frames are rounded" said "generating 1 frames, not 6"

# What a pipeline adds to prompts and to guidance by default.
MODEL=$FULL/lumina2
latents own
latents again --cfg_normalization --cfg_trunc_ratio 1 --system_prompt "You are an assistant \
designed to generate superior images with the superior degree of image-text alignment based on \
textual prompts or user prompts."
check "defaults that are given" same own again
latents free --cfg_normalization=false
check "guidance without the norms of the prompt's prediction" differ own free
latents early --cfg_trunc_ratio 0.75
check "guidance of three steps of four" differ own early
latents never --cfg_trunc_ratio 0.2
latents alone --guidance_scale 1
check "guidance of no step is none" same never alone
latents words --system_prompt "Paint."
check "another system prompt" differ own words
try generate --model "$MODEL" -p a --system_prompt "Paint." --cfg_trunc_ratio 0.5 --width 32 \
    --height 32 --num_inference_steps 2 --output "$T/s.png" --json
check "JSON has both" json 'j["parameters"]["system_prompt"] == "Paint." and
    j["parameters"]["cfg_trunc_ratio"] == 0.5'
refused "a system prompt of broken UTF-8" 2 "system_prompt UTF-8" generate --model "$MODEL" -p a \
    --system_prompt "$(printf 'a\377')" -o "$T/x.png"

# Angles as timesteps, noise in every step, and an instruction before prompts.
MODEL=$FULL/sana-sprint
latents own --num_inference_steps 2
latents again --num_inference_steps 2 --intermediate_timesteps 1.3 --max_timesteps 1.5708
check "timesteps that are given" same own again
latents middle --num_inference_steps 2 --intermediate_timesteps 0.9
check "another second timestep" differ own middle
latents equal --num_inference_steps 2 --intermediate_timesteps 0
check "two steps of equal length" differ own equal
latents first --num_inference_steps 2 --max_timesteps 1.4
check "another first timestep" differ own first
latents few --num_inference_steps 4
check "other numbers of steps" differ own few
latents strong --num_inference_steps 2 --guidance_scale 2
check "another guidance scale, in one pass" differ own strong
latents plain --num_inference_steps 2 --system_prompt ""
check "no instruction before the prompt" differ own plain
try generate --model "$MODEL" -p a --width 28 --height 36 --output "$T/s.png" --json \
    --no_resolution_binning --intermediate_timesteps 1.2 --num_inference_steps 2 --max_timesteps 1.5
check "JSON has the timesteps" json 'j["parameters"]["intermediate_timesteps"] == 1.2 and
    j["parameters"]["max_timesteps"] == 1.5'
refused "a second timestep of four" 2 "intermediate_timesteps 2 steps 4" generate --model "$MODEL" \
    -p a --intermediate_timesteps 1.2 --num_inference_steps 4 -o "$T/x.png"
refused "a second timestep before the first" 2 "intermediate_timesteps 1.6 max_timesteps" generate \
    --model "$MODEL" -p a --intermediate_timesteps 1.6 -o "$T/x.png"
refused "a timestep of another scheduler" 2 "intermediate_timesteps scm" generate \
    --model "$FULL/sana" -p a --intermediate_timesteps 1.2 -o "$T/x.png"
refused "another scheduler" 1 "prediction_type trigflow" generate --model "$MODEL" -p a \
    --scheduler ddim -o "$T/x.png"
refused "a window of sums" 2 "attention_window linear" generate --model "$FULL/sana" -p a \
    --attention_window 4 -o "$T/x.png"
refused "an attention table of sums" 2 "fast_attn linear" generate --model "$FULL/sana" -p a \
    --fast_attn share -o "$T/x.png"
refused "an image for scm" 1 "scm image" generate --model "$MODEL" -p a --width 28 --height 36 \
    --image "$T/s.png" -o "$T/x.png"
done_testing

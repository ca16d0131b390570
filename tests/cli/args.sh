#!/bin/sh
# Command lines: help, versions, how flags may be written, and what is said about wrong ones.
. "$(dirname "$0")/lib.sh"

narrow() {
    [ "$(printf '%s\n' "$out" | awk '{ if (length($0) > n) n = length($0) } END { print n }')" \
        -le 80 ]
}
shows() { printf '%s\n' "$out" | grep -q -- "$1"; }
well() { [ "$rc" = 0 ]; }

try
check "no arguments: a short usage and code 2" [ "$rc" = 2 ]
check "the usage goes to standard error" [ -z "$out" -a -n "$err" ]
try --version
check "--version: version and commit" eval 'printf "%s\n" "$out" | sed -n 1p |
    grep -Eqx "xdit $("$ROOT/tools/version.sh") \(commit ([0-9a-f]{12}|unknown)\)"'
check "--version: instruction set and libraries" eval 'shows "^kernels: cpu-" &&
    shows "^library: .*libpng [0-9]"'
for c in "" generate models inspect convert compare calibrate bench doctor from-xdit upscale; do
    try help $c
    check "help $c: code 0" well
    check "help $c fits 80 columns" narrow
    check "help $c has an example" shows "Example"
    help=$out
    try $c --help
    check "$c --help is the same" [ "$out" = "$help" ]
done
for c in plan probe man completion serve; do
    try help $c
    check "help $c fits 80 columns, too" narrow
done
for f in model prompt negative_prompt width height num_inference_steps guidance_scale seed \
         num_images_per_prompt max_sequence_length scheduler cache rng dtype weights_dtype threads \
         bind device output \
         enable_tiling no_resolution_binning output_quality quiet verbose prompts \
         nproc \
         ulysses_degree ring_degree pipefusion_parallel_degree tensor_parallel_degree \
         data_parallel_degree use_cfg_parallel use_parallel_vae num_pipeline_patch warmup_steps \
         attn_layer_num_for_pp use_displaced_patches trace lora preview preview_every previews \
         attention attention_window fast_attn reference_interval; do
    try generate --help all
    check "generate --help all has --$f" shows "--$f"
done

# --help prints the main options, one line each, and how to print the others.
rows() { printf '%s\n' "$out" | grep -cE '^ +(-[A-Za-z], )?--[a-z0-9_]+'; }
try
usage=$(printf '%s\n' "$err" | wc -l)
check "xdit: a short usage ($usage lines) with an example of the demo" \
    [ "$usage" -lt 22 ] && said 'models/demo-pixart'
try --help all
all=$(printf '%s\n' "$out" | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on' | wc -l)
check "xdit --help all lists $all commands" [ "$all" -gt 14 ]
for c in generate serve plan bench calibrate; do
    try $c --help all
    all=$(rows)
    try $c --help
    main=$(rows)
    left=$(printf '%s\n' "$out" | sed -n "s/^\([0-9]*\) more options: xdit $c --help all$/\1/p")
    check "$c --help: $main of $all options" [ "$main" -lt "$all" ] &&
        [ "$((main + ${left:-0}))" = "$all" ]
    [ $c = serve ] ||
        check "$c --help: a line each" [ "$(printf '%s\n' "$out" | grep -cE '^ {12}')" = 0 ]
    check "$c --help fits 80 columns" narrow
done
try generate --help
check "generate --help has about 25 options" [ "$(rows)" -ge 20 ] && [ "$(rows)" -le 30 ]
for f in model prompt output seed num_inference_steps nproc ulysses_degree; do
    check "generate --help has --$f" shows "--$f"
done
try help generate all
all=$out
try generate --help all
check "help generate all is the same" [ "$out" = "$all" ]

refused "a mistyped command" 2 "genrate 'generate'" genrate
refused "a flag before the command" 2 "command" --prompt a
refused "a mistyped flag" 2 "--promt --prompt" generate --promt a
refused "a mistyped flag with a value" 2 "--widht --width" generate --widht=512
refused "a flag with dashes" 2 "--negative_prompt" generate --negativ-prompt a
refused "flags of xDiT's service" 2 "--width" generate --model_path a \
    --ulysses_parallel_degree 2 --world_size 2 --width
refused "another program's flag" 2 "--num_inference_steps" generate --inference_steps 3
refused "one dash too few" 2 "--prompt" generate -prompt a
refused "a flag of 200 letters" 2 "unknown" generate "--$(printf 'x%.0s' $(seq 200))" 1
refused "a forgotten value" 2 "--width" generate --width
refused "a flag where a value belongs" 2 "--prompt" generate --prompt --width 64
refused "a prompt without quotes" 2 "'red' quotes" generate --prompt a red circle
refused "no model" 2 "--model" generate --prompt a
refused "no prompt" 2 "--prompt" generate --model "$MODEL"
refused "a LoRA with a strange scale" 2 "FILE:SCALE 'strong'" generate --model "$MODEL" \
    --prompt a --lora a.safetensors:strong
refused "a LoRA that is not there" 1 "no-such.safetensors" generate \
    --model "$MODEL" --prompt a --lora no-such.safetensors:0.5
refused "an empty number" 2 "--width" generate --width=
refused "text as a number" 2 "--width '12x'" generate --width 12x
refused "a fraction of a step" 2 "--num_inference_steps" generate --num_inference_steps 2.5
refused "negative steps" 2 "--num_inference_steps 1 '-5'" generate \
    --num_inference_steps -5
refused "no steps" 2 "--num_inference_steps 1" generate --num_inference_steps 0
refused "a size of 0" 2 "--height '0'" generate --height 0
refused "a seed of more than 64 bits" 2 "--seed 2\^64" generate \
    --seed 18446744073709551616
refused "a seed below 64 bits" 2 "--seed 2\^64" generate --seed -9223372036854775809
refused "guidance that is no number" 2 "--guidance_scale" generate --guidance_scale nan
refused "a number behind a space" 2 "--seed 5" generate --seed " 5"
refused "a list in two arguments" 2 "'4' --attn_layer_num_for_pp" \
    generate -p a --attn_layer_num_for_pp 4 4
refused "a model twice" 2 "'b' --config" bench --config a --parts text b
refused "of a plan, too" 2 "'b' --model" plan --model a b
refused "a flag for a value" 2 "--prompt" generate -p -o "$T/x.png"
refused "a second file of prompts" 2 "--prompts 'y'" \
    generate --prompts x --prompts y
for f in "" _2 _3; do
    refused "two negative_prompt$f for three prompts" 2 "--negative_prompt$f 2 3 once" generate \
        --model "$MODEL" -p a -p b -p c --negative-prompt$f x --negative-prompt$f=y
done
refused "and for one" 2 "--prompt_2 2 1" generate --model "$MODEL" -p a --prompt_2 x --prompt_2 y
refused "of calibrate, too" 2 "--negative_prompt 3 2" calibrate --model "$MODEL" -p a -p b -n x \
    -n y -n z
try help help
check "help of help" [ "$rc" = 0 -a -n "$out" ]
refused "a hexadecimal number" 2 "--guidance_scale '0x10'" generate --guidance_scale 0x10
refused "a file without a name" 2 "--vae" generate --vae ""
refused "a letter with its value behind it" 2 "-s3 -s" generate -s3
refused "two letters in one" 2 "-qv -q -v$" generate -qv
refused "a letter that is none" 2 "-S$" generate -S 3
refused "a command like none" 2 "'xyz' --help" xyz
refused "a degree without a number" 2 "u number" generate --model "$MODEL" \
    --prompt a --plan u
refused "guidance of another kind of model" 2 "true_cfg_scale FLUX" generate \
    --model "$MODEL" --prompt a --true_cfg_scale 3 -o "$T/x.png"
refused "a rescale of another pipeline" 2 "guidance_rescale HunyuanDiT" generate \
    --model "$MODEL" --prompt a --guidance_rescale 0.5 -o "$T/x.png"
refused "guidance of audio by an image model" 2 "audio_guidance_scale is for LTX-2" generate \
    --model "$MODEL" --prompt a --audio_guidance_scale 3 -o "$T/x.png"
refused "no audio of an image model" 2 "no_audio is for LTX-2" generate \
    --model "$MODEL" --prompt a --no_audio -o "$T/x.png"
refused "a length of guidance of another pipeline" 2 "cfg_normalization Z-Image" generate \
    --model "$MODEL" --prompt a --cfg_normalization 1 -o "$T/x.png"
refused "an end of guidance of another pipeline" 2 "cfg_truncation Z-Image" generate \
    --model "$MODEL" --prompt a --cfg_truncation 0.5 -o "$T/x.png"
refused "a share of steps of another pipeline" 2 "cfg_trunc_ratio Lumina-Image" generate \
    --model "$MODEL" --prompt a --cfg_trunc_ratio 0.5 -o "$T/x.png"
refused "sizes of another pipeline" 2 "original_size HunyuanDiT XL" generate \
    --model "$MODEL" --prompt a --original_size 64,64 -o "$T/x.png"
refused "a system prompt of another pipeline" 2 "system_prompt Lumina-Image SANA" generate \
    --model "$MODEL" --prompt a --system_prompt b -o "$T/x.png"
refused "text of another length" 2 "max_sequence_length 9 333" plan \
    --model "$ROOT/tests/golden/hunyuan" --world 2 --max_sequence_length 9
refused "an unknown rng" 2 "philox torch" generate --rng dice
for w in 3,3 0,-1,2 1,2,3,4 a; do
    refused "a window $w" 2 "attention_window \"$w\"" generate \
        --model "$MODEL" --prompt a --attention_window $w -o "$T/x.png"
done
refused "a window of stages" 2 "attention_window PipeFusion" generate \
    --model "$MODEL" --prompt a --attention_window 0,3,3 --num_pipeline_patch 4 \
    --patches_without_stages -o "$T/x.png"
refused "an unknown way of attention" 2 'fast_attn "half"' generate \
    --model "$MODEL" --prompt a --fast_attn share,half -o "$T/x.png"
refused "windows that nobody gives" 2 'fast_attn --attention_window' \
    generate --model "$MODEL" --prompt a --fast_attn window -o "$T/x.png"
refused "a window of the whole image" 2 'fast_attn attention_window 0,9,9' \
    generate --model "$MODEL" --prompt a --fast_attn window --attention_window 0,9,9 -o "$T/x.png"
refused "shared attention of stages" 2 "fast_attn PipeFusion" \
    generate --model "$MODEL" --prompt a --fast_attn share --num_pipeline_patch 4 \
    --patches_without_stages -o "$T/x.png"
refused "shared attention and a cache" 2 "fast_attn cache" generate \
    --model "$MODEL" --prompt a --fast_attn share --cache fbcache -o "$T/x.png"
refused "passes that are computed apart" 2 "use_cfg_parallel" plan \
    --model "$MODEL" --world 2 --plan cfg2 --fast_attn full+cfg
printf '{"block0": {"step0": "FULL_ATTN", "step1": "OUTPUT_SHARE"}}' >"$T/ways.json"
refused "a table of other steps" 2 "ways.json 2 0 3" \
    generate --model "$MODEL" --prompt a --num_inference_steps 3 --fast_attn "$T/ways.json" \
    -o "$T/x.png"
refused "no table" 1 "$T/none.json" generate --model "$MODEL" --prompt a \
    --fast_attn "$T/none.json" -o "$T/x.png"
refused "a key of other schedulers" 2 "eta dpm\\+\\+ ddim tcd" generate --model "$MODEL" \
    --prompt a --eta 0.5 -o "$T/x.png"
refused "a part of a model" 1 "transformer model_index.json parent" generate \
    --model "$MODEL/transformer" --prompt a
refused "an unknown attention" 2 "auto int8" generate --attention int4
refused "an unknown dtype" 2 "f32 bf16 f16" generate --dtype f64
refused "an unknown dtype of weights" 2 "f32 bf16 int8 fp8 int4" generate \
    --weights_dtype int3
refused "an unknown dtype of the text encoder" 2 "--text_weights_dtype" bench \
    --text-weights-dtype e5m2
refused "weights of another type than is computed in" 2 "weights_dtype bf16 f32" \
    generate --model "$MODEL" --prompt a --dtype f32 --weights_dtype bf16
refused "a switch with a strange value" 2 "true false" generate --enable_tiling=maybe
refused "inspect without a model" 2 "DIR" inspect
refused "inspect with two" 2 "'b'" inspect a b
refused "bench without a model" 2 "--config" bench

# Seeds of 64 bits, as torch takes and names them: modulo 2^64.
generate -p a --rng torch --json --seed 18446744073709551613 --num_images_per_prompt 2 -o "$T/s.ppm"
check "a seed of 64 bits" shows '"seed":18446744073709551613,.*"seed": 18446744073709551613'
check "and the one after it" shows '"seed":18446744073709551614,'
generate -p a --rng torch --seed -3 -o "$T/n.ppm"
check "the negative one that is the same" [ "$rc" = 0 -a "$(tail -c 49152 "$T/n.ppm" |
    cksum)" = "$(tail -c 49152 "$T/s_0001.ppm" | cksum)" ]

# Prompts of a pipe, once read.
printf 'a red circle\n\na blue square\n' >"$T/prompts"
refused "prompts of an empty standard input" 2 "standard" generate \
    --model "$MODEL" --prompts -
for file in - /dev/stdin; do
    out=$("$XDIT" generate --model "$MODEL" --num_inference_steps 2 -q --prompts "$file" \
        -o "$T/p.ppm" <"$T/prompts" | cat)
    check "prompts of $file" [ "$out" = "$(printf '%s\n' "$T/p_0001.ppm" "$T/p_0002.ppm")" ]
done
refused "a trace to standard output" 2 "--trace" generate \
    --model "$MODEL" -p a --trace -
check "and no file of that name" [ ! -e ./- ]
refused "one rank and a cluster that is not there" 1 "no-such.json" generate \
    --model "$MODEL" -p a --cluster "$T/no-such.json" -o "$T/no.png"

# Little address space: an image or a sentence, but no end within a library.
bad=
for mb in 60 75 90 105 120 135 150 165 180 200 240; do
    (ulimit -v $((mb * 1024)) && exec "$XDIT" generate --model "$MODEL" -p a --steps 1 -t 2 \
        -q -o "$T/v.png") >"$T/stdout" 2>"$T/stderr"
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    [ "$rc" = 0 ] || { [ "$rc" = 1 ] && one_line && said '^xdit: '; } || bad="$bad $mb"
done
if (ulimit -v 245760 && "$XDIT" --version >/dev/null 2>&1); then
    check "little address space: an image or a sentence" [ -z "$bad" ]
    (ulimit -v 122880 && exec "$XDIT" plan --model "$MODEL" --world 2) >"$T/stdout" 2>"$T/stderr" \
        </dev/null
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    check "and a plan for it" \
        sh -c '[ "$1" = 0 ] || echo "$2" | grep -q "no memory.*ulimit -v"' x "$rc" "$err"
else
    echo "# skipped: this build does not start in little address space"
fi

# The same image, however its flags are written.
generate --prompt "a red circle" --guidance_scale 3 --seed 5 --output "$T/a.png"
check "flags with a space" [ "$rc" = 0 ]
generate --prompt="a red circle" --guidance-scale=3 --seed=5 --output="$T/b.png"
check "flags with = and -" [ "$rc" = 0 ]
generate -p "a red circle" --cfg_scale 3 -s 5 -o "$T/c.png" --enable-tiling=false \
    --ulysses_degree 1 --ring-degree=1 --warmup_steps 0
check "short flags and one rank" [ "$rc" = 0 ]
check "nothing is warned of" [ -z "$err" ]
generate -p a --guidance_scale 1 --negative_prompt b -o "$T/d.png"
check "a negative prompt that is not used" said \
    "warning: the negative prompt .*guidance_scale above 1"
# Of no effect: one line each, and the bits of a run without.
generate -p a --seed 1 -o "$T/plain.ppm"
idle() {
    what=$1 why=$2
    shift 2
    generate -p a --seed 1 "$@" -o "$T/idle.ppm"
    check "$what: generated, and one warning" \
        sh -c '[ "$1" = 0 ] && printf "%s\n" "$2" | grep -q "^xdit: warning: $3" &&
        [ "$(printf "%s\n" "$2" | wc -l)" = 1 ]' x "$rc" "$err" "$why"
    check "$what: changes nothing" cmp "$T/plain.ppm" "$T/idle.ppm"
}
idle "displaced patches without a ring" "use_displaced_patches .*ring" \
    --use_displaced_patches
idle "patches without stages" "num_pipeline_patch .*stages" \
    --num_pipeline_patch 4
idle "text with patches that there are not" "pipefusion_text .*patches" \
    --pipefusion_text every
idle "warm-up of exact steps" "warmup_steps .*exact" \
    --warmup_steps 5
idle "rows of one rank" "use_parallel_vae .*one rank" --use_parallel_vae
idle "shares of one rank" "balance " --balance measured
idle "weights of prompts" "prompt_weighting " --prompt_weighting
idle "a cluster for one rank" "cluster " --cluster 8xH100
idle "blocks of one stage" "attn_layer_num_for_pp .*stages" \
    --attn_layer_num_for_pp 8
for name in warmup_steps=1 num_pipeline_patch=1 pipefusion_text=first; do
    generate -p a --seed 1 --$name -o "$T/idle.ppm"
    check "$name is what is done anyhow" [ -z "$err" ]
done
try bench --config "$MODEL" --random_weights --parts vae --repeats 1 --num_pipeline_patch 4
check "of bench, too" said "^xdit: warning: num_pipeline_patch .*stages"
# Sizes of tiles.
tiles() {
    what=$1 words=$2
    shift 2
    refused "$what" 2 "$words" generate -m "$MODEL" -p a -o "$T/x.ppm" --steps 1 "$@"
}
tiles "a tile without tiling" "vae_tile_overlap_width --enable_tiling" --vae_tile_overlap_width 8
tiles "half a cell" "vae_tile_size_width 60 8 64" --enable_tiling --vae_tile_size_width 60
tiles "an overlap of half a cell" "vae_tile_overlap_height 12 8 16" --enable_tiling \
    --vae_tile_overlap_height 12
tiles "an overlap of a tile" "vae_tile_overlap_height 64" --enable_tiling \
    --vae_tile_size_height 64 --vae_tile_overlap_height 64
tiles "no tile" "vae_tile_size_height 1" --enable_tiling --vae_tile_size_height 0
generate -p a --seed 1 --enable_tiling -o "$T/idle.safetensors"
check "tiles of latents" said "^xdit: warning: enable_tiling .*latents"
generate -p a --seed 1 --attention_window 1,50,0 -o "$T/idle.ppm"
check "a window of the whole image" said \
    "^xdit: warning: attention_window .*all of 1 x"
generate -p a --seed 1 --attention_window 0,3,3 -o "$T/window.ppm"
check "a window changes the image" sh -c '[ -z "$1" ] && ! cmp -s "$2" "$3"' x "$err" \
    "$T/plain.ppm" "$T/window.ppm"
generate -p a --seed 1 --attention auto -o "$T/idle.ppm"
check "attention as usual" [ -z "$err" ]
export XDIT_ISA=avx2
generate -p a --seed 1 --attention int8 -o "$T/idle.ppm"
check "int8 attention where there is none" said \
    "^xdit: warning: attention int8 .* cpu-avx2 in f32"
XDIT_ISA=c
generate -p a --seed 1 -o "$T/plainc.ppm"
generate -p a --seed 1 --attention int8 -o "$T/int8.ppm"
check "int8 attention where there is some" sh -c '[ -z "$1" ] && ! cmp -s "$2" "$3"' x "$err" \
    "$T/plainc.ppm" "$T/int8.ppm"
unset XDIT_ISA
generate -p a --seed 1 --num_pipeline_patch 4 --patches_without_stages -o "$T/idle.ppm"
check "the tests' way to have patches without stages" sh -c '[ "$1" = 0 ] && ! cmp -s "$2" "$3"' x \
    "$rc" "$T/plain.ppm" "$T/idle.ppm"
check "= and - change nothing" cmp "$T/a.png" "$T/b.png"
check "short forms change nothing" cmp "$T/a.png" "$T/c.png"
# How many threads OpenMP would take is nothing to oneDNN's convolutions, how many we take is: each
# has memory.
predicted() {
    OMP_NUM_THREADS=$1 "$XDIT" generate -m "$MODEL" -p a --steps 1 -t 2 -v -o "$T/e.png" 2>&1 |
        sed -n 's/^xdit: \(memory: .* peak [0-9.]*\),.*/\1/p'
}
check "memory of two threads, whatever OMP_NUM_THREADS says" \
    [ -n "$(predicted 1)" -a "$(predicted 1)" = "$(predicted 1000)" ]
# Code and tables of convolutions by tiles are megabytes each, which memory must have, too.
try generate -m "$MODEL" -p a --steps 1 --dtype bf16 -v -o "$T/e.png"
if said 'device cpu-amx'; then
    check "what convolutions by tiles take is counted" said 'memory: .*, kernels 0\.[0-9]*[1-9]'
else
    echo "# skipped: what convolutions by tiles take, because there are no tiles here"
fi
# Names of other programs; far names get no suggestion.
means() { refused "--$1" 2 "--$1 $2" generate --model m -p a --$1 1; }
for pair in cfg=guidance_scale sampler=scheduler sampling-method=scheduler init-img=image \
    mask=mask_image control-img=control_image \
    vae-tiling=enable_tiling \
    type=weights_dtype batch-count=num_images_per_prompt denoising_strength=strength \
    video_frames=num_frames upscale_model=upscale hr_scale=hires_scale \
    torch-dtype=dtype offload-to-cpu=offload \
    num_gpus=nproc model_id=model outdir=output tp_size=tensor_parallel_degree; do
    means "${pair%%=*}" "use --${pair#*=}"
done
means size 'the size is --width and --height'
means upscale_repeats 'upscaling is .*xdit upscale.*'
means caption_upsample_temperature 'prompts are not rewritten by .*'
means vae-on-cpu "all components .*--device.*"
means port 'xdit serve .*'
for far in xyzzy faceid hypertile color_match; do
    refused "far from all: --$far" 2 "--$far" generate --model m -p a --$far 1
done
refused "a part of a name" 2 "--karras --use_karras_sigmas" generate --model m \
    -p a --karras
refused "a command of another program" 2 "'txt2img' 'generate'" txt2img
refused "quantizing" 2 "'quantize' 'convert'" quantize
refused "serving" 2 "'server' 'serve'" server
refused "weights" 2 "'download'" download
refused "a far command" 2 "'foo' --help" foo
refused "a switch with a value" 2 "'2' --use_cfg_parallel" generate -m m -p a \
    --use_cfg_parallel 2
refused "a flag without its dashes" 2 "--ulysses_degree" generate -m m -p a \
    ulysses_degree 4

# Dashes, quotes and spaces of word processors.
refused "a dash of a blog" 2 'prompt dash --' generate "$(printf '\342\200\223prompt')" a
refused "a quote of a blog" 2 'circle quote' generate --prompt "$(printf '\342\200\234a')" \
    "$(printf 'circle\342\200\235')"
refused "a space of a blog" 2 'steps space' generate -p a "$(printf -- '--steps\302\2401')"
refused "texts of several words are left alone" 1 'none' generate --model "$T/none" \
    --prompt "$(printf '\342\200\224 a dash')" --negative_prompt \
    "$(printf '\342\200\234x\342\200\235 y')"

# The width of helps.
for w in 40 60 80 100; do
    COLUMNS=$w try generate --help all
    check "help in $w columns" [ "$rc" = 0 -a "$(printf '%s\n' "$out" |
        awk -v w=$w 'length > w - 1' | wc -l)" = 0 ]
done
COLUMNS=10 try generate --help all
check "never in fewer than 40" [ "$(printf '%s\n' "$out" |
    awk 'length > m { m = length } END { print (m > 30) }')" = 1 ]
COLUMNS=40 try --help
check "the list of commands in 40 columns" [ "$(printf '%s\n' "$out" | awk 'length > 39' |
    wc -l)" = 0 ]

# Help by topic: a part by a word of its title, or by one of its flags.
try help generate ranks
check "a part of the help" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | head -n 1)" = "Several ranks:" ]
check "and nothing else" [ "$(printf '%s\n' "$out" | grep -c '^[A-Z].*:$')" = 1 ]
try generate --help ulysses_degree
check "by a flag" [ "$rc" = 0 -a "$(printf '%s\n' "$out" | grep -c -- '--ring_degree')" = 1 ]
refused "a part that is none" 2 \
    "'xyzzy'" help generate xyzzy

# -v names unknown keys, but not those that every file of diffusers has.
try generate --model "$MODEL" -p a --steps 1 -v -o "$T/v.png"
check "-v says nothing of _class_name" [ "$rc" = 0 -a "$(printf '%s\n' "$err" |
    grep -c 'unknown key "_')" = 0 ]
done_testing

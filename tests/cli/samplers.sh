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
refused "a shift of nothing" 2 "--flow_shift takes" generate --model "$MODEL" -p a --flow_shift 0
refused "a sampler of other noise" 2 "rectified flow, which the scheduler unipc does not follow" \
    generate --model "$MODEL" -p a --scheduler UniPCMultistepScheduler -o "$T/x.png"
MODEL=$FULL/flux
refused "a shift beside that by size" 2 "flow_shift is 6, and .*shifts by the size" generate \
    --model "$MODEL" -p a --flow_shift 6 -o "$T/x.png"

MODEL=$FULL/alpha
latents dpm
latents unipc --scheduler unipc
check "UniPC generates" [ "$rc" = 0 ]
check "another image than DPM++" differ dpm unipc
latents class --scheduler UniPCMultistepScheduler
check "diffusers' name is the same" same unipc class
refused "a shift of other noise" 2 "flow_shift is 2, and the scheduler dpm.. has no levels" \
    generate --model "$MODEL" -p a --flow_shift 2 -o "$T/x.png"
done_testing

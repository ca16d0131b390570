#!/bin/sh
# cache.sh XDIT ROOT - step caches (--cache): what is left out, what is told, what is refused.
. "$(dirname "$0")/lib.sh"
export OMP_NUM_THREADS=1

# image NAME FLAGS...: six steps of the demo model.
image() {
    name=$1
    shift
    try generate --model "$MODEL" --prompt "a white star" --steps 6 --quiet --dtype f32 --json \
        -o "$T/$name.ppm" "$@"
}
# told LEFT_OUT ALL: so many middle ranges.
told() {
    json "[j['parameters'].get('cache_' + k) for k in ('reused', 'ranges')] == [$1, $2]"
}

# The pixels, behind the parameters.
pixels() { tail -c 49152 "$T/$1.ppm"; }
same() { [ "$(pixels "$1" | cksum)" = "$(pixels "$2" | cksum)" ]; }
differ() { ! same "$@"; }

image none
check "no cache is told of none" told None None
image off --cache none
check "--cache none is no cache" same none off
for c in fbcache:0 dbcache:Fn=3,Bn=2,threshold=0 teacache:0,coefficients=0/0/0/1/0 \
         taylorseer:interval=1; do
    image never --cache "$c"
    check "$c leaves out nothing" told 0 12
    check "$c: the image without a cache" same none never
done
image most --cache fbcache:1e6
check "fbcache:1e6 computes the first step alone" told 10 12
check "its image is another one" differ none most
check "parameters name the cache" json "j['parameters']['cache'] == 'fbcache:1e6'"
image x --cache dbcache:Fn=2,threshold=1e6,warmup=2,max_continuous=1
check "warmup, max_continuous: steps 2 and 4" told 4 12
image x --cache dbcache:Fn=2,threshold=1e6,warmup=2,max_cached=3
check "max_cached: steps 2, 3 and 4" told 6 12
image x --cache teacache:1e6,coefficients=0/0/0/1/0
check "teacache computes the first and the last step" told 8 12
image x --cache taylorseer:interval=2,warmup=1
check "taylorseer: steps 1, 3 and 5" told 6 12
image x --cache taylorseer:interval=2,warmup=1,until=5
check "taylorseer: none from step 5 on" told 4 12
image waits --cache fbcache:0.3
kept=$out
image files --cache fbcache:0.3 --offload stream
check "streamed blocks: the same image" same waits files
out=$kept
check "some are left out" json "0 < j['parameters']['cache_reused'] < 10"
try generate --model "$MODEL" --prompt "a white star" --steps 6 --dtype f32 --cache fbcache:1e6 \
    -o "$T/x.ppm"
check "a line says how many" said 'cache fbcache:1e6: .*10 of 12 block ranges'

refused "an unknown cache" 2 '"magic"' \
    generate --model "$MODEL" --prompt x --cache magic -o "$T/x.ppm"
refused "an option of another cache" 2 '"Fn"' \
    generate --model "$MODEL" --prompt x --cache taylorseer:Fn=2 -o "$T/x.ppm"
refused "more blocks than there are" 2 '8' \
    generate --model "$MODEL" --prompt x --cache dbcache:Fn=6,Bn=2 -o "$T/x.ppm"
refused "coefficients that nobody has published" 1 'calibrate`' \
    generate --model "$MODEL" --prompt x --cache teacache:0.2 -o "$T/x.ppm"
refused "long skips and Bn" 1 '0' \
    plan --model "$ROOT/tests/golden/hunyuan" --world 1 --cache dbcache:Fn=1,Bn=1

# What is expected of a cache: half of the steps, of 8 blocks 7 and 6, or what the schedule says. On
# a GPU the comparisons of so small a model take a sixth of a step.
expected() {
    try plan --model "$MODEL" --cluster 1xL40 --world 1 --num_inference_steps 20 --json --cache "$1"
}
time_of() { printf '%s' "$out" | python3 -c 'import json, sys
print(json.load(sys.stdin)["plans"][0]["step_s"])'; }
expected none
whole=$(time_of)
check "plan: the image of one rank" json "j['plans'][0]['exact'] is True"
for c in fbcache:0.1=0.65 dbcache:Fn=2,warmup=10=0.94 taylorseer=0.35; do
    expected "${c%=*}"
    check "plan: ${c%=*} takes ${c##*=} of the time" \
        json "abs(j['plans'][0]['step_s'] / $whole / ${c##*=} - 1) < 0.08"
    check "plan: another image" json "j['plans'][0]['exact'] is False"
done
try plan --model "$MODEL" --world 1 --num_inference_steps 20 --cache fbcache:0.1
check "plan says what it expects" \
    sh -c 'grep -q "^~ with --cache fbcache:0.1: .* 50 % of the block ranges" "$1"' x "$T/stdout"

# So is attention of eight bits, where the CPU has it, and of windows.
export XDIT_ISA=c
marked() {
    try plan --model "$MODEL" --world 1 --num_inference_steps 20 "$@"
    table=$out
    try plan --model "$MODEL" --world 1 --num_inference_steps 20 --json "$@"
}
marked --attention int8
check "plan marks attention of eight bits" \
    sh -c 'printf "%s" "$1" | grep -q "^~ with --attention int8: "' x "$table"
check "plan: not the same image" json "all(p['exact'] is False for p in j['plans'])"
marked --attention_window 0,3,3
check "plan marks windows of attention" \
    sh -c 'printf "%s" "$1" | grep -q "^~ with --attention_window 0,3,3: "' x "$table"
check "plan: another image" json "all(p['exact'] is False for p in j['plans'])"
marked --attention_window 0,99,99
check "plan: a window of all is the same image" json "all(p['exact'] for p in j['plans'])"
marked --fast_attn share,full
check "plan marks shared attention" \
    sh -c 'printf "%s" "$1" | grep -q "^~ with --fast_attn share,full: "' x "$table"
check "plan: another image" json "all(p['exact'] is False for p in j['plans'])"
unset XDIT_ISA

# Coefficients of a model, and the cache that they make.
calibrate() { try calibrate --model "$MODEL" --dtype f32 --prompt "a red circle" "$@"; }
calibrate --prompt "a white star" --num_inference_steps 8 --threshold 0.4
cache=$(printf '%s' "$out" | sed -n 's/^--cache //p')
check "calibrate prints a cache" [ "$rc" = 0 -a -n "$cache" ]
check "of so many pairs: two prompts, two passes, seven changes" said '28 measured pairs'
image tea --cache "$cache"
check "generate takes it, and some blocks are left out" \
    json "0 < j['parameters']['cache_reused'] < 9"
calibrate --num_inference_steps 8 --json
check "--json: the changes of every step" \
    json "len(j['pairs']) == 14 and all(0 < a < 10 and 0 < b < 10 for a, b in j['pairs'])"
check "--json: what they explain" \
    json "0 < j['explained'] <= 1 and j['cache'].startswith('teacache:0.15,')"
# A table of attentions, what is found with a wide limit, and one of xDiT's for a block alone.
table() { calibrate --num_inference_steps 6 --fast_attn "$T/table.json" "$@"; }
# Tokens of the first block have not met the text, so both passes have its attention in common.
table --threshold 0.0001
check "nothing else is alike" said '48 attentions .* 43 .*full'
image plain --fast_attn "$T/table.json"
check "which is the same image" same none plain
table --threshold 9 --attention_window 0,5,5
check "all is alike but the first step" said '48 attentions .* 8 .*full'
check "calibrate says how to use it" \
    [ "$out" = "--fast_attn $T/table.json --attention_window 0,5,5" ]
image shared --fast_attn "$T/table.json" --attention_window 0,5,5
check "which is another image" differ none shared
image list --fast_attn share
check "that of sharing all" same list shared
sed 's/"block1.*/"x":/; s/, *"x":$/}/; s/,"x":$/}/' "$T/table.json" >"$T/one.json"
image one --fast_attn "$T/one.json"
check "a table of one block" differ none one
check "is not that of all" differ one shared
refused "a table without a name for it" 2 '.json' calibrate --model "$MODEL" \
    --prompt x --fast_attn share

calibrate --num_inference_steps 3
check "too few steps" said '4 measured pairs .*degree 4'
refused "no prompts" 2 'calibrate' calibrate --model "$MODEL"
refused "a cache" 2 '--cache' calibrate --model "$MODEL" --prompt x --cache fbcache

try generate --model "$MODEL" --prompt x --steps 1 --use_fbcache -o "$T/x.ppm"
check "xDiT's flag is a value of ours" said 'use_fbcache: .*--cache fbcache:0.12'
done_testing

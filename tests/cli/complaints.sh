#!/bin/sh
# complaints.sh XDIT ROOT GOLDEN FILL MPIRUNS - five complaints about other engines, as commands:
# each works, or is refused before anything is loaded by a sentence that names what would.
. "$(dirname "$0")/lib.sh"
GOLDEN=$3 FILL=$4
# Names of Open MPI's launcher, whose options are given below.
MPIRUN=$(for m in $5; do command -v "$m"; done | head -n 1)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
MODEL=$ROOT/tests/golden/alpha
generate() {
    try generate --model "$MODEL" --prompt "a red circle" --seed 3 --dtype f32 --quiet "$@"
}
generate --steps 2 --nproc 2 -o "$T/x.png"
if said 'has no MPI|install the package'; then
    echo "1..0 # SKIP there is no MPI to start several ranks with"
    exit 0
fi
# same A B BYTES: do two files end with the same latents?
same() {
    [ -s "$1" ] && tail -c "$3" "$1" >"$T/1.lat" && tail -c "$3" "$2" >"$T/2.lat" &&
        cmp "$T/1.lat" "$T/2.lat"
}
# near A B BYTES: are they within 1e-5 of the largest value?
near() {
    python3 -c 'import sys, struct
n = int(sys.argv[3])
a, b = (struct.unpack("<%df" % (n // 4), open(p, "rb").read()[-n:]) for p in sys.argv[1:3])
top, most = max(map(abs, a)), max(abs(x - y) for x, y in zip(a, b))
print("# largest difference %.2g of the largest value" % (most / top))
sys.exit(not (top > 0 and most <= 1e-5 * top))' "$@"
}

# 1. "parallel_world_size 4 must be equal to dit_parallel_size 2": cfg 2 x ulysses 2 asked for on
# two.
asked="cfg 2 x ulysses 2 needs 4 ranks, but there are 2; what would work: cfg 2; ulysses 2"
refused "world size: a sentence with plans that work" 2 "$asked" generate --model "$MODEL" \
    --prompt a --nproc 2 --ulysses_degree 2 --use_cfg_parallel -o "$T/no.png"
if [ -n "$MPIRUN" ]; then
    timeout 60 "$MPIRUN" --oversubscribe --bind-to none -n 2 "$XDIT" generate --model "$MODEL" \
        --prompt a --quiet \
        --ulysses_degree 2 --use_cfg_parallel -o "$T/no.png" >"$T/stdout" 2>"$T/stderr"
    rc=$?
    check "world size: the same under mpirun, once" [ "$rc" = 2 -a "$(grep -c "^xdit: $asked" \
        "$T/stderr")" = 1 ]
    # Files of prompts that are not the same on two hosts; other steps would be waited for without
    # end.
    printf 'red\nblue\n' >"$T/two.txt"
    printf 'red\nblue\ngreen\n' >"$T/three.txt"
    for pair in "num_inference_steps 2:3" "prompts $T/two.txt:$T/three.txt" "seed 1:2" "seed -1:2" \
        "negative_prompt a:b" "fast_attn share,full:full,share" "gemm auto:fp8"; do
        flag=${pair%% *} values=${pair#* }
        one="$XDIT generate --model $MODEL --prompt a --quiet --ulysses_degree 2 -o $T/no.png"
        one="$one --$flag"
        two_ranks "$MPIRUN" "$one ${values%:*}" "$one ${values#*:}" >"$T/stdout" 2>"$T/stderr"
        rc=$?
        check "another --$flag on one rank is refused" \
            [ "$rc" = 2 -a "$(grep -c "^xdit: rank 1: --[a-z_]* differs from that on rank 0" \
            "$T/stderr")" = 1 ]
    done
    # Options of the plan that its text does not show.
    for pair in "pipefusion_text first:every" "warmup_steps 2:3"; do
        flag=${pair%% *} values=${pair#* }
        one="$XDIT generate --model $MODEL --prompt a --quiet --ulysses_degree 2 -o $T/no.png"
        one="$one --$flag"
        two_ranks "$MPIRUN" "$one ${values%:*}" "$one ${values#*:}" >"$T/stdout" 2>"$T/stderr"
        rc=$?
        check "another --$flag is named" \
            [ "$rc" = 2 -a "$(grep -c "^xdit: rank 1 on host .* and rank 0 .* differ in --$flag" \
            "$T/stderr")" = 1 ]
    done
else
    echo "# skipped: mpirun of Open MPI is not here"
fi
check "world size: nothing was generated" [ ! -e "$T/no.png" ]
generate --steps 2 -o "$T/one.ppm"
for plan in "--use_cfg_parallel" "--ulysses_degree 2" "--nproc 2"; do
    # The plan is words.
    # shellcheck disable=SC2086
    generate --steps 2 $plan -o "$T/x.ppm"
    check "world size: $plan works" same "$T/one.ppm" "$T/x.ppm" 49152
done
generate --steps 2 --ulysses_degree 2 --use_cfg_parallel -o "$T/x.ppm"
check "world size: on four ranks it works" same "$T/one.ppm" "$T/x.ppm" 49152

# 2. "The height of the last pipeline patch is not a multiple": 30 rows of CogVideoX at 480 x 720 on
# four. A narrow model; tests/parity/test_video.c has the frames, the autoencoder and more ranks.
"$FILL" "$ROOT/tests/parity/video-2b" "$T/cog2b" || fail "the model is made"
film() {
    try generate --model "$MODEL" --prompt "a cat" --steps 1 --num_frames 1 --dtype f32 --quiet "$@"
}
MODEL=$T/cog2b
bytes=$((60 * 90 * 4 * 4))
film --width 720 --height 480 -o "$T/one.safetensors"
check "30 rows: one rank" [ "$rc" = 0 ]
for plan in "--ulysses_degree 4" "--nproc 4 --ulysses_degree 4"; do
    # shellcheck disable=SC2086
    film --width 720 --height 480 $plan -o "$T/x.safetensors"
    check "30 rows: $plan" same "$T/one.safetensors" "$T/x.safetensors" $bytes
done
film --width 720 --height 480 --pipefusion_parallel_degree 2 --ulysses_degree 2 --warmup_steps 1 \
    -o "$T/x.safetensors"
check "30 rows: in stages" near "$T/one.safetensors" "$T/x.safetensors" $bytes

# 3. "Unable to mmap 9989150328 bytes": every rank maps the first shard of a T5 encoder. The file of
# that size is a hole behind the real header; the encoder has the published widths and one block of
# it, and no process may map more than 3.5 GB.
limit=3500000
MODEL=$T/t5
cp -R "$ROOT/tests/golden/alpha" "$T/narrow" && chmod -R u+w "$T/narrow" &&
    rm "$T/narrow/transformer"/*.safetensors
sed -i 's/"caption_channels": 24/"caption_channels": 4096/' "$T/narrow/transformer/config.json"
"$FILL" "$T/narrow" "$MODEL" || fail "the model is made"
rm -f "$MODEL/text_encoder"/*.safetensors*
sed -i 's/"d_model": 24/"d_model": 4096/; s/"d_ff": 40/"d_ff": 10240/; s/"d_kv": 8/"d_kv": 64/
        s/"num_heads": 3/"num_heads": 64/; s/"num_layers": 2/"num_layers": 1/
        s/"vocab_size": 88/"vocab_size": 32128/' \
    "$MODEL/text_encoder/config.json"
shards=$MODEL/text_encoder/model-00001-of-00002.safetensors
shards="$shards $MODEL/text_encoder/model-00002-of-00002.safetensors"
if ! (ulimit -v $limit && "$XDIT" --version >/dev/null 2>&1); then
    echo "# skipped: this build does not start under ulimit -v $limit"
elif made=$(python3 "$ROOT/tests/cli/shard.py" $shards \
    "$MODEL/text_encoder/model.safetensors.index.json") 2>/dev/null; then
    check "9989150328 bytes: the file is so long ($made tensors)" \
        [ "$(stat -c %s "${shards%% *}")" = 9989150328 ]
    small() {
        ( ulimit -v $limit && "$XDIT" "$@" >"$T/stdout" 2>"$T/stderr" </dev/null )
        rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
    }
    check "9989150328 bytes: it cannot be mapped as a whole" \
        sh -c 'ulimit -v '$limit'; ! python3 -c "
import mmap, sys
f = open(sys.argv[1], \"rb\")
mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)" "$1" 2>/dev/null' x "${shards%% *}"
    small inspect "$MODEL"
    check "9989150328 bytes: inspect" [ "$rc" = 0 ]
    small plan --model "$MODEL" --world 4
    check "9989150328 bytes: plan" [ "$rc" = 0 ]
    for n in 2 4; do
        rm -f "$T/x.png"
        small generate --model "$MODEL" --prompt "a red circle" --steps 1 --nproc $n \
            --quiet -o "$T/x.png"
        check "9989150328 bytes: $n ranks generate" whole_png "$T/x.png"
    done
    small generate --model "$MODEL" --prompt "a red circle" --steps 1 --nproc 2 --quiet \
        -W 16384 -H 16384 --no_resolution_binning -o "$T/no.png"
    check "9989150328 bytes: what does not fit is refused by a sentence" \
        [ "$rc" = 1 -a ! -e "$T/no.png" ]
    check "9989150328 bytes: that nothing has been loaded for, and has what would" said \
        '^xdit: none of 4 plans for 2 ranks fits into the .* GB of .*; what would fit: .*--width'
else
    echo "# skipped: no sparse file of 9989150328 bytes can be made here"
fi

# 4. "size of tensor a (6592) must match tensor b (6572)": CogVideoX1.5 at 1360 x 768 with ulysses 2
# x ring 2.
"$FILL" "$ROOT/tests/parity/video-1.5" "$T/cog15" || fail "the model is made"
MODEL=$T/cog15
bytes=$((96 * 170 * 4 * 4))
film --width 1360 --height 768 -o "$T/one.safetensors"
check "6592 and 6572: one rank" [ "$rc" = 0 ]
film --width 1360 --height 768 --ulysses_degree 2 --ring_degree 2 -o "$T/x.safetensors"
check "6592 and 6572: ulysses 2 x ring 2" near "$T/one.safetensors" "$T/x.safetensors" $bytes

# 5. "split_with_sizes expects split_sizes to sum exactly to 4096": FLUX in four stages; on two
# hosts in hosts.sh.
MODEL=$GOLDEN/flux
bytes=$((4 * 128 * 128 * 4))
generate --steps 2 -W 512 -H 512 --max_sequence_length 77 --num_pipeline_patch 4 \
    --patches_without_stages -o "$T/one.safetensors"
check "split sizes: one rank" [ "$rc" = 0 ]
generate --steps 2 -W 512 -H 512 --max_sequence_length 77 --pipefusion_parallel_degree 4 \
    -o "$T/x.safetensors"
generate --steps 1 -W 512 -H 512 --max_sequence_length 77 --no_resolution_binning \
    -o "$T/y.safetensors"
check "a model without trained sizes" said \
    "warning: no_resolution_binning .*flux"
try generate --model "$GOLDEN/flux-schnell" -p a --steps 1 -W 56 -H 40 --max_sequence_length 13 \
    --guidance_scale 4 -q -o "$T/y.safetensors"
check "a model that reads no guidance" said \
    "warning: guidance_scale .*this model"
cp -r "$GOLDEN/flux2-klein" "$T/chat"
chmod -R u+w "$T/chat"
set -- --model "$T/chat" -p a --steps 1 -W 32 -H 32 --max_sequence_length 29 -q
try generate "$@" -o "$T/y.safetensors"
check "a chat template with the tokens of the pipeline's text" [ "$rc" = 0 -a -z "$err" ]
echo '<|im_start|>{{ messages[0].content }}' >"$T/chat/tokenizer/chat_template.jinja"
try generate "$@" --nproc 2 -o "$T/y.safetensors"
check "a chat template without one of them" said \
    "^xdit: warning: the chat template in $T/chat/tokenizer has no <\|im_end\|>"
check "is said once" one_line
refused "a caption longer than a model has positions for" 2 \
    "max_sequence_length 993 992" \
    generate --model "$GOLDEN/zimage" -p a -W 32 -H 32 --max_sequence_length 993 -o "$T/no.png"
try generate --model "$GOLDEN/zimage" -p a --steps 1 -W 32 -H 32 --max_sequence_length 992 -q \
    -o "$T/y.safetensors"
check "one that is not longer" [ "$rc" = 0 ]
check "split sizes: pipefusion 4" same "$T/one.safetensors" "$T/x.safetensors" $bytes

# What the planner says of the published models, without weights.
if published THUDM/CogVideoX-2b; then
    try plan --model "$HF/THUDM/CogVideoX-2b" --world 8 --cluster 8xL40 --exact --plan u4
    check "30 rows: the published model is planned on eight" \
        sh -c 'printf "%s\n" "$1" | grep -q "u4cfg2vae"' x "$out"
fi
if published THUDM/CogVideoX1.5-5B; then
    try plan --model "$HF/THUDM/CogVideoX1.5-5B" -W 1360 -H 768 --num_frames 81 --guidance_scale 1 \
        --world 4 --cluster 8xH100 --plan u2r2
    check "6592 and 6572: the published model is planned" \
        sh -c 'printf "%s\n" "$1" | grep -q "u2r2vae"' x "$out"
fi
if published black-forest-labs/FLUX.1-dev; then
    try plan --model "$HF/black-forest-labs/FLUX.1-dev" --world 4 --cluster 2x2x4090 --plan pp4 \
        --all
    check "split sizes: the published model is planned on two hosts" \
        sh -c 'printf "%s\n" "$1" | grep -q "pp4"' x "$out"
fi
done_testing

#!/bin/sh
# The video demo over two ranks, in f32: ulysses has the frames of one rank, to one level; stages of
# PipeFusion, which use keys and values of the step before, are within 25 dB of them, and exact
# where every step is. What `make demo-video` writes.
. "$(dirname "$0")/lib.sh"
MODEL=$ROOT/models/demo-video
if ! [ -e "$MODEL/model_index.json" ]; then
    echo "1..0 # SKIP models/demo-video is not there: tools/train_demo_video.py trains it"
    exit 0
fi
mkdir "$T/1" "$T/u2" "$T/pp2" "$T/exact"
film() { # FOLDER FLAG...: the frames of a video
    folder=$1
    shift
    try generate --model "$MODEL" --prompt "a blue circle moving left on a white background" \
        --seed 3 --num_inference_steps 20 --dtype f32 --threads 1 --quiet "$@" \
        -o "$T/$folder/%d.png"
}
compare() { try compare --json "$T/1" "$T/$1"; }

film 1
check "a video" [ "$rc" = 0 -a "$(ls "$T/1" | wc -l)" = 9 ]
film u2 --ulysses_degree 2
if grep -Eq 'has no MPI|install the package' "$T/stderr"; then
    echo "# skipped: there is no MPI to start several ranks with"
else
    compare u2
    check "ulysses: the frames of one rank" json 'j["frames"] == 9 and j["largest"] <= 1'
    film exact --pipefusion_parallel_degree 2 --num_pipeline_patch 2 --warmup_steps 20
    compare exact
    check "PipeFusion, all steps exact" json 'j["frames"] == 9 and j["largest"] <= 1'
    film pp2 --pipefusion_parallel_degree 2 --num_pipeline_patch 2 --warmup_steps 1
    compare pp2
    check "PipeFusion, stale" json 'j["frames"] == 9 and 25 <= (j["psnr"] or 0) < 90'
fi

mkdir "$T/build" "$T/build/app"
ln -s "$XDIT" "$T/build/app/xdit"
make_demo() {
    make -s -C "$ROOT" -o program BUILD="$T/build" VIDEO_DEMO="$T/demo" demo-video "$@" \
        >"$T/stdout" 2>"$T/stderr"
    rc=$? out=$(cat "$T/stdout") err=$(cat "$T/stderr")
}
make_demo PROMPT='a red square moving up on a "black" background'
check "make demo-video" [ "$rc" = 0 -a "$(head -c 6 "$T/demo.gif")" = GIF89a ]
check "of the prompt that is given" grep -qa 'a red square moving up on a "black" bac' "$T/demo.gif"
if printf '%s' "$out" | grep -q '^There is no .*demo.mp4, which takes FFmpeg'; then
    check "without FFmpeg there is no MP4, as it says" [ ! -e "$T/demo.mp4" ]
else
    check "an MP4" [ "$(head -c 8 "$T/demo.mp4" | tail -c 4)" = ftyp ]
fi
make_demo VIDEO_MODEL="$T/no"
check "an error is an error" [ "$rc" != 0 -a ! -e "$T/no" ]
done_testing

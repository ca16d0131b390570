#!/bin/sh
# video.sh XDIT ROOT FILL - what a model of videos writes: one file, or a file a frame. FILL makes
# the weights of a tiny one (tests/golden/fill.h), of 9 frames of 56 x 40.
. "$(dirname "$0")/lib.sh"
"$3" "$ROOT/tests/golden/cog2b" "$T/cog" || fail "the model is made"
mkdir "$T/d"
film() { try generate --model "$T/cog" --prompt "a cat" --steps 2 --dtype f32 --quiet "$@"; }
listing() { (cd "$1" && echo *); }
nine() { for n in 1 2 3 4 5 6 7 8 9; do printf '%s\n' "$1$n$2"; done; }

film -o "$T/d/f_%03d.ppm"
check "an image's name is of every frame" [ "$rc" = 0 -a "$(ls "$T/d" | wc -l)" = 9 ]
check "whose names are printed" [ "$out" = "$(nine "$T/d/f_00" .ppm)" ]
for f in "$T/d"/*.ppm; do tail -c 6720 "$f"; done >"$T/frames"
film -o "$T/x.rgb"
check "raw frames are the same pixels" cmp "$T/x.rgb" "$T/frames"
film -o "$T/x.gif"
check "a GIF" [ "$(head -c 6 "$T/x.gif")" = GIF89a ]
check "that loops" grep -qa NETSCAPE2.0 "$T/x.gif"
check "with the parameters" grep -qa 'Steps: 2, Sampler' "$T/x.gif"
rm "$T/d"/*
film --prompt "a dog" -o "$T/d/f.png"
check "several videos are numbered before their frames" [ "$(ls "$T/d" | tr '\n' ' ')" = "$(
    for v in 1 2; do for n in 1 2 3 4 5 6 7 8 9; do printf 'f_000%d_000%d.png ' $v $n; done; \
        done)" ]
rm "$T/d"/*
film --num_frames 1 -o "$T/d/f.png"
check "one frame is an image" [ "$(listing "$T/d")" = f.png ]
check "a whole one" whole_png "$T/d/f.png"
rm "$T/d"/*
film --json -o "$T/d/%d.webp"
check "--json names the frames once" \
    sh -c 'printf "%s" "$1" | grep -q "\"file\":\"[^\"]*/%d.webp\".*\"num_frames\": 9"' x "$out"
# of the transformer's sinusoids, which diffusers adds to so many only, and not the pipeline's 226
check "the text is as long as the model's positions" \
    sh -c 'printf "%s" "$1" | grep -q "\"max_sequence_length\": 13"' x "$out"
rm "$T/d"/*
( ulimit -f 8; "$XDIT" generate -m "$T/cog" -p a --steps 1 \
    -q -o "$T/d/x.rgb" >"$T/stdout" 2>"$T/stderr" )
rc=$? err=$(cat "$T/stderr") out=
check "a video that may not grow is an error" [ "$rc" = 1 -a -z "$(ls -A "$T/d")" ]
check "that is told" said "^xdit: cannot write .*x.rgb"
refused "a name with two numbers" 2 "%d" generate -m "$T/cog" -p a -o "$T/d/%d_%d.png"
refused "a directory that is not there" 1 "$T/no/f_001.png" generate -m "$T/cog" \
    -p a -o "$T/no/f_%03d.png"

(cd "$T/d" && "$XDIT" generate -m "$T/cog" -p a --steps 1 -q >"$T/stdout" 2>&1)
if [ "$(cat "$T/stdout")" = output.gif ]; then
    check "the default name without FFmpeg" [ "$(listing "$T/d")" = output.gif ]
    refused "other videos" 1 "FFmpeg" generate -m "$T/cog" -p a -o "$T/d/x.mp4"
    echo "# skipped: this build or this machine has no FFmpeg"
    done_testing
    exit
fi
check "the default name" [ "$(cat "$T/stdout")" = output.mp4 -a "$(listing "$T/d")" = output.mp4 ]
rm "$T/d"/*
for ext in mp4 mov mkv webm; do
    film -o "$T/d/x.$ext"
    check ".$ext" [ "$rc" = 0 -a "$out" = "$T/d/x.$ext" -a -z "$err" ]
    check ".$ext has the parameters" grep -qa 'Steps: 2, Sampler' "$T/d/x.$ext"
    check ".$ext has the JSON" grep -qa '"num_frames": 9' "$T/d/x.$ext"
done
rm "$T/d"/*
# 4096 bytes are less than the parameters and 9 frames of noise.
( ulimit -f 2; "$XDIT" generate -m "$T/cog" -p a --steps 1 \
    -q -o "$T/d/x.mp4" >"$T/stdout" 2>"$T/stderr" )
rc=$? err=$(cat "$T/stderr") out=
check "an MP4 that may not grow is an error" [ "$rc" = 1 -a -z "$(ls -A "$T/d")" ]
check "that is told" said "^xdit: cannot write .*x.mp4"
if film --nproc 2 -o "$T/d/x.mp4" && [ "$rc" = 0 ]; then
    check "two ranks write one" [ "$(listing "$T/d")" = x.mp4 ]
else
    check "without MPI that is told" said 'has no MPI|install the package'
fi
done_testing

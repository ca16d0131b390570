#!/bin/sh
# demo_parallel.sh XDIT MONTAGE MODEL OUT.png - generates one image ($PROMPT) by many plans, puts
# the images into one sheet, row by row in the order of the table, and prints for each plan its
# ranks, seconds of denoising, bytes that all ranks sent, and PSNR against one rank. One thread a
# rank, f32: bf16's own rounding is larger than what separates ring and tensor from one rank.
set -eu
xdit=$1 montage=$2 model=$3 out=$4
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
: "${PROMPT:=a large red circle on a blue background}"

# Ranks, whether old keys and values are used, and flags.
cat >"$dir/plans" <<'END'
1 exact
2 exact --use_cfg_parallel
2 exact --ulysses_degree 2
2 exact --ring_degree 2
2 exact --tensor_parallel_degree 2
2 stale --pipefusion_parallel_degree 2
3 exact --ulysses_degree 3 --use_parallel_vae
3 stale --pipefusion_parallel_degree 3
4 exact --ulysses_degree 2 --use_cfg_parallel
4 stale --pipefusion_parallel_degree 4
4 stale --ring_degree 4 --use_displaced_patches --num_pipeline_patch 1
7 stale --pipefusion_parallel_degree 7
END
i=0
while read -r ranks kind flags; do
    i=$((i + 1))
    # The flags are several words.
    # shellcheck disable=SC2086
    "$xdit" generate --model "$model" --prompt "$PROMPT" --quiet --json --threads 1 --dtype f32 \
        $flags --output "$dir/$(printf %02d $i).png" </dev/null >"$dir/json" 2>"$dir/said" ||
        { cat "$dir/said" >&2; exit 1; }
    printf '%s %s %s %s %s\n' "$ranks" "$kind" \
        "$(sed -n 's/.*"denoise":\([0-9.]*\).*/\1/p' "$dir/json")" \
        "$(sed -n 's/.*"sent":\([0-9]*\).*/\1/p' "$dir/json")" "$flags" >>"$dir/table"
done <"$dir/plans"
"$montage" 4 "$out" "$dir"/[0-9]*.png >"$dir/psnr"
printf '%5s  %-5s  %8s  %12s  %8s  %s\n' ranks kind seconds 'bytes sent' 'PSNR dB' plan
paste -d ' ' "$dir/psnr" "$dir/table" | while read -r psnr ranks kind seconds sent flags; do
    printf '%5d  %-5s  %8.2f  %12d  %8s  %s\n' "$ranks" "$kind" "$seconds" "$sent" "$psnr" "$flags"
done

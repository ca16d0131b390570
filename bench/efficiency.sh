#!/bin/sh
# efficiency.sh XDIT CONFIG [RANKS [OPTION...]] - what each parallel method gains on this machine:
# one transformer step (of the VAE: one image) by RANKS ranks (2) of one thread each against one
# rank, as `xdit bench` times them, in a Markdown table for doc/lab/ranks.md. CONFIG is a directory
# with the configs of a model; weights are random. OPTIONs go to every run, such as --repeats 3, or
# --width 512 --height 512 for a smaller image. METHODS in the environment names some of "cfg
# ulysses ring pipefusion tensor vae" (all). JSON_DIR: a directory that keeps what each run printed.
# Nothing else should run meanwhile; PixArt-XL at 1024 pixels takes some 75 minutes on two cores of
# 100 GFLOP/s.
set -eu
[ $# -ge 2 ] || { sed -n 's/^# //;2,3p' "$0" >&2; exit 2; }
xdit=$1 config=$2 ranks=${3:-2}
shift 2
[ $# = 0 ] || shift
: "${METHODS:=cfg ulysses ring pipefusion tensor vae}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
: "${JSON_DIR:=$dir}"
mkdir -p "$JSON_DIR"

plan_of() {
    case $1 in
    cfg)        [ "$ranks" = 2 ] && echo "--use_cfg_parallel" ||
        echo "--use_cfg_parallel --ulysses_degree $((ranks / 2))" ;;
    ulysses)    echo "--ulysses_degree $ranks" ;;
    ring)       echo "--ring_degree $ranks" ;;
    pipefusion) echo \
        "--pipefusion_parallel_degree $ranks --num_pipeline_patch $((2 * ranks)) --warmup_steps 1" \
        ;;
    tensor)     echo "--tensor_parallel_degree $ranks" ;;
    vae)        echo "--ulysses_degree $ranks --use_parallel_vae" ;;
    *)          echo "efficiency.sh: there is no method $1" >&2; exit 2 ;;
    esac
}
for m in $METHODS; do
    plan=$(plan_of "$m")
    part=step
    [ "$m" != vae ] || part=vae
    echo "$(date +%T) $m: $plan" >&2
    # The plan is several words.
    # shellcheck disable=SC2086
    "$xdit" bench --config "$config" --random_weights --share_layers --threads 1 --json \
        --parts $part $plan "$@" >"$JSON_DIR/$m.json"
done
python3 - "$JSON_DIR" "$ranks" $METHODS <<'END'
import json, sys

folder, ranks, methods = sys.argv[1], sys.argv[2], sys.argv[3:]
print(f"| method | work | 1 rank, s | {ranks} ranks, s | speed-up | efficiency (range) | "
      f"1 of {ranks} busy ranks, s | efficiency against those | bytes sent, all ranks | "
      "as predicted |")
print("|---|---|--:|--:|--:|--:|--:|--:|--:|---|")
for m in methods:
    with open(f"{folder}/{m}.json") as f:
        run = json.load(f)
    p = run["parts"][0]
    low, high = p["efficiency_range"]
    print(f"| {run['plan']} | {p['what']} | {p['alone_s']:.3g} | {p['plan_s']:.3g} | "
          f"{p['speedup']:.3f} | **{p['efficiency']:.3f}** ({low:.3f} to {high:.3f}) | "
          f"{p['busy_s']:.3g} | {p['efficiency_busy']:.3f} | {p['sent_all']} | "
          f"{'yes' if p['as_predicted'] else '**no**'} |")
print(f"\n{run['device']}, {run['threads']} thread a rank, {run['dtype']}; "
      f"medians of {p['rounds']} rounds.")
END

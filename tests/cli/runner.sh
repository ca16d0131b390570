#!/bin/sh
# xdit run: the arguments of xDiT's runner are translated as by from-xdit, and the result is run.
. "$(dirname "$0")/lib.sh"

small="--num_inference_steps 2 --height 128 --width 128"
try generate --model "$MODEL" --prompt a $small --seed 42 --quiet --output "$T/own.png"
check "the image of xdit generate" [ "$rc" = 0 ]
same() { [ "$rc" = 0 ] && cmp -s "$T/own.png" "$T/$1"; }

try run --model "$MODEL" --prompt a $small --use_torch_compile -- --output "$T/a.png"
check "the same image, with xDiT's default seed" same a.png
check "the command is printed" said 'xdit generate --model'
check "what is left out is said" said '--use_torch_compile is left out'
try run "--model=$MODEL" --prompt a --num-inference-steps=2 --height 128 --width 128 \
    -- --output "$T/b.png" --quiet
check "names with dashes, values after =" same b.png
check "nothing is printed with --quiet" [ -z "$err" ]
try run -m "$MODEL" -p a $small -- -q -o "$T/c.png"
check "letters of options" same c.png

# Ranks: the product of the degrees.
try run --model "$MODEL" --prompt a $small --ulysses_degree 2 --use_cfg_parallel -- -o "$T/d.png"
if printf '%s' "$err" | grep -Eq 'has no MPI|install the package'; then
    echo "# skipped: there is no MPI to start ranks with"
else
    check "four ranks" said '4 ranks'
    "$XDIT" compare "$T/own.png" "$T/d.png" --json >"$T/stdout" 2>&1
    out=$(cat "$T/stdout")
    check "their image, within 1 of 255 levels" json 'j["largest"] <= 1'
fi

# A short name is the model's name on the Hub, and from-xdit has the same translation.
try run --model FLUX.1-dev --prompt a
check "a model that is not here" [ "$rc" = 1 ]
check "says how to get it" said 'hf download black-forest-labs/FLUX.1-dev'
check "its name of the Hub is said" said 'FLUX.1-dev of xDiT.s runner is black-forest-labs'
for name in FLUX.1-dev Wan2.1-T2V Lumina2; do
    line="--model $name --prompt a --ulysses_degree 2 --output_directory x"
    try from-xdit --json -- xdit $line
    json 'j["ranks"] == 2 and j["error"] is None and "x/output." in " ".join(j["command"])' &&
        want=$(printf '%s' "$out" | python3 -c 'import json, sys
print(" ".join(json.load(sys.stdin)["command"]))')
    try run $line
    got=$(printf '%s\n' "$err" | awk '/this command runs/ { on = 1; next } /^xdit:/ { exit }
        on { sub(/^ */, ""); sub(/ *\\$/, ""); printf "%s ", $0 }' | sed 's/ *$//')
    check "$name: the command of from-xdit" [ "$got" = "$want" ]
done

# A model has its own rules, not those of a model whose name begins its name.
try from-xdit --json -- xdit --model Qwen/Qwen-Image-2.1 --prompt a
check "the default size of Qwen-Image-2.1" json '"--height" not in j["command"]'
try from-xdit --json -- xdit --model Qwen/Qwen-Image-2512 --prompt a
check "the default size of Qwen-Image" json '"1664" in j["command"]'

# What cannot be translated is refused, before a model is opened.
refused "a flag of nobody" 2 'ulyses_degree.*nearest' run --model "$MODEL" --prompt a \
    --ulyses_degree 2
refused "a flag of the example scripts" 2 'warmup_steps.*scripts have it' run --model "$MODEL" \
    --prompt a --warmup_steps 1
refused "no model" 2 '--model' run --prompt a
refused "a word as a number" 2 "--seed.*'x'" run --model "$MODEL" --prompt a --seed x
refused "a degree of 0" 2 'degree' run --model "$MODEL" --prompt a --ulysses_degree 0
refused "a model that is not built" 1 'Cosmos3' run --model Cosmos3-Nano --prompt a
refused "two hosts" 2 'mpirun ppr:8:node' run --model "$MODEL" --prompt a --nnodes 2 \
    --nproc_per_node 8 --ulysses_degree 16
refused "an unknown option of generate" 2 'outptu' run --model "$MODEL" --prompt a -- -q --outptu x
try from-xdit --json -- xdit --model Cosmos3-Nano --prompt a
check "the error as JSON" json '"Cosmos3" in j["error"] and j["command"] is None'
check "its exit code" [ "$rc" = 1 ]
done_testing

#!/bin/sh
# absent.sh BUILD ROOT XDIT: without published configs tests pass, and tests/run.sh says in one line
# how many checks were not run.
build=$1 root=$2 xdit=$3
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
count=0
check() {
    count=$((count + 1)) what=$1
    shift
    if "$@"; then echo "ok $count - $what"; else
        echo "not ok $count - $what"
        sed 's/^/# /' "$T/out"
    fi
}
# runs FOLDER: tests of each language, with that folder of configs.
runs() {
    (XDIT_TEST_HF=$1 "$root/tests/run.sh" "$build" --no-rebuild --logbase "absent-$$" \
        --num-processes 2 unit_tok unit_bpe unit_tok_bert unit_stfile unit_qwen_vision unit_vae \
        unit_vae_causal cli_published
    ) >"$T/out" 2>&1
    rc=$?
    rm -f "$build/meson-logs/absent-$$".*
}
# lines N: how many lines say that checks were not run?
lines() {
    [ "$(grep -c ' checks were not run: they need configs of published models' "$T/out")" = "$1" ]
}

mkdir "$T/empty"
runs "$T/empty"
check "an empty folder: every test passes" [ "$rc" = 0 ]
check "one line says that checks were not run" lines 1
n=$(sed -n 's/ checks were not run: .*//p' "$T/out")
# Three tokenizers of T5, two of CLIP and one of BERT, the list of a shard, four tables of published
# times at least.
check "as many as there are ($n)" [ "$n" -ge 11 ]
check "and how to get the configs" grep -q "tools/fetch_configs.py $T/empty fetches" "$T/out"
runs "$T/none"
check "no folder at all: the same" grep -q "^$n checks were not run" "$T/out"
XDIT_TEST_HF=$T/empty sh -c '. "$3"; published some/model || echo absent' sh "$xdit" "$root" \
    "$root/tests/cli/lib.sh" >"$T/out" 2>&1
check "a script says it in the line that is counted" grep -qx \
    '# skipped: needs some/model of the published configs (XDIT_TEST_HF)' "$T/out"
check "and goes on without" grep -qx absent "$T/out"
echo "1..$count"

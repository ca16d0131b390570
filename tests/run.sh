#!/bin/sh
# run.sh BUILD [arguments of meson test] - runs every test of a build directory.
#
# Prints why tests were skipped, how many checks were not run for want of published configs, and
# ends with one line "N passed, N failed, N skipped"; fails when a test failed or none ran.
set -u
build=$1
shift
out=$(mktemp) || exit 1
trap 'rm -f "$out" "$out.rc"' EXIT
{ meson test -C "$build" --print-errorlogs "$@" 2>&1; echo $? >"$out.rc"; } | tee "$out"
rc=$(cat "$out.rc")

# The number behind a label of meson's summary.
count() { sed -n "s/^$1: *\([0-9][0-9]*\) *\$/\1/p" "$out" | tail -n 1 | grep . || echo 0; }

passed=$(($(count Ok) + $(count 'Expected Fail')))
failed=$(($(count Fail) + $(count 'Unexpected Pass') + $(count Timeout)))
skipped=$(count Skipped)
log=$(sed -n 's/^Full log written to //p' "$out" | tail -n 1)
# A test that is skipped whole is named.
reasons=$([ -f "$log" ] && LC_ALL=C awk '/^test: / { test = $NF }
    /^1\.\.0 +# SKIP/ { print test ": " $0 }
    /^ok [0-9]+.*# SKIP/ || /^SKIP:/' "$log" | sort -u)
if [ -n "$reasons" ]; then
    echo "Skipped, and why:"
    printf '%s\n' "$reasons"
fi
if [ "$rc" != 0 ] && [ "$failed" = 0 ]; then
    failed=1            # the build broke, or meson itself
fi
if [ "$passed" = 0 ] && [ "$failed" = 0 ]; then
    failed=1            # nothing ran, which proves nothing
fi
absent=$([ -f "$log" ] && grep -aEc '^# skipped: .*\(XDIT_TEST_HF\)$' "$log")
if [ "${absent:-0}" -gt 0 ]; then
    echo "$absent checks were not run: they need configs of published models, which" \
        "tools/fetch_configs.py ${XDIT_TEST_HF:-../shared/hf} fetches"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]

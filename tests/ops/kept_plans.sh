#!/bin/sh
# kept_plans.sh PROGRAM - plans of cuDNN are kept in the user's cache and read again, and one that
# is damaged there is made again.
set -eu
program=$(readlink -f "$1")
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
export XDG_CACHE_HOME="$T" XDIT_TEST_ONLY='*large'
"$program"
cd "$T"/xdit/cudnn-*
kept=$(ls sdpa-*.json | wc -l)
[ "$kept" -ge 8 ] || { echo "only $kept plans were kept"; exit 1; }
damaged=$(ls sdpa-*.json | head -n 1)
whole=$(wc -c <"$damaged")
head -c 100 "$damaged" >short
touch -d 2001-01-01 sdpa-*.json
mv short "$damaged"
touch -d 2001-01-01 "$damaged"
"$program"
[ "$(wc -c <"$damaged")" = "$whole" ] || { echo "a damaged plan stays"; exit 1; }
new=$(find . -name 'sdpa-*.json' -newermt 2002-01-01 | wc -l)
[ "$new" = 1 ] || { echo "$new plans were made again instead of one"; exit 1; }

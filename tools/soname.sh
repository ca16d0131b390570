#!/bin/sh
# soname.sh LIBRARY DIR COMPILER... - prints the SONAME of what the compiler links as -lLIBRARY,
# nothing if there is no such library; DIR: a folder to look into first, or empty
set -u
library=$1
dir=$2
shift 2
made=$(mktemp -d) || exit 1
trap 'rm -rf "$made"' EXIT
echo 'int nothing;' >"$made/nothing.c"
"$@" -shared -fPIC -o "$made/nothing.so" "$made/nothing.c" ${dir:+"-L$dir"} \
    -Wl,--no-as-needed "-l$library" 2>"$made/words" || exit 0
LC_ALL=C readelf -d "$made/nothing.so" |
    sed -n 's/.*(NEEDED).*\[\(lib'"$library"'\..*\)\]$/\1/p'

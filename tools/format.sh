#!/bin/sh
# format.sh [--check] - formats the C and CUDA sources by .clang-format. With --check, no file
# changes: the files whose layout differs are listed, and the exit code is 1 if there are any, or 77
# if clang-format cannot be installed.
#
# Versions of clang-format differ in details, so that one version is used everywhere. If the
# installed clang-format has another version, Python's package of the right one is installed into a
# folder of the user's cache.
set -eu
cd "$(dirname "$0")/.."
VERSION=23.1.5
venv=${XDG_CACHE_HOME:-$HOME/.cache}/xdit/clang-format-$VERSION
format=clang-format
if ! $format --version 2>/dev/null | grep -q "version $VERSION"; then
    format=$venv/bin/clang-format
    if [ ! -x "$format" ] && ! { python3 -m venv "$venv" &&
        "$venv/bin/pip" install -q "clang-format==$VERSION"; } >&2; then
        echo "clang-format $VERSION cannot be installed: pip install clang-format==$VERSION" >&2
        exit 77
    fi
fi
how="-i"
[ "${1-}" != --check ] || how="--dry-run -Werror"
git ls-files -z '*.c' '*.h' '*.cu' '*.cuh' | xargs -0 -P 2 -n 40 "$format" $how || {
    echo "Run make format." >&2
    exit 1
}

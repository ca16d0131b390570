#!/bin/sh
# commit.sh - prints the commit of the source tree: that of git, or in an archive made by
# `make dist` that of its file COMMIT. Called by meson dist, it writes that file into the archive.
root=$(cd "$(dirname "$0")/.." && pwd)
commit() {
    if [ -e "$root/COMMIT" ]; then
        cat "$root/COMMIT"
    else
        git --git-dir="$root/.git" rev-parse --short=12 HEAD
    fi
}
if [ -n "${MESON_DIST_ROOT:-}" ]; then
    root=$MESON_SOURCE_ROOT
    commit >"$MESON_DIST_ROOT/COMMIT"
else
    commit
fi

#!/bin/sh
# install.sh BUILD ROOT SANITIZER CC... - installs into an empty place, compiles the example program
# against what is there, shared and static, and paints with it. Speaks TAP.
set -u
build=$1 root=$2 sanitizer=$3
shift 3
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
count=0
bad=0
check() {
    count=$((count + 1))
    what=$1
    shift
    if "$@" >"$T/log" 2>&1; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        sed 's/^/# /' "$T/log"
        bad=1
    fi
}
found() { find "$T/root" -path "*$1" | head -n 1; }
there() { [ -n "$(found "$1")" ]; }
flags() { pkg-config "$@" xdit; }
png() { [ "$(head -c 4 "$1" | tail -c 3)" = PNG ]; }

check "meson install" env DESTDIR="$T/root" meson install -C "$build" --no-rebuild
for f in /bin/xdit /include/xdit/xdit.h /libxdit.so /libxdit.a /pkgconfig/xdit.pc /man1/xdit.1; do
    check "installs $f" there "$f"
done
check "the library has a version in its name" there '/libxdit.so.[0-9]*'

lib=$(dirname "$(found /libxdit.so)")
export PKG_CONFIG_SYSROOT_DIR="$T/root"
export PKG_CONFIG_PATH="$lib/pkgconfig"
export LD_LIBRARY_PATH="$lib"
san=
[ "$sanitizer" = none ] || san=-fsanitize=$sanitizer

header() { echo '#include <xdit/xdit.h>' | "$@" -std=c99 -Wall -Wextra -Wpedantic -Werror -x c \
    -fsyntax-only $(flags --cflags) -; }
check "the header alone is C99" header "$@"
cxx() { echo '#include <xdit/xdit.h>' | c++ -Wall -Wextra -Werror -x c++ -fsyntax-only \
    $(flags --cflags) -; }
check "and C++" cxx

shared() { "$@" $san -Wall -Wextra -Werror "$root/examples/paint.c" $(flags --cflags --libs) -o "$T/paint"; }
check "the example compiles against the shared library" shared "$@"
check "it needs that library" sh -c "ldd '$T/paint' | grep -q '$lib/libxdit.so'"
paint() { "$1" "$root/models/demo-pixart" "a large red circle on a blue background" "$2" 2 && png "$2"; }
check "it paints" paint "$T/paint" "$T/a.png"

static() {
    "$@" $san "$root/examples/paint.c" $(flags --cflags) "$lib/libxdit.a" \
        $(flags --static --libs | tr ' ' '\n' | grep -vx -e -lxdit | tr '\n' ' ') -o "$T/paint-a"
}
check "the example compiles against the static library" static "$@"
check "it paints too" paint "$T/paint-a" "$T/b.png"
check "the same picture" cmp "$T/a.png" "$T/b.png"
refuses() { ! "$T/paint" "$T/nothing" a "$T/c.png" && [ ! -e "$T/c.png" ]; }
check "it fails where there is no model" refuses
check "the installed program runs" sh -c "'$(found /bin/xdit)' --version | grep -q '^xdit [0-9]'"
echo "1..$count"
exit $bad

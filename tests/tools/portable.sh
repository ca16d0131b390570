#!/bin/sh
# portable.sh ROOT XDIT COMPILER... - what other systems need: names of libraries that hold a minor
# version, refusals of machines whose memory is laid out otherwise, libcs without new functions.
# Speaks TAP.
set -u
root=$1
xdit=$2
shift 2
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
. "$root/tests/tap.sh"

# soname LIBRARY [DIR]: what tools/soname.sh prints for this compiler.
soname() { sh "$root/tools/soname.sh" "$1" "${2-}" "$compiler" $flags; }
compiler=$1
shift
flags=$*

echo 'int given(void) { return 1; }' >"$T/given.c"
for name in libgiven.so.3 libgiven.so.3.6 libgiven-2.so.0; do
    library=${name%.so*}
    "$compiler" $flags -shared -fPIC "-Wl,-soname,$name" -o "$T/$library.so" "$T/given.c"
    check "the SONAME $name is found" [ "$(soname "${library#lib}" "$T")" = "$name" ]
done
check "a library that is missing has none" [ -z "$(soname none "$T")" ]
if [ -n "$(soname dnnl)" ]; then
    check "the program opens oneDNN by the SONAME of the build" \
        grep -aqF "$(soname dnnl)" "$xdit"
else
    count=$((count + 1))
    echo "ok $count - oneDNN # SKIP the linker does not find it by -ldnnl"
fi

header="$T/header.c"
echo '#include "tensor/tensor.h"' >"$header"
compiles() { "$compiler" $flags -std=c11 -fsyntax-only "-I$root/src" "$@" "$header"; }
refuses() { ! compiles "$@" 2>"$T/words" && grep -q 'little-endian' "$T/words"; }
check "this machine is taken" compiles
check "a big-endian machine is refused" refuses -U__BYTE_ORDER__ \
    -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__
printf '#include <stdint.h>\n#undef SIZE_MAX\n#define SIZE_MAX UINT32_MAX\n' >"$T/narrow.h"
check "a machine of 32 bits is refused" refuses -include "$T/narrow.h"

# Headers of the kernel and of libraries are glibc's neighbours; they are not what is asked about.
against_musl() {
    for file in "$root"/src/base/*.c "$root"/src/io/*.c "$root"/src/comm/sh*.c \
        "$root"/app/cli/*.c "$root"/app/serve/*.c; do
        musl-gcc -std=c11 -D_POSIX_C_SOURCE=200809L -DXD_NAMES_DNNL='"dnnl"' -fsyntax-only \
            -Werror=implicit-function-declaration -w "-I$root/include" "-I$root/src" \
            "-I$root/app" -idirafter /usr/include \
            -idirafter "/usr/include/$(gcc -print-multiarch)" "$file" || echo "$file" >>"$T/fails"
    done
    [ ! -e "$T/fails" ]
}
if command -v musl-gcc >/dev/null; then
    check "musl declares every function" against_musl
else
    count=$((count + 1))
    echo "ok $count - musl # SKIP there is no musl-gcc"
fi
echo "1..$count"
[ -z "${bad-}" ]

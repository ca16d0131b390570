#!/bin/sh
# install.sh BUILD ROOT SANITIZER CC... - installs into an empty place, compiles the example program
# against what is there, shared and static, and generates with it. Speaks TAP.
set -u
build=$1 root=$2 sanitizer=$3
shift 3
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
bad=0
. "$root/tests/tap.sh"
found() { find "$T/root" -path "*$1" | head -n 1; }
there() { [ -n "$(found "$1")" ]; }
flags() { pkg-config "$@" xdit; }
png() { [ "$(head -c 4 "$1" | tail -c 3)" = PNG ]; }

check "meson install" env DESTDIR="$T/root" meson install -C "$build" --no-rebuild
cp "$build/meson-logs/install-log.txt" "$T/installed.txt"
for f in /bin/xdit /include/xdit/err.h /include/xdit/xdit.h /include/xdit/tools.h \
    /include/xdit/module.h /libxdit.so /libxdit.a /pkgconfig/xdit.pc /man1/xdit.1; do
    check "installs $f" there "$f"
done
for f in /bash-completion/completions/xdit.bash /zsh/site-functions/_xdit \
    /fish/vendor_completions.d/xdit.fish; do
    check "installs $f" there "$f"
done
for f in $(find "$build/app" -maxdepth 1 -name 'xdit-*.1' -exec basename {} ';'); do
    check "installs $f" there "/man1/$f"
done
check "the library has a version in its name" there '/libxdit.so.[0-9]*'

lib=$(dirname "$(found /libxdit.so)")
export PKG_CONFIG_SYSROOT_DIR="$T/root"
export PKG_CONFIG_PATH="$lib/pkgconfig"
export LD_LIBRARY_PATH="$lib"
san=
[ "$sanitizer" = none ] || san=-fsanitize=$sanitizer

header() { h=$1; shift; echo "#include <xdit/$h>" | "$@" -std=c99 -Wall -Wextra -Wpedantic -Werror \
    -x c -fsyntax-only $(flags --cflags) -; }
cxx() { echo "#include <xdit/$1>" | c++ -Wall -Wextra -Werror -x c++ -fsyntax-only \
    $(flags --cflags) -; }
for h in err.h xdit.h tools.h module.h; do
    check "$h alone is C99" header $h "$@"
    check "$h alone is C++" cxx $h
done
is_version() { [ "$(pkg-config --modversion xdit)" = "$("$root/tools/version.sh")" ]; }
check "the .pc file has the version of the header" is_version

shared() {
    "$@" $san -Wall -Wextra -Werror "$root/examples/generate.c" $(flags --cflags --libs) \
        -o "$T/generate"
}
check "the example compiles against the shared library" shared "$@"
check "it needs that library" sh -c "ldd '$T/generate' | grep -q '$lib/libxdit.so'"
generate() {
    "$1" "$root/models/demo-pixart" "a large red circle on a blue background" "$2" 2 && png "$2"
}
check "it generates" generate "$T/generate" "$T/a.png"

static() {
    "$@" $san "$root/examples/generate.c" $(flags --cflags) "$lib/libxdit.a" \
        $(flags --static --libs | tr ' ' '\n' | grep -vx -e -lxdit | tr '\n' ' ') -o "$T/generate-a"
}
check "the example compiles against the static library" static "$@"
check "it generates too" generate "$T/generate-a" "$T/b.png"
check "the same image" cmp "$T/a.png" "$T/b.png"
refuses() { ! "$T/generate" "$T/nothing" a "$T/c.png" && [ ! -e "$T/c.png" ]; }
check "it fails where there is no model" refuses

# The shared library shows what the headers declare, and nothing else.
exports() {
    sed -n '/^XD_API/,/;/p' "$root"/include/xdit/*.h | grep -o 'xd_[a-z0-9_]*(' | tr -d '(' |
        sort -u \
        >"$T/declared"
    nm -D --defined-only "$lib/libxdit.so" | awk '{ print $NF }' | grep -v '@@*XDIT_[0-9]' |
        sort -u \
        >"$T/exported"
    diff "$T/declared" "$T/exported"
}
if [ "$sanitizer" = none ]; then
    check "the shared library exports the public functions and nothing else" exports
else
    echo "# skipped the exported symbols: a sanitizer adds its own"
fi

# The programs of doc/library.md.
awk -v out="$T/doc" '/^```c$/ { n++; on = 1; next } /^```/ { on = 0 } on { print >out n ".c" }' \
    "$root/doc/library.md"
mpi=$(pkg-config --exists ompi-c && echo ompi-c || { pkg-config --exists mpich && echo mpich; })
compiles() {
    c=$1 more=$2
    shift 2
    "$@" $san -std=c99 -Wall -Wextra -Werror "$c" $(flags --cflags --libs) $more -o "${c%.c}"
}
for c in "$T"/doc[0-9]*.c; do
    more=
    if grep -q '<mpi.h>' "$c"; then
        [ -n "$mpi" ] || { echo "# skipped a program of doc/library.md: it needs mpi.h"; continue; }
        more=$(PKG_CONFIG_SYSROOT_DIR='' pkg-config --cflags --libs "$mpi")
    fi
    name=$(sed -n '1s,/\* \([a-z]*\) .*,\1,p' "$c")
    check "doc/library.md: $name compiles" compiles "$c" "$more" "$@"
done
progress() { "$T/doc1" "$root/models/demo-pixart" "a red circle" "$T/p.png" && png "$T/p.png"; }
check "progress generates" progress
plans() { "$T/doc3" "$root/models/demo-pixart" 4xH100 && "$T/doc3" "$root/models/demo-pixart" \
    4xH100 | grep -q '^u4.*degrees 4$'; }
check "plans lists plans" plans

# Who links the shared library needs no .pc file but this one.
own_flags() { PKG_CONFIG_LIBDIR="$lib/pkgconfig" PKG_CONFIG_PATH='' flags --cflags --libs | xargs; }
alone() { [ "$(own_flags)" = \
    "-I$(dirname "$(dirname "$(found /include/xdit/xdit.h)")") -L$lib -lxdit" ]; }
check "its flags name nothing but itself" alone
needs() {
    for l in png16 jpeg webp cjson; do
        flags --static --libs | grep -qw -e "-l$l" || return 1
    done
}
check "the static library's name the others" needs

# As doc/library.md has it, in a prefix of its own and by the line that the installer prints.
prefix=$(dirname "$(dirname "$(found /bin/xdit)")")
sed -i "s|^prefix=.*|prefix=$prefix|" "$lib/pkgconfig/xdit.pc"
unset PKG_CONFIG_SYSROOT_DIR LD_LIBRARY_PATH
mkdir "$T/bin"
printf '#!/bin/sh\ncase $1 in -p) cat "%s/cache";; *) echo >>"%s/calls";; esac\n' "$T" "$T" \
    >"$T/bin/ldconfig"
chmod +x "$T/bin/ldconfig"
installed() { PATH="$T/bin:$PATH" sh "$root/tools/installed.sh" "$lib" >"$T/said"; }
printf '\tlibxdit.so.0 (libc6,x86-64) => %s/libxdit.so.0\n' "$lib" >"$T/cache"
silent() { installed && [ ! -s "$T/said" ]; }
check "a library that the loader finds needs no word" silent
refreshed() { [ "$(id -u)" != 0 ] || [ -s "$T/calls" ]; }
check "root's loader is told of it" refreshed
printf '\tlibxdit.so.0 (libc6,x86-64) => /elsewhere/libxdit.so.0\n' >"$T/cache"
told() { installed && grep -q "export LD_LIBRARY_PATH=$lib" "$T/said"; }
check "for another one a line is printed" told
line=$(grep -o 'export LD_LIBRARY_PATH=.*' "$T/said")
line_cc=$(sed -n 's/^    \(cc generate\.c .*\)$/\1/p' "$root/doc/library.md")
as_written() {
    cp "$root/examples/generate.c" "$T/bin/" && cd "$T/bin" &&
        sh -c "$(echo "$line_cc" | sed "s|^cc|$*${san:+ $san}|")" && sh -c "$line
./generate '$root/models/demo-pixart' 'a large red circle on a blue background' '$T/d.png' 2" &&
        cmp "$T/a.png" "$T/d.png"
}
check "the document has the line" [ -n "$line_cc" ]
(as_written "$@") >"$T/log" 2>&1
rc=$?
check "which compiles and generates with that line" [ "$rc" = 0 ]
[ "$rc" = 0 ] || sed 's/^/# /' "$T/log"
export LD_LIBRARY_PATH="$lib"

check "the installed program runs" sh -c "'$(found /bin/xdit)' --version | grep -q '^xdit [0-9]'"
demo_needs() { make -n -C "$root" demo | grep -qx 'ninja -C build app/xdit'; }
check "make demo builds the program and no more" demo_needs
check "uninstall" "$root/tools/uninstall.sh" "$T/installed.txt"
check "it leaves nothing" [ -z "$(find "$T/root" ! -type d)" ]
check "nor directories that were made" [ ! -e "$T/root/usr" ]
again() { ! "$root/tools/uninstall.sh" "$T/installed.txt"; }
check "again there is nothing to remove" again
echo "1..$count"
exit $bad

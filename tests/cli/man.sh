#!/bin/sh
# Manual pages of all commands: all that a help says is on the page, man and mandoc find nothing
# wrong with it, and it is installed.
. "$(dirname "$0")/lib.sh"

commands=$("$XDIT" --help all | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')
# The words of a text, without punctuation.
words() { tr -cs 'A-Za-z0-9_.-' '\n' | sed 's/^[.]*//; s/[.]*$//' | sort -u; }
# man's own complaints, and those of groff.
complaints() { MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 "$1" 2>&1 >"$T/rendered"; }

with_man=$(command -v man) with_mandoc=$(command -v mandoc)
lacks= bad= uninstalled= heads=
for c in $commands; do
    try man "$c"
    [ "$rc" = 0 ] && [ -z "$err" ] || bad="$bad $c:$rc"
    page=$T/xdit-$c.1
    cp "$T/stdout" "$page"
    for h in NAME SYNOPSIS DESCRIPTION 'EXIT STATUS' 'SEE ALSO'; do
        grep -qx ".SH $h" "$page" || heads="$heads $c:$h"
    done
    grep -q "'xdit-' + command" "$ROOT/app/meson.build" &&
        grep -qE "[[ ]'$c'[],]" "$ROOT/app/meson.build" || uninstalled="$uninstalled $c"
    COLUMNS=120 "$XDIT" help "$c" all | sed 's/^Usage://; s/^[A-Z].*:$//' | words >"$T/said"
    # as roff sets it, without fonts and escapes
    sed 's/\\f[BIR]//g; s/\\-/-/g; s/\\&//g; s/\\(aq/'"'"'/g; s/\\(ga/`/g; s/\\(ti/~/g
         s/\\(ha/^/g; s/\\e/\\/g' "$page" | words >"$T/set"
    for w in $(comm -23 "$T/said" "$T/set"); do lacks="$lacks $c:$w"; done
    if [ -n "$with_man" ]; then
        said=$(complaints "$page")
        [ -z "$said" ] || bad="$bad $c:man:$said"
        [ "$(wc -l <"$T/rendered")" -gt 20 ] || bad="$bad $c:not rendered"
    fi
    [ -z "$with_mandoc" ] || said=$(mandoc -Tlint -Wwarning "$page") ||
        bad="$bad $c:mandoc:$said"
done
check "a page for every command:$bad" [ -z "$bad" ]
check "with the usual parts:$heads" [ -z "$heads" ]
check "the words of the helps are there:$lacks" [ -z "$lacks" ]
check "each is installed:$uninstalled" [ -z "$uninstalled" ]
[ -n "$with_man" ] || echo "# skipped: there is no man to render pages"
[ -n "$with_mandoc" ] || echo "# skipped: there is no mandoc to check pages"
if [ -n "$with_man" ]; then
    said=$(complaints "$ROOT/doc/xdit.1")
    check "xdit.1, too" [ -z "$said" ]
fi

lacks=
for c in $commands; do
    [ "$c" = help ] || sed 's/\\-/-/g' "$ROOT/doc/xdit.1" | grep -q "^.BR xdit-$c (1)" ||
        lacks="$lacks $c"
done
check "xdit.1 names all:$lacks" [ -z "$lacks" ]
row=$(grep -A 1 -F '\fB\-\-num_inference_steps\fR \fIN\fR' "$T/xdit-generate.1" | tail -n 1)
check "an option has its text" sh -c "'$XDIT' help generate num_inference_steps | tr -s ' \n' ' ' |
    grep -qF -- '$(echo "$row" | sed 's/\\(aq.*//')'"
SOURCE_DATE_EPOCH=86400 try man plan
check "the date can be given" grep -q '^.TH "XDIT.-PLAN" 1 "1970-01-02" "xdit [0-9.]*"' "$T/stdout"
refused "no command" 2 '--help' man
refused "another command" 2 "'draw'" man draw
done_testing

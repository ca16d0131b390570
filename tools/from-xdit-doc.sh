#!/bin/sh
# from-xdit-doc.sh XDIT PAGE - puts the tables of the program into doc/from-xdit.md, or into a copy.
set -eu
tables=$("$1" from-xdit --tables)
new=$(awk -v tables="$tables" '
    $0 == "<!-- end of tables -->" { inside = 0 }
    !inside { print }
    $0 == "<!-- tables -->" { print "\n" tables "\n"; inside = 1 }' "$2")
printf '%s\n' "$new" >"$2"

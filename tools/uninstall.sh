#!/bin/sh
# uninstall.sh LIST - removes what `meson install` has listed in LIST (meson-logs/install-log.txt):
# files, and behind them the directories that it made, where they are empty.
list=$1
[ -f "$list" ] || { echo "Nothing to remove: $list is not there; make install writes it."; exit 1; }
failed=0
removed=0
while IFS= read -r file; do
    case $file in /*) ;; *) continue ;; esac
    if [ -f "$file" ] || [ -L "$file" ]; then
        if rm -f -- "$file"; then removed=$((removed + 1)); else failed=1; fi
    elif [ -d "$file" ]; then
        rmdir -- "$file" 2>/dev/null
    fi
done <"$list"
PATH=$PATH:/sbin:/usr/sbin
[ "$(id -u)" != 0 ] || ldconfig 2>/dev/null
[ "$failed" = 0 ] || exit 1
rm -f -- "$list"
echo "$removed files removed"

#!/bin/sh
# What shells complete: every command, every flag that a help shows, the values of those with a
# list.
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    try completion $shell
    check "$shell: printed" [ "$rc" = 0 -a -n "$out" -a -z "$err" ]
    cp "$T/stdout" "$T/$shell"
done
refused "no shell" 2 'bash zsh fish' completion
refused "another shell" 2 "'tcsh'" completion tcsh

# The flags that the help of a command shows.
flags_of() {
    "$XDIT" "$1" --help all | sed '/^Example/,$d' | grep -oE -- '^ +(-[A-Za-z], )?--[a-z0-9_]+' |
        grep -oE -- '--[a-z0-9_]+' | sort -u
}
commands=$("$XDIT" --help all | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }')

if command -v bash >/dev/null; then
    # complete WORD...: what bash offers for the last word
    cat >"$T/ask" <<'EOF'
. "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
compopt() { :; }
_xdit
printf '%s\n' "${COMPREPLY[@]}"
EOF
    ask() { bash "$T/ask" "$T/bash" "$@"; }
    check "bash: it is a script" bash -n "$T/bash"
    missing=
    for c in $commands; do
        ask xdit "$c" | grep -qx -- "$c" || missing="$missing $c"
        flags_of "$c" >"$T/flags"
        ask xdit "$c" -- | sort -u >"$T/offered"
        case $c in completion | man) continue ;; esac
        [ -s "$T/flags" ] || missing="$missing $c(no flags)"
        while read -r f; do grep -qx -- "$f" "$T/offered" || missing="$missing $c:$f"
        done <"$T/flags"
    done
    check "bash: commands and flags of all helps:$missing" [ -z "$missing" ]
    check "bash: commands by their first letters" [ "$(ask xdit gen)" = generate ]
    check "bash: a flag by its first letters" \
        [ "$(ask xdit generate --num_inf)" = --num_inference_steps ]
    check "bash: with dashes, too" [ "$(ask xdit generate --num-inf)" = --num_inference_steps ]
    check "bash: a value of a list" [ "$(ask xdit generate --dtype b)" = bf16 ]
    check "bash: behind an equals sign" [ "$(ask xdit generate --dtype = b)" = bf16 ]
    check "bash: a value with dashes in the flag" \
        [ "$(ask xdit generate --weights-dtype b)" = bf16 ]
    mkdir "$T/some-model" && : >"$T/some-file"
    check "bash: a directory" [ "$(ask xdit generate --model "$T/some-")" = "$T/some-model" ]
    check "bash: a file" [ "$(ask xdit generate --output "$T/some-f")" = "$T/some-file" ]
    check "bash: a number is not known" [ -z "$(ask xdit generate --seed '')" ]
    check "bash: shells" [ "$(ask xdit completion z)" = zsh ]
    check "bash: commands of man" [ "$(ask xdit man gen)" = generate ]
else
    echo "# skipped: there is no bash"
fi
for shell in zsh fish; do
    if command -v $shell >/dev/null; then
        check "$shell: it is a script" $shell -n "$T/$shell"
    else
        echo "# skipped: there is no $shell to read its file"
    fi
done
if command -v fish >/dev/null; then
    fish_says() {
        HOME=$T XDG_CONFIG_HOME=$T fish -c "source $T/fish; complete -C '$1'" | cut -f 1 |
            tr '\n' ' '
    }
    check "fish: a value of a list" [ "$(fish_says 'xdit generate --dtype b')" = 'bf16 ' ]
    check "fish: a command" [ "$(fish_says 'xdit gen')" = 'generate ' ]
    check "fish: a command of man" [ "$(fish_says 'xdit man prob')" = 'probe ' ]
fi
if command -v zsh >/dev/null && command -v python3 >/dev/null; then
    # zsh_says LINE: what a zsh at a terminal makes of the line and the tabulator
    mkdir "$T/functions" && cp "$T/zsh" "$T/functions/_xdit"
    zsh_says() { python3 "$ROOT/tests/cli/zsh_says.py" "$T/functions" "$1"; }
    check "zsh: a command" [ "$(zsh_says 'xdit gen')" = 'xdit generate ' ]
    check "zsh: a flag" [ "$(zsh_says 'xdit generate --num_inf')" = \
        'xdit generate --num_inference_steps=' ]
    check "zsh: a value of a list" [ "$(zsh_says 'xdit generate --dtype b')" = \
        'xdit generate --dtype bf16 ' ]
    check "zsh: a command of man" [ "$(zsh_says 'xdit man prob')" = 'xdit man probe ' ]
fi
missing=
for c in $commands; do
    for f in $(flags_of "$c"); do
        grep -q -- "seen_subcommand_from $c' -l ${f#--} " "$T/fish" || missing="$missing fish:$c:$f"
        awk -v c="  $c)" '$0 == c { on = 1 } on { print } on && /;;$/ { exit }' "$T/zsh" |
            grep -qE -- "'\*$f(=|\[)" || missing="$missing zsh:$c:$f"
    done
done
check "zsh and fish have them all:$missing" [ -z "$missing" ]
check "quotes are even in zsh's and fish's" [ "$(tr -cd "'" <"$T/zsh" | wc -c |
    awk '{ print $1 % 2 }')$(tr -cd "'" <"$T/fish" | wc -c | awk '{ print $1 % 2 }')" = 00 ]
done_testing

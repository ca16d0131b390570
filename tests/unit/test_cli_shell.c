/* test_cli_shell.c - scripts as a shell reads them: the words of every command that is asked for
 *
 * The expected words are those that bash gave to a program called torchrun. The beginnings of all
 * scripts must be read, or be refused in a sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/shell.h"

static const struct { const char *script, *words; } rows[] = {
    { "torchrun a \"b c\" 'd e' f\\ g",
      "a|b c|d e|f g|\n" },
    { "X=\"a b\"; torchrun $X \"$X\" '$X'",
      "a|b|a b|$X|\n" },
    { "X=1 Y=2; torchrun $X$Y ${X}${Y} \"${X} ${Y}\"",
      "12|12|1 2|\n" },
    { "torchrun \"$UNSET_A\" $UNSET_A x",
      "|x|\n" },
    { "torchrun ${U:-def} ${U-def} \"${U:-a b}\" ${U:-a b}",
      "def|def|a b|a|b|\n" },
    { "X=v; torchrun ${X:+yes} ${U:+no} ${X+y} end",
      "yes|y|end|\n" },
    { "X=; torchrun ${X:-d} ${X-d} \"${X-d}\" end",
      "d||end|\n" },
    { "X=file.tar.gz; torchrun ${X%.gz} ${X%%.*} ${X#*.} ${X##*.}",
      "file.tar|file|tar.gz|gz|\n" },
    { "X=/a/b/c.py; torchrun ${X##*/} ${X%/*} ${X/b/Q} ${X//\\//_}",
      "c.py|/a/b|/a/Q/c.py|_a_b_c.py|\n" },
    { "X=aXbXc; torchrun ${X//X/-} ${X/X/-} ${X//X}",
      "a-b-c|a-bXc|abc|\n" },
    { "X=Abc; torchrun ${X,,} ${X^^} ${X,} ${#X}",
      "abc|ABC|abc|3|\n" },
    { "A=(a \"b c\" d); torchrun \"${A[@]}\" ${A[1]} \"${A[1]}\" ${#A[@]} \"${A[*]}\"",
      "a|b c|d|b|c|b c|3|a b c d|\n" },
    { "A=(a b); A+=(\"c d\"); torchrun \"${A[@]}\" ${#A[@]}",
      "a|b|c d|3|\n" },
    { "A=(); torchrun \"${A[@]}\" end",
      "end|\n" },
    { "declare -A T=([a]=\"1 2\" [\"b c\"]=3); torchrun \"${T[a]}\" ${T[\"b c\"]} ${#T[@]}",
      "1 2|3|2|\n" },
    { "declare -A T; T[x]=1; T[y]=2; k=y; torchrun ${T[$k]} ${T[x]}",
      "2|1|\n" },
    { "torchrun $((1+2*3)) $(((1+2)*3)) $((7/2)) $((7%3)) $((-3+1))",
      "7|9|3|1|-2|\n" },
    { "N=4; M=3; torchrun $((N*M)) $(( $N + M )) $((N>M)) $((N==4 && M!=3))",
      "12|7|1|0|\n" },
    { "read -r a b c <<< \"1 2 3 4\"; torchrun $a $b \"$c\"",
      "1|2|3 4|\n" },
    { "IFS=, read -r a b <<< \"x,y z\"; torchrun \"$a\" \"$b\"",
      "x|y z|\n" },
    { "IFS=' ' read -r a b c <<< \"only two\"; torchrun \"$a\" \"$b\" \"[$c]\"",
      "only|two|[]|\n" },
    { "read -ra L <<< \"p q r\"; torchrun \"${L[@]}\" ${L[2]}",
      "p|q|r|r|\n" },
    { "for i in 1 2 \"3 4\"; do torchrun $i; done",
      "1|\n2|\n3|4|\n" },
    { "for i in {1..3}; do torchrun n$i; done",
      "n1|\nn2|\nn3|\n" },
    { "for i in 1 2 3; do if [ $i -eq 2 ]; then continue; fi; torchrun $i; done",
      "1|\n3|\n" },
    { "for i in 1 2 3; do [ $i = 3 ] && break; torchrun $i; done",
      "1|\n2|\n" },
    { "i=0; while [ $i -lt 3 ]; do torchrun $i; i=$((i+1)); done",
      "0|\n1|\n2|\n" },
    { "i=3; until [ $i -le 1 ]; do torchrun $i; i=$((i-1)); done",
      "3|\n2|\n" },
    { "if [ -z \"$U\" ]; then torchrun empty; else torchrun full; fi",
      "empty|\n" },
    { "if [[ -n $U && 1 -lt 2 ]]; then torchrun a; elif [[ abc == a* ]]; then torchrun b; e"
      "lse torchrun c; fi",
      "b|\n" },
    { "if [[ ! -v U ]] || false; then torchrun unset; fi",
      "unset|\n" },
    { "declare -A T=([k]=1); if [[ -v T[k] ]]; then torchrun has; fi; if [[ -v T[z] ]]; the"
      "n torchrun no; fi",
      "has|\n" },
    { "[ a = a ] && [ b != c ] && torchrun yes || torchrun no",
      "yes|\n" },
    { "false || torchrun or; true && torchrun and; ! false && torchrun not",
      "or|\nand|\nnot|\n" },
    { "case abc in x) torchrun x;; a*|b) torchrun ab;; *) torchrun star;; esac",
      "ab|\n" },
    { "case \"$U\" in \"\") torchrun none;; *) torchrun some;; esac",
      "none|\n" },
    { "f() { torchrun \"$1\" \"$2\" $# \"$@\"; }; f a \"b c\"",
      "a|b c|2|a|b c|\n" },
    { "f() { local x=$1; shift; torchrun $x \"$*\" $#; return; torchrun never; }; f 1 2 3",
      "1|2 3|2|\n" },
    { "function g { torchrun g \"$@\"; }; g x",
      "g|x|\n" },
    { "g() { for x in \"$@\"; do torchrun \"$x\"; done; }; g 1 \"2 3\"",
      "1|\n2 3|\n" },
    { "set -- p \"q r\"; torchrun \"$@\" $# $1 \"$2\"",
      "p|q r|2|p|q r|\n" },
    { "CMD=\"torchrun a b\"; $CMD c; eval \"$CMD 'd e'\"",
      "a|b|c|\na|b|d e|\n" },
    { "torchrun a \\\n  b \\\n  c",
      "a|b|c|\n" },
    { "torchrun a # comment",
      "a|\n" },
    { "torchrun a#b '#c' \"#d\"",
      "a#b|#c|#d|\n" },
    { "cat <<EOF2 >/dev/null\ntorchrun inside \"\nEOF2",
      "" },
    { "torchrun after",
      "after|\n" },
    { "cat <<-'EOF2' >/dev/null\n\ttorchrun inside\n\tEOF2",
      "" },
    { "torchrun after",
      "after|\n" },
    { "torchrun a > /dev/stdout 2>&1",
      "a|\n" },
    { "torchrun x 2>/dev/null | cat",
      "x|\n" },
    { "(torchrun sub; torchrun shell)",
      "sub|\nshell|\n" },
    { "{ torchrun g1; torchrun g2; }",
      "g1|\ng2|\n" },
    { "X='a\"b'; torchrun \"$X\" \"c\\\"d\" \"e\\$f\" \"g\\\\h\"",
      "a\"b|c\"d|e$f|g\\h|\n" },
    { "torchrun \"multi\nline\"",
      "multi\nline|\n" },
    { "torchrun $'a\\tb' $'it\\'s'",
      "a\tb|it's|\n" },
    { "X=one; Y=\"two $X three\"; torchrun $Y \"$Y\"",
      "two|one|three|two one three|\n" },
    { "X=a; X+=b; X=\"$X\"c; torchrun $X",
      "abc|\n" },
    { "torchrun a;torchrun b&& torchrun c",
      "a|\nb|\nc|\n" },
    { "export A=1 B=\"2 3\"; torchrun $A \"$B\"",
      "1|2 3|\n" },
    { "unset Z; Z=5; unset Z; torchrun \"[$Z]\"",
      "[]|\n" },
    { "X=\"--flag=a b\"; torchrun --k=\"$X\" --k=$X",
      "--k=--flag=a b|--k=--flag=a|b|\n" },
    { "torchrun \"${U:=set}\" $U",
      "set|set|\n" },
    { "A=(1 2 3); for x in \"${A[@]}\"; do torchrun $x; done",
      "1|\n2|\n3|\n" },
    { "A=([2]=c [0]=a); torchrun ${A[0]} \"${A[1]}\" ${A[2]} ${#A[@]}",
      "a||c|2|\n" },
    { "X=\"a   b\"; torchrun $X \"$X\"",
      "a|b|a   b|\n" },
    { "torchrun '' \"\" end",
      "||end|\n" },
    { "N=2; (( N > 1 )) && torchrun big; (( N > 5 )) || torchrun small",
      "big|\nsmall|\n" },
    { "[[ a < b ]] && torchrun lt; [[ 10 -gt 9 ]] && torchrun gt",
      "lt|\ngt|\n" },
    { "if [ \"$U\" = \"x\" -o 1 -eq 1 ]; then torchrun o; fi",
      "o|\n" },
    { "test 1 -eq 1 && torchrun t",
      "t|\n" },
    { "X=5; torchrun ${X}0 $X-$X ${X}.$X",
      "50|5-5|5.5|\n" },
    { "V=N; N=7; torchrun ${!V}",
      "7|\n" },
    { "declare -A T=([a]=1); torchrun \"${!T[@]}\"",
      "a|\n" },
    { "if true; then if false; then torchrun a; else torchrun b; fi; fi",
      "b|\n" },
    { "for a in 1 2; do for b in x y; do [ $b = y ] && continue; torchrun $a$b; done; done",
      "1x|\n2x|\n" },
    { "x=1; if [ $x -eq 1 ]\nthen\n  torchrun nl\nfi",
      "nl|\n" },
    { "torchrun \"a$((1+1))b\" a$((1+1))b",
      "a2b|a2b|\n" },
    { "while read l; do torchrun $l; done < /dev/null; torchrun z",
      "z|\n" },
    { "X=$'l1\\nl2'; torchrun $X \"$X\"",
      "l1|l2|l1\nl2|\n" },
    { "time torchrun t",
      "t|\n" },
    { "torchrun a\\\nb",
      "ab|\n" },
};
enum { NROWS = sizeof rows / sizeof *rows };

static int wanted(int n, char **w)
{
    (void)n;
    return strcmp(w[0], "torchrun") == 0;
}

static xd_status read_words(const char *script, xd_text_buf *b, xd_err *e)
{
    xd_shell  s = { .wanted = wanted };
    xd_status st = xd_shell_read(&s, script, 0, NULL, e);
    xd_buf_add(b, "%s", "");
    for (int i = 0; i < s.n; i++) {
        for (int k = 1; k < s.command[i].n; k++)
            xd_buf_add(b, "%s|", s.command[i].word[k]);
        xd_buf_add(b, "\n");
    }
    xd_shell_free(&s);
    return st;
}

static void as_bash_does(void **state)
{
    (void)state;
    for (int i = 0; i < NROWS; i++) {
        xd_text_buf b = { 0 };
        xd_err      e = { 0 };
        xd_status   st = read_words(rows[i].script, &b, &e);
        if (st != XD_OK || strcmp(b.p, rows[i].words) != 0)
            print_message("%s\n%s\n", rows[i].script, e.msg);
        assert_int_equal(st, XD_OK);
        assert_string_equal(b.p, rows[i].words);
        xd_buf_free(&b);
    }
}

static void beginnings_end(void **state)
{
    (void)state;
    for (int i = 0; i < NROWS; i++)
        for (size_t n = 0; rows[i].script[n]; n++) {
            xd_text_buf b = { 0 };
            xd_err      e = { 0 };
            char       *part = strndup(rows[i].script, n);
            xd_status   st = read_words(part, &b, &e);
            assert_true(st == XD_OK || (st == XD_EINVAL && e.msg[0]));
            xd_buf_free(&b);
            free(part);
        }
}

/* What is said about variables that nothing sets, and what only a command can know. */
static void lacks_are_named(void **state)
{
    (void)state;
    static const char script[] = "A=$X/b; B=$(date); torchrun $A $B $Y $PYTHONPATH \"$Z\" "
                                 "$Y ${W:-w}";
    xd_shell s = { .wanted = wanted };
    xd_err   e = { 0 };
    assert_int_equal(xd_shell_read(&s, script, 0, NULL, &e), XD_OK);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.unset, "$X, $Y, $Z");
    assert_int_equal(s.command[0].n, 5);
    assert_string_equal(s.command[0].word[2], "$(date)");
    assert_true(xd_shell_has_substitution(&s, s.command[0].word[2]));
    assert_false(xd_shell_has_substitution(&s, s.command[0].word[1]));
    assert_string_equal(xd_shell_env(&s.command[0], "A"), "/b");
    xd_shell_free(&s);
}

static void arguments_are_taken(void **state)
{
    (void)state;
    char    *args[] = { (char *)"one", (char *)"two words" };
    xd_shell s = { .wanted = wanted };
    xd_err   e = { 0 };
    assert_int_equal(xd_shell_read(&s, "torchrun $# $2 \"$@\" ${3:-three}", 2, args, &e), XD_OK);
    assert_int_equal(s.command[0].n, 7);
    assert_string_equal(s.command[0].word[1], "2");
    assert_string_equal(s.command[0].word[5], "two words");
    assert_string_equal(s.command[0].word[6], "three");
    xd_shell_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_bash_does),
        cmocka_unit_test(beginnings_end),
        cmocka_unit_test(lacks_are_named),
        cmocka_unit_test(arguments_are_taken),
    };
    return cmocka_run_group_tests_name("cli_shell", tests, NULL, NULL);
}

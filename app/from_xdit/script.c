/* script.c - splits a text into commands as a shell does; see script.h */
#include "from_xdit/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/word_list.h"

enum {
    MAX_WORDS = 8192,
    MAX_WORD = 256 << 10,
    UNREAD = 1
}; /* UNREAD: byte that marks the beginning of a shell expansion that is kept as text instead of
      being evaluated */

#define ENDS " \t\r\n;&|<>()"   /* the characters that end a word, unless they are quoted */

typedef struct reader {
    xd_script  *s;
    const char *p;        /* the text of the script that has not been read yet */
    xd_words    vars;     /* the variables of the script, as "NAME=value" */
    xd_words    words;    /* the words of the current command */
    xd_text_buf buf;      /* the word that is being parsed */
    int         in_word;  /* 1: a word has begun, even if it is empty */
    int         in_value; /* 1: the current word is the value of an assignment */
    char       *unset;    /* unset variables that the command uses: "$A, $B"; NULL: none */
    int         depth;    /* number of open blocks (loops, conditions, functions) */
    char        block[8]; /* reserved word of the outermost block: "for" */
    xd_err     *e;
    xd_status   st;
} reader;

/* ---- words ----------------------------------------------------------------------------------- */

static void append_word(reader *x, xd_words *w, const char *text)
{
    char **more = w->n < MAX_WORDS ? realloc(w->v, (size_t)(w->n + 1) * sizeof *more) : NULL;
    w->v = more ? more : w->v;
    if (more && (more[w->n] = strdup(text)))
        w->n++;
    else
        x->st =
            xd_fail(x->e, XD_EINVAL, "a command of the script has more than %d words", MAX_WORDS);
}

static void drop_words(xd_words *w, int from)
{
    while (w->n > from)
        free(w->v[--w->n]);
}

static void put_text(reader *x, const char *p, size_t n)
{
    x->in_word = 1;
    if (x->buf.len + n <= MAX_WORD)
        xd_buf_add(&x->buf, "%.*s", (int)n, p);
    else
        x->st = xd_fail(x->e, XD_EINVAL, "a word of the script exceeds 256 KB");
}

static void end_word(reader *x)
{
    if (x->buf.failed)
        x->st = xd_fail(x->e, XD_ENOMEM, "no memory for a script");
    else if (x->in_word && x->st == XD_OK)
        append_word(x, &x->words, x->buf.p ? x->buf.p : "");
    xd_buf_free(&x->buf);
    x->in_word = 0;
}

const char *xd_script_unread(const char *word)
{
    const char *at = strchr(word, UNREAD);
    return at ? at + 1 : NULL;
}

static size_t name_length(const char *s)
{
    return *s >= '0' && *s <= '9'
               ? 0
               : strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
}

/* Returns the end of a text in brackets or quotes that begins at p; NULL: the bracket or quote is
 * not closed. */
static const char *find_end(const char *p)
{
    const char open = *p, close = open == '(' ? ')' : open == '{' ? '}' : open;
    int        depth = 1;
    while (*++p) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == close && --depth == 0)
            return p + 1;
        else if (*p == open)
            depth++;
        else if (open != close && (*p == '\'' || *p == '"') && !(p = strchr(p + 1, *p)))
            return NULL;
    }
    return NULL;
}

/* Appends the text of an unsupported expansion to the word. x->p points to the first character of
 * the shell expansion, and p to the expansion's bracket, quote or letter. */
static void put_unread(reader *x, const char *p)
{
    const char *end = strchr("({'`", *p) ? find_end(p) : p + 1;
    if (!end) {
        x->st = xd_fail(x->e, XD_EINVAL, "a quote or bracket is not closed: %.40s", x->p);
        return;
    }
    put_text(x, (char[]){ UNREAD }, 1);
    put_text(x, x->p, (size_t)(end - x->p));
    x->p = end;
}

/* ---- variables ------------------------------------------------------------------------------- */

/* Returns the entry "NAME=value" of a shell variable; NULL: the script has not set the variable. */
static char **find_variable(const reader *x, const char *name, size_t n)
{
    for (int i = 0; i < x->vars.n; i++)
        if (!strncmp(x->vars.v[i], name, n) && x->vars.v[i][n] == '=')
            return &x->vars.v[i];
    return NULL;
}

/* Sets a shell variable. If `value` is NULL, the value is unknown, because only running the script
 * would determine it. Words that use a variable of unknown value keep the text $NAME. */
static void set_variable(reader *x, const char *name, size_t n, const char *value)
{
    xd_text_buf b = { 0 };
    char      **old = find_variable(x, name, n);
    xd_buf_add(&b, "%.*s=", (int)n, name);
    if (value)
        xd_buf_add(&b, "%s", value);
    else
        xd_buf_add(&b, "%c$%.*s", UNREAD, (int)n, name);
    if (!old) {
        append_word(x, &x->vars, b.p ? b.p : "");
        xd_buf_free(&b);
    } else if (b.p) {
        free(*old);
        *old = b.p;
    }
}

static void note_unset(char **list, const char *name, int n)
{
    xd_text_buf b = { 0 };
    char        key[64];
    snprintf(key, sizeof key, "$%.*s", n, name);
    if (*list && xd_list_has(*list, key))
        return;
    xd_buf_add(&b, "%s%s%s", *list ? *list : "", *list ? ", " : "", key);
    free(*list);
    *list = b.p;
}

static void put_value(reader *x, const char *v, int split)
{
    for (split = split && !xd_script_unread(v); *v;) {
        size_t n = split ? strcspn(v, " \t\n") : strlen(v);
        if (n)
            put_text(x, v, n);
        v += n;
        if (*v)
            end_word(x);
        v += strspn(v, " \t\n");
    }
}

/* Expands $NAME or ${NAME} at a dollar sign; keeps the text of other expansions. */
static void read_dollar(reader *x, int quoted)
{
    const char *p = x->p + 1;
    size_t      braces = *p == '{', n = name_length(p + braces);
    char      **v = n ? find_variable(x, p + braces, n) : NULL;
    if (n && (!braces || p[1 + n] == '}') && (v || !x->in_value)) {
        x->p = p + n + 2 * braces;
        if (v)
            put_value(x, *v + n + 1, !quoted && !x->in_value);
        else
            note_unset(&x->unset, p + braces, (int)n);
    } else if (n && !braces) {
        put_unread(x, p + n - 1);
    } else if (*p && (strchr("({@*#?!$-0123456789", *p) || (*p == '\'' && !quoted))) {
        put_unread(x, p);
    } else {
        put_text(x, x->p++, *p != '"' || quoted);
    }
}

/* Reads the word at x->p and appends it to the command. If the value of a variable is split at
 * spaces, several words are appended. */
static void read_word(reader *x)
{
    const char *from = x->p;
    int         quoted = 0;
    while (x->st == XD_OK && *x->p && (quoted || !strchr(ENDS, *x->p))) {
        size_t      n = strcspn(x->p, quoted ? "\"\\$`" : ENDS "'\"\\$`");
        const char *end = *x->p == '\'' ? strchr(x->p + 1, '\'') : NULL;
        if (n) {
            put_text(x, x->p, n);
            x->p += n;
        } else if (*x->p == '"') {
            quoted = !quoted;
            x->in_word = 1;
            x->p++;
        } else if (end) {
            put_text(x, x->p + 1, (size_t)(end - x->p) - 1);
            x->p = end + 1;
        } else if (*x->p == '\\') {
            x->p += 1 + (x->p[1] == '\r' && x->p[2] == '\n');
            if (quoted && !strchr("\"\\$`\n", *x->p))
                put_text(x, "\\", 1);
            put_text(x, x->p, *x->p && *x->p != '\n');
            x->p += *x->p != 0;
        } else if (*x->p == '$') {
            read_dollar(x, quoted);
        } else {
            put_unread(x, x->p);
        }
    }
    if (quoted && x->st == XD_OK)
        x->st = xd_fail(x->e, XD_EINVAL, "a quote is not closed: %.40s", from);
    end_word(x);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Skips spaces within a line, and a backslash at the end of a line that continues on the next
 * line. */
static void skip_blanks(reader *x)
{
    for (size_t n = 1; n; x->p += n) {
        n = strspn(x->p, " \t\r");
        n += !strncmp(x->p + n, "\\\n", 2) ? 2 : !strncmp(x->p + n, "\\\r\n", 3) ? 3 : 0;
    }
}

/* Skips a redirection such as > FILE, 2>&1 or <<< WORD; returns 0 if no redirection begins at
 * x->p. */
static int skip_redirection(reader *x)
{
    const char *p = x->p + strspn(x->p, "0123456789"), *end;
    int         n = x->words.n;
    if (*p != '<' && *p != '>' && strncmp(x->p, "&>", 2) != 0)
        return 0;
    x->p = p + strspn(p, "<>&");
    skip_blanks(x);
    if (*x->p == '(' && (end = find_end(x->p)))
        x->p = end;
    read_word(x);
    drop_words(&x->words, n);
    return 1;
}

/* Reads an assignment NAME=VALUE; returns 0 if no assignment begins at x->p. The value of an array,
 * of NAME+=VALUE, or of an assignment within a block is known only to a shell; words that use a
 * variable with an unknown value keep the text $NAME. */
static int read_assignment(reader *x)
{
    const char *name = x->p, *end;
    size_t      n = name_length(name), sign = n + (name[n] == '[' ? strcspn(name + n, "=\n") : 0);
    int         words = x->words.n;
    sign += name[sign] == '+';
    if (!n || name[sign] != '=')
        return 0;
    x->p = name + sign + 1;
    int plain = sign == n && *x->p != '(' && !x->depth;
    if (*x->p == '(' && (end = find_end(x->p)))
        x->p = end;
    x->in_value = x->in_word = 1;
    read_word(x);
    x->in_value = 0;
    if (x->words.n > words)
        set_variable(x, name, n, plain ? x->words.v[words] : NULL);
    drop_words(&x->words, words);
    return 1;
}

/* If the next word is a reserved word of the shell such as "for" or "done", skips the word, updates
 * the number of open loops, conditions and functions, and returns 1. */
static int read_reserved(reader *x)
{
    char   word[8];
    size_t n = strcspn(x->p, ENDS);
    snprintf(word, sizeof word, "%.*s", n < sizeof word ? (int)n : 0, x->p);
    if (xd_list_has("if while until { for select case", word) && !x->depth++)
        memcpy(x->block, word, sizeof word);
    x->depth -= x->depth && xd_list_has("fi done esac }", word);
    if (!xd_list_has("if while until { fi done esac } then do else elif ! + ++ +++ $ echo", word))
        return 0;
    x->p += n;
    return 1;
}

static void keep_command(reader *x)
{
    xd_command_line *more = realloc(x->s->command, (size_t)(x->s->n + 1) * sizeof *more);
    char           **v = find_variable(x, "CUDA_VISIBLE_DEVICES", 20);
    if (x->depth)
        x->st =
            xd_fail(x->e, XD_EINVAL,
                    "the script starts xDiT within '%s', which is not evaluated: " XD_SCRIPT_CURE,
                    x->block);
    else if (!more)
        x->st = xd_fail(x->e, XD_ENOMEM, "no memory for a script");
    x->s->command = more ? more : x->s->command;
    if (x->st != XD_OK)
        return;
    more[x->s->n++] = (xd_command_line){ x->words, v ? strdup(*v + 21) : NULL };
    x->words = (xd_words){ 0 };
    if (x->unset && !x->s->unset)
        x->s->unset = x->unset, x->unset = NULL;
}

/* Handles the end of a command of the script. If `wanted` returns 1 for the command, appends it to
 * the collected commands. If `wanted` returns 0, records the shell variables that the command sets,
 * and keeps the text of the first such command. */
static void end_command(reader *x)
{
    const xd_words *w = &x->words;
    int             read = w->n && xd_list_has("read mapfile readarray", w->v[0]);
    int             sets = read ? w->n : w->n > 1 && xd_list_has("for select", w->v[0]) ? 2 : 0;
    xd_text_buf     b = { 0 };
    for (int i = 1; i < sets; i++)
        set_variable(x, w->v[i], strlen(w->v[i]), NULL);
    if (w->n && x->s->wanted(w->n, w->v)) {
        keep_command(x);
    } else if (w->n && !x->s->other && !x->depth) {
        for (int i = 0; i < w->n; i++)
            xd_buf_add(&b, "%s%s", i ? " " : "", w->v[i]);
        x->s->other = b.p;
    }
    drop_words(&x->words, 0);
    free(x->unset);
    x->unset = NULL;
}

static void read_command(reader *x)
{
    static const char declares[] = "export declare local readonly typeset";
    for (skip_blanks(x); x->st == XD_OK && *x->p && !strchr("#\n;|()", *x->p); skip_blanks(x)) {
        const char *first = x->words.n ? x->words.v[0] : "";
        int         begins = !x->words.n || (x->words.n == 1 && !strcmp(first, "env"));
        if (skip_redirection(x))
            continue;
        if (*x->p == '&')
            return;
        if ((begins || xd_list_has(declares, first)) && read_assignment(x))
            continue;
        if (!(begins || !strcmp(first, "function")) || !read_reserved(x))
            read_word(x);
    }
    if (x->words.n && xd_list_has(declares, x->words.v[0]))
        drop_words(&x->words, 0);
}

/* ---- interface ------------------------------------------------------------------------------- */

static xd_status end_script(reader *x)
{
    if (x->st == XD_OK)
        end_command(x);
    drop_words(&x->words, 0);
    drop_words(&x->vars, 0);
    free(x->words.v);
    free(x->vars.v);
    free(x->unset);
    return x->st;
}

xd_status xd_script_read(xd_script *s, const char *text, xd_err *e)
{
    reader x = { .s = s, .p = text, .e = e };
    while (x.st == XD_OK && *x.p) {
        read_command(&x);
        if (x.st == XD_OK)
            end_command(&x);
        x.p += *x.p == '#' ? strcspn(x.p, "\n") : *x.p != 0;
    }
    return end_script(&x);
}

xd_status xd_script_read_words(xd_script *s, int argc, char **argv, xd_err *e)
{
    reader x = { .s = s, .e = e };
    for (int i = 0; i < argc && x.st == XD_OK; i++) {
        size_t n = x.words.n ? 0 : name_length(argv[i]);
        if (n && argv[i][n] == '=')
            set_variable(&x, argv[i], n, argv[i] + n + 1);
        else
            append_word(&x, &x.words, argv[i]);
    }
    return end_script(&x);
}

void xd_script_free(xd_script *s)
{
    for (int i = 0; i < s->n; i++) {
        drop_words(&s->command[i].words, 0);
        free(s->command[i].words.v);
        free(s->command[i].devices);
    }
    free(s->command);
    free(s->unset);
    free(s->other);
    *s = (xd_script){ 0 };
}

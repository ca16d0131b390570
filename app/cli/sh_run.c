/* sh_run.c - runs commands of a script: builtins, functions, and collects wanted ones */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/word_list.h"
#include "cli/sh.h"

enum { DEEPEST = 64 };

/* ---- known commands -------------------------------------------------------------------------- */

const char sh_prefixes[] = "export declare local readonly typeset env + $ ++ +++";
static const char aside[] =
    "cd mkdir source . echo printf ulimit sleep wait module nvidia-smi rocm-smi tee "
    "cat ls rm cp mv touch grep awk sed tail head date hostname pwd ssh scp kill pkill trap "
    "true : alias pushd popd git hf huggingface-cli wget unzip tar nvcc clear ray";

static void read_builtin(sh *x, int n, char **w)
{
    const char *ifs = sh_value(sh_find(x, "IFS", 3), "0"), *p = x->here ? x->here : "";
    int         i = 1, array = 0;
    for (; i < n && w[i][0] == '-'; i++) {
        array |= strchr(w[i], 'a') != NULL;
        i += strlen(w[i]) == 2 && strchr("pndtu", w[i][1]) ? 1 : 0;
    }
    x->status = !x->here;
    ifs = ifs && *ifs ? ifs : " \t\n";
    sh_list parts = { 0 };
    for (int k = i; *(p += strspn(p, ifs)); k++) {
        size_t len = !array && k >= n - 1 ? strlen(p) : strcspn(p, ifs);
        char  *part = strndup(p, len);
        p += len;
        if (!part)
            break;
        if (!array && k >= n - 1)
            while (len && strchr(" \t\r\n", part[len - 1]))
                part[--len] = 0;
        sh_append(x, &parts, part);
        free(part);
    }
    if (array && i < n)
        sh_set_list(x, w[i], parts.n, parts.v);
    for (int k = 0; !array && i + k < n; k++)
        sh_set(x, w[i + k], k < parts.n ? parts.v[k] : "");
    sh_drop(&parts);
}

static void set_builtin(sh *x, int n, char **w)
{
    for (int i = 1; i < n; i++)
        if (strcmp(w[i], "--") == 0) {
            sh_set_list(x, "@", n - i - 1, w + i + 1);
            return;
        }
}

static void shift_arguments(sh *x, int by)
{
    sh_var *v = sh_find(x, "@", 1);
    sh_list kept = { 0 };
    for (int i = by; v && i < v->value.n; i++)
        sh_append(x, &kept, v->value.v[i]);
    sh_set_list(x, "@", kept.n, kept.v);
    sh_drop(&kept);
}

static char *join_words(int n, char **w)
{
    xd_text_buf b = { 0 };
    for (int i = 0; i < n; i++)
        xd_buf_add(&b, "%s%s", i ? " " : "", w[i]);
    return b.p;
}

/* Runs a text with its own arguments: the body of a function, or a script. */
static void call_text(sh *x, const char *text, const char *stop, int n, char **w)
{
    const char   *p = x->p;
    const sh_var *v = sh_find(x, "@", 1);
    sh_list       kept = { 0 };
    for (int i = 0; v && i < v->value.n; i++)
        sh_append(x, &kept, v->value.v[i]);
    sh_set_list(x, "@", n, w);
    x->p = text;
    if (++x->depth > DEEPEST)
        x->st = xd_fail(x->e, XD_EINVAL, "the script calls itself recursively without end");
    else
        sh_list_run(x, stop);
    x->depth--;
    x->jump = 0;
    x->p = p;
    sh_set_list(x, "@", kept.n, kept.v);
    sh_drop(&kept);
}

/* Removes the functions of a text when it is freed. */
static void forget_names(sh *x, int funs)
{
    while (x->funs.n > funs)
        free(x->funs.v[--x->funs.n]);
}

static void run_text(sh *x, const char *text)
{
    const char *p = x->p;
    int         funs = x->funs.n;
    x->p = text;
    if (++x->depth > DEEPEST)
        x->st = xd_fail(x->e, XD_EINVAL, "the script calls itself recursively without end");
    else
        sh_list_run(x, "");
    x->depth--;
    x->p = p;
    forget_names(x, funs);
}

/* bash FILE ARGUMENTS; bash -c TEXT */
static void run_shell(sh *x, int n, char **w)
{
    char  *text = NULL;
    size_t len;
    int    i = 1, funs = x->funs.n;
    while (i < n && w[i][0] == '-' && strcmp(w[i], "-c") != 0)
        i++;
    if (i + 1 < n && strcmp(w[i], "-c") == 0)
        run_text(x, w[i + 1]);
    else if (i < n && xd_file_exists(w[i]) &&
             xd_file_read(w[i], XD_SHELL_BYTES, &text, &len, x->e) == XD_OK)
        call_text(x, text, "", n - i - 1, w + i + 1);
    else if (i < n && !x->s->n)
        x->st =
            xd_fail(x->e, XD_EINVAL,
                    "cannot find the script %.200s: give its text, or the path of the file",
                    w[i]);
    forget_names(x, funs);
    free(text);
}

/* ---- a simple command ------------------------------------------------------------------------ */

static void keep_arguments(sh *x, int n, char **w)
{
    sh_list words = { 0 }, env = { 0 };
    if (x->s->n == XD_SHELL_COMMANDS) {
        x->st = xd_fail(x->e, XD_EINVAL,
                        "the script starts xDiT more than %d times: give one of the commands",
                        XD_SHELL_COMMANDS);
        return;
    }
    for (int i = 0; i < n; i++)
        sh_append(x, &words, w[i]);
    for (int i = 0; i < x->nvars; i++) {
        const char *v = sh_value(&x->vars[i], "0");
        xd_text_buf b = { 0 };
        if (v && strlen(v) < 1024 && strcmp(x->vars[i].name, "@") != 0) {
            xd_buf_add(&b, "%s=%s", x->vars[i].name, v);
            sh_append(x, &env, b.p ? b.p : "");
        }
        xd_buf_free(&b);
    }
    if (x->unset) {
        sh_note_unset(x, x->s->unset ? x->s->unset : "");
        free(x->s->unset);
        x->s->unset = x->unset;
        x->unset = NULL;
    }
    x->s->command[x->s->n++] =
        (xd_command_line) { .n = words.n, .word = words.v, .nenv = env.n, .env = env.v };
}

/* Runs a builtin that changes the state; returns 0 for other commands. */
static int run_builtin(sh *x, int n, char **w)
{
    if (!strcmp(w[0], "read"))
        read_builtin(x, n, w);
    else if (!strcmp(w[0], "set"))
        set_builtin(x, n, w);
    else if (!strcmp(w[0], "shift"))
        shift_arguments(x, n > 1 ? atoi(w[1]) > 0 ? atoi(w[1]) : 1 : 1);
    else if (!strcmp(w[0], "exit"))
        x->stop = x->s->exited = 1;
    else if (!strcmp(w[0], "return"))
        x->jump = 3;
    else if (!strcmp(w[0], "break"))
        x->jump = 2;
    else if (!strcmp(w[0], "continue"))
        x->jump = 1;
    else if (!strcmp(w[0], "false"))
        x->status = 1;
    else if (!strcmp(w[0], "test"))
        x->status = !sh_true(x, n - 1, w + 1, 0);
    else if (!strcmp(w[0], "["))
        x->status = !sh_true(x, n - 1 - !strcmp(w[n - 1], "]"), w + 1, 0);
    else
        return 0;
    return 1;
}

static void unset_names(sh *x, int n, char **w)
{
    for (int i = 1; i < n; i++)
        sh_unset(x, w[i]);
}

static int function_of(const sh *x, const char *name)
{
    for (int i = x->funs.n - 1; i >= 0; i--)
        if (strcmp(x->funs.v[i], name) == 0)
            return i;
    return -1;
}

/* Returns 1 for conda activate NAME, which does not matter here. */
static int is_activation(int n, char **w)
{
    return n > 1 && xd_list_has("conda mamba", w[0]) && strcmp(w[1], "activate") == 0;
}

void sh_run_words(sh *x, int n, char **w)
{
    int declares = 0, fun;
    while (n && xd_list_has(sh_prefixes, w[0])) {
        declares |= !xd_list_has("env $ + ++ +++", w[0]);
        n--, w++;
    }
    while (n > 1 && xd_list_has("time nohup exec sudo command", w[0]))
        n--, w++;
    x->status = 0;
    if (!n || declares || run_builtin(x, n, w))
        return;
    char *line = join_words(n, w);
    if ((fun = function_of(x, w[0])) >= 0)
        call_text(x, x->body[fun], "}", n - 1, w + 1);
    else if (!strcmp(w[0], "unset"))
        unset_names(x, n, w);
    else if (!strcmp(w[0], "eval") && line)
        run_text(x, line + strlen("eval"));
    else if (xd_list_has("bash sh zsh /bin/bash /bin/sh", w[0]))
        run_shell(x, n, w);
    else if (x->s->wanted(n, w))
        keep_arguments(x, n, w);
    else if (!xd_list_has(aside, w[0]) && !is_activation(n, w) && !x->s->other)
        x->s->other = line, line = NULL;
    free(line);
}

/* Runs the current words. They are moved away first, because running may read other commands. */
void sh_run(sh *x)
{
    sh_list w = x->words;
    char   *here = x->here;
    x->words = (sh_list){ 0 };
    if (sh_live(x) && w.n)
        sh_run_words(x, w.n, w.v);
    if (sh_live(x) && w.n)
        sh_unset(x, "IFS");
    sh_drop(&w);
    if (x->here == here) {
        free(here);
        x->here = NULL;
    }
}

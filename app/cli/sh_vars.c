/* sh_vars.c - variables of a script */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"
#include "cli/sh.h"

static void no_memory(sh *x)
{
    x->st = xd_fail(x->e, XD_ENOMEM, "no memory for a script");
}

void sh_append(sh *x, sh_list *l, const char *text)
{
    if (l->n == l->cap) {
        char **q = realloc(l->v, (size_t)(l->cap * 2 + 16) * sizeof *q);
        if (!q) {
            no_memory(x);
            return;
        }
        l->v = q;
        l->cap = l->cap * 2 + 16;
    }
    char *copy = strdup(text);
    if (copy)
        l->v[l->n++] = copy;
    else
        no_memory(x);
}

void sh_drop(sh_list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
    *l = (sh_list){ 0 };
}

size_t sh_name_length(const char *s)
{
    size_t n = 0;
    if (!isalpha((unsigned char)s[0]) && s[0] != '_')
        return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

sh_var *sh_find(sh *x, const char *name, size_t n)
{
    for (int i = 0; i < x->nvars; i++)
        if (strncmp(x->vars[i].name, name, n) == 0 && !x->vars[i].name[n])
            return &x->vars[i];
    return NULL;
}

sh_var *sh_make(sh *x, const char *name, size_t n)
{
    sh_var *v = sh_find(x, name, n);
    if (v)
        return v;
    if (x->nvars == x->capvars) {
        sh_var *q = realloc(x->vars, (size_t)(x->capvars * 2 + 32) * sizeof *q);
        if (!q) {
            no_memory(x);
            return NULL;
        }
        x->vars = q;
        x->capvars = x->capvars * 2 + 32;
    }
    char *copy = strndup(name, n);
    if (!copy) {
        no_memory(x);
        return NULL;
    }
    x->vars[x->nvars] = (sh_var){ .name = copy };
    return &x->vars[x->nvars++];
}

static int index_of(const sh_var *v, const char *key)
{
    for (int i = 0; i < v->key.n; i++)
        if (strcmp(v->key.v[i], key) == 0)
            return i;
    return -1;
}

const char *sh_value(const sh_var *v, const char *key)
{
    int i = v ? index_of(v, key) : -1;
    return i < 0 ? NULL : v->value.v[i];
}

void sh_put_value(sh *x, sh_var *v, const char *key, const char *text, int add)
{
    int i = index_of(v, key);
    if (i < 0) {
        sh_append(x, &v->key, key);
        if (x->st == XD_OK)
            sh_append(x, &v->value, text);
        return;
    }
    size_t before = add ? strlen(v->value.v[i]) : 0, n = strlen(text);
    char  *joined = malloc(before + n + 1);
    if (!joined) {
        no_memory(x);
        return;
    }
    memcpy(joined, v->value.v[i], before);
    memcpy(joined + before, text, n + 1);
    free(v->value.v[i]);
    v->value.v[i] = joined;
}

void sh_set(sh *x, const char *name, const char *text)
{
    sh_var *v = sh_make(x, name, strlen(name));
    if (!v)
        return;
    free(v->unset);
    v->unset = x->unset ? strdup(x->unset) : NULL;
    sh_put_value(x, v, "0", text, 0);
}

void sh_set_list(sh *x, const char *name, int n, char **values)
{
    char    key[16];
    sh_var *v = sh_make(x, name, strlen(name));
    if (!v)
        return;
    sh_drop(&v->key);
    sh_drop(&v->value);
    for (int i = 0; i < n && x->st == XD_OK; i++) {
        snprintf(key, sizeof key, "%d", i);
        sh_put_value(x, v, key, values[i], 0);
    }
}

static void clear_var(sh_var *v)
{
    free(v->name);
    free(v->unset);
    sh_drop(&v->key);
    sh_drop(&v->value);
}

void sh_unset(sh *x, const char *name)
{
    sh_var *v = sh_find(x, name, strlen(name));
    if (!v)
        return;
    clear_var(v);
    *v = x->vars[--x->nvars];
}

void sh_vars_free(sh *x)
{
    for (int i = 0; i < x->nvars; i++)
        clear_var(&x->vars[i]);
    free(x->vars);
}

void sh_note_unset(sh *x, const char *names)
{
    xd_text_buf b = { 0 };
    if (x->unset)
        xd_buf_add(&b, "%s", x->unset);
    for (const char *p = names; *p; p += strspn(p, ", ")) {
        size_t n = strcspn(p, ", ");
        if (!xd_list_has_n(b.p ? b.p : "", p, n) && b.len < 4096)
            xd_buf_add(&b, "%s%.*s", b.len ? ", " : "", (int)n, p);
        p += n;
    }
    free(x->unset);
    x->unset = b.p;
    if (b.failed)
        no_memory(x);
}

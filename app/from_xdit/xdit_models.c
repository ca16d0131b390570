/* xdit_models.c - finds a model of xDiT by name; lists sizes and registered names of models that
 * xdit does not support */
#include "from_xdit/xdit_models.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static const xd_xdit_net nets[] = {
    { "ConsisID", 48, 42, 0 },
    { "Cosmos3", 32, 36, 0 },
    { .name = NULL },
};

static const xd_xdit_name registered[] = {
    { "Cosmos3-Super", "nvidia/Cosmos3-Super" },
    { "Cosmos3-Nano", "nvidia/Cosmos3-Nano" },
    { "Ideogram-4", "ideogram-ai/ideogram-v4" },
    { "LingBot-Video-Dense", "robbyant/lingbot-video-dense-1.3b" },
    { "LingBot-Video-MoE", "robbyant/lingbot-video-moe-30b-a3b" },
    { .name = NULL },
};

static const xd_xdit_rows others = { .nets = nets, .names = registered };

/* Returns the rows of family i of xDiT's models. For the index after the last family, returns the
 * table of models that xdit does not support; for any larger index, returns NULL. */
static const xd_xdit_rows *rows_at(int i)
{
    const xd_xdit_rows *r = xd_xdit_rows_at(i);
    return r ? r : i == 0 || xd_xdit_rows_at(i - 1) ? &others : NULL;
}

const xd_xdit_model *xd_xdit_model_at(int i)
{
    const xd_xdit_rows *r;
    for (int k = 0; (r = rows_at(k)); k++)
        for (const xd_xdit_model *m = r->models; m && m->title; m++)
            if (i-- == 0)
                return m;
    return NULL;
}

const xd_xdit_name *xd_xdit_name_at(int i)
{
    const xd_xdit_rows *r;
    for (int k = 0; (r = rows_at(k)); k++)
        for (const xd_xdit_name *n = r->names; n && n->name; n++)
            if (i-- == 0)
                return n;
    return NULL;
}

static int same_letters(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)a[i]) != tolower((unsigned char)b[i]))
            return 0;
    return 1;
}

/* Returns 1 if `text` contains the first n characters of `piece`; upper and lower case are
 * equivalent. */
static int has_letters(const char *text, const char *piece, size_t n)
{
    for (; strlen(text) >= n; text++)
        if (same_letters(text, piece, n))
            return 1;
    return 0;
}

const xd_xdit_model *xd_xdit_by_script(const char *script)
{
    const char          *base = strrchr(script, '/') ? strrchr(script, '/') + 1 : script;
    size_t               n = strlen(base);
    const xd_xdit_model *m;
    if (n > 3 && strcmp(base + n - 3, ".py") == 0)
        n -= 3;
    for (int i = 0; (m = xd_xdit_model_at(i)); i++)
        for (const char *p = m->scripts; p && *p; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && strncmp(p, base, n) == 0)
                return m;
    return NULL;
}

const xd_xdit_model *xd_xdit_by_name(const char *model)
{
    const xd_xdit_model *m;
    for (int i = 0; (m = xd_xdit_model_at(i)); i++)
        for (const char *p = m->names; p && *p; p += strcspn(p, " "), p += *p == ' ')
            if (has_letters(model, p, strcspn(p, " ")))
                return m;
    return NULL;
}

const xd_xdit_net *xd_xdit_net_find(const char *model)
{
    const xd_xdit_rows *r;
    for (int k = 0; (r = rows_at(k)); k++)
        for (const xd_xdit_net *n = r->nets; n && n->name; n++)
            if (has_letters(model, n->name, strlen(n->name)))
                return n;
    return NULL;
}

const char *xd_xdit_repo(const char *name)
{
    const xd_xdit_rows *r;
    for (int k = 0; (r = rows_at(k)); k++)
        for (const xd_xdit_name *n = r->names; n && n->name; n++)
            if (strlen(name) == strlen(n->name) && same_letters(name, n->name, strlen(name)))
                return n->repo;
    return NULL;
}

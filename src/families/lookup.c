/* lookup.c - finds the networks and recipes of all model families */
#include "families/family.h"

#include <string.h>

const xd_dit *xd_dit_at(int i)
{
    for (int f = 0; xd_families[f]; f++)
        for (int k = 0; xd_families[f]->dits[k]; k++)
            if (i-- == 0)
                return xd_families[f]->dits[k];
    return NULL;
}

const xd_family *xd_family_of(const xd_dit *d)
{
    for (int f = 0; xd_families[f]; f++)
        for (int k = 0; xd_families[f]->dits[k]; k++)
            if (xd_families[f]->dits[k] == d)
                return xd_families[f];
    return NULL;
}

const xd_xdit_rows *xd_xdit_rows_at(int i)
{
    for (int f = 0; xd_families[f]; f++)
        if (xd_families[f]->xdit && i-- == 0)
            return xd_families[f]->xdit;
    return NULL;
}

const xd_recipe *xd_recipe_at(int i)
{
    for (int f = 0; xd_families[f]; f++)
        for (int k = 0; xd_families[f]->recipes[k]; k++)
            if (i-- == 0)
                return xd_families[f]->recipes[k];
    return NULL;
}

int xd_recipe_sees(const xd_recipe *p, const char *folder)
{
    for (int i = 0; p && i < p->ntext; i++)
        if (p->text[i].image_text && strcmp(p->text[i].folder, folder) == 0)
            return 1;
    return 0;
}

int xd_recipe_inpaints(const xd_recipe *p)
{
    return (p->role == XD_ROLE_START || p->role == XD_ROLE_MASK || p->role == XD_ROLE_CONTROL ||
            p->inpaints_reference) &&
           (p->max_shift > 0 || p->mask_strength > 0);
}

int64_t xd_recipe_channels(const xd_recipe *p, int64_t channels, const int cell[3])
{
    return p->role == XD_ROLE_FIRST_FRAME || p->role == XD_ROLE_CONTROL ? channels
           : p->role == XD_ROLE_MARKED_FRAME                            ? channels + 1
           : p->role == XD_ROLE_FRAMES                                  ? channels + cell[0]
           : p->role == XD_ROLE_DRIVEN                                  ? 2 * channels + cell[0]
           : p->role == XD_ROLE_CONTROL_VIDEO ? 2 * channels + (int64_t)cell[1] * cell[2]
           : p->role == XD_ROLE_MASK          ? channels + (int64_t)cell[1] * cell[2]
                                              : 0;
}

void xd_recipe_names(xd_text_buf *b)
{
    const xd_recipe *r;
    for (int i = 0; (r = xd_recipe_at(i)); i++)
        if (!r->when && !r->dit_key)
            xd_buf_add(b, "%s%s", b->len ? ", " : "", r->pipelines[0]);
}

static int is_for(const xd_recipe *r, const xd_json *index)
{
    int is = 0;
    if (r->dit_key)
        return 0;
    return !r->when || !index || (xd_json_bool(xd_json_get(index, r->when), &is) && is);
}

const xd_recipe *xd_recipe_find(const char *pipeline, const xd_json *index)
{
    const xd_recipe *r;
    for (int i = 0; pipeline && (r = xd_recipe_at(i)); i++)
        for (int k = 0; k < 4 && r->pipelines[k]; k++)
            if (strcmp(r->pipelines[k], pipeline) == 0 && is_for(r, index))
                return r;
    return NULL;
}

const xd_recipe *xd_recipe_for(const xd_recipe *p, const xd_json *config)
{
    const xd_recipe *r;
    for (int i = 0; config && (r = xd_recipe_at(i)); i++) {
        const char *value = r->dit_key ? xd_json_text(xd_json_get(config, r->dit_key)) : NULL;
        if (value && strcmp(value, r->dit_value) == 0 &&
            strcmp(r->pipelines[0], p->pipelines[0]) == 0)
            return r;
    }
    return p;
}

/* same_files.c - computes hashes of all bytes of the weight files */
#include "engine/same_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"
#include "model/component.h"
#include "model/lora.h"

typedef struct digests {
    xd_file_digest *v;
    int             n;
} digests;

/* Copies the path of a file. If the path is too long, only its end is copied. */
static void set_name(char name[XD_FILE_NAME], const char *path)
{
    size_t n = strlen(path);
    snprintf(name, XD_FILE_NAME, "%s", n < XD_FILE_NAME ? path : path + n - (XD_FILE_NAME - 1));
}

static xd_status add_files(digests *d, const xd_st *s, xd_err *e)
{
    xd_status st = XD_OK;
    for (int i = 0; s && st == XD_OK && i < xd_st_files(s); i++) {
        xd_file_digest *more = realloc(d->v, ((size_t)d->n + 1) * sizeof *more);
        if (!more)
            return xd_fail(e, XD_ENOMEM, "no memory to compare %d files", d->n);
        d->v = more;
        more[d->n] = (xd_file_digest){ .digest = 0 };
        set_name(more[d->n].name, xd_st_file_path(s, i));
        st = xd_st_file_digest(s, i, &more[d->n++].digest, e);
    }
    return st;
}

static xd_status add_loras(digests *d, const xd_loras *l, xd_err *e)
{
    xd_status    st = XD_OK;
    const xd_st *s;
    for (int i = 0; st == XD_OK && (s = xd_loras_file(l, i)); i++)
        st = add_files(d, s, e);
    return st;
}

xd_status xd_file_digests(const xd_model *m, xd_file_digest **list, int *n, xd_err *e)
{
    digests   d = { 0 };
    xd_status st = XD_OK;
    for (int i = 0; st == XD_OK && i < m->recipe->ntext; i++)
        st = m->has_text[i] ? add_files(&d, m->text[i].files, e) : st;
    st = st == XD_OK ? add_files(&d, m->dit.files, e) : st;
    st = st == XD_OK && m->dit2.dit ? add_files(&d, m->dit2.files, e) : st;
    st = st == XD_OK ? add_files(&d, m->vae.files, e) : st;
    st = st == XD_OK ? add_loras(&d, m->loras, e) : st;
    st = st == XD_OK ? add_loras(&d, m->loras_2, e) : st;
    *list = d.v;
    *n = d.n;
    return st;
}

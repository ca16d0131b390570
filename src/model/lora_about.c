/* lora_about.c - returns the names and hashes of LoRA files, and how many of their bytes are not in
 * the page cache */
#include "model/lora.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "model/model.h"

int xd_loras_equal(const xd_loras *l, const xd_lora *asked, int n)
{
    int same = n == (l ? l->n : 0);
    for (int i = 0; same && i < n; i++)
        same = strcmp(l->path[i], asked[i].path) == 0 && l->scale[i] == asked[i].scale;
    return same;
}

int xd_loras_change(const xd_loras *l, int part)
{
    return l && l->src[part];
}

static double cold_bytes(const xd_lora_term *t, int64_t tensor)
{
    size_t at;
    if (tensor < 0)
        return 0;
    int fd = xd_st_place(t->file, tensor, &at);
    return (double)xd_file_cold_bytes(fd, at, xd_bytes(xd_st_shape(t->file, tensor)));
}

/* Counts the bytes that are not in the page cache. A matrix that several LoRA terms use is counted
 * once: with the term that has the first rows of the matrix. */
void xd_loras_cold_bytes(const xd_loras *l, double cold[XD_KINDS])
{
    for (int i = 0; l && i < l->nterms; i++) {
        const xd_lora_term *t = &l->terms[i];
        int64_t             all[6] = { t->up, t->down, -1, -1, -1, -1 };
        for (int k = 0; k < 2 && t->kind != XD_LORA_PRODUCT; k++)
            all[2 + k] = t->w[k].a, all[4 + k] = t->w[k].b;
        for (int k = 0; k < 6 && t->row0 == 0; k++)
            cold[t->part ? XD_KIND_TEXT : XD_KIND_DIT] += cold_bytes(t, all[k]);
    }
}

/* ---- descriptions of the LoRAs ------------------------------------------------------------ */

const xd_st *xd_loras_file(const xd_loras *l, int i)
{
    return l && i < l->n ? l->file[i] : NULL;
}

uint64_t xd_loras_hash(const xd_loras *l, uint64_t h)
{
    for (int i = 0; l && i < l->n; i++) {
        uint64_t scale;
        memcpy(&scale, &l->scale[i], sizeof scale);
        h = xd_hash_mix(xd_hash_mix(h, xd_st_hash(l->file[i])), scale);
        h = l->noted[i] ? xd_hash_mix(h, l->noted[i]) : h;
    }
    return h;
}

void xd_loras_json(const xd_loras *l, const char *member, int omit_folders, xd_text_buf *b)
{
    for (int i = 0; l && i < l->n; i++) {
        if (i)
            xd_buf_add(b, ", {\"path\": ");
        else
            xd_buf_add(b, ", \"%s\": [{\"path\": ", member);
        if (omit_folders)
            xd_model_short_name(l->path[i], b);
        else
            xd_buf_json_string(b, l->path[i]);
        xd_buf_add(b, ", \"scale\": %.10g}", l->scale[i]);
    }
    if (l && l->n)
        xd_buf_add(b, "]");
}

/* Copies the name of a file, without directories and without ".safetensors". Replaces characters
 * that would end a quoted text by _. */
static void plain_name(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/'), *from = slash && slash[1] ? slash + 1 : path;
    size_t      n = strlen(from);
    if (n > 12 && strcmp(from + n - 12, ".safetensors") == 0)
        n -= 12;
    snprintf(out, size, "%.*s", (int)n, from);
    for (char *c = out; *c; c++)
        if (*c == '"' || *c == '\\' || *c == '\n')
            *c = '_';
}

void xd_loras_text(const xd_loras *l, xd_text_buf *b)
{
    char name[256];
    for (int i = 0; l && i < l->n; i++) {
        plain_name(l->path[i], name, sizeof name);
        xd_buf_add(b, "%s%s:%.10g", i ? ", " : ", LoRA: \"", name, l->scale[i]);
    }
    if (l && l->n)
        xd_buf_add(b, "\"");
}

/* inspect_file.c - prints the contents of a single weight file, without a model directory */
#include <stdio.h>
#include <string.h>

#include "report/inspect_file.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "pipeline/enlarger.h"

enum { SLOTS = 8, SHOWN = 3, TYPES = 24 };

typedef struct share { /* counts of the tensors whose names have the same prefix */
    int64_t     n;
    double      numbers, bytes;
    const char *type[TYPES];    /* names of the types that the tensors have in the file */
    int64_t     of[TYPES];      /* [ntypes]: number of tensors of each type */
    int         ntypes, blocks; /* blocks: 1: some tensors have block types */
} share;

static void count_type(share *r, const char *type)
{
    int i = 0;
    while (i < r->ntypes && strcmp(r->type[i], type) != 0)
        i++;
    if (i == TYPES)
        return;
    r->type[i] = type;
    r->of[i]++;
    r->ntypes += i == r->ntypes;
}

/* Appends the types of a group of tensors, such as "BF16+F32". Files with block types usually mix
 * several types, so for such files the numbers of tensors are appended, too: "F32 (470) + Q4_K
 * (304)". */
static void write_types(xd_text_buf *b, const share *r, int counts)
{
    for (int i = 0; i < r->ntypes; i++) {
        xd_buf_add(b, "%s%s", !i ? "" : counts ? " + " : "+", r->type[i]);
        if (counts)
            xd_buf_add(b, " (%lld)", (long long)r->of[i]);
    }
}

static share add_up(const xd_st *st, const char *prefix)
{
    share r = { 0 };
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        xd_tensor t = xd_st_shape(st, i);
        if (strncmp(xd_st_name(st, i), prefix, strlen(prefix)) != 0)
            continue;
        r.n++;
        r.numbers += (double)xd_count(t);
        r.bytes += (double)xd_bytes(t);
        r.blocks |= xd_dtype_block(t.type) > 1;
        count_type(&r, xd_st_dtype(st, i));
    }
    return r;
}

static void write_share(const xd_inspect_args *a, const char *slot, const char *what,
                        const char *prefix, const share *r, int first)
{
    xd_text_buf b = { 0 }, types = { 0 };
    write_types(&types, r, r->blocks && !a->json);
    if (!a->json) {
        xd_inspect_line(a, "%-15s %s%s%s: %lld tensors, %.1f M parameters, %.3f GB, %s", slot, what,
                        *prefix ? ", names begin with " : "", prefix, (long long)r->n,
                        r->numbers / 1e6, r->bytes / 1e9, r->n && types.p ? types.p : "empty");
        xd_buf_free(&types);
        return;
    }
    xd_buf_add(&b, "  %s{\"component\": \"%s\", \"layout\": \"%s\", \"prefix\": ", first ? "" : ",",
               slot, what);
    xd_buf_json_string(&b, prefix);
    xd_buf_add(&b, ", \"tensors\": %lld, \"parameters\": %.0f, \"bytes\": %.0f, \"dtype\": ",
               (long long)r->n, r->numbers, r->bytes);
    xd_buf_json_string(&b, types.p ? types.p : "");
    xd_buf_add(&b, ", \"types\": {");
    for (int i = 0; i < r->ntypes; i++) {
        xd_buf_add(&b, i ? ", " : "");
        xd_buf_json_string(&b, r->type[i]);
        xd_buf_add(&b, ": %lld", (long long)r->of[i]);
    }
    xd_buf_add(&b, "}}");
    if (!b.failed)
        xd_inspect_line(a, "%s", b.p);
    xd_buf_free(&b);
    xd_buf_free(&types);
}

/* Prints each component of the file; returns the number of components. A file may have a CLIP text
 * encoder whose tensor names have no prefix, so that it may be clip_l or clip_g. Such an encoder is
 * printed only once. */
static int write_components(const xd_inspect_args *a, const xd_st *st)
{
    static const char *const slots[SLOTS] = { "transformer", "vae", "clip_l",      "clip_g",
                                              "t5xxl",       "llm", "clip_vision", "controlnet" };
    int                      n = 0, bare = 0;
    for (int k = 0; k < SLOTS; k++) {
        char              prefix[64];
        const xd_key_map *l;
        for (int i = 0;
             (l = xd_key_map_find(st, slots[k], &i, prefix)) && !xd_key_map_suits(l, slots[k]); i++)
            ;
        int clip = l && strcmp(l->nets[0], "clip") == 0 && !*prefix;
        if (!l || (clip && bare))
            continue;
        share r = add_up(st, prefix);
        bare |= clip;
        write_share(a, clip ? "clip_l, clip_g" : slots[k], l->what, prefix, &r, n == 0);
        n++;
    }
    return n;
}

static void write_unknown(const xd_inspect_args *a, const xd_st *st)
{
    share       r = add_up(st, "");
    const char *what = xd_is_lora(st) ? "a LoRA, for --lora" : "an unknown layout";
    write_share(a, "-", what, "", &r, 1);
    for (int64_t i = 0; !a->json && i < xd_st_count(st) && i < SHOWN; i++)
        xd_inspect_line(a, "%-15s %s%s", "", xd_st_name(st, i),
                        i == SHOWN - 1 && xd_st_count(st) > SHOWN ? ", ..." : "");
}

/* Prints the network of an upscaler. Returns 0 if the file is no upscaler. */
static int write_upscaler(const xd_inspect_args *a)
{
    xd_enlarger u;
    int         is = xd_enlarger_open(&u, a->model, NULL) == XD_OK;
    if (is && a->json)
        xd_inspect_line(a,
                        "], \"upscaler\": {\"class\": \"%s\", \"scale\": %d, \"cell\": %d, "
                        "\"reach\": %lld}}",
                        u.part.class_name, u.info.scale, u.info.cell, (long long)u.info.reach);
    else if (is)
        xd_inspect_line(a,
                        "upscaler        %s, enlarges by %d, for xdit upscale; radius of the "
                        "receptive field: %lld pixels",
                        u.part.class_name, u.info.scale, (long long)(u.info.reach * u.info.cell));
    xd_enlarger_close(&u);
    return is;
}

static void write_tensors(const xd_inspect_args *a, const xd_st *st)
{
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        xd_tensor t = xd_st_shape(st, i);
        xd_inspect_tensor(a, xd_st_name(st, i), t.nd, t.d, 0, i == 0);
    }
}

xd_status xd_inspect_file(const xd_inspect_args *a, xd_err *e)
{
    xd_st    *st = NULL;
    xd_status s = xd_st_open(&st, a->model, "", e);
    if (s != XD_OK)
        return s;
    if (a->tensors) {
        if (a->json)
            xd_inspect_line(a, "{\"tensors\": [");
        write_tensors(a, st);
        if (a->json)
            xd_inspect_line(a, "]}");
        xd_st_close(&st);
        return XD_OK;
    }
    xd_text_buf b = { 0 };
    xd_buf_json_string(&b, a->model);
    if (a->json && !b.failed)
        xd_inspect_line(a, "{\"file\": %s, \"components\": [", b.p);
    xd_buf_free(&b);
    int upscaler = write_upscaler(a);
    if (!upscaler && !write_components(a, st))
        write_unknown(a, st);
    if (a->json && !upscaler)
        xd_inspect_line(a, "]}");
    xd_st_close(&st);
    return XD_OK;
}

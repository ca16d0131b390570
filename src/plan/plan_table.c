/* plan_table.c - defines the table of a plan's options, and makes flags, names and descriptions of
 * plans from the table */
#include "plan/plan_table.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"

#define AT(field) offsetof(xd_parallel, field)
#define NUMBER(name, arg, least, most, help)                                                     \
    { #name, XD_OPT_INT, AT(name), least, most, NULL, arg, help }
#define DEGREE(name, help) NUMBER(name, "N", 1, 65536, help)
#define SWITCH(name, help) { #name, XD_OPT_FLAG, AT(name), 0, 1, NULL, NULL, help }
#define TEXT(name, choices, arg, help) { #name, XD_OPT_TEXT, AT(name), 0, 0, choices, arg, help }

/* The table of a plan's options. Names of plans and lists of flags have the options in the order of
 * the table. */
static const xd_plan_row rows[] = {
    { DEGREE(ulysses_degree, "number of sequence-parallel ranks for Ulysses"), XD_ULYSSES, "u", 0,
      "1", XD_NEEDS_NOTHING, NULL, 0, XD_SAME_BITS },
    { DEGREE(ring_degree, "number of sequence-parallel ranks in a ring"), XD_RING, "r", 0, "1",
      XD_NEEDS_NOTHING, NULL, 0, XD_SAME_BITS },
    { DEGREE(pipefusion_parallel_degree, "number of pipeline stages for PipeFusion"), XD_PIPE, "pp",
      0, "1", XD_NEEDS_NOTHING, NULL, 0, XD_SAME_BITS },
    { DEGREE(tensor_parallel_degree, "split weight matrices over N ranks"), XD_TENSOR, "tp", 0, "1",
      XD_NEEDS_NOTHING, NULL, 0, XD_SUMS_OF_TENSOR },
    { SWITCH(use_cfg_parallel, "prompt and negative prompt on different ranks"), XD_CFG, "cfg", 2,
      "", XD_NEEDS_NOTHING, NULL, 0, XD_SAME_BITS },
    { DEGREE(data_parallel_degree, "number of rank groups that generate different images"), XD_DATA,
      "dp", 0, "1", XD_NEEDS_NOTHING, NULL, 0, XD_SAME_BITS },
    { NUMBER(num_pipeline_patch, "N", 1, 1024,
             "number of patches for PipeFusion (default: the number of stages); no effect without "
             "pipeline stages"),
      XD_NAXES, "patch", 0, "1", XD_NEEDS_STAGES, "# patches", XD_ALWAYS_FLAG, XD_STALE_STEPS },
    { SWITCH(use_displaced_patches, "ring in which ranks use each other's keys and values of the "
                                    "previous step (DistriFusion)"),
      XD_NAXES, "displaced", 1, "", XD_NEEDS_RING, "displaced", 0, XD_STALE_STEPS },
    { NUMBER(warmup_steps, "N", 0, 1000,
             "number of exact steps at the start, at least one (default 1); later steps use "
             "stale values"),
      XD_NAXES, "warm", 0, "1", XD_NEEDS_STALE, "# warm-up", XD_ALWAYS_FLAG | XD_ALWAYS_TEXT,
      XD_SAME_BITS },
    { TEXT(
          pipefusion_text, "first every", "WHEN",
          "PipeFusion patches with which text tokens are computed: first or every (default first)"),
      XD_NAXES, NULL, 0, "first", XD_NEEDS_FLOWING_TEXT, "text with # patch", 0, XD_SAME_BITS },
    { SWITCH(use_parallel_vae, "split VAE decoding by rows over all ranks"), XD_NAXES, "vae", 1, "",
      XD_NEEDS_GROUP, "VAE rows", 0, XD_SAME_BITS },
    { TEXT(comms, "exact int8 fp8", "HOW",
           "number type of messages between hosts: int8 or fp8 are shorter but change the image "
           "(default exact)"),
      XD_NAXES, NULL, 0, "exact", XD_NEEDS_ACTIVATIONS, "# messages between hosts", 0,
      XD_CODED_MESSAGES },
    { DEGREE(text_tensor_parallel_degree, "split text encoders over N ranks (default 1)"), XD_NAXES,
      "text", 0, "1", XD_NEEDS_NOTHING, "text #", 0, XD_SAME_BITS },
    { TEXT(attn_layer_num_for_pp, NULL, "LIST",
           "number of blocks in each pipeline stage: 10,9,9 (default: equal cost)"),
      XD_NAXES, NULL, 0, "", XD_NEEDS_STAGES, "stages #", 0, XD_SAME_BITS },
    { SWITCH(patches_without_stages, NULL), XD_NAXES, NULL, 0, "", XD_NEEDS_NOTHING, NULL, 0,
      XD_SAME_BITS },
};

static const xd_plan_table  own = { rows, sizeof rows / sizeof *rows };
static const xd_plan_table *now = &own;
_Static_assert(sizeof rows / sizeof *rows <= XD_PLAN_ROWS, "too many options of a plan");

const xd_plan_table *xd_plan_table_now(void)
{
    return now;
}

void xd_plan_table_use(const xd_plan_table *t)
{
    now = t ? t : &own;
}

const xd_option *xd_parallel_options(int *n)
{
    /* Several threads may write this array at the same time, since all of them write the same
     * contents. */
    static xd_option flat[XD_PLAN_ROWS];
    for (int i = 0; i < now->n; i++)
        flat[i] = now->rows[i].option;
    *n = now->n;
    return flat;
}

/* ---- one option of a plan ----------------------------------------------------------------- */

static const char *text_at(const xd_plan_row *r, const xd_parallel *a)
{
    const char *v = *(const char *const *)(const void *)((const char *)a + r->option.offset);
    return v ? v : "";
}

int xd_plan_number(const xd_plan_row *r, const xd_parallel *a)
{
    if (r->option.kind == XD_OPT_TEXT)
        return *text_at(r, a) != 0;
    return *(const int *)(const void *)((const char *)a + r->option.offset);
}

void xd_plan_put(const xd_plan_row *r, xd_parallel *a, int number)
{
    if (r->option.kind != XD_OPT_TEXT)
        *(int *)(void *)((char *)a + r->option.offset) = number;
}

const char *xd_plan_value(const xd_plan_row *r, const xd_parallel *a, char digits[16])
{
    int v = xd_plan_number(r, a);
    if (r->option.kind == XD_OPT_TEXT)
        return text_at(r, a);
    snprintf(digits, 16, "%d", v);
    return v ? digits : "";
}

int xd_plan_degree(const xd_plan_row *r, const xd_parallel *a)
{
    int v = xd_plan_number(r, a);
    return r->name_number ? v ? r->name_number : 1 : v ? v : 1;
}

const xd_plan_row *xd_plan_row_of(int axis)
{
    for (int i = 0; i < now->n; i++)
        if (now->rows[i].axis == axis)
            return &now->rows[i];
    return NULL;
}

static int degree_of(int axis, const xd_parallel *a)
{
    const xd_plan_row *r = xd_plan_row_of(axis);
    return r ? xd_plan_degree(r, a) : 1;
}

int xd_plan_patches(const xd_parallel *a)
{
    int stages = degree_of(XD_PIPE, a);
    if (stages == 1 && !a->patches_without_stages)
        return 1;
    return a->num_pipeline_patch ? a->num_pipeline_patch : stages;
}

static int is_met(xd_plan_needs needs, const xd_parallel *a, const xd_dit_info *d)
{
    int patches = xd_plan_patches(a), ring = degree_of(XD_RING, a) > 1;
    switch (needs) {
    case XD_NEEDS_STAGES: return degree_of(XD_PIPE, a) > 1 || a->patches_without_stages;
    case XD_NEEDS_PATCHES: return patches > 1;
    case XD_NEEDS_FLOWING_TEXT: return patches > 1 && (!d || d->txt_flows);
    case XD_NEEDS_RING: return ring;
    case XD_NEEDS_STALE: return patches > 1 || (ring && a->use_displaced_patches);
    case XD_NEEDS_GROUP: return xd_parallel_ranks(a) > degree_of(XD_DATA, a);
    case XD_NEEDS_ACTIVATIONS:
        return degree_of(XD_PIPE, a) > 1 ||
               (!(d && d->linear) &&
                (degree_of(XD_ULYSSES, a) > 1 || (ring && !a->use_displaced_patches)));
    case XD_NEEDS_NOTHING: break;
    }
    return 1;
}

int xd_plan_counts(const xd_plan_row *r, const xd_parallel *a, const xd_dit_info *d)
{
    return xd_plan_number(r, a) != 0 && is_met(r->needs, a, d);
}

/* ---- flags, names, texts ------------------------------------------------------------------ */

/* Returns 1 if an option must appear in the plan's name: the option has an effect, and its value is
 * not the default or it is always shown. */
static int is_named(const xd_plan_row *r, const xd_parallel *a, const xd_dit_info *d, int always)
{
    char digits[16];
    return xd_plan_counts(r, a, d) &&
           (r->always & always || strcmp(xd_plan_value(r, a, digits), r->default_text) != 0);
}

/* Appends the value of an option, quoted for a shell if necessary. */
static void add_quoted(xd_text_buf *out, const char *v)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_.,:/+-";
    if (*v && !v[strspn(v, plain)]) {
        xd_buf_add(out, "%s", v);
        return;
    }
    xd_buf_add(out, "'");
    for (; *v; v++)
        xd_buf_add(out, *v == '\'' ? "'\\''" : "%c", *v);
    xd_buf_add(out, "'");
}

void xd_plan_flags(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out)
{
    char digits[16];
    for (int i = 0; i < now->n; i++) {
        const xd_plan_row *r = &now->rows[i];
        if (!is_named(r, a, d, XD_ALWAYS_FLAG))
            continue;
        xd_buf_add(out, "%s--%s", out->len ? " " : "", r->option.name);
        if (r->option.kind == XD_OPT_FLAG)
            continue;
        xd_buf_add(out, " ");
        add_quoted(out, xd_plan_value(r, a, digits));
    }
}

void xd_plan_name(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out)
{
    for (int i = 0; i < now->n; i++) {
        const xd_plan_row *r = &now->rows[i];
        if (!r->word || !is_named(r, a, d, XD_ALWAYS_FLAG))
            continue;
        xd_buf_add(out, "%s", r->word);
        if (r->name_number != 1)
            xd_buf_add(out, "%d", r->name_number ? r->name_number : xd_plan_number(r, a));
    }
    if (!out->len)
        xd_buf_add(out, "1");
}

/* Appends the option's text, such as "# patches", with the value in place of "#". Commas in the
 * value, which separate the elements of a list, are replaced by plus signs. */
static void add_option(xd_text_buf *out, const xd_plan_row *r, const char *value)
{
    const char *at = strchr(r->description, '#');
    xd_buf_add(out, "%.*s", at ? (int)(at - r->description) : (int)strlen(r->description),
               r->description);
    if (!at)
        return;
    for (const char *v = value; *v;) {
        size_t n = strcspn(v, ", []"), skip = strspn(v + n, ", []");
        xd_buf_add(out, "%.*s%s", (int)n, v, skip && v[n + skip] ? "+" : "");
        v += n + skip;
    }
    xd_buf_add(out, "%s", at + 1);
}

void xd_plan_details(const xd_parallel *given, const xd_dit_info *d, xd_text_buf *out)
{
    char        digits[16];
    const char *sep = " (";
    xd_parallel a = *given;
    a.num_pipeline_patch = xd_plan_patches(given);
    a.warmup_steps = given->warmup_steps > 1 ? given->warmup_steps : 1;
    for (int i = 0; i < now->n; i++) {
        const xd_plan_row *r = &now->rows[i];
        if (!r->description || !is_named(r, &a, d, XD_ALWAYS_TEXT))
            continue;
        xd_buf_add(out, "%s", sep);
        add_option(out, r, xd_plan_value(r, &a, digits));
        sep = ", ";
    }
    if (sep[0] == ',')
        xd_buf_add(out, ")");
}

/* ---- effects of options ------------------------------------------------------------------- */

int xd_plan_changes(const xd_parallel *given, const xd_dit_info *d)
{
    int         sum = 0;
    xd_parallel a = *given;
    a.num_pipeline_patch = xd_plan_patches(given);
    for (int i = 0; i < now->n; i++)
        if (is_named(&now->rows[i], &a, d, 0))
            sum |= now->rows[i].changes;
    return sum;
}

void xd_plan_pack(const xd_parallel *a, int32_t out[XD_PLAN_ROWS])
{
    for (int i = 0; i < now->n; i++)
        out[i] = xd_plan_number(&now->rows[i], a);
}

void xd_plan_unpack(const int32_t in[XD_PLAN_ROWS], xd_parallel *a)
{
    for (int i = 0; i < now->n; i++)
        xd_plan_put(&now->rows[i], a, in[i]);
}

int xd_plan_hashes(const xd_parallel *a, uint64_t out[XD_PLAN_ROWS])
{
    char digits[16];
    for (int i = 0; i < now->n; i++)
        out[i] = xd_hash_text(xd_plan_value(&now->rows[i], a, digits));
    return now->n;
}

static const char *why_unused(xd_plan_needs needs, const xd_parallel *a)
{
    switch (needs) {
    case XD_NEEDS_STAGES: return "without stages (pipefusion_parallel_degree)";
    case XD_NEEDS_PATCHES:
    case XD_NEEDS_FLOWING_TEXT:
        if (xd_plan_patches(a) > 1)
            return "with this model, whose text does not pass through its blocks";
        return "without pipeline stages and patches (pipefusion_parallel_degree)";
    case XD_NEEDS_RING: return "without a ring (ring_degree)";
    case XD_NEEDS_STALE:
        return "because all steps are exact: there are neither pipeline stages with patches "
               "(pipefusion_parallel_degree) nor a ring with use_displaced_patches";
    case XD_NEEDS_GROUP: return "if one rank generates an image";
    case XD_NEEDS_ACTIVATIONS:
        return "with this plan: only Ulysses, ring attention and PipeFusion send activations that "
               "can be coded";
    case XD_NEEDS_NOTHING: break;
    }
    return "here";
}

void xd_plan_log_unused(const xd_parallel *given, const xd_parallel *a, const xd_dit_info *d)
{
    char digits[16];
    for (int i = 0; i < now->n; i++) {
        const xd_plan_row *r = &now->rows[i];
        const char        *v = xd_plan_value(r, given, digits);
        if (*v && strcmp(v, r->default_text) != 0 && !is_met(r->needs, a, d))
            xd_log(XD_LOG_WARN, "%s has no effect %s", r->option.name, why_unused(r->needs, a));
    }
}

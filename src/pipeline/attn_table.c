/* attn_table.c - reads the attention table of DiTFastAttn from a text or a file. For each block and
 * step, the table tells whether attention is computed, windowed or reused. Also refuses options
 * that cannot be combined with such a table. */
#include "pipeline/attn_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job.h"

/* Two names for each way of computing attention: this program's name and xDiT's name. */
static const char *const names[XD_ATTN_WAYS][2] = {
    [XD_ATTN_SHARE] = { "share", "OUTPUT_SHARE" },
    [XD_ATTN_WINDOW_CFG] = { "window+cfg", "RESIDUAL_WINDOW_ATTN_CFG_SHARE" },
    [XD_ATTN_WINDOW] = { "window", "RESIDUAL_WINDOW_ATTN" },
    [XD_ATTN_FULL_CFG] = { "full+cfg", "FULL_ATTN_CFG_SHARE" },
    [XD_ATTN_FULL] = { "full", "FULL_ATTN" },
};

int xd_fast_attn_is_on(const xd_job *j)
{
    return j->ways.way != NULL;
}

void xd_fast_attn_close(xd_job *j)
{
    free(j->ways.way);
    free(j->ways.found);
    j->ways = (xd_attn_table){ .way = NULL };
}

/* ---- reading a table ---------------------------------------------------------------------- */

static xd_status read_way(uint8_t *way, const char *name, size_t n, xd_err *e)
{
    for (int i = 0; i < XD_ATTN_WAYS; i++)
        for (int k = 0; k < 2; k++)
            if (strlen(names[i][k]) == n && memcmp(names[i][k], name, n) == 0) {
                *way = (uint8_t)i;
                return XD_OK;
            }
    return xd_fail(e, XD_EINVAL,
                   "fast_attn has \"%.*s\"; it can be one of: "
                   "full, full+cfg, window, window+cfg, share, or a file \"*.json\"",
                   (int)n, name);
}

/* Makes a table in which every block computes a full attention in every step. */
static xd_status new_table(xd_job *j, xd_err *e)
{
    const xd_dit_info *d = &j->ctx->model.dit_info;
    xd_attn_table     *t = &j->ways;
    t->lead = d->lead;
    t->blocks = d->nlayers - d->lead, t->steps = j->samp.steps;
    size_t n = (size_t)t->blocks * (size_t)t->steps;
    t->way = malloc(n + 1);
    if (!t->way)
        return xd_fail(e, XD_ENOMEM, "no memory for fast_attn");
    memset(t->way, XD_ATTN_FULL, n);
    return XD_OK;
}

static xd_status read_list(xd_job *j, const char *text, xd_err *e)
{
    xd_attn_table *t = &j->ways;
    const char    *p = text;
    for (int i = 1, seen = 0; i < t->steps || !seen; i++) {
        size_t    n = strcspn(p, ",");
        uint8_t   way = XD_ATTN_FULL;
        xd_status s = read_way(&way, p, n, e);
        if (s != XD_OK)
            return s;
        for (int b = 0; b < t->blocks && i < t->steps; b++)
            t->way[b * t->steps + i] = way;
        seen |= !p[n];
        p = p[n] ? p + n + 1 : text;
    }
    return XD_OK;
}

/* Reads from the file how one block computes attention in each step. If the request's `strength`
 * leaves out the first steps, the file's entries for these steps are skipped. */
static xd_status read_block(xd_job *j, const char *file, int block, const xd_json *steps, xd_err *e)
{
    xd_attn_table *t = &j->ways;
    const int      left_out = j->asked_steps - t->steps;
    if (xd_json_size(steps) != j->asked_steps)
        return xd_fail(e, XD_EINVAL,
                       "fast_attn: %s has %d steps in block %d and the request has "
                       "%d; xdit calibrate --fast_attn makes a table for this number",
                       file, xd_json_size(steps), block, j->asked_steps);
    const xd_json *v = xd_json_first(steps);
    for (int i = 0; v; i++, v = xd_json_next(v)) {
        const char *name = xd_json_text(v) ? xd_json_text(v) : "";
        uint8_t     way = XD_ATTN_FULL;
        xd_status   s = read_way(&way, name, strlen(name), e);
        if (s != XD_OK)
            return s;
        if (i > left_out)
            t->way[block * t->steps + i - left_out] = way;
    }
    return XD_OK;
}

static xd_status read_file(xd_job *j, const char *file, xd_err *e)
{
    xd_json  *doc = NULL;
    xd_status s = xd_json_read(&doc, file, e);
    if (s == XD_OK && (!xd_json_is_object(doc) || xd_json_size(doc) > j->ways.blocks))
        s = xd_fail(e, XD_EINVAL,
                    "fast_attn: %s has %d blocks and the transformer has %d; the "
                    "table is for another model",
                    file, xd_json_size(doc), j->ways.blocks);
    const xd_json *v = s == XD_OK ? xd_json_first(doc) : NULL;
    for (int b = 0; v && s == XD_OK; b++, v = xd_json_next(v))
        s = read_block(j, file, b, v, e);
    xd_json_free(&doc);
    return s;
}

static xd_status read_limit(xd_job *j, const char *text, xd_err *e)
{
    xd_attn_table *t = &j->ways;
    int            ranks = 1;
    char          *end;
    t->limit = strtod(text, &end);
    if (end == text || *end || !(t->limit > 0) || !isfinite(t->limit))
        return xd_fail(e, XD_EINVAL,
                       "fast_attn: measure:%s needs a number above 0, as in "
                       "measure:0.1",
                       text);
    for (int i = 0; i < XD_NAXES; i++)
        ranks *= i == XD_DATA ? 1 : j->ctx->plan.deg.n[i];
    if (ranks > 1)
        return xd_fail(e, XD_EINVAL,
                       "fast_attn: measuring a table needs one rank per image: leave "
                       "out the degrees");
    t->found = calloc((size_t)t->blocks * (size_t)t->steps + 1, 1);
    return t->found ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for fast_attn");
}

/* ---- refusing options that exclude a table ------------------------------------------ */

static xd_status check_plan(const xd_job *j, xd_err *e)
{
    const xd_plan *p = &j->ctx->plan;
    if (j->ctx->model.dit_info.linear)
        return xd_fail(e, XD_EINVAL, "fast_attn is not for %s, whose attention is linear",
                       j->ctx->model.recipe->name);
    if (j->ctx->model.dit_info.whole)
        return xd_fail(e, XD_EINVAL, "fast_attn is not for %s: its network %s",
                       j->ctx->model.recipe->name, j->ctx->model.dit_info.whole);
    if (p->deg.n[XD_PIPE] > 1 || p->npatch > 1 || p->displaced)
        return xd_fail(e, XD_EINVAL,
                       "fast_attn needs plans that compute all tokens at once; it "
                       "cannot be combined with PipeFusion or displaced patches");
    if (j->cache.kind)
        return xd_fail(e, XD_EINVAL,
                       "fast_attn and cache cannot be combined (both skip work of a "
                       "step): use one of them");
    if (xd_job_keeps_references(j))
        return xd_fail(
            e, XD_EINVAL,
            "fast_attn and stored keys of reference images (%s) cannot be combined (both "
            "reuse an earlier step's work): leave one of them out",
            j->ctx->model.recipe->keeps_references ? j->ctx->model.recipe->name
                                                   : "reference_interval");
    return XD_OK;
}

static xd_status check_ways(const xd_job *j, xd_err *e)
{
    const int64_t *w = j->window;
    const int      windows = xd_attn_table_has(&j->ways, xd_attn_has_window);
    if (windows && !j->r->savings.attention_window)
        return xd_fail(e, XD_EINVAL,
                       "fast_attn has windows and needs --attention_window, e.g. 64 "
                       "for 64 tokens on each side");
    if (windows && !(w[0] | w[1] | w[2]))
        return xd_fail(e, XD_EINVAL,
                       "fast_attn has windows, but attention_window %s covers all "
                       "image tokens: use a smaller one",
                       j->r->savings.attention_window);
    if (xd_attn_table_has(&j->ways, xd_attn_has_cfg) && j->ctx->plan.deg.n[XD_CFG] > 1)
        return xd_fail(e, XD_EINVAL,
                       "fast_attn shares the attention of both CFG passes, which "
                       "use_cfg_parallel computes at the same time: use one of them");
    return XD_OK;
}

xd_status xd_fast_attn_of_job(xd_job *j, xd_err *e)
{
    const char *text = j->r->savings.fast_attn;
    size_t      n = text ? strlen(text) : 0;
    if (!n || strcmp(text, "none") == 0)
        return XD_OK;
    xd_status s = check_plan(j, e);
    if (s == XD_OK)
        s = new_table(j, e);
    if (s == XD_OK)
        s = strncmp(text, "measure:", 8) == 0             ? read_limit(j, text + 8, e)
            : n > 5 && strcmp(text + n - 5, ".json") == 0 ? read_file(j, text, e)
                                                          : read_list(j, text, e);
    return s == XD_OK ? check_ways(j, e) : s;
}

/* ---- writing a table ---------------------------------------------------------------------- */

void xd_fast_attn_add_found(const xd_job *j, xd_text_buf *b)
{
    const xd_attn_table *t = &j->ways;
    for (int i = 0; i < t->blocks && t->found; i++) {
        xd_buf_add(b, "%s\"block%d\": {", i ? ", " : "{", i);
        for (int k = 0; k < t->steps; k++)
            xd_buf_add(b, "%s\"step%d\": \"%s\"", k ? ", " : "", k,
                       names[t->found[i * t->steps + k]][1]);
        xd_buf_add(b, "}%s", i + 1 < t->blocks ? "" : "}");
    }
}

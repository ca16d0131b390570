/* job_attention.c - reads the options of a request that are about attention and GEMMs */
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "pipeline/job.h"

int xd_job_int8_attention(const xd_job *j)
{
    return !j->ctx->model.dit_info.whole && j->r->savings.attention &&
           strcmp(j->r->savings.attention, "int8") == 0 &&
           j->ctx->dev->int8_attn >> j->ctx->type & 1;
}

int xd_job_fp8_gemms(const xd_job *j)
{
    return j->r->savings.gemm && strcmp(j->r->savings.gemm, "fp8") == 0 && j->ctx->dev->fp8_gemm &&
           j->ctx->type != XD_F32 && j->ctx->model.dit.w->blocks == XD_F8E4M3;
}

xd_status xd_job_window(xd_job *j, xd_err *e)
{
    const char    *text = j->r->savings.attention_window;
    const xd_plan *p = &j->ctx->plan;
    long long      n[3];
    char           end;
    if (!text)
        return XD_OK;
    const int line = sscanf(text, "%lld%c", &n[0], &end) == 1 && n[0] > 0 && n[0] < 1 << 30;
    if (!line && (sscanf(text, "%lld,%lld,%lld%c", &n[0], &n[1], &n[2], &end) != 3 || n[0] < 0 ||
                  n[1] < 0 || n[2] < 0))
        return xd_fail(e, XD_EINVAL,
                       "attention_window is \"%s\"; it must be three numbers of at "
                       "least 0 (5,16,24), or one above 0",
                       text);
    if (j->ctx->model.dit_info.linear)
        return xd_fail(e, XD_EINVAL, "attention_window is not for %s, whose attention is linear",
                       j->ctx->model.recipe->name);
    if (j->ctx->model.dit_info.whole)
        return xd_fail(e, XD_EINVAL, "attention_window is not for %s: its network %s",
                       j->ctx->model.recipe->name, j->ctx->model.dit_info.whole);
    if (j->ctx->model.dit_info.prefix)
        return xd_fail(e, XD_EINVAL,
                       "attention_window is not for %s, whose image attends to a stored text",
                       j->ctx->model.recipe->name);
    if (j->ctx->model.dit_info.grouped)
        return xd_fail(e, XD_EINVAL,
                       "attention_window is not for %s, which attends within frames and over time",
                       j->ctx->model.recipe->name);
    if (p->deg.n[XD_PIPE] > 1 || p->npatch > 1 || p->displaced)
        return xd_fail(e, XD_EINVAL,
                       "attention_window needs plans with all keys of a step; it "
                       "cannot be combined with PipeFusion or displaced patches");
    if (!j->ctx->dev->host_memory)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "attention_window is supported on CPUs only, not on %s "
                       "(keys in many segments)",
                       j->ctx->dev->name);
    if (line && n[0] < j->lay.len[XD_IMG] - 1)
        j->window[0] = -1, j->window[2] = 2 * n[0] + 1;
    for (int i = 0; i < 3 && !line; i++)
        j->window[i] = n[i] < j->lay.grid[i] ? n[i] : 0;
    return XD_OK;
}

int xd_job_keeps_references(const xd_job *j)
{
    return j->lay.len[XD_REF] > 0 && xd_job_reference_interval(j) != 1;
}

int64_t xd_job_reference_interval(const xd_job *j)
{
    return j->ctx->model.recipe->keeps_references ? 0 : j->r->savings.reference_interval;
}

xd_status xd_job_check_references(const xd_job *j, xd_err *e)
{
    const xd_recipe *recipe = j->ctx->model.recipe;
    if (j->r->savings.reference_interval < 0)
        return xd_fail(e, XD_EINVAL,
                       "reference_interval is %lld; it must be a number of steps, or "
                       "0 for the first step only",
                       (long long)j->r->savings.reference_interval);
    if (!xd_job_keeps_references(j))
        return XD_OK;
    if (recipe->keeps_references && j->r->savings.reference_interval > 1)
        return xd_fail(e, XD_EINVAL,
                       "reference_interval is %lld, but %s computes reference images in the first "
                       "step only: leave reference_interval out",
                       (long long)j->r->savings.reference_interval, recipe->name);
    const struct {
        int         used;
        const char *what, *why;
    } others[] = {
        { j->ctx->plan.displaced, "displaced patches", "both reuse an earlier step's keys" },
        { j->cache.kind != NULL, "cache", "both skip work of a step" },
        { (j->window[0] | j->window[1] | j->window[2]) != 0, "attention_window",
          "both skip attention" },
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].used)
            return xd_fail(e, XD_EINVAL, "%s and %s cannot be combined (%s): %s",
                           recipe->keeps_references ? recipe->name : "reference_interval",
                           others[i].what, others[i].why,
                           recipe->keeps_references ? "leave the latter out" : "use one of them");
    return XD_OK;
}

/* job_texts.c - reads the texts of a request: the prompts, and the other texts, which are given
 * either once for all prompts or separately for each prompt; computes how many rows a text has */
#include <stddef.h>
#include <stdio.h>

#include "base/rng.h"
#include "pipeline/context.h"
#include "pipeline/job.h"

static const struct {
    const char *name;
    /* byte offsets in xd_request: of the text for all prompts, and of the list with one text per
     * prompt */
    size_t      one, list;
} rows[XD_JOB_TEXTS] = {
#define ROW(name, field, fields)                                                                 \
    { name, offsetof(xd_request, field), offsetof(xd_request, texts.fields) }
    [XD_TEXT_NEGATIVE] = ROW("negative_prompt", negative_prompt, negative_prompts),
    [XD_TEXT_2] = ROW("prompt_2", texts.prompt_2, prompts_2),
    [XD_TEXT_3] = ROW("prompt_3", texts.prompt_3, prompts_3),
    [XD_TEXT_NEGATIVE_2] = ROW("negative_prompt_2", texts.negative_prompt_2, negative_prompts_2),
    [XD_TEXT_NEGATIVE_3] = ROW("negative_prompt_3", texts.negative_prompt_3, negative_prompts_3),
#undef ROW
};

static const char *one_of(const xd_request *r, xd_job_text_kind kind)
{
    return *(const char *const *)(const void *)((const char *)r + rows[kind].one);
}

static const xd_texts *list_of(const xd_request *r, xd_job_text_kind kind)
{
    return (const xd_texts *)(const void *)((const char *)r + rows[kind].list);
}

const char *xd_job_text(const xd_request *r, xd_job_text_kind kind, int64_t prompt)
{
    const xd_texts *l = list_of(r, kind);
    return l->n ? l->v[l->n > 1 ? prompt : 0] : one_of(r, kind);
}

int xd_job_has_text(const xd_request *r, xd_job_text_kind kind)
{
    return list_of(r, kind)->n || one_of(r, kind);
}

const char *xd_job_text_name(xd_job_text_kind kind)
{
    return rows[kind].name;
}

int xd_job_negatives(const xd_request *r)
{
    int several = r->texts.negative_prompts.n > 1 || r->texts.negative_prompts_2.n > 1 ||
                  r->texts.negative_prompts_3.n > 1;
    return several ? r->nprompts : 1;
}

void xd_job_first_texts(xd_request *r)
{
    for (xd_job_text_kind k = 0; k < XD_JOB_TEXTS; k++) {
        xd_texts *l = (xd_texts *)(void *)((char *)r + rows[k].list);
        l->n = l->n > 1 ? 1 : l->n;
    }
}

static uint64_t hash_list(uint64_t h, const char *const *v, int64_t n)
{
    h = xd_hash_mix(h, (uint64_t)n);
    for (int64_t i = 0; v && i < n; i++)
        h = xd_hash_mix(h, v[i] ? xd_hash_mix(xd_hash_text(v[i]), 1) : 0);
    return h;
}

uint64_t xd_job_texts_hash(const xd_request *r)
{
    uint64_t h = hash_list(0, r->prompts, r->nprompts);
    for (xd_job_text_kind k = 0; k < XD_JOB_TEXTS; k++)
        h = hash_list(h, list_of(r, k)->v, list_of(r, k)->n);
    return h;
}

/* Refuses a text that is not UTF-8, because its bytes would be read as other characters without a
 * warning. */
static xd_status check_text(const char *name, int64_t number, const char *text, xd_err *e)
{
    size_t at = text ? xd_utf8_invalid_at(text) : 0;
    char   which[32] = "";
    if (!text || !text[at])
        return XD_OK;
    if (number)
        snprintf(which, sizeof which, " %lld", (long long)number);
    return xd_fail(e, XD_EINVAL,
                   "%s%s is not UTF-8: its byte %zu is 0x%02X; write the text in "
                   "UTF-8 (iconv -f latin1 -t utf-8 converts a file of Latin-1)",
                   name, which, at + 1, (unsigned)(unsigned char)text[at]);
}

static xd_status check_list(const char *name, const char *const *v, int64_t n, xd_err *e)
{
    xd_status s = XD_OK;
    for (int64_t i = 0; i < n && s == XD_OK; i++)
        s = check_text(name, i + 1, v[i], e);
    return s;
}

xd_status xd_job_check_texts(const xd_request *r, xd_err *e)
{
    xd_status s = check_list("prompt", r->prompts, r->nprompts, e);
    if (s == XD_OK)
        s = check_text("system_prompt", 0, r->texts.system_prompt, e);
    for (xd_job_text_kind k = 0; k < XD_JOB_TEXTS && s == XD_OK; k++) {
        const xd_texts *l = list_of(r, k);
        if (l->n < 0 || (l->n > 1 && l->n != r->nprompts) || (l->n && !l->v))
            return xd_fail(e, XD_EINVAL,
                           "%s has %lld texts for %d prompt%s; give one text "
                           "for all prompts, or one for each",
                           rows[k].name, (long long)l->n, r->nprompts, r->nprompts == 1 ? "" : "s");
        s = check_text(rows[k].name, 0, one_of(r, k), e);
        if (s == XD_OK)
            s = check_list(rows[k].name, l->v, l->n, e);
    }
    return s;
}

int xd_job_uses_prompt(const xd_job *j, int prompt)
{
    int n = j->r->num_images_per_prompt, low = 0, high = j->ntodo;
    if (!j->todo)
        return 1;
    while (low < high) { /* binary search for the first image of this prompt or a later one */
        int mid = low + (high - low) / 2;
        if (j->todo[mid] / n < prompt)
            low = mid + 1;
        else
            high = mid;
    }
    return low < j->ntodo && j->todo[low] / n == prompt;
}

int64_t xd_job_padded(const xd_job *j, int64_t n)
{
    int64_t m = j->ctx->model.dit_info.multiple;
    return m ? (n + m - 1) / m * m : n;
}

int64_t xd_job_text_rows(const xd_job *j, int64_t n)
{
    return xd_job_padded(j, n + j->ctx->model.dit_info.registers);
}

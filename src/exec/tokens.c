/* tokens.c - computes which rank has which tokens */
#include "exec/tokens.h"

const xd_stream_id xd_stream_order[XD_NSTREAMS] = { XD_LEAD, XD_TXT, XD_PAD,
                                                    XD_REF,  XD_IMG, XD_AUDIO };

xd_span xd_cut(xd_span whole, int i, int n)
{
    int64_t a = whole.n * i / n, b = whole.n * (i + 1) / n;
    return (xd_span){ whole.start + a, b - a };
}

xd_span xd_cut_at(xd_span whole, int i, int n, const int64_t *at)
{
    if (!at)
        return xd_cut(whole, i, n);
    int64_t a = whole.n * at[i] / at[n], b = whole.n * at[i + 1] / at[n];
    return (xd_span){ whole.start + a, b - a };
}

xd_span xd_own(const xd_layout *l, xd_stream_id s, int patch, int sp)
{
    xd_span all = { 0, l->len[s] };
    if (s == XD_TXT || s == XD_PAD || s == XD_LEAD) /* these tokens belong to one patch */
        return patch == l->txt_patch ? xd_cut_at(all, sp, l->nsp, l->share) : (xd_span){ 0, 0 };
    const int parts = l->npatch - l->refs_apart;
    if (l->refs_apart && (patch == parts) != (s == XD_REF))
        return (xd_span){ 0, 0 };
    if (patch < parts)
        all = xd_cut(all, patch, parts);
    return xd_cut_at(all, sp, l->nsp, l->share);
}

int64_t xd_own_rows(const xd_layout *l, int patch, int sp)
{
    int64_t n = 0;
    for (int p = 0; p < l->npatch; p++)
        for (int s = 0; s < XD_NSTREAMS; s++)
            if (patch == XD_ALL || patch == p)
                n += xd_own(l, (xd_stream_id)s, p, sp).n;
    return n;
}

int64_t xd_token(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row)
{
    for (int p = 0; p < l->npatch; p++) {
        if (patch != XD_ALL && patch != p)
            continue;
        xd_span own = xd_own(l, s, p, sp);
        if (row < own.n)
            return own.start + row;
        row -= own.n;
    }
    return -1;
}

int64_t xd_token_run(const xd_layout *l, xd_stream_id s, int patch, int sp, int64_t row)
{
    int64_t n = 0, end = -1;
    for (int p = 0; p < l->npatch; p++) {
        if (patch != XD_ALL && patch != p)
            continue;
        xd_span own = xd_own(l, s, p, sp);
        if (row >= own.n) {
            row -= own.n;
            continue;
        }
        if (n && own.start != end)
            break;
        n += own.n - row;
        end = own.start + own.n;
        row = 0;
    }
    return n;
}

int64_t xd_reach(const xd_layout *l, xd_nearness how)
{
    return how == XD_NEAR_IN_TIME ? l->grid[1] * l->grid[2] : l->grid[2] + 1;
}

xd_span xd_near_span(const xd_layout *l, xd_span own, xd_nearness how, int side)
{
    int64_t reach = xd_reach(l, how), end = own.start + own.n;
    if (!own.n)
        return (xd_span){ own.start, 0 };
    if (side)
        return (xd_span){ end, l->len[XD_IMG] - end < reach ? l->len[XD_IMG] - end : reach };
    return (xd_span){ own.start < reach ? 0 : own.start - reach,
                      own.start < reach ? own.start : reach };
}

int xd_ref_at(const xd_layout *l, int64_t i, int64_t *row, int64_t *col)
{
    int k = 0;
    for (; k < l->nrefs - 1 && i >= l->refs[k].rows * l->refs[k].cols; k++)
        i -= l->refs[k].rows * l->refs[k].cols;
    *row = i / l->refs[k].cols;
    *col = i % l->refs[k].cols;
    return k;
}

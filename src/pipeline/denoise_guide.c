/* denoise_guide.c - computes the guided prediction of a step from the predictions of its passes
 * (with the prompt, with the negative prompt, and with skipped layers) */
#include <float.h>
#include <math.h>
#include <string.h>

#include "comm/kinds.h"
#include "exec/op.h"
#include "families/recipe.h"
#include "model/model.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

/* Returns 1 if the norm of each row of the guided prediction's latents is set to that of the
 * prompt's prediction. */
static int keeps_rows(const xd_job *j)
{
    return j->ctx->model.recipe->keeps_rows && j->r->guidance.cfg_normalization != 0;
}

int64_t xd_denoise_nsums(const xd_job *j)
{
    return keeps_rows(j)          ? j->lat[0] * j->lat[1] * j->lat[2]
           : j->audio_numbers > 0 ? 2 * XD_JOB_STREAMS
                                  : 2;
}

double *xd_denoise_sums(const xd_denoise *f, int patch, int guided)
{
    return f->sums + (2 * patch + guided) * f->nsums;
}

/* Sets f->row_of [F] to the index, among the rows of the latents [t,C,h], of each feature of a
 * token. */
static void find_rows(const xd_denoise *f, int64_t token)
{
    const int     *p = f->j->ctx->model.dit_info.patch;
    const int64_t *grid = f->j->lay.grid, *lat = f->j->lat;
    int64_t        frame = token / (grid[1] * grid[2]) * p[0];
    int64_t        row = token / grid[2] % grid[1] * p[1], *to = f->row_of;
    for (int64_t c = 0; c < lat[1]; c++)
        for (int k = 0; k < p[0]; k++)
            for (int i = 0; i < p[1]; i++)
                for (int n = 0; n < p[2]; n++)
                    *to++ = ((frame + k) * lat[1] + c) * lat[2] + row + i;
}

/* For each patch, computes the sums of the prediction of this rank's tokens. */
static void add_up(xd_denoise *f, int unit, int guided)
{
    const int rows = keeps_rows(f->j);
    for (int p = 0; p < f->lay.npatch; p++) {
        if ((unit != XD_ALL && p != unit) || xd_counting(&f->x) || !xd_ok(&f->x))
            continue;
        xd_tensor t = xd_denoise_part(f, f->pred[0], p);
        double   *sum = xd_denoise_sums(f, p, guided);
        int64_t   first = xd_own(&f->lay, XD_IMG, p, f->x.sp).start;
        xd_get(&f->x, f->mine, t);
        memset(sum, 0, (size_t)f->nsums * sizeof *sum);
        for (int64_t i = 0, feature = 0; i < xd_count(t); i++, feature++) {
            double v = (double)f->mine[i];
            if (feature == t.d[1])
                feature = 0;
            if (rows && feature == 0)
                find_rows(f, first + i / t.d[1]);
            if (!rows)
                sum[0] += v;
            sum[rows ? f->row_of[feature] : 1] += v * v;
        }
    }
}

/* Adds up the sums over the complete image. Each rank that has tokens has summed its own rows.
 * Patches that are not computed yet contribute the values of the previous step. Returns the sums of
 * the prompt's prediction, which those of the guided prediction follow. */
const double *xd_denoise_sum_members(xd_denoise *f, int unit)
{
    xd_comm *c = f->topo->tokens;
    double  *all = xd_denoise_sums(f, f->lay.npatch, 0);
    if (c->size > 1) {
        int64_t count = 2 * f->nsums * (unit == XD_ALL ? f->lay.npatch : 1);
        xd_req  r = c->ops->allreduce(
            c, xd_view(xd_denoise_sums(f, unit == XD_ALL ? 0 : unit, 0), XD_F64, 1, &count),
            XD_SUM);
        xd_denoise_wait(f, c, &r);
    }
    memset(all, 0, (size_t)(2 * f->nsums) * sizeof *all);
    for (int p = 0; p < f->lay.npatch; p++)
        for (int64_t i = 0; i < 2 * f->nsums; i++)
            all[i] += xd_denoise_sums(f, p, 0)[i];
    return all;
}

/* Sets the norm of each row of the guided prediction's latents to that of the prompt's
 * prediction. */
static void rescale_rows(xd_denoise *f, int unit)
{
    const double *s = xd_denoise_sum_members(f, unit);
    xd_tensor     t = xd_denoise_part(f, f->pred[0], unit);
    xd_tensor     by = xd_new_f32(&f->x, t.d[0], t.d[1]);
    int64_t       at = 0;
    for (int p = 0; p < f->lay.npatch; p++) {
        xd_span own = xd_own(&f->lay, XD_IMG, p, f->x.sp);
        if ((unit != XD_ALL && p != unit) || xd_counting(&f->x) || !xd_ok(&f->x))
            continue;
        for (int64_t i = 0; i < own.n; i++) {
            find_rows(f, own.start + i);
            for (int64_t k = 0; k < t.d[1]; k++) {
                int64_t row = f->row_of[k];
                double  norm = s[f->nsums + row];
                f->mine[at++] = norm > 0 ? (float)sqrt(s[row] / norm) : 1;
            }
        }
    }
    xd_put(&f->x, by, f->mine);
    xd_gated_into(&f->x, t, t, by, XD_NONE);
}

/* Scales the guided prediction of `unit` (a patch, or XD_ALL). With guidance_rescale, scaling moves
 * the standard deviation of the guided prediction towards that of the prompt's prediction (Lin et
 * al. 2023, section 3.4). With cfg_normalization, scaling limits the norm of the guided prediction
 * to cfg_normalization times the norm of the prompt's prediction. */
static void rescale_guidance(xd_denoise *f, int unit)
{
    const xd_job *j = f->j;
    const double *s = xd_denoise_sum_members(f, unit);
    double        n = (double)j->numbers, share = j->r->guidance.guidance_rescale, of[2];
    double        by = j->r->guidance.cfg_normalization * sqrt(s[1] / s[3]);
    for (int i = 0; i < 2; i++)
        of[i] = sqrt((s[2 * i + 1] - s[2 * i] * s[2 * i] / n) / (n - 1));
    if (share > 0)
        by = of[1] > 0 ? share * of[0] / of[1] + 1 - share : 1;
    xd_axpby(&f->x, xd_denoise_part(f, f->pred[0], unit), 0, (xd_tensor){ 0 },
             share > 0 || by < 1 ? (float)by : 1.0f);
}

/* Returns 1 if each token's guided prediction gets the norm of its prompt's prediction. */
static int keeps_length(const xd_job *j)
{
    const xd_recipe *p = j->ctx->model.recipe;
    return p->keeps_length || (p->may_keep_length && j->r->guidance.cfg_normalization > 0);
}

/* Replaces the prompt's prediction p[0] by the guided prediction, negative + g (prompt -
 * negative). */
static void guide(xd_denoise *f, const xd_tensor p[2], double g)
{
    xd_exec  *x = &f->x;
    xd_tensor like = { 0 };
    if (keeps_length(f->j) && p[0].d[0]) {
        like = xd_new_f32(x, p[0].d[0], p[0].d[1]);
        xd_copy_to(x, like, p[0]);
    }
    xd_axpby(x, p[0], (float)(1 - g), p[1], (float)g);
    if (like.nd)
        xd_norm_into(x,
                     &(xd_norm){ .out = p[0], .in = p[0], .like = like, .rms = 1, .eps = FLT_MIN });
}

/* In a step with a third pass, which skips layers, moves the guided prediction away from the third
 * pass's prediction. */
static void leave_skipped(xd_denoise *f, int passes, const xd_tensor p[XD_MAXPASS], int guided)
{
    double by = f->j->r->guidance.skip_layer_guidance_scale;
    if (passes <= XD_PASS_SKIPPING)
        return;
    /* the difference needs the prompt's prediction p[0], which guidance overwrites afterwards */
    if (!guided)
        xd_axpby(&f->x, p[XD_PASS_SKIPPING], 1, p[XD_PASS_PROMPT], -1);
    else
        xd_axpby(&f->x, p[XD_PASS_PROMPT], (float)by, p[XD_PASS_SKIPPING], 1);
}

void xd_denoise_guide(xd_denoise *f, int step, int unit, const xd_tensor p[XD_MAXPASS])
{
    const xd_request *r = f->j->r;
    int               passes = xd_job_passes(f->j, step);
    int               rows = keeps_rows(f->j);
    int limits = r->guidance.cfg_normalization > 0 && !f->j->ctx->model.recipe->may_keep_length;
    int rescales = passes > 1 && (rows || limits || r->guidance.guidance_rescale > 0);
    if (rescales)
        add_up(f, unit, 0);
    leave_skipped(f, passes, p, 0);
    if (passes > 1)
        guide(f, p, xd_job_guidance(f->j, step));
    leave_skipped(f, passes, p, 1);
    if (rescales) {
        add_up(f, unit, 1);
        (rows ? rescale_rows : rescale_guidance)(f, unit);
    }
}

/* denoise_guide.c - computes the guided prediction of a step from the predictions of its passes
 * (with the prompt, with the negative prompt, and with skipped layers) */
#include <float.h>
#include <math.h>

#include "comm/kinds.h"
#include "exec/op.h"
#include "families/recipe.h"
#include "model/model.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/job.h"

/* For each patch, computes the sum of the prediction's elements and the sum of their squares. The
 * two sums are stored in the patch's row of f->sums, at the indices `at` and `at` + 1. */
static void add_up(xd_denoise *f, int unit, int at)
{
    for (int p = 0; p < f->lay.npatch; p++) {
        if ((unit != XD_ALL && p != unit) || xd_counting(&f->x) || !xd_ok(&f->x))
            continue;
        xd_tensor t = xd_denoise_part(f, f->pred[0], p);
        double    sum = 0, square = 0;
        xd_get(&f->x, f->mine, t);
        for (int64_t i = 0; i < xd_count(t); i++)
            sum += (double)f->mine[i], square += (double)f->mine[i] * (double)f->mine[i];
        f->sums[p][at] = sum;
        f->sums[p][at + 1] = square;
    }
}

/* Adds up f->sums over the complete image. Each rank that has tokens has summed its own rows.
 * Patches that are not computed yet contribute the values of the previous step. */
static void sum_members(xd_denoise *f, int unit, double s[4])
{
    xd_comm *c = f->topo->tokens;
    if (c->size > 1) {
        int64_t count = 4 * (unit == XD_ALL ? f->lay.npatch : 1);
        xd_req  r = c->ops->allreduce(
            c, xd_view(f->sums[unit == XD_ALL ? 0 : unit], XD_F64, 1, &count), XD_SUM);
        xd_denoise_wait(f, c, &r);
    }
    for (int p = 0; p < f->lay.npatch; p++)
        for (int i = 0; i < 4; i++)
            s[i] += f->sums[p][i];
}

/* Scales the guided prediction of `unit` (a patch, or XD_ALL). With guidance_rescale, scaling moves
 * the standard deviation of the guided prediction towards that of the prompt's prediction (Lin et
 * al. 2023, section 3.4). With cfg_normalization, scaling limits the norm of the guided prediction
 * to cfg_normalization times the norm of the prompt's prediction. */
static void rescale_guidance(xd_denoise *f, int unit)
{
    const xd_job *j = f->j;
    double n = (double)j->numbers, share = j->r->guidance.guidance_rescale, s[4] = { 0 }, of[2];
    sum_members(f, unit, s);
    double by = j->r->guidance.cfg_normalization * sqrt(s[1] / s[3]);
    for (int i = 0; i < 2; i++)
        of[i] = sqrt((s[2 * i + 1] - s[2 * i] * s[2 * i] / n) / (n - 1));
    if (share > 0)
        by = of[1] > 0 ? share * of[0] / of[1] + 1 - share : 1;
    xd_axpby(&f->x, xd_denoise_part(f, f->pred[0], unit), 0, (xd_tensor){ 0 },
             share > 0 || by < 1 ? (float)by : 1.0f);
}

/* Replaces the prompt's prediction p[0] by the guided prediction, negative + g (prompt -
 * negative). */
static void guide(xd_denoise *f, const xd_tensor p[2], double g)
{
    xd_exec  *x = &f->x;
    xd_tensor like = { 0 };
    if (f->j->ctx->model.recipe->keeps_length && p[0].d[0]) {
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
    int rescales = passes > 1 &&
                   (r->guidance.guidance_rescale > 0 || r->guidance.cfg_normalization > 0);
    if (rescales)
        add_up(f, unit, 0);
    leave_skipped(f, passes, p, 0);
    if (passes > 1)
        guide(f, p, xd_job_guidance(f->j, step));
    leave_skipped(f, passes, p, 1);
    if (rescales) {
        add_up(f, unit, 2);
        rescale_guidance(f, unit);
    }
}

/* predict_memory.c - predicts the memory that a request needs, and selects the blocks to stream so
 * that the request fits */
#include "predict/predict_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/component.h"
#include "pipeline/context.h"
#include "pipeline/job.h"
#include "plan/plan.h"

/* assumed bytes/s of copies from host to device if the machine's rate is unknown */
static const double USUAL_UPLOAD = 20e9;

xd_block_sizes xd_predict_block_sizes(const xd_component *p)
{
    xd_block_sizes w = xd_component_blocks(p);
    size_t        *block = w.n ? malloc((size_t)w.n * sizeof *block) : NULL;
    if (block)
        memcpy(block, w.block, (size_t)w.n * sizeof *block);
    w.n = block ? w.n : 0;
    w.block = block;
    return w;
}

static void free_block(const xd_block_sizes *w)
{
    free((void *)(uintptr_t)w->block);
}

void xd_predict_free_parts(xd_offload_parts *parts, int ranks)
{
    for (int r = 0; parts && r < ranks; r++) {
        free_block(&parts[r].dit);
        free_block(&parts[r].dit2);
        for (int k = 0; k < XD_MAXTEXT; k++)
            free_block(&parts[r].text[k]);
    }
    free(parts);
}

/* Selects the blocks of weights that a rank streams, so that its memory need is at most `room`
 * bytes. */
static void stream_blocks(xd_prediction_rank *k, const xd_job *j, xd_offload_parts *p, int ranks,
                          double room)
{
    xd_offload how = j->ctx->offload;
    if (how != XD_OFFLOAD_NONE && ((double)k->need.peak > room || how == XD_OFFLOAD_STREAM))
        xd_offload_fit(p, &k->need, j, ranks, room);
    k->dit_blocks = p->dit.n;
    k->dit_streamed = p->plan_dit.streamed;
    for (int i = 0; i < XD_MAXTEXT; i++)
        if (p->text[i].n && p->plan_text[i].streamed >= k->text_streamed) {
            k->text_blocks = p->text[i].n;
            k->text_streamed = p->plan_text[i].streamed;
        }
}

/* Returns the bytes/s at which a CPU streams weights: for each use, the rows are read from files in
 * the page cache and rearranged for the kernels. */
static double rate_of_packing(const xd_job *j, const xd_machine *m)
{
    const xd_rates *k = j->ctx->type == XD_F32 ? &m->f32 : &m->bf16;
    double          rate = k->weights > 0 ? k->weights : k->bytes;
    return rate > 0 ? rate / 3 : USUAL_UPLOAD;
}

/* Blocks are copied while other blocks compute. If copying a step's streamed blocks takes longer
 * than the step, increases the predicted time of the step to the time of copying. */
static void add_streaming(xd_prediction *f, const xd_job *j, const xd_machine *m)
{
    size_t most = 0;
    for (int r = 0; r < f->ranks; r++)
        most = f->rank[r].need.streamed > most ? f->rank[r].need.streamed : most;
    f->upload = m->upload > 0 ? m->upload : USUAL_UPLOAD;
    /* a CPU accesses each row three times: to read it from a file, to rearrange it, and to read the
     * rearranged row */
    if (m->shares)
        f->upload = rate_of_packing(j, m);
    double pass_s = (double)most / f->upload;
    f->streamed = (double)most * xd_offload_runs(j, xd_job_usual_passes(j), 0);
    for (int i = 0; i < f->texts * XD_MAXPASS; i++) {
        int                 p = 1 + i % XD_MAXPASS;
        xd_predicted_steps *k = &f->text[i / XD_MAXPASS].of[p];
        k->exact_s = fmax(k->exact_s, pass_s * xd_offload_runs(j, p, 1));
        k->step_s = fmax(k->step_s, pass_s * xd_offload_runs(j, p, !f->stale));
    }
}

/* Returns 1 if an earlier rank of the host has the same transformer weights as rank r. */
static int has_twin(const xd_prediction *f, int r, int first, const xd_machine *m)
{
    int twin = 0;
    for (int o = first; o < r && m->shares; o++)
        twin |= f->rank[o].need.dit == f->rank[r].need.dit &&
                o % f->plan.deg.n[XD_TENSOR] == r % f->plan.deg.n[XD_TENSOR];
    return twin;
}

/* Returns how many bytes rank r adds to the memory need of its host, whose first rank is `first`.
 * On CPUs, the ranks of a host share the host's memory and one copy of equal weights. Devices have
 * their own memory, and the ranks of a host share only the host's copy of streamed blocks. */
static double share_of(const xd_prediction *f, int r, int first, const xd_machine *m)
{
    const xd_need *n = &f->rank[r].need;
    int            twin = has_twin(f, r, first, m);
    /* a device with its own memory: only the need of host memory counts */
    if (m->shares && n->host)
        return (double)(n->host - (twin ? n->pinned - n->pinned_text : 0));
    return (double)n->peak - (twin ? (double)(n->dit + n->dit2) : 0) -
           (m->shares && r > first ? (double)n->vae : 0);
}

static double peak_of(const xd_prediction *f, const xd_machine *m)
{
    double peak = 0;
    for (int first = 0; first < f->ranks; first += m->ranks) {
        double sum = 0;
        for (int r = first; r < f->ranks && r < first + m->ranks; r++) {
            sum += share_of(f, r, first, m);
            if (!m->shares)
                peak = fmax(peak, (double)f->rank[r].need.peak);
        }
        if (m->shares)
            peak = fmax(peak, sum);
    }
    return peak;
}

/* If the ranks of a host need more memory than the host has, streams blocks in the same way as
 * fit_to_host of memory_plan.c. */
static void stream_on_host(xd_prediction *f, const xd_job *j, xd_offload_parts *parts, int first,
                           const xd_machine *m)
{
    double over = -m->memory;
    int    copies = 0, end = first + m->ranks < f->ranks ? first + m->ranks : f->ranks;
    for (int r = first; r < end; r++) {
        over += share_of(f, r, first, m);
        copies += !has_twin(f, r, first, m);
    }
    for (int r = first; r < end; r++)
        stream_blocks(&f->rank[r], j, &parts[r], f->ranks,
                      (double)f->rank[r].need.peak - over / copies);
}

static void sum_needs(xd_prediction *f, const xd_job *j, int both)
{
    for (int r = 0; r < f->ranks; r++) {
        xd_need *n = &f->rank[r].need;
        n->dit2 = both ? n->dit2 : 0;
        xd_need_sum(n, j, f->ranks);
    }
}

void xd_predict_memory(xd_prediction *f, xd_job *j, xd_offload_parts *parts, const xd_machine *m)
{
    int both = xd_need_both(j) && j->ctx->offload != XD_OFFLOAD_STREAM;
    sum_needs(f, j, both);
    if (both && peak_of(f, m) > m->memory)
        sum_needs(f, j, 0);
    int host = m->shares && !xd_dev_identity(j->ctx->count);
    for (int r = 0; r < f->ranks; r += host ? m->ranks : 1)
        if (host)
            stream_on_host(f, j, parts, r, m);
        else
            stream_blocks(&f->rank[r], j, &parts[r], f->ranks, m->shares ? 1e18 : m->memory);
    f->peak = peak_of(f, m);
    f->fits = f->peak <= m->memory;
    f->apart = xd_need_apart(j, f->ranks);
    add_streaming(f, j, m);
}

/* denoise.c - the denoising loop.
 *
 * A work item is one pass (xd_pass_kind) of one patch, or of all
 * patches, in one step. Two messages connect the pipeline stages. After each work item, the hidden
 * states of the item go to the next stage. Once per step the latents return from the last stage to
 * the first. Each pair of ranks has one FIFO per direction, and both ranks iterate over the same
 * list of items, so messages need no tags.
 *
 * Hidden states cycle through three buffers: one is computed on, the next one is being received,
 * and the previous one is being sent. Some models have long skip connections (xd_dit.skip_from).
 * The tensors of these connections have separate buffers, and each work item sends them in a second
 * message after its hidden states. */
#include "pipeline/denoise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/minmax.h"
#include "base/rng.h"
#include "comm/kinds.h"
#include "exec/late.h"
#include "exec/op.h"
#include "model/component.h"
#include "observe/trace.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/preview.h"
#include "plan/balance.h"
#include "plan/plan.h"
#include "ranks/world.h"

/* a work item: one pass of one patch (index `unit`) or of all patches (unit XD_ALL) in a step */
typedef struct piece { int step, unit, pass; } piece;

static int stage_count(const xd_denoise *f)
{
    return f->topo->deg.n[XD_PIPE];
}
static int my_stage(const xd_denoise *f)
{
    return f->topo->at[XD_PIPE];
}
static int is_first(const xd_denoise *f)
{
    return xd_denoise_is_first(f);
}
static xd_comm *pipe_group(const xd_denoise *f)
{
    return f->topo->group[XD_PIPE];
}

static int passes_of_mine(const xd_denoise *f)
{
    int n = 0;
    for (int p = 0; p < f->j->npass; p++)
        n += xd_denoise_is_mine(f, p);
    return n;
}

/* ---- units and rows ----------------------------------------------------------------------- */

int xd_denoise_exact(const xd_denoise *f)
{
    return f->lay.refs_apart && f->plan->npatch == 1 ? 1 : xd_plan_exact(f->plan);
}

/* Returns 1 if a side network that was off in the step before is on in this step. */
static int side_begins(const xd_job *j, int step)
{
    for (int i = 0; j->hint_stride && step > 0 && i < j->hint_stride; i++) {
        const double *now = j->hint_scales + step * j->hint_stride;
        if (now[i] != 0 && now[i - j->hint_stride] == 0)
            return 1;
    }
    return 0;
}

/* Returns 1 for an exact step, which uses no stale data. The first steps of each transformer, the
 * first step with a third pass, steps in which a side network begins, and steps that recompute keys
 * and values of reference images are exact. */
static int is_exact(const xd_denoise *f, int step)
{
    int     begin = xd_job_dit_begin(f->j, step);
    int     n = step - (f->begin > begin && f->begin <= step ? f->begin : begin);
    int64_t interval = xd_job_reference_interval(f->j);
    return n < xd_denoise_exact(f) || (f->j->skips && step == xd_job_first_skip(f->j)) ||
           side_begins(f->j, step) || (f->lay.refs_apart && interval && n % interval == 0);
}

/* Returns the number of units that are computed in a step: patches, or all tokens at once as one
 * unit. Reference images that are a separate patch are computed in exact steps only. */
static int unit_count(const xd_denoise *f, int step)
{
    return is_exact(f, step) ? 1 : f->lay.npatch - f->lay.refs_apart;
}

static int unit_at(const xd_denoise *f, int step, int i)
{
    return is_exact(f, step) || f->lay.npatch == 1 ? XD_ALL : i;
}

/* Returns the token layout of a pass, for one patch or for all tokens (XD_ALL). Depending on the
 * plan, the text tokens belong to the first patch or to every patch. */
static xd_layout layout_of(const xd_denoise *f, int unit, int pass)
{
    xd_layout l = f->lay;
    if (l.len[XD_TXT])
        l.len[XD_TXT] = f->cond[pass].tok.d[0];
    l.txt_patch = unit != XD_ALL && f->plan->text_every ? unit : 0;
    return l;
}

xd_span xd_denoise_rows(const xd_denoise *f, xd_stream_id stream, int unit)
{
    xd_span s = { 0, 0 };
    for (int p = 0; p < f->lay.npatch; p++) {
        int64_t n = xd_own(&f->lay, stream, p, f->x.sp).n;
        if (unit == XD_ALL || p == unit)
            s.n += n;
        else if (p < unit)
            s.start += n;
    }
    return s;
}

/* Returns the range of rows that a patch, or all patches (XD_ALL), have in f->ref. If reference
 * images are in the prefix of the tokens, every patch has all rows. */
static xd_span refs_of(const xd_denoise *f, int unit)
{
    return f->j->ctx->model.dit_info.prefix_refs ? (xd_span){ 0, f->j->nref_tokens }
                                                 : xd_denoise_rows(f, XD_REF, unit);
}

/* Returns the range of rows that a patch, or all patches (XD_ALL), have in f->lat, which holds the
 * latents of this rank's image tokens. */
static xd_span rows_of(const xd_denoise *f, int unit)
{
    return xd_denoise_rows(f, XD_IMG, unit);
}

xd_tensor xd_denoise_part(const xd_denoise *f, xd_tensor t, int unit)
{
    xd_span s = rows_of(f, unit);
    return xd_rows(t, s.start, s.n);
}

xd_tensor xd_denoise_audio(const xd_denoise *f, xd_tensor t, int unit)
{
    xd_span s = xd_denoise_rows(f, XD_AUDIO, unit);
    return xd_rows(t, rows_of(f, XD_ALL).n + s.start, s.n);
}

static int slot_of(const xd_denoise *f, int unit)
{
    return unit == XD_ALL ? f->lay.npatch : unit;
}

/* Returns the number of the messages f->lat_in: those of the image and, if there is audio, those of
 * audio. */
static int slot_count(const xd_denoise *f)
{
    return (1 + (f->lay.len[XD_AUDIO] > 0)) * (f->lay.npatch + 1);
}

/* Returns the latents of a message, rows of `part` (a patch, or XD_ALL): those of the image (0) or
 * of audio (1). */
static xd_tensor slot_rows(const xd_denoise *f, int part, int audio)
{
    return audio ? xd_denoise_audio(f, f->lat, part) : xd_denoise_part(f, f->lat, part);
}

/* ---- messages ----------------------------------------------------------------------------- */

static xd_tensor hidden_view(const xd_denoise *f, int64_t index, piece w)
{
    xd_layout l = layout_of(f, w.unit, w.pass);
    return xd_rows(f->h[index % XD_NHID], 0, xd_own_rows(&l, w.unit, f->x.sp));
}

/* Returns a view of a work item's tensors for the first n long skip connections. */
static xd_tensor skip_rows(const xd_denoise *f, int64_t index, piece w, int n)
{
    return xd_rows(f->skip[index % f->nskip], 0, n * hidden_view(f, index, w).d[0]);
}

/* Returns the view [n,k,C/k] of the contiguous rows t [n,C]. Elements that share a scale in a coded
 * message are next to each other; there are at most 128 if C has such a divisor. */
static xd_tensor pieces_of(xd_tensor t)
{
    const int64_t C = t.d[1];
    int64_t       k = xd_ceil_div(C, 128);
    while (C % k)
        k++;
    return xd_view(t.p, t.type, 3, (int64_t[]){ t.d[0], k, C / k });
}

static int sends_codes(const xd_denoise *f)
{
    return xd_topo_codes(f->topo, XD_PIPE) != XD_F32;
}

/* Returns memory for the codes of the rows t. */
static xd_tensor new_codes(xd_denoise *f, xd_tensor t)
{
    xd_tensor p = pieces_of(t);
    p.d[2] += XD_CODE_SCALE;
    return xd_new_as(&f->x, f->topo->codes, 3, p.d);
}

/* Starts to send the rows t to the stage `to`. codes: memory for their codes, or absent. */
static xd_req send_rows(xd_denoise *f, xd_tensor t, xd_tensor codes, int to)
{
    if (codes.nd) {
        codes = xd_rows(codes, 0, t.d[0]);
        xd_encode_to(&f->x, codes, pieces_of(t));
        t = codes;
    }
    return pipe_group(f)->ops->send(pipe_group(f), t, to);
}

static xd_req receive_rows(const xd_denoise *f, xd_tensor t, xd_tensor codes)
{
    return pipe_group(f)->ops->recv(pipe_group(f), codes.nd ? xd_rows(codes, 0, t.d[0]) : t,
                                    my_stage(f) - 1);
}

/* Waits for the rows t, which receive_rows receives, and decodes them. */
static void wait_for_rows(xd_denoise *f, xd_req *r, xd_tensor t, xd_tensor codes)
{
    xd_denoise_wait(f, pipe_group(f), r);
    if (codes.nd)
        xd_decode_to(&f->x, pieces_of(t), xd_rows(codes, 0, t.d[0]));
}

static void post_hidden(xd_denoise *f, int64_t index, piece w)
{
    int i = (int)(index % XD_NHID), k = (int)(index % f->nskip);
    xd_denoise_wait(f, pipe_group(f), &f->h_out[i]);
    xd_cache_sent(f, i);
    xd_cache_post(f, i);
    f->h_in[i] = receive_rows(f, hidden_view(f, index, w), f->h_codes[i]);
    xd_denoise_wait(f, pipe_group(f), &f->skip_out[k]);
    if (f->skips[0])
        f->skip_in[k] = receive_rows(f, skip_rows(f, index, w, f->skips[0]), f->skip_codes[k]);
}

static void send_hidden(xd_denoise *f, piece w)
{
    int i = (int)(f->piece_index % XD_NHID), k = (int)(f->piece_index % f->nskip),
        to = my_stage(f) + 1;
    xd_cache_send(f, i);
    f->h_out[i] = send_rows(f, hidden_view(f, f->piece_index, w), f->h_codes[i], to);
    if (f->skips[1])
        f->skip_out[k] =
            send_rows(f, skip_rows(f, f->piece_index, w, f->skips[1]), f->skip_codes[k], to);
}

/* Advances to this rank's next work item of the current transformer; returns 0 after the last
 * item. */
static int next_piece(const xd_denoise *f, piece *p)
{
    int i = p->unit == XD_ALL ? 0 : p->unit;
    do {
        if (++p->pass < xd_job_passes(f->j, p->step))
            continue;
        p->pass = 0;
        if (++i >= unit_count(f, p->step)) {
            i = 0;
            if (++p->step >= f->end)
                return 0;
        }
    } while (!xd_denoise_is_mine(f, p->pass) || xd_cache_predicts(f, p->step));
    p->unit = unit_at(f, p->step, i);
    return 1;
}

/* Waits for the hidden states of this work item, and posts the receive for those of the next work
 * item. */
static void receive_hidden(xd_denoise *f, piece now)
{
    piece next = now;
    if (f->piece_index == 0)
        post_hidden(f, 0, now);
    if (next_piece(f, &next))
        post_hidden(f, f->piece_index + 1, next);
    xd_cache_arrived(f, (int)(f->piece_index % XD_NHID));
    const int i = (int)(f->piece_index % XD_NHID), k = (int)(f->piece_index % f->nskip);
    wait_for_rows(f, &f->h_in[i], hidden_view(f, f->piece_index, now), f->h_codes[i]);
    if (f->skips[0])
        wait_for_rows(f, &f->skip_in[k], skip_rows(f, f->piece_index, now, f->skips[0]),
                      f->skip_codes[k]);
}

/* Finds the i-th message that sends latents of `unit` (a patch, or XD_ALL) to the next step. If the
 * next step computes patches, each patch is one message; if the next step computes all tokens at
 * once, the complete unit is one message. Sets *part to the patch (or XD_ALL) whose latents the
 * message has; returns 0 if the message has no latents of `unit`. */
static int latent_part(const xd_denoise *f, int step, int unit, int i, int *part)
{
    int to = unit_at(f, step + 1, i);
    *part = to == XD_ALL ? unit : to;
    return unit == XD_ALL || to == XD_ALL || to == unit;
}

/* On the first stage: posts the receives for the latents of `unit` (a patch, or XD_ALL). */
static void post_latents(xd_denoise *f, int step, int unit)
{
    int part;
    for (int i = 0; step + 1 < f->j->samp.steps && i < unit_count(f, step + 1); i++)
        for (int k = 0; latent_part(f, step, unit, i, &part) && k <= (f->lay.len[XD_AUDIO] > 0);
             k++)
            f->lat_in[slot_of(f, part) + k * (f->lay.npatch + 1)] =
                pipe_group(f)->ops->recv(pipe_group(f), slot_rows(f, part, k), stage_count(f) - 1);
}

/* On the last stage: sends the latents of `unit` (a patch, or XD_ALL) to the first stage. */
static void send_latents(xd_denoise *f, int step, int unit)
{
    int part;
    for (int i = 0; step + 1 < f->j->samp.steps && i < unit_count(f, step + 1); i++)
        for (int k = 0; latent_part(f, step, unit, i, &part) && k <= (f->lay.len[XD_AUDIO] > 0);
             k++)
            f->lat_out[slot_of(f, part) + k * (f->lay.npatch + 1)] =
                pipe_group(f)->ops->send(pipe_group(f), slot_rows(f, part, k), 0);
}

/* On the first stage: waits for the latents of `unit` (a patch, or XD_ALL). */
static void wait_for_latents(xd_denoise *f, int unit)
{
    for (int p = 0; p < slot_count(f); p++)
        if (unit == XD_ALL || p % (f->lay.npatch + 1) == slot_of(f, unit))
            xd_denoise_wait(f, pipe_group(f), &f->lat_in[p]);
}

static void latents_sent(xd_denoise *f, int unit)
{
    for (int p = 0; p < slot_count(f); p++) {
        int at = p % (f->lay.npatch + 1);
        if (unit == XD_ALL || at == unit || at == f->lay.npatch)
            xd_denoise_wait(f, pipe_group(f), &f->lat_out[p]);
    }
}

/* ---- opening ------------------------------------------------------------------------------ */

/* Returns 1 if after each step the latents outside the mask are replaced by those of the initial
 * image. */
static int keeps_image(const xd_denoise *f)
{
    const xd_role_row *role = f->j->role;
    return xd_job_has_mask(f->j->r) && !role->reads_mask && !role->reads_control_video;
}

static void open_tensors(xd_denoise *f)
{
    xd_exec *x = &f->x;
    int64_t  n = rows_of(f, XD_ALL).n, all = n + xd_denoise_rows(f, XD_AUDIO, XD_ALL).n;
    f->lat = xd_new_f32(x, is_first(f) || xd_denoise_is_last(f) ? all : 0, f->j->features);
    for (int p = 0; p < f->j->npass; p++)
        f->pred[p] = xd_new_f32(x, xd_denoise_is_last(f) ? all : 0, f->j->features);
    for (int i = 0; i + 1 < xd_job_state_tensors(f->j); i++)
        f->hist[i] = xd_new_f32(x, xd_denoise_is_last(f) ? all : 0, f->j->features);
    if (xd_sampling_draws(&f->j->samp))
        f->noise = xd_new_f32(x, xd_denoise_is_last(f) ? all : 0, f->j->features);
    int ends = is_first(f) || xd_denoise_is_last(f);
    if (xd_role_conditions_noise(f->j) > 0) {
        f->given = xd_new_f32(x, ends ? n : 0, f->j->features);
        f->given_noise = xd_new_f32(x, ends ? n : 0, f->j->features);
    } else if (xd_role_conditions_blends(f->j)) {
        f->given = xd_new_f32(x, xd_denoise_is_last(f) ? n : 0, f->j->features);
    }
    if (xd_preview_asked(f->j))
        f->clean = xd_new_f32(x, xd_denoise_is_last(f) ? n : 0, f->j->features);
    for (int i = 0; i < XD_NKEEP && keeps_image(f); i++)
        f->keep[i] = xd_new_f32(x, xd_denoise_is_last(f) ? n : 0, f->j->features);
    if (f->j->ctx->model.dit_info.extra_ch)
        f->extra = xd_new_f32(x, is_first(f) ? n : 0, xd_denoise_extra(f));
    if (f->j->nref_tokens)
        f->ref = xd_new_f32(x, is_first(f) ? refs_of(f, XD_ALL).n : 0, f->j->features);
}

static void open_hidden(xd_denoise *f)
{
    xd_exec *x = &f->x;
    int64_t  all = xd_own_rows(&f->lay, XD_ALL, x->sp),
             dim = xd_dit_width(&f->j->ctx->model.dit_info);
    f->h[0] = xd_new_f32(x, all, dim);
    for (int i = 1; i < XD_NHID; i++)
        f->h[i] = stage_count(f) > 1 ? xd_new_f32(x, all, dim) : f->h[0];
    for (int i = 0; i < XD_NHID && sends_codes(f); i++)
        f->h_codes[i] = new_codes(f, f->h[i]);
}

/* Allocates the buffers of long skips. The first pipeline stage only sends skips and the last stage
 * only receives skips, so each of these two needs one buffer less. */
static void open_skips(xd_denoise *f)
{
    const xd_dit *dit = f->j->ctx->model.dit.dit;
    int           most = xd_dit_most_skips(dit, f->net);
    f->nskip = stage_count(f) == 1 ? 1 : is_first(f) || xd_denoise_is_last(f) ? 2 : 3;
    f->skips[0] = xd_dit_skips(dit, f->net->cfg, f->net->first);
    f->skips[1] = xd_dit_skips(dit, f->net->cfg, f->net->last);
    for (int i = 0; i < f->nskip && most; i++)
        f->skip[i] = xd_new(&f->x, most * f->h[0].d[0], f->j->ctx->model.dit_info.dim);
    for (int i = 0; i < f->nskip && most && sends_codes(f); i++)
        f->skip_codes[i] = new_codes(f, f->skip[i]);
}

static int reads_negative(const xd_denoise *f, int pass)
{
    return f->j->kinds[pass] == XD_PASS_NEGATIVE;
}

/* Returns the first pass that has the same text as `pass` and runs on the same rank. */
static int text_pass(const xd_denoise *f, int pass)
{
    const int groups = f->topo->deg.n[XD_CFG];
    int       p = pass % groups;
    while (reads_negative(f, p) != reads_negative(f, pass))
        p += groups;
    return p;
}

/* Allocates the data that the model computes once per text, for the passes of this rank. */
static void open_kept(xd_denoise *f)
{
    const xd_dit *dit = f->j->ctx->model.dit.dit;
    for (int p = 0; p < f->j->npass && dit->keep; p++) {
        if (!xd_denoise_is_mine(f, p) || p != text_pass(f, p))
            continue;
        if ((f->kept[p] = calloc(1, f->j->ctx->model.dit_info.kept_size)))
            dit->keep(&f->x, f->net, &f->cond[p], f->kept[p]);
        else
            xd_exec_fail(&f->x, XD_ENOMEM, "no memory for cached data of the text");
    }
}

/* Returns the modulations for a pass. If modulations depend on the text, every pass has its own
 * modulations. */
static xd_mods *mods_of(xd_denoise *f, int pass)
{
    int by_text = f->j->ctx->model.dit_info.pooled_dim || f->j->ctx->model.dit.dit->keep;
    return &f->mods[by_text ? text_pass(f, pass) : 0];
}

static void open_mods(xd_denoise *f)
{
    for (int p = 0; p < f->j->npass; p++)
        if (xd_denoise_is_mine(f, p) && !mods_of(f, p)->columns)
            xd_mods_open(mods_of(f, p), &f->x, f->j->ctx->model.dit.dit, f->net);
}

static void open_method_stack(xd_denoise *f)
{
    const xd_dit_info *d = &f->j->ctx->model.dit_info;
    xd_err             e = { 0 };
    xd_span            heads = xd_cut((xd_span){ 0, xd_dit_key_heads(d) }, f->topo->at[XD_TENSOR],
                                      f->topo->deg.n[XD_TENSOR]);
    xd_span            conv =
        xd_cut((xd_span){ 0, d->conv_dim }, f->topo->at[XD_TENSOR], f->topo->deg.n[XD_TENSOR]);
    xd_method_args a = { .what = XD_FOR_DIT,
                         .topo = f->topo,
                         .lay = &f->lay,
                         .dev = f->x.dev,
                         .act = f->x.act,
                         .heads = heads.n,
                         .group = d->heads / xd_dit_key_heads(d),
                         .head_dim = d->head_dim,
                         .sites = d->sites,
                         .first = f->net->first,
                         .last = f->net->last,
                         .npass = f->j->npass,
                         .displaced = f->plan->displaced,
                         .window = f->j->window,
                         .prefix = d->prefix,
                         .grouped = d->grouped,
                         .linear = d->linear,
                         .conv_ch = 2 * conv.n,
                         .frames_ch = d->frames_dim,
                         .ways = &f->j->ways };
    if (xd_method_stack_open(&f->stack, &a, &e) != XD_OK)
        xd_exec_fail(&f->x, e.code, "%s", e.msg);
    f->x.hooks = f->stack.head;
}

/* Opens the device's record of launches, which later steps replay. A pass is recorded only if it
 * sends no messages, streams no weights from host memory, has no cache that skips blocks, and has
 * no trace of ops and no hashes of blocks. */
static void open_replay(xd_denoise *f)
{
    xd_dev *dev = f->x.dev;
    if (f->topo->replica->size == 1 && f->x.hooks == &xd_hooks_local && !f->trace &&
        !f->net->stream && !xd_cache_is_on(f) && !xd_step_hash_of_blocks(f))
        xd_replay_open(&f->replay, dev, &f->j->step_ops);
    if (f->replay.dev)
        xd_log(XD_LOG_DEBUG,
               "%s records the transformer's passes as graphs: %lld of %lld ops are "
               "small",
               dev->name, (long long)f->j->step_ops.small, (long long)f->j->step_ops.calls);
}

/* Opens everything that belongs to one transformer and to its steps, the first of which is
 * `step`. */
static void open_net(xd_denoise *f, const xd_net *net, int step)
{
    f->net = net;
    f->begin = step;
    f->end = xd_job_dit_end(f->j, step);
    f->piece_index = 0;
    memset(f->read, 0, sizeof f->read);
    if (!f->x.dev->host_memory) {
        xd_tables_open(&f->tables, f->x.tmp);
        f->x.tables = &f->tables;
    }
    open_hidden(f);
    open_skips(f);
    open_kept(f);
    open_mods(f);
    xd_cache_open(f);
    open_method_stack(f);
    if (!f->x.dev->counts)
        open_replay(f);
}

static void close_net(xd_denoise *f)
{
    xd_replay_close(&f->replay);
    xd_method_stack_close(&f->stack);
    xd_tables_close(&f->tables);
    xd_cache_close(f);
    for (int p = 0; p < XD_MAXPASS; p++) {
        xd_mods_close(&f->mods[p]);
        free(f->kept[p]);
        f->kept[p] = NULL;
    }
}

void xd_denoise_change(xd_denoise *f, const xd_net *net, int step)
{
    size_t bytes = f->stack.bytes;
    close_net(f);
    xd_arena_rewind(f->x.tmp, f->mark);
    open_net(f, net, step);
    f->stack.bytes = bytes > f->stack.bytes ? bytes : f->stack.bytes;
}

void xd_denoise_open(xd_denoise *f, struct xd_job *j, xd_dev *dev, const xd_topo *topo,
                     xd_arena *tmp, const xd_net *net, const xd_cond *cond, int step)
{
    memset(f, 0, sizeof *f);
    f->j = j;
    f->plan = &j->ctx->plan;
    f->topo = topo;
    f->trace = dev->counts ? NULL : j->ctx->trace;
    f->lay = j->lay;
    f->lay.refs_apart = xd_job_keeps_references(j);
    f->lay.npatch = f->plan->npatch + f->lay.refs_apart;
    f->lay.nsp = topo->deg.n[XD_ULYSSES] * topo->deg.n[XD_RING];
    xd_balance_tokens(j->ctx->balance, &f->lay);
    for (int p = 0; p < j->npass; p++) {
        const xd_cond *own = &cond[reads_negative(f, p)];
        int64_t        n = j->ctx->model.dit_info.txt_flows ? own->tok.d[0] : 0;
        f->cond[p] = *own;
        f->lay.len[XD_TXT] = n > f->lay.len[XD_TXT] ? n : f->lay.len[XD_TXT];
    }
    xd_exec_init(&f->x, dev, tmp, j->ctx->type);
    f->x.lay = &f->lay;
    f->x.int8_attn = xd_job_int8_attention(j);
    f->x.fp8_gemm = xd_job_fp8_gemms(j);
    f->x.sp = xd_topo_sp(topo, topo->at[XD_ULYSSES], topo->at[XD_RING]);
    f->x.cancel = dev->counts ? NULL : j->ctx->cancel;
    f->lat_in = calloc(2 * ((size_t)f->lay.npatch + 1), sizeof *f->lat_in);
    f->lat_out = calloc(2 * ((size_t)f->lay.npatch + 1), sizeof *f->lat_out);
    f->nsums = xd_denoise_nsums(j);
    f->sums = calloc((size_t)(2 * (f->lay.npatch + 1) * f->nsums), sizeof *f->sums);
    f->local = calloc(1, j->ctx->model.dit_info.local_size + 1);
    f->row_of = calloc((size_t)j->features, sizeof *f->row_of);
    f->frame_t = j->nconditions ? calloc((size_t)j->cells[0], sizeof *f->frame_t) : NULL;
    if (!f->local || (j->nconditions && !f->frame_t) || !f->lat_in || !f->lat_out || !f->sums ||
        !f->row_of)
        xd_exec_fail(&f->x, XD_ENOMEM, "no memory for the bookkeeping of %d patches",
                     f->lay.npatch);
    open_tensors(f);
    xd_step_hash_open(f);
    f->mark = xd_arena_mark(tmp);
    open_net(f, net, step);
    if (dev->counts)
        return;
    int64_t n = xd_max(j->numbers, f->lay.len[XD_AUDIO] * j->features);
    f->mine = xd_denoise_buffer(f, n, "latents");
    f->rows = xd_denoise_buffer(f, n, "latents");
    f->whole = xd_denoise_buffer(f, n, "latents");
    xd_world_watch(&j->ctx->world, &f->x);
}

int xd_denoise_ready(xd_denoise *f)
{
    xd_world_settle(&f->j->ctx->world, f->topo->replica, &f->x);
    return xd_ok(&f->x);
}

void xd_denoise_close(xd_denoise *f)
{
    close_net(f);
    xd_step_hash_close(f);
    free(f->local);
    free(f->lat_in);
    free(f->lat_out);
    free(f->sums);
    free(f->row_of);
    free(f->frame_t);
    free(f->mine);
    free(f->rows);
    free(f->whole);
    f->local = NULL;
    f->mine = f->rows = f->whole = NULL;
    f->sums = NULL;
    f->row_of = NULL;
    f->frame_t = NULL;
    f->lat_in = f->lat_out = NULL;
}

/* ---- a work item ---------------------------------------------------------------------- */

/* Returns the rows of the text that this rank embeds for a work item. */
static xd_tensor text_of(const xd_denoise *f, const xd_layout *l, piece w)
{
    xd_span s = { 0, 0 };
    if (l->len[XD_TXT] && is_first(f) && (w.unit == XD_ALL || w.unit == l->txt_patch))
        s = xd_own(l, XD_TXT, l->txt_patch, f->x.sp);
    return s.n ? xd_rows(f->cond[w.pass].tok, s.start, s.n) : (xd_tensor){ 0 };
}

void xd_denoise_blocks(xd_denoise *f, int from, int to, xd_state *s)
{
    xd_exec *x = &f->x;
    xd_late  late;
    size_t   mark = xd_arena_mark(x->tmp);
    int64_t  dim = f->j->ctx->model.dit_info.dim, states = s->h.d[1] / dim;
    if (!xd_step_hash_of_blocks(f))
        xd_late_open(x, &late, xd_reshape(s->h, 2, (int64_t[]){ states * s->h.d[0], dim }));
    for (int l = from; l < to; l++) {
        size_t  m = xd_arena_mark(x->tmp);
        int64_t t0 = xd_trace_now(f->trace);
        if (xd_job_skips(f->j, x->pass, l))
            continue;
        xd_dit_block(x, f->j->ctx->model.dit.dit, f->net, l, s);
        xd_trace_add(f->trace, XD_EV_BLOCK, t0, l, 0, 0);
        if (xd_step_hash_of_blocks(f))
            xd_step_hash_block(f, l, s->h);
        xd_late_keep(x, m);
        xd_arena_rewind(x->tmp, m);
    }
    xd_late_close(x);
    xd_arena_rewind(x->tmp, mark);
}

/* Runs the transformer blocks of this pipeline stage; the last stage stores the prediction. */
static void run_blocks(xd_denoise *f, piece w, xd_state *s)
{
    const xd_dit *dit = f->j->ctx->model.dit.dit;
    xd_cache_run(f, s);
    if (xd_denoise_is_last(f)) {
        xd_tensor out = dit->head(&f->x, f->net, s), pred = f->pred[w.pass];
        int64_t   n = rows_of(f, w.unit).n, audio = out.d[0] - n;
        xd_copy_to(&f->x, xd_denoise_part(f, pred, w.unit), xd_rows(out, 0, n));
        if (audio)
            xd_copy_to(&f->x, xd_denoise_audio(f, pred, w.unit), xd_rows(out, n, audio));
    }
    xd_cache_keep(f, w.step, w.unit, w.pass);
}

/* Runs the blocks like run_blocks, or replays the device's record of an earlier step. */
static void replay_blocks(xd_denoise *f, piece w, xd_state *s)
{
    xd_exec      *x = &f->x;
    size_t        mark = xd_arena_mark(x->tmp);
    xd_state      before = *s;
    xd_replay_key key = { .pass = w.pass,
                          .patch = w.unit,
                          .local = f->local,
                          .at = { s->h.p, s->skips.p, s->kept, f->pred[w.pass].p,
                                  x->tmp->base + mark },
                          .local_size = f->j->ctx->model.dit_info.local_size };
    xd_replay_how how = xd_replay_begin(&f->replay, x, &key);
    if (how == XD_DONE)
        return;
    run_blocks(f, w, s);
    if (how == XD_RUN || xd_replay_end(&f->replay, x))
        return;
    xd_arena_rewind(x->tmp, mark);
    *s = before;
    run_blocks(f, w, s);
}

/* Sets the distances of neighbouring tokens (xd_input). */
static void set_steps(const xd_job *j, double step[3])
{
    const int *cell = j->ctx->model.vae_info.cell, *patch = j->ctx->model.dit_info.patch;
    for (int i = 0; i < 3; i++)
        step[i] = (double)(cell[i] * patch[i]);
    step[0] /= j->fps > 0 ? j->fps : 1;
}

/* Sets the sizes that the model reads; the pass of the negative prompt has its own. */
static void set_sizes(const xd_job *j, int pass, xd_input *in)
{
    const xd_job_size *z = &j->sizes[j->kinds[pass] == XD_PASS_NEGATIVE];
    memcpy(in->size, z->target, sizeof in->size);
    memcpy(in->original, z->original, sizeof in->original);
    memcpy(in->crop, z->crop, sizeof in->crop);
}

/* Returns the factors of hints in a step. On the count device all factors are 1, so that a side
 * network is counted even if it is not used in the step that is counted. */
static const double *scales_of(const xd_denoise *f, int step)
{
    const xd_job *j = f->j;
    return j->hint_scales && !xd_counting(&f->x) ? j->hint_scales + step * j->hint_stride : NULL;
}

/* Runs this rank's blocks on the prefixes of all its passes, before the first work item of a
 * transformer, so that their messages between stages come before those of work items. */
static void read_prefixes(xd_denoise *f, const xd_input *first)
{
    const xd_dit *dit = f->j->ctx->model.dit.dit;
    xd_comm      *c = pipe_group(f);
    xd_input      in = *first;
    const int     pass = f->x.pass;
    for (int p = 0; p < f->j->npass; p++) {
        if (!f->kept[p] || f->read[p]++)
            continue;
        in.cond = &f->cond[p];
        f->x.pass = p;
        if (!is_first(f)) {
            xd_req r = c->ops->recv(c, dit->prefix(f->kept[p]), my_stage(f) - 1);
            xd_denoise_wait(f, c, &r);
        }
        dit->read(&f->x, f->net, &in, f->kept[p]);
        if (!xd_denoise_is_last(f)) {
            xd_req r = c->ops->send(c, dit->prefix(f->kept[p]), my_stage(f) + 1);
            xd_denoise_wait(f, c, &r);
        }
    }
    f->x.pass = pass;
}

/* Runs this rank's blocks for one work item. */
static void run_piece(xd_denoise *f, piece w)
{
    const xd_job *j = f->j;
    const xd_dit *dit = j->ctx->model.dit.dit;
    xd_exec      *x = &f->x;
    int64_t       begin = xd_trace_now(f->trace);
    size_t        mark = xd_arena_mark(x->tmp);
    int           i = (int)(f->piece_index % XD_NHID);
    xd_layout     lay = layout_of(f, w.unit, w.pass);
    xd_input      in = { .lat = is_first(f) ? xd_denoise_part(f, f->lat, w.unit) : (xd_tensor){ 0 },
                         .cond = &f->cond[w.pass],
                         .isolated = j->kinds[w.pass] == XD_PASS_ISOLATED,
                         .perturbs = j->kinds[w.pass] == XD_PASS_PERTURBED ? j->perturbs : NULL,
                         .txt = text_of(f, &lay, w),
                         .extra = is_first(f) && f->extra.nd ? xd_denoise_part(f, f->extra, w.unit)
                                                             : (xd_tensor){ 0 },
                         .face = reads_negative(f, w.pass) ? NULL : j->face,
                         .t = j->samp.time[w.step],
                         .audio_t = xd_job_audio_sampling(f->j)->time[w.step],
                         .next = j->next_time ? j->next_time + w.step : NULL,
                         .held = j->held,
                         .frame_t = f->frame_t,
                         .frame_spans = j->frame_spans,
                         .guidance = j->distilled,
                         .hint_scales = scales_of(f, w.step),
                         .modes = j->modes };
    xd_span       refs = refs_of(f, w.unit);
    if (xd_cache_predicts(f, w.step)) {
        xd_cache_predict(f, w.step, w.unit, w.pass);
        return;
    }
    if (is_first(f) && f->lay.len[XD_AUDIO])
        in.audio = xd_denoise_audio(f, f->lat, w.unit);
    if (is_first(f) && refs.n)
        in.ref = xd_rows(f->ref, refs.start, refs.n);
    set_steps(j, in.step);
    set_sizes(j, w.pass, &in);
    in.fps = j->fps;
    x->lay = &lay;
    x->step = w.step, x->pass = w.pass, x->patch = w.unit;
    x->exact = is_exact(f, w.step);
    if (dit->prefix)
        read_prefixes(f, &in);
    if (!is_first(f))
        receive_hidden(f, w);
    if (is_first(f) && stage_count(f) > 1) {
        xd_denoise_wait(f, pipe_group(f), &f->h_out[i]);
        xd_cache_sent(f, i);
        xd_denoise_wait(f, pipe_group(f), &f->skip_out[f->piece_index % f->nskip]);
    }
    if (is_first(f) && j->samp.in_scale[w.step] != 1) {
        in.lat = xd_new_f32(x, in.lat.d[0], in.lat.d[1]);
        xd_axpby(x, in.lat, (float)j->samp.in_scale[w.step], xd_denoise_part(f, f->lat, w.unit), 0);
        xd_check(x, !in.audio.nd, "the scheduler scales the network's input, which audio is not");
    }
    memset(f->local, 0, j->ctx->model.dit_info.local_size);
    xd_state s = { .h = hidden_view(f, f->piece_index, w),
                   .local = f->local,
                   .t = in.t,
                   .kept = f->kept[text_pass(f, w.pass)],
                   .skips = f->skip[f->piece_index % f->nskip] };
    if (dit->read && !dit->prefix && !f->read[text_pass(f, w.pass)]++)
        dit->read(x, f->net, &in, s.kept);
    xd_mods_step(mods_of(f, w.pass), x, dit, f->net, &in, s.kept,
                 (const double *const[]){ j->samp.time, xd_job_audio_sampling(f->j)->time }, w.step,
                 f->end);
    dit->cond(x, f->net, &in, &s);
    if (is_first(f))
        dit->embed(x, f->net, &in, &s);
    replay_blocks(f, w, &s);
    if (!xd_denoise_is_last(f))
        send_hidden(f, w);
    xd_arena_rewind(x->tmp, mark);
    x->lay = &f->lay;
    xd_trace_add(f->trace, XD_EV_PIECE, begin, w.step, w.unit, w.pass);
    f->piece_index++;
}

void xd_denoise_pass(xd_denoise *f, int step, int pass)
{
    run_piece(f, (piece){ step, XD_ALL, pass });
}

/* Sets the latents outside the mask to those of the initial image, at the noise level of the next
 * step. */
static void keep_image(xd_denoise *f, int step, int unit)
{
    double    of[2];
    xd_tensor lat = xd_denoise_part(f, f->lat, unit);
    f->j->sampler->shares(&f->j->samp, step + 1, of);
    xd_gated_into(&f->x, lat, lat, xd_denoise_part(f, f->keep[0], unit), XD_NONE);
    for (int i = 0; i < 2; i++)
        xd_axpby(&f->x, lat, (float)of[i], xd_denoise_part(f, f->keep[1 + i], unit), 1);
}

/* Computes clean latents for a preview. The sampler predicts clean latents from the guided
 * prediction; where the image is fixed or not inpainted, the clean latents of the initial image are
 * used. */
static void predict_clean(xd_denoise *f, int step, int unit)
{
    xd_exec  *x = &f->x;
    xd_tensor all = xd_denoise_part(f, f->clean, unit), lat = xd_denoise_part(f, f->lat, unit),
              pred = xd_denoise_part(f, f->pred[0], unit);
    xd_span   rows[XD_FREE_RUNS];
    int       n = xd_denoise_free_rows(f, step, unit, rows);
    xd_copy_to(x, all, lat);
    for (int i = 0; i < n; i++) {
        xd_tensor moved = xd_rows(all, rows[i].start, rows[i].n);
        xd_copy_to(x, moved, xd_rows(pred, rows[i].start, rows[i].n));
        f->j->sampler->clean(x, &f->j->samp, step, xd_rows(lat, rows[i].start, rows[i].n), moved);
    }
    if (!f->keep[0].nd)
        return;
    xd_gated_into(x, all, all, xd_denoise_part(f, f->keep[0], unit), XD_NONE);
    xd_axpby(x, all, 1, xd_denoise_part(f, f->keep[1], unit), 1);
}

/* Returns a view of some rows of a patch's tensor; an absent tensor stays absent. */
static xd_tensor rows_in(const xd_denoise *f, xd_tensor t, int unit, xd_span rows)
{
    return t.nd ? xd_rows(xd_denoise_part(f, t, unit), rows.start, rows.n) : t;
}

/* Runs the sampler on the rows that it changes. */
static void move_latents(xd_denoise *f, int step, int unit)
{
    xd_span   rows[XD_FREE_RUNS];
    xd_tensor hist[XD_MAXHIST];
    int       n = xd_denoise_free_rows(f, step, unit, rows);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < XD_MAXHIST; k++)
            hist[k] = rows_in(f, f->hist[k], unit, rows[i]);
        f->j->sampler->step(&f->x, &f->j->samp, step, rows_in(f, f->lat, unit, rows[i]),
                            rows_in(f, f->pred[0], unit, rows[i]), hist,
                            rows_in(f, f->noise, unit, rows[i]));
    }
    if (!f->lay.len[XD_AUDIO])
        return;
    for (int k = 0; k < XD_MAXHIST; k++)
        hist[k] = f->hist[k].nd ? xd_denoise_audio(f, f->hist[k], unit) : f->hist[k];
    f->j->sampler->step(&f->x, xd_job_audio_sampling(f->j), step, xd_denoise_audio(f, f->lat, unit),
                        xd_denoise_audio(f, f->pred[0], unit), hist,
                        f->noise.nd ? xd_denoise_audio(f, f->noise, unit) : f->noise);
}

/* Sends a prediction from one rank to those that compute the other guidance passes. */
static void share_prediction(xd_denoise *f, xd_tensor p, int from)
{
    xd_comm *c = f->topo->group[XD_CFG];
    if (c->size == 1)
        return;
    xd_req r = c->ops->bcast(c, p, from);
    xd_denoise_wait(f, c, &r);
}

/* On the last stage: combines the predictions of the passes and runs the sampler on the rows of
 * `unit` (a patch, or XD_ALL). */
static void run_sampler(xd_denoise *f, int step, int unit)
{
    xd_job   *j = f->j;
    xd_exec  *x = &f->x;
    xd_comm  *c = f->topo->group[XD_CFG];
    int64_t   begin = xd_trace_now(f->trace);
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor p[XD_MAXPASS];
    int       passes = xd_job_passes(j, step);
    for (int i = 0; i < passes; i++) {
        p[i] = xd_denoise_part(f, f->pred[i], unit);
        share_prediction(f, p[i], i % c->size);
        if (f->lay.len[XD_AUDIO])
            share_prediction(f, xd_denoise_audio(f, f->pred[i], unit), i % c->size);
    }
    if (j->ctx->model.recipe->audio_guidance > 0)
        xd_denoise_guide_streams(f, step, unit);
    else
        xd_denoise_guide(f, step, unit, p);
    xd_denoise_blend(f, step, unit);
    if (stage_count(f) > 1)
        latents_sent(f, unit);
    xd_denoise_add_noise(f, step, unit);
    if (xd_preview_due(j, step))
        predict_clean(f, step, unit);
    move_latents(f, step, unit);
    if (f->keep[0].nd)
        keep_image(f, step, unit);
    xd_arena_rewind(x->tmp, mark);
    xd_trace_add(f->trace, XD_EV_SAMPLER, begin, step, unit, 0);
}

/* ---- agreement ---------------------------------------------------------------------------- */

static xd_tensor one_int(int32_t *v)
{
    return xd_view(v, XD_I32, 1, (int64_t[]){ 1 });
}

/* Waits for the ranks' status of the previous step; returns nonzero if a rank failed in that
 * step. */
static int agreed_failure(xd_denoise *f)
{
    if (f->topo->replica->size == 1)
        return !xd_ok(&f->x);
    xd_denoise_wait(f, f->topo->replica, &f->agree);
    return f->worst != 0;
}

static void begin_agreement(xd_denoise *f)
{
    xd_comm *c = f->topo->replica;
    if (c->size == 1)
        return;
    f->worst = (int32_t)f->x.err.code;
    f->agree = c->ops->allreduce(c, one_int(&f->worst), XD_MAX);
}

int xd_denoise_step(xd_denoise *f, int step)
{
    int mine = passes_of_mine(f);
    if (xd_denoise_is_last(f) || is_first(f))
        xd_denoise_draw(f, step);
    xd_denoise_set_times(f, step);
    for (int i = 0; i < unit_count(f, step); i++) {
        int unit = unit_at(f, step, i);
        if (stage_count(f) > 1 && is_first(f) && step > 0 && mine)
            wait_for_latents(f, unit);
        if (is_first(f))
            xd_denoise_add_noise(f, step, unit);
        for (int p = 0; p < xd_job_passes(f->j, step); p++)
            if (xd_denoise_is_mine(f, p))
                run_piece(f, (piece){ step, unit, p });
        if (stage_count(f) > 1 && is_first(f) && mine && !xd_denoise_is_last(f))
            post_latents(f, step, unit);
        if (xd_denoise_is_last(f)) {
            run_sampler(f, step, unit);
            if (stage_count(f) > 1 && mine)
                send_latents(f, step, unit);
        }
    }
    xd_step_hash_end(f, step);
    if (step > 0 && agreed_failure(f))
        return 0;
    begin_agreement(f);
    return f->topo->replica->size > 1 || xd_ok(&f->x);
}

void xd_denoise_finish(xd_denoise *f)
{
    xd_comm *c = pipe_group(f);
    int      failed = f->topo->replica->size > 1 && agreed_failure(f);
    if (failed) { /* cancel receives whose sender has stopped */
        xd_cache_drop(f);
        c->ops->drop(c, f->h_in, XD_NHID);
        c->ops->drop(c, f->skip_in, XD_NHID);
    }
    for (int i = 0; i < slot_count(f) && stage_count(f) > 1; i++)
        /* The last stage waits for the latents that are in transit to the first stage. */
        xd_denoise_wait(f, c, &f->lat_in[i]);
    for (int i = 0; i < XD_NHID && stage_count(f) > 1; i++) {
        xd_cache_sent(f, i);
        xd_denoise_wait(f, c, &f->h_out[i]), xd_denoise_wait(f, c, &f->skip_out[i]);
    }
    for (int i = 0; i < slot_count(f) && stage_count(f) > 1; i++)
        xd_denoise_wait(f, c, &f->lat_out[i]);
    xd_cache_count(f);
    if (failed)
        xd_world_settle(&f->j->ctx->world, f->topo->replica, &f->x);
}

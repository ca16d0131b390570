/* test_bytes.c - the bytes that each method sends in a step, as doc/methods.md gives them, against
 * what the count communicator counts.
 *
 *     test_bytes MODEL [IMAGE [MASK]]
 *     test_bytes MODEL VIDEO [IMAGE]
 *
 * No MPI: every rank of a plan is walked through on the count device, one exact step and one
 * with stale keys and values. Where text flows, plans with patches are counted with the text in
 * the first patch and with the text in every one. The formulas below are written from the
 * document, with a cut of their own, so that code and document must agree to the byte, for
 * extents that no degree divides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/minmax.h"
#include "engine/engine.h"
#include "exec/op.h"
#include "model/component.h"
#include "pipeline/arenas.h"
#include "pipeline/denoise.h"
#include "pipeline/image_roles.h"
#include "pipeline/job.h"
#include "pipeline/prompt_images.h"
#include "pipeline/text_encode.h"
#include "plan/plan.h"

enum { STEPS = 4, STALE = 1, SINGLE = 8192 }; /* SINGLE: all-reduces up to this are one trip */

typedef struct plan {
    int deg[XD_NAXES];             /* tensor, ulysses, ring, pipe, cfg, data */
    int patches, displaced, every; /* every: where text flows, it goes with every patch */
} plan;

static const plan plans[] = {
    { { 1, 1, 1, 1, 1, 1 }, 1, 0, 0 }, { { 1, 1, 1, 1, 2, 1 }, 1, 0, 0 },
    { { 1, 1, 1, 1, 1, 3 }, 1, 0, 0 }, { { 1, 3, 1, 1, 1, 1 }, 1, 0, 0 },
    { { 1, 7, 1, 1, 1, 1 }, 1, 0, 0 }, { { 1, 1, 4, 1, 1, 1 }, 1, 0, 0 },
    { { 1, 2, 3, 1, 1, 1 }, 1, 0, 0 }, { { 3, 1, 1, 1, 1, 1 }, 1, 0, 0 },
    { { 2, 2, 1, 1, 1, 1 }, 1, 0, 0 }, { { 1, 1, 1, 4, 1, 1 }, 4, 0, 0 },
    { { 1, 1, 1, 3, 1, 1 }, 5, 0, 0 }, { { 1, 1, 1, 3, 1, 1 }, 1, 0, 0 },
    { { 1, 1, 4, 1, 1, 1 }, 1, 1, 0 }, { { 1, 2, 2, 1, 1, 1 }, 1, 1, 0 },
    { { 1, 2, 1, 3, 2, 1 }, 3, 0, 0 }, { { 1, 1, 2, 2, 1, 1 }, 3, 0, 0 },
    { { 2, 2, 2, 2, 2, 2 }, 3, 0, 0 }, { { 2, 1, 3, 2, 2, 1 }, 1, 1, 0 },
    { { 6, 1, 1, 1, 1, 1 }, 1, 0, 0 }, { { 1, 1, 1, 9, 1, 1 }, 2, 0, 0 },
};

/* tokens: h, w */
static const int64_t sizes[][2] = { { 11, 13 }, { 1, 3 }, { 32, 24 }, { 9, 11 } };

static int checks, failures;

/* ---- the document's formulas -------------------------------------------------------------- */

/* Tokens of the text, of the image with its references (J), and the rows that fill the image up;
 * those that are denoised, of the image and of audio; those of audio. */
typedef enum of {
    TEXT = 1,
    IMAGE = 2,
    FILL = 4,
    FILLED = IMAGE | FILL,
    ALL = 7,
    LATENTS = 8,
    AUDIO = 16,
} of;

/* What a block sends: attentions of some tokens, and sums over tensor ranks of [n,D] for their
 * rows; of the image's rows sums of [n,1] and of [n,2], and once a request and pass of [m,1] for
 * the rows of a text that does not flow, and for those of an image beside it. linear: sums of keys
 * and values, and rows near a rank's tokens, take the place of attentions. prefix: once a request
 * and pass, sums of [m,D] for a text whose hidden state goes from stage to stage. streams: tokens
 * of the image and of audio attend apart, and to each other (of_streams); 2: in every pass, sums
 * of [m,1] for both, too. */
typedef struct sends {
    int attn[ALL + 1], sum[ALL + 1], squares[2], text, linear, prefix, streams;
} sends;

/* which[l]: what block l sends; skips[l]: outputs that it or later blocks read, besides the
 * hidden state. W: tokens in a line of the image; conv: half the channels of a convolution over
 * tokens. H: heads of keys, each of g heads of queries; S: sums of guidance for a patch; E: the
 * width of sums for the text; states: hidden states of a token. */
typedef struct model {
    int64_t      N, K, J, fill, M, I, H, g, d, D, E, F, S, e, W, conv, states;
    /* tokens of a frame, and channels of a convolution over frames */
    int64_t      frame, moved;
    /* Tokens of references that attend only to one another: J in exact steps, then 0. Their keys
     * and values are stored. */
    int64_t      stored, apart;
    int64_t      held; /* tokens of a given frame of HunyuanVideo, which have sums of their own */
    /* Krea-2: hidden states of a text token, blocks that join them, blocks over tokens */
    int64_t      joined, joins, refines;
    /* Tokens of audio, their width, that of their heads, and of those between the streams */
    int64_t      A, wide_audio, head_audio;
    int          passes, isolated; /* isolated: the pass without attention between streams, or -1 */
    const sends *which[64];
    int64_t      skips[65];
} model;
typedef struct where { int at[XD_NAXES], first, last; } where;

/* PixArt, HunyuanDiT: sums behind attention, text, MLP */
static const sends cross = { .attn = { [ALL] = 1 }, .sum = { [IMAGE] = 3 } };
/* Qwen-Image-2.1: the text of a request goes through the block before the image */
static const sends behind_text = { .attn = { [ALL] = 1 }, .sum = { [IMAGE] = 2 }, .prefix = 2 };
/* Latte's blocks over time, which read no text */
static const sends over_time = { .attn = { [ALL] = 1 }, .sum = { [IMAGE] = 2 } };
/* Wan: as these, and squares of what is normed over all heads */
static const sends normed = {
    .attn = { [ALL] = 1 }, .sum = { [IMAGE] = 3 }, .squares = { 1, 1 }, .text = 1
};
/* Wan Animate's face adapters, whose attention every rank has all rows of */
static const sends adapter = { .sum = { [IMAGE] = 1 } };
/* SANA, and with norms over all heads */
static const sends linear = { .sum = { [IMAGE] = 3 }, .linear = 1 };
static const sends linear_normed = {
    .sum = { [IMAGE] = 3 }, .squares = { 1, 1 }, .text = 1, .linear = 1
};
/* LTX-2, and LTX-2.3, whose keys of the text depend on the step */
static const sends two_streams = { .text = 2, .streams = 1 }, timed_streams = { .streams = 2 };
/* FLUX, Chroma; CogVideoX, Qwen-Image and AuraFlow's double blocks as pair */
static const sends pair = { .attn = { [ALL] = 1 }, .sum = { [TEXT] = 2, [IMAGE] = 2 } },
                   solo = { .attn = { [ALL] = 1 }, .sum = { [ALL] = 1 } };
static const sends joint[2][2] = {
    /* SD3: [last][with a second attention] */
    { { .attn = { [ALL] = 1 }, .sum = { [TEXT] = 2, [IMAGE] = 2 } },
      { .attn = { [ALL] = 1, [IMAGE] = 1 }, .sum = { [TEXT] = 2, [IMAGE] = 3 } } },
    { { .attn = { [ALL] = 1 }, .sum = { [IMAGE] = 2 } },
      { .attn = { [ALL] = 1, [IMAGE] = 1 }, .sum = { [IMAGE] = 3 } } },
};
/* Z-Image, Lumina-Image: refiners of the image and of the text, layers of both as AuraFlow's single
 * blocks */
static const sends refine_image = { .attn = { [FILLED] = 1 }, .sum = { [FILLED] = 2 } },
                   refine_text = { .attn = { [TEXT] = 1 }, .sum = { [TEXT] = 2 } },
                   layer_of_both = { .attn = { [ALL] = 1 }, .sum = { [ALL] = 2 } };

static int64_t part(int64_t n, int i, int k)
{
    return n * (i + 1) / k - n * i / k;
}

/* Tokens of a unit (patch, or -1 for all) on member u, r. */
static int64_t rows(const model *m, const plan *p, int unit, int u, int r, of what)
{
    int64_t n = 0;
    int     sp = u + r * p->deg[XD_ULYSSES], members = p->deg[XD_ULYSSES] * p->deg[XD_RING];
    for (int q = 0; q < p->patches && (what & (IMAGE | LATENTS)); q++)
        if (unit < 0 || q == unit)
            n += part(part(m->N, q, p->patches), sp, members) +
                 (what & IMAGE ? part(part(m->J, q, p->patches), sp, members) : 0);
    for (int q = 0; q < p->patches && (what == ALL || (what & (AUDIO | LATENTS))); q++)
        if (unit < 0 || q == unit)
            n += part(part(m->A, q, p->patches), sp, members);
    if ((what & IMAGE) && unit < 0)
        n += part(m->apart, sp, members);
    if ((what & TEXT) && (unit <= 0 || p->every))
        n += part(m->K, sp, members);
    if ((what & FILL) && (unit <= 0 || p->every))
        n += part(m->fill, sp, members);
    return n;
}

/* Tokens of a whole ring member. */
static int64_t rows_ring(const model *m, const plan *p, int unit, int r, of what)
{
    int64_t n = 0;
    for (int u = 0; u < p->deg[XD_ULYSSES]; u++)
        n += rows(m, p, unit, u, r, what);
    return n;
}

/* Trades n rows of q, k, v for heads, and rows of others for my heads' results. */
static int64_t of_ulysses(const model *m, const plan *p, const where *w, int unit, of what)
{
    int64_t n = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], what);
    int64_t all = rows_ring(m, p, unit, w->at[XD_RING], what);
    int64_t H = part(m->H, w->at[XD_TENSOR], p->deg[XD_TENSOR]);
    int64_t h = part(H, w->at[XD_ULYSSES], p->deg[XD_ULYSSES]);
    return ((m->g + 2) * n * (H - h) + m->g * (all - n) * h) * m->d * m->e;
}

/* Ring: K and V of all members but my successor pass through me. With patches it is all tokens'
 * (the memory's), for each patch. Displaced: my own to everyone. */
static int64_t of_ring(const model *now, const plan *p, const where *w, int unit, of what)
{
    model   all = *now, *m = &all;
    int     R = p->deg[XD_RING], me = w->at[XD_RING];
    int64_t H = part(m->H, w->at[XD_TENSOR], p->deg[XD_TENSOR]), n = 0;
    int64_t h = part(H, w->at[XD_ULYSSES], p->deg[XD_ULYSSES]);
    m->apart = m->stored; /* those of references too, in every step */
    for (int r = 0; r < R; r++)
        if (!p->displaced && r != (me + 1) % R)
            n += rows_ring(m, p, p->patches > 1 ? -1 : unit, r, what);
    if (p->displaced)
        n = (R - 1) * rows_ring(m, p, unit, me, what);
    return R == 1 ? 0 : 2 * n * h * m->d * m->e;
}

/* A sum of n numbers of `size` bytes over T ranks, of which I am one. */
static int64_t of_numbers(int64_t n, int64_t size, int T, int me)
{
    if (size * n <= SINGLE)
        return size * n * (T - 1);
    return size * (n - part(n, me, T) + part(n, me, T) * (T - 1));
}

/* A sum of n numbers in f32. */
static int64_t of_sum(const plan *p, const where *w, int64_t n)
{
    return of_numbers(n, 4, p->deg[XD_TENSOR], w->at[XD_TENSOR]);
}

/* Tokens of a given frame, of a unit, on this rank. */
static int64_t held_rows(const model *m, const plan *p, const where *w, int unit)
{
    int64_t n = 0, patch = 0;
    int     sp = w->at[XD_ULYSSES] + w->at[XD_RING] * p->deg[XD_ULYSSES],
            members = p->deg[XD_ULYSSES] * p->deg[XD_RING];
    for (int q = 0; q < p->patches; q++) {
        int64_t all = part(m->N, q, p->patches), at = patch + all * sp / members;
        if (unit < 0 || q == unit)
            n += xd_max(0, xd_min(m->held - at, part(all, sp, members)));
        patch += all;
    }
    return n;
}

/* A sum of [n,D], or of the text's [n,E]. The tokens of a given frame have a sum of their own, and
 * those before and after them. So have references that attend only to one another. */
static int64_t of_tensor(const model *m, const plan *p, const where *w, int unit, of what)
{
    int     u = w->at[XD_ULYSSES], r = w->at[XD_RING];
    int64_t wide = what == TEXT ? m->E : m->D, n = rows(m, p, unit, u, r, what);
    int64_t held = what == TEXT ? 0 : held_rows(m, p, w, unit);
    int64_t refs = what & IMAGE && unit < 0 ? part(m->apart, u + r * p->deg[XD_ULYSSES],
                                                   p->deg[XD_ULYSSES] * p->deg[XD_RING])
                                            : 0;
    int64_t text = held + refs && (what & TEXT) ? rows(m, p, unit, u, r, TEXT) : 0;
    return of_sum(p, w, text * wide) + of_sum(p, w, held * wide) + of_sum(p, w, refs * wide) +
           of_sum(p, w, (n - text - held - refs) * wide);
}

/* The tokens of a patch on a member: the first one, and the one behind the last. */
static void span(const model *m, const plan *p, int patch, int sp, int64_t at[2])
{
    int64_t a = m->N * patch / p->patches, n = part(m->N, patch, p->patches);
    int64_t members = p->deg[XD_ULYSSES] * p->deg[XD_RING];
    at[0] = a + n * sp / members;
    at[1] = a + n * (sp + 1) / members;
}

static int64_t overlap(const int64_t a[2], int64_t from, int64_t to)
{
    int64_t lo = a[0] > from ? a[0] : from, hi = a[1] < to ? a[1] : to;
    return hi > lo ? hi - lo : 0;
}

/* Rows of mine within W + 1 tokens of another member's, in its patches of a unit. */
static int64_t near_rows(const model *m, const plan *p, const where *w, int unit, int64_t reach)
{
    int64_t n = 0, theirs[2], mine[2];
    int     members = p->deg[XD_ULYSSES] * p->deg[XD_RING];
    int     me = w->at[XD_ULYSSES] + w->at[XD_RING] * p->deg[XD_ULYSSES];
    for (int k = 0; k < members * p->patches * p->patches; k++) {
        int sp = k % members, patch = k / members % p->patches, mine_of = k / members / p->patches;
        span(m, p, patch, sp, theirs);
        span(m, p, mine_of, me, mine);
        if (sp != me && (unit < 0 || unit == patch) && theirs[1] > theirs[0])
            n += overlap(mine, theirs[0] - reach, theirs[0]) +
                 overlap(mine, theirs[1], theirs[1] + reach);
    }
    return n;
}

/* Sums of keys and values over the members, for each patch of a unit, and near rows. */
static int64_t of_linear(const model *m, const plan *p, const where *w, int unit)
{
    int64_t H = part(m->H, w->at[XD_TENSOR], p->deg[XD_TENSOR]);
    int64_t C = 2 * part(m->conv, w->at[XD_TENSOR], p->deg[XD_TENSOR]);
    return of_numbers((unit < 0 ? p->patches : 1) * H * m->d * (m->d + 1), 4,
                      p->deg[XD_ULYSSES] * p->deg[XD_RING],
                      w->at[XD_ULYSSES] + w->at[XD_RING] * p->deg[XD_ULYSSES]) +
           near_rows(m, p, w, unit, m->W + 1) * C * m->e +
           near_rows(m, p, w, unit, m->frame) * m->moved * m->e;
}

/* My rows within `reach` tokens of the ends of all patches. */
static int64_t end_rows(const model *m, const plan *p, const where *w, int64_t reach)
{
    int64_t rows = 0, mine[2];
    for (int q = 0; q < p->patches; q++) {
        int64_t a = m->N * q / p->patches, b = m->N * (q + 1) / p->patches;
        span(m, p, q, w->at[XD_ULYSSES] + w->at[XD_RING] * p->deg[XD_ULYSSES], mine);
        rows += b - a > 2 * reach ? overlap(mine, a, a + reach) + overlap(mine, b - reach, b)
                                  : mine[1] - mine[0];
    }
    return rows;
}

/* What is kept of each patch for each of n blocks and passes: the sums, and my rows near the
 * patch's ends. */
static int64_t of_kept_sums(const model *m, const plan *p, const where *w, int64_t n)
{
    int64_t H = part(m->H, w->at[XD_TENSOR], p->deg[XD_TENSOR]);
    int64_t C = 2 * part(m->conv, w->at[XD_TENSOR], p->deg[XD_TENSOR]);
    int64_t kept = end_rows(m, p, w, m->W + 1) * C + end_rows(m, p, w, m->frame) * m->moved;
    return p->patches == 1 ? 0
                           : n * (p->patches * H * m->d * (m->d + 1) * 4 + kept * m->e) + 2 * 64;
}

/* Queries of one stream for heads of keys and values of another one. */
static int64_t of_between(const model *m, const plan *p, const where *w, int unit, of from, of to)
{
    int64_t n = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], from);
    int64_t keys = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], to);
    int64_t all = rows_ring(m, p, unit, w->at[XD_RING], from);
    int64_t H = part(m->H, w->at[XD_TENSOR], p->deg[XD_TENSOR]);
    int64_t h = part(H, w->at[XD_ULYSSES], p->deg[XD_ULYSSES]);
    return ((n + 2 * keys) * (H - h) + (all - n) * h) * m->d * m->e + of_ring(m, p, w, unit, to);
}

/* A block of two streams: attention within each one, and between them unless a pass is isolated;
 * sums behind both, the text and the MLP; squares of queries and keys within, of queries for the
 * text, of queries and keys between. */
static int64_t of_streams(const model *both, const plan *p, const where *w, int unit, int isolated)
{
    model   image = *both, audio = *both;
    int64_t bytes = 0;
    audio.D = both->wide_audio, audio.d = both->head_audio;
    for (int i = 0; i < 2; i++) {
        const model *m = i ? &audio : &image;
        const of     what = i ? AUDIO : IMAGE;
        int64_t      n = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], what);
        bytes += of_ulysses(m, p, w, unit, what) + of_ring(m, p, w, unit, what);
        bytes += 3 * of_sum(p, w, n * m->D) + of_sum(p, w, 2 * n) + of_sum(p, w, n);
        if (!isolated)
            bytes += of_between(&audio, p, w, unit, what, i ? IMAGE : AUDIO) +
                     of_sum(p, w, n * m->D) + 2 * of_sum(p, w, n);
    }
    return bytes;
}

/* My blocks on a unit, in a pass. */
static int64_t of_blocks(const model *m, const plan *p, const where *w, int unit, int pass)
{
    int64_t bytes = 0, attn[ALL + 1], sum[ALL + 1];
    int64_t image = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], IMAGE);
    for (int k = TEXT; k <= ALL; k++) {
        attn[k] = of_ulysses(m, p, w, unit, (of)k) + of_ring(m, p, w, unit, (of)k);
        sum[k] = of_tensor(m, p, w, unit, (of)k);
    }
    for (int l = w->first; l < w->last; l++) {
        const sends *s = m->which[l];
        for (int k = TEXT; k <= ALL; k++)
            bytes += s->attn[k] * attn[k] + s->sum[k] * sum[k];
        if (s->streams)
            bytes += of_streams(m, p, w, unit, pass == m->isolated) +
                     2 * (s->streams - 1) * of_sum(p, w, m->M);
        if (s->linear)
            bytes += of_linear(m, p, w, unit);
        for (int k = 0; k < 2; k++)
            bytes += s->squares[k] * of_sum(p, w, (k + 1) * image);
    }
    return bytes;
}

/* Krea-2: the sums of the text's blocks on the first stage, two a block. The states of 32 tokens at
 * a time are joined. */
static int64_t of_fusion(const model *m, const plan *p, const where *w)
{
    int64_t bytes = 2 * m->refines * of_sum(p, w, m->K * m->E);
    for (int64_t at = 0; at < m->K; at += 32) {
        int64_t some = m->K - at < 32 ? m->K - at : 32;
        bytes += 2 * m->joins * of_sum(p, w, some * m->joined * m->E);
    }
    return w->first ? 0 : bytes;
}

/* What my blocks send of the text, once a pass. */
static int64_t of_text(const model *m, const plan *p, const where *w)
{
    int64_t bytes = 0;
    for (int i = 0; i < m->passes && m->joined; i++)
        if (i % p->deg[XD_CFG] == w->at[XD_CFG])
            bytes += of_fusion(m, p, w);
    for (int i = 0; i < m->passes; i++)
        for (int l = w->first; l < w->last && i % p->deg[XD_CFG] == w->at[XD_CFG]; l++) {
            if (i == m->isolated && w->at[XD_CFG] == 0) /* the prompt's pass has read the text */
                continue;
            const sends *s = m->which[l];
            bytes += s->text * (of_sum(p, w, m->M) + (m->I ? of_sum(p, w, m->I) : 0));
            bytes += s->prefix * of_sum(p, w, m->M * m->D);
        }
    for (int i = w->at[XD_CFG]; i < m->passes; i += p->deg[XD_CFG])
        if (m->which[0]->prefix && w->at[XD_PIPE] < p->deg[XD_PIPE] - 1)
            bytes += 4 * m->M * m->D;
    return bytes;
}

static int64_t of_unit(const model *m, const plan *p, const where *w, int unit)
{
    int     P = p->deg[XD_PIPE], C = p->deg[XD_CFG], is_last = w->at[XD_PIPE] == P - 1;
    int     mine = 0;
    int64_t n = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], LATENTS);
    int64_t both = rows(m, p, unit, w->at[XD_ULYSSES], w->at[XD_RING], ALL);
    int64_t bytes = 0;
    for (int i = w->at[XD_CFG]; i < m->passes; i += C, mine++)
        bytes += of_blocks(m, p, w, unit, i);
    if (!is_last) /* hidden states, to the next stage, and what lies beside them */
        bytes += (4 * m->states + m->skips[w->last] * m->e) * both * m->D * mine;
    else if (C > 1)
        bytes += 4 * n * m->F * mine; /* predictions, to the other pass */
    if (is_last && m->passes > 1)
        bytes += of_numbers(m->S * (unit < 0 ? p->patches : 1), 8,
                            p->deg[XD_ULYSSES] * p->deg[XD_RING],
                            w->at[XD_ULYSSES] + w->at[XD_RING] * p->deg[XD_ULYSSES]);
    if (is_last && P > 1 && mine)
        bytes += 4 * n * m->F; /* latents, to the first stage */
    return bytes;
}

static int64_t of_step(const model *whole, const plan *p, const where *w, int step)
{
    const int stale = step >= STALE;
    model     now = *whole, *m = &now;
    int64_t   replica = 1, bytes = 0;
    if (step > 0 && p->patches == 1)
        m->apart = 0;
    for (int a = XD_TENSOR; a <= XD_CFG; a++)
        replica *= p->deg[a];
    if (!stale || p->patches == 1)
        bytes = of_unit(m, p, w, -1);
    for (int q = 0; stale && p->patches > 1 && q < p->patches; q++)
        bytes += of_unit(m, p, w, q);
    return bytes + 4 * (replica - 1); /* is everybody well? */
}

/* A buffer of a ring: keys and values of all for a group of heads, or those of one member for
 * all. */
static int64_t of_group(const model *m, const plan *p, int64_t h)
{
    int64_t all = 0, most = 0, groups = 1;
    for (int r = 0; r < p->deg[XD_RING]; r++) {
        int64_t k = rows_ring(m, p, -1, r, ALL);
        most = k > most ? k : most;
        all += k;
    }
    int64_t bytes = 2 * (all / p->deg[XD_RING]) * h * m->d * m->e;
    while (groups < 4 && groups < h && bytes / (groups + 1) >= 65536)
        groups++;
    int64_t group = h ? 2 * all * ((h + groups - 1) / groups) : 2 * all;
    return group > most * h ? group : most * h;
}

/* What the links of a rank hold during the loop: PipeFusion or displaced patches the keys and
 * values of my passes, ring two buffers, Ulysses one of results; 64 bytes more a buffer. */
static int64_t of_memory(const model *m, const plan *p, const where *w, int sites)
{
    int     U = p->deg[XD_ULYSSES], R = p->deg[XD_RING], C = p->deg[XD_CFG], mine = 0;
    int64_t H = part(m->H, w->at[XD_TENSOR], p->deg[XD_TENSOR]), h = part(H, w->at[XD_ULYSSES], U);
    int64_t n = rows_ring(m, p, -1, w->at[XD_RING], ALL), bytes = 0, refs = 0;
    for (int u = 0; u < U; u++)
        refs += part(m->stored, u + w->at[XD_RING] * U, U * R);
    for (int i = 0; i < m->passes; i++)
        mine += i % C == w->at[XD_CFG];
    if (m->conv)
        return of_kept_sums(m, p, w, mine * (w->last - w->first) * sites);
    if (p->patches > 1)
        bytes += 2 * n * h * mine * (w->last - w->first) * sites;
    if (R > 1 && p->displaced)
        bytes +=
            2 * (m->N + m->K + m->J + m->fill + m->A + n) * h * mine * (w->last - w->first) * sites;
    else if (R > 1)
        bytes += 2 * of_group(m, p, h);
    if (m->stored && p->patches == 1)
        bytes += 2 * refs * h * mine * (w->last - w->first) * sites;
    int buffers = (p->patches > 1 || m->stored) + (R > 1) + (R > 1 && !p->displaced) + (U > 1);
    return (bytes + (U > 1 ? n * H * m->g : 0)) * m->d * m->e + 64 * buffers;
}

/* ---- counting ----------------------------------------------------------------------------- */

static void must(xd_status s, const xd_err *e)
{
    if (s == XD_OK)
        return;
    fprintf(stderr, "%s\n", e->msg);
    exit(1);
}

/* Makes the engine, which runs on one rank, count as rank `rank` of a plan. */
static where pose(xd_engine *g, const plan *p, int rank, int n)
{
    xd_err      e = { 0 };
    where       w;
    int         layers = g->ctx.model.dit.w->net.nlayers, P = p->deg[XD_PIPE];
    xd_parallel a = { .tensor_parallel_degree = p->deg[XD_TENSOR],
                      .ulysses_degree = p->deg[XD_ULYSSES],
                      .ring_degree = p->deg[XD_RING],
                      .pipefusion_parallel_degree = p->deg[XD_PIPE],
                      .data_parallel_degree = p->deg[XD_DATA],
                      .use_cfg_parallel = p->deg[XD_CFG] - 1,
                      .num_pipeline_patch = p->patches,
                      .warmup_steps = STALE,
                      .use_displaced_patches = p->displaced,
                      .patches_without_stages = 1,
                      .pipefusion_text = p->every ? "every" : "first" };
    must(xd_plan_make(&g->ctx.plan, &a, n, &g->ctx.model.dit_info, &e), &e);
    xd_topo_close(&g->ctx.count_topo);
    xd_comm_close(&g->ctx.count_world);
    must(xd_comm_count(&g->ctx.count_world, rank, n, &e), &e);
    must(xd_topo_open(&g->ctx.count_topo, g->ctx.count_world, g->ctx.plan.deg, &e), &e);
    memcpy(w.at, g->ctx.count_topo.at, sizeof w.at);
    w.first = layers * w.at[XD_PIPE] / P;
    w.last = layers * (w.at[XD_PIPE] + 1) / P;
    g->ctx.model.dit.w->tp = p->deg[XD_TENSOR];
    g->ctx.model.dit.w->tp_at = w.at[XD_TENSOR];
    xd_component_stage(&g->ctx.model.dit, w.first, w.last);
    return w;
}

static void check(int64_t got, int64_t want, const xd_engine *g, const model *m, const char *step)
{
    checks++;
    if (got == want)
        return;
    failures++;
    printf("not ok: %s, %lld tokens, %lld bytes a number, %d passes, rank %d, %s step: %lld bytes "
           "counted, %lld by formula\n",
           g->ctx.plan.text, (long long)m->N, (long long)m->e, m->passes, g->ctx.count_world->rank,
           step, (long long)got, (long long)want);
}

static const sends *kind_of(const xd_engine *g, int layer)
{
    const xd_component *p = &g->ctx.model.dit;
    const xd_json      *dual = xd_json_get(p->config, "dual_attention_layers");
    double              n = 0, second = 0;
    int                 timed = 0;
    /* the control network of the test has double blocks only */
    if (strcmp(p->def->name, "flux") == 0)
        return strncmp(p->def->block(p->w->net.cfg, layer)->name, "single_", 7) == 0 ? &solo
                                                                                     : &pair;
    if (strcmp(p->def->name, "flux2") == 0 || strcmp(p->def->name, "chroma") == 0)
        return xd_json_number(xd_json_get(p->config, "num_layers"), &n) && layer < (int)n ? &pair
                                                                                          : &solo;
    if (strcmp(p->def->name, "auraflow") == 0)
        return xd_json_number(xd_json_get(p->config, "num_mmdit_layers"), &n) && layer < (int)n
                   ? &pair
                   : &layer_of_both;
    if (strcmp(p->def->name, "cogvideox") == 0 || strcmp(p->def->name, "qwenimage") == 0 ||
        strcmp(p->def->name, "hunyuanvideo15") == 0)
        return &pair;
    if (strcmp(p->def->name, "wan") == 0 || strcmp(p->def->name, "wan-vace") == 0 ||
        strcmp(p->def->name, "ltx") == 0 || strcmp(p->def->name, "skyreels-v2") == 0)
        return &normed;
    if (strcmp(p->def->name, "wan-animate") == 0)
        return strncmp(p->def->block(p->w->net.cfg, layer)->name, "face_", 5) == 0 ? &adapter
                                                                                   : &normed;
    if (strcmp(p->def->name, "ltx2") == 0)
        return xd_json_bool(xd_json_get(p->config, "cross_attn_mod"), &timed) && timed
                   ? &timed_streams
                   : &two_streams;
    if (strcmp(p->def->name, "sana") == 0 || strcmp(p->def->name, "sana-video") == 0)
        return xd_json_text(xd_json_get(p->config, "qk_norm")) ? &linear_normed : &linear;
    if (strcmp(p->def->name, "krea2") == 0)
        return &layer_of_both;
    if (strcmp(p->def->name, "qwenimage21") == 0)
        return &behind_text;
    if (strcmp(p->def->name, "latte") == 0)
        return layer % 2 ? &over_time : &cross;
    if (strcmp(p->def->name, "zimage") == 0)
        return strncmp(p->def->block(p->w->net.cfg, layer)->name, "context_", 8) == 0 ? &refine_text
               : layer < g->ctx.model.dit_info.lead ? &refine_image
                                                    : &layer_of_both;
    if (strcmp(p->def->name, "lumina2") == 0 &&
        xd_json_number(xd_json_get(p->config, "num_refiner_layers"), &n))
        return layer < (int)n ? &refine_text : layer < 2 * (int)n ? &refine_image : &layer_of_both;
    if (strcmp(p->def->name, "hunyuanvideo") == 0 &&
        xd_json_number(xd_json_get(p->config, "num_refiner_layers"), &n) &&
        xd_json_number(xd_json_get(p->config, "num_layers"), &second))
        return layer < (int)n ? &refine_text : layer < (int)(n + second) ? &pair : &solo;
    if (strcmp(p->def->name, "sd3") != 0 && strcmp(p->def->name, "mochi") != 0)
        return &cross;
    for (int i = 0; i < xd_json_size(dual); i++)
        second += xd_json_number(xd_json_at(dual, i), &n) && (int)n == layer;
    return &joint[layer == p->w->net.nlayers - 1][second > 0];
}

/* The width of the text's part of the hidden state. */
static int64_t text_width(const xd_engine *g)
{
    const xd_component *p = &g->ctx.model.dit;
    double              n = (double)g->ctx.model.dit_info.dim;
    if (strcmp(p->def->name, "mochi") == 0)
        xd_json_number(xd_json_get(p->config, "pooled_projection_dim"), &n);
    if (strcmp(p->def->name, "krea2") == 0)
        xd_json_number(xd_json_get(p->config, "text_hidden_dim"), &n);
    return (int64_t)n;
}

/* Rows of images that stand behind those of the text. */
static int64_t rows_of_images(const xd_engine *g)
{
    int64_t n = 0;
    for (int k = 0; k < g->ctx.model.recipe->ntext; k++)
        n += xd_model_image_rows(&g->ctx.model, k);
    return n;
}

/* Returns a number of the transformer's config, or 0. */
static int64_t number_of(const xd_engine *g, const char *key)
{
    double n = 0;
    xd_json_number(xd_json_get(g->ctx.model.dit.config, key), &n);
    return (int64_t)n;
}

static model model_of(const xd_engine *g, const xd_job *j)
{
    const xd_dit_info *d = &g->ctx.model.dit_info;
    const int64_t      refs = j->lay.len[XD_REF], stored = j->lay.refs_alone ? refs : 0;
    model m = { .N = j->tokens,
                .W = j->lay.grid[2],
                .conv = d->conv_dim,
                .frame = j->lay.grid[1] * j->lay.grid[2],
                .moved = d->frames_dim,
                .held = d->begins ? j->held : 0,
                .J = refs - stored,
                .stored = stored,
                .apart = stored,
                .K = d->txt_flows ? xd_prompts_most_rows(j) : 0,
                .fill = d->multiple ? (d->multiple - j->tokens % d->multiple) % d->multiple : 0,
                .M = xd_prompts_most_rows(j) - rows_of_images(g),
                .I = rows_of_images(g),
                .H = xd_dit_key_heads(d),
                .g = d->heads / xd_dit_key_heads(d),
                .d = d->head_dim,
                .D = d->dim,
                .E = text_width(g),
                .F = j->features,
                .S = g->ctx.model.recipe->keeps_rows ? 2 * j->lat[1] * j->lat[2] : 0,
                .e = (int64_t)xd_dtype_size(g->ctx.type),
                .states = d->states > 1 ? d->states : 1,
                .joined = number_of(g, "num_text_layers"),
                .joins = number_of(g, "num_layerwise_text_blocks"),
                .refines = number_of(g, "num_refiner_text_blocks"),
                .A = j->lay.len[XD_AUDIO],
                .wide_audio = number_of(g, "audio_cross_attention_dim"),
                .head_audio = number_of(g, "audio_attention_head_dim"),
                .passes = j->npass,
                .isolated = -1 };
    for (int i = 0; i < j->npass; i++)
        m.isolated = j->kinds[i] == XD_PASS_ISOLATED ? i : m.isolated;
    if (m.A && xd_job_rescales_streams(j)) /* sums and squares of both streams, before and after */
        m.S = 8;
    if (d->prefix_refs) /* tokens take the places of the rows of the text encoder */
        m.M += j->nref_tokens - j->nref_tokens / (d->prefix_refs * d->prefix_refs);
    /* after each of the first half - 1 blocks comes a block of every control network */
    int64_t s = d->sides, n = 2 * (d->nlayers + s) / (2 + s), half = n / 2;
    for (int l = 0; l < d->nlayers && l < 64; l++)
        m.which[l] = kind_of(g, l);
    for (int64_t l = 0; l < d->nlayers && l < 64 && g->ctx.model.dit.dit->skip_from; l++) {
        int64_t own = l < (1 + s) * (half - 1) ? (l + s) / (1 + s) : l - s * (half - 1);
        m.skips[l] = own > half ? n - own : own < half ? own : half - 1;
    }
    return m;
}

static void one_rank(xd_engine *g, xd_job *j, const plan *p, const where *w)
{
    const xd_dit_info *d = &g->ctx.model.dit_info;
    xd_err             e = { 0 };
    xd_denoise         f;
    xd_arena           a;
    xd_cond            cond[XD_MAXPASS] = { { .tok = { 0 } } };
    xd_cond_image      images[XD_MAXREFS];
    model              m = model_of(g, j);
    must(xd_component_count(&g->ctx.model.dit, g->ctx.count, g->ctx.type, &e), &e);
    must(xd_device_arena_open(&a, g->ctx.count, 0, &e), &e);
    for (int i = 0; i < j->npass; i++) {
        cond[i].tok = xd_view2(a.base, XD_F32, xd_prompts_most_rows(j), d->text_dim);
        cond[i].nimages = xd_prompt_images_rows(j, NULL, 0, cond[i].tok.d[0], images);
        cond[i].images = images;
        xd_prompts_real_tokens(j, cond[i].real);
        if (d->pooled_dim)
            cond[i].pooled = xd_view2(a.base, XD_F32, 1, d->pooled_dim);
    }
    xd_denoise_open(&f, j, g->ctx.count, &g->ctx.count_topo, &a, &g->ctx.model.dit.count->shadow,
                    cond, 0);
    for (int i = 0; i <= STALE; i++) {
        int64_t before = g->ctx.count_world->traffic->bytes;
        xd_denoise_step(&f, i);
        check(g->ctx.count_world->traffic->bytes - before,
              of_step(&m, p, w, i) + (i ? 0 : of_text(&m, p, w)), g, &m,
              i < STALE ? "an exact" : "a stale");
    }
    must(f.x.err.code, &f.x.err);
    check((int64_t)f.stack.bytes, of_memory(&m, p, w, d->sites), g, &m, "the memory of a");
    xd_denoise_close(&f);
    xd_device_arena_close(&a, g->ctx.count);
}

static void one_plan(xd_engine *g, const plan *p, const xd_request *r)
{
    int n = 1;
    for (int a = 0; a < XD_NAXES; a++)
        n *= p->deg[a];
    for (int rank = 0; rank < n; rank++) {
        xd_job j;
        xd_err e = { 0 };
        where  w = pose(g, p, rank, n);
        must(xd_job_open(&j, &g->ctx, r, &e), &e);
        one_rank(g, &j, p, &w);
        xd_job_close(&j);
    }
}

/* Whether every text encoder reads one number of ids, whatever is asked for. */
static int reads_all(const xd_engine *g)
{
    int all = 1;
    for (int k = 0; k < g->ctx.model.recipe->ntext; k++)
        all &= g->ctx.model.recipe->text[k].pad > 0;
    return all;
}

/* A plan with this size in f32, without guidance, and in bf16; both ways of the text where there
 * are two. */
static void all_of(xd_engine *g, plan p, const int64_t *size, xd_request *r)
{
    const xd_dit_info *d = &g->ctx.model.dit_info;
    int                ways = d->txt_flows && p.patches > 1 ? 2 : 1;
    r->height = size[0] * d->patch[1] * g->ctx.model.vae_info.cell[1];
    r->width = size[1] * d->patch[2] * g->ctx.model.vae_info.cell[2];
    if (d->most[1] && (size[0] * d->patch[1] > d->most[1] || size[1] * d->patch[2] > d->most[2]))
        return;
    r->images.no_auto_resize = g->ctx.model.recipe->auto_resizes;
    if (g->ctx.model.recipe->max_area)
        r->output.max_area = r->height * r->width;
    if (g->ctx.model.recipe->reference_area)
        r->output.max_area = 4096; /* of the image that is read, whatever is generated */
    for (int v = 0; v < 3 * ways; v++) {
        g->ctx.type = v % 3 == 2 ? XD_BF16 : XD_F32;
        r->guidance_scale = v % 3 == 1 ? 1 : 4.5;
        r->guidance.true_cfg_scale = v % 3 == 1 || !g->ctx.model.recipe->distilled ? 0 : 2;
        r->texts.max_sequence_length = d->text_rows || reads_all(g) ? 0 : v % 3 == 1 ? 77 : 9;
        if (d->audio) { /* texts of a multiple of the connectors' registers */
            r->texts.max_sequence_length = v % 3 == 1 ? 76 : 8;
            r->audio.audio_guidance_scale = r->audio.modality_scale = v % 3 == 1 ? 1 : -1;
            r->audio.audio_modality_scale = r->audio.modality_scale;
        }
        p.every = v / 3;
        one_plan(g, &p, r);
    }
}

/* Plans that a network supports which a rank computes as a whole. */
static int keeps(const xd_engine *g, const plan *p)
{
    int splits = 0;
    for (int a = 0; a < XD_NAXES; a++)
        splits |= p->deg[a] > 1 && !xd_plan_keeps_whole((xd_axis)a);
    return !splits || !g->ctx.model.dit_info.whole;
}

int main(int argc, char **argv)
{
    static const char *const prompt = "a red circle";
    xd_err                   e = { 0 };
    xd_engine               *g = NULL;
    xd_request               r;
    xd_open_args             a = {
        .size = sizeof a, .model = argc > 1 ? argv[1] : "", .dtype = "f32", .device = "cpu"
    };
    a.threads = 1;
    must(xd_open_with(&g, &a, 0, &e), &e);
    xd_request_init(&r);
    r.prompts = &prompt;
    r.nprompts = 1;
    r.images.image = argc > 2 ? argv[2] : NULL;
    r.images.mask_image = argc > 3 ? argv[3] : NULL;
    r.images.strength = r.images.mask_image && argc < 5 ? 1 : 0;
    if (argc > 2 && strstr(argv[2], "control.png"))
        r.images.control_image = argv[2], r.images.image = NULL;
    if (xd_role_of(g->ctx.model.recipe, 0)->drives) { /* videos, which are not read */
        r.images.image = "image.png";
        r.driving.pose_video = r.driving.face_video = "video.mp4";
        r.num_frames = r.driving.segment_frame_length = 9;
        g->ctx.unread = 1;
    }
    if (g->ctx.model.dit_info.hints && !g->ctx.model.dit_info.sides) {
        r.images.control_video = r.images.image, r.images.image = r.images.mask_image;
        r.images.mask_image = NULL, r.images.strength = 0;
        r.num_frames = 9; /* of the control video, which is not read */
        g->ctx.unread = 1;
    }
    g->ctx.unread |= g->ctx.model.recipe->layers > 0; /* layers have any of the sizes */
    r.num_inference_steps = STEPS;
    r.output.no_resolution_binning = 1;
    r.negative_prompt = "a blue star";
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            if (keeps(g, &plans[i]) &&
                !(plans[i].displaced && g->ctx.model.recipe->keeps_references))
                all_of(g, plans[i], sizes[k], &r);
    printf("%zu plans: %d steps of ranks compared, %d failures\n", sizeof plans / sizeof plans[0],
           checks, failures);
    xd_close(&g);
    return failures || !checks;
}

/* model.c - opens a model directory, and checks that the model's components fit each other */
#include "model/lora.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "base/file.h"
#include "base/log.h"
#include "model/component.h"
#include "families/help.h"
#include "families/recipe.h"
#include "model/guider.h"

/* ---- opening ------------------------------------------------------------------------------ */

static const char *class_in_index(const xd_model *m, const char *component)
{
    return xd_json_text(xd_json_at(xd_json_get(m->index, component), 1));
}

/* Returns the reason why a directory without model_index.json is not a model. In particular, a
 * folder of the Hugging Face cache is not a model: it has models in its subfolders. */
static const char *why_not(const char *dir)
{
    char *snapshots = xd_path_join(dir, "snapshots");
    char *parent = xd_path_join(dir, "..");
    char *above = parent ? xd_model_index_path(parent) : NULL;
    int   cache = snapshots && xd_file_is_dir(snapshots), part = above && xd_file_exists(above);
    free(snapshots);
    free(parent);
    free(above);
    return part    ? "it is a component of a model; name its parent folder"
           : cache ? "it is a model's folder in the Hugging Face cache; name a folder in its "
                     "snapshots, or the model as org/name"
                   : "it is not a diffusers model directory";
}

static xd_status unknown_pipeline(const char *path, const char *name, xd_err *e)
{
    xd_text_buf known = { 0 };
    xd_recipe_names(&known);
    xd_status s = xd_fail(e, XD_EUNSUPPORTED,
                          "%s names the pipeline %s, which this version does "
                          "not know (it knows %s)",
                          path, name ? name : "(none)", known.p ? known.p : "");
    xd_buf_free(&known);
    return s;
}

/* Reads boundary_ratio from the model's index: the second of two transformers is used for timesteps
 * below this fraction of the training timesteps. */
static xd_status read_boundary(xd_model *m, const char *path, xd_err *e)
{
    const xd_json *v = xd_json_get(m->index, "boundary_ratio");
    m->boundary = -1;
    if (!m->recipe->dit2 || !v || xd_json_null(v))
        return XD_OK;
    if (xd_json_number(v, &m->boundary) && m->boundary >= 0 && m->boundary <= 1)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT, "%s: boundary_ratio is not a number from 0 to 1", path);
}

/* Replaces the recipe of the pipeline class by the recipe for the transformer's config, if the
 * class has several. A config that cannot be read is reported when the transformer is opened. */
static void choose_recipe(xd_model *m)
{
    char    *dir = xd_path_join(m->dir, m->recipe->dit);
    char    *path = dir ? xd_path_join(dir, "config.json") : NULL;
    xd_json *config = NULL;
    xd_err   ignored = { 0 };
    if (path && xd_file_exists(path) && xd_json_read(&config, path, &ignored) == XD_OK)
        m->recipe = xd_recipe_for(m->recipe, config);
    xd_json_free(&config);
    free(path);
    free(dir);
}

/* Reads the lists of hidden states that model_index.json has for the text encoders. */
static xd_status read_states(xd_model *m, const char *path, xd_err *e)
{
    for (int k = 0; k < m->recipe->ntext; k++) {
        const char    *key = m->recipe->text[k].layers_key;
        const xd_json *list = key ? xd_json_get(m->index, key) : NULL;
        int            n = xd_json_size(list);
        double         v = 0;
        for (int i = 0; i < n && i < XD_MAXSTATES; i++) {
            if (!xd_json_number(xd_json_at(list, i), &v) || v != (double)(int)v)
                return xd_fail(e, XD_EFORMAT, "%s: %s has an element that is not a whole number",
                               path, key);
            m->states[k][i] = (int)v;
        }
        if (n > XD_MAXSTATES)
            return xd_fail(e, XD_EUNSUPPORTED, "%s: %s has %d hidden states; at most %d are read",
                           path, key, n, XD_MAXSTATES);
        m->nstates[k] = n;
    }
    return XD_OK;
}

/* Reads the list of sigmas that model_index.json has for requests. */
static xd_status read_sigmas(xd_model *m, const char *path, xd_err *e)
{
    const char    *key = m->recipe->sigmas_key;
    const xd_json *list = key ? xd_json_get(m->index, key) : NULL;
    int            n = xd_json_size(list);
    if (n > XD_MAXSIGMAS)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: %s has %d sigmas; at most %d are read", path, key,
                       n, XD_MAXSIGMAS);
    for (int i = 0; i < n; i++)
        if (!xd_json_number(xd_json_at(list, i), &m->sigmas[i]))
            return xd_fail(e, XD_EFORMAT, "%s: element %d of %s is not a number", path, i, key);
    m->nsigmas = n;
    return XD_OK;
}

static xd_status read_index(xd_model *m, xd_err *e)
{
    char     *path = xd_model_index_path(m->dir);
    xd_status s = path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory");
    if (s == XD_OK && !xd_file_exists(path))
        s = xd_fail(e, XD_EIO, "%s has no model_index.json: %s", m->dir, why_not(m->dir));
    if (s == XD_OK)
        s = xd_json_read(&m->index, path, e);
    if (s == XD_OK) {
        const char *name = xd_json_text(xd_json_get(m->index, "_class_name"));
        m->recipe = xd_recipe_find(name, m->index);
        if (m->recipe)
            choose_recipe(m);
        if (!m->recipe)
            s = unknown_pipeline(path, name, e);
        else
            s = read_boundary(m, path, e);
        if (s == XD_OK)
            s = read_states(m, path, e);
        if (s == XD_OK)
            s = read_sigmas(m, path, e);
    }
    free(path);
    return s;
}

static char *sched_path(const xd_model *m)
{
    return xd_path_join(m->dir, "scheduler/scheduler_config.json");
}

/* Returns the path of the config of the scheduler of audio. */
static char *audio_sched_path(const xd_model *m)
{
    char *dir = xd_path_join(m->dir, m->recipe->audio_scheduler);
    char *path = dir ? xd_path_join(dir, "scheduler_config.json") : NULL;
    free(dir);
    return path;
}

/* Reads a scheduler's config if the file exists. Takes ownership of `path`. */
static xd_status read_sched(xd_json **to, char *path, xd_err *e)
{
    xd_status s = path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory");
    if (s == XD_OK && xd_file_exists(path))
        s = xd_json_read(to, path, e);
    free(path);
    return s;
}

static xd_status read_scheduler(xd_model *m, xd_err *e)
{
    xd_status s = read_sched(&m->sched, sched_path(m), e);
    if (s == XD_OK && m->recipe->audio_scheduler)
        s = read_sched(&m->audio_sched, audio_sched_path(m), e);
    return s;
}

static xd_status read_guider(xd_model *m, xd_err *e)
{
    m->guidance = m->recipe->guidance;
    return m->recipe->guider ? xd_guider_read(m->dir, m->recipe->guider, &m->guidance, e) : XD_OK;
}

/* Checks that the transformer and the VAE fit the kind of pipeline: images or videos, with or
 * without an input image or mask. */
static xd_status check_kind(const xd_model *m, xd_err *e)
{
    const xd_dit_info *d = &m->dit_info;
    if (m->recipe->fps <= 0 && (d->patch[0] > 1 || m->vae_info.cell[0] > 1))
        return xd_fail(e, XD_EFORMAT, "%s: %s generates images, but its %s is one for videos",
                       m->dir, m->recipe->name, d->patch[0] > 1 ? "transformer" : "autoencoder");
    if (m->recipe->role == XD_ROLE_HELD && d->patch[0] != 1)
        return xd_fail(e, XD_EFORMAT,
                       "%s: %s has a timestep per frame of the latents, but a token "
                       "of the transformer has %d frames",
                       m->dir, m->recipe->name, d->patch[0]);
    if (m->recipe->role == XD_ROLE_HELD && !d->holds)
        return xd_fail(e, XD_EFORMAT,
                       "%s: %s gives timestep 0 to the tokens of a first frame, which the "
                       "transformer does not support",
                       m->dir, m->recipe->name);
    if (m->recipe->role != XD_ROLE_HELD && d->begins)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs a first frame, which %s does not provide", m->dir,
                       m->recipe->name);
    int cell = d->pixels ? m->dit.dit->side->cell : 0;
    if (cell && (m->vae_info.cell[1] != cell || m->vae_info.cell[2] != cell))
        return xd_fail(
            e, XD_EFORMAT,
            "%s: a control network reads cells of %d x %d pixels, but latent cells of the "
            "autoencoder have %d x %d",
            m->dir, cell, cell, m->vae_info.cell[2], m->vae_info.cell[1]);
    int64_t want = xd_recipe_channels(m->recipe, d->lat_ch, m->vae_info.cell);
    for (int i = 0; i < d->sides; i++)
        want += d->side_ch[i] ? d->side_ch[i] : m->vae_info.channels;
    if (d->extra_ch && !want)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs %lld image channels in addition to the latents, "
                       "which %s does not provide",
                       m->dir, (long long)d->extra_ch, m->recipe->name);
    if (d->extra_ch != want && m->recipe->role == XD_ROLE_MASK)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer of %s needs %lld channels in addition to the latents; "
                       "an image and its mask have %lld",
                       m->dir, m->recipe->name, (long long)d->extra_ch, (long long)want);
    if (d->extra_ch != want)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer of %s needs %lld image channels in addition to %lld "
                       "of latents; only %lld are supported",
                       m->dir, m->recipe->name, (long long)d->extra_ch, (long long)d->lat_ch,
                       (long long)want);
    if (want && !m->vae.vae->encode)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: the VAE has no encoder, which the image needs",
                       m->dir);
    return XD_OK;
}

/* Checks the width of the rows that encoder k reads from the encoder before it. */
static xd_status check_follows(const xd_model *m, int k, xd_err *e)
{
    const xd_component *p = &m->text[k];
    int64_t             has = xd_model_text_width(m, k - 1);
    if (p->text->reads && p->text->reads(p->w->net.cfg) == has)
        return XD_OK;
    return xd_fail(e, XD_EFORMAT,
                   "%s: %s reads rows of width %lld, but %s returns hidden states of width %lld",
                   xd_model_text_dir(m, k), m->recipe->text[k].folder,
                   (long long)(p->text->reads ? p->text->reads(p->w->net.cfg) : 0),
                   m->recipe->text[k - 1].folder, (long long)has);
}

/* Checks that encoder k of the prior fits the encoder before it or the transformer. */
static xd_status check_prior(const xd_model *m, int k, xd_err *e)
{
    int64_t width = xd_model_text_width(m, k);
    if (!m->has_text[k])
        return XD_OK;
    if (m->recipe->text[k].follows && check_follows(m, k, e) != XD_OK)
        return XD_EFORMAT;
    if (m->recipe->text[k].rows == XD_ROWS_NONE || width == m->dit_info.text_dim)
        return XD_OK;
    return xd_fail(
        e, XD_EFORMAT,
        "%s/%s returns rows of width %lld, but the transformer of %s needs text of width "
        "%lld: use the prior of this model",
        m->prior, m->recipe->text[k].folder, (long long)width, m->dir,
        (long long)m->dit_info.text_dim);
}

/* Checks the image embeddings from encoder k: the number of rows and their width. */
static xd_status check_images(const xd_model *m, int k, xd_err *e)
{
    const xd_dit_info *d = &m->dit_info;
    const char        *folder = m->recipe->text[k].folder;
    if (!m->has_text[k] && d->image_dim)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs rows of an encoded image, but "
                       "there is no %s",
                       m->dir, folder);
    if (!m->has_text[k])
        return XD_OK;
    int64_t width = xd_model_text_width(m, k), one = xd_model_image_rows(m, k);
    int     n = xd_model_images(m, k);
    if (width != d->image_dim)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs image rows of width %lld, but %s "
                       "returns %lld",
                       m->dir, (long long)d->image_dim, folder, (long long)width);
    if (d->image_rows && (n < 1 || n > 2 || d->image_rows != one))
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer has positions for %lld image rows, but "
                       "%s returns %lld for each of one or two images",
                       m->dir, (long long)d->image_rows, folder, (long long)(n ? one / n : one));
    return XD_OK;
}

const char *xd_model_text_dir(const xd_model *m, int k)
{
    return m->recipe->text[k].prior && m->prior ? m->prior : m->dir;
}

static int is_last_of_text(const xd_model *m, int k)
{
    return k == m->recipe->ntext - 1 || !m->recipe->text[k + 1].tokenizer;
}

/* Checks that the transformer and the networks of audio fit together. */
static xd_status check_audio(const xd_model *m, xd_err *e)
{
    int64_t width = m->dit_info.audio;
    for (int i = 0; i < XD_MAXAUDIO && m->audio[i].audio; i++) {
        xd_audio_info a;
        m->audio[i].audio->info(m->audio[i].w->net.cfg, &a);
        if (a.in != width)
            return xd_fail(
                e, XD_EFORMAT,
                "%s: %s reads rows of width %lld, but the network before it returns rows "
                "of width %lld",
                m->dir, m->recipe->audio[i], (long long)a.in, (long long)width);
        width = a.out;
    }
    return XD_OK;
}

/* Refuses components if the output of one does not match the input of the next. */
static xd_status check_fit(const xd_model *m, xd_err *e)
{
    const xd_dit_info *d = &m->dit_info;
    int64_t            pooled = 0, beside = 0, rows = 0;
    for (int k = 0; k < m->recipe->ntext; k++) {
        const xd_text_use *u = &m->recipe->text[k];
        if (!u->tokenizer && (u->prior ? check_prior : check_images)(m, k, e) != XD_OK)
            return XD_EFORMAT;
        if (!m->has_text[k] || !u->tokenizer)
            continue;
        if (u->follows && check_follows(m, k, e) != XD_OK)
            return XD_EFORMAT;
        if (u->pooled && !xd_model_pooled(m, k))
            return xd_fail(e, XD_EFORMAT, "%s: %s has no pooled embedding", m->dir, u->folder);
        pooled += u->pooled ? xd_model_pooled(m, k) : 0;
        if (u->rows == XD_ROWS_NONE)
            continue;
        int64_t width = xd_model_text_width(m, k);
        beside = u->rows == XD_ROWS_BESIDE ? beside + width : width;
        rows += u->pad > 0 ? u->pad : 0;
        if (d->text_cols[k] && width != d->text_cols[k])
            return xd_fail(e, XD_EFORMAT,
                           "%s: the transformer needs text of width %lld from %s, which has %lld",
                           m->dir, (long long)d->text_cols[k], u->folder, (long long)width);
        /* The embeddings of several encoders are padded with zeros to one width. If there is a
         * single text encoder, its width must be the text width of the transformer. */
        if (beside > d->text_dim ||
            (is_last_of_text(m, k) && !d->text_cols[k] && beside != d->text_dim))
            return xd_fail(e, XD_EFORMAT,
                           "%s: the transformer needs text of width %lld, the text "
                           "encoder returns %lld",
                           m->dir, (long long)d->text_dim, (long long)beside);
    }
    if (d->text_rows && d->text_rows != rows)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs %lld rows of text, %s provides %lld", m->dir,
                       (long long)d->text_rows, m->recipe->name, (long long)rows);
    if (pooled != d->pooled_dim)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs a pooled text of width %lld, the text "
                       "encoders return %lld",
                       m->dir, (long long)d->pooled_dim, (long long)pooled);
    if (d->lat_ch != m->vae_info.channels)
        return xd_fail(e, XD_EFORMAT,
                       "%s: the transformer needs %lld latent channels, the vae "
                       "has %lld",
                       m->dir, (long long)d->lat_ch, (long long)m->vae_info.channels);
    return check_audio(m, e) == XD_OK ? check_kind(m, e) : XD_EFORMAT;
}

xd_text_read xd_model_reads(const xd_model *m, int k)
{
    static const int   last = -1;
    const xd_text_use *u = &m->recipe->text[k];
    if (m->nstates[k])
        return (xd_text_read){ .nlayers = m->nstates[k], .layers = m->states[k] };
    return (xd_text_read){ .nlayers = u->nlayers ? u->nlayers : 1,
                           .layers = u->nlayers ? u->layers : &last,
                           .raw = u->raw };
}

int64_t xd_model_text_width(const xd_model *m, int k)
{
    const xd_component *p = &m->text[k];
    return m->has_text[k] ? p->text->width(p->w->net.cfg) * xd_model_reads(m, k).nlayers : 0;
}

int64_t xd_model_vocab(const xd_model *m, int k)
{
    const xd_component *p = &m->text[k];
    for (const xd_field *f = m->has_text[k] ? p->text->net.fields : NULL; f && f->json; f++)
        if (f->kind == 'l' && strcmp(f->json, "vocab_size") == 0)
            return *(const int64_t *)((const char *)p->w->net.cfg + f->off);
    return 0;
}

static int64_t rows_of_image(const xd_model *m, int k)
{
    const xd_component *p = &m->text[k];
    xd_text_vision      i = { 0 };
    if (m->has_text[k] && p->text && p->text->vision)
        p->text->vision(p->w->net.cfg, &i);
    return i.rows;
}

int64_t xd_model_image_side(const xd_model *m, int k)
{
    const xd_component *p = &m->text[k];
    xd_text_vision      i = { 0 };
    xd_text_tower       t = { 0 };
    if (m->has_text[k] && p->text && p->text->vision)
        p->text->vision(p->w->net.cfg, &i);
    if (m->has_text[k] && p->text && p->text->tower)
        p->text->tower(p->w->net.cfg, &t);
    return i.side ? i.side : t.side;
}

int xd_model_images(const xd_model *m, int k)
{
    int64_t one = rows_of_image(m, k);
    return !one ? 0 : m->dit_info.image_rows ? (int)(m->dit_info.image_rows / one) : 1;
}

int64_t xd_model_image_rows(const xd_model *m, int k)
{
    return xd_model_images(m, k) * rows_of_image(m, k);
}

xd_status xd_model_choose_blocks(xd_model *m, int k, xd_err *e)
{
    const xd_text_use *u = &m->recipe->text[k];
    xd_component      *p = &m->text[k];
    int                n = p->w->net.nlayers;
    if (u->all && n >= XD_MAXSTATES)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: %d hidden states are read; at most %d can be",
                       p->dir, n + 1, XD_MAXSTATES);
    for (m->nstates[k] = u->all ? 0 : m->nstates[k]; u->all && m->nstates[k] <= n; m->nstates[k]++)
        m->states[k][m->nstates[k]] = m->nstates[k];
    const xd_text_read r = xd_model_reads(m, k);
    if (u->nlayers && !p->text->hidden)
        return xd_fail(e, XD_EFORMAT,
                       "%s: %s needs hidden states of single layers, which a %s "
                       "does not provide",
                       p->dir, m->recipe->name, p->class_name);
    for (int i = 0; i < r.nlayers && u->nlayers && !m->layers; i++)
        if (r.layers[i] > n || r.layers[i] < -n - 1)
            return xd_fail(e, XD_EFORMAT,
                           "%s: %s needs hidden state %d, but num_hidden_layers is "
                           "%d",
                           p->dir, m->recipe->name, r.layers[i], n);
    if (u->nlayers)
        xd_component_stage(p, 0, xd_text_blocks(&p->w->net, r.layers, r.nlayers));
    return XD_OK;
}

int64_t xd_model_pooled(const xd_model *m, int k)
{
    const xd_text *t = m->text[k].text;
    return t && t->pooled ? t->pooled(m->text[k].w->net.cfg) : 0;
}

/* ---- files that replace weights of the directory ------------------------------------------ */

/* Returns the path of the weight file that the options give for a slot, or NULL if they give
 * none. */
static const char *given_file(const xd_model *m, const char *slot)
{
    for (int i = 0; slot && i < m->given.n; i++)
        if (m->given.v[i].component && strcmp(m->given.v[i].component, slot) == 0)
            return m->given.v[i].path;
    return NULL;
}

/* Returns the index of the text encoder with this slot, or -1 if the pipeline has no such
 * encoder. */
static int encoder_of(const xd_model *m, const char *slot)
{
    int k = m->recipe->ntext - 1;
    while (k >= 0 && strcmp(m->recipe->text[k].slot, slot) != 0)
        k--;
    return k;
}

/* Refuses a latent upsampler if none enlarges the latents of the pipeline. */
static xd_status check_upsampled(const xd_model *m, const char *path, xd_err *e)
{
    if (m->recipe->upsampler)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "%s is given as latent_upsampler, but the latents of %s cannot be enlarged "
                   "(those of %s can)",
                   path, m->recipe->name, xd_family_says(XD_WORD_UPSAMPLES));
}

static int has_prior(const xd_recipe *p)
{
    return p->ntext && p->text[p->ntext - 1].prior;
}

/* Refuses a prior if the pipeline reads no rows of images among those of its text. */
static xd_status check_given_prior(const xd_model *m, const char *path, xd_err *e)
{
    if (has_prior(m->recipe))
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "%s is given as " XD_PRIOR_SLOT ", but %s varies no images (models of %s do)",
                   path, m->recipe->name, xd_family_says(XD_WORD_PRIOR));
}

/* Returns the number of text encoders for which a file may be given. */
static int text_slots(const xd_model *m)
{
    int n = m->recipe->ntext;
    while (n && m->recipe->text[n - 1].prior && !given_file(m, XD_PRIOR_SLOT))
        n--;
    return n;
}

/* Refuses a file for a text encoder that the pipeline does not have or that the options omit. */
static xd_status check_given(const xd_model *m, const xd_component_file *f, xd_err *e)
{
    char known[64] = "";
    if (!f->component || !f->path)
        return xd_fail(e, XD_EINVAL, "a weight file has no component or no path");
    if (strcmp(f->component, "transformer") == 0 || strcmp(f->component, "vae") == 0 ||
        strcmp(f->component, XD_SIDE_SLOT) == 0)
        return XD_OK;
    if (strcmp(f->component, XD_UPSAMPLER_SLOT) == 0)
        return check_upsampled(m, f->path, e);
    if (strcmp(f->component, XD_PRIOR_SLOT) == 0)
        return check_given_prior(m, f->path, e);
    if (strcmp(f->component, "transformer_2") == 0 && m->recipe->dit2)
        return XD_OK;
    for (int k = 0; k < text_slots(m); k++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", k ? ", " : "",
                 m->recipe->text[k].slot);
    if (strcmp(f->component, "transformer_2") == 0)
        return xd_fail(e, XD_EINVAL, "%s is given as transformer_2, but %s has one transformer",
                       f->path, m->recipe->name);
    int k = encoder_of(m, f->component);
    if (k < 0 || k >= text_slots(m))
        return xd_fail(e, XD_EINVAL,
                       "%s is given as %s, but %s has no such text encoder (it has %s)", f->path,
                       f->component, m->recipe->name, known);
    if (m->without && strcmp(m->without, f->component) == 0)
        return xd_fail(e, XD_EINVAL, "%s is given as %s, which is also to be omitted", f->path,
                       f->component);
    return XD_OK;
}

/* Returns 1 if the model is opened without side networks, even if its directory has one. */
static int omits_sides(const xd_model *m)
{
    return m->without && strcmp(m->without, XD_SIDE_SLOT) == 0;
}

/* Checks that the pipeline works without the omitted text encoder. Also checks that each given file
 * is for a component of the pipeline. */
static xd_status check_asked(const xd_model *m, xd_err *e)
{
    int       k = m->without ? encoder_of(m, m->without) : -1;
    xd_status s = XD_OK;
    if (m->without && !omits_sides(m) && (k < 0 || !m->recipe->text[k].optional))
        return xd_fail(e, XD_EINVAL,
                       k < 0 ? "%s has no text encoder %s to do without"
                             : "%s cannot do without its text encoder %s",
                       m->recipe->name, m->without);
    for (int i = 0; s == XD_OK && i < m->given.n; i++)
        s = check_given(m, &m->given.v[i], e);
    return s;
}

/* Returns 1 if a folder of the model has the config of an image processor. */
static int has_processor(const xd_model *m, const char *folder)
{
    int   found = 0;
    char *dir = xd_path_join(m->dir, folder);
    for (int i = 0; dir && xd_image_processor_files[i]; i++) {
        char *path = xd_path_join(dir, xd_image_processor_files[i]);
        found |= path && xd_file_exists(path);
        free(path);
    }
    free(dir);
    return found;
}

/* Returns 1 if a weight file has tensors of a vision tower, or cannot be read, which is reported
 * when the model's files are opened. */
static int has_tower(const char *file)
{
    xd_err e = { 0 };
    xd_st *st = NULL;
    int    found = xd_st_open(&st, file, "model", &e) != XD_OK;
    for (int64_t i = 0; !found && i < xd_st_count(st); i++)
        found = strstr(xd_st_name(st, i), "visual.") != NULL;
    xd_st_close(&st);
    return found;
}

/* Returns 1 if the text encoder in `folder` is opened with its vision tower. A model that needs no
 * image does without if `file` has no vision tower, or if the image processor has no config. */
static int opens_tower(const xd_model *m, const char *folder, const char *file)
{
    const xd_recipe *p = m->recipe;
    if (!xd_recipe_sees(p, folder) || p->needs_image)
        return xd_recipe_sees(p, folder);
    for (int i = 0; i < p->ntext; i++)
        if (p->text[i].image_text && !has_processor(m, p->text[i].processor))
            return 0;
    return !file || has_tower(file);
}

static xd_status open_part(xd_model *m, xd_component *p, const char *folder, xd_kind kind,
                           const char *slot, xd_err *e)
{
    xd_status s =
        xd_component_open_some(p, m->dir, folder, kind, class_in_index(m, folder), m->layers, e);
    const char *file = given_file(m, slot);
    if (s == XD_OK && opens_tower(m, folder, file))
        s = xd_component_add_vision(p, e);
    return s == XD_OK && file ? xd_component_set_file(p, file, slot, e) : s;
}

/* Refuses a tiny autoencoder whose latents are not those of the model. */
static xd_status check_latents(const xd_model *m, const xd_vae_info *v, const xd_vae_info *own,
                               const char *file, xd_err *e)
{
    if (v->channels == own->channels && memcmp(v->cell, own->cell, sizeof v->cell) == 0)
        return XD_OK;
    return xd_fail(e, XD_EINVAL,
                   "%s decodes latents of %lld channels and cells of %d x %d x %d (frames, rows, "
                   "columns), but those of %s have %lld channels and cells of %d x %d x %d: give "
                   "a decoder for the latents of this model",
                   file, (long long)v->channels, v->cell[0], v->cell[1], v->cell[2], m->dir,
                   (long long)own->channels, own->cell[0], own->cell[1], own->cell[2]);
}

/* Refuses a tiny autoencoder in place of a VAE with alpha. */
static xd_status check_replaced(const xd_model *m, const xd_vae_info *own, const char *file,
                                xd_err *e)
{
    if (xd_vae_pixel_channels(own) == 3)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s cannot replace the VAE of %s, which decodes colours and alpha: omit --vae, "
                   "or give the file as --preview_decoder",
                   file, m->dir);
}

/* Opens the tiny autoencoder of a weight file without config, if the file has one. Otherwise *p is
 * closed afterwards. */
static xd_status open_tiny(const xd_model *m, xd_component *p, const char *file,
                           const xd_vae_info *own, xd_err *e)
{
    xd_vae_info v;
    xd_status   s = xd_component_open_described(p, m->recipe->vae, file, "vae", own, e);
    if (s != XD_OK || !p->w)
        return s;
    p->vae->info(p->w->net.cfg, &v);
    s = check_latents(m, &v, own, file, e);
    return s == XD_OK ? check_replaced(m, own, file, e) : s;
}

/* Opens the VAE of the model's folder, or a tiny autoencoder in a file that is given for it. */
static xd_status open_vae(xd_model *m, xd_err *e)
{
    const char  *file = given_file(m, "vae");
    xd_component tiny;
    xd_vae_info  own;
    xd_status    s = open_part(m, &m->vae, m->recipe->vae, XD_KIND_VAE, "vae", e);
    if (s != XD_OK || !file)
        return s;
    m->vae.vae->info(m->vae.w->net.cfg, &own);
    s = open_tiny(m, &tiny, file, &own, e);
    if (s == XD_OK && tiny.w) {
        xd_component_close(&m->vae);
        m->vae = tiny;
        m->vae_info.rgb = own.rgb; /* both read the same latents */
        return XD_OK;
    }
    xd_component_close(&tiny);
    return s;
}

/* Reads the settings of a vision-language encoder's image processor. The processor's patches must
 * match the encoder's vision tower. */
static xd_status open_processor(xd_model *m, int k, xd_err *e)
{
    const xd_text_use  *u = &m->recipe->text[k];
    xd_image_processor *p = &m->processor;
    xd_text_tower       tower;
    if (u->prior && u->follows)
        return XD_OK;
    if (!u->tokenizer != !!m->text[k].text->vision)
        return xd_fail(e, XD_EFORMAT, "%s: a %s encodes %s", m->text[k].dir, m->text[k].class_name,
                       u->tokenizer ? "images, not text" : "no images");
    if (u->image_every[0] && !xd_model_image_side(m, k))
        return xd_fail(e, XD_EFORMAT,
                       "%s: %s needs a text encoder that reads images of one size, which a %s is "
                       "not",
                       m->text[k].dir, m->recipe->name, m->text[k].class_name);
    if (!u->image_text || !m->text[k].text->tower)
        return XD_OK;
    xd_status s = xd_image_processor_read(p, m->dir, u->processor, e);
    if (s != XD_OK)
        return s;
    m->text[k].text->tower(m->text[k].w->net.cfg, &tower);
    return p->patch == tower.patch && p->merge == tower.merge
               ? XD_OK
               : xd_fail(e, XD_EFORMAT,
                         "%s: the %s has patches of %lld pixels and tokens of "
                         "%lld x %lld patches, the %s needs %lld and %lld x %lld",
                         m->dir, u->processor, (long long)p->patch, (long long)p->merge,
                         (long long)p->merge, u->folder, (long long)tower.patch,
                         (long long)tower.merge, (long long)tower.merge);
}

/* Returns 1 if the model has a text encoder. A model may lack an optional encoder: the directory
 * has no such folder, or the model's index has [null, null] for the encoder. */
static int is_there(const xd_model *m, const xd_text_use *u)
{
    if (u->prior)
        return given_file(m, XD_PRIOR_SLOT) != NULL;
    if (given_file(m, u->slot))
        return 1;
    const xd_json *entry = xd_json_get(m->index, u->folder);
    char          *dir = u->optional ? xd_path_join(m->dir, u->folder) : NULL;
    int            wanted = !m->without || strcmp(m->without, u->slot) != 0;
    int            there = !u->optional || (xd_file_is_dir(dir) && wanted &&
                                            (xd_json_null(entry) || class_in_index(m, u->folder)));
    free(dir);
    return there;
}

/* Like diffusers, omits an image encoder if the transformer does not read its output. */
static void leave_images_out(xd_model *m)
{
    for (int k = 0; k < m->recipe->ntext && !m->dit_info.image_dim; k++)
        if (!m->recipe->text[k].tokenizer && !m->recipe->text[k].prior && m->has_text[k]) {
            xd_component_close(&m->text[k]);
            m->has_text[k] = 0;
        }
}

/* Returns 1 if the model has the folder of a component, or if the options give a file for this
 * component. Returns 0 if the model's index has [null, null] for the component. */
static int has_part(const xd_model *m, const char *folder)
{
    const xd_json *entry = xd_json_get(m->index, folder);
    return given_file(m, folder) || (entry && class_in_index(m, folder));
}

/* Refuses a model whose two transformers have different configurations, because pipeline stages,
 * shards and memory are planned once for both transformers. */
static xd_status check_pair(const xd_model *m, xd_err *e)
{
    xd_dit_info        other;
    const xd_dit_info *d = &m->dit_info;
    if (!m->dit2.dit)
        return XD_OK;
    m->dit2.dit->info(m->dit2.w->net.cfg, &other);
    if (m->dit2.dit == m->dit.dit && other.nlayers == d->nlayers && other.heads == d->heads &&
        other.head_dim == d->head_dim && other.dim == d->dim && other.lat_ch == d->lat_ch &&
        other.extra_ch == d->extra_ch && other.text_dim == d->text_dim &&
        other.image_dim == d->image_dim && memcmp(other.patch, d->patch, sizeof d->patch) == 0)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s: %s (%d blocks, %d heads of %d) and %s (%d blocks, %d heads of %d) differ "
                   "in their configuration, which is not supported",
                   m->dir, m->dit.name, d->nlayers, d->heads, d->head_dim, m->dit2.name,
                   other.nlayers, other.heads, other.head_dim);
}

static void find_dits(xd_model *m)
{
    int low = m->recipe->dit2 && has_part(m, m->recipe->dit2), high = has_part(m, m->recipe->dit);
    m->only_low = low && !high;
    m->has_two = low && high;
}

/* Finds the directory or file of a side network, and adds it to those of the model. */
static xd_status add_side(xd_model *m, const char *path, xd_err *e)
{
    if (m->nsides == XD_MAXSIDES)
        return xd_fail(e, XD_EINVAL, "more than %d control networks are given", XD_MAXSIDES);
    char     *found = NULL;
    xd_status s = XD_OK;
    if (!xd_file_exists(path))
        s = xd_model_find(path, &found, e);
    else if (!(found = strdup(path)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK)
        m->sides[m->nsides++] = found;
    return s;
}

/* Finds the side networks of the transformer: those that the options give or, if they give none,
 * the one in the model's directory. */
static xd_status find_sides(xd_model *m, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < m->given.n; i++)
        if (strcmp(m->given.v[i].component, XD_SIDE_SLOT) == 0)
            s = add_side(m, m->given.v[i].path, e);
    if (s != XD_OK || m->nsides || omits_sides(m) || !class_in_index(m, XD_SIDE_SLOT))
        return s;
    char *dir = xd_path_join(m->dir, XD_SIDE_SLOT);
    s = dir ? add_side(m, dir, e) : xd_fail(e, XD_ENOMEM, "no memory for a path");
    free(dir);
    return s;
}

static xd_status open_sides(xd_model *m, xd_err *e)
{
    xd_status s = find_sides(m, e);
    if (s == XD_OK && m->nsides && m->recipe->role != XD_ROLE_START)
        s = xd_fail(e, XD_EUNSUPPORTED,
                    "%s is given as control network, but %s models have none: omit it", m->sides[0],
                    m->recipe->name);
    if (s == XD_OK && m->nsides)
        s = xd_component_add_sides(&m->dit, (const char *const *)m->sides, m->nsides, e);
    if (s == XD_OK && m->nsides && m->recipe->with_sides) {
        m->recipe = m->recipe->with_sides;
        m->guidance = m->recipe->guidance;
    }
    for (int i = 0; i < m->nsides; i++)
        free(m->sides[i]), m->sides[i] = NULL;
    m->nsides = 0;
    return s;
}

/* Opens a component whose directory `dir` is not a folder of the model. Changes `dir`. */
static xd_status open_alone(xd_component *p, char *dir, xd_kind kind, xd_err *e)
{
    for (size_t n = strlen(dir); n > 1 && dir[n - 1] == '/';)
        dir[--n] = 0;
    char *name = strrchr(dir, '/');
    if (!name || !name[1])
        return xd_component_open(p, "", dir, kind, NULL, e);
    *name++ = 0;
    return xd_component_open(p, *dir ? dir : "/", name, kind, NULL, e);
}

/* ---- the latent upsampler ------------------------------------------------------------------- */

static xd_status check_upsampler(const xd_model *m, const char *path, xd_err *e)
{
    const xd_component      *p = &m->upsampler;
    const xd_upsampler_info *i = &m->upsampler_info;
    int                      known = 0;
    for (int k = 0; k < 6 && p->def->classes[k]; k++)
        known |= strcmp(p->def->classes[k], m->recipe->upsampler) == 0;
    if (!known)
        return xd_fail(e, XD_EINVAL,
                       "%s is a %s, but latents of %s are enlarged by a %s: give another "
                       "latent_upsampler",
                       path, p->class_name, m->recipe->name, m->recipe->upsampler);
    if (i->channels != m->vae_info.channels)
        return xd_fail(e, XD_EINVAL,
                       "%s enlarges latents of %lld channels, but those of %s have %lld: give "
                       "another latent_upsampler",
                       path, (long long)i->channels, m->dir, (long long)m->vae_info.channels);
    if (i->by[0] == 1)
        return XD_OK;
    return xd_fail(e, XD_EUNSUPPORTED,
                   "%s adds frames to a video; supported are latent upsamplers that only enlarge "
                   "frames (spatial_upsample without temporal_upsample)",
                   path);
}

/* Opens a latent upsampler in the directory `dir` of a component, or in that of a pipeline, which
 * has the component in a folder. */
static xd_status open_upsampler_dir(xd_model *m, char *dir, xd_err *e)
{
    char *inner = xd_path_join(dir, XD_UPSAMPLER_SLOT);
    int   has = inner && xd_file_is_dir(inner);
    free(inner);
    if (has)
        return xd_component_open(&m->upsampler, dir, XD_UPSAMPLER_SLOT, XD_KIND_UPSAMPLER, NULL, e);
    return open_alone(&m->upsampler, dir, XD_KIND_UPSAMPLER, e);
}

/* Opens a latent upsampler whose weights are a file: with the config.json beside the file, else
 * with the defaults of its class. */
static xd_status open_upsampler_file(xd_model *m, const char *path, xd_err *e)
{
    char       *dir = strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
    xd_text_buf config = { 0 };
    xd_status   s = dir ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK)
        strcpy(slash ? slash + (slash == dir) : dir, slash ? "" : ".");
    char *beside = s == XD_OK ? xd_path_join(dir, "config.json") : NULL;
    if (beside && xd_file_exists(beside)) {
        s = open_upsampler_dir(m, dir, e);
    } else if (s == XD_OK) {
        xd_buf_add(&config, "{\"_class_name\": \"%s\"}", m->recipe->upsampler);
        s = xd_component_open_text(&m->upsampler, XD_UPSAMPLER_SLOT, XD_KIND_UPSAMPLER, config.p,
                                   e);
    }
    if (s == XD_OK)
        s = xd_component_set_file(&m->upsampler, path, XD_UPSAMPLER_SLOT, e);
    xd_buf_free(&config);
    free(beside);
    free(dir);
    return s;
}

/* Opens the latent upsampler that the options give, if any. */
static xd_status open_upsampler(xd_model *m, const char *path, xd_err *e)
{
    char *dir = NULL;
    if (!path)
        return XD_OK;
    if (m->vae.from_text)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s is given as latent_upsampler, which needs the mean and deviation of "
                       "latents in the VAE of %s: omit --vae %s",
                       path, m->dir, m->vae.file);
    xd_status s = xd_file_exists(path) && !xd_file_is_dir(path) ? open_upsampler_file(m, path, e)
                                                                : xd_model_find(path, &dir, e);
    if (dir)
        s = open_upsampler_dir(m, dir, e);
    free(dir);
    if (s != XD_OK)
        return s;
    m->upsampler.upsampler->info(m->upsampler.w->net.cfg, &m->upsampler_info);
    return check_upsampler(m, path, e);
}

/* If a LoRA file has input channels of a control image for the transformer, gives the transformer
 * these channels and the model the recipe that has a control image. */
static xd_status add_control_channels(xd_model *m, xd_err *e)
{
    const xd_recipe *p = m->recipe->with_control_lora;
    int64_t          channels;
    if (!p)
        return XD_OK;
    xd_status s = xd_loras_channels(m->given.loras, m->given.nloras, m, &channels, e);
    m->dit.dit->info(m->dit.w->net.cfg, &m->dit_info);
    int64_t own = m->dit_info.lat_ch * m->dit_info.patch[1] * m->dit_info.patch[2];
    if (s != XD_OK || channels <= own)
        return s;
    if (channels != 2 * own)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "a LoRA file has %lld channels for %s, not %lld of the latents and %lld of "
                       "a control image",
                       (long long)channels, m->dit.dit->input, (long long)own, (long long)own);
    m->recipe = p;
    return xd_component_widen(&m->dit, m->dit.dit->input, channels, e);
}

/* Finds the directory of the prior, if the options give one. */
static xd_status find_prior(xd_model *m, xd_err *e)
{
    const char *path = given_file(m, XD_PRIOR_SLOT);
    if (!path)
        return XD_OK;
    if (xd_file_exists(path) && !xd_file_is_dir(path))
        return xd_fail(e, XD_EINVAL,
                       "%s is given as " XD_PRIOR_SLOT
                       ", but it is a file: give the directory with "
                       "the folders of the prior",
                       path);
    xd_status s = xd_model_find(path, &m->prior, e);
    for (int k = 0; s == XD_OK && k < m->recipe->ntext; k++) {
        const xd_text_use *u = &m->recipe->text[k];
        char              *dir = u->prior ? xd_path_join(m->prior, u->folder) : NULL;
        if (dir && !xd_file_is_dir(dir))
            s = xd_fail(e, XD_EIO, "%s is given as " XD_PRIOR_SLOT ", but it has no folder %s",
                        m->prior, u->folder);
        free(dir);
    }
    return s;
}

/* Opens text encoder k. model_index.json of the model knows nothing about the prior. */
static xd_status open_text(xd_model *m, int k, xd_err *e)
{
    const xd_text_use *u = &m->recipe->text[k];
    xd_component      *p = &m->text[k];
    const char        *file = u->prior ? given_file(m, u->slot) : NULL;
    xd_status          s =
        u->prior ? xd_component_open_some(p, m->prior, u->folder, XD_KIND_TEXT, NULL, m->layers, e)
                 : open_part(m, p, u->folder, XD_KIND_TEXT, u->slot, e);
    if (s == XD_OK && file)
        s = xd_component_set_file(p, file, u->slot, e);
    if (s == XD_OK)
        s = xd_model_choose_blocks(m, k, e);
    return s == XD_OK ? open_processor(m, k, e) : s;
}

/* Opens the transformer, or both transformers of a model that has two. */
static xd_status open_dits(xd_model *m, xd_err *e)
{
    const char *low = m->recipe->dit2, *first = m->only_low ? low : m->recipe->dit;
    xd_status   s = open_part(m, &m->dit, first, XD_KIND_DIT, m->only_low ? low : "transformer", e);
    return s == XD_OK && m->has_two ? open_part(m, &m->dit2, low, XD_KIND_DIT, low, e) : s;
}

xd_component *xd_model_dit(xd_model *m, int i)
{
    return i ? &m->dit2 : &m->dit;
}

int xd_model_dits(const xd_model *m)
{
    return 1 + m->has_two;
}

int xd_model_has_dits(const xd_model *m)
{
    return m->dit.w->store || (m->has_two && m->dit2.w->store);
}

xd_component *xd_model_text(xd_model *m, int k)
{
    return k < m->recipe->ntext && m->has_text[k] ? &m->text[k] : NULL;
}

xd_component *xd_model_part(xd_model *m, int i)
{
    if (i < 2)
        return i < xd_model_dits(m) ? xd_model_dit(m, i) : NULL;
    if (i == 2)
        return &m->vae;
    if (i == XD_MODEL_PARTS - 1)
        return m->upsampler.upsampler ? &m->upsampler : NULL;
    if (i == XD_MODEL_PARTS - 2)
        return m->preview.vae ? &m->preview : NULL;
    if (i >= 3 + XD_MAXTEXT)
        return m->audio[i - 3 - XD_MAXTEXT].audio ? &m->audio[i - 3 - XD_MAXTEXT] : NULL;
    return xd_model_text(m, i - 3);
}

/* Sets the defaults of requests. If the model is a distilled checkpoint, uses the defaults of that
 * checkpoint, else those of the pipeline. A distilled checkpoint is recognized by its configs, or
 * by the name of the model or of the file that replaces the transformer. */
static void set_usual(xd_model *m)
{
    const char      *file = m->dit.file ? m->dit.file : m->dir;
    xd_text_buf      name = { 0 };
    const xd_recipe *p = m->recipe;
    xd_distilled_of  of = {
        .recipe = p->name, .index = m->index, .transformer = m->dit.config, .scheduler = m->sched
    };
    xd_model_short_name(file, &name);
    of.name = name.p && !name.failed ? name.p : "";
    if (strchr(of.name, '/'))
        of.name = strrchr(of.name, '/') + 1;
    if (!xd_distilled_find(&of, &m->usual))
        m->usual = (xd_distilled){ .steps = m->nsigmas ? m->nsigmas : p->steps, .guidance = -1 };
    if (m->usual.guidance < 0)
        m->usual.guidance = m->guidance;
    if (!(m->usual.true_cfg > 0))
        m->usual.true_cfg = p->true_cfg;
    if (!m->usual.max_text)
        m->usual.max_text = m->dit_info.text_default ? (int)m->dit_info.text_default : p->max_text;
    xd_buf_free(&name);
}

xd_usual xd_model_usual(const xd_model *m, int from_image, int masked)
{
    xd_usual        u = { m->usual.steps, m->usual.max_text, m->usual.guidance };
    const xd_usual *o = masked ? &m->recipe->of_mask : &m->recipe->of_image;
    if (!from_image || m->usual.name)
        return u;
    return (xd_usual){ o->steps ? o->steps : u.steps, o->max_text ? o->max_text : u.max_text,
                       o->guidance > 0 ? o->guidance : u.guidance };
}

void xd_model_usual_text(const xd_model *m, char *line, size_t size)
{
    const xd_distilled *u = &m->usual;
    int                 n;
    *line = 0;
    if (!u->name)
        return;
    n = snprintf(line, size, "%s: %d step%s, ", u->name, u->steps, u->steps == 1 ? "" : "s");
    if (u->true_cfg > 0 && m->recipe->true_cfg > 0)
        snprintf(line + n, size - (size_t)n, "true_cfg_scale %.10g", u->true_cfg);
    else
        snprintf(line + n, size - (size_t)n, "guidance %.10g", u->guidance);
    n = (int)strlen(line);
    snprintf(line + n, size - (size_t)n, ", %d tokens (defaults of a distilled checkpoint)",
             u->max_text);
}

xd_status xd_model_open(xd_model *m, const char *model, xd_err *e)
{
    return xd_model_open_with(m, model, NULL, &(xd_weight_files){ 0 }, NULL, e);
}

xd_status xd_model_open_with(xd_model *m, const char *model, const char *without,
                             const xd_weight_files *files, const char *layers, xd_err *e)
{
    memset(m, 0, sizeof *m);
    m->without = without;
    m->given = *files;
    m->layers = layers;
    xd_status s = xd_model_find(model, &m->dir, e);
    if (s == XD_OK)
        s = read_index(m, e);
    for (int i = 0; s == XD_OK && i < m->recipe->ntext; i++)
        m->has_text[i] = is_there(m, &m->recipe->text[i]);
    if (s == XD_OK)
        find_dits(m);
    if (s == XD_OK)
        s = read_scheduler(m, e);
    if (s == XD_OK)
        s = read_guider(m, e);
    if (s == XD_OK)
        s = check_asked(m, e);
    if (s == XD_OK)
        s = find_prior(m, e);
    for (int i = 0; s == XD_OK && i < m->recipe->ntext; i++)
        s = m->has_text[i] ? open_text(m, i, e) : XD_OK;
    if (s == XD_OK)
        s = open_dits(m, e);
    if (s == XD_OK)
        s = add_control_channels(m, e);
    if (s == XD_OK)
        s = open_sides(m, e);
    if (s == XD_OK)
        s = open_vae(m, e);
    for (int i = 0; s == XD_OK && i < XD_MAXAUDIO && m->recipe->audio[i]; i++)
        s = open_part(m, &m->audio[i], m->recipe->audio[i], XD_KIND_AUDIO, m->recipe->audio[i], e);
    const char *upsampler = given_file(m, XD_UPSAMPLER_SLOT);
    m->given = (xd_weight_files){ 0 };
    m->layers = m->without = NULL;
    if (s != XD_OK)
        return xd_model_fail_cached(e, xd_fail_at(e, s, m->dir));
    m->dit.dit->info(m->dit.w->net.cfg, &m->dit_info);
    const float (*rgb)[3] = m->vae_info.rgb;
    m->vae.vae->info(m->vae.w->net.cfg, &m->vae_info);
    m->vae_info.rgb = rgb ? rgb : m->vae_info.rgb;
    leave_images_out(m);
    set_usual(m);
    if ((s = check_pair(m, e)) == XD_OK)
        s = check_fit(m, e);
    if (s != XD_OK)
        return xd_fail_at(e, s, m->dir);
    return open_upsampler(m, upsampler, e);
}

int xd_model_side_files(xd_component_file files[XD_MAXSIDES + 1], const char *const *paths, int n)
{
    int k = 0;
    for (; k < n && k <= XD_MAXSIDES; k++)
        files[k] = (xd_component_file){ XD_SIDE_SLOT, paths[k] };
    return k;
}

/* Opens the preview decoder in a directory, or in the directory of a model that has it. */
static xd_status open_preview_dir(xd_model *m, const char *path, xd_err *e)
{
    char     *dir;
    xd_status s = xd_model_find(path, &dir, e);
    if (s != XD_OK)
        return s;
    s = open_alone(&m->preview, dir, XD_KIND_VAE, e);
    free(dir);
    return s;
}

/* Opens the preview decoder in a weight file without config. */
static xd_status open_preview_file(xd_model *m, const char *path, xd_err *e)
{
    xd_status s =
        xd_component_open_described(&m->preview, "preview_decoder", path, "vae", &m->vae_info, e);
    if (s == XD_OK && !m->preview.w)
        s = xd_fail(e, XD_EUNSUPPORTED,
                    "%s is no tiny autoencoder (TAESD, TAEF2, TAEHV), and has no config: give the "
                    "directory of an AutoencoderTiny, or the file of a tiny autoencoder",
                    path);
    return s;
}

xd_status xd_model_preview(xd_model *m, const char *path, xd_err *e)
{
    xd_component *p = &m->preview;
    int           file = xd_file_exists(path) && !xd_file_is_dir(path);
    xd_status     s = file ? open_preview_file(m, path, e) : open_preview_dir(m, path, e);
    if (s != XD_OK)
        return s;
    p->vae->info(p->w->net.cfg, &m->preview_info);
    s = check_latents(m, &m->preview_info, &m->vae_info, file ? path : p->dir, e);
    return s == XD_OK ? xd_component_files(p, e) : s;
}

void xd_model_close(xd_model *m)
{
    for (int i = 0; i < XD_MAXTEXT; i++) {
        xd_component_close(&m->text[i]);
        xd_tok_close(&m->tok[i]);
    }
    xd_component_close(&m->dit);
    xd_component_close(&m->dit2);
    xd_component_close(&m->vae);
    xd_component_close(&m->preview);
    xd_component_close(&m->upsampler);
    for (int i = 0; i < XD_MAXAUDIO; i++)
        xd_component_close(&m->audio[i]);
    xd_loras_close(&m->loras);
    xd_loras_close(&m->loras_2);
    xd_json_free(&m->index);
    xd_json_free(&m->sched);
    xd_json_free(&m->audio_sched);
    free(m->prior);
    free(m->dir);
    memset(m, 0, sizeof *m);
}

xd_status xd_model_files(xd_model *m, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < m->recipe->ntext; i++)
        if (m->has_text[i])
            s = xd_component_files(&m->text[i], e);
    for (int i = 0; s == XD_OK && i < xd_model_dits(m); i++)
        s = xd_component_files(xd_model_dit(m, i), e);
    if (s == XD_OK)
        s = xd_component_files(&m->vae, e);
    if (s == XD_OK && m->upsampler.upsampler)
        s = xd_component_files(&m->upsampler, e);
    for (int i = 0; s == XD_OK && i < XD_MAXAUDIO && m->audio[i].audio; i++)
        s = xd_component_files(&m->audio[i], e);
    return xd_model_fail_cached(e, s);
}

void xd_model_cold_bytes(xd_model *m, xd_dev *count, xd_dtype type, double cold[XD_KINDS])
{
    cold[XD_KIND_TEXT] = 0;
    for (int i = 0; i < m->recipe->ntext; i++)
        if (m->has_text[i])
            cold[XD_KIND_TEXT] += (double)xd_component_cold_bytes(&m->text[i], count, type);
    cold[XD_KIND_DIT] = 0;
    for (int i = 0; i < xd_model_dits(m); i++)
        cold[XD_KIND_DIT] += (double)xd_component_cold_bytes(xd_model_dit(m, i), count, type);
    cold[XD_KIND_VAE] = (double)xd_component_cold_bytes(&m->vae, count, type);
    if (m->upsampler.upsampler)
        cold[XD_KIND_VAE] += (double)xd_component_cold_bytes(&m->upsampler, count, type);
    xd_loras_cold_bytes(m->loras, cold);
    xd_loras_cold_bytes(m->loras_2, cold);
}

/* Refuses a tokenizer that lacks special tokens of the pipeline's text template. */
static xd_status check_frame(const xd_model *m, int i, const char *dir, xd_err *e)
{
    const xd_text_use *u = &m->recipe->text[i];
    xd_tok_frame       f = { .text = u->frame, .drop = u->drop, .no_special = 1 },
                       image = { .text = u->image_text, .no_special = 1 };
    char               why[512];
    if (!u->frame)
        return XD_OK;
    if (xd_tok_frame_doubt(m->tok[i], dir, &f, why, sizeof why) ||
        (u->image_text && m->text[i].text->tower &&
         xd_tok_frame_doubt(m->tok[i], dir, &image, why, sizeof why)))
        return xd_fail(e, XD_EFORMAT, "%s", why);
    return XD_OK;
}

/* Reads the settings of the image processor for image encoder i. If the encoder is absent, does
 * nothing. */
static xd_status read_clip_processor(xd_model *m, int i, xd_err *e)
{
    int64_t side = m->text[i].nlist ? xd_model_image_side(m, i) : 0;
    if (m->clip_processor.side || !side)
        return XD_OK;
    char     *dir = xd_path_join(xd_model_text_dir(m, i), m->recipe->text[i].processor);
    xd_status s = dir ? xd_clip_processor_read(&m->clip_processor, dir, side, e)
                      : xd_fail(e, XD_ENOMEM, "no memory for a path");
    free(dir);
    return s;
}

xd_status xd_model_tok(xd_model *m, int i, xd_err *e)
{
    if (m->tok[i])
        return XD_OK;
    if (!m->recipe->text[i].tokenizer)
        return read_clip_processor(m, i, e);
    char     *dir = xd_path_join(m->dir, m->recipe->text[i].tokenizer);
    xd_status s = dir ? xd_tok_open(&m->tok[i], dir, e)
                      : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK)
        s = check_frame(m, i, dir, e);
    if (s != XD_OK)
        xd_fail_at(e, s, dir);
    else if (m->recipe->text[i].image_every[0])
        s = read_clip_processor(m, i, e);
    free(dir);
    return xd_model_fail_cached(e, s);
}

xd_status xd_model_tokenizers(xd_model *m, xd_err *e)
{
    for (int i = 0; i < m->recipe->ntext; i++) {
        xd_status s = m->has_text[i] ? xd_model_tok(m, i, e) : XD_OK;
        if (s != XD_OK)
            return s;
    }
    return XD_OK;
}

void xd_model_warn_chat(xd_model *m)
{
    for (int i = 0; i < m->recipe->ntext && !m->warned_chat; i++) {
        const xd_text_use *u = &m->recipe->text[i];
        char              *dir = m->tok[i] && u->frame ? xd_path_join(m->dir, u->tokenizer) : NULL;
        char               why[512];
        if (dir &&
            xd_tok_chat_doubt(m->tok[i], dir,
                              &(xd_tok_frame){ .text = u->frame, .drop = u->drop, .no_special = 1 },
                              why, sizeof why))
            xd_log(XD_LOG_WARN, "%s", why);
        free(dir);
    }
    m->warned_chat = 1;
}

xd_status xd_model_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c, xd_err *e)
{
    char     *path = sched_path(m);
    xd_status s = path ? xd_sched_read(sampler, c, m->sched, path, e)
                       : xd_fail(e, XD_ENOMEM, "no memory for a path");
    free(path);
    return s;
}

xd_status xd_model_audio_sched(const xd_model *m, const xd_sampler *sampler, xd_sched_cfg *c,
                               xd_err *e)
{
    char     *path = audio_sched_path(m);
    xd_status s = path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && !m->audio_sched)
        s = xd_fail(e, XD_EIO, "%s is missing; the sound of %s has a schedule of its own", path,
                    m->recipe->name);
    if (s == XD_OK)
        s = xd_sched_read(sampler, c, m->audio_sched, path, e);
    free(path);
    return s;
}

xd_status xd_model_named_sched(const xd_model *m, xd_err *e)
{
    static const char cure[] = "name a scheduler with --scheduler";
    if (xd_json_text(xd_json_get(m->sched, "_class_name")))
        return XD_OK;
    if (!m->sched)
        return xd_fail(e, XD_EIO, "%s has no scheduler/scheduler_config.json; %s", m->dir, cure);
    return xd_fail(e, XD_EFORMAT, "%s/scheduler/scheduler_config.json has no _class_name; %s",
                   m->dir, cure);
}

xd_status xd_model_fail_sched(const xd_model *m, xd_status code, xd_err *e)
{
    char *path = m->sched ? sched_path(m) : NULL;
    xd_fail_at(e, code, path);
    free(path);
    return code;
}

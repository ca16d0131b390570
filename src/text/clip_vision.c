/* clip_vision.c - runs CLIP's vision model (Radford et al. 2021) and that of SigLIP (Zhai et al.
 * 2023, arXiv:2303.15343), as transformers' CLIPVisionModel and SiglipVisionModel do.
 *
 * An image becomes the rows of a tensor: in CLIP a class token, then the patches row by row; in
 * SigLIP the patches only. Pipelines read hidden states of these rows. The last hidden state of
 * CLIP is the output of the last block, and that of SigLIP is the output of the norm after this
 * block. No pipeline reads the pooled embedding, so it is not computed, and the weights for it (in
 * CLIP also those of the norm) are not read. */
#include "text/clip_vision.h"

#include <string.h>

#include "text/encoder_layers.h"

#define AT(m) offsetof(xd_clip_vision, m)
/* Config keys that are not read, and the kind of model. */
#define OTHER_FIELDS(type)                            \
    { "model_type", AT(model_type), 's', 0, type },   \
    { "_name_or_path", 0, '-', 0, NULL },             \
    { "architectures", 0, '-', 0, NULL },             \
    { "attention_dropout", 0, '-', 0, NULL },         \
    { "dropout", 0, '-', 0, NULL },                   \
    { "dtype", 0, '-', 0, NULL },                     \
    { "initializer_factor", 0, '-', 0, NULL },        \
    { "initializer_range", 0, '-', 0, NULL },         \
    { "projection_dim", 0, '-', 0, NULL },            \
    { "torch_dtype", 0, '-', 0, NULL },               \
    { "transformers_version", 0, '-', 0, NULL }

static const xd_field fields[] = {
    XD_CLIP_VISION_FIELDS("", AT, 32, "quick_gelu", 1e-5),
    OTHER_FIELDS("clip_vision_model"),
    { NULL, 0, 0, 0, NULL },
};

static const xd_field siglip_fields[] = {
    XD_CLIP_VISION_FIELDS("", AT, 16, "gelu_pytorch_tanh", 1e-6),
    OTHER_FIELDS("siglip_vision_model"),
    { "vision_use_head", AT(pools), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

/* ---- configuration ------------------------------------------------------------------------ */

static int64_t grid(const xd_clip_vision *c) /* patches per side of an image */
{
    return c->side / c->patch;
}

int64_t xd_clip_vision_rows(const xd_clip_vision *c)
{
    return !c->siglip + grid(c) * grid(c);
}

static const char *name_of(const xd_clip_vision *c)
{
    return c->siglip ? "SigLIP vision" : "CLIP vision";
}

static xd_status check_sizes(const xd_clip_vision *c, xd_err *e)
{
    if (c->channels != 3)
        return xd_fail(e, XD_EUNSUPPORTED, "%s: num_channels %lld is not 3 (RGB)", name_of(c),
                       (long long)c->channels);
    if (c->side < 1 || c->side > 8192 || c->patch < 1 || c->patch > c->side)
        return xd_fail(e, XD_EFORMAT,
                       "%s: image_size %lld and patch_size %lld must be 1 "
                       "to 8192, and a patch no larger than the image",
                       name_of(c), (long long)c->side, (long long)c->patch);
    return XD_OK;
}

static xd_status check_kind(xd_clip_vision *c, const char *type, xd_err *e)
{
    if (strcmp(c->model_type, type) != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "image encoder: model_type '%s' is not "
                       "%s: its config or its blocks differ",
                       c->model_type, type);
    if (!xd_text_fits(c->of.dim) || !xd_text_fits(c->of.ff))
        return xd_fail(e, XD_EFORMAT,
                       "%s: hidden_size %lld and intermediate_size %lld "
                       "must be 1 to %d",
                       name_of(c), (long long)c->of.dim, (long long)c->of.ff, (int)XD_TEXT_MAX);
    if (c->nlayers < 1 || c->nlayers > 10000)
        return xd_fail(e, XD_EFORMAT, "%s: num_hidden_layers %d is outside 1 to 10000", name_of(c),
                       c->nlayers);
    if (!xd_text_act(c->act_fn, &c->of.act))
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: the activation '%s' (hidden_act) is not one of " XD_TEXT_ACTS,
                       name_of(c), c->act_fn);
    if (check_sizes(c, e) != XD_OK)
        return e ? e->code : XD_EFORMAT;
    return xd_text_heads(name_of(c), c->of.dim, c->of.heads, e);
}

xd_status xd_clip_vision_check(xd_clip_vision *c, xd_err *e)
{
    return check_kind(c, "clip_vision_model", e);
}

static xd_status check_config(void *c, xd_err *e)
{
    return xd_clip_vision_check(c, e);
}

static xd_status check_siglip(void *c, xd_err *e)
{
    ((xd_clip_vision *)c)->siglip = 1;
    return check_kind(c, "siglip_vision_model", e);
}

static int nlayers(const void *c)
{
    return ((const xd_clip_vision *)c)->nlayers;
}

static int64_t width(const void *c)
{
    return ((const xd_clip_vision *)c)->of.dim;
}

static void vision(const void *c_, xd_text_vision *out)
{
    const xd_clip_vision *c = c_;
    *out = (xd_text_vision){ .side = c->side, .rows = xd_clip_vision_rows(c) };
}

/* ---- weights ------------------------------------------------------------------------------ */

static void blk_weights(xd_decl *d, const void *c, int layer, void *w)
{
    (void)layer;
    xd_clip_layer_weights(d, &((const xd_clip_vision *)c)->of, w);
}

/* Declares the weights of the patches and of the positions. */
static void patch_weights(xd_decl *d, const xd_clip_vision *c, xd_clip_vision_glob *g)
{
    int64_t E = c->of.dim;
    xd_w_enter(d, "embeddings");
    if (!c->siglip)
        xd_w_vec(d, &g->class, "class_embedding", 1, &E);
    xd_w_linear_as(d, &g->patch, "patch_embedding", 4,
                   (int64_t[]){ E, c->channels, c->patch, c->patch }, c->siglip);
    xd_w_vec(d, &g->position, "position_embedding.weight", 2,
             (int64_t[]){ xd_clip_vision_rows(c), E });
    xd_w_leave(d);
}

void xd_clip_vision_weights(xd_decl *d, const xd_clip_vision *c, xd_clip_vision_glob *g)
{
    int64_t E = c->of.dim;
    xd_w_enter(d, "vision_model");
    patch_weights(d, c, g);
    xd_w_affine(d, "pre_layrnorm", &g->gain, &g->bias, E);
    xd_w_unread_layer(d, "post_layernorm", 1, &E);
    xd_w_leave(d);
}

static void weights(xd_decl *d, const void *c, void *g)
{
    xd_clip_vision_weights(d, c, g);
}

/* Declares the weights of the pooled embedding, which no pipeline reads. */
static void pool_weights(xd_decl *d, const xd_clip_vision *c)
{
    int64_t E = c->of.dim, three = 3 * E;
    xd_w_enter(d, "head");
    xd_w_unread(d, "probe", 3, (int64_t[]){ 1, 1, E });
    xd_w_unread(d, "attention.in_proj_weight", 2, (int64_t[]){ three, E });
    xd_w_unread(d, "attention.in_proj_bias", 1, &three);
    xd_w_unread_layer(d, "attention.out_proj", 2, (int64_t[]){ E, E });
    xd_w_unread_layer(d, "layernorm", 1, &E);
    xd_w_unread_layer(d, "mlp.fc1", 2, (int64_t[]){ c->of.ff, E });
    xd_w_unread_layer(d, "mlp.fc2", 2, (int64_t[]){ E, c->of.ff });
    xd_w_leave(d);
}

static void siglip_weights(xd_decl *d, const void *c_, void *g_)
{
    const xd_clip_vision *c = c_;
    xd_clip_vision_glob  *g = g_;
    xd_w_enter(d, "vision_model");
    patch_weights(d, c, g);
    xd_w_affine(d, "post_layernorm", &g->gain, &g->bias, c->of.dim);
    if (c->pools)
        pool_weights(d, c);
    xd_w_leave(d);
}

/* ---- running ------------------------------------------------------------------------------ */

static void forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    const xd_clip_vision *c = n->cfg;
    xd_clip_layer_run(x, &c->of, w, s->h, xd_clip_vision_rows(c));
}

/* Converts an image [C,S,S] to patches, one per row: [G G, C p p]. Drops the pixels after the last
 * complete patch of a row or column. */
static xd_tensor cut_patches(xd_exec *x, const xd_clip_vision *c, xd_tensor pixels)
{
    int64_t   G = grid(c), p = c->patch, S = c->side;
    xd_tensor out = xd_new_f32(x, G * G, c->channels * p * p);
    xd_tensor from = xd_view(pixels.p, XD_F32, 5, (int64_t[]){ G, G, c->channels, p, p });
    from.s[0] = p * S, from.s[1] = p, from.s[2] = S * S, from.s[3] = S;
    xd_copy_to(x, xd_reshape(out, 5, from.d), from);
    return out;
}

/* Applies the norm outside of the blocks to the rows h, in place. */
static void norm_rows(xd_exec *x, const xd_clip_vision *c, const xd_clip_vision_glob *g,
                      xd_tensor h)
{
    xd_norm_into(
        x, &(xd_norm){ .out = h, .in = h, .gain = g->gain, .bias = g->bias, .eps = c->of.eps });
}

void xd_clip_vision_embed(xd_exec *x, const xd_clip_vision *c, const xd_clip_vision_glob *g,
                          const float *image_pixels, xd_tensor h)
{
    size_t    mark = xd_arena_mark(x->tmp);
    xd_tensor pixels = xd_new_f32(x, c->channels, c->side * c->side);
    int64_t   patches = grid(c) * grid(c);
    xd_put(x, pixels, image_pixels);
    if (!c->siglip)
        xd_copy_to(x, xd_rows(h, 0, 1), xd_reshape(g->class, 2, (int64_t[]){ 1, h.d[1] }));
    xd_linear_into(x, xd_rows(h, h.d[0] - patches, patches), cut_patches(x, c, pixels), &g->patch);
    xd_add(x, h, g->position);
    if (!c->siglip)
        norm_rows(x, c, g, h);
    xd_arena_rewind(x->tmp, mark);
}

/* If the caller requested hidden state `index`, copies it to the columns of the output for this
 * state. Hidden state `index` is the input of block `index`; hidden state nlayers is the output of
 * the last block or, in SigLIP, of the norm after it. */
static void hand_out(xd_exec *x, const xd_net *n, const xd_text_read *r, int index, xd_tensor h,
                     xd_tensor out)
{
    for (int k = 0; k < r->nlayers; k++)
        if (xd_text_layer(n, r->layers[k]) == index)
            xd_copy_to(x, xd_cols(out, k * h.d[1], h.d[1]), h);
}

static void encode_images(xd_exec *x, const xd_net *n, const xd_text_read *r, xd_cond *out)
{
    const xd_clip_vision *c = n->cfg;
    int64_t               E = c->of.dim, rows = xd_clip_vision_rows(c);
    *out = (xd_cond){ .tok = xd_new_f32(x, r->n, r->nlayers * E) };
    if (!xd_check(x, r->n >= rows && r->n % rows == 0, "%lld rows of images with %lld rows each",
                  (long long)r->n, (long long)rows) ||
        !xd_check(x, r->pixels || xd_counting(x), "an image encoder without an image"))
        return;
    size_t   mark = xd_arena_mark(x->tmp);
    xd_state s = { .h = xd_new_f32(x, r->n, E) };
    for (int64_t i = 0; i < r->n / rows; i++)
        xd_clip_vision_embed(x, c, n->glob,
                             r->pixels ? r->pixels + i * c->channels * c->side * c->side : NULL,
                             xd_rows(s.h, i * rows, rows));
    for (int i = n->first; i <= n->last; i++) {
        size_t block = xd_arena_mark(x->tmp);
        if (c->siglip && i == n->nlayers)
            norm_rows(x, c, n->glob, s.h);
        hand_out(x, n, r, i, s.h, out->tok);
        if (i < n->last)
            xd_net_block(x, n, i, &s);
        xd_arena_rewind(x->tmp, block);
    }
    xd_arena_rewind(x->tmp, mark);
}

static const xd_block kind = { "vision_model.encoder.layers.%d", sizeof(xd_clip_layer), blk_weights,
                               forward };

static const xd_block *block(const void *c, int layer)
{
    (void)c, (void)layer;
    return &kind;
}

extern const xd_text xd_text_clip_vision, xd_text_siglip_vision;

const xd_text xd_text_clip_vision = {
    .net = { .name = "clip-vision",
             .classes = { "CLIPVisionModel", "CLIPVisionModelWithProjection" },
             .prefix = "vision_model.",
             .fields = fields,
             .cfg_size = sizeof(xd_clip_vision),
             .glob_size = sizeof(xd_clip_vision_glob),
             .check = check_config,
             .nlayers = nlayers,
             .block = block,
             .weights = weights,
             .unread = { "post_layernorm.*", "visual_projection.weight", "embeddings.position_ids",
                         "visual.ln_post.*", "visual.proj" } },
    .width = width,
    .vision = vision,
    .hidden = encode_images,
};

const xd_text xd_text_siglip_vision = {
    .net = { .name = "siglip-vision",
             .classes = { "SiglipVisionModel" },
             .prefix = "vision_model.",
             .fields = siglip_fields,
             .cfg_size = sizeof(xd_clip_vision),
             .glob_size = sizeof(xd_clip_vision_glob),
             .check = check_siglip,
             .nlayers = nlayers,
             .block = block,
             .weights = siglip_weights,
             .unread = { "head.*", "embeddings.position_ids" } },
    .width = width,
    .vision = vision,
    .hidden = encode_images,
};

/* decoder_unread.c - declares the tensors in files of language models that the text encoder does
 * not read (lm_head and vision towers), so that these tensors are not reported as unknown */
#include "text/decoder.h"

typedef struct layer { /* "NAME.weight" is [out,in], or [out] if `in` is 0 */
    const char *name;
    int64_t     out, in;
    int         bias;
} layer;

static void declare_layers(xd_decl *d, const layer *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        xd_w_enter(d, "%s", l[i].name);
        xd_w_unread(d, "weight", l[i].in ? 2 : 1, (int64_t[]){ l[i].out, l[i].in });
        if (l[i].bias)
            xd_w_unread(d, "bias", 1, &l[i].out);
        xd_w_leave(d);
    }
}

#define DECLARE(d, ...)                                                                            \
    declare_layers(d, (const layer[]){ __VA_ARGS__ }, sizeof((const layer[]){ __VA_ARGS__ }) /     \
                                                          sizeof(layer))

void xd_decoder_head(xd_decl *d, const xd_decoder *c, const char *name)
{
    if (!c->tied)
        xd_w_unread(d, name, 2, (int64_t[]){ c->vocab, c->dim });
}

void xd_qwen25vl_tower(xd_decl *d, const xd_decoder *c)
{
    xd_qwen_vision_glob  g;
    xd_qwen_vision_block w;
    int                  at = d->nlist;
    if (d->visit != XD_VISIT_LIST || !d->whole || c->vision_blocks)
        return;
    xd_w_enter(d, "visual");
    xd_qwen_vision_weights(d, &c->vision, &g);
    for (int i = 0; i < c->vision.depth; i++) {
        xd_w_enter(d, "blocks.%d", i);
        xd_qwen_vision_block_weights(d, &c->vision, &w);
        xd_w_leave(d);
    }
    xd_w_leave(d);
    for (; at < d->nlist; at++)
        d->list[at].unread = 1;
}

void xd_qwen3vl_tower(xd_decl *d, const xd_decoder *c, const char *name)
{
    xd_qwen3_vision_glob  g;
    xd_qwen3_vision_block w;
    int                   at = d->nlist;
    if (d->visit != XD_VISIT_LIST || !d->whole || c->vision_blocks)
        return;
    xd_w_enter(d, "%s", name);
    xd_qwen3_vision_weights(d, &c->vision, &g);
    for (int i = 0; i < c->vision.depth; i++) {
        xd_w_enter(d, "blocks.%d", i);
        xd_qwen3_vision_block_weights(d, &c->vision, &w);
        xd_w_leave(d);
    }
    xd_w_leave(d);
    for (; at < d->nlist; at++)
        d->list[at].unread = 1;
}

void xd_mistral3_tower(xd_decl *d, const xd_decoder *c)
{
    const xd_decoder_tower *t = &c->tower;
    int64_t                 E = t->dim, F = t->ff;
    xd_w_enter(d, "vision_tower");
    xd_w_unread(d, "patch_conv.weight", 4, (int64_t[]){ E, t->channels, t->patch, t->patch });
    DECLARE(d, { "ln_pre", E, 0, 0 });
    for (int i = 0; i < t->nlayers; i++) {
        xd_w_enter(d, "transformer.layers.%d", i);
        DECLARE(d, { "attention_norm", E, 0, 0 }, { "attention.q_proj", E, E, 0 },
                { "attention.k_proj", E, E, 0 }, { "attention.v_proj", E, E, 0 },
                { "attention.o_proj", E, E, 0 }, { "ffn_norm", E, 0, 0 },
                { "feed_forward.gate_proj", F, E, 0 }, { "feed_forward.up_proj", F, E, 0 },
                { "feed_forward.down_proj", E, F, 0 });
        xd_w_leave(d);
    }
    xd_w_leave(d);
    xd_w_enter(d, "multi_modal_projector");
    DECLARE(d, { "norm", E, 0, 0 }, { "patch_merger.merging_layer", E, E * t->merge * t->merge, 0 },
            { "linear_1", c->dim, E, t->bias }, { "linear_2", c->dim, c->dim, t->bias });
    xd_w_leave(d);
}

void xd_gemma3_tower(xd_decl *d, const xd_decoder *c)
{
    const xd_decoder_tower *t = &c->tower;
    int64_t                 E = t->dim, F = t->ff, side = t->patch ? t->side / t->patch : 0;
    if (!t->nlayers)
        return;
    xd_w_enter(d, "vision_tower.vision_model");
    xd_w_enter(d, "embeddings");
    xd_w_unread(d, "patch_embedding.weight", 4, (int64_t[]){ E, t->channels, t->patch, t->patch });
    xd_w_unread(d, "patch_embedding.bias", 1, &E);
    DECLARE(d, { "position_embedding", side * side, E, 0 });
    xd_w_leave(d);
    for (int i = 0; i < t->nlayers; i++) {
        xd_w_enter(d, "encoder.layers.%d", i);
        DECLARE(d, { "layer_norm1", E, 0, 1 }, { "self_attn.q_proj", E, E, 1 },
                { "self_attn.k_proj", E, E, 1 }, { "self_attn.v_proj", E, E, 1 },
                { "self_attn.out_proj", E, E, 1 }, { "layer_norm2", E, 0, 1 },
                { "mlp.fc1", F, E, 1 }, { "mlp.fc2", E, F, 1 });
        xd_w_leave(d);
    }
    DECLARE(d, { "post_layernorm", E, 0, 1 });
    xd_w_leave(d);
    xd_w_enter(d, "multi_modal_projector");
    xd_w_unread(d, "mm_input_projection_weight", 2, (int64_t[]){ E, c->dim });
    DECLARE(d, { "mm_soft_emb_norm", E, 0, 0 });
    xd_w_leave(d);
}

/* test_text.c - text encoders: what they declare, refuse and compute */
#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "PixArt-alpha/PixArt-XL-2-512x512/text_encoder",
        "PixArt-alpha/PixArt-XL-2-1024-MS/text_encoder",
        "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS/text_encoder",
        "stabilityai/stable-diffusion-3-medium-diffusers/text_encoder",
        "stabilityai/stable-diffusion-3-medium-diffusers/text_encoder_2",
        "stabilityai/stable-diffusion-3-medium-diffusers/text_encoder_3",
        "black-forest-labs/FLUX.1-dev/text_encoder",
        "black-forest-labs/FLUX.1-schnell/text_encoder",
        "black-forest-labs/FLUX.1-dev/text_encoder_2",
        "black-forest-labs/FLUX.1-schnell/text_encoder_2",
        "THUDM/CogVideoX-2b/text_encoder",
        "Tencent-Hunyuan/HunyuanDiT-Diffusers/text_encoder",
        "Tencent-Hunyuan/HunyuanDiT-Diffusers/text_encoder_2",
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers/text_encoder",
        "Wan-AI/Wan2.2-TI2V-5B-Diffusers/text_encoder",
        "fal/AuraFlow-v0.3/text_encoder",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v/text_encoder_2",
        "hunyuanvideo-community/HunyuanVideo-I2V/text_encoder_2",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void files_in_the_tree(void **state)
{
    (void)state;
    check_tree("text_encoder");
}

static void refusals(void **state)
{
    const char *t5 = "T5EncoderModel";
    (void)state;
    refuses(t5, "{\"model_type\":\"umt5\"}", XD_EUNSUPPORTED, "umt5");
    refuses("UMT5EncoderModel", "{\"model_type\":\"t5\"}", XD_EUNSUPPORTED,
            "model_type 't5' is not umt5");
    refuses("UMT5EncoderModel", "{\"d_model\":0}", XD_EFORMAT, "d_model");
    refuses(t5, "{\"feed_forward_proj\":\"gated-tanh\"}", XD_EUNSUPPORTED, "tanh");
    refuses(t5, "{\"d_model\":0}", XD_EFORMAT, "d_model");
    refuses(t5, "{\"d_kv\":4}", XD_EUNSUPPORTED, "d_kv");
    refuses(t5, "{\"num_heads\":-1}", XD_EFORMAT, "num_heads");
    refuses(t5, "{\"num_layers\":-1}", XD_EFORMAT, "num_layers");
    refuses(t5, "{\"relative_attention_num_buckets\":2}", XD_EFORMAT, "buckets");
    refuses(t5, "{\"relative_attention_max_distance\":8}", XD_EFORMAT, "max_distance");
}

static void clip_refusals(void **state)
{
    const char *clip = "CLIPTextModel";
    (void)state;
    refuses(clip, "{\"model_type\":\"clip\"}", XD_EUNSUPPORTED, "model_type 'clip'");
    refuses(clip, "{\"hidden_act\":\"mish\"}", XD_EUNSUPPORTED, "mish");
    refuses(clip, "{\"hidden_size\":0}", XD_EFORMAT, "hidden_size");
    refuses(clip, "{\"num_attention_heads\":5}", XD_EFORMAT, "num_attention_heads 5");
    refuses(clip, "{\"num_attention_heads\":0}", XD_EFORMAT, "num_attention_heads 0");
    refuses(clip, "{\"num_attention_heads\":128}", XD_EUNSUPPORTED, "heads of 4");
    refuses(clip, "{\"num_hidden_layers\":0}", XD_EFORMAT, "num_hidden_layers");
    refuses(clip, "{\"max_position_embeddings\":-1}", XD_EFORMAT, "max_position_embeddings");
    refuses("CLIPTextModelWithProjection", "{\"projection_dim\":0}", XD_EFORMAT, "projection_dim");
}

static void bert_refusals(void **state)
{
    const char *bert = "BertModel";
    (void)state;
    refuses(bert, "{\"model_type\":\"roberta\"}", XD_EUNSUPPORTED, "model_type 'roberta'");
    refuses(bert, "{\"position_embedding_type\":\"relative_key\"}", XD_EUNSUPPORTED,
            "'relative_key'");
    refuses(bert, "{\"is_decoder\":true}", XD_EUNSUPPORTED, "is_decoder is true");
    refuses(bert, "{\"add_cross_attention\":true}", XD_EUNSUPPORTED, "add_cross_attention is true");
    refuses(bert, "{\"hidden_act\":\"mish\"}", XD_EUNSUPPORTED, "mish");
    refuses(bert, "{\"intermediate_size\":0}", XD_EFORMAT, "intermediate_size 0");
    refuses(bert, "{\"type_vocab_size\":0}", XD_EFORMAT, "type_vocab_size 0");
    refuses(bert, "{\"num_attention_heads\":5}", XD_EFORMAT, "num_attention_heads 5");
    refuses(bert, "{\"num_attention_heads\":192}", XD_EUNSUPPORTED, "heads of 4");
    refuses(bert, "{\"num_hidden_layers\":-1}", XD_EFORMAT, "num_hidden_layers");
}

/* ---- the distances of T5 ------------------------------------------------------------------ */

typedef struct edges {
    int        n;
    const int *first;
} edges;

/* Along row 0 the bias must change exactly where a bucket begins, and on both sides. */
static void check_edges(void *cookie, xd_exec *x, int layer, xd_state *s)
{
    const edges *e = cookie;
    xd_tensor    bias = *(const xd_tensor *)s->local;
    int64_t      n = bias.d[1], far = n - 1;
    float       *v = malloc(xd_bytes(bias) + 1);
    int          k = 0;
    (void)layer;
    assert_non_null(v);
    assert_int_equal(bias.d[2], n);
    xd_get(x, v, bias);
    for (int64_t d = 1; d < n; d++) {
        int begins = k + 1 < e->n && e->first[k + 1] == d;
        k += begins;
        if ((v[d] != v[d - 1]) != begins)
            fail_msg("distance %d: a bucket should %sbegin", (int)d, begins ? "" : "not ");
        if (d > 1 && (v[far * n + far - d] != v[far * n + far - d + 1]) != begins)
            fail_msg("distance -%d: a bucket should %sbegin", (int)d, begins ? "" : "not ");
        assert_true(v[d] != v[d * n]);                 /* the sign has buckets of its own */
        assert_true(v[d] == v[n + 1 + d] || d == far); /* only the distance counts */
    }
    assert_int_equal(k, e->n - 1);
    free(v);
}

/* First distances of the buckets, from transformers' T5Attention._relative_position_bucket. */
static void t5_distances(void **state)
{
    static const struct {
        int buckets, max, n, first[32];
    } cases[] = {
        { 32, 128, 16, { 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91 } },
        { 8, 20, 4, { 0, 1, 2, 7 } },
        { 16, 64, 8, { 0, 1, 2, 3, 4, 8, 16, 32 } },
        { 32, 200, 16, { 0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 18, 27, 40, 60, 90, 134 } },
        { 12, 40, 6, { 0, 1, 2, 3, 8, 17 } },
        { 64, 512, 32, { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,  13,  14,  15,
                         16, 20, 25, 31, 39, 48, 59, 73, 91, 113, 140, 174, 216, 268, 332, 413 } },
    };
    static int32_t ids[450];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char    text[256];
        part    p = { 0 };
        bench   b;
        xd_decl d;
        xd_exec x;
        xd_cond c;
        xd_err  e = { 0 };
        edges   want = { cases[i].n, cases[i].first };
        snprintf(text, sizeof text,
                 "{\"vocab_size\":4,\"d_model\":16,\"d_kv\":8,\"d_ff\":16,"
                 "\"num_layers\":1,\"num_heads\":1,\"relative_attention_num_buckets\":%d,"
                 "\"relative_attention_max_distance\":%d}",
                 cases[i].buckets, cases[i].max);
        ok(xd_json_parse(&p.config, text, strlen(text), "config", &e), &e);
        ok(xd_net_open(&p.net, find(&p, "T5EncoderModel"), p.config, "config", &e), &e);
        open_bench(&b, XD_F32, 0);
        visit(&p, b.dev, b.type, XD_VISIT_RANDOM, &d);
        watch(&p, check_edges, &want);
        xd_exec_init(&x, b.dev, &b.tmp, b.type);
        p.text->encode(&x, &p.net, ids, 450, 450, &c);
        ok(x.err.code, &x.err);
        close_part(&p);
        close_bench(&b);
    }
}

/* ---- the feed-forward of T5 --------------------------------------------------------------- */

/* Embeddings of three tokens by a random model with these keys: 3 x 16 numbers. */
static void random_t5(const char *keys, float *out)
{
    static const int32_t ids[3] = { 3, 0, 2 };
    char                 text[256];
    part                 p = { 0 };
    bench                b;
    xd_decl              d;
    xd_exec              x;
    xd_cond              c;
    xd_err               e = { 0 };
    snprintf(text, sizeof text,
             "{\"vocab_size\":4,\"d_model\":16,\"d_kv\":8,\"d_ff\":24,"
             "\"num_layers\":2,\"num_heads\":2%s}",
             keys);
    ok(xd_json_parse(&p.config, text, strlen(text), "config", &e), &e);
    ok(xd_net_open(&p.net, find(&p, "T5ForConditionalGeneration"), p.config, "config", &e), &e);
    open_bench(&b, XD_F32, 0);
    visit(&p, b.dev, b.type, XD_VISIT_RANDOM, &d);
    xd_exec_init(&x, b.dev, &b.tmp, b.type);
    p.text->encode(&x, &p.net, ids, 3, 3, &c);
    xd_get(&x, out, c.tok);
    ok(x.err.code, &x.err);
    close_part(&p);
    close_bench(&b);
}

/* feed_forward_proj alone says all; is_gated_act and dense_act_fn win over it. */
static void t5_activations(void **state)
{
    static const struct {
        const char *a, *b;
        int         same;
    } cases[] = {
        { "", ",\"feed_forward_proj\":\"relu\"", 1 },
        { ",\"feed_forward_proj\":\"gated-gelu\"",
          ",\"is_gated_act\":true,\"dense_act_fn\":\"gelu_pytorch_tanh\"", 1 },
        { ",\"feed_forward_proj\":\"gated-gelu\",\"dense_act_fn\":\"gelu_new\"",
          ",\"feed_forward_proj\":\"gated-gelu\"", 1 },
        { ",\"feed_forward_proj\":\"gated-gelu\",\"dense_act_fn\":\"gelu\"",
          ",\"feed_forward_proj\":\"gated-gelu\"", 0 },
        { ",\"feed_forward_proj\":\"gated-silu\"", ",\"feed_forward_proj\":\"gated-gelu\"", 0 },
        { ",\"feed_forward_proj\":\"gated-gelu\",\"is_gated_act\":false",
          ",\"feed_forward_proj\":\"gelu_new\"", 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float a[48], b[48];
        random_t5(cases[i].a, a);
        random_t5(cases[i].b, b);
        if ((memcmp(a, b, sizeof a) == 0) != cases[i].same)
            fail_msg("case %d: '%s' and '%s' should %sbe the same", (int)i, cases[i].a, cases[i].b,
                     cases[i].same ? "" : "not ");
    }
}

/* ---- golden: T5 --------------------------------------------------------------------------- */

static void run_t5(int at, xd_dtype want, double tol)
{
    char      path[1024];
    part      p;
    bench     b;
    xd_decl   d;
    xd_st    *g;
    xd_exec   x;
    xd_cond   c;
    xd_tensor t;
    xd_err    e = { 0 };
    snprintf(path, sizeof path, "%s/text_encoder", golden[at].model);
    open_config(&p, path);
    open_files(&p, path);
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", golden[at].name);
    ok(xd_st_open(&g, path, "model", &e), &e);
    open_bench(&b, want, 0);
    visit(&p, b.dev, b.type, XD_VISIT_LOAD, &d);

    for (int k = 0; k < 2; k++) { /* the prompt, block by block, and the negative one */
        watcher w = { g, "text.block", tol, 0 };
        void   *ids = reference(g, k ? "negative_ids" : "ids", &t);
        float  *emb = reference(g, k ? "negative_prompt_embeds" : "prompt_embeds", NULL), *got;
        int64_t n = t.d[0], E = p.text->width(p.net.cfg);
        if (k == 0)
            watch(&p, compare_block, &w);
        xd_exec_init(&x, b.dev, &b.tmp, b.type);
        p.text->encode(&x, &p.net, ids, n, n, &c);
        ok(x.err.code, &x.err);
        p.net.def = &p.text->net;
        assert_int_equal(w.seen, k ? 0 : p.net.nlayers);
        assert_int_equal(c.tok.d[0], n);
        assert_int_equal(c.tok.d[1], E);
        got = malloc(xd_bytes(c.tok) + 1);
        xd_get(&x, got, c.tok);
        near("prompt_embeds", got, emb, n * E, tol);
        xd_arena_rewind(&b.tmp, 0);
        ids = realloc(ids, (size_t)(n + 5) * sizeof(int32_t)); /* padding is not seen */
        memset((int32_t *)ids + n, 0, 5 * sizeof(int32_t));
        p.text->encode(&x, &p.net, ids, n + 5, n, &c);
        ok(x.err.code, &x.err);
        assert_int_equal(c.tok.d[0], n + 5);
        xd_get(&x, got, xd_rows(c.tok, 0, n));
        near("prompt_embeds of a padded prompt", got, emb, n * E, tol);
        free(ids), free(emb), free(got);
        xd_arena_rewind(&b.tmp, 0);
    }
    xd_st_close(&g);
    close_part(&p);
    close_bench(&b);
}

static void t5_golden_f32(void **state)
{
    (void)state;
    for (int i = 0; i < NGOLDEN; i++)
        run_t5(i, XD_F32, 2e-4);
}

static void t5_golden_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < NGOLDEN; i++)
        run_t5(i, XD_BF16, 3e-2);
}

/* ---- golden: CLIP ------------------------------------------------------------------------- */

/* One of tools/golden/cases/text.py's models. */
typedef struct tiny {
    part    p;
    bench   b;
    xd_st  *g;
    xd_exec x;
} tiny;

/* `blocks` as of xd_decl. */
static void open_tiny_as(tiny *t, const char *name, xd_dtype want, xd_dtype blocks, int counts)
{
    char    path[256];
    xd_decl d;
    xd_err  e = { 0 };
    snprintf(path, sizeof path, "tests/golden/%s", name);
    open_config(&t->p, path);
    open_files(&t->p, path);
    t->p.blocks = blocks;
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", name);
    ok(xd_st_open(&t->g, path, "model", &e), &e);
    open_bench(&t->b, want, counts);
    visit(&t->p, t->b.dev, t->b.type, counts ? XD_VISIT_COUNT : XD_VISIT_LOAD, &d);
    xd_exec_init(&t->x, t->b.dev, &t->b.tmp, t->b.type);
}

static void open_tiny(tiny *t, const char *name, xd_dtype want, int counts)
{
    open_tiny_as(t, name, want, XD_F32, counts);
}

static void close_tiny(tiny *t)
{
    xd_st_close(&t->g);
    close_part(&t->p);
    close_bench(&t->b);
}

static void compare(tiny *t, const char *what, int text, xd_tensor got, double tol)
{
    char      name[64];
    xd_tensor shape;
    snprintf(name, sizeof name, "%d.%s", text, what);
    float *want = reference(t->g, name, &shape), *v = malloc(xd_bytes(got) + 1);
    assert_non_null(v);
    assert_int_equal(got.d[0], shape.d[0]);
    assert_int_equal(got.d[1], shape.d[1]);
    xd_get(&t->x, v, got);
    near(name, v, want, xd_count(got), tol);
    free(want), free(v);
}

/* "plain" is a CLIPTextModel whose names lack the prefix, with the end mark of old configs;
 * "proj" has a projection, the prefix and the buffer of positions. */
static const char *const clips[] = { "clip/plain", "clip/proj" };

/* Texts: a short one with much padding, one that fills all positions, one without an end mark, and
 * a single mark. */
static void run_clip(const char *name, xd_dtype want, double tol)
{
    tiny t;
    open_tiny(&t, name, want, 0);
    for (int text = 0; text < 4; text++) {
        char      ids_name[64];
        xd_tensor shape;
        xd_cond   c;
        snprintf(ids_name, sizeof ids_name, "%d.ids", text);
        void *ids = reference(t.g, ids_name, &shape);
        t.p.text->encode(&t.x, &t.p.net, ids, shape.d[0], shape.d[0], &c);
        ok(t.x.err.code, &t.x.err);
        assert_int_equal(t.p.text->width(t.p.net.cfg), c.tok.d[1]);
        assert_int_equal(t.p.text->pooled(t.p.net.cfg), c.pooled.d[1]);
        compare(&t, "last", text, c.tok, tol);
        compare(&t, "penultimate", text, c.penultimate, tol);
        compare(&t, "pooled", text, c.pooled, tol);
        free(ids);
        xd_arena_rewind(&t.b.tmp, 0);
    }
    close_tiny(&t);
}

static void clip_golden_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof clips / sizeof clips[0]; i++)
        run_clip(clips[i], XD_F32, 1e-5);
}

static void clip_golden_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof clips / sizeof clips[0]; i++)
        run_clip(clips[i], XD_BF16, 3e-2);
}

/* All that is declared is in the files under one of its names, and what is left over is known. */
static void check_names(const char *name, int unread, const char *with, int has, const char *bare)
{
    tiny      t;
    xd_decl   d;
    xd_tensor shape;
    xd_err    e = { 0 };
    open_tiny(&t, name, XD_F32, 0);
    visit(&t.p, NULL, XD_F32, XD_VISIT_LIST, &d);
    ok(xd_declared_check(d.list, d.nlist, &t.p.src, name, &e), &e);
    assert_int_equal(d.nlist + unread, xd_st_count(t.p.st));
    assert_int_equal(t.p.src.has(&t.p, with, &shape), has);
    assert_int_equal(t.p.src.has(&t.p, bare, &shape), !has);
    xd_decl_free(&d);
    close_tiny(&t);
}

static void clip_names(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_names(clips[i], i, "text_model.embeddings.position_ids", i,
                    "embeddings.token_embedding.weight");
}

/* One token, as many as there are positions, and what is refused; a counting run needs exactly the
 * room of a real one. */
static void check_lengths(const char *name)
{
    static const int32_t ids[64];
    size_t               peak[2];
    for (int counts = 0; counts < 2; counts++) {
        tiny    t;
        xd_cond c;
        open_tiny(&t, name, XD_F32, counts);
        for (int64_t n = 1; n <= 12; n += 11)
            t.p.text->encode(&t.x, &t.p.net, counts ? NULL : ids, n, n, &c);
        ok(t.x.err.code, &t.x.err);
        peak[counts] = xd_arena_peak(&t.b.tmp);
        t.p.text->encode(&t.x, &t.p.net, ids, 13, 13, &c);
        assert_int_equal(t.x.err.code, XD_EINVAL);
        assert_non_null(strstr(t.x.err.msg, "max_position_embeddings"));
        close_tiny(&t);
    }
    assert_int_equal(peak[0], peak[1]);
}

static void clip_lengths(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        check_lengths(clips[i]);
}

/* ---- golden: padding that is not seen ------------------------------------------------------- */

/* "plain" has the names of BertModel and a pooler that nobody reads; "prefix" the names behind a
 * head, the buffer of positions and another activation. mT5's heads are wider than its tokens. */
static const char *const berts[] = { "bert/plain", "bert/prefix" };

/* Texts: with much padding, with none, short, and empty. Rows of padding are compared too. */
static void run_masked(const char *name, xd_dtype want, xd_dtype blocks, double tol)
{
    tiny t;
    open_tiny_as(&t, name, want, blocks, 0);
    for (int text = 0; text < 4; text++) {
        char      ids_name[64], real_name[64];
        xd_tensor shape;
        xd_cond   c;
        snprintf(ids_name, sizeof ids_name, "%d.ids", text);
        snprintf(real_name, sizeof real_name, "%d.real", text);
        void *ids = reference(t.g, ids_name, &shape), *real = reference(t.g, real_name, NULL);
        t.p.text->encode(&t.x, &t.p.net, ids, shape.d[0], *(int32_t *)real, &c);
        ok(t.x.err.code, &t.x.err);
        assert_int_equal(t.p.text->width(t.p.net.cfg), c.tok.d[1]);
        compare(&t, "last", text, c.tok, tol);
        free(ids), free(real);
        xd_arena_rewind(&t.b.tmp, 0);
    }
    close_tiny(&t);
}

static void masked_golden_f32(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        run_masked(berts[i], XD_F32, XD_F32, 1e-5);
    run_masked("mt5", XD_F32, XD_F32, 1e-5);
    run_masked("umt5", XD_F32, XD_F32, 1e-5);
}

static void masked_golden_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        run_masked(berts[i], XD_BF16, XD_F32, 3e-2);
    run_masked("mt5", XD_BF16, XD_F32, 3e-2);
    run_masked("umt5", XD_BF16, XD_F32, 3e-2);
}

/* e4m3 keeps three bits of a number, int8 seven of the largest of its row. */
static void masked_golden_quantised(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        run_masked(berts[i], XD_BF16, XD_I8, 0.1);
        run_masked(berts[i], XD_BF16, XD_F8E4M3, 0.2);
    }
    run_masked("mt5", XD_BF16, XD_I8, 0.1);
    run_masked("umt5", XD_BF16, XD_I8, 0.1);
    run_masked("mt5", XD_BF16, XD_F8E4M3, 0.2);
    run_masked("umt5", XD_BF16, XD_F8E4M3, 0.2);
}

static void bert_names(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) /* the pooler's two, and the buffer */
        check_names(berts[i], 2 + i, "bert.embeddings.position_ids", i,
                    "embeddings.word_embeddings.weight");
}

static void bert_lengths(void **state)
{
    static const int32_t ids[4];
    tiny                 t;
    xd_cond              c;
    (void)state;
    for (int i = 0; i < 2; i++)
        check_lengths(berts[i]);
    open_tiny(&t, berts[0], XD_F32, 0);
    t.p.text->encode(&t.x, &t.p.net, ids, 4, 0, &c);
    assert_int_equal(t.x.err.code, XD_EINVAL);
    assert_non_null(strstr(t.x.err.msg, "0 of 4 tokens"));
    close_tiny(&t);
}

/* ---- counting ----------------------------------------------------------------------------- */

/* A counting run follows no address (it has none) and needs exactly the room of a real one. */
static void counts_as_it_runs(void **state)
{
    static int32_t       ids[300]; /* more than one chunk of distances */
    static const int64_t len[3] = { 0, 1, 300 };
    (void)state;
    for (int i = 0; i < NGOLDEN; i++) {
        size_t peak[2];
        for (int counts = 0; counts < 2; counts++) {
            char    path[1024];
            part    p;
            bench   b;
            xd_decl d;
            xd_exec x;
            xd_cond c;
            snprintf(path, sizeof path, "%s/text_encoder", golden[i].model);
            open_config(&p, path);
            open_files(&p, path);
            open_bench(&b, XD_F32, counts);
            visit(&p, b.dev, b.type, counts ? XD_VISIT_COUNT : XD_VISIT_LOAD, &d);
            xd_exec_init(&x, b.dev, &b.tmp, b.type);
            for (int n = 0; n < 3; n++) /* no tokens, one, many */
                p.text->encode(&x, &p.net, ids, len[n], len[n], &c);
            ok(x.err.code, &x.err);
            peak[counts] = xd_arena_peak(&b.tmp);
            close_part(&p);
            close_bench(&b);
        }
        assert_int_equal(peak[0], peak[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings), cmocka_unit_test(files_in_the_tree),
        cmocka_unit_test(refusals),           cmocka_unit_test(clip_refusals),
        cmocka_unit_test(clip_golden_f32),    cmocka_unit_test(clip_golden_bf16),
        cmocka_unit_test(clip_names),         cmocka_unit_test(clip_lengths),
        cmocka_unit_test(bert_refusals),      cmocka_unit_test(bert_names),
        cmocka_unit_test(bert_lengths),       cmocka_unit_test(masked_golden_f32),
        cmocka_unit_test(masked_golden_bf16), cmocka_unit_test(masked_golden_quantised),
        cmocka_unit_test(t5_distances),       cmocka_unit_test(t5_activations),
        cmocka_unit_test(t5_golden_f32),      cmocka_unit_test(t5_golden_bf16),
        cmocka_unit_test(counts_as_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

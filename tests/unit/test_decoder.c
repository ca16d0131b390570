/* test_decoder.c - decoder language models: what they declare, refuse and compute.
 *
 * tools/golden/cases/lm.py wrote the models and what transformers makes of them. */
#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXTS = 4 };

/* Names of tensors in the file, and tensors in it that nobody reads. */
static const struct {
    const char *name, *tensor;
    int         layers, unread;
} kinds[] = {
    { "qwen3", "model.embed_tokens.weight", 3, 1 },
    { "qwen2", "embed_tokens.weight", 3, 0 },
    { "qwen25vl", "model.embed_tokens.weight", 3, 2 },
    { "mistral", "language_model.model.embed_tokens.weight", 3, 5 },
    { "llama", "model.embed_tokens.weight", 3, 1 },
    { "gemma2", "embed_tokens.weight", 4, 0 },
    { "gemma3", "language_model.model.embed_tokens.weight", 4, 3 },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- what is declared, what is refused ---------------------------------------------------- */

static void published_listings(void **state)
{
    static const char *const dirs[] = {
        "Tongyi-MAI/Z-Image-Turbo/text_encoder",
        "black-forest-labs/FLUX.2-klein-4B/text_encoder",
        "black-forest-labs/FLUX.2-dev/text_encoder",
        "Qwen/Qwen-Image/text_encoder",
        "Qwen/Qwen-Image-2.1/text_encoder",
        "hunyuanvideo-community/HunyuanVideo/text_encoder",
        "hunyuanvideo-community/HunyuanVideo-I2V/text_encoder",
        "hunyuanvideo-community/HunyuanVideo-I2V-33ch/text_encoder",
        "hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v/text_encoder",
        "Efficient-Large-Model/Sana_1600M_1024px_diffusers/text_encoder",
        "Alpha-VLLM/Lumina-Image-2.0/text_encoder",
        "krea/Krea-2-Raw/text_encoder",
        "krea/Krea-2-Turbo/text_encoder",
        "Lightricks/LTX-2/text_encoder",
        "diffusers/LTX-2.3-Diffusers/text_encoder",
    };
    (void)state;
    published(dirs, sizeof dirs / sizeof dirs[0]);
}

static void refusals(void **state)
{
    const char *q = "Qwen3ForCausalLM", *l = "LlamaModel", *g = "Gemma3ForCausalLM",
               *v = "LlavaForConditionalGeneration";
    (void)state;
    refuses(q, "{\"model_type\":\"qwen3_moe\"}", XD_EUNSUPPORTED, "'qwen3_moe'");
    refuses("Mistral3ForConditionalGeneration",
            "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\"}}",
            XD_EUNSUPPORTED, "'ministral3'");
    refuses("Mistral3ForConditionalGeneration", "{\"text_config\":[]}", XD_EFORMAT, "text_config");
    refuses(q, "{\"hidden_act\":\"mish\"}", XD_EUNSUPPORTED, "mish");
    refuses(q, "{\"hidden_size\":0}", XD_EFORMAT, "hidden_size 0");
    refuses(q, "{\"num_hidden_layers\":0}", XD_EFORMAT, "num_hidden_layers 0");
    refuses(q, "{\"num_attention_heads\":5,\"num_key_value_heads\":2}", XD_EFORMAT,
            "num_key_value_heads 2");
    refuses(q, "{\"head_dim\":9}", XD_EUNSUPPORTED, "heads of 9");
    refuses(q, "{\"head_dim\":514}", XD_EUNSUPPORTED, "heads of 514");
    refuses(q, "{\"use_sliding_window\":true,\"sliding_window\":1}", XD_EUNSUPPORTED,
            "sliding_window is 1");
    refuses(q, "{\"layer_types\":[\"full_attention\"]}", XD_EFORMAT, "1 entries for 32 layers");
    refuses(q, "{\"num_hidden_layers\":1,\"layer_types\":[\"chunked_attention\"]}", XD_EUNSUPPORTED,
            "'chunked_attention'");
    refuses(l, "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}", XD_EUNSUPPORTED,
            "'yarn'");
    refuses(l, "{\"rope_scaling\":{\"type\":\"linear\"}}", XD_EFORMAT, "factor 0");
    refuses(l, "{\"rope_parameters\":{\"rope_theta\":0}}", XD_EFORMAT, "rope_theta 0");
    refuses(l,
            "{\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
            "\"high_freq_factor\":1,\"original_max_position_embeddings\":8192}}",
            XD_EFORMAT, "high_freq_factor 1");
    refuses(l, "{\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", XD_EUNSUPPORTED,
            "partial_rotary_factor is 0.5");
    refuses(v, "{\"vision_feature_layer\":-13}", XD_EFORMAT, "vision_feature_layer -13");
    refuses(v, "{\"vision_feature_select_strategy\":\"full\"}", XD_EUNSUPPORTED, "'full'");
    refuses(v, "{\"projector_hidden_act\":\"mish\"}", XD_EUNSUPPORTED, "projector_hidden_act");
    refuses(v, "{\"image_token_index\":-1}", XD_EFORMAT, "image_token_index -1");
    refuses(v, "{\"vision_config\":{\"model_type\":\"siglip_vision_model\"}}", XD_EUNSUPPORTED,
            "siglip_vision_model");
    refuses(g, "{\"use_bidirectional_attention\":true}", XD_EUNSUPPORTED,
            "use_bidirectional_attention");
    refuses(g, "{\"query_pre_attn_scalar\":0}", XD_EFORMAT, "query_pre_attn_scalar 0");
    refuses(g, "{\"hidden_activation\":\"mish\"}", XD_EUNSUPPORTED, "hidden_activation");
}

/* ---- golden ------------------------------------------------------------------------------- */

typedef struct tiny {
    part    p;
    bench   b;
    xd_st  *g;
    xd_exec x;
} tiny;

/* `last` blocks are loaded; 0: all. `blocks` as of xd_decl. */
static void open_tiny(tiny *t, const char *name, xd_dtype want, xd_dtype blocks, int last,
                      int counts)
{
    char    path[256];
    xd_decl d;
    xd_err  e = { 0 };
    snprintf(path, sizeof path, "tests/golden/lm/%s", name);
    open_config(&t->p, path);
    open_files(&t->p, path);
    t->p.blocks = blocks;
    if (last)
        t->p.net.last = last;
    strcat(path, "/golden.safetensors");
    ok(xd_st_open(&t->g, path, "model", &e), &e);
    open_bench(&t->b, want, counts);
    visit(&t->p, t->b.dev, t->b.type, counts ? XD_VISIT_COUNT : XD_VISIT_LOAD, &d);
    xd_exec_init(&t->x, t->b.dev, &t->b.tmp, t->b.type);
}

static void close_tiny(tiny *t)
{
    xd_st_close(&t->g);
    close_part(&t->p);
    close_bench(&t->b);
}

static int64_t number(tiny *t, int text, const char *what)
{
    char    name[64];
    int32_t v;
    snprintf(name, sizeof name, "%d.%s", text, what);
    void *p = reference(t->g, name, NULL);
    memcpy(&v, p, sizeof v);
    free(p);
    return v;
}

/* Ids of a text, malloc'ed. */
static void *ids_of(tiny *t, int text, xd_text_read *r)
{
    char      name[64];
    xd_tensor shape;
    snprintf(name, sizeof name, "%d.ids", text);
    void *ids = reference(t->g, name, &shape);
    r->ids = ids;
    r->n = shape.d[0];
    r->first = number(t, text, "first");
    r->real = number(t, text, "real");
    return ids;
}

/* State number `layer` in columns from `at` on of got [n,...], in some rows. */
static void compare_state(tiny *t, int text, int layer, xd_tensor got, int64_t at, xd_span rows,
                          double tol)
{
    char      name[64];
    xd_tensor shape;
    snprintf(name, sizeof name, "%d.hidden.%d", text, layer);
    float    *want = reference(t->g, name, &shape), *v = malloc(xd_bytes(shape) * 2 + 1);
    xd_tensor some = xd_rows(xd_cols(got, at, shape.d[1]), rows.start, rows.n);
    assert_non_null(v);
    assert_int_equal(got.d[0], shape.d[0]);
    xd_get(&t->x, v, some);
    near(name, v, want + rows.start * shape.d[1], xd_count(some), tol);
    free(want), free(v);
}

/* All hidden states of every text side by side. Of Gemma 2 only rows of text: in the others
 * transformers' own attention, which has the soft cap, has other numbers where no key is seen. */
static void run_kind(int kind, xd_dtype want, xd_dtype blocks, double tol)
{
    static const int layers[] = { 0, 1, 2, -1, 3 };
    int  capped = strcmp(kinds[kind].name, "gemma2") == 0, count = kinds[kind].layers + 1;
    tiny t;
    open_tiny(&t, kinds[kind].name, want, blocks, 0, 0);
    for (int text = 0; text < TEXTS; text++) {
        xd_text_read r = { .nlayers = count, .layers = layers };
        xd_cond      c;
        void        *ids = ids_of(&t, text, &r);
        int64_t      E = t.p.text->width(t.p.net.cfg);
        xd_span      rows = capped ? (xd_span){ r.first, r.real } : (xd_span){ 0, r.n };
        t.p.text->hidden(&t.x, &t.p.net, &r, &c);
        ok(t.x.err.code, &t.x.err);
        assert_int_equal(c.tok.d[1], count * E);
        for (int k = 0; k < count; k++)
            compare_state(&t, text, xd_text_layer(&t.p.net, layers[k]), c.tok, k * E, rows, tol);
        if (!r.first) { /* the last one alone */
            t.p.text->encode(&t.x, &t.p.net, r.ids, r.n, r.real, &c);
            ok(t.x.err.code, &t.x.err);
            compare_state(&t, text, kinds[kind].layers, c.tok, 0, rows, tol);
        }
        free(ids);
        xd_arena_rewind(&t.b.tmp, 0);
    }
    close_tiny(&t);
}

static void golden_f32(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++)
        run_kind(i, XD_F32, XD_F32, 2e-4);
}

static void golden_bf16(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++)
        run_kind(i, XD_BF16, XD_F32, 3e-2);
}

/* e4m3 keeps three bits of a number, int8 seven of the largest of its row. */
static void golden_quantised(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        run_kind(i, XD_BF16, XD_I8, 0.1);
        run_kind(i, XD_BF16, XD_F8E4M3, 0.2);
    }
}

static void names(void **state)
{
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        tiny      t;
        xd_decl   d;
        xd_tensor shape;
        int       unread = 0;
        xd_err    e = { 0 };
        open_tiny(&t, kinds[i].name, XD_F32, XD_F32, 0, 0);
        visit(&t.p, NULL, XD_F32, XD_VISIT_LIST, &d);
        ok(xd_declared_check(d.list, d.nlist, &t.p.src, kinds[i].name, &e), &e);
        assert_true(t.p.src.has(&t.p, kinds[i].tensor, &shape));
        d.list[0].name[strcspn(d.list[0].name, "|")] = 0; /* the class's own name leads */
        assert_string_equal(d.list[0].name, kinds[i].tensor);
        for (int64_t k = 0; k < xd_st_count(t.p.st); k++)
            unread += xd_net_unread(t.p.net.def, xd_st_name(t.p.st, k));
        assert_int_equal(unread, kinds[i].unread);
        assert_int_equal(d.nlist + unread, xd_st_count(t.p.st));
        xd_decl_free(&d);
        close_tiny(&t);
    }
}

/* ---- some layers -------------------------------------------------------------------------- */

/* Blocks that no wanted state needs are neither loaded nor run; states behind none, one and two
 * blocks do not change. */
static void first_layers(void **state)
{
    static const int layers[] = { 2, 0, 1 };
    tiny             t;
    xd_cond          c;
    xd_text_read     r = { .nlayers = 3, .layers = layers };
    (void)state;
    open_tiny(&t, "qwen3", XD_F32, XD_F32, 2, 0);
    assert_int_equal(xd_text_blocks(&t.p.net, layers, 3), 2);
    assert_int_equal(xd_text_blocks(&t.p.net, (int[]){ -2 }, 1), 2);
    assert_int_equal(xd_text_blocks(&t.p.net, (int[]){ -4 }, 1), 0);
    assert_int_equal(xd_text_blocks(&t.p.net, (int[]){ 1, -1 }, 2), 3);
    assert_null(t.p.net.layer[2]);
    for (int text = 0; text < TEXTS; text++) {
        void *ids = ids_of(&t, text, &r);
        t.p.text->hidden(&t.x, &t.p.net, &r, &c);
        ok(t.x.err.code, &t.x.err);
        for (int k = 0; k < 3; k++)
            compare_state(&t, text, layers[k], c.tok, k * 20, (xd_span){ 0, r.n }, 2e-4);
        free(ids);
        xd_arena_rewind(&t.b.tmp, 0);
    }
    close_tiny(&t);
}

/* The fourth of LLaVA's vision blocks is listed, but is neither counted nor loaded. */
static void idle_block(void **state)
{
    part    p;
    bench   b;
    xd_decl d;
    int     listed = 0;
    (void)state;
    open_config(&p, "tests/golden/hunyuanvideo-i2v/text_encoder");
    p.blocks = XD_F32;
    open_bench(&b, XD_F32, 1);
    visit(&p, b.dev, b.type, XD_VISIT_COUNT, &d);
    assert_int_equal(p.net.nlayers, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(p.net.layer[i] != NULL, i != 3);
    visit(&p, NULL, XD_F32, XD_VISIT_LIST, &d);
    for (int i = 0; i < d.nlist; i++)
        listed += strstr(d.list[i].name, "vision_model.encoder.layers.3.") != NULL;
    assert_int_equal(listed, 16);
    xd_decl_free(&d);
    close_part(&p);
    close_bench(&b);
}

/* A counting run follows no address and needs exactly the room of a real one. */
static void counts_as_it_runs(void **state)
{
    static const int32_t ids[40];
    static const int     layers[] = { 1, -1 };
    (void)state;
    for (int i = 0; i < KINDS; i++)
        for (int64_t first = 0; first < 8; first += 7) {
            size_t peak[2];
            for (int counts = 0; counts < 2; counts++) {
                tiny         t;
                xd_cond      c;
                xd_text_read r = { .ids = counts ? NULL : ids,
                                   .n = 40,
                                   .first = first,
                                   .real = 40 - first,
                                   .nlayers = 2,
                                   .layers = layers };
                open_tiny(&t, kinds[i].name, XD_F32, XD_F32, 0, counts);
                t.p.text->hidden(&t.x, &t.p.net, &r, &c);
                ok(t.x.err.code, &t.x.err);
                peak[counts] = xd_arena_peak(&t.b.tmp);
                close_tiny(&t);
            }
            assert_int_equal(peak[0], peak[1]);
        }
}

static void wrong_texts(void **state)
{
    static const int32_t ids[4];
    static const int     last = -1;
    static const int64_t bad[][2] = { { 0, 0 }, { 2, 3 }, { -1, 2 } };
    (void)state;
    for (int i = 0; i < 3; i++) {
        tiny    t;
        xd_cond c;
        open_tiny(&t, "qwen3", XD_F32, XD_F32, 0, 0);
        t.p.text->hidden(&t.x, &t.p.net,
                         &(xd_text_read){ .ids = ids,
                                          .n = 4,
                                          .first = bad[i][0],
                                          .real = bad[i][1],
                                          .nlayers = 1,
                                          .layers = &last },
                         &c);
        assert_int_equal(t.x.err.code, XD_EINVAL);
        assert_non_null(strstr(t.x.err.msg, "of 4 tokens"));
        close_tiny(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_listings), cmocka_unit_test(refusals),
        cmocka_unit_test(golden_f32),         cmocka_unit_test(golden_bf16),
        cmocka_unit_test(golden_quantised),   cmocka_unit_test(names),
        cmocka_unit_test(first_layers),       cmocka_unit_test(idle_block),
        cmocka_unit_test(counts_as_it_runs),  cmocka_unit_test(wrong_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* gguf_box.c - weights in blocks, and GGUF files of them */
#define _XOPEN_SOURCE 700       /* strdup */
#include "gguf_box.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden.h"

static void *room(size_t n)
{
    void *p = calloc(n + 1, 1);
    if (!p) {
        printf("Bail out! no memory for %zu bytes\n", n);
        exit(1);
    }
    return p;
}

static void put(box *b, const char *name, xd_tensor t)
{
    box_add(b, name, XD_U8, 1, (int64_t[]){ 1 });
    free(b->item[b->n - 1].t.p);
    b->item[b->n - 1].t = t;
}

static xd_tensor as_f32(xd_tensor t)
{
    xd_tensor f = xd_view(room((size_t)xd_count(t) * sizeof(float)), XD_F32, t.nd, t.d);
    xd_convert(f.p, XD_F32, t.p, t.type, xd_count(t));
    return f;
}

void box_folder(box *b, const char *folder, const char *stem)
{
    xd_st *st;
    xd_err e = { 0 };
    must(xd_st_open(&st, folder, stem, &e), &e, folder);
    for (int64_t i = 0; i < xd_st_count(st); i++) {
        xd_tensor t;
        must(xd_st_get(st, i, &t, &e), &e, folder);
        put(b, xd_st_name(st, i), as_f32(t));
        xd_st_done(st, i);
    }
    xd_st_close(&st);
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* The types, their numbers in files, and where their blocks have f16 numbers (-1: one only). */
static const struct kind {
    xd_dtype type;
    uint32_t number;
    int      half[2];
} kinds[] = {
    { XD_Q8_0, 8, { 0, -1 } },    { XD_Q4_K, 12, { 0, 2 } },    { XD_Q5_1, 7, { 0, 2 } },
    { XD_Q6_K, 14, { 208, -1 } }, { XD_Q4_0, 2, { 0, -1 } },    { XD_Q2_K, 10, { 80, 82 } },
    { XD_Q5_0, 6, { 0, -1 } },    { XD_Q3_K, 11, { 108, -1 } }, { XD_Q4_1, 3, { 0, 2 } },
    { XD_Q5_K, 13, { 0, 2 } },    { XD_IQ4_NL, 20, { 0, -1 } }, { XD_IQ4_XS, 23, { 0, -1 } },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void set_scales(const struct kind *k, xd_tensor t, float d)
{
    const size_t   bytes = xd_dtype_block_bytes(k->type);
    const uint16_t half = xd_f32_f16(d);
    for (char *p = t.p, *end = p + xd_bytes(t); p < end; p += bytes)
        for (int i = 0; i < 2; i++)
            if (k->half[i] >= 0)
                memcpy(p + k->half[i], &half, sizeof half);
}

static float magnitude(xd_tensor t)
{
    xd_tensor f = as_f32(t);
    double    sum = 0;
    for (int64_t i = 0; i < xd_count(f); i++)
        sum += (double)((float *)f.p)[i] * (double)((float *)f.p)[i];
    free(f.p);
    return sqrtf((float)(sum / (double)(xd_count(t) ? xd_count(t) : 1)));
}

static xd_tensor blocks_like(const struct kind *k, xd_tensor t, uint32_t seed)
{
    xd_tensor q = xd_view(NULL, k->type, t.nd, t.d);
    uint8_t  *p = q.p = room(xd_bytes(q));
    for (size_t i = 0; i < xd_bytes(q); i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (uint8_t)(seed >> 24);
    }
    set_scales(k, q, 1);
    set_scales(k, q, magnitude(t) / magnitude(q));
    return q;
}

int box_blocks(box *b, box *plain)
{
    int done = 0;
    for (int i = 0; i < b->n; i++) {
        xd_tensor         *t = &b->item[i].t;
        const struct kind *k = &kinds[done % KINDS];
        for (int j = 1; j < KINDS && xd_count(*t) % xd_dtype_block(k->type); j++)
            k = &kinds[(done + j) % KINDS];
        if (t->nd > 1 && t->nd < XD_MAXDIM && xd_count(*t) % xd_dtype_block(k->type) == 0) {
            xd_tensor q = blocks_like(k, *t, (uint32_t)i + 1);
            free(t->p);
            *t = q;
            done++;
        }
        put(plain, b->item[i].name, as_f32(*t));
    }
    return done;
}

/* ---- names and rows ----------------------------------------------------------------------- */

typedef struct change { const char *from, *to; } change;

static void rename_all(box *b, const change *list)
{
    for (int i = 0; i < b->n; i++)
        for (const change *c = list; c->from; c++) {
            const char *at = strstr(b->item[i].name, c->from);
            if (!at)
                continue;
            char *old = (char *)(uintptr_t)b->item[i].name;
            char *name = room(strlen(old) + strlen(c->to));
            sprintf(name, "%.*s%s%s", (int)(at - old), old, c->to, at + strlen(c->from));
            b->item[i].name = name;
            free(old);
        }
}

void box_t5_names(box *b)
{
    static const change list[] = {
        { "encoder.embed_tokens", "token_embd" },
        { "shared", "token_embd" },
        { "encoder.final_layer_norm", "enc.output_norm" },
        { "encoder.block.", "enc.blk." },
        { "layer.0.SelfAttention.relative_attention_bias", "attn_rel_b" },
        { "layer.0.SelfAttention.", "attn_" },
        { "layer.0.layer_norm", "attn_norm" },
        { "layer.1.layer_norm", "ffn_norm" },
        { "layer.1.DenseReluDense.wi_0", "ffn_gate" },
        { "layer.1.DenseReluDense.wi_1", "ffn_up" },
        { "layer.1.DenseReluDense.wo", "ffn_down" },
        { NULL, NULL },
    };
    rename_all(b, list);
}

void box_lm_names(box *b)
{
    static const change list[] = {
        { "model.embed_tokens", "token_embd" },
        { "model.norm", "output_norm" },
        { "lm_head", "output" },
        { "model.layers.", "blk." },
        { "input_layernorm", "attn_norm" },
        { "self_attn.q_proj", "attn_q" },
        { "self_attn.k_proj", "attn_k" },
        { "self_attn.v_proj", "attn_v" },
        { "self_attn.o_proj", "attn_output" },
        { "self_attn.q_norm", "attn_q_norm" },
        { "self_attn.k_norm", "attn_k_norm" },
        { "post_attention_layernorm", "ffn_norm" },
        { "mlp.gate_proj", "ffn_gate" },
        { "mlp.up_proj", "ffn_up" },
        { "mlp.down_proj", "ffn_down" },
        { NULL, NULL },
    };
    rename_all(b, list);
}

/* Row `half` s and place j of a head goes to row 2 j + s, as convert_hf_to_gguf.py of llama.cpp
 * does it. */
static void pair_rows(xd_tensor t, int heads)
{
    const int64_t each = t.d[0] / heads, half = each / 2;
    const size_t  row = xd_bytes(t) / (size_t)t.d[0];
    char         *was = room(xd_bytes(t));
    memcpy(was, t.p, xd_bytes(t));
    for (int64_t h = 0; h < heads; h++)
        for (int64_t s = 0; s < 2; s++)
            for (int64_t j = 0; j < half; j++)
                memcpy((char *)t.p + (size_t)(h * each + 2 * j + s) * row,
                       was + (size_t)(h * each + s * half + j) * row, row);
    free(was);
}

void box_pairs(box *b, int heads, int kv)
{
    for (int i = 0; i < b->n; i++)
        if (strstr(b->item[i].name, ".q_proj.") || strstr(b->item[i].name, ".k_proj."))
            pair_rows(b->item[i].t, strstr(b->item[i].name, ".q_proj.") ? heads : kv);
}

/* ---- files -------------------------------------------------------------------------------- */

static void number(FILE *f, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        fputc((int)(v >> 8 * i & 255), f);
}

static void text(FILE *f, const char *s)
{
    number(f, strlen(s), 8);
    fputs(s, f);
}

static void key(FILE *f, const char *name, uint32_t v)
{
    text(f, name);
    number(f, 4, 4);
    number(f, v, 4);
}

/* Is the shape told by a key, because rows are no whole blocks? */
static int in_rows_of_blocks(xd_tensor t)
{
    return t.d[t.nd - 1] % xd_dtype_block(t.type) != 0;
}

static uint32_t number_of(xd_dtype t)
{
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].type == t)
            return kinds[i].number;
    return t == XD_F32 ? 0 : t == XD_F16 ? 1 : 30;
}

static void write_keys(FILE *f, const box *b, const int *mine, const gguf_how *how)
{
    char name[256];
    if (how->arch) {
        text(f, "general.architecture");
        number(f, 8, 4);
        text(f, how->arch);
    }
    if (how->heads) {
        snprintf(name, sizeof name, "%s.attention.head_count", how->arch);
        key(f, name, (uint32_t)how->heads);
        snprintf(name, sizeof name, "%s.attention.head_count_kv", how->arch);
        key(f, name, (uint32_t)how->kv);
    }
    if (how->shards)
        key(f, "split.count", (uint32_t)how->shards);
    for (int i = 0; i < b->n; i++) {
        const xd_tensor *t = &b->item[i].t;
        if (!mine[i] || !in_rows_of_blocks(*t))
            continue;
        snprintf(name, sizeof name, "comfy.gguf.orig_shape.%s", b->item[i].name);
        text(f, name);
        number(f, 9, 4);
        number(f, 5, 4);
        number(f, (uint64_t)t->nd, 8);
        for (int k = 0; k < t->nd; k++)
            number(f, (uint64_t)t->d[k], 4);
    }
}

static int keys_of(const box *b, const int *mine, const gguf_how *how)
{
    int n = (how->arch != NULL) + (how->heads ? 2 : 0) + (how->shards != 0);
    for (int i = 0; i < b->n; i++)
        n += mine[i] && in_rows_of_blocks(b->item[i].t);
    return n;
}

static uint64_t padded(uint64_t n)
{
    return (n + 31) / 32 * 32;
}

static xd_tensor as_ggml(xd_tensor t)
{
    int64_t d[XD_MAXDIM];
    int     skip = 0;
    memcpy(d, t.d, sizeof d);
    if (t.nd == XD_MAXDIM)
        d[++skip] *= d[0];
    while (skip < t.nd - 1 && d[skip] == 1)
        skip++;
    return xd_view(t.p, t.type, t.nd - skip, d + skip);
}

static void write_infos(FILE *f, const box *b, const int *mine, int ggml)
{
    uint64_t at = 0;
    for (int i = 0; i < b->n; i++) {
        xd_tensor t = b->item[i].t;
        if (!mine[i])
            continue;
        if (in_rows_of_blocks(t))
            t = xd_view2(t.p, t.type, xd_count(t) / xd_dtype_block(t.type), xd_dtype_block(t.type));
        else if (ggml)
            t = as_ggml(t);
        text(f, b->item[i].name);
        number(f, (uint64_t)t.nd, 4);
        for (int k = t.nd - 1; k >= 0; k--)
            number(f, (uint64_t)t.d[k], 8);
        number(f, number_of(t.type), 4);
        number(f, at, 8);
        at += padded(xd_bytes(t));
    }
}

static void write_data(FILE *f, const box *b, const int *mine)
{
    for (int i = 0; i < b->n; i++) {
        while (ftell(f) % 32)
            fputc(0, f);
        if (mine[i])
            fwrite(b->item[i].t.p, 1, xd_bytes(b->item[i].t), f);
    }
}

static void write_shard(const box *b, const char *path, gguf_how how, int no)
{
    FILE *f = fopen(path, "wb");
    int   mine[BOX_MAX], n = 0;
    for (int i = 0; i < b->n; i++)
        n += mine[i] = !how.shards || i % how.shards == no;
    if (!f) {
        printf("Bail out! cannot write %s\n", path);
        exit(1);
    }
    fputs("GGUF", f);
    number(f, 3, 4);
    number(f, (uint64_t)n, 8);
    number(f, (uint64_t)keys_of(b, mine, &how), 8);
    write_keys(f, b, mine, &how);
    write_infos(f, b, mine, how.ggml);
    write_data(f, b, mine);
    fclose(f);
}

void box_write_gguf(const box *b, const char *path, gguf_how how)
{
    char   name[1024];
    size_t stem = strlen(path) - strlen("-00001-of-00001.gguf");
    if (!how.shards) {
        write_shard(b, path, how, 0);
        return;
    }
    for (int i = 0; i < how.shards; i++) {
        snprintf(name, sizeof name, "%.*s-%05d-of-%05d.gguf", (int)stem, path, i + 1, how.shards);
        write_shard(b, name, how, i);
    }
}

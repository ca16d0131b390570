/* lora_keys.c - finds the model's weight that a key of a LoRA file changes.
 *
 * Names are compared with _ in place of dots, as Kohya's scripts write them; in this form, names in
 * a LoRA file are equal to those in a checkpoint. The other rules are in tables: prefixes of
 * components, suffixes of keys, and modules that the original code of a model family names
 * differently or fuses (xd_lora_name). */
#include "families/family.h"
#include "model/component.h"
#include "model/lora.h"
#include "model/model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- suffixes of keys --------------------------------------------------------------------- */

static const struct {
    const char  *end;
    xd_lora_slot slot;
} ends[] = {
    { ".lora_A.weight", XD_LORA_DOWN },
    { ".lora_B.weight", XD_LORA_UP },
    { ".lora_A.default.weight", XD_LORA_DOWN },
    { ".lora_B.default.weight", XD_LORA_UP },
    { ".lora_A", XD_LORA_DOWN },
    { ".lora_B", XD_LORA_UP },
    { ".lora_down.weight", XD_LORA_DOWN },
    { ".lora_up.weight", XD_LORA_UP },
    { ".lora.down.weight", XD_LORA_DOWN },
    { ".lora.up.weight", XD_LORA_UP },
    { "_lora.down.weight", XD_LORA_DOWN },
    { "_lora.up.weight", XD_LORA_UP },
    { ".lora_linear_layer.down.weight", XD_LORA_DOWN },
    { ".lora_linear_layer.up.weight", XD_LORA_UP },
    { ".down.weight", XD_LORA_DOWN },
    { ".up.weight", XD_LORA_UP },
    { ".lora_B.bias", XD_LORA_UP_BIAS },
    { ".lora_up.bias", XD_LORA_UP_BIAS },
    { ".alpha", XD_LORA_ALPHA },
    { ".diff", XD_LORA_DIFF },
    { ".diff_b", XD_LORA_DIFF_BIAS },
    { ".hada_w1_a", XD_LORA_HADA_1A },
    { ".hada_w1_b", XD_LORA_HADA_1B },
    { ".hada_w2_a", XD_LORA_HADA_2A },
    { ".hada_w2_b", XD_LORA_HADA_2B },
    { ".lokr_w1", XD_LORA_KRON_1 },
    { ".lokr_w2", XD_LORA_KRON_2 },
    { ".lokr_w1_a", XD_LORA_KRON_1A },
    { ".lokr_w1_b", XD_LORA_KRON_1B },
    { ".lokr_w2_a", XD_LORA_KRON_2A },
    { ".lokr_w2_b", XD_LORA_KRON_2B },
    { ".lora_magnitude_vector", XD_LORA_MAGNITUDE },
    { ".lora_magnitude_vector.weight", XD_LORA_MAGNITUDE },
    { ".lora_magnitude_vector.default", XD_LORA_MAGNITUDE },
    { ".lora_magnitude_vector.default.weight", XD_LORA_MAGNITUDE },
    { ".dora_scale", XD_LORA_DORA_SCALE },
    { ".base_layer.weight", XD_LORA_NEW },
    { ".base_layer.bias", XD_LORA_NEW_BIAS },
    { ".weight", XD_LORA_NEW },
    { ".scale", XD_LORA_NEW },
    { ".bias", XD_LORA_NEW_BIAS },
};

/* Parts of keys by which methods that are not supported are recognized: Tucker factors, OFT. */
static const char *const unsupported_parts[] = { ".hada_t", ".lokr_t", ".lora_mid", ".oft_",
                                                 ".boft_" };

static int ends_with(const char *s, size_t n, const char *end)
{
    size_t k = strlen(end);
    return n > k && strcmp(s + n - k, end) == 0;
}

int xd_lora_is_gain(const char *key)
{
    static const char *const gains[] = { ".query_norm.scale",    ".key_norm.scale",
                                         ".norm_q.weight",       ".norm_k.weight",
                                         ".norm_added_q.weight", ".norm_added_k.weight" };
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++)
        if (ends_with(key, strlen(key), gains[i]))
            return 1;
    return 0;
}

xd_lora_slot xd_lora_slot_of(const char *key, size_t *len)
{
    size_t n = *len = strlen(key);
    for (size_t i = 0; i < sizeof unsupported_parts / sizeof *unsupported_parts; i++)
        if (strstr(key, unsupported_parts[i]))
            return XD_LORA_UNSUPPORTED;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(key, n, ends[i].end)) {
            *len = n - strlen(ends[i].end);
            return ends[i].slot;
        }
    return XD_LORA_OTHER;
}

/* ---- the component ------------------------------------------------------------------------ */

enum { DIT = 0, TEXT_1 = 1, TEXT_2 = 2, TEXT_LAST = -1 };

static const struct {
    const char *start;
    int         part;
} starts[] = {
    { "base_model.model.", DIT },
    { "model.diffusion_model.", DIT },
    { "transformer.", DIT },
    { "diffusion_model.", DIT },
    { "lora_unet_", DIT },
    { "lora_transformer_", DIT },
    { "unet.", DIT },
    { "lycoris_", DIT },
    { "lora_te1_", TEXT_1 },
    { "lora_te_", TEXT_1 },
    { "lora_te2_", TEXT_2 },
    { "lora_te3_", TEXT_LAST },
    { "text_encoders.clip_l.transformer.", TEXT_1 },
    { "text_encoders.clip_g.transformer.", TEXT_2 },
    { "text_encoders.t5xxl.transformer.", TEXT_LAST },
};

const char *xd_lora_inner(const xd_lora_keys *s, const char *module, int *part)
{
    for (int k = 0; k < XD_LORA_COMPONENTS; k++) {
        size_t n = s->part[k] ? strlen(s->part[k]->name) : 0;
        if (n && strncmp(module, s->part[k]->name, n) == 0 && module[n] == '.') {
            *part = k;
            return module + n + 1;
        }
    }
    *part = DIT;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        size_t n = strlen(starts[i].start);
        if (strncmp(module, starts[i].start, n) != 0)
            continue;
        *part = starts[i].part == TEXT_LAST ? s->ntext : starts[i].part;
        if (*part >= XD_LORA_COMPONENTS || !s->part[*part])
            *part = -1;
        return module + n;
    }
    return module;
}

int xd_lora_left_out(const xd_lora_keys *s, const char *module)
{
    for (int k = 0; k < s->ntext; k++) {
        size_t n = strlen(s->text[k].folder);
        if (!s->part[1 + k] && strncmp(module, s->text[k].folder, n) == 0 && module[n] == '.')
            return 1;
    }
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(module, starts[i].start, strlen(starts[i].start)) == 0) {
            int part = starts[i].part == TEXT_LAST ? s->ntext : starts[i].part;
            return part != DIT && part <= s->ntext && !s->part[part];
        }
    return 0;
}

/* ---- the tensors of a model --------------------------------------------------------------- */

static void flatten_name(const char *name, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = name[i] == '.' ? '_' : name[i];
    out[n] = 0;
}

static int by_place(const void *a, const void *b)
{
    const xd_lora_place *x = a, *y = b;
    if (x->part != y->part)
        return x->part - y->part;
    return x->bias != y->bias ? x->bias - y->bias : strcmp(x->flat, y->flat);
}

/* If a declared tensor is a weight or a bias, adds one of its names to the names that are
 * searched. */
static int add_place(xd_lora_keys *s, int part, int item, const char *name, size_t n)
{
    static const char *const tails[] = { ".weight", ".bias" };
    for (int bias = 0; bias < 2; bias++) {
        size_t k = strlen(tails[bias]);
        if (n <= k || strncmp(name + n - k, tails[bias], k) != 0)
            continue;
        xd_lora_place p = { malloc(n), part, bias, item };
        if (!p.flat)
            return 0;
        flatten_name(name, n - k, p.flat);
        s->place[s->n++] = p;
    }
    return 1;
}

static int count_names(const xd_component *p)
{
    int n = 0;
    for (int i = 0; i < p->nlist; i++) {
        n++;
        for (const char *c = p->list[i].name; (c = strchr(c, '|')); c++)
            n++;
    }
    return n;
}

static int add_part(xd_lora_keys *s, int part)
{
    const xd_component *p = s->part[part];
    for (int i = 0; i < p->nlist; i++)
        for (const char *c = p->list[i].name; c; c = (c = strchr(c, '|')) ? c + 1 : NULL)
            if (!add_place(s, part, i, c, strcspn(c, "|")))
                return 0;
    return 1;
}

xd_status xd_lora_keys_open(xd_lora_keys *s, xd_model *m, int second, xd_err *e)
{
    size_t n = 1;
    int    ok;
    *s = (xd_lora_keys){ .part = { second && m->dit2.dit ? &m->dit2 : &m->dit },
                         .ntext = m->recipe->ntext,
                         .text = m->recipe->text,
                         .others = xd_family_of(m->dit.dit)->lora_names,
                         .input = m->dit.dit->input };
    while (s->ntext && !s->text[s->ntext - 1].tokenizer)
        s->ntext--; /* the last entries are image encoders */
    for (int k = 0; k < s->ntext; k++)
        s->part[1 + k] = m->has_text[k] && !second ? &m->text[k] : NULL;
    for (int k = 0; k < XD_LORA_COMPONENTS; k++)
        n += s->part[k] ? (size_t)count_names(s->part[k]) : 0;
    ok = (s->place = malloc(n * sizeof *s->place)) != NULL;
    for (int k = 0; ok && k < XD_LORA_COMPONENTS; k++)
        ok = !s->part[k] || add_part(s, k);
    if (!ok)
        return xd_fail(e, XD_ENOMEM, "no memory for the names of %zu tensors", n);
    qsort(s->place, (size_t)s->n, sizeof *s->place, by_place);
    return XD_OK;
}

void xd_lora_keys_close(xd_lora_keys *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->place[i].flat);
    free(s->place);
    *s = (xd_lora_keys){ 0 };
}

/* ---- other names of modules --------------------------------------------------------------- */

/* Last parts of the names of modules in attention processors, which had other names in older
 * versions of diffusers. */
static const struct {
    const char *from, *to;
} old_ends[] = {
    { "_to_out", "_to_out_0" }, { "_to_out", "_out_proj" }, { "_to_q", "_q_proj" },
    { "_to_k", "_k_proj" },     { "_to_v", "_v_proj" },
};

/* Finds the tensor of the model whose name, with _ in place of dots, is `flat`. Returns the
 * tensor's index in the component's list, or -1 if there is no such tensor. */
static int find_tensor(const xd_lora_keys *s, int part, int bias, char *flat)
{
    xd_lora_place  key = { flat, part, bias, 0 };
    xd_lora_place *at = bsearch(&key, s->place, (size_t)s->n, sizeof key, by_place);
    return at ? at->item : -1;
}

/* Returns 1 if the name `flat` matches the pattern. Copies the digits that # matches to
 * `number`. */
static int match_pattern(const char *pattern, const char *flat, char number[16])
{
    size_t k = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (*flat++ != *pattern)
                return 0;
            continue;
        }
        while (isdigit((unsigned char)*flat) && k < 15)
            number[k++] = *flat++;
        if (!k)
            return 0;
    }
    number[k] = 0;
    return !*flat;
}

/* Replaces # by the number in every target of a table row, and finds the model's tensor for each
 * target. */
static int set_row_targets(const xd_lora_keys *s, const char *to, const char *number, int bias,
                           xd_lora_target *target)
{
    char   name[XD_LORA_NAME];
    size_t n = 0;
    target->n = 0;
    target->halves = *to == '~';
    for (const char *c = to + target->halves;; c++) {
        if (*c && *c != ' ') {
            int k = *c == '#' ? snprintf(name + n, sizeof name - n, "%s", number)
                              : snprintf(name + n, sizeof name - n, "%c", *c);
            n += k > 0 ? (size_t)k : 0;
            if (n >= sizeof name)
                return 0;
            continue;
        }
        n = 0;
        if (target->n == XD_LORA_TARGETS ||
            (target->item[target->n++] = find_tensor(s, target->part, bias, name)) < 0)
            return 0;
        if (!*c)
            return 1;
    }
}

static int set_plain_target(const xd_lora_keys *s, char *flat, int bias, xd_lora_target *target)
{
    target->halves = 0;
    target->n = 1;
    return (target->item[0] = find_tensor(s, target->part, bias, flat)) >= 0;
}

static int set_old_target(const xd_lora_keys *s, const char *flat, int bias, xd_lora_target *target)
{
    char   name[XD_LORA_NAME + 16];
    size_t n = strlen(flat);
    for (size_t i = 0; i < sizeof old_ends / sizeof *old_ends; i++) {
        if (!ends_with(flat, n, old_ends[i].from))
            continue;
        snprintf(name, sizeof name, "%.*s%s", (int)(n - strlen(old_ends[i].from)), flat,
                 old_ends[i].to);
        if (set_plain_target(s, name, bias, target))
            return 1;
    }
    return 0;
}

int xd_lora_target_of(const xd_lora_keys *s, const char *module, int bias, xd_lora_target *target)
{
    char        flat[XD_LORA_NAME], number[16], *mid;
    const char *inner = xd_lora_inner(s, module, &target->part);
    if (target->part < 0 || strlen(inner) >= sizeof flat)
        return 0;
    flatten_name(inner, strlen(inner), flat);
    if (set_plain_target(s, flat, bias, target))
        return 1;
    for (const xd_lora_name *o = s->others; target->part == DIT && o && o->from; o++)
        if (match_pattern(o->from, flat, number) && set_row_targets(s, o->to, number, bias, target))
            return 1;
    if ((mid = strstr(flat, "_processor_"))) /* name in older diffusers: "attn.processor.to_q" */
        memmove(mid, mid + 10, strlen(mid + 10) + 1);
    return set_plain_target(s, flat, bias, target) || set_old_target(s, flat, bias, target);
}

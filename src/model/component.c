/* component.c - opens and loads a component of a model, and counts the component's memory */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/component.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/shared_weights.h"

enum { SHOWN = 10 }; /* max number of tensor names in a warning */

/* ---- opening ------------------------------------------------------------------------------ */

static xd_status list_tensors(xd_component *p, xd_err *e)
{
    xd_decl d = { .visit = XD_VISIT_LIST, .tp = 1, .err = e };
    xd_err  mine = { 0 };
    d.err = &mine;
    xd_net_visit(&p->w->net, &d);
    p->list = d.list;
    p->nlist = d.nlist;
    return mine.code ? xd_fail(e, mine.code, "%s", mine.msg) : XD_OK;
}

/* Appends `, "KEY": [...]` with the numbers below n of a list of block numbers, such as the blocks
 * that are followed by another block. Appends nothing if the config has no such list. */
static void shorten_list(const xd_component *p, const char *key, long n, xd_text_buf *b)
{
    const xd_json *list = xd_json_get(p->config, key);
    double         v;
    int            count = 0;
    if (!list)
        return;
    xd_buf_add(b, ", \"%s\": [", key);
    for (const xd_json *i = xd_json_first(list); i; i = xd_json_next(i))
        if (xd_json_number(i, &v) && v < (double)n)
            xd_buf_add(b, "%s%.0f", count++ ? ", " : "", v);
    xd_buf_add(b, "]");
}

/* Appends `, "KEY": N` for every number N in `layers`. KEY is a config key such as "num_layers";
 * each key gives the number of blocks of one kind. */
static xd_status count_blocks(const xd_component *p, const char *layers, xd_text_buf *b, xd_err *e)
{
    static const char *const keys[] = { "num_layers",        "num_hidden_layers",
                                        "num_single_layers", "n_layers",
                                        "n_refiner_layers",  "num_refiner_layers",
                                        "num_mmdit_layers",  "num_single_dit_layers" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys && *layers; i++) {
        const xd_field *f = p->def->fields;
        while (f->json && strcmp(f->json, keys[i]) != 0)
            f++;
        if (!f->json)
            continue;
        char *end;
        long  n = strtol(layers, &end, 10);
        if (end == layers || n < 0 || n > 10000 || (*end && *end != ','))
            return xd_fail(e, XD_EINVAL,
                           "layers has \"%s\"; it must be a list of numbers from 0 to 10000",
                           layers);
        xd_buf_add(b, "%s\"%s\": %ld", xd_json_size(p->config) ? ", " : "", keys[i], n);
        if (i == 0)
            shorten_list(p, "vace_layers", n, b);
        layers = end + (*end == ',');
    }
    if (*layers && p->kind == XD_KIND_DIT)
        return xd_fail(e, XD_EINVAL, "layers has \"%s\" too much: %s has fewer kinds of blocks",
                       layers, p->class_name);
    return XD_OK;
}

/* Parses the config text again with other numbers of blocks. The new numbers are appended to the
 * text as duplicate JSON keys, because the parser uses the last of several equal keys. */
static xd_status reread_blocks(xd_component *p, const char *hint, const char *layers,
                               const char *path, xd_err *e)
{
    xd_text_buf b = { 0 };
    xd_json    *again = NULL;
    char       *text = NULL;
    size_t      len = 0;
    xd_status   s = xd_file_read(path, (size_t)1 << 28, &text, &len, e);
    while (s == XD_OK && len && text[len - 1] != '}')
        len--;
    if (s == XD_OK)
        xd_buf_add(&b, "%.*s", (int)len - 1, text);
    if (s == XD_OK)
        s = count_blocks(p, layers, &b, e);
    xd_buf_add(&b, "}");
    if (s == XD_OK && b.failed)
        s = xd_fail(e, XD_ENOMEM, "no memory for the config %s", path);
    if (s == XD_OK)
        s = xd_json_parse(&again, b.p, b.len, path, e);
    if (s == XD_OK) {
        xd_json_free(&p->config);
        p->config = again;
        xd_component_name_class(p, hint);
    }
    xd_buf_free(&b);
    free(text);
    return s;
}

/* Finds the network of the config and lists its tensors. If `layers` is not NULL, its numbers of
 * blocks replace those of the config. */
static xd_status open_network(xd_component *p, const char *hint, const char *layers,
                              const char *path, xd_err *e)
{
    xd_status s = xd_component_network(p, hint, e);
    if (s == XD_OK && layers && xd_json_is_object(p->config))
        s = reread_blocks(p, hint, layers, path, e);
    if (s == XD_OK)
        s = xd_net_open(&p->w->net, p->def, p->config, path, e);
    return s == XD_OK ? list_tensors(p, e) : s;
}

/* Sets the component's name, and creates the component's set of weights. The weights are not loaded
 * yet. */
static xd_status begin(xd_component *p, const char *name, xd_kind kind, xd_err *e)
{
    xd_component_weights v;
    memset(p, 0, sizeof *p);
    p->kind = kind;
    p->name = strdup(name);
    if (!p->name)
        return xd_fail(e, XD_ENOMEM, "no memory for component %s", name);
    xd_status s = xd_component_weights_open(&v, p, e);
    p->w = v.w;
    p->count = v.count;
    return s;
}

xd_status xd_component_open(xd_component *p, const char *model, const char *name, xd_kind kind,
                            const char *hint, xd_err *e)
{
    return xd_component_open_some(p, model, name, kind, hint, NULL, e);
}

xd_status xd_component_open_some(xd_component *p, const char *model, const char *name, xd_kind kind,
                                 const char *hint, const char *layers, xd_err *e)
{
    xd_status s = begin(p, name, kind, e);
    if (s != XD_OK)
        return s;
    p->dir = xd_path_join(model, name);
    char *path = p->dir ? xd_path_join(p->dir, "config.json") : NULL;
    if (!path)
        return xd_fail(e, XD_ENOMEM, "no memory for component %s", name);
    if (!xd_file_is_dir(p->dir)) {
        free(path);
        return xd_fail(e, XD_EIO, "%s has no folder %s", model, name);
    }
    s = xd_json_read(&p->config, path, e);
    if (s == XD_OK)
        s = open_network(p, hint, layers, path, e);
    if (s != XD_OK)
        xd_fail_at(e, s, path);
    free(path);
    return s;
}

xd_status xd_component_open_text(xd_component *p, const char *name, xd_kind kind, const char *text,
                                 xd_err *e)
{
    xd_status s = begin(p, name, kind, e);
    if (s != XD_OK)
        return s;
    p->from_text = 1;
    if (!(p->dir = strdup(name)))
        return xd_fail(e, XD_ENOMEM, "no memory for component %s", name);
    s = xd_json_parse(&p->config, text, strlen(text), name, e);
    if (s == XD_OK)
        s = open_network(p, NULL, NULL, name, e);
    return s == XD_OK ? s : xd_fail_at(e, s, name);
}

xd_status xd_component_source(xd_component *p, const xd_source *src, xd_err *e)
{
    p->w->src = *src;
    xd_status s = xd_declared_check(p->list, p->nlist, src, p->dir, e);
    return s == XD_OK ? s : xd_fail_at(e, s, p->dir);
}

/* Opens the network p->def in the place of the component's network. */
static xd_status change_network(xd_component *p, xd_err *e)
{
    char *path = xd_path_join(p->dir, "config.json");
    free(p->list);
    p->list = NULL;
    p->nlist = 0;
    xd_net_close(&p->w->net);
    xd_status s = path ? xd_net_open(&p->w->net, p->def, p->config, path, e)
                       : xd_fail(e, XD_ENOMEM, "no memory for component %s", p->name);
    if (s == XD_OK)
        s = list_tensors(p, e);
    free(path);
    return s;
}

xd_status xd_component_add_vision(xd_component *p, xd_err *e)
{
    const xd_text *t = p->text ? p->text->with_vision : NULL;
    if (!t)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: the pipeline needs a text encoder that reads "
                       "images, but %s does not",
                       p->dir, p->class_name);
    p->text = t;
    p->def = &t->net;
    return change_network(p, e);
}

/* ---- side networks ------------------------------------------------------------------------ */

static int       src_has(void *self, const char *name, xd_tensor *shape);
static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e);

/* Checks that the class in a side network's config is one that the transformer can have. */
static xd_status check_side_class(const xd_component *p, const char *path, const xd_json *config,
                                  xd_err *e)
{
    const char *name = xd_json_text(xd_json_get(config, "_class_name"));
    for (int i = 0; i < 4 && p->dit->side->classes[i]; i++)
        if (name && strcmp(name, p->dit->side->classes[i]) == 0)
            return XD_OK;
    return xd_fail(e, XD_EINVAL, "%s names the class %s, but a control network of a %s is a %s",
                   path, name ? name : "(none)", p->class_name, p->dit->side->classes[0]);
}

static void alone_done(void *self, const char *name)
{
    const xd_component *p = self;
    xd_st_done(p->files, xd_st_find(p->files, name));
}

/* Opens a weight file, to read its names and shapes; xd_st_close(&to->files) closes the file. */
static xd_status open_to_describe(xd_component *to, xd_source *src, const char *file, xd_err *e)
{
    *to = (xd_component){ .file = (char *)(uintptr_t)file };
    *src = (xd_source){ .has = src_has, .get = src_get, .done = alone_done, .self = to };
    return xd_st_open(&to->files, file, "diffusion_pytorch_model", e);
}

/* Appends the config of a side network in a weight file without config.json to b. Appends nothing
 * if the transformer's family does not know the file. */
static xd_status describe_side(const xd_component *p, const char *file, xd_text_buf *b, xd_err *e)
{
    xd_component alone;
    xd_source    src;
    xd_status    s = open_to_describe(&alone, &src, file, e);
    if (s == XD_OK)
        s = p->dit->side->describe(&src, p->config, b, e);
    xd_st_close(&alone.files);
    return s;
}

xd_status xd_component_open_described(xd_component *p, const char *name, const char *file,
                                      const char *slot, const xd_vae_info *own, xd_err *e)
{
    xd_component alone;
    xd_source    src;
    xd_text_buf  config = { 0 };
    memset(p, 0, sizeof *p);
    xd_status s = open_to_describe(&alone, &src, file, e);
    for (int i = 0; s == XD_OK && xd_vaes[i] && !config.len; i++)
        if (xd_vaes[i]->describe)
            s = xd_vaes[i]->describe(&src, own, &config, e);
    if (s == XD_OK && config.failed)
        s = xd_fail(e, XD_ENOMEM, "no memory for the config of %s", file);
    if (s == XD_OK && config.len) {
        s = xd_component_open_text(p, name, XD_KIND_VAE, config.p, e);
        if (s == XD_OK)
            s = xd_component_set_file(p, file, slot, e);
        else
            xd_fail_at(e, s, file);
    }
    xd_buf_free(&config);
    xd_st_close(&alone.files);
    return s;
}

/* Appends the config of the side network `side`, a directory or a weight file, to b. */
static xd_status add_side_config(const xd_component *p, const char *side, xd_text_buf *b, xd_err *e)
{
    char *dir = strdup(side), *slash = dir ? strrchr(dir, '/') : NULL, *path = NULL;
    if (dir && !xd_file_is_dir(side))
        strcpy(slash ? slash + (slash == dir) : dir, slash ? "" : ".");
    if (dir)
        path = xd_path_join(dir, "config.json");
    xd_json  *config = NULL;
    size_t    before = b->len;
    xd_status s = path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && !xd_file_exists(side))
        s = xd_fail(e, XD_EIO, "controlnet: there is no %s", side);
    if (s == XD_OK && xd_file_exists(path))
        s = xd_json_read(&config, path, e);
    if (s == XD_OK && !xd_json_get(config, "_class_name") && !xd_file_is_dir(side) &&
        p->dit->side->describe)
        s = describe_side(p, side, b, e);
    int described = b->len > before;
    if (s == XD_OK && !described && !config)
        s = xd_fail(e, XD_EIO, "controlnet %s: there is no config.json %s", side,
                    xd_file_is_dir(side) ? "in this folder" : "beside this file");
    if (s == XD_OK && !described)
        s = check_side_class(p, path, config, e);
    if (s == XD_OK && !described)
        xd_buf_json(b, config);
    xd_json_free(&config);
    free(path);
    free(dir);
    return s;
}

/* Parses the component's config again, with further members, which replace those of the same
 * keys. */
static xd_status extend_config(xd_component *p, const xd_text_buf *members, xd_err *e)
{
    xd_text_buf b = { 0 };
    xd_json    *whole = NULL;
    xd_buf_json(&b, p->config);
    if (b.len)
        b.len--; /* the brace at the end */
    xd_buf_add(&b, "%s%s}", xd_json_size(p->config) ? ", " : "", members->p ? members->p : "");
    xd_status s = b.failed || members->failed
                      ? xd_fail(e, XD_ENOMEM, "no memory for the config of %s", p->name)
                      : xd_json_parse(&whole, b.p, b.len, p->dir, e);
    if (s == XD_OK) {
        const char *in_config = xd_json_text(xd_json_get(p->config, "_class_name"));
        const char *hint = p->class_name == in_config ? NULL : p->class_name;
        xd_json_free(&p->config);
        p->config = whole;
        xd_component_name_class(p, hint);
    }
    xd_buf_free(&b);
    return s;
}

/* Adds the configs of the side networks to the component's config, as a list. */
static xd_status add_side_configs(xd_component *p, xd_err *e)
{
    xd_text_buf b = { 0 };
    xd_status   s = XD_OK;
    xd_buf_add(&b, "\"" XD_SIDES_KEY "\": [");
    for (int i = 0; s == XD_OK && i < p->nsides; i++) {
        xd_buf_add(&b, i ? ", " : "");
        s = add_side_config(p, p->sides[i], &b, e);
    }
    xd_buf_add(&b, "]");
    if (s == XD_OK)
        s = extend_config(p, &b, e);
    xd_buf_free(&b);
    return s;
}

xd_status xd_component_add_sides(xd_component *p, const char *const *sides, int n, xd_err *e)
{
    if (!p->dit->side)
        return xd_fail(e, XD_EUNSUPPORTED, "control networks of a %s are not supported: omit %s",
                       p->class_name, sides[0]);
    if (n > XD_MAXSIDES)
        return xd_fail(e, XD_EINVAL, "%d control networks are given; at most %d are supported", n,
                       XD_MAXSIDES);
    for (int i = 0; i < n; i++, p->nsides++)
        if (!(p->sides[i] = strdup(sides[i])))
            return xd_fail(e, XD_ENOMEM, "no memory for a path");
    xd_status s = add_side_configs(p, e);
    if (s != XD_OK)
        return s;
    return change_network(p, e);
}

xd_status xd_component_widen(xd_component *p, const char *name, int64_t channels, xd_err *e)
{
    xd_text_buf b = { 0 };
    int         i = 0;
    while (i < p->nlist && strcmp(p->list[i].name, name) != 0)
        i++;
    if (i == p->nlist || channels <= p->list[i].d[1])
        return xd_fail(e, XD_EINVAL, "%s has no weight %s of fewer than %lld channels", p->name,
                       name, (long long)channels);
    xd_buf_add(&b, "\"in_channels\": %lld, \"out_channels\": %lld", (long long)channels,
               (long long)p->list[i].d[1]);
    snprintf(p->wide, sizeof p->wide, "%s", name);
    p->wide_cols = channels;
    xd_status s = extend_config(p, &b, e);
    xd_buf_free(&b);
    return s == XD_OK ? change_network(p, e) : s;
}

/* If the component has a wide weight, replaces the weight source by one that has it. */
static xd_status open_widened(xd_component *p, xd_err *e)
{
    if (!p->wide[0])
        return XD_OK;
    xd_status s = xd_widened_open(&p->widened, &p->w->src, p->wide, p->wide_cols, e);
    if (s == XD_OK)
        p->w->src = xd_widened_source(p->widened);
    return s;
}

/* Opens the weight files of the side networks, and joins them with those of the transformer. */
static xd_status join_side_files(xd_component *p, xd_err *e)
{
    char      prefix[32];
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < p->nsides; i++) {
        xd_st *more = NULL;
        snprintf(prefix, sizeof prefix, XD_SIDES_PREFIX, i);
        s = xd_st_open(&more, p->sides[i], "diffusion_pytorch_model", e);
        if (s == XD_OK)
            s = xd_st_join(p->files, &more, prefix, e);
        xd_st_close(&more);
    }
    return s;
}

/* Translates the names of side networks whose files have names of their own. */
static xd_status open_side_names(xd_component *p, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; s == XD_OK && i < p->nsides && p->dit->side->net; i++) {
        char              prefix[32];
        xd_single_file_of of = { .file = p->sides[i],
                                 .config = p->sides[i],
                                 .slot = XD_SIDE_SLOT,
                                 .net = p->dit->side->net,
                                 .list = p->list,
                                 .nlist = p->nlist,
                                 .needed = p->list,
                                 .nneeded = p->nlist,
                                 .files = p->files,
                                 .raw = &p->below[i],
                                 .inside = prefix };
        snprintf(prefix, sizeof prefix, XD_SIDES_PREFIX, i);
        if (!xd_single_file_fits(&of))
            continue;
        p->below[i] = p->w->src;
        s = xd_single_file_open(&p->side_names[i], &of, e);
        if (s == XD_OK)
            p->w->src = xd_single_file_source(p->side_names[i]);
    }
    return s;
}

void xd_component_close(xd_component *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->nsides; i++) {
        free(p->sides[i]);
        xd_single_file_close(&p->side_names[i]);
    }
    xd_component_drop(p);
    xd_component_unshare(p);
    xd_widened_close(&p->widened);
    xd_single_file_close(&p->single);
    xd_svdquant_close(&p->svdquant);
    xd_quantized_close(&p->quantized);
    xd_st_close(&p->files);
    xd_json_free(&p->config);
    free(p->file);
    free(p->slot);
    free(p->list);
    free(p->name);
    free(p->dir);
    memset(p, 0, sizeof *p);
}

/* ---- files -------------------------------------------------------------------------------- */

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const xd_component *p = self;
    int64_t             i = xd_st_find(p->files, name);
    if (i < 0)
        return 0;
    *shape = xd_quantized_shape(p->quantized, p->files, i);
    return 1;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    const xd_component *p = self;
    int64_t             i = xd_st_find(p->files, name);
    if (i < 0)
        return xd_fail(e, XD_EFORMAT, "%s: tensor %s is missing", p->file ? p->file : p->dir, name);
    return xd_quantized_get(p->quantized, p->files, i, t, e);
}

static int src_codes(void *self, const char *name, xd_coding *c)
{
    const xd_component *p = self;
    return xd_quantized_codes(p->quantized, xd_st_find(p->files, name), c);
}

static void src_done(void *self, const char *name)
{
    const xd_component *p = self;
    int64_t             i = xd_st_find(p->files, name);
    if (i >= 0) {
        xd_quantized_done(p->quantized, p->files, i);
        xd_component_was_read(p, i);
    }
}

static void src_past(void *self, const char *name, const void *at, size_t bytes)
{
    const xd_component *p = self;
    int64_t             i = xd_st_find(p->files, name);
    if (i >= 0)
        xd_st_past(p->files, i, at, bytes);
}

/* ---- fp8 ---------------------------------------------------------------------------------- */

/* Returns the index of the tensor that contains the scale of an fp8 weight, or -1 if the files have
 * no such tensor. ComfyUI and other programs use different names for a scale tensor. */
static int64_t find_scale(const xd_component *p, const char *weight)
{
    static const char *const ends[] = { "scale_weight", "weight_scale" };
    char                     name[512];
    size_t n = strlen(weight), stem = n > 7 && strcmp(weight + n - 7, ".weight") == 0 ? n - 6 : 0;
    for (int i = 0; i < 2 && stem; i++) {
        snprintf(name, sizeof name, "%.*s%s", (int)stem, weight, ends[i]);
        int64_t at = xd_st_find(p->files, name);
        if (at >= 0)
            return at;
    }
    return -1;
}

static int is_fp8(xd_dtype t)
{
    return t == XD_F8E4M3 || t == XD_F8E5M2;
}

static xd_status src_scale(void *self, const char *name, float *scale, xd_err *e)
{
    const xd_component *p = self;
    int64_t             w = xd_st_find(p->files, name), i = find_scale(p, name);
    xd_tensor           t;
    *scale = 1;
    if (w < 0 || i < 0 || !is_fp8(xd_quantized_shape(p->quantized, p->files, w).type))
        return XD_OK;
    xd_status s = xd_st_get(p->files, i, &t, e);
    if (s == XD_OK) {
        xd_convert(scale, XD_F32, t.p, t.type, 1);
        xd_st_done(p->files, i);
    }
    return s;
}

/* Refuses an fp8 weight whose scale tensor has more than one element, or an unsupported type. */
static xd_status check_scales(xd_component *p, xd_err *e)
{
    for (int64_t i = 0; i < xd_st_count(p->files); i++) {
        const char *name = xd_st_name(p->files, i);
        xd_dtype    type = xd_quantized_shape(p->quantized, p->files, i).type;
        int64_t     k = is_fp8(type) ? find_scale(p, name) : -1;
        float       scale = 1;
        if (k < 0)
            continue;
        xd_tensor t = xd_st_shape(p->files, k);
        if (xd_count(t) != 1 || (t.type != XD_F32 && t.type != XD_F16 && t.type != XD_BF16))
            return xd_fail(e, XD_EUNSUPPORTED,
                           "%s: the scale %s of an fp8 weight has %lld elements of type %s: one "
                           "of f32, f16 or bf16 is supported",
                           p->file ? p->file : p->dir, xd_st_name(p->files, k),
                           (long long)xd_count(t), xd_st_dtype(p->files, k));
        xd_status s = src_scale(p, name, &scale, e);
        if (s == XD_OK && !isfinite(scale))
            s = xd_fail(e, XD_EFORMAT, "%s: the scale %s is %g", p->file ? p->file : p->dir,
                        xd_st_name(p->files, k), (double)scale);
        if (s != XD_OK)
            return s;
    }
    return XD_OK;
}

/* Names of tensors that ComfyUI and llama.cpp add to weight files. No warning is printed if a
 * tensor with such a name is not used. */
int xd_component_is_note(const char *name)
{
    static const char *const ends[] = { "tekken_model", "spiece_model" };
    size_t                   n = strlen(name);
    if (!strcmp(name, "output.weight") || !strcmp(name, "rope_freqs.weight"))
        return 1; /* names in GGUF files of language models */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t k = strlen(ends[i]);
        if (n >= k && strcmp(name + n - k, ends[i]) == 0)
            return 1;
    }
    return xd_quantized_is_note(name);
}

/* ---- which tensors are read --------------------------------------------------------------- */

/* Marks the tensors of the files that the component declares, under any of a tensor's alternative
 * names. */
static void mark_used(const xd_component *p, const char *names, char *used)
{
    char want[512], have[512];
    for (const char *c = names; c;) {
        size_t n = strcspn(c, "|");
        snprintf(want, sizeof want, "%.*s", (int)n, c);
        for (int i = 0; i < p->nsides; i++)
            if (p->side_names[i] && xd_single_file_name(p->side_names[i], want, have, sizeof have))
                snprintf(want, sizeof want, "%s", have);
        snprintf(have, sizeof have, "%s", want);
        if (!p->single || xd_single_file_name(p->single, want, have, sizeof have)) {
            int64_t i = xd_st_find(p->files, have);
            if (i >= 0)
                used[i] = 1;
        }
        c = c[n] ? c + n + 1 : NULL;
    }
}

/* Warns of tensors in the files that are not used. If a file contains several components, warns
 * only of this component's tensors. */
static void warn_extra(const xd_component *p)
{
    char        text[2048] = "", *used = calloc((size_t)xd_st_count(p->files) + 1, 1);
    const char *prefix = p->single ? xd_single_file_prefix(p->single) : "";
    size_t      at = 0, skip = strlen(prefix);
    int         extra = 0;
    for (int i = 0; used && i < p->nlist; i++)
        mark_used(p, p->list[i].name, used);
    for (int64_t i = 0; used && i < xd_st_count(p->files); i++) {
        const char *name = xd_st_name(p->files, i);
        if (used[i] || strncmp(name, prefix, skip) != 0 || xd_net_unread(p->def, name + skip) ||
            xd_component_is_note(name) || xd_svdquant_owns(p->svdquant, i) ||
            (p->single && xd_single_file_surplus(p->single, name)))
            continue;
        if (extra++ < SHOWN && at < sizeof text) {
            int k = snprintf(text + at, sizeof text - at, "%s%s", at ? ", " : "", name);
            at += k > 0 ? (size_t)k : 0;
        }
    }
    if (extra)
        xd_log(XD_LOG_WARN, "%s: %d tensors are not used: %s%s", p->file ? p->file : p->dir, extra,
               text, extra > SHOWN ? ", ..." : "");
    free(used);
}

xd_status xd_component_set_file(xd_component *p, const char *file, const char *slot, xd_err *e)
{
    p->file = strdup(file);
    p->slot = strdup(slot);
    return p->file && p->slot ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a file name");
}

/* Lists the tensors that the files must have, without those of last blocks that are never run.
 * *list is malloc'ed. */
static xd_status list_needed(xd_component *p, xd_declared **list, int *n, xd_err *e)
{
    xd_err  mine = { 0 };
    xd_decl d = { .visit = XD_VISIT_LIST, .tp = 1, .err = &mine };
    xd_net_visit(&p->w->net, &d);
    *list = d.list;
    *n = d.nlist;
    return mine.code ? xd_fail(e, mine.code, "%s", mine.msg) : XD_OK;
}

xd_status xd_component_list(const xd_component *p, xd_dtype blocks, xd_declared **list, int *n,
                            xd_err *e)
{
    xd_err    mine = { 0 };
    xd_net    net = { 0 };
    xd_decl   d = { .visit = XD_VISIT_LIST,
                    .type = XD_BF16,
                    .blocks = blocks,
                    .tp = 1,
                    .whole = 1,
                    .src = &p->w->src,
                    .err = &mine };
    xd_status s = xd_net_open(&net, p->def, p->config, p->dir, e);
    if (s == XD_OK && xd_net_visit(&net, &d) != XD_OK)
        s = xd_fail(e, mine.code, "%s", mine.msg);
    xd_net_close(&net);
    *list = d.list;
    *n = d.nlist;
    return s;
}

/* Opens the weight source of the files, which has the tensors under the names in the files. */
static xd_status open_raw(xd_component *p, xd_err *e)
{
    const char *what = p->file ? p->file : p->dir;
    p->stored = (xd_source){ src_has, src_get,   src_done, xd_st_mapped(p->files),
                             p,       src_scale, src_past, xd_component_will_read,
                             NULL,    NULL,      src_codes };
    xd_status s = xd_quantized_open(&p->quantized, p->files, what, e);
    if (s == XD_OK)
        s = xd_svdquant_open(&p->svdquant, p->files, &p->stored, what, e);
    p->w->src = p->raw = p->svdquant ? xd_svdquant_source(p->svdquant) : p->stored;
    return s;
}

/* Opens the weight source of the files, which has the tensors under their declared names. The
 * source translates names if `file` is given, or if the names in the folder are not those of
 * diffusers. */
static xd_status open_source(xd_component *p, const xd_declared *needed, int n, xd_err *e)
{
    xd_status s = open_raw(p, e);
    if (s == XD_OK && !p->file && (xd_st_is_gguf(p->files) || p->svdquant))
        s = xd_component_set_file(p, xd_st_path(p->files), p->name, e);
    if (s != XD_OK || !p->file)
        return s == XD_OK ? xd_quantized_check(p->quantized, "", e) : s;
    xd_single_file_of of = { .file = p->file,
                             .config = p->dir,
                             .slot = p->slot,
                             .net = p->def->name,
                             .list = p->list,
                             .nlist = p->nlist,
                             .needed = needed,
                             .nneeded = n,
                             .files = p->files,
                             .raw = &p->raw,
                             .apart = p->nsides ? XD_SIDE_SLOT "." : NULL };
    xd_err            mine = { 0 };
    s = xd_single_file_open(&p->single, &of, &mine);
    if (s == XD_OK)
        p->w->src = xd_single_file_source(p->single);
    /* the layout may be unknown because the file is quantized */
    if (s == XD_OK || s == XD_EUNSUPPORTED) {
        xd_status q =
            xd_quantized_check(p->quantized, s == XD_OK ? xd_single_file_prefix(p->single) : "", e);
        if (q != XD_OK || s == XD_OK)
            return q;
    }
    return xd_fail(e, s, "%s", mine.msg);
}

const char *xd_component_stem(const xd_component *p)
{
    int of_transformers = p->kind == XD_KIND_TEXT && !p->text->reads;
    return of_transformers ? "model" : "diffusion_pytorch_model";
}

xd_status xd_component_files(xd_component *p, xd_err *e)
{
    const char  *what = p->file ? p->file : p->dir;
    xd_declared *needed = NULL;
    int          n = 0;
    if (p->files)
        return XD_OK;
    xd_status s = xd_st_open(&p->files, what, xd_component_stem(p), e);
    int       cut = p->kind == XD_KIND_TEXT && p->w->net.last < p->w->net.nlayers;
    if (s == XD_OK)
        s = join_side_files(p, e);
    if (s == XD_OK && cut)
        s = list_needed(p, &needed, &n, e);
    if (s == XD_OK)
        s = open_source(p, cut ? needed : p->list, cut ? n : p->nlist, e);
    if (s == XD_OK)
        s = check_scales(p, e);
    if (s == XD_OK)
        s = open_side_names(p, e);
    if (s == XD_OK)
        s = open_widened(p, e);
    if (s == XD_OK)
        s = xd_declared_check(cut ? needed : p->list, cut ? n : p->nlist, &p->w->src, what, e);
    if (s == XD_OK)
        warn_extra(p);
    free(needed);
    return s == XD_OK ? s : xd_fail_at(e, s, what);
}

/* ---- weights ------------------------------------------------------------------------------ */

xd_block_sizes xd_component_blocks(const xd_component *p)
{
    if (!p->w)
        return (xd_block_sizes){ 0 };
    return (xd_block_sizes){ p->count->block_bytes + p->count->mapped, p->w->net.first,
                             p->count->blocks_of ? p->w->net.last - p->w->net.first : 0,
                             p->count->blocks_of };
}

size_t xd_component_held_bytes(const xd_component *p)
{
    size_t bytes = p->count->block_bytes;
    int    n = p->w->net.last - p->w->net.first;
    for (int i = 0; i < n && p->w->stream.streamed; i++)
        if (xd_stream_plan_has(&p->w->stream, n, i))
            bytes -= p->count->blocks_of[i] - p->count->mapped_of[i];
    return bytes;
}

/* Returns 1 if the weights are read from a weight source, or 0 if they are random. */
static int has_source(const xd_component *p)
{
    return p->w->src.has != NULL;
}

static xd_decl count_decl(const xd_component *p, xd_dev *count, xd_dtype type, xd_err *e)
{
    return (xd_decl){ .visit = XD_VISIT_COUNT,
                      .dev = count,
                      .type = type,
                      .blocks = p->w->blocks,
                      .tp = p->w->tp,
                      .tp_at = p->w->tp_at,
                      .err = e,
                      .src = has_source(p) ? &p->w->src : NULL,
                      .stays = p->w->stays };
}

/* Counts the memory of the weights for the case that all blocks are streamed from files. The
 * vectors of streamed blocks (biases, norms) are counted, too, because they stay in memory. */
static void count_streamed(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e)
{
    int     n = p->w->net.last - p->w->net.first;
    xd_decl d = count_decl(p, count, type, e);
    d.stays = XD_STAYS_ALL;
    d.blocks_of = calloc(2 * (size_t)n + 1, sizeof *d.blocks_of);
    d.mapped_of = d.blocks_of ? d.blocks_of + n : NULL;
    xd_net_visit(&p->count->shadow, &d);
    for (int i = 0; i < n && d.blocks_of; i++)
        p->count->blocks_of[i] -= d.blocks_of[i];
    free(d.blocks_of);
}

xd_status xd_component_count(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e)
{
    xd_err            mine = { 0 };
    xd_decl           d = count_decl(p, count, type, &mine);
    xd_weight_counts *c = p->count;
    if (c->shadow.def)
        return XD_OK;
    xd_status s = xd_net_open(&c->shadow, p->def, p->config, p->dir, e);
    if (s != XD_OK) {
        xd_net_close(&c->shadow);
        return s;
    }
    c->shadow.first = p->w->net.first;
    c->shadow.last = p->w->net.last;
    free(c->blocks_of);
    c->blocks_of = d.blocks_of = calloc(2 * (size_t)p->w->net.nlayers + 1, sizeof *c->blocks_of);
    c->mapped_of = d.mapped_of = d.blocks_of ? d.blocks_of + p->w->net.nlayers : NULL;
    xd_net_visit(&c->shadow, &d);
    c->block_bytes = d.block_bytes;
    c->mapped = d.mapped;
    c->packed = (xd_dev_identity(count) ? d.block_bytes : d.packed) + d.mapped;
    c->work = d.work[0] + d.work[1] + d.work[2];
    c->host_work = xd_dev_identity(count) ? d.work[1] + d.work[2] : 0;
    c->work -= c->host_work;
    if (p->w->streams && count->host_memory && !mine.code)
        count_streamed(p, count, type, &mine);
    if (mine.code) /* a later request must not use the incomplete memory count */
        xd_net_close(&c->shadow);
    return mine.code ? xd_fail(e, mine.code, "%s", mine.msg) : XD_OK;
}

void xd_component_stage(xd_component *p, int first, int last)
{
    p->w->net.first = first;
    p->w->net.last = last;
    xd_net_close(&p->count->shadow);
}

/* Makes all blocks of the same kind share the weights of the first such block. */
static xd_status alias_layers(xd_net *n, xd_err *e)
{
    for (int i = n->first; i < n->last; i++) {
        const xd_block *b = n->def->block(n->cfg, i);
        for (int k = n->first; k < i && !n->layer[i]; k++) {
            if (n->def->block(n->cfg, k) != b || !n->layer[k])
                continue;
            if (!(n->layer[i] = malloc(b->size + 1)))
                return xd_fail(e, XD_ENOMEM, "no memory for block %d", i);
            memcpy(n->layer[i], n->layer[k], b->size);
        }
    }
    return XD_OK;
}

/* Visits the weights of only the first block of every kind. Frees the structs of the other blocks,
 * which are empty. */
static xd_status visit_kinds(xd_net *n, xd_decl *d)
{
    int last = n->last, first = n->first;
    n->last = first;
    xd_net_visit(n, d);
    const xd_net_def *def = n->def;
    xd_net_def        bare = *def;
    bare.weights = NULL;
    n->def = &bare;
    for (int i = first; i < last; i++) {
        int seen = 0;
        for (int k = first; k < i; k++)
            seen |= def->block(n->cfg, k) == def->block(n->cfg, i);
        n->first = i, n->last = i + 1;
        if (!seen) {
            xd_net_visit(n, d);
        } else {
            free(n->layer[i]);
            n->layer[i] = NULL;
        }
    }
    n->def = def;
    n->first = first, n->last = last;
    return d->err->code;
}

/* Opens a temporary network with this rank's blocks, and counts its weights by visiting them with
 * `d`. */
static xd_status count_own(const xd_component *p, xd_decl *d,
                           xd_status (*visit)(xd_net *n, xd_decl *d), xd_err *e)
{
    xd_net    net = { 0 };
    xd_status s = xd_net_open(&net, p->def, p->config, p->dir, e);
    if (s == XD_OK) {
        net.first = p->w->net.first;
        net.last = p->w->net.last;
        s = visit(&net, d);
        if (s != XD_OK)
            xd_fail(e, s, "%s", d->err->msg);
    }
    xd_net_close(&net);
    return s;
}

xd_status xd_component_count_kinds(xd_component *p, xd_dev *count, xd_dtype type, xd_err *e)
{
    xd_err    mine = { 0 };
    xd_decl   d = count_decl(p, count, type, &mine);
    xd_status s = count_own(p, &d, visit_kinds, e);
    if (s == XD_OK) {
        p->count->packed = d.packed;
        p->count->block_bytes = d.block_bytes;
    }
    return s;
}

void xd_component_list_reads(const xd_component *p, xd_dev *count, xd_dtype type)
{
    xd_err  mine = { 0 };
    xd_decl d = count_decl(p, count, type, &mine);
    d.announces = 1;
    count_own(p, &d, xd_net_visit, NULL);
}

void xd_component_list_block(const xd_component *p, xd_dev *dev, xd_dtype type, int block)
{
    xd_err     mine = { 0 };
    xd_decl    d = count_decl(p, dev, type, &mine);
    xd_net     net = { 0 };
    xd_net_def bare = *p->def;
    d.announces = 1;
    if (xd_net_open(&net, p->def, p->config, p->dir, &mine) == XD_OK) {
        bare.weights = NULL;
        net.def = &bare;
        net.first = p->w->net.first + block;
        net.last = net.first + 1;
        xd_net_visit(&net, &d);
    }
    xd_net_close(&net);
}

/* If the device has its own memory, allocates all weights in one piece of memory, so that the
 * weights need exactly the counted bytes. */
static void open_block(xd_component *p, xd_dev *dev, int share, xd_err *e)
{
    xd_block_sizes   w = xd_component_blocks(p);
    xd_stream_memory m = { .dev = dev, .store = p->w->store, .copy = p->w->group.copy };
    if (share || !p->count->block_bytes)
        return;
    if (m.copy)
        m.part = p->w->group.c->rank, m.parts = p->w->group.c->size;
    if (!xd_dev_identity(dev)) {
        if (p->w->stream.streamed && p->files)
            xd_weight_stream_files(&p->w->net.stream, &p->w->stream, &w, xd_component_stream_next,
                                   p->w, e);
        return;
    }
    if (p->w->stream.streamed)
        xd_weight_stream_open(&p->w->net.stream, &p->w->stream, &w, &m, e);
    else if (!xd_store_own_block(p->w->store, p->count->block_bytes, 0))
        xd_fail(e, XD_ENOMEM, "out of memory on %s: cannot allocate %s for weights", dev->name,
                xd_size_text((double)p->count->block_bytes).s);
}

/* Fills the component's weight store, which is open, with weights from the files or with random
 * weights. */
static xd_status fill_store(xd_component *p, xd_dev *dev, xd_dtype type, int share, xd_err *e)
{
    xd_err mine = { 0 };
    if (!dev->counts)
        open_block(p, dev, share, &mine);
    xd_decl d = { .visit = has_source(p) ? XD_VISIT_LOAD : XD_VISIT_RANDOM,
                  .dev = dev,
                  .type = type,
                  .blocks = p->w->blocks,
                  .src = has_source(p) ? &p->w->src : NULL,
                  .tp = p->w->tp,
                  .tp_at = p->w->tp_at,
                  .stays = p->w->stays,
                  .store = p->w->store,
                  .err = &mine };
    if (mine.code || dev->counts) {
        /* after an error, and on a count device, no weight is visited */
    } else if (share && !has_source(p)) {
        visit_kinds(&p->w->net, &d);
        if (mine.code == XD_OK)
            alias_layers(&p->w->net, &mine);
    } else {
        xd_net_visit(&p->w->net, &d);
    }
    xd_store_trim(p->w->store);
    snprintf(p->w->nonfinite, sizeof p->w->nonfinite, "%s", d.nonfinite);
    if (d.nnonfinite > 1)
        xd_log(XD_LOG_WARN, "%s: %d more weights hold NaN or infinite numbers", p->name,
               d.nnonfinite - 1);
    if (mine.code)
        xd_fail(e, mine.code, "%s: %s", p->name, mine.msg);
    return p->w->group.c ? xd_shared_weights_agree(p, mine.code, e) : mine.code;
}

static xd_status load_weights(xd_component *p, xd_status s, xd_dev *dev, xd_dtype type, int share,
                              xd_err *e)
{
    if (p->w->store)
        return s;
    double t0 = xd_now_s();
    xd_err mine = { .rank = -1 };
    if (s == XD_OK)
        s = xd_store_open(&p->w->store, dev, &mine);
    else
        mine = *e;
    if (p->w->group.c)
        s = xd_shared_weights_open(p, dev, s, &mine);
    if (s == XD_OK)
        s = fill_store(p, dev, type, share, &mine);
    xd_component_prefetch_end(p);
    if (s == XD_OK && p->w->net.stream && !xd_dev_identity(dev))
        xd_component_stream_open(p, dev, type);
    if (s != XD_OK) {
        /* after XD_ECOMM, freeing shared memory would wait for the other ranks */
        if (s != XD_ECOMM)
            xd_component_drop(p);
        xd_fail(e, s, "%s", mine.msg);
        if (e)
            e->rank = mine.rank;
        return s;
    }
    xd_log(XD_LOG_DEBUG, "%s: %.1f MB of weights%s in %.3f s", p->name,
           (double)xd_store_bytes(p->w->store) / 1e6,
           p->w->shared       ? ", one copy for this host"
           : p->w->group.copy ? ", one copy of streamed blocks for this host"
                              : "",
           xd_now_s() - t0);
    return XD_OK;
}

xd_status xd_component_load(xd_component *p, xd_dev *dev, xd_dtype type, int share, xd_err *e)
{
    return load_weights(p, XD_OK, dev, type, share, e);
}

xd_status xd_component_load_after(xd_component *p, xd_status s, xd_dev *dev, xd_dtype type,
                                  xd_err *e)
{
    return load_weights(p, s, dev, type, 0, e);
}

void xd_component_drop(xd_component *p)
{
    if (!p->w)
        return;
    xd_component_prefetch_end(p);
    xd_component_stream_close(p);
    xd_weight_stream_close(&p->w->net.stream);
    xd_store_close(&p->w->store);
    xd_shared_weights_close(p);
    if (p->w->stays == XD_STAYS_NONE && !p->w->streams)
        xd_st_release(p->files); /* no set of weights reads the files in place any more */
    for (int i = 0; i < p->w->net.nlayers && p->w->net.layer; i++) {
        free(p->w->net.layer[i]);
        p->w->net.layer[i] = NULL;
    }
    if (p->w->net.glob)
        memset(p->w->net.glob, 0, p->def->glob_size);
}

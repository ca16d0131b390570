/* models.c - see models.h */
#include "models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "families/family.h"
#include "published.h"

enum { MB = 1 << 20, MAXFILE = 64 * MB };

const golden_model golden[NGOLDEN] = {
    { "alpha", "tests/golden/alpha", 1 }, { "micro", "tests/golden/micro", 1 },
    { "sigma", "tests/golden/sigma", 1 }, { "bins", "tests/golden/bins", 0 },
    { "demo", "models/demo-pixart", 0 },
};

/* ---- a component -------------------------------------------------------------------------- */

static int has_class(const xd_net_def *d, const char *name)
{
    for (int i = 0; i < 6 && d->classes[i]; i++)
        if (strcmp(d->classes[i], name) == 0)
            return 1;
    return 0;
}

const xd_net_def *find(part *p, const char *name)
{
    for (int i = 0; xd_text_encoders[i]; i++)
        if (has_class(&xd_text_encoders[i]->net, name))
            return &(p->text = xd_text_encoders[i])->net;
    for (int i = 0; xd_dit_at(i); i++)
        if (has_class(&xd_dit_at(i)->net, name))
            return &(p->dit = xd_dit_at(i))->net;
    for (int i = 0; xd_vaes[i]; i++)
        if (has_class(&xd_vaes[i]->net, name))
            return &(p->vae = xd_vaes[i])->net;
    for (int i = 0; xd_upsamplers[i]; i++)
        if (has_class(&xd_upsamplers[i]->net, name))
            return &(p->upsampler = xd_upsamplers[i])->net;
    for (int i = 0; xd_audios[i]; i++)
        if (has_class(&xd_audios[i]->net, name))
            return &(p->audio = xd_audios[i])->net;
    fail_msg("no network understands %s", name);
    return NULL;
}

void ok(xd_status s, const xd_err *e)
{
    if (s != XD_OK || e->code != XD_OK)
        fail_msg("%s: %s", xd_status_name(s), e->msg);
}

void open_config(part *p, const char *dir)
{
    char   path[1100];
    xd_err e = { 0 };
    memset(p, 0, sizeof *p);
    snprintf(path, sizeof path, "%s/config.json", dir);
    ok(xd_json_read(&p->config, path, &e), &e);
    const char *name = xd_json_text(xd_json_get(p->config, "_class_name"));
    if (!name)
        name = xd_json_text(xd_json_at(xd_json_get(p->config, "architectures"), 0));
    ok(xd_net_open(&p->net, find(p, name ? name : "T5EncoderModel"), p->config, path, &e), &e);
}

static int src_has(void *self, const char *name, xd_tensor *shape)
{
    const part *p = self;
    int64_t     i = xd_st_find(p->st, name);
    if (i >= 0)
        *shape = xd_st_shape(p->st, i);
    return i >= 0;
}

static xd_status src_get(void *self, const char *name, xd_tensor *t, xd_err *e)
{
    part   *p = self;
    int64_t i = xd_st_find(p->st, name);
    return i < 0 ? xd_fail(e, XD_EFORMAT, "no %s", name) : xd_st_get(p->st, i, t, e);
}

static void src_done(void *self, const char *name)
{
    part *p = self;
    xd_st_done(p->st, xd_st_find(p->st, name));
}

void open_files(part *p, const char *dir)
{
    xd_err e = { 0 };
    ok(xd_st_open(&p->st, dir, p->dit ? "diffusion_pytorch_model" : "model", &e), &e);
    p->src = (xd_source){
        .has = src_has, .get = src_get, .done = src_done, .in_place = xd_st_mapped(p->st), .self = p
    };
}

void visit(part *p, xd_dev *dev, xd_dtype type, xd_visit how, xd_decl *out)
{
    xd_err e = { 0 };
    if (how != XD_VISIT_COUNT && how != XD_VISIT_LIST)
        ok(xd_store_open(&p->store, dev, &e), &e);
    *out = (xd_decl){ .visit = how,
                      .dev = dev,
                      .type = type,
                      .blocks = p->blocks,
                      .src = p->st ? &p->src : NULL,
                      .tp = 1,
                      .store = p->store,
                      .err = &e };
    ok(xd_net_visit(&p->net, out), &e);
    out->err = NULL;
}

void close_part(part *p)
{
    xd_net_close(&p->net);
    xd_store_close(&p->store);
    xd_st_close(&p->st);
    xd_json_free(&p->config);
}

/* ---- looking between the blocks ----------------------------------------------------------- */

static struct spy {
    const xd_net_def *real;
    xd_net_def        def;
    xd_block          block;
    seen_fn           seen;
    void             *cookie;
} spy;

static void spy_forward(xd_exec *x, const xd_net *n, const void *w, xd_state *s)
{
    spy.real->block(n->cfg, x->layer)->forward(x, n, w, s);
    spy.seen(spy.cookie, x, x->layer, s);
}

static const xd_block *spy_block(const void *cfg, int layer)
{
    spy.block = *spy.real->block(cfg, layer);
    spy.block.forward = spy_forward;
    return &spy.block;
}

void watch(part *p, seen_fn seen, void *cookie)
{
    spy.real = p->net.def;
    spy.def = *spy.real;
    spy.def.block = spy_block;
    spy.seen = seen;
    spy.cookie = cookie;
    p->net.def = &spy.def;
}

/* ---- a device and room -------------------------------------------------------------------- */

void open_bench(bench *b, xd_dtype want, int counts)
{
    xd_err e = { 0 };
    memset(b, 0, sizeof *b);
    ok(xd_dev_open(&b->real, "cpu", &e), &e);
    b->type = xd_dev_compute(b->real, want);
    b->dev = b->real;
    if (counts) {
        ok(xd_dev_open_count(&b->dev, b->real, &e), &e);
        xd_arena_init(&b->tmp, (void *)(uintptr_t)XD_ALIGN, SIZE_MAX / 4);
        return;
    }
    b->mem = b->dev->mem->get(b->dev, 64 * MB);
    assert_non_null(b->mem);
    xd_arena_init(&b->tmp, b->mem, 64 * MB);
}

void close_bench(bench *b)
{
    if (b->mem)
        b->dev->mem->put(b->dev, b->mem, 64 * MB);
    if (b->dev != b->real)
        xd_dev_close(&b->dev);
    xd_dev_close(&b->real);
}

/* ---- reference values --------------------------------------------------------------------- */

float *reference(xd_st *g, const char *name, xd_tensor *shape)
{
    xd_err    e = { 0 };
    xd_tensor t;
    int64_t   i = xd_st_find(g, name);
    if (i < 0)
        fail_msg("the golden file has no %s", name);
    ok(xd_st_get(g, i, &t, &e), &e);
    float *v = malloc(xd_bytes(t) + 1);
    assert_non_null(v);
    if (t.type == XD_I32)
        memcpy(v, t.p, xd_bytes(t));
    else
        xd_convert(v, XD_F32, t.p, t.type, xd_count(t));
    if (shape)
        *shape = t;
    return v;
}

void near(const char *what, const float *got, const float *want, int64_t n, double tol)
{
    double top = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        if (d > worst || isnan(d)) /* a NaN stays */
            worst = d;
        top = fmax(top, fabs((double)want[i]));
    }
    if (!(worst <= tol * top))
        fail_msg("%s is off by %g of its largest value %g, allowed %g", what, worst / top, top,
                 tol);
}

void compare_block(void *cookie, xd_exec *x, int layer, xd_state *s)
{
    watcher  *w = cookie;
    char      name[64];
    xd_tensor t;
    snprintf(name, sizeof name, "%s.%d", w->prefix, layer);
    float *want = reference(w->g, name, &t), *got = malloc(xd_bytes(s->h) + 1);
    assert_non_null(got);
    assert_int_equal(s->h.d[0], t.d[0]);
    assert_int_equal(s->h.d[1], t.d[1]);
    xd_get(x, got, s->h);
    near(name, got, want, xd_count(s->h), w->tol);
    w->seen++;
    free(got), free(want);
}

/* ---- what is declared --------------------------------------------------------------------- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int split_lines(char *text, char **line, int max)
{
    int n = 0;
    for (char *p = strtok(text, "\n"); p && n < max; p = strtok(NULL, "\n"))
        line[n++] = p;
    return n;
}

/* Lists what files of a network hold under their first names; what nothing reads is what a warning
 * of unknown tensors leaves out. */
static void list_whole(xd_net *n, xd_decl *d)
{
    xd_err e = { 0 };
    *d = (xd_decl){ .visit = XD_VISIT_LIST, .whole = 1, .tp = 1, .err = &e };
    ok(xd_net_visit(n, d), &e);
    for (int i = 0; i < d->nlist; i++) {
        d->list[i].name[strcspn(d->list[i].name, "|")] = 0;
        assert_int_equal(d->list[i].unread, xd_net_unread(n->def, d->list[i].name));
    }
    d->err = NULL;
}

static void check_listing(const char *dir)
{
    enum { MAXLINES = 8192 };
    static char *want[MAXLINES], *got[MAXLINES];
    static char  buf[MAXLINES][640];
    char         path[1100], shape[96], *text;
    part         p;
    xd_decl      d;
    xd_err       e = { 0 };
    size_t       len;

    snprintf(path, sizeof path, "%s/tensors.txt", dir);
    ok(xd_file_read(path, MAXFILE, &text, &len, &e), &e);
    int n = split_lines(text, want, MAXLINES);
    open_config(&p, dir);
    list_whole(&p.net, &d);
    for (int i = 0; i < d.nlist && i < MAXLINES; i++)
        snprintf(got[i] = buf[i], sizeof buf[i], "%s %s", d.list[i].name,
                 xd_shape_text(d.list[i].nd, d.list[i].d, shape, sizeof shape));
    qsort(want, (size_t)n, sizeof *want, by_text);
    qsort(got, (size_t)d.nlist, sizeof *got, by_text);
    for (int i = 0; i < n && i < d.nlist; i++)
        if (strcmp(want[i], got[i]) != 0)
            fail_msg("%s: expected '%s', declared '%s'", dir, want[i], got[i]);
    assert_int_equal(n, d.nlist);
    assert_true(n > 0);
    xd_decl_free(&d);
    close_part(&p);
    free(text);
}

void published(const char *const *dirs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *dir = published_path(dirs[i]);
        if (dir)
            check_listing(dir);
    }
}

void check_tree(const char *room)
{
    char path[1024];
    for (int i = 0; i < NGOLDEN; i++) {
        part    p;
        xd_decl d;
        xd_err  e = { 0 };
        snprintf(path, sizeof path, "%s/%s", golden[i].model, room);
        open_config(&p, path);
        open_files(&p, path);
        visit(&p, NULL, XD_F32, XD_VISIT_LIST, &d);
        ok(xd_declared_check(d.list, d.nlist, &p.src, path, &e), &e);
        assert_int_equal(d.nlist, xd_st_count(p.st));
        xd_decl_free(&d);
        close_part(&p);
    }
}

void declares(const char *class_name, const char *config, int tensors, int64_t numbers)
{
    part     p = { 0 };
    xd_decl  d;
    xd_err   e = { 0 };
    xd_json *j;
    int64_t  sum = 0;
    ok(xd_json_parse(&j, config, strlen(config), "config", &e), &e);
    ok(xd_net_open(&p.net, find(&p, class_name), j, "config", &e), &e);
    visit(&p, NULL, XD_F32, XD_VISIT_LIST, &d);
    for (int i = 0; i < d.nlist; i++)
        sum += xd_count(xd_view(NULL, XD_F32, d.list[i].nd, d.list[i].d));
    assert_int_equal(d.nlist, tensors);
    assert_int_equal(sum, numbers);
    xd_decl_free(&d);
    xd_net_close(&p.net);
    xd_json_free(&j);
}

/* ---- what is refused ---------------------------------------------------------------------- */

void refuses(const char *class_name, const char *config, xd_status code, const char *word)
{
    part     p = { 0 };
    xd_err   e = { 0 };
    xd_json *j;
    ok(xd_json_parse(&j, config, strlen(config), "config", &e), &e);
    xd_status s = xd_net_open(&p.net, find(&p, class_name), j, "config", &e);
    if (s != code || !strstr(e.msg, word))
        fail_msg("%s: expected '%s' in an error of '%s', got '%s': %s", config, word,
                 xd_status_name(code), xd_status_name(s), e.msg);
    xd_net_close(&p.net);
    xd_json_free(&j);
}

xd_tensor given(xd_exec *x, xd_st *st, const char *name)
{
    xd_tensor shape, none = { 0 };
    if (xd_st_find(st, name) < 0)
        return none;
    float    *v = reference(st, name, &shape);
    xd_tensor t = xd_new_f32(x, shape.d[0], shape.nd > 1 ? shape.d[1] : 1);
    xd_put(x, t, v);
    free(v);
    return t;
}

xd_st *open_form(const char *forms, const char *name, xd_dtype want, part *p, bench *b,
                 xd_dit_info *info, xd_exec *x)
{
    char    path[256];
    xd_st  *st = NULL;
    xd_decl d;
    xd_err  e = { 0 };
    snprintf(path, sizeof path, "tests/golden/%s/%s", forms, name);
    open_config(p, path);
    snprintf(path, sizeof path, "tests/golden/%s/%s/golden.safetensors", forms, name);
    ok(xd_st_open(&st, path, "model", &e), &e);
    open_bench(b, want, 0);
    visit(p, b->dev, b->type, XD_VISIT_RANDOM, &d);
    p->dit->info(p->net.cfg, info);
    xd_exec_init(x, b->dev, &b->tmp, b->type);
    return st;
}

/* A number of a form; none where the file has none of this name. */
static double number_of(xd_st *st, const char *name, int i, double none)
{
    if (xd_st_find(st, name) < 0)
        return none;
    float *v = reference(st, name, NULL);
    double one = (double)v[i];
    free(v);
    return one;
}

/* Runs the blocks; returns the network's output. */
static xd_tensor run_blocks(const part *p, xd_exec *x, const xd_input *in, xd_state *s, void *kept,
                            void (*seen)(xd_exec *x, xd_tensor h, int64_t ntxt))
{
    if (p->dit->keep)
        p->dit->keep(x, &p->net, in->cond, kept);
    if (p->dit->read)
        p->dit->read(x, &p->net, in, kept);
    p->dit->cond(x, &p->net, in, s);
    p->dit->embed(x, &p->net, in, s);
    for (int i = 0; i < p->net.nlayers; i++) {
        x->layer = i;
        xd_dit_block(x, p->dit, &p->net, i, s);
    }
    if (seen)
        seen(x, s->h, in->txt.nd ? in->txt.d[0] : 0);
    return p->dit->head(x, &p->net, s);
}

static void run_form(const char *form, xd_dtype want,
                     void (*seen)(xd_exec *x, xd_tensor h, int64_t ntxt))
{
    part        p;
    bench       b;
    xd_exec     x;
    xd_dit_info info;
    xd_tensor   shape;
    char        folder[64];
    const char *at = strchr(form, '/');
    double      scales[8];
    assert_non_null(at);
    snprintf(folder, sizeof folder, "%.*s", (int)(at - form), form);
    xd_st *st = open_form(folder, at + 1, want, &p, &b, &info, &x);
    float *out = reference(st, "out", &shape), *got = malloc((size_t)xd_count(shape) * sizeof *got);
    float *face = info.face_size ? reference(st, "face", NULL) : NULL;
    xd_cond   c = { .tok = given(&x, st, "text"),
                    .real = { 0, (int64_t)number_of(st, "real", 0, 0) } };
    int64_t   ntxt = info.txt_flows ? c.tok.d[0] : 0;
    xd_grid   size = { (int64_t)number_of(st, "ref_size", 0, 0),
                       (int64_t)number_of(st, "ref_size", 1, 0) };
    xd_layout lay = { .len = { shape.d[0], ntxt, size.rows * size.cols },
                      .npatch = 1,
                      .nsp = 1,
                      .nrefs = size.rows > 0,
                      .refs = &size };
    xd_input  in = { .lat = given(&x, st, "latents"),
                     .extra = given(&x, st, "extra"),
                     .ref = given(&x, st, "ref"),
                     .cond = &c,
                     .txt = info.txt_flows ? c.tok : (xd_tensor){ 0 },
                     .t = number_of(st, "time", 0, 0),
                     .held = (int64_t)number_of(st, "held", 0, 0),
                     .fps = number_of(st, "fps", 0, 0),
                     .hint_scales = info.hints ? scales : NULL,
                     .face = info.face_size ? face : NULL,
                     .guidance = (double)NAN };
    for (int i = 0; i < 3; i++) {
        lay.grid[i] = (int64_t)number_of(st, "grid", i, 0);
        in.step[i] = number_of(st, "step", i, 0);
    }
    for (int i = 0; i < info.hints; i++)
        scales[i] = number_of(st, "scales", i, 0);
    assert_int_equal(info.extra_ch > 0, in.extra.p != NULL);
    void    *kept = calloc(1, info.kept_size);
    xd_state s = { .h = xd_new_f32(&x, xd_own_rows(&lay, XD_ALL, 0), xd_dit_width(&info)),
                   .kept = kept,
                   .local = calloc(1, info.local_size) };
    x.lay = &lay;
    xd_get(&x, got, run_blocks(&p, &x, &in, &s, kept, seen));
    ok(x.err.code, &x.err);
    near(form, got, out, xd_count(shape), want == XD_F32 ? 2e-4 : 3e-2);
    free(out), free(got), free(face), free(s.local), free(kept);
    xd_st_close(&st);
    close_part(&p);
    close_bench(&b);
}

void run_forms(const char *const *forms, size_t n, xd_dtype want,
               void (*seen)(xd_exec *x, xd_tensor h, int64_t ntxt))
{
    for (size_t i = 0; i < n; i++)
        run_form(forms[i], want, seen);
}

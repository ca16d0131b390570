/* test_demo.c - the demo checkpoint generates what it is asked for.
 *
 *     test_demo DIR MODEL
 *     test_demo DIR MODEL IMAGES
 *
 * DIR is tests/golden with demo_prompts.json and demo_sheet.png (tools/demo_reference.py), MODEL
 * is models/demo-pixart. Two promises: the twelve images of the sheet come out as diffusers
 * generates them (f32, at most 2 levels apart), and of 24 prompts that use every colour as
 * foreground and as background at least 22 come out in their colours, in f32 and in bf16; in f32
 * each of them in the colours that diffusers generated, right or wrong. Weights in int8 and in
 * fp8, the text's too, keep the second promise.
 *
 * IMAGES is a directory where others have generated the 24 prompts, 01.png to 24.png, in f32
 * with PipeFusion's stale keys and values: they are held to what diffusers generates with such
 * (test_stale.c compares numbers; here a whole launch is). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "demo.h"
#include "io/image.h"

enum { MINRIGHT = 22, MAXLEVELS = 2, MAXCOLOUR = 32, MIDDLE = 16, RIM = 8 };

static const xd_json *plan; /* demo_prompts.json */

/* ---- the sheet ---------------------------------------------------------------------------- */

static void check_sheet(xd_engine *g, const char *dir)
{
    char           path[1024];
    xd_err         e = { 0 };
    uint8_t       *rgb = NULL;
    int64_t        w = 0, h = 0, side = (int64_t)js_num(plan, "size");
    int64_t        across = (int64_t)js_num(plan, "across");
    const xd_json *list = js_list(plan, "sheet");
    int            n = xd_json_size(list);
    snprintf(path, sizeof path, "%s/demo_sheet.png", dir);
    must(xd_image_read(path, &rgb, &w, &h, &e), &e, path);
    if (!tap(w == across * side && h == (n + across - 1) / across * side,
             "the sheet has %d images of %lld pixels", n, (long long)side))
        n = 0;
    for (int i = 0; i < n; i++) {
        const xd_json  *p = xd_json_at(list, i);
        xd_result      *out = demo_generate(g, plan, p);
        const xd_image *m = out ? xd_result_image(out, 0) : NULL;
        ref             want = demo_cell(rgb, w, side, i / across, i % across);
        int             gap = m ? levels_apart(m->data, m->height, m->width, &want) : 256;
        tap(gap <= MAXLEVELS, "sheet, %s: %d of at most %d levels", js_text(p, "prompt"), gap,
            MAXLEVELS);
        ref_free(&want);
        xd_result_free(&out);
    }
    free(rgb);
}

/* ---- the colours -------------------------------------------------------------------------- */

static int in_middle(const xd_image *m, int64_t y, int64_t x)
{
    return llabs(2 * y + 1 - m->height) <= MIDDLE && llabs(2 * x + 1 - m->width) <= MIDDLE;
}

static int in_rim(const xd_image *m, int64_t y, int64_t x)
{
    return y < RIM || x < RIM || y >= m->height - RIM || x >= m->width - RIM;
}

/* Median of one channel over the pixels of a region. */
static double median(const xd_image *m, int c, int (*in)(const xd_image *, int64_t, int64_t))
{
    int64_t  n = 0;
    uint8_t *v = malloc((size_t)(m->height * m->width) + 1);
    for (int64_t y = 0; v && y < m->height; y++)
        for (int64_t x = 0; x < m->width; x++)
            if (in(m, y, x))
                v[n++] = m->data[(y * m->width + x) * 3 + c];
    double mid = demo_median(v, n);
    free(v);
    return mid;
}

/* Name of the colour of the table nearest to the medians of a region. */
static const char *colour(const xd_image *m, int (*in)(const xd_image *, int64_t, int64_t))
{
    double rgb[3];
    for (int c = 0; c < 3; c++)
        rgb[c] = median(m, c, in);
    return demo_colour(plan, rgb);
}

/* Are these the colours that the reference generated? */
static int is_like(const xd_json *p, const char *reference, const char *centre, const char *rim)
{
    const xd_json *was = js_list(p, reference);
    const char    *c = xd_json_text(xd_json_at(was, 0)), *r = xd_json_text(xd_json_at(was, 1));
    return c && r && strcmp(c, centre) == 0 && strcmp(r, rim) == 0;
}

typedef struct tally { int n, right, same, wanted; } tally; /* wanted: the reference's right */

/* m NULL: there is no image. */
static void look(tally *t, const xd_json *p, const xd_image *m, const char *reference)
{
    const char *centre = m ? colour(m, in_middle) : "none", *rim = m ? colour(m, in_rim) : "none";
    const char *front = js_text(p, "centre"), *behind = js_text(p, "rim");
    if (strcmp(centre, front) == 0 && strcmp(rim, behind) == 0)
        t->right++;
    else
        tap_note("%s, seed %.0f: %s on %s", js_text(p, "prompt"), js_num(p, "seed"), centre, rim);
    t->n++;
    t->same += is_like(p, reference, centre, rim);
    t->wanted += is_like(p, reference, front, behind);
}

static void check_colours(xd_engine *g, const char *dtype)
{
    const xd_json *list = js_list(plan, "colour_prompts");
    int            n = xd_json_size(list);
    tally          t = { 0 };
    for (int i = 0; i < n; i++) {
        const xd_json *p = xd_json_at(list, i);
        xd_result     *out = demo_generate(g, plan, p);
        if (i == 0 && out && strcmp(tap_dtype(out, dtype), dtype) != 0) {
            tap_note("so %s would be a second run of f32: left out", dtype);
            xd_result_free(&out);
            return;
        }
        look(&t, p, out ? xd_result_image(out, 0) : NULL, "diffusers");
        xd_result_free(&out);
    }
    tap(n == 24 && t.right >= MINRIGHT, "%s: %d of %d prompts in their colours, at least %d", dtype,
        t.right, n, MINRIGHT);
    if (strcmp(dtype, "f32") == 0)
        tap(t.same == n, "f32: %d of %d in the colours that diffusers generated", t.same, n);
}

/* In what the machine computes best; text too. */
static void check_kept(const char *model, const char *kept)
{
    xd_err         e = { 0 };
    xd_engine     *g = NULL;
    xd_open_args   a = { .size = sizeof a,
                         .model = model,
                         .device = "cpu",
                         .keep = 1,
                         .weights_dtype = kept,
                         .text_weights_dtype = kept,
                         .dtype = tap_only_bf16() ? "bf16" : NULL };
    const xd_json *list = js_list(plan, "colour_prompts");
    int            n = xd_json_size(list);
    tally          t = { 0 };
    if (tap(xd_open(&g, &a, &e) == XD_OK, "the demo opens with weights in %s%s", kept, e.msg))
        for (int i = 0; i < n; i++) {
            xd_result  *out = demo_generate(g, plan, xd_json_at(list, i));
            const char *json = out ? xd_result_json(out, 0) : NULL;
            char        says[64];
            snprintf(says, sizeof says, "\"weights_dtype\": \"%s\"", kept);
            if (i == 0)
                tap(json && strstr(json, says), "its images say so");
            look(&t, xd_json_at(list, i), out ? xd_result_image(out, 0) : NULL, "diffusers");
            xd_result_free(&out);
        }
    tap(n == 24 && t.right >= MINRIGHT, "%s: %d of %d prompts in their colours, at least %d", kept,
        t.right, n, MINRIGHT);
    xd_close(&g);
}

static void check_images(const char *dir)
{
    const xd_json *list = js_list(plan, "colour_prompts");
    int            n = xd_json_size(list);
    int64_t        side = (int64_t)js_num(plan, "size");
    tally          t = { 0 };
    for (int i = 0; i < n; i++) {
        char     path[1024];
        xd_err   e = { 0 };
        xd_image m = { .frames = 1, .channels = 3 };
        uint8_t *rgb = NULL;
        snprintf(path, sizeof path, "%s/%02d.png", dir, i + 1);
        must(xd_image_read(path, &rgb, &m.width, &m.height, &e), &e, path);
        tap(m.width == side && m.height == side, "%s has %lld x %lld pixels", path, (long long)side,
            (long long)side);
        m.data = rgb;
        look(&t, xd_json_at(list, i), &m, "stale");
        free(rgb);
    }
    tap(n == 24 && t.right >= t.wanted && t.wanted >= MINRIGHT,
        "%d of %d prompts in their colours, "
        "as many as diffusers with stale keys and values (%d)",
        t.right, n, t.wanted);
    tap(t.same == n, "%d of %d in the colours that it generated", t.same, n);
}

/* Every colour stands once or more in front and once or more behind. */
static void check_plan(void)
{
    const xd_json *list = js_list(plan, "colour_prompts");
    int            front = 0, behind = 0, n = 0;
    for (const xd_json *t = xd_json_first(js_list(plan, "colours")); t; t = xd_json_next(t), n++) {
        int f = 0, b = 0;
        for (const xd_json *p = xd_json_first(list); p; p = xd_json_next(p)) {
            f |= strcmp(js_text(p, "centre"), xd_json_key(t)) == 0;
            b |= strcmp(js_text(p, "rim"), xd_json_key(t)) == 0;
        }
        front += f;
        behind += b;
    }
    tap(n == 12 && front == n && behind == n,
        "of %d colours %d are asked for in front and %d behind", n, front, behind);
}

int main(int argc, char **argv)
{
    static const char *const dtypes[] = { "f32", "bf16" };
    char                     path[1024];
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: %s DIR MODEL [IMAGES]\n", argv[0]);
        return 2;
    }
    if (tap_skip_isa())
        return 0;
    snprintf(path, sizeof path, "%s/demo_prompts.json", argv[1]);
    xd_json *j = js_open(path);
    plan = j;
    check_plan();
    if (argc == 4)
        check_images(argv[3]);
    for (int i = tap_only_bf16(); i < 2 && argc == 3; i++) {
        xd_err       e = { 0 };
        xd_engine   *g = NULL;
        xd_open_args a = {
            .size = sizeof a, .model = argv[2], .dtype = dtypes[i], .device = "cpu", .keep = 1
        };
        if (tap(xd_open(&g, &a, &e) == XD_OK, "the demo opens in %s%s", dtypes[i], e.msg)) {
            if (i == 0)
                check_sheet(g, argv[1]);
            check_colours(g, dtypes[i]);
        }
        xd_close(&g);
    }
    for (int i = 0; i < 2 && argc == 3; i++)
        check_kept(argv[2], i ? "fp8" : "int8");
    xd_json_free(&j);
    return tap_end();
}

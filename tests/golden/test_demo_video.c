/* test_demo_video.c - the video demo generates what it is asked for, and it moves.
 *
 *     test_demo_video DIR MODEL
 *
 * DIR is tests/golden with demo_video.json and demo_video_sheet.png (made by
 * tools/demo_video_reference.py), MODEL is models/demo-video. Two promises: the videos of the sheet
 * come out as diffusers generates them (f32, at most 2 levels apart), and of 20 prompts at least
 * MINRIGHT come out with their colour, background and direction, in f32, in bf16 and with weights
 * in int8; in f32 each of them as diffusers generated it, right or wrong. What is seen in a video
 * is measured in its pixels alone: the background is the median of the rim, the shape is what is
 * far from it, its colour a median, its direction where its middle goes from the first frame to
 * the last. That the measure is none of the prompt's, videos say that run backwards, or stand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "demo.h"
#include "io/image.h"

enum { MINRIGHT = 17, PROMPTS = 20, MAXLEVELS = 2, COLOUR = 0, BACK, SHAPE, DIRECTION, SEEN };

static const char *const keys[SEEN] = { "colour", "background", "shape", "direction" };
static const xd_json    *plan; /* demo_video.json */

/* ---- the sheet ---------------------------------------------------------------------------- */

static void check_sheet(xd_engine *g, const char *dir)
{
    char           path[1024];
    xd_err         e = { 0 };
    uint8_t       *rgb = NULL;
    int64_t        w = 0, h = 0, side = (int64_t)js_num(plan, "size");
    int64_t        frames = (int64_t)js_num(plan, "frames"), n = (int64_t)js_num(plan, "sheet");
    const xd_json *list = js_list(plan, "prompts");
    snprintf(path, sizeof path, "%s/demo_video_sheet.png", dir);
    must(xd_image_read(path, &rgb, &w, &h, &e), &e, path);
    if (!tap(w == frames * side && h == n * side && n > 0,
             "the sheet has %lld videos of %lld "
             "frames",
             (long long)n, (long long)frames))
        n = 0;
    for (int i = 0; i < n; i++) {
        const xd_json  *p = xd_json_at(list, i);
        xd_result      *out = demo_generate(g, plan, p);
        const xd_image *m = out ? xd_result_image(out, 0) : NULL;
        int             gap = m && m->frames == frames ? 0 : 256;
        for (int64_t t = 0; gap < 256 && t < frames; t++) {
            ref want = demo_cell(rgb, w, side, i, t);
            int far =
                levels_apart(m->data + t * m->height * m->width * 3, m->height, m->width, &want);
            gap = far > gap ? far : gap;
            ref_free(&want);
        }
        tap(gap <= MAXLEVELS, "sheet, %s: %d of at most %d levels", js_text(p, "prompt"), gap,
            MAXLEVELS);
        xd_result_free(&out);
    }
    free(rgb);
}

/* ---- what is in a video ------------------------------------------------------------------- */

/* Median of one channel over the pixels whose mark is `in`; -1 where there is none. */
static double median(const xd_image *m, int c, const uint8_t *mark, int in)
{
    int64_t  n = 0, all = m->frames * m->height * m->width;
    uint8_t *v = malloc((size_t)all + 1);
    for (int64_t i = 0; v && i < all; i++)
        if (mark[i] == in)
            v[n++] = m->data[i * 3 + c];
    double mid = demo_median(v, n);
    free(v);
    return mid;
}

/* Marks 1 for the rim, 2 for the shape: pixels that are far from the rim's colour, which is
 * returned in `back`. */
static void mark_pixels(const xd_image *m, uint8_t *mark, double *back)
{
    int64_t rim = (int64_t)js_num(plan, "rim"), h = m->height, w = m->width;
    double  far = js_num(plan, "far");
    for (int64_t i = 0; i < m->frames * h * w; i++) {
        int64_t y = i / w % h, x = i % w;
        mark[i] = y < rim || x < rim || y >= h - rim || x >= w - rim;
    }
    for (int c = 0; c < 3; c++)
        back[c] = median(m, c, mark, 1);
    for (int64_t i = 0; i < m->frames * h * w; i++) {
        double d = 0;
        for (int c = 0; c < 3; c++)
            d += (m->data[i * 3 + c] - back[c]) * (m->data[i * 3 + c] - back[c]);
        mark[i] = d > far * far ? 2 : 0;
    }
}

typedef struct blob {           /* the shape of one frame */
    int64_t n, low[2], high[2]; /* pixels; its box: x, y */
    double  at[2];              /* its middle: x, y */
} blob;

static blob find(const xd_image *m, const uint8_t *mark, int64_t frame)
{
    blob b = { .low = { m->width, m->height }, .high = { -1, -1 } };
    for (int64_t i = 0; i < m->height * m->width; i++) {
        int64_t at[2] = { i % m->width, i / m->width };
        if (mark[frame * m->height * m->width + i] != 2)
            continue;
        b.n++;
        for (int k = 0; k < 2; k++) {
            b.at[k] += (double)at[k];
            b.low[k] = at[k] < b.low[k] ? at[k] : b.low[k];
            b.high[k] = at[k] > b.high[k] ? at[k] : b.high[k];
        }
    }
    for (int k = 0; k < 2 && b.n; k++)
        b.at[k] /= (double)b.n;
    return b;
}

static const char *direction(const xd_image *m, const blob *first, const blob *last)
{
    static const char *const names[2][2] = { { "left", "right" }, { "up", "down" } };
    double                   go[2] = { last->at[0] - first->at[0], last->at[1] - first->at[1] };
    int                      k = fabs(go[1]) > fabs(go[0]);
    double                   side = (double)(k ? m->height : m->width);
    if (fabs(go[k]) < js_num(plan, "path") * side || fabs(go[k]) < 2 * fabs(go[1 - k]))
        return "none";
    return names[k][go[k] > 0];
}

/* Pixels in the upper half of a shape's box to those in the lower half. */
static double upper(const xd_image *m, const uint8_t *mark, int64_t frame, const blob *b)
{
    int64_t n[2] = { 0, 0 };
    for (int64_t i = 0; i < m->height * m->width; i++) {
        int64_t y = 2 * (i / m->width) + 1, middle = b->low[1] + b->high[1] + 1;
        if (mark[frame * m->height * m->width + i] == 2 && y != middle)
            n[y > middle]++;
    }
    return (double)n[0] / (double)(n[1] ? n[1] : 1);
}

/* A triangle has a third as much in the upper half of its box as in the lower half, others have
 * as much in both; a disc fills pi/4 of its box, a square all of it. Of all frames the mean. */
static const char *shape(const xd_image *m, const uint8_t *mark)
{
    double full = 0, top = 0;
    for (int64_t t = 0; t < m->frames; t++) {
        blob b = find(m, mark, t);
        full +=
            (double)b.n / ((double)(b.high[0] - b.low[0] + 1) * (double)(b.high[1] - b.low[1] + 1));
        top += upper(m, mark, t, &b);
    }
    full /= (double)m->frames;
    top /= (double)m->frames;
    return top < js_num(plan, "triangle")  ? "triangle"
           : full < js_num(plan, "square") ? "circle"
                                           : "square";
}

/* m NULL: there is no video. */
static void look(const xd_image *m, const char *seen[SEEN])
{
    double   back[3], front[3];
    uint8_t *mark = m ? malloc((size_t)(m->frames * m->height * m->width) + 1) : NULL;
    int      there = mark && m->frames > 1;
    for (int i = 0; i < SEEN; i++)
        seen[i] = "none";
    if (there) {
        mark_pixels(m, mark, back);
        seen[BACK] = demo_colour(plan, back);
        for (int64_t t = 0; t < m->frames; t++)
            there = there && find(m, mark, t).n > 0;
    }
    if (there) {
        blob first = find(m, mark, 0), last = find(m, mark, m->frames - 1);
        for (int c = 0; c < 3; c++)
            front[c] = median(m, c, mark, 2);
        seen[COLOUR] = demo_colour(plan, front);
        seen[SHAPE] = shape(m, mark);
        seen[DIRECTION] = direction(m, &first, &last);
    }
    free(mark);
}

/* ---- the prompts -------------------------------------------------------------------------- */

typedef struct tally { int n, right, shapes, same, turned, still; } tally;

/* The same video backwards has the opposite direction, and its first frame alone has none. */
static void look_otherwise(tally *t, const xd_image *m, const char *way)
{
    static const char *const other[][2] = {
        { "left", "right" }, { "right", "left" }, { "up", "down" }, { "down", "up" }
    };
    const char *seen[SEEN], *want = "none";
    size_t      frame = (size_t)(m->height * m->width) * 3;
    uint8_t    *back = malloc(frame * (size_t)m->frames + 1);
    xd_image    w = *m;
    for (int i = 0; i < 4; i++)
        if (strcmp(way, other[i][0]) == 0)
            want = other[i][1];
    w.data = back;
    for (int64_t i = 0; back && i < m->frames; i++)
        memcpy(back + (size_t)i * frame, m->data + (size_t)(m->frames - 1 - i) * frame, frame);
    look(back ? &w : NULL, seen);
    t->turned += strcmp(seen[DIRECTION], want) == 0;
    for (int64_t i = 0; back && i < m->frames; i++)
        memcpy(back + (size_t)i * frame, m->data, frame);
    look(back ? &w : NULL, seen);
    t->still += strcmp(seen[DIRECTION], "none") == 0;
    free(back);
}

static void judge(tally *t, const xd_json *p, const xd_image *m)
{
    const xd_json *was = js_list(p, "diffusers");
    const char    *seen[SEEN];
    int            right = 1, same = 1;
    look(m, seen);
    for (int i = 0; i < SEEN; i++) {
        const char *d = xd_json_text(xd_json_at(was, i));
        right = right && (i == SHAPE || strcmp(seen[i], js_text(p, keys[i])) == 0);
        same = same && d && strcmp(seen[i], d) == 0;
    }
    t->n++;
    t->right += right;
    t->shapes += right && strcmp(seen[SHAPE], js_text(p, "shape")) == 0;
    t->same += same;
    if (!right)
        tap_note("%s, seed %.0f: %s %s on %s, %s", js_text(p, "prompt"), js_num(p, "seed"),
                 seen[COLOUR], seen[SHAPE], seen[BACK], seen[DIRECTION]);
    if (m)
        look_otherwise(t, m, seen[DIRECTION]);
}

static void check_prompts(xd_engine *g, const char *dtype, const char *kept)
{
    const xd_json *list = js_list(plan, "prompts");
    tally          t = { 0 };
    for (int i = 0; i < xd_json_size(list); i++) {
        xd_result *out = demo_generate(g, plan, xd_json_at(list, i));
        if (i == 0 && out && !kept && strcmp(tap_dtype(out, dtype), dtype) != 0) {
            tap_note("so %s would be a second run of f32: left out", dtype);
            xd_result_free(&out);
            return;
        }
        judge(&t, xd_json_at(list, i), out ? xd_result_image(out, 0) : NULL);
        xd_result_free(&out);
    }
    const char *name = kept ? kept : dtype;
    tap(t.n == PROMPTS && t.right >= MINRIGHT,
        "%s: %d of %d prompts in their colours and "
        "directions, at least %d",
        name, t.right, t.n, MINRIGHT);
    tap_note("%s: %d of them in their shapes, too", name, t.shapes);
    tap(t.turned == t.n, "%s: %d of %d go the other way backwards", name, t.turned, t.n);
    tap(t.still == t.n, "%s: %d of %d first frames stand still", name, t.still, t.n);
    if (strcmp(name, "f32") == 0)
        tap(t.same == t.n, "f32: in %d of %d is seen what is seen in those of diffusers", t.same,
            t.n);
}

/* Every colour, direction and background is asked for. */
static void check_plan(void)
{
    static const char *const ways[] = { "left", "right", "up", "down" };
    const xd_json           *list = js_list(plan, "prompts");
    int                      colours = 0, found = 0, directions = 0;
    for (const xd_json *t = xd_json_first(js_list(plan, "colours")); t; t = xd_json_next(t)) {
        int f = 0;
        for (const xd_json *p = xd_json_first(list); p; p = xd_json_next(p))
            f |= strcmp(js_text(p, "colour"), xd_json_key(t)) == 0 ||
                 strcmp(js_text(p, "background"), xd_json_key(t)) == 0;
        colours++;
        found += f;
    }
    for (int i = 0; i < 4; i++) {
        int f = 0;
        for (const xd_json *p = xd_json_first(list); p; p = xd_json_next(p))
            f |= strcmp(js_text(p, "direction"), ways[i]) == 0;
        directions += f;
    }
    tap(xd_json_size(list) == PROMPTS && found == colours && directions == 4,
        "%d prompts ask for %d of %d colours and %d of 4 directions", xd_json_size(list), found,
        colours, directions);
}

static void check_model(const char *dir, const char *model, const char *dtype, const char *kept)
{
    xd_err       e = { 0 };
    xd_engine   *g = NULL;
    xd_open_args a = { .size = sizeof a,
                       .model = model,
                       .device = "cpu",
                       .keep = 1,
                       .dtype = dtype,
                       .weights_dtype = kept,
                       .text_weights_dtype = kept };
    if (tap(xd_open(&g, &a, &e) == XD_OK, "the demo opens in %s%s", kept ? kept : dtype, e.msg)) {
        if (!kept && strcmp(dtype, "f32") == 0)
            check_sheet(g, dir);
        check_prompts(g, dtype, kept);
    }
    xd_close(&g);
}

int main(int argc, char **argv)
{
    char path[1024];
    if (argc != 3) {
        fprintf(stderr, "usage: %s DIR MODEL\n", argv[0]);
        return 2;
    }
    if (tap_skip_isa())
        return 0;
    snprintf(path, sizeof path, "%s/model_index.json", argv[2]);
    if (access(path, R_OK) != 0) {
        printf("1..0 # SKIP %s is not there: tools/train_demo_video.py trains it\n", argv[2]);
        return 0;
    }
    snprintf(path, sizeof path, "%s/demo_video.json", argv[1]);
    xd_json *j = js_open(path);
    plan = j;
    check_plan();
    if (!tap_only_bf16())
        check_model(argv[1], argv[2], "f32", NULL);
    check_model(argv[1], argv[2], "bf16", NULL);
    check_model(argv[1], argv[2], tap_only_bf16() ? "bf16" : "f32", "int8");
    xd_json_free(&j);
    return tap_end();
}

/* demo.c - what the tests of the demo models share. */
#include "demo.h"

#include <math.h>
#include <stdlib.h>

xd_result *demo_generate(xd_engine *g, const xd_json *plan, const xd_json *p)
{
    xd_request  q;
    xd_err      e = { 0 };
    xd_result  *out = NULL;
    const char *prompt = js_text(p, "prompt");
    xd_request_init(&q);
    q.prompts = &prompt;
    q.nprompts = 1;
    q.width = q.height = (int64_t)js_num(plan, "size");
    q.num_inference_steps = (int)js_num(plan, "steps");
    q.guidance_scale = js_num(plan, "guidance_scale");
    q.seed = (int64_t)js_num(p, "seed");
    q.noise.rng = "torch";
    if (xd_generate(g, &q, &out, &e) != XD_OK)
        tap(0, "%s: %s", prompt, e.msg);
    return out;
}

ref demo_cell(const uint8_t *rgb, int64_t w, int64_t side, int64_t row, int64_t column)
{
    ref r = { .nd = 3, .d = { side, side, 3 }, .n = side * side * 3 };
    r.v = malloc((size_t)r.n * sizeof *r.v);
    for (int64_t y = 0; r.v && y < side; y++)
        for (int64_t k = 0; k < side * 3; k++)
            r.v[y * side * 3 + k] = rgb[((row * side + y) * w + column * side) * 3 + k];
    return r;
}

static int by_value(const void *a, const void *b)
{
    return *(const uint8_t *)a - *(const uint8_t *)b;
}

double demo_median(uint8_t *v, int64_t n)
{
    if (n < 1)
        return -1;
    qsort(v, (size_t)n, 1, by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2.0;
}

const char *demo_colour(const xd_json *plan, const double *rgb)
{
    const char *best = "none";
    double      least = INFINITY;
    for (const xd_json *t = xd_json_first(js_list(plan, "colours")); t; t = xd_json_next(t)) {
        double far = 0, v = 0;
        for (int c = 0; c < 3; c++) {
            xd_json_number(xd_json_at(t, c), &v);
            far += (rgb[c] - v) * (rgb[c] - v);
        }
        if (far < least) {
            least = far;
            best = xd_json_key(t);
        }
    }
    return best;
}

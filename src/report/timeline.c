/* timeline.c - draws timelines of ranks as SVG.
 *
 * Each lane of a timeline is an array of cells, half a pixel wide. A cell sums the seconds of each
 * kind of activity, so the size of a drawing does not depend on the number of events. */
#include "report/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { /* sizes of the drawing in pixels */
       WIDTH = 1000,
       LEFT = 76,
       LANE = 640,
       MEMORY = 740,
       BARS = 170,
       ROW = 26,
       BAR = 14,
       HEAD = 66,
       CELLS = 2 * LANE,
};

typedef struct xd_timeline_cell {
    float s[XD_SPAN_KINDS]; /* seconds of each kind of activity in a cell */
    int   patch;            /* PipeFusion patch of the last computation in the cell */
} cell;

static const char *const patch_colors[] = {
    "#4c86d6", "#f0a63c", "#7fb35a", "#d9706e", "#a58ac9", "#c9a13b", "#5c9b8a", "#b0727d",
};
enum { COLORS = sizeof patch_colors / sizeof *patch_colors };
static const char all_tokens[] = "#4c86d6", waiting[] = "#e4e4e4", message[] = "#2f8f5b";

static const char *const parts[] = { "text encoders", "transformer", "VAE" };
static const char *const weight_colors[] = { "#8a6bbd", "#2f6fb0", "#b5651d" };
static const char *const work_colors[] = { "#cfc0e6", "#a9c8e6", "#e8c3a1" };

/* ---- timelines ---------------------------------------------------------------------------- */

xd_status xd_timeline_open(xd_timeline *t, xd_err *e)
{
    size_t n = (size_t)t->ranks;
    size_t lanes = n < XD_LANES ? n : XD_LANES;
    t->cell = calloc(lanes * CELLS + 1, sizeof *t->cell);
    t->sum = calloc(n * XD_SPAN_KINDS + 1, sizeof *t->sum);
    if (!t->cell || !t->sum)
        return xd_fail(e, XD_ENOMEM, "no memory for a timeline of %d ranks", t->ranks);
    for (size_t i = 0; i < lanes * CELLS; i++)
        t->cell[i].patch = -1;
    return XD_OK;
}

void xd_timeline_close(xd_timeline *t)
{
    free(t->cell);
    free(t->sum);
    t->cell = NULL;
    t->sum = NULL;
}

void xd_timeline_add(xd_timeline *t, int rank, xd_span_kind kind, int patch, double from, double to)
{
    from = fmax(from, t->from), to = fmin(to, t->to);
    if (rank < 0 || rank >= t->ranks || !(to > from))
        return;
    t->sum[rank * XD_SPAN_KINDS + (int)kind] += to - from;
    if (rank >= XD_LANES)
        return;
    double unit = (t->to - t->from) / CELLS, a = (from - t->from) / unit, b = (to - t->from) / unit;
    for (int i = (int)a; i < CELLS && i < b; i++) {
        cell *c = &t->cell[rank * CELLS + i];
        c->s[kind] += (float)((fmin(b, i + 1) - fmax(a, i)) * unit);
        if (kind == XD_SPAN_COMPUTE)
            c->patch = patch;
    }
}

/* ---- elements of SVG ---------------------------------------------------------------------- */

static void put_rect(xd_drawing *d, double x, double y, double w, double h, const char *color)
{
    xd_buf_add(&d->svg,
               "<rect x=\"%.4g\" y=\"%.5g\" width=\"%.4g\" height=\"%.3g\" "
               "fill=\"%s\"/>\n",
               x, y, w, h, color);
}

/* Writes a text into the drawing. `anchor` is "start", "middle" or "end". */
static void put_text(xd_drawing *d, double x, double y, int size, const char *anchor,
                     const char *text)
{
    xd_buf_add(&d->svg, "<text x=\"%.4g\" y=\"%.5g\" font-size=\"%d\" text-anchor=\"%s\">", x, y,
               size, anchor);
    xd_text_buf b = { 0 };
    for (; *text; text++)
        if (strchr("<>&", *text))
            xd_buf_add(&b, "&%s;", *text == '<' ? "lt" : *text == '>' ? "gt" : "amp");
        else
            xd_buf_add(&b, "%c", (unsigned char)*text < ' ' ? ' ' : *text);
    xd_buf_utf8(&d->svg, b.p ? b.p : "");
    d->svg.failed |= b.failed;
    xd_buf_free(&b);
    xd_buf_add(&d->svg, "</text>\n");
}

/* Draws an entry of the legend. Returns the x position of the next entry of the legend. */
static double put_key(xd_drawing *d, double x, double h, const char *color, const char *other,
                      const char *text)
{
    put_rect(d, x, 42 - h / 2, 12, h, color);
    if (other)
        put_rect(d, x + 12, 42 - h / 2, 8, h, other);
    x += other ? 25 : 17;
    put_text(d, x, 46, 12, "start", text);
    return x + 20 + 6.2 * (double)strlen(text);
}

void xd_drawing_open(xd_drawing *d, const char *title, int memory)
{
    *d = (xd_drawing){ .y = HEAD };
    put_text(d, 12, 24, 16, "start", title);
    double x = put_key(d, 12, 10, all_tokens, NULL, "computing");
    x = put_key(d, x, 10, waiting, NULL, "waiting for messages");
    x = put_key(d, x, 4, message, NULL, "messages in flight");
    for (int i = 0; i < 3 && memory; i++)
        x = put_key(d, x, 10, weight_colors[i], work_colors[i], parts[i]);
    if (memory)
        put_text(d, x, 46, 12, "start", "(dark: weights, light: activations, line: peak)");
}

/* ---- lanes -------------------------------------------------------------------------------- */

/* colour of a cell, or NULL for white */
typedef struct cell_color {
    const char *color;
    int         patch;
} cell_color;

/* Computes the colour of each cell. A cell may contain several kinds of activity, but is drawn in
 * the colour of only one kind. The drawn kind is the one whose drawn time, summed over all cells so
 * far, is most below its real time. Over many cells, the drawn width of each kind is thus
 * proportional to its time. */
static void color_cells(const cell *c, double unit, cell_color out[CELLS])
{
    enum { IDLE = XD_SPAN_MESSAGE, N }; /* messages are drawn separately, in a strip of their own */
    double lag[N] = { 0 };
    int    patch = -1;
    for (int i = 0; i < CELLS; i++) {
        double work = c[i].s[XD_SPAN_COMPUTE] / unit, wait = c[i].s[XD_SPAN_WAIT] / unit;
        lag[XD_SPAN_COMPUTE] += work;
        lag[XD_SPAN_WAIT] += wait;
        lag[IDLE] += fmax(1 - work - wait, 0);
        patch = work > 0 ? c[i].patch : patch;
        int kind = IDLE;
        for (int k = 0; k < N; k++)
            kind = lag[k] > lag[kind] ? k : kind;
        lag[kind] -= 1;
        out[i] = (cell_color){ kind == IDLE           ? NULL
                               : kind == XD_SPAN_WAIT ? waiting
                               : patch < 0            ? all_tokens
                                                      : patch_colors[patch % COLORS],
                               kind == XD_SPAN_COMPUTE ? patch : -1 };
    }
}

static void put_lane(xd_drawing *d, const cell *c, double unit, double y)
{
    cell_color of[CELLS];
    color_cells(c, unit, of);
    for (int i = 0, j; i < CELLS; i = j) {
        for (j = i + 1; j < CELLS && of[j].color == of[i].color && of[j].patch == of[i].patch;)
            j++;
        if (!of[i].color)
            continue;
        put_rect(d, LEFT + i / 2.0, y, (j - i) / 2.0, BAR, of[i].color);
        char number[16];
        snprintf(number, sizeof number, "%d", of[i].patch);
        if (of[i].patch >= 0 && j - i > 24)
            put_text(d, LEFT + (i + j) / 4.0, y + 11, 10, "middle", number);
    }
    for (int i = 0, j; i < CELLS; i = j) {
        int on = c[i].s[XD_SPAN_MESSAGE] > 0;
        for (j = i + 1; j < CELLS && (c[j].s[XD_SPAN_MESSAGE] > 0) == on;)
            j++;
        if (on)
            put_rect(d, LEFT + i / 2.0, y + BAR + 1, (j - i) / 2.0, 3, message);
    }
}

static void put_axis(xd_drawing *d, const xd_timeline *t, double y, int lanes)
{
    double span = t->to - t->from, tick = pow(10, floor(log10(span / 5)));
    double unit = span < 1 ? 1e3 : 1;
    tick *= span / tick > 25 ? 5 : span / tick > 10 ? 2 : 1;
    for (int i = 0; i * tick <= span; i++) {
        char   text[32];
        double x = LEFT + i * tick / span * LANE;
        put_rect(d, x, y - 4, 0.6, lanes * ROW + 4, "#c8c8c8");
        snprintf(text, sizeof text, "%.6g%s", i * tick * unit, i ? "" : span < 1 ? " ms" : " s");
        put_text(d, x, y + lanes * ROW + 12, 10, "middle", text);
    }
}

static void put_memory(xd_drawing *d, const xd_memory_bars *m, double y, double scale)
{
    double step = BAR / 3.0;
    for (int i = 0; i < 3; i++) {
        double a = m->weights[i] * scale, b = m->work[i] * scale;
        put_rect(d, MEMORY, y + i * step, a, step - 0.7, weight_colors[i]);
        put_rect(d, MEMORY + a, y + i * step, b, step - 0.7, work_colors[i]);
    }
    put_rect(d, MEMORY + m->peak * scale, y - 2, 1.2, BAR + 4, "#333");
    put_text(d, MEMORY + m->peak * scale + 5, y + 11, 11, "start", xd_size_text(m->peak).s);
}

void xd_drawing_add(xd_drawing *d, const xd_timeline *t, const char *title)
{
    int    lanes = t->ranks < XD_LANES ? t->ranks : XD_LANES;
    double most = 1;
    char   text[64];
    put_text(d, 12, d->y + 14, 13, "start", title);
    d->y += 28;
    put_axis(d, t, d->y, lanes);
    for (int r = 0; r < t->ranks && t->memory; r++)
        most = fmax(most, t->memory[r].peak);
    for (int r = 0; r < lanes; r++) {
        snprintf(text, sizeof text, "rank %d", r);
        put_text(d, LEFT - 10, d->y + r * ROW + 11, 12, "end", text);
        put_lane(d, t->cell + r * CELLS, (t->to - t->from) / CELLS, d->y + r * ROW);
        if (t->memory)
            put_memory(d, &t->memory[r], d->y + r * ROW, BARS / most);
    }
    d->y += lanes * ROW + 20;
    if (lanes < t->ranks) {
        snprintf(text, sizeof text, "and %d more ranks", t->ranks - lanes);
        put_text(d, LEFT, d->y + 10, 11, "start", text);
        d->y += 16;
    }
    d->y += 12;
}

/* ---- files -------------------------------------------------------------------------------- */

xd_status xd_drawing_write(xd_drawing *d, const char *path, xd_err *e)
{
    xd_out o;
    if (d->svg.failed)
        return xd_fail(e, XD_ENOMEM, "no memory for the drawing %s", path);
    xd_status s = xd_out_open(&o, path, e);
    if (s != XD_OK)
        return s;
    fprintf(o.f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" font-family=\"Helvetica, Arial, sans-serif\" "
            "fill=\"#222\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n%s</svg>\n",
            WIDTH, d->y, WIDTH, d->y, d->svg.p);
    return xd_out_commit(&o, e);
}

void xd_drawing_close(xd_drawing *d)
{
    xd_buf_free(&d->svg);
}

/* measures.c - collects and prints the histograms of ended requests per model; see measures.h */
#include "serve/measures.h"

#include <stdlib.h>
#include <string.h>

/* Upper limits of the histograms' buckets, in seconds or in denoising steps per second; 0 is the
 * end of a list of limits. */
static const double seconds[XD_BUCKETS + 1] = { 0.1, 0.25, 0.5, 1,    2.5,  5,    10,    25, 50,
                                                100, 250,  500, 1000, 2500, 5000, 10000, 0 };
static const double speeds[XD_BUCKETS + 1] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                               0.1,   0.25,   0.5,   1,    2.5,   5,
                                               10,    25,     50,    100,  0 };

static const struct {
    const char   *name, *help;
    const double *ends;
} kinds[XD_MEASURES] = {
    { "request_duration_seconds", "Seconds of finished requests from arrival to end.", seconds },
    { "request_queue_seconds", "Seconds that requests waited in the queue.", seconds },
    { "steps_per_second", "Denoising steps per second of finished requests.", speeds },
};

xd_measured *xd_measures_of(xd_measures *m, const char *model, int video)
{
    for (int i = 0; i < m->n; i++)
        if (m->v[i].video == video && strcmp(m->v[i].model, model) == 0)
            return &m->v[i];
    char        *name = strdup(model);
    xd_measured *v = name ? realloc(m->v, ((size_t)m->n + 1) * sizeof *v) : NULL;
    if (!v) {
        free(name);
        return NULL;
    }
    m->v = v;
    v[m->n] = (xd_measured){ .model = name, .video = video };
    return &v[m->n++];
}

void xd_measure_add(xd_measured *d, int what, double value)
{
    int i = 0;
    while (i < XD_BUCKETS && value > kinds[what].ends[i])
        i++;
    d->of[what].counts[i]++;
    d->of[what].sum += value;
}

static void add_labels(xd_text_buf *b, const xd_measured *d)
{
    xd_buf_add(b, "{model=\"");
    for (const char *p = d->model; *p; p++)
        xd_buf_add(b, *p == '\n' ? "\\n" : *p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    xd_buf_add(b, "\",kind=\"%s\"", d->video ? "video" : "image");
}

static void print_one(xd_text_buf *b, const xd_measured *d, int what)
{
    const xd_histogram *h = &d->of[what];
    const char         *name = kinds[what].name;
    long long           below = 0;
    for (int i = 0; i <= XD_BUCKETS; i++) {
        below += h->counts[i];
        xd_buf_add(b, "xdit_%s_bucket", name);
        add_labels(b, d);
        if (i < XD_BUCKETS)
            xd_buf_add(b, ",le=\"%g\"} %lld\n", kinds[what].ends[i], below);
        else
            xd_buf_add(b, ",le=\"+Inf\"} %lld\n", below);
    }
    xd_buf_add(b, "xdit_%s_sum", name);
    add_labels(b, d);
    xd_buf_add(b, "} %.6f\nxdit_%s_count", h->sum, name);
    add_labels(b, d);
    xd_buf_add(b, "} %lld\n", below);
}

void xd_measures_print(xd_text_buf *b, const xd_measures *m)
{
    for (int what = 0; what < XD_MEASURES && m->n; what++) {
        xd_buf_add(b, "# HELP xdit_%s %s\n# TYPE xdit_%s histogram\n", kinds[what].name,
                   kinds[what].help, kinds[what].name);
        for (int i = 0; i < m->n; i++)
            print_one(b, &m->v[i], what);
    }
}

void xd_measures_free(xd_measures *m)
{
    for (int i = 0; i < m->n; i++)
        free(m->v[i].model);
    free(m->v);
    *m = (xd_measures){ 0 };
}

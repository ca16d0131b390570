/* test_schedulers.c - pipelines with other schedulers than their own, and with other keys of a
 * scheduler's config, against the images of diffusers in f32
 *
 *     test_schedulers DIR FULL
 *
 * DIR has schedulers.json (tools/golden/cases/schedulers.py), FULL the models with weights. A row
 * with a scheduler's config is a folder of its own, with links to the model's parts. Pixels are at
 * most 2 levels of 255 apart. */
#define _XOPEN_SOURCE 700       /* mkdtemp, P_tmpdir */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "golden.h"
#include "xdit/tools.h"

enum { KEPT = 7, LEVELS = 2 }; /* every so many numbers of an image are kept */

/* Sets the option of this name; 0: there is none, or it is no such value. */
static int set_option(xd_request *r, const char *name, const xd_json *value)
{
    int              n, on = 0;
    double           v = 0;
    const xd_option *o = xd_request_options(&n);
    while (n && strcmp(o->name, name) != 0)
        o++, n--;
    if (!n)
        return 0;
    void *at = (char *)r + o->offset;
    switch (o->kind) {
    case XD_OPT_TEXT: *(const char **)at = xd_json_text(value); return xd_json_text(value) != NULL;
    case XD_OPT_FLAG:
        if (!xd_json_bool(value, &on))
            return 0;
        *(int *)at = on ? 1 : (int)o->min;
        return 1;
    default:
        if (!xd_json_number(value, &v))
            return 0;
        if (o->kind == XD_OPT_REAL)
            *(double *)at = v;
        else if (o->kind == XD_OPT_INT)
            *(int *)at = (int)v;
        else
            *(int64_t *)at = (int64_t)v;
        return 1;
    }
}

/* The largest difference of the pixels that are kept; 256: there are others. */
static int pixels_apart(const xd_image *m, const xd_json *kept)
{
    int     worst = 0, k = 0;
    int64_t n = m ? m->height * m->width * 3 : 0;
    if (!n || (n + KEPT - 1) / KEPT != xd_json_size(kept))
        return 256;
    for (const xd_json *v = xd_json_first(kept); v; v = xd_json_next(v)) {
        double is = 0;
        xd_json_number(v, &is);
        int gap = abs((int)m->data[KEPT * k++] - (int)is);
        worst = gap > worst ? gap : worst;
    }
    return worst;
}

/* Fills `to`, a new folder, with links to what is in the folder `from`, but for its scheduler, and
 * with this scheduler's config. */
static void make_folder(char *to, const char *from, const char *config)
{
    char           path[4096], part[4096];
    struct dirent *d;
    char          *whole = realpath(from, NULL);
    DIR           *dir = whole ? opendir(whole) : NULL;
    FILE          *f;
    snprintf(to, 2048, "%s/xdit-schedulers-XXXXXX", P_tmpdir);
    int made = dir && mkdtemp(to);
    while (made && (d = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", to, d->d_name);
        snprintf(part, sizeof part, "%s/%s", whole, d->d_name);
        made = *d->d_name == '.' ||
               (strcmp(d->d_name, "scheduler") ? symlink(part, path) : mkdir(path, 0777)) == 0;
    }
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", to);
    made = made && (f = fopen(path, "w")) && fputs(config, f) >= 0 && fclose(f) == 0;
    tap(made, "a folder with the config %s", config);
    if (dir)
        closedir(dir);
    free(whole);
}

static void remove_folder(const char *folder)
{
    char           path[4096];
    struct dirent *d;
    DIR           *dir = opendir(folder);
    snprintf(path, sizeof path, "%s/scheduler/scheduler_config.json", folder);
    unlink(path);
    while (dir && (d = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (unlink(path) != 0)
            rmdir(path);
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

static void check(const char *full, const xd_json *row)
{
    static const char *const prompt = "a red star";
    const char              *config = xd_json_text(xd_json_get(row, "config"));
    char                     model[2048], folder[2048], what[512] = "";
    size_t                   n = 0;
    xd_err                   e = { 0 };
    xd_engine               *g = NULL;
    xd_result               *out = NULL;
    xd_request               r;
    xd_open_args             a;
    snprintf(model, sizeof model, "%s/%s", full, js_text(row, "model"));
    xd_open_args_init(&a);
    if (config)
        make_folder(folder, model, config);
    a.model = config ? folder : model, a.device = "cpu", a.dtype = "f32", a.threads = 2;
    xd_request_init(&r);
    r.prompts = &prompt, r.nprompts = 1;
    r.width = 48, r.height = 32;
    r.seed = 7, r.noise.rng = "torch", r.output.no_resolution_binning = 1;
    const xd_json *options = xd_json_get(row, "options");
    for (const xd_json *v = xd_json_first(options); v; v = xd_json_next(v)) {
        n += (size_t)snprintf(what + n, sizeof what - n, " %s", xd_json_key(v));
        tap(set_option(&r, xd_json_key(v), v), "%s is an option", xd_json_key(v));
    }
    xd_status s = xd_open(&g, &a, &e);
    if (s == XD_OK)
        s = xd_generate(g, &r, &out, &e);
    int gap = s == XD_OK ? pixels_apart(xd_result_image(out, 0), js_list(row, "pixels")) : 256;
    tap(gap <= LEVELS, "%s, %s, with%s: %d of at most %d levels%s%s", js_text(row, "model"),
        r.schedule.scheduler ? r.schedule.scheduler : "its own", what, gap, LEVELS,
        *e.msg ? ": " : "", e.msg);
    xd_result_free(&out);
    xd_close(&g);
    if (config)
        remove_folder(folder);
}

int main(int argc, char **argv)
{
    char path[1024];
    if (argc != 3) {
        fprintf(stderr, "usage: %s DIR FULL\n", argv[0]);
        return 2;
    }
    if (tap_skip_isa())
        return 0;
    snprintf(path, sizeof path, "%s/schedulers.json", argv[1]);
    xd_json *j = js_open(path);
    for (const xd_json *row = xd_json_first(j); row; row = xd_json_next(row))
        check(argv[2], row);
    xd_json_free(&j);
    return tap_end();
}

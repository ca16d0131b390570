/* sheet.c - generates one image a line of a prompt file and puts them side by side into one PNG.
 *
 *   sheet MODEL PROMPTS.txt COLUMNS OUT.png [philox|torch]
 *
 * Image i has seed i (from 0). The sheet of doc/demo.md is made this way. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xdit/xdit.h"

enum { MAXPROMPTS = 256, GAP = 4 }; /* GAP: white pixels around each image */

typedef struct sheet {
    int      n, columns;
    char    *text, *prompts[MAXPROMPTS];
    int64_t  w, h;         /* pixels of one image */
    size_t   stride, rows; /* bytes and rows of the sheet */
    uint8_t *rgb;
} sheet;

static int read_prompts(sheet *s, const char *path)
{
    enum { MAX = 1 << 20 };
    FILE *f = fopen(path, "rb");
    if (!f || !(s->text = calloc(1, MAX + 1)))
        return -1;
    size_t len = fread(s->text, 1, MAX, f);
    fclose(f);
    s->text[len] = 0;
    for (char *line = strtok(s->text, "\r\n"); line && s->n < MAXPROMPTS;
         line = strtok(NULL, "\r\n"))
        s->prompts[s->n++] = line;
    return s->n ? 0 : -1;
}

/* The first image fixes the size of all. */
static int place(sheet *s, int i, const xd_image *m)
{
    if (!s->rgb) {
        s->w = m->width, s->h = m->height;
        s->stride = (size_t)(s->columns * (s->w + GAP) + GAP) * 3;
        s->rows = (size_t)((s->n + s->columns - 1) / s->columns * (s->h + GAP) + GAP);
        if (!(s->rgb = malloc(s->stride * s->rows)))
            return -1;
        memset(s->rgb, 255, s->stride * s->rows);
    }
    if (m->width != s->w || m->height != s->h || m->channels != 3)
        return -1;
    int64_t y0 = i / s->columns * (s->h + GAP) + GAP, x0 = i % s->columns * (s->w + GAP) + GAP;
    for (int64_t y = 0; y < s->h; y++)
        memcpy(s->rgb + (size_t)(y0 + y) * s->stride + (size_t)x0 * 3, m->data + y * s->w * 3,
               (size_t)s->w * 3);
    return 0;
}

static xd_status generate(sheet *s, const char *model, const char *rng, xd_err *e)
{
    xd_engine   *g = NULL;
    xd_open_args a = { .size = sizeof a, .model = model, .keep = 1 };
    xd_status    st = xd_open(&g, &a, e);
    for (int i = 0; st == XD_OK && i < s->n; i++) {
        const char *prompt = s->prompts[i];
        xd_result  *res = NULL;
        xd_request  r;
        xd_request_init(&r);
        r.prompts = &prompt;
        r.nprompts = 1;
        r.seed = i;
        r.noise.rng = rng;
        st = xd_generate(g, &r, &res, e);
        if (st == XD_OK && place(s, i, xd_result_image(res, 0)) != 0)
            st = XD_ENOMEM;
        xd_result_free(&res);
    }
    xd_close(&g);
    return st;
}

static int write_png(const sheet *s, const char *path)
{
    png_image m = { .version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB };
    m.width = (png_uint_32)(s->stride / 3);
    m.height = (png_uint_32)s->rows;
    return png_image_write_to_file(&m, path, 0, s->rgb, 0, NULL) ? 0 : -1;
}

int main(int argc, char **argv)
{
    xd_err e = { 0 };
    sheet  s = { .columns = argc > 3 ? atoi(argv[3]) : 0 };
    if (argc < 5 || s.columns < 1) {
        fprintf(stderr, "usage: sheet MODEL PROMPTS.txt COLUMNS OUT.png [philox|torch]\n");
        return 2;
    }
    int bad = 1;
    if (read_prompts(&s, argv[2]) != 0)
        fprintf(stderr, "sheet: no prompts in %s\n", argv[2]);
    else if (generate(&s, argv[1], argc > 5 ? argv[5] : "philox", &e) != XD_OK)
        fprintf(stderr, "sheet: %s\n", e.msg[0] ? e.msg : "images of different sizes");
    else if (write_png(&s, argv[4]) != 0)
        fprintf(stderr, "sheet: cannot write %s\n", argv[4]);
    else
        bad = 0;
    free(s.rgb);
    free(s.text);
    return bad;
}

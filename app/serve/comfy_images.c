/* comfy_images.c - the images of ComfyUI's interface: uploaded files, results by their names, and
 * the images and masks of graphs
 *
 * Uploaded images are files in the server's temporary directory. Each API key has its own names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "serve/comfy.h"
#include "xdit/tools.h"

/* MAX_UPLOADS, MAX_TOTAL: number and total bytes of images that are kept for an API key. MAX_CHAIN:
 * maximum number of nodes between a mask and its image. MAX_BYTES: maximum bytes of an image file.
 * MAX_GROWTH: maximum product of the pixels of a mask and the pixels by which it is grown. */
enum {
    MAX_UPLOADS = 64,
    MAX_TOTAL = 256 << 20,
    MAX_GROWTH = 1 << 29,
    MAX_CHAIN = 32,
    MAX_BYTES = 256 << 20,
    MAX_PIXELS = 64 << 20
};

#define CACHED "etn/" /* begin of the names of the images that nodes ETN_LoadImageCache read */

static xd_comfy *comfy_of(const xd_http_call *c)
{
    return ((xd_server *)c->server)->comfy;
}

/* ---- uploaded images ------------------------------------------------------------------------- */

static xd_comfy_upload **find_upload(const xd_http_call *c, const char *name)
{
    xd_comfy_upload **at = &comfy_of(c)->uploads;
    while (*at && (strcmp((*at)->owner, c->owner) != 0 || strcmp((*at)->name, name) != 0))
        at = &(*at)->next;
    return at;
}

static void drop_upload(xd_comfy_upload **at)
{
    xd_comfy_upload *u = *at;
    *at = u->next;
    unlink(u->path);
    free(u);
}

/* Removes the oldest images of an API key above the limits; under the lock. */
static void drop_oldest(const xd_http_call *c)
{
    int64_t n = 0, bytes = 0;
    for (xd_comfy_upload **at = &comfy_of(c)->uploads; *at;) {
        int own = strcmp((*at)->owner, c->owner) == 0;
        n += own;
        bytes += own ? (*at)->bytes : 0;
        if (own && n > 1 && (n > MAX_UPLOADS || bytes > MAX_TOTAL))
            drop_upload(at);
        else
            at = &(*at)->next;
    }
}

/* Writes a new path in the server's temporary directory. */
static void name_file(const xd_http_call *c, const char *extension, char *path, size_t size)
{
    const xd_server *s = c->server;
    pthread_mutex_lock(&s->comfy->lock);
    long n = ++s->comfy->files;
    pthread_mutex_unlock(&s->comfy->lock);
    snprintf(path, size, "%s/comfy.%ld%s", s->own_dir, n, extension);
}

/* Adds a file as the uploaded image `name`, in place of an earlier image of this name. Returns 0 if
 * memory is exhausted, and then removes the file. */
static int add_upload(const xd_http_call *c, const char *name, const char *path)
{
    xd_comfy        *y = comfy_of(c);
    xd_comfy_upload *u = calloc(1, sizeof *u);
    struct stat      st;
    if (!u) {
        unlink(path);
        return 0;
    }
    snprintf(u->owner, sizeof u->owner, "%s", c->owner);
    snprintf(u->name, sizeof u->name, "%s", name);
    snprintf(u->path, sizeof u->path, "%s", path);
    u->bytes = stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
    pthread_mutex_lock(&y->lock);
    xd_comfy_upload **old = find_upload(c, name);
    if (*old)
        drop_upload(old);
    u->next = y->uploads;
    y->uploads = u;
    drop_oldest(c);
    pthread_mutex_unlock(&y->lock);
    return 1;
}

void xd_comfy_image_names(xd_text_buf *b, const xd_http_call *c)
{
    xd_comfy *y = comfy_of(c);
    int       n = 0;
    pthread_mutex_lock(&y->lock);
    for (const xd_comfy_upload *u = y->uploads; u; u = u->next)
        if (strcmp(u->owner, c->owner) == 0) {
            xd_buf_add(b, "%s", n++ ? "," : "");
            xd_buf_json_string(b, u->name);
        }
    pthread_mutex_unlock(&y->lock);
}

/* ---- finding of images ----------------------------------------------------------------------- */

/* Finds the file of a result "TASK_00001_.png"; see xd_comfy_add_images. */
static int find_result(const xd_http_call *c, const char *name, char *path, size_t size)
{
    xd_server  *s = c->server;
    char        id[40];
    const char *end = strrchr(name, '_'), *mark = end;
    while (mark && mark > name && mark[-1] != '_')
        mark--;
    if (!mark || mark - name < 2 || mark - name > (long)sizeof id)
        return 0;
    snprintf(id, sizeof id, "%.*s", (int)(mark - name - 1), name);
    int      i = atoi(mark) - 1, found = 0;
    xd_task *task = xd_tasks_find(s->tasks, id);
    xd_tasks_lock(s->tasks);
    if (task && strcmp(task->owner, c->owner) == 0 && i >= 0 && i < task->ndone) {
        snprintf(path, size, "%s", task->done[i].file);
        found = 1;
    }
    xd_tasks_unlock(s->tasks);
    xd_task_release(s->tasks, task);
    return found;
}

int xd_comfy_find_image(const xd_http_call *c, const char *name, const char *folder,
                        const char *type, char *path, size_t size)
{
    static const char *const types[] = { "input", "output", "temp" };
    char                     plain[400], mark[16];
    int                      n = snprintf(plain, sizeof plain, "%s%s%s", folder ? folder : "",
                                          folder && *folder ? "/" : "", name);
    for (int i = 0; i < 3 && !type; i++) {
        int k = snprintf(mark, sizeof mark, " [%s]", types[i]);
        if (n > k && n < (int)sizeof plain && strcmp(plain + n - k, mark) == 0) {
            plain[n - k] = 0;
            type = types[i];
        }
    }
    if (n >= (int)sizeof plain)
        return 0;
    if (type && strcmp(type, "input") != 0)
        return find_result(c, plain, path, size);
    pthread_mutex_lock(&comfy_of(c)->lock);
    const xd_comfy_upload *u = *find_upload(c, plain);
    if (u)
        snprintf(path, size, "%s", u->path);
    pthread_mutex_unlock(&comfy_of(c)->lock);
    return u != NULL;
}

/* ---- routes ---------------------------------------------------------------------------------- */

static const xd_part *find_part(const xd_http_call *c, const char *name)
{
    for (int i = 0; i < c->nparts; i++)
        if (strcmp(c->parts[i].name, name) == 0)
            return &c->parts[i];
    return NULL;
}

/* Writes the name of an uploaded image with its subfolder. Returns 0 if the name is invalid. */
static int name_upload(xd_http_call *c, const xd_part *image, char *name, size_t size)
{
    const xd_part *folder = find_part(c, "subfolder"), *type = find_part(c, "type");
    const char    *sub = folder ? folder->data : "";
    int            n = snprintf(name, size, "%s%s%s", sub, *sub ? "/" : "",
                                image && image->file ? image->file : "");
    if (!image || !image->file || !image->file[0] || n >= (int)size)
        xd_reply_error(c, 400, "image", NULL,
                       "image must be a file with a name of at most %zu bytes", size - 1);
    else if (name[0] == '/' || strstr(name, "..") || strchr(name, '\\'))
        xd_reply_error(c, 400, "image", NULL, "'%.80s' is not the name of an image", name);
    else if (type && strcmp(type->data, "input") != 0)
        xd_reply_error(c, 400, "type", NULL,
                       "images can be uploaded only as inputs: type must be input, not '%.20s'",
                       type->data);
    else
        return 1;
    return 0;
}

static void reply_upload(xd_http_call *c, const char *name, const char *path)
{
    const char *slash = strrchr(name, '/');
    xd_text_buf b = { 0 };
    char        folder[200];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - name) : 0, name);
    if (!add_upload(c, name, path)) {
        xd_reply_error(c, 503, NULL, NULL, "no memory for an image");
        return;
    }
    xd_buf_add(&b, "{\"name\":");
    xd_buf_json_string(&b, slash ? slash + 1 : name);
    xd_buf_add(&b, ",\"subfolder\":");
    xd_buf_json_string(&b, folder);
    xd_buf_add(&b, ",\"type\":\"input\"}\n");
    xd_reply_json(c, 200, &b);
}

/* Writes an uploaded part to a file, and checks the header of the image. Returns 0 and creates the
 * reply if this fails. */
static int store_part(xd_http_call *c, const xd_part *p, char *path, size_t size)
{
    xd_out  out;
    xd_err  e = { 0 };
    int64_t w, h;
    name_file(c, "", path, size);
    xd_status s = xd_out_open(&out, path, &e);
    if (s == XD_OK && fwrite(p->data, 1, p->bytes, out.f) != p->bytes)
        s = XD_EIO;
    s = s == XD_OK ? xd_out_commit(&out, &e) : s;
    if (s != XD_OK) {
        xd_reply_error(c, 500, NULL, NULL, "the image cannot be stored: the disk may be full");
        return 0;
    }
    if (xd_image_file_size(path, &w, &h, &e) != XD_OK || w > MAX_PIXELS / h) {
        xd_reply_error(c, 400, "image", NULL,
                       "image is not a PNG, JPEG, WebP, GIF or PPM file with at most %d million "
                       "pixels",
                       MAX_PIXELS >> 20);
        unlink(path);
        return 0;
    }
    return 1;
}

void xd_api_comfy_upload_image(xd_http_call *c)
{
    const xd_part *image = find_part(c, "image");
    char           name[200], path[4200];
    if (name_upload(c, image, name, sizeof name) && store_part(c, image, path, sizeof path))
        reply_upload(c, name, path);
}

/* Copies the alpha of the image `mask` to the image `path`, and writes the result to `to`. */
static xd_status join_alpha(const char *path, const char *mask, const char *to, xd_err *e)
{
    xd_image im, alpha;
    uint8_t *rgba = NULL, *a = NULL;
    xd_image_init(&im);
    xd_image_init(&alpha);
    xd_status s = xd_image_file_load_alpha(path, &im, &rgba, e);
    if (s == XD_OK)
        s = xd_image_file_load_alpha(mask, &alpha, &a, e);
    if (s == XD_OK && (im.width != alpha.width || im.height != alpha.height))
        s = xd_fail(e, XD_EINVAL, "the mask has %lld x %lld pixels, the image %lld x %lld",
                    (long long)alpha.width, (long long)alpha.height, (long long)im.width,
                    (long long)im.height);
    if (s == XD_OK) {
        for (int64_t i = 0; i < im.width * im.height; i++)
            rgba[4 * i + 3] = a[4 * i + 3];
        s = xd_image_file_save(&im, to, e);
    }
    free(rgba);
    free(a);
    return s;
}

/* Finds the image to which an uploaded mask belongs. */
static int find_original(const xd_http_call *c, char *path, size_t size)
{
    const xd_part *ref = find_part(c, "original_ref");
    xd_json       *j = NULL;
    int            found = 0;
    if (!ref || xd_json_parse(&j, ref->data, ref->bytes, "original_ref", NULL) != XD_OK)
        return 0;
    const char *name = xd_json_text(xd_json_get(j, "filename")),
               *folder = xd_json_text(xd_json_get(j, "subfolder")),
               *type = xd_json_text(xd_json_get(j, "type"));
    found = name && xd_comfy_find_image(c, name, folder, type, path, size);
    xd_json_free(&j);
    return found;
}

/* Stores an image with the alpha of an uploaded mask, as ComfyUI's mask editor does. */
void xd_api_comfy_upload_mask(xd_http_call *c)
{
    const xd_part *image = find_part(c, "image");
    char           name[200], mask[4200], path[4200], original[4200];
    xd_err         e = { 0 };
    if (!name_upload(c, image, name, sizeof name))
        return;
    if (!find_original(c, original, sizeof original)) {
        xd_reply_error(c, 400, "original_ref", NULL,
                       "original_ref must name an uploaded image or a result");
        return;
    }
    if (!store_part(c, image, mask, sizeof mask))
        return;
    name_file(c, ".png", path, sizeof path);
    xd_status s = join_alpha(original, mask, path, &e);
    unlink(mask);
    if (s != XD_OK)
        xd_reply_error(c, s == XD_EINVAL ? 400 : 500, "image", NULL, "the mask cannot be used%s%s",
                       s == XD_EINVAL ? ": " : "", s == XD_EINVAL ? e.msg : "");
    else
        reply_upload(c, name, path);
}

/* Stores the image of a node ETN_LoadImageCache, whose id is in the path. */
void xd_api_comfy_put(xd_http_call *c)
{
    xd_part image = { .data = c->body, .bytes = c->bytes };
    char    name[200], path[4200];
    snprintf(name, sizeof name, CACHED "%s", c->arg);
    if (!store_part(c, &image, path, sizeof path))
        return;
    if (add_upload(c, name, path))
        xd_reply_text(c, 200, "application/json", "{\"status\":\"success\"}\n", 21);
    else
        xd_reply_error(c, 503, NULL, NULL, "no memory for an image");
}

/* Replies with an image: of the query, or the result that the path names. */
void xd_api_comfy_view(xd_http_call *c)
{
    const char *name = *c->arg ? c->arg : xd_http_query(c, "filename"),
               *type = *c->arg ? "output" : xd_http_query(c, "type");
    char path[4200];
    if (name && xd_comfy_find_image(c, name, xd_http_query(c, "subfolder"),
                                    type && *type ? type : "output", path, sizeof path)) {
        const char *shown = xd_answer_type(path);
        xd_reply_file(c, path, strcmp(shown, "application/octet-stream") ? shown : "image/png");
    } else {
        xd_reply_error(c, 404, NULL, NULL, "there is no such image; it may have expired");
    }
}

/* ---- images of graphs ------------------------------------------------------------------------ */

static int load_name(xd_comfy_graph *g, xd_comfy_node *node, char *path, size_t size)
{
    int         cached = xd_comfy_is(node, "ETN_LoadImageCache");
    const char *input = cached ? "id" : "image", *name = xd_comfy_text(g, node, input);
    char        id[200];
    snprintf(id, sizeof id, CACHED "%.100s", name);
    if (xd_comfy_find_image(g->call, cached ? id : name, NULL, cached ? "input" : NULL, path, size))
        return 1;
    xd_comfy_fail(g, node, "custom_validation_failed", input, "Invalid image file", "%s: %.200s",
                  input, name);
    return 0;
}

/* Reads the size of an ImageScale node, which the result must have as well. A crop is refused,
 * because xdit scales the whole image. */
static void read_scale(xd_comfy_graph *g, xd_comfy_node *node, const char *path, double size[2])
{
    int64_t w = 0, h = 0;
    double  to_w = xd_comfy_number(g, node, "width"), to_h = xd_comfy_number(g, node, "height");
    xd_image_file_size(path, &w, &h, NULL);
    if (!(to_w > 0) || !(to_h > 0))
        xd_comfy_fail(g, node, "custom_validation_failed", to_w > 0 ? "height" : "width",
                      "Unsupported value", "width and height must be given");
    else if (strcmp(xd_comfy_text(g, node, "crop"), "center") == 0 &&
             (double)w * to_h != (double)h * to_w)
        xd_comfy_fail(g, node, "custom_validation_failed", "crop", "Unsupported value",
                      "crop must be disabled if the image of %lld x %lld pixels has another shape",
                      (long long)w, (long long)h);
    size[0] = to_w;
    size[1] = to_h;
}

void xd_comfy_set_image(xd_comfy_graph *g, xd_api_req *r, const char *option, xd_comfy_node *node,
                        const char *input, double size[2])
{
    char           path[4200], *data = NULL;
    size_t         bytes;
    xd_err         e = { 0 };
    int            slot;
    xd_comfy_node *load = xd_comfy_linked(g, node, input, &slot), *scale = NULL;
    size[0] = size[1] = 0;
    for (; load && (xd_comfy_is(load, "ImageScale") || xd_comfy_is(load, "FluxKontextImageScale"));
         load = xd_comfy_linked(g, load, "image", &slot))
        scale = !scale && xd_comfy_is(load, "ImageScale") ? load : scale;
    if (!xd_comfy_is(load, "LoadImage") && !xd_comfy_is(load, "ETN_LoadImageCache")) {
        xd_comfy_fail(g, node, "custom_validation_failed", input, "Unsupported image",
                      "%s must lead to LoadImage, not to %s", input,
                      load ? load->class->name : "nothing");
        return;
    }
    if (!load_name(g, load, path, sizeof path))
        return;
    if (scale)
        read_scale(g, scale, path, size);
    if (xd_file_read(path, MAX_BYTES, &data, &bytes, &e) != XD_OK)
        xd_comfy_fail(g, load, "custom_validation_failed", "image", "Invalid image file",
                      "the image has expired: upload it again");
    else
        xd_api_req_file(r, option, data, bytes);
    free(data);
}

/* ---- masks ----------------------------------------------------------------------------------- */

typedef struct grey {
    uint8_t *v; /* [h][w] */
    int64_t  w, h;
} grey;

/* Sets each pixel to the largest value, or with `least` the smallest value, of the pixels from
 * `before` pixels before to `after` pixels behind it, in the direction of `step`. */
static void spread(const uint8_t *from, uint8_t *to, int64_t n, int64_t step, int before, int after,
                   int least)
{
    for (int64_t i = 0; i < n; i++) {
        uint8_t best = from[i * step];
        for (int64_t k = i - before < 0 ? 0 : i - before; k < n && k <= i + after; k++) {
            uint8_t v = from[k * step];
            best = (least ? v < best : v > best) ? v : best;
        }
        to[i * step] = best;
    }
}

/* Grows or shrinks the white area by a square. */
static int grow_square(grey *m, int before, int after, int least)
{
    uint8_t *rows = malloc((size_t)(m->w * m->h) + 1);
    if (!rows)
        return 0;
    for (int64_t y = 0; y < m->h; y++)
        spread(m->v + y * m->w, rows + y * m->w, m->w, 1, before, after, least);
    for (int64_t x = 0; x < m->w; x++)
        spread(rows + x, m->v + x, m->h, m->w, before, after, least);
    free(rows);
    return 1;
}

/* Grows or shrinks the white area by a pixel to the left, right, top and bottom, `times` times. */
static int grow_plus(grey *m, int times, int least)
{
    size_t   n = (size_t)(m->w * m->h);
    uint8_t *was = malloc(n + 1);
    if (!was)
        return 0;
    while (times-- > 0) {
        memcpy(was, m->v, n);
        for (int64_t i = 0; i < m->w * m->h; i++) {
            int64_t x = i % m->w,
                    near[4] = { x ? i - 1 : i, x + 1 < m->w ? i + 1 : i, i >= m->w ? i - m->w : i,
                                i + m->w < m->w * m->h ? i + m->w : i };
            for (int k = 0; k < 4; k++)
                if (least ? was[near[k]] < m->v[i] : was[near[k]] > m->v[i])
                    m->v[i] = was[near[k]];
        }
    }
    free(was);
    return 1;
}

static int apply_grow(const xd_comfy_graph *g, const xd_comfy_node *node, grey *m)
{
    int by = (int)xd_comfy_number(g, node, "expand"), least = by < 0;
    by = least ? -by : by;
    if (m->w * m->h > MAX_GROWTH / (by + 1))
        return 0;
    if (xd_comfy_number(g, node, "tapered_corners") > 0)
        return grow_plus(m, by, least);
    return grow_square(m, by, by, least);
}

static xd_status save_mask(const grey *m, const char *path, xd_err *e)
{
    xd_image im;
    int64_t  n = m->w * m->h;
    uint8_t *rgb = malloc((size_t)n * 3 + 1);
    if (!rgb)
        return xd_fail(e, XD_ENOMEM, "no memory for a mask");
    for (int64_t i = 0; i < 3 * n; i++)
        rgb[i] = m->v[i / 3];
    xd_image_init(&im);
    im.width = m->w;
    im.height = m->h;
    im.data = rgb;
    xd_status s = xd_image_file_save(&im, path, e);
    free(rgb);
    return s;
}

static int has_alpha(const uint8_t *rgba, int64_t n)
{
    int64_t i = 0;
    while (i < n && rgba[4 * i + 3] == 255)
        i++;
    return i < n;
}

/* Reads a channel of an image as a mask. A mask from alpha (3) is white where the image is
 * transparent. Channel 4: alpha, or the grey values of an image without alpha. */
static xd_status read_mask(const char *path, int channel, grey *m, xd_err *e)
{
    xd_image im;
    uint8_t *rgba = NULL;
    xd_image_init(&im);
    xd_status s = xd_image_file_load_alpha(path, &im, &rgba, e);
    if (s != XD_OK)
        return s;
    *m = (grey){ .w = im.width, .h = im.height };
    m->v = malloc((size_t)(m->w * m->h) + 1);
    if (channel == 4)
        channel = has_alpha(rgba, m->w * m->h) ? 3 : 0;
    for (int64_t i = 0; m->v && i < m->w * m->h; i++)
        m->v[i] = channel == 3 ? (uint8_t)(255 - rgba[4 * i + 3]) : rgba[4 * i + channel];
    free(rgba);
    return m->v ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a mask");
}

static int channel_of(const char *name)
{
    static const char *const names[] = { "red", "green", "blue" };
    for (int i = 0; i < 3; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return 3;
}

/* Finds the file and the channel of a mask, and the nodes that change the mask, last first. */
static int find_mask(xd_comfy_graph *g, xd_comfy_node *node, const char *input, char *path,
                     size_t size, int *channel, xd_comfy_node *chain[MAX_CHAIN], int *n)
{
    int            slot;
    xd_comfy_node *at = xd_comfy_linked(g, node, input, &slot);
    *n = 0;
    while ((xd_comfy_is(at, "InvertMask") || xd_comfy_is(at, "GrowMask")) && *n < MAX_CHAIN) {
        chain[(*n)++] = at;
        at = xd_comfy_linked(g, at, "mask", &slot);
    }
    *channel = 3;
    if (xd_comfy_is(at, "LoadImageMask") || xd_comfy_is(at, "ImageToMask"))
        *channel = channel_of(xd_comfy_text(g, at, "channel"));
    if (xd_comfy_is(at, "ImageToMask"))
        at = xd_comfy_linked(g, at, "image", &slot);
    if (xd_comfy_is(at, "ETN_LoadImageCache"))
        *channel = *channel == 3 ? 4 : *channel;
    if (xd_comfy_is(at, "LoadImage") || xd_comfy_is(at, "LoadImageMask") ||
        xd_comfy_is(at, "ETN_LoadImageCache"))
        return load_name(g, at, path, size);
    xd_comfy_fail(g, node, "custom_validation_failed", input, "Unsupported mask",
                  "%s must lead to LoadImage or LoadImageMask, not to %s", input,
                  at ? at->class->name : "nothing");
    return 0;
}

void xd_comfy_set_mask(xd_comfy_graph *g, xd_api_req *r, xd_comfy_node *node, const char *input,
                       int grow)
{
    xd_comfy_node *chain[MAX_CHAIN];
    char           path[4200], made[4200], *data = NULL;
    size_t         bytes;
    int            n, channel, good = 1;
    grey           m = { 0 };
    xd_err         e = { 0 };
    if (!find_mask(g, node, input, path, sizeof path, &channel, chain, &n))
        return;
    xd_status s = read_mask(path, channel, &m, &e);
    while (s == XD_OK && n-- > 0)
        if (xd_comfy_is(chain[n], "GrowMask"))
            good &= apply_grow(g, chain[n], &m);
        else
            for (int64_t i = 0; i < m.w * m.h; i++)
                m.v[i] = (uint8_t)(255 - m.v[i]);
    if (s == XD_OK && grow >= 0) {
        for (int64_t i = 0; i < m.w * m.h; i++) /* such a mask is rounded to black and white */
            m.v[i] = m.v[i] > 127 ? 255 : 0;
        good &= m.w * m.h <= MAX_GROWTH / (grow + 1);
        good &= grow < 2 || !good || grow_square(&m, grow / 2, (grow - 1) / 2, 0);
    }
    name_file(g->call, ".png", made, sizeof made);
    s = s == XD_OK && good ? save_mask(&m, made, &e) : s == XD_OK ? XD_ENOMEM : s;
    if (s == XD_OK)
        s = xd_file_read(made, MAX_BYTES, &data, &bytes, &e);
    if (s == XD_OK)
        xd_api_req_file(r, "mask_image", data, bytes);
    else
        xd_comfy_fail(g, node, "custom_validation_failed", input, "Invalid mask",
                      "the mask cannot be read, or is too large to be grown");
    unlink(made);
    free(data);
    free(m.v);
}

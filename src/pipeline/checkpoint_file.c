/* checkpoint_file.c - reads and writes the files of checkpoints; see checkpoint_file.h */
#include "pipeline/checkpoint_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/rng.h"
#include "io/safetensors.h"
#include "pipeline/options.h"

static const char FINISHED[] = "finished steps", ENTRIES[] = "entries", CHECKSUM[] = "checksum";

static int64_t numbers_of(const xd_job *j)
{
    return xd_job_state_tensors(j) * j->numbers;
}

void xd_checkpoint_path(const xd_job *j, int image, int copy, char path[XD_CHECKPOINT_PATH])
{
    snprintf(path, XD_CHECKPOINT_PATH, "%s/image-%04d%s.safetensors", j->r->checkpoint.dir,
             image + 1, copy ? ".copy" : "");
}

static void name_item(char name[24], int i)
{
    if (i)
        snprintf(name, 24, "history.%d", i - 1);
    else
        snprintf(name, 24, "latents");
}

/* ---- the metadata --------------------------------------------------------------------------- */

static xd_text_buf *add_note(xd_notes *l, const char *name)
{
    xd_text_buf *b = &l->text[l->n];
    l->v[2 * l->n++] = name;
    return b;
}

/* Returns 1 if the option is given and may change the latents. The texts are listed by themselves,
 * because each image has its own. */
static int is_noted(const xd_request_row *row, const xd_job *j)
{
    for (int k = 0; k < XD_JOB_TEXTS; k++)
        if (strcmp(row->option.name, xd_job_text_name((xd_job_text_kind)k)) == 0)
            return 0;
    return !row->outside && row->option.kind != XD_OPT_SEED &&
           xd_request_gives_row(row, j->given ? j->given : j->r);
}

/* Lists everything that determines the latents of an image after `finished` steps. */
static xd_status list_notes(xd_notes *l, const xd_job *j, int image, int finished, xd_err *e)
{
    int                   n, prompt = image / j->r->num_images_per_prompt;
    const xd_request_row *rows = xd_request_rows(&n);
    xd_status             s = XD_OK;
    *l = (xd_notes){ .n = 0 };
    xd_buf_add(add_note(l, FINISHED), "%d", finished);
    xd_buf_add(add_note(l, "version of xdit"), "%s", xd_version());
    xd_buf_add(add_note(l, "model (a hash)"), "%016" PRIx64, j->model_hash);
    xd_buf_add(add_note(l, "number of steps"), "%d", j->samp.steps);
    xd_buf_add(add_note(l, "size"), "%" PRId64 " x %" PRId64, j->size[1], j->size[0]);
    xd_buf_add(add_note(l, "number of frames"), "%" PRId64, j->frames);
    xd_buf_add(add_note(l, "seed"), "%" PRIu64, (uint64_t)j->r->seed + (uint64_t)image);
    xd_buf_add(add_note(l, "prompt"), "%s", j->r->prompts[prompt]);
    for (int k = 0; k < XD_JOB_TEXTS; k++) {
        const char *text = xd_job_text(j->r, (xd_job_text_kind)k, prompt);
        if (text && *text)
            xd_buf_add(add_note(l, xd_job_text_name((xd_job_text_kind)k)), "%s", text);
    }
    for (int i = 0; i < n; i++)
        if (is_noted(&rows[i], j))
            xd_request_value(&rows[i], j->given ? j->given : j->r,
                             add_note(l, rows[i].option.name));
    for (int i = 0; i < l->n; i++) {
        l->v[2 * i + 1] = l->text[i].p ? l->text[i].p : "";
        if (s == XD_OK && l->text[i].failed)
            s = xd_fail(e, XD_ENOMEM, "no memory for the metadata of a checkpoint");
    }
    return s;
}

static void free_notes(xd_notes *l)
{
    for (int i = 0; i < l->n; i++)
        xd_buf_free(&l->text[i]);
}

/* Refuses a file whose metadata differ from those of this request. An option that only the file's
 * request gave is not found by its name, so the number of entries is compared, too. */
static xd_status compare_notes(const xd_st *st, const xd_notes *mine, const char *path, xd_err *e)
{
    const char *count = xd_st_meta(st, ENTRIES);
    char        n[24];
    snprintf(n, sizeof n, "%d", mine->n);
    for (int i = 1; i < mine->n; i++) {
        const char *name = mine->v[2 * i], *now = mine->v[2 * i + 1], *was = xd_st_meta(st, name);
        if (!was || strcmp(was, now) != 0)
            return xd_fail(
                e, XD_EINVAL,
                "%s is the checkpoint of another request: its %s is %s, not %s; give the "
                "same options, or another folder, or delete the file",
                path, name, was ? was : "not given", now);
    }
    if (!count || strcmp(count, n) != 0)
        return xd_fail(e, XD_EINVAL,
                       "%s is the checkpoint of another request, which had more options; give the "
                       "same options, or another folder, or delete the file",
                       path);
    return XD_OK;
}

/* Returns the checksum of tensors, `h` being that of those before them. */
static uint64_t add_checksum(uint64_t h, const float *v, int64_t n)
{
    uint32_t bits;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, v + i, sizeof bits);
        h = xd_hash_mix(h, bits);
    }
    return h;
}

/* ---- reading -------------------------------------------------------------------------------- */

static xd_status check_tensors(const xd_st *st, const xd_job *j, const char *path, xd_err *e)
{
    for (int i = 0; i < xd_job_state_tensors(j); i++) {
        char    name[24];
        int64_t at;
        name_item(name, i);
        at = xd_st_find(st, name);
        if (at < 0 || xd_count(xd_st_shape(st, at)) != j->numbers ||
            xd_st_shape(st, at).type != XD_F32)
            return xd_fail(e, XD_EFORMAT,
                           "%s is no checkpoint: its tensor %s does not fit; "
                           "delete the file",
                           path, name);
    }
    return XD_OK;
}

/* Opens the file of an image, and checks that it belongs to this request. Sets *finished to its
 * number of finished steps; 0: none that can be continued. */
static xd_status open_file(const xd_job *j, int image, const char *path, int *finished, xd_st **st,
                           xd_err *e)
{
    xd_notes  mine;
    xd_status s = xd_st_open(st, path, "", e);
    *finished = 0;
    if (s != XD_OK)
        return s;
    s = list_notes(&mine, j, image, 0, e);
    if (s == XD_OK)
        s = compare_notes(*st, &mine, path, e);
    if (s == XD_OK)
        s = check_tensors(*st, j, path, e);
    const char *steps = s == XD_OK ? xd_st_meta(*st, FINISHED) : NULL;
    if (steps && atoi(steps) > 0 && atoi(steps) < j->samp.steps)
        *finished = atoi(steps);
    free_notes(&mine);
    return s;
}

/* Reads the tensors of a file that is open to `to`, one after the other. */
static xd_status read_tensors(xd_st *st, const xd_job *j, const char *path, float *to, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < xd_job_state_tensors(j) && s == XD_OK; i++) {
        char      name[24];
        xd_tensor t;
        name_item(name, i);
        s = xd_st_get(st, xd_st_find(st, name), &t, e);
        if (s == XD_OK)
            memcpy(to + i * j->numbers, t.p, (size_t)j->numbers * sizeof *to);
    }
    const char *sum = s == XD_OK ? xd_st_meta(st, CHECKSUM) : NULL;
    if (s == XD_OK && (!sum || strtoull(sum, NULL, 16) != add_checksum(0, to, numbers_of(j))))
        s = xd_fail(e, XD_EFORMAT, "%s is damaged: its checksum differs; delete the file", path);
    return s;
}

/* Reads the state from one file. finished: the expected number of steps; 0: any. */
static xd_status read_file(const xd_job *j, int image, int copy, int finished, float *to, xd_err *e)
{
    char   path[XD_CHECKPOINT_PATH];
    int    found;
    xd_st *st = NULL;
    xd_checkpoint_path(j, image, copy, path);
    xd_status s = open_file(j, image, path, &found, &st, e);
    if (s == XD_OK && finished && found != finished)
        s = xd_fail(e, XD_EIO, "%s has changed since the request began", path);
    if (s == XD_OK)
        s = read_tensors(st, j, path, to, e);
    xd_st_close(&st);
    return s;
}

xd_status xd_checkpoint_read(const xd_job *j, int image, int finished, float *to, xd_err *e)
{
    char      path[XD_CHECKPOINT_PATH];
    xd_status s = XD_EIO;
    xd_err    first = { 0 }; /* that of the copy only if the file itself does not exist */
    for (int copy = 0; copy < 2 && s != XD_OK; copy++) {
        xd_checkpoint_path(j, image, copy, path);
        if (xd_file_exists(path))
            s = read_file(j, image, copy, finished, to, &first);
    }
    if (s != XD_OK && !first.msg[0])
        return xd_fail(e, s, "%s has disappeared since the request began", path);
    if (s != XD_OK)
        *e = first;
    return s;
}

/* Returns 1 if the state of an image can be read from a file, whose bytes are compared with their
 * checksum. */
static int is_whole(const xd_job *j, int image, int copy)
{
    float    *state = malloc((size_t)numbers_of(j) * sizeof *state);
    xd_err    e = { 0 };
    xd_status s = state ? read_file(j, image, copy, 0, state, &e) : XD_ENOMEM;
    free(state);
    return s == XD_OK;
}

xd_status xd_checkpoint_steps(const xd_job *j, int image, int *finished, xd_err *e)
{
    char      path[XD_CHECKPOINT_PATH];
    int       steps[2] = { 0, 0 }, there[2];
    xd_status s[2] = { XD_OK, XD_OK };
    xd_err    err[2] = { { 0 }, { 0 } };
    for (int copy = 0; copy < 2; copy++) {
        xd_st *st = NULL;
        xd_checkpoint_path(j, image, copy, path);
        if ((there[copy] = xd_file_exists(path)))
            s[copy] = open_file(j, image, path, &steps[copy], &st, &err[copy]);
        xd_st_close(&st);
        if (s[copy] == XD_EINVAL) { /* a file of another request */
            *e = err[copy];
            return XD_EINVAL;
        }
    }
    int newest = steps[1] > steps[0];
    /* The state is needed from one file alone, so a damaged file has no effect beside a whole
     * one. */
    if (there[0] && there[1] && (s[newest] != XD_OK || !is_whole(j, image, newest)))
        newest = !newest;
    *finished = steps[newest];
    if (s[newest] != XD_OK)
        *e = err[newest];
    return s[newest];
}

/* ---- writing -------------------------------------------------------------------------------- */

xd_snapshot *xd_snapshot_make(const xd_job *j)
{
    xd_snapshot *p = calloc(1, sizeof *p);
    if (p && (p->state = malloc((size_t)numbers_of(j) * sizeof *p->state)))
        return p;
    free(p);
    return NULL;
}

xd_status xd_snapshot_set(xd_snapshot *p, const xd_job *j, int image, int finished, int copy,
                          xd_err *e)
{
    free_notes(&p->notes);
    xd_checkpoint_path(j, image, copy, p->path);
    p->finished = finished;
    p->items = xd_job_state_tensors(j);
    p->numbers = j->numbers;
    memcpy(p->lat, j->lat, sizeof p->lat);
    return list_notes(&p->notes, j, image, finished, e);
}

void xd_snapshot_free(void *snapshot)
{
    xd_snapshot *p = snapshot;
    free_notes(&p->notes);
    free(p->state);
    free(p);
}

xd_status xd_snapshot_write(void *snapshot, xd_err *e)
{
    xd_snapshot *p = snapshot;
    xd_notes    *l = &p->notes;
    char         names[XD_CHECKPOINT_ITEMS][24], count[24], sum[24];
    xd_st_item   item[XD_CHECKPOINT_ITEMS];
    xd_err       why = { 0 };
    for (int i = 0; i < p->items; i++) {
        name_item(names[i], i);
        item[i] = (xd_st_item){ names[i], xd_view(p->state + i * p->numbers, XD_F32, 4, p->lat) };
    }
    snprintf(count, sizeof count, "%d", l->n);
    snprintf(sum, sizeof sum, "%016" PRIx64, add_checksum(0, p->state, p->items * p->numbers));
    l->v[2 * l->n] = ENTRIES;
    l->v[2 * l->n + 1] = count;
    l->v[2 * l->n + 2] = CHECKSUM;
    l->v[2 * l->n + 3] = sum;
    xd_status s = xd_st_write(p->path, item, p->items, 1, l->v, &why);
    return s == XD_OK ? s : xd_fail(e, s, "no checkpoint after step %d: %s", p->finished, why.msg);
}

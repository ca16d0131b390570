/* checkpoint.c - implements the files from which an interrupted image continues */
#include "pipeline/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/options.h"
#include "pipeline/work.h"
#include "ranks/world.h"

enum { NAME = 4096, ITEMS = 1 + XD_MAXHIST };

static const char FINISHED[] = "finished steps", ENTRIES[] = "entries", CHECKSUM[] = "checksum";

static int is_on(const xd_job *j)
{
    const char *dir = j->r->checkpoint.dir;
    return dir && *dir && j->ctx->work == &xd_work_computes;
}

static int history_of(const xd_job *j)
{
    return j->sampler->history(&j->samp.cfg);
}

static void path_of(const xd_job *j, int image, char path[NAME])
{
    snprintf(path, NAME, "%s/image-%04d.safetensors", j->r->checkpoint.dir, image + 1);
}

static void name_item(char name[24], int i)
{
    if (i)
        snprintf(name, 24, "history.%d", i - 1);
    else
        snprintf(name, 24, "latents");
}

/* ---- the metadata --------------------------------------------------------------------------- */

enum { NOTES = 8 + XD_JOB_TEXTS + XD_OPTION_ROWS };

/* The metadata of a file: keys and their values, in pairs, and NULL at the end. */
typedef struct notes {
    const char *v[2 * NOTES + 5];
    xd_text_buf text[NOTES]; /* the values */
    int         n;
} notes;

static xd_text_buf *add_note(notes *l, const char *name)
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
static xd_status list_notes(notes *l, const xd_job *j, int image, int finished, xd_err *e)
{
    int                   n, prompt = image / j->r->num_images_per_prompt;
    const xd_request_row *rows = xd_request_rows(&n);
    xd_status             s = XD_OK;
    *l = (notes){ .n = 0 };
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

static void free_notes(notes *l)
{
    for (int i = 0; i < l->n; i++)
        xd_buf_free(&l->text[i]);
}

/* Refuses a file whose metadata differ from those of this request. An option that only the file's
 * request gave is not found by its name, so the number of entries is compared, too. */
static xd_status compare_notes(const xd_st *st, const notes *mine, const char *path, xd_err *e)
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

/* ---- before the request --------------------------------------------------------------------- */

static xd_status check_tensors(const xd_st *st, const xd_job *j, const char *path, xd_err *e)
{
    for (int i = 0; i <= history_of(j); i++) {
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

/* Sets *finished to the number of finished steps in the file of an image, 0 if there is none. */
static xd_status read_finished(const xd_job *j, int image, int32_t *finished, xd_err *e)
{
    char   path[NAME];
    notes  mine;
    xd_st *st = NULL;
    *finished = 0;
    path_of(j, image, path);
    if (!xd_file_exists(path))
        return XD_OK;
    xd_status s = xd_st_open(&st, path, "", e);
    if (s != XD_OK)
        return s;
    s = list_notes(&mine, j, image, 0, e);
    if (s == XD_OK)
        s = compare_notes(st, &mine, path, e);
    if (s == XD_OK)
        s = check_tensors(st, j, path, e);
    const char *steps = xd_st_meta(st, FINISHED);
    if (s == XD_OK && steps && atoi(steps) > 0 && atoi(steps) < j->samp.steps) {
        *finished = (int32_t)atoi(steps);
        xd_log(XD_LOG_INFO, "image %d continues after step %d of %d", image + 1, *finished,
               j->samp.steps);
    }
    free_notes(&mine);
    xd_st_close(&st);
    return s;
}

/* Removes files that a killed process has not renamed to their names. */
static void remove_unfinished(const char *dir)
{
    DIR           *d = opendir(dir);
    struct dirent *entry;
    while (d && (entry = readdir(d)))
        if (strncmp(entry->d_name, "image-", 6) == 0 && strstr(entry->d_name, ".safetensors.tmp"))
            unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        closedir(d);
}

/* Locks the folder, so that no other process changes its files. Waits some seconds, because ranks
 * that were just killed may still be ending. */
static xd_status lock_folder(xd_job *j, const char *dir, xd_err *e)
{
    const struct timespec pause = { 0, 50000000 };
    int                   fd = open(dir, O_RDONLY | O_CLOEXEC), tries = 100;
    if (fd < 0)
        return xd_fail(e, XD_EIO, "the folder %s of --checkpoint cannot be opened: %s", dir,
                       strerror(errno));
    j->locked = fd + 1; /* file systems without locks are used without one */
    while (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && tries-- > 0)
        nanosleep(&pause, NULL);
    if (tries < 0)
        return xd_fail(e, XD_EINVAL, "another process uses the checkpoint folder %s", dir);
    remove_unfinished(dir);
    return XD_OK;
}

/* Creates the folder if it is missing, checks that files can be written there, and locks it. */
static xd_status open_folder(xd_job *j, const char *dir, xd_err *e)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return xd_fail(e, XD_EIO, "the folder %s of --checkpoint cannot be created: %s", dir,
                       strerror(errno));
    if (!xd_file_is_dir(dir) || access(dir, W_OK | X_OK) != 0)
        return xd_fail(e, XD_EIO, "--checkpoint needs a folder in which files can be written: %s",
                       dir);
    return lock_folder(j, dir, e);
}

xd_status xd_checkpoint_find(xd_job *j, xd_err *e)
{
    xd_status s = XD_OK;
    int       any = 0;
    if (!is_on(j))
        return XD_OK;
    if (j->audio_numbers)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "checkpoint: videos with audio cannot be continued: leave out checkpoint");
    if (!(j->finished = calloc((size_t)j->images + 1, sizeof *j->finished)))
        s = xd_fail(e, XD_ENOMEM, "no memory for a list of %d images", j->images);
    if (j->ctx->world.used->rank == 0 && s == XD_OK)
        s = open_folder(j, j->r->checkpoint.dir, e);
    if (j->ctx->world.used->rank == 0 && s == XD_OK)
        s = xd_model_hash(&j->ctx->model, &j->model_hash, e);
    for (int i = 0; i < j->ntodo && s == XD_OK && j->ctx->world.used->rank == 0; i++) {
        int image = xd_job_image(j, i);
        s = read_finished(j, image, &j->finished[image], e);
        any |= j->finished[image];
    }
    if (s == XD_OK && any && xd_step_hash_count(j))
        s = xd_fail(
            e, XD_EINVAL,
            "determinism_check needs the hashes of all steps, but the checkpoint in %s has "
            "finished some: remove determinism_check, or delete the files of the checkpoint",
            j->r->checkpoint.dir);
    s = xd_world_agree(&j->ctx->world, s, e);
    if (s == XD_OK)
        s = xd_world_broadcast(&j->ctx->world, &j->model_hash, sizeof j->model_hash, e);
    return s == XD_OK ? xd_world_broadcast(&j->ctx->world, j->finished,
                                           j->images * (int64_t)sizeof *j->finished, e)
                      : s;
}

void xd_checkpoint_close(xd_job *j)
{
    if (j->locked)
        close(j->locked - 1);
    free(j->finished);
    j->locked = 0;
    j->finished = NULL;
}

int xd_checkpoint_finished(const xd_job *j, int image)
{
    return j->finished ? j->finished[image] : 0;
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

/* ---- while the request runs ----------------------------------------------------------------- */

/* Reads the tensors of a file after `finished` steps to `to`, one after the other. */
static xd_status read_tensors(const xd_job *j, int image, int finished, float *to, xd_err *e)
{
    char   path[NAME], name[24];
    xd_st *st = NULL;
    path_of(j, image, path);
    xd_status s = xd_st_open(&st, path, "", e);
    if (s == XD_OK)
        s = check_tensors(st, j, path, e);
    const char *steps = s == XD_OK ? xd_st_meta(st, FINISHED) : NULL;
    if (s == XD_OK && (!steps || atoi(steps) != finished))
        s = xd_fail(e, XD_EIO, "%s has changed since the request began", path);
    for (int i = 0; i <= history_of(j) && s == XD_OK; i++) {
        xd_tensor t;
        name_item(name, i);
        s = xd_st_get(st, xd_st_find(st, name), &t, e);
        if (s == XD_OK)
            memcpy(to + i * j->numbers, t.p, (size_t)j->numbers * sizeof *to);
    }
    const char *sum = s == XD_OK ? xd_st_meta(st, CHECKSUM) : NULL;
    if (s == XD_OK &&
        (!sum || strtoull(sum, NULL, 16) != add_checksum(0, to, (1 + history_of(j)) * j->numbers)))
        s = xd_fail(e, XD_EFORMAT, "%s is damaged: its checksum differs; delete the file", path);
    xd_st_close(&st);
    return s;
}

void xd_checkpoint_restore(xd_denoise *f, int image, int finished)
{
    xd_job   *j = f->j;
    xd_comm  *c = f->topo->replica;
    int64_t   n = (1 + history_of(j)) * j->numbers;
    xd_err    e = { 0 };
    float    *state = calloc((size_t)n, sizeof *state);
    xd_status s = state ? XD_OK : xd_fail(&e, XD_ENOMEM, "no memory for a checkpoint");
    if (s == XD_OK && c->rank == 0)
        s = read_tensors(j, image, finished, state, &e);
    /* The ranks of the replica may only exchange the state if all have memory for it. */
    s = xd_world_agree_in(c, c->rank, s, &e);
    if (s == XD_OK && c->size > 1) {
        xd_req r = c->ops->bcast(c, xd_view(state, XD_F32, 1, &n), 0);
        xd_denoise_wait(f, c, &r);
    }
    if (s != XD_OK)
        xd_exec_fail(&f->x, s, "%s", e.msg);
    xd_denoise_set_state(f, finished, state);
    free(state);
}

/* Writes the tensors of a checkpoint to the file of an image. */
static xd_status write_file(const xd_job *j, int image, int finished, float *const *state,
                            xd_err *e)
{
    char       path[NAME], names[ITEMS][24], count[24], sum[24];
    uint64_t   h = 0;
    xd_st_item item[ITEMS];
    notes      l;
    path_of(j, image, path);
    for (int i = 0; i <= history_of(j); i++) {
        name_item(names[i], i);
        item[i] = (xd_st_item){ names[i], xd_view(state[i], XD_F32, 4, j->lat) };
        h = add_checksum(h, state[i], j->numbers);
    }
    xd_status s = list_notes(&l, j, image, finished, e);
    snprintf(count, sizeof count, "%d", l.n);
    l.v[2 * l.n] = ENTRIES;
    l.v[2 * l.n + 1] = count;
    snprintf(sum, sizeof sum, "%016" PRIx64, h);
    l.v[2 * l.n + 2] = CHECKSUM;
    l.v[2 * l.n + 3] = sum;
    if (s == XD_OK)
        s = xd_st_write(path, item, 1 + history_of(j), 1, l.v, e);
    free_notes(&l);
    return s;
}

/* Returns 1 if enough seconds have passed since the last file. Rank 0 of the replica decides for
 * all, because clocks differ and gathering the latents is collective. */
static int is_time(xd_denoise *f)
{
    xd_job       *j = f->j;
    xd_comm      *c = f->topo->replica;
    const int64_t one = 1;
    double        since = j->saved_s > 0 ? j->saved_s : j->start_s, now = xd_now_s();
    float         due = now - since >= j->r->checkpoint.seconds;
    if (j->r->checkpoint.seconds > 0 && c->size > 1) {
        xd_req r = c->ops->bcast(c, xd_view(&due, XD_F32, 1, &one), 0);
        xd_denoise_wait(f, c, &r);
    }
    if (due > 0)
        j->saved_s = now;
    return due > 0;
}

void xd_checkpoint_save(xd_denoise *f, int image, int step, float *lat)
{
    const xd_job *j = f->j;
    int           n = history_of(j);
    int64_t       every = j->r->checkpoint.steps;
    if (!is_on(j) || (step + 1) % (every > 0 ? every : 1) || step + 1 == j->samp.steps ||
        !is_time(f))
        return;
    double t0 = xd_now_s();
    float *state[ITEMS] = { lat };
    float *more = xd_denoise_buffer(f, n * j->numbers, "a checkpoint");
    xd_denoise_gather(f, f->lat, lat);
    for (int i = 0; i < n; i++) {
        state[1 + i] = more ? more + i * j->numbers : NULL;
        xd_denoise_gather(f, f->hist[i], state[1 + i]);
    }
    xd_err e = { 0 };
    if (f->topo->replica->rank == 0 && xd_ok(&f->x) &&
        write_file(j, image, step + 1, state, &e) != XD_OK)
        xd_log(XD_LOG_WARN, "no checkpoint after step %d: %s", step + 1, e.msg);
    xd_log(XD_LOG_DEBUG, "checkpoint after step %d: %.3f ms", step + 1, (xd_now_s() - t0) * 1e3);
    free(more);
}

void xd_checkpoint_remove(const xd_job *j, int image)
{
    char path[NAME];
    if (!is_on(j))
        return;
    path_of(j, image, path);
    unlink(path);
}

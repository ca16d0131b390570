/* checkpoint.c - implements the checkpoints from which an interrupted image continues */
#include "pipeline/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "base/saver.h"
#include "model/model.h"
#include "pipeline/checkpoint_file.h"
#include "pipeline/denoise_inside.h"
#include "pipeline/work.h"
#include "ranks/world.h"

static int is_on(const xd_job *j)
{
    const char *dir = j->r->checkpoint.dir;
    return dir && *dir && j->ctx->work == &xd_work_computes;
}

static int has_hosts(const xd_job *j)
{
    return j->ctx->world.host->size < j->ctx->world.used->size;
}

/* ---- the folder ----------------------------------------------------------------------------- */

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

/* Creates the folder if it is missing, checks that files can be written there, and locks it. Only
 * rank 0 locks it, because hosts may share it. */
static xd_status open_folder(xd_job *j, const char *dir, xd_err *e)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return xd_fail(e, XD_EIO, "the folder %s of --checkpoint cannot be created: %s", dir,
                       strerror(errno));
    if (!xd_file_is_dir(dir) || access(dir, W_OK | X_OK) != 0)
        return xd_fail(e, XD_EIO, "--checkpoint needs a folder in which files can be written: %s",
                       dir);
    return j->ctx->world.used->rank == 0 ? lock_folder(j, dir, e) : XD_OK;
}

/* ---- before the request --------------------------------------------------------------------- */

/* Makes the state of an image after `finished` steps, which rank `holder` can read, readable on the
 * host of each rank that needs it. Collective over the used ranks. */
static xd_status send_state(xd_job *j, int image, int finished, int holder, int needed, xd_err *e)
{
    xd_comm     *c = j->ctx->world.used;
    int64_t      n = xd_job_state_tensors(j) * j->numbers;
    xd_snapshot *p = xd_snapshot_make(j);
    xd_status    s = p ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a checkpoint");
    if (s == XD_OK && c->rank == holder)
        s = xd_checkpoint_read(j, image, finished, p->state, e);
    s = xd_world_agree(&j->ctx->world, s, e);
    if (s == XD_OK)
        s = xd_world_wait(c, c->ops->bcast(c, xd_view(p->state, XD_F32, 1, &n), holder), e);
    if (s == XD_OK && needed)
        s = xd_snapshot_set(p, j, image, finished, 0, e);
    if (s == XD_OK && needed)
        s = xd_snapshot_write(p, e);
    if (p)
        xd_snapshot_free(p);
    return s == XD_ECOMM ? s : xd_world_agree(&j->ctx->world, s, e);
}

/* Sets j->finished to the largest values of all hosts, and sends the states to the ranks whose host
 * does not have them. `steps` has the values of this host. */
static xd_status share_states(xd_job *j, int32_t *steps, xd_err *e)
{
    const xd_world *w = &j->ctx->world;
    xd_comm        *c = w->used, *h = w->host;
    int64_t         n = j->images, *best = calloc((size_t)n + 1, sizeof *best);
    int             D = j->ctx->plan.deg.n[XD_DATA], first = j->ctx->topo.replica->rank == 0;
    xd_status       s = best ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a list of images");
    s = xd_world_agree(w, s, e);
    /* The largest number is that of the lowest rank with the most steps. */
    for (int64_t i = 0; i < n && s == XD_OK; i++)
        best[i] = h->rank == 0 ? (int64_t)steps[i] * c->size + c->size - 1 - c->rank : 0;
    if (s == XD_OK)
        s = xd_world_wait(c, c->ops->allreduce(c, xd_view(best, XD_I64, 1, &n), XD_MAX), e);
    if (s == XD_OK && h->size > 1)
        s = xd_world_wait(h, h->ops->bcast(h, xd_view(steps, XD_I32, 1, &n), 0), e);
    for (int i = 0; i < j->ntodo && s == XD_OK; i++) {
        int image = xd_job_image(j, i), finished = (int)(best[image] / c->size);
        int mine = first && i % D == j->ctx->topo.at[XD_DATA];
        int needed = mine && steps[image] != finished;
        j->finished[image] = finished;
        if (finished && !xd_world_all(w, !needed))
            s = send_state(j, image, finished, c->size - 1 - (int)(best[image] % c->size), needed,
                           e);
    }
    free(best);
    return s;
}

/* Sets j->copies on the rank that writes the copy: the lowest rank of the replica that is not on
 * the host of its first rank. */
static xd_status choose_copier(xd_job *j, xd_err *e)
{
    xd_comm      *c = j->ctx->topo.replica, *h = j->ctx->world.host;
    const int64_t one = 1;
    int32_t       here = j->ctx->world.used->rank, there, who;
    xd_status     s = XD_OK;
    if (h->size > 1) /* the lowest rank of a host stands for the host */
        s = xd_world_wait(h, h->ops->bcast(h, xd_view(&here, XD_I32, 1, &one), 0), e);
    there = here;
    if (s != XD_OK || c->size == 1)
        return s;
    s = xd_world_wait(c, c->ops->bcast(c, xd_view(&there, XD_I32, 1, &one), 0), e);
    who = here == there ? INT32_MAX : c->rank;
    if (s == XD_OK)
        s = xd_world_wait(c, c->ops->allreduce(c, xd_view(&who, XD_I32, 1, &one), XD_MIN), e);
    j->copies = who == c->rank;
    return s;
}

/* Sets steps[image] to the finished steps that the files of this host have, on its first rank. */
static xd_status read_steps(const xd_job *j, int32_t *steps, xd_err *e)
{
    xd_status s = XD_OK;
    for (int i = 0; i < j->ntodo && s == XD_OK && j->ctx->world.host->rank == 0; i++) {
        int image = xd_job_image(j, i), finished;
        s = xd_checkpoint_steps(j, image, &finished, e);
        steps[image] = finished;
    }
    return s;
}

/* Logs the images that continue, and refuses them if the request needs all steps. */
static xd_status report_steps(const xd_job *j, xd_err *e)
{
    int any = 0;
    for (int i = 0; i < j->ntodo; i++) {
        int image = xd_job_image(j, i), finished = j->finished[image];
        any |= finished;
        if (finished && j->ctx->world.used->rank == 0)
            xd_log(XD_LOG_INFO, "image %d continues after step %d of %d", image + 1, finished,
                   j->samp.steps);
    }
    if (any && xd_step_hash_count(j))
        return xd_fail(
            e, XD_EINVAL,
            "determinism_check needs the hashes of all steps, but the checkpoint in %s has "
            "finished some: remove determinism_check, or delete the files of the checkpoint",
            j->r->checkpoint.dir);
    return XD_OK;
}

xd_status xd_checkpoint_find(xd_job *j, xd_err *e)
{
    const xd_world *w = &j->ctx->world;
    int32_t        *steps = NULL;
    xd_status       s = XD_OK;
    if (!is_on(j))
        return XD_OK;
    if (j->audio_numbers)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "checkpoint: videos with audio cannot be continued: leave out checkpoint");
    j->finished = calloc((size_t)j->images + 1, sizeof *j->finished);
    steps = has_hosts(j) ? calloc((size_t)j->images + 1, sizeof *steps) : j->finished;
    if (!j->finished || !steps)
        s = xd_fail(e, XD_ENOMEM, "no memory for a list of %d images", j->images);
    if (w->host->rank == 0 && s == XD_OK)
        s = open_folder(j, j->r->checkpoint.dir, e);
    if (w->used->rank == 0 && s == XD_OK)
        s = xd_model_hash(&j->ctx->model, &j->model_hash, e);
    s = xd_world_agree(w, s, e);
    if (s == XD_OK)
        s = xd_world_broadcast(w, &j->model_hash, sizeof j->model_hash, e);
    if (s == XD_OK)
        s = xd_world_agree(w, read_steps(j, steps, e), e);
    if (s == XD_OK && has_hosts(j))
        s = share_states(j, steps, e);
    else if (s == XD_OK)
        s = xd_world_broadcast(w, j->finished, j->images * (int64_t)sizeof *j->finished, e);
    if (s == XD_OK && has_hosts(j))
        s = choose_copier(j, e);
    if (steps != j->finished)
        free(steps);
    return s == XD_OK ? report_steps(j, e) : s;
}

/* Prints a warning if a file could not be written. */
static void warn_unsaved(const xd_job *j)
{
    xd_err e = { 0 };
    if (j->saver && xd_saver_status(j->saver, &e) != XD_OK)
        xd_log(XD_LOG_WARN, "%s", e.msg);
}

void xd_checkpoint_settle(const xd_job *j)
{
    if (j->saver)
        xd_saver_wait(j->saver);
    warn_unsaved(j);
}

void xd_checkpoint_close(xd_job *j)
{
    xd_checkpoint_settle(j);
    xd_saver_close(&j->saver);
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

/* ---- while the request runs ----------------------------------------------------------------- */

void xd_checkpoint_restore(xd_denoise *f, int image, int finished)
{
    xd_job   *j = f->j;
    xd_comm  *c = f->topo->replica;
    int64_t   n = xd_job_state_tensors(j) * j->numbers;
    xd_err    e = { 0 };
    float    *state = calloc((size_t)n, sizeof *state);
    xd_status s = state ? XD_OK : xd_fail(&e, XD_ENOMEM, "no memory for a checkpoint");
    if (s == XD_OK && c->rank == 0)
        s = xd_checkpoint_read(j, image, finished, state, &e);
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

/* Returns 1 if enough seconds have passed since the last file. Rank 0 of the replica decides for
 * all, because clocks differ and gathering the latents is collective. */
static int is_time(xd_denoise *f)
{
    xd_job *j = f->j;
    double  since = j->saved_s > 0 ? j->saved_s : j->start_s, now = xd_now_s();
    int     due = now - since >= j->r->checkpoint.seconds;
    if (j->r->checkpoint.seconds > 0)
        due = xd_denoise_decide(f, due);
    if (due)
        j->saved_s = now;
    return due;
}

/* Returns a snapshot to fill, on a rank that writes a file or its copy. */
static xd_snapshot *take_snapshot(xd_job *j, int image, int step, int copy)
{
    static const xd_saver_ops ops = { xd_snapshot_write, xd_snapshot_free };
    xd_err                    e = { 0 };
    if (!j->saver)
        j->saver = xd_saver_open(&ops);
    xd_snapshot *p = j->saver ? xd_saver_reuse(j->saver) : NULL;
    if (j->saver && !p)
        p = xd_snapshot_make(j);
    xd_status s = p ? xd_snapshot_set(p, j, image, step + 1, copy, &e) : XD_ENOMEM;
    if (s == XD_OK)
        return p;
    xd_log(XD_LOG_WARN, "no checkpoint after step %d: no memory", step + 1);
    if (p)
        xd_snapshot_free(p);
    return NULL;
}

void xd_checkpoint_save(xd_denoise *f, int image, int step, float *lat)
{
    xd_job *j = f->j;
    int64_t every = j->r->checkpoint.steps;
    int     first = f->topo->replica->rank == 0;
    if (!is_on(j) || (step + 1) % (every > 0 ? every : 1) || step + 1 == j->samp.steps ||
        !is_time(f))
        return;
    double       t0 = xd_now_s();
    xd_snapshot *p = first || j->copies ? take_snapshot(j, image, step, !first) : NULL;
    xd_denoise_gather_state(f, p ? p->state : lat, p ? j->numbers : 0);
    if (p && xd_ok(&f->x))
        xd_saver_put(j->saver, p);
    else if (p)
        xd_snapshot_free(p);
    warn_unsaved(j);
    xd_log(XD_LOG_DEBUG, "checkpoint after step %d: %.3f ms", step + 1, (xd_now_s() - t0) * 1e3);
}

void xd_checkpoint_remove(const xd_job *j, int image)
{
    char path[XD_CHECKPOINT_PATH];
    if (!is_on(j) || (j->ctx->world.used->rank && j->ctx->world.host->rank))
        return;
    xd_checkpoint_settle(j);
    for (int copy = 0; copy < 2; copy++) {
        xd_checkpoint_path(j, image, copy, path);
        unlink(path);
    }
}

/* predictor.c - predicts the duration of tasks.
 *
 * Tasks that differ only in their texts and seeds take the same time and have the same key, the
 * arguments that affect the time. The predicted time of a known key is the measured time of tasks
 * with that key. For a new key, the predicted time is the planner's prediction multiplied by a
 * correction: the mean ratio of measured to planned times of all keys. */
#include "serve/predictor.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "serve/task_flags.h"
#include "xdit/tools.h"

enum {
    ALL_RANKS,
    ONE_RANK,
    MODES
}; /* modes of a prediction: the task runs on all ranks
                                           together, or on one rank */
enum { KEYS = 256, MAX_PIXELS = 64 << 20 };

static const double newest = 0.3; /* weight of a new measurement in the moving averages of
                                           measured times */

typedef struct entry {
    char    *key;
    double   planned[MODES];  /* seconds that the planner predicts; negative: unknown */
    double   measured[MODES]; /* moving average of measured seconds; 0: nothing was measured */
    double   text, decode;    /* fractions of the time for text encoding and for decoding */
    /* value of the predictor's counter `uses` when the entry was last used */
    unsigned used;
} entry;

struct xd_predictor {
    xd_tasks            *tasks;
    const xd_open_flags *open;
    pthread_t            thread;
    pthread_mutex_t      lock;
    /* ranks: number of ranks of the worker (0: unknown); started: 1 if the prediction thread
     * runs */
    int                  ranks, started;
    entry                entries[KEYS];
    int                  n;
    unsigned             uses;
    /* mean ratio of measured to planned seconds; 0: unknown */
    double               correction[MODES];
};

/* ---- keys ------------------------------------------------------------------------------------ */

static int is_equal_for_time(const char *arg)
{
    static const char *const other[] = { "--id=",
                                         "--output=",
                                         "--checkpoint=",
                                         "--prompt=",
                                         "--negative_prompt=",
                                         "--prompt_2=",
                                         "--prompt_3=",
                                         "--negative_prompt_2=",
                                         "--negative_prompt_3=",
                                         "--seed=",
                                         "--previews=" };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (strncmp(arg, other[i], strlen(other[i])) == 0)
            return 1;
    return 0;
}

/* Returns the key of a task: the arguments on which the task's time depends, with the size of an
 * image file in place of its name. */
static char *key_of(const xd_task *t)
{
    xd_text_buf b = { 0 };
    for (int i = 0; i < t->nargs; i++) {
        const char *a = t->args[i];
        const char *file = xd_task_image_path(a);
        int64_t     w = 0, h = 0;
        if (file)
            xd_image_file_size(file, &w, &h, NULL);
        if (file)
            xd_buf_add(&b, "%.*s %lldx%lld\n", (int)strcspn(a, "="), a, (long long)w, (long long)h);
        else if (!is_equal_for_time(a))
            xd_buf_add(&b, "%s\n", a);
    }
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

/* Returns the entry of a task's key. If the key has no entry and `make` is set, replaces the least
 * recently used entry by a new entry that owns the key. The caller holds the predictor's lock. */
static entry *entry_of(xd_predictor *p, char *key, int make)
{
    int oldest = 0;
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->entries[i].key, key) == 0) {
            p->entries[i].used = ++p->uses;
            return &p->entries[i];
        }
        oldest = p->entries[i].used < p->entries[oldest].used ? i : oldest;
    }
    if (!make)
        return NULL;
    entry *k = &p->entries[p->n < KEYS ? p->n++ : oldest];
    free(k->key);
    *k = (entry){ .key = key, .used = ++p->uses };
    return k;
}

/* ---- predictions by the planner -------------------------------------------------------------- */

/* Predicts the seconds of a request on all ranks. For the mode ONE_RANK, predicts the seconds of a
 * data-parallel request in which every rank generates all images alone, as split ranks do. The
 * predicted seconds are negative if the planner refuses the request. */
static void plan(const xd_predictor *p, const xd_task_flags *f, int mode, int ranks, entry *k)
{
    xd_advise_args      a = xd_open_flags_advise(p->open, f->model);
    xd_plans           *plans = NULL;
    xd_request          r = f->request;
    const xd_plan_info *best = NULL;
    a.request = &r;
    a.ranks = ranks;
    /* The prediction is for the CPU even if the worker uses GPUs, because this process would have
     * to open the GPUs to predict for them. A correction factor adjusts the time that the planner
     * predicts. */
    a.dtype = a.dtype && strcmp(a.dtype, "f16") == 0 ? "bf16" : a.dtype;
    a.device = "cpu";
    if (mode == ONE_RANK) {
        a.parallel = (xd_parallel){ .data_parallel_degree = ranks };
        r.num_images_per_prompt *= ranks;
    }
    r.images.image = f->images.n ? f->images.v[0] : NULL;
    if (f->control_images.n) {
        r.images.control_image = f->control_images.v[0];
        r.images.more_control_images = f->control_images.v + 1;
        r.images.nmore_control_images = f->control_images.n - 1;
    }
    if (f->redux_images.n) {
        r.redux.image = f->redux_images.v[0];
        r.redux.more_images = f->redux_images.v + 1;
        r.redux.nmore_images = f->redux_images.n - 1;
    }
    r.images.control_video = f->control_video;
    r.driving.pose_video = f->pose_video, r.driving.face_video = f->face_video;
    if (xd_plans_predict(&plans, &a, NULL) == XD_OK)
        best = xd_plans_get(plans, 0);
    k->planned[mode] = best ? best->request_s : -1;
    if (best && mode == ALL_RANKS && best->request_s > 0) {
        double images = (double)r.nprompts * r.num_images_per_prompt;
        k->text = fmin(best->text_s / best->request_s, 1);
        k->decode = fmin(images * best->decode_s / best->request_s, 1 - k->text);
    }
    xd_plans_free(&plans);
}

static void plan_task(const xd_predictor *p, const xd_task *t, int ranks, entry *k)
{
    xd_task_flags f;
    int64_t       w, h;
    k->planned[ALL_RANKS] = k->planned[ONE_RANK] = -1;
    if (xd_task_flags_read(&f, t->nargs, t->args, NULL) == XD_OK) {
        w = f.request.width, h = f.request.height;
        /* input images with more than MAX_PIXELS pixels are not decoded, because the worker will
         * refuse them */
        if (h <= 0 || w <= MAX_PIXELS / h)
            plan(p, &f, ALL_RANKS, ranks, k);
        if (ranks > 1 && k->planned[ALL_RANKS] > 0)
            plan(p, &f, ONE_RANK, ranks, k);
    }
    xd_task_flags_free(&f);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Returns the predicted seconds of the tasks of an entry; the caller holds the predictor's lock. */
static double seconds_of(const xd_predictor *p, const entry *k, int mode)
{
    double correction = p->correction[mode];
    if (k->measured[mode] > 0)
        return k->measured[mode];
    return k->planned[mode] > 0 && correction > 0 ? k->planned[mode] * correction
                                                  : k->planned[mode];
}

static void predict_task(xd_predictor *p, xd_task *t)
{
    char        *key = key_of(t);
    entry        planned = { .key = NULL };
    xd_task_time time = { -1, -1, 0, 0 };
    pthread_mutex_lock(&p->lock);
    int ranks = p->ranks, fresh = key && !entry_of(p, key, 0);
    pthread_mutex_unlock(&p->lock);
    if (fresh)
        plan_task(p, t, ranks, &planned);
    pthread_mutex_lock(&p->lock);
    if (key) {
        entry *k = entry_of(p, key, fresh);
        if (k && fresh) {
            memcpy(k->planned, planned.planned, sizeof k->planned);
            k->text = planned.text, k->decode = planned.decode;
        }
        if (k)
            time = (xd_task_time){ seconds_of(p, k, ALL_RANKS), seconds_of(p, k, ONE_RANK), k->text,
                                   k->decode };
        if (!k || k->key != key)
            free(key);
    }
    pthread_mutex_unlock(&p->lock);
    xd_task_set_prediction(p->tasks, t, &time);
}

static void *predict_tasks(void *arg)
{
    xd_predictor *p = arg;
    xd_task      *t;
    while ((t = xd_tasks_next_unpredicted(p->tasks))) {
        predict_task(p, t);
        xd_task_release(p->tasks, t);
    }
    return NULL;
}

void xd_predictor_learn(xd_predictor *p, const xd_task *task, int alone, const xd_task_time *t)
{
    int    mode = alone ? ONE_RANK : ALL_RANKS;
    double seconds = alone ? t->alone : t->together;
    char  *key = key_of(task);
    pthread_mutex_lock(&p->lock);
    entry *k = key && seconds > 0 ? entry_of(p, key, 0) : NULL;
    if (k) {
        /* The time of a key's first task may include opening the model, so a very different later
         * time replaces the average. */
        double old = k->measured[mode];
        k->measured[mode] = old > 0 && seconds < 2 * old && old < 2 * seconds
                                ? old + newest * (seconds - old)
                                : seconds;
        k->text = t->text, k->decode = t->decode;
        double ratio = k->planned[mode] > 0 ? k->measured[mode] / k->planned[mode] : 0;
        double before = p->correction[mode];
        if (ratio > 0)
            p->correction[mode] = before > 0 ? before * pow(ratio / before, newest) : ratio;
    }
    pthread_mutex_unlock(&p->lock);
    free(key);
}

void xd_predictor_ranks(xd_predictor *p, int ranks)
{
    pthread_mutex_lock(&p->lock);
    p->ranks = ranks;
    pthread_mutex_unlock(&p->lock);
    if (!p->started) /* if the prediction thread cannot be started, tasks have no predictions */
        p->started = pthread_create(&p->thread, NULL, predict_tasks, p) == 0;
}

xd_status xd_predictor_open(xd_predictor **out, xd_tasks *tasks, const xd_open_flags *open,
                            xd_err *e)
{
    xd_predictor *p = *out = calloc(1, sizeof *p);
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for predictions");
    p->tasks = tasks;
    p->open = open;
    pthread_mutex_init(&p->lock, NULL);
    return XD_OK;
}

void xd_predictor_close(xd_predictor **out)
{
    xd_predictor *p = *out;
    if (!p)
        return;
    if (p->started)
        pthread_join(p->thread, NULL);
    for (int i = 0; i < p->n; i++)
        free(p->entries[i].key);
    pthread_mutex_destroy(&p->lock);
    free(p);
    *out = NULL;
}

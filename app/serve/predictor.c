/* predictor.c - predictions of tasks
 *
 * Tasks that differ in their texts and seeds alone take the same time: they have a key in common.
 * What tasks of a key have taken counts; of a new key the planner's word, times how wrong it was of
 * the model's other keys. */
#include "serve/predictor.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "serve/task_flags.h"
#include "xdit/tools.h"

enum { KEYS = 256, WAYS = 2, MOST_PIXELS = 64 << 20 };  /* ways: all ranks together, one alone   */

static const double newest = 0.3;       /* weight of the newest time                            */

typedef struct known {
    char    *key;
    double   planned[WAYS];     /* the planner's seconds; negative: it knows none               */
    double   took[WAYS];        /* measured; 0: not yet                                        */
    double   text, decode;      /* parts of it, of 1                                           */
    unsigned used;
} known;

struct xd_predictor {
    xd_tasks            *tasks;
    const xd_open_flags *open;
    pthread_t            thread;
    pthread_mutex_t      lock;
    int                  ranks, started;        /* 0: not known yet; the thread runs             */
    known                known[KEYS];
    int                  n;
    unsigned             uses;
    double               wrong[WAYS];   /* measured over planned, of all keys; 0: not known yet  */
};

/* ---- keys ------------------------------------------------------------------------------------ */

static int is_equal_for_time(const char *arg)
{
    static const char *const other[] = { "--id=", "--output=", "--prompt=", "--negative_prompt=",
                                         "--prompt_2=", "--prompt_3=", "--negative_prompt_2=",
                                         "--negative_prompt_3=", "--seed=", "--previews=" };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (strncmp(arg, other[i], strlen(other[i])) == 0)
            return 1;
    return 0;
}

/* The arguments that time depends on. Of images that are read, how large they are. */
static char *key_of(const xd_task *t)
{
    xd_text_buf b = { 0 };
    for (int i = 0; i < t->nargs; i++) {
        const char *a = t->args[i];
        int         file = strncmp(a, "--image=", 8) == 0 || strncmp(a, "--mask_image=", 13) == 0 ||
                   strncmp(a, "--last_image=", 13) == 0;
        int64_t     w = 0, h = 0;
        if (file)
            xd_image_file_size(strchr(a, '=') + 1, &w, &h, NULL);
        if (file)
            xd_buf_add(&b, "%.*s %lldx%lld\n", (int)strcspn(a, "="), a, (long long)w,
                       (long long)h);
        else if (!is_equal_for_time(a))
            xd_buf_add(&b, "%s\n", a);
    }
    if (b.failed)
        xd_buf_free(&b);
    return b.p;
}

/* The entry of a key; the one that was used longest ago makes way. Under the lock. */
static known *entry_of(xd_predictor *p, char *key, int make)
{
    int oldest = 0;
    for (int i = 0; i < p->n; i++) {
        if (strcmp(p->known[i].key, key) == 0) {
            p->known[i].used = ++p->uses;
            return &p->known[i];
        }
        oldest = p->known[i].used < p->known[oldest].used ? i : oldest;
    }
    if (!make)
        return NULL;
    known *k = &p->known[p->n < KEYS ? p->n++ : oldest];
    free(k->key);
    *k = (known){ .key = key, .used = ++p->uses };
    return k;
}

/* ---- the planner ----------------------------------------------------------------------------- */

/* Plans the request by all ranks, or (`way` 1) of as many images as there are ranks, one by each.
 * Its seconds are negative where the planner refuses it. */
static void plan(const xd_predictor *p, const xd_task_flags *f, int way, int ranks, known *k)
{
    xd_advise_args a;
    xd_plans      *plans = NULL;
    xd_request     r = f->request;
    const xd_plan_info *best = NULL;
    xd_advise_args_init(&a);
    a.model = f->model;
    a.request = &r;
    a.ranks = ranks;
    /* As for the CPU: a GPU would have to be opened here, too. What tasks take corrects it. */
    a.dtype = p->open->dtype && strcmp(p->open->dtype, "f16") == 0 ? "bf16" : p->open->dtype;
    a.weights_dtype = p->open->weights_dtype;
    a.text_weights_dtype = p->open->text_weights_dtype;
    a.device = "cpu";
    a.parallel = p->open->parallel;
    if (way == 1) {
        a.parallel = (xd_parallel){ .data_parallel_degree = ranks };
        r.num_images_per_prompt *= ranks;
    }
    r.image = f->images.n ? f->images.v[0] : NULL;
    if (xd_plans_predict(&plans, &a, NULL) == XD_OK)
        best = xd_plans_get(plans, 0);
    k->planned[way] = best ? best->request_s : -1;
    if (best && way == 0 && best->request_s > 0) {
        double images = (double)r.nprompts * r.num_images_per_prompt;
        k->text = fmin(best->text_s / best->request_s, 1);
        k->decode = fmin(images * best->decode_s / best->request_s, 1 - k->text);
    }
    xd_plans_free(&plans);
}

static void plan_task(const xd_predictor *p, const xd_task *t, int ranks, known *k)
{
    xd_task_flags f;
    int64_t       w, h;
    k->planned[0] = k->planned[1] = -1;
    if (xd_task_flags_read(&f, t->nargs, t->args, NULL) == XD_OK) {
        w = f.request.width, h = f.request.height;
        if (h <= 0 || w <= MOST_PIXELS / h)     /* the worker refuses others, and faster          */
            for (int way = 0; way < WAYS && (way == 0 || (ranks > 1 && k->planned[0] > 0)); way++)
                plan(p, &f, way, ranks, k);
    }
    xd_task_flags_free(&f);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* Under the lock. */
static double seconds_of(const xd_predictor *p, const known *k, int way)
{
    return k->took[way] > 0 ? k->took[way]
           : k->planned[way] > 0 && p->wrong[way] > 0 ? k->planned[way] * p->wrong[way]
                                                      : k->planned[way];
}

static void predict_task(xd_predictor *p, xd_task *t)
{
    char        *key = key_of(t);
    known        planned = { .key = NULL };
    xd_task_time time = { -1, -1, 0, 0 };
    pthread_mutex_lock(&p->lock);
    int    ranks = p->ranks, fresh = key && !entry_of(p, key, 0);
    pthread_mutex_unlock(&p->lock);
    if (fresh)
        plan_task(p, t, ranks, &planned);
    pthread_mutex_lock(&p->lock);
    if (key) {
        known *k = entry_of(p, key, fresh);
        if (k && fresh) {
            memcpy(k->planned, planned.planned, sizeof k->planned);
            k->text = planned.text, k->decode = planned.decode;
        }
        if (k)
            time = (xd_task_time){ seconds_of(p, k, 0), seconds_of(p, k, 1), k->text, k->decode };
        if (!k || k->key != key)
            free(key);
    }
    pthread_mutex_unlock(&p->lock);
    xd_task_expected(p->tasks, t, &time);
}

static void *predict_tasks(void *arg)
{
    xd_predictor *p = arg;
    xd_task      *t;
    while ((t = xd_tasks_unexpected(p->tasks))) {
        predict_task(p, t);
        xd_task_release(p->tasks, t);
    }
    return NULL;
}

void xd_predictor_learn(xd_predictor *p, const xd_task *task, int alone, const xd_task_time *t)
{
    int    way = alone ? 1 : 0;
    double seconds = alone ? t->alone : t->together;
    char  *key = key_of(task);
    pthread_mutex_lock(&p->lock);
    known *k = key && seconds > 0 ? entry_of(p, key, 0) : NULL;
    if (k) {
        /* The first one of a key has opened the model, perhaps: the next one replaces it. */
        double old = k->took[way];
        k->took[way] = old > 0 && seconds < 2 * old && old < 2 * seconds
                           ? old + newest * (seconds - old) : seconds;
        k->text = t->text, k->decode = t->decode;
        double wrong = k->planned[way] > 0 ? k->took[way] / k->planned[way] : 0;
        if (wrong > 0)
            p->wrong[way] = p->wrong[way] > 0 ? p->wrong[way] * pow(wrong / p->wrong[way], newest)
                                              : wrong;
    }
    pthread_mutex_unlock(&p->lock);
    free(key);
}

void xd_predictor_ranks(xd_predictor *p, int ranks)
{
    pthread_mutex_lock(&p->lock);
    p->ranks = ranks;
    pthread_mutex_unlock(&p->lock);
    if (!p->started)            /* without a thread nothing is predicted                       */
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
        free(p->known[i].key);
    pthread_mutex_destroy(&p->lock);
    free(p);
    *out = NULL;
}

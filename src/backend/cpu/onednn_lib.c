/* onednn_lib.c - loads oneDNN and looks up its functions */
#define XD_DNN_OWN_NAMES
#include "backend/cpu/onednn_lib.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/library.h"

static const xd_symbol functions[] = {
#define ROW(name) { #name, offsetof(xd_dnn_api, name) },
    XD_DNN_FUNCTIONS(ROW)
#undef ROW
};

xd_dnn_api xd_dnn_lib;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int             is_loaded, is_exiting;

/* The OpenMP functions that the engine calls. If oneDNN uses an OpenMP library of its own, the
 * functions are looked up in that library. */
static const xd_symbol setting[] = { { "omp_set_num_threads", offsetof(xd_dnn_api, set_threads) } },
                       team[] = {
                           { "GOMP_parallel", offsetof(xd_dnn_api, team.parallel) },
                           { "omp_get_thread_num", offsetof(xd_dnn_api, team.number) },
                       };

static xd_status load_library(xd_err *e)
{
    char  why[200];
    void *lib = xd_library_open(XD_LIB_ONEDNN, NULL, why, sizeof why);
    if (!lib)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "oneDNN cannot be loaded (%s); XDIT_ISA=c works without it", why);
    const char *lacks =
        xd_library_find(lib, functions, sizeof functions / sizeof *functions, &xd_dnn_lib);
    if (lacks)
        return xd_fail(e, XD_EUNSUPPORTED, "oneDNN (%s) has no function %s",
                       xd_library_name(XD_LIB_ONEDNN), lacks);
    xd_library_find(lib, setting, 1, &xd_dnn_lib);
    if (xd_library_find(lib, team, 2, &xd_dnn_lib))
        xd_dnn_lib.team.parallel = NULL;
    is_loaded = 1;
    return XD_OK;
}

xd_status xd_dnn_load(xd_err *e)
{
    pthread_mutex_lock(&guard);
    xd_status s = is_loaded ? XD_OK : load_library(e);
    pthread_mutex_unlock(&guard);
    return s;
}

int xd_dnn_is_loaded(void)
{
    pthread_mutex_lock(&guard);
    int loaded = is_loaded;
    pthread_mutex_unlock(&guard);
    return loaded;
}

static void *load_early(void *arg)
{
    pthread_mutex_lock(&guard);
    if (!is_loaded && !is_exiting)
        /* an error is ignored here, because the next xd_dnn_load returns it */
        load_library(NULL);
    pthread_mutex_unlock(&guard);
    return arg;
}

/* Makes exit wait for a load in progress, and prevents later loads. exit() runs the destructors of
 * libraries. A dlopen during or after these destructors would run constructors of the same
 * libraries again, and libgomp aborts in that case. */
static void end_early_load(void)
{
    pthread_mutex_lock(&guard);
    is_exiting = 1;
    pthread_mutex_unlock(&guard);
}

static void register_exit(void)
{
    atexit(end_early_load);
}

void xd_cpu_early(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_t             id;
    const char           *isa = getenv("XDIT_ISA");
    if (isa && strcmp(isa, "c") == 0)
        return;
    pthread_once(&once, register_exit);
    if (pthread_create(&id, NULL, load_early, NULL) == 0)
        pthread_detach(id);
}

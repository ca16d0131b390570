/* onednn_lib.c - loads oneDNN and looks up its functions */
#define XD_DNN_OWN_NAMES
#include "backend/cpu/onednn_lib.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static const char library[] = "libdnnl.so." TEXT(DNNL_VERSION_MAJOR);

static const struct {
    const char *name;
    size_t      at;             /* offset of the pointer in xd_dnn_api                         */
} functions[] = {
#define ROW(name) { #name, offsetof(xd_dnn_api, name) },
    XD_DNN_FUNCTIONS(ROW)
#undef ROW
};

xd_dnn_api xd_dnn_lib;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int             is_loaded;

/* The library is never closed: its threads live until the process ends. */
static xd_status load_library(xd_err *e)
{
    void *lib = dlopen(library, RTLD_LAZY | RTLD_LOCAL), *f;
    if (!lib)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "oneDNN cannot be loaded (%s); without it there is XDIT_ISA=c", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (!(f = dlsym(lib, functions[i].name)))
            return xd_fail(e, XD_EUNSUPPORTED, "%s has no function %s", library, functions[i].name);
        memcpy((char *)&xd_dnn_lib + functions[i].at, &f, sizeof f);
    }
    if ((f = dlsym(lib, "omp_set_num_threads")))
        memcpy(&xd_dnn_lib.set_threads, &f, sizeof f);
    void *parallel = dlsym(lib, "GOMP_parallel"), *number = dlsym(lib, "omp_get_thread_num");
    if (parallel && number) {
        memcpy(&xd_dnn_lib.team.parallel, &parallel, sizeof parallel);
        memcpy(&xd_dnn_lib.team.number, &number, sizeof number);
    }
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

static void *load_beside(void *arg)
{
    xd_dnn_load(NULL);          /* the error is dropped: the next xd_dnn_load reports it       */
    return arg;
}

void xd_cpu_early(void)
{
    pthread_t   id;
    const char *isa = getenv("XDIT_ISA");
    if (isa && strcmp(isa, "c") == 0)
        return;
    if (pthread_create(&id, NULL, load_beside, NULL) == 0)
        pthread_detach(id);
}

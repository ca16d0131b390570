/* av.c - loads FFmpeg's libraries and finds their functions */
#include "io/av.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include <libavcodec/version.h>
#include <libavformat/version.h>
#include <libavutil/version.h>
#include <libswscale/version.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

static const char *const names[XD_AV_LIBS] = {
    "libavutil.so." TEXT(LIBAVUTIL_VERSION_MAJOR), "libavcodec.so." TEXT(LIBAVCODEC_VERSION_MAJOR),
    "libavformat.so." TEXT(LIBAVFORMAT_VERSION_MAJOR),
    "libswscale.so." TEXT(LIBSWSCALE_VERSION_MAJOR),
};

static const struct {
    int         lib;
    const char *name;
    size_t      at;             /* offset of the pointer in xd_av                              */
} functions[] = {
#define ROW(lib, name) { XD_AV_##lib, #name, offsetof(xd_av, name) },
    XD_AV_FUNCTIONS(ROW)
#undef ROW
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static xd_av           loaded;
static int             is_loaded;

/* The libraries are never closed, because their exit handlers must stay loaded. */
static xd_status load_library(xd_err *e)
{
    void *lib[XD_AV_LIBS];
    for (int i = 0; i < XD_AV_LIBS; i++)
        if (!(lib[i] = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)))
            return xd_fail(e, XD_EUNSUPPORTED,
                           "videos need FFmpeg, which cannot be loaded (%s); without it there "
                           "are .gif, .rgb, or a .png for each frame", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(lib[functions[i].lib], functions[i].name);
        if (!f)
            return xd_fail(e, XD_EUNSUPPORTED, "%s has no function %s", names[functions[i].lib],
                           functions[i].name);
        memcpy((char *)&loaded + functions[i].at, &f, sizeof f);
    }
    is_loaded = 1;
    return XD_OK;
}

xd_status xd_av_load(const xd_av **av, xd_err *e)
{
    pthread_mutex_lock(&guard);
    xd_status st = is_loaded ? XD_OK : load_library(e);
    pthread_mutex_unlock(&guard);
    *av = &loaded;
    return st;
}

/* av.c - loads FFmpeg's shared libraries and finds their functions */
#include "io/av.h"

#include <pthread.h>
#include <stddef.h>

#include "base/library.h"

static const xd_library libraries[XD_AV_LIBS] = {
    [XD_AV_UTIL] = XD_LIB_AVUTIL,
    [XD_AV_CODEC] = XD_LIB_AVCODEC,
    [XD_AV_FORMAT] = XD_LIB_AVFORMAT,
    [XD_AV_SCALE] = XD_LIB_SWSCALE,
};

static const struct {
    int       lib;
    xd_symbol symbol;
} functions[] = {
#define ROW(lib, name) { XD_AV_##lib, { #name, offsetof(xd_av, name) } },
    XD_AV_FUNCTIONS(ROW)
#undef ROW
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static xd_av           loaded;
static int             is_loaded;

static xd_status load_library(xd_err *e)
{
    void *lib[XD_AV_LIBS];
    char  why[200];
    for (int i = 0; i < XD_AV_LIBS; i++)
        if (!(lib[i] = xd_library_open(libraries[i], NULL, why, sizeof why)))
            return xd_fail(e, XD_EUNSUPPORTED,
                           "this video format needs FFmpeg, which cannot be loaded (%s); "
                           "install it, or write .gif, .rgb, or a .png for each frame",
                           why);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const int   l = functions[i].lib;
        const char *lacks = xd_library_find(lib[l], &functions[i].symbol, 1, &loaded);
        if (lacks)
            return xd_fail(e, XD_EUNSUPPORTED, "%s has no function %s",
                           xd_library_name(libraries[l]), lacks);
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

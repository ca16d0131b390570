/* library.c - loads shared libraries and looks up their functions.
 *
 * The lists XD_NAMES_* of library file names are defined in meson.build. Each list has two names of
 * one library: the SONAME of the library with which xdit was built, which may include a minor
 * version, and the name with only the major version. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 2 };

static const char *const names[XD_NLIBRARIES][NAMES] = {
    [XD_LIB_ONEDNN] = { XD_NAMES_DNNL },
#ifdef XD_NAMES_AVCODEC
    [XD_LIB_AVUTIL] = { XD_NAMES_AVUTIL },
    [XD_LIB_AVCODEC] = { XD_NAMES_AVCODEC },
    [XD_LIB_AVFORMAT] = { XD_NAMES_AVFORMAT },
    [XD_LIB_SWSCALE] = { XD_NAMES_SWSCALE },
#endif
    [XD_LIB_CUDA] = { "libcuda.so.1" },
    [XD_LIB_CUBLASLT_13] = { "libcublasLt.so.13" },
    [XD_LIB_CUBLASLT_12] = { "libcublasLt.so.12" },
    [XD_LIB_CUDNN] = { "libcudnn.so.9" },
    [XD_LIB_NCCL] = { "libnccl.so.2" },
};

const char *xd_library_name(xd_library l)
{
    return names[l][0];
}

void *xd_library_open(xd_library l, const char *dir, char *why, size_t size)
{
    char path[4096];
    for (int i = 0; i < NAMES && names[l][i]; i++) {
        snprintf(path, sizeof path, "%s%s%s", dir ? dir : "", dir ? "/" : "", names[l][i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        const char *said = dlerror();
        if (i == 0)
            snprintf(why, size, "%s", said ? said : path);
    }
    return NULL;
}

const char *xd_library_find(void *library, const xd_symbol *symbols, size_t n, void *table)
{
    for (size_t i = 0; i < n; i++) {
        void *f = dlsym(library, symbols[i].name);
        if (!f)
            return symbols[i].name;
        memcpy((char *)table + symbols[i].at, &f, sizeof f);
    }
    return NULL;
}

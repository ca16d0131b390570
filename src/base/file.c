/* file.c - whole files */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAXOUT = 64 };           /* files being written at one time that a signal can sweep    */
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char *volatile  writing[MAXOUT];

int xd_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

int xd_file_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *xd_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir), len = n + strlen(name) + 2;
    char  *p = malloc(len);
    if (p)
        snprintf(p, len, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name);
    return p;
}

xd_status xd_file_read(const char *path, size_t max, char **data, size_t *len, xd_err *e)
{
    struct stat st;
    FILE       *f = fopen(path, "rb");
    char       *p = NULL;
    *data = NULL;
    *len = 0;
    if (!f)
        return xd_fail(e, XD_EIO, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fileno(f), &st) != 0 || !S_ISREG(st.st_mode)) {
        xd_fail(e, XD_EIO, "%s is not a regular file", path);
        goto fail;
    }
    if ((unsigned long long)st.st_size > max) {
        xd_fail(e, XD_EFORMAT, "%s has %lld bytes, more than the %zu that are plausible", path,
                (long long)st.st_size, max);
        goto fail;
    }
    if (!(p = malloc((size_t)st.st_size + 1))) {
        xd_fail(e, XD_ENOMEM, "no memory for the %lld bytes of %s", (long long)st.st_size, path);
        goto fail;
    }
    *len = fread(p, 1, (size_t)st.st_size, f);
    if (*len != (size_t)st.st_size) {
        xd_fail(e, XD_EIO, "%s: read %zu of %lld bytes", path, *len, (long long)st.st_size);
        goto fail;
    }
    fclose(f);
    p[*len] = 0;
    *data = p;
    return XD_OK;
fail:
    fclose(f);
    free(p);
    *len = 0;
    return e ? e->code : XD_EIO;
}

static void remember(char *tmp)
{
    pthread_mutex_lock(&guard);
    for (int i = 0; i < MAXOUT; i++)
        if (!writing[i]) {
            writing[i] = tmp;
            break;
        }
    pthread_mutex_unlock(&guard);
}

static void forget(const char *tmp)
{
    pthread_mutex_lock(&guard);
    for (int i = 0; i < MAXOUT; i++)
        if (writing[i] == tmp)
            writing[i] = NULL;
    pthread_mutex_unlock(&guard);
}

void xd_out_sweep(void)
{
    for (int i = 0; i < MAXOUT; i++)
        if (writing[i])
            unlink(writing[i]);
}

static void out_free(xd_out *o)
{
    if (o->tmp)
        forget(o->tmp);
    free(o->path);
    free(o->tmp);
    *o = (xd_out){ 0 };
}

/* The temporary's name: in the same directory, so that rename is atomic. It is remembered before
 * the file is made, so that there is no moment at which a signal would leave one behind. */
static int open_tmp(xd_out *o, const char *path)
{
    size_t len = strlen(path) + 16;
    if (!(o->path = strdup(path)) || !(o->tmp = malloc(len)))
        return -1;
    snprintf(o->tmp, len, "%s.tmpXXXXXX", path);
    remember(o->tmp);
    return mkstemp(o->tmp);
}

xd_status xd_out_open(xd_out *o, const char *path, xd_err *e)
{
    *o = (xd_out){ 0 };
    int    fd = open_tmp(o, path);
    mode_t mask = umask(0);
    umask(mask);
    if (fd < 0 || fchmod(fd, 0666 & ~mask) != 0 || !(o->f = fdopen(fd, "wb"))) {
        xd_fail(e, XD_EIO, "cannot write %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd), unlink(o->tmp);
        out_free(o);
        return XD_EIO;
    }
    return XD_OK;
}

xd_status xd_out_commit(xd_out *o, xd_err *e)
{
    int bad = ferror(o->f) || fflush(o->f) != 0 || fsync(fileno(o->f)) != 0;
    int why = errno;
    if (fclose(o->f) != 0 && !bad)
        bad = 1, why = errno;
    o->f = NULL;
    if (!bad && rename(o->tmp, o->path) != 0)
        bad = 1, why = errno;
    if (bad) {
        xd_fail(e, XD_EIO, "cannot write %s: %s", o->path, strerror(why));
        unlink(o->tmp);
    }
    out_free(o);
    return bad ? XD_EIO : XD_OK;
}

void xd_out_abort(xd_out *o)
{
    if (o->f)
        fclose(o->f);
    if (o->tmp)
        unlink(o->tmp);
    out_free(o);
}

xd_status xd_file_writable(const char *path, xd_err *e)
{
    xd_out o;
    if (xd_file_is_dir(path))
        return xd_fail(e, XD_EIO, "cannot write %s: it is a directory", path);
    if (xd_out_open(&o, path, e) != XD_OK)
        return XD_EIO;
    xd_out_abort(&o);
    return XD_OK;
}

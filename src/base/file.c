/* file.c - reads files, and writes files atomically */
#define _GNU_SOURCE /* for O_TMPFILE, mincore */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pages.h"

enum {
    MAXOUT = 64, /* max number of temporary files that xd_out_sweep can remove */
    /* Number of pages that are mapped at a time to query whether they are in the page cache. */
    WINDOW = 16384
};
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static char *volatile writing[MAXOUT];
static atomic_int streams; /* number of open outputs that are pipes or devices */

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

/* Returns 1 for a pipe, terminal or device, which must be written directly. Such a file must not be
 * replaced by renaming: renaming a file to /dev/null would remove /dev/null for everyone. */
int xd_file_is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

char *xd_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir), len = n + strlen(name) + 2;
    char  *p = malloc(len);
    if (p)
        snprintf(p, len, "%s%s%s", dir, n && dir[n - 1] != '/' ? "/" : "", name);
    return p;
}

static const char index_name[] = "model_index.json";
static const char modular_index[] = "modular_model_index.json";

int xd_is_model_index(const char *name)
{
    return strcmp(name, index_name) == 0 || strcmp(name, modular_index) == 0;
}

char *xd_model_index_path(const char *dir)
{
    char *path = xd_path_join(dir, index_name), *modular = xd_path_join(dir, modular_index);
    int   other = path && modular && !xd_file_exists(path) && xd_file_exists(modular);
    free(other ? path : modular);
    return other ? modular : path;
}

const char *xd_path_hint(const char *path)
{
    if (path[0] == '~' && (!path[1] || path[1] == '/'))
        return "; the shell expands ~ only without quotes and at the beginning of a word: write "
               "$HOME";
    if (strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0)
        return "; URLs are not supported: download the file first";
    return "";
}

xd_status xd_file_read(const char *path, size_t max, char **data, size_t *len, xd_err *e)
{
    struct stat st;
    /* With O_NONBLOCK, opening a pipe does not wait for a writer. */
    int         fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE       *f = fd < 0 ? NULL : fdopen(fd, "rb");
    char       *p = NULL;
    *data = NULL;
    *len = 0;
    if (!f) {
        xd_fail(e, XD_EIO, "cannot open %s: %s%s", path, strerror(errno), xd_path_hint(path));
        if (fd >= 0)
            close(fd);
        return XD_EIO;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        xd_fail(e, XD_EIO, "%s is not a regular file", path);
        goto fail;
    }
    if ((unsigned long long)st.st_size > max) {
        xd_fail(e, XD_EFORMAT, "%s has %lld bytes; the maximum is %zu", path, (long long)st.st_size,
                max);
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

/* Reads all bytes of an open pipe, terminal or file. */
static xd_status read_stream(FILE *f, const char *name, size_t max, char **data, size_t *len,
                             xd_err *e)
{
    char  *p = NULL;
    size_t cap = 0, n = 0;
    do {
        char *more = n < cap ? p : realloc(p, (cap = cap ? 2 * cap : 4096) + 1);
        if (!more) {
            free(p);
            return xd_fail(e, XD_ENOMEM, "no memory for the %zu bytes of %s", cap, name);
        }
        p = more;
        n += fread(p + n, 1, cap - n, f);
    } while (!feof(f) && !ferror(f) && n <= max);
    if (ferror(f) || n > max) {
        free(p);
        return ferror(f)
                   ? xd_fail(e, XD_EIO, "cannot read %s: %s", name, strerror(errno))
                   : xd_fail(e, XD_EFORMAT, "%s has more than %zu bytes, the maximum", name, max);
    }
    p[n] = 0;
    *data = p;
    *len = n;
    return XD_OK;
}

xd_status xd_file_read_any(const char *path, size_t max, char **data, size_t *len, xd_err *e)
{
    *data = NULL;
    *len = 0;
    if (strcmp(path, "-") == 0)
        return read_stream(stdin, "standard input", max, data, len, e);
    if (!xd_file_is_stream(path))
        return xd_file_read(path, max, data, len, e);
    FILE     *f = fopen(path, "rb");
    xd_status s =
        f ? read_stream(f, path, max, data, len, e)
          : xd_fail(e, XD_EIO, "cannot open %s: %s%s", path, strerror(errno), xd_path_hint(path));
    if (f)
        fclose(f);
    return s;
}

/* In the range [from, from + bytes) of a file, counts the pages that are not in the page cache.
 * `from` must be a multiple of the page size. */
static size_t cold_pages(int fd, size_t from, size_t bytes, size_t page)
{
    unsigned char in[WINDOW];
    size_t        cold = 0, n = (bytes + page - 1) / page;
    void         *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)from);
    if (p == MAP_FAILED)
        return 0;
    if (mincore(p, bytes, in) == 0)
        for (size_t i = 0; i < n; i++)
            cold += !(in[i] & 1);
    munmap(p, bytes);
    return cold;
}

size_t xd_file_cold_bytes(int fd, size_t at, size_t bytes)
{
    struct stat st;
    size_t      page = xd_page_bytes(), cold = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (unsigned long long)st.st_size <= at)
        return 0;
    size_t left = (size_t)st.st_size - at, end = at + (bytes < left ? bytes : left);
    for (size_t from = at / page * page, n; from < end; from += n) {
        n = end - from < WINDOW * page ? end - from : WINDOW * page;
        cold += cold_pages(fd, from, n, page);
    }
    return cold * page < end - at ? cold * page : end - at;
}

void xd_file_drop_cached(int fd)
{
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void register_temporary(char *tmp)
{
    pthread_mutex_lock(&guard);
    for (int i = 0; i < MAXOUT; i++)
        if (!writing[i]) {
            writing[i] = tmp;
            break;
        }
    pthread_mutex_unlock(&guard);
}

static void unregister_temporary(const char *tmp)
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

int xd_out_streams(void)
{
    return atomic_load(&streams);
}

static void out_free(xd_out *o)
{
    if (o->stream)
        atomic_fetch_sub(&streams, 1);
    if (o->tmp)
        unregister_temporary(o->tmp);
    free(o->path);
    free(o->tmp);
    *o = (xd_out){ 0 };
}

/* Opens a file without a name in the directory of `path`. The nameless file disappears if this
 * process dies. Returns -1 if the file system does not support nameless files, or if there is no
 * /proc, which is needed to name the file later. */
static int open_nameless(const char *path)
{
#ifdef O_TMPFILE
    const char *slash = strrchr(path, '/');
    char       *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    char        self[32];
    int         fd = dir ? open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666) : -1;
    free(dir);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (fd >= 0 && access(self, F_OK) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
#else
    (void)path;
    return -1;
#endif
}

/* Creates a temporary file in the directory of the output, so that rename is atomic. The temporary
 * name is recorded before the file exists, so that the file is removed even if a signal ends the
 * process. */
static int make_tmp(xd_out *o)
{
    size_t len = strlen(o->path) + 16;
    if (!(o->tmp = malloc(len)))
        return -1;
    snprintf(o->tmp, len, "%s.tmpXXXXXX", o->path);
    register_temporary(o->tmp);
    return mkstemp(o->tmp);
}

static int open_named(xd_out *o)
{
    int fd = make_tmp(o);
    pthread_mutex_lock(&guard); /* another thread may do the same */
    mode_t mask = umask(0);
    umask(mask);
    pthread_mutex_unlock(&guard);
    if (fd >= 0 && fchmod(fd, 0666 & ~mask) == 0)
        return fd;
    if (fd >= 0)
        close(fd), unlink(o->tmp);
    return -1;
}

/* Returns the path of the file to replace. If `path` is a symlink, returns the symlink's target, so
 * that the symlink is kept. */
static char *real_name(const char *path)
{
    struct stat st;
    char       *real = lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    return real ? real : strdup(path);
}

xd_status xd_out_open(xd_out *o, const char *path, xd_err *e)
{
    int fd = -1;
    *o = (xd_out){ .stream = xd_file_is_stream(path) };
    if (o->stream)
        atomic_fetch_add(&streams, 1);
    o->path = o->stream ? strdup(path) : real_name(path);
    if (o->path && o->stream)
        fd = open(path, O_WRONLY | O_CLOEXEC);
    else if (o->path && (fd = open_nameless(o->path)) < 0)
        fd = open_named(o);
    if (fd < 0 || !(o->f = fdopen(fd, "wb"))) {
        xd_fail(e, XD_EIO, "cannot write %s: %s%s", path, strerror(errno), xd_path_hint(path));
        if (fd >= 0)
            close(fd);
        if (o->tmp)
            unlink(o->tmp);
        out_free(o);
        return XD_EIO;
    }
    return XD_OK;
}

/* Gives the nameless file `fd` its name. linkat cannot replace an existing file. If the name
 * exists, the nameless file therefore gets a temporary name first and is renamed. */
static int link_name(xd_out *o, int fd)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (linkat(AT_FDCWD, self, AT_FDCWD, o->path, AT_SYMLINK_FOLLOW) == 0)
        return 0;
    if (errno != EEXIST)
        return -1;
    int old = make_tmp(o); /* creates a file to find an unused name */
    if (old < 0)
        return -1;
    close(old);
    if (unlink(o->tmp) != 0 || linkat(AT_FDCWD, self, AT_FDCWD, o->tmp, AT_SYMLINK_FOLLOW) != 0)
        return -1;
    return rename(o->tmp, o->path);
}

/* Copies the nameless file to a file with a temporary name. The copy is made only if linkat is not
 * allowed. */
static int copy_over(xd_out *o, int from)
{
    char    buf[8192];
    ssize_t n = -1;
    if (o->tmp)
        unlink(o->tmp), unregister_temporary(o->tmp), free(o->tmp), o->tmp = NULL;
    int to = open_named(o), ok = to >= 0;
    for (off_t at = 0; ok && (n = pread(from, buf, sizeof buf, at)) > 0; at += n)
        ok = write(to, buf, (size_t)n) == n;
    ok = ok && n == 0 && fsync(to) == 0;
    if (to >= 0 && close(to) != 0)
        ok = 0;
    return ok ? rename(o->tmp, o->path) : -1;
}

xd_status xd_out_commit(xd_out *o, xd_err *e)
{
    int named = o->tmp != NULL;
    int bad = ferror(o->f) || fflush(o->f) != 0 || (!o->stream && fsync(fileno(o->f)) != 0);
    if (!bad && !named && !o->stream && link_name(o, fileno(o->f)) != 0)
        bad = copy_over(o, fileno(o->f)) != 0;
    int why = errno;
    if (fclose(o->f) != 0 && !bad)
        bad = 1, why = errno;
    o->f = NULL;
    if (!bad && named && rename(o->tmp, o->path) != 0)
        bad = 1, why = errno;
    if (bad) {
        xd_fail(e, XD_EIO, "cannot write %s: %s", o->path, strerror(why));
        if (o->tmp)
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
    if (!*path)
        return xd_fail(e, XD_EIO, "cannot write a file whose name is empty");
    /* A pipe is not opened here, because opening it would wait for a reader. */
    if (xd_file_is_stream(path))
        return access(path, W_OK) == 0 ? XD_OK
                                       : xd_fail(e, XD_EIO, "cannot write %s: %s%s", path,
                                                 strerror(errno), xd_path_hint(path));
    if (xd_out_open(&o, path, e) != XD_OK)
        return XD_EIO;
    xd_out_abort(&o);
    return XD_OK;
}

/* ---- the user's cache directory ----------------------------------------------------------- */

int xd_cache_path(const char *name, char *path, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && *base == '/')
        home = "";
    else if (!home || *home != '/')
        return 0;
    int n = snprintf(path, size, "%s%s/xdit/%s", *home ? home : base, *home ? "/.cache" : "", name);
    return n > 0 && (size_t)n < size;
}

void xd_make_parents(char *path)
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(path, 0755);
        *p = '/';
    }
}

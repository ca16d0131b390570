/* folder.c - creates, locks and removes the directories of a server; see folder.h */
#define _DEFAULT_SOURCE /* flock, mkdtemp, realpath */
#include "serve/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char NAME[] = "xdit-server-";
enum { RANDOM = 6, TRIES = 8 };

static int open_folder(const char *path)
{
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int xd_folder_files(const char *path, int (*has)(const char *name), int removes)
{
    DIR           *d = opendir(path);
    struct dirent *f;
    int            n = 0;
    while (d && (f = readdir(d)))
        if (strcmp(f->d_name, ".") && strcmp(f->d_name, "..") && (!has || has(f->d_name))) {
            n++;
            if (removes)
                unlinkat(dirfd(d), f->d_name, 0);
        }
    if (d)
        closedir(d);
    return n;
}

/* ---- creation of the temporary directory ----------------------------------------------------- */

/* Removes the temporary directories that no server has locked. A removed directory may belong to
 * another server that has just created the directory and not yet locked it. The server whose
 * directory was removed notices this in lock_own, and creates another directory. */
static void remove_dead(const char *place)
{
    DIR           *d = opendir(place);
    struct dirent *f;
    while (d && (f = readdir(d))) {
        char        path[4096];
        struct stat st;
        int         n = snprintf(path, sizeof path, "%s/%s", place, f->d_name), fd;
        if (strncmp(f->d_name, NAME, sizeof NAME - 1) != 0 ||
            strlen(f->d_name) != sizeof NAME - 1 + RANDOM || n >= (int)sizeof path ||
            (fd = open_folder(path)) < 0)
            continue;
        if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            xd_folder_files(path, NULL, 1);
            rmdir(path);
        }
        close(fd);
    }
    if (d)
        closedir(d);
}

/* Locks the server's temporary directory. Returns 1 if the directory is locked and still exists. */
static int lock_own(xd_folder *f)
{
    struct stat st;
    f->lock = open_folder(f->path);
    if (f->lock < 0)
        return 0;
    while (flock(f->lock, LOCK_EX) != 0)
        if (errno != EINTR) /* the file system does not support locks, so no other server removes
                               the directory */
            return 1;
    if (fstat(f->lock, &st) == 0 && st.st_nlink > 0)
        return 1;
    xd_folder_unlock(f);
    return 0;
}

xd_status xd_folder_create(xd_folder *f, xd_err *e)
{
    const char *tmp = getenv("TMPDIR"), *place = tmp && *tmp                     ? tmp
                                                 : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                                                                 : "/tmp";
    remove_dead(place);
    for (int i = 0; i < TRIES; i++) {
        snprintf(f->path, sizeof f->path, "%s/%sXXXXXX", place, NAME);
        if (!mkdtemp(f->path))
            break;
        if (lock_own(f))
            return XD_OK;
    }
    xd_status s = xd_fail(e, XD_EIO,
                          "cannot create the temporary directory %s: %s: set TMPDIR to "
                          "a writable directory",
                          f->path, strerror(errno));
    f->path[0] = 0;
    return s;
}

void xd_folder_remove(xd_folder *f)
{
    if (f->path[0]) {
        xd_folder_files(f->path, NULL, 1);
        rmdir(f->path);
    }
    xd_folder_unlock(f);
}

void xd_folder_unlock(xd_folder *f)
{
    if (f->lock >= 0)
        close(f->lock);
    *f = (xd_folder){ .lock = -1 };
}

/* ---- --results ------------------------------------------------------------------------------- */

int xd_folder_is_partial(const char *name)
{
    static const char tail[] = ".tmp";
    size_t            n = strlen(name), id = strcspn(name, "_");
    return n > 24 + RANDOM + sizeof tail &&
           strncmp(name + n - RANDOM - (sizeof tail - 1), tail, sizeof tail - 1) == 0 && name[id] &&
           strspn(name + id + 1, "0123456789abcdef") == 24;
}

xd_status xd_folder_open(xd_folder *f, const char *path, xd_err *e)
{
    char *real = realpath(path, NULL);
    f->lock = real ? open_folder(real) : -1;
    xd_status s = XD_OK;
    if (f->lock < 0 || snprintf(f->path, sizeof f->path, "%s", real) >= (int)sizeof f->path)
        s = xd_fail(e, XD_EIO, "--results %s: %s", path, strerror(errno));
    free(real);
    return s;
}

/* replica.c - leases and claims of servers that share a directory of results; see replica.h */
#define _DEFAULT_SOURCE /* flock, gethostname */
#include "serve/replica.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* HOST: maximum number of characters of the host's name in a lease's name. */
enum { HOST = 40, BOOT = 40, PATH = 4200 };
/* seconds for which the observed state of a server stays valid, before its lease file is read
 * again */
static const double KNOWN_S = 0.5;

typedef struct peer { /* state of another server, as this server has observed it */
    char            name[XD_REPLICA_NAME];
    struct timespec changed; /* modification time of the lease */
    /* time at which the present value of `changed` was observed, and time of the last read of the
     * lease file */
    double          changed_s, looked_s;
    int             dead;
} peer;

struct xd_replica {
    char  dir[4096], name[XD_REPLICA_NAME];
    char  boot[BOOT]; /* id of the host's last boot, which all processes of a host see */
    /* file descriptor of this server's open and locked lease file; -1: there is none */
    int   fd;
    peer *peers; /* [npeers] */
    int   npeers;
};

static int path_of(const xd_replica *r, const char *name, const char *tail, char path[PATH])
{
    int n = snprintf(path, PATH, "%s/%s%s", r->dir, name, tail);
    return n > 0 && n < PATH;
}

static void claim_path(const xd_replica *r, const char *id, int claim, char path[PATH])
{
    char tail[32];
    snprintf(tail, sizeof tail, XD_REPLICA_CLAIM "%d", claim);
    path_of(r, id, tail, path);
}

static void read_boot_id(char boot[BOOT])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || !fgets(boot, BOOT, f))
        boot[0] = 0;
    if (f)
        fclose(f);
    boot[strcspn(boot, "\n")] = 0;
}

/* ---- leases ---------------------------------------------------------------------------------- */

static void make_name(char name[XD_REPLICA_NAME])
{
    unsigned char b[6] = { 0 };
    char          host[HOST + 1] = "server";
    size_t        n = 0;
    gethostname(host, sizeof host - 1);
    host[HOST] = 0;
    for (; host[n]; n++)
        name[n] = isalnum((unsigned char)host[n]) ? (char)tolower((unsigned char)host[n]) : '-';
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        memcpy(b, &(unsigned){ (unsigned)getpid() }, sizeof(unsigned));
    name[n++] = '-';
    for (size_t i = 0; i < sizeof b; i++, n += 2)
        snprintf(name + n, 3, "%02x", b[i]);
}

/* Returns 1 if the text can be the name of a server. Names of servers are used in paths. */
static int is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return n && !name[n] && n < XD_REPLICA_NAME;
}

static xd_status create_lease(xd_replica *r, xd_err *e)
{
    char path[PATH];
    make_name(r->name);
    path_of(r, r->name, XD_REPLICA_LEASE, path);
    r->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (r->fd < 0)
        return xd_fail(e, XD_EIO, "cannot create %s: %s", path, strerror(errno));
    /* if the file system has no locks, the death of this server is detected after
     * XD_REPLICA_DEAD_S seconds */
    flock(r->fd, LOCK_EX | LOCK_NB);
    ssize_t n = write(r->fd, r->boot, strlen(r->boot)); /* a lease is valid without its boot id */
    (void)n;
    return XD_OK;
}

xd_status xd_replica_open(xd_replica **out, const char *dir, xd_err *e)
{
    xd_replica *r = *out = calloc(1, sizeof *r);
    if (!r)
        return xd_fail(e, XD_ENOMEM, "no memory for the lease of a server");
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    r->fd = -1;
    read_boot_id(r->boot);
    xd_status s = create_lease(r, e);
    if (s != XD_OK)
        xd_replica_close(out);
    return s;
}

void xd_replica_close(xd_replica **out)
{
    xd_replica *r = *out;
    char        path[PATH];
    if (!r)
        return;
    path_of(r, r->name, XD_REPLICA_LEASE, path);
    if (r->fd >= 0) {
        unlink(path);
        close(r->fd);
    }
    free(r->peers);
    free(r);
    *out = NULL;
}

const char *xd_replica_name(const xd_replica *r)
{
    return r->name;
}

int xd_replica_renew(xd_replica *r)
{
    struct stat own, there;
    char        path[PATH];
    path_of(r, r->name, XD_REPLICA_LEASE, path);
    if (r->fd >= 0 && futimens(r->fd, NULL) == 0 && fstat(r->fd, &own) == 0 &&
        stat(path, &there) == 0 && there.st_ino == own.st_ino)
        return 0;
    if (r->fd >= 0)
        close(r->fd);
    create_lease(r, NULL); /* after a failure r->fd is -1, so that the next renewal tries again */
    return 1;
}

static peer *peer_of(xd_replica *r, const char *name)
{
    for (int i = 0; i < r->npeers; i++)
        if (strcmp(r->peers[i].name, name) == 0)
            return &r->peers[i];
    peer *v = realloc(r->peers, ((size_t)r->npeers + 1) * sizeof *v);
    if (!v)
        return NULL;
    r->peers = v;
    v[r->npeers] = (peer){ .looked_s = -1 };
    strcpy(v[r->npeers].name, name);
    return &v[r->npeers++];
}

/* Returns 1 if the lease was written on this host and no process holds its lock. The kernel
 * releases the lock of a lease file when the server that holds the lock ends. */
static int is_abandoned(const xd_replica *r, int fd)
{
    char    boot[BOOT];
    ssize_t n = read(fd, boot, sizeof boot - 1);
    boot[n > 0 ? n : 0] = 0;
    return *boot && strcmp(boot, r->boot) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* Reads the modification time of a server's lease file. The file is opened first, because NFS then
 * fetches the file's current state. */
static void look(xd_replica *r, peer *p, double now)
{
    struct stat st;
    char        path[PATH];
    path_of(r, p->name, XD_REPLICA_LEASE, path);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int known = fd >= 0 && fstat(fd, &st) == 0;
    if (known && (p->looked_s < 0 || st.st_mtim.tv_sec != p->changed.tv_sec ||
                  st.st_mtim.tv_nsec != p->changed.tv_nsec))
        p->changed = st.st_mtim, p->changed_s = now;
    p->looked_s = now;
    p->dead = known ? is_abandoned(r, fd) || now - p->changed_s > XD_REPLICA_DEAD_S
                    : fd >= 0 || errno == ENOENT;
    if (fd >= 0)
        close(fd);
}

int xd_replica_is_dead(xd_replica *r, const char *name)
{
    double now = xd_now_s();
    if (strcmp(name, r->name) == 0)
        return 0;
    peer *p = is_name(name) ? peer_of(r, name) : NULL;
    if (!p)
        return !is_name(name);
    if (p->looked_s < 0 || now - p->looked_s > KNOWN_S)
        look(r, p, now);
    return p->dead;
}

int xd_replica_visit(xd_replica *r, const char *file, int *others, int *before)
{
    size_t n = strlen(file), tail = sizeof XD_REPLICA_LEASE - 1;
    char   name[XD_REPLICA_NAME], path[PATH];
    if (n <= tail || strcmp(file + n - tail, XD_REPLICA_LEASE) != 0 || n - tail >= sizeof name)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)(n - tail), file);
    if (!is_name(name))
        return 0;
    if (strcmp(name, r->name) == 0)
        return 1;
    if (!xd_replica_is_dead(r, name))
        ++*others, *before += strcmp(name, r->name) < 0;
    else if (path_of(r, name, XD_REPLICA_LEASE, path))
        unlink(path);
    return 1;
}

/* ---- claims ---------------------------------------------------------------------------------- */

void xd_replica_owner(const xd_replica *r, const char *id, char owner[XD_REPLICA_NAME], int *claims)
{
    char    path[PATH];
    ssize_t n;
    for (;; ++*claims) {
        claim_path(r, id, *claims + 1, path);
        if ((n = readlink(path, owner, XD_REPLICA_NAME - 1)) <= 0)
            return;
        owner[n] = 0;
    }
}

/* A claim is a symbolic link whose target is the name of the server: a symbolic link has its target
 * as soon as it exists, and can be created even if the disk is full. */
int xd_replica_claim(const xd_replica *r, const char *id, int claims)
{
    char path[PATH];
    claim_path(r, id, claims + 1, path);
    return symlink(r->name, path) == 0;
}

int xd_replica_is_claimed(const xd_replica *r, const char *id, int claims)
{
    char path[PATH], name[XD_REPLICA_NAME];
    claim_path(r, id, claims + 1, path);
    return readlink(path, name, sizeof name) > 0;
}

void xd_replica_ask_cancel(const xd_replica *r, const char *id)
{
    char path[PATH];
    if (!path_of(r, id, XD_REPLICA_CANCEL, path))
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

void xd_replica_remove_claims(const xd_replica *r, const char *id, int claims)
{
    char path[PATH];
    for (int i = 1; i <= claims; i++) {
        claim_path(r, id, i, path);
        unlink(path);
    }
    if (path_of(r, id, XD_REPLICA_CANCEL, path))
        unlink(path);
}

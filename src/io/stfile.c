/* stfile.c - opens, maps and reads one safetensors or GGUF file. A safetensors file has 8 bytes of
 * header length, a JSON header, and the data. gguf.c reads the header of a GGUF file.
 *
 * Only the pages of tensors in use are mapped, so that a file may be larger than the allowed
 * address space. If mapping fails, the bytes are read with pread. */
#define _DEFAULT_SOURCE /* for madvise */
#include "io/stfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/par.h"
#include "base/rng.h"

enum { MAX_HEADER = 100000000 }; /* max bytes of a safetensors header */
/* PAGES: number of pages of a file that are included in its hash; PAGE: bytes per page. */
enum { PAGES = 64, PAGE = 4096 };
/* Smallest size, in bytes, of a tensor that is read ahead. */
static const size_t ahead = (size_t)1 << 20;

void xd_st_file_init(xd_st_file *f)
{
    *f = (xd_st_file){ .fd = -1 };
}

void xd_st_file_close(xd_st_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    xd_st_file_init(f);
}

/* Reads n bytes at offset `at` of a file. Returns 0, or errno if reading failed; EPIPE means the
 * end of the file. */
static int read_at(int fd, void *to, size_t n, size_t at)
{
    char *p = to;
    while (n) {
        size_t  part = n < ((size_t)1 << 30) ? n : (size_t)1 << 30;
        ssize_t k = pread(fd, p, part, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? errno : EPIPE;
        p += k;
        n -= (size_t)k;
        at += (size_t)k;
    }
    return 0;
}

static const char *why_read(int err)
{
    return err == EPIPE ? "unexpected end of file" : strerror(err);
}

/* Recognizes file formats that are mistaken for safetensors, by a file's first 8 bytes. Returns the
 * end of an error message that names the format, or NULL if the format is not one of these. */
static const char *other_format(const unsigned char *p)
{
    if (!memcmp(p, "version ", 8))
        return "is a Git LFS pointer, not the weights: fetch them with git lfs pull";
    /* The header length 640 of a safetensors file begins with the same bytes as a Python pickle of
     * protocol 2, but bytes 4 to 7 of a header length are 0. */
    int pickle = p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 && (p[4] | p[5] | p[6] | p[7]);
    if (!memcmp(p, "PK\3\4", 4) || pickle)
        return "is a PyTorch pickle, not safetensors: load it with diffusers or transformers and "
               "save it with save_pretrained(..., safe_serialization=True), or write its tensors "
               "with safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW_FILE)";
    return NULL;
}

xd_status xd_st_file_read(const xd_st_file *f, void *to, size_t n, size_t at, xd_err *e)
{
    int err = read_at(f->fd, to, n, at);
    return err ? xd_fail(e, XD_EIO, "cannot read %s: %s", f->path, why_read(err)) : XD_OK;
}

static xd_status find_magic(xd_st_file *f, xd_err *e)
{
    char      p[4] = "";
    xd_status st = f->size < sizeof p ? XD_OK : xd_st_file_read(f, p, sizeof p, 0, e);
    f->gguf = memcmp(p, "GGUF", 4) == 0;
    return st;
}

static xd_status header_size(xd_st_file *f, size_t *len, xd_err *e)
{
    unsigned char p[8];
    uint64_t      n = 0;
    if (f->size < 8)
        return xd_fail(e, XD_EFORMAT,
                       "%s is truncated: it has %zu bytes, a safetensors file has "
                       "at least 8",
                       f->path, f->size);
    if (xd_st_file_read(f, p, 8, 0, e) != XD_OK)
        return XD_EIO;
    if (other_format(p))
        return xd_fail(e, XD_EFORMAT, "%s %s", f->path, other_format(p));
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    if (n > MAX_HEADER || n < 2)
        return xd_fail(e, XD_EFORMAT,
                       "%s is not a safetensors file: a header of %llu bytes (2 to "
                       "%d are possible) in a file of %zu",
                       f->path, (unsigned long long)n, MAX_HEADER, f->size);
    if (n > f->size - 8)
        return xd_fail(e, XD_EFORMAT,
                       "%s is truncated: its header needs %llu bytes, the file has "
                       "%zu",
                       f->path, (unsigned long long)n + 8, f->size);
    *len = (size_t)n;
    return XD_OK;
}

static xd_status open_fd(xd_st_file *f, xd_err *e)
{
    struct stat st;
    /* so that opening a pipe does not block */
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        return xd_fail(e, XD_EIO, "cannot open %s: %s%s", f->path, strerror(errno),
                       xd_path_hint(f->path));
    if (fstat(f->fd, &st) != 0)
        return xd_fail(e, XD_EIO, "cannot read %s: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return xd_fail(e, XD_EIO, "%s is not a regular file", f->path);
    f->size = (size_t)st.st_size;
    return XD_OK;
}

xd_status xd_st_file_open(xd_st_file *f, char **header, size_t *len, xd_err *e)
{
    char     *text = NULL;
    xd_status st = open_fd(f, e);
    *header = NULL;
    if (st == XD_OK)
        st = find_magic(f, e);
    if (st == XD_OK && !f->gguf)
        st = header_size(f, len, e);
    if (st != XD_OK || f->gguf)
        return st;
    if (!(text = malloc(*len)))
        return xd_fail(e, XD_ENOMEM, "%s: no memory for its header of %zu bytes", f->path, *len);
    if (xd_st_file_read(f, text, *len, 8, e) != XD_OK) {
        free(text);
        return XD_EIO;
    }
    f->data = 8 + *len;
    *header = text;
    return XD_OK;
}

static xd_status read_copy(const xd_st_file *f, size_t at, size_t bytes, const char *name,
                           void **data, xd_err *e)
{
    void *p = malloc(bytes ? bytes : 1);
    int   err;
    *data = NULL;
    if (!p)
        return xd_fail(e, XD_ENOMEM, "no memory for the %zu bytes of tensor %s of %s", bytes, name,
                       f->path);
    if ((err = read_at(f->fd, p, bytes, at))) {
        free(p);
        return xd_fail(e, XD_EIO, "cannot read tensor %s of %s: %s", name, f->path, why_read(err));
    }
    *data = p;
    return XD_OK;
}

/* Fails if the file has become shorter since it was opened: reads beyond the end of a mapped file
 * would raise SIGBUS. */
static xd_status still_whole(const xd_st_file *f, xd_err *e)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return xd_fail(e, XD_EIO, "cannot read %s: %s", f->path, strerror(errno));
    if ((size_t)st.st_size < f->size)
        return xd_fail(e, XD_EIO, "%s has shrunk from %zu to %lld bytes since it was opened",
                       f->path, f->size, (long long)st.st_size);
    return XD_OK;
}

int xd_st_file_maps(const xd_st_file *f)
{
    void *p = mmap(NULL, 1, PROT_READ, MAP_SHARED, f->fd, 0);
    if (p == MAP_FAILED)
        return 0;
    munmap(p, 1);
    return 1;
}

xd_status xd_st_file_take(const xd_st_file *f, size_t at, size_t bytes, const char *name,
                          xd_st_view *v, xd_err *e)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    size_t             lead = at % xd_page_bytes();
    xd_status          st = still_whole(f, e);
    *v = (xd_st_view){ 0 };
    if (st != XD_OK)
        return st;
    void *p = bytes ? mmap(NULL, lead + bytes, PROT_READ, MAP_SHARED, f->fd, (off_t)(at - lead))
                    : MAP_FAILED;
    if (p == MAP_FAILED) {
        int why = errno;
        st = read_copy(f, at, bytes, name, &v->p, e);
        if (st == XD_OK && bytes && !atomic_flag_test_and_set(&said))
            xd_log(XD_LOG_WARN,
                   "cannot map %zu bytes of %s (%s): reading tensors into memory "
                   "instead",
                   bytes, f->path, strerror(why));
        return st;
    }
    *v = (xd_st_view){ (char *)p + lead, p, lead + bytes };
    if (bytes >= ahead)
        madvise(p, v->len, MADV_WILLNEED);
    return XD_OK;
}

void xd_st_file_put(xd_st_view *v)
{
    if (v->map)
        munmap(v->map, v->len);
    else
        free(v->p);
    *v = (xd_st_view){ 0 };
}

void xd_st_file_past(const xd_st_view *v, const void *p, size_t bytes)
{
    const size_t one = xd_page_bytes();
    uintptr_t from = ((uintptr_t)p + one - 1) / one * one, to = ((uintptr_t)p + bytes) / one * one;
    if (v->map && from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

uint64_t xd_st_hash_bytes(uint64_t h, const void *p, size_t n)
{
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ c[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* Adds at most one page of the file to the hash h. If the page cannot be read, adds the error
 * number instead. */
static uint64_t hash_at(const xd_st_file *f, uint64_t h, size_t at, size_t n)
{
    unsigned char buf[PAGE];
    int           err = read_at(f->fd, buf, n, at);
    return err ? xd_st_hash_bytes(h, &err, sizeof err) : xd_st_hash_bytes(h, buf, n);
}

uint64_t xd_st_file_hash(const xd_st_file *f, uint64_t h)
{
    size_t last = f->size / PAGE - (f->size && f->size % PAGE == 0);
    size_t n = last < PAGES ? last + 1 : PAGES;
    h = xd_st_hash_bytes(h, &(uint64_t){ f->size }, 8);
    for (size_t at = 0; at < f->data; at += PAGE)
        h = hash_at(f, h, at, f->data - at < PAGE ? f->data - at : PAGE);
    for (size_t i = 0; i < n; i++) {
        size_t at = (n > 1 ? last * i / (n - 1) : 0) * PAGE;
        h = hash_at(f, h, at, f->size - at < PAGE ? f->size - at : PAGE);
    }
    return h;
}

/* ---- hashing all bytes ----------------------------------------------------------------------- */

/* To hash all bytes, threads read parts of fixed size, which are hashed separately. The hash
 * therefore does not depend on the number of threads. */
enum { PART = 32 << 20, PIECE = 1 << 20 };

typedef struct part_hashes {
    const xd_st_file *f;
    uint64_t         *hash; /* [parts]: hash of each part of the file */
    atomic_int        why;  /* errno of a part of the file that could not be read, or 0 */
} part_hashes;

static uint64_t mix_words(uint64_t h, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t v = 0;
        memcpy(&v, p + i, n - i < 8 ? n - i : 8);
        h = xd_hash_mix(h, v);
    }
    return h;
}

static void hash_parts(void *ctx, int64_t begin, int64_t end, int thread)
{
    part_hashes   *p = ctx;
    unsigned char *buf = malloc(PIECE);
    int            why = buf ? 0 : ENOMEM;
    (void)thread;
    for (int64_t i = begin; i < end && !why; i++) {
        size_t   at = (size_t)i * PART, last = p->f->size - at < PART ? p->f->size : at + PART;
        uint64_t h = XD_ST_HASH_START;
        for (; at < last && !why; at += PIECE) {
            size_t n = last - at < PIECE ? last - at : PIECE;
            why = read_at(p->f->fd, buf, n, at);
            h = why ? h : mix_words(h, buf, n);
        }
        p->hash[i] = h;
    }
    if (why)
        atomic_store(&p->why, why);
    free(buf);
}

xd_status xd_st_file_hash_all(const xd_st_file *f, uint64_t *hash, xd_err *e)
{
    int64_t     n = (int64_t)((f->size + PART - 1) / PART);
    part_hashes p = { .f = f, .hash = calloc((size_t)n + 1, sizeof *p.hash) };
    if (!p.hash)
        return xd_fail(e, XD_ENOMEM, "no memory to compare %s", f->path);
    xd_par_dynamic(n, hash_parts, &p);
    *hash = f->size;
    for (int64_t i = 0; i < n; i++)
        *hash = xd_hash_mix(*hash, p.hash[i]);
    free(p.hash);
    int why = atomic_load(&p.why);
    return why ? xd_fail(e, XD_EIO, "cannot read %s: %s", f->path, strerror(why)) : XD_OK;
}

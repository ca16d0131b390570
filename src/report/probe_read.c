/* probe_read.c - measures the read speed of a disk for files outside the page cache.
 *
 * A file is written, dropped from the page cache and read back with the same readahead as weights.
 * In a virtual machine, the host may still have the file in its memory. The measured speed is then
 * that of the host's memory, which looks like a fast disk. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/readahead.h"
#include "report/probe.h"

enum { CHUNK = 1 << 20 };

/* Fills the test file with incompressible values. Returns 0 if writing failed. */
static int fill_file(FILE *f, size_t bytes)
{
    static uint64_t v[CHUNK / sizeof(uint64_t)];
    uint64_t        x = 0x9e3779b97f4a7c15u;
    for (size_t done = 0; done < bytes; done += sizeof v) {
        for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            v[i] = x;
        }
        size_t n = bytes - done < sizeof v ? bytes - done : sizeof v;
        if (fwrite(v, 1, n, f) != n)
            return 0;
    }
    return fflush(f) == 0 && fsync(fileno(f)) == 0;
}

/* Returns the seconds of reading the test file, or 0 if reading failed. */
static double read_all(int fd, size_t bytes)
{
    xd_readahead *ahead = xd_readahead_open(bytes, NULL);
    char         *v = malloc(CHUNK);
    size_t        done = 0;
    ssize_t       n = v ? 1 : 0;
    double        t0 = xd_now_s();
    if (ahead) {
        xd_readahead_add(ahead, fd, 0, bytes);
        xd_readahead_start(ahead);
    }
    while (done < bytes && n > 0) {
        n = pread(fd, v, CHUNK, (off_t)done);
        done += n > 0 ? (size_t)n : 0;
    }
    double s = xd_now_s() - t0;
    xd_readahead_close(&ahead);
    free(v);
    return done >= bytes ? s : 0;
}

double xd_probe_read(const char *dir, size_t bytes, char *why, size_t size)
{
    char  *path = xd_path_join(dir, "xdit-probe");
    xd_out o;
    xd_err e = { 0 };
    double s = 0;
    if (!path || xd_out_open(&o, path, &e) != XD_OK) {
        snprintf(why, size, "%s", path ? e.msg : "not enough memory");
        free(path);
        return 0;
    }
    int fd = fileno(o.f), written = fill_file(o.f, bytes);
    if (written)
        xd_file_drop_cached(fd);
    if (!written)
        snprintf(why, size, "writing %.1f MB there failed", (double)bytes / 1e6);
    else if (xd_file_cold_bytes(fd, 0, bytes) < bytes / 10 * 9)
        snprintf(why, size, "files of this directory cannot be dropped from memory");
    else if (!((s = read_all(fd, bytes)) > 0))
        snprintf(why, size, "reading the test file failed");
    xd_out_abort(&o);
    free(path);
    return s > 0 ? (double)bytes / s : 0;
}

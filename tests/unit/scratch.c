/* scratch.c - see scratch.h */
#define _XOPEN_SOURCE 700       /* mkdtemp, P_tmpdir */
#include "scratch.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char scratch[SCRATCH_PATH];

int scratch_open(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/xdit-test-XXXXXX", base && *base ? base : P_tmpdir);
    return mkdtemp(scratch) ? 0 : -1;
}

const char *in_scratch(const char *name)
{
    static char path[8][1024];
    static int  at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", scratch, name);
    return path[at];
}

void scratch_put(const char *name, const void *data, size_t len)
{
    FILE *f = fopen(in_scratch(name), "wb");
    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0) {
        fprintf(stderr, "cannot write %s\n", in_scratch(name));
        exit(1);
    }
}

int scratch_clean(void)
{
    int            n = 0;
    struct dirent *f;
    DIR           *d = opendir(scratch);
    while (d && (f = readdir(d))) {
        char sub[2048];
        DIR *inner;
        if (f->d_name[0] == '.')
            continue;
        n++;
        if (unlink(in_scratch(f->d_name)) == 0)
            continue;
        struct dirent *g;
        inner = opendir(in_scratch(f->d_name));
        while (inner && (g = readdir(inner))) {
            snprintf(sub, sizeof sub, "%s/%s", in_scratch(f->d_name), g->d_name);
            unlink(sub);
        }
        if (inner)
            closedir(inner);
        rmdir(in_scratch(f->d_name));
    }
    if (d)
        closedir(d);
    return n;
}

void scratch_close(void)
{
    scratch_clean();
    rmdir(scratch);
}

int scratch_set_up(void **state)
{
    (void)state;
    return scratch_open();
}

int scratch_tear_down(void **state)
{
    (void)state;
    scratch_close();
    return 0;
}

/* replay.c - runs a fuzz target on every file of the directories given, without libFuzzer */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static int run_file(const char *path)
{
    struct stat st;
    FILE       *f = fopen(path, "rb");
    uint8_t    *data = NULL;
    size_t      n = 0;
    int         ok = f && fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode);
    if (ok) {
        data = malloc(st.st_size ? (size_t)st.st_size : 1);
        n = data ? fread(data, 1, (size_t)st.st_size, f) : 0;
        ok = data && n == (size_t)st.st_size;
    }
    if (f)
        fclose(f);
    if (ok)
        LLVMFuzzerTestOneInput(data, n);
    else
        fprintf(stderr, "cannot read %s\n", path);
    free(data);
    return ok;
}

/* The number of files; -1 when one cannot be read. */
static int run_directory(const char *dir)
{
    char           path[4096];
    struct dirent *f;
    int            n = 0;
    DIR           *d = opendir(dir);
    while (d && n >= 0 && (f = readdir(d))) {
        if (f->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
        n = run_file(path) ? n + 1 : -1;
    }
    if (d)
        closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int n = run_directory(argv[i]);
        printf("%s: %d files\n", argv[i], n);
        if (n <= 0)
            return 1;
    }
    return argc < 2;
}

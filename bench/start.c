/* start.c - how long it takes from starting the program to its first step
 *
 *   start N XDIT generate --model DIR --prompt TEXT ...
 *
 * starts the command N times, one after the other, with --json and one step, to latents that are
 * thrown away. The clock begins before the process is made. Prints the median, the quartiles and
 * the extremes in milliseconds; the first start, which fills the page cache, does not count. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1000, ARGS = 256 };

static char output[256];

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void be_command(char **v, const int out[2])
{
    char text[32];
    snprintf(text, sizeof text, "%.6f", now_s());
    setenv("XDIT_STARTED", text, 1);
    dup2(out[1], 1);
    close(out[0]);
    close(out[1]);
    execvp(v[0], v);
    fprintf(stderr, "start: cannot run %s: %s\n", v[0], strerror(errno));
    _exit(127);
}

/* Seconds, or -1. */
static double one(char **v)
{
    static const char key[] = "\"start_to_first_step\":";
    char              text[65536];
    size_t            n = 0;
    int               out[2], status = 1;
    if (pipe(out) != 0)
        return -1;
    pid_t id = fork();
    if (id == 0)
        be_command(v, out);
    close(out[1]);
    for (ssize_t k; n < sizeof text - 1 && (k = read(out[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    close(out[0]);
    text[n] = 0;
    while (id > 0 && waitpid(id, &status, 0) < 0 && errno == EINTR)
        ;
    char *at = strstr(text, key);
    return id > 0 && status == 0 && at ? atof(at + sizeof key - 1) : -1;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double ms[MOST];
    const char   *tmp = getenv("TMPDIR");
    char         *v[ARGS];
    int           n = argc > 2 ? atoi(argv[1]) : 0, k = 0;
    if (n < 1 || n > MOST || argc + 6 > ARGS) {
        fprintf(stderr, "Usage: start N XDIT generate --model DIR --prompt TEXT ...\n");
        return 2;
    }
    snprintf(output, sizeof output, "%s/xdit-start-%d.safetensors", tmp && *tmp ? tmp : "/tmp",
             (int)getpid());
    for (int i = 2; i < argc; i++)
        v[k++] = argv[i];
    v[k++] = "--json";
    v[k++] = "--quiet";
    v[k++] = "--num_inference_steps=1";
    v[k++] = "--output";
    v[k++] = output;
    v[k] = NULL;
    for (int i = -1; i < n; i++) {
        double s = one(v);
        unlink(output);
        if (s < 0) {
            fprintf(stderr, "start: the command failed, or says no start_to_first_step\n");
            return 1;
        }
        if (i >= 0)
            ms[i] = s * 1e3;
    }
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    printf(
        "start to first step, ms: median %.1f, quartiles %.1f to %.1f, %.1f to %.1f, %d starts\n",
        ms[n / 2], ms[n / 4], ms[3 * n / 4], ms[0], ms[n - 1], n);
    return 0;
}

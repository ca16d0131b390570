/* progress.c - prints the progress of a running request: a bar on a terminal, plain lines
 * elsewhere.
 *
 * While weights are read, the library reports no progress, so a thread prints the speed of the
 * disk. The speed is computed from the kernel's count of the bytes that this process has read. */
#include "cli/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/signals.h"
#include "launch/streams.h"

enum { BAR_MAX = 40, BAR_MIN = 5, PLAIN_UPDATES = 10, MIN_RATE = 1000000, STACK = 256 << 10 };
enum {
    PLAIN_S = 10
}; /* seconds between two lines that xd_bar_bytes prints without a
                                   terminal */

static int columns_of(int fd)
{
    struct winsize w = { 0 };
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static double read_of_process(void)
{
    FILE  *f = fopen("/proc/self/io", "r");
    char   line[128];
    double bytes = -1;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "read_bytes: ", 12) == 0)
            bytes = strtod(line + 12, NULL);
    if (f)
        fclose(f);
    return bytes;
}

void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet)
{
    *b = (xd_bar){ .f = f,
                   .quiet = quiet,
                   .printed_s = -1.0,
                   .read_bytes = read_of_process,
                   .between_s = 0.5,
                   .clear_s = -1.0 };
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->change, NULL);
    b->terminal = columns > 0 || xd_streams_terminal(fileno(f));
    b->columns = columns > 0 ? columns : b->terminal ? columns_of(fileno(f)) : 80;
}

void xd_bar_clear(xd_bar *b)
{
    pthread_mutex_lock(&b->lock);
    if (b->drawn)
        fputs("\r\033[K", b->f), fflush(b->f);
    b->drawn = 0;
    b->clear_s = xd_now_s();
    pthread_mutex_unlock(&b->lock);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Prints the speed of reading. rate: bytes/s; 0: reading has ended. On a terminal, the previous
 * line of progress stays for half an update interval before the reading speed replaces it. */
static void add_reading(xd_bar *b, double rate, int updates)
{
    if (b->terminal && xd_now_s() - b->clear_s > b->between_s / 2) {
        fprintf(b->f, "\r\033[K%s ...", b->reads);
        if (rate > 0)
            fprintf(b->f, " reading %.0f MB/s", rate / 1e6);
        b->drawn = 1;
    } else if (!b->terminal && rate > 0 && updates % PLAIN_UPDATES == 0) {
        fprintf(b->f, "%s  reading %.0f MB/s\n", b->reads, rate / 1e6);
    }
    fflush(b->f);
}

/* Waits for b->between_s seconds until the next update. Returns 0 if the thread that prints the
 * reading speed must end. */
static int wait_for_update(xd_bar *b)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    double until = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + b->between_s;
    t.tv_sec = (time_t)until;
    t.tv_nsec = (long)((until - (double)t.tv_sec) * 1e9);
    while (!b->stop && pthread_cond_timedwait(&b->change, &b->lock, &t) == 0)
        ;
    return !b->stop;
}

/* Runs in a thread: prints the speed of reading at intervals. If the output is no terminal, the
 * first line is printed at the fourth update, so that short stages print no line. */
static void *watch_progress(void *arg)
{
    xd_bar *b = arg;
    double  had = b->read_bytes(), at = xd_now_s();
    int     reading = 0;
    pthread_mutex_lock(&b->lock);
    for (int updates = PLAIN_UPDATES - 3; had >= 0 && wait_for_update(b); updates++) {
        double bytes = b->read_bytes(), now = xd_now_s(), rate = (bytes - had) / (now - at);
        int    reads = rate >= MIN_RATE;
        if (reads || reading)
            add_reading(b, reads ? rate : 0, updates);
        reading = reads, had = bytes, at = now;
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

static void watch_end(xd_bar *b)
{
    if (!b->reads)
        return;
    pthread_mutex_lock(&b->lock);
    b->stop = 1;
    pthread_cond_signal(&b->change);
    pthread_mutex_unlock(&b->lock);
    pthread_join(b->thread, NULL);
    b->reads = NULL;
}

/* Returns the printed name of a stage that may read weights; NULL for other stages. */
static const char *reading_stage(const char *stage)
{
    static const char *const all[][2] = { { "text", "text encoding" },
                                          { "load", "load weights" },
                                          { "decode", "decode" } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(stage, all[i][0]) == 0)
            return all[i][1];
    return NULL;
}

/* Starts the thread that prints the speed of reading. If the thread that prints the reading speed
 * cannot be started, no speed is printed. */
static void watch_begin(xd_bar *b, const char *stage)
{
    pthread_attr_t attr;
    sigset_t       all, old;
    const char    *name = reading_stage(stage);
    if (!name || pthread_attr_init(&attr) != 0)
        return;
    pthread_attr_setstacksize(&attr, STACK);
    b->stop = 0;
    b->reads = name;
    xd_signals_for_caller(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&b->thread, &attr, watch_progress, b) != 0)
        b->reads = NULL;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

void xd_bar_end(xd_bar *b)
{
    watch_end(b);
    xd_bar_clear(b);
}

/* ---- progress of stages and steps ------------------------------------------------------------ */

void xd_bar_stage(xd_bar *b, const char *stage)
{
    watch_end(b);
    if (b->quiet || strcmp(stage, "denoise") == 0) /* denoising prints a line of progress for each
                                                      step */
        return;
    const char *name = reading_stage(stage);
    if (b->terminal) {
        fprintf(b->f, "\r\033[K%s ...", name ? name : stage);
        b->drawn = 1;
    } else {
        fprintf(b->f, "%s\n", name ? name : stage);
    }
    fflush(b->f);
    watch_begin(b, stage);
}

/* Returns the seconds per step: the mean of all steps except the first, which also packs
 * weights. */
static double per_step(const xd_bar *b)
{
    return b->timed > 1 ? b->rest_s / (b->timed - 1) : b->first_s;
}

static void clock_text(double s, char *text, size_t size)
{
    long long n = s < 0.0 ? 0 : (long long)(s + 0.5);
    if (n >= 3600)
        snprintf(text, size, "%lld:%02lld:%02lld", n / 3600, n / 60 % 60, n % 60);
    else
        snprintf(text, size, "%lld:%02lld", n / 60, n % 60);
}

/* Formats the text about a denoising step, "0.31 s/it ETA 0:02" (seconds per step, remaining time),
 * for the bar and for plain lines. */
static void put_step(const xd_bar *b, const xd_progress *p, char *text, size_t size)
{
    char   eta[32], images[32] = "";
    double s = per_step(b);
    double left = p->steps - p->step + (double)(p->images - p->image) * p->steps;
    clock_text(left * s, eta, sizeof eta);
    if (p->images > 1)
        snprintf(images, sizeof images, "  image %d/%d", p->image, p->images);
    snprintf(text, size, "%.*f s/it  ETA %s%s", s < 0.1 ? 3 : 2, s, eta, images);
}

/* Draws the progress bar. share: progress from 0 to 1. */
static void draw_line(xd_bar *b, const char *head, double share, const char *text)
{
    char bar[BAR_MAX + 1];
    int  room = b->columns - (int)strlen(head) - (int)strlen(text) - 4;
    int  n = room > BAR_MAX ? BAR_MAX : room;
    if (n < BAR_MIN) {
        fprintf(b->f, "\r\033[K%.*s", b->columns - 1, head);
    } else {
        int full = (int)(n * share + 1e-9);
        for (int i = 0; i < n; i++)
            bar[i] = i < full ? '#' : '.';
        bar[n] = 0;
        fprintf(b->f, "\r\033[K%s[%s] %s", head, bar, text);
    }
    b->drawn = 1;
}

static void draw_bar(xd_bar *b, const xd_progress *p, const char *text)
{
    char head[48];
    snprintf(head, sizeof head, "denoise %*d/%d ", p->steps > 99 ? 3 : 2, p->step, p->steps);
    draw_line(b, head, p->steps > 0 ? (double)p->step / p->steps : 1, text);
}

/* Prints the progress of a stage in bytes. If the output is no terminal, a line of progress is
 * printed every PLAIN_S seconds. */
void xd_bar_bytes(xd_bar *b, const char *file, double done, double total)
{
    char   text[160], eta[80] = "", clock[32];
    double now = xd_now_s(), every = b->terminal ? 0.1 : PLAIN_S;
    if (b->printed_s < 0)
        b->since_s = b->printed_s = now, b->since = done;
    if (b->quiet || (now - b->printed_s < every && (!b->terminal || done < total)))
        return;
    double rate = now > b->since_s ? (done - b->since) / (now - b->since_s) : 0;
    b->printed_s = now;
    clock_text(rate > 0 ? (total - done) / rate : 0, clock, sizeof clock);
    if (rate > 0)
        snprintf(eta, sizeof eta, "  %s/s  ETA %s", xd_size_text(rate).s, clock);
    snprintf(text, sizeof text, "%s of %s%s", xd_size_text(done).s, xd_size_text(total).s, eta);
    if (b->terminal)
        draw_line(b, "convert ", total > 0 ? done / total : 1, text);
    else
        fprintf(b->f, "convert %s  %s\n", file, text);
    fflush(b->f);
}

void xd_bar_share(xd_bar *b, const char *what, double part)
{
    double now = xd_now_s(), every = b->terminal ? 0.1 : PLAIN_S;
    if (b->printed_s < 0)
        b->printed_s = now;
    if (b->quiet || now - b->printed_s < every)
        return;
    b->printed_s = now;
    if (b->terminal)
        draw_line(b, "upscale ", part, what);
    else
        fprintf(b->f, "upscale %s  %.0f %%\n", what, 100 * part);
    fflush(b->f);
}

void xd_bar_step(xd_bar *b, const xd_progress *p)
{
    char text[128];
    if (b->timed++ == 0)
        b->first_s = p->step_s;
    else
        b->rest_s += p->step_s;
    if (b->quiet)
        return;
    put_step(b, p, text, sizeof text);
    int last = p->step == p->steps && p->image == p->images;
    if (b->terminal) {
        draw_bar(b, p, text);
    } else if (last || b->printed_s < 0.0 || xd_now_s() - b->printed_s >= 1.0) {
        fprintf(b->f, "denoise %d/%d  %s\n", p->step, p->steps, text);
        b->printed_s = xd_now_s();
    }
    fflush(b->f);
}

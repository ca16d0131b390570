/* progress.c - the bar and the plain lines of a running request */
#include "cli/progress.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR_MAX = 40, BAR_MIN = 5 };

static int columns_of(int fd)
{
    struct winsize w = { 0 };
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

int xd_bar_terminal(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

void xd_bar_init(xd_bar *b, FILE *f, int columns, int quiet)
{
    *b = (xd_bar){ .f = f, .quiet = quiet, .said_s = -1.0 };
    b->terminal = columns > 0 || xd_bar_terminal(fileno(f));
    b->columns = columns > 0 ? columns : b->terminal ? columns_of(fileno(f)) : 80;
}

void xd_bar_clear(xd_bar *b)
{
    if (b->drawn)
        fputs("\r\033[K", b->f), fflush(b->f);
    b->drawn = 0;
}

void xd_bar_stage(xd_bar *b, const char *stage)
{
    if (b->quiet || strcmp(stage, "denoise") == 0)      /* the steps speak for themselves       */
        return;
    if (b->terminal) {
        fprintf(b->f, "\r\033[K%s ...", stage);
        b->drawn = 1;
    } else {
        fprintf(b->f, "%s\n", stage);
    }
    fflush(b->f);
}

/* Seconds of a step: the mean without the first one, which also packs weights. */
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

void xd_bar_text(const xd_bar *b, const xd_progress *p, char *text, size_t size)
{
    char   eta[32], images[32] = "";
    double s = per_step(b);
    double left = p->steps - p->step + (double)(p->images - p->image) * p->steps;
    clock_text(left * s, eta, sizeof eta);
    if (p->images > 1)
        snprintf(images, sizeof images, "  image %d/%d", p->image, p->images);
    snprintf(text, size, "%.*f s/it  ETA %s%s", s < 0.1 ? 3 : 2, s, eta, images);
}

static void draw(xd_bar *b, const xd_progress *p, const char *text)
{
    char head[48], bar[BAR_MAX + 1];
    snprintf(head, sizeof head, "denoise %*d/%d ", p->steps > 99 ? 3 : 2, p->step, p->steps);
    int room = b->columns - (int)strlen(head) - (int)strlen(text) - 4;
    int n = room > BAR_MAX ? BAR_MAX : room;
    if (n < BAR_MIN) {
        fprintf(b->f, "\r\033[K%.*s", b->columns - 1, head);
    } else {
        int full = p->steps > 0 ? (int)((long long)n * p->step / p->steps) : n;
        for (int i = 0; i < n; i++)
            bar[i] = i < full ? '#' : '.';
        bar[n] = 0;
        fprintf(b->f, "\r\033[K%s[%s] %s", head, bar, text);
    }
    b->drawn = 1;
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
    xd_bar_text(b, p, text, sizeof text);
    int last = p->step == p->steps && p->image == p->images;
    if (b->terminal) {
        draw(b, p, text);
    } else if (last || b->said_s < 0.0 || xd_now_s() - b->said_s >= 1.0) {
        fprintf(b->f, "denoise %d/%d  %s\n", p->step, p->steps, text);
        b->said_s = xd_now_s();
    }
    fflush(b->f);
}

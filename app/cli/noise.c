/* noise.c - the ranks' standard error, line by line; see noise.h */
#include "cli/noise.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DASHES = 40 };

static void write_out(const xd_noise *z, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(z->fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return;             /* nobody reads it any more                                    */
        p += k;
        n -= (size_t)k;
    }
}

static int is_dashes(const xd_noise *z)
{
    return z->n >= DASHES && strspn(z->line, "-") >= DASHES;
}

/* "[host:12345] ..." is how MPI marks its own lines, and "[host][[job,1],0][...". */
static int is_marked(const char *line)
{
    const char *end = line[0] == '[' ? strchr(line, ']') : NULL, *p = end;
    while (p && p > line + 1 && isdigit((unsigned char)p[-1]))
        p--;
    return (end && strncmp(end, "][[", 3) == 0) || (p && p < end && p[-1] == ':') ||
           strncmp(line, "mpirun", 6) == 0 || strncmp(line, "[mpiexec@", 9) == 0 ||
           strncmp(line, "[proxy:", 7) == 0;
}

static const char OURS[] = "xdit: ", WARNING[] = "xdit: warning: ";
/* Open MPI 5 writes a mark and its sentence apart: those of another rank may come between. */
static const char SENTENCE[] = "Unable to find reachable pairing between local and remote "
                               "interfaces\n";

/* Can a line that begins so still turn out to be noise, or be a warning or not? */
static int may_be_noise(const xd_noise *z)
{
    if (strncmp(z->line, WARNING, z->n) == 0)
        return 1;
    if (z->inside)
        return strncmp(z->line, OURS, sizeof OURS - 1) != 0;
    return z->line[0] == '[' || strncmp(z->line, "mpirun", z->n < 6 ? z->n : 6) == 0 ||
           strncmp(z->line, SENTENCE, z->n) == 0 || strspn(z->line, "-") == z->n;
}

static int is_error(const char *line)
{
    return strncmp(line, OURS, sizeof OURS - 1) == 0 &&
           strncmp(line, WARNING, sizeof WARNING - 1) != 0;
}

static void keep_line(xd_noise *z, const char *p, size_t n)
{
    size_t space = sizeof z->kept - 1 - z->nkept;
    n = n < space ? n : space;
    if (n)                              /* p may be NULL                                          */
        memcpy(z->kept + z->nkept, p, n);
    z->nkept += n;
}

static void pass_line(xd_noise *z, const char *line)
{
    z->said |= is_error(line);
    z->spoke = 1;
    write_out(z, line, strlen(line));
}

/* A line that was held back is whole. */
static void judge_line(xd_noise *z)
{
    z->line[z->n] = 0;
    int marked = is_marked(z->line);
    int kept = (z->inside && strncmp(z->line, OURS, sizeof OURS - 1) != 0) || marked ||
               strcmp(z->line, SENTENCE) == 0 || (z->kept_last && strcmp(z->line, "\n") == 0);
    const char *ours = marked && strstr(z->line, "][[") ? strstr(z->line, OURS) : NULL;
    if (is_dashes(z))
        z->inside = !z->inside;
    else if (ours)              /* a rank's own line, behind the mark of another               */
        pass_line(z, ours);
    else if (kept)
        keep_line(z, z->line, z->n);
    else
        pass_line(z, z->line);
    z->kept_last = kept;
    z->n = 0;
}

static void take_line(xd_noise *z, char c)
{
    static const char erase[] = "\r\033[K";
    if (z->passing) {
        write_out(z, &c, 1);
        z->escape = c == erase[z->escape] ? z->escape + 1 : c == '\r';
        if (c == '\n' || z->escape == 4)
            z->passing = z->escape = 0;
        return;
    }
    z->line[z->n++] = c;
    z->line[z->n] = 0;
    if (c == '\n') {
        judge_line(z);
    } else if (!may_be_noise(z) || z->n == sizeof z->line - 2) {
        z->said |= is_error(z->line);
        z->spoke = 1;
        write_out(z, z->line, z->n);
        z->passing = 1;
        z->kept_last = 0;
        z->escape = c == '\r';
        z->n = 0;
    }
}

void xd_noise_take(xd_noise *z, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (z->passing) {       /* as much as can pass at once                                 */
            size_t k = 0;
            while (i + k < n && p[i + k] != '\n' && p[i + k] != '\r' && p[i + k] != '\033' &&
                   z->escape == 0)
                k++;
            write_out(z, p + i, k);
            i += k;
            if (i == n)
                return;
        }
        take_line(z, p[i]);
    }
}

/* An empty line, and then one of equals signs. */
static int may_be_banner(const xd_noise *z)
{
    size_t from = z->held[0] == '\n';
    return strspn(z->held + from, "=") == z->nheld - from;
}

size_t xd_noise_out(xd_noise *z, const char *p, size_t n, char *out)
{
    size_t k = 0;
    if (z->banner)
        keep_line(z, p, n);
    for (size_t i = 0; i < n && !z->banner; i++) {
        if (z->within) {
            out[k++] = p[i];
            z->within = p[i] != '\n';
            continue;
        }
        z->held[z->nheld++] = p[i];
        z->held[z->nheld] = 0;
        z->banner = may_be_banner(z) && z->nheld > DASHES;
        if (z->banner)
            keep_line(z, p + i + 1, n - i - 1);
        if (may_be_banner(z))
            continue;
        memcpy(out + k, z->held, z->nheld);
        k += z->nheld;
        z->nheld = 0;
        z->within = p[i] != '\n';
    }
    if (!n && !z->banner) {
        memcpy(out, z->held, k = z->nheld);
        z->nheld = 0;
    }
    return k;
}

void xd_noise_end(xd_noise *z)
{
    if (z->n)
        judge_line(z);
}

static int number_behind(const char *text, const char *word, int *v)
{
    const char *p = strstr(text, word);
    if (!p || !isdigit((unsigned char)p[strlen(word)]))
        return 0;
    *v = atoi(p + strlen(word));
    return 1;
}

void xd_noise_sum(const xd_noise *z, char *text, size_t size)
{
    char   all[sizeof z->kept];
    int    rank, pid, sig;
    size_t n = 0;
    for (size_t i = 0; i < z->nkept; i++) {     /* every gap becomes one space                 */
        int gap = isspace((unsigned char)z->kept[i]);
        if (!gap || (n && all[n - 1] != ' '))
            all[n++] = gap ? ' ' : z->kept[i];
    }
    n -= n && all[n - 1] == ' ';
    all[n] = 0;
    text[0] = 0;
    if (number_behind(all, "process rank ", &rank) && number_behind(all, "on signal ", &sig)) {
        snprintf(text, size, "rank %d was killed by signal %d", rank, sig);
        return;
    }
    if (number_behind(all, "= PID ", &pid) && number_behind(all, "(signal ", &sig)) {
        snprintf(text, size, "the rank with process id %d was killed by signal %d", pid, sig);
        return;
    }
    const char *first = strstr(all, "Process name: [["), *of = first ? strstr(first, "],") : NULL;
    if (of && number_behind(of, "],", &rank) && number_behind(of, "Exit code: ", &sig)) {
        snprintf(text, size,
                 sig > 128 ? "rank %d was ended by signal %d" : "rank %d ended with exit code %d",
                 rank, sig > 128 ? sig - 128 : sig);
        return;
    }
    const char *host = strstr(all, "lost communication with a remote daemon")
                           ? strstr(all, "Remote daemon: ")
                           : NULL;
    if (host && (host = strstr(host, "on node "))) {
        host += strlen("on node ");
        snprintf(text, size,
                 "the connection to host %.*s is lost: its ranks can no longer be reached, and the "
                 "run is ended",
                 (int)strcspn(host, " "), host);
        return;
    }
    snprintf(text, size, "%s", all);
}

/* mpi_log.c - separates messages of the launcher from output of ranks; see mpi_log.h */
#include "launch/mpi_log.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DASHES = 40 };

static void write_out(const xd_mpi_log *z, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(z->fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return; /* write failed, because the reader of standard error has closed the pipe */
        p += k;
        n -= (size_t)k;
    }
}

static int is_dashes(const xd_mpi_log *z)
{
    return z->n >= DASHES && strspn(z->line, "-") >= DASHES;
}

/* Returns 1 if the line begins with a mark of MPI: "[host:12345] ..." or
 * "[host][[job,1],0][...". */
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
/* Sentence of Open MPI that may arrive without the mark of its line. Open MPI 5 writes the mark
 * "[host:pid]" and its sentence separately, so output of other ranks may be between mark and
 * sentence. */
static const char SENTENCE[] = "Unable to find reachable pairing between local and remote "
                               "interfaces\n";

/* Returns 1 if the received beginning of a line may be the beginning of a warning or of a message
 * of the launcher. */
static int may_be_message(const xd_mpi_log *z)
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

static void keep_line(xd_mpi_log *z, const char *p, size_t n)
{
    size_t space = sizeof z->messages - 1 - z->nmessages;
    n = n < space ? n : space;
    if (n) /* memcpy must not be called with p == NULL */
        memcpy(z->messages + z->nmessages, p, n);
    z->nmessages += n;
}

static void pass_line(xd_mpi_log *z, const char *line)
{
    z->error_seen |= is_error(line);
    z->output_seen = 1;
    write_out(z, line, strlen(line));
}

/* Handles a complete line: keeps a message of the launcher, and passes output of a rank. */
static void judge_line(xd_mpi_log *z)
{
    z->line[z->n] = 0;
    int marked = is_marked(z->line);
    int kept = (z->inside && strncmp(z->line, OURS, sizeof OURS - 1) != 0) || marked ||
               strcmp(z->line, SENTENCE) == 0 || (z->after_message && strcmp(z->line, "\n") == 0);
    const char *ours = marked && strstr(z->line, "][[") ? strstr(z->line, OURS) : NULL;
    if (is_dashes(z))
        z->inside = !z->inside;
    else if (ours) /* a line of one rank follows the mark of another rank */
        pass_line(z, ours);
    else if (kept)
        keep_line(z, z->line, z->n);
    else
        pass_line(z, z->line);
    z->after_message = kept;
    z->n = 0;
}

static void filter_char(xd_mpi_log *z, char c)
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
    } else if (!may_be_message(z) || z->n == sizeof z->line - 2) {
        z->error_seen |= is_error(z->line);
        z->output_seen = 1;
        write_out(z, z->line, z->n);
        z->passing = 1;
        z->after_message = 0;
        z->escape = c == '\r';
        z->n = 0;
    }
}

void xd_mpi_log_filter(xd_mpi_log *z, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (z->passing) { /* write all bytes of a rank's line at once, up to the end of the
                                   line */
            size_t k = 0;
            while (i + k < n && p[i + k] != '\n' && p[i + k] != '\r' && p[i + k] != '\033' &&
                   z->escape == 0)
                k++;
            write_out(z, p + i, k);
            i += k;
            if (i == n)
                return;
        }
        filter_char(z, p[i]);
    }
}

/* Returns 1 if the pending text may become the start of MPICH's message: an empty line followed by
 * equals signs. */
static int may_be_banner(const xd_mpi_log *z)
{
    size_t from = z->pending[0] == '\n';
    return strspn(z->pending + from, "=") == z->npending - from;
}

size_t xd_mpi_log_filter_stdout(xd_mpi_log *z, const char *p, size_t n, char *out)
{
    size_t k = 0;
    if (z->banner)
        keep_line(z, p, n);
    for (size_t i = 0; i < n && !z->banner; i++) {
        if (z->in_line) {
            out[k++] = p[i];
            z->in_line = p[i] != '\n';
            continue;
        }
        z->pending[z->npending++] = p[i];
        z->pending[z->npending] = 0;
        z->banner = may_be_banner(z) && z->npending > DASHES;
        if (z->banner)
            keep_line(z, p + i + 1, n - i - 1);
        if (may_be_banner(z))
            continue;
        memcpy(out + k, z->pending, z->npending);
        k += z->npending;
        z->npending = 0;
        z->in_line = p[i] != '\n';
    }
    if (!n && !z->banner) {
        memcpy(out, z->pending, k = z->npending);
        z->npending = 0;
    }
    return k;
}

void xd_mpi_log_flush(xd_mpi_log *z)
{
    if (z->n)
        judge_line(z);
}

static int number_after(const char *text, const char *word, int *v)
{
    const char *p = strstr(text, word);
    if (!p || !isdigit((unsigned char)p[strlen(word)]))
        return 0;
    *v = atoi(p + strlen(word));
    return 1;
}

void xd_mpi_log_cause(const xd_mpi_log *z, char *text, size_t size)
{
    char   all[sizeof z->messages];
    int    rank, pid, sig;
    size_t n = 0;
    for (size_t i = 0; i < z->nmessages; i++) { /* replace white space by one space */
        int gap = isspace((unsigned char)z->messages[i]);
        if (!gap || (n && all[n - 1] != ' '))
            all[n++] = gap ? ' ' : z->messages[i];
    }
    n -= n && all[n - 1] == ' ';
    all[n] = 0;
    text[0] = 0;
    if (number_after(all, "process rank ", &rank) && number_after(all, "on signal ", &sig)) {
        snprintf(text, size, "rank %d was killed by signal %d", rank, sig);
        return;
    }
    if (number_after(all, "= PID ", &pid) && number_after(all, "(signal ", &sig)) {
        snprintf(text, size, "the rank with process id %d was killed by signal %d", pid, sig);
        return;
    }
    const char *first = strstr(all, "Process name: [["), *of = first ? strstr(first, "],") : NULL;
    if (of && number_after(of, "],", &rank) && number_after(of, "Exit code: ", &sig)) {
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
                 "lost the connection to host %.*s: its ranks cannot be reached, and the run ends",
                 (int)strcspn(host, " "), host);
        return;
    }
    snprintf(text, size, "%s", all);
}

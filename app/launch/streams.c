/* streams.c - connects the output of ranks directly to the program that started them; see
 * streams.h. The environment variable XDIT_STREAMS has the form "PID.INODE.INODE": the process id
 * of mpirun, and the inodes of its two output pipes. */
#include "launch/streams.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAMS "XDIT_STREAMS"

/* Returns the inode of a pipe; 0: `fd` is not a pipe. */
static unsigned long long pipe_inode(int fd)
{
    struct stat s;
    return fstat(fd, &s) == 0 && S_ISFIFO(s.st_mode) ? (unsigned long long)s.st_ino : 0;
}

void xd_streams_export(void)
{
    char text[80];
    snprintf(text, sizeof text, "%ld.%llu.%llu", (long)getpid(), pipe_inode(1), pipe_inode(2));
    setenv(STREAMS, text, 1);
}

/* Opens for writing the pipe that is the file descriptor `fd` of the process `pid`. Returns -1 if
 * the pipe cannot be opened or has a different inode. */
static int open_pipe(long pid, int fd, unsigned long long inode)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, fd);
    int end = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (end < 0)
        return -1;
    if (inode && pipe_inode(end) == inode && fcntl(end, F_SETFL, 0) == 0)
        return end;
    close(end);
    return -1;
}

void xd_streams_attach(void)
{
    const char        *v = getenv(STREAMS);
    long               pid;
    unsigned long long inodes[2];
    int                ends[2];
    if (!v || sscanf(v, "%ld.%llu.%llu", &pid, &inodes[0], &inodes[1]) != 3 || pid != getppid())
        return;
    for (int i = 0; i < 2; i++)
        ends[i] = open_pipe(pid, i + 1, inodes[i]);
    for (int i = 0; i < 2; i++) {
        if (ends[0] >= 0 && ends[1] >= 0)
            dup2(ends[i], i + 1);
        if (ends[i] >= 0)
            close(ends[i]);
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* standard output is flushed after every line */
}

int xd_streams_terminal(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

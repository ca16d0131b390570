/* descendants.c - counts and signals the descendants of a process; see descendants.h */
#include "launch/descendants.h"

#include <signal.h>
#include <stdio.h>

enum {
    /* maximum number of levels in the process tree from the launcher to a rank, with scripts and
     * MPI's proxy processes between them */
    DEPTH = 5
};

static int is_alive(pid_t pid)
{
    char  path[64], state = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    if (!(f = fopen(path, "r")))
        return 0;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    fclose(f);
    return state && state != 'Z' && state != 'X';
}

static int signal_leaves(pid_t pid, int depth, int sig)
{
    char  path[64];
    long  child;
    int   sum = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
    if (!(f = fopen(path, "r")))
        return -1;
    while (fscanf(f, "%ld", &child) == 1) {
        if (!is_alive((pid_t)child))
            continue;
        int under = depth < DEPTH ? signal_leaves((pid_t)child, depth + 1, sig) : 0;
        sum += under > 0 ? under : 1;
        if (sig)
            kill((pid_t)child, sig);
    }
    fclose(f);
    return sum;
}

int xd_descendants_signal(pid_t pid, int sig)
{
    return signal_leaves(pid, 0, sig);
}

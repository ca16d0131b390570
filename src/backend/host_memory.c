/* host_memory.c - computes how many bytes of host memory this process may still allocate, and
 * counts processes that were killed for lack of memory
 *
 * The result is the minimum of three values: the system's available memory, the free memory below
 * the limits of this process' control groups (v1 or v2, including all ancestors), and the address
 * space that RLIMIT_AS leaves. */
#include "backend/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Returns the number after `key` in a file of "key number" lines, or the first number of the file
 * if `key` is empty. Returns -1 if there is no number, for example if the file contains "max". */
static double number_in(const char *path, const char *key)
{
    char   line[256];
    double v = -1;
    FILE  *f = fopen(path, "r");
    if (!f)
        return -1;
    while (v < 0 && fgets(line, sizeof line, f)) {
        size_t n = strlen(key);
        char  *end;
        if (strncmp(line, key, n) != 0)
            continue;
        double x = strtod(line + n, &end);
        if (end != line + n)
            v = x;
        else if (n == 0)
            break;
    }
    fclose(f);
    return v;
}

/* Lowers *free_bytes to the minimum free memory of the control group at `dir` and of its ancestors.
 * The last of these ancestors is the root group, whose path is the first `root` bytes of `dir`.
 * Inactive file pages, which the Linux kernel may drop, count as free memory, as in MemAvailable.
 * A container often sees only its own group, mounted at the root: the group at the root is used if
 * a path does not exist. */
static void lower_to_group(char *dir, size_t root, int v2, double *free_bytes)
{
    char path[1200];
    for (;;) {
        snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.max" : "memory.limit_in_bytes");
        double max = number_in(path, "");
        snprintf(path, sizeof path, "%s/%s", dir, v2 ? "memory.current" : "memory.usage_in_bytes");
        double used = number_in(path, "");
        snprintf(path, sizeof path, "%s/memory.stat", dir);
        double idle = number_in(path, v2 ? "inactive_file " : "total_inactive_file ");
        if (idle > 0)
            used = used > idle ? used - idle : 0;
        if (max >= 0 && used >= 0 && max - used < *free_bytes)
            *free_bytes = max > used ? max - used : 0;
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= root || !slash || slash < dir + root)
            return;
        *slash = 0;
    }
}

/* Calls `visit` for each control group of memory of this process, with its folder, the number of
 * bytes of the folder that name the root group, and 1 for version 2. The lines of /proc/self/cgroup
 * are "0::/a/b" for v2 and "7:cpu,memory:/a/b" for v1. */
static void visit_groups(void    (*visit)(char *dir, size_t root, int v2, double *value),
                         double *value)
{
    char  line[1024], dir[1100];
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *ctl = strchr(line, ':'), *path = ctl ? strchr(ctl + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        int v2 = ctl[1] == 0;
        if (!v2 && !strstr(ctl, "memory"))
            continue;
        const char *root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        snprintf(dir, sizeof dir, "%s%s", root, strcmp(path, "/") == 0 ? "" : path);
        visit(dir, strlen(root), v2, value);
    }
    if (f)
        fclose(f);
}

/* Sets *kills to the number of killed processes of a group. A container often sees only its own
 * group, mounted at the root. */
static void count_kills(char *dir, size_t root, int v2, double *kills)
{
    const char *name = v2 ? "memory.events" : "memory.oom_control";
    char        path[1200];
    for (int i = 0; i < 2 && *kills < 0; i++) {
        snprintf(path, sizeof path, "%.*s/%s", (int)(i ? root : strlen(dir)), dir, name);
        *kills = number_in(path, "oom_kill ");
    }
}

double xd_host_oom_kills(int *group)
{
    double kills = -1;
    visit_groups(count_kills, &kills);
    *group = kills >= 0;
    return *group ? kills : number_in("/proc/vmstat", "oom_kill ");
}

static double machine_size(void)
{
    return number_in("/proc/meminfo", "MemTotal:") * 1024;
}

/* Returns the bytes of address space that the compute kernels of all device kinds (CPU and GPU)
 * will map in the future. */
static double kernel_space(void)
{
    double sum = 0;
    for (int i = 0; xd_dev_kinds[i]; i++)
        if (xd_dev_kinds[i]->address_space)
            sum += xd_dev_kinds[i]->address_space();
    return sum;
}

/* Returns the bytes of address space that RLIMIT_AS leaves to this process, or 1e18 if there is no
 * limit. */
static double space_left(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_AS, &lim) != 0 || lim.rlim_cur == RLIM_INFINITY)
        return 1e18;
    double mapped = number_in("/proc/self/status", "VmSize:") * 1024;
    return (double)lim.rlim_cur - (mapped > 0 ? mapped : 0);
}

size_t xd_host_address_space(void)
{
    double left = space_left();
    return left > 0 ? (size_t)left : 0;
}

void xd_host_memory(size_t *machine, size_t *process)
{
    double all = machine_size(), space = space_left();
    double free_bytes = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    if (free_bytes < 0)
        free_bytes = all < 0 ? 1e18 : all;
    visit_groups(lower_to_group, &free_bytes);
    if (space < 1e18)
        space -= kernel_space();
    *machine = (size_t)free_bytes;
    *process = (size_t)(space > 0 ? space : 0);
}

void xd_host_memory_free(size_t *available, size_t *total)
{
    size_t machine, process;
    double all = machine_size();
    xd_host_memory(&machine, &process);
    *available = machine < process ? machine : process;
    *total = all > 0 ? (size_t)all : *available;
}

/* noise.h - what the MPI launcher says on the ranks' standard error, kept from the person.
 *
 * Open MPI's messages stand between two lines of dashes, or begin with "[host:pid]", with
 * "[host][[job,part],rank][" or with its name. Two ranks that write at once leave an empty line.
 * MPICH's come on standard output, behind a line of equals signs, or begin with "[mpiexec@host]".
 * Everything else is what ranks say and passes as it comes, so that a progress bar moves. */
#ifndef XD_CLI_NOISE_H
#define XD_CLI_NOISE_H

#include <stddef.h>

typedef struct xd_noise {
    int    fd;                  /* where what ranks say goes                                   */
    int    inside;              /* between two lines of dashes                                 */
    int    kept_last;           /* the last line was the launcher's                            */
    int    passing;             /* the line under way is one of the ranks'                     */
    int    escape;              /* bytes of "erase the line" seen: a new line begins behind it */
    int    said;                /* a rank has said something that is no warning                */
    int    spoke;               /* a rank has said anything                                    */
    size_t n;
    char   line[1024];          /* the line under way, while it may be noise                   */
    size_t nkept;
    char   kept[4096];          /* the launcher's words                                        */
    int    within, banner;      /* standard output: within a line of the ranks'; MPICH has begun */
    size_t nheld;
    char   held[64];            /* its line under way, while it may be MPICH's                 */
} xd_noise;

void xd_noise_take(xd_noise *z, const char *p, size_t n);
/* Of standard output: puts into `out`, of n + sizeof z->held bytes, what is the ranks' of
 * p[0..n), and of what was held back before; returns how much. n = 0: this was all. */
size_t xd_noise_out(xd_noise *z, const char *p, size_t n, char *out);
void xd_noise_end(xd_noise *z);         /* passes what is left                                 */
/* "rank 3 was killed by signal 9" (MPICH: "the rank with process id 77 was"), or the first words
 * of the launcher; empty: it said nothing. */
void xd_noise_sum(const xd_noise *z, char *text, size_t size);

#endif

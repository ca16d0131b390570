/* noise.h - what the MPI launcher says on the ranks' standard error, kept from the person.
 *
 * Its messages stand between two lines of dashes, or begin with "[host:pid]" or its name.
 * Everything else is what ranks say and passes as it comes, so that a progress bar moves. */
#ifndef XD_CLI_NOISE_H
#define XD_CLI_NOISE_H

#include <stddef.h>

typedef struct xd_noise {
    int    fd;                  /* where what ranks say goes                                   */
    int    inside;              /* between two lines of dashes                                 */
    int    passing;             /* the line under way is one of the ranks'                     */
    int    escape;              /* bytes of "erase the line" seen: a new line begins behind it */
    int    said;                /* a rank has said an error                                    */
    size_t n;
    char   line[1024];          /* the line under way, while it may be noise                   */
    size_t nkept;
    char   kept[4096];          /* the launcher's words                                        */
} xd_noise;

void xd_noise_take(xd_noise *z, const char *p, size_t n);
void xd_noise_end(xd_noise *z);         /* passes what is left                                 */
/* "rank 3 was killed by signal 9", or the first words of the launcher; empty: it said nothing. */
void xd_noise_sum(const xd_noise *z, char *text, size_t size);

#endif

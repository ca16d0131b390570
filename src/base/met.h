/* met.h - a note that the ranks of this run have met: messages pass between all of them.
 *
 * The library makes it, once; a program that watches how its ranks start may hear it. */
#ifndef XD_BASE_MET_H
#define XD_BASE_MET_H

void xd_met(void);                      /* said by who opens the ranks' first group              */
void xd_met_hook(void (*fn)(void));     /* called then; NULL: nobody. One hook a process         */

#endif

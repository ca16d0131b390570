/* met.h - a notice that the ranks of this run are connected and can send messages to each other.
 *
 * The library sends it once. A program that watches the start of its ranks can hook it. */
#ifndef XD_BASE_MET_H
#define XD_BASE_MET_H

void xd_met(void);                      /* called when the ranks' first group is open            */
void xd_met_hook(void (*fn)(void));     /* fn is called by xd_met; NULL: none. One hook a process */

#endif

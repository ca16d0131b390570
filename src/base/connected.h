/* connected.h - a hook that is called once when the ranks of this run are connected.
 *
 * A launcher uses it to stop waiting for the start of its ranks. */
#ifndef XD_BASE_CONNECTED_H
#define XD_BASE_CONNECTED_H

void xd_connected(void);        /* called once, when the first group of all ranks is open      */
/* Sets the function that xd_connected calls; NULL: none. One hook per process. */
void xd_connected_hook(void (*fn)(void));

#endif

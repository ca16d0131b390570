/* connected.h - sets and calls a hook (callback), which is called once, when the ranks of this run
 * are connected.
 *
 * A launcher sets the hook to learn when the ranks that it has started are ready. */
#ifndef XD_BASE_CONNECTED_H
#define XD_BASE_CONNECTED_H

/* calls the hook once, when the first world (group of all ranks) is open */
void xd_connected(void);
/* Sets the function that xd_connected calls; NULL: no function. A process has only one hook for
 * connected ranks. */
void xd_connected_hook(void (*fn)(void));

#endif

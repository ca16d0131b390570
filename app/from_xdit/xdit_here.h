/* xdit_here.h - checks a command that was translated from xDiT, and explains how it differs from
 * the command of xDiT */
#ifndef XD_FROM_XDIT_XDIT_HERE_H
#define XD_FROM_XDIT_XDIT_HERE_H

#include "from_xdit/xdit_translate.h"

/* Checks the model and the plan of a translated command as far as they are known before the model
 * is loaded. XD_EUNSUPPORTED: xdit does not have the model. XD_EINVAL: `xdit generate` would refuse
 * the plan. */
xd_status    xd_here_check(const xd_line *l, const xd_translation *o, xd_err *e);
/* Receives a note as a text of one line, without control characters. */
typedef void xd_here_note(void *cookie, const char *text);
/* Calls `note` for each difference between the command of xDiT and its translation. */
void xd_here_notes(const xd_line *l, const xd_translation *o, xd_here_note *note, void *cookie);

#endif

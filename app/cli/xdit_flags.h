/* xdit_flags.h - every flag of xDiT: what it does there and what becomes of it here.
 *
 * `xdit generate` knows them by this table, `xdit from-xdit` translates by it, and doc/from-xdit.md
 * shows it. xDiT has two programs with flags: the example scripts and the runner (`xdit`). */
#ifndef XD_CLI_XDIT_FLAGS_H
#define XD_CLI_XDIT_FLAGS_H

#include "base/err.h"

typedef enum xd_fate {
    XD_FATE_SAME,               /* a flag of ours, of the same name and meaning                */
    XD_FATE_OTHER,              /* another flag of ours (own) takes the same value             */
    XD_FATE_VALUE,              /* it is a value of a flag of ours: own is "weights_dtype int8"  */
    XD_FATE_NOT_NEEDED,         /* nothing is lost without it: said, and on                    */
    XD_FATE_SLOWER,             /* not built: the image comes without it, exact but slower   */
    XD_FATE_REFUSED             /* not built, or another way: the image would not be that    */
} xd_fate;

typedef struct xd_xdit_flag {
    const char *name;           /* "ulysses_degree"                                            */
    char        takes;          /* 0 nothing, 'i' a whole number, 'r' a number, 's' a text, 'b'
                                   nothing, and --no- before the name turns it off; capital
                                   letters: any number of them                                 */
    char in; /* 'e' example scripts, 'r' runner, 'b' both, 'f' those of benchmark/fid */
    xd_fate     fate;
    const char *own;            /* of XD_FATE_OTHER and XD_FATE_VALUE                          */
    const char *there, *here;   /* clauses without a full stop                                 */
} xd_xdit_flag;

extern const xd_xdit_flag xd_xdit_flags[];      /* ends with a row without a name              */
enum { XD_XDIT_FLAGS_MAX = 128 };

/* `-` in the name counts as `_`; of 'b', the name may begin with no_. NULL: xDiT has none. */
const xd_xdit_flag *xd_xdit_flag_find(const char *name);
const char *xd_fate_name(xd_fate fate);         /* "same", "not needed"                        */

#endif

/* xdit_flags.h - declares the table of all command line flags of xDiT. A row has the flag's effect
 * in xDiT, and the flag of xdit that replaces it.
 *
 * The table is used by `xdit generate`, which accepts these flags, by `xdit from-xdit`, which
 * translates them, and by doc/from-xdit.md, which lists them. xDiT has two programs: the example
 * scripts and the runner (`xdit`). */
#ifndef XD_CLI_XDIT_FLAGS_H
#define XD_CLI_XDIT_FLAGS_H

#include "base/err.h"

typedef enum xd_flag_kind {
    XD_FLAG_SAME,               /* xdit has a flag with the same name and meaning              */
    XD_FLAG_OTHER,              /* xdit has another flag (own) with the same value             */
    XD_FLAG_VALUE,              /* the flag equals a value of a flag of xdit; `own` is then, for
                                   example, "weights_dtype int8" */
    XD_FLAG_NOT_NEEDED,         /* the flag has no effect on the result; xdit reports and ignores
                                   it */
    XD_FLAG_SLOWER,             /* xdit does not support the flag; the image is exact, but takes
                                   longer */
    XD_FLAG_REFUSED             /* xdit refuses the flag, because the image would differ */
} xd_flag_kind;

typedef struct xd_xdit_flag {
    const char *name;           /* name without dashes: "ulysses_degree"                       */
    char        value;          /* type of the flag's value: 'i' integer, 'r' number, 's' text, 0 no
                                   value, 'b' no value and a form --no-NAME; a capital letter: any
                                   number of values */
    char        in;             /* program of xDiT that has the flag: 'e' example scripts, 'r'
                                   runner, 'b' both, 'f' the scripts of benchmark/fid */
    xd_flag_kind kind;
    const char *own;            /* flag of xdit, for XD_FLAG_OTHER and XD_FLAG_VALUE           */
    const char *there, *here;   /* effect in xDiT, effect in xdit: clauses without a full stop */
} xd_xdit_flag;

extern const xd_xdit_flag xd_xdit_flags[];      /* all flags; the last row has no name         */
enum { XD_XDIT_FLAGS_MAX = 128 };

/* Finds a flag by name. `-` counts as `_`, and names of flags whose value is 'b' may begin with
 * no_. NULL: not found. */
const xd_xdit_flag *xd_xdit_flag_find(const char *name);
const char *xd_flag_kind_name(xd_flag_kind kind);       /* returns the name of a kind: "same", "not
                                                           needed" */

#endif

/* xdit_flags.h - declares the table of all command line flags of xDiT. Each row of the table
 * describes a flag's effect in xDiT, and names the flag of xdit that replaces the flag of xDiT.
 *
 * Three places use the table: `xdit generate` accepts the flags in this table, `xdit from-xdit`
 * translates them, and doc/from-xdit.md lists them. xDiT has two programs with different flags: the
 * example scripts and the runner (`xdit`). */
#ifndef XD_CLI_XDIT_FLAGS_H
#define XD_CLI_XDIT_FLAGS_H

#include "base/err.h"

typedef enum xd_flag_kind {
    XD_FLAG_SAME,  /* xdit has a flag with the same name and meaning */
    XD_FLAG_OTHER, /* xdit has a flag with another name (the field `own`) that has the same value */
    /* The flag has the effect of a flag of xdit with a certain value; `own` has both, for
     * example "weights_dtype int8". */
    XD_FLAG_VALUE,
    /* The flag does not change the image and is not needed in xdit, which prints a line and
     * ignores the flag. */
    XD_FLAG_NOT_NEEDED,
    /* The flag only saves time in xDiT. xdit prints a warning and ignores the flag: the image is
     * exact, but takes longer. */
    XD_FLAG_SLOWER,
    XD_FLAG_REFUSED /* xdit refuses the flag, because the image would differ */
} xd_flag_kind;

typedef struct xd_xdit_flag {
    const char  *name; /* name of the flag without dashes: "ulysses_degree" */
    /* Type of the flag's value: 'i' integer, 'r' real number, 's' text; 0: the flag has no value;
     * 'b': the flag has no value, and --no-NAME switches it off. A capital letter of the type means
     * that the flag has any number of values. */
    char         value;
    char         in; /* program of xDiT that has the flag: 'e' example scripts, 'r'
                                   runner, 'b' both, 'f' the scripts of benchmark/fid */
    xd_flag_kind kind;
    /* Flag of xdit that replaces this flag, if `kind` is XD_FLAG_OTHER or XD_FLAG_VALUE. */
    const char  *own;
    /* Effects of the flag in xDiT and in xdit, as clauses without a full stop. */
    const char  *there, *here;
} xd_xdit_flag;

extern const xd_xdit_flag xd_xdit_flags[]; /* all flags; the last row has no name */
enum { XD_XDIT_FLAGS_MAX = 128 };

/* Returns the row of the flag with this name. A `-` in the name of the flag is treated as `_`. If
 * the type of a flag's value is 'b', the name may also begin with no_. NULL: xDiT has no such
 * flag. */
const xd_xdit_flag *xd_xdit_flag_find(const char *name);
/* Returns the name of a kind, for example "same" or "not needed". */
const char         *xd_flag_kind_name(xd_flag_kind kind);

#endif

/* xdit_flags.h - table of all flags of xDiT: their effect there, and their counterpart here.
 *
 * Used by `xdit generate`, which accepts them, `xdit from-xdit`, which translates them, and
 * doc/from-xdit.md, which lists them. xDiT has two programs: the example scripts and the runner
 * (`xdit`). */
#ifndef XD_CLI_XDIT_FLAGS_H
#define XD_CLI_XDIT_FLAGS_H

#include "base/err.h"

typedef enum xd_flag_kind {
    XD_FLAG_SAME,               /* same name and meaning here                                  */
    XD_FLAG_OTHER,              /* another flag here (own), with the same value                */
    XD_FLAG_VALUE,              /* a value of a flag here: own is "weights_dtype int8"         */
    XD_FLAG_NOT_NEEDED,         /* no effect on the result: reported, then ignored             */
    XD_FLAG_SLOWER,             /* not supported: the image is exact, but slower              */
    XD_FLAG_REFUSED             /* not supported, and the image would differ                  */
} xd_flag_kind;

typedef struct xd_xdit_flag {
    const char *name;           /* "ulysses_degree"                                            */
    char        value;          /* value: 0 none, 'i' integer, 'r' number, 's' text, 'b' none, with
                                   a form --no-NAME; capital letters: any number of values     */
    char        in;             /* program: 'e' example scripts, 'r' runner, 'b' both, 'f' the
                                   scripts of benchmark/fid                                    */
    xd_flag_kind kind;
    const char *own;            /* for XD_FLAG_OTHER and XD_FLAG_VALUE                         */
    const char *there, *here;   /* effect in xDiT and here: clauses without a full stop        */
} xd_xdit_flag;

extern const xd_xdit_flag xd_xdit_flags[];      /* ends with a row without a name              */
enum { XD_XDIT_FLAGS_MAX = 128 };

/* Finds a flag; `-` counts as `_`, and names of value 'b' may begin with no_. NULL: not found. */
const xd_xdit_flag *xd_xdit_flag_find(const char *name);
const char *xd_flag_kind_name(xd_flag_kind kind);       /* "same", "not needed"                */

#endif

/* plan_table.h - the options of a plan, one row each with all that is known about the option
 *
 * Command lines, the choice of a plan, the names of --plan, the flags that `xdit plan` prints, the
 * text of a plan, help texts, warnings and the comparison between ranks all read these rows. */
#ifndef XD_PLAN_PLAN_TABLE_H
#define XD_PLAN_PLAN_TABLE_H

#include "base/json.h"
#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/tools.h"

enum { XD_PLAN_ROWS = 32 };     /* the most rows of a table                                    */

typedef enum xd_plan_needs {    /* what the plan must contain for an option to have an effect  */
    XD_NEEDS_NOTHING,
    XD_NEEDS_STAGES,            /* of PipeFusion                                               */
    XD_NEEDS_PATCHES,           /* that go through the stages                                  */
    XD_NEEDS_FLOWING_TEXT,      /* text that goes with the patches                             */
    XD_NEEDS_RING,
    XD_NEEDS_STALE,             /* steps that use keys and values of the step before           */
    XD_NEEDS_GROUP,             /* several ranks that generate one image                       */
} xd_plan_needs;

/* How an image differs from that of one rank, the mildest difference first. A plan's value is the
 * sum of those of its options. */
enum { XD_SAME_BITS = 0, XD_SUMS_OF_TENSOR = 1, XD_STALE_STEPS = 2 };

/* Where an option is named even if it has its default value. */
enum { XD_ALWAYS_FLAG = 1, XD_ALWAYS_TEXT = 2 };

typedef struct xd_plan_row {
    xd_option     option;       /* of kind INT, FLAG or TEXT; hidden without `help`            */
    int           axis;         /* the axis whose degree it is; XD_NAXES: none                 */
    const char   *word;         /* its name in --plan: "u"; NULL: it has none                  */
    int           stands;       /* of a FLAG: number after its name in --plan; 0: its value    */
    const char   *plain;        /* the value of an absent option                               */
    xd_plan_needs needs;
    const char   *said;         /* its part in the text of a plan, # is the value; NULL: none  */
    int           always, changes;      /* of the enumerations above                           */
} xd_plan_row;

typedef struct xd_plan_table {
    const xd_plan_row *rows;
    int                n;
} xd_plan_table;

const xd_plan_table *xd_plan_table_now(void);
/* For tests: all functions read this table from now on; NULL: the built-in one again. */
void                 xd_plan_table_use(const xd_plan_table *t);
/* The row of an axis' degree. */
const xd_plan_row   *xd_plan_row_of(int axis);

/* ---- one option of a plan ----------------------------------------------------------------- */

/* The number that is given; 0: none is. A given text counts as 1. */
int  xd_plan_number(const xd_plan_row *r, const xd_parallel *a);
void xd_plan_put(const xd_plan_row *r, xd_parallel *a, int number);     /* not for texts       */
/* The value as text: "2", "1" of a switch, "every"; "" if none is given. */
const char *xd_plan_value(const xd_plan_row *r, const xd_parallel *a, char digits[16]);
/* Number of ranks along the axis of a degree's row: 1 or more. */
int  xd_plan_degree(const xd_plan_row *r, const xd_parallel *a);
/* Is the option given, and does the plan contain what it needs? d: the model, NULL: any. */
int  xd_plan_counts(const xd_plan_row *r, const xd_parallel *a, const xd_dit_info *d);
/* The patches of a step: the number given, or the number of stages; 1 without stages. */
int  xd_plan_patches(const xd_parallel *a);

/* ---- all of them -------------------------------------------------------------------------- */

/* Append "--ulysses_degree 2 --use_parallel_vae" and "u2vae": the options that have an effect. */
void xd_plan_flags(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
void xd_plan_name(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* Appends " (4 patches, 1 warm-up, VAE rows)": the options besides degrees, with
 * defaults filled in. */
void xd_plan_besides(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* The sum of `changes` of the options that have an effect. */
int  xd_plan_changes(const xd_parallel *a, const xd_dit_info *d);
/* The numbers of all options as sent between ranks, and back; texts are not changed. */
void xd_plan_pack(const xd_parallel *a, int32_t out[XD_PLAN_ROWS]);
void xd_plan_unpack(const int32_t in[XD_PLAN_ROWS], xd_parallel *a);
/* One hash for each option, equal if the option is given with the same value. Returns
 * their number. */
int  xd_plan_hashes(const xd_parallel *a, uint64_t out[XD_PLAN_ROWS]);
/* Warns of options that the user has given and that have no effect on the plan `a`. */
void xd_plan_log_unused(const xd_parallel *given, const xd_parallel *a, const xd_dit_info *d);

#endif

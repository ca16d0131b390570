/* plan_table.h - the options of a plan, one row each: everything that is known about a flag
 *
 * Command lines, the choice of a plan, the words of --plan, the flags that `xdit plan` prints, the
 * text of a plan, help texts, warnings and the comparison between ranks all read these rows. */
#ifndef XD_PLAN_PLAN_TABLE_H
#define XD_PLAN_PLAN_TABLE_H

#include "base/json.h"
#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/xdit.h"

enum { XD_PLAN_ROWS = 32 };     /* the most rows of a table                                    */

typedef enum xd_plan_needs {    /* what must be in the plan for an option to matter            */
    XD_NEEDS_NOTHING,
    XD_NEEDS_STAGES,            /* of PipeFusion                                               */
    XD_NEEDS_PATCHES,           /* that flow through them                                      */
    XD_NEEDS_FLOWING_TEXT,      /* with the patches                                            */
    XD_NEEDS_RING,
    XD_NEEDS_STALE,             /* steps that use keys and values of the step before           */
    XD_NEEDS_GROUP,             /* several ranks that make one image                           */
} xd_plan_needs;

/* How an image differs from that of one rank, the mildest first; a plan adds up its options'. */
enum { XD_SAME_BITS = 0, XD_SUMS_OF_RING = 1, XD_SUMS_OF_TENSOR = 2, XD_STALE_STEPS = 4 };

/* Where a row is named even at its plain value. */
enum { XD_ALWAYS_FLAG = 1, XD_ALWAYS_TEXT = 2 };

typedef struct xd_plan_row {
    xd_option     option;       /* of kind INT, FLAG or TEXT; without `help` it is hidden     */
    int           axis;         /* whose degree it is; XD_NAXES: of none                       */
    const char   *word;         /* in the words of --plan: "u"; NULL: it has none         */
    int           stands;       /* of a FLAG: the number of its word; 0: the word has its own  */
    const char   *plain;        /* the value that an absent option has                         */
    xd_plan_needs needs;
    const char   *said;         /* in the text of a plan, # is the value; NULL: it is not said  */
    int           always, changes;      /* of the enumerations above                           */
} xd_plan_row;

typedef struct xd_plan_table {
    const xd_plan_row *rows;
    int                n;
} xd_plan_table;

const xd_plan_table *xd_plan_table_now(void);
/* For tests: everything reads this table from now on; NULL: its own again. */
void                 xd_plan_table_use(const xd_plan_table *t);
/* The row of an axis' degree. */
const xd_plan_row   *xd_plan_row_of(int axis);

/* ---- one option of a plan ------------------------------------------------------------------- */

/* The number that is asked for; 0: none is. A text that is given counts as 1. */
int  xd_plan_number(const xd_plan_row *r, const xd_parallel *a);
void xd_plan_put(const xd_plan_row *r, xd_parallel *a, int number);     /* not into texts         */
/* The value as text: "2", "1" of a switch, "every"; "" when none is given. */
const char *xd_plan_value(const xd_plan_row *r, const xd_parallel *a, char digits[16]);
/* Ranks along the axis of a row that is a degree: 1 or more. */
int  xd_plan_degree(const xd_plan_row *r, const xd_parallel *a);
/* Is the option given, and is there what it needs? d: the model, NULL: any. */
int  xd_plan_counts(const xd_plan_row *r, const xd_parallel *a, const xd_dit_info *d);
/* The patches of a step: those asked for, or as many as stages; 1 without stages. */
int  xd_plan_patches(const xd_parallel *a);

/* ---- all of them ---------------------------------------------------------------------------- */

/* "--ulysses_degree 2 --use_parallel_vae" and "u2vae": the options that count. */
void xd_plan_flags(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
void xd_plan_name(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* " (4 patches, 1 warm-up, VAE rows)": what a plan has besides its degrees, defaults filled in. */
void xd_plan_besides(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* The sum of `changes` of the options that count. */
int  xd_plan_changes(const xd_parallel *a, const xd_dit_info *d);
/* Numbers of all options, as they go between ranks, and back; texts stay as they are. */
void xd_plan_pack(const xd_parallel *a, int32_t out[XD_PLAN_ROWS]);
void xd_plan_unpack(const int32_t in[XD_PLAN_ROWS], xd_parallel *a);
/* One number for each option, equal when it is given alike. Returns how many there are. */
int  xd_plan_hashes(const xd_parallel *a, uint64_t out[XD_PLAN_ROWS]);
/* Warns of options that the user has given and that make no difference to the plan `a`. */
void xd_plan_say_unused(const xd_parallel *given, const xd_parallel *a, const xd_dit_info *d);

#endif

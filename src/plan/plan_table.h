/* plan_table.h - one row for each option of a plan, with everything known about the option
 *
 * Command lines, the choice of a plan, the names of --plan, the flags that `xdit plan` prints, the
 * description of a plan, help texts, warnings and the comparison between ranks use these rows. */
#ifndef XD_PLAN_PLAN_TABLE_H
#define XD_PLAN_PLAN_TABLE_H

#include "base/json.h"
#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/tools.h"

enum { XD_PLAN_ROWS = 32 };     /* maximum number of rows                                      */

typedef enum xd_plan_needs {    /* what a plan needs for the option to have an effect          */
    XD_NEEDS_NOTHING,
    XD_NEEDS_STAGES,            /* PipeFusion stages                                           */
    XD_NEEDS_PATCHES,           /* patches that pass through the stages                        */
    XD_NEEDS_FLOWING_TEXT,      /* text that is sent with the patches                          */
    XD_NEEDS_RING,
    XD_NEEDS_STALE,             /* steps that use the previous step's keys and values          */
    XD_NEEDS_GROUP,             /* several ranks per image                                     */
} xd_plan_needs;

/* How an image differs from the one-rank image, smallest difference first. A plan's value combines
 * the values of its options. */
enum { XD_SAME_BITS = 0, XD_SUMS_OF_TENSOR = 1, XD_STALE_STEPS = 2 };

/* The texts that name an option even when it has its default value. */
enum { XD_ALWAYS_FLAG = 1, XD_ALWAYS_TEXT = 2 };

typedef struct xd_plan_row {
    xd_option     option;       /* kind INT, FLAG or TEXT; hidden without `help`               */
    int           axis;         /* axis of this degree; XD_NAXES: not a degree                 */
    const char   *word;         /* name in --plan, e.g. "u"; NULL: none                        */
    int           name_number;  /* FLAG: number after the name in --plan; 0: the value         */
    const char   *default_text; /* value if the option is absent                               */
    xd_plan_needs needs;
    const char   *description;  /* part of a plan's description, # is the value; NULL: none    */
    int           always, changes;      /* see the enumerations above                          */
} xd_plan_row;

typedef struct xd_plan_table {
    const xd_plan_row *rows;
    int                n;
} xd_plan_table;

const xd_plan_table *xd_plan_table_now(void);
/* For tests: makes all functions use this table; NULL: the built-in one. */
void                 xd_plan_table_use(const xd_plan_table *t);
/* Returns the row of an axis' degree. */
const xd_plan_row   *xd_plan_row_of(int axis);

/* ---- one option of a plan ----------------------------------------------------------------- */

/* Returns the option's number; 0: not given. A given text counts as 1. */
int  xd_plan_number(const xd_plan_row *r, const xd_parallel *a);
void xd_plan_put(const xd_plan_row *r, xd_parallel *a, int number);     /* not for kind TEXT */
/* Returns the value as text: "2", "1" for a flag, "every"; "" if the option is not given. */
const char *xd_plan_value(const xd_plan_row *r, const xd_parallel *a, char digits[16]);
/* Returns the number of ranks along the axis of a degree's row, at least 1. */
int  xd_plan_degree(const xd_plan_row *r, const xd_parallel *a);
/* Returns 1 if the option is given and the plan has what it needs. d: the model; NULL: any. */
int  xd_plan_counts(const xd_plan_row *r, const xd_parallel *a, const xd_dit_info *d);
/* Returns the patches per step: the given number, else the number of stages; 1 without stages. */
int  xd_plan_patches(const xd_parallel *a);

/* ---- all options -------------------------------------------------------------------------- */

/* Append "--ulysses_degree 2 --use_parallel_vae" and "u2vae": only options that have an effect. */
void xd_plan_flags(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
void xd_plan_name(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* Appends " (4 patches, 1 warm-up, VAE rows)": the options other than degrees, with defaults filled
 * in. */
void xd_plan_details(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* Returns the combined `changes` of the options that have an effect. */
int  xd_plan_changes(const xd_parallel *a, const xd_dit_info *d);
/* Copy the numbers of all options to and from a message between ranks; texts are not copied. */
void xd_plan_pack(const xd_parallel *a, int32_t out[XD_PLAN_ROWS]);
void xd_plan_unpack(const int32_t in[XD_PLAN_ROWS], xd_parallel *a);
/* Computes one hash for each option; two hashes are equal if the option has the same value. Returns
 * the number of hashes. */
int  xd_plan_hashes(const xd_parallel *a, uint64_t out[XD_PLAN_ROWS]);
/* Warns about options in `given` that have no effect on the plan `a`. */
void xd_plan_log_unused(const xd_parallel *given, const xd_parallel *a, const xd_dit_info *d);

#endif

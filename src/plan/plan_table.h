/* plan_table.h - defines the table of a parallel plan's options, with one row per option, such as
 * ulysses_degree.
 *
 * All code that lists plan options uses this table: command lines, help texts, warnings, the choice
 * of a plan, the short names of --plan, the flags that `xdit plan` prints, plan descriptions, and
 * the comparison of plans between ranks. */
#ifndef XD_PLAN_PLAN_TABLE_H
#define XD_PLAN_PLAN_TABLE_H

#include "base/json.h"
#include "dit/dit.h"
#include "parallel/topo.h"
#include "xdit/tools.h"

enum { XD_PLAN_ROWS = 32 }; /* maximum number of rows of the table */

/* Conditions under which an option of a parallel plan has an effect. */
typedef enum xd_plan_needs {
    XD_NEEDS_NOTHING,
    XD_NEEDS_STAGES,  /* the plan has more than one pipeline stage */
    XD_NEEDS_PATCHES, /* the plan has patches that pass through pipeline stages */
    /* The plan sends text tokens from stage to stage together with the patches. */
    XD_NEEDS_FLOWING_TEXT,
    XD_NEEDS_RING,
    XD_NEEDS_STALE, /* steps use the previous step's keys and values */
    XD_NEEDS_GROUP, /* several ranks compute one image */
    /* Ranks send each other hidden states or the inputs of attention. */
    XD_NEEDS_ACTIVATIONS,
} xd_plan_needs;

/* Values that tell how a plan's image differs from the image of one rank. XD_SAME_BITS: the images
 * are bit-identical; XD_SUMS_OF_TENSOR: sums over tensor-parallel ranks are rounded differently;
 * XD_STALE_STEPS: some steps use values of earlier steps; XD_CODED_MESSAGES: messages between hosts
 * are rounded to 8 bits. For a plan, the values XD_SAME_BITS to XD_CODED_MESSAGES of all its
 * options are combined by bitwise OR. */
enum { XD_SAME_BITS = 0, XD_SUMS_OF_TENSOR = 1, XD_STALE_STEPS = 2, XD_CODED_MESSAGES = 4 };

/* Flags of xd_plan_row.always: an option is printed among a plan's flags, or in its description,
 * even if it has its default value. */
enum { XD_ALWAYS_FLAG = 1, XD_ALWAYS_TEXT = 2 };

typedef struct xd_plan_row {
    /* name, type (INT, FLAG or TEXT) and help text of the option; an option without help text is
     * not listed in help */
    xd_option     option;
    /* Axis of parallelism whose degree the option sets, or XD_NAXES if the option sets no
     * degree. */
    int           axis;
    /* Short name of the option in the argument of --plan, for example "u" in "u2"; NULL: no short
     * name. */
    const char   *word;
    /* For options of kind FLAG: the number that follows the short name in the argument of --plan; 1
     * is omitted. 0: the option's value follows the short name. */
    int           name_number;
    const char   *default_text; /* value of the option if the plan does not set it */
    xd_plan_needs needs;
    /* Text for the option in a plan's description, in which # stands for the value; NULL: the
     * description omits the option. */
    const char   *description;
    /* always: XD_ALWAYS_... flags; changes: effect on the image (XD_SAME_BITS, ...). */
    int           always, changes;
} xd_plan_row;

typedef struct xd_plan_table {
    const xd_plan_row *rows;
    int                n;
} xd_plan_table;

const xd_plan_table *xd_plan_table_now(void);
/* For tests: makes all functions of plan_table.h use table t, or the built-in table if t is
 * NULL. */
void                 xd_plan_table_use(const xd_plan_table *t);
/* Returns the row of the option that sets the degree of parallelism along `axis`. */
const xd_plan_row   *xd_plan_row_of(int axis);

/* ---- one option of a plan ----------------------------------------------------------------- */

/* Returns the value of option r in plan a as a number: 0 if the option is not given, 1 if the
 * option is a text and is given. */
int         xd_plan_number(const xd_plan_row *r, const xd_parallel *a);
/* Sets the value of option r in plan a. xd_plan_put does not support options of kind TEXT. */
void        xd_plan_put(const xd_plan_row *r, xd_parallel *a, int number);
/* Returns the value of an option as text, such as "2", "1" for a flag, or "every". Returns "" if
 * the plan does not set the option. */
const char *xd_plan_value(const xd_plan_row *r, const xd_parallel *a, char digits[16]);
/* For an option that sets a degree of parallelism: returns this degree (the number of ranks along
 * the axis), at least 1. */
int         xd_plan_degree(const xd_plan_row *r, const xd_parallel *a);
/* Returns 1 if option r is given and plan a meets the option's condition (xd_plan_needs). `d` is
 * the model, or NULL for any model. */
int         xd_plan_counts(const xd_plan_row *r, const xd_parallel *a, const xd_dit_info *d);
/* Returns the number of PipeFusion patches: the number that the plan gives, or else the number of
 * pipeline stages; 1 for a plan without pipeline stages. */
int         xd_plan_patches(const xd_parallel *a);

/* ---- all options -------------------------------------------------------------------------- */

/* xd_plan_flags appends the plan as flags ("--ulysses_degree 2 --use_parallel_vae"), and
 * xd_plan_name appends the plan's short name ("u2vae"). xd_plan_flags and xd_plan_name include only
 * options that have an effect. */
void xd_plan_flags(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
void xd_plan_name(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* Appends those options of the plan that are not degrees of parallelism, with defaults filled in,
 * as " (4 patches, 1 warm-up, VAE rows)". */
void xd_plan_details(const xd_parallel *a, const xd_dit_info *d, xd_text_buf *out);
/* Returns how the plan's image differs from the image of one rank, by combining xd_plan_row.changes
 * of all options that have an effect. */
int  xd_plan_changes(const xd_parallel *a, const xd_dit_info *d);
/* xd_plan_pack copies the values of all options except those of kind TEXT to an array that ranks
 * can send; xd_plan_unpack copies them back. */
void xd_plan_pack(const xd_parallel *a, int32_t out[XD_PLAN_ROWS]);
void xd_plan_unpack(const int32_t in[XD_PLAN_ROWS], xd_parallel *a);
/* Writes to `out` a hash of each option's value, and returns the number of options. Ranks compare
 * these hashes to check that they have the same plan. */
int  xd_plan_hashes(const xd_parallel *a, uint64_t out[XD_PLAN_ROWS]);
/* Warns about options in `given` that have no effect on the plan `a`. */
void xd_plan_log_unused(const xd_parallel *given, const xd_parallel *a, const xd_dit_info *d);

#endif

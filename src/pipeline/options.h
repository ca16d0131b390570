/* options.h - the table of a request's options: one row says all that holds for an option, and
 * defaults, checks, help texts, metadata, warnings and the comparison of ranks read the row. */
#ifndef XD_PIPELINE_OPTIONS_H
#define XD_PIPELINE_OPTIONS_H

#include "base/json.h"
#include "families/help.h"
#include "pipeline/job.h"
#include "xdit/tools.h"

enum { XD_OPTION_ROWS = 64 };   /* max rows, because sets of options are bits of a uint64_t    */

/* Whether the metadata of an image has the value. XD_STORED_GIVEN: if the request gives the option
 * and the option has an effect; XD_STORED_USED: if the option has an effect, also as default. */
typedef enum xd_option_stored { XD_STORED_NO, XD_STORED_GIVEN, XD_STORED_USED } xd_option_stored;

typedef struct xd_request_row {
    /* A "%s" in the help text stands for the model families that have the option, or for the text
     * that `list` appends. */
    xd_option       option;
    xd_option_about about;
    xd_family_word  families;
    void          (*list)(xd_text_buf *b);
    double          initial;            /* initial value of a number                           */
    const char     *text;               /* initial value of a text                             */
    const char     *off;                /* text value without effect, "none"; NULL: none       */
    /* Writes the reason why the option has no effect, "without guidance", or nothing if the option
     * has one. NULL: the option has an effect. */
    void          (*unused)(const xd_job *j, char why[256]);
    xd_option_stored       stored;
} xd_request_row;

const xd_request_row *xd_request_rows(int *n);
/* Returns 1 if the request gives the option (xd_request_gives). */
int       xd_request_gives_row(const xd_request_row *row, const xd_request *r);
/* Returns 1 if the request gives the option or, with `usual`, has its default, and the option has
 * an effect. */
int       xd_request_uses(const xd_request_row *row, const xd_job *j, int usual);
/* Appends the option's value: a number, or a text without quotes. */
void      xd_request_value(const xd_request_row *row, const xd_request *r, xd_text_buf *b);
/* Checks the values that the request gives against the limits and choices of their rows. */
xd_status xd_request_check(const xd_request *r, xd_err *e);
/* Returns the options in use that save time and change the image: bit i is row i. */
uint64_t  xd_request_saved(const xd_job *j);

/* Functions of rows (job_unused.c). */
void xd_unused_clean_caption(const xd_job *j, char why[256]);
void xd_unused_fp8(const xd_job *j, char why[256]);
void xd_unused_guidance_2(const xd_job *j, char why[256]);
void xd_unused_guidance_scale(const xd_job *j, char why[256]);
void xd_unused_int8(const xd_job *j, char why[256]);
void xd_unused_references(const xd_job *j, char why[256]);
void xd_unused_skipped_layers(const xd_job *j, char why[256]);
void xd_unused_tiles(const xd_job *j, char why[256]);
void xd_unused_trained_sizes(const xd_job *j, char why[256]);
void xd_unused_true_cfg_scale(const xd_job *j, char why[256]);
void xd_unused_unguided(const xd_job *j, char why[256]);
void xd_unused_window(const xd_job *j, char why[256]);

#endif

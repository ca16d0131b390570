/* options.h - gives access to the table of a request's options. The table row of an option contains
 * everything about the option: its default, its limits, its help text, whether it is stored in
 * metadata, and when it has no effect. */
#ifndef XD_PIPELINE_OPTIONS_H
#define XD_PIPELINE_OPTIONS_H

#include "base/json.h"
#include "families/help.h"
#include "pipeline/job.h"
#include "xdit/tools.h"

enum { XD_OPTION_ROWS = 128 }; /* maximum number of rows of the option table */

/* Tells whether an option's value is stored in the metadata of an image. XD_STORED_GIVEN: the value
 * is stored if the request gives the option and the option has an effect. XD_STORED_USED: the value
 * is stored if the option has an effect, even with its default value. */
typedef enum xd_option_stored { XD_STORED_NO, XD_STORED_GIVEN, XD_STORED_USED } xd_option_stored;

typedef struct xd_request_row {
    /* In the option's help text, "%s" is replaced by the text that the function `list` appends. If
     * `list` is NULL, "%s" is replaced by the names of the model families that have the option. */
    xd_option        option;
    xd_option_about  about;
    xd_family_word   families;
    void             (*list)(xd_text_buf *b);
    double           initial; /* initial value of an option that is a number */
    const char      *text;    /* initial value of an option that is a text */
    const char      *off; /* text value that turns the option off, "none"; NULL: no such value */
    /* Writes the reason why the option has no effect, for example "without guidance"; writes
     * nothing if the option has an effect. If `unused` is NULL, the option always has an effect. */
    void             (*unused)(const xd_job *j, char why[256]);
    xd_option_stored stored;
    int              outside; /* 1: the option has no effect on the latents (checkpoint.c) */
} xd_request_row;

const xd_request_row *xd_request_rows(int *n);
/* Returns 1 if the request gives the option (xd_request_gives). */
int                   xd_request_gives_row(const xd_request_row *row, const xd_request *r);
/* Returns 1 if the option has an effect and the request gives it; if `usual` is 1, the request need
 * not give it. */
int                   xd_request_uses(const xd_request_row *row, const xd_job *j, int usual);
/* Appends the option's value: a number, or a text without quotes. */
void      xd_request_value(const xd_request_row *row, const xd_request *r, xd_text_buf *b);
/* Checks the option values that the request gives against the limits and choices in the table. */
xd_status xd_request_check(const xd_request *r, xd_err *e);
/* Returns, as a set of bits, the options in use that save time and change the image. Bit i stands
 * for the i-th option of the table that saves time (about.saves); at most 64 options do. */
uint64_t  xd_request_saved(const xd_job *j);

/* Functions for the field `unused` of the table's rows: each tells why one option has no effect
 * (job_unused.c). */
void xd_unused_clean_caption(const xd_job *j, char why[256]);
void xd_unused_prompt_weighting(const xd_job *j, char why[256]);
void xd_unused_fp8(const xd_job *j, char why[256]);
void xd_unused_guidance_2(const xd_job *j, char why[256]);
void xd_unused_guidance_scale(const xd_job *j, char why[256]);
void xd_unused_hires(const xd_job *j, char why[256]);
void xd_unused_int8(const xd_job *j, char why[256]);
void xd_unused_negative_crop(const xd_job *j, char why[256]);
void xd_unused_negative_size(const xd_job *j, char why[256]);
void xd_unused_references(const xd_job *j, char why[256]);
void xd_unused_skipped_layers(const xd_job *j, char why[256]);
void xd_unused_size(const xd_job *j, char why[256]);
void xd_unused_stg(const xd_job *j, char why[256]);
void xd_unused_tiles(const xd_job *j, char why[256]);
void xd_unused_trained_sizes(const xd_job *j, char why[256]);
void xd_unused_true_cfg_scale(const xd_job *j, char why[256]);
void xd_unused_unguided(const xd_job *j, char why[256]);
void xd_unused_decoding(const xd_job *j, char why[256]);
void xd_unused_second_pass(const xd_job *j, char why[256]);
void xd_unused_upsampling(const xd_job *j, char why[256]);
void xd_unused_window(const xd_job *j, char why[256]);

#endif

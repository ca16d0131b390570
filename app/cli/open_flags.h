/* open_flags.h - the flags that say how a model is opened, of every command that generates.
 *
 * The name of the model is not among them: commands differ in how many they take. */
#ifndef XD_CLI_OPEN_FLAGS_H
#define XD_CLI_OPEN_FLAGS_H

#include "cli/loras.h"
#include "cli/opt.h"

enum { XD_OPEN_FILES = 8 };     /* components whose weights may be in a file of their own      */

typedef struct xd_open_flags {
    const char  *dtype, *weights_dtype, *text_weights_dtype, *device, *offload;
    const char  *plan, *cluster, *balance, *bind, *preview_decoder, *memory, *fit;
    const char  *files[XD_OPEN_FILES];
    xd_opt_texts loras, loras_2;
    int          threads, nproc, start_timeout, no_t5, lora_partial, verify_weights,
        by_model, by_layer;     /* xDiT's words for offload                                    */
    xd_parallel  parallel;      /* the record of xd_parallel_options                           */
    /* What xd_open_flags_read makes of them. */
    xd_component_file file[XD_OPEN_FILES];
    xd_loras_read     lora, lora_2;
    int64_t           budget;   /* bytes of `memory`                                            */
} xd_open_flags;

void             xd_open_flags_init(xd_open_flags *f);
void             xd_open_flags_free(xd_open_flags *f);
const xd_option *xd_open_flags_rows(int *n);    /* offsets are in xd_open_flags                */
/* After the command line was parsed: reads LoRA values and the plan's name. */
xd_status        xd_open_flags_read(xd_open_flags *f, xd_err *e);
/* Arguments for this model; the caller adds its own. They point into `f`. */
xd_open_args     xd_open_flags_args(xd_open_flags *f, const char *model);

#endif

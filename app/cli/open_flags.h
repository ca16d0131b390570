/* open_flags.h - options for opening a model, shared by all commands that generate: weight files,
 * types, device, memory, ranks. --model is not one of them: some commands accept several. */
#ifndef XD_CLI_OPEN_FLAGS_H
#define XD_CLI_OPEN_FLAGS_H

#include "cli/loras.h"
#include "cli/opt.h"

enum { XD_OPEN_FILES = 8 };     /* number of options for weight files of components            */

typedef struct xd_open_flags {
    const char  *dtype, *weights_dtype, *text_weights_dtype, *device, *offload;
    const char  *plan, *cluster, *balance, *bind, *preview_decoder, *memory, *fit;
    const char  *files[XD_OPEN_FILES];
    xd_opt_texts loras, loras_2;
    int          threads, nproc, start_timeout, no_t5, lora_partial, verify_weights,
        by_model, by_layer;     /* --enable_model_cpu_offload, --enable_sequential_cpu_offload */
    xd_parallel  parallel;      /* record of the table xd_parallel_options                     */
    /* set by xd_open_flags_read */
    xd_component_file file[XD_OPEN_FILES];
    xd_loras_read     lora, lora_2;
    int64_t           budget;   /* bytes of `memory`                                            */
} xd_open_flags;

void             xd_open_flags_init(xd_open_flags *f);
void             xd_open_flags_free(xd_open_flags *f);
/* The table of options; offsets are in xd_open_flags. */
const xd_option *xd_open_flags_rows(int *n);
/* Reads the values of --lora, --memory and --plan, after the command line was parsed. */
xd_status        xd_open_flags_read(xd_open_flags *f, xd_err *e);
/* Returns arguments for xd_open; they point into `f`. The caller adds callbacks. */
xd_open_args     xd_open_flags_args(xd_open_flags *f, const char *model);

#endif

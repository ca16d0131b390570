/* open_flags.h - parses the options for opening a model (weight files, types, device, memory,
 * ranks), which are the same in all commands that generate. The table of these options does not
 * contain --model, because some commands accept several models. */
#ifndef XD_CLI_OPEN_FLAGS_H
#define XD_CLI_OPEN_FLAGS_H

#include "cli/loras.h"
#include "cli/opt.h"

/* XD_OPEN_FILES: number of options for weight files of components. XD_OPEN_SIDES: maximum number of
 * control networks, which are opened beside the model. */
enum { XD_OPEN_FILES = 10, XD_OPEN_SIDES = 4 };
/* indices of the latent upsampler and of the prior in xd_open_flags.files */
enum { XD_OPEN_UPSAMPLER = XD_OPEN_FILES - 1, XD_OPEN_REDUX = XD_OPEN_FILES - 2 };

typedef struct xd_open_flags {
    const char  *dtype, *weights_dtype, *text_weights_dtype, *device, *offload;
    const char  *plan, *cluster, *balance, *bind, *preview_decoder, *memory, *fit, *upscale;
    const char  *files[XD_OPEN_FILES];
    xd_opt_texts loras, loras_2, controlnets;
    int          threads, nproc, start_timeout, no_t5, lora_partial, verify_weights, by_model,
        by_layer; /* the switches --enable_model_cpu_offload and
                                   --enable_sequential_cpu_offload */
    /* Plan with the parallel degrees; the options in the table xd_parallel_options set its
     * fields. */
    xd_parallel       parallel;
    /* xd_open_flags_read computes the fields below */
    xd_component_file file[XD_OPEN_FILES + XD_OPEN_SIDES];
    xd_loras_read     lora, lora_2;
    int64_t           budget; /* value of --memory in bytes */
} xd_open_flags;

void             xd_open_flags_init(xd_open_flags *f);
void             xd_open_flags_free(xd_open_flags *f);
/* Returns an array of the *n options for opening a model. The field `offset` of each option is the
 * offset of a field of xd_open_flags. */
const xd_option *xd_open_flags_rows(int *n);
/* Parses the values of --lora, --memory and --plan. xd_open_flags_read must be called after the
 * command line was parsed. */
xd_status        xd_open_flags_read(xd_open_flags *f, xd_err *e);
/* Returns arguments for xd_open, in which no callbacks are set. The strings and arrays of the
 * arguments belong to `f`. */
xd_open_args     xd_open_flags_args(xd_open_flags *f, const char *model);
/* Returns arguments for predictions (xd_plans_predict) with the model, types, degrees and control
 * networks of the command line, but without a request and a machine. The strings and arrays of the
 * arguments belong to `f`. */
xd_advise_args   xd_open_flags_advise(const xd_open_flags *f, const char *model);

#endif

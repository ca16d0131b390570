/* loras.h - parses the values of --lora and --lora_2, which are FILE or FILE:SCALE */
#ifndef XD_CLI_LORAS_H
#define XD_CLI_LORAS_H

#include "cli/opt.h"

typedef struct xd_loras_read {
    xd_lora *v; /* [n] LoRA files with their scales */
    int      n;
    /* [n] paths of LoRA files, owned by this list; the entries of `v` point to them. */
    char   **text;
} xd_loras_read;

/* Parses all values of the option --lora or --lora_2. flag: the option's name, used in error
 * messages. The caller frees *l with xd_loras_read_free, also after an error. */
xd_status xd_loras_parse(xd_loras_read *l, const xd_opt_texts *values, const char *flag, xd_err *e);
void      xd_loras_read_free(xd_loras_read *l);

#endif

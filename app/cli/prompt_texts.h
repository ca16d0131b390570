/* prompt_texts.h - options such as --negative_prompt: one text for all prompts, or one for each */
#ifndef XD_CLI_PROMPT_TEXTS_H
#define XD_CLI_PROMPT_TEXTS_H

#include "cli/opt.h"

typedef struct xd_prompt_texts {
    xd_opt_texts negative, second, third, negative_2, negative_3;
} xd_prompt_texts;

/* A table for xd_opt_spec. It must be before the table of the request, whose options of the same
 * names it replaces. */
xd_opt_table xd_prompt_texts_table(xd_prompt_texts *t);
/* Sets the lists of a request that already has its prompts; the texts stay borrowed. XD_EINVAL: an
 * option has neither one text nor one per prompt. */
xd_status xd_prompt_texts_set(const xd_prompt_texts *t, xd_request *r, xd_err *e);
void      xd_prompt_texts_free(xd_prompt_texts *t);

#endif

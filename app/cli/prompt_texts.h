/* prompt_texts.h - flags of texts that go with all prompts, or, repeated, one with each */
#ifndef XD_CLI_PROMPT_TEXTS_H
#define XD_CLI_PROMPT_TEXTS_H

#include "cli/opt.h"

typedef struct xd_prompt_texts {
    xd_opt_texts negative, second, third, negative_2, negative_3;
} xd_prompt_texts;

/* Stands before the table of a request's options, whose rows of these names it replaces. */
xd_opt_table xd_prompt_texts_table(xd_prompt_texts *t);
/* Gives the lists, which stay the program's, to a request with its prompts. XD_EINVAL: there are
 * neither one text nor as many as prompts. */
xd_status xd_prompt_texts_set(const xd_prompt_texts *t, xd_request *r, xd_err *e);
void      xd_prompt_texts_free(xd_prompt_texts *t);

#endif

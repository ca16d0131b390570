/* prompt_texts.h - parses options such as --negative_prompt, which have one text for all prompts or
 * one text for each prompt */
#ifndef XD_CLI_PROMPT_TEXTS_H
#define XD_CLI_PROMPT_TEXTS_H

#include "cli/opt.h"

typedef struct xd_prompt_texts {
    xd_opt_texts negative, second, third, negative_2, negative_3;
} xd_prompt_texts;

/* Returns the option table for xd_opt_spec. The returned table must precede the table of the
 * request's options, because it replaces options of the same names. */
xd_opt_table xd_prompt_texts_table(xd_prompt_texts *t);
/* Sets the text lists of a request whose prompts are already set; the texts are borrowed.
 * Returns XD_EINVAL if the number of an option's texts is neither 1 nor the number of prompts. */
xd_status xd_prompt_texts_set(const xd_prompt_texts *t, xd_request *r, xd_err *e);
void      xd_prompt_texts_free(xd_prompt_texts *t);

#endif

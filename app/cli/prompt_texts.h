/* prompt_texts.h - parses options such as --negative_prompt, which have one text for all prompts or
 * one text for each prompt */
#ifndef XD_CLI_PROMPT_TEXTS_H
#define XD_CLI_PROMPT_TEXTS_H

#include "cli/opt.h"

typedef struct xd_prompt_texts {
    xd_opt_texts negative, second, third, negative_2, negative_3;
} xd_prompt_texts;

/* Returns an option table with options such as --negative_prompt, for xd_opt_spec.tables. The
 * returned table must precede the option table of xd_request in xd_opt_spec.tables. The two tables
 * have options of the same names; the parser uses the option in the first table. */
xd_opt_table xd_prompt_texts_table(xd_prompt_texts *t);
/* Sets the text lists of a request, for which the request's prompts must already be set. The text
 * lists of the request borrow their strings from *t. Returns XD_EINVAL if an option was given
 * neither once nor once for each prompt. */
xd_status    xd_prompt_texts_set(const xd_prompt_texts *t, xd_request *r, xd_err *e);
void         xd_prompt_texts_free(xd_prompt_texts *t);

#endif

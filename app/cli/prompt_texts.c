/* prompt_texts.c - parses options that have one text per prompt; see prompt_texts.h */
#include "cli/prompt_texts.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t      read, list; /* read: offset of the option's texts in xd_prompt_texts; list:
                                   offset in xd_request of the list that receives these texts */
} texts[] = {
    { "negative_prompt", offsetof(xd_prompt_texts, negative),
      offsetof(xd_request, texts.negative_prompts) },
    { "prompt_2", offsetof(xd_prompt_texts, second), offsetof(xd_request, texts.prompts_2) },
    { "prompt_3", offsetof(xd_prompt_texts, third), offsetof(xd_request, texts.prompts_3) },
    { "negative_prompt_2", offsetof(xd_prompt_texts, negative_2),
      offsetof(xd_request, texts.negative_prompts_2) },
    { "negative_prompt_3", offsetof(xd_prompt_texts, negative_3),
      offsetof(xd_request, texts.negative_prompts_3) },
};

enum { TEXTS = sizeof texts / sizeof *texts };

/* copies of rows of xd_request_options, changed so that the options with one text per prompt may
 * be repeated */
static xd_option      rows[TEXTS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_rows(void)
{
    int              n;
    const xd_option *all = xd_request_options(&n);
    for (int t = 0; t < TEXTS; t++)
        for (int i = 0; i < n; i++)
            if (strcmp(all[i].name, texts[t].name) == 0) {
                rows[t] = all[i];
                rows[t].offset = texts[t].read;
                rows[t].max = XD_OPT_MANY;
            }
}

xd_opt_table xd_prompt_texts_table(xd_prompt_texts *t)
{
    pthread_once(&made, make_rows);
    return (xd_opt_table){ rows, TEXTS, t };
}

xd_status xd_prompt_texts_set(const xd_prompt_texts *t, xd_request *r, xd_err *e)
{
    for (int i = 0; i < TEXTS; i++) {
        const xd_opt_texts *l =
            (const xd_opt_texts *)(const void *)((const char *)t + texts[i].read);
        if (l->n > 1 && l->n != r->nprompts)
            return xd_fail(e, XD_EINVAL,
                           "--%s is given %d times for %d prompt%s; give it once for "
                           "all prompts, or once for each",
                           texts[i].name, l->n, r->nprompts, r->nprompts == 1 ? "" : "s");
        *(xd_texts *)(void *)((char *)r + texts[i].list) = (xd_texts){ l->v, l->n };
    }
    return XD_OK;
}

void xd_prompt_texts_free(xd_prompt_texts *t)
{
    for (int i = 0; i < TEXTS; i++)
        xd_opt_texts_free((xd_opt_texts *)(void *)((char *)t + texts[i].read));
}

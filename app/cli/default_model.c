/* default_model.c - the only model of this machine, and a prompt from the terminal */
#include "cli/default_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/model_list.h"

static const char missing[] = "--model is missing: a directory with model_index.json, or org/name";

xd_status xd_default_model(char **model, xd_err *e)
{
    xd_model_list l = { 0 };
    xd_text_buf   b = { 0 };
    char          cache[4096] = "";
    *model = NULL;
    xd_status s = xd_model_list_hub(&l, cache, sizeof cache, e);
    if (s == XD_OK && l.n == 1)
        s = (*model = strdup(l.v[0].name)) ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory");
    else if (s == XD_OK && !l.n)
        s = xd_fail(e, XD_EINVAL, "%s; the Hugging Face cache %s has no model, and \"hf download "
                    "ORG/NAME\" puts one there", missing, *cache ? cache : "(no HOME)");
    else if (s == XD_OK) {
        for (int i = 0; i < l.n && i < 8; i++)
            xd_buf_add(&b, "%s%s", i ? ", " : "", l.v[i].name);
        s = xd_fail(e, XD_EINVAL, "%s, as one of the Hugging Face cache: %s%s (xdit models)",
                    missing, b.p ? b.p : "", l.n > 8 ? " and others" : "");
    }
    xd_buf_free(&b);
    xd_model_list_free(&l);
    return s;
}

int xd_can_ask(void)
{
    return isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

xd_status xd_read_answer(char **prompt, xd_err *e)
{
    size_t room = 0;
    *prompt = NULL;
    fputs("Prompt: ", stderr);
    fflush(stderr);
    ssize_t n = getline(prompt, &room, stdin);
    if (n > 0)
        (*prompt)[strcspn(*prompt, "\r\n")] = 0;
    if (n <= 0 || !(*prompt)[strspn(*prompt, " \t")])
        return xd_fail(e, XD_EINVAL, "--prompt is missing: name what to generate");
    return XD_OK;
}

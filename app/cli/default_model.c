/* default_model.c - finds the model that is used without --model, and reads a prompt from the
 * terminal */
#include "cli/default_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/model_list.h"

static const char MODELS[] = "models"; /* subdirectory of the current directory that may have
                                           models */
enum { MAX_LISTED = 8 };

/* Appends the models in ./models to a list, without single weight files. */
static xd_status list_models_here(xd_model_list *l, xd_err *e)
{
    int       n = l->n;
    xd_status s = xd_file_is_dir(MODELS) ? xd_model_list_dir(l, MODELS, e) : XD_OK;
    for (int i = n; i < l->n; i++) {
        xd_listed row = l->v[i];
        l->v[i] = l->v[n];
        l->v[n] = row;
        n += !row.file;
    }
    for (int i = n; i < l->n; i++) {
        free(l->v[i].name);
        free(l->v[i].dir);
    }
    l->n = n;
    return s;
}

xd_status xd_default_model(char **model, xd_err *e)
{
    xd_model_list l = { 0 };
    xd_text_buf   b = { 0 };
    char          cache[4096] = "";
    *model = NULL;
    xd_status s = xd_model_list_hub(&l, cache, sizeof cache, e);
    if (s == XD_OK)
        s = list_models_here(&l, e);
    if (s == XD_OK && l.n == 1)
        s = (*model = strdup(l.v[0].name)) ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory");
    else if (s == XD_OK && !l.n)
        s = xd_fail(e, XD_EINVAL,
                    "--model is missing, and there is no model in ./%s and in the "
                    "Hugging Face cache %s: give --model DIR, or download one by \"hf download "
                    "ORG/NAME\"",
                    MODELS, *cache ? cache : "(no HOME)");
    else if (s == XD_OK) {
        for (int i = 0; i < l.n && i < MAX_LISTED; i++)
            xd_buf_add(&b, "%s--model %s", i == 0 ? "" : i == l.n - 1 ? " or " : ", ", l.v[i].name);
        s = xd_fail(e, XD_EINVAL, "--model is missing, and there are %d models: choose %s%s", l.n,
                    b.p ? b.p : "", l.n > MAX_LISTED ? " or another one of xdit models" : "");
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
        return xd_fail(e, XD_EINVAL, "the prompt is missing: xdit generate --prompt TEXT");
    return XD_OK;
}

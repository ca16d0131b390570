/* defaults.c - stores the server's defaults for options that a request does not set */
#include "serve/defaults.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/word_list.h"

enum { MAX_ROWS = 128, MAX_NAME = 64 };

static xd_option rows[MAX_ROWS];
static int       nrows;

static void copy_rows(void)
{
    /* options that belong only to xdit generate */
    static const char own[] = "checkpoint checkpoint_steps checkpoint_seconds";
    int               n;
    const xd_option  *o = xd_request_options(&n);
    for (int i = 0; i < n && nrows < MAX_ROWS; i++)
        if ((!o[i].arg || strcmp(o[i].arg, "FILE") != 0) && !xd_list_has(own, o[i].name))
            rows[nrows++] = o[i];
    for (int i = 0; i < nrows; i++)
        if (rows[i].kind == XD_OPT_SEED)
            rows[i].help = "noise seed; image i uses seed + i (default -1). With -1, seeds are "
                           "random and part of replies";
}

const xd_option *xd_defaults_rows(int *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, copy_rows);
    *n = nrows;
    return rows;
}

int xd_option_overrides(const char *given, const char *other)
{
    static const char lengths[] = "num_frames seconds", views[] = "previews preview_every",
                      steps[] = "num_inference_steps sigmas timesteps",
                      levels[] = "sigmas timesteps",
                      spacing[] = "use_karras_sigmas use_exponential_sigmas use_beta_sigmas";
    static const struct {
        const char *given, *others;
    } overridden[] = {
        { lengths, lengths },
        { views, views },
        { steps, steps },
        { "width height", "max_area" },
        { "max_area", "width height" },
        { spacing, spacing },
        { spacing, levels },
        { levels, spacing },
        { "scheduler", spacing },
        { "scheduler", levels },
        { "scheduler", "use_flow_sigmas stochastic_sampling solver_order algorithm_type "
                       "solver_type timestep_spacing final_sigmas_type eta shift_terminal "
                       "max_timesteps intermediate_timesteps" },
    };
    int same = strcmp(given, other) == 0;
    for (size_t i = 0; i < sizeof overridden / sizeof *overridden && !same; i++)
        same = xd_list_has(overridden[i].given, given) && xd_list_has(overridden[i].others, other);
    return same;
}

const char *xd_default_name(const char *text, char *name, size_t size)
{
    snprintf(name, size, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    return name;
}

const char *xd_default_value(const char *text)
{
    return text + strcspn(text, "=") + 1;
}

void xd_defaults_add(xd_defaults *d, const char *name, const char *value)
{
    const char *given = value ? value : "true";
    size_t      size = strlen(name) + strlen(given) + 4;
    char       *text = malloc(size), **v = realloc(d->v, ((size_t)d->n + 1) * sizeof *v);
    d->v = v ? v : d->v;
    if (!text || !v) {
        free(text);
        d->failed = 1;
        return;
    }
    snprintf(text, size, "--%s=%s", name, given);
    d->v[d->n++] = text;
}

void xd_defaults_merge(xd_defaults *d, const xd_defaults *common)
{
    char name[MAX_NAME], own[MAX_NAME];
    int  n = d->n;
    for (int i = 0; i < common->n; i++) {
        int overridden = 0;
        xd_default_name(common->v[i], name, sizeof name);
        for (int k = 0; k < n; k++)
            overridden |= xd_option_overrides(xd_default_name(d->v[k], own, sizeof own), name);
        if (!overridden)
            xd_defaults_add(d, name, xd_default_value(common->v[i]));
    }
}

void xd_defaults_free(xd_defaults *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->v[i]);
    free(d->v);
    *d = (xd_defaults){ 0 };
}

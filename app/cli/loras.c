/* loras.c - parses the values of --lora and --lora_2, "FILE" or "FILE:SCALE". The text after the
 * last colon is the scale, unless a file exists whose name is the complete value. */
#include "cli/loras.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

static xd_status parse_lora(const char *value, const char *flag, char *path, xd_lora *l, xd_err *e)
{
    char *end = NULL, *colon;
    strcpy(path, value);
    *l = (xd_lora){ path, 1.0 };
    if (xd_file_exists(path) || !(colon = strrchr(path, ':')) || strchr(colon, '/'))
        return XD_OK;
    errno = 0;
    l->scale = strtod(colon + 1, &end);
    if (end == colon + 1 || *end || errno || !isfinite(l->scale))
        return xd_fail(e, XD_EINVAL,
                       "--%s needs FILE or FILE:SCALE, and '%.40s' of '%.80s' is "
                       "not a number",
                       flag, colon + 1, value);
    *colon = 0;
    if (!*path)
        return xd_fail(e, XD_EINVAL, "--%s needs FILE or FILE:SCALE, not '%.80s'", flag, value);
    return XD_OK;
}

xd_status xd_loras_parse(xd_loras_read *l, const xd_opt_texts *values, const char *flag, xd_err *e)
{
    *l = (xd_loras_read){ .n = 0 };
    if (!values->n)
        return XD_OK;
    l->v = calloc((size_t)values->n, sizeof *l->v);
    l->text = calloc((size_t)values->n, sizeof *l->text);
    xd_status s = l->v && l->text ? XD_OK : XD_ENOMEM;
    for (; s == XD_OK && l->n < values->n; l->n++) {
        l->text[l->n] = malloc(strlen(values->v[l->n]) + 1);
        s = l->text[l->n] ? parse_lora(values->v[l->n], flag, l->text[l->n], &l->v[l->n], e)
                          : XD_ENOMEM;
    }
    return s == XD_ENOMEM ? xd_fail(e, s, "no memory for %d values of --%s", values->n, flag) : s;
}

void xd_loras_read_free(xd_loras_read *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->text[i]);
    free(l->text);
    free(l->v);
    *l = (xd_loras_read){ .n = 0 };
}

/* guider.c - reads the config of a pipeline's guider (guider.h) */
#include "model/guider.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

typedef struct cfg {
    char   name[XD_FIELD_TEXT];
    double scale, rescale, start, stop;
    int    enabled, original;
} cfg;

#define AT(m) offsetof(cfg, m)
static const xd_field fields[] = {
    { "_class_name", AT(name), 's', 0, "ClassifierFreeGuidance" },
    { "guidance_scale", AT(scale), 'd', 7.5, NULL },
    { "guidance_rescale", AT(rescale), 'd', 0, NULL },
    { "use_original_formulation", AT(original), 'b', 0, NULL },
    { "start", AT(start), 'd', 0, NULL },
    { "stop", AT(stop), 'd', 1, NULL },
    { "enabled", AT(enabled), 'b', 1, NULL },
    { NULL, 0, 0, 0, NULL },
};

static xd_status check(const cfg *c, const char *path, xd_err *e)
{
    if (strcmp(c->name, "ClassifierFreeGuidance") != 0)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: the guider %s is not supported; ClassifierFreeGuidance is", path,
                       c->name);
    if (c->rescale != 0 || c->original || c->start != 0 || c->stop != 1)
        return xd_fail(e, XD_EUNSUPPORTED,
                       "%s: guidance_rescale %g, use_original_formulation %d, start %g and stop "
                       "%g: only 0, 0, 0 and 1 are supported",
                       path, c->rescale, c->original, c->start, c->stop);
    if (!(c->scale >= 0 && c->scale <= 1000))
        return xd_fail(e, XD_EFORMAT, "%s: guidance_scale %g is outside 0 to 1000", path, c->scale);
    return XD_OK;
}

xd_status xd_guider_read(const char *dir, const char *folder, double *scale, xd_err *e)
{
    char     *inside = xd_path_join(dir, folder);
    char     *path = inside ? xd_path_join(inside, "guider_config.json") : NULL;
    xd_json  *j = NULL;
    cfg       c = { .scale = 0 };
    xd_status s = path ? XD_OK : xd_fail(e, XD_ENOMEM, "no memory for a path");
    if (s == XD_OK && xd_file_exists(path)) {
        s = xd_json_read(&j, path, e);
        if (s == XD_OK)
            s = xd_fields_read(fields, &c, j, path, e);
        if (s == XD_OK)
            s = check(&c, path, e);
        if (s == XD_OK)
            *scale = c.enabled ? c.scale : 1;
    }
    xd_json_free(&j);
    free(path);
    free(inside);
    return s;
}

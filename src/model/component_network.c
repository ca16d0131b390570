/* component_network.c - finds the network that implements the class in a component's config */
#include <string.h>

#include "families/family.h"
#include "model/component.h"

static int is_class_of(const xd_net_def *d, const char *name)
{
    for (int i = 0; name && i < 6 && d->classes[i]; i++)
        if (strcmp(d->classes[i], name) == 0)
            return 1;
    return 0;
}

static const xd_net_def *def_at(xd_kind kind, int i)
{
    switch (kind) {
    case XD_KIND_TEXT: return xd_text_encoders[i] ? &xd_text_encoders[i]->net : NULL;
    case XD_KIND_DIT: return xd_dit_at(i) ? &xd_dit_at(i)->net : NULL;
    case XD_KIND_VAE: return xd_vaes[i] ? &xd_vaes[i]->net : NULL;
    case XD_KIND_AUDIO: return xd_audios[i] ? &xd_audios[i]->net : NULL;
    case XD_KIND_UPSAMPLER: return xd_upsamplers[i] ? &xd_upsamplers[i]->net : NULL;
    case XD_KIND_UPSCALER: return xd_upscalers[i] ? &xd_upscalers[i]->net : NULL;
    }
    return NULL;
}

static int find_def(xd_component *p, const char *name)
{
    for (int i = 0; def_at(p->kind, i); i++) {
        if (!is_class_of(def_at(p->kind, i), name))
            continue;
        p->def = def_at(p->kind, i);
        p->text = p->kind == XD_KIND_TEXT ? xd_text_encoders[i] : NULL;
        p->dit = p->kind == XD_KIND_DIT ? xd_dit_at(i) : NULL;
        p->vae = p->kind == XD_KIND_VAE ? xd_vaes[i] : NULL;
        p->upsampler = p->kind == XD_KIND_UPSAMPLER ? xd_upsamplers[i] : NULL;
        p->audio = p->kind == XD_KIND_AUDIO ? xd_audios[i] : NULL;
        p->upscaler = p->kind == XD_KIND_UPSCALER ? xd_upscalers[i] : NULL;
        return 1;
    }
    return 0;
}

static xd_status unknown_class(const xd_component *p, const char *name, xd_err *e)
{
    xd_text_buf known = { 0 };
    for (int i = 0; def_at(p->kind, i); i++)
        for (int k = 0; k < 6 && def_at(p->kind, i)->classes[k]; k++)
            xd_buf_add(&known, "%s%s", known.len ? ", " : "", def_at(p->kind, i)->classes[k]);
    xd_status s = xd_fail(e, XD_EUNSUPPORTED,
                          "%s%s names the class %s, which this "
                          "version does not know (it knows %s)",
                          p->dir, p->from_text ? "" : "/config.json", name ? name : "(none)",
                          known.p ? known.p : "");
    xd_buf_free(&known);
    return s;
}

void xd_component_name_class(xd_component *p, const char *hint)
{
    const xd_json *arch = xd_json_get(p->config, "architectures");
    p->class_name = xd_json_text(xd_json_get(p->config, "_class_name"));
    if (!p->class_name)
        p->class_name = xd_json_text(xd_json_at(arch, 0));
    if (!p->class_name)
        p->class_name = hint;
}

xd_status xd_component_network(xd_component *p, const char *hint, xd_err *e)
{
    xd_component_name_class(p, hint);
    if (find_def(p, p->class_name) || find_def(p, hint))
        return XD_OK;
    return unknown_class(p, p->class_name, e);
}

int xd_component_knows(xd_kind kind, const char *name)
{
    return find_def(&(xd_component){ .kind = kind }, name);
}

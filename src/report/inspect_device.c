/* inspect_device.c - reports how a model fits into the memory of a GPU of this machine */
#include "report/inspect_device.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "report/plans.h"

/* Writes the name of a GPU of this machine, such as "cuda:0"; returns 0 if there is none. */
static int find_device(char *name, size_t size)
{
    for (int i = 1; xd_dev_kinds[i]; i++) {
        int n = 0;
        if (!xd_dev_kinds[i]->instances || xd_dev_kinds[i]->instances(&n, NULL) != XD_OK || n < 1)
            continue;
        snprintf(name, size, "%s:0", xd_dev_kinds[i]->name);
        return 1;
    }
    return 0;
}

/* Appends a description of how a component uses the GPU's memory, such as "text encoders 20.5 MB
 * stays" or "dit 24 GB with 19 of 57 blocks streamed". */
static void put_part(xd_text_buf *b, const char *what, size_t bytes, int streamed, int blocks,
                     const char *after)
{
    xd_buf_add(b, "; %s %s%s", what, xd_size_text((double)bytes).s, streamed ? "" : after);
    if (streamed)
        xd_buf_add(b, " with %d of %d blocks streamed", streamed, blocks);
}

static void put_plan(xd_text_buf *b, const xd_plans *p)
{
    const xd_prediction      *f = &p->s.c[0].f;
    const xd_prediction_rank *k = &f->rank[0];
    xd_buf_add(b, "%s of %s free: peak %s", p->device, xd_size_text(p->m.memory).s,
               xd_size_text((double)k->need.peak).s);
    if (k->need.text)
        put_part(b, "text encoders", k->need.text, k->text_streamed, k->text_blocks,
                 ", dropped after use");
    put_part(b, "transformer", k->need.dit, k->dit_streamed, k->dit_blocks,
             f->apart ? ", dropped before the VAE" : " stays");
    put_part(b, "vae", k->need.vae, 0, 0, f->apart ? ", loaded after the transformer" : " stays");
    if (f->streamed > 0)
        xd_buf_add(b, "; each step copies %s, at least %.3g s", xd_size_text(f->streamed).s,
                   f->streamed / f->upload);
}

static void json_plan(xd_text_buf *b, const xd_plans *p)
{
    const xd_prediction      *f = &p->s.c[0].f;
    const xd_prediction_rank *k = &f->rank[0];
    xd_buf_add(b,
               "{\"name\": \"%s\", \"fits\": true, \"free\": %.0f, \"peak\": %zu, "
               "\"text\": %zu, \"transformer\": %zu, \"vae\": %zu, \"text_blocks_streamed\": %d, "
               "\"transformer_blocks_streamed\": %d, \"streamed_a_step\": %.0f, \"apart\": %s}",
               p->device, p->m.memory, k->need.peak, k->need.text, k->need.dit, k->need.vae,
               k->text_streamed, k->dit_streamed, f->streamed, f->apart ? "true" : "false");
}

static void put_refusal(xd_text_buf *b, const char *device, int json, const xd_err *e)
{
    if (!json) {
        int named = strncmp(e->msg, device, strlen(device)) == 0;
        xd_buf_add(b, "%s%s%s", named ? "" : device, named ? "" : ": ", e->msg);
        return;
    }
    xd_buf_add(b, "{\"name\": \"%s\", \"fits\": false, \"reason\": ", device);
    xd_buf_json_string(b, e->msg);
    xd_buf_add(b, "}");
}

int xd_inspect_device(const char *dir, int json, char *out, size_t size)
{
    char           device[32] = "";
    xd_plans      *p = NULL;
    xd_err         e = { 0 };
    xd_text_buf    b = { 0 };
    xd_advise_args a;
    if (!find_device(device, sizeof device))
        return 0;
    xd_advise_args_init(&a);
    a.model = dir;
    a.device = device;
    a.ranks = 1;
    if (xd_plans_make(&p, &a, &e) == XD_OK && p->s.good)
        (json ? json_plan : put_plan)(&b, p);
    else
        put_refusal(&b, device, json, &e);
    xd_plans_free(&p);
    snprintf(out, size, "%s", b.failed || !b.p ? "" : b.p);
    xd_buf_free(&b);
    return *out != 0;
}

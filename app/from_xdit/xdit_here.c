/* xdit_here.c - checks and explains translated commands; see xdit_here.h */
#include "from_xdit/xdit_here.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"

xd_status xd_here_check(const xd_line *l, const xd_translation *o, xd_err *e)
{
    const xd_given *list = xd_line_given(l, "attn_layer_num_for_pp");
    const char     *bad;
    int64_t         sum = xd_line_sum(list, &bad);
    if (o->failed)
        return xd_fail(e, XD_ENOMEM, "no memory for a command line");
    if (l->model && !l->model->own)
        return xd_fail(e, XD_EUNSUPPORTED, "%s is not built: %s", l->model->title,
                       l->model->instead);
    if (xd_line_product(l) < 1)
        return xd_fail(e, XD_EINVAL, "every degree must be at least 1");
    if (bad)
        return xd_fail(
            e, XD_EINVAL,
            "--attn_layer_num_for_pp: %.40s is not a number of blocks; without the option the "
            "stages are balanced",
            bad);
    if (list && l->blocks && sum != l->blocks)
        return xd_fail(
            e, XD_EINVAL,
            "the stages of --attn_layer_num_for_pp have %lld blocks and the model has %d; without "
            "the option the stages are balanced",
            (long long)sum, l->blocks);
    return xd_parallel_check(&o->plan, o->ranks, e);
}

/* callback that receives the notes about differences between xDiT and xdit */
typedef struct notes {
    xd_here_note *note;
    void         *cookie;
} notes;

XD_PRINTF(2, 3) static void add_note(const notes *n, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int   size = vsnprintf(NULL, 0, fmt, ap);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (text) {
        vsnprintf(text, (size_t)size + 1, fmt, again);
        xd_clean(text, "");
        n->note(n->cookie, text);
    }
    free(text);
    va_end(again);
    va_end(ap);
}

/* Adds notes on the model: its name in xdit, and the directory where its files must be. */
static void note_model(const xd_line *l, const xd_translation *o, const notes *n)
{
    const char *given = xd_line_text(l, "model"), *model = o->model;
    const char *slash = model ? strchr(model, '/') : NULL;
    int hub = slash && slash != model && slash[1] && !strchr(slash + 1, '/') && *model != '.' &&
              *model != '~';
    if (!model)
        add_note(n, "the command line names no model: add --model DIR");
    if (!model || xd_file_is_dir(model))
        return;
    if (strcmp(model, given) != 0)
        add_note(n, "%s of xDiT's runner is %s", given, model);
    if (hub || !slash)
        add_note(n,
                 "xdit downloads nothing: %s must be in the local Hugging Face cache, or be the "
                 "name of a directory",
                 model);
    else
        add_note(n,
                 "xdit downloads nothing, and there is no directory %s on this machine: name the "
                 "directory of the model",
                 model);
    if (!l->known_model)
        add_note(n, "neither the script nor the name identifies the model, so it may not be "
                    "supported; xdit inspect DIR checks it");
}

void xd_here_notes(const xd_line *l, const xd_translation *o, xd_here_note *note, void *cookie)
{
    const notes n = { note, cookie };
    if (o->hosts > 1 && o->ranks > 1)
        add_note(
            &n,
            "run it once, on one host; hosts is a file with a line for each of the %d: %s slots=%d",
            o->hosts, l->master ? l->master : "HOST", (o->ranks + o->hosts - 1) / o->hosts);
    note_model(l, o, &n);
    if (o->plan.use_cfg_parallel && l->model && l->model->own && !(l->model->can & XD_CAN_CFG))
        add_note(
            &n,
            "the guidance of this model is distilled: --use_cfg_parallel would leave half of the "
            "ranks idle; remove it, or double --ulysses_degree");
    if (l->no_dashes)
        add_note(&n, "%s without dashes was read as --%s", l->no_dashes->name, l->no_dashes->name);
    if (xd_line_given(l, "num_pipeline_patch") && o->plan.pipefusion_parallel_degree == 1)
        add_note(&n, "--num_pipeline_patch is left out: it has no effect without stages");
    if (o->note[0])
        add_note(&n, "%s", o->note);
    for (int i = 0; i < o->nleft; i++)
        add_note(&n, "--%s is left out (%s): %s", o->left[i]->name,
                 xd_flag_kind_name(o->left[i]->kind), o->left[i]->here);
}

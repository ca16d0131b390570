/* test_key_map.c - names of an original file, those of the causal autoencoder.
 *
 * The names are made by a walk through the original network, whose parts are numbered one after the
 * other; each stands beside the name of diffusers. */
#define _XOPEN_SOURCE 700       /* P_tmpdir */
#include "models.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/single_file.h"
#include "scratch.h"

enum { MOST = 512 };

static struct pair { char ours[128], theirs[128]; } pairs[MOST];
static int npairs;

XD_PRINTF(2, 3)
static void add(const char *ours, const char *fmt, ...)
{
    va_list ap;
    assert_true(npairs < MOST);
    snprintf(pairs[npairs].ours, sizeof pairs->ours, "%s", ours);
    va_start(ap, fmt);
    vsnprintf(pairs[npairs++].theirs, sizeof pairs->theirs, fmt, ap);
    va_end(ap);
}

/* A module with a weight and a bias. */
static void module(const char *ours, const char *name, const char *theirs, const char *as)
{
    static const char *const ends[] = { "weight", "bias" };
    for (int i = 0; i < 2; i++) {
        char full[128];
        snprintf(full, sizeof full, "%s%s.%s", ours, name, ends[i]);
        add(full, "%s%s.%s", theirs, as, ends[i]);
    }
}

static void gain(const char *ours, const char *name, const char *theirs, const char *as)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s.gamma", ours, name);
    add(full, "%s%s.gamma", theirs, as);
}

static void residual(const char *ours, const char *theirs)
{
    gain(ours, "norm1", theirs, "residual.0");
    module(ours, "conv1", theirs, "residual.2");
    gain(ours, "norm2", theirs, "residual.3");
    module(ours, "conv2", theirs, "residual.6");
    module(ours, "conv_shortcut", theirs, "shortcut");
}

static void middle(const char *half)
{
    char ours[64], theirs[64];
    for (int i = 0; i < 3; i++) {
        snprintf(ours, sizeof ours, "%s.mid_block.%s.%d.", half, i == 1 ? "attentions" : "resnets",
                 i / 2);
        snprintf(theirs, sizeof theirs, "%s.middle.%d.", half, i);
        if (i != 1) {
            residual(ours, theirs);
            continue;
        }
        gain(ours, "norm", theirs, "norm");
        module(ours, "to_qkv", theirs, "to_qkv");
        module(ours, "proj", theirs, "proj");
    }
}

/* Names of part i of level l, part `at` of all: a residual block, or the resampling (`last`). With
 * shortcuts levels are numbered. */
static void part_names(int dec, int cut, const int lia[3], int last, char ours[64], char theirs[64])
{
    const char *down = dec ? "up" : "down";
    int         l = lia[0], i = lia[1], at = lia[2];
    if (cut)
        snprintf(theirs, 64, "%scoder.%ssamples.%d.%ssamples.%d.", dec ? "de" : "en", down, l, down,
                 i);
    else
        snprintf(theirs, 64, "%scoder.%ssamples.%d.", dec ? "de" : "en", down, at);
    if (!dec && !cut)
        snprintf(ours, 64, "encoder.down_blocks.%d.", at);
    else if (last)
        snprintf(ours, 64, "%scoder.%s_blocks.%d.%s", dec ? "de" : "en", down, l,
                 !cut  ? "upsamplers.0."
                 : dec ? "upsampler."
                       : "downsampler.");
    else
        snprintf(ours, 64, "%scoder.%s_blocks.%d.resnets.%d.", dec ? "de" : "en", down, l, i);
}

/* Four levels of three (decoder) or two (encoder) residual blocks and a resampling. */
static void levels(int dec, int cut)
{
    int  at = 0;
    char ours[64], theirs[64];
    for (int l = 0; l < 4; l++) {
        for (int i = 0; i < 2 + dec + (l < 3); i++) {
            int last = i == 2 + dec;
            part_names(dec, cut, (int[]){ l, i, at++ }, last, ours, theirs);
            if (!last) {
                residual(ours, theirs);
                continue;
            }
            module(ours, "resample.1", theirs, "resample.1");
            module(ours, "time_conv", theirs, "time_conv");
        }
    }
}

static void walk(int cut)
{
    npairs = 0;
    for (int dec = 0; dec < 2; dec++) {
        const char *half = dec ? "decoder." : "encoder.";
        module(half, "conv_in", half, "conv1");
        levels(dec, cut);
        middle(dec ? "decoder" : "encoder");
        gain(half, "norm_out", half, "head.0");
        module(half, "conv_out", half, "head.2");
    }
    module("", "quant_conv", "", "conv1");
    module("", "post_quant_conv", "", "conv2");
}

static const char *theirs_of(const char *ours)
{
    for (int i = 0; i < npairs; i++)
        if (strcmp(pairs[i].ours, ours) == 0)
            return pairs[i].theirs;
    fail_msg("the walk has no %s", ours);
    return NULL;
}

static int no_has(void *self, const char *name, xd_tensor *shape)
{
    (void)self, (void)name, (void)shape;
    return 0;
}

/* A file of these names, behind the prefix; tensors of one element. */
static xd_st *file_of(const xd_decl *d, const char *prefix, int original)
{
    static float      one = 1;
    static char       name[MOST][600];
    static xd_st_item item[MOST];
    xd_st            *st = NULL;
    xd_err            e = { 0 };
    for (int i = 0; i < d->nlist; i++) {
        snprintf(name[i], sizeof name[i], "%s%s", prefix,
                 original ? theirs_of(d->list[i].name) : d->list[i].name);
        item[i] = (xd_st_item){ name[i], xd_view(&one, XD_F32, 1, (int64_t[]){ 1 }) };
    }
    ok(xd_st_write(in_scratch("vae.safetensors"), item, d->nlist, 0, NULL, &e), &e);
    ok(xd_st_open(&st, in_scratch("vae.safetensors"), "vae", &e), &e);
    return st;
}

static void names_of(const char *class_name, const char *config, const char *prefix, int original)
{
    part            p = { 0 };
    xd_decl         d;
    xd_err          e = { 0 };
    char            have[512];
    xd_single_file *s = NULL;
    xd_source       raw = { .has = no_has };
    ok(xd_json_parse(&p.config, config, strlen(config), "config", &e), &e);
    ok(xd_net_open(&p.net, find(&p, class_name), p.config, "config", &e), &e);
    visit(&p, NULL, XD_F32, XD_VISIT_LIST, &d);
    xd_st *st = file_of(&d, prefix, original);
    ok(xd_single_file_open(&s,
                           &(xd_single_file_of){ .file = "vae.safetensors",
                                                 .config = "vae",
                                                 .slot = "vae",
                                                 .net = p.net.def->name,
                                                 .list = d.list,
                                                 .nlist = d.nlist,
                                                 .files = st,
                                                 .raw = &raw },
                           &e),
       &e);
    for (int i = 0; i < d.nlist; i++) {
        assert_true(xd_single_file_name(s, d.list[i].name, have, sizeof have));
        assert_int_equal(strncmp(have, prefix, strlen(prefix)), 0);
        assert_string_equal(have + strlen(prefix),
                            original ? theirs_of(d.list[i].name) : d.list[i].name);
    }
    xd_single_file_close(&s);
    xd_st_close(&st);
    xd_decl_free(&d);
    close_part(&p);
}

static void causal_names(void **state)
{
    const char *patches = "{\"base_dim\":8,\"is_residual\":true,\"patch_size\":2,"
                          "\"in_channels\":12,\"out_channels\":12}",
               *small = "{\"base_dim\":8}";
    (void)state;
    assert_int_equal(scratch_open(), 0);
    for (int original = 0; original < 2; original++) {
        walk(0);
        names_of("AutoencoderKLWan", small, "", original);
        names_of("AutoencoderKLWan", small, "vae.", original);
        names_of("AutoencoderKLQwenImage", small, "", original);
        walk(1);
        names_of("AutoencoderKLWan", patches, "", original);
    }
    scratch_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causal_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

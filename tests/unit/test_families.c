/* test_families.c - what families say of themselves fits together, and messages say it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "families/family.h"
#include "families/help.h"
#include "vae/vae.h"

enum { MOST = 64 };

/* Nothing is found by two names that are equal. */
static void unique(const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                fail_msg("two networks or recipes are found by %s", names[i]);
}

/* The config of a transformer selects among the recipes of a pipeline class. */
static void concat(xd_json **config)
{
    static const char text[] = "{\"image_condition_type\":\"latent_concat\"}";
    const xd_recipe  *p = xd_recipe_find("HunyuanVideoImageToVideoPipeline", NULL);
    xd_err            e = { 0 };
    assert_int_equal(xd_json_parse(config, text, sizeof text - 1, "config", &e), XD_OK);
    assert_true(p && p->role == XD_ROLE_HELD && xd_recipe_for(p, NULL) == p);
    assert_int_equal(xd_recipe_for(p, *config)->role, XD_ROLE_MARKED_FRAME);
    p = xd_recipe_find("HunyuanVideoPipeline", NULL);
    assert_ptr_equal(xd_recipe_for(p, *config), p);
    xd_json_free(config);
}

static void names(void **state)
{
    const char *class[MOST], *pipeline[MOST], *title[MOST];
    int         nc = 0, np = 0, nt = 0;
    xd_json    *none = NULL;
    xd_err      e = { 0 };
    (void)state;
    assert_int_equal(xd_json_parse(&none, "{}", 2, "index", &e), XD_OK);
    for (const xd_dit *d; (d = xd_dit_at(nt)); nt++)
        for (int k = 0; k < 6 && d->net.classes[k]; k++)
            class[nc++] = d->net.classes[k];
    nt = 0;
    for (const xd_recipe *r; (r = xd_recipe_at(nt)); nt++) {
        const xd_recipe *first = xd_recipe_find(r->pipelines[0], r->when ? NULL : none);
        assert_true(r->dit_key ? first && first != r : first == r);
        for (int k = 0; !r->when && !r->dit_key && k < 4 && r->pipelines[k]; k++)
            pipeline[np++] = r->pipelines[k];
    }
    for (nt = 0; xd_families[nt]; nt++)
        title[nt] = xd_families[nt]->title;
    assert_true(nt >= 5 && nc >= 6 && np >= 8);
    unique(class, nc);
    unique(pipeline, np);
    unique(title, nt);
    xd_json_free(&none);
    assert_int_equal(xd_json_parse(&none, "{\"is_distilled\":true}", 21, "index", &e), XD_OK);
    assert_int_equal(xd_recipe_find("Flux2KleinPipeline", none)->steps, 4);
    xd_json_free(&none);
    concat(&none);
    assert_null(xd_recipe_find("NoPipeline", NULL));
    assert_null(xd_recipe_find(NULL, NULL));
}

/* A net of a family is one of its transformers, a control network, or an autoencoder. */
static int has_net(const xd_family *f, const char *name)
{
    int found = 0;
    for (int k = 0; xd_vaes[k]; k++)
        found |= strcmp(xd_vaes[k]->net.name, name) == 0;
    for (int k = 0; f->dits[k]; k++) {
        const xd_side *side = f->dits[k]->side;
        found |= strcmp(f->dits[k]->net.name, name) == 0;
        found |= side && side->net && strcmp(side->net, name) == 0;
    }
    return found;
}

static int has_recipe(const xd_family *f, const char *name)
{
    int found = 0;
    for (int k = 0; f->recipes[k]; k++)
        found |= strcmp(f->recipes[k]->name, name) == 0;
    return found;
}

/* Layouts are of the family's own networks, rows of xDiT of its own recipes. */
static void own_names(void **state)
{
    (void)state;
    for (int i = 0; xd_families[i]; i++) {
        const xd_family *f = xd_families[i];
        for (int k = 0; f->dits[k]; k++)
            assert_ptr_equal(xd_family_of(f->dits[k]), f);
        for (const xd_key_map *m = f->key_maps; m && m->what; m++)
            if (!has_net(f, m->nets[0]))
                fail_msg("%s has a layout of %s", f->title, m->nets[0]);
        for (const xd_xdit_model *m = f->xdit ? f->xdit->models : NULL; m && m->title; m++)
            if (m->own && !has_recipe(f, m->own))
                fail_msg("%s of xDiT is %s, which is no recipe of %s", m->title, m->own, f->title);
    }
    assert_null(xd_family_of(NULL));
}

/* Encoders have folders, and rows beside others have rows that they stand beside. */
static void encoders(void **state)
{
    const xd_recipe *r;
    (void)state;
    for (int i = 0; (r = xd_recipe_at(i)); i++) {
        assert_in_range(r->ntext, 1, XD_MAXTEXT);
        assert_true(r->steps > 0 && r->max_text > 0 && r->dit && r->vae);
        for (int k = 0; k < r->ntext; k++) {
            const xd_text_use *u = &r->text[k];
            const int          embeds = u->prior && u->follows; /* rows of the encoder before it */
            assert_true(u->folder && (u->tokenizer || u->processor || embeds) && u->slot);
            assert_true(!k || !u->tokenizer || r->text[k - 1].tokenizer);
            assert_true(u->rows != XD_ROWS_BESIDE || (k && r->text[k - 1].rows != XD_ROWS_NONE));
            const int read_on = k + 1 < r->ntext && r->text[k + 1].follows;
            assert_true(u->rows != XD_ROWS_NONE || u->pooled || read_on);
            assert_true(!u->follows || (k && r->text[k - 1].rows == XD_ROWS_NONE));
        }
    }
}

static void sizes(void **state)
{
    int64_t          h = 1000, w = 500;
    const xd_recipe *alpha = xd_recipe_find("PixArtAlphaPipeline", NULL),
                    *sigma = xd_recipe_find("PixArtSigmaPipeline", NULL),
                    *standard = xd_recipe_find("HunyuanDiTPipeline", NULL);
    (void)state;
    assert_false(alpha->trained_size(256, &h, &w)); /* of Sigma alone */
    assert_true(h == 1000 && w == 500);
    assert_true(sigma->trained_size(256, &h, &w) && h == 2816 && w == 1408);
    h = 1000, w = 500;
    assert_true(alpha->trained_size(64, &h, &w) && h == 704 && w == 352);
    h = 1000, w = 990;
    assert_true(standard->trained_size(0, &h, &w) && h == 1024 && w == 1024);
    assert_true(alpha->resized && !standard->resized);
    assert_null(xd_recipe_find("FluxPipeline", NULL)->trained_size);
}

static void words(void **state)
{
    static const struct {
        xd_family_word word;
        const char    *says;
    } row[] = {
        { XD_WORD_DISTILLED, "FLUX, SANA, FLUX.2, Qwen-Image, HunyuanVideo" },
        { XD_WORD_RESCALES, "LTX-Video, LTX-2, HunyuanDiT" },
        { XD_WORD_AUDIO, "LTX-2" },
        { XD_WORD_CONDITIONS, "LTX-Video, LTX-2" },
        { XD_WORD_UPSAMPLES, "LTX-Video, LTX-2" },
        { XD_WORD_PRIOR, "FLUX" },
        { XD_WORD_DENOISES_PART, "LTX-Video" },
        { XD_WORD_FROM_PROMPT, "Z-Image, Krea-2" },
        { XD_WORD_KEEPS_ROWS, "Lumina-Image" },
        { XD_WORD_NORMALIZES, "Z-Image, Krea-2, Lumina-Image, Qwen-Image" },
        { XD_WORD_SYSTEM, "Lumina-Image, SANA" },
        { XD_WORD_SEPARATES, "Qwen-Image" },
        { XD_WORD_DYNAMIC_CFG, "CogVideoX" },
        { XD_WORD_MAX_AREA, "FLUX, Qwen-Image" },
        { XD_WORD_INPAINTS, "FLUX, Z-Image, Krea-2, Lumina-Image, SANA, Chroma, AuraFlow, "
                            "Qwen-Image, Stable Diffusion XL, Stable Diffusion 3" },
        { XD_WORD_TWO_DITS, "Wan" },
        { XD_WORD_OPTIONAL_TEXT, "Stable Diffusion 3" },
        { XD_WORD_LAYERS, "\"2,4\" of FLUX" },
        { XD_WORD_FROM_IMAGE,
          "SANA-Video, Wan2.1-I2V-14B, Wan2.2-TI2V-5B, LTX-Video, LTX-2, HunyuanVideo-I2V, "
          "CogVideoX-5b-I2V and CogVideoX1.5-5B-I2V" },
        { XD_WORD_LAST_IMAGE, "Wan2.1-FLF2V-14B, LTX-2" },
        { XD_WORD_CONTROLS, "FLUX.1-Canny-dev, FLUX.1-Depth-dev" },
        { XD_WORD_FILE, "flux1-dev.safetensors" },
        { XD_WORD_HUB, "black-forest-labs/FLUX.1-dev" },
    };
    (void)state;
    for (int w = 0; w < XD_WORDS; w++)
        assert_true(*xd_family_says((xd_family_word)w));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_string_equal(xd_family_says(row[i].word), row[i].says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names), cmocka_unit_test(own_names), cmocka_unit_test(encoders),
        cmocka_unit_test(sizes), cmocka_unit_test(words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

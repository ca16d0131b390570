/* help.c - collects lists of names for help texts from all model families, once */
#include "families/help.h"

#include <pthread.h>

#include "families/family.h"

static xd_text_buf words[XD_WORDS];

int xd_recipe_has(const xd_recipe *r, xd_family_word w)
{
    int optional = 0, prompts = 1;
    for (int i = 0; i < r->ntext; i++) {
        optional |= r->text[i].optional && r->text[i].tokenizer;
        prompts = r->text[i].prompt + 1 > prompts ? r->text[i].prompt + 1 : prompts;
    }
    return w == XD_WORD_DISTILLED       ? r->distilled
           : w == XD_WORD_RESCALES      ? r->rescales
           : w == XD_WORD_AUDIO         ? r->audio_guidance > 0
           : w == XD_WORD_SOUND         ? r->audio[0] != NULL
           : w == XD_WORD_CONDITIONS    ? r->role == XD_ROLE_CONDITIONS || r->placed
           : w == XD_WORD_ADDS_NOISE    ? r->condition_noise > 0
           : w == XD_WORD_DRIVES        ? r->role == XD_ROLE_DRIVEN
           : w == XD_WORD_DECODES_AT    ? r->decodes_at
           : w == XD_WORD_UPSAMPLES     ? r->upsampler != NULL
           : w == XD_WORD_DENOISES_PART ? r->denoises_part
           : w == XD_WORD_FROM_PROMPT   ? r->guides_from_prompt
           : w == XD_WORD_KEEPS_ROWS    ? r->keeps_rows
           : w == XD_WORD_NORMALIZES ? r->keeps_rows || r->guides_from_prompt || r->may_keep_length
           : w == XD_WORD_SYSTEM     ? r->system != NULL
           : w == XD_WORD_SKIPS_LAYERS   ? r->skips_layers
           : w == XD_WORD_SEPARATES      ? r->layers > 0
           : w == XD_WORD_AUTO_RESIZES   ? r->auto_resizes
           : w == XD_WORD_MICRO          ? r->micro
           : w == XD_WORD_NEGATIVE_MICRO ? r->negative_micro
           : w == XD_WORD_DYNAMIC_CFG    ? r->dynamic_cfg
           : w == XD_WORD_INPAINTS       ? xd_recipe_inpaints(r)
           : w == XD_WORD_TWO_DITS       ? r->dit2 != NULL
           : w == XD_WORD_TWO_PROMPTS    ? prompts > 1
           : w == XD_WORD_THREE_PROMPTS  ? prompts > 2
           : w == XD_WORD_PRIOR          ? r->text[r->ntext - 1].prior
           : w == XD_WORD_CLEANS         ? r->uncleaned != NULL
           : w == XD_WORD_WEIGHS         ? r->weighs != 0
           : w == XD_WORD_MAX_AREA       ? r->max_area > 0 || r->reference_area > 0
                                         : optional;
}

static void add_words(xd_family_word w, const char *text)
{
    xd_buf_add(&words[w], "%s%s", words[w].len ? ", " : "", text);
}

/* Adds a family's title to the list of names for w, if one of the family's recipes has the property
 * w. */
static void add_title(xd_family_word w, const xd_family *f)
{
    int has = 0;
    for (int k = 0; f->recipes[k]; k++)
        has |= w != XD_WORD_SIDES && xd_recipe_has(f->recipes[k], w);
    for (int k = 0; f->dits[k] && w == XD_WORD_SIDES; k++)
        has |= f->dits[k]->side != NULL;
    if (has)
        add_words(w, f->title);
}

static void add_examples(const xd_family *f)
{
    const xd_examples *e = &f->examples;
    if (e->layers && !words[XD_WORD_LAYERS].len)
        xd_buf_add(&words[XD_WORD_LAYERS], "\"%s\" of %s", e->layers, f->title);
    if (e->file && !words[XD_WORD_FILE].len)
        add_words(XD_WORD_FILE, e->file);
    if (e->hub && !words[XD_WORD_HUB].len)
        add_words(XD_WORD_HUB, e->hub);
    if (e->from_image)
        add_words(XD_WORD_FROM_IMAGE, e->from_image);
    if (e->last_image)
        add_words(XD_WORD_LAST_IMAGE, e->last_image);
    if (e->control_image)
        add_words(XD_WORD_CONTROLS, e->control_image);
    if (e->control_video)
        add_words(XD_WORD_CONTROL_VIDEO, e->control_video);
}

static void collect_words(void)
{
    for (int i = 0; xd_families[i]; i++) {
        for (int w = 0; w < XD_WORD_LAYERS; w++)
            add_title((xd_family_word)w, xd_families[i]);
        add_examples(xd_families[i]);
    }
}

const char *xd_family_says(xd_family_word w)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, collect_words);
    return words[w].len && !words[w].failed ? words[w].p : "none";
}

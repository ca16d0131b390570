/* help.h - what help texts and messages say of the families, from their recipes and examples
 *
 * A header that the program reads, too (tests/style/layers.py). */
#ifndef XD_FAMILIES_HELP_H
#define XD_FAMILIES_HELP_H

typedef enum xd_family_word {
    /* Titles of families, ", " between them: */
    XD_WORD_DISTILLED,          /* the guidance scale is distilled                             */
    XD_WORD_RESCALES,           /* the pipeline has guidance_rescale                           */
    XD_WORD_FROM_PROMPT,        /* guidance is counted from the prompt's prediction            */
    XD_WORD_DYNAMIC_CFG,        /* the published examples use dynamic guidance                 */
    XD_WORD_SKIPS_LAYERS,       /* the pipeline has skip_guidance_layers                       */
    XD_WORD_AUTO_RESIZES,       /* reference images get a trained size                         */
    XD_WORD_MAX_AREA,           /* width and height give the ratio, max_area the size          */
    XD_WORD_INPAINTS,           /* a part of an image can be inpainted (xd_recipe_inpaints)      */
    XD_WORD_TWO_DITS,           /* a model may have two transformers                           */
    XD_WORD_OPTIONAL_TEXT,      /* a text encoder may be absent                                */
    XD_WORD_TWO_PROMPTS,        /* a second text encoder may read a prompt of its own          */
    XD_WORD_THREE_PROMPTS,      /* a third one, too                                            */
    XD_WORD_CLEANS,             /* captions are cleaned as those of the web                    */
    XD_WORD_LAYERS,             /* blocks of each kind, and the family: "2,4" of FLUX          */
    /* Names of what is published: */
    XD_WORD_FROM_IMAGE,         /* models whose video begins with an image                     */
    XD_WORD_LAST_IMAGE,         /* those whose video ends with one, too                        */
    XD_WORD_FILE,               /* a file with a transformer's weights                         */
    XD_WORD_HUB,                /* a model of the hub                                          */
    XD_WORDS
} xd_family_word;

/* The words live as long as the program. */
const char *xd_family_says(xd_family_word w);

#endif

/* help.h - returns texts for help and messages that depend on the recipes and examples of the model
 * families.
 *
 * The command-line program also includes help.h (tests/style/layers.py allows it). */
#ifndef XD_FAMILIES_HELP_H
#define XD_FAMILIES_HELP_H

typedef enum xd_family_word {
    /* Each of the following constants stands for a comma-separated list of model families: those
     * for which the comment beside the constant is true. */
    XD_WORD_DISTILLED, /* the model reads a distilled guidance scale */
    XD_WORD_RESCALES,  /* the pipeline has guidance_rescale */
    /* the pipeline generates audio, and guidance of audio is separate from guidance of video */
    XD_WORD_AUDIO,
    XD_WORD_SOUND, /* the pipeline generates audio */
    /* images are given frames of the video (XD_ROLE_CONDITIONS, or a role in `placed`) */
    XD_WORD_CONDITIONS,    /* the request's images fix frames of the video (XD_ROLE_CONDITIONS) */
    XD_WORD_DRIVES,        /* a pose video and a face video drive a character (XD_ROLE_DRIVEN) */
    XD_WORD_ADDS_NOISE,    /* the pipeline has image_cond_noise_scale */
    XD_WORD_DECODES_AT,    /* the pipeline has decode_timestep */
    XD_WORD_UPSAMPLES,     /* networks enlarge the latents (xd_recipe.upsampler) */
    XD_WORD_DENOISES_PART, /* the pipeline has denoise_strength */
    XD_WORD_FROM_PROMPT,   /* the guidance formula starts from the prediction for the prompt */
    XD_WORD_KEEPS_ROWS,    /* the pipeline has cfg_trunc_ratio */
    XD_WORD_NORMALIZES,    /* the pipeline has cfg_normalization */
    XD_WORD_SYSTEM,        /* the pipeline has system_prompt */
    XD_WORD_MICRO,         /* the pipeline has original_size, crops_coords_top_left, target_size */
    /* the pipeline also has the options negative_original_size, negative_crops_coords_top_left and
     * negative_target_size */
    XD_WORD_NEGATIVE_MICRO,
    XD_WORD_DYNAMIC_CFG,  /* the published examples use dynamic guidance */
    XD_WORD_SKIPS_LAYERS, /* the pipeline has skip_guidance_layers */
    XD_WORD_SEPARATES,    /* an image is separated into layers */
    XD_WORD_AUTO_RESIZES, /* reference images are resized to a trained size */
    /* width and height set only the aspect ratio, and max_area sets the size */
    XD_WORD_MAX_AREA,
    XD_WORD_INPAINTS,      /* a masked area of an image can be inpainted (xd_recipe_inpaints) */
    XD_WORD_TWO_DITS,      /* a model may have two transformers */
    XD_WORD_OPTIONAL_TEXT, /* a text encoder may be absent */
    XD_WORD_TWO_PROMPTS,   /* a second text encoder may have its own prompt */
    XD_WORD_THREE_PROMPTS, /* a third text encoder may have its own prompt */
    /* prompts are cleaned of text that is typical of web pages (clean_caption) */
    XD_WORD_CLEANS,
    XD_WORD_WEIGHS, /* words of a prompt may have weights (prompt_weighting) */
    /* a prior network turns images into further rows of the prompt's embedding
     * (xd_text_use.prior) */
    XD_WORD_PRIOR,
    XD_WORD_SIDES,  /* the transformer can have control networks */
    XD_WORD_LAYERS, /* example of the numbers of blocks of each kind, such as "2,4" */
    /* Each of the following constants stands for names of published models or files: */
    XD_WORD_FROM_IMAGE,    /* models that read the first frame of a video */
    XD_WORD_LAST_IMAGE,    /* models that read the first and the last frame of a video */
    XD_WORD_CONTROLS,      /* models that read a control image */
    XD_WORD_CONTROL_VIDEO, /* models that read a control video */
    XD_WORD_FILE,          /* a file with the weights of a transformer */
    XD_WORD_HUB,           /* a model on the Hugging Face hub */
    XD_WORDS
} xd_family_word;

struct xd_recipe;

/* Returns 1 if recipe r has the property that the constant w names in its comment (only for
 * constants that stand for lists of families). */
int         xd_recipe_has(const struct xd_recipe *r, xd_family_word w);
/* Returns the list of families or names that the constant w stands for, or "none" if the list is
 * empty. The returned text is valid as long as the program runs. */
const char *xd_family_says(xd_family_word w);

#endif

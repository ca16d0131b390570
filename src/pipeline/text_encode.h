/* text_encode.h - tokenizes the prompts of a request and computes their text embeddings. */
#ifndef XD_PIPELINE_TEXT_ENCODE_H
#define XD_PIPELINE_TEXT_ENCODE_H

#include "pipeline/job.h"

typedef struct xd_token_ids { /* token ids of a text for one encoder */
    int32_t *v;               /* [n] token ids; NULL for an image encoder */
    int64_t  n;               /* number of token ids, including padding */
    int64_t  uncut;           /* number of token ids before truncation */
    /* number of token ids without padding; padding that the encoder reads like text counts too */
    int64_t  real;
    int64_t  text; /* number of token ids that are not padding */
    /* Number of token ids of the system prompt, which follow the first id, and whose rows are
     * removed from the embedding. */
    int64_t  dropped;
    /* For a prompt template that includes the request's image (xd_text_use.image_every): `images`
     * is the number of image rows in the embedding, and `cut` is the range of token ids after the
     * prompt whose rows are removed from the embedding. */
    int64_t  images;
    xd_span  cut;
    /* With prompt_weighting: `weights` [n] are factors of the embedding's rows, and `chunk` is the
     * number of token ids that the encoder reads at a time. Without prompt_weighting, `weights` is
     * NULL and `chunk` is 0: the encoder reads all token ids together. */
    float   *weights;
    int64_t  chunk;
} xd_token_ids;

typedef struct xd_prompt { /* the token ids and the embedding of one prompt or negative prompt */
    xd_token_ids  ids[XD_MAXTEXT];    /* token ids for each text encoder */
    int64_t       rows;               /* number of rows of the prompt's embedding */
    xd_cond       cond;               /* embedding; empty if the text is not used */
    xd_cond_image images[XD_MAXREFS]; /* positions of the images in the embedding `cond` */
    /* [n, width] output of an encoder that the next encoder reads (xd_text_use.follows), on the
     * host of ranks that encode; else NULL */
    float        *states;
    /* 1: the embedding is known without encoding: it is in the cache of earlier requests, or all
     * its elements are zeros (xd_recipe.zeros_negative) */
    int           known;
    /* 1: the prompt is empty, and the rows of its text are zeros (xd_prior_is_silent) */
    int           silent;
    int           blind; /* 1: the encoders see a black image in place of the request's image */
} xd_prompt;

typedef struct xd_prompts { /* the texts of a request: prompts, then negative prompts */
    int        n, ntext;    /* number of texts; number of text encoders */
    int        prompts;     /* number of prompts; the other texts are negative prompts */
    xd_prompt *text;        /* [n] the texts of the request */
    int64_t    seen[2];     /* on rank 0: two hashes of the images that encoders read */
} xd_prompts;

xd_status xd_prompts_tokenize(xd_prompts *w, const xd_job *j, xd_err *e); /* tokenizes all texts */
/* Computes the embeddings of all texts. xd_prompts_encode loads the text encoders one by one.
 * Unless the engine keeps its encoders, each encoder is freed after use. `bytes` is the size of the
 * scratch arena that xd_memory_plan counted for the longest text. All ranks must call
 * xd_prompts_encode. */
xd_status xd_prompts_encode(xd_prompts *w, xd_job *j, size_t bytes, xd_err *e);
/* Prepares the ranks of the communicator `c`, which together compute text encoder k. If a rank has
 * failed (its status `s`), all ranks return an error; otherwise all ranks get the images that the
 * encoder reads. Does nothing if `c` is NULL, because one rank then computes alone. The call is
 * collective over the ranks of `c`. */
xd_status xd_prompts_start(xd_job *j, int k, xd_comm *c, xd_status s, xd_err *e);
/* Computes the outputs of encoder k, which is loaded, for the texts that are used and not cached.
 * `a` is the scratch memory for the encoder. The call is collective over the ranks that split the
 * encoder. */
xd_status xd_prompts_compute(xd_prompts *w, xd_job *j, int k, xd_arena *a, xd_err *e);
/* Returns the index, among the n texts, of the negative prompt that belongs to a prompt. */
int       xd_prompts_negative(const xd_prompts *w, int prompt);
/* Returns the number of rows of a prompt's embedding, or of its negative prompt's, that the
 * transformer reads. */
int64_t   xd_prompts_rows(const xd_prompts *w, const xd_job *j, int prompt, int negative);
/* Returns the maximum of xd_prompts_rows over all prompts and negative prompts. */
int64_t   xd_prompts_longest(const xd_prompts *w, const xd_job *j);
void      xd_prompts_close(xd_prompts *w, xd_context *ctx);
/* Logs a message about prompts that are truncated because they have too many tokens. */
void      xd_prompts_warn_cut(const xd_prompts *w, const xd_job *j);
/* Returns the number of tokens of prompt i, without padding and without the tokens of images. With
 * several text encoders, xd_prompts_tokens returns the maximum over the encoders. */
int64_t   xd_prompts_tokens(const xd_prompts *w, const xd_job *j, int i);
/* Returns how many token ids of prompt i are input to the network of text encoder k. */
int64_t   xd_prompts_computed(const xd_prompts *w, const xd_job *j, int i, int k);
/* Returns 1 if the request needs text encoder k, unless all embeddings are cached. */
int       xd_prompts_need(const xd_job *j, int k);
/* Counts the bytes of scratch arena that text encoder k needs for `texts` texts with n[0], n[1] ...
 * tokens. The count includes the image tokens, which are the same for all texts. */
xd_status xd_prompts_count(const xd_job *j, int k, const int64_t *n, int texts, size_t *bytes,
                           xd_err *e);
/* Returns the bytes of the embeddings of all used prompts if they are in the device's own memory,
 * or 0 if they are in host memory. */
size_t    xd_prompts_bytes(const xd_prompts *w, const xd_job *j);
/* Returns the maximum number of rows of a prompt's embedding. */
int64_t   xd_prompts_most_rows(const xd_job *j);
/* Returns the maximum number of token ids that text encoder k reads per prompt: ids of the text, of
 * the images, and of the prompt template whose embedding rows are dropped. */
int64_t   xd_prompts_most_ids(const xd_job *j, int k);
/* Returns the number of embedding rows of a prompt, or of a negative prompt, that has n token ids
 * for encoder k. */
int64_t   xd_prompts_kept(const xd_job *j, int k, int64_t n, int negative);
/* Returns 1 if the number of embedding rows does not depend on max_sequence_length. */
int       xd_prompts_fixed(const xd_job *j);
/* For embeddings that are only counted or are synthetic, sets `real` to the maximum number of token
 * ids other than padding for each encoder. */
void      xd_prompts_real_tokens(const xd_job *j, int64_t real[XD_MAXTEXT]);
/* Sets `real` to the number of token ids of text i, without padding, for each encoder. */
void      xd_prompts_real_tokens_of(const xd_prompts *w, const xd_job *j, int i,
                                    int64_t real[XD_MAXTEXT]);

#endif

/* text_encode.h - prompts -> token ids -> embeddings */
#ifndef XD_PIPELINE_TEXT_ENCODE_H
#define XD_PIPELINE_TEXT_ENCODE_H

#include "pipeline/job.h"

typedef struct xd_token_ids {   /* token ids of a text for one encoder                         */
    int32_t *v;                 /* [n]; NULL for an image encoder                              */
    int64_t  n;                 /* number of ids with padding                                  */
    int64_t  uncut;             /* number of ids before truncation                             */
    int64_t  real;              /* number of attended ids; the rest is padding                 */
} xd_token_ids;

typedef struct xd_prompt {      /* one prompt or negative prompt                               */
    xd_token_ids ids[XD_MAXTEXT];       /* for each text encoder                               */
    int64_t      rows;          /* rows of the embedding                                       */
    xd_cond      cond;          /* the embedding                                               */
    int          known;         /* 1: an earlier request has cached the embedding              */
} xd_prompt;

typedef struct xd_prompts {     /* prompts, then negative prompts, of a request                */
    int        n, ntext;        /* number of texts; of text encoders                           */
    int        prompts;         /* number of prompts; the rest are negative prompts            */
    xd_prompt *text;            /* [n]                                                         */
    int64_t    seen[2];         /* hashes of the images for encoders, on rank 0                */
} xd_prompts;

xd_status xd_prompts_tokenize(xd_prompts *w, const xd_job *j, xd_err *e);  /* token ids */
/* Computes embeddings: loads each text encoder, and drops it unless the engine keeps it. `bytes`:
 * arena size that xd_memory_plan counted for the longest text. Collective. */
xd_status xd_prompts_encode(xd_prompts *w, xd_job *j, size_t bytes, xd_err *e);
/* Returns the index of a prompt's negative prompt. */
int       xd_prompts_negative(const xd_prompts *w, int prompt);
void      xd_prompts_close(xd_prompts *w, xd_context *ctx);
/* Warns about truncated prompts. */
void      xd_prompts_warn_cut(const xd_prompts *w, const xd_job *j);
/* Returns the tokens of prompt i without padding and without image tokens, the maximum over the
 * encoders. */
int64_t   xd_prompts_tokens(const xd_prompts *w, const xd_job *j, int i);
/* Returns the number of ids of prompt i that encoder k computes. */
int64_t   xd_prompts_computed(const xd_prompts *w, const xd_job *j, int i, int k);
/* Counts the arena bytes for encoding texts of n[0], n[1] ... tokens, including those of the same
 * images, with encoder k. */
xd_status xd_prompts_count(const xd_job *j, int k, const int64_t *n, int texts, size_t *bytes,
                           xd_err *e);
/* Returns the bytes of the device's own memory for the embeddings of all used prompts; 0: they are
 * in host memory. */
size_t    xd_prompts_bytes(const xd_prompts *w, const xd_job *j);
/* Returns the maximum number of rows of a prompt's embedding. */
int64_t   xd_prompts_most_rows(const xd_job *j);
/* Returns the maximum number of ids that encoder k reads per prompt: of the text, of the images,
 * and of the template whose rows are dropped. */
int64_t   xd_prompts_most_ids(const xd_job *j, int k);
/* Returns 1 if the length does not depend on max_sequence_length. */
int       xd_prompts_fixed(const xd_job *j);
/* Returns each encoder's maximum number of ids without padding, for counted or synthetic
 * embeddings. */
void      xd_prompts_real_tokens(const xd_job *j, int64_t real[XD_MAXTEXT]);

#endif

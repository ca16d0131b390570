/* text_encode.h - prompts -> token ids -> embeddings */
#ifndef XD_PIPELINE_TEXT_ENCODE_H
#define XD_PIPELINE_TEXT_ENCODE_H

#include "pipeline/job.h"

typedef struct xd_prompts {     /* the prompts of a request, behind them the negative ones     */
    int       n, ntext;         /* texts of both; text encoders                                */
    int       prompts;          /* the negative prompts are text `prompts` to n - 1            */
    int32_t **ids;              /* [n ntext]: prompt by prompt, for every encoder              */
    int64_t  *len;              /* [n ntext]                                                   */
    int64_t  *whole;            /* [n ntext]: number of ids of the uncut prompt                */
    int64_t  *real;             /* [n ntext]: ids that are attended to; others are padding     */
    int64_t  *rows;             /* [n]: rows of the embedding of a prompt                      */
    xd_cond  *cond;             /* [n]                                                         */
    int      *known;            /* [n]: 1: its embedding is kept from an earlier request       */
    int64_t   seen[2];          /* hashes of the images that encoders see, on rank 0           */
} xd_prompts;

xd_status xd_prompts_tokenize(xd_prompts *w, const xd_job *j, xd_err *e);  /* token ids */
/* Computes embeddings: loads the text encoder and drops it unless the engine keeps it. `bytes` of
 * arena are what xd_memory_plan counted for the longest text. Collective. */
xd_status xd_prompts_encode(xd_prompts *w, xd_job *j, size_t bytes, xd_err *e);
/* The number of the negative prompt of a prompt. */
int       xd_prompts_negative(const xd_prompts *w, int prompt);
void      xd_prompts_close(xd_prompts *w, xd_context *ctx);
/* Warns of prompts that are truncated. */
void      xd_prompts_warn_cut(const xd_prompts *w, const xd_job *j);
/* The tokens of prompt i that are read by the encoder that reads the most of them: without padding
 * and without those of images. */
int64_t   xd_prompts_tokens(const xd_prompts *w, const xd_job *j, int i);
/* The ids of prompt i that encoder k computes. */
int64_t   xd_prompts_computed(const xd_prompts *w, const xd_job *j, int i, int k);
/* Counts the arena bytes for encoding texts of n[0], n[1] ... tokens with encoder k, those of the
 * same images among them. */
xd_status xd_prompts_count(const xd_job *j, int k, const int64_t *n, int texts, size_t *bytes,
                           xd_err *e);
/* Bytes of the device's own memory that the embeddings of all used prompts take; 0: they lie in
 * the host's. */
size_t    xd_prompts_bytes(const xd_prompts *w, const xd_job *j);
/* The most rows that the embedding of a prompt can have. */
int64_t   xd_prompts_most_rows(const xd_job *j);
/* The most ids that encoder k reads of a prompt: of its text, of its images, and of a frame whose
 * rows are dropped. */
int64_t   xd_prompts_most_ids(const xd_job *j, int k);
/* 1: its length does not depend on max_sequence_length. */
int       xd_prompts_fixed(const xd_job *j);
/* The most ids of every encoder that are not padding: for counted or synthetic embeddings. */
void      xd_prompts_real_tokens(const xd_job *j, int64_t real[XD_MAXTEXT]);

#endif

/* text_encode.h - prompts -> token ids -> embeddings */
#ifndef XD_PIPELINE_TEXT_ENCODE_H
#define XD_PIPELINE_TEXT_ENCODE_H

#include "pipeline/job.h"

typedef struct xd_prompts {       /* the prompts of a request, the negative one last             */
    int       n, ntext;         /* prompts; text encoders                                      */
    int32_t **ids;              /* [n ntext]: prompt by prompt, of every encoder                */
    int64_t  *len;              /* [n ntext]                                                   */
    int64_t  *whole;            /* [n ntext]: ids if no prompt were cut                        */
    int64_t  *real;             /* [n ntext]: ids that are seen; others are padding                */
    int64_t  *rows;             /* [n] of the embedding of a prompt                            */
    xd_cond  *cond;             /* [n]                                                         */
} xd_prompts;

xd_status xd_prompts_tokenize(xd_prompts *w, const xd_job *j, xd_err *e);       /* token ids            */
/* Embeddings: loads the text encoder, gives it back unless the engine keeps it. `bytes` of arena are
 * what xd_memory_plan counted for the longest text. Collective. */
xd_status xd_prompts_encode(xd_prompts *w, xd_job *j, size_t bytes, xd_err *e);
void      xd_prompts_close(xd_prompts *w, xd_context *ctx);
/* Warns of prompts that are too long to be read to their end. */
void      xd_prompts_warn_cut(const xd_prompts *w, const xd_job *j);
/* Arena bytes of encoding n tokens with encoder k, by counting. */
xd_status xd_prompts_count(const xd_job *j, int k, int64_t n, size_t *bytes, xd_err *e);
/* The most rows that the embedding of a prompt can have. */
int64_t   xd_prompts_most_rows(const xd_job *j);
int       xd_prompts_fixed(const xd_job *j);              /* whatever max_sequence_length is     */
/* The most ids of every encoder that are no padding: of embeddings that are counted or made up.      */
void      xd_prompts_real_tokens(const xd_job *j, int64_t real[XD_MAXTEXT]);

#endif

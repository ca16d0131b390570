/* emphasis.h - tokenizes prompts in which words have weights, in the syntax of the A1111 web
 * interface (AUTOMATIC1111/stable-diffusion-webui, "Attention/emphasis"):
 *
 *     (word)      weight 1.1       [word]   weight 1/1.1
 *     (word:1.3)  weight 1.3       \(  \)   characters without a meaning
 *     BREAK       begins the next chunk of tokens
 *
 * Brackets may be nested, and their weights are then multiplied. A bracket that is not closed
 * changes the weight of the rest of the text. */
#ifndef XD_TOK_EMPHASIS_H
#define XD_TOK_EMPHASIS_H

#include "tok/tok.h"

/* Token ids of a text in chunks of equal length. Each chunk consists of an opening token, tokens of
 * the text, a closing token, and padding. */
typedef struct xd_tok_chunks {
    int32_t *ids;     /* [n] malloc'ed */
    float   *weights; /* [n] malloc'ed; special tokens and padding have weight 1 */
    /* number of token ids: a multiple of the chunk's length, at least one chunk */
    int64_t  n;
} xd_tok_chunks;

/* Tokenizes a text in chunks of `chunk` ids. If a chunk is full, and fewer than 20 tokens
 * follow its last comma, the tokens after this comma move to the next chunk. The
 * tokenizer must have one opening and one closing token, as CLIP's tokenizer has. */
xd_status xd_tok_weighted(const xd_tok *t, const char *text, int64_t chunk, xd_tok_chunks *out,
                          xd_err *e);
/* Appends chunks without text until the list has n token ids. */
xd_status xd_tok_chunks_extend(const xd_tok *t, int64_t chunk, int64_t n, xd_tok_chunks *c,
                               xd_err *e);
void      xd_tok_chunks_free(xd_tok_chunks *c);

#endif

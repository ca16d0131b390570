/* tok.h - tokenizers: text becomes ids, exactly as transformers' tokenizers give them */
#ifndef XD_TOK_TOK_H
#define XD_TOK_TOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct xd_tok xd_tok;

/* Opens the T5 tokenizer of a directory: spiece.model, or tokenizer.json when that is all there
 * is (the SentencePiece model is built from it in memory). Special tokens are those of
 * tokenizer_config.json / special_tokens_map.json / tokenizer.json. */
xd_status xd_tok_open_t5(xd_tok **t, const char *dir, xd_err *e);
/* The same from memory, without the files beside it: a spiece.model with T5's 100 sentinels, a
 * tokenizer.json. Nothing of the bytes is kept. */
xd_status xd_tok_open_spiece(xd_tok **t, const void *data, size_t len, xd_err *e);
xd_status xd_tok_open_json(xd_tok **t, const char *text, size_t len, xd_err *e);
void      xd_tok_close(xd_tok **t);

/* Ids of a text of `len` UTF-8 bytes (invalid bytes are treated as SentencePiece does),
 * with the closing </s>, cut to at most `max` ids the way transformers truncates (max <= 0: not
 * cut). *ids is malloc'ed and the caller's. Ids equal transformers' T5Tokenizer (legacy as the
 * directory's config says). */
xd_status xd_tok_ids(const xd_tok *t, const char *text, size_t len, int64_t max, int32_t **ids,
                     int64_t *n, xd_err *e);
int64_t   xd_tok_vocab(const xd_tok *t);        /* ids are below it                          */

/* Lowers and strips a caption as diffusers' PixArt pipelines do without their optional cleaners
 * (Python's str.lower().strip()). malloc'ed; NULL without memory. */
char *xd_caption_plain(const char *text);

#endif
